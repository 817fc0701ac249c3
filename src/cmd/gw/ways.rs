//! The ways of probes: for each gateway a mark, two rules that ask for it, and a table with one route.
//!
//! The rule that lets a marked packet go nowhere comes before the one that looks the table up, and that
//! before the route; they go in the other order. So at no moment can a probe leave by the main table, and
//! what a killed run has left is found by its rules.

use crate::cli::{Exit, Failure, Reason};
use crate::record::Action;
use crate::sys::Error;
use crate::sys::netlink::{Answered, Netlink, Packet, Refusal, RouteRequest, RuleRequest};
use crate::sys::state::Lock;
use crate::sys::sysctl;
use crate::types::gateway::{Marks, Method, priority};
use crate::types::link::{Link, OUR_PROTO};
use crate::types::net::Prefix;
use crate::types::route::{Hop, LOCAL, Route, RouteKind};
use crate::types::rule::{Marked, Rule, RuleAction};
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The metric that the kernel gives an IPv6 route without one.
const METRIC: u32 = 1024;

/// The way through one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) mark: u32,
    pub(super) route: Route,
    rules: [Rule; 2],
}

impl Way {
    /// The way of probe `number`.
    pub(super) fn new(marks: Marks, number: u32, gateway: IpAddr, ifindex: u32, onlink: bool) -> Self {
        let (mark, ipv6) = (marks.probe(number), gateway.is_ipv6());
        let (table, proto) = (marks.table(mark), OUR_PROTO);
        let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let rule = |priority, action| Rule {
            ipv6,
            priority,
            mark: Some(Marked { mark, mask: marks.mask, not: false }),
            action,
            proto,
            asks_more: false,
            more: None,
            source_ports: None,
        };
        Way {
            mark,
            route: Route {
                dst: Prefix { addr: any, len: 0 },
                table,
                metric: if ipv6 { METRIC } else { 0 },
                kind: RouteKind::UNICAST,
                hops: vec![Hop { via: Some(gateway), ifindex, weight: 1, onlink }],
                source: None,
                proto,
            },
            rules: [
                rule(priority::PROBED_NOWHERE, RuleAction::Unreachable),
                rule(priority::PROBES, RuleAction::Look { table, suppress: None }),
            ],
        }
    }

    /// What makes it, as ip would say it.
    pub(super) fn actions(&self, links: &[Link]) -> Vec<Action> {
        let ip = ip(self.is_ipv6());
        let rule = |rule: &Rule| Action { op: "rule-add", text: format!("{ip} rule add {rule}") };
        let route = format!("{ip} route add {}", route_text(&self.route, links));
        self.rules.iter().map(rule).chain([Action { op: "route-add", text: route }]).collect()
    }

    fn is_ipv6(&self) -> bool {
        self.route.dst.addr.is_ipv6()
    }

    /// Whether what asks `to` by `method`, and carries the mark, leaves by another way than this gateway, as the
    /// kernel would send it now. A rule that is asked before ours may look at more than the mark: a connection has a
    /// source and ports, an echo is sent before it has a source.
    ///
    /// `source_ports` are those that rules ask for.
    pub(super) fn astray(
        &self,
        netlink: &mut Netlink,
        method: Method,
        to: SocketAddr,
        source_ports: &[u16],
    ) -> Result<Option<Astray>, Error> {
        let connects = method != Method::Icmp;
        let protocol = match (connects, to.ip()) {
            (true, _) => libc::IPPROTO_TCP,
            (false, IpAddr::V4(_)) => libc::IPPROTO_ICMP,
            (false, IpAddr::V6(_)) => libc::IPPROTO_ICMPV6,
        };
        let mut packet = Packet {
            to: to.ip(),
            mark: self.mark,
            source: None,
            protocol: u8::try_from(protocol).ok(),
            source_port: None,
            port: connects.then_some(to.port()),
        };
        let there = netlink.way_of(&packet, Answered::Hop)?;
        let source = there.as_ref().ok().and_then(|there| there.source);
        let mut led = self.led(netlink, &packet, &there)?;
        if connects && let Some(source) = source {
            // The kernel looks again with the source that the first look gave it, and for IPv4 goes by that.
            packet.source = Some(source);
            let sourced = netlink.way_of(&packet, Answered::Hop)?;
            let again = self.led(netlink, &packet, &sourced)?;
            led = if to.is_ipv4() { again } else { led.or(again) };
            for port in source_ports {
                packet.source_port = Some(*port);
                let ported = netlink.way_of(&packet, Answered::Hop)?;
                led = led.or(self.led(netlink, &packet, &ported)?);
            }
        }
        Ok(led)
    }

