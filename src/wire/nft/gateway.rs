//! The table of a split: `inet failover_gw`, or `inet failover_gw_NAME`.
//!
//! A connection gets its gateway's number in our bits of its mark once, and each of its packets has it copied
//! from there. What it is gated on is that these bits are zero, not that the connection is new: until an answer
//! comes every packet is new, and one flow would get several gateways. nft 1.0.6 takes no mark out of a map into
//! some bits of another, so there is a chain for each gateway.

use super::list::{Counter, Table};
use crate::types::gateway::{Gateway, Marks};
use crate::types::net::{Mac, Prefix};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What all our tables of splits are called, or begin with before `_`.
const TABLE: &str = "failover_gw";
/// The same on every host and in every run: a client keeps its gateway.
const SEED: u32 = 0x0067_6174;
/// A comment of a rule has at most 128 bytes, the last of them zero.
const COMMENT: usize = 127;

/// What decides which gateway a new flow gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Chance.
    Flow,
    /// The hash of the source address.
    Client,
    /// The hash of both addresses.
    ClientDestination,
}

impl By {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            By::Flow => "flow",
            By::Client => "client",
            By::ClientDestination => "client-destination",
        }
    }
}

/// Flows of one kind: `tcp`, `udp:5060-5061`, `dscp:46`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Tcp(Option<RangeInclusive<u16>>),
    Udp(Option<RangeInclusive<u16>>),
    Dscp(u8),
}

impl FromStr for Match {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' matches nothing that is known (tcp, udp, tcp:443, udp:5060-5061, dscp:46)");
        let (kind, value) = text.split_once(':').map_or((text, None), |(kind, value)| (kind, Some(value)));
        let number = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
        let ports = || -> Result<Option<RangeInclusive<u16>>, String> {
            let Some(value) = value else { return Ok(None) };
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            let range = number(first).zip(number(last)).filter(|(first, last)| 0 < *first && first <= last);
            range.map(|(first, last)| Some(first..=last)).ok_or_else(wrong)
        };
        match kind {
            "tcp" => Ok(Match::Tcp(ports()?)),
            "udp" => Ok(Match::Udp(ports()?)),
            "dscp" => {
                let dscp = value.and_then(number).and_then(|number| u8::try_from(number).ok());
                dscp.filter(|dscp| *dscp < 64).map(Match::Dscp).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl Match {
    fn words(&self, ip: &str) -> String {
        let of = |proto: &str, ports: &Option<RangeInclusive<u16>>| match ports {
            None => format!("meta l4proto {proto}"),
            Some(ports) if ports.start() == ports.end() => format!("{proto} dport {}", ports.start()),
            Some(ports) => format!("{proto} dport {}-{}", ports.start(), ports.end()),
        };
        match self {
            Match::Tcp(ports) => of("tcp", ports),
            Match::Udp(ports) => of("udp", ports),
            Match::Dscp(dscp) => format!("{ip} dscp {dscp}"),
        }
    }
}

/// Which new flows are picked for a gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flows {
    /// Source or destination in these: left alone.
    pub(crate) exclude: Vec<Prefix>,
    /// Those with source or destination in these alone.
    pub(crate) only: Option<Vec<Prefix>>,
    /// Those of any of these kinds alone, where there are some.
    pub(crate) matches: Vec<Match>,
    /// Those of this host itself too.
    pub(crate) local: bool,
}

/// A gateway of the split.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gate {
    pub(crate) subject: String,
    pub(crate) name: Option<String>,
    /// What stands in our bits of its marks.
    pub(crate) number: u32,
    pub(crate) share: f64,
    pub(crate) slots: Option<RangeInclusive<u32>>,
    /// How a packet is known that comes from it.
    pub(crate) origin: Option<Origin>,
}

/// Where a gateway's packets come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) dev: String,
    pub(crate) sender: Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Mac(Mac),
    /// The interface has no MACs: who sends there is the gateway.
    Only,
    /// Its MAC is not known, so only answers are known to be from it.
    Unknown,
}

