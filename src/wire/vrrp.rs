//! VRRP adverts: version 3 (RFC 9568 §5) and version 2 (RFC 3768 §5), over IPv4 and IPv6.

use super::checksum;
use super::ethernet::{self, Frame};
use super::keys::{Keys, Signer};
use crate::types::net::Mac;
use crate::types::vrrp::{self, Version};
use hmac::Mac as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The IP protocol number.
pub(crate) const PROTOCOL: u8 = 112;
/// The only TTL that a receiver believes (RFC 9568 §5.1.1.3).
const TTL: u8 = 255;
const HEADER: usize = 8;
const HEADER_V4: usize = 20;
const HEADER_V6: usize = 40;
/// The authentication data that version 2 has even without authentication.
const AUTH_V2: usize = 8;
/// The authentication trailer of draft-cassen-vrrp-auth-hmac: type, key id, two zeroes, sequence, HMAC.
const TRAILER: usize = 28;
/// HMAC-SHA-256, of which the first 16 bytes travel.
const TRAILER_TYPE: u8 = 1;
const CUT: usize = 16;
/// The longest advert interval of version 3: 12 bits of hundredths of a second.
pub(crate) const LONGEST_V3: Duration = Duration::from_millis(40_950);
/// The most addresses that an advert counts.
pub(crate) const MAX_ADDRESSES: usize = 255;

/// What an advert says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advert {
    pub(crate) version: Version,
    pub(crate) vrid: u8,
    /// 255 owner, 0 resigning.
    pub(crate) priority: u8,
    /// Version 2: whole seconds; version 3: hundredths of a second.
    pub(crate) interval: Duration,
    pub(crate) addresses: Vec<IpAddr>,
}

/// How the sum of a version 3 advert over IPv4 is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Over the message alone (RFC 9568 §5.2.8).
    Rfc9568,
    /// With a pseudo-header, as RFC 5798 was read; keepalived sends it unless told otherwise.
    Pseudo,
}

/// Which sum was found right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Version 2, which has one form.
    V2,
    /// Over IPv6 the pseudo-header of RFC 8200 belongs to it.
    V6,
    Is(Sum),
    Bad,
}

impl Found {
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Found::V2 => "v2",
            Found::Is(Sum::Pseudo) => "pseudo",
            Found::V6 | Found::Is(Sum::Rfc9568) => "rfc9568",
            Found::Bad => "bad",
        }
    }
}

/// Authentication that an advert carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// Version 2, type 1: a password that everybody on the link can read.
    Password,
    /// Version 2, another type than 0 or 1.
    Other,
    /// The HMAC trailer of version 3.
    Hmac,
}

impl Auth {
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Auth::Password => "password",
            Auth::Other => "other",
            Auth::Hmac => "hmac",
        }
    }
}

/// What is wrong with an advert (RFC 9568 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It came from beyond this link.
    Ttl,
    /// A version or type that is no advert of version 2 or 3.
    Version,
    /// VRID 0.
    Vrid,
    /// No address.
    CountZero,
    /// Shorter than it says.
    Truncated,
    /// Longer than it says, and no trailer that is known.
    TooLong,
    Checksum,
    /// An interval of 0.
    Interval,
    /// A password, or a trailer that no key of ours has made.
    Auth,
    /// Over IPv6, and the first address is not link-local.
    FirstAddress,
    /// From no address of a host on this link.
    Source,
    /// Not from the virtual router's MAC, so switches do not learn it.
    SourceMac,
}

impl Fault {
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Fault::Ttl => "ttl",
            Fault::Version => "version",
            Fault::Vrid => "vrid",
            Fault::CountZero => "count-zero",
            Fault::Truncated => "truncated",
            Fault::TooLong => "too-long",
            Fault::Checksum => "checksum",
            Fault::Interval => "interval",
            Fault::Auth => "auth",
            Fault::FirstAddress => "first-address",
            Fault::Source => "source",
            Fault::SourceMac => "source-mac",
        }
    }

    /// Whether a receiver must not believe the advert.
    ///
    /// The two others are against the RFC as well, and keepalived sends both.
    pub(crate) fn discards(self) -> bool {
        !matches!(self, Fault::SourceMac | Fault::FirstAddress)
    }
}

