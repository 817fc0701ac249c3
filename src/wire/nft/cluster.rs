//! The rules of a cluster IP: made as documents, and read back.
//!
//! Three tables of one name hold them. `netdev` lets frames for the cluster MAC in, `ip` or `ip6`
//! decides by the hash, and `arp` (IPv4) makes this node answer with the cluster MAC. Each
//! document is one transaction: a packet sees the rules before it or after it.

use super::list::{Counter, Table};
use super::rule::{Hash, Part, Rule};
use super::{family, table_name};
use crate::types::bucket::Buckets;
use crate::types::cluster::{Cluster, Held, Mode, Rest};
use crate::types::net::{Mac, Proto};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// The version of the rules' form, first in the comment.
const FORM: &str = "1";

/// The set of TCP peers in the `netdev` table, and how many it has at most: whoever is beyond that waits
/// for its own time-out.
pub(crate) const PEERS: &str = "peers";
const MAX_PEERS: u32 = 65536;

/// A segment of [`crate::wire::tcp::tickle`], and none of a connection but by a chance of 2^-64.
pub(crate) const TICKLE: &str = "tcp sequence 0 tcp ackseq 0 tcp window 1024";

/// A comment may have 120 bytes (the kernel keeps 128).
const MAX_COMMENT: usize = 120;

/// The protocols with ports, sorted: jhash takes `th sport` for these, the address alone for others.
const WITH_PORTS: &str = "{ dccp, sctp, tcp, udp, udplite }";

/// NDP is answered by every node, with one MAC.
const NDP: &str = "icmpv6 type { nd-neighbor-advert, nd-neighbor-solicit } accept";

/// A table that we write.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) family: &'static str,
    pub(crate) chains: Vec<WantedChain>,
    /// Whether the table has a set with the address, which expires.
    lease: bool,
    /// Whether it has a set of TCP peers.
    peers: bool,
    counters: bool,
}

/// A chain that we write.
#[derive(Clone, Debug)]
pub(crate) struct WantedChain {
    pub(crate) name: &'static str,
    /// `type filter hook prerouting priority raw`
    head: String,
    pub(crate) hook: &'static str,
    pub(crate) priority: i64,
    pub(crate) rules: Vec<Rule>,
}

/// What the `ip` or `ip6` table of a cluster IP says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) cluster: Cluster,
    pub(crate) held: Held,
    /// What is left of the lease, in whole seconds, cut; `None` if it has run out or there is none.
    pub(crate) lease_left: Option<Duration>,
    pub(crate) accepted: Counter,
    pub(crate) dropped: Counter,
    pub(crate) drained: Counter,
    pub(crate) refused: Counter,
}

/// The document that makes everything anew, in place of what may be there.
///
/// `lease_left` puts the address into the lease; without it nothing is served until [`renew`].
pub(crate) fn init(cluster: &Cluster, held: &Held, lease_left: Option<Duration>) -> Result<String, String> {
    let name = table_name(cluster.vip);
    let mut text = String::new();
    for table in tables(cluster, held)? {
        // Named first, so that deleting one that is not there is no error.
        line(&mut text, format_args!("table {} {name}", table.family));
        line(&mut text, format_args!("delete table {} {name}", table.family));
        line(&mut text, format_args!("table {} {name} {{", table.family));
        if table.counters {
            for counter in ["accepted", "dropped", "drained", "refused"] {
                line(&mut text, format_args!("\tcounter {counter} {{\n\t}}"));
            }
        }
        if table.lease {
            line(&mut text, format_args!("\tset lease {{\n\t\ttype {}\n\t\tflags timeout", key_type(cluster.vip)));
            if let Some(left) = lease_left {
                line(&mut text, format_args!("\t\telements = {{ {} }}", element(cluster, Some(left))));
            }
            text.push_str("\t}\n");
        }
        if table.peers {
            let address = key_type(cluster.vip);
            line(&mut text, format_args!("\tset {PEERS} {{\n\t\ttype {address} . inet_service . inet_service"));
            line(&mut text, format_args!("\t\tsize {MAX_PEERS}\n\t\tflags dynamic,timeout\n\t\ttimeout 1h\n\t}}"));
        }
        for chain in &table.chains {
            line(&mut text, format_args!("\tchain {} {{\n\t\t{}; policy accept;", chain.name, chain.head));
            for rule in &chain.rules {
                line(&mut text, format_args!("\t\t{rule}"));
            }
            text.push_str("\t}\n");
        }
        text.push_str("}\n");
    }
    Ok(text)
}

