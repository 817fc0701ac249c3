//! On which node should each service run?
//!
//! Predicates first: a node is up, not in standby, satisfies what is required, and has room. Among those
//! that fit a policy chooses. A service that runs is moved for a reason: its node is down, is to be left
//! alone or satisfies no more; its home is back; or another is better and it is not sticky.

mod heap;
#[cfg(test)]
mod tests;

use crate::types::draw::Draw;
use crate::types::service::{Amounts, Expr, Fact, Key, Need, Resource, Service};
use crate::types::status::Status;
use crate::types::time::{Tick, WallTime};
use heap::Heap;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How one is chosen among the nodes that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    LeastServices,
    RoundRobin,
    Weighted,
}

impl Policy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Policy::LeastServices => "least-services",
            Policy::RoundRobin => "round-robin",
            Policy::Weighted => "weighted",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    /// Below this weight of the top the draw is inverted.
    pub(crate) threshold: f64,
    /// Never moves a service for a better node.
    pub(crate) sticky: bool,
    /// How long a home must be up before its service comes back; `None`: it does not.
    pub(crate) fail_back: Option<Duration>,
    pub(crate) max_moves: Option<usize>,
    /// Whether what a silent node held may be moved without proof that it is off.
    pub(crate) fencing: bool,
    /// Every node's verdict on every service, not only on those that were chosen for.
    pub(crate) explain: bool,
    /// What all services need that say nothing else.
    pub(crate) need: Need,
    /// What all services require.
    pub(crate) requires: Vec<Expr>,
    /// The keys that `facts` of nodes are in the order of.
    pub(crate) keys: Vec<String>,
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) name: &'a str,
    pub(crate) status: Status,
    /// It is proven off, or has said good-bye: it runs nothing.
    pub(crate) gone: bool,
    /// Why it is to be left alone.
    pub(crate) standby: Option<&'a str>,
    pub(crate) weight: Option<u32>,
    /// What its health leaves; 0 is not a low priority: it must not serve.
    pub(crate) priority: Option<u32>,
    pub(crate) total: [Option<u64>; 3],
    pub(crate) used: Amounts,
    /// How many services it says that it runs.
    pub(crate) services: Option<u64>,
    /// When it said what it uses.
    pub(crate) told: Tick,
    pub(crate) facts: &'a [Option<Fact>],
}

/// What is decided on.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// In the order of their names.
    pub(crate) nodes: Vec<Node<'a>>,
    /// Why nothing may be placed or moved.
    pub(crate) wait: Option<String>,
    /// Why a service is to be left alone, by its name.
    pub(crate) standby: BTreeMap<String, String>,
    pub(crate) now: Tick,
    pub(crate) time: WallTime,
}

/// Where a service was put.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) node: String,
    /// When, on this machine's clock, where it was decided here; else the beginning.
    pub(crate) at: Tick,
    /// When, as the record says: the newest counts.
    pub(crate) time: WallTime,
    /// Where it may still run, the first is where it did: these must be proven off before it may start.
    pub(crate) unproven: Vec<String>,
}

/// What is remembered from conclusion to conclusion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// By service.
    pub(crate) placed: BTreeMap<String, Placed>,
    /// The node whose turn was last.
    pub(crate) cursor: Option<String>,
    /// Since when each home is up.
    pub(crate) up_since: BTreeMap<String, Tick>,
}

/// What is to be made of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Placed,
    NoFit,
    Waiting,
}

/// What was concluded about one service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) node: Option<String>,
    pub(crate) moved_from: Option<String>,
    /// Who must be proven off before it may start there.
    pub(crate) needs_fence: Vec<String>,
    /// It stays where it is although something speaks against that.
    pub(crate) held: bool,
    pub(crate) end: End,
    pub(crate) why: String,
    /// Why it was placed or moved, in a word: `down`, `new`, `leave`, `home` or `better`.
    pub(crate) cause: Option<&'static str>,
    /// Why the service is to be left alone.
    pub(crate) standby: Option<String>,
    /// Chance had a part in it.
    pub(crate) drawn: bool,
    pub(crate) candidates: Vec<Candidate>,
    /// How many nodes failed, by the first predicate that each failed.
    pub(crate) rejected: BTreeMap<String, u64>,
}

/// A node's part in a choice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) node: String,
    /// The predicates that it fails, and why.
    pub(crate) failed: Vec<String>,
    /// What the policy went by, where the node fits: its services, its turn from 1, or its weight.
    pub(crate) score: Option<f64>,
    /// What the score is made of.
    pub(crate) terms: Vec<(&'static str, f64)>,
}