/// An advert as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) advert: Advert,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
    pub(crate) source_mac: Mac,
    pub(crate) checksum: Found,
    pub(crate) auth: Option<Auth>,
    /// The number in a trailer that a key of ours has made: later ones are higher.
    pub(crate) sequence: Option<u64>,
    pub(crate) faults: Vec<Fault>,
}

impl Heard {
    /// Whether a router may act on it.
    pub(crate) fn is_believed(&self) -> bool {
        !self.faults.iter().any(|fault| fault.discards())
    }
}

/// What the sum counts besides the message, where it does.
fn pseudo_header(src: IpAddr, dst: IpAddr, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).unwrap_or(0);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = [src.octets(), dst.octets()].concat();
            header.extend_from_slice(&[0, PROTOCOL]);
            header.extend_from_slice(&u16::try_from(length).unwrap_or(0).to_be_bytes());
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, PROTOCOL, length).to_vec(),
        _ => Vec::new(),
    }
}

impl Advert {
    /// How long a packet with it is, its IP header included.
    pub(crate) fn packet_len(&self, ipv6: bool, is_signed: bool) -> usize {
        let count = self.addresses.iter().filter(|addr| addr.is_ipv6() == ipv6).take(MAX_ADDRESSES).count();
        let (header, each) = if ipv6 { (HEADER_V6, 16) } else { (HEADER_V4, 4) };
        let tail = match self.version {
            Version::V2 => AUTH_V2,
            Version::V3 => usize::from(is_signed) * TRAILER,
        };
        header + HEADER + count * each + tail
    }

    /// The message, from `src` to `dst` of one family; version 3 may be signed with a sequence number.
    ///
    /// At most `MAX_ADDRESSES` addresses of that family are told.
    pub(crate) fn message(&self, src: IpAddr, dst: IpAddr, sum: Sum, sign: Option<(&Keys, u64)>) -> Vec<u8> {
        let addresses: Vec<&IpAddr> =
            self.addresses.iter().filter(|addr| addr.is_ipv4() == dst.is_ipv4()).take(MAX_ADDRESSES).collect();
        let count = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![self.version.number() << 4 | 1, self.vrid, self.priority, count];
        match self.version {
            Version::V2 => bytes.extend_from_slice(&[0, u8::try_from(self.interval.as_secs()).unwrap_or(u8::MAX)]),
            Version::V3 => bytes.extend_from_slice(&hundredths(self.interval).to_be_bytes()),
        }
        bytes.extend_from_slice(&[0, 0]);
        for addr in addresses {
            match addr {
                IpAddr::V4(addr) => bytes.extend_from_slice(&addr.octets()),
                IpAddr::V6(addr) => bytes.extend_from_slice(&addr.octets()),
            }
        }
        if self.version == Version::V2 {
            bytes.extend_from_slice(&[0; AUTH_V2]);
        }
        let plain = bytes.len();
        if self.version == Version::V3
            && let Some((keys, sequence)) = sign
            && let Some((key_id, signer)) = keys.signing()
        {
            bytes.extend_from_slice(&[TRAILER_TYPE, key_id, 0, 0]);
            bytes.extend_from_slice(&sequence.to_be_bytes());
            let mac = signer_over(signer, src, &bytes).finalize().into_bytes();
            bytes.extend_from_slice(mac.get(..CUT).unwrap_or_default());
        }
        // Over IPv4 the draft leaves its trailer out of the sum, over IPv6 it is within.
        let summed = if dst.is_ipv4() { plain } else { bytes.len() };
        let with_header = dst.is_ipv6() || (self.version == Version::V3 && sum == Sum::Pseudo);
        let header = if with_header { pseudo_header(src, dst, summed) } else { Vec::new() };
        let sum = checksum::internet(&[&header, bytes.get(..summed).unwrap_or_default()]);
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The whole frame, to the group of its family.
    pub(crate) fn frame(&self, from: Mac, src: IpAddr, sum: Sum, sign: Option<(&Keys, u64)>) -> Vec<u8> {
        let dst = vrrp::group(src);
        let message = self.message(src, dst, sum, sign);
        let mut bytes = Vec::with_capacity(ethernet::HEADER + self.packet_len(src.is_ipv6(), sign.is_some()));
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let [_, b, c, d] = dst.octets();
                let to = Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
                bytes.extend_from_slice(&ethernet::header(to, from, ethernet::IPV4));
                bytes.extend_from_slice(&header_v4(src, dst, message.len()));
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let [.., a, b, c, d] = dst.octets();
                bytes.extend_from_slice(&ethernet::header(Mac([0x33, 0x33, a, b, c, d]), from, ethernet::IPV6));
                bytes.extend_from_slice(&[0x60, 0, 0, 0]);
                bytes.extend_from_slice(&u16::try_from(message.len()).unwrap_or(0).to_be_bytes());
                bytes.extend_from_slice(&[PROTOCOL, TTL]);
                bytes.extend_from_slice(&src.octets());
                bytes.extend_from_slice(&dst.octets());
            }
            // The group is of the source's family.
            _ => {}
        }
        bytes.extend_from_slice(&message);
        bytes
    }
}

