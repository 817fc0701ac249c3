//! DNS questions and answers (RFC 1035), by hickory-proto, which only this folder names.

pub(crate) mod message;
pub(crate) mod tcp;
pub(crate) mod update;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::fmt::Write as _;
use std::net::IpAddr;

/// What an answer over UDP may be long, so that no path cuts it (DNS flag day 2020).
const MOST_PAYLOAD: u16 = 1232;
/// The option that carries an Extended DNS Error (RFC 8914 §2).
const EXTENDED_ERROR: u16 = 15;

/// One question, and the identifier that its answer must carry.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    id: u16,
    query: Query,
    recursion: bool,
    edns: bool,
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
    /// The strings of those of them that are texts: "ab" is another text than "a" "b" (RFC 1035 §3.3.14).
    pub(crate) texts: Vec<Vec<Box<[u8]>>>,
    /// The zone is its own: the AA bit.
    pub(crate) authoritative: bool,
    /// It would ask others: the RA bit.
    pub(crate) recursive: bool,
    /// Seconds that it may be kept: the lowest of all records that it was read from, also of the CNAMEs
    /// (RFC 2181 §5.2 and §8). None where there is no answer.
    pub(crate) ttl_s: Option<u32>,
    /// Where the CNAMEs lead, in lower case and without the final dot, in the order in which they lead there.
    pub(crate) aliases: Vec<String>,
    /// What the answer rests on, each with the seconds that it may be kept: the owners of the CNAMEs in their
    /// order, then the owner of the records, or the zone whose SOA stands beside an answer without records.
    pub(crate) links: Vec<(String, u32)>,
    /// Of the zone that the name is in, where the server tells it: as an answer, or beside one that has no records.
    pub(crate) soa: Option<Soa>,
    /// Servers that are named beside the answer; without an answer it is a referral to them.
    pub(crate) servers: Vec<String>,
    /// Extended DNS Errors (RFC 8914): the code and the text.
    pub(crate) ede: Vec<(u16, String)>,
}

/// What a SOA says (RFC 1035 §3.3.13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Soa {
    /// Whose it is, in lower case and without the final dot.
    pub(crate) zone: String,
    /// The server where the zone is changed.
    pub(crate) mname: String,
    pub(crate) serial: u32,
    /// Seconds that an answer without records may be kept (RFC 2308 §5).
    pub(crate) negative_ttl_s: u32,
}

impl Answer {
    pub(crate) fn is_no_error(&self) -> bool {
        self.rcode == "NOERROR"
    }
}

/// Types that no record of a zone has (RFC 6895 §3.1).
const NO_RECORDS: [&str; 9] = ["*", "ANY", "AXFR", "IXFR", "MAILA", "MAILB", "OPT", "TKEY", "TSIG"];

