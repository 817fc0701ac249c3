//! What a host with several gateways has set so that it will hurt, and the command that mends it.
//!
//! Sources: Linux `Documentation/networking/ip-sysctl.rst` (which of two settings wins),
//! networkd.conf(5), nft(8).

use super::gw_rules::{is_in_the_way, is_of_gateways};
use crate::types::gateway::{Marks, priority};
use crate::types::route::{LOCAL, MAIN, Route};
use crate::types::rule::{Marked, Rule, RuleAction};
use std::collections::BTreeMap;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// One word for a script.
    pub(crate) slug: &'static str,
    pub(crate) severity: Severity,
    /// The setting, the interface or the file.
    pub(crate) object: String,
    pub(crate) got: String,
    pub(crate) want: String,
    /// A shell command, or the deed where none can do it.
    pub(crate) mend: String,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// It does not work.
    Error,
    /// It works until something else happens, or not for all.
    Warning,
}

impl Severity {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// A setting of the kernel: the path below `/proc/sys/net`, and its value where there is such a one.
pub(crate) type Settings = BTreeMap<String, String>;

/// One link that gateways are on.
#[derive(Clone, Debug)]
pub(crate) struct GatewayLink {
    pub(crate) dev: String,
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    /// The main table's default goes out by it.
    pub(crate) carries_default: bool,
    /// So does IPv6's, and a router advertisement has said so.
    pub(crate) learns_default: bool,
    /// Clients must be on it too: the host has no link without gateways.
    pub(crate) is_shared: bool,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
}

/// The settings that `settings` asks for, of one link or of all (`all`).
pub(crate) fn asked_of(dev: &str) -> Vec<String> {
    let four = ["rp_filter", "src_valid_mark", "send_redirects", "accept_redirects", "forwarding"];
    let six = ["accept_redirects", "forwarding", "accept_ra"];
    let four = four.iter().map(|name| format!("ipv4/conf/{dev}/{name}"));
    four.chain(six.iter().map(|name| format!("ipv6/conf/{dev}/{name}"))).collect()
}

/// The interfaces that IPv4's default goes out by: those of the one with the lowest metric, all hops of it. One with
/// a higher metric waits until that is gone.
pub(crate) fn carrying(routes: &[Route]) -> Vec<u32> {
    let defaults = || routes.iter().filter(|route| route.dst.len == 0);
    let best = defaults().map(|route| route.metric).min();
    defaults()
        .find(|route| Some(route.metric) == best)
        .into_iter()
        .flat_map(|route| &route.hops)
        .map(|hop| hop.ifindex)
        .collect()
}

struct Reader<'a>(&'a Settings);

impl Reader<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(|value| value.parse().ok())
    }

    /// Of the host and of the link, the higher: `rp_filter`, `src_valid_mark`, `send_redirects`.
    fn either(&self, dev: &str, name: &str) -> u64 {
        let of = |dev: &str| self.number(&format!("ipv4/conf/{dev}/{name}")).unwrap_or(0);
        of("all").max(of(dev))
    }
}

/// A word for a POSIX shell, whatever is in it: an interface may be called `e;id>x`.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:=%@,+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The name of a setting as sysctl takes it: with slashes, since an interface may have a dot in its name.
fn sysctl(name: &str, value: &str) -> String {
    format!("net/{name}={value}")
}

fn write(settings: &[(String, &str)]) -> String {
    let words: Vec<String> = settings.iter().map(|(name, value)| quoted(&sysctl(name, value))).collect();
    format!("sysctl -w {}", words.join(" "))
}

