//! Addresses as operators write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A 48-bit link-layer address, printed in lower case with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl Mac {
    pub(crate) const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether the group bit is set (IEEE 802: the low bit of the first octet).
    pub(crate) fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|octet| write!(f, ":{octet:02x}"))
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = String;

    /// Takes six pairs of hexadecimal digits between colons or hyphens.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a MAC address (six pairs of hex digits: 01:02:03:04:05:06)");
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(wrong)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Mac(octets))
    }
}

/// An address with the length of its prefix: `192.0.2.10/24`.
///
/// The host bits are kept: this is what an interface carries, not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Prefix {
    pub(crate) addr: IpAddr,
    pub(crate) len: u8,
}

impl Prefix {
    /// The whole address: /32 or /128.
    pub(crate) fn host(addr: IpAddr) -> Self {
        Prefix { addr, len: width(addr) }
    }

    /// Whether `addr` lies in the network that this prefix names.
    pub(crate) fn contains(self, addr: IpAddr) -> bool {
        let (Some(own), Some(other)) = (bits(self.addr, addr), bits(addr, self.addr)) else {
            return false;
        };
        let shift = u32::from(width(addr) - self.len);
        self.len == 0 || own >> shift == other >> shift
    }

    /// The address that is sent to all of the network (RFC 919); IPv6 has none, nor has a link of two (RFC 3021).
    pub(crate) fn broadcast(self) -> Option<IpAddr> {
        match self.addr {
            IpAddr::V4(addr) if self.len < 31 => Some(Ipv4Addr::from(addr.to_bits() | u32::MAX >> self.len).into()),
            _ => None,
        }
    }
}

/// The number of bits in an address of `addr`'s family.
pub(crate) fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

fn bits(addr: IpAddr, like: IpAddr) -> Option<u128> {
    match (addr, like) {
        (IpAddr::V4(a), IpAddr::V4(_)) => Some(u128::from(a.to_bits())),
        (IpAddr::V6(a), IpAddr::V6(_)) => Some(a.to_bits()),
        _ => None,
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl FromStr for Prefix {
    type Err = String;

    /// Takes `ADDR/LEN`, or `ADDR` alone for the whole address.
    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let addr: IpAddr =
            addr.parse().map_err(|_| format!("'{text}' is not an address (192.0.2.10/24, 2001:db8::10/64)"))?;
        let Some(len) = len else { return Ok(Prefix::host(addr)) };
        let widest = width(addr);
        match len.parse::<u8>() {
            Ok(len) if len <= widest && !len_is_odd(text) => Ok(Prefix { addr, len }),
            _ => Err(format!("'{text}' has no prefix length between 0 and {widest}")),
        }
    }
}

/// `u8::from_str` takes `+24`, which no other tool of this trade does.
fn len_is_odd(text: &str) -> bool {
    text.contains("/+")
}

/// An IP protocol number, printed as the name that `conntrack` and `/etc/protocols` use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Proto(pub(crate) u8);

impl Proto {
    pub(crate) const ICMP: Proto = Proto(1);
    pub(crate) const TCP: Proto = Proto(6);
    pub(crate) const UDP: Proto = Proto(17);
    pub(crate) const DCCP: Proto = Proto(33);
    pub(crate) const ESP: Proto = Proto(50);
    pub(crate) const AH: Proto = Proto(51);
    pub(crate) const ICMPV6: Proto = Proto(58);
    pub(crate) const SCTP: Proto = Proto(132);
    pub(crate) const UDPLITE: Proto = Proto(136);

    const NAMES: [(&'static str, u8); 10] = [
        ("icmp", 1),
        ("tcp", 6),
        ("udp", 17),
        ("dccp", 33),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("ipv6-icmp", 58),
        ("sctp", 132),
        ("udplite", 136),
    ];

    /// Whether the first four bytes of its header are a source and a destination port.
    pub(crate) fn has_ports(self) -> bool {
        matches!(self, Proto::TCP | Proto::UDP | Proto::DCCP | Proto::SCTP | Proto::UDPLITE)
    }

    /// The name, where the protocol has one here.
    pub(crate) fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(_, number)| *number == self.0).map(|(name, _)| *name)
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Proto {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, number)) = Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Proto(*number));
        }
        match text.to_ascii_lowercase().as_str() {
            "icmpv6" => Ok(Proto::ICMPV6),
            digits if !digits.starts_with('+') => digits
                .parse()
                .map(Proto)
                .map_err(|_| format!("'{text}' is not a protocol (tcp, udp, icmp, …, or 0 to 255)")),
            _ => Err(format!("'{text}' is not a protocol (tcp, udp, icmp, …, or 0 to 255)")),
        }
    }
}

