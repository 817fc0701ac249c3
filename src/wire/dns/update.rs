//! Dynamic updates (RFC 2136), and messages signed with a shared key (TSIG, RFC 8945).

use super::{Question, plain, rcode};
use crate::types::rrset::{Edit, Family, MARK, Prerequisite};
use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::rdata::tsig::{TSIG, TsigAlgorithm, TsigError, make_tsig_record};
use hickory_proto::rr::{DNSClass, Name, RecordType, TSigner};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};
use std::fmt;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// Seconds that two clocks may be apart (RFC 8945 §10).
const FUDGE: u16 = 300;

/// A key that two hosts share. What prints it prints its name alone.
#[derive(Clone)]
pub(crate) struct Key(TSigner);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name())
    }
}

impl Key {
    /// Reads BIND's `key` clause, as `tsig-keygen` prints it: one, with comments as named.conf has them.
    ///
    /// # Errors
    /// Why it is none. Nothing of a secret is told.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let words = words(text)?;
        let mut words = words.iter().map(String::as_str);
        let mut next = |what: &str| words.next().ok_or_else(|| format!("it ends where {what} should stand"));
        if !next("'key'")?.eq_ignore_ascii_case("key") {
            return Err("it does not begin with a 'key' clause".to_owned());
        }
        let name = next("the key's name")?;
        let key_name = Name::from_ascii(name).map_err(|_| "the key's name is not a name in the DNS".to_owned())?;
        expect(next("'{'")?, "{")?;
        let (mut algorithm, mut secret) = (None, None);
        loop {
            let (slot, what) = match next("'}'")? {
                "}" => break,
                word if word.eq_ignore_ascii_case("algorithm") => (&mut algorithm, "the algorithm"),
                word if word.eq_ignore_ascii_case("secret") => (&mut secret, "the secret"),
                _ => return Err("a 'key' clause has an algorithm and a secret, and this has something else".to_owned()),
            };
            if slot.replace(next(what)?).is_some() {
                return Err(format!("{what} stands there twice"));
            }
            expect(next("';'")?, ";")?;
        }
        if words.any(|word| word != ";") {
            return Err("it has more than one 'key' clause".to_owned());
        }
        let algorithm = algorithm_of(algorithm.ok_or("it has no algorithm")?)?;
        let secret = base64(secret.ok_or("it has no secret")?).ok_or("its secret is not base64")?;
        if secret.is_empty() {
            return Err("its secret is empty".to_owned());
        }
        let signer = TSigner::new(secret, algorithm, key_name.to_lowercase(), FUDGE);
        signer.map(Key).map_err(|_| "its algorithm cannot be used".to_owned())
    }

    /// In lower case and without the final dot.
    pub(crate) fn name(&self) -> String {
        plain(self.0.signer_name())
    }

    /// hmac-sha256, hmac-sha384 or hmac-sha512.
    pub(crate) fn algorithm(&self) -> String {
        self.0.algorithm().to_string()
    }

    /// Octets of a whole signature.
    fn signature_length(&self) -> usize {
        match self.0.algorithm() {
            TsigAlgorithm::HmacSha384 => 48,
            TsigAlgorithm::HmacSha512 => 64,
            _ => 32,
        }
    }
}

fn expect(got: &str, wanted: &str) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("a '{wanted}' is missing")) }
}

/// The words of named.conf: `{`, `}` and `;`, quoted strings, and what stands between blanks; without the comments
/// in the manner of C, C++ and the shell.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").ok_or("a comment has no end")? + 2,
            '"' => {
                let end = rest.get(1..).and_then(|rest| rest.find('"')).ok_or("a quote has no end")?;
                words.extend(rest.get(1..=end).map(str::to_owned));
                end + 2
            }
            '{' | '}' | ';' => {
                words.push(first.to_string());
                1
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ';' | '"' | '#');
                let end = rest.find(ends).unwrap_or(rest.len());
                words.extend(rest.get(..end).map(str::to_owned));
                end
            }
        };
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    Ok(words)
}

