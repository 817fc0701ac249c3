//! Routes of virtual addresses, on to the master and as the source of what this host sends; and those by which
//! a gateway's flows leave.

use crate::types::link::OUR_PROTO;
use crate::types::net::Prefix;
use crate::types::route::{Hop, MAIN, Route, RouteKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The metric that the kernel gives an IPv6 route without one; of IPv4 ones 0 is the best.
const METRIC: u32 = 1024;

/// The route by which a backup sends on what reaches it for `vip`.
pub(crate) fn to_master(vip: IpAddr, master: IpAddr, ifindex: u32) -> Route {
    Route {
        dst: Prefix::host(vip),
        table: MAIN,
        metric: if vip.is_ipv4() { 0 } else { METRIC },
        kind: RouteKind::UNICAST,
        hops: vec![Hop { via: Some(master), ifindex, weight: 1, onlink: false }],
        source: None,
        proto: OUR_PROTO,
    }
}

/// The default route of a gateway's own table.
pub(crate) fn by_gateway(via: IpAddr, ifindex: u32, onlink: bool, table: u32) -> Route {
    let addr = if via.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    Route {
        dst: Prefix { addr, len: 0 },
        table,
        hops: vec![Hop { via: Some(via), ifindex, weight: 1, onlink }],
        ..to_master(via, via, ifindex)
    }
}

/// The routes that make `vip` the source of what this host sends to other networks; none without a
/// default route.
///
/// The two halves of all destinations go the way of the default route, which stays as it is: when the
/// address goes, for whatever reason, the kernel takes IPv4 routes with that source along, and a replaced
/// default route would be lost. They are worse than the halves of others (a VPN's have no metric).
pub(crate) fn from_vip(routes: &[Route], vip: IpAddr) -> Vec<Route> {
    let is_default = |route: &&Route| {
        let same_family = route.dst.addr.is_ipv4() == vip.is_ipv4();
        same_family && route.dst.len == 0 && route.table == MAIN && route.kind == RouteKind::UNICAST
    };
    let Some(default) = routes.iter().filter(is_default).min_by_key(|route| route.metric) else { return Vec::new() };
    let half = |dst| Route { dst, metric: METRIC, source: Some(vip), proto: OUR_PROTO, ..default.clone() };
    halves(vip.is_ipv4()).map(half).to_vec()
}

/// Whether a route is one that `from_vip` has made. IPv6 ones outlive their address, without a source.
pub(crate) fn is_half(route: &Route) -> bool {
    route.is_ours() && route.table == MAIN && halves(route.dst.addr.is_ipv4()).contains(&route.dst)
}

/// Another's route for a half, which wins.
pub(crate) fn foreign_half(routes: &[Route], vip: IpAddr) -> Option<&Route> {
    let halves = halves(vip.is_ipv4());
    routes
        .iter()
        .find(|route| !route.is_ours() && route.table == MAIN && route.metric <= METRIC && halves.contains(&route.dst))
}

fn halves(ipv4: bool) -> [Prefix; 2] {
    let (low, high): (IpAddr, IpAddr) = if ipv4 {
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(128, 0, 0, 0).into())
    } else {
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0).into())
    };
    [low, high].map(|addr| Prefix { addr, len: 1 })
}

/// What is to be deleted and what is to be added so that of ours there is what is wanted, in this order.
pub(crate) fn difference(ours: &[Route], wanted: &[Route]) -> (Vec<Route>, Vec<Route>) {
    let missing = |from: &[Route], other: &[Route]| -> Vec<Route> {
        from.iter().filter(|route| !other.contains(route)).cloned().collect()
    };
    (missing(ours, wanted), missing(wanted, ours))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn default(via: &str, metric: u32) -> Route {
        let via: IpAddr = via.parse().unwrap();
        let dst = if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let hops = vec![Hop { via: Some(via), ifindex: 2, weight: 1, onlink: false }];
        let dst = dst.parse().unwrap();
        Route { dst, table: MAIN, metric, kind: RouteKind::UNICAST, hops, source: None, proto: 3 }
    }

    #[test]
    fn the_halves_go_the_way_of_the_best_default_route() {
        let routes = [default("192.0.2.254", 100), default("192.0.2.253", 50), default("fe80::1", 1024)];
        for (vip, via, dsts) in [
            ("192.0.2.10", "192.0.2.253", ["0.0.0.0/1", "128.0.0.0/1"]),
            ("2001:db8::10", "fe80::1", ["::/1", "8000::/1"]),
        ] {
            let vip: IpAddr = vip.parse().unwrap();
            let halves = from_vip(&routes, vip);
            let found: Vec<String> = halves.iter().map(|half| half.dst.to_string()).collect();
            assert_eq!(found, dsts);
            assert!(halves.iter().all(|half| half.source == Some(vip) && is_half(half) && half.metric == METRIC));
            assert!(halves.iter().all(|half| half.hops[0].via == Some(via.parse().unwrap())));
        }
        assert!(from_vip(&routes[2..], "192.0.2.10".parse().unwrap()).is_empty());
        let elsewhere = [Route { table: 7001, ..default("192.0.2.254", 0) }];
        assert!(from_vip(&elsewhere, "192.0.2.10".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_vpn_has_the_halves_before_us() {
        let vip: IpAddr = "192.0.2.10".parse().unwrap();
        let vpn = Route { dst: "128.0.0.0/1".parse().unwrap(), ..default("10.8.0.1", 0) };
        assert_eq!(foreign_half(std::slice::from_ref(&vpn), vip), Some(&vpn));
        assert_eq!(foreign_half(&[Route { proto: OUR_PROTO, ..vpn.clone() }], vip), None);
        assert_eq!(foreign_half(&[Route { metric: 2000, ..vpn }], vip), None);
    }

    #[test]
    fn a_route_that_changed_is_deleted_and_added() {
        let vip = "192.0.2.10".parse().unwrap();
        let (old, new) = (to_master(vip, [192, 0, 2, 1].into(), 2), to_master(vip, [192, 0, 2, 2].into(), 2));
        let both = |old: &Route, new: &Route| difference(std::slice::from_ref(old), std::slice::from_ref(new));
        assert_eq!(both(&old, &new), (vec![old.clone()], vec![new.clone()]));
        assert_eq!(both(&old, &old), (vec![], vec![]));
    }
}
