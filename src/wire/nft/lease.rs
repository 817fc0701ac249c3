//! The rules that have an address answer only while its lease is renewed.
//!
//! Tables of one name hold them: `ip` or `ip6` drops what comes for the address and what would leave from it,
//! `arp` (IPv4) drops questions about it and announcements of it. A set of one element that expires stands in
//! front of each drop. Its key is the protocol of the table, which all its packets have: a neighbour
//! solicitation names the address where no set of addresses can be asked for it.
//!
//! The documents are flat, since `nft -i` takes one on a line.

use super::family;
use super::rule::Rule;
use crate::types::time::Span;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// From here on a lease is renewed by delete and add, which fails once it has run out.
const WHOLE: Duration = Duration::from_secs(1);

/// The name of the tables; those of a cluster IP have another one.
pub(crate) fn name(vip: IpAddr) -> String {
    format!("failover_vip_{}", vip.to_string().replace(['.', ':'], "_"))
}

/// Whether leases of this length are extended in place.
///
/// To delete costs a grace period of the kernel's (17 ms, up to 44).
pub(crate) fn in_place(term: Duration) -> bool {
    term < WHOLE
}

/// The document that makes the tables anew, in place of what may be there, with `left` of the lease.
pub(crate) fn grant(vip: IpAddr, term: Duration, left: Duration) -> String {
    let name = name(vip);
    let mut text = clear(vip);
    for family in families(vip) {
        line(&mut text, format_args!("add table {family} {name}"));
        line(&mut text, format_args!("add set {family} {name} lease {{ type ether_type; flags timeout; }}"));
        for (chain, head, rules) in chains(family, vip, term) {
            line(
                &mut text,
                format_args!("add chain {family} {name} {chain} {{ type filter hook {head}; policy accept; }}"),
            );
            for rule in rules {
                line(&mut text, format_args!("add rule {family} {name} {chain} {rule}"));
            }
        }
        line(&mut text, format_args!("add element {family} {name} lease {{ {} }}", element(family, term, left)));
    }
    text
}

/// The document that renews the lease so that `left` of it is left.
///
/// In place even one that has run out could be brought back: only soon after the last renewal.
pub(crate) fn renew(vip: IpAddr, term: Duration, left: Duration, in_place: bool) -> String {
    let name = name(vip);
    let mut text = String::new();
    for family in families(vip) {
        if !in_place {
            line(&mut text, format_args!("delete element {family} {name} lease {{ {family} }}"));
        }
        line(&mut text, format_args!("add element {family} {name} lease {{ {} }}", element(family, term, left)));
    }
    text
}

/// The document that removes the tables, also where they are not there.
pub(crate) fn clear(vip: IpAddr) -> String {
    let name = name(vip);
    let mut text = String::new();
    for family in families(vip) {
        line(&mut text, format_args!("add table {family} {name}"));
        line(&mut text, format_args!("delete table {family} {name}"));
    }
    text
}

/// Documents to be loaded one after the other that try out whether this kernel extends in place, and the table
/// in which `read` finds the answer: more than half of the lease. The last one removes it.
pub(crate) fn trial(number: u32) -> (String, [String; 3]) {
    let name = format!("failover_try_{number}");
    let add = |left| {
        let element = element("ip", Duration::from_secs(60), Duration::from_secs(left));
        format!("add element ip {name} lease {{ {element} }}\n")
    };
    let set = format!("add table ip {name}\nadd set ip {name} lease {{ type ether_type; flags timeout; }}\n");
    let documents = [set + &add(1), add(60), format!("delete table ip {name}\n")];
    (name, documents)
}

/// The lease and what is left of it (nothing: it has run out), by the text of `nft list table`: milliseconds
/// stand nowhere else.
pub(crate) fn read(text: &str) -> Option<(Duration, Duration)> {
    let span = |before: &str| {
        let rest = text.split(before).nth(1)?;
        let word: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        word.parse::<Span>().ok().map(|span| span.0)
    };
    let term = span("comment \"lease ").or_else(|| span(" timeout "))?;
    Some((term, span(" expires ").unwrap_or_default()))
}

/// The families of the tables of `vip`; each is the name of its protocol too.
fn families(vip: IpAddr) -> &'static [&'static str] {
    if vip.is_ipv4() { &["ip", "arp"] } else { &["ip6"] }
}