    /// Where this answer leads, if not by the gateway. Another table that has it as its one way does no harm.
    fn led(
        &self,
        netlink: &mut Netlink,
        packet: &Packet,
        there: &Result<Route, Refusal>,
    ) -> Result<Option<Astray>, Error> {
        let own = |route: &Route| match (route.hops.as_slice(), self.route.hops.as_slice()) {
            ([hop], [own]) => (hop.via, hop.ifindex) == (own.via, own.ifindex),
            _ => false,
        };
        let Ok(there) = there else { return Ok(Some(Astray::Nowhere)) };
        let is_own_table = there.table == self.route.table;
        if own(there) && is_own_table {
            return Ok(None);
        }
        let whole = netlink.way_of(packet, Answered::Route)?;
        let is_own = whole.is_ok_and(|whole| own(&whole));
        Ok(match there.hops.first().and_then(|hop| hop.via) {
            _ if is_own && own(there) => None,
            Some(via) if is_own => Some(Astray::Redirected(via)),
            _ if there.kind == RouteKind::UNICAST => Some(Astray::Table(there.table)),
            _ => Some(Astray::Nowhere),
        })
    }
}

/// Whether a rule of another, that may take what carries the mark, is asked before those of probes. What is this
/// host itself no target is.
pub(super) fn is_before(rule: &Rule, mark: u32) -> bool {
    let is_local = matches!(rule.action, RuleAction::Look { table: LOCAL, .. });
    !rule.is_ours() && !is_local && rule.priority < priority::PROBED_NOWHERE && rule.takes(mark)
}

/// Where what was meant for a gateway is led instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Astray {
    /// A router has said that another one is nearer.
    Redirected(IpAddr),
    /// By this table.
    Table(u32),
    /// It does not leave.
    Nowhere,
}

impl Astray {
    /// The rule that does so, as far as can be told: the first before ours that leads there.
    pub(super) fn by(self, rules: &[Rule], ipv6: bool, mark: u32) -> Option<&Rule> {
        let leads = |rule: &&Rule| match (self, rule.action) {
            (Astray::Table(table), RuleAction::Look { table: looked, .. }) => table == looked,
            (Astray::Table(_) | Astray::Redirected(_), _) => false,
            (Astray::Nowhere, action) => !matches!(action, RuleAction::Look { .. }),
        };
        rules.iter().filter(|rule| rule.ipv6 == ipv6 && is_before(rule, mark)).find(leads)
    }
}

/// Of each range of source ports that rules of others ask for, one that a connection of this host can have.
pub(super) fn source_ports(rules: &[Rule]) -> Result<Vec<u16>, Error> {
    let ranges: Vec<(u16, u16)> = rules.iter().filter_map(|rule| rule.source_ports).collect();
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let given = sysctl::read("ipv4/ip_local_port_range")?.unwrap_or_default();
    let mut ends = given.split_whitespace().map(|word| word.parse().ok());
    let (low, high) = (ends.next().flatten().unwrap_or(1), ends.next().flatten().unwrap_or(u16::MAX));
    Ok(ranges
        .into_iter()
        .map(|(first, last)| (first.max(low), last.min(high)))
        .filter(|(a, b)| a <= b)
        .map(|(a, _)| a)
        .collect())
}

/// What was done to the kernel, for each of the ways that were wanted, in order.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) failures: Vec<Option<Failure>>,
    pub(super) actions: Vec<Vec<Action>>,
    /// What was removed, of this run's and of others that were killed, and the table that it was about.
    pub(super) removed: Vec<(u32, Action)>,
    /// What could not be removed.
    pub(super) left: Vec<Failure>,
}

