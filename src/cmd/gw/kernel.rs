//! What `apply` and `clear` know and change: routes, rules, and the tables of splits.

use super::flush::flush;
use super::report::totals;
use crate::cli::args::Changing;
use crate::cli::{Exit, Failure, Process, Reason};
use crate::cmd::memory::Memory;
use crate::decide::gw::{len, recut_to_nearest};
use crate::decide::gw_rules::{self, conflict, is_of_gateways, of_gateway};
use crate::decide::route::{by_gateway, difference};
use crate::record::gw_apply::{Applied, Left, Loaded, Plan, Planned};
use crate::record::{Action, Head};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::netlink::{Netlink, Refusal, RouteRequest, RuleRequest};
use crate::sys::nft::{self, Nft};
use crate::sys::privilege::{self, Capability};
use crate::sys::state::{Lock, file_name, folder};
use crate::types::gateway::Marks;
use crate::types::link::{Link, OUR_PROTO};
use crate::types::net::Mac;
use crate::types::route::{Route, RouteKind};
use crate::types::rule::Rule;
use crate::wire::nft::gateway::{self, By, Flows, Gate, Origin, Sender, Split, Told, table_name};
use crate::wire::nft::{list, marks};
use nix::errno::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// How long a gateway has to say its MAC, and how often it is looked for that.
const ANSWER: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);
/// How often a table is loaded that another program takes away at once.
const TRIES: u32 = 3;
/// All splits share rules and tables.
const LOCK: &str = "gw";

/// How plans are carried out.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) by: By,
    pub(super) flows: Flows,
    pub(super) flush_dead: bool,
    pub(super) changing: Changing,
}

/// What was done about one plan.
pub(super) struct Done {
    pub(super) head: Head,
    pub(super) applied: Applied,
    pub(super) exit: Exit,
    /// What the plan has and this host has not: others serve for it.
    pub(super) missing: Option<Failure>,
}

/// The ways to the kernel.
pub(super) struct Kernel {
    pub(super) nft: Nft,
    pub(super) netlink: Netlink,
    pub(super) links: Vec<Link>,
}

/// A gateway, and how it is reached.
struct Way {
    gate: Gate,
    via: IpAddr,
    /// The interface, and whether the gateway is on no network of it; why not while it cannot be reached.
    hop: Result<(u32, bool), Failure>,
}

/// What is to be done about routes and rules.
#[derive(Default)]
struct Changes {
    routes_new: Vec<Route>,
    /// Of gateways of the plan, before new ones are added.
    routes_old: Vec<Route>,
    rules_new: Vec<Rule>,
    rules_gone: Vec<Rule>,
    /// Of gateways that have left.
    routes_gone: Vec<Route>,
    /// Their numbers.
    left: BTreeSet<u32>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.routes_new.is_empty() && self.rules_new.is_empty() && !self.takes_away()
    }

    fn takes_away(&self) -> bool {
        !(self.routes_old.is_empty() && self.routes_gone.is_empty() && self.rules_gone.is_empty())
    }
}

/// Where what stands of a split is remembered.
pub(super) fn memory(name: &str, process: &Process) -> Memory {
    let file = format!("gw-apply-{}-{}.json", process.node, file_name(name));
    Memory::new(folder().join(file), "gw-apply", process)
}

/// Keeps two runs apart.
pub(super) fn lock(changing: Changing, deadline: Deadline) -> Result<Option<Lock>, Failure> {
    if changing.dry_run {
        return Ok(None);
    }
    let lock = Lock::take(&[LOCK], deadline)?;
    // The nft of a run that was killed may be at work still.
    lock.hand_down()?;
    Ok(Some(lock))
}

/// Which rule set it is: its generation, and the network namespace that it is of.
type RuleSet = (u32, u64);

