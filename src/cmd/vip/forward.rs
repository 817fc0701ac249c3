//! Forwarding: a backup sends on to the master what reaches it for an address.
//!
//! First the table that keeps a packet from going to and fro, then the settings, then the route; the route
//! goes first.

use super::Present;
use super::settings::{Kept, Settings};
use crate::cli::{Exit, Failure, Reason};
use crate::decide::route::{difference, to_master};
use crate::decide::vip::Order;
use crate::record::Action;
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::netlink::RouteRequest;
use crate::sys::nft::{Heard, Monitor, Nft};
use crate::sys::sysctl;
use crate::types::link::{Link, OUR_PROTO};
use crate::types::net::Mac;
use crate::types::route::{MAIN, Route};
use crate::types::time::Tick;
use crate::wire::nft::forward::{self, Guard, Only};
use crate::wire::nft::table_name;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

const WHAT: &str = "forward";
/// IPv6 forwards on all interfaces or on none; no interface can be called so.
const ALL: &str = "all";
/// How long `nft` may take.
const LOAD: Duration = Duration::from_secs(5);
/// When it is looked again for the MAC of a master that was asked for it, and for how long it is told nobody
/// that there is none.
const ANSWER: Duration = Duration::from_millis(20);
const SILENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether all is as it should be.
const LOOK: Duration = Duration::from_secs(1);
/// MACs that are remembered.
const MANY: usize = 64;

/// An address whose packets are sent on.
#[derive(Debug)]
struct Target {
    order: Order,
    link: Link,
    master: IpAddr,
    /// The master's MAC: without it in the table there is no route.
    mac: Option<Mac>,
    since: Tick,
    /// The others were asked for their MACs.
    asked: bool,
    /// Its failure was told.
    told: bool,
}

/// What was done about one address.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) changed: bool,
    /// Where its packets are sent on to now.
    pub(super) via: Option<IpAddr>,
    pub(super) actions: Vec<Action>,
    pub(super) sysctls: Settings,
    pub(super) failure: Option<Failure>,
}

/// All addresses of a run whose packets are sent on.
pub(super) struct Forward {
    node: String,
    targets: BTreeMap<IpAddr, Target>,
    /// MACs of nodes that could send such packets on themselves, the newest last.
    members: Vec<Mac>,
    /// The tables as they were loaded; empty where an earlier run may have left one.
    loaded: BTreeMap<IpAddr, String>,
    /// Something is to be settled, or to be swept.
    stale: bool,
    unswept: bool,
    /// The last try failed.
    troubled: bool,
    looks: Option<Tick>,
    monitor: Option<Monitor>,
}

