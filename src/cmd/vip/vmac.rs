//! The interface of a virtual router: a macvlan with its MAC, and the settings that it needs.

use super::Present;
use super::settings::{Kept, Settings};
use crate::cli::{Exit, Failure, Reason};
use crate::record::Action;
use crate::sys::netlink::Refusal;
use crate::sys::{self, sysctl};
use crate::types::link::Link;
use crate::types::vrrp;

/// The name of a virtual router's interface; one each family, since the MACs differ.
pub(super) fn name(vrid: u8, ipv6: bool) -> String {
    format!("vrrp{}.{vrid}", if ipv6 { 6 } else { 4 })
}

/// Whether an interface is one of ours.
pub(super) fn is_ours(link: &Link) -> bool {
    let vrid = link.name.strip_prefix("vrrp4.").or_else(|| link.name.strip_prefix("vrrp6."));
    link.kind.as_deref() == Some("macvlan") && vrid.is_some_and(|vrid| vrid.parse::<u8>().is_ok())
}

/// What `ensure` did or would do.
pub(super) struct Made {
    pub(super) link: Link,
    pub(super) actions: Vec<Action>,
    pub(super) sysctls: Settings,
}

/// Makes the interface of `vrid` on `lower`, with its settings; one that is there is kept.
///
/// # Errors
/// An interface of that name that is another.
pub(super) fn ensure(
    present: &mut Present,
    lower: &Link,
    vrid: u8,
    ipv6: bool,
    node: &str,
    dry_run: bool,
) -> Result<Made, Failure> {
    let (name, mac) = (name(vrid, ipv6), vrrp::mac(vrid, ipv6));
    let doing = format!("make {name} on");
    let found = present.links.iter().find(|link| link.name == name).cloned();
    if let Some(found) = &found
        && (found.lower != Some(lower.index) || found.mac != Some(mac) || found.kind.as_deref() != Some("macvlan"))
    {
        let why =
            format!("cannot {doing} {}: {name} is there and is another (see: ip -d link show {name})", lower.name);
        return Err(Failure::new(Exit::No, Reason::Conflict, why));
    }
    let wanted = wanted(present, lower, &name, ipv6)?;
    let mut actions = Vec::new();
    if found.is_none() {
        let text = format!("ip link add {name} link {} address {mac} type macvlan mode private", lower.name);
        actions.push(Action { op: "link-add", text });
    }
    let mut differing = Settings::new();
    for (setting, value) in wanted {
        // What is not there yet has none of them right.
        let now =
            if found.is_none() && setting.contains(&format!("/{name}/")) { None } else { sysctl::read(&setting)? };
        if now.as_deref() != Some(value.as_str()) {
            actions.push(Action { op: "sysctl", text: format!("sysctl net.{}={value}", setting.replace('/', ".")) });
            differing.insert(setting, value);
        }
    }
    if dry_run {
        let planned = Link {
            name,
            mac: Some(mac),
            kind: Some("macvlan".to_owned()),
            lower: Some(lower.index),
            up: true,
            carrier: lower.carrier,
            mtu: lower.mtu,
            ..Link::default()
        };
        return Ok(Made { link: found.unwrap_or(planned), actions, sysctls: differing });
    }
    // The undo is on disk before anything is done.
    let own = format!("/{name}/");
    kept(node, lower).remember(differing.keys().filter(|setting| !setting.contains(&own)))?;
    if found.is_none() {
        refused(present.netlink.add_macvlan(&name, lower.index, mac)?, &doing, &lower.name)?;
        present.links = present.netlink.links()?;
    }
    // Settings first: an IPv6 interface that comes up makes itself addresses otherwise.
    for (setting, value) in &differing {
        // A kernel without IPv6 has none of its settings.
        if sysctl::read(setting)?.is_some() {
            sysctl::write(setting, value)?;
        }
    }
    let link = present.named(&name, &doing)?.clone();
    if !link.up {
        refused(present.netlink.set_up(link.index)?, "set up", &name)?;
        present.links = present.netlink.links()?;
    }
    let link = present.named(&name, &doing)?.clone();
    Ok(Made { link, actions, sysctls: differing })
}

