//! Interfaces and the addresses on them, as the kernel reports them.

use super::net::{Mac, Prefix};
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Other names that the kernel knows it by (`ip link property`).
    pub(crate) altnames: Vec<String>,
    pub(crate) mac: Option<Mac>,
    /// Set up by the administrator (`IFF_UP`).
    pub(crate) up: bool,
    /// Up, and the other end is there (`IFF_LOWER_UP`).
    pub(crate) carrier: bool,
    pub(crate) operstate: Operstate,
    pub(crate) loopback: bool,
    /// What kind of virtual link: `macvlan`, `bridge`, …
    pub(crate) kind: Option<String>,
    /// The link below this one.
    pub(crate) lower: Option<u32>,
    /// The longest packet that leaves on it, in octets.
    pub(crate) mtu: Option<u32>,
}

/// The operational state of an interface (RFC 2863 §3.1.14, the kernel's `IF_OPER_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operstate(pub(crate) u8);

impl Operstate {
    pub(crate) const NOT_PRESENT: Operstate = Operstate(1);

    /// The word of `ip link`, in lower case.
    pub(crate) fn as_str(self) -> &'static str {
        match self.0 {
            1 => "notpresent",
            2 => "down",
            3 => "lowerlayerdown",
            4 => "testing",
            5 => "dormant",
            6 => "up",
            _ => "unknown",
        }
    }
}

impl Link {
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.altnames.iter().any(|other| other == name)
    }

    /// Whether an address on it can serve: up, and something at the other end.
    pub(crate) fn is_usable(&self) -> bool {
        self.up && self.carrier
    }
}

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) prefix: Prefix,
    /// The other end of a point-to-point address.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) ifindex: u32,
    /// IPv4 only: `eth0:vip`.
    pub(crate) label: Option<String>,
    pub(crate) scope: Scope,
    pub(crate) flags: AddressFlags,
    /// Seconds until the kernel removes it; `None` is forever.
    pub(crate) valid_s: Option<u32>,
    /// Seconds until it is no longer chosen as a source; `None` is forever.
    pub(crate) preferred_s: Option<u32>,
    /// Who added it (`IFA_PROTO`), 0 where unknown.
    pub(crate) proto: u8,
}

/// The tag on every address, route and rule that is ours (`IFA_PROTO`, `RTA_PROTOCOL`).
pub(crate) const OUR_PROTO: u8 = 70;

impl Address {
    pub(crate) fn is_ours(&self) -> bool {
        self.proto == OUR_PROTO
    }

    /// Whether the kernel answers for it: not while duplicates are still looked for, and not
    /// after one was found.
    pub(crate) fn is_usable(&self) -> bool {
        let tentative = self.flags.has(AddressFlags::TENTATIVE) && !self.flags.has(AddressFlags::OPTIMISTIC);
        !tentative && !self.flags.has(AddressFlags::DADFAILED)
    }
}

/// How far an address is valid (`rt_scope_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope(pub(crate) u8);

impl Scope {
    pub(crate) const GLOBAL: Scope = Scope(0);
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("global"),
            200 => f.write_str("site"),
            253 => f.write_str("link"),
            254 => f.write_str("host"),
            255 => f.write_str("nowhere"),
            number => write!(f, "{number}"),
        }
    }
}

/// The `IFA_F_` bits of an address (`linux/if_addr.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressFlags(pub(crate) u32);

impl AddressFlags {
    /// IPv4: in the subnet of an earlier one. The same bit means temporary in IPv6.
    pub(crate) const SECONDARY: u32 = 0x01;
    pub(crate) const NODAD: u32 = 0x02;
    pub(crate) const OPTIMISTIC: u32 = 0x04;
    pub(crate) const DADFAILED: u32 = 0x08;
    pub(crate) const DEPRECATED: u32 = 0x20;
    pub(crate) const TENTATIVE: u32 = 0x40;
    #[cfg(test)]
    pub(crate) const PERMANENT: u32 = 0x80;
    pub(crate) const NOPREFIXROUTE: u32 = 0x200;

    pub(crate) fn has(self, bit: u32) -> bool {
        self.0 & bit == bit
    }

    /// The names that `ip addr` prints, in bit order.
    pub(crate) fn names(self, ipv6: bool) -> Vec<&'static str> {
        let first = if ipv6 { "temporary" } else { "secondary" };
        [
            (0x01, first),
            (0x02, "nodad"),
            (0x04, "optimistic"),
            (0x08, "dadfailed"),
            (0x10, "home"),
            (0x20, "deprecated"),
            (0x40, "tentative"),
            (0x80, "permanent"),
            (0x100, "mngtmpaddr"),
            (0x200, "noprefixroute"),
            (0x400, "autojoin"),
            (0x800, "stable-privacy"),
        ]
        .into_iter()
        .filter_map(|(bit, name)| self.has(bit).then_some(name))
        .collect()
    }
}