/// What the kernel's settings say of one link.
pub(crate) fn of_link(link: &GatewayLink, settings: &Settings, split_is_in_force: bool) -> Vec<Finding> {
    let (dev, read) = (link.dev.as_str(), Reader(settings));
    let mut findings = Vec::new();
    if !link.up || !link.carrier {
        findings.push(Finding {
            slug: "link-down",
            severity: Severity::Error,
            object: dev.to_owned(),
            got: if link.up { "no carrier" } else { "down" }.to_owned(),
            want: "up, with a carrier".to_owned(),
            mend: if link.up { format!("plug {dev} in") } else { format!("ip link set {} up", quoted(dev)) },
        });
    }
    if link.ipv4 {
        let marked = read.either(dev, "src_valid_mark") > 0 && split_is_in_force;
        if read.either(dev, "rp_filter") == 1 && !link.carries_default && !marked {
            findings.push(Finding {
                slug: "rp-filter",
                severity: Severity::Error,
                object: dev.to_owned(),
                got: "1: what comes in by a gateway that is not the main table's is dropped".to_owned(),
                want: "2 (or 0)".to_owned(),
                mend: write(&[(format!("ipv4/conf/{dev}/rp_filter"), "2")]),
            });
        }
        if link.is_shared && read.either(dev, "send_redirects") > 0 {
            findings.push(Finding {
                slug: "send-redirects",
                severity: Severity::Warning,
                object: dev.to_owned(),
                got: "1: clients on it are told to go to a gateway themselves, past the split".to_owned(),
                want: "0, for all and for the link".to_owned(),
                mend: write(&[
                    ("ipv4/conf/all/send_redirects".to_owned(), "0"),
                    (format!("ipv4/conf/{dev}/send_redirects"), "0"),
                ]),
            });
        }
        let forwards = read.number(&format!("ipv4/conf/{dev}/forwarding")) == Some(1);
        if believes_redirects(settings, dev, false) {
            findings.push(Finding {
                slug: "accept-redirects",
                severity: Severity::Warning,
                object: dev.to_owned(),
                got: "1: one gateway may send this host's own packets to another".to_owned(),
                want: "0".to_owned(),
                mend: write(&[
                    ("ipv4/conf/all/accept_redirects".to_owned(), "0"),
                    (format!("ipv4/conf/{dev}/accept_redirects"), "0"),
                ]),
            });
        }
        if !forwards {
            findings.push(not_forwarding("ipv4/ip_forward", "ipv4"));
        }
    }
    if link.ipv6 {
        let number = |name: &str| read.number(&format!("ipv6/conf/{dev}/{name}"));
        // One for all: a single interface does not forward by itself.
        if read.number("ipv6/conf/all/forwarding") != Some(1) {
            findings.push(not_forwarding("ipv6/conf/all/forwarding", "ipv6"));
            if believes_redirects(settings, dev, true) {
                findings.push(Finding {
                    slug: "accept-redirects",
                    severity: Severity::Warning,
                    object: format!("{dev} (ipv6)"),
                    got: "1: one gateway may send this host's own packets to another".to_owned(),
                    want: "0".to_owned(),
                    mend: write(&[(format!("ipv6/conf/{dev}/accept_redirects"), "0")]),
                });
            }
        } else if number("accept_ra") == Some(1) && link.learns_default {
            findings.push(Finding {
                slug: "accept-ra",
                severity: Severity::Warning,
                object: dev.to_owned(),
                got: "1: a host that forwards does not renew a default route from router advertisements".to_owned(),
                want: "2".to_owned(),
                mend: write(&[(format!("ipv6/conf/{dev}/accept_ra"), "2")]),
            });
        }
    }
    findings
}

/// Gateways and clients on one link, and nothing translates addresses: the gateways answer the clients
/// themselves, and this host sees half of each connection.
pub(crate) fn one_way(link: &GatewayLink, settings: &Settings) -> Option<Finding> {
    let dev = link.dev.as_str();
    let forwards = Reader(settings).number(&format!("ipv4/conf/{dev}/forwarding")) == Some(1);
    (link.ipv4 && link.is_shared && forwards).then(|| Finding {
        slug: "one-way",
        severity: Severity::Warning,
        object: dev.to_owned(),
        got: "no masquerading: where clients are on it too, gateways answer them past this host, and TCP breaks".to_owned(),
        want: "flows that leave by the gateways have this host's address".to_owned(),
        mend: format!(
            "nft {}",
            quoted(&format!(
                "add table ip failover_masq; add chain ip failover_masq out {{ type nat hook postrouting priority srcnat; }}; \
                 add rule ip failover_masq out oifname \"{dev}\" masquerade"
            ))
        ),
    })
}

/// Rules that look marks up which nothing sets any more.
pub(crate) fn split_gone(rules: &[Rule], stands: bool) -> Option<Finding> {
    let left = rules.iter().filter(|rule| is_of_gateways(rule)).count();
    (left > 0 && !stands).then(|| Finding {
        slug: "split-gone",
        severity: Severity::Error,
        object: "inet failover_gw".to_owned(),
        got: format!("no such table, and {left} rules of a split: all new flows leave by the main table's default"),
        want: "the table, or no rules either".to_owned(),
        mend: "gw clear --all; then let the next round apply the split again (gateways --once CONFIG)".to_owned(),
    })
}