/// All ways of a run, and its marks.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// The marks that no other run may use, by number, for as long as this one lives.
    held: BTreeMap<u32, Lock>,
    /// Which gateway has which.
    numbers: BTreeMap<String, u32>,
    /// Tables where something of this run may stand.
    tables: BTreeSet<(bool, u32)>,
}

impl Ways {
    /// The number of a gateway: that which it has, else the lowest that nobody uses; none where all are in use.
    ///
    /// # Errors
    /// The locks cannot be opened.
    pub(super) fn number(&mut self, subject: &str) -> Result<Option<u32>, Error> {
        if let Some(number) = self.numbers.get(subject) {
            return Ok(Some(*number));
        }
        for number in 0..Marks::PROBES {
            if self.numbers.values().any(|taken| *taken == number) {
                continue;
            }
            if let Entry::Vacant(entry) = self.held.entry(number) {
                let Some(lock) = lock(number)? else { continue };
                entry.insert(lock);
            }
            self.numbers.insert(subject.to_owned(), number);
            return Ok(Some(number));
        }
        Ok(None)
    }

    /// Forgets the gateways that are no more; their marks stay this run's until its end.
    pub(super) fn keep(&mut self, subjects: &[String]) {
        self.numbers.retain(|subject, _| subjects.contains(subject));
    }

    /// Makes the kernel agree: of the marks of this run, and of those that killed ones have left, there is
    /// what is wanted and nothing else.
    ///
    /// # Errors
    /// The kernel cannot be asked; what it refuses stands in the result.
    pub(super) fn agree(&mut self, netlink: &mut Netlink, links: &[Link], wanted: &[Way]) -> Result<Agreed, Error> {
        let mut agreed = Agreed {
            failures: wanted.iter().map(|_| None).collect(),
            actions: wanted.iter().map(|_| Vec::new()).collect(),
            ..Agreed::default()
        };
        // A run that lives holds its marks; whoever has one of these is not one of them.
        let mut orphans: BTreeMap<u32, Option<Lock>> = BTreeMap::new();
        let mut new_rules: Vec<(usize, &Rule)> =
            (0..2).flat_map(|at| wanted.iter().enumerate().map(move |(idx, way)| (idx, &way.rules[at]))).collect();
        let mut gone_rules = Vec::new();
        let mut tables = std::mem::take(&mut self.tables);
        for rule in netlink.rules(false)?.into_iter().chain(netlink.rules(true)?).filter(is_probe) {
            if let Some(at) = new_rules.iter().position(|(_, new)| **new == rule) {
                new_rules.swap_remove(at);
                continue;
            }
            let Some(number) = marks_of(&rule).and_then(|(marks, mark)| marks.probe_of(mark)) else { continue };
            if !self.held.contains_key(&number) {
                let orphan = match orphans.entry(number) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(lock(number).unwrap_or_else(|error| {
                        agreed.left.push(error.into());
                        None
                    })),
                };
                if orphan.is_none() {
                    continue;
                }
            }
            if let RuleAction::Look { table, .. } = rule.action {
                tables.insert((rule.ipv6, table));
            }
            gone_rules.push(rule);
        }
        // Taking one out has changed the order.
        new_rules.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.priority));
        let own: BTreeSet<(bool, u32)> = wanted.iter().map(|way| (way.is_ipv6(), way.route.table)).collect();
        let mut new_routes: Vec<(usize, &Route)> = wanted.iter().map(|way| &way.route).enumerate().collect();
        let mut gone_routes = Vec::new();
        for (ipv6, table) in tables.union(&own) {
            for route in netlink.routes(*ipv6, *table, Some(OUR_PROTO))? {
                match new_routes.iter().position(|(_, new)| **new == route) {
                    Some(at) => drop(new_routes.remove(at)),
                    None => gone_routes.push(route),
                }
            }
        }
        self.tables = own;
        agreed.remove(netlink, links, &gone_routes, &gone_rules)?;
        agreed.add(netlink, links, &new_rules, &new_routes)?;
        Ok(agreed)
    }
}

