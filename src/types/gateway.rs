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
    fn a_weight_is_a_number_from_0() {
        for (text, weight) in [("1", 1.0), ("0", 0.0), (".5", 0.5), ("1e-9", 1e-9)] {
            assert_eq!(text.parse::<Weight>().unwrap().0, weight, "{text}");
        }
        for wrong in ["", "-1", "-0", "nan", "inf", "1,5", "50%"] {
            assert!(wrong.parse::<Weight>().is_err(), "{wrong}");
        }
    }
}
