//! Routes, as the kernel has them.

use super::link::OUR_PROTO;
use super::net::{Prefix, width};
use std::fmt::Write as _;
use std::net::IpAddr;

/// The table that is looked at unless a rule says otherwise (`RT_TABLE_MAIN`).
pub(crate) const MAIN: u32 = 254;
/// The kernel's own, asked first, for what is this host itself (`RT_TABLE_LOCAL`).
pub(crate) const LOCAL: u32 = 255;

/// A route of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The destinations; host bits are zero, and a length of 0 is the default route.
    pub(crate) dst: Prefix,
    pub(crate) table: u32,
    /// The lower one wins; an IPv6 route always has one.
    pub(crate) metric: u32,
    pub(crate) kind: RouteKind,
    /// The ways, several where the traffic is spread.
    pub(crate) hops: Vec<Hop>,
    /// The source of what this host itself sends by it (`RTA_PREFSRC`).
    pub(crate) source: Option<IpAddr>,
    /// Who added it (`RTA_PROTOCOL`).
    pub(crate) proto: u8,
}

/// One way of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The router; `None` where the destinations are on the link itself.
    pub(crate) via: Option<IpAddr>,
    pub(crate) ifindex: u32,
    /// Its share of the traffic, from 1.
    pub(crate) weight: u16,
    /// The router is on the link whatever the addresses say.
    pub(crate) onlink: bool,
}

/// What a route does with a packet (the kernel's `RTN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteKind(pub(crate) u8);

impl RouteKind {
    pub(crate) const UNICAST: RouteKind = RouteKind(1);
    /// It is for this host.
    pub(crate) const LOCAL: RouteKind = RouteKind(2);
    pub(crate) const BROADCAST: RouteKind = RouteKind(3);
    /// It is for this host, and others have it too.
    pub(crate) const ANYCAST: RouteKind = RouteKind(4);
}

impl Route {
    pub(crate) fn is_ours(&self) -> bool {
        self.proto == OUR_PROTO
    }

    /// As `ip route add` takes it; `dev` names interfaces.
    pub(crate) fn text<'a>(&self, dev: impl Fn(u32) -> Option<&'a str>) -> String {
        let way = |hop: &Hop| {
            let family = |via: IpAddr| if via.is_ipv4() == self.dst.addr.is_ipv4() { "" } else { "inet6 " };
            let via = hop.via.map_or_else(String::new, |via| format!(" via {}{via}", family(via)));
            let dev = dev(hop.ifindex).unwrap_or("?");
            format!("{via} dev {dev}{}", if hop.onlink { " onlink" } else { "" })
        };
        let mut text = if self.dst.len == 0 { "default".to_owned() } else { self.dst.to_string() };
        if let [hop] = self.hops.as_slice() {
            text += &way(hop);
        }
        if self.table != MAIN {
            let _ = write!(text, " table {}", self.table);
        }
        let _ = write!(text, " proto {}", self.proto);
        if self.metric > 0 {
            let _ = write!(text, " metric {}", self.metric);
        }
        if let Some(source) = self.source {
            let _ = write!(text, " src {source}");
        }
        for hop in self.hops.iter().filter(|_| self.hops.len() > 1) {
            let _ = write!(text, " nexthop{} weight {}", way(hop), hop.weight);
        }
        text
    }

    /// Whether it is for one address alone.
    pub(crate) fn is_host(&self) -> bool {
        self.dst.len == width(self.dst.addr)
    }
}
