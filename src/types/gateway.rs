//! Gateways: the next hops that new flows are split over.

use super::net::Endpoint;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A gateway as its operator describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gateway {
    pub(crate) addr: IpAddr,
    /// The interface that it is behind; an IPv6 link-local address needs one.
    pub(crate) dev: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) weight: Weight,
    /// 1 is used first.
    pub(crate) tier: u32,
    /// The address that the world sees behind it.
    pub(crate) expect: Option<IpAddr>,
    /// How it is to be probed, where that is said of this one.
    pub(crate) probe: Option<Probe>,
}

/// How to find out whether a gateway forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) method: Method,
    /// Addresses, or URLs of HTTP.
    pub(crate) targets: Vec<String>,
}

/// What a probe through a gateway asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Nothing: it counts as living.
    None,
    Icmp,
    Tcp,
    Http,
    /// The address that an HTTP server sees the question come from.
    WanIp,
}

impl Method {
    pub(crate) const ALL: [Method; 5] = [Method::None, Method::Icmp, Method::Tcp, Method::Http, Method::WanIp];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Icmp => "icmp",
            Method::Tcp => "tcp",
            Method::Http => "http",
            Method::WanIp => "wan-ip",
        }
    }
}

impl Gateway {
    /// The gateway at `ADDR` or `ADDR%dev`, as it is without any further word.
    ///
    /// # Errors
    /// It is no address, or one that no gateway can have.
    pub(crate) fn at(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not the address of a gateway (192.0.2.1, fe80::1%eth0)");
        let Endpoint { addr, port: None, dev } = text.parse().map_err(|_| wrong())? else { return Err(wrong()) };
        if addr.is_unspecified() || addr.is_multicast() || addr.is_loopback() {
            return Err(format!("{addr} cannot be a gateway"));
        }
        Ok(Gateway { addr, dev, name: None, weight: Weight(1.0), tier: 1, expect: None, probe: None })
    }

    /// What names it in records: a link-local address is one on its interface alone.
    pub(crate) fn subject(&self) -> String {
        match (&self.dev, self.addr) {
            (Some(dev), IpAddr::V6(addr)) if addr.is_unicast_link_local() => format!("{addr}%{dev}"),
            _ => self.addr.to_string(),
        }
    }
}

/// The bits of packet and connection marks that are the gateways' own: neighbouring ones, at least eight.
///
/// Gateway number N, from 1, has the value N in them, and the routing table 7000 + N. Probes have the
/// values from the highest down, and tables alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) mask: u32,
}

/// The routing table of value 1 is the next one.
pub(crate) const TABLES: u32 = 7000;

/// Priorities of the rules that look marked packets up, in the order in which they are asked.
pub(crate) mod priority {
    /// Routes of the main table that are more than its default.
    pub(crate) const SPECIFIC: u32 = 7000;
    /// Each gateway's table.
    pub(crate) const GATEWAYS: u32 = 7010;
    /// What is left of their packets goes nowhere.
    pub(crate) const NOWHERE: u32 = 7020;
    /// Each probe's table, and what is left of its packets.
    pub(crate) const PROBES: u32 = 7100;
    pub(crate) const PROBED_NOWHERE: u32 = 7110;
    /// All of them.
    pub(crate) const OURS: std::ops::RangeInclusive<u32> = 7000..=7199;
}

impl Marks {
    /// Values that probes need; as many gateways are the most.
    pub(crate) const PROBES: u32 = 100;
    /// `0x00ff0000`
    pub(crate) const USUAL: Marks = Marks { mask: 0x00ff_0000 };

    fn most(self) -> u32 {
        self.mask >> self.mask.trailing_zeros()
    }

    /// The highest number that a gateway can have.
    pub(crate) fn most_gateways(self) -> u32 {
        self.most().saturating_sub(Self::PROBES).min(Self::PROBES)
    }

    /// The mark of gateway `number`.
    pub(crate) fn gateway(self, number: u32) -> u32 {
        number << self.mask.trailing_zeros() & self.mask
    }