/// Checks a type by name: A, AAAA, MX, …
///
/// # Errors
/// It is none, or one that no record has: the answer would always be empty.
pub(crate) fn check_type(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    if NO_RECORDS.contains(&upper.as_str()) {
        return Err(format!("'{text}' is a type of questions or messages, not of records that an answer has"));
    }
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
        // Escapes are read here: hickory takes \DDD for octal (RFC 1035 §5.1: decimal), and a label as it stands
        // too, whether or not it is one of IDNA.
        let plain = name.bytes().all(|byte| is_plain(byte) || byte == b'.') && !name.is_empty();
        let read = if name != "." && (plain || name.contains('\\')) {
            escaped(name)
        } else {
            Name::from_utf8(name).map_err(|why| why.to_string())
        };
        let mut name = read.map_err(|why| format!("'{name}' is not a name: {why}"))?;
        name.set_fqdn(true);
        let qtype: RecordType = qtype.parse().map_err(|_| format!("'{qtype}' is not a type"))?;
        Ok(Question { id, query: Query::query(name, qtype), recursion: true, edns: false })
    }

    /// The server is to say what it knows, and to ask nobody.
    pub(crate) fn without_recursion(mut self) -> Self {
        self.recursion = false;
        self
    }

    /// With EDNS (RFC 6891): longer answers, and errors that tell more.
    pub(crate) fn with_edns(mut self) -> Self {
        self.edns = true;
        self
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// The message to send. Over TCP its length goes before it.
    ///
    /// # Errors
    /// A name that does not fit a message.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        self.message().to_vec().map_err(|error| error.to_string())
    }

    fn message(&self) -> Message {
        let mut message = Message::new(self.id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = self.recursion;
        message.add_query(self.query.clone());
        if self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(MOST_PAYLOAD);
            message.set_edns(edns);
        }
        message
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
        let of_names = |record: &&Record| record.dns_class == DNSClass::IN && names.contains(&&record.name);
        let of_type: Vec<&Record> = message
            .answers
            .iter()
            .filter(of_names)
            .filter(|record| record.record_type() == self.query.query_type())
            .collect();
        let mut answers: Vec<String> = of_type.iter().map(|record| record.data.to_string()).collect();
        answers.sort();
        answers.dedup();
        let aliases = message.answers.iter().filter(of_names).filter(|record| matches!(record.data, RData::CNAME(_)));
        let links = self.links(&message, &names);
        let soa = message.answers.iter().filter(of_names).chain(&message.authorities).find_map(soa);
        let mut servers: Vec<String> = message
            .authorities
            .iter()
            .filter_map(|record| if let RData::NS(server) = &record.data { Some(plain(&server.0)) } else { None })
            .collect();
        servers.sort();
        Some(Answer {
            rcode: rcode(metadata.response_code),
            truncated: metadata.truncation,
            addresses: of_type.iter().filter_map(|record| record.data.ip_addr()).collect(),
            texts: of_type.iter().filter_map(|record| texts(&record.data)).collect(),
            authoritative: metadata.authoritative,
            recursive: metadata.recursion_available,
            ttl_s: of_type.iter().copied().chain(aliases).map(ttl_s).min().filter(|_| !answers.is_empty()),
            answers,
            aliases: names.into_iter().skip(1).map(plain).collect(),
            links,
            soa,
            servers,
            ede: message.edns.as_ref().map(extended_errors).unwrap_or_default(),
        })
    }

    /// The TTLs that the answer rests on, in the order of `names`; of one set the lowest (RFC 2181 §5.2).
    fn links(&self, message: &Message, names: &[&Name]) -> Vec<(String, u32)> {
        let of = |name: &Name, kind: RecordType| {
            let all = message.answers.iter().filter(|record| record.dns_class == DNSClass::IN && record.name == *name);
            all.filter(|record| record.record_type() == kind).map(ttl_s).min()
        };
        let qtype = self.query.query_type();
        let all = |kind| names.iter().filter_map(move |name| of(name, kind).map(|ttl| (plain(name), ttl)));
        let mut links: Vec<(String, u32)> = Vec::new();
        if qtype != RecordType::CNAME {
            links.extend(all(RecordType::CNAME));
        }
        let records: Vec<_> = all(qtype).collect();
        if records.is_empty() {
            links.extend(message.authorities.iter().find_map(soa).map(|soa| (soa.zone, soa.negative_ttl_s)));
        }
        links.extend(records);
        links
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

/// A name as our records have it; the root is a dot.
fn plain(name: &Name) -> String {
    let text = presented(&name.to_lowercase());
    text.strip_suffix('.').filter(|rest| !rest.is_empty()).unwrap_or(&text).to_owned()
}

/// A name as a zone file has it, with its final dot and with escapes (RFC 1035 §5.1, RFC 4343 §2.1).
fn presented(name: &Name) -> String {
    let mut text = String::new();
    for label in name {
        for byte in label {
            match byte {
                byte if is_plain(*byte) => text.push(char::from(*byte)),
                byte if byte.is_ascii_graphic() => text.extend(['\\', char::from(*byte)]),
                byte => {
                    // Writing to a String does not fail.
                    let _ = write!(text, "\\{byte:03}");
                }
            }
        }
        text.push('.');
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// What stands for itself in every program's names.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'*')
}

/// Reads a name with escapes: `\DDD` is a byte, `\X` is X without its meaning.
fn escaped(text: &str) -> Result<Name, String> {
    let mut labels: Vec<Vec<u8>> = vec![Vec::new()];
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let literal = match byte {
            b'.' => {
                labels.push(Vec::new());
                continue;
            }
            b'\\' => match rest.next().ok_or("it ends with a backslash")? {
                high @ b'0'..=b'9' => {
                    let mut value = u16::from(high - b'0');
                    for _ in 0..2 {
                        let digit = rest.next().filter(u8::is_ascii_digit).ok_or("\\ and a digit needs two more")?;
                        value = value * 10 + u16::from(digit - b'0');
                    }
                    u8::try_from(value).map_err(|_| "\\DDD is above 255")?
                }
                other => other,
            },
            other => other,
        };
        if !literal.is_ascii_graphic() && byte != b'\\' {
            return Err("a character that is not ASCII has to be \\DDD".to_owned());
        }
        labels.last_mut().into_iter().for_each(|label| label.push(literal));
    }
    if labels.last().is_some_and(Vec::is_empty) {
        labels.pop();
    }
    if labels.iter().any(Vec::is_empty) {
        return Err("a label of it is empty".to_owned());
    }
    Name::from_labels(labels).map_err(|why| why.to_string())
}

/// A name in the form of our records, of whatever labels it has (RFC 2181 §11).
///
/// # Errors
/// Why it is none.
pub(crate) fn check_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("'' is not a name (the root is '.')".to_owned());
    }
    Ok(plain(Question::new(text, "A", 0)?.query.name()))
}