/// `None` where namespaces cannot be told apart: one that is made anew counts from 1 again.
fn rule_set() -> Result<Option<RuleSet>, Failure> {
    let (generation, namespace) = nft::generation()?;
    Ok(namespace.map(|namespace| (generation, namespace)))
}

fn conflicts(why: String) -> Failure {
    Failure::new(Exit::No, Reason::Conflict, why)
}

fn refused(refusal: &Refusal, doing: &str, object: String) -> Failure {
    sys::Error::Call { doing: doing.to_owned(), object, errno: refusal.errno, said: refusal.said.clone() }.into()
}

impl Kernel {
    pub(super) fn open(doing: &str, deadline: Deadline) -> Result<Self, Failure> {
        privilege::need(Capability::NetAdmin, doing, "this host")?;
        let nft = Nft::find(doing, "this host", deadline)?;
        Ok(Kernel { nft, netlink: Netlink::open()?, links: Vec::new() })
    }

    pub(super) fn route_text(&self, route: &Route) -> String {
        route.text(|ifindex| self.links.iter().find(|link| link.index == ifindex).map(|link| link.name.as_str()))
    }

    /// Carries a plan out.
    pub(super) fn carry_out(
        &mut self,
        plan: &Plan,
        how: &How,
        process: &Process,
        deadline: Deadline,
    ) -> Result<Done, Failure> {
        let _lock = lock(how.changing, deadline)?;
        self.nft = self.nft.until(deadline);
        let mut head = Head::new("gw.apply").about(&plan.name);
        head.dry_run = how.changing.dry_run;
        head.changed = Some(false);
        let mut applied = Applied { by: how.by.as_str(), gateways: plan.served(), flushed: 0, removed: Vec::new() };
        if applied.gateways.is_empty() {
            return Ok(Done { head, applied, exit: Exit::No, missing: None });
        }
        // What cannot be remembered is judged by the kernel, and no reason to leave flows with the dead.
        let memory = memory(&plan.name, process).of_stream(process);
        let kept: Option<Loaded> = memory.read(process, Ok)?;
        let table = table_name(&plan.name);
        let now = rule_set()?;
        let (before, seen, mut ways) = match &kept {
            // Nobody has changed any rule since.
            Some(kept) if now.is_some() && kept.rule_set == now && !kept.listing.is_empty() => {
                (Some(kept.listing.clone()), now, self.ways(plan, Some(kept), how.changing.dry_run)?)
            }
            _ => {
                // nft lists while we look at the rest.
                let listing = self.nft.begin_list(&["table", "inet", &table], &table)?;
                let ways = self.ways(plan, kept.as_ref(), how.changing.dry_run);
                let before = listing.finish()?;
                (before, if rule_set()? == now { now } else { None }, ways?)
            }
        };
        if let Some(other) = before.as_deref().filter(|listing| !gateway::is_of(listing, &plan.name)) {
            let other = gateway::split_of(other).unwrap_or_default();
            return Err(conflicts(format!(
                "cannot split by the plan {}: its table {table} is that of the plan {other} (give it another name)",
                plan.name
            )));
        }
        if let Some(told) = before.as_deref() {
            check_numbers(plan, told)?;
        }
        let missing = recut(plan, &mut ways)?;
        let gates: Vec<Gate> = ways.iter().map(|way| way.gate.clone()).collect();
        if let Some(failure) = &missing {
            head.error = Some(failure.body());
            applied.gateways =
                gates.iter().filter(|gate| gate.slots.is_some()).map(|gate| gate.subject.clone()).collect();
        }
        let split = Split {
            name: &plan.name,
            ipv6: plan.ipv6,
            marks: plan.marks,
            slots: plan.slots,
            by: how.by,
            gates: &gates,
            flows: &how.flows,
        };
        let chains = split.chains();
        let stands = kept.as_ref().is_some_and(|kept| {
            // What is not there never stands, whatever was kept.
            let is_there = before.as_ref() == Some(&kept.listing) && !kept.listing.is_empty();
            is_there && kept.chains == chains && kept.mark_mask == plan.marks.to_string()
        });
        let changes = self.changes(plan, &ways, (kept.as_ref(), before.as_deref()), stands)?;
        let flushes: Vec<u32> = if how.flush_dead {
            let is_dead = |(planned, way): &(&Planned, &Way)| match planned.slots {
                Some(_) => way.hop.is_err(),
                None => planned.is_down && way.gate.slots.is_none(),
            };
            let dead = plan.gateways.iter().zip(&ways).filter(is_dead);
            dead.map(|(planned, _)| planned.number).chain(changes.left.iter().copied()).collect()
        } else {
            Vec::new()
        };
        let document = if stands { String::new() } else { split.document() };
        if how.changing.shows_actions() {
            let sweep = before.as_deref().filter(|_| !stands).map(|listing| split.sweep(listing)).unwrap_or_default();
            head.actions = self.actions(plan, &changes, &format!("{document}{sweep}"), &flushes);
        }
        head.changed = Some(!stands || !changes.is_empty());
        let exit = missing.as_ref().map_or(Exit::Yes, |failure| failure.exit);
        if how.changing.dry_run {
            return Ok(Done { head, applied, exit, missing });
        }
        let acts = !stands || !changes.is_empty();
        let was_of = kept.as_ref().and_then(|kept| kept.rule_set);
        let was: BTreeSet<u32> = known_numbers(kept.as_ref(), before.as_deref()).unwrap_or_default();
        let (since, left_so_far) = match kept.filter(|_| before.is_some()) {
            Some(kept) => (Some((kept.since_us, kept.since_ms)), kept.left),
            None => (None, BTreeMap::new()),
        };
        let since = since.unwrap_or_else(|| (clock::wall().unix_us, clock::boot().as_ms()));
        let mut loaded = Loaded::new(plan, since);
        loaded.left = left_so_far;
        let leaving = if stands { BTreeMap::new() } else { self.leaving(plan, before.as_deref())? };
        if acts {
            // Killed from here on, this run leaves what the next one knows to look for.
            loaded.numbers.extend(&was);
            memory.write(&loaded)?;
        }
        let added = self.add(&changes, &ways)?;
        let (after, seen) =
            if stands { (before.clone(), seen) } else { self.load(&split, &document, before.as_deref())? };
        applied.removed = self.remove(&changes)?;
        applied.flushed = flush(plan.ipv6, plan.marks, &flushes)?;
        head.changed = Some(before != after || added || changes.takes_away() || applied.flushed > 0);
        if acts || was_of != seen {
            loaded.numbers = plan.numbers();
            for (subject, left) in leaving {
                let earlier = loaded.left.remove(&subject).unwrap_or_default().carried;
                loaded.left.insert(subject, Left { carried: left.carried.plus(earlier), ..left });
            }
            (loaded.chains, loaded.listing) = (chains, after.clone().unwrap_or_default());
            loaded.macs = macs(&gates);
            loaded.rule_set = seen;
            memory.write(&loaded)?;
        }
        Ok(Done { head, applied, exit, missing })
    }