impl Forward {
    pub(super) fn new(node: &str, monitor: Option<Monitor>) -> Self {
        Forward {
            node: node.to_owned(),
            targets: BTreeMap::new(),
            members: Vec::new(),
            loaded: BTreeMap::new(),
            stale: false,
            unswept: false,
            troubled: false,
            looks: None,
            monitor,
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.monitor.as_ref().map(Monitor::as_fd)
    }

    /// Hears whether somebody has changed a table of ours.
    pub(super) fn hear(&mut self) -> Result<(), sys::Error> {
        let Some(monitor) = &mut self.monitor else { return Ok(()) };
        for heard in monitor.heard()? {
            for (vip, text) in &mut self.loaded {
                if heard == Heard::Overrun || heard == Heard::Table(table_name(*vip)) {
                    text.clear();
                    self.stale = true;
                }
            }
        }
        Ok(())
    }

    /// An earlier run may have left something of these.
    pub(super) fn doubt(&mut self, vips: &BTreeSet<IpAddr>, present: &Present) {
        if !vips.is_empty() && has_kept(present, &self.node) {
            for vip in vips {
                self.loaded.entry(*vip).or_default();
            }
            self.stale = true;
        }
    }

    /// Has the packets for an address sent on to `master`; they are from the next `settle` on.
    pub(super) fn aim(&mut self, order: &Order, link: Link, master: IpAddr, dry_run: bool) -> Result<(), Failure> {
        let vip = order.vip.addr;
        if !self.targets.contains_key(&vip) {
            Self::refuse_cluster_ip(vip, dry_run)?;
        }
        let (order, since) = (order.clone(), clock::boot());
        let target = Target { order, link, master, mac: None, since, asked: false, told: false };
        self.targets.insert(vip, target);
        self.stale = true;
        Ok(())
    }

    /// Takes in an order about an address that is sent on; says whether it is for the same master.
    pub(super) fn renew(&mut self, order: &Order, master: IpAddr) -> bool {
        let Some(target) = self.targets.get_mut(&order.vip.addr) else { return false };
        let same = target.master == master && target.order.dev == order.dev;
        if same {
            target.order = order.clone();
        }
        same
    }

    /// Undecided: who was master may still be.
    pub(super) fn hold(&mut self, order: &Order) {
        if let Some(target) = self.targets.get_mut(&order.vip.addr) {
            target.order.until = order.until;
        }
    }

    /// Sends nothing on any more for an address from the next `settle` on.
    pub(super) fn leave(&mut self, vip: IpAddr) {
        self.stale |= self.targets.remove(&vip).is_some();
    }

    /// The newest orders about what is sent on.
    pub(super) fn orders(&self) -> impl Iterator<Item = &Order> {
        self.targets.values().map(|target| &target.order)
    }

    /// All of it failed: the addresses that are concerned, and whether that is news.
    pub(super) fn failed(&mut self) -> (Vec<IpAddr>, bool) {
        (self.targets.keys().copied().collect(), !std::mem::replace(&mut self.troubled, true))
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Something of the kernel's has changed.
    pub(super) fn look(&mut self) {
        self.stale |= !self.targets.is_empty() || !self.loaded.is_empty();
    }

    /// Whether a master has not said its MAC yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.targets.values().any(|target| target.mac.is_none())
    }

    pub(super) fn due(&self) -> Option<Tick> {
        self.looks
    }

    /// Each bucket of a cluster IP has its own owner, and its tables have the same name.
    fn refuse_cluster_ip(vip: IpAddr, dry_run: bool) -> Result<(), Failure> {
        let nft = nft(vip)?;
        let family = crate::wire::nft::family(vip);
        match nft.list_text(&["table", family, &table_name(vip)], &vip.to_string()) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => {
                let why = format!(
                    "cannot send packets for {vip} on to a master: it is a cluster IP of this host (see: bucket show {vip})"
                );
                Err(Failure::new(Exit::No, Reason::Conflict, why))
            }
            // Who may not look may still ask what would be done.
            Err(_) if dry_run => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the kernel agree. Routes and tables of `named` addresses that are not sent on are gone
    /// afterwards; settings stay until `sweep`.
    pub(super) fn settle(
        &mut self,
        present: &mut Present,
        named: &BTreeSet<IpAddr>,
        dry_run: bool,
    ) -> Result<BTreeMap<IpAddr, Settled>, Failure> {
        let now = clock::boot();
        (self.stale, self.looks) = (false, None);
        if self.targets.is_empty() && self.loaded.is_empty() {
            return Ok(BTreeMap::new());
        }
        // A failure leaves the rest for the next look.
        self.looks = Some(now.after(LOOK));
        self.unswept = !dry_run;
        self.learn(present, dry_run)?;
        let plan = self.plan(present, named, dry_run)?;
        let mut settled = self.told(present, &plan);
        if !dry_run {
            self.carry_out(present, plan, &mut settled)?;
        }
        self.troubled = false;
        let waits = |target: &Target| target.mac.is_none() && now.since(target.since) < SILENCE;
        if self.targets.values().any(waits) {
            self.looks = Some(now.after(ANSWER));
        } else if self.targets.is_empty() {
            self.looks = None;
        }
        for (vip, target) in &mut self.targets {
            let one = settled.entry(*vip).or_default();
            if target.mac.is_none() && !dry_run {
                if now.since(target.since) >= SILENCE {
                    let (master, dev) = (target.master, &target.link.name);
                    let why = format!(
                        "cannot send packets for {vip} on to {master} on {dev}: it does not say its MAC (see: ip neigh show {master})"
                    );
                    one.failure = Some(Failure::new(Exit::Undecided, Reason::TimedOut, why));
                }
            } else if one.failure.is_none() {
                (one.via, target.told) = (Some(target.master), false);
            }
            // Tried again at each look, and told once.
            if one.failure.is_some() && std::mem::replace(&mut target.told, true) {
                one.failure = None;
            }
        }
        Ok(settled)
    }

    /// Looks for the MACs of masters and of all that could be one.
    fn learn(&mut self, present: &mut Present, dry_run: bool) -> Result<(), Failure> {
        let mut known: BTreeMap<u32, BTreeMap<IpAddr, Mac>> = BTreeMap::new();
        for target in self.targets.values_mut() {
            let ifindex = target.link.index;
            let neighbours = match known.entry(ifindex) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(present.netlink.neighbours(ifindex)?),
            };
            target.mac = neighbours.get(&target.master).copied();
            for member in target.order.members.iter().chain([&target.master]) {
                let is_asked = !dry_run && (!target.asked || *member == target.master);
                if let Some(mac) = neighbours.get(member) {
                    if !self.members.contains(mac) {
                        self.members.push(*mac);
                    }
                } else if is_asked {
                    // Refused where the address is not on this link; the route would be, too. One that is off
                    // is not asked again and again.
                    let _ = present.netlink.solicit(ifindex, *member)?;
                }
            }
            target.asked = true;
        }
        let more = self.members.len().saturating_sub(MANY);
        self.members.drain(..more);
        Ok(())
    }

    fn plan(&self, present: &mut Present, named: &BTreeSet<IpAddr>, dry_run: bool) -> Result<Plan, Failure> {
        let mut plan = Plan::default();
        let standing = host_routes(present)?;
        let is_ours = |route: &&Route| named.contains(&route.dst.addr) || self.targets.contains_key(&route.dst.addr);
        let ours: Vec<Route> = standing.iter().filter(is_ours).cloned().collect();
        let ready = self.targets.iter().filter(|(_, target)| target.mac.is_some() || dry_run);
        let wanted: Vec<(Route, &Link)> =
            ready.map(|(vip, target)| (to_master(*vip, target.master, target.link.index), &target.link)).collect();
        let routes: Vec<Route> = wanted.iter().map(|(route, _)| route.clone()).collect();
        (plan.gone, plan.new) = difference(&ours, &routes);
        // Those of other runs are let through too.
        let vips: BTreeSet<IpAddr> = standing.iter().chain(&routes).map(|route| route.dst.addr).collect();
        for (route, link) in wanted {
            let vip = route.dst.addr;
            let place = if vip.is_ipv4() { link.name.as_str() } else { ALL };
            let like = |other: &&IpAddr| other.is_ipv4() == vip.is_ipv4();
            let vips: Vec<IpAddr> = vips.iter().filter(like).copied().collect();
            let dev = vip.is_ipv4().then_some(link.name.as_str());
            let only = self.was_no_router(place)?.then_some(Only { dev, vips: &vips });
            plan.tables.insert(vip, forward::document(Guard { vip, members: &self.members, only }));
            plan.settings.insert(place.to_owned(), differing(present, place)?);
        }
        Ok(plan)
    }

    /// Whether packets are sent on there for our sake alone.
    fn was_no_router(&self, place: &str) -> Result<bool, Failure> {
        let own = forwarding(place);
        let kept = Kept { node: &self.node, what: WHAT, dev: place };
        let before = match kept.saved()?.remove(&own) {
            Some(before) => Some(before),
            None => sysctl::read(&own)?,
        };
        // What makes a host a router, a container engine for one, sets it for all interfaces.
        let became = place != ALL && sysctl::read("ipv4/conf/all/forwarding")?.as_deref() == Some("1");
        Ok(before.as_deref() == Some("0") && !became)
    }

    /// What will be done, for each address.
    fn told(&self, present: &Present, plan: &Plan) -> BTreeMap<IpAddr, Settled> {
        let mut settled: BTreeMap<IpAddr, Settled> = BTreeMap::new();
        let mut act = |vip: IpAddr, op: &'static str, text: String| {
            let one = settled.entry(vip).or_default();
            one.changed = true;
            one.actions.push(Action { op, text });
        };
        let ip = |vip: IpAddr| if vip.is_ipv4() { "ip" } else { "ip -6" };
        for route in &plan.gone {
            let vip = route.dst.addr;
            act(vip, "route-del", format!("{} route del {}", ip(vip), present.route_text(route)));
        }
        for (vip, text) in self.differing_tables(plan) {
            act(vip, "nft", text);
        }
        for (vip, target) in &self.targets {
            let place = if vip.is_ipv4() { target.link.name.as_str() } else { ALL };
            let settings = plan.settings.get(place).filter(|_| plan.tables.contains_key(vip));
            for (setting, value) in settings.into_iter().flatten() {
                act(*vip, "sysctl", format!("sysctl net.{}={value}", setting.replace('/', ".")));
            }
        }
        for route in &plan.new {
            let vip = route.dst.addr;
            act(vip, "route-add", format!("{} route add {}", ip(vip), present.route_text(route)));
        }
        for (vip, target) in &self.targets {
            let place = if vip.is_ipv4() { target.link.name.as_str() } else { ALL };
            if let (Some(one), Some(settings)) = (settled.get_mut(vip), plan.settings.get(place)) {
                one.sysctls = settings.iter().cloned().collect();
            }
        }
        settled
    }