/// Everything that makes the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split<'a> {
    pub(crate) name: &'a str,
    pub(crate) ipv6: bool,
    pub(crate) marks: Marks,
    pub(crate) slots: u32,
    pub(crate) by: By,
    pub(crate) gates: &'a [Gate],
    pub(crate) flows: &'a Flows,
}

/// The table of the split `name`; `-` is the one without a name.
pub(crate) fn table_name(name: &str) -> String {
    if name == "-" {
        return TABLE.to_owned();
    }
    let safe = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' }
    };
    format!("{TABLE}_{}", name.chars().map(safe).take(100).collect::<String>())
}

/// Whether a table of the family `inet` is that of a split.
pub(crate) fn is_split(table: &str) -> bool {
    table == TABLE || table.strip_prefix(TABLE).is_some_and(|rest| rest.starts_with('_'))
}

impl Split<'_> {
    /// The document that makes the table what it should be, in one transaction; counters go on.
    pub(crate) fn document(&self) -> String {
        let table = table_name(self.name);
        let mut text = format!("add table inet {table}\n");
        for counter in self.counters() {
            let _ = writeln!(text, "add counter inet {table} {counter}");
        }
        let _ = writeln!(text, "flush table inet {table}");
        let _ = write!(text, "table inet {table} {{\n{}}}\n", self.chains());
        text
    }

    /// A document that takes away what else is in the table as `listing` has it: chains and counters of gateways
    /// that have left, and what is not ours. Empty where there is nothing.
    pub(crate) fn sweep(&self, listing: &str) -> String {
        let table = table_name(self.name);
        let counters: BTreeSet<String> = self.counters().collect();
        let own = self.chains();
        // What names a chain goes before it.
        let mut documents = ["map", "set", "chain", "counter", ""].map(|kind| (kind, String::new()));
        for line in listing.lines() {
            let mut words = line.strip_prefix('\t').unwrap_or_default().split(' ');
            let (Some(kind), Some(name), Some("{"), None) = (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let keeps = match kind {
                "chain" => own.contains(&format!("\tchain {name} {{\n")),
                "counter" => counters.contains(name),
                "set" | "map" => false,
                _ => true,
            };
            if !keeps {
                let at = documents.iter().position(|(own, _)| *own == kind).unwrap_or(documents.len() - 1);
                let _ = writeln!(documents[at].1, "delete {kind} inet {table} {name}");
            }
        }
        documents.into_iter().map(|(_, text)| text).collect()
    }

    fn counters(&self) -> impl Iterator<Item = String> {
        self.gates.iter().flat_map(|gate| ["sent", "received", "new"].map(|what| format!("g{}_{what}", gate.number)))
    }

    /// The chains as they stand in the document: what is compared to know whether there is anything to do.
    pub(crate) fn chains(&self) -> String {
        let mask = self.marks.mask;
        let (family, ip) = if self.ipv6 { ("ipv6", "ip6") } else { ("ipv4", "ip") };
        let mut text = String::new();
        for gate in self.gates {
            self.chains_of(gate, &mut text);
        }
        text += "\tchain pick {\n";
        let hash = match self.by {
            By::Flow => "numgen random mod".to_owned(),
            By::Client => format!("jhash {ip} saddr mod"),
            By::ClientDestination => format!("jhash {ip} saddr . {ip} daddr mod"),
        };
        let seed = if self.by == By::Flow { String::new() } else { format!(" seed {SEED:#x}") };
        let pieces = self.gates.iter().filter_map(|gate| {
            let slots = gate.slots.as_ref()?;
            Some(format!("{}-{} : goto pick_{}", slots.start(), slots.end(), gate.number))
        });
        let _ = writeln!(text, "\t\t{hash} {}{seed} vmap {{ {} }}", self.slots, joined(pieces));
        text += "\t}\n";
        self.chain_new(ip, &mut text);
        self.chain_arrives(&mut text);
        let priority = if self.name == "-" { "mangle" } else { "mangle - 1" };
        let known = || {
            self.gates
                .iter()
                .map(|gate| format!("{:#010x} : goto was_{}", self.marks.gateway(gate.number), gate.number))
        };
        let probes = self.marks.gateway(Marks::PROBES);
        let zero = "0x00000000";
        text += "\tchain prerouting {\n";
        let _ = writeln!(text, "\t\ttype filter hook prerouting priority {priority}; policy accept;");
        let _ = writeln!(text, "\t\tmeta nfproto != {family} return comment \"split {}\"", self.name);
        text += "\t\tiifname \"lo\" return\n";
        // Another split has it, or a program that knows our marks.
        let _ = writeln!(text, "\t\tmeta mark & {mask:#010x} != {zero} return");
        self.senders(&format!("ct direction original ct mark & {mask:#010x} != {zero} "), "came", &mut text);
        let first = std::iter::once(format!("{zero} : goto arrives"));
        let _ = writeln!(text, "\t\tct mark & {mask:#010x} vmap {{ {} }}", joined(first.chain(known())));
        // Answers to probes, so that they pass a reverse path filter that looks at marks.
        let _ = writeln!(text, "\t\tct mark & {mask:#010x} > {probes:#010x} meta mark {zero} meta mark set ct mark");
        text += "\t}\n\tchain output {\n";
        let _ = writeln!(text, "\t\ttype route hook output priority {priority}; policy accept;");
        let _ = writeln!(text, "\t\tmeta nfproto != {family} return");
        text += "\t\toifname \"lo\" return\n";
        let _ = writeln!(text, "\t\tmeta mark & {mask:#010x} > {probes:#010x} ct mark {zero} ct mark set meta mark");
        let _ = writeln!(text, "\t\tmeta mark & {mask:#010x} != {zero} return");
        let first = self.flows.local.then(|| format!("{zero} : goto new"));
        let _ = writeln!(text, "\t\tct mark & {mask:#010x} vmap {{ {} }}", joined(first.into_iter().chain(known())));
        text + "\t}\n"
    }

    /// What becomes of a packet whose connection has the gateway, gets it since it came in by it, or is given it.
    fn chains_of(&self, gate: &Gate, text: &mut String) {
        let (mask, mark, number) = (self.marks.mask, self.marks.gateway(gate.number), gate.number);
        let set = |what: &str| match !mask {
            0 => format!("{what} mark set {mark:#010x}"),
            others => format!("{what} mark set {what} mark & {others:#010x} | {mark:#010x}"),
        };
        let _ = writeln!(text, "\tchain was_{number} {{");
        let _ = writeln!(text, "\t\t{} comment \"{}\"", set("meta"), self.comment(gate));
        if let Some(Origin { dev, sender }) = &gate.origin {
            let from = match sender {
                Sender::Mac(mac) => format!(" ether saddr {mac}"),
                Sender::Only => String::new(),
                Sender::Unknown => " ct direction reply".to_owned(),
            };
            let _ = writeln!(text, "\t\tiifname \"{dev}\"{from} counter name \"g{number}_received\" return");
        }
        let _ = writeln!(text, "\t\tcounter name \"g{number}_sent\"\n\t}}");
        // What others send from behind it may leave by any way but back, as it would without a split. The rest needs
        // the mark for a reverse path filter that looks at marks.
        let _ = writeln!(text, "\tchain came_{number} {{");
        let devs: BTreeSet<&str> =
            self.gates.iter().filter_map(|gate| Some(gate.origin.as_ref()?.dev.as_str())).collect();
        if !devs.is_empty() {
            let devs = joined(devs.iter().map(|dev| format!("\"{dev}\"")));
            let _ = writeln!(text, "\t\tfib daddr oifname {{ {devs} }} counter name \"g{number}_received\" return");
        }
        let _ = writeln!(text, "\t\tgoto was_{number}\n\t}}");
        // Both are there whatever the plan: one that was dead would come back at another place in the table.
        let _ = writeln!(text, "\tchain from_{number} {{\n\t\t{} goto came_{number}\n\t}}", set("ct"));
        let _ = writeln!(
            text,
            "\tchain pick_{number} {{\n\t\t{} counter name \"g{number}_new\" goto was_{number}\n\t}}",
            set("ct")
        );
    }

    /// What `report` and other splits read back: `SUBJECT SHARE MASK [NAME]`.
    fn comment(&self, gate: &Gate) -> String {
        let name = gate.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let mut text = format!("{} {} {}{name}", gate.subject, gate.share, self.marks);
        text.truncate(COMMENT);
        text
    }

    /// A flow that has no gateway: is it one that is picked for?
    fn chain_new(&self, ip: &str, text: &mut String) {
        let link_local = if self.ipv6 { "fe80::/10" } else { "169.254.0.0/16" };
        text.push_str("\tchain new {\n");
        // It lives without one, perhaps since before there was a split.
        text.push_str("\t\tct status seen-reply return\n");
        text.push_str("\t\tfib daddr type { local, broadcast, anycast, multicast } return\n");
        let _ = writeln!(text, "\t\t{ip} saddr {link_local} return\n\t\t{ip} daddr {link_local} return");
        let exclude = self.prefixes(&self.flows.exclude);
        if !exclude.is_empty() {
            for side in ["saddr", "daddr"] {
                let _ = writeln!(text, "\t\t{ip} {side} {{ {exclude} }} return");
            }
        }
        if let Some(only) = &self.flows.only {
            let only = self.prefixes(only);
            if only.is_empty() {
                // Those of the other family alone were meant.
                text.push_str("\t\treturn\n");
            } else {
                let _ = writeln!(text, "\t\t{ip} saddr != {{ {only} }} {ip} daddr != {{ {only} }} return");
            }
        }
        for one in &self.flows.matches {
            let _ = writeln!(text, "\t\t{} goto pick", one.words(ip));
        }
        text.push_str(if self.flows.matches.is_empty() { "\t\tgoto pick\n\t}\n" } else { "\t}\n" });
    }

    /// What comes in by a gateway is answered by it; the rest is new.
    fn chain_arrives(&self, text: &mut String) {
        text.push_str("\tchain arrives {\n");
        self.senders("", "from", text);
        text.push_str("\t\tgoto new\n\t}\n");
    }

    /// Sends what comes from a gateway itself to its chain.
    fn senders(&self, condition: &str, chain: &str, text: &mut String) {
        let (mut seen, mut macs) = (BTreeSet::new(), Vec::new());
        for gate in self.gates {
            let Some(Origin { dev, sender }) = &gate.origin else { continue };
            match sender {
                Sender::Mac(mac) if seen.insert((dev, Some(*mac))) => {
                    macs.push(format!("\"{dev}\" . {mac} : goto {chain}_{}", gate.number));
                }
                Sender::Only if seen.insert((dev, None)) => {
                    let _ = writeln!(text, "\t\t{condition}iifname \"{dev}\" goto {chain}_{}", gate.number);
                }
                _ => {}
            }
        }
        if !macs.is_empty() {
            let _ = writeln!(text, "\t\t{condition}iifname . ether saddr vmap {{ {} }}", macs.join(", "));
        }
    }

    /// The prefixes of this family, without those that others hold: a set of ranges takes no two that overlap.
    fn prefixes(&self, all: &[Prefix]) -> String {
        let own: Vec<Prefix> = all.iter().copied().filter(|prefix| prefix.addr.is_ipv6() == self.ipv6).collect();
        let held = |(at, prefix): &(usize, &Prefix)| {
            own.iter().enumerate().any(|(other, wide)| {
                wide.contains(prefix.addr) && (wide.len < prefix.len || (wide.len == prefix.len && other < *at))
            })
        };
        joined(own.iter().enumerate().filter(|one| !held(one)).map(|(_, prefix)| network(*prefix)))
    }
}