    /// What was counted for gateways whose counters will go.
    fn leaving(&self, plan: &Plan, before: Option<&str>) -> Result<BTreeMap<String, Left>, Failure> {
        let goes = |told: &Told| plan.gateways.iter().all(|planned| planned.subject() != told.subject);
        if !gateway::told(before.unwrap_or_default()).iter().any(|(_, told)| goes(told)) {
            return Ok(BTreeMap::new());
        }
        let table = table_name(&plan.name);
        let text = self.nft.list(&["table", "inet", &table], &table)?.unwrap_or_default();
        // What another program made of it is no reason to leave it so.
        let listed = list::parse(&text).unwrap_or_default();
        let left = gateway::counted(&listed).into_iter().filter(|(told, _)| goes(told));
        Ok(left.map(|(told, counted)| (told.subject, Left { name: told.name, carried: totals(counted) })).collect())
    }

    /// Finds the way to each gateway, and the MAC that its packets come from.
    fn ways(&mut self, plan: &Plan, kept: Option<&Loaded>, dry_run: bool) -> Result<Vec<Way>, Failure> {
        self.links = self.netlink.links()?;
        let mut known: BTreeMap<u32, BTreeMap<IpAddr, Mac>> = BTreeMap::new();
        let mut ways = Vec::new();
        let mut silent = Vec::new();
        for planned in &plan.gateways {
            let (subject, via) = (planned.subject(), planned.gateway.addr);
            let hop = self.hop(planned)?;
            let ifindex = hop.as_ref().map(|(ifindex, _)| *ifindex).ok();
            let link = self.links.iter().find(|link| Some(link.index) == ifindex);
            if let Some(link) = link.filter(|link| link.name.contains(['"', '\\', '*'])) {
                return Err(Failure::input(format!(
                    "cannot send by {subject}: nft takes no interface of the name '{}' (see: ip link set ... name)",
                    link.name
                )));
            }
            let mut sender = Sender::Only;
            if let Some(link) = link.filter(|link| link.mac.is_some()) {
                let known = match known.entry(link.index) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(self.netlink.neighbours(link.index)?),
                };
                let remembered = || kept.and_then(|kept| kept.macs.get(&subject)?.parse().ok());
                let mac = known.get(&via).copied().or_else(remembered);
                sender = mac.map_or(Sender::Unknown, Sender::Mac);
                if mac.is_none() && !dry_run && self.netlink.solicit(link.index, via)?.is_ok() {
                    silent.push((ways.len(), link.index));
                }
            }
            let gate = Gate {
                subject,
                name: planned.gateway.name.clone(),
                number: planned.number,
                share: planned.share,
                slots: planned.slots.clone(),
                origin: link.map(|link| Origin { dev: link.name.clone(), sender }),
            };
            ways.push(Way { gate, via, hop });
        }
        let end = clock::boot().after(ANSWER);
        while !silent.is_empty() && clock::boot() < end {
            clock::sleep_until(clock::boot().after(LOOK));
            let mut still = Vec::new();
            for (at, ifindex) in silent {
                let way: &mut Way = &mut ways[at];
                match (self.netlink.neighbour(ifindex, way.via)?, &mut way.gate.origin) {
                    (Some(mac), Some(origin)) => origin.sender = Sender::Mac(mac),
                    _ => still.push((at, ifindex)),
                }
            }
            silent = still;
        }
        Ok(ways)
    }

    /// The interface by which a gateway is reached, and whether it is on none of its networks.
    fn hop(&mut self, planned: &Planned) -> Result<Result<(u32, bool), Failure>, Failure> {
        let (subject, addr) = (planned.subject(), planned.gateway.addr);
        let on_link = match self.netlink.way_to(addr, 0)? {
            Ok(route) if route.kind == RouteKind::UNICAST => {
                route.hops.first().filter(|hop| hop.via.is_none()).map(|hop| hop.ifindex)
            }
            _ => None,
        };
        let Some(dev) = &planned.gateway.dev else {
            return Ok(on_link.map(|ifindex| (ifindex, false)).ok_or_else(|| {
                let why = format!(
                    "cannot send by {subject}: it is on no network of this host (name its interface: dev=, or see: ip route get {addr})"
                );
                Failure::new(Exit::Missing, Reason::NoSuchInterface, why)
            }));
        };
        let Some(link) = self.links.iter().find(|link| link.is_called(dev)) else {
            return Ok(Err(sys::Error::no_interface(format!("send by {subject} on"), dev.clone()).into()));
        };
        if !link.up {
            let why = format!("cannot send by {subject}: its interface {dev} is down (see: ip link set {dev} up)");
            return Ok(Err(Failure::new(Exit::Missing, Reason::NoSuchInterface, why)));
        }
        let is_link_local = matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
        Ok(Ok((link.index, !is_link_local && on_link != Some(link.index))))
    }

    /// What is to be done about routes and rules, or what is in the way of it.
    fn changes(
        &mut self,
        plan: &Plan,
        ways: &[Way],
        (kept, before): (Option<&Loaded>, Option<&str>),
        stands: bool,
    ) -> Result<Changes, Failure> {
        let (ipv6, marks) = (plan.ipv6, plan.marks);
        let standing = self.netlink.rules(ipv6)?;
        if let Some(rule) = conflict(&standing, marks) {
            return Err(conflicts(format!(
                "cannot mark packets in {marks}: the rule '{rule}' looks at these bits (see: ip rule; give gw split another --mark-mask)"
            )));
        }
        let mut changes = Changes::default();
        let own: BTreeSet<u32> = ways.iter().map(|way| way.gate.number).collect();
        for way in ways {
            let table = marks.table(marks.gateway(way.gate.number));
            let routes = self.netlink.routes(ipv6, table, None)?;
            if let Some(foreign) = routes.iter().find(|route| !route.is_ours()) {
                let text = self.route_text(foreign);
                return Err(conflicts(format!(
                    "cannot use the table {table} for {}: '{text}' is there (see: ip route show table {table})",
                    way.gate.subject
                )));
            }
            if let Ok((ifindex, onlink)) = way.hop {
                let wanted = by_gateway(way.via, ifindex, onlink, table);
                let (old, new) = difference(&routes, &[wanted]);
                changes.routes_old.extend(old);
                changes.routes_new.extend(new);
            }
        }
        let wanted: Vec<Rule> = own.iter().flat_map(|number| of_gateway(ipv6, marks, *number)).collect();
        let is_own = |rule: &Rule| {
            let number = gw_rules::number(rule);
            rule.mark.is_some_and(|marked| marked.mask == marks.mask) && number.is_some_and(|it| own.contains(&it))
        };
        let (mine, rest): (Vec<Rule>, Vec<Rule>) = standing.into_iter().filter(is_of_gateways).partition(is_own);
        let (new, mut gone) = gw_rules::difference(&mine, &wanted);
        changes.rules_new = new;
        // Without a memory whatever nobody else has is what a killed run left.
        let known = known_numbers(kept, before);
        let mut left: Vec<Rule> = rest;
        left.retain(|rule| {
            let is_known = |was: &BTreeSet<u32>| gw_rules::number(rule).is_some_and(|number| was.contains(&number));
            known.as_ref().is_none_or(is_known)
        });
        let was = known.unwrap_or_else(|| (1..=marks.most_gateways()).collect());
        for number in was.difference(&own) {
            let table = marks.table(marks.gateway(*number));
            changes.routes_gone.extend(self.netlink.routes(ipv6, table, Some(OUR_PROTO))?);
        }
        if !stands || !left.is_empty() || !changes.routes_gone.is_empty() || !changes.routes_old.is_empty() {
            let others = self.others(plan)?;
            let has = |number: u32| others.iter().any(|told| told.number == number);
            left.retain(|rule| !gw_rules::number(rule).is_some_and(has));
            changes.routes_gone.retain(|route| !has(of_table(route, marks)));
        }
        let of_routes = changes.routes_gone.iter().map(|route| of_table(route, marks));
        changes.left = left.iter().filter_map(gw_rules::number).chain(of_routes).collect();
        gone.extend(left);
        changes.rules_gone = gone;
        Ok(changes)
    }

    /// The gateways of the same family that other splits have.
    ///
    /// # Errors
    /// One of them has a number that is another's here, or a rule of another program takes our bits.
    fn others(&self, plan: &Plan) -> Result<Vec<Told>, Failure> {
        let rule_set = self.nft.rule_set()?.unwrap_or_default();
        if let Some(rule) = marks::overlap(&rule_set, plan.marks) {
            return Err(conflicts(format!(
                "cannot mark packets in {}: {rule} takes these bits (see: nft list ruleset; have it keep the bits of others, or give gw split another --mark-mask)",
                plan.marks
            )));
        }
        let table = table_name(&plan.name);
        let others: Vec<(String, Told)> = gateway::told(&rule_set)
            .into_iter()
            .filter(|(of, told)| *of != table && told.is_ipv6() == plan.ipv6)
            .collect();
        for (of, told) in &others {
            let is_same = |planned: &&Planned| planned.number == told.number && planned.subject() != told.subject;
            if told.marks != plan.marks {
                return Err(conflicts(format!(
                    "cannot mark packets in {}: the split of the table {of} has {} (the same --mark-mask for all)",
                    plan.marks, told.marks
                )));
            }
            if let Some(planned) = plan.gateways.iter().find(is_same) {
                return Err(conflicts(format!(
                    "cannot give {} the number {}: it is that of {} in the split of the table {of} (name all gateways to each gw split, in one order)",
                    planned.subject(),
                    told.number,
                    told.subject
                )));
            }
        }
        Ok(others.into_iter().map(|(_, told)| told).collect())
    }

    /// Routes, then rules: what is marked has a way from the first packet on. Says whether anything was added.
    fn add(&mut self, changes: &Changes, ways: &[Way]) -> Result<bool, Failure> {
        let mut added = false;
        let old = changes.routes_old.iter().cloned().map(RouteRequest::Delete);
        let requests: Vec<RouteRequest> =
            old.chain(changes.routes_new.iter().cloned().map(RouteRequest::Add)).collect();
        let outcomes = self.netlink.change_routes(&requests)?;
        for (route, outcome) in changes.routes_new.iter().zip(outcomes.into_iter().skip(changes.routes_old.len())) {
            let via = route.hops.first().and_then(|hop| hop.via);
            let serves = ways.iter().any(|way| Some(way.via) == via && way.gate.slots.is_some());
            match outcome {
                Err(refusal) if serves && refusal.errno != Errno::EEXIST => {
                    return Err(refused(&refusal, "add the route", self.route_text(route)));
                }
                outcome => added |= outcome.is_ok(),
            }
        }
        let requests: Vec<RuleRequest> = changes.rules_new.iter().cloned().map(RuleRequest::Add).collect();
        for (rule, outcome) in changes.rules_new.iter().zip(self.netlink.change_rules(&requests)?) {
            match outcome {
                Err(refusal) if refusal.errno != Errno::EEXIST => {
                    return Err(refused(&refusal, "add the rule", rule.to_string()));
                }
                outcome => added |= outcome.is_ok(),
            }
        }
        Ok(added)
    }

    /// Loads the table, and again where another program takes it away before it is read back, or where nft did
    /// not load it and said nothing.
    fn load(
        &self,
        split: &Split<'_>,
        document: &str,
        before: Option<&str>,
    ) -> Result<(Option<String>, Option<RuleSet>), Failure> {
        let chains = split.chains();
        for _ in 0..TRIES {
            let (was, _) = nft::generation()?;
            let (after, seen) = self.load_once(split, document, before)?;
            let (now, _) = nft::generation()?;
            // Nobody else has changed any rule meanwhile, or at least none of these.
            let is_whole = |listing: &str| now == was.wrapping_add(1) || gateway::holds(listing, &chains);
            if now != was && after.as_deref().is_some_and(is_whole) {
                return Ok((after, seen));
            }
        }
        Err(conflicts(format!(
            "cannot load the table {}: it is not there right after nft has loaded it, {TRIES} times (what else changes rules? see: nft monitor)",
            table_name(split.name)
        )))
    }

    /// Loads the table in one transaction, takes away what does not belong in it, and reads it back.
    fn load_once(
        &self,
        split: &Split<'_>,
        document: &str,
        before: Option<&str>,
    ) -> Result<(Option<String>, Option<RuleSet>), Failure> {
        let table = table_name(split.name);
        let doing = "load the table";
        match self.nft.load(document, doing, &table) {
            // Somebody has made a chain of ours another one: there is no way but from the beginning.
            Err(sys::Error::Call { errno: Errno::EEXIST | Errno::EBUSY, .. }) if before.is_some() => {
                self.nft.load(&format!("delete table inet {table}\n{document}"), doing, &table)?;
            }
            Err(sys::Error::Call { errno: Errno::ENOENT, said, .. }) => {
                return Err(sys::Error::Missing {
                    doing: doing.to_owned(),
                    object: table,
                    what: said.unwrap_or_default(),
                    mend:
                        "this kernel lacks nf_conntrack or a part of nf_tables: nft_ct, nft_fib, nft_hash, nft_numgen"
                            .to_owned(),
                    reason: sys::error::Missing::Feature,
                }
                .into());
            }
            loaded => loaded?,
        }
        let list = || -> Result<_, Failure> {
            let now = rule_set()?;
            let listing = self.nft.begin_list(&["table", "inet", &table], &table)?.finish()?;
            Ok((listing, if rule_set()? == now { now } else { None }))
        };
        let (after, seen) = list()?;
        let sweep = after.as_deref().map(|listing| split.sweep(listing)).unwrap_or_default();
        if sweep.is_empty() {
            return Ok((after, seen));
        }
        match self.nft.load(&sweep, "sweep the table", &table) {
            // Another program took it meanwhile.
            Err(sys::Error::Call { errno: Errno::ENOENT, .. }) => {}
            swept => swept?,
        }
        list()
    }

    fn remove(&mut self, changes: &Changes) -> Result<Vec<String>, Failure> {
        self.delete(&changes.rules_gone, &changes.routes_gone)
    }

    /// Deletes rules, then routes; says which, as ip writes them. What is gone already is gone.
    pub(super) fn delete(&mut self, rules: &[Rule], routes: &[Route]) -> Result<Vec<String>, Failure> {
        let mut removed = Vec::new();
        let requests: Vec<RuleRequest> = rules.iter().cloned().map(RuleRequest::Delete).collect();
        for (rule, outcome) in rules.iter().zip(self.netlink.change_rules(&requests)?) {
            match outcome {
                Err(refusal) if refusal.errno != Errno::ENOENT => {
                    return Err(refused(&refusal, "delete the rule", rule.to_string()));
                }
                _ => removed.push(rule_text(rule)),
            }
        }
        let requests: Vec<RouteRequest> = routes.iter().cloned().map(RouteRequest::Delete).collect();
        for (route, outcome) in routes.iter().zip(self.netlink.change_routes(&requests)?) {
            match outcome {
                Err(refusal) if refusal.errno != Errno::ESRCH => {
                    return Err(refused(&refusal, "delete the route", self.route_text(route)));
                }
                _ => removed.push(format!("route {}", self.route_text(route))),
            }
        }
        Ok(removed)
    }

    fn actions(&self, plan: &Plan, changes: &Changes, document: &str, flushes: &[u32]) -> Vec<Action> {
        let ip = if plan.ipv6 { "ip -6" } else { "ip" };
        let route = |op, verb: &str, route: &Route| {
            let text = format!("{ip} route {verb} {}", self.route_text(route));
            Action { op, text }
        };
        let rule = |op, verb: &str, rule: &Rule| Action { op, text: format!("{ip} rule {verb} {rule}") };
        let mut actions: Vec<Action> = changes.routes_old.iter().map(|one| route("route-del", "del", one)).collect();
        actions.extend(changes.routes_new.iter().map(|one| route("route-add", "add", one)));
        actions.extend(changes.rules_new.iter().map(|one| rule("rule-add", "add", one)));
        if !document.is_empty() {
            actions.push(Action { op: "nft", text: document.to_owned() });
        }
        actions.extend(changes.rules_gone.iter().map(|one| rule("rule-del", "del", one)));
        actions.extend(changes.routes_gone.iter().map(|one| route("route-del", "del", one)));
        let family = if plan.ipv6 { "ipv6" } else { "ipv4" };
        actions.extend(flushes.iter().map(|number| Action {
            op: "conntrack-delete",
            text: format!("conntrack -D -f {family} -m {:#x}/{:#x}", plan.marks.gateway(*number), plan.marks.mask),
        }));
        actions
    }
}

