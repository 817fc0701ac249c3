//! Records of `hash-owner`, and the one writer that is not serde's.
//!
//! At five million flows serde's derive takes 31 times as long as `wc -l`, lines put together from
//! ready pieces a third of that. A property test holds the two equal byte for byte.

use super::envelope::{self, Column, Head, Nothing, column};
use super::line::Line;
use crate::decide::hash_owner::{Algo, Answer};
use crate::types::bucket::{Buckets, MAX_TOTAL, Owners};
use crate::types::flow::{Flow, Icmp, Ports};
use crate::types::net::Proto;
use crate::types::time::WallTime;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;

pub(crate) const KIND: &str = "hash-owner";

/// One flow with its bucket.
#[cfg(test)]
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Owned {
    /// Source address
    src: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sport: Option<u16>,
    /// Destination address
    #[serde(skip_serializing_if = "Option::is_none")]
    dst: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dport: Option<u16>,
    /// tcp, udp, icmp, ipv6-icmp, sctp, dccp, udplite, gre, esp, ah, else the number
    #[serde(skip_serializing_if = "Option::is_none")]
    proto: Option<String>,
    /// nft, xt-cluster, clusterip or hmark
    algo: &'static str,
    /// The hash before it was cut down to a bucket
    hash: u32,
    /// From 1 to the total
    bucket: u32,
    /// The node that has this bucket by --owners; absent where none has
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Whether the bucket is among those of --local
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<bool>,
}

/// How the flows of one run spread.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Summary {
    /// The number of buckets
    pub(crate) total: u32,
    /// The number of flows counted
    pub(crate) flows: u64,
    pub(crate) buckets: Vec<Spread>,
}

/// One bucket of a summary.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Spread {
    pub(crate) bucket: u32,
    /// The node that has this bucket by --owners; absent where none has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Flows in this bucket
    pub(crate) flows: u64,
    /// The part of all flows, 0 to 1; null where there were none
    pub(crate) share: Option<f64>,
    /// How far above (or below) an even share, in percent of it; null where there were no flows
    pub(crate) deviation_pct: Option<f64>,
}

/// A flow that another node would own.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Move<'a> {
    pub(crate) bucket: u32,
    /// The node that has the bucket in the first map; absent where none has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<&'a str>,
    /// The node that has it in the second map; absent where none has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<&'a str>,
}

pub(crate) const COLUMNS: &[Column] = &[
    column("subject", "SOURCE"),
    column("sport", "SPORT"),
    column("dst", "DEST"),
    column("dport", "DPORT"),
    column("proto", "PROTO"),
    column("hash", "HASH"),
    column("bucket", "BUCKET"),
    column("owner", "OWNER"),
    column("local", "LOCAL"),
];

pub(crate) const SUMMARY_COLUMNS: &[Column] = &[
    column("bucket", "BUCKET"),
    column("owner", "OWNER"),
    column("flows", "FLOWS"),
    column("share", "SHARE"),
    column("deviation_pct", "DEVIATION_PCT"),
    column("bar", ""),
];

pub(crate) const MOVE_COLUMNS: &[Column] =
    &[column("subject", "SOURCE"), column("bucket", "BUCKET"), column("from", "FROM"), column("to", "TO")];

pub(crate) const SCHEMA: (&str, &str) = (KIND, include_str!("schema/hash-owner.json"));
pub(crate) const SUMMARY_SCHEMA: (&str, &str) = ("hash-owner.summary", include_str!("schema/hash-owner.summary.json"));
pub(crate) const MOVE_SCHEMA: (&str, &str) = ("hash-owner.move", include_str!("schema/hash-owner.move.json"));

/// A row of a summary's table: the spread, and its share as a bar.
#[derive(Debug, Serialize)]
pub(crate) struct SpreadRow<'a> {
    #[serde(flatten)]
    pub(crate) spread: &'a Spread,
    pub(crate) bar: String,
}

/// The keys that a record of this kind has to itself, written this time or not: an `owner` that
/// came in is another run's verdict.
const OWN_KEYS: [&str; 15] = [
    "kind", "v", "time", "host", "subject", "src", "sport", "dst", "dport", "proto", "algo", "hash", "bucket", "owner",
    "local",
];