/// A prefix without host bits.
fn network(prefix: Prefix) -> String {
    let Prefix { addr, len } = prefix;
    let addr: IpAddr = match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(u32::from(32 - len)).unwrap_or(0);
            std::net::Ipv4Addr::from(addr.to_bits() & mask).into()
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(u32::from(128 - len)).unwrap_or(0);
            std::net::Ipv6Addr::from(addr.to_bits() & mask).into()
        }
    };
    Prefix { addr, len }.to_string()
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// What a table tells of one of its gateways.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) subject: String,
    pub(crate) name: Option<String>,
    pub(crate) number: u32,
    pub(crate) share: f64,
    pub(crate) marks: Marks,
}

impl Told {
    pub(crate) fn is_ipv6(&self) -> bool {
        Gateway::at(&self.subject).is_ok_and(|gateway| gateway.addr.is_ipv6())
    }

    fn read(chain: &str, comment: &str) -> Option<Self> {
        let number = chain.strip_prefix("was_")?.parse().ok()?;
        let mut words = comment.split(' ');
        let subject = words.next()?.to_owned();
        let (share, marks) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Told { subject, share, marks, number, name: words.next().map(str::to_owned) })
    }
}

/// What a gateway's counters have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
    /// Connections that were given to it: one packet each.
    pub(crate) new: u64,
}