/// A rule of nftables that takes our bits.
pub(crate) fn of_foreign(rule: &str, marks: Marks) -> Finding {
    Finding {
        slug: "mark-collision",
        severity: Severity::Error,
        object: rule.to_owned(),
        got: "it takes bits of ours".to_owned(),
        want: format!("a mask that leaves {marks} alone"),
        mend: OTHER_BITS.to_owned(),
    }
}

const OTHER_BITS: &str = "use other bits: --mark-mask with split and probe";

/// Whether a router on the link may say that another one is nearer to an address.
pub(crate) fn believes_redirects(settings: &Settings, dev: &str, ipv6: bool) -> bool {
    let read = Reader(settings);
    let forwards = |of: &str| read.number(of) == Some(1);
    let of = |dev: &str| {
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        read.number(&format!("{family}/conf/{dev}/accept_redirects")).unwrap_or(0) > 0
    };
    match ipv6 {
        // A router never does.
        true => !forwards("ipv6/conf/all/forwarding") && of(dev),
        // A router only where both say so, a host where one does.
        false if forwards(&format!("ipv4/conf/{dev}/forwarding")) => of("all") && of(dev),
        false => of("all") || of(dev),
    }
}

fn not_forwarding(name: &str, family: &str) -> Finding {
    Finding {
        slug: "ip-forward",
        severity: Severity::Warning,
        object: family.to_owned(),
        got: "0: only this host's own flows go out by the gateways".to_owned(),
        want: "1, where clients use this host as their router".to_owned(),
        mend: write(&[(name.to_owned(), "1")]),
    }
}

/// What the host's settings say, whatever the link.
pub(crate) fn of_host(settings: &Settings) -> Vec<Finding> {
    let read = Reader(settings);
    let mut findings = Vec::new();
    let (count, most) = (read.number("netfilter/nf_conntrack_count"), read.number("netfilter/nf_conntrack_max"));
    match (count, most) {
        (Some(count), Some(most)) if most > 0 && count.saturating_mul(10) >= most.saturating_mul(9) => {
            findings.push(Finding {
                slug: "conntrack-full",
                severity: Severity::Warning,
                object: "nf_conntrack".to_owned(),
                got: format!("{count} of {most} connections"),
                want: "room: flows beyond the limit are dropped".to_owned(),
                mend: write(&[("netfilter/nf_conntrack_max".to_owned(), &most.saturating_mul(2).to_string())]),
            });
        }
        (_, Some(_)) => {}
        (_, None) => findings.push(Finding {
            slug: "conntrack",
            severity: Severity::Error,
            object: "nf_conntrack".to_owned(),
            got: "not loaded".to_owned(),
            want: "loaded: it remembers which gateway a flow has".to_owned(),
            mend: "modprobe nf_conntrack".to_owned(),
        }),
    }
    findings
}

/// Whether `group` may open ping sockets by `net.ipv4.ping_group_range`, two numbers.
pub(crate) fn ping_is_open(range: &str, group: u32) -> bool {
    let mut ends = range.split_whitespace().map(str::parse::<u32>);
    match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) => (first..=last).contains(&group),
        _ => false,
    }
}

/// Rules of others that ask for, or compare, bits of a mark that are ours.
pub(crate) fn of_rules(rules: &[Rule], marks: Marks) -> Vec<Finding> {
    let foreign = rules.iter().filter(|rule| !rule.is_ours());
    foreign
        .filter_map(|rule| {
            let Marked { mask: theirs, not, .. } = rule.mark?;
            let mask = marks.mask;
            let family = if rule.ipv6 { "ip -6" } else { "ip" };
            let (severity, got) = if is_in_the_way(rule, marks) {
                (Severity::Error, "it is for packets with bits of ours")
            } else if theirs & mask != 0 && !not {
                (Severity::Warning, "it compares our bits: a packet with a mark of both is not its any more")
            } else {
                return None;
            };
            Some(Finding {
                slug: "mark-collision",
                severity,
                object: format!("{family} rule {rule}"),
                got: got.to_owned(),
                want: format!("a mask that leaves {mask:#010x} alone"),
                mend: if severity == Severity::Error { OTHER_BITS.to_owned() } else { with_mask(rule, theirs & !mask) },
            })
        })
        .collect()
}

