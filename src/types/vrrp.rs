//! Words of the virtual router protocol that two floors share (RFC 9568).

use super::net::Mac;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where adverts go (RFC 9568 §5.1.1.2, §5.1.2.2).
pub(crate) const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// Where adverts go over IPv6.
pub(crate) const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);

/// The group of the family of `addr`.
pub(crate) fn group(addr: IpAddr) -> IpAddr {
    if addr.is_ipv4() { GROUP_V4.into() } else { GROUP_V6.into() }
}

/// The virtual router's MAC: 00:00:5e:00:01:VRID, or 02 for IPv6 (RFC 9568 §7.3).
pub(crate) fn mac(vrid: u8, ipv6: bool) -> Mac {
    Mac([0, 0, 0x5e, 0, if ipv6 { 2 } else { 1 }, vrid])
}

/// The link-local address that a virtual router makes of its MAC (RFC 4291 appendix A).
///
/// The first address of an IPv6 advert is a link-local one (RFC 9568 §5.2.9).
pub(crate) fn link_local(vrid: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0200, 0x5eff, 0xfe00, 0x0200 | u16::from(vrid))
}

/// The generation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// RFC 3768: IPv4, whole seconds.
    V2,
    /// RFC 9568: both families, hundredths of a second.
    V3,
}

impl Version {
    pub(crate) fn number(self) -> u8 {
        match self {
            Version::V2 => 2,
            Version::V3 => 3,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_router_s_link_local_address_is_made_of_its_mac() {
        assert_eq!(mac(0x33, true).to_string(), "00:00:5e:00:02:33");
        assert_eq!(link_local(0x33).to_string(), "fe80::200:5eff:fe00:233");
    }
}
