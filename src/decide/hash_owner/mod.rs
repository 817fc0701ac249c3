//! Which bucket a flow falls into, bit for bit as the kernel's selectors decide it.
//!
//! Four selectors, none of which agrees with another: nft `jhash` (over any list of fields),
//! `xt_cluster`, CLUSTERIP in its six eras, and HMARK. What each hashes was read from kernel 2.6.11
//! to 6.18 and measured on 6.18; `tests/data/vectors/hash` holds the answers.
//!
//! Buckets are numbered from 1 whatever the selector: CLUSTERIP's own numbers, `xt_cluster`'s bit + 1
//! (what `--cluster-local-node` takes), nft and HMARK with `offset 1`.

mod jhash;
mod kernel;

pub(crate) use self::jhash::ByteOrder;
use self::jhash::Generation;
pub(crate) use self::kernel::Kernel;
use self::kernel::{Era, PortRule, Reduction};
use crate::types::cluster::Mode;
use crate::types::flow::Flow;
use crate::types::net::Proto;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A part of the kernel that chooses an owner by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algo {
    /// nft `jhash … mod N seed S offset 1`.
    Nft,
    /// iptables `-m cluster`.
    XtCluster,
    /// iptables `-j CLUSTERIP`, gone with 6.3.
    Clusterip,
    /// iptables `-j HMARK`.
    Hmark,
}

impl Algo {
    pub(crate) const ALL: [Algo; 4] = [Algo::Nft, Algo::XtCluster, Algo::Clusterip, Algo::Hmark];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Algo::Nft => "nft",
            Algo::XtCluster => "xt-cluster",
            Algo::Clusterip => "clusterip",
            Algo::Hmark => "hmark",
        }
    }

    /// The most buckets that a rule of this kind can have.
    ///
    /// `xt_cluster` keeps a mask of 32 bits, CLUSTERIP a total of 16 bits.
    fn most_buckets(self) -> u32 {
        match self {
            Algo::XtCluster => 32,
            Algo::Clusterip => 65_535,
            Algo::Nft | Algo::Hmark => u32::MAX,
        }
    }
}

impl fmt::Display for Algo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Algo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Algo::ALL
            .into_iter()
            .find(|algo| algo.as_str() == text)
            .ok_or_else(|| format!("'{text}' is not an algorithm (nft, xt-cluster, clusterip, hmark)"))
    }
}

/// One part of an nft concatenation, or of an HMARK tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Saddr,
    Daddr,
    Sport,
    Dport,
    Proto,
}

impl Field {
    /// The words of nft first, then those of `--hmark-tuple`.
    const NAMES: [(&'static str, Field); 7] = [
        ("saddr", Field::Saddr),
        ("daddr", Field::Daddr),
        ("sport", Field::Sport),
        ("dport", Field::Dport),
        ("proto", Field::Proto),
        ("src", Field::Saddr),
        ("dst", Field::Daddr),
    ];

    fn as_str(self) -> &'static str {
        Field::NAMES.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }
}

/// What a mode hashes of a flow that has ports.
fn fields_of(mode: Mode) -> &'static [Field] {
    match mode {
        Mode::SourceIp => &[Field::Saddr],
        Mode::SourceIpSourcePort => &[Field::Saddr, Field::Sport],
        Mode::SourceIpSourcePortDestPort => &[Field::Saddr, Field::Sport, Field::Dport],
    }
}

/// Fields in the order in which nft joins them, each at most once: `saddr.sport`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields(Vec<Field>);

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, field) in self.0.iter().enumerate() {
            write!(f, "{}{}", if idx > 0 { "." } else { "" }, field.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for Fields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut fields = Vec::new();
        for part in text.split('.') {
            let (_, field) = Field::NAMES.iter().find(|(name, _)| *name == part).ok_or_else(|| {
                format!("'{part}' is not a field (saddr, daddr, sport, dport, proto, joined by dots)")
            })?;
            if fields.contains(field) {
                return Err(format!("'{text}' names {part} twice"));
            }
            fields.push(*field);
        }
        Ok(Fields(fields))
    }
}

/// What of a flow is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hashed {
    /// The source, with ports where the protocol has them.
    ///
    /// Under nft this is not one expression but the pair of rules that `bucket` writes:
    /// `ip saddr . th sport` for tcp, udp, sctp, dccp and udplite, `ip saddr` for the rest.
    Mode(Mode),
    /// One nft concatenation, or one HMARK tuple, for every packet alike.
    Fields(Fields),
}

/// The parameters of a selector: all nodes of one cluster must have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) algo: Algo,
    pub(crate) hashed: Hashed,
    pub(crate) total: u32,
    pub(crate) seed: u32,
    /// `None`: the newest kernel that has the selector.
    pub(crate) kernel: Option<Kernel>,
    /// Of the nodes' CPU.
    pub(crate) order: ByteOrder,
}

