//! A DNS message as JSON (RFC 8427), with the flags as 0 and 1 as kdig writes them.

use hickory_proto::op::{Header, Message};
use hickory_proto::rr::Record;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, BinEncodable, BinEncoder, NameEncoding};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The whole of a message: header, question, and the records of each section that has some.
///
/// None where it cannot be read. The counts are those of the header, so the OPT record counts (RFC 6891) and
/// is not among the records, as it is none.
pub(crate) fn json(bytes: &[u8]) -> Option<Value> {
    let counts = Header::read(&mut BinDecoder::new(bytes)).ok()?.counts;
    let message = Message::from_vec(bytes).ok()?;
    let flags = bytes.get(2..4)?;
    let bit = |byte: usize, bit: u8| flags.get(byte).map_or(0, |flags| flags >> bit & 1);
    let mut whole = Map::new();
    let mut put = |key: &str, value: Value| whole.insert(key.to_owned(), value);
    put("ID", message.metadata.id.into());
    for (key, value) in [
        ("QR", bit(0, 7)),
        ("Opcode", flags.first().map_or(0, |flags| flags >> 3 & 0xf)),
        ("AA", bit(0, 2)),
        ("TC", bit(0, 1)),
        ("RD", bit(0, 0)),
        ("RA", bit(1, 7)),
        ("AD", bit(1, 5)),
        ("CD", bit(1, 4)),
    ] {
        put(key, value.into());
    }
    put("RCODE", u16::from(message.metadata.response_code).into());
    for (key, value) in [
        ("QDCOUNT", counts.queries),
        ("ANCOUNT", counts.answers),
        ("NSCOUNT", counts.authorities),
        ("ARCOUNT", counts.additionals),
    ] {
        put(key, value.into());
    }
    if let Some(query) = message.queries.first() {
        put("QNAME", super::presented(query.name()).into());
        put("QTYPE", u16::from(query.query_type()).into());
        put("QTYPEname", query.query_type().to_string().into());
        put("QCLASS", u16::from(query.query_class()).into());
        put("QCLASSname", query.query_class().to_string().into());
    }
    for (key, section) in [
        ("answerRRs", &message.answers),
        ("authorityRRs", &message.authorities),
        ("additionalRRs", &message.additionals),
    ] {
        if !section.is_empty() {
            put(key, section.iter().map(record).collect());
        }
    }
    Some(Value::Object(whole))
}

fn record(record: &Record) -> Value {
    let kind = record.record_type();
    let mut value = json!({
        "NAME": super::presented(&record.name),
        "TYPE": u16::from(kind),
        "TYPEname": kind.to_string(),
        "CLASS": u16::from(record.dns_class),
        "CLASSname": record.dns_class.to_string(),
        "TTL": record.ttl,
    });
    value[format!("rdata{kind}")] = record.data.to_string().into();
    let mut data = Vec::new();
    let mut encoder = BinEncoder::new(&mut data);
    // Names within are told whole, since there is no message to point into.
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    if record.data.emit(&mut encoder).is_ok() {
        let mut hex = String::with_capacity(data.len() * 2);
        for byte in &data {
            // Writing to a String does not fail.
            let _ = write!(hex, "{byte:02X}");
        }
        value["RDLENGTH"] = data.len().into();
        value["RDATAHEX"] = hex.into();
    }
    value
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_in_the_words_of_rfc_8427() {
        let mut bytes = vec![0x12, 0x34, 0x85, 0x80, 0, 1, 0, 2, 0, 0, 0, 1];
        bytes.extend(b"\x03www\x04test\x00\x00\x01\x00\x01");
        bytes.extend(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01a\xc0\x10");
        bytes.extend(b"\x01a\xc0\x10\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\xc0\x00\x02\x01");
        bytes.extend(b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00");
        let told = json(&bytes).unwrap();
        for (key, value) in [
            ("ID", json!(0x1234)),
            ("QR", json!(1)),
            ("AA", json!(1)),
            ("RD", json!(1)),
            ("RA", json!(1)),
            ("TC", json!(0)),
            ("RCODE", json!(0)),
            ("ANCOUNT", json!(2)),
            ("ARCOUNT", json!(1)),
            ("QNAME", json!("www.test.")),
            ("QTYPEname", json!("A")),
        ] {
            assert_eq!(told[key], value, "{key}");
        }
        let alias = &told["answerRRs"][0];
        assert_eq!(
            (&alias["rdataCNAME"], &alias["RDATAHEX"]),
            (&json!("a.test."), &json!("016104746573740".to_owned() + "0"))
        );
        let address = &told["answerRRs"][1];
        assert_eq!((&address["rdataA"], &address["TTL"]), (&json!("192.0.2.1"), &json!(5)));
        assert!(told.get("additionalRRs").is_none());
        for cut in 0..bytes.len() {
            let _ = json(&bytes[..cut]);
        }
    }
}