    /// The tables that are to be made, made anew or taken away.
    fn differing_tables(&self, plan: &Plan) -> Vec<(IpAddr, String)> {
        let gone = self.loaded.keys().filter(|vip| !plan.tables.contains_key(vip));
        let gone = gone.map(|vip| (*vip, forward::removal(*vip)));
        let new = plan.tables.iter().filter(|(vip, text)| self.loaded.get(vip) != Some(text));
        gone.chain(new.map(|(vip, text)| (*vip, text.clone()))).collect()
    }

    fn carry_out(
        &mut self,
        present: &mut Present,
        plan: Plan,
        settled: &mut BTreeMap<IpAddr, Settled>,
    ) -> Result<(), Failure> {
        let is_moved = |route: &&Route| plan.new.iter().any(|other| other.dst == route.dst);
        let (moved, ended): (Vec<&Route>, Vec<&Route>) = plan.gone.iter().partition(is_moved);
        // One that is gone already is gone as it should be.
        let ended: Vec<RouteRequest> = ended.into_iter().cloned().map(RouteRequest::Delete).collect();
        let _ = present.netlink.change_routes(&ended)?;
        for (place, settings) in &plan.settings {
            let kept = Kept { node: &self.node, what: WHAT, dev: place };
            // The undo is on disk before anything is done; the file alone says that there may be a table.
            if !kept.is_there() || !settings.is_empty() {
                kept.remember(undone(present, place, settings).iter())?;
            }
        }
        let tables = self.differing_tables(&plan);
        if let Some((vip, _)) = tables.first() {
            let document: String = tables.iter().map(|(_, text)| text.as_str()).collect();
            nft(*vip)?.load(&document, "load the table of", &vip.to_string())?;
        }
        self.loaded = plan.tables;
        if let Some(monitor) = &mut self.monitor {
            // Our own changes are no news.
            monitor.heard()?;
        }
        for (setting, value) in plan.settings.into_values().flatten() {
            sysctl::write(&setting, &value)?;
        }
        let deletions = moved.len();
        let moved = moved.into_iter().cloned().map(RouteRequest::Delete);
        let requests: Vec<RouteRequest> = moved.chain(plan.new.iter().cloned().map(RouteRequest::Add)).collect();
        let outcomes = present.netlink.change_routes(&requests)?;
        for (route, outcome) in plan.new.iter().zip(outcomes.into_iter().skip(deletions)) {
            if let Err(refusal) = outcome {
                let doing = "add the route".to_owned();
                let one = settled.entry(route.dst.addr).or_default();
                one.changed = false;
                one.failure = Some(super::apply::refused(&refusal, doing, &present.route_text(route)));
            }
        }
        Ok(())
    }