/// Rules of others that are asked before ours and lead packets of ours elsewhere: past the split, and past probes.
///
/// One for packets that somebody else marked has none of ours, and one that looks at our bits is told as such.
pub(crate) fn before_ours(rules: &[Rule], marks: Marks) -> Vec<Finding> {
    let leads = |rule: &&Rule| match rule.action {
        // The kernel's own for its VRFs has no table.
        RuleAction::Look { table, suppress } => !([0, LOCAL].contains(&table) || table == MAIN && suppress.is_some()),
        _ => false,
    };
    let takes_ours = |rule: &&Rule| {
        let takes = |Marked { mark, mask, not }| {
            let (bits, whole) = (mark & !marks.mask, mask & marks.mask == marks.mask);
            not || bits == 0 && !(mark == 0 && whole)
        };
        rule.mark.is_none_or(takes) && !is_in_the_way(rule, marks)
    };
    let is_before = |rule: &&Rule| !rule.is_ours() && (1..*priority::OURS.start()).contains(&rule.priority);
    let found = rules.iter().filter(is_before).filter(leads).filter(takes_ours);
    found
        .map(|rule| {
            let family = if rule.ipv6 { "ip -6" } else { "ip" };
            Finding {
                slug: "rule-before",
                severity: Severity::Warning,
                object: format!("{family} rule {rule}"),
                got: "it is asked before the rules of the split and of probes: what it takes goes past both".to_owned(),
                want: format!("a priority above {}", priority::OURS.end()),
                mend: behind_ours(rule, family),
            }
        })
        .collect()
}

/// The same rule at a priority behind ours; of several the order stays.
fn behind_ours(rule: &Rule, family: &str) -> String {
    let priority = priority::OURS.end() + rule.priority;
    if rule.asks_more && rule.more.is_none() {
        return format!("add it with the priority {priority} and delete this one (see: {family} rule)");
    }
    let new = Rule { priority, ..rule.clone() };
    format!("{family} rule add {new} && {family} rule del {rule}")
}

