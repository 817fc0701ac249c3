//! Neighbour discovery over Ethernet (RFC 4861, RFC 4862; RFC 9568 §8.2.2 for virtual routers).

use super::checksum;
use super::ethernet::{self, Frame};
use crate::types::net::Mac;
use std::net::Ipv6Addr;

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_TARGET: u8 = 2;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What a neighbour discovery packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ndp {
    pub(crate) is_advertisement: bool,
    pub(crate) src: Ipv6Addr,
    pub(crate) target: Ipv6Addr,
    /// The target link-layer address option; for a solicitation none.
    pub(crate) mac: Option<Mac>,
}

/// An unsolicited neighbor advertisement for `vip` (RFC 4861 §7.2.6).
///
/// S clear, O set, R as given (RFC 9568 §8.2.2: set, for a virtual router). To all nodes, or to
/// one. 86 bytes with the Ethernet header.
pub(crate) fn advertisement(
    mac: Mac,
    device: Mac,
    vip: Ipv6Addr,
    router: bool,
    to: Option<(Mac, Ipv6Addr)>,
) -> Vec<u8> {
    let (to_mac, to_addr) = to.unwrap_or((group_mac(ALL_NODES), ALL_NODES));
    let flags = 0x20 | if router { 0x80 } else { 0 };
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    message.extend_from_slice(&vip.octets());
    message.extend_from_slice(&[OPTION_TARGET, 1]);
    message.extend_from_slice(&mac.0);
    frame(to_mac, if mac.is_group() { device } else { mac }, vip, to_addr, message)
}

/// The question of duplicate address detection (RFC 4862 §5.4.2): from nobody, to the group of
/// all who could have `target`, without a source link-layer option. Whoever has it answers to all.
pub(crate) fn probe(device: Mac, target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    let group = solicited_node(target);
    frame(group_mac(group), device, Ipv6Addr::UNSPECIFIED, group, message)
}

/// The group that a host with `addr` listens to (RFC 4291 §2.7.1).
fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// The Ethernet group of an IPv6 group (RFC 2464 §7).
fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