/// The gateways of a split as `nft -j list table` has it, by their numbers, and what they counted.
pub(crate) fn counted(table: &Table) -> Vec<(Told, Counted)> {
    let mut all: Vec<(Told, Counted)> = table
        .chains
        .iter()
        .filter_map(|(name, chain)| {
            let told = Told::read(name, chain.rules.first()?.comment.as_ref()?)?;
            let counter = |what: &str| {
                let name = format!("g{}_{what}", told.number);
                table.counters.get(&name).copied().unwrap_or_default()
            };
            let counted = Counted { sent: counter("sent"), received: counter("received"), new: counter("new").packets };
            Some((told, counted))
        })
        .collect();
    all.sort_by_key(|(told, _)| told.number);
    all
}

/// The gateways of all splits as `nft list ruleset` or `nft list table` has them, with their tables.
pub(crate) fn told(listing: &str) -> Vec<(String, Told)> {
    let (mut table, mut chain) = (None, "");
    let mut all = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix("table ") {
            let name = name.strip_prefix("inet ").and_then(|name| name.strip_suffix(" {"));
            table = name.filter(|name| is_split(name));
        } else if let Some(name) = line.strip_prefix("\tchain ") {
            chain = name.trim_end_matches(" {");
        } else if let Some(table) = table
            && let Some(comment) = comment(line)
        {
            all.extend(Told::read(chain, comment).map(|told| (table.to_owned(), told)));
        }
    }
    all
}