impl Agreed {
    fn remove(&mut self, netlink: &mut Netlink, links: &[Link], routes: &[Route], rules: &[Rule]) -> Result<(), Error> {
        let requests: Vec<RouteRequest> = routes.iter().cloned().map(RouteRequest::Delete).collect();
        let outcomes = netlink.change_routes(&requests)?;
        for (route, outcome) in routes.iter().zip(outcomes) {
            let text = route_text(route, links);
            self.note_removal("route", ip(route.dst.addr.is_ipv6()), route.table, &text, outcome);
        }
        let requests: Vec<RuleRequest> = rules.iter().cloned().map(RuleRequest::Delete).collect();
        let outcomes = netlink.change_rules(&requests)?;
        for (rule, outcome) in rules.iter().zip(outcomes) {
            let table = marks_of(rule).map_or(0, |(marks, mark)| marks.table(mark));
            self.note_removal("rule", ip(rule.ipv6), table, &rule.to_string(), outcome);
        }
        Ok(())
    }

    fn add(
        &mut self,
        netlink: &mut Netlink,
        links: &[Link],
        rules: &[(usize, &Rule)],
        routes: &[(usize, &Route)],
    ) -> Result<(), Error> {
        let requests: Vec<RuleRequest> = rules.iter().map(|(_, rule)| RuleRequest::Add((*rule).clone())).collect();
        let outcomes = netlink.change_rules(&requests)?;
        for ((idx, rule), outcome) in rules.iter().zip(outcomes) {
            self.note(*idx, "rule", ip(rule.ipv6), rule.to_string(), outcome);
        }
        let requests: Vec<RouteRequest> = routes.iter().map(|(_, route)| RouteRequest::Add((*route).clone())).collect();
        let outcomes = netlink.change_routes(&requests)?;
        for ((idx, route), outcome) in routes.iter().zip(outcomes) {
            self.note(*idx, "route", ip(route.dst.addr.is_ipv6()), route_text(route, links), outcome);
        }
        Ok(())
    }

    fn note(&mut self, idx: usize, what: &'static str, ip: &str, text: String, outcome: Result<(), Refusal>) {
        if let Err(Refusal { errno, said }) = outcome {
            let error = Error::Call { doing: format!("add the {what}"), object: text, errno, said };
            if let Some(failure) = self.failures.get_mut(idx) {
                failure.get_or_insert(error.into());
            }
        } else if let Some(actions) = self.actions.get_mut(idx) {
            let op = if what == "rule" { "rule-add" } else { "route-add" };
            actions.push(Action { op, text: format!("{ip} {what} add {text}") });
        }
    }

    fn note_removal(&mut self, what: &'static str, ip: &str, table: u32, text: &str, outcome: Result<(), Refusal>) {
        match outcome {
            Ok(()) => {
                let op = if what == "rule" { "rule-del" } else { "route-del" };
                self.removed.push((table, Action { op, text: format!("{ip} {what} del {text}") }));
            }
            // A route goes with its interface, and somebody else may have been tidy.
            Err(Refusal { errno: Errno::ESRCH | Errno::ENOENT, .. }) => {}
            Err(Refusal { errno, said }) => {
                let error = Error::Call { doing: format!("remove the {what}"), object: text.to_owned(), errno, said };
                self.left.push(error.into());
            }
        }
    }
}

fn lock(number: u32) -> Result<Option<Lock>, Error> {
    Lock::try_take(&format!("gw.probe.{number}"))
}

fn is_probe(rule: &Rule) -> bool {
    rule.is_ours() && [priority::PROBES, priority::PROBED_NOWHERE].contains(&rule.priority)
}

/// The mark that a rule asks for, and the mask that it was made with.
fn marks_of(rule: &Rule) -> Option<(Marks, u32)> {
    let marked = rule.mark.filter(|marked| !marked.not)?;
    let marks: Marks = format!("{:#x}", marked.mask).parse().ok()?;
    Some((marks, marked.mark))
}