/// A signer that was fed what the draft signs: family, version, VRID and source, then the message with
/// its sum and its HMAC read as zero. `signed` is the message up to the HMAC.
fn signer_over(mut signer: Signer, src: IpAddr, signed: &[u8]) -> Signer {
    let mut header = [0; 20];
    header[0] = if src.is_ipv4() { 4 } else { 6 };
    header[1] = signed.first().map_or(0, |first| first >> 4);
    header[2] = signed.get(1).copied().unwrap_or(0);
    match src {
        IpAddr::V4(addr) => header[4..8].copy_from_slice(&addr.octets()),
        IpAddr::V6(addr) => header[4..20].copy_from_slice(&addr.octets()),
    }
    signer.update(&header);
    signer.update(signed.get(..6).unwrap_or_default());
    signer.update(&[0; 2]);
    signer.update(signed.get(HEADER..).unwrap_or_default());
    signer.update(&[0; CUT]);
    signer
}

/// The sequence number of a message with a trailer, if a key of ours has made it.
fn verified(message: &[u8], src: IpAddr, keys: &Keys) -> Option<u64> {
    let (signed, mac) = message.split_at_checked(message.len().checked_sub(CUT)?)?;
    let trailer: &[u8; TRAILER - CUT] = signed.last_chunk()?;
    let [TRAILER_TYPE, key_id, 0, 0, sequence @ ..] = *trailer else { return None };
    // Compared in constant time.
    signer_over(keys.verifying(key_id)?, src, signed).verify_truncated_left(mac).ok()?;
    Some(u64::from_be_bytes(sequence))
}

/// The interval in the 12 bits of version 3.
fn hundredths(interval: Duration) -> u16 {
    u16::try_from(interval.as_millis() / 10).unwrap_or(u16::MAX).min(0x0fff)
}

fn header_v4(src: Ipv4Addr, dst: Ipv4Addr, length: usize) -> [u8; HEADER_V4] {
    let mut header = [0; HEADER_V4];
    header[0] = 0x45;
    // Internetwork control, as routing protocols have it.
    header[1] = 0xc0;
    header[2..4].copy_from_slice(&u16::try_from(HEADER_V4 + length).unwrap_or(0).to_be_bytes());
    header[8] = TTL;
    header[9] = PROTOCOL;
    header[12..16].copy_from_slice(&src.octets());
    header[16..20].copy_from_slice(&dst.octets());
    let sum = checksum::internet(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Reads a frame; `None` for what is no VRRP packet at all, a fragment included. With keys a trailer is
/// checked.
pub(crate) fn decode(frame: &Frame<'_>, keys: Option<&Keys>) -> Option<Heard> {
    let (src, dst, ttl, message) = match frame.ethertype {
        ethernet::IPV4 => packet_v4(frame.payload)?,
        ethernet::IPV6 => packet_v6(frame.payload)?,
        _ => return None,
    };
    Some(read(message, src, dst, ttl, frame.from, keys))
}

type Packet<'a> = (IpAddr, IpAddr, u8, &'a [u8]);

fn packet_v4(bytes: &[u8]) -> Option<Packet<'_>> {
    let header: &[u8; HEADER_V4] = bytes.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] >> 4 != 4 || header_len < HEADER_V4 || header[9] != PROTOCOL || fragment {
        return None;
    }
    if checksum::internet(&[bytes.get(..header_len)?]) != 0 {
        return None;
    }
    // What the frame lacks of it makes the message short, which is told as such.
    let message = bytes.get(header_len..total.min(bytes.len()))?;
    let addr = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?));
    Some((addr(12)?.into(), addr(16)?.into(), header[8], message))
}

