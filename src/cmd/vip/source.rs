//! The address as the source of what this host itself sends to other networks.

use super::Present;
use crate::cli::{Exit, Failure, Reason};
use crate::decide::route::{difference, foreign_half, from_vip, is_half};
use crate::record::Action;
use crate::sys::netlink::RouteRequest;
use crate::types::link::OUR_PROTO;
use crate::types::route::{MAIN, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What was done for one address.
#[derive(Debug, Default)]
pub(super) struct Sourced {
    pub(super) changed: bool,
    /// The routes that have it as source now.
    pub(super) routes: Vec<String>,
    pub(super) actions: Vec<Action>,
    pub(super) failure: Option<Failure>,
}

/// Makes the routes agree: the host sends from each of `wanted`, one of each family at most. Routes of other
/// addresses than these and `named` are another run's.
pub(super) fn settle(
    present: &mut Present,
    wanted: &[IpAddr],
    named: &BTreeSet<IpAddr>,
    dry_run: bool,
) -> Result<BTreeMap<IpAddr, Sourced>, Failure> {
    let mut all: BTreeMap<IpAddr, Sourced> = BTreeMap::new();
    for ipv6 in [false, true] {
        let vip = wanted.iter().copied().find(|vip| vip.is_ipv6() == ipv6);
        // Only who looks for the default route has to see them all.
        let routes = present.netlink.routes(ipv6, MAIN, vip.map_or(Some(OUR_PROTO), |_| None))?;
        let is_ours =
            |route: &&Route| is_half(route) && route.source.is_none_or(|own| Some(own) == vip || named.contains(&own));
        let ours: Vec<Route> = routes.iter().filter(is_ours).cloned().collect();
        let targets = vip.map_or_else(Vec::new, |vip| from_vip(&routes, vip));
        let (gone, new) = difference(&ours, &targets);
        let of = |route: &Route| route.source.or(vip);
        for (routes, verb) in [(&gone, "del"), (&new, "add")] {
            for route in routes {
                let text = format!("ip{} route {verb} {}", if ipv6 { " -6" } else { "" }, present.route_text(route));
                if let Some(vip) = of(route) {
                    let sourced = all.entry(vip).or_default();
                    sourced.changed = true;
                    sourced.actions.push(Action { op: if verb == "add" { "route-add" } else { "route-del" }, text });
                }
            }
        }
        let mut failure = vip.and_then(|vip| unable(vip, &routes, &targets));
        if !dry_run {
            let requests: Vec<RouteRequest> = gone
                .iter()
                .cloned()
                .map(RouteRequest::Delete)
                .chain(new.iter().cloned().map(RouteRequest::Add))
                .collect();
            let outcomes = present.netlink.change_routes(&requests)?;
            // What is gone already went with its address.
            let refused = outcomes.into_iter().skip(gone.len()).find_map(Result::err);
            failure = failure.or_else(|| {
                let route = new.first()?;
                Some(super::apply::refused(&refused?, "add a route to".to_owned(), &present.route_text(route)))
            });
        }
        if let Some(vip) = vip {
            let sourced = all.entry(vip).or_default();
            sourced.changed &= failure.is_none();
            sourced.routes = targets.iter().map(|route| present.route_text(route)).collect();
            sourced.failure = failure;
        }
    }
    Ok(all)
}

/// Why the host would not send from `vip` all the same.
fn unable(vip: IpAddr, routes: &[Route], targets: &[Route]) -> Option<Failure> {
    let family = if vip.is_ipv4() { 4 } else { 6 };
    let cannot = |why: String| {
        let sentence = format!("cannot make {vip} the source of this host's traffic: {why} (see: ip -{family} route)");
        Failure::new(Exit::No, Reason::Conflict, sentence)
    };
    if let Some(foreign) = foreign_half(routes, vip) {
        return Some(cannot(format!("a route to {} is there that is not ours", foreign.dst)));
    }
    targets.is_empty().then(|| cannot("the main table has no default route".to_owned()))
}