fn frame(to: Mac, from: Mac, src: Ipv6Addr, dst: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    // A message of ours is 24 or 32 bytes long.
    let length = u16::try_from(message.len()).unwrap_or(0);
    let sum = checksum::internet(&[&checksum::pseudo_v6(src, dst, ICMPV6, u32::from(length)), &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = Vec::with_capacity(ethernet::HEADER + 40 + message.len());
    bytes.extend_from_slice(&ethernet::header(to, from, ethernet::IPV6));
    bytes.extend_from_slice(&[0x60, 0, 0, 0]);
    bytes.extend_from_slice(&length.to_be_bytes());
    // Hop limit 255, or no receiver believes it (RFC 4861 §7.1).
    bytes.extend_from_slice(&[ICMPV6, 255]);
    bytes.extend_from_slice(&src.octets());
    bytes.extend_from_slice(&dst.octets());
    bytes.extend_from_slice(&message);
    bytes
}

impl Ndp {
    /// Reads a frame; `None` for what is no valid neighbour solicitation or advertisement
    /// (RFC 4861 §7.1: hop limit 255, code 0, a right checksum, options that fit).
    pub(crate) fn decode(frame: &Frame<'_>) -> Option<Ndp> {
        if frame.ethertype != ethernet::IPV6 {
            return None;
        }
        let (header, rest) = frame.payload.split_first_chunk::<40>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || header[6] != ICMPV6 || header[7] != 255 {
            return None;
        }
        let message = rest.get(..length)?;
        let src = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?);
        let dst = Ipv6Addr::from(<[u8; 16]>::try_from(&header[24..40]).ok()?);
        if checksum::internet(&[&checksum::pseudo_v6(src, dst, ICMPV6, u32::try_from(length).ok()?), message]) != 0 {
            return None;
        }
        let (fixed, options) = message.split_first_chunk::<24>()?;
        let is_advertisement = match (fixed[0], fixed[1]) {
            (SOLICITATION, 0) => false,
            (ADVERTISEMENT, 0) => true,
            _ => return None,
        };
        let target = Ipv6Addr::from(<[u8; 16]>::try_from(&fixed[8..24]).ok()?);
        Some(Ndp { is_advertisement, src, target, mac: target_option(options)? })
    }

    /// The MAC that has `wanted`, or wants it as we do, by this frame.
    pub(crate) fn claim(&self, frame: &Frame<'_>, us: Mac, wanted: Ipv6Addr) -> Option<super::arp::Claim> {
        use super::arp::Claim;
        if self.target != wanted || !(frame.to == us || frame.to.is_group()) {
            return None;
        }
        if self.is_advertisement {
            let mac = self.mac.unwrap_or(frame.from);
            return (mac != us).then_some(Claim::Has(mac));
        }
        let probes = self.src.is_unspecified() && frame.from != us;
        probes.then_some(Claim::Wants(frame.from))
    }
}

/// The target link-layer address among the options; `None` where one does not fit (the packet is
/// discarded then), `Some(None)` where there is none.
#[allow(clippy::option_option)] // three answers, as the text says
fn target_option(mut options: &[u8]) -> Option<Option<Mac>> {
    let mut mac = None;
    while !options.is_empty() {
        let [kind, eights, ..] = *options else { return None };
        let (option, rest) = options.split_at_checked(usize::from(eights) * 8).filter(|_| eights > 0)?;
        if let [OPTION_TARGET, 1, a, b, c, d, e, f] = *option {
            mac = Some(Mac([a, b, c, d, e, f]));
        } else if kind == OPTION_TARGET && eights == 1 {
            return None;
        }
        options = rest;
    }
    Some(mac)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::arp::Claim;
    use super::*;
    use proptest::prelude::*;

    const US: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn vip() -> Ipv6Addr {
        "2001:db8::10".parse().unwrap()
    }

    #[test]
    fn an_advertisement_has_the_flags_and_the_sum_right() {
        let bytes = advertisement(US, US, vip(), false, None);
        assert_eq!(bytes.len(), 86);
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!((frame.to, frame.from), (Mac([0x33, 0x33, 0, 0, 0, 1]), US));
        assert_eq!((bytes[14 + 7], bytes[14 + 40], bytes[14 + 44]), (255, 136, 0x20));
        assert_eq!(advertisement(US, US, vip(), true, None)[14 + 44], 0xa0);
        let ndp = Ndp::decode(&frame).unwrap();
        assert_eq!(ndp, Ndp { is_advertisement: true, src: vip(), target: vip(), mac: Some(US) });
    }

    #[test]
    fn a_probe_goes_from_nobody_to_all_who_could_have_it() {
        let bytes = probe(US, vip());
        assert_eq!(bytes.len(), 78);
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!(frame.to, Mac([0x33, 0x33, 0xff, 0, 0, 0x10]));
        let ndp = Ndp::decode(&frame).unwrap();
        assert_eq!(ndp, Ndp { is_advertisement: false, src: Ipv6Addr::UNSPECIFIED, target: vip(), mac: None });
        assert_eq!(ndp.claim(&frame, OTHER, vip()), Some(Claim::Wants(US)));
        assert_eq!(ndp.claim(&frame, US, vip()), None);
    }

    #[test]
    fn an_answer_counts_only_for_its_address() {
        let bytes = advertisement(OTHER, OTHER, vip(), false, None);
        let frame = Frame::decode(&bytes).unwrap();
        let ndp = Ndp::decode(&frame).unwrap();
        assert_eq!(ndp.claim(&frame, US, vip()), Some(Claim::Has(OTHER)));
        assert_eq!(ndp.claim(&frame, US, "2001:db8::1".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn any_packet_reads_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let framed = [&ethernet::header(US, US, ethernet::IPV6)[..], &bytes].concat();
            let _ = Frame::decode(&framed).and_then(|frame| Ndp::decode(&frame));
            let _ = target_option(&bytes);
        }

        #[test]
        fn a_changed_or_cut_packet_is_none(at in 14usize..86, bit in 0u8..8, cut in 0usize..86) {
            let good = advertisement(US, US, vip(), false, None);
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            // Traffic class and flow label are outside of every sum.
            if !(14..18).contains(&at) {
                prop_assert!(Frame::decode(&bad).and_then(|frame| Ndp::decode(&frame)).is_none());
            }
            prop_assert!(Frame::decode(&good[..cut]).and_then(|frame| Ndp::decode(&frame)).is_none());
        }
    }
}