fn packet_v6(bytes: &[u8]) -> Option<Packet<'_>> {
    let header: &[u8; HEADER_V6] = bytes.first_chunk()?;
    if header[0] >> 4 != 6 || header[6] != PROTOCOL {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let message = bytes.get(HEADER_V6..(HEADER_V6 + length).min(bytes.len()))?;
    let addr = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
    Some((addr(8)?.into(), addr(24)?.into(), header[7], message))
}

/// Judges a message; whatever can be read of it is read, and everything that is wrong is told.
pub(crate) fn read(message: &[u8], src: IpAddr, dst: IpAddr, ttl: u8, source_mac: Mac, keys: Option<&Keys>) -> Heard {
    let mut faults = Vec::new();
    let mut fault = |is: bool, fault: Fault| {
        if is {
            faults.push(fault);
        }
    };
    let mut header = [0; HEADER];
    let known = message.len().min(HEADER);
    header[..known].copy_from_slice(&message[..known]);
    let [kind, vrid, priority, count, ..] = header;
    let version = if kind >> 4 == 2 { Version::V2 } else { Version::V3 };
    fault(ttl != TTL, Fault::Ttl);
    let wrong_version = (kind != 0x21 && kind != 0x31) || (version == Version::V2 && dst.is_ipv6());
    fault(wrong_version, Fault::Version);
    fault(vrid == 0, Fault::Vrid);
    fault(count == 0, Fault::CountZero);
    let width = if src.is_ipv4() { 4 } else { 16 };
    let addresses_end = HEADER + usize::from(count) * width;
    let expected = addresses_end + if version == Version::V2 { AUTH_V2 } else { 0 };
    let trailer = version == Version::V3 && message.len() == expected + TRAILER && message[expected] == 1;
    fault(message.len() < expected, Fault::Truncated);
    fault(message.len() > expected && !trailer, Fault::TooLong);
    let addresses: Vec<IpAddr> = message
        .get(HEADER..addresses_end.min(message.len()).max(HEADER))
        .unwrap_or_default()
        .chunks_exact(width)
        .filter_map(|chunk| match chunk.len() {
            4 => chunk.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
            _ => chunk.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        })
        .collect();
    let (interval, auth) = match version {
        Version::V2 => {
            let auth = match header[4] {
                0 => None,
                1 => Some(Auth::Password),
                _ => Some(Auth::Other),
            };
            (Duration::from_secs(u64::from(header[5])), auth)
        }
        Version::V3 => {
            let hundredths = u64::from(u16::from_be_bytes([header[4], header[5]]) & 0x0fff);
            (Duration::from_millis(hundredths * 10), trailer.then_some(Auth::Hmac))
        }
    };
    fault(interval.is_zero(), Fault::Interval);
    let sequence = keys.filter(|_| trailer).and_then(|keys| verified(message, src, keys));
    let forged = trailer && keys.is_some() && sequence.is_none();
    fault(forged || matches!(auth, Some(Auth::Password | Auth::Other)), Fault::Auth);
    // Over IPv4 the draft leaves its trailer out of the sum, over IPv6 it is within.
    let summed = if trailer && src.is_ipv4() { &message[..expected] } else { message };
    let checksum = found(summed, src, dst, version);
    fault(checksum == Found::Bad, Fault::Checksum);
    let link_local = |addr: &IpAddr| matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
    fault(dst.is_ipv6() && addresses.first().is_some_and(|first| !link_local(first)), Fault::FirstAddress);
    let of_a_host = match src {
        IpAddr::V4(addr) => {
            !(addr.is_unspecified() || addr.is_multicast() || addr.is_broadcast() || addr.is_loopback())
        }
        // RFC 9568 §5.1.2.1.
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    };
    fault(!of_a_host, Fault::Source);
    fault(source_mac != vrrp::mac(vrid, src.is_ipv6()), Fault::SourceMac);
    let advert = Advert { version, vrid, priority, interval, addresses };
    Heard { advert, src, dst, ttl, source_mac, checksum, auth, sequence, faults }
}