/// Parameters that no kernel takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Total { algo: Algo, most: u32 },
    NotYet { algo: Algo, first: Kernel },
    NoLonger { algo: Algo },
    OnlySource { algo: Algo },
    NoFields { algo: Algo },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Total { algo, most } => write!(f, "{algo} has 1 to {most} buckets"),
            Refused::NotYet { algo, first } => write!(f, "{algo} came with kernel {first}"),
            Refused::NoLonger { algo } => write!(f, "{algo} left the kernel with 6.3; 6.2 was the last to have it"),
            Refused::OnlySource { algo } => write!(f, "{algo} hashes the source address alone (mode sourceip)"),
            Refused::NoFields { algo } => write!(f, "{algo} hashes by mode, not by fields"),
        }
    }
}

/// Why a flow has no bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unhashable {
    /// The hash takes something that the flow does not tell, by its name in a record.
    Missing(&'static str),
    /// CLUSTERIP knows IPv4 only.
    NotIpv4,
}

impl fmt::Display for Unhashable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unhashable::Missing(key) => write!(f, "the hash needs {key}, which this flow does not tell"),
            Unhashable::NotIpv4 => f.write_str("clusterip is for IPv4 only"),
        }
    }
}

/// A flow's hash, and its bucket from 1 to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) hash: u32,
    pub(crate) bucket: u32,
}

/// A selector made ready for many flows; answers without allocating.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    selector: Selector,
    total: u32,
    seed: u32,
    order: ByteOrder,
}

#[derive(Clone, Debug)]
enum Selector {
    NftMode(Mode),
    NftFields(Fields),
    XtCluster(Generation),
    Clusterip(Era, Mode),
    Hmark(Generation, Tuple),
}

/// The masks of an HMARK rule: all ones where true, else zero.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    src: bool,
    dst: bool,
    sport: bool,
    dport: bool,
    proto: bool,
}

impl Tuple {
    fn of(fields: &[Field]) -> Self {
        let has = |field| fields.contains(&field);
        Tuple {
            src: has(Field::Saddr),
            dst: has(Field::Daddr),
            sport: has(Field::Sport),
            dport: has(Field::Dport),
            proto: has(Field::Proto),
        }
    }
}

impl Params {
    /// Makes the selector ready.
    ///
    /// # Errors
    /// A total, mode or field list that the selector cannot have, or a kernel without it.
    pub(crate) fn prepare(&self) -> Result<Hasher, Refused> {
        let algo = self.algo;
        let most = algo.most_buckets();
        if self.total == 0 || self.total > most {
            return Err(Refused::Total { algo, most });
        }
        if let Some(kernel) = self.kernel {
            let (first, last) = kernel::lifetime(algo);
            if kernel < first {
                return Err(Refused::NotYet { algo, first });
            }
            if last.is_some_and(|last| kernel > last) {
                return Err(Refused::NoLonger { algo });
            }
        }
        let generation = kernel::generation(self.kernel);
        let selector = match (algo, &self.hashed) {
            (Algo::Nft, Hashed::Mode(mode)) => Selector::NftMode(*mode),
            (Algo::Nft, Hashed::Fields(fields)) => Selector::NftFields(fields.clone()),
            (Algo::XtCluster, Hashed::Mode(Mode::SourceIp)) => Selector::XtCluster(generation),
            (Algo::XtCluster, _) => return Err(Refused::OnlySource { algo }),
            (Algo::Clusterip, Hashed::Mode(mode)) => Selector::Clusterip(kernel::era(self.kernel), *mode),
            (Algo::Clusterip, Hashed::Fields(_)) => return Err(Refused::NoFields { algo }),
            (Algo::Hmark, Hashed::Mode(mode)) => Selector::Hmark(generation, Tuple::of(fields_of(*mode))),
            (Algo::Hmark, Hashed::Fields(fields)) => Selector::Hmark(generation, Tuple::of(&fields.0)),
        };
        Ok(Hasher { selector, total: self.total, seed: self.seed, order: self.order })
    }
}