/// All conclusions, in the order of the services.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conclusion {
    pub(crate) outcomes: Vec<Outcome>,
    /// When time alone leads to another conclusion.
    pub(crate) wake: Option<Tick>,
}

/// So many of the best stand in a record that is one of many.
const BEST: usize = 5;
/// A weight must be better by this for a service to move; a node's use of its resources is never still.
const BETTER: f64 = 0.1;
/// After so many walks that took none the top is taken.
const WALKS: usize = 3;

/// Why a node does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Status,
    Standby,
    Priority,
    Weight,
    /// By its number in the group.
    Require(u16),
    Room(Resource),
}

/// Services that need and require the same.
struct Group<'a> {
    need: Amounts,
    requires: Vec<&'a Expr>,
    /// For each, where its key stands among the facts of nodes.
    facts: Vec<Option<usize>>,
}

/// What the policies order nodes by: the greater goes first. Of equals the one whose name comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank {
    /// Of the weighted policy; 0 with the others.
    weight: f64,
    services: u64,
    node: usize,
}

impl Eq for Rank {}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_weight = self.weight.total_cmp(&other.weight);
        by_weight.then(other.services.cmp(&self.services)).then(other.node.cmp(&self.node))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The nodes that fit a group, in the order of the policy.
enum Order {
    Heap(Heap<Rank>),
    Ring(BTreeSet<usize>),
}

impl Order {
    fn len(&self) -> usize {
        match self {
            Order::Heap(heap) => heap.len(),
            Order::Ring(ring) => ring.len(),
        }
    }
}

/// The nodes as one group sees them.
struct Pool {
    group: usize,
    order: Order,
    /// The first reason of each node that does not fit.
    reasons: Vec<Option<Reason>>,
    rejected: BTreeMap<Reason, u64>,
}

/// What a node runs and uses, with what was placed on it and is not told by it yet.
#[derive(Clone, Copy, Debug)]
struct Load {
    services: u64,
    used: Amounts,
}

/// Why a service is to be placed or moved, in the order in which they are served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// Its node is down.
    Recover,
    /// It runs nowhere.
    New,
    /// Its node is to be left alone or satisfies no more.
    Leave,
    /// Its home is back.
    Home,
    /// Another may be better.
    Improve,
}

impl Task {
    fn cause(&self) -> &'static str {
        match self {
            Task::Recover => "down",
            Task::New => "new",
            Task::Leave => "leave",
            Task::Home => "home",
            Task::Improve => "better",
        }
    }
}

/// The work of one conclusion.
struct Course<'a> {
    settings: &'a Settings,
    view: &'a View<'a>,
    services: &'a [Service],
    groups: Vec<Group<'a>>,
    /// By service.
    group_of: Vec<usize>,
    loads: Vec<Load>,
    /// The resources of which some node tells how much it has: what the weight is made of.
    told: [bool; 3],
    pool: Option<Pool>,
    cursor: Option<String>,
}

/// Places and moves `services` as they are to be now.
///
/// `memory` is what was concluded before; whatever the order of lines was, the same comes out.
pub(crate) fn place(
    services: &[Service],
    settings: &Settings,
    view: &View<'_>,
    memory: &mut Memory,
    draw: &mut Draw,
) -> Conclusion {
    let mut course = Course::new(services, settings, view, memory);
    let wake = course.watch_homes(memory);
    let mut outcomes: Vec<Option<Outcome>> = vec![None; services.len()];
    let mut tasks = Vec::new();
    for (idx, outcome) in outcomes.iter_mut().enumerate() {
        match course.look(idx, memory) {
            Ok(concluded) => *outcome = Some(concluded),
            Err((task, why)) => tasks.push((task, course.group_of[idx], idx, why)),
        }
    }
    tasks.sort_by(|a, b| (&a.0, a.1, a.2).cmp(&(&b.0, b.1, b.2)));
    let mut moves_left = settings.max_moves.unwrap_or(usize::MAX);
    for (task, _, idx, why) in tasks {
        let service = &services[idx];
        let outcome = course.carry_out(&task, idx, &why, memory, draw, &mut moves_left);
        if let Some(node) = outcome.node.as_ref().filter(|_| !outcome.held) {
            let stays = memory.placed.get(&service.name).filter(|placed| placed.node == *node);
            if stays.is_none() {
                let unproven = outcome.needs_fence.clone();
                let placed = Placed { node: node.clone(), at: view.now, time: view.time, unproven };
                memory.placed.insert(service.name.clone(), placed);
            }
        }
        outcomes[idx] = Some(outcome);
    }
    memory.cursor = course.cursor.take();
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    if settings.explain || services.len() == 1 {
        for (idx, outcome) in outcomes.iter_mut().enumerate() {
            if outcome.candidates.is_empty() {
                course.explain(idx, outcome, None);
            }
        }
    }
    Conclusion { outcomes, wake }
}

