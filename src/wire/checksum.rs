//! The Internet checksum (RFC 1071).

use std::net::Ipv6Addr;

/// The one's-complement sum of `parts`, each of which but the last has an even length.
pub(crate) fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        let (words, rest) = part.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [last] = rest {
            sum += u64::from(u16::from_be_bytes([*last, 0]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Folded below 2^16 above.
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// The pseudo-header of an upper-layer packet over IPv6 (RFC 8200 §8.1).
pub(crate) fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, length: u32) -> [u8; 40] {
    let mut header = [0; 40];
    header[..16].copy_from_slice(&src.octets());
    header[16..32].copy_from_slice(&dst.octets());
    header[32..36].copy_from_slice(&length.to_be_bytes());
    header[39] = next_header;
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        // RFC 1071 §3: the sum of 0001 f203 f4f5 f6f7 is ddf2.
        assert_eq!(internet(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(internet(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_half() {
        assert_eq!(internet(&[&[0x01]]), !0x0100);
        assert_eq!(internet(&[]), 0xffff);
    }
}