fn algorithm_of(word: &str) -> Result<TsigAlgorithm, String> {
    const USED: &str = "hmac-sha256, hmac-sha384 or hmac-sha512";
    let lower = word.to_ascii_lowercase();
    Ok(match lower.trim_end_matches('.') {
        "hmac-sha256" => TsigAlgorithm::HmacSha256,
        "hmac-sha384" => TsigAlgorithm::HmacSha384,
        "hmac-sha512" => TsigAlgorithm::HmacSha512,
        known if known.starts_with("hmac-") || known == "gss-tsig" => {
            return Err(format!("its algorithm {known} is not used here, as too weak or too rare: take {USED}"));
        }
        // It may be a secret in the wrong place.
        _ => return Err(format!("its algorithm is none that is known here: take {USED}")),
    })
}

/// Base64 with its padding (RFC 4648 §4).
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = ((bits << 6 | u32::from(value)) & 0xffff, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.extend(u8::try_from(bits >> held & 0xff));
        }
    }
    Some(bytes)
}

/// A signed message that was sent, and what its answer must fit.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    bytes: Vec<u8>,
    id: u16,
    op_code: OpCode,
    mac: Vec<u8>,
    key: Key,
}

/// Why an answer to a signed message is a refusal of the signature, or is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server says that our signature is wrong: its secret is another.
    BadSig,
    /// The server does not know the key, or not with this algorithm.
    BadKey,
    /// The server says that our clock is so many seconds ahead of its own; below 0, behind.
    BadTime { ahead_s: i64 },
    /// The server says that our signature is too short.
    BadTrunc,
    /// The server says something that is none of these.
    Other(u16),
    /// The answer has no signature.
    Unsigned,
    /// The answer's signature is cut.
    Truncated,
    /// The answer is signed with another key.
    OtherKey,
    /// The answer's signature is wrong.
    Unverified,
    /// The answer was signed at a time that is not ours: so many seconds from it.
    OutOfTime { ahead_s: i64 },
}

impl Fault {
    /// The server's words in capitals, ours as a slug.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Fault::BadSig => "BADSIG",
            Fault::BadKey => "BADKEY",
            Fault::BadTime { .. } => "BADTIME",
            Fault::BadTrunc => "BADTRUNC",
            Fault::Other(_) => "other-error",
            Fault::Unsigned => "unsigned",
            Fault::Truncated => "truncated",
            Fault::OtherKey => "other-key",
            Fault::Unverified => "unverified",
            Fault::OutOfTime { .. } => "out-of-time",
        }
    }

    /// Whether the server itself says that it did nothing for want of a good signature.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Fault::BadSig | Fault::BadKey | Fault::BadTime { .. } | Fault::BadTrunc | Fault::Other(_))
    }
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// As `Answer::rcode`.
    pub(crate) rcode: String,
    /// Why the rest of it is not believed.
    pub(crate) fault: Option<Fault>,
}

impl Signed {
    /// Signs a whole message (RFC 8945 §4.3.3) and appends the signature.
    ///
    /// hickory's own way cuts what is too long, the signature first, and calls that a success.
    ///
    /// # Errors
    /// It is longer than 65,535 octets.
    fn new(mut bytes: Vec<u8>, id: u16, op_code: OpCode, key: &Key, now_s: u64) -> Result<Self, String> {
        let failed = |error: hickory_proto::ProtoError| error.to_string();
        let signer = &key.0;
        let tsig = TSIG::new(signer.algorithm().clone(), now_s, FUDGE, Vec::new(), id, None, Vec::new());
        let mut variables = Vec::new();
        tsig.emit_tsig_for_mac(&mut BinEncoder::new(&mut variables), signer.signer_name()).map_err(failed)?;
        let mac = signer.sign(&[bytes.as_slice(), &variables].concat()).map_err(|error| error.to_string())?;
        let record = make_tsig_record(signer.signer_name().clone(), tsig.set_mac(mac.clone()));
        bytes.extend(record.to_bytes().map_err(failed)?);
        if let Some(count) = bytes.get_mut(10..).and_then(|rest| rest.first_chunk_mut()) {
            *count = u16::from_be_bytes(*count).saturating_add(1).to_be_bytes();
        }
        if bytes.len() > usize::from(u16::MAX) {
            return Err(format!(
                "it takes {} octets, and a DNS message holds 65,535 (give the name fewer addresses, or change them in \
                 parts with nsupdate; those that are replaced count too)",
                bytes.len()
            ));
        }
        Ok(Signed { bytes, id, op_code, mac, key: key.clone() })
    }