/// The settings with which only the virtual router answers for its addresses, as keepalived has
/// them: the router accepts packets of its own addresses, the interface below answers no ARP for
/// what it does not carry itself.
fn wanted(present: &Present, lower: &Link, name: &str, ipv6: bool) -> Result<Settings, Failure> {
    let mut wanted = Settings::new();
    let mut set = |setting: String, value: &str| drop(wanted.insert(setting, value.to_owned()));
    // Each of the two is silent in the other's family: no addresses of its own, no ARP for others'.
    for (setting, value) in [("addr_gen_mode", "1"), ("autoconf", "0"), ("accept_ra", "0")] {
        set(format!("ipv6/conf/{name}/{setting}"), value);
    }
    if ipv6 {
        set(format!("ipv4/conf/{name}/arp_ignore"), "1");
        return Ok(wanted);
    }
    for (setting, value) in
        [("arp_ignore", "1"), ("accept_local", "1"), ("rp_filter", "0"), ("promote_secondaries", "1")]
    {
        set(format!("ipv4/conf/{name}/{setting}"), value);
    }
    // Without arp_announce 2, which keepalived does not set, an answer of the router makes the kernel
    // ask for the client with the virtual address as sender and the interface's own MAC: the client
    // believes that one from then on.
    for (setting, value) in [("arp_ignore", "1"), ("arp_filter", "1"), ("arp_announce", "2")] {
        set(format!("ipv4/conf/{}/{setting}", lower.name), value);
    }
    // The kernel takes the stricter of `all` and the interface's own: `all` goes to 0, and every
    // other interface keeps what it effectively had.
    let all = "ipv4/conf/all/rp_filter";
    if let Some(strictest) = sysctl::read(all)?.filter(|value| value != "0") {
        for link in present.links.iter().filter(|link| link.name != name) {
            let own = format!("ipv4/conf/{}/rp_filter", link.name);
            if sysctl::read(&own)?.is_some_and(|value| value < strictest) {
                set(own, &strictest);
            }
        }
        set(all.to_owned(), "0");
    }
    Ok(wanted)
}

/// Takes the interface away when it carries nothing more, and puts settings back with the last one.
///
/// Returns what was done.
pub(super) fn release(present: &mut Present, link: &Link, node: &str) -> Result<Vec<Action>, Failure> {
    let carries = |address: &crate::types::link::Address| address.ifindex == link.index && address.scope.0 == 0;
    if !is_ours(link) || present.addresses.iter().any(carries) || present.link(link.index).is_none() {
        return Ok(Vec::new());
    }
    let mut actions = vec![Action { op: "link-del", text: format!("ip link del {}", link.name) }];
    refused(present.netlink.delete_link(link.index)?, "delete", &link.name)?;
    present.links = present.netlink.links()?;
    if let Some(lower) = link.lower.and_then(|lower| present.link(lower)).cloned() {
        actions.extend(restore(present, &lower, node)?);
    }
    Ok(actions)
}

/// Finishes what killed runs have begun: interfaces without an address, settings without an
/// interface.
pub(super) fn sweep(present: &mut Present, node: &str) -> Result<(), Failure> {
    for link in present.links.clone() {
        release(present, &link, node)?;
    }
    for lower in present.links.clone() {
        restore(present, &lower, node)?;
    }
    Ok(())
}

/// Puts the settings of `lower` back, where no virtual router needs them any more.
fn restore(present: &Present, lower: &Link, node: &str) -> Result<Vec<Action>, Failure> {
    let kept = kept(node, lower);
    if !kept.is_there() || present.links.iter().any(|other| is_ours(other) && other.lower == Some(lower.index)) {
        return Ok(Vec::new());
    }
    kept.put_back()
}

fn kept<'a>(node: &'a str, lower: &'a Link) -> Kept<'a> {
    Kept { node, what: "vmac", dev: &lower.name }
}

fn refused(outcome: Result<(), Refusal>, doing: &str, object: &str) -> Result<(), Failure> {
    outcome.map_err(|refusal| {
        sys::Error::Call {
            doing: doing.to_owned(),
            object: object.to_owned(),
            errno: refusal.errno,
            said: refusal.said,
        }
        .into()
    })
}