/// Whether a listed table has each chain of a document, with as many rules: what another program took away
/// between loading and listing is missed.
pub(crate) fn holds(listing: &str, chains: &str) -> bool {
    let listed = rules(listing);
    rules(chains).iter().all(|(chain, count)| listed.get(chain) == Some(count))
}

/// How many lines each chain has.
fn rules(text: &str) -> BTreeMap<&str, usize> {
    let (mut counts, mut chain) = (BTreeMap::new(), None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("\t\t") {
            // A long map goes on with a deeper line.
            if let Some(chain) = chain.filter(|_| !rest.starts_with(['\t', ' '])) {
                *counts.entry(chain).or_default() += 1;
            }
        } else {
            chain = line.strip_prefix("\tchain ").map(|name| name.trim_end_matches(" {"));
            if let Some(chain) = chain {
                counts.insert(chain, 0);
            }
        }
    }
    counts
}

/// The split that a listed table is of, as its first rule says.
pub(crate) fn split_of(listing: &str) -> Option<&str> {
    listing.lines().find_map(|line| comment(line)?.strip_prefix("split "))
}

fn comment(line: &str) -> Option<&str> {
    line.split_once(" comment \"")?.1.strip_suffix('"')
}

/// The same of a table that was listed in JSON: whether it is that of the split `name`, or does not say.
pub(crate) fn is_named(table: &Table, name: &str) -> bool {
    let comments = table.chains.values().flat_map(|chain| &chain.rules).filter_map(|rule| rule.comment.as_deref());
    comments.filter_map(|comment| comment.strip_prefix("split ")).all(|own| own == name)
}