    /// The message to send. Over TCP its length goes before it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads a message; none where it is no answer to this one. `now_s` counts from 1970.
    ///
    /// What the server says of the signature is read before its own is verified: BADSIG and BADKEY come unsigned
    /// (RFC 8945 §5.2.1 and §5.2.2).
    pub(crate) fn read(&self, bytes: &[u8], now_s: u64) -> Option<Said> {
        let message = Message::from_vec(bytes).ok()?;
        let metadata = message.metadata;
        if metadata.id != self.id || metadata.message_type != MessageType::Response || metadata.op_code != self.op_code
        {
            return None;
        }
        let fault = match message.signature() {
            None => Some(Fault::Unsigned),
            Some(record) => match record.data.error {
                Some(TsigError::BadSig) => Some(Fault::BadSig),
                Some(TsigError::BadKey) => Some(Fault::BadKey),
                error => self.verify(bytes, &record.data).or_else(|| told(&record.data, error, now_s)),
            },
        };
        Some(Said { rcode: rcode(metadata.response_code), fault })
    }

    fn verify(&self, bytes: &[u8], tsig: &TSIG) -> Option<Fault> {
        // A time before the window that it opens would be counted below zero by the verifier.
        if tsig.time < u64::from(tsig.fudge) {
            return Some(Fault::Unverified);
        }
        if tsig.mac.is_empty() {
            return Some(Fault::Unsigned);
        }
        if tsig.mac.len() < self.key.signature_length() && tsig.algorithm == *self.key.0.algorithm() {
            return Some(Fault::Truncated);
        }
        match self.key.0.verify_message_byte(bytes, Some(&self.mac), true) {
            Ok(_) => None,
            Err(hickory_proto::dnssec::DnsSecError::TsigWrongKey) => Some(Fault::OtherKey),
            Err(_) => Some(Fault::Unverified),
        }
    }
}

/// What a signature that verifies says is wrong.
fn told(tsig: &TSIG, error: Option<TsigError>, now_s: u64) -> Option<Fault> {
    match (error, server_time(tsig)) {
        (None, _) => {
            let ahead_s = ahead(now_s, tsig.time);
            (ahead_s.unsigned_abs() > u64::from(tsig.fudge)).then_some(Fault::OutOfTime { ahead_s })
        }
        (Some(TsigError::BadTime), Some(time)) => Some(Fault::BadTime { ahead_s: ahead(now_s, time) }),
        (Some(TsigError::BadTrunc), _) => Some(Fault::BadTrunc),
        (Some(other), _) => Some(Fault::Other(other.into())),
    }
}

/// Seconds that `ours` is ahead of `theirs`.
fn ahead(ours: u64, theirs: u64) -> i64 {
    let seconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    seconds(ours).saturating_sub(seconds(theirs))
}

/// The server's clock, which BADTIME tells in six octets (RFC 8945 §5.2.3).
fn server_time(tsig: &TSIG) -> Option<u64> {
    let other: [u8; 6] = tsig.other.as_slice().try_into().ok()?;
    Some(other.iter().fold(0, |time, octet| time << 8 | u64::from(*octet)))
}

impl Question {
    /// The same, signed. A server that has views for keys answers from the one that an update would change.
    ///
    /// # Errors
    /// A name that does not fit a message.
    pub(crate) fn signed(&self, key: &Key, now_s: u64) -> Result<Signed, String> {
        Signed::new(self.encode()?, self.id, OpCode::Query, key, now_s)
    }
}

