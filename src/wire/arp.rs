//! ARP over Ethernet for IPv4 (RFC 826, RFC 5227).

use super::ethernet::{self, Frame};
use crate::types::net::Mac;
use std::net::Ipv4Addr;

const NOBODY: Mac = Mac([0; 6]);
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const LENGTH: usize = 28;

/// What an ARP packet says (RFC 826 "Packet format").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: Mac,
    pub(crate) sender_ip: Ipv4Addr,
    pub(crate) target_mac: Mac,
    pub(crate) target_ip: Ipv4Addr,
}

/// Which form an announcement has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Request,
    Reply,
}

/// An ARP Probe (RFC 5227 §1.1): asks for `target` without claiming anything.
///
/// Sender address 0.0.0.0, target hardware address zero, to all. 42 bytes with the Ethernet header.
pub(crate) fn probe(from: Mac, target: Ipv4Addr) -> Vec<u8> {
    let arp = Arp {
        is_request: true,
        sender_mac: from,
        sender_ip: Ipv4Addr::UNSPECIFIED,
        target_mac: NOBODY,
        target_ip: target,
    };
    arp.frame(Mac::BROADCAST, from)
}

/// An ARP Announcement (RFC 5227 §2.3), or the same as a reply.
///
/// Sender and target address are both `vip`. The request form has the target hardware address
/// zero; the reply form has it like the sender's, since some gear obeys only replies and other
/// ignores those that it did not ask for. `to` is everybody, or one neighbour.
///
/// A group address cannot be the source of a frame (IEEE 802): a cluster MAC is announced from the
/// device's own.
pub(crate) fn announcement(form: Form, mac: Mac, device: Mac, vip: Ipv4Addr, to: Mac) -> Vec<u8> {
    let target_mac = if form == Form::Request { NOBODY } else { mac };
    let arp = Arp { is_request: form == Form::Request, sender_mac: mac, sender_ip: vip, target_mac, target_ip: vip };
    arp.frame(to, if mac.is_group() { device } else { mac })
}

impl Arp {
    fn frame(&self, to: Mac, from: Mac) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ethernet::HEADER + LENGTH);
        bytes.extend_from_slice(&ethernet::header(to, from, ethernet::ARP));
        // Hardware Ethernet (1), protocol IPv4, lengths 6 and 4.
        bytes.extend_from_slice(&[0, 1, 8, 0, 6, 4]);
        bytes.extend_from_slice(&if self.is_request { REQUEST } else { REPLY }.to_be_bytes());
        bytes.extend_from_slice(&self.sender_mac.0);
        bytes.extend_from_slice(&self.sender_ip.octets());
        bytes.extend_from_slice(&self.target_mac.0);
        bytes.extend_from_slice(&self.target_ip.octets());
        bytes
    }

    /// Reads the payload of a frame; `None` for what is no ARP of Ethernet and IPv4.
    pub(crate) fn decode(frame: &Frame<'_>) -> Option<Arp> {
        if frame.ethertype != ethernet::ARP {
            return None;
        }
        // Padding to the shortest frame may follow.
        let (fixed, rest) = frame.payload.split_first_chunk::<8>()?;
        let [0, 1, 8, 0, 6, 4, 0, opcode] = *fixed else { return None };
        let (sender_mac, rest) = rest.split_first_chunk()?;
        let (sender_ip, rest) = rest.split_first_chunk::<4>()?;
        let (target_mac, rest) = rest.split_first_chunk()?;
        let (target_ip, _) = rest.split_first_chunk::<4>()?;
        let is_request = match u16::from(opcode) {
            REQUEST => true,
            REPLY => false,
            _ => return None,
        };
        Some(Arp {
            is_request,
            sender_mac: Mac(*sender_mac),
            sender_ip: Ipv4Addr::from(*sender_ip),
            target_mac: Mac(*target_mac),
            target_ip: Ipv4Addr::from(*target_ip),
        })
    }

    /// The MAC that claims `wanted` in this frame, as far as it concerns `us` (RFC 5227 §2.1.1).
    ///
    /// A reply to us, a question or announcement to all from that address; or another's probe for
    /// it. A reply to a third host is none of our business.
    pub(crate) fn claim(&self, frame: &Frame<'_>, us: Mac, wanted: Ipv4Addr) -> Option<Claim> {
        if self.sender_mac == us || !(frame.to == us || frame.to.is_group()) {
            return None;
        }
        if self.sender_ip == wanted {
            return Some(Claim::Has(self.sender_mac));
        }
        let probes = self.is_request && self.sender_ip.is_unspecified() && self.target_ip == wanted;
        probes.then_some(Claim::Wants(self.sender_mac))
    }
}