/// Reads the flow out of a record; `None` where it has no `src`.
///
/// # Errors
/// A field of the wrong type, or a destination of another family.
pub(crate) fn flow(line: &Line<'_>) -> Result<Option<Flow>, String> {
    let Some(src) = line.parsed::<IpAddr>("src")? else { return Ok(None) };
    let dst: Option<IpAddr> = line.parsed("dst")?;
    if dst.is_some_and(|dst| dst.is_ipv4() != src.is_ipv4()) {
        return Err("'src' and 'dst' are of different families".to_owned());
    }
    let ports = match (line.get("sport")?, line.get("dport")?) {
        (Some(src), dst) => Some(Ports { src, dst }),
        (None, None) => None,
        (None, Some::<u16>(_)) => return Err("'dport' stands without 'sport'".to_owned()),
    };
    let proto = match line.raw("proto") {
        Some(value) if value.get().starts_with('"') => line.parsed("proto")?,
        _ => line.get("proto")?.map(Proto),
    };
    let icmp = Icmp {
        kind: line.get("icmp_type")?,
        code: line.get("icmp_code")?,
        id: line.get("icmp_id")?,
        checksum: line.get("icmp_csum")?,
    };
    Ok(Some(Flow { dst, ports, proto, icmp, spi: line.get("spi")?, ..Flow::from_source(src) }))
}

/// Reads an ownership map from a file: lines of `node LIST`, or a record with `owners`, the last
/// one of several (what `bucket plan` prints).
///
/// # Errors
/// A line that is neither, a bucket with two owners, a node named twice.
pub(crate) fn owners(text: &str) -> Result<Owners, String> {
    let mut owners = Owners::default();
    for (idx, line) in text.lines().enumerate() {
        let line = line.trim();
        let in_line = |why: String| format!("line {}: {why}", idx + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('{') {
            let record = Line::parse(line).map_err(in_line)?;
            if let Some(map) = record.get::<BTreeMap<String, String>>("owners").map_err(in_line)? {
                owners = Owners::default();
                for (node, list) in &map {
                    add(&mut owners, node, list).map_err(in_line)?;
                }
            }
            continue;
        }
        let (node, list) =
            line.split_once(char::is_whitespace).ok_or_else(|| in_line(format!("'{line}' is not 'node LIST'")))?;
        add(&mut owners, node, list.trim()).map_err(in_line)?;
    }
    Ok(owners)
}

fn add(owners: &mut Owners, node: &str, list: &str) -> Result<(), String> {
    crate::types::node::check_name(node)?;
    owners.add(node, list.parse()?)
}

/// Who owns each bucket, ready to be looked up for millions of flows.
#[derive(Debug)]
pub(crate) struct Verdicts {
    owners: Option<Vec<Option<String>>>,
    local: Option<Vec<bool>>,
}

impl Verdicts {
    pub(crate) fn new(owners: Option<&Owners>, local: Option<&Buckets>) -> Self {
        let buckets = || (1..=MAX_TOTAL).collect::<Vec<_>>();
        let owner_of =
            |owners: &Owners| buckets().iter().map(|bucket| owners.owner(*bucket).map(str::to_owned)).collect();
        let is_local = |local: &Buckets| buckets().iter().map(|bucket| local.contains(*bucket)).collect();
        Verdicts { owners: owners.map(owner_of), local: local.map(is_local) }
    }

    /// The node that owns `bucket`, where a map was given and some node does.
    pub(crate) fn owner(&self, bucket: u32) -> Option<&str> {
        at(self.owners.as_deref()?, bucket)?.as_deref()
    }

    /// Whether `bucket` is local, where that was asked.
    pub(crate) fn local(&self, bucket: u32) -> Option<bool> {
        Some(at(self.local.as_deref()?, bucket).copied().unwrap_or(false))
    }
}

fn at<T>(by_bucket: &[T], bucket: u32) -> Option<&T> {
    by_bucket.get(usize::try_from(bucket.checked_sub(1)?).ok()?)
}

/// The writer of one run's records: `{"kind":…` from ready pieces.
#[derive(Debug)]
pub(crate) struct Writer {
    host: String,
    /// `,"algo":"nft","hash":`
    algo: Vec<u8>,
    verdicts: Verdicts,
    /// By bucket: `,"bucket":3,"owner":"n1","local":true}` and a newline.
    ends: Vec<Vec<u8>>,
    /// The same, padded, with their lengths; none where one is longer than that.
    wide_ends: Vec<([u8; WIDE], usize)>,
}

impl Writer {
    pub(crate) fn new(host: &str, algo: Algo, total: u32, verdicts: Verdicts) -> Self {
        let mut writer = Writer {
            host: host.to_owned(),
            algo: format!(",\"algo\":\"{algo}\",\"hash\":").into(),
            verdicts,
            ends: Vec::new(),
            wide_ends: Vec::new(),
        };
        writer.ends = (1..=total.min(u32::from(MAX_TOTAL))).map(|bucket| writer.end(bucket)).collect();
        let wide: Option<Vec<_>> = writer.ends.iter().map(|end| Some((padded(end)?, end.len()))).collect();
        writer.wide_ends = wide.unwrap_or_default();
        writer
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    fn end(&self, bucket: u32) -> Vec<u8> {
        let mut end = format!(",\"bucket\":{bucket}").into_bytes();
        if let Some(owner) = self.verdicts.owner(bucket) {
            // Node names have no letter that JSON would escape.
            end.extend_from_slice(format!(",\"owner\":\"{owner}\"").as_bytes());
        }
        if let Some(local) = self.verdicts.local(bucket) {
            end.extend_from_slice(format!(",\"local\":{local}").as_bytes());
        }
        end.extend_from_slice(b"}\n");
        end
    }

    /// The writer of records that have `time` in common.
    pub(crate) fn block(&self, time: WallTime) -> Block<'_> {
        let mut opening = Vec::new();
        // An envelope of strings and one number cannot fail to serialise.
        let _ = envelope::write(&mut opening, &Head::new(KIND).about(""), time, &self.host, &Nothing {});
        opening.truncate(opening.len().saturating_sub(b"\"}\n".len()));
        Block { writer: self, time, opening, after_src: [b"\"", self.algo.as_slice()].concat() }
    }
}

/// The writer of one block's records.
#[derive(Debug)]
pub(crate) struct Block<'w> {
    writer: &'w Writer,
    time: WallTime,
    /// Up to the subject: `{"kind":"hash-owner",…,"subject":"`.
    opening: Vec<u8>,
    /// `","algo":"nft","hash":`
    after_src: Vec<u8>,
}

