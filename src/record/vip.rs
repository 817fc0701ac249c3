//! Records of `vip`.

use super::envelope::{Column, column};
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::Mac;
use serde::Serialize;

/// One address as the kernel has it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Show {
    pub(crate) prefix_len: u8,
    /// The interface that carries it
    pub(crate) dev: String,
    pub(crate) ifindex: u32,
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
    pub(crate) show: Show,
    /// Everything that is gone from the interface, as ADDR/LEN
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(crate) removed: Vec<String>,
}

/// What `del` prints: the address as it was, where it was there, and all that is gone.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Deleted {
    #[serde(flatten)]
    pub(crate) before: Option<Show>,
    /// Everything that is gone from the interface, as ADDR/LEN
    pub(crate) removed: Vec<String>,
}

impl Show {
    pub(crate) fn new(address: &Address, link: &Link) -> Self {
        let vmac = link.mac.filter(|mac| vrid(*mac).is_some());
        let is_v6 = address.prefix.addr.is_ipv6();
        Show {
            prefix_len: address.prefix.len,
            dev: link.name.clone(),
            ifindex: address.ifindex,
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
        }
    }
}

/// The subject of a record about an address; link-local ones name their interface.
pub(crate) fn subject(address: &Address, link: &Link) -> String {
    match address.prefix.addr {
        std::net::IpAddr::V6(addr) if addr.is_unicast_link_local() => format!("{addr}%{}", link.name),
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
    column("usable", "USABLE"),
    column("valid_s", "VALID_S"),
    column("removed", "REMOVED"),
];

pub(crate) const SHOW_SCHEMA: (&str, &str) = ("vip.show", include_str!("schema/vip.show.json"));
pub(crate) const ADD_SCHEMA: (&str, &str) = ("vip.add", include_str!("schema/vip.add.json"));
pub(crate) const DEL_SCHEMA: (&str, &str) = ("vip.del", include_str!("schema/vip.del.json"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::schema::check;

    #[test]
    fn schema_of_vip() {
        check::<Show>("vip.show", "An address on an interface, as the kernel has it");
        check::<Acted>("vip.add", "An address that was asked for, as read back afterwards");
        check::<Deleted>("vip.del", "An address that was taken away, as it was before");
    }

    #[test]
    fn a_virtual_router_mac_names_its_vrid() {
        assert_eq!(vrid(Mac([0, 0, 0x5e, 0, 1, 51])), Some(51));
        assert_eq!(vrid(Mac([0, 0, 0x5e, 0, 2, 51])), Some(51));
        assert_eq!(vrid(Mac([2, 0, 0x5e, 0, 1, 51])), None);
    }
}