/// The document that changes which buckets are held, and the map's number: both chains that know
/// them are emptied and filled again.
pub(crate) fn map(cluster: &Cluster, held: &Held) -> Result<String, String> {
    let name = table_name(cluster.vip);
    let family = family(cluster.vip);
    let mut text = String::new();
    for chain in [own(cluster, held)?, out(cluster, held)] {
        line(&mut text, format_args!("flush chain {family} {name} {}", chain.name));
        for rule in &chain.rules {
            line(&mut text, format_args!("add rule {family} {name} {} {rule}", chain.name));
        }
    }
    Ok(text)
}

/// The first grant of the lease, where none stands.
pub(crate) fn grant(cluster: &Cluster) -> String {
    each_lease(cluster, |text, family, name| {
        line(text, format_args!("add element {family} {name} lease {{ {} }}", element(cluster, None)));
    })
}

/// The document that renews the lease.
///
/// From one second up by delete and add, which fails once the lease has lapsed: a node that was
/// frozen cannot renew what it lost. Deleting costs a grace period of the kernel's (17 ms), so
/// shorter leases are extended in place; the caller keeps the time since the last renewal.
pub(crate) fn renew(cluster: &Cluster) -> String {
    each_lease(cluster, |text, family, name| {
        if in_place(cluster) {
            let lease = millis(cluster.lease.unwrap_or_default());
            line(
                text,
                format_args!("add element {family} {name} lease {{ {} timeout {lease} expires {lease} }}", cluster.vip),
            );
        } else {
            line(text, format_args!("delete element {family} {name} lease {{ {} }}", cluster.vip));
            line(text, format_args!("add element {family} {name} lease {{ {} }}", element(cluster, None)));
        }
    })
}

/// Whether a renewal extends the element that stands: below one second.
pub(crate) fn in_place(cluster: &Cluster) -> bool {
    cluster.lease.is_some_and(|lease| lease < Duration::from_secs(1))
}

/// The document that removes everything, also where part of it or all of it is not there.
pub(crate) fn clear(vip: IpAddr) -> String {
    let name = table_name(vip);
    let mut text = String::new();
    for family in families(vip) {
        line(&mut text, format_args!("table {family} {name}\ndelete table {family} {name}"));
    }
    text
}

/// The families of the tables of `vip`, the one that decides in the middle.
pub(crate) fn families(vip: IpAddr) -> &'static [&'static str] {
    if vip.is_ipv4() { &["netdev", "ip", "arp"] } else { &["netdev", "ip6"] }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(line);
    text.push('\n');
}

fn each_lease(cluster: &Cluster, mut write: impl FnMut(&mut String, &str, &str)) -> String {
    let name = table_name(cluster.vip);
    let mut text = String::new();
    if cluster.lease.is_some() {
        for family in families(cluster.vip).iter().filter(|family| **family != "netdev") {
            write(&mut text, family, &name);
        }
    }
    text
}

fn element(cluster: &Cluster, left: Option<Duration>) -> String {
    let lease = cluster.lease.unwrap_or_default();
    match left {
        Some(left) if left < lease => format!("{} timeout {} expires {}", cluster.vip, millis(lease), millis(left)),
        _ => format!("{} timeout {}", cluster.vip, millis(lease)),
    }
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn key_type(vip: IpAddr) -> &'static str {
    if vip.is_ipv4() { "ipv4_addr" } else { "ipv6_addr" }
}

/// All tables, chains and rules, in the order in which nft lists them.
pub(crate) fn tables(cluster: &Cluster, held: &Held) -> Result<Vec<Wanted>, String> {
    let lease = cluster.lease.is_some();
    let mut chains = vec![local(cluster), own(cluster, held)?, out(cluster, held)];
    chains.extend(lease.then(|| last(cluster)));
    chains.extend(cluster.remember.then(|| quiet(cluster)));
    let mut tables = vec![
        Wanted {
            family: "netdev",
            chains: vec![ingress(cluster)],
            lease: false,
            peers: cluster.remember,
            counters: false,
        },
        Wanted { family: family(cluster.vip), chains, lease, peers: false, counters: true },
    ];
    if cluster.vip.is_ipv4() {
        tables.push(Wanted { family: "arp", chains: vec![arp(cluster)], lease, peers: false, counters: false });
    }
    Ok(tables)
}