    /// The mark of probe `number`, from 0.
    pub(crate) fn probe(self, number: u32) -> u32 {
        self.gateway(self.most() - number)
    }

    /// Which probe, from 0, has this mark; none where it is a gateway's.
    pub(crate) fn probe_of(self, mark: u32) -> Option<u32> {
        Some(self.most() - self.number(mark)).filter(|number| *number < Self::PROBES)
    }

    /// The number that a mark has in our bits; 0 is that of an unmarked packet.
    pub(crate) fn number(self, mark: u32) -> u32 {
        (mark & self.mask) >> self.mask.trailing_zeros()
    }

    /// The routing table of what carries `mark`.
    pub(crate) fn table(self, mark: u32) -> u32 {
        TABLES + self.number(mark)
    }
}

impl FromStr for Marks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).filter(|mask| *mask != 0);
        let mask = number.ok_or_else(|| format!("'{text}' is not a mask (0x00ff0000)"))?;
        let values = mask >> mask.trailing_zeros();
        if values & values.wrapping_add(1) != 0 {
            return Err(format!("the bits of {text} are not neighbours"));
        }
        if values < 0xff { Err(format!("{text} has fewer than 8 bits")) } else { Ok(Marks { mask }) }
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.mask)
    }
}

/// How much of the traffic a gateway should have beside the others' weights: a decimal number from 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Weight(pub(crate) f64);

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && number.is_sign_positive());
        number.map(Weight).ok_or_else(|| format!("'{text}' is not a weight (a number from 0)"))
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_an_address_and_may_be_on_an_interface() {
        for (text, subject) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1%eth0", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("2001:DB8::1", "2001:db8::1"),
        ] {
            assert_eq!(Gateway::at(text).unwrap().subject(), subject);
        }
        for wrong in ["", "gw", "192.0.2.1/24", "192.0.2.1:80", "0.0.0.0", "224.0.0.1", "fe80::1%", "127.0.0.1"] {
            assert!(Gateway::at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mask_is_of_neighbouring_bits_with_room() {
        for text in ["0x00ff0000", "0xff", "0xffffff00", "0xffffffff", "0x1fe"] {
            let marks: Marks = text.parse().unwrap();
            let most = marks.most_gateways();
            assert!(most == 100 && marks.number(marks.gateway(most)) == most, "{text}");
            let probes: Vec<u32> = (0..Marks::PROBES).map(|number| marks.probe(number)).collect();
            assert!(probes.iter().all(|mark| mark & !marks.mask == 0 && marks.number(*mark) > most), "{text}");
            assert!(probes.windows(2).all(|pair| pair[0] > pair[1]), "{text}");
            assert!(probes.iter().zip(0..).all(|(mark, number)| marks.probe_of(*mark) == Some(number)), "{text}");
            assert_eq!((marks.probe_of(marks.gateway(most)), marks.probe_of(0)), (None, None), "{text}");
        }
        assert_eq!(Marks::USUAL.to_string(), "0x00ff0000");
        assert_eq!((Marks::USUAL.gateway(3), Marks::USUAL.probe(0)), (0x0003_0000, 0x00ff_0000));
        assert_eq!((Marks::USUAL.table(0x7f03_1234), Marks::USUAL.table(Marks::USUAL.probe(0))), (7003, 7255));
        for wrong in ["0", "0x0", "0x00f0ff00", "0x7f", "ff0000", "0x1ffffffff", "", "0xgg"] {
            assert!(wrong.parse::<Marks>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_weight_is_a_number_from_0() {
        for (text, weight) in [("1", 1.0), ("0", 0.0), (".5", 0.5), ("1e-9", 1e-9)] {
            assert_eq!(text.parse::<Weight>().unwrap().0, weight, "{text}");
        }
        for wrong in ["", "-1", "-0", "nan", "inf", "1,5", "50%"] {
            assert!(wrong.parse::<Weight>().is_err(), "{wrong}");
        }
    }
}