/// How many of `count` services like `service`, one after the other, each node would get, and why the rest
/// fits nowhere.
pub(crate) fn simulate(
    service: usize,
    services: &[Service],
    count: u64,
    settings: &Settings,
    view: &View<'_>,
    memory: &Memory,
    draw: &mut Draw,
) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let mut course = Course::new(services, settings, view, memory);
    let group = course.group_of[service];
    let mut got = BTreeMap::new();
    for _ in 0..count {
        let Some((node, _)) = course.choose(group, draw) else { break };
        *got.entry(view.nodes[node].name.to_owned()).or_default() += 1;
        course.put(group, node);
    }
    let rejected = course.rejected(group);
    (got, rejected)
}

impl<'a> Course<'a> {
    fn new(services: &'a [Service], settings: &'a Settings, view: &'a View<'a>, memory: &Memory) -> Self {
        let (mut groups, mut group_of, mut known) = (Vec::new(), Vec::new(), BTreeMap::new());
        for service in services {
            let need = service.need.unwrap_or(settings.need).0;
            let requires: Vec<&Expr> = settings.requires.iter().chain(&service.requires).collect();
            let texts: Vec<&str> = requires.iter().map(|expr| expr.as_str()).collect();
            group_of.push(*known.entry((need, texts)).or_insert_with(|| {
                let fact = |expr: &&Expr| match &expr.key {
                    Key::Told(key) => settings.keys.iter().position(|known| known == key),
                    _ => None,
                };
                let facts = requires.iter().map(fact).collect();
                groups.push(Group { need, requires, facts });
                groups.len() - 1
            }));
        }
        let told = Resource::ALL.map(|resource| view.nodes.iter().any(|node| node.total[resource as usize].is_some()));
        let loads = view.nodes.iter().map(|node| Load { services: node.services.unwrap_or(0), used: node.used });
        let mut course = Course {
            settings,
            view,
            services,
            groups,
            group_of,
            loads: loads.collect(),
            told,
            pool: None,
            cursor: memory.cursor.clone(),
        };
        course.count(memory);
        course
    }

    /// Counts what was placed on nodes that do not tell it, or not yet.
    fn count(&mut self, memory: &Memory) {
        let named: BTreeMap<&str, usize> =
            self.services.iter().enumerate().map(|(idx, service)| (service.name.as_str(), idx)).collect();
        for (name, placed) in &memory.placed {
            let Some(at) = self.find(&placed.node) else { continue };
            let is_newer = placed.at > self.view.nodes[at].told;
            if is_newer || self.view.nodes[at].services.is_none() {
                self.loads[at].services += 1;
            }
            if let Some(idx) = named.get(name.as_str()).filter(|_| is_newer) {
                let need = self.groups[self.group_of[*idx]].need;
                add(&mut self.loads[at].used, &need);
            }
        }
    }

    fn find(&self, node: &str) -> Option<usize> {
        self.view.nodes.binary_search_by(|known| known.name.cmp(node)).ok()
    }

    /// Notes since when homes are up; the next point at which one has been up for long enough.
    fn watch_homes(&self, memory: &mut Memory) -> Option<Tick> {
        let (hold, now) = (self.settings.fail_back?, self.view.now);
        let homes: BTreeSet<&str> = self.services.iter().filter_map(|service| service.home.as_deref()).collect();
        memory.up_since.retain(|node, _| homes.contains(node.as_str()));
        for home in homes {
            if self.find(home).is_some_and(|at| self.view.nodes[at].status == Status::Up) {
                memory.up_since.entry(home.to_owned()).or_insert(now);
            } else {
                memory.up_since.remove(home);
            }
        }
        let waiting = self.services.iter().filter(|service| {
            memory.placed.get(&service.name).is_some_and(|placed| Some(&placed.node) != service.home.as_ref())
        });
        let due = waiting.filter_map(|service| Some(memory.up_since.get(service.home.as_ref()?)?.after(hold)));
        due.filter(|due| *due > now).min()
    }