    /// Puts the settings back where nothing is sent on any more.
    pub(super) fn sweep(&mut self, present: &mut Present) -> Result<(), Failure> {
        if !std::mem::take(&mut self.unswept) {
            return Ok(());
        }
        let needs = |place: &str| {
            self.targets
                .iter()
                .any(|(vip, target)| if vip.is_ipv4() { target.link.name == place } else { place == ALL })
        };
        sweep(present, &self.node, needs)
    }
}

/// What is to be done.
#[derive(Debug, Default)]
struct Plan {
    gone: Vec<Route>,
    new: Vec<Route>,
    tables: BTreeMap<IpAddr, String>,
    /// By place, in order: the interface for IPv4, all of them for IPv6.
    settings: BTreeMap<String, Vec<(String, String)>>,
}

/// The addresses that something is sent on for, by any run.
pub(super) fn sent_on(present: &mut Present) -> Result<BTreeSet<IpAddr>, Failure> {
    Ok(host_routes(present)?.into_iter().map(|route| route.dst.addr).collect())
}

/// Takes away what killed runs have left of these.
pub(super) fn clear(present: &mut Present, node: &str, vips: &BTreeSet<IpAddr>) -> Result<(), Failure> {
    let mut forward = Forward::new(node, None);
    forward.doubt(vips, present);
    forward.settle(present, vips, false)?;
    forward.sweep(present)
}

