//! Sharing: a backup serves the traffic for an address that reaches it, and answers no ARP for it.

use super::Present;
use super::settings::{Kept, Settings};
use crate::cli::Failure;
use crate::sys::netlink;
use crate::sys::sysctl;
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::Prefix;
use std::net::IpAddr;

const WHAT: &str = "share";

/// The address as a backup carries it: alone, on the loopback interface.
///
/// IPv6 answers no solicitation for what another interface carries, and asks with an address of the
/// interface itself; IPv4 has to be told both.
pub(super) fn wanted(present: &Present, addr: IpAddr) -> Option<Address> {
    let loopback = present.links.iter().find(|link| link.loopback)?;
    let mut address = netlink::plain(Prefix::host(addr), loopback.index);
    if addr.is_ipv6() {
        address.flags.0 |= AddressFlags::NODAD;
    }
    Some(address)
}

/// Whether an address is one that `wanted` has made.
pub(super) fn is_shared(present: &Present, address: &Address) -> bool {
    address.is_ours()
        && address.prefix == Prefix::host(address.prefix.addr)
        && present.link(address.ifindex).is_some_and(|link| link.loopback)
}

/// Has the interface answer ARP for what it carries itself, and ask with its own address as sender: an
/// answer to a client would make it ask for the client with the shared one, and the client believe it.
///
/// Returns what had to be changed.
pub(super) fn ensure(link: &Link, node: &str) -> Result<Settings, Failure> {
    let mut differing = Settings::new();
    for (setting, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
        let setting = format!("ipv4/conf/{}/{setting}", link.name);
        if sysctl::read(&setting)?.is_some_and(|now| now != value) {
            differing.insert(setting, value.to_owned());
        }
    }
    if !differing.is_empty() {
        // The undo is on disk before anything is done.
        Kept { node, what: WHAT, dev: &link.name }.remember(differing.keys())?;
        for (setting, value) in &differing {
            sysctl::write(setting, value)?;
        }
    }
    Ok(differing)
}

/// Puts the settings back, where nothing is shared any more.
pub(super) fn sweep(present: &Present, node: &str) -> Result<(), Failure> {
    if present.addresses.iter().any(|address| is_shared(present, address)) {
        return Ok(());
    }
    for link in &present.links {
        let kept = Kept { node, what: WHAT, dev: &link.name };
        if kept.is_there() {
            kept.put_back()?;
        }
    }
    Ok(())
}