    /// What is to be made of a service where it is now: a conclusion, or why it is to be placed or moved.
    fn look(&self, idx: usize, memory: &mut Memory) -> Result<Outcome, (Task, String)> {
        let (service, group) = (&self.services[idx], self.group_of[idx]);
        let turned = memory.placed.get_mut(&service.name).and_then(|placed| self.settle(placed));
        let placed = memory.placed.get(&service.name);
        if let Some(reason) = self.view.standby.get(&service.name) {
            let mut outcome = keep(placed, format!("the service is in standby: {reason}"));
            outcome.standby = Some(reason.clone());
            outcome.end = if placed.is_some() { outcome.end } else { End::Waiting };
            return Ok(outcome);
        }
        if let Some(why) = &self.view.wait {
            return Ok(Outcome { held: placed.is_some(), end: End::Waiting, ..keep(placed, why.clone()) });
        }
        let Some(placed) = placed else { return Err((Task::New, String::new())) };
        let name = &placed.node;
        let unknown = || {
            let why = format!("nothing is known of {name}: it stays there until that is up or down");
            Ok(Outcome { held: true, end: End::Waiting, ..keep(Some(placed), why) })
        };
        let Some(at) = self.find(name) else { return unknown() };
        let node = &self.view.nodes[at];
        match node.status {
            _ if node.gone && node.status != Status::Up => Err((Task::Recover, format!("{name} is off"))),
            Status::Down => Err((Task::Recover, format!("{name} is down"))),
            Status::Unknown => unknown(),
            Status::Up => {
                let lasting = |reason: &Reason| match reason {
                    Reason::Require(idx) => !self.groups[group].requires[usize::from(*idx)].key.changes(),
                    Reason::Room(_) => false,
                    _ => true,
                };
                if let Some(reason) = self.reasons(group, at).find(lasting) {
                    return Err((Task::Leave, format!("{name}: {}", self.fault(group, at, reason))));
                }
                if !placed.unproven.is_empty() {
                    return Ok(Outcome { end: End::Waiting, ..keep(Some(placed), first_off(&placed.unproven)) });
                }
                if let Some((from, why)) = turned {
                    return Ok(Outcome { moved_from: from, ..keep(Some(placed), why) });
                }
                if self.is_due(service, name, memory) {
                    return Err((Task::Home, String::new()));
                }
                let improves = !self.settings.sticky && self.settings.policy != Policy::RoundRobin;
                if improves && service.home.as_ref() != Some(name) {
                    return Err((Task::Improve, String::new()));
                }
                Ok(keep(Some(placed), "it runs there, and that fits".to_owned()))
            }
        }
    }

    /// Strikes whom a service need not be afraid of any more; who is back and was never proven off has it
    /// still. Where that settles a move: whom it came from, and why.
    fn settle(&self, placed: &mut Placed) -> Option<(Option<String>, String)> {
        let first = placed.unproven.first().cloned()?;
        let node = |name: &String| self.find(name).map(|at| &self.view.nodes[at]);
        if node(&first).is_some_and(|node| node.status == Status::Up && !node.gone) {
            let why = format!("{first} is back and was never proven off: it runs there");
            *placed = Placed { node: first, at: self.view.now, time: self.view.time, unproven: Vec::new() };
            return Some((None, why));
        }
        placed.unproven.retain(|name| node(name).is_none_or(|node| !node.gone));
        placed.unproven.is_empty().then(|| (Some(first.clone()), format!("{first} is off")))
    }

    /// Whether the home of a service has been back for long enough, and takes it.
    fn is_due(&self, service: &Service, current: &str, memory: &Memory) -> bool {
        let (Some(hold), Some(home)) = (self.settings.fail_back, &service.home) else { return false };
        home != current
            && memory.up_since.get(home).is_some_and(|since| self.view.now.since(*since) >= hold)
            && self.find(home).is_some()
    }

