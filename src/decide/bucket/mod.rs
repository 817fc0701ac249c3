//! Which buckets a node answers for: changes by hand, the plan of many nodes, and checks.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod plan;
pub(crate) mod share;
#[cfg(test)]
mod sim;

use crate::types::net::Mac;
use std::net::IpAddr;

/// FNV-1a of 32 bits (Fowler, Noll, Vo).
fn fnv(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn octets(vip: IpAddr) -> Vec<u8> {
    match vip {
        IpAddr::V4(vip) => vip.octets().to_vec(),
        IpAddr::V6(vip) => vip.octets().to_vec(),
    }
}

/// The seed of a cluster IP for which none was given: FNV-1a of the address's bytes.
///
/// Of the address alone: what a node finds out by itself (netmask, broadcast) may differ between
/// nodes, and then each hashes differently and nobody notices.
pub(crate) fn seed(vip: IpAddr) -> u32 {
    fnv(octets(vip))
}

/// The cluster MAC for which none was given: locally administered, a group address unless
/// `unicast`, then five bytes of FNV-1a over the address's bytes.
pub(crate) fn mac(vip: IpAddr, unicast: bool) -> Mac {
    let mut mac = [if unicast { 0x02 } else { 0x03 }, 0, 0, 0, 0, 0];
    let backwards = fnv(octets(vip).into_iter().rev());
    for (to, from) in mac.iter_mut().skip(1).zip(seed(vip).to_be_bytes().into_iter().chain(backwards.to_be_bytes())) {
        *to = from;
    }
    Mac(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_seed_is_fnv_1a_of_the_address() {
        // Published: the empty string and "a".
        assert_eq!(fnv([]), 0x811c_9dc5);
        assert_eq!(fnv(*b"a"), 0xe40c_292c);
        assert_eq!(fnv(*b"foobar"), 0xbf9c_f968);
        assert_ne!(seed(Ipv4Addr::new(192, 0, 2, 1).into()), seed(Ipv4Addr::new(192, 0, 2, 2).into()));
        assert_ne!(seed(Ipv6Addr::LOCALHOST.into()), 0);
    }

    #[test]
    fn a_derived_mac_is_local_and_a_group_unless_unicast() {
        let vip = Ipv4Addr::new(192, 0, 2, 1).into();
        assert!(mac(vip, false).is_group());
        assert!(!mac(vip, true).is_group());
        assert_eq!(mac(vip, false).0[0] & 2, 2);
    }
}