/// Whether the table of another split than `name` has got this one's name.
pub(crate) fn is_of(listing: &str, name: &str) -> bool {
    split_of(listing).is_none_or(|own| own == name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use crate::wire::nft::list::parse;
    use proptest::prelude::*;

    fn gate(number: u32, slots: Option<RangeInclusive<u32>>) -> Gate {
        let mac = Mac([2, 0, 0, 0, 0, u8::try_from(number).unwrap()]);
        Gate {
            subject: format!("192.0.2.{number}"),
            name: None,
            number,
            share: 0.5,
            slots,
            origin: Some(Origin { dev: "eth0".to_owned(), sender: Sender::Mac(mac) }),
        }
    }

    fn split<'a>(gates: &'a [Gate], flows: &'a Flows) -> Split<'a> {
        Split { name: "-", ipv6: false, marks: Marks::USUAL, slots: 10_000, by: By::Flow, gates, flows }
    }

    #[test]
    fn a_kind_of_flow_is_read() {
        for (text, words) in [
            ("tcp", "meta l4proto tcp"),
            ("udp:5060-5061", "udp dport 5060-5061"),
            ("tcp:443", "tcp dport 443"),
            ("dscp:46", "ip dscp 46"),
        ] {
            assert_eq!(text.parse::<Match>().unwrap().words("ip"), words);
        }
        for wrong in ["", "icmp", "tcp:", "tcp:0", "udp:2-1", "tcp:65536", "tcp:+1", "dscp", "dscp:64", "tcp:1-2-3"] {
            assert!(wrong.parse::<Match>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_is_called_after_its_split() {
        for (name, table) in [("-", "failover_gw"), ("VoIP-2", "failover_gw_voip_2"), ("é\" {", "failover_gw_____")] {
            assert_eq!(table_name(name), table);
            assert!(is_split(table));
        }
        assert!(!is_split("failover_gwx") && !is_split("failover_192_0_2_1"));
    }

    /// What nft 1.0.6 takes; the end-to-end tests have it say so.
    #[test]
    fn the_document_of_two_gateways() {
        let gates = [
            Gate { name: Some("dsl".to_owned()), ..gate(1, Some(0..=2999)) },
            Gate {
                origin: Some(Origin { dev: "ppp0".to_owned(), sender: Sender::Only }),
                ..gate(2, Some(3000..=9999))
            },
            Gate { origin: Some(Origin { dev: "eth1".to_owned(), sender: Sender::Unknown }), ..gate(3, None) },
        ];
        let flows = Flows {
            exclude: ["10.1.2.3/8", "10.0.0.0/8", "10.9.0.0/16", "2001:db8::/32"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            only: Some(vec!["192.0.2.0/24".parse().unwrap()]),
            matches: vec![Match::Tcp(None), Match::Udp(Some(53..=53))],
            local: true,
        };
        let text = split(&gates, &flows).document();
        for line in [
            "add counter inet failover_gw g3_received\n",
            "\tchain was_1 {\n\t\tmeta mark set meta mark & 0xff00ffff | 0x00010000 comment \"192.0.2.1 0.5 0x00ff0000 dsl\"\n\
             \t\tiifname \"eth0\" ether saddr 02:00:00:00:00:01 counter name \"g1_received\" return\n\
             \t\tcounter name \"g1_sent\"\n\t}\n",
            "\t\tiifname \"ppp0\" counter name \"g2_received\" return\n",
            "\t\tiifname \"eth1\" ct direction reply counter name \"g3_received\" return\n",
            "\tchain came_2 {\n\t\tfib daddr oifname { \"eth0\", \"eth1\", \"ppp0\" } counter name \"g2_received\" return\n\t\tgoto was_2\n\t}\n",
            "\t\tct direction original ct mark & 0x00ff0000 != 0x00000000 iifname \"ppp0\" goto came_2\n",
            "!= 0x00000000 iifname . ether saddr vmap { \"eth0\" . 02:00:00:00:00:01 : goto came_1 }\n\t\tct mark & 0x00ff0000 vmap",
            "\tchain pick_2 {\n\t\tct mark set ct mark & 0xff00ffff | 0x00020000 counter name \"g2_new\" goto was_2\n\t}\n",
            "\t\tnumgen random mod 10000 vmap { 0-2999 : goto pick_1, 3000-9999 : goto pick_2 }\n",
            "\t\tip saddr { 10.0.0.0/8 } return\n\t\tip daddr { 10.0.0.0/8 } return\n",
            "\t\tip saddr != { 192.0.2.0/24 } ip daddr != { 192.0.2.0/24 } return\n",
            "\t\tmeta l4proto tcp goto pick\n\t\tudp dport 53 goto pick\n\t}\n",
            "\t\tiifname \"ppp0\" goto from_2\n\t\tiifname . ether saddr vmap { \"eth0\" . 02:00:00:00:00:01 : goto from_1 }\n",
            "\t\tct mark & 0x00ff0000 vmap { 0x00000000 : goto arrives, 0x00010000 : goto was_1, 0x00020000 : goto was_2, \
             0x00030000 : goto was_3 }\n",
            "\t\tct mark & 0x00ff0000 vmap { 0x00000000 : goto new, 0x00010000",
            "priority mangle; policy accept;\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("goto from_3") && !text.contains("goto pick_3"));
        let flows = Flows { only: Some(flows.only.unwrap()), ..Flows::default() };
        let six = Split { ipv6: true, name: "voip", by: By::ClientDestination, ..split(&gates, &flows) }.document();
        for line in [
            "jhash ip6 saddr . ip6 daddr mod 10000 seed 0x676174 vmap {",
            "priority mangle - 1;",
            "meta nfproto != ipv6 return comment \"split voip\"\n",
            "ip6 daddr fe80::/10 return\n\t\treturn\n\t\tgoto pick\n",
        ] {
            assert!(six.contains(line), "{line}\n{six}");
        }
        assert!(!six.contains("goto new, 0x00010000"));
    }

    #[test]
    fn what_is_not_the_split_s_is_swept() {
        let (gates, flows) = ([gate(1, Some(0..=9999))], Flows::default());
        let own = split(&gates, &flows);
        let before = split(&[gate(1, Some(0..=4999)), gate(2, Some(5000..=9999))], &flows).chains();
        let listing = format!(
            "table inet failover_gw {{\n\tset evil {{\n\t}}\n\tmap way {{\n\t}}\n\tcounter g1_new {{\n\t}}\n\tcounter g2_new {{\n\t}}\n{before}}}\n"
        );
        assert_eq!(
            own.sweep(&listing),
            "delete map inet failover_gw way\ndelete set inet failover_gw evil\n\
             delete chain inet failover_gw was_2\ndelete chain inet failover_gw came_2\n\
             delete chain inet failover_gw from_2\n\
             delete chain inet failover_gw pick_2\ndelete counter inet failover_gw g2_new\n"
        );
        let whole = format!("table inet failover_gw {{\n{}}}\n", own.chains());
        assert_eq!(own.sweep(&whole), "");
        assert!(holds(&whole, &own.chains()) && !holds("", &own.chains()));
        let pick = "\t\tnumgen random mod 10000 vmap { 0-9999 : goto pick_1 }\n";
        assert!(!holds(&whole.replace(pick, ""), &own.chains()));
        // As nft lists what is long.
        let wrapped = pick.replace("0-9999", "0-4999 : goto pick_1,\n\t\t\t\t\t\t5000-9999");
        assert!(holds(&whole.replace(pick, &wrapped), &own.chains()));
        assert!(is_of(&own.chains(), "-") && !is_of(&own.chains(), "voip") && is_of("", "voip"));
    }

    #[test]
    fn a_listing_tells_gateways_and_counters() {
        let text = r#"{"nftables": [{"metainfo": {}}, {"table": {"family": "inet", "name": "failover_gw", "handle": 7}},
            {"counter": {"family": "inet", "name": "g2_sent", "table": "failover_gw", "handle": 1, "packets": 5, "bytes": 500}},
            {"counter": {"family": "inet", "name": "g2_new", "table": "failover_gw", "handle": 2, "packets": 2, "bytes": 80}},
            {"chain": {"family": "inet", "table": "failover_gw", "name": "was_2", "handle": 3}},
            {"rule": {"family": "inet", "table": "failover_gw", "chain": "was_2", "handle": 4, "comment": "fe80::1%eth0 0.25 0x00ff0000 dsl",
             "expr": [{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"&": [{"meta": {"key": "mark"}}, 4278386687]}, 131072]}}}]}},
            {"chain": {"family": "inet", "table": "failover_gw", "name": "new", "handle": 5}}]}"#;
        let table = parse(text).unwrap();
        assert_eq!(table.handle, 7);
        let [(told, counted)] = &counted(&table)[..] else { unreachable!() };
        assert_eq!(
            (told.subject.as_str(), told.number, told.share, told.marks),
            ("fe80::1%eth0", 2, 0.25, Marks::USUAL)
        );
        assert!(told.is_ipv6() && told.name.as_deref() == Some("dsl"));
        let named = text.replace("fe80::1%eth0 0.25 0x00ff0000 dsl", "split voip");
        assert!(is_named(&table, "-") && is_named(&parse(&named).unwrap(), "voip"));
        assert!(!is_named(&parse(&named).unwrap(), "VoIP"));
        assert_eq!((counted.sent.bytes, counted.new, counted.received), (500, 2, Counter::default()));
    }

    proptest! {
        /// Whatever the plan, a flow that is picked for gets a gateway: the ranges have no gap.
        #[test]
        fn the_ranges_are_the_slots(cuts in prop::collection::btree_set(1u32..9999, 0..99), local: bool) {
            let mut bounds: Vec<u32> = cuts.into_iter().collect();
            bounds.push(10_000);
            let mut gates = Vec::new();
            let mut first = 0;
            for (number, end) in (1..).zip(bounds) {
                gates.push(gate(number, Some(first..=end - 1)));
                first = end;
            }
            let flows = Flows { local, ..Flows::default() };
            let split = split(&gates, &flows);
            let text = split.chains();
            let vmap = text.split("mod 10000 vmap { ").nth(1).unwrap().split(" }").next().unwrap();
            let mut next = 0;
            for piece in vmap.split(", ") {
                let (range, verdict) = piece.split_once(" : goto ").unwrap();
                let (first, last) = range.split_once('-').unwrap();
                prop_assert_eq!(first.parse::<u32>().unwrap(), next);
                next = last.parse::<u32>().unwrap() + 1;
                let chain = format!("\tchain {verdict} {{\n");
                prop_assert!(text.contains(&chain));
            }
            prop_assert_eq!(next, 10_000);
            // What one split says of itself another reads.
            let told = told(&format!("table inet failover_gw {{\n{text}}}\n"));
            prop_assert_eq!(told.len(), gates.len());
            prop_assert!(told.iter().zip(&gates).all(|((table, told), gate)| table == "failover_gw" && told.number == gate.number));
        }

        #[test]
        fn a_comment_fits(name in "[a-z]{0,63}", share in 0.0..1.0f64) {
            let gates = [Gate { subject: format!("2001:db8:1111:2222:3333:4444:5555:6666%{}", "e".repeat(15)), name: Some(name), share, ..gate(1, None) }];
            let flows = Flows::default();
            prop_assert!(split(&gates, &flows).comment(&gates[0]).len() <= COMMENT);
        }
    }
}