/// A change of one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'a> {
    pub(crate) zone: &'a str,
    /// In the zone.
    pub(crate) name: &'a str,
    pub(crate) prerequisites: &'a [Prerequisite],
    pub(crate) edits: &'a [Edit],
}

impl Update<'_> {
    /// The message that asks for it, signed (RFC 2136 §2).
    ///
    /// # Errors
    /// What does not fit a message.
    pub(crate) fn signed(&self, id: u16, key: &Key, now_s: u64) -> Result<Signed, String> {
        let zone = wire_name(self.zone)?;
        let mut records = Records::of(&wire_name(self.name)?, &zone);
        for prerequisite in self.prerequisites {
            match prerequisite {
                Prerequisite::Exactly(family, addresses) => {
                    for address in addresses {
                        records.put(type_of(*family), DNSClass::IN, 0, &octets(*address));
                    }
                }
                Prerequisite::With(family) => records.put(type_of(*family), DNSClass::ANY, 0, &[]),
                Prerequisite::Without(family) => records.put(type_of(*family), DNSClass::NONE, 0, &[]),
            }
        }
        let needed = records.count;
        let length = u8::try_from(MARK.len()).map_err(|_| "the mark is no text")?;
        let mark = [&[length], MARK.as_bytes()].concat();
        for edit in self.edits {
            match *edit {
                Edit::Clear(family) => records.put(type_of(family), DNSClass::ANY, 0, &[]),
                Edit::Add { address, ttl_s } => {
                    records.put(type_of(Family::of(address)), DNSClass::IN, ttl_s, &octets(address));
                }
                Edit::Mark { ttl_s } => records.put(RecordType::TXT, DNSClass::IN, ttl_s, &mark),
                Edit::Unmark => records.put(RecordType::TXT, DNSClass::NONE, 0, &mark),
            }
        }
        let count = |count: usize| u16::try_from(count).map_err(|_| format!("{count} records are no message"));
        // The four sections are those of a question under other names: zone, prerequisite, update, additional.
        let mut bytes = Vec::new();
        for word in
            [id, u16::from(u8::from(OpCode::Update)) << 11, 1, count(needed)?, count(records.count - needed)?, 0]
        {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(zone);
        bytes.extend([RecordType::SOA.into(), DNSClass::IN.into()].map(u16::to_be_bytes).concat());
        bytes.extend(records.bytes);
        Signed::new(bytes, id, OpCode::Update, key, now_s)
    }

    /// The same for `nsupdate -k KEY`, line by line.
    pub(crate) fn as_nsupdate(&self, server: SocketAddr) -> String {
        let Update { zone, name, .. } = self;
        let mut text = format!("server {} {}\nzone {}.\n", server.ip(), server.port(), zone.trim_end_matches('.'));
        let mut line = |line: fmt::Arguments<'_>| {
            // Into a string: cannot fail.
            let _ = writeln!(text, "{line}");
        };
        for prerequisite in self.prerequisites {
            match prerequisite {
                Prerequisite::Exactly(family, addresses) => {
                    for address in addresses {
                        line(format_args!("prereq yxrrset {name}. {family} {address}"));
                    }
                }
                Prerequisite::With(family) => line(format_args!("prereq yxrrset {name}. {family}")),
                Prerequisite::Without(family) => line(format_args!("prereq nxrrset {name}. {family}")),
            }
        }
        for edit in self.edits {
            match *edit {
                Edit::Clear(family) => line(format_args!("update delete {name}. {family}")),
                Edit::Add { address, ttl_s } => {
                    line(format_args!("update add {name}. {ttl_s} {} {address}", Family::of(address)));
                }
                Edit::Mark { ttl_s } => line(format_args!("update add {name}. {ttl_s} TXT \"{MARK}\"")),
                Edit::Unmark => line(format_args!("update delete {name}. TXT \"{MARK}\"")),
            }
        }
        text.push_str("send");
        text
    }
}