/// A TTL whose first bit is set counts as 0 (RFC 2181 §8).
fn ttl_s(record: &Record) -> u32 {
    if record.ttl > i32::MAX.unsigned_abs() { 0 } else { record.ttl }
}

fn texts(data: &RData) -> Option<Vec<Box<[u8]>>> {
    if let RData::TXT(text) = data { Some(text.txt_data.to_vec()) } else { None }
}

fn soa(record: &Record) -> Option<Soa> {
    let RData::SOA(data) = &record.data else { return None };
    Some(Soa {
        zone: plain(&record.name),
        mname: plain(&data.mname),
        serial: data.serial,
        negative_ttl_s: ttl_s(record).min(data.minimum),
    })
}

/// What moves a cursor, turns a line around or ends it, or is not seen: Unicode's categories Cc, Cf, Zl and Zp.
fn is_format(character: char) -> bool {
    let cf_and_separators = matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}');
    character.is_control() || cf_and_separators
}

/// The text is somebody else's: what could move a terminal's cursor does not get out of here.
fn extended_errors(edns: &Edns) -> Vec<(u16, String)> {
    let options = edns.options().options.iter().filter_map(|(_, option)| match option {
        EdnsOption::Unknown(EXTENDED_ERROR, data) => Some(data),
        _ => None,
    });
    let read = |data: &Vec<u8>| {
        let (code, text) = data.split_first_chunk()?;
        let text = String::from_utf8_lossy(text).replace(is_format, " ");
        Some((u16::from_be_bytes(*code), text.trim().to_owned()))
    };
    options.filter_map(read).collect()
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
        ResponseCode::YXDomain => "YXDOMAIN",
        ResponseCode::YXRRSet => "YXRRSET",
        ResponseCode::NXRRSet => "NXRRSET",
        ResponseCode::NotAuth => "NOTAUTH",
        ResponseCode::NotZone => "NOTZONE",
        ResponseCode::BADVERS => "BADVERS",
        ResponseCode::BADCOOKIE => "BADCOOKIE",
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
    fn what_may_be_kept_is_the_lowest_of_the_chain() {
        let answer = question().answer(&response()).unwrap();
        assert_eq!((answer.ttl_s, answer.aliases.as_slice()), (Some(60), ["a.example.org".to_owned()].as_slice()));
        assert_eq!((answer.authoritative, answer.recursive), (false, true));
        let mut unequal = response();
        // The CNAME's TTL, then one of the two addresses' with its first bit set.
        unequal[42] = 5;
        let answer = question().answer(&unequal).unwrap();
        assert_eq!(answer.ttl_s, Some(5));
        assert_eq!(answer.links, [("www.example.org".to_owned(), 5), ("a.example.org".to_owned(), 60)]);
        unequal[55] = 0x80;
        assert_eq!(question().answer(&unequal).unwrap().ttl_s, Some(0));
    }

    /// `dig` of a name without addresses, with a SOA of its zone beside it and two errors in the OPT.
    #[test]
    fn an_answer_without_records_tells_how_long_and_why() {
        let mut bytes = vec![0x12, 0x34, 0x84, 0x00, 0, 1, 0, 0, 0, 1, 0, 1];
        bytes.extend(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
        bytes.extend(b"\xc0\x10\x00\x06\x00\x01\x00\x00\x00\x1e\x00\x1d\x02ns\xc0\x10\x01h\xc0\x10");
        for field in [7_u32, 3600, 600, 86400, 15] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x19");
        bytes.extend(b"\x00\x0f\x00\x02\x00\x16\x00\x0f\x00\x0f\x00\x03old\x1b[1m");
        // What turns the line around, and what ends it.
        bytes.extend("\u{202e}\u{2028}".bytes());
        let answer = question().answer(&bytes).unwrap();
        let soa = Soa { zone: "example.org".into(), mname: "ns.example.org".into(), serial: 7, negative_ttl_s: 15 };
        assert_eq!((answer.soa, answer.ttl_s, answer.authoritative), (Some(soa), None, true));
        assert_eq!(answer.links, [("example.org".to_owned(), 15)]);
        assert_eq!(answer.ede, [(22, String::new()), (3, "old [1m".to_owned())]);
    }

    #[test]
    fn a_question_may_ask_nobody_else_and_for_more() {
        let asked = question().without_recursion().with_edns().encode().unwrap();
        assert_eq!((asked[2], asked[11]), (0, 1));
        assert!(asked.ends_with(b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"), "{asked:x?}");
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
        for no_records in ["ANY", "axfr", "IXFR", "OPT", "TSIG"] {
            assert!(check_type(no_records).unwrap_err().contains("not of records"), "{no_records}");
        }
        assert!(check_name("").unwrap_err().contains("the root is '.'"));
        assert!(Question::new(&"x".repeat(64), "A", 1).is_err());
        assert!(Question::new("a..b", "A", 1).is_err());
        for (text, name) in [
            ("WWW.Example.ORG.", "www.example.org"),
            (".", "."),
            ("*.x.", "*.x"),
            ("a\\.b.C.", "a\\.b.c"),
            ("x\\032\\y", "x\\032y"),
            ("x\\200", "x\\200"),
        ] {
            assert_eq!(check_name(text).unwrap(), name);
        }
        for wrong in ["a\\", "a\\25", "a\\256", "\\.\u{e4}", "a\\..b.", "\\a..b"] {
            assert_eq!(check_name(wrong).is_ok(), wrong == "a\\..b.", "{wrong}");
        }
    }

    #[test]
    fn the_first_name_server_counts() {
        assert_eq!(first_nameserver("# x\nsearch a\nnameserver 192.0.2.53\nnameserver ::1\n"), Some("192.0.2.53"));
        assert_eq!(first_nameserver("nameserver\n"), None);
    }
}