    fn carry_out(
        &mut self,
        task: &Task,
        idx: usize,
        cause: &str,
        memory: &Memory,
        draw: &mut Draw,
        moves_left: &mut usize,
    ) -> Outcome {
        let (service, group) = (&self.services[idx], self.group_of[idx]);
        let placed = memory.placed.get(&service.name);
        let from = placed.and_then(|placed| self.find(&placed.node));
        let stay = |why: &str| keep(placed, why.to_owned());
        if *task != Task::New && *moves_left == 0 {
            return match task {
                Task::Home | Task::Improve => stay("it runs there, and that fits"),
                _ => {
                    let why = format!("{cause}; it waits for the next conclusion (see --max-moves)");
                    Outcome { held: true, end: End::Waiting, ..stay(&why) }
                }
            };
        }
        self.fill(group);
        let home = service.home.as_ref().filter(|_| *task != Task::Improve);
        let home = home.and_then(|home| self.find(home)).filter(|home| self.first_reason(group, *home).is_none());
        let chosen = match (task, home) {
            (_, Some(home)) => Some((home, "its home".to_owned())),
            (Task::Home, None) => None,
            (Task::Improve, None) => self.better(from),
            _ => self.choose(group, draw),
        };
        let Some((to, how)) = chosen else {
            return match task {
                Task::Home | Task::Improve => stay("it runs there, and that fits"),
                _ => {
                    let cause = if cause.is_empty() { String::new() } else { format!("{cause}; ") };
                    let (why, end) = self.nowhere(group);
                    let mut outcome = Outcome { held: placed.is_some(), end, ..stay(&format!("{cause}{why}")) };
                    self.explain(idx, &mut outcome, None);
                    outcome
                }
            };
        };
        let mut outcome = Outcome {
            node: Some(self.view.nodes[to].name.to_owned()),
            why: if cause.is_empty() { how } else { format!("{cause}; {how}") },
            drawn: self.settings.policy == Policy::Weighted && home.is_none() && *task != Task::Improve,
            cause: Some(task.cause()),
            ..keep(None, String::new())
        };
        self.explain(idx, &mut outcome, Some(to));
        if let Some(placed) = placed {
            *moves_left -= 1;
            outcome.moved_from = Some(placed.node.clone());
            outcome.needs_fence = self.must_be_off(task, placed, to);
            if !outcome.needs_fence.is_empty() {
                outcome.end = End::Waiting;
                outcome.why.push_str("; ");
                outcome.why.push_str(&first_off(&outcome.needs_fence));
                outcome.moved_from = outcome.needs_fence.first().cloned();
            }
        }
        self.put(group, to);
        if let Some(from) = from {
            self.take_away(group, from);
        }
        outcome
    }

    /// Who may still run a service that moves: where it was, and whoever was told to take it meanwhile.
    fn must_be_off(&self, task: &Task, placed: &Placed, to: usize) -> Vec<String> {
        if !self.settings.fencing {
            return Vec::new();
        }
        let mut needs = placed.unproven.clone();
        let is_gone = self.find(&placed.node).is_some_and(|at| self.view.nodes[at].gone);
        if *task == Task::Recover && !is_gone {
            needs.push(placed.node.clone());
        }
        needs.retain(|name| name != self.view.nodes[to].name);
        needs
    }

    fn first_reason(&self, group: usize, node: usize) -> Option<Reason> {
        self.reasons(group, node).next()
    }

    /// The predicates that a node fails.
    fn reasons(&self, group: usize, node: usize) -> impl Iterator<Item = Reason> {
        let (of, told, load) = (&self.groups[group], &self.view.nodes[node], &self.loads[node]);
        let basic = [
            (told.status != Status::Up).then_some(Reason::Status),
            told.standby.is_some().then_some(Reason::Standby),
            (told.priority == Some(0)).then_some(Reason::Priority),
            (told.weight == Some(0)).then_some(Reason::Weight),
        ];
        let required = of.requires.iter().enumerate().filter(move |(idx, expr)| !self.holds(of, *idx, expr, node));
        let required = required.map(|(idx, _)| Reason::Require(u16::try_from(idx).unwrap_or(u16::MAX)));
        let weighted = self.settings.policy == Policy::Weighted;
        let room = Resource::ALL.into_iter().filter(move |resource| {
            let r = *resource as usize;
            match told.total[r] {
                None => of.need[r] > 0,
                Some(total) => (of.need[r] > 0 || weighted) && load.used[r].saturating_add(of.need[r]) > total,
            }
        });
        basic.into_iter().flatten().chain(required).chain(room.map(Reason::Room))
    }

    fn holds(&self, group: &Group<'_>, idx: usize, expr: &Expr, node: usize) -> bool {
        match group.facts[idx] {
            Some(fact) => expr.holds(self.view.nodes[node].facts.get(fact).and_then(Option::as_ref)),
            None => expr.holds(self.fact(&expr.key, node).as_ref()),
        }
    }

    /// What is so of a node by our own counting.
    fn fact(&self, key: &Key, node: usize) -> Option<Fact> {
        let (told, load) = (&self.view.nodes[node], &self.loads[node]);
        let number = |resource: &Resource, amount: u64| Fact::Number(resource.number(amount));
        match key {
            Key::Node => Some(Fact::Text(told.name.to_owned())),
            #[allow(clippy::cast_precision_loss)] // as an expression has numbers
            Key::Services => Some(Fact::Number(load.services as f64)),
            Key::Total(resource) => told.total[*resource as usize].map(|total| number(resource, total)),
            Key::Used(resource) => Some(number(resource, load.used[*resource as usize])),
            Key::Free(resource) => told.total[*resource as usize]
                .map(|total| number(resource, total.saturating_sub(load.used[*resource as usize]))),
            Key::Told(key) => {
                let at = self.settings.keys.iter().position(|known| known == key)?;
                told.facts.get(at).cloned().flatten()
            }
        }
    }