/// Gives the share of gateways that cannot be reached to the others; says what is the matter with the first.
///
/// # Errors
/// There is no other.
fn recut(plan: &Plan, ways: &mut [Way]) -> Result<Option<Failure>, Failure> {
    let failed = |way: &Way| way.hop.as_ref().err().filter(|_| way.gate.slots.is_some()).cloned();
    let Some(failure) = ways.iter().find_map(failed) else { return Ok(None) };
    let pieces: Vec<(u32, bool)> = ways
        .iter()
        .zip(&plan.gateways)
        .map(|(way, planned)| {
            (len(planned.slots.as_ref()), way.hop.is_ok() && (planned.is_up || planned.slots.is_some()))
        })
        .collect();
    let Some(ranges) = recut_to_nearest(&pieces) else { return Err(failure) };
    for (way, range) in ways.iter_mut().zip(ranges) {
        way.gate.share = f64::from(len(range.as_ref())) / f64::from(plan.slots);
        way.gate.slots = range;
    }
    Ok(Some(failure))
}

/// # Errors
/// A gateway stands in the split's table with another number than in the plan, so that its connections would
/// leave by another; or the table is of the other family.
fn check_numbers(plan: &Plan, listing: &str) -> Result<(), Failure> {
    let name = &plan.name;
    for (table, told) in gateway::told(listing) {
        if told.is_ipv6() != plan.ipv6 {
            let (stands, wanted) = if plan.ipv6 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
            return Err(conflicts(format!(
                "cannot split {wanted} flows by the plan {name}: its table {table} splits those of {stands} (one family each: give gw split another --name)"
            )));
        }
        let Some(planned) = plan.gateways.iter().find(|planned| planned.subject() == told.subject) else { continue };
        let mend =
            "its connections would leave by another: give gw split --state, or take the split away with gw clear";
        if told.marks != plan.marks {
            return Err(conflicts(format!(
                "cannot mark packets of {} in {}: they are marked in {} now ({mend})",
                told.subject, plan.marks, told.marks
            )));
        }
        if told.number != planned.number {
            return Err(conflicts(format!(
                "cannot give {} the number {}: it has {} now ({mend})",
                told.subject, planned.number, told.number
            )));
        }
    }
    Ok(())
}

/// The numbers of gateways that there may be rules or routes for, by memory and the table; `None` where nothing
/// is remembered, and whatever nobody else has is what a killed run left.
fn known_numbers(kept: Option<&Loaded>, before: Option<&str>) -> Option<BTreeSet<u32>> {
    let told = before.map(gateway::told).unwrap_or_default();
    kept.map(|kept| kept.numbers.iter().copied().chain(told.iter().map(|(_, told)| told.number)).collect())
}

pub(super) fn rule_text(rule: &Rule) -> String {
    format!("rule {rule}")
}

fn macs(gates: &[Gate]) -> BTreeMap<String, String> {
    let known = gates.iter().filter_map(|gate| match gate.origin.as_ref()?.sender {
        Sender::Mac(mac) => Some((gate.subject.clone(), mac.to_string())),
        _ => None,
    });
    known.collect()
}

/// The number of the gateway whose table a route is in.
pub(super) fn of_table(route: &Route, marks: Marks) -> u32 {
    route.table.saturating_sub(marks.table(0))
}
