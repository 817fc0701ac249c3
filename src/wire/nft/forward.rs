//! The table of an address whose packets a backup sends on to the master: `inet failover_<vip>`.

use super::{family, table_name};
use crate::types::net::Mac;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The most hops that a packet has left when it is sent on: enough for a service behind the master's own
/// bridges, and the end of a loop of more nodes than any of them knows of.
const HOPS: u8 = 8;
/// Where a redirect has the address that it is about, in bits behind the ICMP header's begin: RFC 792 (8
/// bytes, then the IPv4 header) and RFC 4861 §4.5 have it at the same place.
const ABOUT: u16 = 192;

/// The messages that only a neighbour may send: they must arrive with the hop limit 255 (RFC 4861 §7.1).
const NEIGHBOURS: &str = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }";
/// The flow label of those that were sent on, as their hop limit cannot say it.
const SENT_ON: u32 = 0x70070;

/// What the table says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) vip: IpAddr,
    /// The MACs of the other nodes.
    pub(crate) members: &'a [Mac],
    /// What may be sent on, where the host is no router otherwise.
    pub(crate) only: Option<Only<'a>>,
}

/// The limits of a host that is no router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Only<'a> {
    /// The interface where it became one; `None`: all of them.
    pub(crate) dev: Option<&'a str>,
    /// The addresses whose packets are sent on.
    pub(crate) vips: &'a [IpAddr],
}

/// A document that takes the table away, whether it is there or not.
pub(crate) fn removal(vip: IpAddr) -> String {
    let name = table_name(vip);
    // nft 1.0.6 has no `destroy`.
    format!("add table inet {name}\ndelete table inet {name}\n")
}

/// A document that makes the table, in place of one that is there.
pub(crate) fn document(guard: Guard<'_>) -> String {
    let Guard { vip, members, only } = guard;
    let ip = family(vip);
    let (limit, redirect, about) = match vip {
        IpAddr::V4(addr) => ("ttl", "icmp type redirect", format!("@th,{ABOUT},32 {:#010x}", addr.to_bits())),
        IpAddr::V6(addr) => {
            ("hoplimit", "icmpv6 type nd-redirect", format!("@th,{ABOUT},128 {:#034x}", addr.to_bits()))
        }
    };
    let mut text = removal(vip);
    let _ = writeln!(text, "table inet {} {{", table_name(vip));
    text += "\tchain guard { type filter hook prerouting priority raw; policy accept;\n";
    if !members.is_empty() {
        let members: Vec<String> = members.iter().map(ToString::to_string).collect();
        // One who sent it on as well: two could send it to and fro.
        let _ = writeln!(text, "\t\t{ip} daddr {vip} ether saddr {{ {} }} counter drop", members.join(", "));
    }
    if vip.is_ipv6() {
        let _ = writeln!(text, "\t\tip6 daddr {vip} {NEIGHBOURS} ip6 flowlabel {SENT_ON} counter drop");
    }
    text += "\t}\n\tchain way { type filter hook forward priority raw; policy accept;\n";
    if vip.is_ipv6() {
        // The master asks a client for its MAC in the name of the address, and the answer may come here.
        let anew = format!("ip6 hoplimit 254 ip6 flowlabel set {SENT_ON} ip6 hoplimit set 255 accept");
        let _ = writeln!(text, "\t\tip6 daddr {vip} {NEIGHBOURS} {anew}");
    }
    let _ = writeln!(text, "\t\t{ip} daddr {vip} {ip} {limit} > {HOPS} {ip} {limit} set {HOPS}");
    if let Some(only) = only {
        let dev = only.dev.map_or_else(String::new, |dev| format!("iifname \"{dev}\" "));
        let vips: Vec<String> = only.vips.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "\t\t{dev}{ip} daddr != {{ {} }} counter drop", vips.join(", "));
    }
    text += "\t}\n\tchain quiet { type filter hook output priority raw; policy accept;\n";
    // The client would send to the master's own MAC from then on, also when that is master no longer. One who
    // is no router tells nobody of any way: the kernel does so before it looks at what is to be dropped.
    let which = match only {
        Some(Only { dev: Some(dev), .. }) => format!("oifname \"{dev}\" {redirect}"),
        Some(Only { dev: None, .. }) => redirect.to_owned(),
        None => format!("{redirect} {about}"),
    };
    let _ = writeln!(text, "\t\t{which} counter drop");
    text + "\t}\n}\n"
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As nft 1.0.6 takes it.
    #[test]
    fn the_table_of_either_family() {
        let vip: IpAddr = "192.0.2.10".parse().unwrap();
        let members = ["02:00:00:00:00:01".parse().unwrap(), "02:00:00:00:00:02".parse().unwrap()];
        let only = Only { dev: Some("eth0"), vips: &[vip, "192.0.2.11".parse().unwrap()] };
        assert_eq!(
            document(Guard { vip, members: &members, only: Some(only) }),
            "add table inet failover_192_0_2_10\n\
             delete table inet failover_192_0_2_10\n\
             table inet failover_192_0_2_10 {\n\
             \tchain guard { type filter hook prerouting priority raw; policy accept;\n\
             \t\tip daddr 192.0.2.10 ether saddr { 02:00:00:00:00:01, 02:00:00:00:00:02 } counter drop\n\
             \t}\n\
             \tchain way { type filter hook forward priority raw; policy accept;\n\
             \t\tip daddr 192.0.2.10 ip ttl > 8 ip ttl set 8\n\
             \t\tiifname \"eth0\" ip daddr != { 192.0.2.10, 192.0.2.11 } counter drop\n\
             \t}\n\
             \tchain quiet { type filter hook output priority raw; policy accept;\n\
             \t\toifname \"eth0\" icmp type redirect counter drop\n\
             \t}\n\
             }\n"
        );
        let vip: IpAddr = "2001:db8::10".parse().unwrap();
        let text = document(Guard { vip, members: &[], only: Some(Only { dev: None, vips: &[vip] }) });
        assert!(!text.contains("ether"));
        assert!(text.contains(
            "\t\tip6 daddr 2001:db8::10 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 254 \
             ip6 flowlabel set 458864 ip6 hoplimit set 255 accept\n"
        ));
        assert!(text.contains("\t\tip6 daddr 2001:db8::10 ip6 hoplimit > 8 ip6 hoplimit set 8\n"));
        assert!(text.contains("\t\tip6 daddr != { 2001:db8::10 } counter drop\n"));
        assert!(text.contains("\t\ticmpv6 type nd-redirect counter drop\n"));
        // Of a router only those about the address are dropped.
        for (vip, rule) in [
            ("192.0.2.10", "icmp type redirect @th,192,32 0xc000020a"),
            ("2001:db8::10", "icmpv6 type nd-redirect @th,192,128 0x20010db8000000000000000000000010"),
        ] {
            let text = document(Guard { vip: vip.parse().unwrap(), members: &members, only: None });
            assert!(text.contains(&format!("\t\t{rule} counter drop\n")) && !text.contains("daddr !="), "{text}");
        }
    }
}