type Chain = (&'static str, &'static str, Vec<Rule>);

/// The chains of one table.
///
/// In prerouting, before DNAT: a service in a container never passes input. What leaves is looked at behind srcnat,
/// where its answers have the address again. The first rule tells the lease's length.
fn chains(family: &str, vip: IpAddr, term: Duration) -> Vec<Chain> {
    let drop = |rule: Rule| rule.and("meta protocol != @lease").and("counter").and("drop");
    let told = |rule: Rule| Rule { comment: Some(format!("lease {}", millis(term))), ..rule };
    if family == "arp" {
        return vec![
            ("in", "input priority filter", vec![told(drop(Rule::of(format!("arp daddr ip {vip}"))))]),
            ("out", "output priority filter", vec![drop(Rule::of(format!("arp saddr ip {vip}")))]),
        ];
    }
    let mut within = vec![told(drop(Rule::of(format!("{family} daddr {vip}")).and("iifname != \"lo\"")))];
    if let IpAddr::V6(vip) = vip {
        // The target of RFC 4861 §4.3, 8 bytes into the message.
        within.push(drop(Rule::of("icmpv6 type nd-neighbor-solicit").and(format!("@th,64,128 {:#x}", vip.to_bits()))));
    }
    // Advertisements leave from the address that they are about.
    let out = drop(Rule::of(format!("{family} saddr {vip}")).and("oifname != \"lo\""));
    vec![("in", "prerouting priority raw", within), ("out", "postrouting priority 110", vec![out])]
}

fn element(family: &str, term: Duration, left: Duration) -> String {
    format!("{family} timeout {} expires {}", millis(term), millis(left.min(term)))
}

/// Never 0, which would be no time-out at all.
fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis().max(1))
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(line);
    text.push('\n');
}

/// The table of a cluster IP of the same address, and its family.
pub(crate) fn of_cluster(vip: IpAddr) -> (&'static str, String) {
    (family(vip), super::table_name(vip))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_names_are_not_those_of_a_cluster_ip() {
        for vip in ["192.0.2.10", "2001:db8::10"] {
            let vip: IpAddr = vip.parse().unwrap();
            assert_ne!(name(vip), of_cluster(vip).1);
            // Nor is it taken for one by whoever lists them: what follows `failover_` is no address.
            let rest = name(vip).strip_prefix("failover_").unwrap().to_owned();
            assert!([".", ":"].iter().all(|dot| rest.replace('_', dot).parse::<IpAddr>().is_err()));
        }
    }

    #[test]
    fn a_renewal_says_what_is_left_and_deletes_where_it_must_fail() {
        let vip: IpAddr = "192.0.2.10".parse().unwrap();
        let name = name(vip);
        assert_eq!(
            renew(vip, MS(300), MS(290), true),
            format!(
                "add element ip {name} lease {{ ip timeout 300ms expires 290ms }}\nadd element arp {name} lease {{ arp timeout 300ms expires 290ms }}\n"
            )
        );
        let whole = renew("2001:db8::10".parse().unwrap(), MS(2000), MS(3000), false);
        assert!(whole.starts_with("delete element ip6 ") && whole.ends_with("{ ip6 timeout 2000ms expires 2000ms }\n"));
        assert!(in_place(MS(999)) && !in_place(MS(1000)));
        assert!(renew(vip, MS(300), MS(0), true).contains("expires 1ms"));
    }

    /// As nft 1.0.6 lists what `grant` has made.
    #[test]
    fn a_listing_tells_the_lease_and_what_is_left() {
        let text = |elements: &str| {
            format!(
                "table ip failover_vip_192_0_2_10 {{\n\tset lease {{\n\t\ttype ether_type\n\t\tflags timeout\n{elements}\t}}\n\n\tchain in {{\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\tip daddr 192.0.2.10 iifname != \"lo\" meta protocol != @lease counter packets 0 bytes 0 drop comment \"lease 1500ms\"\n\t}}\n}}\n"
            )
        };
        let held = text("\t\telements = { ip timeout 1s500ms expires 1s432ms }\n");
        assert_eq!(read(&held), Some((MS(1500), MS(1432))));
        assert_eq!(read(&text("")), Some((MS(1500), MS(0))));
        assert_eq!(read("table ip x {\n}\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_ends_in_a_panic(text in ".{0,200}") {
            let _ = read(&text);
        }
    }
}