/// Frames for the cluster MAC are for this host.
///
/// TCP ignores what came as multicast, and a foreign unicast MAC never reaches prerouting. The
/// address is named too: another address behind the same MAC must not be routed on by every node.
fn ingress(cluster: &Cluster) -> WantedChain {
    let (family, vip, mac) = (family(cluster.vip), cluster.vip, cluster.mac);
    let frame = || Rule::of(format!("ether daddr {mac}")).and(format!("{family} daddr {vip}"));
    let mut rules = vec![frame().and("meta pkttype set host")];
    if cluster.remember {
        // Here, since whoever lists the table that decides must not list these with it. Who closed first
        // stays for the hour, by its last acknowledgement, and ends that by the reset with which it answers
        // the first who wakes it.
        let ends = format!("@{PEERS} {{ {family} saddr . tcp sport . tcp dport }}");
        rules.push(frame().and("tcp flags fin,rst").and(format!("delete {ends}")));
        rules.push(frame().and("tcp flags ! fin,syn,rst").and(format!("update {ends}")));
    }
    if vip.is_ipv4() {
        rules.push(Rule::of(format!("ether daddr {mac}")).and("ether type arp").and("meta pkttype set host"));
    }
    WantedChain {
        name: "i",
        head: format!("type filter hook ingress device \"{}\" priority filter", cluster.dev),
        hook: "ingress",
        priority: 0,
        rules,
    }
}

/// A node that lost the address must not route the packet back to the group: with forwarding on,
/// every such node would, and the frame would multiply until its hop limit ends.
fn local(cluster: &Cluster) -> WantedChain {
    let (family, vip) = (family(cluster.vip), cluster.vip);
    let rule =
        Rule::of(format!("{family} daddr {vip}")).and("fib daddr type != local").and(counter("dropped")).and("drop");
    chain("pre", "prerouting", ("raw", -300), vec![rule])
}

/// Whose packet is it? In prerouting, before DNAT: a service in a container never passes input.
fn own(cluster: &Cluster, held: &Held) -> Result<WantedChain, String> {
    let (family, vip) = (family(cluster.vip), cluster.vip);
    let mut rules = vec![Rule {
        parts: vec![Part::Words(format!("{family} daddr != {vip}")), Part::Words("accept".to_owned())],
        comment: Some(comment(cluster)?),
    }];
    if vip.is_ipv6() {
        let (matching, verdict) = NDP.rsplit_once(' ').unwrap_or((NDP, ""));
        rules.push(Rule::of(matching).and(verdict));
    }
    rules.push(Rule::of("iifname \"lo\"").and("accept"));
    if cluster.lease.is_some() {
        rules.push(Rule::of(format!("{family} daddr != @lease")).and(counter("dropped")).and("drop"));
    }
    let served = held.owned.union(&held.draining);
    rules.extend(hashed(cluster, Way::In, &served, true, || Rule::of("ct direction reply"), &["accepted"], "accept"));
    rules.push(Rule::of("ct state related").and(counter("accepted")).and("accept"));
    if let (Some(proto), Rest::Drop) = (cluster.proto, cluster.rest) {
        let proto = proto_for(proto, vip);
        rules.push(Rule::of(format!("meta l4proto != {proto}")).and(counter("dropped")).and("drop"));
        if let Some(port) = cluster.port {
            rules.push(Rule::of(format!("{proto} dport != {port}")).and(counter("dropped")).and("drop"));
        }
    }
    let tcp = |buckets: &Buckets, start: Rule| {
        (!buckets.is_empty()).then(|| with_hash(start, cluster, Way::In, cluster.mode.has_ports(), buckets, true))
    };
    let known = || Rule::of("meta l4proto tcp").and("ct state established");
    rules.extend(tcp(&held.draining, known()).map(|rule| rule.and(counter("drained")).and("accept")));
    rules.extend(tcp(&held.owned, known()).map(|rule| rule.and(counter("accepted")).and("accept")));
    rules.extend(
        tcp(&held.opening, Rule::of("tcp flags != syn / fin,syn,rst,ack"))
            .map(|rule| rule.and(counter("dropped")).and("drop")),
    );
    // Our own reset: whether the site's firewall lets a stranger's segment in, and whether
    // conntrack picks it up, decides nothing then.
    rules.extend(
        tcp(&held.reset, Rule::of("tcp flags ! syn,rst"))
            .map(|rule| rule.and(counter("dropped")).and("reject with tcp reset")),
    );
    rules.extend(hashed(cluster, Way::In, &held.owned, true, Rule::default, &["accepted"], "accept"));
    rules.push(Rule::of(counter("dropped")).and("drop"));
    Ok(chain("own", "prerouting", ("mangle", -150), rules))
}