impl Block<'_> {
    /// A writer of records of flows of which the source is known and nothing else.
    pub(crate) fn sources(&self) -> Sources<'_> {
        let mut line = [0; ROOM];
        if let Some(room) = line.get_mut(..self.opening.len()) {
            room.copy_from_slice(&self.opening);
        }
        let after_src = padded(&self.after_src);
        let fits = self.opening.len() + LONGEST_REST <= ROOM;
        Sources { block: self, line, after_src: after_src.filter(|_| fits) }
    }

    /// Appends the record of a flow of which the source is known and nothing else; `src` is its
    /// canonical text.
    fn source(&self, into: &mut Vec<u8>, src: &[u8], answer: Answer) {
        into.extend_from_slice(&self.opening);
        into.extend_from_slice(src);
        into.extend_from_slice(BETWEEN);
        into.extend_from_slice(src);
        into.extend_from_slice(&self.after_src);
        decimal(into, answer.hash);
        match at(&self.writer.ends, answer.bucket) {
            Some(end) => into.extend_from_slice(end),
            None => into.extend_from_slice(&self.writer.end(answer.bucket)),
        }
    }

    /// Appends the record of any flow, and after it what else stood in the record that it came from.
    pub(crate) fn flow(&self, into: &mut Vec<u8>, flow: &Flow, answer: Answer, rest: Option<&Line<'_>>) {
        into.extend_from_slice(&self.opening);
        put(into, flow.src);
        into.extend_from_slice(b"\",\"src\":\"");
        put(into, flow.src);
        into.push(b'"');
        if let Some(ports) = flow.ports {
            into.extend_from_slice(b",\"sport\":");
            decimal(into, ports.src.into());
        }
        if let Some(dst) = flow.dst {
            into.extend_from_slice(b",\"dst\":\"");
            put(into, dst);
            into.push(b'"');
        }
        if let Some(dport) = flow.ports.and_then(|ports| ports.dst) {
            into.extend_from_slice(b",\"dport\":");
            decimal(into, dport.into());
        }
        if let Some(proto) = flow.proto {
            into.extend_from_slice(b",\"proto\":\"");
            put(into, proto);
            into.push(b'"');
        }
        into.extend_from_slice(&self.writer.algo);
        decimal(into, answer.hash);
        match at(&self.writer.ends, answer.bucket) {
            Some(end) => into.extend_from_slice(end),
            None => into.extend_from_slice(&self.writer.end(answer.bucket)),
        }
        if let Some(rest) = rest {
            into.truncate(into.len().saturating_sub(b"}\n".len()));
            rest.copy_rest(&OWN_KEYS, into);
            into.extend_from_slice(b"}\n");
        }
    }

    /// Appends the record of a flow that `from` owns and `to` would.
    pub(crate) fn moved(&self, into: &mut Vec<u8>, flow: &Flow, moved: &Move<'_>) {
        let head = Head::new("hash-owner.move").about(flow.src);
        // Names and numbers cannot fail to serialise.
        let _ = envelope::write(into, &head, self.time, &self.writer.host, moved);
    }
}