/// Puts settings back that killed runs have changed too, where nothing is sent on and nobody `needs` them.
fn sweep(present: &mut Present, node: &str, needs: impl Fn(&str) -> bool) -> Result<(), Failure> {
    if !has_kept(present, node) {
        return Ok(());
    }
    let routes = host_routes(present)?;
    for place in places(present) {
        let kept = Kept { node, what: WHAT, dev: place };
        let is_there = |route: &Route| {
            let dev = route.hops.first().and_then(|hop| present.link(hop.ifindex)).map(|link| link.name.as_str());
            if route.dst.addr.is_ipv4() { dev == Some(place) } else { place == ALL }
        };
        if kept.is_there() && !needs(place) && !routes.iter().any(is_there) {
            kept.put_back()?;
        }
    }
    Ok(())
}

fn places(present: &Present) -> impl Iterator<Item = &str> {
    present.links.iter().map(|link| link.name.as_str()).chain([ALL])
}

fn has_kept(present: &Present, node: &str) -> bool {
    places(present).any(|dev| Kept { node, what: WHAT, dev }.is_there())
}

/// Our routes to single addresses.
fn host_routes(present: &mut Present) -> Result<Vec<Route>, Failure> {
    let mut routes = present.netlink.routes(false, MAIN, Some(OUR_PROTO))?;
    routes.extend(present.netlink.routes(true, MAIN, Some(OUR_PROTO))?);
    routes.retain(Route::is_host);
    Ok(routes)
}

/// The setting that sends packets on.
fn forwarding(place: &str) -> String {
    format!("ipv{}/conf/{place}/forwarding", if place == ALL { 6 } else { 4 })
}

/// The settings that are not as they must be, in the order in which they are to be written.
fn differing(present: &Present, place: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut differing = Vec::new();
    let is = |setting: &str, value: &str| -> Result<bool, Failure> {
        Ok(sysctl::read(setting)?.is_some_and(|now| now == value))
    };
    let own = forwarding(place);
    if !is(&own, "0")? {
        return Ok(differing);
    }
    if place == ALL {
        // A router believes no other: the kernel would forget the default routes that it was told of.
        for dev in present.links.iter().map(|link| link.name.as_str()).chain(["default"]) {
            let accepts = format!("ipv6/conf/{dev}/accept_ra");
            if is(&accepts, "1")? && is(&format!("ipv6/conf/{dev}/forwarding"), "0")? {
                differing.push((accepts, "2".to_owned()));
            }
        }
    }
    differing.push((own, "1".to_owned()));
    Ok(differing)
}

/// What is kept before settings are written: for all interfaces together, also each one's own.
fn undone(present: &Present, place: &str, settings: &[(String, String)]) -> Vec<String> {
    let mut undone: Vec<String> = settings.iter().map(|(setting, _)| setting.clone()).collect();
    if place == ALL && !settings.is_empty() {
        let devs = present.links.iter().map(|link| link.name.as_str()).chain(["default"]);
        undone.extend(devs.map(|dev| format!("ipv6/conf/{dev}/forwarding")));
    }
    undone
}

fn nft(vip: IpAddr) -> Result<Nft, sys::Error> {
    Nft::find("guard packets for", &vip.to_string(), Deadline::after(LOAD))
}