impl Hasher {
    /// The bucket of one flow.
    ///
    /// # Errors
    /// What is hashed is not known of this flow. A port is never taken as 0 because it is not
    /// known: a bare address under a mode with ports has no answer, while the same address with a
    /// protocol that has no ports is hashed alone, as the kernel's rules do it.
    pub(crate) fn hash(&self, flow: &Flow) -> Result<Answer, Unhashable> {
        let (seed, order) = (self.seed, self.order);
        let hash = match &self.selector {
            Selector::NftMode(mode) => {
                let alone = flow.proto.is_some_and(|proto| !proto.has_ports());
                let fields = if alone { fields_of(Mode::SourceIp) } else { fields_of(*mode) };
                jhash::bytes(Key::of(fields, flow)?.as_slice(), seed, order)
            }
            Selector::NftFields(fields) => jhash::bytes(Key::of(&fields.0, flow)?.as_slice(), seed, order),
            Selector::XtCluster(generation) => match flow.src {
                IpAddr::V4(src) => jhash::fixed(*generation, [order.word(src.octets())], seed),
                // The kernel means to pass four words and passes a count of one.
                IpAddr::V6(src) => {
                    let [a, b, c, d, ..] = src.octets();
                    jhash::words(*generation, &[order.word([a, b, c, d])], seed)
                }
            },
            Selector::Clusterip(era, mode) => clusterip(*era, *mode, flow, seed, order)?,
            Selector::Hmark(generation, tuple) => hmark(*generation, *tuple, flow, seed)?,
        };
        Ok(self.answer(hash))
    }

    /// The same for flows of which the IPv4 source alone decides; `None` where more is hashed.
    pub(crate) fn by_ipv4_source(&self) -> Option<ByIpv4Source> {
        let (order, words, generation) = match self.selector {
            Selector::NftMode(Mode::SourceIp) => (ByteOrder::Little, Words::One, Generation::Lookup3),
            Selector::NftFields(ref fields) if fields.0 == [Field::Saddr] => {
                (ByteOrder::Little, Words::One, Generation::Lookup3)
            }
            Selector::XtCluster(generation) => (self.order, Words::One, generation),
            Selector::Clusterip(era, Mode::SourceIp) => (ByteOrder::Big, Words::One, era.generation),
            Selector::Hmark(generation, Tuple { src: true, dst: false, sport: false, dport: false, proto: false }) => {
                (ByteOrder::Big, Words::SecondOfThree, generation)
            }
            _ => return None,
        };
        let start = match words {
            Words::One => jhash::Start::of::<1>(generation, self.seed),
            Words::SecondOfThree => jhash::Start::of::<3>(generation, self.seed),
        };
        Some(ByIpv4Source { order, words, start, total: self.total, reduction: self.reduction() })
    }

    /// Whether only the first 32 bits of an IPv6 source decide.
    pub(crate) fn sees_ipv6_by_32_bits(&self) -> bool {
        matches!(self.selector, Selector::XtCluster(_))
    }

    fn reduction(&self) -> Reduction {
        match self.selector {
            Selector::Clusterip(era, _) => era.reduction,
            _ => Reduction::Scale,
        }
    }

    fn answer(&self, hash: u32) -> Answer {
        Answer { hash, bucket: self.reduction().below(hash, self.total).saturating_add(1) }
    }
}

/// A selector narrowed to IPv4 sources, for files of millions of them: everything that does not
/// depend on the address is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByIpv4Source {
    order: ByteOrder,
    words: Words,
    start: jhash::Start,
    total: u32,
    reduction: Reduction,
}

/// Where the address stands among the words that are hashed.
#[derive(Clone, Copy, Debug)]
enum Words {
    One,
    SecondOfThree,
}

impl ByIpv4Source {
    /// The hashes and buckets of the addresses with these bytes, one for one.
    ///
    /// Many at once, since in a loop that does nothing else several of them go side by side
    /// through the processor's wide registers.
    pub(crate) fn hash(&self, sources: &[[u8; 4]], hashes: &mut [u32], buckets: &mut [u32]) {
        let start = self.start;
        match (self.order, self.words) {
            (ByteOrder::Little, Words::One) => {
                fill(hashes, sources, |src| start.finish([u32::from_le_bytes(src), 0, 0]));
            }
            (ByteOrder::Big, Words::One) => fill(hashes, sources, |src| start.finish([u32::from_be_bytes(src), 0, 0])),
            (order, Words::SecondOfThree) => fill(hashes, sources, |src| start.finish([0, order.word(src), 0])),
        }
        let (total, first) = (self.total, 1);
        match self.reduction {
            Reduction::Scale => fill(buckets, hashes, |hash| first + Reduction::Scale.below(hash, total)),
            Reduction::Modulo => fill(buckets, hashes, |hash| first + Reduction::Modulo.below(hash, total)),
        }
    }
}

#[inline]
fn fill<T: Copy>(to: &mut [u32], from: &[T], each: impl Fn(T) -> u32) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = each(*from);
    }
}

/// Two IPv6 addresses, two ports and a protocol, each from a register of its own.
const LONGEST_KEY: usize = 16 + 16 + 4 + 4 + 4;

/// The bytes that an nft concatenation hashes.
struct Key {
    bytes: [u8; LONGEST_KEY],
    len: usize,
}