/// Addresses and protocols print no letter that JSON would escape.
fn put(into: &mut Vec<u8>, value: impl Display) {
    // Writing to a Vec does not fail.
    let _ = write!(into, "{value}");
}

/// What stands between `subject` and `src`.
const BETWEEN: &[u8; 9] = b"\",\"src\":\"";
/// Pieces are copied so many bytes at a time, however long they are: a copy whose length is known
/// is two instructions, one whose length is not is a call.
const WIDE: usize = 64;
/// Two addresses, what stands around them, a number and an end, each as wide as it is copied.
const LONGEST_REST: usize = 4 * WIDE;
/// Room for a record: an opening with the longest host name, and the rest.
const ROOM: usize = 512;

fn padded(piece: &[u8]) -> Option<[u8; WIDE]> {
    let mut wide = [0; WIDE];
    wide.get_mut(..piece.len())?.copy_from_slice(piece);
    Some(wide)
}

/// Writes records one after another in one place, where their common opening stays.
#[derive(Debug)]
pub(crate) struct Sources<'b> {
    block: &'b Block<'b>,
    line: [u8; ROOM],
    /// None where some piece is too long for this.
    after_src: Option<[u8; WIDE]>,
}

impl Sources<'_> {
    /// Appends a record; the canonical text of the source is the first `length` bytes of `text`.
    #[inline]
    pub(crate) fn put(&mut self, into: &mut Vec<u8>, text: &[u8], length: usize, answer: Answer) {
        let (Some(src), Some(after_src), Some((end, end_len))) = (
            text.first_chunk::<16>().filter(|_| length < 16),
            &self.after_src,
            at(&self.block.writer.wide_ends, answer.bucket),
        ) else {
            return self.block.source(into, text.get(..length).unwrap_or_default(), answer);
        };
        let mut at = self.block.opening.len();
        let mut put = |bytes: &[u8], len: usize| {
            if let Some(room) = self.line.get_mut(at..at + bytes.len()) {
                room.copy_from_slice(bytes);
            }
            at += len;
        };
        put(src, length);
        put(BETWEEN, BETWEEN.len());
        put(src, length);
        put(after_src, self.block.after_src.len());
        let (digits, width) = decimal_digits(answer.hash);
        put(&digits, width);
        put(end, *end_len);
        into.extend_from_slice(self.line.get(..at).unwrap_or_default());
    }
}

/// The decimal digits of a number, from the front, and how many they are.
#[inline]
fn decimal_digits(number: u32) -> ([u8; 10], usize) {
    let width = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut digits = [0; 10];
    let mut rest = number;
    for pair in digits.as_chunks_mut::<2>().0.iter_mut().rev() {
        *pair = PAIRS[(rest % 100) as usize];
        rest /= 100;
    }
    // All ten at once, then to the front: no step waits for how many there are.
    let mut wide = [0; 16];
    if let Some(room) = wide.get_mut(6..) {
        room.copy_from_slice(&digits);
    }
    let shifted = u128::from_be_bytes(wide) << (8 * (10 - width));
    let [_, _, _, _, _, _, front @ ..] = shifted.to_be_bytes();
    (front, width)
}