/// What this node sends: its neighbour messages tell the cluster MAC (IPv6), and it opens no
/// connection from the address whose answer another node would get.
fn out(cluster: &Cluster, held: &Held) -> WantedChain {
    let (family, vip) = (family(cluster.vip), cluster.vip);
    let mut rules = Vec::new();
    if let IpAddr::V6(vip) = vip {
        let (mac, sum) = (mac_number(cluster.mac), correction(cluster.made_from, cluster.mac));
        let set = |rule: Rule| rule.and(format!("@th,208,48 set {mac:#x}")).and(format!("@th,48,16 set {sum:#x}"));
        rules.push(set(Rule::of("icmpv6 type nd-neighbor-advert").and(format!("@th,64,128 {:#x}", vip.to_bits()))));
        rules.push(set(Rule::of(format!("ip6 saddr {vip}")).and("icmpv6 type nd-neighbor-solicit")));
    }
    let reject =
        if vip.is_ipv4() { "reject with icmp admin-prohibited" } else { "reject with icmpv6 admin-prohibited" };
    let start = || {
        Rule::of(format!("{family} saddr {vip}"))
            .and("oifname != \"lo\"")
            .and("ct direction original")
            .and("ct state new")
    };
    if held.owned.is_empty() {
        rules.push(start().and(counter("refused")).and(reject));
    } else {
        rules.extend(hashed(cluster, Way::Out, &held.owned, false, start, &["refused"], reject));
    }
    chain("out", "output", ("mangle", -150), rules)
}

/// After the lease nothing leaves either: retransmissions, and what a container still answers
/// (source addresses are translated back at srcnat, so after that).
fn last(cluster: &Cluster) -> WantedChain {
    let (family, vip) = (family(cluster.vip), cluster.vip);
    let rule = Rule::of(format!("{family} saddr {vip}"))
        .and("oifname != \"lo\"")
        .and(format!("{family} saddr != @lease"))
        .and(counter("refused"))
        .and("drop");
    chain("last", "postrouting", ("110", 110), vec![rule])
}

/// Segments that wake peers ([`crate::wire::tcp::tickle`]) leave no connection behind: conntrack would take the
/// peer's next packets for its answers, also once the port was used anew and another node is the owner.
fn quiet(cluster: &Cluster) -> WantedChain {
    let rule = Rule::of(format!("{} saddr {}", family(cluster.vip), cluster.vip)).and(TICKLE).and("notrack");
    chain("quiet", "output", ("raw", -300), vec![rule])
}

/// ARP with the address as sender tells the cluster MAC; without a lease it tells nothing.
fn arp(cluster: &Cluster) -> WantedChain {
    let mut rules = vec![Rule::of(format!("arp saddr ip != {}", cluster.vip)).and("accept")];
    if cluster.lease.is_some() {
        rules.push(Rule::of("arp saddr ip != @lease").and("drop"));
    }
    rules.push(Rule::of(format!("arp saddr ether set {}", cluster.mac)));
    chain("o", "output", ("filter", 0), rules)
}

fn chain(name: &'static str, hook: &'static str, (word, priority): (&str, i64), rules: Vec<Rule>) -> WantedChain {
    WantedChain { name, head: format!("type filter hook {hook} priority {word}"), hook, priority, rules }
}

fn counter(name: &str) -> String {
    format!("counter name \"{name}\"")
}

/// Which way a packet goes: an answer's source is the destination of what asks for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// One rule for `buckets`; with ports in the hash two, since only some protocols have ports.
fn hashed(
    cluster: &Cluster,
    way: Way,
    buckets: &Buckets,
    among: bool,
    start: impl Fn() -> Rule,
    counters: &[&str],
    verdict: &str,
) -> Vec<Rule> {
    if buckets.is_empty() {
        return Vec::new();
    }
    let forms: &[(Option<&str>, bool)] =
        if cluster.mode.has_ports() { &[(Some(""), true), (Some("!= "), false)] } else { &[(None, false)] };
    forms
        .iter()
        .map(|(not, ports)| {
            let mut rule = start();
            if let Some(not) = not {
                rule = rule.and(format!("meta l4proto {not}{WITH_PORTS}"));
            }
            rule = with_hash(rule, cluster, way, *ports, buckets, among);
            counters.iter().fold(rule, |rule, name| rule.and(counter(name))).and(verdict)
        })
        .collect()
}

