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
    let mut packet = vec![0; HEADER];
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
}
