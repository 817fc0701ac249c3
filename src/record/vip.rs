//! Records of `vip`.

use super::envelope::{Column, column, is_false};
use super::line::Line;
use crate::decide::vip::Order;
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::{Mac, Prefix, width};
use crate::types::time::{Tick, millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// One address as the kernel has it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Show {
    /// The interface that carries it
    pub(crate) dev: String,
    pub(crate) ifindex: u32,
    #[serde(flatten)]
    pub(crate) state: State,
    /// The lease: without renewal the kernel answers no longer than this
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_ms: Option<f64>,
    /// What is left of it; 0: it has run out, and nothing is answered
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_left_ms: Option<f64>,
}

/// The address itself.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct State {
    pub(crate) prefix_len: u8,
    /// IPv4 label, where it is not the interface's name
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    /// global, site, link or host
    pub(crate) scope: String,
    /// As ip addr prints them
    pub(crate) flags: Vec<&'static str>,
    /// The other end of a point-to-point address
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    /// In the subnet of an earlier IPv4 address
    pub(crate) secondary: bool,
    /// The kernel answers for it, and the link has carrier
    pub(crate) usable: bool,
    /// Duplicates are still looked for
    pub(crate) tentative: bool,
    /// A duplicate was found: listed, and not usable
    pub(crate) dad_failed: bool,
    /// Added by one of our commands
    pub(crate) mine: bool,
    /// Seconds until the kernel removes it; absent: never
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) valid_s: Option<u32>,
    /// Seconds until it is no longer chosen as source; absent: never
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preferred_s: Option<u32>,
    /// The virtual router whose MAC the interface has
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vrid: Option<u8>,
    /// The virtual router MAC of the interface
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vmac: Option<String>,
}

/// What `add`, `del` and `apply` print: the address as read back, and what was done.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Acted {
    // Flattening serialises keys in place; it is reading that loses numbers.
    #[serde(flatten)]
    pub(crate) show: Option<Show>,
    /// Everything that is gone from the interface, as ADDR/LEN
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) removed: Vec<String>,
    /// Frames that told the neighbours
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) announced: Option<u64>,
    /// Settings that were changed for the interface of a virtual router
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) sysctls: BTreeMap<String, String>,
    /// MACs that have the address already
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) holders: Vec<String>,
}

/// What `apply` prints of an address: as read back, and what was done about it.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Applied {
    #[serde(flatten)]
    pub(crate) show: Option<Show>,
    /// serve, share, forward or leave: what this node does with the address now
    pub(crate) role: &'static str,
    /// The master's own address, where packets for the address are sent on to it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<String>,
    /// The routes by which this host sends from the address, as ip writes them
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) src_routes: Vec<String>,
    /// Everything that is gone from the interface, as ADDR/LEN
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) removed: Vec<String>,
    /// Frames that told the neighbours
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) announced: Option<u64>,
    /// Other MACs that claim the address on the wire
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) contested_by: Vec<String>,
    /// Somebody else had taken it away, and it was put back
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) repaired: bool,
    /// TCP connections that were ended
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections_killed: Option<u64>,
    /// Settings that were changed for it
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) sysctls: BTreeMap<String, String>,
    /// Why, as the election has it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// One that could be master, in an election.
#[derive(Deserialize)]
struct Member {
    address: Option<IpAddr>,
}

/// Reads an election: a record of an address that says whether it is `mine`.
///
/// # Errors
/// No record, or an election that is none.
pub(crate) fn read_order(line: &str, now: Tick) -> Result<Option<Order>, String> {
    let line = Line::parse(line)?;
    let Some(mine) = line.get::<bool>("mine")? else { return Ok(None) };
    // vip.show and vip.address have the word too, and order nothing.
    let kind: Option<String> = line.get("kind")?;
    if kind.is_some_and(|kind| kind != "vip.elect" && kind != "vrrp.run") {
        return Ok(None);
    }
    let Some(subject) = line.get::<String>("subject")? else { return Ok(None) };
    let addr = subject.split('%').next().unwrap_or_default();
    let addr: IpAddr = addr.parse().map_err(|_| format!("'subject': '{subject}' is no address"))?;
    let len = line.get::<u8>("prefix_len")?.unwrap_or(width(addr));
    let is_broadcast = matches!(addr, IpAddr::V4(addr) if addr.is_broadcast());
    if addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || is_broadcast {
        return Err(format!("'subject': {addr} is no address of a host"));
    }
    if len > width(addr) {
        return Err(format!("'prefix_len': {len} is more than {addr} has"));
    }
    let ms = |key: &str| -> Result<Option<Duration>, String> {
        let ms = line.get::<f64>(key)?;
        let time = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| format!("'{key}': {ms} is no time"));
        ms.map(time).transpose()
    };
    let received = ms("received_ms")?.map_or(now, |at| Tick(at).min(now));
    let held = line.get::<bool>("held")?.unwrap_or(false);
    Ok(Some(Order {
        vip: Prefix { addr, len },
        dev: line.get("dev")?,
        vrid: line.get("vrid")?,
        mine,
        held,
        master: line.parsed("master_addr")?,
        members: line
            .get::<Vec<Member>>("candidates")?
            .unwrap_or_default()
            .into_iter()
            .filter_map(|one| one.address)
            .collect(),
        elected: line.get("master")?,
        epoch: line.get("epoch")?,
        standby: line.get("standby")?,
        renewal: line.get::<bool>("renewal")?.unwrap_or(false),
        said: received,
        until: ms("valid_for_ms")?.map(|valid| received.after(valid)),
        adverts: ms("advert_interval_ms")?,
        why: line.get("why")?,
    }))
}