fn type_of(family: Family) -> RecordType {
    match family {
        Family::A => RecordType::A,
        Family::Aaaa => RecordType::AAAA,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(four) => four.octets().to_vec(),
        IpAddr::V6(six) => six.octets().to_vec(),
    }
}

fn wire_name(text: &str) -> Result<Vec<u8>, String> {
    let mut name = Name::from_ascii(text).map_err(|error| format!("'{text}' is not a name: {error}"))?;
    name.set_fqdn(true);
    name.to_bytes().map_err(|error| error.to_string())
}

/// The records of one name in a message whose question is its zone.
///
/// The name stands there once, and then a pointer to it (RFC 1035 §4.1.4): hickory compresses the first 120 names of
/// a message, and a name of 253 octets leaves room for 240 addresses more.
struct Records {
    /// As it is written the next time.
    owner: Vec<u8>,
    bytes: Vec<u8>,
    count: usize,
    /// What later ones are written as.
    pointer: [u8; 2],
}

impl Records {
    /// A zone's name stands behind the header, in 12 octets; what follows it is a type and a class.
    const ZONE: usize = 12;

    fn of(name: &[u8], zone: &[u8]) -> Self {
        let pointer = |at: usize| (0xc000 | u16::try_from(at).unwrap_or_default()).to_be_bytes();
        let (owner, at) = match name.strip_suffix(zone) {
            Some([]) => (pointer(Self::ZONE).to_vec(), Self::ZONE),
            Some(labels) => ([labels, &pointer(Self::ZONE)].concat(), Self::ZONE + zone.len() + 4),
            None => (name.to_vec(), Self::ZONE + zone.len() + 4),
        };
        Records { owner, bytes: Vec::new(), count: 0, pointer: pointer(at) }
    }

