//! A bare TCP acknowledgement (RFC 9293 §3.1) in its IP packet, and the peers it goes to.

use super::checksum;
use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const ACK: u8 = 0x10;

/// An IP packet with an ACK that fits no connection.
///
/// The peer answers such a segment with the numbers that it has (RFC 9293 §3.10.7.4: "If an
/// incoming segment is not acceptable, an acknowledgment should be sent in reply"); our kernel,
/// which knows no such connection, resets it with those. `None` where the families differ.
pub(crate) fn tickle(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    let mut segment = Vec::with_capacity(20);
    segment.extend_from_slice(&from.port().to_be_bytes());
    segment.extend_from_slice(&to.port().to_be_bytes());
    // Sequence and acknowledgement 0, five words of header, a window that means nothing.
    segment.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, ACK, 0x04, 0, 0, 0, 0, 0]);
    let (pseudo, header): (Vec<u8>, Vec<u8>) = match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let addresses = [src.octets(), dst.octets()].concat();
            // The kernel fills in the total length, the identification and the header's sum (raw(7)).
            let mut header = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0];
            header.extend_from_slice(&addresses);
            ([addresses.as_slice(), &[0, TCP, 0, 20]].concat(), header)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
            header.extend_from_slice(&src.octets());
            header.extend_from_slice(&dst.octets());
            (checksum::pseudo_v6(src, dst, TCP, 20).to_vec(), header)
        }
        _ => return None,
    };
    let sum = checksum::internet(&[&pseudo, &segment]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    Some([header, segment].concat())
}

/// One connection from a line of `ss -Hnt`: the local and the peer's end.
///
/// The state column is there or not, as the filter given to `ss` decides; what is no established
/// connection is `Ok(None)`.
///
/// # Errors
/// No two addresses with ports.
pub(crate) fn peer_from_ss(line: &str) -> Result<Option<(SocketAddr, SocketAddr)>, String> {
    let wrong = || "wanted a line of ss -Hnt: STATE RECV-Q SEND-Q LOCAL:PORT PEER:PORT".to_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    let (state, rest) = match words.as_slice() {
        [state, rest @ ..] if state.starts_with(|c: char| c.is_ascii_alphabetic()) => (Some(*state), rest),
        rest => (None, rest),
    };
    let [recv, send, local, peer, ..] = rest else { return Err(wrong()) };
    if recv.parse::<u64>().is_err() || send.parse::<u64>().is_err() {
        return Err(wrong());
    }
    if state.is_some_and(|state| state == "LISTEN" || state == "TIME-WAIT") {
        return Ok(None);
    }
    Ok(Some((end(local).ok_or_else(wrong)?, end(peer).ok_or_else(wrong)?)))
}

/// `192.0.2.1:80`, `[2001:db8::1]:80`, `[::ffff:192.0.2.1]:80`, `[fe80::1%eth0]:80`.
fn end(text: &str) -> Option<SocketAddr> {
    let (addr, port) = text.rsplit_once(':')?;
    let addr = addr.trim_start_matches('[').trim_end_matches(']');
    let addr: IpAddr = addr.split('%').next()?.parse().ok()?;
    Some(SocketAddr::new(addr.to_canonical(), port.parse().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_tickle_is_an_ack_with_a_right_sum() {
        let packet = tickle("192.0.2.10:80".parse().unwrap(), "192.0.2.99:40000".parse().unwrap()).unwrap();
        assert_eq!(packet.len(), 40);
        assert_eq!((packet[33], &packet[20..24]), (ACK, &[0, 80, 0x9c, 0x40][..]));
        let pseudo = [&packet[12..20], &[0, TCP, 0, 20]].concat();
        assert_eq!(checksum::internet(&[&pseudo, &packet[20..]]), 0);
        let packet = tickle("[2001:db8::10]:80".parse().unwrap(), "[2001:db8::99]:40000".parse().unwrap()).unwrap();
        assert_eq!(packet.len(), 60);
        assert!(tickle("192.0.2.10:80".parse().unwrap(), "[2001:db8::99]:40000".parse().unwrap()).is_none());
    }

    #[test]
    fn peers_read_from_ss_with_and_without_a_state() {
        let ends = |line: &str| peer_from_ss(line).unwrap().map(|(local, peer)| (local.to_string(), peer.to_string()));
        let wanted = Some(("192.0.2.10:80".to_owned(), "192.0.2.99:40000".to_owned()));
        assert_eq!(ends("ESTAB 0 0 192.0.2.10:80 192.0.2.99:40000"), wanted);
        assert_eq!(ends("0      36   192.0.2.10:80   192.0.2.99:40000 "), wanted);
        assert_eq!(ends("ESTAB 0 0 [::ffff:192.0.2.10]:80 [::ffff:192.0.2.99]:40000"), wanted);
        assert_eq!(ends("LISTEN 0 128 0.0.0.0:22 0.0.0.0:*"), None);
        for line in ["", "x", "ESTAB 0 0 192.0.2.10 192.0.2.99", "ESTAB a b 192.0.2.10:80 192.0.2.99:4"] {
            assert!(peer_from_ss(line).is_err(), "{line}");
        }
    }
}