/// Appends a number in decimal: `write!` takes three times as long.
#[inline]
pub(crate) fn decimal(into: &mut Vec<u8>, mut number: u32) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    // Two digits at a time: the next step has to wait for a multiplication only half as often.
    for pair in digits.as_chunks_mut::<2>().0.iter_mut().rev() {
        *pair = PAIRS[(number % 100) as usize];
        start -= if number > 9 { 2 } else { 1 };
        number /= 100;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(digits.get(start..).unwrap_or_default());
}

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::schema::{check, check_open};
    use proptest::prelude::*;

    #[test]
    fn schema_of_hash_owner() {
        check_open::<Owned>(
            KIND,
            "The bucket, and so the owner, of a flow; what else stood in the record that it came from follows",
        );
        check::<Summary>("hash-owner.summary", "How flows spread over the buckets");
        check::<Move<'static>>("hash-owner.move", "A flow that has another owner in the second of two maps");
    }

    fn any_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
    }

    fn any_flow() -> impl Strategy<Value = Flow> {
        let ports = proptest::option::of((any::<u16>(), proptest::option::of(any::<u16>())));
        (any_address(), proptest::option::of(any_address()), ports, proptest::option::of(any::<u8>())).prop_map(
            |(src, dst, ports, proto)| Flow {
                dst,
                ports: ports.map(|(src, dst)| Ports { src, dst }),
                proto: proto.map(Proto),
                ..Flow::from_source(src)
            },
        )
    }

    fn owned(flow: &Flow, algo: Algo, answer: Answer, verdicts: &Verdicts) -> Owned {
        Owned {
            src: flow.src.to_string(),
            sport: flow.ports.map(|ports| ports.src),
            dst: flow.dst.map(|dst| dst.to_string()),
            dport: flow.ports.and_then(|ports| ports.dst),
            proto: flow.proto.map(|proto| proto.to_string()),
            algo: algo.as_str(),
            hash: answer.hash,
            bucket: answer.bucket,
            owner: verdicts.owner(answer.bucket).map(str::to_owned),
            local: verdicts.local(answer.bucket),
        }
    }

    fn verdicts(with_owners: bool, with_local: bool) -> Verdicts {
        let owners: Owners = "n1=1-3,node-2.example=5".parse().unwrap();
        let local: Buckets = "2,5".parse().unwrap();
        Verdicts::new(with_owners.then_some(&owners), with_local.then_some(&local))
    }

    /// The record of a bare source, which both ways of writing it agree on.
    fn bare(block: &Block<'_>, src: IpAddr, answer: Answer) -> Vec<u8> {
        let (mut plain, mut wide) = (Vec::new(), Vec::new());
        let text = src.to_string();
        block.source(&mut plain, text.as_bytes(), answer);
        // The second of two, after a longer one: nothing of the first is left in it.
        let mut sources = block.sources();
        sources.put(&mut Vec::new(), b"255.255.255.255\n", 15, Answer { hash: u32::MAX, bucket: 4 });
        sources.put(&mut wide, format!("{text}\n192.0.2.1\n").as_bytes(), text.len(), answer);
        assert_eq!(plain, wide);
        plain
    }

    proptest! {
        #[test]
        fn our_writer_writes_what_serde_writes(
            flow in any_flow(), hash: u32, bucket in prop_oneof![1u32..8, 4090u32..4100, 1u32..=u32::MAX], total in prop_oneof![1u32..8, Just(u32::MAX)],
            with_owners: bool, with_local: bool, algo in 0usize..4, unix_us in 0i64..4_000_000_000_000_000,
        ) {
            let (algo, answer, time) = (Algo::ALL[algo], Answer { hash, bucket }, WallTime { unix_us });
            let writer = Writer::new("n1.example", algo, total, verdicts(with_owners, with_local));
            let body = owned(&flow, algo, answer, writer.verdicts());
            let mut by_serde = Vec::new();
            envelope::write(&mut by_serde, &Head::new(KIND).about(flow.src), time, "n1.example", &body).unwrap();
            let mut by_us = Vec::new();
            writer.block(time).flow(&mut by_us, &flow, answer, None);
            prop_assert_eq!(String::from_utf8(by_us.clone()).unwrap(), String::from_utf8(by_serde).unwrap());
            if flow == Flow::from_source(flow.src) {
                let block = writer.block(time);
                prop_assert_eq!(by_us, bare(&block, flow.src, answer));
            }
        }

        #[test]
        fn a_bare_source_is_written_alike_on_both_paths(src in any_address(), hash: u32, bucket in 1u32..8) {
            let writer = Writer::new("n1", Algo::Nft, 4, verdicts(true, true));
            let block = writer.block(WallTime { unix_us: 7 });
            let (mut slow, answer) = (Vec::new(), Answer { hash, bucket });
            block.flow(&mut slow, &Flow::from_source(src), answer, None);
            prop_assert_eq!(slow, bare(&block, src, answer));
        }

        #[test]
        fn a_number_is_written_as_the_standard_library_writes_it(number: u32) {
            let mut text = Vec::new();
            decimal(&mut text, number);
            prop_assert_eq!(String::from_utf8(text).unwrap(), number.to_string());
            let (digits, width) = decimal_digits(number);
            prop_assert_eq!(std::str::from_utf8(&digits[..width]).unwrap(), number.to_string());
        }

        #[test]
        fn a_flow_that_was_written_reads_back(flow in any_flow()) {
            let writer = Writer::new("n1", Algo::Nft, 4, verdicts(false, false));
            let mut line = Vec::new();
            writer.block(WallTime { unix_us: 7 }).flow(&mut line, &flow, Answer { hash: 1, bucket: 1 }, None);
            let text = String::from_utf8(line).unwrap();
            let got = super::flow(&Line::parse(text.trim_end()).unwrap());
            if flow.dst.is_some_and(|dst| dst.is_ipv4() != flow.src.is_ipv4()) {
                prop_assert!(got.is_err());
            } else {
                prop_assert_eq!(got.unwrap(), Some(flow));
            }
        }
    }

    #[test]
    fn what_else_stood_in_a_record_leaves_byte_for_byte() {
        let line = Line::parse(
            r#"{"kind":"x","v":1,"host":"n9","src":"192.0.2.7","proto":6,"icmp_type":8,"owner":"old","local":true,"bytes":1e2,"a":{"b":[ 1 ]}}"#,
        )
        .unwrap();
        let flow = flow(&line).unwrap().unwrap();
        let writer = Writer::new("n1", Algo::Nft, 4, verdicts(false, false));
        let mut out = Vec::new();
        writer.block(WallTime { unix_us: 0 }).flow(&mut out, &flow, Answer { hash: 9, bucket: 2 }, Some(&line));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"kind\":\"hash-owner\",\"v\":1,\"time\":\"1970-01-01T00:00:00.000000Z\",\"host\":\"n1\",\"subject\":\"192.0.2.7\",\"src\":\"192.0.2.7\",\"proto\":\"tcp\",\"algo\":\"nft\",\"hash\":9,\"bucket\":2,\"icmp_type\":8,\"bytes\":1e2,\"a\":{\"b\":[ 1 ]}}\n"
        );
    }

    #[test]
    fn a_record_gives_its_flow_or_says_what_is_wrong() {
        let read = |text: &str| flow(&Line::parse(text).unwrap());
        assert_eq!(read(r#"{"subject":"x"}"#), Ok(None));
        assert_eq!(read(r#"{"src":null}"#), Ok(None));
        let full = read(
            r#"{"src":"192.0.2.7","sport":null,"proto":"icmp","icmp_type":8,"icmp_code":0,"icmp_id":7,"icmp_csum":9,"spi":5}"#,
        );
        let icmp = Icmp { kind: Some(8), code: Some(0), id: Some(7), checksum: Some(9) };
        let wanted =
            Flow { proto: Some(Proto::ICMP), icmp, spi: Some(5), ..Flow::from_source("192.0.2.7".parse().unwrap()) };
        assert_eq!(full, Ok(Some(wanted)));
        for (text, key) in [
            (r#"{"src":7}"#, "'src'"),
            (r#"{"src":"192.0.2.7:80"}"#, "'src'"),
            (r#"{"src":"192.0.2.7","dst":"2001:db8::1"}"#, "families"),
            (r#"{"src":"192.0.2.7","sport":65536}"#, "'sport'"),
            (r#"{"src":"192.0.2.7","sport":"80"}"#, "'sport'"),
            (r#"{"src":"192.0.2.7","dport":80}"#, "'dport'"),
            (r#"{"src":"192.0.2.7","proto":"http"}"#, "'proto'"),
            (r#"{"src":"192.0.2.7","proto":256}"#, "'proto'"),
            (r#"{"src":"192.0.2.7","icmp_type":-1}"#, "'icmp_type'"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn a_map_reads_from_lines_and_from_plans() {
        for text in [
            "n1 1-3\nn2 4\n",
            "# two nodes\n\nn1\t1,2,3\n  n2   4",
            "{\"kind\":\"bucket.plan\",\"owners\":{\"n1\":\"1\"}}\n{\"kind\":\"bucket.plan\",\"owners\":{\"n1\":\"1-3\",\"n2\":\"4\"}}\n",
        ] {
            assert_eq!(owners(text).unwrap(), "n1=1-3,n2=4".parse().unwrap(), "{text}");
        }
        for (text, why) in [
            ("n1", "line 1"),
            ("n1 1\nn2 x", "line 2"),
            ("n1 1\nn2 1", "both"),
            ("n1 1\nn1 2", "twice"),
            ("n/1 1", "node name"),
            ("{\"owners\":[]}", "'owners'"),
            ("{", "line 1"),
        ] {
            let error = owners(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