    /// `data` is an address, a text or nothing.
    fn put(&mut self, qtype: RecordType, class: DNSClass, ttl_s: u32, data: &[u8]) {
        self.bytes.append(&mut self.owner);
        self.owner.extend(self.pointer);
        self.bytes.extend([u16::from(qtype), class.into()].map(u16::to_be_bytes).concat());
        self.bytes.extend(ttl_s.to_be_bytes());
        self.bytes.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
        self.bytes.extend(data);
        self.count += 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use hickory_proto::op::ResponseCode;
    use hickory_proto::rr::TSigResponseContext;

    const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn clause(name: &str, algorithm: &str, secret: &str) -> String {
        format!("key \"{name}\" {{\n\talgorithm {algorithm};\n\tsecret \"{secret}\";\n}};\n")
    }

    fn key() -> Key {
        Key::parse(&clause("ddns", "hmac-sha256", SECRET)).unwrap()
    }

    #[test]
    fn a_key_clause_is_read_as_bind_reads_it() {
        for text in [
            clause("ddns", "hmac-sha256", SECRET),
            format!("# ours\nkey ddns{{secret \"{SECRET}\"; /* b; }} */ algorithm HMAC-SHA256.; }} ; // end"),
            format!("KEY \"DDNS.\" {{ Algorithm \"hmac-sha256\"; Secret {SECRET}; }};"),
        ] {
            let key = Key::parse(&text).unwrap();
            assert_eq!((key.name().as_str(), key.algorithm().as_str()), ("ddns", "hmac-sha256"), "{text}");
            assert_eq!(key.0.key(), (0..32).collect::<Vec<u8>>());
            assert_eq!(format!("{key:?}"), "Key(ddns)");
        }
        let long = Key::parse(&clause("a.b", "hmac-sha512", "/+8=")).unwrap();
        assert_eq!((long.signature_length(), long.0.key()), (64, [0xff, 0xef].as_slice()));
    }

    #[test]
    fn what_is_no_key_is_told_without_its_secret() {
        for (text, why) in [
            (String::new(), "'key' should stand"),
            (clause("ddns", "hmac-md5", SECRET), "hmac-md5 is not used here"),
            (clause("ddns", "hmac-sha256-128", SECRET), "hmac-sha256-128 is not used here"),
            (clause("ddns", SECRET, "hmac-sha256"), "none that is known"),
            (clause("ddns", "hmac-sha256", &SECRET[1..]), "not base64"),
            (clause("ddns", "hmac-sha256", ""), "is empty"),
            (clause("dd..ns", "hmac-sha256", SECRET), "not a name"),
            (clause("ddns", "hmac-sha256", SECRET).repeat(2), "more than one"),
            (clause("ddns", "hmac-sha256", SECRET).replace("algorithm", "secret"), "twice"),
            (clause("ddns", "hmac-sha256", SECRET).replace("algorithm", "server"), "something else"),
            (clause("ddns", "hmac-sha256", SECRET).replace('{', ""), "'{' is missing"),
            (clause("ddns", "hmac-sha256", SECRET).replace(';', ""), "';' is missing"),
            (format!("key ddns {{ secret \"{SECRET}\"; }};"), "no algorithm"),
            ("key \"ddns".to_owned(), "a quote has no end"),
            ("/* key".to_owned(), "a comment has no end"),
            (format!("hmac-sha256:ddns:{SECRET}"), "does not begin with a 'key'"),
        ] {
            let told = Key::parse(&text).unwrap_err();
            assert!(told.contains(why) && !told.contains(&SECRET[1..]), "{text}: {told}");
        }
    }

    fn update<'a>(prerequisites: &'a [Prerequisite], edits: &'a [Edit]) -> Update<'a> {
        Update { zone: "gslb.test", name: "app.gslb.test", prerequisites, edits }
    }

    /// RFC 2136 §2, by hand: one A is replaced, an AAAA must not be there, and the mark goes.
    #[test]
    fn an_update_is_laid_out_as_in_rfc_2136() {
        let old = Prerequisite::Exactly(Family::A, ["192.0.2.1".parse().unwrap()].into());
        let address: IpAddr = "192.0.2.2".parse().unwrap();
        let prerequisites = [old, Prerequisite::Without(Family::Aaaa)];
        let edits = [Edit::Clear(Family::A), Edit::Add { address, ttl_s: 5 }, Edit::Unmark];
        let update = update(&prerequisites, &edits);
        let mut wanted = vec![0x12, 0x34, 0x28, 0x00, 0, 1, 0, 2, 0, 3, 0, 1];
        wanted.extend(b"\x04gslb\x04test\x00\x00\x06\x00\x01");
        wanted.extend(b"\x03app\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\xc0\x00\x02\x01");
        wanted.extend(b"\xc0\x1b\x00\x1c\x00\xfe\x00\x00\x00\x00\x00\x00");
        wanted.extend(b"\xc0\x1b\x00\x01\x00\xff\x00\x00\x00\x00\x00\x00");
        wanted.extend(b"\xc0\x1b\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\xc0\x00\x02\x02");
        wanted.extend(b"\xc0\x1b\x00\x10\x00\xfe\x00\x00\x00\x00\x00\x1b\x1afailover-utils: no site up");
        // The key's name, TSIG, ANY, no TTL; then 61 octets: the algorithm, the time, 300 s, and the signature.
        wanted.extend(b"\x04ddns\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x3d\x0bhmac-sha256\x00");
        wanted.extend(b"\x00\x00\x65\x53\xf1\x00\x01\x2c\x00\x20");
        let signed = update.signed(0x1234, &key(), 1_700_000_000).unwrap();
        let (head, rest) = signed.bytes().split_at(wanted.len());
        assert_eq!(head, wanted);
        assert_eq!(rest, [signed.mac.as_slice(), b"\x12\x34\x00\x00\x00\x00"].concat());
        let text = update.as_nsupdate("192.0.2.53:53".parse().unwrap());
        let lines = [
            "server 192.0.2.53 53",
            "zone gslb.test.",
            "prereq yxrrset app.gslb.test. A 192.0.2.1",
            "prereq nxrrset app.gslb.test. AAAA",
            "update delete app.gslb.test. A",
            "update add app.gslb.test. 5 A 192.0.2.2",
            "update delete app.gslb.test. TXT \"failover-utils: no site up\"",
            "send",
        ];
        assert_eq!(text, lines.join("\n"));
    }

    /// Whatever its length, a message is whole or none; hickory reads what it does not write so.
    #[test]
    fn an_update_is_never_cut() {
        let long = [&["x".repeat(49).as_str(); 4].join("."), "gslb.test"].join(".");
        let addresses = |count: u32| (0..count).map(|n| IpAddr::from((0xc612_0000 + n).to_be_bytes())).collect();
        for (name, old, new, fits) in [
            (long.as_str(), 600, 650, true),
            (long.as_str(), 2000, 2000, true),
            ("gslb.test", 0, 4000, true),
            ("app.gslb.test", 0, 4088, true),
            ("app.gslb.test", 0, 4089, false),
            ("app.gslb.test", 2100, 2100, false),
            ("app.gslb.test", 40_000, 30_000, false),
        ] {
            let prerequisites = [Prerequisite::Exactly(Family::A, addresses(old)), Prerequisite::With(Family::Aaaa)];
            let edits: Vec<Edit> = addresses(new).into_iter().map(|address| Edit::Add { address, ttl_s: 5 }).collect();
            let update = Update { zone: "gslb.test", name, prerequisites: &prerequisites, edits: &edits };
            match update.signed(0x1234, &key(), 1_700_000_000) {
                Ok(signed) => {
                    let message = Message::from_vec(signed.bytes()).unwrap();
                    assert!(fits && !message.metadata.truncation && message.signature().is_some());
                    let counts = (message.answers.len(), message.authorities.len());
                    assert_eq!(counts, (usize::try_from(old).unwrap() + 1, edits.len()));
                    let owners = message.answers.iter().chain(&message.authorities).map(|record| &record.name);
                    assert!(owners.into_iter().all(|owner| plain(owner) == name));
                    assert!(key().0.verify_message_byte(signed.bytes(), None, true).is_ok());
                }
                Err(why) => assert!(!fits && why.contains("a DNS message holds 65,535"), "{old} {new}: {why}"),
            }
        }
    }

    /// What BIND answered, and when it was asked.
    fn bind(what: &str) -> (u64, Vec<u8>) {
        let text = include_str!("../../../tests/data/dns/bind-9.18.txt");
        let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' ')).unwrap();
        let (time, hex) = line.split_once(' ').unwrap();
        let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (time.parse().unwrap(), (0..hex.len()).step_by(2).map(octet).collect())
    }

    fn question() -> Question {
        Question::new("app.gslb.test", "A", 0x1234).unwrap().without_recursion()
    }

    fn asked(time: u64) -> Signed {
        question().signed(&key(), time).unwrap()
    }

    fn replaced(time: u64) -> Signed {
        let prerequisites = [Prerequisite::Exactly(Family::A, ["192.0.2.1".parse().unwrap()].into())];
        let address = "192.0.2.2".parse().unwrap();
        let edits = [Edit::Clear(Family::A), Edit::Add { address, ttl_s: 5 }];
        update(&prerequisites, &edits).signed(0x1234, &key(), time).unwrap()
    }

    fn said(rcode: &str, fault: Option<Fault>) -> Said {
        Said { rcode: rcode.to_owned(), fault }
    }

    #[test]
    fn what_bind_has_signed_is_believed() {
        let (time, answer) = bind("query");
        assert_eq!(asked(time).read(&answer, time).unwrap(), said("NOERROR", None));
        assert_eq!(question().answer(&answer).unwrap().answers, ["192.0.2.1"]);
        let (time, answer) = bind("update");
        assert_eq!(replaced(time).read(&answer, time + 300).unwrap(), said("NOERROR", None));
        let (time, answer) = bind("lost");
        assert_eq!(replaced(time).read(&answer, time).unwrap(), said("NXRRSET", None));
        // Another question's, another time's, another secret's.
        assert_eq!(asked(time).read(&answer, time), None);
        let (time, answer) = bind("query");
        assert_eq!(asked(time + 1).read(&answer, time).unwrap(), said("NOERROR", Some(Fault::Unverified)));
        let late = Some(Fault::OutOfTime { ahead_s: 301 });
        assert_eq!(asked(time).read(&answer, time + 301).unwrap(), said("NOERROR", late));
        let other = Key::parse(&clause("ddns", "hmac-sha256", "AAAA")).unwrap();
        let other = question().signed(&other, time).unwrap();
        assert_eq!(other.read(&answer, time).unwrap(), said("NOERROR", Some(Fault::Unverified)));
        let longer = Key::parse(&clause("ddns", "hmac-sha384", SECRET)).unwrap();
        let longer = question().signed(&longer, time).unwrap();
        assert_eq!(longer.read(&answer, time).unwrap(), said("NOERROR", Some(Fault::OtherKey)));
    }

    #[test]
    fn what_bind_says_of_a_signature_is_read_before_its_own_is_verified() {
        for (what, fault) in
            [("badsig", Fault::BadSig), ("badkey", Fault::BadKey), ("badtime", Fault::BadTime { ahead_s: -412 })]
        {
            let (time, answer) = bind(what);
            assert_eq!(asked(time).read(&answer, time).unwrap(), said("NOTAUTH", Some(fault)), "{what}");
        }
        // A distance of the clocks that nobody has signed for is none.
        let (time, mut answer) = bind("badtime");
        *answer.last_mut().unwrap() ^= 1;
        assert_eq!(asked(time).read(&answer, time).unwrap(), said("NOTAUTH", Some(Fault::Unverified)));
    }

    /// BIND takes each signature that we make; what another would say is signed here as it would.
    #[test]
    fn a_signature_that_is_too_short_is_told_by_either_side() {
        let signed = asked(1_700_000_000);
        let answer = |error, octets: usize| {
            let mut answer = Message::new(0x1234, MessageType::Response, OpCode::Query);
            answer.metadata.response_code = ResponseCode::NotAuth;
            let context = TSigResponseContext::new(0x1234, 1_700_000_000, key().0.clone(), signed.mac.clone(), error);
            let mut signature = context.sign(&answer.to_vec().unwrap()).unwrap();
            signature.data.mac.truncate(octets);
            answer.set_signature(signature);
            answer.to_vec().unwrap()
        };
        for (error, octets, fault) in [
            (Some(TsigError::BadTrunc), 32, Some(Fault::BadTrunc)),
            (Some(TsigError::Unknown(99)), 32, Some(Fault::Other(99))),
            (Some(TsigError::BadTime), 32, Some(Fault::Other(18))),
            (None, 32, None),
            (None, 31, Some(Fault::Truncated)),
            (None, 0, Some(Fault::Unsigned)),
        ] {
            assert_eq!(
                signed.read(&answer(error, octets), 1_700_000_000).unwrap(),
                said("NOTAUTH", fault),
                "{error:?}"
            );
        }
    }

    /// Whatever one bit or the end of it is, nothing else is believed than what was signed.
    #[test]
    fn what_was_changed_on_its_way_is_not_believed() {
        for (what, rcode) in [("update", "NOERROR"), ("lost", "NXRRSET")] {
            let (time, answer) = bind(what);
            let signed = replaced(time);
            for bit in 0..answer.len() * 8 {
                let mut changed = answer.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                if let Some(Said { rcode: got, fault: None }) = signed.read(&changed, time) {
                    assert_eq!(got, rcode, "bit {bit}");
                }
            }
            for cut in 0..answer.len() {
                assert!(signed.read(&answer[..cut], time).is_none_or(|said| said.fault.is_some()), "{cut}");
            }
        }
        // Signed before its own window begins: the verifier would count below zero.
        let (time, mut answer) = bind("update");
        let at = answer.len() - 6 - 32 - 2 - 2 - 6;
        answer[at..at + 6].fill(0);
        assert_eq!(replaced(time).read(&answer, time).unwrap(), said("NOERROR", Some(Fault::Unverified)));
    }
}