/// The same rule, without bits that it does not need.
fn with_mask(rule: &Rule, mask: u32) -> String {
    let family = if rule.ipv6 { "ip -6" } else { "ip" };
    if rule.asks_more && rule.more.is_none() {
        return format!("give its fwmark the mask {mask:#x} (see: {family} rule)");
    }
    let new = Rule { mark: rule.mark.map(|marked| Marked { mask, ..marked }), ..rule.clone() };
    format!("{family} rule add {new} && {family} rule del {rule}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::net::Prefix;
    use crate::types::route::{Hop, RouteKind};

    const GOOD: &[(&str, &str)] = &[
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/eth1/rp_filter", "2"),
        ("ipv4/conf/eth1/forwarding", "1"),
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/eth1/send_redirects", "0"),
        ("ipv4/conf/all/accept_redirects", "0"),
        ("ipv4/conf/eth1/accept_redirects", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/eth1/accept_ra", "0"),
        ("netfilter/nf_conntrack_count", "8"),
        ("netfilter/nf_conntrack_max", "65536"),
    ];

    fn link() -> GatewayLink {
        GatewayLink {
            dev: "eth1".to_owned(),
            ipv4: true,
            ipv6: true,
            carries_default: false,
            learns_default: false,
            is_shared: true,
            up: true,
            carrier: true,
        }
    }

    fn with(more: &[(&str, &str)]) -> Settings {
        GOOD.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn slugs(link: &GatewayLink, more: &[(&str, &str)]) -> Vec<&'static str> {
        of_link(link, &with(more), false).iter().map(|finding| finding.slug).collect()
    }

    #[test]
    fn a_link_that_is_well_has_no_finding() {
        assert_eq!(slugs(&link(), &[]), [""; 0]);
        assert_eq!(of_host(&with(&[])), []);
    }

    #[test]
    fn the_setting_that_wins_is_the_one_that_counts() {
        let strict = ("ipv4/conf/eth1/rp_filter", "1");
        assert_eq!(slugs(&link(), &[strict]), ["rp-filter"]);
        assert_eq!(slugs(&link(), &[strict, ("ipv4/conf/all/rp_filter", "2")]), [""; 0], "the higher wins");
        assert_eq!(
            slugs(&link(), &[("ipv4/conf/eth1/rp_filter", "0"), ("ipv4/conf/all/rp_filter", "1")]),
            ["rp-filter"]
        );
        let main = GatewayLink { carries_default: true, ..link() };
        assert_eq!(slugs(&main, &[strict]), [""; 0], "replies come in where the main table would send");
        let marked = with(&[strict, ("ipv4/conf/all/src_valid_mark", "1")]);
        assert_eq!(of_link(&link(), &marked, true), []);
        assert_eq!(of_link(&link(), &marked, false).len(), 1, "nobody restores the mark");
        // A router believes redirects where both say so.
        assert_eq!(slugs(&link(), &[("ipv4/conf/all/accept_redirects", "1")]), ["accept-redirects"]);
        let host = [("ipv4/conf/eth1/forwarding", "0")];
        assert_eq!(slugs(&link(), &host), ["accept-redirects", "ip-forward"]);
        assert_eq!(slugs(&link(), &[("ipv4/conf/all/send_redirects", "1")]), ["send-redirects"]);
        let alone = GatewayLink { is_shared: false, ..link() };
        assert_eq!(slugs(&alone, &[("ipv4/conf/eth1/send_redirects", "1")]), [""; 0]);
    }

    #[test]
    fn ipv6_has_settings_of_its_own() {
        let six = GatewayLink { ipv4: false, learns_default: true, ..link() };
        assert_eq!(slugs(&six, &[("ipv6/conf/all/forwarding", "0")]), ["ip-forward"]);
        let believes = [("ipv6/conf/all/forwarding", "0"), ("ipv6/conf/eth1/accept_redirects", "1")];
        assert_eq!(slugs(&six, &believes), ["ip-forward", "accept-redirects"]);
        assert_eq!(slugs(&six, &[("ipv6/conf/eth1/accept_ra", "1")]), ["accept-ra"]);
        assert_eq!(slugs(&six, &[("ipv6/conf/eth1/accept_ra", "2")]), [""; 0]);
    }

    #[test]
    fn a_link_that_is_down_says_how() {
        let findings = |link: &GatewayLink| of_link(link, &with(&[]), false);
        let down = findings(&GatewayLink { up: false, carrier: false, ..link() });
        assert_eq!((down[0].slug, down[0].mend.as_str()), ("link-down", "ip link set eth1 up"));
        assert_eq!(findings(&GatewayLink { carrier: false, ..link() })[0].got, "no carrier");
    }

    #[test]
    fn a_full_table_and_one_that_is_not_there() {
        let mut settings = with(&[("netfilter/nf_conntrack_count", "58983")]);
        assert_eq!(of_host(&settings)[0].mend, "sysctl -w net/netfilter/nf_conntrack_max=131072");
        settings.remove("netfilter/nf_conntrack_max");
        assert_eq!(of_host(&settings)[0].slug, "conntrack");
    }

    #[test]
    fn ping_sockets_are_open_to_a_range_of_groups() {
        for (range, open) in
            [("1\t0", false), ("0\t2147483647", true), ("0\t99", false), ("100 100", true), ("", false)]
        {
            assert_eq!(ping_is_open(range, 100), open, "{range}");
        }
    }

    #[test]
    fn a_rule_of_another_with_our_bits_is_told() {
        let rule = |mark: u32, mask: u32, not: bool| Rule {
            ipv6: false,
            priority: 100,
            mark: Some(Marked { mark, mask, not }),
            action: RuleAction::Look { table: 52, suppress: None },
            proto: 3,
            asks_more: false,
            more: None,
            source_ports: None,
        };
        let found = |rule: Rule| of_rules(&[rule], Marks::USUAL).first().map(|finding| finding.severity);
        assert_eq!(found(rule(0x8_0000, 0xff_0000, false)), Some(Severity::Error), "Tailscale's");
        assert_eq!(found(rule(0x100, 0x3f00, false)), None, "mwan3's");
        assert_eq!(found(rule(0x1, u32::MAX, false)), Some(Severity::Warning));
        assert_eq!(found(rule(0xca6c, u32::MAX, true)), None, "WireGuard's: ours are not its, as before");
        assert_eq!(found(Rule { proto: 70, ..rule(0x1_0000, 0xff_0000, false) }), None);
        assert_eq!(found(Rule { mark: None, ..rule(0, 0, false) }), None);
        let mend = &of_rules(&[rule(0x1, u32::MAX, false)], Marks::USUAL)[0].mend;
        assert_eq!(
            mend,
            "ip rule add priority 100 fwmark 0x1/0xff00ffff table 52 protocol 3 && \
             ip rule del priority 100 fwmark 0x1/0xffffffff table 52 protocol 3"
        );
    }

    #[test]
    fn a_shell_reads_every_word_as_it_is() {
        for (word, text) in [
            ("net/ipv4/conf/eth0.1/rp_filter=2", "net/ipv4/conf/eth0.1/rp_filter=2"),
            ("e;id>x", "'e;id>x'"),
            ("it's", "'it'\\''s'"),
            ("$(id)", "'$(id)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), text);
        }
        let odd = GatewayLink { dev: "e;id>x".to_owned(), up: false, ..link() };
        let settings = with(&[("ipv4/conf/e;id>x/rp_filter", "1"), ("ipv4/conf/e;id>x/forwarding", "1")]);
        let mends: Vec<String> = of_link(&odd, &settings, false).into_iter().map(|finding| finding.mend).collect();
        assert_eq!(mends, ["ip link set 'e;id>x' up", "sysctl -w 'net/ipv4/conf/e;id>x/rp_filter=2'"]);
        let quote = GatewayLink { dev: "a'b".to_owned(), ..link() };
        let mend = one_way(&quote, &with(&[("ipv4/conf/a'b/forwarding", "1")])).unwrap().mend;
        assert!(mend.starts_with("nft 'add table") && mend.contains("\"a'\\''b\""), "{mend}");
    }

    #[test]
    fn a_default_that_waits_carries_nothing() {
        let route = |metric, indices: &[u32]| Route {
            dst: Prefix { addr: std::net::Ipv4Addr::UNSPECIFIED.into(), len: 0 },
            table: MAIN,
            metric,
            kind: RouteKind::UNICAST,
            hops: indices
                .iter()
                .map(|ifindex| Hop { via: None, ifindex: *ifindex, weight: 1, onlink: false })
                .collect(),
            source: None,
            proto: 3,
        };
        assert_eq!(carrying(&[route(200, &[3]), route(100, &[2])]), [2]);
        assert_eq!(carrying(&[route(0, &[2, 4]), route(100, &[3])]), [2, 4]);
        assert_eq!(carrying(&[]), [0; 0]);
    }

    #[test]
    fn a_rule_before_ours_is_moved_behind_them() {
        let rule = Rule {
            ipv6: false,
            priority: 100,
            mark: None,
            action: RuleAction::Look { table: 500, suppress: None },
            proto: 3,
            asks_more: true,
            more: Some(" from 192.0.2.200/32".to_owned()),
            source_ports: None,
        };
        let mend = |rule: &Rule| before_ours(std::slice::from_ref(rule), Marks::USUAL).pop().map(|found| found.mend);
        assert_eq!(
            mend(&rule).unwrap(),
            "ip rule add priority 7299 from 192.0.2.200/32 table 500 protocol 3 && \
             ip rule del priority 100 from 192.0.2.200/32 table 500 protocol 3"
        );
        assert!(mend(&Rule { more: None, ..rule.clone() }).unwrap().starts_with("add it with the priority 7299"));
        let look = |table, suppress| Rule { action: RuleAction::Look { table, suppress }, ..rule.clone() };
        let marked = |mark, mask, not| Rule { mark: Some(Marked { mark, mask, not }), ..rule.clone() };
        for (rule, is_told) in [
            (look(MAIN, None), true),
            (look(MAIN, Some(0)), false),
            (look(LOCAL, None), false),
            (look(0, None), false),
            (Rule { priority: 0, ..rule.clone() }, false),
            (Rule { priority: 32_764, ..rule.clone() }, false),
            (Rule { asks_more: false, more: None, proto: 70, ..rule.clone() }, false),
            (Rule { action: RuleAction::Unreachable, ..rule.clone() }, false),
            // Somebody else's mark; none at all; all but somebody's.
            (marked(0x100, 0xff00, false), false),
            (marked(0, u32::MAX, false), false),
            (marked(0, 0xff00, false), true),
            (marked(0xca6c, u32::MAX, true), true),
            // Told as a collision.
            (marked(0x2_0000, 0xff_0000, false), false),
        ] {
            assert_eq!(mend(&rule).is_some(), is_told, "{rule}");
        }
    }
}