    /// A predicate in a word, to be counted by.
    fn word(&self, group: usize, reason: Reason) -> String {
        match reason {
            Reason::Status => "status=up".to_owned(),
            Reason::Standby => "standby".to_owned(),
            Reason::Priority => "priority>0".to_owned(),
            Reason::Weight => "weight>0".to_owned(),
            Reason::Require(idx) => self.groups[group].requires[usize::from(idx)].to_string(),
            Reason::Room(resource) => resource.as_str().to_owned(),
        }
    }

    /// Why a node fails a predicate.
    fn fault(&self, group: usize, node: usize, reason: Reason) -> String {
        let told = &self.view.nodes[node];
        match reason {
            Reason::Status => format!("status=up: it is {}", told.status),
            Reason::Standby => format!("standby: {}", told.standby.unwrap_or_default()),
            Reason::Priority => "priority>0: it is 0".to_owned(),
            Reason::Weight => "weight>0: it is 0".to_owned(),
            Reason::Require(idx) => {
                let expr = self.groups[group].requires[usize::from(idx)];
                expr.fault(self.fact(&expr.key, node).as_ref())
            }
            Reason::Room(resource) => {
                let r = resource as usize;
                let number = |amount: u64| resource.number(amount);
                let (used, need) = (number(self.loads[node].used[r]), number(self.groups[group].need[r]));
                match told.total[r] {
                    None => format!("{}: the node does not tell its total", resource.as_str()),
                    Some(total) => {
                        format!("{}: {used} in use and {need} needed, of {}", resource.as_str(), number(total))
                    }
                }
            }
        }
    }

    /// What of each resource would be in use, as a share: one that only others tell counts as full.
    fn shares(&self, node: usize, need: &Amounts) -> impl Iterator<Item = (Resource, f64)> {
        let (told, load, need) = (&self.view.nodes[node], self.loads[node], *need);
        Resource::ALL.into_iter().filter(|resource| self.told[*resource as usize]).map(move |resource| {
            let r = resource as usize;
            #[allow(clippy::cast_precision_loss)] // a share
            let share = match told.total[r] {
                Some(total) if total > 0 => load.used[r].saturating_add(need[r]) as f64 / total as f64,
                _ => 1.0,
            };
            (resource, share)
        })
    }