/// What another host says about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It has it.
    Has(Mac),
    /// It is about to take it, and asks the same question.
    Wants(Mac),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    #[test]
    fn a_probe_claims_nothing() {
        assert_eq!(
            hex(&probe(US, VIP)),
            "ffffffffffff0200000000010806000108000604000102000000000100000000000000000000c000020a"
        );
    }

    #[test]
    fn an_announcement_has_both_forms() {
        assert_eq!(
            hex(&announcement(Form::Request, US, US, VIP, Mac::BROADCAST)),
            "ffffffffffff02000000000108060001080006040001020000000001c000020a000000000000c000020a"
        );
        assert_eq!(
            hex(&announcement(Form::Reply, US, US, VIP, Mac::BROADCAST)),
            "ffffffffffff02000000000108060001080006040002020000000001c000020a020000000001c000020a"
        );
    }

    #[test]
    fn a_group_mac_is_announced_from_the_device_s_own() {
        let cluster = Mac([1, 2, 3, 4, 5, 6]);
        let bytes = announcement(Form::Reply, cluster, US, VIP, Mac::BROADCAST);
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!((frame.from, Arp::decode(&frame).unwrap().sender_mac), (US, cluster));
    }

    /// The frames of shared/samples/pcap/arp-probe-garp-conflict.pcap.
    #[test]
    fn frames_off_the_wire_read_as_they_are() {
        let capture = include_bytes!("../../tests/data/pcap/arp-probe-garp-conflict.pcap");
        let mut rest = &capture[24..];
        let mut seen = Vec::new();
        while rest.len() >= 16 {
            let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            let frame = Frame::decode(&rest[16..16 + length]).unwrap();
            if let Some(arp) = Arp::decode(&frame) {
                seen.push((arp.is_request, arp.sender_ip.is_unspecified(), arp.sender_ip == arp.target_ip));
            }
            rest = &rest[16 + length..];
        }
        assert!(seen.contains(&(true, true, false)), "a probe: {seen:?}");
        assert!(seen.contains(&(true, false, true)), "an announcement as request: {seen:?}");
        assert!(seen.contains(&(false, false, true)), "an announcement as reply: {seen:?}");
    }

    #[test]
    fn only_what_concerns_us_and_the_address_counts() {
        let other = Mac([2, 0, 0, 0, 0, 2]);
        let third = Mac([2, 0, 0, 0, 0, 3]);
        let reply = |to: Mac, sender_ip: Ipv4Addr| {
            let arp = Arp {
                is_request: false,
                sender_mac: other,
                sender_ip,
                target_mac: to,
                target_ip: Ipv4Addr::UNSPECIFIED,
            };
            arp.frame(to, other)
        };
        let claim = |bytes: Vec<u8>| {
            let frame = Frame::decode(&bytes).unwrap();
            Arp::decode(&frame).unwrap().claim(&frame, US, VIP)
        };
        assert_eq!(claim(reply(US, VIP)), Some(Claim::Has(other)));
        assert_eq!(claim(reply(third, VIP)), None);
        assert_eq!(claim(reply(US, Ipv4Addr::new(192, 0, 2, 1))), None);
        assert_eq!(claim(announcement(Form::Request, other, other, VIP, Mac::BROADCAST)), Some(Claim::Has(other)));
        assert_eq!(claim(probe(other, VIP)), Some(Claim::Wants(other)));
        assert_eq!(claim(probe(US, VIP)), None);
    }

    proptest! {
        #[test]
        fn any_frame_reads_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let framed = [&ethernet::header(US, US, ethernet::ARP)[..], &bytes].concat();
            for bytes in [&bytes, &framed] {
                if let Some(frame) = Frame::decode(bytes) {
                    let _ = Arp::decode(&frame).map(|arp| arp.claim(&frame, US, VIP));
                }
            }
        }

        #[test]
        fn every_truncation_is_no_arp(cut in 0usize..42) {
            let bytes = probe(US, VIP);
            let read = Frame::decode(&bytes[..cut]).and_then(|frame| Arp::decode(&frame));
            prop_assert!(read.is_none());
        }
    }
}
