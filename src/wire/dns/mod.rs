//! DNS questions and answers (RFC 1035), by hickory-proto, which only this file names.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use std::net::IpAddr;

/// One question, and the identifier that its answer must carry.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    id: u16,
    query: Query,
}

/// What a server said to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The response code in the words of RFC 1035 and its successors: NOERROR, NXDOMAIN, …
    pub(crate) rcode: String,
    /// It did not fit: ask again over TCP.
    pub(crate) truncated: bool,
    /// The records of the type asked for, of the name asked for or what its CNAMEs lead to, in
    /// presentation form, sorted, each once.
    pub(crate) answers: Vec<String>,
    /// Those of them that are addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Answer {
    pub(crate) fn is_no_error(&self) -> bool {
        self.rcode == "NOERROR"
    }
}

/// Checks a type by name: A, AAAA, MX, …
pub(crate) fn check_type(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    match upper.parse::<RecordType>() {
        Ok(_) => Ok(upper),
        Err(_) => Err(format!("'{text}' is not a type (A, AAAA, MX, NS, SOA, TXT, …)")),
    }
}

impl Question {
    /// Asks for `name` and `qtype`.
    ///
    /// # Errors
    /// What cannot be a name or a type.
    pub(crate) fn new(name: &str, qtype: &str, id: u16) -> Result<Self, String> {
        let mut name = Name::from_utf8(name).map_err(|error| format!("'{name}' is not a name: {error}"))?;
        name.set_fqdn(true);
        let qtype: RecordType = qtype.parse().map_err(|_| format!("'{qtype}' is not a type"))?;
        Ok(Question { id, query: Query::query(name, qtype) })
    }

    /// The message to send, with recursion desired. Over TCP its length goes before it.
    ///
    /// # Errors
    /// A name that does not fit a message.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut message = Message::new(self.id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(self.query.clone());
        message.to_vec().map_err(|error| error.to_string())
    }

    /// Reads a message; none where it is no answer to this question (RFC 5452 §9.1: the identifier,
    /// and the question as it was asked).
    pub(crate) fn answer(&self, bytes: &[u8]) -> Option<Answer> {
        let message = Message::from_vec(bytes).ok()?;
        let metadata = message.metadata;
        if metadata.id != self.id
            || metadata.message_type != MessageType::Response
            || metadata.op_code != OpCode::Query
            || message.queries != std::slice::from_ref(&self.query)
        {
            return None;
        }
        let names = self.names(&message);
        let of_type: Vec<&RData> = message
            .answers
            .iter()
            .filter(|record| record.dns_class == DNSClass::IN && record.record_type() == self.query.query_type())
            .filter(|record| names.contains(&&record.name))
            .map(|record| &record.data)
            .collect();
        let mut answers: Vec<String> = of_type.iter().map(ToString::to_string).collect();
        answers.sort();
        answers.dedup();
        let addresses = of_type.iter().filter_map(|data| data.ip_addr()).collect();
        Some(Answer { rcode: rcode(metadata.response_code), truncated: metadata.truncation, answers, addresses })
    }

    /// The name asked for, and those that its CNAMEs lead to (RFC 1034 §3.6.2), in whatever order they
    /// stand. What is said of any other name answers nothing.
    fn names<'a>(&'a self, message: &'a Message) -> Vec<&'a Name> {
        let mut names = vec![self.query.name()];
        let mut next = 0;
        while let Some(&name) = names.get(next) {
            for record in message.answers.iter().filter(|record| record.name == *name) {
                if let RData::CNAME(target) = &record.data
                    && !names.contains(&&target.0)
                {
                    names.push(&target.0);
                }
            }
            next += 1;
        }
        names
    }
}

/// The name of a code in the IANA's registry; its number where it has none here.
fn rcode(code: ResponseCode) -> String {
    match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        ResponseCode::NotAuth => "NOTAUTH",
        other => return u16::from(other).to_string(),
    }
    .to_owned()
}

/// The first `nameserver` of resolv.conf(5).
pub(crate) fn first_nameserver(resolv_conf: &str) -> Option<&str> {
    resolv_conf.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question::new("www.example.org", "A", 0x1234).unwrap()
    }

    /// `dig +noedns www.example.org A`, laid out by hand from RFC 1035 §4: two answers behind a CNAME.
    fn response() -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 3, 0, 0, 0, 0];
        bytes.extend(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
        bytes.extend(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01a\xc0\x10");
        for last in [20, 10] {
            bytes.extend(b"\xc0\x2d\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02");
            bytes.push(last);
        }
        bytes
    }

    #[test]
    fn a_question_is_laid_out_as_in_rfc_1035() {
        let mut wanted = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        wanted.extend(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
        assert_eq!(question().encode().unwrap(), wanted);
    }

    #[test]
    fn an_answer_has_its_records_sorted_and_not_the_cname() {
        let answer = question().answer(&response()).unwrap();
        assert_eq!((answer.rcode.as_str(), answer.truncated), ("NOERROR", false));
        assert_eq!(answer.answers, ["192.0.2.10", "192.0.2.20"]);
        assert_eq!(answer.addresses.len(), 2);
    }

    #[test]
    fn an_address_of_another_name_is_no_answer() {
        let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0];
        bytes.extend(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
        bytes.extend(b"\x03foo\x00\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04");
        // In other letters it is the same name.
        bytes.extend(b"\x03WWW\xc0\x10\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01");
        assert_eq!(question().answer(&bytes).unwrap().answers, ["192.0.2.1"]);
        // A CNAME that leads elsewhere, and one that leads to itself.
        let mut other = response();
        other.splice(33..45, *b"\xc0\x10\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04");
        assert_eq!(question().answer(&other).unwrap().answers, [""; 0]);
        let mut circle = response();
        circle.splice(33..49, *b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x02\xc0\x0c");
        assert_eq!(question().answer(&circle).unwrap().answers, ["192.0.2.10", "192.0.2.20"]);
    }

    #[test]
    fn what_answers_another_question_is_no_answer() {
        let response = response();
        assert!(Question::new("www.example.org", "A", 0x1235).unwrap().answer(&response).is_none());
        assert!(Question::new("ftp.example.org", "A", 0x1234).unwrap().answer(&response).is_none());
        assert!(Question::new("www.example.org", "AAAA", 0x1234).unwrap().answer(&response).is_none());
        let mut query = response.clone();
        query[2] &= 0x7f;
        assert!(question().answer(&query).is_none(), "a question is no answer");
        for cut in 0..response.len() {
            // Cut where a record ends it may still be read; it must not be an answer with more than it had.
            let _ = question().answer(&response[..cut]);
        }
    }

    #[test]
    fn codes_and_truncation_are_told() {
        let mut refused = response();
        refused[3] = 0x85;
        assert_eq!(question().answer(&refused).unwrap().rcode, "REFUSED");
        refused[2] |= 0x02;
        assert!(question().answer(&refused).unwrap().truncated);
    }

    #[test]
    fn names_and_types_are_checked() {
        assert_eq!(check_type("aaaa").unwrap(), "AAAA");
        assert!(check_type("B").is_err());
        assert!(Question::new(&"x".repeat(64), "A", 1).is_err());
        assert!(Question::new("a..b", "A", 1).is_err());
    }

    #[test]
    fn the_first_name_server_counts() {
        assert_eq!(first_nameserver("# x\nsearch a\nnameserver 192.0.2.53\nnameserver ::1\n"), Some("192.0.2.53"));
        assert_eq!(first_nameserver("nameserver\n"), None);
    }
}