    /// 1 − (x/a + y/b + z/c)/3: what the service would leave of the node. Of fewer resources, where no node
    /// tells of all three.
    fn weight(&self, node: usize, need: &Amounts) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, share) in self.shares(node, need) {
            sum += share;
            count += 1.0;
        }
        if count > 0.0 { (1.0 - sum / count).max(0.0) } else { 1.0 }
    }

    fn rank(&self, group: usize, node: usize) -> Rank {
        let is_weighted = self.settings.policy == Policy::Weighted;
        let weight = if is_weighted { self.weight(node, &self.groups[group].need) } else { 0.0 };
        Rank { weight, services: self.loads[node].services, node }
    }

    /// Looks at every node for a group, once.
    fn fill(&mut self, group: usize) {
        if self.pool.as_ref().is_some_and(|pool| pool.group == group) {
            return;
        }
        let count = self.view.nodes.len();
        let reasons: Vec<Option<Reason>> = (0..count).map(|node| self.first_reason(group, node)).collect();
        let mut rejected = BTreeMap::new();
        for reason in reasons.iter().flatten() {
            *rejected.entry(*reason).or_default() += 1;
        }
        let fitting = (0..count).filter(|node| reasons[*node].is_none());
        let order = match self.settings.policy {
            Policy::RoundRobin => Order::Ring(fitting.collect()),
            _ => Order::Heap(Heap::new(count, fitting.map(|node| (self.rank(group, node), node)))),
        };
        self.pool = Some(Pool { group, order, reasons, rejected });
    }

    /// Looks at one node again, which something was put on or taken from.
    fn touch(&mut self, node: usize) {
        let Some(mut pool) = self.pool.take() else { return };
        let reason = self.first_reason(pool.group, node);
        let before = std::mem::replace(&mut pool.reasons[node], reason);
        if let Some(count) = before.and_then(|before| pool.rejected.get_mut(&before)) {
            *count -= 1;
        }
        if let Some(reason) = reason {
            *pool.rejected.entry(reason).or_default() += 1;
        }
        match &mut pool.order {
            Order::Heap(heap) => heap.set(node, reason.is_none().then(|| self.rank(pool.group, node))),
            Order::Ring(ring) => {
                if reason.is_none() {
                    ring.insert(node);
                } else {
                    ring.remove(&node);
                }
            }
        }
        self.pool = Some(pool);
    }

    fn put(&mut self, group: usize, node: usize) {
        self.loads[node].services += 1;
        add(&mut self.loads[node].used, &self.groups[group].need);
        self.touch(node);
    }

    fn take_away(&mut self, group: usize, node: usize) {
        let load = &mut self.loads[node];
        load.services = load.services.saturating_sub(1);
        for (used, need) in load.used.iter_mut().zip(self.groups[group].need) {
            *used = used.saturating_sub(need);
        }
        self.touch(node);
    }

    /// Chooses by the policy among the nodes that fit; the node, and by what.
    fn choose(&mut self, group: usize, draw: &mut Draw) -> Option<(usize, String)> {
        self.fill(group);
        let pool = self.pool.as_ref()?;
        let count = pool.order.len();
        let fit = if count == 1 { "the only node that fits".to_owned() } else { format!("{count} nodes fit") };
        match &pool.order {
            Order::Heap(heap) if self.settings.policy == Policy::Weighted => {
                let (node, weight, inverted) = draw_from(heap, self.settings.threshold, draw)?;
                let below = if inverted { ", inverted since the best is below the threshold" } else { "" };
                Some((node, format!("drawn by its weight of {weight:.3}{below}; {fit}")))
            }
            Order::Heap(heap) => {
                let (rank, node) = heap.walk().next()?;
                Some((node, format!("it has the fewest services, {}; {fit}", rank.services)))
            }
            Order::Ring(ring) => {
                let after = self.cursor.as_ref().map_or(0, |cursor| self.after(cursor));
                let node = ring.range(after..).next().or_else(|| ring.iter().next()).copied()?;
                let turn = match &self.cursor {
                    Some(cursor) => format!("it is next after {cursor}; {fit}"),
                    None => format!("it is the first; {fit}"),
                };
                self.cursor = Some(self.view.nodes[node].name.to_owned());
                Some((node, turn))
            }
        }
    }

    /// The number of the first node whose name comes after `name`, whether that is there or not.
    fn after(&self, name: &str) -> usize {
        self.view.nodes.partition_point(|node| node.name <= name)
    }

    /// A node that is better for a service which runs on `from` by more than a whim.
    fn better(&self, from: Option<usize>) -> Option<(usize, String)> {
        let from = from?;
        let Order::Heap(heap) = &self.pool.as_ref()?.order else { return None };
        let (rank, node) = heap.walk().next()?;
        if node == from {
            return None;
        }
        if self.settings.policy == Policy::Weighted {
            let present = self.weight(from, &[0; 3]);
            let is_better = rank.weight > present + BETTER;
            is_better.then(|| {
                (node, format!("its weight is {:.3}, that of {} {present:.3}", rank.weight, self.view.nodes[from].name))
            })
        } else {
            let present = self.loads[from].services;
            // One less is what it would have itself.
            let is_better = rank.services + 2 <= present;
            is_better.then(|| {
                (node, format!("it has {} services, {} has {present}", rank.services, self.view.nodes[from].name))
            })
        }
    }

    /// Why a group's service cannot be placed, and whether that may change by a word of a node alone.
    fn nowhere(&self, group: usize) -> (String, End) {
        if self.view.nodes.is_empty() {
            return ("no node was heard of".to_owned(), End::Waiting);
        }
        // A node of which nothing is known might be up.
        let may_fit = |node: &usize| {
            self.view.nodes[*node].status == Status::Unknown && self.reasons(group, *node).nth(1).is_none()
        };
        match (0..self.view.nodes.len()).find(may_fit) {
            Some(node) => (format!("no node fits; {} would, if it is up", self.view.nodes[node].name), End::Waiting),
            None => ("no node fits".to_owned(), End::NoFit),
        }
    }

    /// How many nodes fail which predicate of a group.
    fn rejected(&mut self, group: usize) -> BTreeMap<String, u64> {
        self.fill(group);
        let rejected = self.pool.iter().flat_map(|pool| &pool.rejected);
        rejected.filter(|(_, count)| **count > 0).map(|(reason, count)| (self.word(group, *reason), *count)).collect()
    }

    /// Notes what the choice for a service was made from; the chosen stands first.
    fn explain(&mut self, idx: usize, outcome: &mut Outcome, chosen: Option<usize>) {
        let group = self.group_of[idx];
        outcome.rejected = self.rejected(group);
        let Some(pool) = &self.pool else { return };
        let all = self.settings.explain || self.services.len() == 1;
        let count = if all { pool.order.len() } else { BEST };
        // The cursor stands on whom it has chosen already.
        let turn = match &self.cursor {
            Some(cursor) if chosen.is_some_and(|chosen| self.view.nodes[chosen].name == *cursor) => chosen.unwrap_or(0),
            Some(cursor) => self.after(cursor),
            None => 0,
        };
        let mut nodes: Vec<usize> = match &pool.order {
            Order::Heap(heap) if all => {
                let mut ranks: Vec<(&Rank, usize)> = heap.walk().collect();
                ranks.sort_unstable_by(|a, b| b.cmp(a));
                ranks.into_iter().map(|(_, node)| node).collect()
            }
            Order::Heap(heap) => heap.best(count),
            Order::Ring(ring) => ring.range(turn..).chain(ring.range(..turn)).take(count).copied().collect(),
        };
        let mut fits: Vec<Candidate> =
            nodes.iter().enumerate().map(|(at, node)| self.fitting(group, *node, at)).collect();
        if let Some(chosen) = chosen {
            let at = nodes.iter().position(|node| *node == chosen);
            let own = at.map_or_else(|| self.fitting(group, chosen, pool.order.len()), |at| fits.remove(at));
            fits.insert(0, own);
            fits.truncate(count.max(1));
        }
        nodes.clear();
        if all {
            nodes.extend((0..self.view.nodes.len()).filter(|node| pool.reasons[*node].is_some()));
        }
        let fails = nodes.into_iter().map(|node| {
            let failed = self.reasons(group, node).map(|reason| self.fault(group, node, reason)).collect();
            Candidate { node: self.view.nodes[node].name.to_owned(), failed, score: None, terms: Vec::new() }
        });
        outcome.candidates = fits.into_iter().chain(fails).collect();
    }

    /// A node that fits, `turn` nodes after the next in turn.
    fn fitting(&self, group: usize, node: usize, turn: usize) -> Candidate {
        #[allow(clippy::cast_precision_loss)] // counts
        let (score, terms) = match self.settings.policy {
            Policy::LeastServices => {
                let services = self.loads[node].services as f64;
                (services, vec![("services", services)])
            }
            Policy::RoundRobin => (turn as f64 + 1.0, vec![("turn", turn as f64 + 1.0)]),
            Policy::Weighted => {
                let need = &self.groups[group].need;
                let shares = self.shares(node, need).map(|(resource, share)| (resource.as_str(), rounded(share)));
                (rounded(self.weight(node, need)), shares.collect())
            }
        };
        Candidate { node: self.view.nodes[node].name.to_owned(), failed: Vec::new(), score: Some(score), terms }
    }
}