/// What `del` prints: the address as it was, where it was there, and all that is gone.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Deleted {
    #[serde(flatten)]
    pub(crate) before: Option<Show>,
    /// Everything that is gone from the interface, as ADDR/LEN
    pub(crate) removed: Vec<String>,
    /// TCP connections that were ended
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections_killed: Option<u64>,
}

impl Show {
    pub(crate) fn new(address: &Address, link: &Link) -> Self {
        let vmac = link.mac.filter(|mac| vrid(*mac).is_some());
        let is_v6 = address.prefix.addr.is_ipv6();
        let state = State {
            prefix_len: address.prefix.len,
            label: address.label.clone().filter(|label| *label != link.name),
            scope: address.scope.to_string(),
            flags: address.flags.names(is_v6),
            peer: address.peer.map(|peer| peer.to_string()),
            secondary: !is_v6 && address.flags.has(AddressFlags::SECONDARY),
            usable: address.is_usable() && link.is_usable(),
            tentative: address.flags.has(AddressFlags::TENTATIVE) && !address.flags.has(AddressFlags::DADFAILED),
            dad_failed: address.flags.has(AddressFlags::DADFAILED),
            mine: address.is_ours(),
            valid_s: address.valid_s,
            preferred_s: address.preferred_s,
            vrid: vmac.and_then(vrid),
            vmac: vmac.map(|mac| mac.to_string()),
        };
        Show { dev: link.name.clone(), ifindex: address.ifindex, state, lease_ms: None, lease_left_ms: None }
    }

    /// The same with its lease, where it has one, and what is left of that.
    pub(crate) fn leased(mut self, lease: Option<(Duration, Duration)>) -> Self {
        if let Some((term, left)) = lease {
            (self.lease_ms, self.lease_left_ms) = (Some(millis(term)), Some(millis(left)));
            self.state.usable &= !left.is_zero();
        }
        self
    }
}

/// What `watch` prints: an address with all of it, a link with its place alone.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Watched {
    /// present, added, removed, changed, link-up, link-down, link-gone or overrun
    pub(crate) event: &'static str,
    pub(crate) dev: String,
    pub(crate) ifindex: u32,
    #[serde(flatten)]
    pub(crate) address: Option<State>,
}

/// What `who` and `dad` print.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Asked {
    /// Where it was asked
    pub(crate) dev: String,
    /// Each MAC that claims the address, once
    pub(crate) holders: Vec<Holder>,
    /// who: one, many, none or unknown; dad: free, taken or unknown
    pub(crate) answer: &'static str,
}

/// A MAC that claims an address.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Holder {
    pub(crate) mac: String,
    /// From the last question to the first answer; absent for this host itself
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt_ms: Option<f64>,
}

/// What `arp` prints.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Announced {
    pub(crate) dev: String,
    /// The MAC that was announced
    pub(crate) mac: String,
    /// The one neighbour that was told
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// request, reply, na
    pub(crate) forms: Vec<&'static str>,
    /// Frames that left
    pub(crate) sent: u64,
    /// Frames that did not
    pub(crate) failed: u64,
}

/// What `peers` prints: one connection.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Peer {
    /// The port of the address itself
    pub(crate) port: u16,
    pub(crate) peer: String,
    pub(crate) peer_port: u16,
}

/// What `tickle` prints: one connection that was woken.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tickled {
    /// The port of the address itself
    pub(crate) port: u16,
    pub(crate) peer: String,
    pub(crate) peer_port: u16,
    pub(crate) sent: bool,
}

/// The subject of a record about an address; link-local ones name their interface.
pub(crate) fn subject(address: &Address, link: &Link) -> String {
    match address.prefix.addr {
        IpAddr::V6(addr) if addr.is_unicast_link_local() => format!("{addr}%{}", link.name),
        addr => addr.to_string(),
    }
}