/// Where a datagram goes or comes: `ADDR[:PORT][%dev]`, `[ADDR6]:PORT%dev`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint {
    pub(crate) addr: IpAddr,
    pub(crate) port: Option<u16>,
    /// The interface that it is bound to, whatever the routes say.
    pub(crate) dev: Option<String>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.addr, self.port) {
            (IpAddr::V6(addr), Some(port)) => write!(f, "[{addr}]:{port}")?,
            (addr, Some(port)) => write!(f, "{addr}:{port}")?,
            (addr, None) => write!(f, "{addr}")?,
        }
        self.dev.as_ref().map_or(Ok(()), |dev| write!(f, "%{dev}"))
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not ADDR[:PORT][%dev] (192.0.2.1:6940%eth0, [2001:db8::1]:6940)");
        let (place, dev) = match text.split_once('%') {
            Some((_, dev)) if dev.is_empty() || dev.len() > 15 || dev.contains('/') => return Err(wrong()),
            // `[fe80::1%eth0]:6940`, as others write it.
            Some((head, tail)) if head.starts_with('[') && !head.contains(']') => {
                let (dev, port) = tail.split_once(']').ok_or_else(wrong)?;
                return format!("{head}]{port}%{dev}").parse();
            }
            Some((place, dev)) => (place, Some(dev.to_owned())),
            None => (text, None),
        };
        let port = |port: &str| match port.parse::<u16>() {
            Ok(number) if number != 0 && !port.starts_with('+') => Ok(Some(number)),
            _ => Err(wrong()),
        };
        if let Ok(addr) = place.parse::<IpAddr>() {
            return Ok(Endpoint { addr, port: None, dev });
        }
        let (addr, port) = if let Some(rest) = place.strip_prefix('[') {
            let (addr, tail) = rest.split_once(']').ok_or_else(wrong)?;
            let addr: std::net::Ipv6Addr = addr.parse().map_err(|_| wrong())?;
            (IpAddr::V6(addr), if tail.is_empty() { None } else { port(tail.strip_prefix(':').ok_or_else(wrong)?)? })
        } else {
            let (addr, tail) = place.split_once(':').ok_or_else(wrong)?;
            (IpAddr::V4(addr.parse().map_err(|_| wrong())?), port(tail)?)
        };
        Ok(Endpoint { addr, port, dev })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_prints_in_lower_case_with_colons() {
        for (text, canonical) in
            [("01:02:03:04:05:06", "01:02:03:04:05:06"), ("AA-BB-CC-DD-EE-FF", "aa:bb:cc:dd:ee:ff")]
        {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn what_is_no_mac_is_refused() {
        for text in
            ["", "1:2:3:4:5:6", "01:02:03:04:05", "01:02:03:04:05:06:07", "0g:02:03:04:05:06", "+1:02:03:04:05:06"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_without_length_is_the_whole_address() {
        assert_eq!("192.0.2.7".parse::<Prefix>().unwrap().to_string(), "192.0.2.7/32");
        assert_eq!("2001:DB8::7".parse::<Prefix>().unwrap().to_string(), "2001:db8::7/128");
    }

    #[test]
    fn a_prefix_longer_than_its_family_is_refused() {
        for text in
            ["192.0.2.7/33", "2001:db8::7/129", "192.0.2.7/", "192.0.2.7/+8", "192.0.2/24", "x/24", "192.0.2.7/24/24"]
        {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_contains_its_network_only() {
        let net: Prefix = "192.0.2.10/24".parse().unwrap();
        assert!(net.contains("192.0.2.255".parse().unwrap()));
        assert!(!net.contains("192.0.3.0".parse().unwrap()));
        assert!(!net.contains("2001:db8::1".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Prefix>().unwrap().contains("203.0.113.9".parse().unwrap()));
    }

    #[test]
    fn a_protocol_reads_by_name_or_number_and_prints_its_name() {
        for (text, printed) in [("tcp", "tcp"), ("TCP", "tcp"), ("6", "tcp"), ("icmpv6", "ipv6-icmp"), ("89", "89")] {
            assert_eq!(text.parse::<Proto>().unwrap().to_string(), printed);
        }
        for text in ["", "256", "+6", "-1", "ospfx"] {
            assert!(text.parse::<Proto>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_endpoint_reads_and_prints_in_the_same_words() {
        for text in [
            "192.0.2.1",
            "192.0.2.1:6940",
            "192.0.2.1:6940%eth0",
            "2001:db8::1",
            "[2001:db8::1]:6940",
            "fe80::1%eth0",
            "[fe80::1]:6940%eth0",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("[fe80::1%eth0]:6940".parse::<Endpoint>().unwrap().to_string(), "[fe80::1]:6940%eth0");
        for text in [
            "",
            "n1",
            "192.0.2.1:",
            "192.0.2.1:0",
            "192.0.2.1:99999",
            "192.0.2.1%",
            "[2001:db8::1",
            "[192.0.2.1]:1",
            "192.0.2.1:+1",
            "192.0.2.1:1%a/b",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