fn with_hash(mut rule: Rule, cluster: &Cluster, way: Way, ports: bool, buckets: &Buckets, among: bool) -> Rule {
    let (address, near, far) = match way {
        Way::In => ("saddr", "sport", "dport"),
        Way::Out => ("daddr", "dport", "sport"),
    };
    let mut fields = format!("{} {address}", family(cluster.vip));
    if ports {
        let _ = write!(fields, " . th {near}");
        if cluster.mode == Mode::SourceIpSourcePortDestPort {
            let _ = write!(fields, " . th {far}");
        }
    }
    rule.parts.push(Part::Hash(Hash {
        fields,
        total: u64::from(cluster.total),
        seed: u64::from(cluster.seed),
        among,
        buckets: buckets.clone(),
    }));
    rule
}

/// The protocol as this family has it: `icmp` is another number in IPv6.
fn proto_for(proto: Proto, vip: IpAddr) -> Proto {
    match (proto, vip) {
        (Proto::ICMP, IpAddr::V6(_)) => Proto::ICMPV6,
        (proto, _) => proto,
    }
}

fn mac_number(mac: Mac) -> u64 {
    mac.0.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// What the low 16 reserved bits of a neighbour message must hold so that its sum stays right
/// after `own` was replaced by `cluster` in its link-layer option.
///
/// One's complement (RFC 1071): the sum over the message must not change, so the difference of
/// the words goes where there was zero. Receivers must ignore these bits (RFC 4861 §4.3, §4.4).
pub(crate) fn correction(own: Mac, cluster: Mac) -> u16 {
    let sum = |mac: Mac| {
        mac.0.chunks(2).map(|word| word.iter().fold(0, |sum, octet| sum << 8 | u32::from(*octet))).sum::<u32>()
    };
    // Both sums are below 3 × 65,536, so three times the modulus keeps the difference positive.
    u16::try_from((sum(own) + 3 * 0xffff - sum(cluster)) % 0xffff).unwrap_or_default()
}

/// What cannot be read off the rules, in the comment of the first rule of `own`:
/// form, device, MAC, device's MAC, mode, total, seed, epoch, configuration, lease, limits, sysctl, and
/// `r` where peers are remembered.
fn comment(cluster: &Cluster) -> Result<String, String> {
    let mac = |mac: Mac| format!("{:012x}", mac_number(mac));
    let mode = match cluster.mode {
        Mode::SourceIp => "a",
        Mode::SourceIpSourcePort => "as",
        Mode::SourceIpSourcePortDestPort => "asd",
    };
    let dash = || "-".to_owned();
    let only = cluster.proto.map_or_else(dash, |proto| {
        let port = cluster.port.map_or_else(dash, |port| port.to_string());
        let rest = if cluster.rest == Rest::Drop { 'd' } else { 'h' };
        format!("{}:{port}:{rest}", proto.0)
    });
    let text = format!(
        "{FORM} {} {} {} {mode} {} {:x} {:x} {} {} {only} {}{}",
        cluster.dev,
        mac(cluster.mac),
        mac(cluster.made_from),
        cluster.total,
        cluster.seed,
        cluster.epoch,
        cluster.config.clone().unwrap_or_else(dash),
        cluster.lease.map_or_else(dash, |lease| lease.as_millis().to_string()),
        cluster.sysctl_was.map_or_else(dash, |was| was.to_string()),
        if cluster.remember { " r" } else { "" },
    );
    let plain = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    if cluster.dev.is_empty() || !cluster.dev.bytes().all(plain) {
        return Err(format!("the name '{}' cannot stand in a rule", cluster.dev));
    }
    if text.len() > MAX_COMMENT || !text.bytes().all(|b| plain(b) || b == b' ') {
        return Err(format!("'{text}' does not fit into the comment of a rule ({MAX_COMMENT} bytes)"));
    }
    Ok(text)
}

/// A word of the comment where `-` stands for nothing.
#[allow(clippy::option_option)] // no such word, or nothing in it
fn absent<T>(word: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if word == "-" { Some(None) } else { read(word).map(Some) }
}

fn read_comment(vip: IpAddr, text: &str) -> Option<Cluster> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    if next()? != FORM {
        return None;
    }
    let mac = |word: &str| {
        let number = u64::from_str_radix(word, 16).ok().filter(|_| word.len() == 12)?;
        number.to_be_bytes().get(2..)?.try_into().ok().map(Mac)
    };
    let dev = next()?.to_owned();
    let (cluster_mac, made_from) = (mac(next()?)?, mac(next()?)?);
    let mode = match next()? {
        "a" => Mode::SourceIp,
        "as" => Mode::SourceIpSourcePort,
        "asd" => Mode::SourceIpSourcePortDestPort,
        _ => return None,
    };
    let total = next()?.parse().ok()?;
    let seed = u32::from_str_radix(next()?, 16).ok()?;
    let epoch = u64::from_str_radix(next()?, 16).ok()?;
    let config = absent(next()?, |word| Some(word.to_owned()))?;
    let lease = absent(next()?, |word| word.parse().ok().map(Duration::from_millis))?;
    let only = absent(next()?, |word| {
        let mut parts = word.split(':');
        let proto = Proto(parts.next()?.parse().ok()?);
        let port = absent(parts.next()?, |port| port.parse().ok())?;
        let rest = match parts.next()? {
            "d" => Rest::Drop,
            "h" => Rest::Hash,
            _ => return None,
        };
        Some((proto, port, rest))
    })?;
    let sysctl_was = absent(next()?, |word| word.parse().ok())?;
    let remember = next() == Some("r");
    Some(Cluster {
        vip,
        dev,
        mac: cluster_mac,
        made_from,
        total,
        seed,
        mode,
        proto: only.map(|(proto, ..)| proto),
        port: only.and_then(|(_, port, _)| port),
        rest: only.map(|(.., rest)| rest).unwrap_or_default(),
        lease,
        remember,
        sysctl_was,
        epoch,
        config,
    })
}

