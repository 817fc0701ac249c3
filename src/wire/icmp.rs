//! ICMP echo, for IPv4 (RFC 792) and IPv6 (RFC 4443 §4).

use super::checksum;
use std::net::IpAddr;

/// What an echo carries so that its reply is known for ours: identifiers repeat, this does not.
pub(crate) type Nonce = [u8; 16];

/// ```text
///  0        1        2        3        4        5        6        7        8 ...
/// +--------+--------+-----------------+-----------------+-----------------+--------
/// |  type  |  code  |    checksum     |   identifier    |    sequence     | nonce
/// +--------+--------+-----------------+-----------------+-----------------+--------
/// ```
const HEADER: usize = 8;

fn types(v6: bool) -> (u8, u8) {
    // Request and reply.
    if v6 { (128, 129) } else { (8, 0) }
}

/// An echo request to `to`.
///
/// A ping socket puts in an identifier of its own, and the kernel makes the sum of `ICMPv6`.
pub(crate) fn echo(to: IpAddr, identifier: u16, sequence: u16, nonce: &Nonce) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADER + nonce.len());
    packet.resize(HEADER, 0);
    packet[0] = types(to.is_ipv6()).0;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(nonce);
    if to.is_ipv4() {
        let sum = checksum::internet(&[&packet]);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The sequence of an echo reply that carries `nonce`; none for anything else.
///
/// `with_ip` says that the IPv4 header stands before it, as raw sockets have it.
pub(crate) fn reply(packet: &[u8], v6: bool, with_ip: bool, nonce: &Nonce) -> Option<u16> {
    let start = if with_ip { usize::from(packet.first()? & 0x0f) * 4 } else { 0 };
    let message = packet.get(start..)?;
    let (_, wanted) = types(v6);
    let is_ours = message.first() == Some(&wanted) && message.get(HEADER..) == Some(nonce.as_slice());
    let sequence = message.get(6..8)?;
    is_ours.then(|| u16::from_be_bytes([sequence[0], sequence[1]]))
}

/// The sequence of an echo of ours that an ICMP error quotes, from its ICMP header on.
///
/// Routers quote at least that header (RFC 792); where more is there, it must be the nonce. The identifier
/// counts where it is known.
pub(crate) fn quoted(echo: &[u8], v6: bool, identifier: Option<u16>, nonce: &Nonce) -> Option<u16> {
    let (wanted, _) = types(v6);
    let sequence = echo.get(6..HEADER)?;
    if identifier.is_some_and(|identifier| echo.get(4..6) != Some(&identifier.to_be_bytes())) {
        return None;
    }
    let more = echo.get(HEADER..).unwrap_or_default();
    let is_ours = echo.first() == Some(&wanted) && more.iter().zip(nonce).all(|(quoted, own)| quoted == own);
    is_ours.then(|| u16::from_be_bytes([sequence[0], sequence[1]]))
}

/// One instruction of classic BPF: code, jump if true, jump if false, operand (`linux/filter.h`).
pub(crate) type Instruction = (u16, u8, u8, u32);

/// A filter for a raw socket: echo replies with this identifier, and nothing else.
///
/// A raw socket hears all that comes for the host: of 64 of them each would wake for the others' replies.
pub(crate) fn only_replies(v6: bool, identifier: u16) -> Vec<Instruction> {
    // BPF_LDX|MSH|B, BPF_LD|{ABS,IND}|{B,H}, BPF_JMP|JEQ|K, BPF_RET|K
    const HEADER_LENGTH: u16 = 0xb1;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let (byte, half) = if v6 { (0x30, 0x28) } else { (0x50, 0x48) };
    let (_, reply) = types(v6);
    // Of IPv4 the packet comes with its header.
    let skip = (!v6).then_some((HEADER_LENGTH, 0, 0, 0));
    skip.into_iter()
        .chain([
            (byte, 0, 0, 0),
            (IF_EQUAL, 0, 3, u32::from(reply)),
            (half, 0, 0, 4),
            (IF_EQUAL, 0, 1, u32::from(identifier)),
            (RETURN, 0, 0, u32::MAX),
            (RETURN, 0, 0, 0),
        ])
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    const NONCE: Nonce = *b"0123456789abcdef";

    #[test]
    fn an_echo_is_laid_out_as_in_rfc_792() {
        let packet = echo("192.0.2.1".parse().unwrap(), 0x1234, 7, &NONCE);
        assert_eq!(packet[..2], [8, 0]);
        assert_eq!(packet[4..8], [0x12, 0x34, 0, 7]);
        assert_eq!(checksum::internet(&[&packet]), 0, "the sum over all is right");
        assert_eq!(echo("2001:db8::1".parse().unwrap(), 1, 2, &NONCE)[..4], [128, 0, 0, 0]);
    }

    #[test]
    fn only_the_reply_with_our_nonce_is_ours() {
        let mut packet = echo("192.0.2.1".parse().unwrap(), 1, 7, &NONCE);
        assert_eq!(reply(&packet, false, false, &NONCE), None, "a request");
        packet[0] = 0;
        assert_eq!(reply(&packet, false, false, &NONCE), Some(7));
        assert_eq!(reply(&packet, false, false, b"another nonce..."), None);
        assert_eq!(reply(&packet, true, false, &NONCE), None, "the other family");
        let mut whole = vec![0x45; 20];
        whole.extend(&packet);
        assert_eq!(reply(&whole, false, true, &NONCE), Some(7));
        for cut in 0..packet.len() {
            assert_eq!(reply(&packet[..cut], false, false, &NONCE), None, "{cut}");
            assert_eq!(reply(&whole[..20 + cut], false, true, &NONCE), None, "{cut}");
        }
        assert_eq!(reply(&[0xff; 9], false, true, &NONCE), None);
    }

    #[test]
    fn an_error_quotes_an_echo_of_ours_or_another_s() {
        for addr in ["192.0.2.1", "2001:db8::1"] {
            let v6 = addr.contains(':');
            let packet = echo(addr.parse().unwrap(), 0x1234, 7, &NONCE);
            for length in 8..=packet.len() {
                assert_eq!(quoted(&packet[..length], v6, Some(0x1234), &NONCE), Some(7), "{length}");
            }
            for length in 0..8 {
                assert_eq!(quoted(&packet[..length], v6, None, &NONCE), None, "{length}");
            }
            assert_eq!(quoted(&packet, v6, None, &NONCE), Some(7));
            assert_eq!(quoted(&packet, v6, Some(0x1235), &NONCE), None);
            assert_eq!(quoted(&packet, v6, None, b"another nonce..."), None);
            assert_eq!(quoted(&packet, !v6, None, &NONCE), None);
        }
    }

    /// The few instructions that `only_replies` uses, as the kernel runs them.
    fn passes(filter: &[Instruction], packet: &[u8]) -> bool {
        let (mut at, mut behind, mut value) = (0, 0, 0);
        loop {
            let (code, yes, no, operand) = filter[at];
            let place = operand as usize;
            let byte = |place: usize| packet.get(place).copied().map(u32::from);
            let half = |place: usize| Some(byte(place)? << 8 | byte(place + 1)?);
            at += 1;
            let loaded = match code {
                0xb1 => byte(place).map(|first| behind = (first as usize & 0xf) * 4),
                0x30 => byte(place).map(|loaded| value = loaded),
                0x28 => half(place).map(|loaded| value = loaded),
                0x50 => byte(behind + place).map(|loaded| value = loaded),
                0x48 => half(behind + place).map(|loaded| value = loaded),
                0x15 => {
                    at += usize::from(if value == operand { yes } else { no });
                    Some(())
                }
                0x06 => return operand > 0,
                other => panic!("{other:#x}"),
            };
            // What lies beyond the packet drops it.
            if loaded.is_none() {
                return false;
            }
        }
    }

    #[test]
    fn a_raw_socket_hears_its_own_replies_alone() {
        for v6 in [false, true] {
            let to = if v6 { "2001:db8::1" } else { "192.0.2.1" }.parse().unwrap();
            let packet = |kind: u8, identifier: u16| {
                let mut packet = echo(to, identifier, 7, &NONCE);
                packet[0] = kind;
                if v6 { packet } else { [vec![0x46; 24], packet].concat() }
            };
            let (request, reply) = types(v6);
            let filter = only_replies(v6, 0x1234);
            assert!(passes(&filter, &packet(reply, 0x1234)));
            assert!(!passes(&filter, &packet(request, 0x1234)));
            assert!(!passes(&filter, &packet(reply, 0x1235)));
            assert!(!passes(&filter, &packet(reply, 0x1234)[..5]));
        }
    }
}