fn found(message: &[u8], src: IpAddr, dst: IpAddr, version: Version) -> Found {
    if message.len() < HEADER {
        return Found::Bad;
    }
    let plain = checksum::internet(&[message]) == 0;
    let pseudo = || checksum::internet(&[&pseudo_header(src, dst, message.len()), message]) == 0;
    match (version, src.is_ipv4()) {
        (Version::V2, _) if plain => Found::V2,
        (Version::V3, true) if plain => Found::Is(Sum::Rfc9568),
        (Version::V3, true) if pseudo() => Found::Is(Sum::Pseudo),
        (Version::V3, false) if pseudo() => Found::V6,
        _ => Found::Bad,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn advert(version: Version, priority: u8) -> Advert {
        Advert {
            version,
            vrid: 0x33,
            priority,
            interval: Duration::from_secs(1),
            addresses: vec!["192.168.10.3".parse().unwrap()],
        }
    }

    /// Adverts that keepalived 2.2.7 has sent from 192.168.10.2, and their RFC 9568 sums.
    #[test]
    fn the_golden_adverts_are_what_we_send_and_read() {
        let (src, dst): (IpAddr, IpAddr) = ("192.168.10.2".parse().unwrap(), vrrp::GROUP_V4.into());
        for (version, priority, sum, hex, found) in [
            (Version::V2, 150, Sum::Rfc9568, "2133960100017e1e c0a80a03 0000000000000000", Found::V2),
            (Version::V2, 0, Sum::Rfc9568, "213300010001141f c0a80a03 0000000000000000", Found::V2),
            (Version::V3, 150, Sum::Pseudo, "313396010064c281 c0a80a03", Found::Is(Sum::Pseudo)),
            (Version::V3, 150, Sum::Rfc9568, "3133960100646dbb c0a80a03", Found::Is(Sum::Rfc9568)),
            (Version::V3, 0, Sum::Pseudo, "3133000100645882 c0a80a03", Found::Is(Sum::Pseudo)),
            (Version::V3, 0, Sum::Rfc9568, "31330001006403bc c0a80a03", Found::Is(Sum::Rfc9568)),
        ] {
            let wanted = advert(version, priority);
            assert_eq!(wanted.message(src, dst, sum, None), bytes(hex), "{hex}");
            let heard = read(&bytes(hex), src, dst, 255, vrrp::mac(0x33, false), None);
            assert_eq!((&heard.advert, heard.checksum, heard.faults.as_slice()), (&wanted, found, &[][..]));
        }
    }

    /// The frames of a capture file (classic format, little-endian, Ethernet).
    fn capture(bytes: &[u8]) -> Vec<&[u8]> {
        assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
        let (mut rest, mut frames) = (&bytes[24..], Vec::new());
        while let Some(header) = rest.first_chunk::<16>() {
            let length = usize::try_from(u32::from_le_bytes(*header[8..].first_chunk().unwrap())).unwrap();
            frames.push(&rest[16..16 + length]);
            rest = &rest[16 + length..];
        }
        frames
    }

    /// Two keepalived routers, 99 then 101, both leave: `tests/data/pcap/README.md`.
    #[test]
    fn captures_of_keepalived_decode() {
        for (bytes, version, sum) in [
            (&include_bytes!("../../tests/data/pcap/vrrp-v2-two-nodes.pcap")[..], Version::V2, Found::V2),
            (&include_bytes!("../../tests/data/pcap/vrrp-v3-vmac.pcap")[..], Version::V3, Found::Is(Sum::Pseudo)),
        ] {
            let heard: Vec<Heard> = capture(bytes)
                .into_iter()
                .filter_map(|frame| Frame::decode(frame).and_then(|frame| decode(&frame, None)))
                .collect();
            assert!(heard.iter().all(|one| one.is_believed() && one.advert.vrid == 0x33), "{heard:?}");
            assert!(heard.iter().all(|one| one.advert.version == version && one.checksum == sum));
            for priority in [99, 101, 0] {
                assert!(heard.iter().any(|one| one.advert.priority == priority), "{priority}");
            }
            // With a virtual MAC the adverts come from it; without, that is told.
            let virtual_mac = version == Version::V3;
            assert!(heard.iter().all(|one| one.faults.is_empty() == virtual_mac));
        }
    }

    #[test]
    fn a_frame_reads_back_in_both_families() {
        for (src, addresses) in [
            ("192.0.2.1", vec!["192.0.2.10".parse().unwrap(), "192.0.2.11".parse().unwrap()]),
            ("fe80::1", vec![vrrp::link_local(7).into(), "2001:db8::10".parse().unwrap()]),
        ] {
            let advert =
                Advert { version: Version::V3, vrid: 7, priority: 100, interval: Duration::from_millis(10), addresses };
            let src: IpAddr = src.parse().unwrap();
            let frame = advert.frame(vrrp::mac(7, src.is_ipv6()), src, Sum::Rfc9568, None);
            assert_eq!(frame.len(), ethernet::HEADER + advert.packet_len(src.is_ipv6(), false));
            let heard = decode(&Frame::decode(&frame).unwrap(), None).unwrap();
            assert_eq!((&heard.advert, heard.src, heard.dst), (&advert, src, vrrp::group(src)));
            assert!(heard.faults.is_empty(), "{:?}", heard.faults);
        }
    }

    #[test]
    fn each_fault_is_told_by_its_own_word() {
        let src: IpAddr = "192.168.10.2".parse().unwrap();
        let dst = vrrp::group(src);
        let good = advert(Version::V3, 150).message(src, dst, Sum::Rfc9568, None);
        let judged = |change: &dyn Fn(&mut Vec<u8>), ttl: u8| {
            let mut message = good.clone();
            change(&mut message);
            // The sum is made right again, so that only the fault itself is told.
            message[6..8].fill(0);
            let sum = checksum::internet(&[&message]);
            message[6..8].copy_from_slice(&sum.to_be_bytes());
            read(&message, src, dst, ttl, vrrp::mac(0x33, false), None).faults
        };
        assert_eq!(judged(&|_| (), 255), []);
        assert_eq!(judged(&|_| (), 254), [Fault::Ttl]);
        assert_eq!(judged(&|m| m[0] = 0x41, 255), [Fault::Version]);
        assert_eq!(judged(&|m| m[0] = 0x32, 255), [Fault::Version]);
        assert_eq!(judged(&|m| m[1] = 0, 255), [Fault::Vrid, Fault::SourceMac]);
        assert_eq!(judged(&|m| m.splice(3.., [0, 0, 100, 0, 0]).for_each(drop), 255), [Fault::CountZero]);
        assert_eq!(judged(&|m| m[3] = 2, 255), [Fault::Truncated]);
        assert_eq!(judged(&|m| m.extend([0; 4]), 255), [Fault::TooLong]);
        assert_eq!(judged(&|m| m[4..6].fill(0), 255), [Fault::Interval]);
        let mut bad = good.clone();
        bad[2] ^= 1;
        assert_eq!(read(&bad, src, dst, 255, vrrp::mac(0x33, false), None).faults, [Fault::Checksum]);
        let own = read(&good, src, dst, 255, Mac([2, 0, 0, 0, 0, 1]), None);
        assert_eq!((own.faults.as_slice(), own.is_believed()), (&[Fault::SourceMac][..], true));
        assert!(!read(&[], src, dst, 255, Mac([0; 6]), None).is_believed());
    }

    #[test]
    fn an_advert_comes_from_a_host_on_this_link() {
        for (src, is_fault) in [
            ("192.0.2.1", false),
            ("0.0.0.0", true),
            ("127.0.0.1", true),
            ("224.0.0.18", true),
            ("255.255.255.255", true),
            ("fe80::1", false),
            ("2001:db8::1", true),
            ("::", true),
            ("::1", true),
            ("ff02::12", true),
        ] {
            let src: IpAddr = src.parse().unwrap();
            let own = Advert { addresses: vec![vrrp::link_local(1).into()], ..advert(Version::V3, 100) };
            let advert = if src.is_ipv4() { advert(Version::V3, 100) } else { own };
            let message = advert.message(src, vrrp::group(src), Sum::Rfc9568, None);
            let heard = read(&message, src, vrrp::group(src), 255, vrrp::mac(0x33, src.is_ipv6()), None);
            assert_eq!(heard.faults, if is_fault { vec![Fault::Source] } else { vec![] }, "{src}");
        }
    }

    #[test]
    fn a_password_of_version_2_is_told_and_not_believed() {
        let (src, dst): (IpAddr, IpAddr) = ("192.168.10.2".parse().unwrap(), vrrp::GROUP_V4.into());
        let mut message = bytes("2133960100017e1e c0a80a03 6d79706173730000");
        message[4] = 1;
        message[6..8].fill(0);
        // RFC 3768 leaves the authentication data in the sum.
        let sum = checksum::internet(&[&message]);
        message[6..8].copy_from_slice(&sum.to_be_bytes());
        let heard = read(&message, src, dst, 255, vrrp::mac(0x33, false), None);
        assert_eq!((heard.auth, heard.is_believed()), (Some(Auth::Password), false));
    }

    /// The images of the appendix of draft-cassen-vrrp-auth-hmac-00: key 00 to 1f, VRID 51, priority 200.
    #[test]
    fn the_trailer_is_the_draft_s() {
        let key: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
        let (keys, others) = (Keys::parse(&key).unwrap(), Keys::parse(&"ab".repeat(32)).unwrap());
        for (src, dst, vip, hex) in [
            (
                "198.51.100.10",
                "224.0.0.18",
                "192.0.2.100",
                "3133c80100644402c0000264 010100006800000080000000 1b84bc4e8e43892dc6d98448f8ee2265",
            ),
            (
                "fe80::10",
                "fe80::20",
                "fe80::100",
                "3133c8010064a2e9fe800000000000000000000000000100 010100006800000080000000 c8c56146ebfd66ee10ec4d8186461b78",
            ),
        ] {
            let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
            let advert = Advert {
                version: Version::V3,
                vrid: 51,
                priority: 200,
                interval: Duration::from_secs(1),
                addresses: vec![vip.parse().unwrap()],
            };
            let image = bytes(hex);
            assert_eq!(advert.message(src, dst, Sum::Rfc9568, Some((&keys, 0x6800_0000_8000_0000))), image);
            let header = if src.is_ipv6() { HEADER_V6 } else { HEADER_V4 };
            assert_eq!(advert.packet_len(src.is_ipv6(), true), header + image.len());
            let read = |message: &[u8], keys| read(message, src, dst, 255, vrrp::mac(51, src.is_ipv6()), keys);
            let heard = read(&image, Some(&keys));
            assert_eq!((heard.auth, heard.sequence), (Some(Auth::Hmac), Some(0x6800_0000_8000_0000)));
            assert!(heard.faults.is_empty(), "{:?}", heard.faults);
            // Without keys it is told and not checked; with others it is forged; a changed one too.
            assert_eq!((read(&image, None).auth, read(&image, None).is_believed()), (Some(Auth::Hmac), true));
            assert_eq!(read(&image, Some(&others)).faults, [Fault::Auth]);
            for at in [2, 5, image.len() - 28, image.len() - 27, image.len() - 26, image.len() - 20, image.len() - 1] {
                let mut changed = image.clone();
                changed[at] ^= 1;
                assert!(!read(&changed, Some(&keys)).is_believed(), "{at}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_frame_reads_without_a_panic(kind in prop::sample::select(vec![ethernet::IPV4, ethernet::IPV6]),
                                           bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
            let framed = [&ethernet::header(Mac([0; 6]), Mac([0; 6]), kind)[..], &bytes].concat();
            let _ = Frame::decode(&framed).and_then(|frame| decode(&frame, None));
            let _ = read(&bytes, vrrp::GROUP_V4.into(), vrrp::GROUP_V4.into(), 255, Mac([0; 6]), None);
            let _ = read(&bytes, vrrp::GROUP_V6.into(), vrrp::GROUP_V6.into(), 255, Mac([0; 6]), None);
        }

        #[test]
        fn a_changed_or_cut_advert_is_not_believed(at in 0usize..12, bit in 0u8..8, cut in 0usize..12, pseudo in any::<bool>()) {
            let src: IpAddr = "192.168.10.2".parse().unwrap();
            let sum = if pseudo { Sum::Pseudo } else { Sum::Rfc9568 };
            let good = advert(Version::V3, 150).message(src, vrrp::group(src), sum, None);
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            prop_assert!(!read(&bad, src, vrrp::group(src), 255, vrrp::mac(0x33, false), None).is_believed());
            prop_assert!(!read(&good[..cut], src, vrrp::group(src), 255, vrrp::mac(0x33, false), None).is_believed());
        }
    }
}