/// Reads the `ip` or `ip6` table of `vip`.
///
/// # Errors
/// A table that is not ours, or whose first rule was changed.
pub(crate) fn read(vip: IpAddr, table: &Table) -> Result<Listed, String> {
    let own = table.chains.get("own").ok_or("it has no chain 'own'")?;
    let comment = own.rules.iter().find_map(|rule| rule.comment.as_deref()).ok_or("no rule of 'own' has a comment")?;
    let cluster = read_comment(vip, comment).ok_or_else(|| format!("its comment '{comment}' is of another version"))?;
    let mut held = Held::default();
    for rule in &own.rules {
        let Some(hash) = rule.hash() else { continue };
        let list = if rule.says("ct direction") {
            continue;
        } else if rule.says("\"drained\"") {
            &mut held.draining
        } else if rule.says("reject with tcp reset") {
            &mut held.reset
        } else if rule.says("drop") {
            &mut held.opening
        } else {
            &mut held.owned
        };
        *list = hash.buckets.clone();
    }
    let counter = |name: &str| table.counters.get(name).copied().unwrap_or_default();
    let leased = table.timed.get("lease").and_then(|timed| timed.iter().find(|timed| timed.value == vip.to_string()));
    Ok(Listed {
        cluster,
        held,
        lease_left: leased.map(|timed| timed.left),
        accepted: counter("accepted"),
        dropped: counter("dropped"),
        drained: counter("drained"),
        refused: counter("refused"),
    })
}

/// What is left of the lease by the text of `nft list set`, where alone milliseconds stand:
/// `192.0.2.9 timeout 500ms expires 432ms`.
pub(crate) fn left(text: &str) -> Option<Duration> {
    let rest = text.split(" expires ").nth(1)?;
    let word: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    word.parse::<crate::types::time::Span>().ok().map(|span| span.0)
}