/// The virtual router of a MAC 00:00:5e:00:01:VRID or 00:00:5e:00:02:VRID (RFC 9568 §7.3).
fn vrid(mac: Mac) -> Option<u8> {
    match mac.0 {
        [0, 0, 0x5e, 0, 1 | 2, vrid] => Some(vrid),
        _ => None,
    }
}

pub(crate) const SHOW_COLUMNS: &[Column] = &[
    column("subject", "ADDRESS"),
    column("prefix_len", "LEN"),
    column("dev", "DEV"),
    column("scope", "SCOPE"),
    column("usable", "USABLE"),
    column("mine", "MINE"),
    column("valid_s", "VALID_S"),
    column("flags", "FLAGS"),
];

pub(crate) const ACTED_COLUMNS: &[Column] = &[
    column("subject", "ADDRESS"),
    column("prefix_len", "LEN"),
    column("dev", "DEV"),
    column("changed", "CHANGED"),
    column("dry_run", "DRY RUN"),
    column("usable", "USABLE"),
    column("valid_s", "VALID_S"),
    column("removed", "REMOVED"),
];

pub(crate) const APPLIED_COLUMNS: &[Column] = &[
    column("subject", "VIP"),
    column("role", "ROLE"),
    column("changed", "CHANGED"),
    column("dev", "DEV"),
    column("announced", "ANNOUNCED"),
    column("contested_by", "CONTESTED_BY"),
    column("why", "WHY"),
];

pub(crate) const WATCH_COLUMNS: &[Column] = &[
    column("time", "TIME"),
    column("event", "EVENT"),
    column("subject", "SUBJECT"),
    column("dev", "DEV"),
    column("status", "STATUS"),
    column("usable", "USABLE"),
    column("mine", "MINE"),
];

pub(crate) const ASKED_COLUMNS: &[Column] =
    &[column("subject", "ADDRESS"), column("dev", "DEV"), column("answer", "ANSWER"), column("holders", "HOLDERS")];

pub(crate) const ARP_COLUMNS: &[Column] = &[
    column("subject", "ADDRESS"),
    column("dev", "DEV"),
    column("mac", "MAC"),
    column("forms", "FORMS"),
    column("sent", "SENT"),
    column("failed", "FAILED"),
];

pub(crate) const PEER_COLUMNS: &[Column] = &[
    column("subject", "ADDRESS"),
    column("port", "PORT"),
    column("peer", "PEER"),
    column("peer_port", "PEER_PORT"),
    column("sent", "SENT"),
];

pub(crate) const WATCH_SCHEMA: (&str, &str) = ("vip.watch", include_str!("schema/vip.watch.json"));
pub(crate) const WHO_SCHEMA: (&str, &str) = ("vip.who", include_str!("schema/vip.who.json"));
pub(crate) const DAD_SCHEMA: (&str, &str) = ("vip.dad", include_str!("schema/vip.dad.json"));
pub(crate) const ARP_SCHEMA: (&str, &str) = ("vip.arp", include_str!("schema/vip.arp.json"));
pub(crate) const PEER_SCHEMA: (&str, &str) = ("vip.peer", include_str!("schema/vip.peer.json"));
pub(crate) const TICKLE_SCHEMA: (&str, &str) = ("vip.tickle", include_str!("schema/vip.tickle.json"));
pub(crate) const SHOW_SCHEMA: (&str, &str) = ("vip.show", include_str!("schema/vip.show.json"));
pub(crate) const ADD_SCHEMA: (&str, &str) = ("vip.add", include_str!("schema/vip.add.json"));
pub(crate) const APPLY_SCHEMA: (&str, &str) = ("vip.apply", include_str!("schema/vip.apply.json"));
pub(crate) const DEL_SCHEMA: (&str, &str) = ("vip.del", include_str!("schema/vip.del.json"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_vip() {
        check::<Show>("vip.show", "An address on an interface, as the kernel has it");
        check::<Acted>("vip.add", "An address that was asked for, as read back afterwards");
        check::<Watched>("vip.watch", "A change of a link or an address");
        check::<Asked>("vip.who", "Who has an address, as the wire says");
        check::<Asked>("vip.dad", "Whether another host has an address, as the wire says");
        check::<Announced>("vip.arp", "What was announced about an address");
        check::<Peer>("vip.peer", "A TCP connection to an address");
        check::<Tickled>("vip.tickle", "A TCP peer that was made to notice");
        check::<Applied>("vip.apply", "What was done about an address that an election names");
        check::<Deleted>("vip.del", "An address that was taken away, as it was before");
    }

    #[test]
    fn a_virtual_router_mac_names_its_vrid() {
        assert_eq!(vrid(Mac([0, 0, 0x5e, 0, 1, 51])), Some(51));
        assert_eq!(vrid(Mac([0, 0, 0x5e, 0, 2, 51])), Some(51));
        assert_eq!(vrid(Mac([2, 0, 0x5e, 0, 1, 51])), None);
    }
}