impl Key {
    /// Joins fields in network order, each from a four-byte register on and zero-padded to its
    /// end; a single field is not padded (nft 1.0.6, kernel 6.18: measured).
    fn of(fields: &[Field], flow: &Flow) -> Result<Key, Unhashable> {
        let mut key = Key { bytes: [0; LONGEST_KEY], len: 0 };
        let alone = fields.len() == 1;
        for field in fields {
            match field {
                Field::Saddr => key.put_address(flow.src),
                Field::Daddr => key.put_address(flow.dst.ok_or(Unhashable::Missing("dst"))?),
                Field::Sport => key.put(&first_half(flow)?.to_be_bytes()),
                Field::Dport => key.put(&second_half(flow)?.to_be_bytes()),
                Field::Proto => key.put(&[flow.proto.ok_or(Unhashable::Missing("proto"))?.0]),
            }
            if !alone {
                key.len = key.len.next_multiple_of(4);
            }
        }
        Ok(key)
    }

    fn put_address(&mut self, addr: IpAddr) {
        match addr {
            IpAddr::V4(addr) => self.put(&addr.octets()),
            IpAddr::V6(addr) => self.put(&addr.octets()),
        }
    }

    fn put(&mut self, field: &[u8]) {
        let end = self.len + field.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(field);
            self.len = end;
        }
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Bytes 0 and 1 of the transport header: what `th sport` reads, whatever the protocol.
fn first_half(flow: &Flow) -> Result<u16, Unhashable> {
    match flow.proto {
        Some(Proto::ICMP | Proto::ICMPV6) => icmp_type_and_code(flow),
        Some(Proto::ESP) => Ok(spi_halves(flow)?.0),
        Some(proto) if !proto.has_ports() => Err(Unhashable::Missing("sport")),
        _ => source_port(flow),
    }
}

/// Bytes 2 and 3: what `th dport` reads. Of ICMP that is the checksum.
fn second_half(flow: &Flow) -> Result<u16, Unhashable> {
    match flow.proto {
        Some(Proto::ICMP | Proto::ICMPV6) => icmp_checksum(flow),
        Some(Proto::ESP) => Ok(spi_halves(flow)?.1),
        Some(proto) if !proto.has_ports() => Err(Unhashable::Missing("dport")),
        _ => dest_port(flow),
    }
}

fn source_port(flow: &Flow) -> Result<u16, Unhashable> {
    flow.ports.map(|ports| ports.src).ok_or(Unhashable::Missing("sport"))
}

fn dest_port(flow: &Flow) -> Result<u16, Unhashable> {
    flow.ports.and_then(|ports| ports.dst).ok_or(Unhashable::Missing("dport"))
}

fn icmp_type_and_code(flow: &Flow) -> Result<u16, Unhashable> {
    let kind = flow.icmp.kind.ok_or(Unhashable::Missing("icmp_type"))?;
    let code = flow.icmp.code.ok_or(Unhashable::Missing("icmp_code"))?;
    Ok(u16::from_be_bytes([kind, code]))
}

fn icmp_checksum(flow: &Flow) -> Result<u16, Unhashable> {
    flow.icmp.checksum.ok_or(Unhashable::Missing("icmp_csum"))
}

/// The upper and the lower half of the security parameter index.
fn spi_halves(flow: &Flow) -> Result<(u16, u16), Unhashable> {
    let [a, b, c, d] = flow.spi.ok_or(Unhashable::Missing("spi"))?.to_be_bytes();
    Ok((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// CLUSTERIP: the address as a number on every CPU; the ports, from 2.6.18 on, as they lie in the
/// packet, so swapped on a little-endian CPU.
fn clusterip(era: Era, mode: Mode, flow: &Flow, seed: u32, order: ByteOrder) -> Result<u32, Unhashable> {
    let IpAddr::V4(src) = flow.src else { return Err(Unhashable::NotIpv4) };
    let addr = src.to_bits();
    let loaded = |half: u16| match (era.ports, order) {
        (PortRule::Natural, _) | (_, ByteOrder::Big) => u32::from(half),
        (_, ByteOrder::Little) => u32::from(half.swap_bytes()),
    };
    let generation = era.generation;
    Ok(match mode {
        Mode::SourceIp => jhash::fixed(generation, [addr], seed),
        Mode::SourceIpSourcePort => jhash::fixed(generation, [addr, loaded(clusterip_first(era.ports, flow)?)], seed),
        Mode::SourceIpSourcePortDestPort => {
            let sport = loaded(clusterip_first(era.ports, flow)?);
            let dport = loaded(clusterip_second(era.ports, flow)?);
            jhash::fixed(generation, [addr, sport, dport], seed)
        }
    })
}

/// What CLUSTERIP takes for a flow's ports.
enum Taken {
    Ports,
    IcmpHeader,
    IcmpEchoId,
    Spi,
    /// "unknown protocol" in the log, and two zeros in the hash.
    Zeros,
}

fn clusterip_takes(rule: PortRule, proto: Option<Proto>) -> Taken {
    let Some(proto) = proto else { return Taken::Ports };
    match (rule, proto) {
        (_, Proto::TCP | Proto::UDP)
        | (PortRule::Raw { .. } | PortRule::ByTable, Proto::SCTP | Proto::DCCP)
        | (PortRule::Raw { udplite: true } | PortRule::ByTable, Proto::UDPLITE) => Taken::Ports,
        (PortRule::Natural, Proto::ICMP) => Taken::IcmpEchoId,
        (PortRule::Raw { .. }, Proto::ICMP) => Taken::IcmpHeader,
        (PortRule::ByTable, Proto::ESP | Proto::AH) => Taken::Spi,
        _ => Taken::Zeros,
    }
}

fn clusterip_first(rule: PortRule, flow: &Flow) -> Result<u16, Unhashable> {
    match clusterip_takes(rule, flow.proto) {
        Taken::Ports => source_port(flow),
        Taken::IcmpHeader => icmp_type_and_code(flow),
        Taken::IcmpEchoId => flow.icmp.id.ok_or(Unhashable::Missing("icmp_id")),
        Taken::Spi => Ok(spi_halves(flow)?.0),
        Taken::Zeros => Ok(0),
    }
}

fn clusterip_second(rule: PortRule, flow: &Flow) -> Result<u16, Unhashable> {
    match clusterip_takes(rule, flow.proto) {
        Taken::Ports => dest_port(flow),
        Taken::IcmpHeader => icmp_checksum(flow),
        Taken::IcmpEchoId => icmp_type_and_code(flow),
        Taken::Spi => Ok(spi_halves(flow)?.1),
        Taken::Zeros => Ok(0),
    }
}

/// HMARK: the same in both directions and on every CPU.
///
/// Addresses and ports are put in order separately; the protocol is only laid over the finished
/// hash, where it touches eight low bits that a scale hardly sees.
fn hmark(generation: Generation, tuple: Tuple, flow: &Flow, seed: u32) -> Result<u32, Unhashable> {
    let src = if tuple.src { folded(flow.src) } else { 0 };
    let dst = if tuple.dst { folded(flow.dst.ok_or(Unhashable::Missing("dst"))?) } else { 0 };
    let sport = if tuple.sport { hmark_port(flow, source_port, |halves| halves.0)? } else { 0 };
    let dport = if tuple.dport { hmark_port(flow, dest_port, |halves| halves.1)? } else { 0 };
    let proto = if tuple.proto { flow.proto.ok_or(Unhashable::Missing("proto"))?.0 } else { 0 };
    let ports = u32::from(sport.max(dport)) << 16 | u32::from(sport.min(dport));
    Ok(jhash::fixed(generation, [src.min(dst), src.max(dst), ports], seed) ^ u32::from(proto))
}

fn hmark_port(
    flow: &Flow,
    port: fn(&Flow) -> Result<u16, Unhashable>,
    half: fn((u16, u16)) -> u16,
) -> Result<u16, Unhashable> {
    match flow.proto {
        Some(Proto::ESP | Proto::AH) => spi_halves(flow).map(half),
        Some(proto) if !proto.has_ports() => Ok(0),
        _ => port(flow),
    }
}

/// An address as one word: IPv6 by the XOR of its four.
fn folded(addr: IpAddr) -> u32 {
    let xor =
        |addr: Ipv6Addr| addr.octets().as_chunks::<4>().0.iter().fold(0, |all, word| all ^ u32::from_be_bytes(*word));
    match addr {
        IpAddr::V4(addr) => addr.to_bits(),
        IpAddr::V6(addr) => xor(addr),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::flow::{Icmp, Ports};
    use serde_json::Value;
    use std::path::Path;

    fn data(name: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vectors/hash").join(name))
            .unwrap()
    }

    fn params(algo: Algo, hashed: Hashed, total: u32, seed: u32) -> Params {
        Params { algo, hashed, total, seed, kernel: None, order: ByteOrder::Little }
    }

    fn number<T: TryFrom<u64>>(line: &Value, key: &str) -> Option<T> {
        line.get(key).and_then(Value::as_u64).and_then(|n| T::try_from(n).ok())
    }

    fn flow(line: &Value) -> Flow {
        Flow {
            src: line["src"].as_str().unwrap().parse().unwrap(),
            dst: line.get("dst").and_then(Value::as_str).map(|dst| dst.parse().unwrap()),
            ports: number(line, "sport").map(|src| Ports { src, dst: number(line, "dport") }),
            proto: number(line, "proto").map(Proto),
            icmp: Icmp {
                kind: number(line, "icmp_type"),
                code: number(line, "icmp_code"),
                id: number(line, "icmp_id"),
                checksum: number(line, "icmp_csum"),
            },
            spi: number(line, "spi"),
        }
    }

    /// One kernel of each era.
    fn kernel_of(era: &str) -> Kernel {
        let (_, kernel) =
            [("A", "2.6.11"), ("B", "2.6.24"), ("C", "2.6.36"), ("D", "2.6.37"), ("E", "3.10"), ("F", "6.2")]
                .into_iter()
                .find(|(name, _)| *name == era)
                .unwrap();
        kernel.parse().unwrap()
    }

    fn params_of(line: &Value) -> Params {
        let mode = line["mode"].as_str().unwrap();
        let (algo, hashed) = match line["alg"].as_str().unwrap() {
            "nft_jhash" => (Algo::Nft, Hashed::Fields(mode.parse().unwrap())),
            "xt_cluster" => (Algo::XtCluster, Hashed::Mode(Mode::SourceIp)),
            "hmark" => (Algo::Hmark, Hashed::Fields(mode.parse().unwrap())),
            _ => (Algo::Clusterip, Hashed::Mode(mode.parse().unwrap())),
        };
        Params {
            kernel: line.get("era").and_then(Value::as_str).map(kernel_of),
            order: if line.get("endian").is_some() { ByteOrder::Big } else { ByteOrder::Little },
            ..params(algo, hashed, number(line, "total").unwrap(), number(line, "seed").unwrap())
        }
    }

    /// Buckets in the files are as each kernel numbers them.
    fn first_bucket(line: &Value) -> u32 {
        match line["alg"].as_str() {
            Some("clusterip") => 1,
            _ => number(line, "offset").unwrap_or(0),
        }
    }

    #[test]
    fn every_vector_comes_out() {
        let mut lines = 0;
        for name in [
            "xt_cluster-v4.jsonl",
            "xt_cluster-v6.jsonl",
            "nft_jhash-v4.jsonl",
            "nft_jhash-v6.jsonl",
            "hmark.jsonl",
            "clusterip.jsonl",
            "clusterip-be.jsonl",
        ] {
            for text in data(name).lines() {
                let line: Value = serde_json::from_str(text).unwrap();
                let hasher = params_of(&line).prepare().unwrap();
                let answer = hasher.hash(&flow(&line)).unwrap();
                let wanted: u32 = number(&line, "bucket").unwrap();
                assert_eq!(answer.bucket, wanted - first_bucket(&line) + 1, "{name}: {text}");
                if let (Some(narrow), IpAddr::V4(src)) = (hasher.by_ipv4_source(), flow(&line).src) {
                    let (mut hash, mut bucket) = ([0], [0]);
                    narrow.hash(&[src.octets()], &mut hash, &mut bucket);
                    assert_eq!((hash, bucket), ([answer.hash], [answer.bucket]), "{name}: {text}");
                }
                lines += 1;
            }
        }
        assert_eq!(lines, 3800 + 3330 + 5140 + 946 + 648 + 1596 + 324);
    }

    #[test]
    fn three_hashes_give_three_owners() {
        for row in data("three-hashes.csv").lines().skip(1) {
            let columns: Vec<&str> = row.split(',').collect();
            let [algo, _, seed, total, src, _, _, node] = columns.try_into().unwrap();
            let (algo, first) = match algo {
                "clusterip" => (Algo::Clusterip, 1),
                "xt_cluster" => (Algo::XtCluster, 1),
                _ => (Algo::Nft, 0),
            };
            let seed = seed
                .strip_prefix("0x")
                .map_or_else(|| seed.parse().unwrap(), |hex| u32::from_str_radix(hex, 16).unwrap());
            let hasher = params(algo, Hashed::Mode(Mode::SourceIp), total.parse().unwrap(), seed).prepare().unwrap();
            let answer = hasher.hash(&Flow::from_source(src.parse().unwrap())).unwrap();
            assert_eq!(answer.bucket, node.parse::<u32>().unwrap() - first + 1, "{row}");
        }
    }

    #[test]
    fn the_eras_of_clusterip_part_over_one_client() {
        // hash-algorithms, section 3.3: 192.168.0.1, seed 1, 16 nodes; TCP 4660 -> 80, and a ping.
        let tcp = Flow {
            ports: Some(Ports { src: 4660, dst: Some(80) }),
            proto: Some(Proto::TCP),
            ..Flow::from_source("192.168.0.1".parse().unwrap())
        };
        let ping = Flow {
            proto: Some(Proto::ICMP),
            icmp: Icmp { kind: Some(8), code: Some(0), id: Some(0x1234), checksum: Some(0xbeef) },
            ..Flow::from_source("192.168.0.1".parse().unwrap())
        };
        for (era, of_tcp, of_ping) in [
            ("A", [16, 1, 10], [16, 1, 11]),
            ("B", [16, 5, 10], [16, 8, 14]),
            ("C", [13, 15, 2], [13, 3, 12]),
            ("D", [13, 15, 2], [13, 13, 13]),
            ("E", [14, 15, 7], [14, 14, 14]),
            ("F", [13, 3, 10], [13, 8, 3]),
        ] {
            for (idx, mode) in Mode::ALL.into_iter().enumerate() {
                let hasher =
                    Params { kernel: Some(kernel_of(era)), ..params(Algo::Clusterip, Hashed::Mode(mode), 16, 1) };
                let hasher = hasher.prepare().unwrap();
                assert_eq!(hasher.hash(&tcp).unwrap().bucket, of_tcp[idx], "era {era}, tcp, {mode}");
                assert_eq!(hasher.hash(&ping).unwrap().bucket, of_ping[idx], "era {era}, ping, {mode}");
            }
        }
    }

    #[test]
    fn udplite_had_no_ports_in_the_first_kernels_of_its_era() {
        let lite = Flow {
            ports: Some(Ports { src: 4660, dst: Some(80) }),
            proto: Some(Proto::UDPLITE),
            ..Flow::from_source("192.168.0.1".parse().unwrap())
        };
        let hash = |kernel: &str, flow: &Flow| {
            let kernel = Some(kernel.parse().unwrap());
            let params = Params { kernel, ..params(Algo::Clusterip, Hashed::Mode(Mode::SourceIpSourcePort), 16, 1) };
            params.prepare().unwrap().hash(flow).unwrap().hash
        };
        let without = Flow { proto: Some(Proto(47)), ..lite };
        let tcp = Flow { proto: Some(Proto::TCP), ..lite };
        assert_eq!(hash("2.6.20", &lite), hash("2.6.20", &without));
        assert_eq!(hash("2.6.21", &lite), hash("2.6.21", &tcp));
    }

    #[test]
    fn a_mode_with_ports_hashes_other_protocols_by_address_alone() {
        let src: IpAddr = "192.0.2.7".parse().unwrap();
        let by = |mode, flow: &Flow| params(Algo::Nft, Hashed::Mode(mode), 64, 9).prepare().unwrap().hash(flow);
        let ping = Flow { proto: Some(Proto::ICMP), ..Flow::from_source(src) };
        assert_eq!(by(Mode::SourceIpSourcePort, &ping), by(Mode::SourceIp, &ping));
        let tcp = Flow { proto: Some(Proto::TCP), ports: Some(Ports { src: 4660, dst: Some(80) }), ..ping };
        assert_ne!(by(Mode::SourceIpSourcePort, &tcp), by(Mode::SourceIp, &tcp));
        let fields = params(Algo::Nft, Hashed::Fields("saddr.sport.dport".parse().unwrap()), 64, 9).prepare().unwrap();
        assert_eq!(by(Mode::SourceIpSourcePortDestPort, &tcp), fields.hash(&tcp));
    }

    #[test]
    fn what_is_not_known_is_never_hashed_as_zero() {
        let bare = Flow::from_source("192.0.2.7".parse().unwrap());
        let half = Flow { ports: Some(Ports { src: 4660, dst: None }), ..bare };
        let tcp = Flow { proto: Some(Proto::TCP), ..bare };
        let ping = Flow { proto: Some(Proto::ICMP), ..bare };
        let esp = Flow { proto: Some(Proto::ESP), ..bare };
        let gre = Flow { proto: Some(Proto(47)), ..bare };
        let fields = |text: &str| Hashed::Fields(text.parse().unwrap());
        for (algo, hashed, flow, missing) in [
            (Algo::Nft, Hashed::Mode(Mode::SourceIpSourcePort), bare, "sport"),
            (Algo::Nft, Hashed::Mode(Mode::SourceIpSourcePort), tcp, "sport"),
            (Algo::Nft, Hashed::Mode(Mode::SourceIpSourcePortDestPort), half, "dport"),
            (Algo::Nft, fields("daddr"), bare, "dst"),
            (Algo::Nft, fields("proto.saddr"), bare, "proto"),
            (Algo::Nft, fields("sport"), ping, "icmp_type"),
            (Algo::Nft, fields("dport"), ping, "icmp_csum"),
            (Algo::Nft, fields("sport"), esp, "spi"),
            (Algo::Nft, fields("saddr.sport"), gre, "sport"),
            (Algo::Clusterip, Hashed::Mode(Mode::SourceIpSourcePort), bare, "sport"),
            (Algo::Clusterip, Hashed::Mode(Mode::SourceIpSourcePort), esp, "spi"),
            (Algo::Hmark, fields("src.sport"), bare, "sport"),
            (Algo::Hmark, fields("src.dst"), bare, "dst"),
            (Algo::Hmark, fields("src.proto"), bare, "proto"),
            (Algo::Hmark, fields("src.dport"), esp, "spi"),
        ] {
            let hasher = params(algo, hashed.clone(), 3, 1).prepare().unwrap();
            assert_eq!(hasher.hash(&flow), Err(Unhashable::Missing(missing)), "{algo} {hashed:?}");
        }
        let clusterip = params(Algo::Clusterip, Hashed::Mode(Mode::SourceIp), 3, 1).prepare().unwrap();
        assert_eq!(clusterip.hash(&Flow::from_source("2001:db8::7".parse().unwrap())), Err(Unhashable::NotIpv4));
    }

    #[test]
    fn th_sport_of_a_ping_is_its_type_and_code() {
        let src = "192.0.2.7".parse().unwrap();
        let hasher = params(Algo::Nft, Hashed::Fields("saddr.sport".parse().unwrap()), 64, 1).prepare().unwrap();
        let icmp = Icmp { kind: Some(8), code: Some(1), ..Icmp::default() };
        let ping = Flow { proto: Some(Proto::ICMP), icmp, ..Flow::from_source(src) };
        let tcp = Flow { ports: Some(Ports { src: 0x0801, dst: None }), ..Flow::from_source(src) };
        assert_eq!(hasher.hash(&ping), hasher.hash(&tcp));
    }

    #[test]
    fn hmark_is_the_same_in_both_directions() {
        let hasher = params(Algo::Hmark, Hashed::Fields("src.dst.sport.dport.proto".parse().unwrap()), 1000, 7)
            .prepare()
            .unwrap();
        let out = Flow {
            dst: Some("198.51.100.1".parse().unwrap()),
            ports: Some(Ports { src: 40_000, dst: Some(443) }),
            proto: Some(Proto::TCP),
            ..Flow::from_source("192.0.2.7".parse().unwrap())
        };
        let back = Flow {
            src: out.dst.unwrap(),
            dst: Some(out.src),
            ports: Some(Ports { src: 443, dst: Some(40_000) }),
            ..out
        };
        assert_eq!(hasher.hash(&out), hasher.hash(&back));
    }

    #[test]
    fn parameters_that_no_kernel_takes_are_refused() {
        let mode = Hashed::Mode(Mode::SourceIp);
        let fields = Hashed::Fields("saddr".parse().unwrap());
        let refused = |algo, hashed: &Hashed, total, kernel: Option<&str>| {
            let kernel = kernel.map(|kernel| kernel.parse().unwrap());
            Params { kernel, ..params(algo, hashed.clone(), total, 0) }.prepare().map(|_| ()).unwrap_err()
        };
        for (algo, hashed, total, kernel, sentence) in [
            (Algo::Nft, &mode, 0, None, "nft has 1 to 4294967295 buckets"),
            (Algo::XtCluster, &mode, 33, None, "xt-cluster has 1 to 32 buckets"),
            (Algo::Clusterip, &mode, 65_536, None, "clusterip has 1 to 65535 buckets"),
            (Algo::Nft, &mode, 3, Some("el7"), "nft came with kernel 4.9"),
            (Algo::Clusterip, &mode, 3, Some("6.3"), "clusterip left the kernel with 6.3; 6.2 was the last to have it"),
            (Algo::Clusterip, &fields, 3, None, "clusterip hashes by mode, not by fields"),
            (Algo::XtCluster, &fields, 3, None, "xt-cluster hashes the source address alone (mode sourceip)"),
        ] {
            assert_eq!(refused(algo, hashed, total, kernel).to_string(), sentence);
        }
        assert!(
            Params { kernel: Some("6.2.16".parse().unwrap()), ..params(Algo::Clusterip, mode, 3, 0) }.prepare().is_ok()
        );
    }

    #[test]
    fn names_read_as_they_print() {
        for text in ["saddr.sport", "proto.saddr", "saddr.daddr.sport.dport.proto"] {
            assert_eq!(text.parse::<Fields>().unwrap().to_string(), text);
        }
        assert_eq!("src.dst".parse::<Fields>().unwrap().to_string(), "saddr.daddr");
        for text in ["", "saddr.", "saddr.saddr", "src.saddr", "mark", "saddr,sport"] {
            assert!(text.parse::<Fields>().is_err(), "{text}");
        }
        for algo in Algo::ALL {
            assert_eq!(algo.to_string().parse(), Ok(algo));
        }
        assert!("jhash".parse::<Algo>().is_err());
    }
}