/// Where a listed table differs from the one that we would write, as `(what, want, got)`.
pub(crate) fn differences(wanted: &Wanted, got: &Table) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for chain in &wanted.chains {
        let place = format!("{} chain {}", wanted.family, chain.name);
        let Some(listed) = got.chains.get(chain.name) else {
            found.push((place, "present".to_owned(), "absent".to_owned()));
            continue;
        };
        if listed.hook.as_deref() != Some(chain.hook) || listed.priority != Some(chain.priority) {
            let got = format!("{} {}", listed.hook.as_deref().unwrap_or("-"), listed.priority.unwrap_or_default());
            found.push((format!("{place} hook"), format!("{} {}", chain.hook, chain.priority), got));
        }
        let n_rules = chain.rules.len().max(listed.rules.len());
        for idx in 0..n_rules {
            let text = |rules: &[Rule]| rules.get(idx).map_or_else(|| "absent".to_owned(), Rule::normal);
            let (want, got) = (text(&chain.rules), text(&listed.rules));
            if want != got {
                found.push((format!("{place} rule {}", idx + 1), want, got));
            }
        }
    }
    for name in got.chains.keys().filter(|name| !wanted.chains.iter().any(|chain| chain.name == name.as_str())) {
        found.push((format!("{} chain {name}", wanted.family), "absent".to_owned(), "present".to_owned()));
    }
    for (name, wants) in [("lease", wanted.lease), (PEERS, wanted.peers)] {
        if wants != got.timed.contains_key(name) {
            let word = |there: bool| if there { "present" } else { "absent" }.to_owned();
            found.push((format!("{} set {name}", wanted.family), word(wants), word(!wants)));
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::wire::nft::list;
    use proptest::prelude::*;

    fn cluster(vip: &str) -> Cluster {
        Cluster {
            vip: vip.parse().unwrap(),
            dev: "eth0".to_owned(),
            mac: "01:02:03:04:05:06".parse().unwrap(),
            made_from: "02:00:00:00:00:01".parse().unwrap(),
            total: 8,
            seed: 0,
            mode: Mode::SourceIp,
            proto: None,
            port: None,
            rest: Rest::Drop,
            lease: Some(Duration::from_secs(60)),
            remember: false,
            sysctl_was: Some(0),
            epoch: 7,
            config: Some("0123456789abcdef".to_owned()),
        }
    }

    fn held() -> Held {
        Held {
            owned: "1-3,5-7".parse().unwrap(),
            opening: "2".parse().unwrap(),
            reset: "5-7".parse().unwrap(),
            draining: "4".parse().unwrap(),
        }
    }

    /// The clusters whose listings by nft 1.0.6 on Linux 6.18 stand in `captured/`.
    fn captured() -> [(Cluster, [Option<&'static str>; 3]); 3] {
        let ports = Cluster {
            mode: Mode::SourceIpSourcePortDestPort,
            proto: Some(Proto::TCP),
            port: Some(80),
            ..cluster("192.0.2.9")
        };
        [
            (
                cluster("192.0.2.9"),
                [
                    Some(include_str!("captured/ipv4.netdev.json")),
                    Some(include_str!("captured/ipv4.ip.json")),
                    Some(include_str!("captured/ipv4.arp.json")),
                ],
            ),
            (ports, [None, Some(include_str!("captured/ports.ip.json")), None]),
            (
                cluster("2001:db8::9"),
                [Some(include_str!("captured/ipv6.netdev.json")), Some(include_str!("captured/ipv6.ip6.json")), None],
            ),
        ]
    }

    /// The listing as `nft -p` prints it.
    fn by_numbers(listing: &str) -> String {
        let mut text = listing.replace("\"right\": \"tcp\"", "\"right\": 6");
        for (name, number) in [("dccp", 33), ("sctp", 132), ("tcp", 6), ("udp", 17), ("udplite", 136)] {
            for end in [",\n", "\n"] {
                text = text.replace(&format!("  \"{name}\"{end}"), &format!("  {number}{end}"));
            }
        }
        text
    }

    #[test]
    fn what_nft_lists_is_what_was_written() {
        for (cluster, listings) in captured() {
            for (wanted, listing) in tables(&cluster, &held()).unwrap().iter().zip(listings) {
                let Some(listing) = listing else { continue };
                let table = list::parse(listing).unwrap();
                assert_eq!(list::parse(&by_numbers(listing)).unwrap(), table);
                assert_eq!(differences(wanted, &table), []);
                if wanted.family.starts_with("ip") {
                    let listed = read(cluster.vip, &table).unwrap();
                    assert_eq!(listed.cluster, cluster);
                    assert_eq!(listed.held, held());
                    assert!(listed.lease_left.is_some());
                }
            }
        }
    }

    #[test]
    fn a_changed_rule_is_a_difference() {
        let (cluster, listings) = captured().into_iter().next().unwrap();
        let text = listings[1].unwrap().replace("\"mod\": 8", "\"mod\": 9");
        let table = list::parse(&text).unwrap();
        let found = differences(&tables(&cluster, &held()).unwrap()[1], &table);
        assert!(
            found
                .iter()
                .all(|(what, want, got)| what.contains("rule") && want.contains("mod 8") && got.contains("mod 9"))
        );
        assert!(!found.is_empty());
        let mut gone = list::parse(listings[1].unwrap()).unwrap();
        gone.chains.remove("out");
        gone.chains.get_mut("own").unwrap().rules.pop();
        assert_eq!(differences(&tables(&cluster, &held()).unwrap()[1], &gone).len(), 2);
    }

    /// The figure of the sample: 02:…:01 answers for 01:02:03:04:05:06.
    #[test]
    fn the_sum_stays_right_without_being_made_again() {
        assert_eq!(correction(Mac([2, 0, 0, 0, 0, 1]), Mac([1, 2, 3, 4, 5, 6])), 0xf8f4);
        assert_eq!(correction(Mac([1, 2, 3, 4, 5, 6]), Mac([1, 2, 3, 4, 5, 6])), 0);
    }

    #[test]
    fn every_closing_brace_stands_on_its_own_line() {
        let text = init(&cluster("192.0.2.9"), &held(), None).unwrap();
        for line in text.lines().filter(|line| line.contains('}')) {
            assert!(line.trim() == "}" || line.matches('{').count() == line.matches('}').count(), "{line}");
        }
    }

    #[test]
    fn what_cannot_stand_in_a_comment_is_refused() {
        for dev in ["", "a\"b", "a b", "a\\b", "\u{e9}"] {
            let cluster = Cluster { dev: dev.to_owned(), ..cluster("192.0.2.9") };
            assert!(init(&cluster, &held(), None).is_err(), "{dev}");
        }
        let longest = Cluster {
            dev: "x".repeat(15),
            total: 4096,
            seed: u32::MAX,
            mode: Mode::SourceIpSourcePortDestPort,
            proto: Some(Proto(255)),
            port: Some(65535),
            lease: Some(Duration::from_secs(3600)),
            remember: true,
            epoch: (1 << 53) - 1,
            ..cluster("2001:db8::9")
        };
        let text = comment(&longest).unwrap();
        assert_eq!(read_comment(longest.vip, &text), Some(longest));
    }

    #[test]
    fn a_short_lease_is_renewed_in_place() {
        let mut cluster = cluster("192.0.2.9");
        assert_eq!(renew(&cluster).matches("delete element").count(), 2);
        cluster.lease = Some(Duration::from_millis(300));
        assert!(renew(&cluster).contains("{ 192.0.2.9 timeout 300ms expires 300ms }"));
        assert!(!renew(&cluster).contains("delete"));
        cluster.lease = None;
        assert_eq!(renew(&cluster), "");
        assert_eq!(left("elements = { 192.0.2.9 timeout 1m expires 59s988ms }"), Some(Duration::from_millis(59_988)));
    }

    proptest! {
        #[test]
        fn no_text_ends_in_a_panic(text in ".{0,200}") {
            let _ = list::parse(&text);
            let _ = read_comment("192.0.2.9".parse().unwrap(), &text);
            let _ = left(&text);
        }

        #[test]
        fn no_listing_ends_in_a_panic(cut in 0usize..9000, byte in 0u8..128) {
            let mut bytes = include_bytes!("captured/ipv4.ip.json").to_vec();
            let at = cut % bytes.len();
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes)
                && let Ok(table) = list::parse(&text)
            {
                let _ = read("192.0.2.9".parse().unwrap(), &table);
            }
        }
    }

    /// Writes the documents that `captured/` was made from: load each in a namespace of its own and
    /// keep `nft -j list table`, prettied by jq.
    #[test]
    fn documents_are_written_where_they_are_asked_for() {
        let Ok(folder) = std::env::var("DOCUMENTS") else {
            // Nobody asked; that they can be made is what is left to hold.
            assert!(captured().iter().all(|(cluster, _)| init(cluster, &held(), cluster.lease).is_ok()));
            return;
        };
        for (name, (cluster, _)) in ["ipv4", "ports", "ipv6"].into_iter().zip(captured()) {
            std::fs::write(format!("{folder}/{name}.nft"), init(&cluster, &held(), cluster.lease).unwrap()).unwrap();
        }
    }
}