fn ip(ipv6: bool) -> &'static str {
    if ipv6 { "ip -6" } else { "ip" }
}

fn route_text(route: &Route, links: &[Link]) -> String {
    route.text(|ifindex| links.iter().find(|link| link.index == ifindex).map(|link| link.name.as_str()))
}

/// Where a gateway is.
#[derive(Debug)]
pub(super) enum Place<'a> {
    On {
        link: &'a Link,
        onlink: bool,
    },
    /// Its interface is down: no way leads through it, which is an answer.
    Down(&'a Link),
}

/// Finds the interface that a gateway is behind: the one that was named, else the one of its network.
///
/// # Errors
/// There is none.
pub(super) fn place<'a>(
    netlink: &mut Netlink,
    links: &'a [Link],
    gateway: IpAddr,
    dev: Option<&str>,
) -> Result<Place<'a>, Failure> {
    if let Some(dev) = dev {
        let link = links.iter().find(|link| link.is_called(dev));
        let link = link.ok_or_else(|| Error::no_interface(format!("probe {gateway} by"), dev))?;
        return Ok(if link.up { Place::On { link, onlink: true } } else { Place::Down(link) });
    }
    if matches!(gateway, IpAddr::V6(addr) if addr.is_unicast_link_local()) {
        let why = format!("cannot probe {gateway}: each link may have it (name the interface: {gateway}%eth0)");
        return Err(Failure::input(why));
    }
    let way = netlink.way_to(gateway, 0)?.ok();
    if let Some(Route { kind: RouteKind::UNICAST, hops, .. }) = &way
        && let [Hop { via: None, ifindex, .. }] = hops.as_slice()
        && let Some(link) = links.iter().find(|link| link.index == *ifindex)
    {
        return Ok(Place::On { link, onlink: false });
    }
    if way.is_some_and(|way| way.kind == RouteKind::LOCAL) {
        return Err(Failure::input(format!("cannot probe {gateway}: it is an address of this host, and no gateway")));
    }
    // The route to its network goes with the interface, of IPv4 not the address.
    let addresses = netlink.addresses(None)?;
    let down = addresses
        .iter()
        .filter(|address| address.prefix.contains(gateway))
        .find_map(|address| links.iter().find(|link| link.index == address.ifindex && !link.up));
    down.map(Place::Down).ok_or_else(|| {
        let why = format!("cannot probe {gateway}: it is on no link of this host (name its interface: dev=DEV)");
        Failure::new(Exit::Missing, Reason::NoSuchInterface, why)
    })
}

/// The addresses that no gateway leads to: this host itself, and those of many.
#[derive(Debug)]
pub(super) struct Own {
    single: BTreeMap<IpAddr, RouteKind>,
    networks: Vec<Prefix>,
}

impl Own {
    pub(super) fn look(netlink: &mut Netlink, ipv6: bool) -> Result<Self, Error> {
        let mut own = Own { single: BTreeMap::new(), networks: Vec::new() };
        for route in netlink.routes(ipv6, LOCAL, None)? {
            match route.kind {
                RouteKind::LOCAL if !route.is_host() => own.networks.push(route.dst),
                RouteKind::LOCAL | RouteKind::BROADCAST | RouteKind::ANYCAST => {
                    own.single.entry(route.dst.addr).or_insert(route.kind);
                }
                _ => {}
            }
        }
        Ok(own)
    }

    /// Why nobody behind a gateway answers for this address; none where somebody may.
    pub(super) fn objection(&self, addr: IpAddr) -> Option<&'static str> {
        let kind = self.single.get(&addr);
        if addr.is_unspecified() {
            Some("it is no host's address")
        } else if addr.is_multicast() {
            Some("it is the address of a group, and no gateway leads there")
        } else if addr == IpAddr::V4(Ipv4Addr::BROADCAST) || kind == Some(&RouteKind::BROADCAST) {
            Some("it is the address of all on a link, and no gateway leads there")
        } else if kind.is_some() || self.networks.iter().any(|network| network.contains(addr)) {
            Some("it is an address of this host, which answers itself")
        } else {
            None
        }
    }
}