/// The outcome of a service that stays where it is, or runs nowhere.
fn keep(placed: Option<&Placed>, why: String) -> Outcome {
    let unproven = placed.map(|placed| placed.unproven.clone()).unwrap_or_default();
    Outcome {
        node: placed.map(|placed| placed.node.clone()),
        moved_from: unproven.first().cloned(),
        needs_fence: unproven,
        held: false,
        end: End::Placed,
        why,
        cause: None,
        standby: None,
        drawn: false,
        candidates: Vec::new(),
        rejected: BTreeMap::new(),
    }
}

/// Walks the array of the heap from the top: a random number below the weight takes, or, where the top's is
/// below the threshold, one that is not below. After three walks that took none it is the top.
fn draw_from(heap: &Heap<Rank>, threshold: f64, draw: &mut Draw) -> Option<(usize, f64, bool)> {
    let (top, first) = heap.walk().next()?;
    let inverted = top.weight < threshold;
    for _ in 0..WALKS {
        let taken = heap.walk().find(|(rank, _)| (draw.unit() < rank.weight) != inverted);
        if let Some((rank, node)) = taken {
            return Some((node, rank.weight, inverted));
        }
    }
    Some((first, top.weight, inverted))
}

fn first_off(nodes: &[String]) -> String {
    format!("{} must be proven off first", nodes.join(", "))
}

fn add(used: &mut Amounts, need: &Amounts) {
    for (used, need) in used.iter_mut().zip(need) {
        *used = used.saturating_add(*need);
    }
}

/// To a millionth: what stands in a record is for eyes.
fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}
