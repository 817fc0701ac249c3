//! The ownership map, and what this node may do about it now.
//!
//! [`share`] says who should own what. A move to there is *release, tell, take*: the old owner
//! gives a bucket up and reads that back, its next beat says so, and only then the new owner takes
//! it. An overlap resets every new connection; a gap delays one by a retransmission.
//!
//! # Why two nodes never take the same bucket
//!
//! Nodes may see different things for a while, and so want different maps. Each map has a number,
//! the *epoch*: a counter, and below it 24 bits of the map's digest, so two maps never share one. A
//! node's epoch only grows; it takes the highest it hears of if that is its own map's, and counts
//! on from there when its own map changes. A node takes a bucket only when every peer that is up
//! lists the taker's own epoch and does not list the bucket. Two nodes that both took one would
//! each have listed the other's epoch before moving on to its own: one of them had, when it did,
//! taken the bucket already, and listed it. Beats may be lost or late; that only delays.
//!
//! One need not agree: a peer that holds nothing and says that it can take nothing. It may be able to
//! again, while its word is on its way. So the word counts only for as long as a list does, and not to
//! whom another's like word could have been as old: not before it has been able to take something
//! itself for longer than that.
//!
//! A peer that is silent lists nothing any more. It may still have what it listed last, and what
//! maps since then gave it; that is held until it is proven off or its lease has run out. And a
//! node that stood still must not act on what it heard before: others may have taken its share
//! since. So a list counts for less than the time after which they may ([`Settings::fresh`]).

use super::change::How;
use super::share::{Fit, digest, share};
use crate::types::bucket::{Buckets, Owners};
use crate::types::status::Status;
use crate::types::time::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

/// What proves that a silent node serves no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fencing {
    /// A record of `fence` for its present life.
    #[default]
    Required,
    /// Silence for `take_after`: its lease has run out. Without a lease a split serves twice.
    None,
}

/// The configuration: the same on every node but for `me`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) total: u16,
    /// Who owns what when all are well; its nodes are the members.
    pub(crate) homes: Owners,
    /// Without any, a home's size is its weight.
    pub(crate) weights: BTreeMap<String, u32>,
    pub(crate) fail_back: bool,
    pub(crate) me: String,
    pub(crate) config: Option<String>,
    pub(crate) fencing: Fencing,
    /// From the last sign of life to the take-over.
    pub(crate) take_after: Duration,
    /// From the last sign of life to the verdict `down`.
    pub(crate) dead_after: Duration,
    /// Take nothing before every member was heard once, or is proven off.
    pub(crate) wait_for_all: bool,
    /// Take nothing while a living peer follows another map. Off for a single run by hand, whose
    /// user says that the records belong together.
    pub(crate) agree: bool,
}

impl Settings {
    /// How old the list of a living peer may be for a bucket to be taken by it.
    pub(crate) fn fresh(&self) -> Duration {
        crate::decide::fresh(self.take_after, self.dead_after)
    }
}

/// What is known of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) status: Status,
    /// When the status came to be what it is.
    pub(crate) since: Tick,
    /// When the last sign of life came in; what it lists is from then.
    pub(crate) last: Tick,
    /// Whether it was ever heard in this life of ours.
    pub(crate) heard: bool,
    /// What it listed last; `None` if it never did.
    pub(crate) own: Option<Buckets>,
    pub(crate) draining: Buckets,
    pub(crate) epoch: Option<u64>,
    pub(crate) config: Option<String>,
    pub(crate) weight: Option<u32>,
    /// What its health leaves of its weight, in per cent; all of it where that is not known.
    pub(crate) health_pct: Option<u32>,
    /// Why it is to be left alone.
    pub(crate) standby: Option<String>,
    /// Its health says that it must not serve: an effective priority of 0.
    pub(crate) unfit: bool,
    /// Its applier says that it carries no plan out that would take something.
    pub(crate) closed: bool,
    /// It said goodbye, and nothing else since.
    pub(crate) left: bool,
    /// A record proves that it is off, in the life that was heard last.
    pub(crate) proven_off: bool,
}

impl Default for Node {
    fn default() -> Self {
        Node {
            status: Status::Unknown,
            since: Tick::default(),
            last: Tick::default(),
            heard: false,
            own: None,
            draining: Buckets::new(),
            epoch: None,
            config: None,
            weight: None,
            health_pct: None,
            standby: None,
            unfit: false,
            closed: false,
            left: false,
            proven_off: false,
        }
    }
}

impl Node {
    /// It holds nothing, and who would take something for it says that it does not: it need not follow
    /// anybody's map. To take something it would have to say first that it can, and follow ours.
    ///
    /// That its health is bad is no such word: a plan from before may be on its way to the kernel.
    fn takes_nothing(&self) -> bool {
        self.closed && self.own.as_ref().is_some_and(Buckets::is_empty)
    }
}

/// Whether this side may act for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Quorum {
    /// Nobody counts.
    #[default]
    NotCounted,
    Yes,
    /// Others may take what this node holds.
    No,
    /// It is not known, and nobody else can take what this node holds: it keeps that and takes
    /// nothing. It becomes known when these are proven off.
    Pending(Vec<String>),
}

/// What this node sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) quorum: Quorum,
}

/// What is remembered between two conclusions. Losing it is safe: it makes a node wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) epoch: u64,
    /// What this node was told to hold last, where it does not list it itself.
    pub(crate) mine: Buckets,
    /// What each peer may have taken since it was last seen to agree.
    pub(crate) could: BTreeMap<String, Buckets>,
    /// What this node listed at the last conclusion, and when that was.
    pub(crate) own: Buckets,
    pub(crate) concluded: Option<Tick>,
    /// When this node last came back from where others may have taken its share: it had stood
    /// still, had given up, or had lost what it held.
    pub(crate) away: Option<Tick>,
    /// When this node last could take nothing, or had lost what it held.
    pub(crate) closed: Option<Tick>,
    /// What a living peer lists as well as this node, and since when some of it.
    pub(crate) twice: Option<(Buckets, Tick)>,
}

/// A part of the map that is not yet where it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Move {
    pub(crate) buckets: Buckets,
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    pub(crate) how: How,
    pub(crate) why: String,
}

/// Whether this node's LAN carries nothing, by what beats on it arrive here and there.
///
/// `peers` are those who are up: whether it is heard on the LAN, and whether it hears us there. Who
/// is heard by nobody there can answer no client. Who hears nobody there is asked by none; but with
/// one peer alone that can as well be the peer's fault, and then both would give up. Nor can a node tell
/// of one peer alone that does not hear it whether it is the peer that has gone deaf: a gateway that
/// answers can.
pub(crate) fn lan_is_dead(peers: impl Iterator<Item = (bool, bool)>, reaches_gateway: bool) -> bool {
    let (mut count, mut heard, mut hears) = (0, false, false);
    for (is_heard, hears_us) in peers {
        count += 1;
        heard |= is_heard;
        hears |= hears_us;
    }
    match count {
        0 => false,
        1 => !hears && !reaches_gateway,
        _ => !hears || !heard,
    }
}

/// One conclusion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) epoch: u64,
    /// Who should own what.
    pub(crate) owners: Owners,
    /// What this node may answer for now.
    pub(crate) mine: Buckets,
    pub(crate) moves: Vec<Move>,
    /// Nobody is fit to own them.
    pub(crate) unowned: Buckets,
    /// Ours by the map, and somebody may still have them of whom that cannot be known.
    pub(crate) held: Buckets,
    /// The proof that is missing, sorted.
    pub(crate) needs_fence: Vec<String>,
    /// Why this node holds nothing, where it gave up.
    pub(crate) gave_up: Option<&'static str>,
    /// When time alone changes the answer.
    pub(crate) wake: Option<Tick>,
}

/// The low bits of an epoch are the map's digest.
const DIGEST_BITS: u32 = 24;

/// Whose claim a bucket waits for.
enum Claim {
    None,
    /// A living owner will release it.
    Lives,
    /// It cannot be known yet.
    Held,
}

/// Time alone changes the answer at `at`.
fn wait(wake: &mut Option<Tick>, at: Tick) {
    *wake = Some(wake.map_or(at, |wake| wake.min(at)));
}

/// Concludes.
pub(crate) fn plan(settings: &Settings, view: &View, memory: &Memory, now: Tick) -> (Plan, Memory) {
    let mut round = Round { settings, view, memory, now, away: memory.away, closed: memory.closed };
    let gave_up = round.gives_up();
    let was_away = round.was_away();
    if gave_up.is_some() || was_away {
        round.away = Some(now);
    }
    // What a life of ours before this one has said is not known.
    if was_away || memory.concluded.is_none() || round.me().is_some_and(|node| node.closed) {
        round.closed = Some(now);
    }
    let owners = round.target(gave_up.is_some());
    let epoch = round.epoch(&owners, was_away);
    let mut plan = Plan {
        epoch,
        unowned: Buckets::all(settings.total)
            .difference(&owners.0.values().fold(Buckets::new(), |all, own| all.union(own))),
        owners,
        mine: Buckets::new(),
        moves: Vec::new(),
        held: Buckets::new(),
        needs_fence: Vec::new(),
        gave_up,
        wake: None,
    };
    let own = round.own_now();
    let twice = round.twice(&own);
    let yields = round.yields(twice.as_ref());
    let mut moves: BTreeMap<(Option<String>, String, How, String), Vec<u16>> = BTreeMap::new();
    for bucket in 1..=settings.total {
        let Some(to) = plan.owners.owner(bucket).map(str::to_owned) else {
            // Nobody else is there to serve it.
            if gave_up.is_none() && own.contains(bucket) {
                plan.mine.insert(bucket);
            }
            continue;
        };
        let mine = own.contains(bucket);
        if gave_up.is_none() {
            if to == settings.me {
                let claim = match mine {
                    true if yields.contains(bucket) => Claim::Lives,
                    true => Claim::None,
                    false => round.claim(bucket, epoch, &mut plan),
                };
                match claim {
                    Claim::None => {
                        plan.mine.insert(bucket);
                    }
                    Claim::Lives => {}
                    Claim::Held => {
                        plan.held.insert(bucket);
                    }
                }
            } else if mine && !round.releases(bucket, &to, epoch) {
                plan.mine.insert(bucket);
            }
        }
        if let Some((from, how, why)) = round.movement(bucket, &to, gave_up) {
            moves.entry((from, to, how, why)).or_default().push(bucket);
        }
    }
    plan.moves = moves
        .into_iter()
        .map(|((from, to, how, why), buckets)| Move { buckets: buckets.into_iter().collect(), from, to, how, why })
        .collect();
    plan.needs_fence.sort();
    plan.needs_fence.dedup();
    if let Some((_, since)) = &twice
        && yields.is_empty()
    {
        wait(&mut plan.wake, since.after(settings.dead_after));
    }
    let memory = Memory { twice, ..round.remember(&plan) };
    (plan, memory)
}

struct Round<'a> {
    settings: &'a Settings,
    view: &'a View,
    memory: &'a Memory,
    now: Tick,
    away: Option<Tick>,
    closed: Option<Tick>,
}

impl Round<'_> {
    fn me(&self) -> Option<&Node> {
        self.view.nodes.get(&self.settings.me)
    }

    /// Members other than this one; one that was never heard of is unknown.
    fn peers(&self) -> impl Iterator<Item = (&str, Option<&Node>)> {
        let me = self.settings.me.as_str();
        self.settings
            .homes
            .0
            .keys()
            .chain(self.settings.weights.keys().filter(|node| !self.settings.homes.0.contains_key(*node)))
            .map(String::as_str)
            .filter(move |&node| node != me)
            .map(|node| (node, self.view.nodes.get(node)))
    }

    fn own_now(&self) -> Buckets {
        self.me().and_then(|node| node.own.clone()).unwrap_or_else(|| self.memory.mine.clone())
    }

    /// Whether this node stood still, or lost buckets that it had not been told to release.
    fn was_away(&self) -> bool {
        let stood = self.memory.concluded.is_some_and(|last| self.now.since(last) > self.settings.fresh());
        let kept = self.memory.own.intersection(&self.memory.mine);
        stood || !kept.difference(&self.own_now()).is_empty()
    }

    /// What living peers list of this node's own, and since when some of it: a moment when beats crossed.
    /// What lasts means that they took it since they do not hear what this node lists.
    fn twice(&self, own: &Buckets) -> Option<(Buckets, Tick)> {
        let lists = self.peers().filter_map(|(_, node)| node.filter(|node| node.status == Status::Up)?.own.as_ref());
        let now = lists.fold(Buckets::new(), |all, theirs| all.union(&theirs.intersection(own)));
        if now.is_empty() {
            return None;
        }
        match &self.memory.twice {
            Some((before, since)) if !before.intersection(&now).is_empty() => Some((before.intersection(&now), *since)),
            _ => Some((now, self.now)),
        }
    }

    /// What this node gives up to others that go on listing it: twice served is worse than not served, and
    /// whoever hears the other must be the one.
    fn yields(&self, twice: Option<&(Buckets, Tick)>) -> Buckets {
        match twice {
            Some((buckets, since)) if self.now.since(*since) >= self.settings.dead_after => buckets.clone(),
            _ => Buckets::new(),
        }
    }

    /// Why this node must hold nothing at all.
    fn gives_up(&self) -> Option<&'static str> {
        if self.view.quorum == Quorum::No {
            return Some("no quorum");
        }
        if self.me().is_some_and(|node| node.unfit) {
            return Some("not well");
        }
        if self.me().is_some_and(|node| node.status == Status::Down) {
            return Some("judged down");
        }
        // Two nodes cannot tell a dead peer from a cut cable; three or more that hear nobody are
        // more likely alone than the only one left.
        // Who left with a goodbye is not silent.
        let silent = || self.peers().filter(|(_, node)| !node.is_some_and(|node| node.left));
        let alone = self.view.quorum == Quorum::NotCounted
            && silent().count() >= 2
            && silent().any(|(_, node)| node.is_some_and(|node| node.heard))
            && self.peers().all(|(_, node)| node.is_none_or(|node| node.status != Status::Up && !node.proven_off));
        alone.then_some("isolated")
    }

    fn is_fit(node: &Node) -> bool {
        node.status == Status::Up && !node.unfit
    }

    /// The map for those who are there.
    fn target(&self, gave_up: bool) -> Owners {
        let settings = self.settings;
        let mut fit: BTreeMap<&str, Option<&Node>> =
            self.peers().filter(|(_, node)| node.is_some_and(Self::is_fit)).collect();
        if !gave_up {
            fit.insert(settings.me.as_str(), self.me());
        }
        // Planned maintenance of everybody would be an outage.
        let rests = |node: Option<&Node>| node.is_some_and(|node| node.standby.is_some());
        if !fit.values().copied().all(rests) {
            fit.retain(|_, node| !rests(*node));
        }
        let weight = |name: &str, node: Option<&Node>| {
            settings.weights.get(name).copied().or_else(|| node.and_then(|node| node.weight))
        };
        let weighted = fit.iter().any(|(name, node)| weight(name, *node).is_some());
        let home = |name: &str| settings.homes.0.get(name).map_or(0, Buckets::len);
        let weights = fit
            .iter()
            .map(|(&name, node)| {
                let default = if weighted { 1 } else { u32::try_from(home(name)).unwrap_or(1).max(1) };
                let health_pct = node.and_then(|node| node.health_pct).unwrap_or(100);
                (name.to_owned(), weight(name, *node).unwrap_or(default).saturating_mul(health_pct))
            })
            .collect();
        let present = fit
            .iter()
            .map(|(&name, node)| {
                let own = if name == settings.me {
                    self.own_now()
                } else {
                    node.and_then(|node| node.own.clone()).unwrap_or_default()
                };
                (name.to_owned(), own)
            })
            .collect();
        share(settings.total, &settings.homes, &Fit { weights, present, fail_back: settings.fail_back })
    }

    /// The number of the map `owners`: the highest known if that is its own, else the next.
    ///
    /// Always the next for who `was_away`: to the number from before its peers agreed when it had its share.
    fn epoch(&self, owners: &Owners, was_away: bool) -> u64 {
        let digest = digest(owners);
        let own = self.memory.epoch.max(self.me().and_then(|node| node.epoch).unwrap_or_default());
        let heard = self.peers().filter_map(|(_, node)| node.and_then(|node| node.epoch)).max().unwrap_or_default();
        let top = own.max(heard);
        let low = |epoch: u64| epoch & ((1 << DIGEST_BITS) - 1);
        if top > 0 && low(top) == digest && !was_away {
            top
        } else if own > 0 && low(own) == digest && !was_away {
            // Somebody follows another map, and one of us will see what the other sees.
            own
        } else {
            ((top >> DIGEST_BITS) + 1) << DIGEST_BITS | digest
        }
    }

    /// What a peer may answer for that does not tell it now.
    fn may_have(&self, name: &str, node: Option<&Node>) -> Buckets {
        // Not heard since we were away: it may have taken our share, and what we would get.
        if let (Some(node), Some(away)) = (node, self.away)
            && node.heard
            && node.status != Status::Up
            && node.last <= away
        {
            return Buckets::all(self.settings.total);
        }
        // Its goodbye says that it holds nothing, and who would take something for it that it does not.
        if node.is_some_and(|node| node.left && node.takes_nothing()) {
            return Buckets::new();
        }
        let could = self.memory.could.get(name).cloned().unwrap_or_default();
        match node.and_then(|node| node.own.clone()) {
            Some(own) => own.union(&could),
            None => self.settings.homes.0.get(name).cloned().unwrap_or_default().union(&could),
        }
    }

    /// Whether somebody else may have a bucket that is to be ours.
    fn claim(&self, bucket: u16, epoch: u64, plan: &mut Plan) -> Claim {
        let settings = self.settings;
        let pending = matches!(self.view.quorum, Quorum::Pending(_));
        let mut claim = if pending { Claim::Held } else { Claim::None };
        for (name, node) in self.peers() {
            if node.is_some_and(|node| node.proven_off) {
                continue;
            }
            let heard = node.is_some_and(|node| node.heard);
            match node.map_or(Status::Unknown, |node| node.status) {
                Status::Up => {
                    let Some(node) = node else { continue };
                    let stranger = node.config.is_some() && settings.config.is_some() && node.config != settings.config;
                    if stranger && self.may_have(name, Some(node)).contains(bucket) {
                        claim = Claim::Held;
                    } else if node.own.as_ref().is_some_and(|own| own.contains(bucket)) {
                        if matches!(claim, Claim::None) {
                            claim = Claim::Lives;
                        }
                    } else if settings.agree {
                        let agrees = node.epoch.is_none_or(|theirs| theirs == epoch);
                        let is_old = self.now.since(node.last) > settings.fresh();
                        // Until a word of ours that is like theirs counts for nobody.
                        let free = self.closed.map(|closed| closed.after(settings.take_after)).unwrap_or_default();
                        let only_wait = !agrees && node.takes_nothing() && !is_old;
                        if only_wait && self.now < free {
                            wait(&mut plan.wake, free);
                        }
                        if is_old || !(agrees || only_wait && self.now >= free) {
                            claim = Claim::Held;
                        }
                    }
                }
                Status::Down | Status::Unknown if settings.wait_for_all && !heard => claim = Claim::Held,
                Status::Unknown => {
                    if self.may_have(name, node).contains(bucket) {
                        claim = Claim::Held;
                    }
                }
                Status::Down => {
                    if !self.may_have(name, node).contains(bucket) {
                        continue;
                    }
                    match settings.fencing {
                        Fencing::Required => {
                            // Who may be the smaller side shoots only whom the tie is about.
                            if !matches!(&self.view.quorum, Quorum::Pending(tied) if !tied.iter().any(|node| node == name))
                            {
                                plan.needs_fence.push(name.to_owned());
                            }
                            claim = Claim::Held;
                        }
                        Fencing::None => {
                            let since = node.map(|node| node.since).unwrap_or_default();
                            let silent = since.after(settings.take_after.saturating_sub(settings.dead_after));
                            // Silence that fell while we stood still is not theirs.
                            let listened = self.away.map(|away| away.after(settings.take_after)).unwrap_or_default();
                            let free = silent.max(listened);
                            if self.now < free {
                                wait(&mut plan.wake, free);
                                claim = Claim::Held;
                            }
                        }
                    }
                }
            }
        }
        claim
    }

    /// Whether this node gives a bucket of its own up now, for `to`.
    fn releases(&self, bucket: u16, to: &str, epoch: u64) -> bool {
        let settings = self.settings;
        let Some(node) = self.view.nodes.get(to) else { return false };
        let stranger = node.config.is_some() && settings.config.is_some() && node.config != settings.config;
        // Twice served is worse than not served: whoever is not the owner by the map yields.
        let twice = node.own.as_ref().is_some_and(|own| own.contains(bucket));
        let agrees = !settings.agree || node.epoch.is_none_or(|theirs| theirs == epoch);
        node.status == Status::Up && (twice || (agrees && !stranger))
    }

    /// Where a bucket is now, if that is not `to`: from whom it comes, how, and why.
    fn movement(&self, bucket: u16, to: &str, gave_up: Option<&'static str>) -> Option<(Option<String>, How, String)> {
        let settings = self.settings;
        let me = settings.me.as_str();
        let mine = self.own_now().contains(bucket);
        if mine && to == me {
            return None;
        }
        if mine {
            let twice =
                self.view.nodes.get(to).and_then(|node| node.own.as_ref()).is_some_and(|own| own.contains(bucket));
            let how = if gave_up.is_some() || twice { How::Settle } else { How::Drain };
            let why = gave_up.map_or_else(|| self.reason(bucket, me, to), str::to_owned);
            return Some((Some(me.to_owned()), how, why));
        }
        let lists = |node: &Node| node.own.as_ref().is_some_and(|own| own.contains(bucket));
        let living = self.peers().find(|(_, node)| node.is_some_and(|node| node.status == Status::Up && lists(node)));
        if let Some((from, _)) = living {
            return (from != to).then(|| (Some(from.to_owned()), How::Drain, self.reason(bucket, from, to)));
        }
        let drains =
            self.view.nodes.iter().find(|(_, node)| node.status == Status::Up && node.draining.contains(bucket));
        if let Some((from, _)) = drains {
            return Some((Some(from.clone()), How::Drain, "released".to_owned()));
        }
        let silent = self.peers().find(|(_, node)| node.is_some_and(|node| node.status != Status::Up && lists(node)));
        match silent {
            Some((from, Some(node))) => {
                let state = if node.proven_off { "off" } else { node.status.as_str() };
                Some((Some(from.to_owned()), How::TakeOver, format!("{from} is {state}")))
            }
            _ => Some((None, How::TakeOver, "nobody has it".to_owned())),
        }
    }

    fn reason(&self, bucket: u16, from: &str, to: &str) -> String {
        let node = self.view.nodes.get(from);
        if let Some(why) = node.and_then(|node| node.standby.as_ref()) {
            return format!("{from} is in standby: {why}");
        }
        if node.is_some_and(|node| node.unfit) {
            return format!("{from} is not well");
        }
        let home = self.settings.homes.0.get(to).is_some_and(|home| home.contains(bucket));
        match node.and_then(|node| node.health_pct) {
            _ if home => "home".to_owned(),
            Some(left @ ..100) => format!("health leaves {from} {left} % of its weight"),
            _ => "weights".to_owned(),
        }
    }

    fn remember(&self, plan: &Plan) -> Memory {
        let mut could = BTreeMap::new();
        for (name, node) in self.peers() {
            let target = plan.owners.0.get(name).cloned().unwrap_or_default();
            // While it is up and follows our map, it can take what that map gives it and no more.
            let agrees = node
                .is_some_and(|node| node.status == Status::Up && node.epoch.is_none_or(|epoch| epoch == plan.epoch));
            let earlier = self.memory.could.get(name).filter(|_| !agrees).cloned().unwrap_or_default();
            could.insert(name.to_owned(), target.union(&earlier));
        }
        Memory {
            epoch: plan.epoch,
            mine: plan.mine.clone(),
            could,
            own: self.own_now(),
            concluded: Some(self.now),
            away: self.away,
            closed: self.closed,
            twice: None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn list(text: &str) -> Buckets {
        text.parse().unwrap()
    }

    fn settings(me: &str) -> Settings {
        Settings {
            total: 6,
            homes: "n1=1-2,n2=3-4,n3=5-6".parse().unwrap(),
            weights: BTreeMap::new(),
            fail_back: true,
            me: me.to_owned(),
            config: None,
            fencing: Fencing::Required,
            take_after: Duration::from_secs(5),
            dead_after: Duration::from_secs(3),
            wait_for_all: false,
            agree: false,
        }
    }

    fn up(own: &str) -> Node {
        Node { status: Status::Up, heard: true, own: Some(list(own)), ..Node::default() }
    }

    fn down(own: &str, since: u64) -> Node {
        Node { status: Status::Down, since: Tick(Duration::from_secs(since)), ..up(own) }
    }

    fn view(nodes: &[(&str, Node)]) -> View {
        View {
            nodes: nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect(),
            quorum: Quorum::NotCounted,
        }
    }

    fn at(seconds: u64) -> Tick {
        Tick(Duration::from_secs(seconds))
    }

    fn conclude(settings: &Settings, view: &View) -> Plan {
        plan(settings, view, &Memory::default(), at(100)).0
    }

    /// How a bucket of `mine` that was not held before is taken: as what its old owner lists says.
    fn how_to_take(view: &View, me: &str, bucket: u16) -> How {
        let drains =
            |(name, node): (&String, &Node)| name != me && node.status == Status::Up && node.draining.contains(bucket);
        if view.nodes.iter().any(drains) { How::Drain } else { How::TakeOver }
    }

    #[test]
    fn the_last_one_after_planned_leaves_goes_on_and_the_last_one_in_a_silence_does_not() {
        let left = || Node { left: true, ..down("", 90) };
        let settings = Settings { fencing: Fencing::None, ..settings("n3") };
        let both = conclude(&settings, &view(&[("n1", left()), ("n2", left()), ("n3", up("5-6"))]));
        assert_eq!((both.gave_up, both.mine), (None, list("1-6")));
        let one = conclude(&settings, &view(&[("n1", left()), ("n2", down("3-4", 90)), ("n3", up("5-6"))]));
        assert_eq!(one.gave_up, None, "of two that are left nobody can tell");
        let none = conclude(&settings, &view(&[("n1", down("1-2", 90)), ("n2", down("3-4", 90)), ("n3", up("5-6"))]));
        assert_eq!(none.gave_up, Some("isolated"));
    }

    #[test]
    fn a_lan_that_carries_nothing_one_way_is_dead_for_one_side_only() {
        // (heard there, hears us there)
        for (peers, dead) in [
            (&[][..], false),
            (&[(true, true)], false),
            (&[(true, false)], true),
            (&[(false, true)], false),
            (&[(false, false)], true),
            (&[(false, true), (false, true)], true),
            (&[(true, false), (true, true)], false),
            (&[(true, false), (true, false)], true),
        ] {
            assert_eq!(lan_is_dead(peers.iter().copied(), false), dead, "{peers:?}");
            // The gateway is asked now and then; several peers know sooner, and better.
            let several = dead && peers.len() > 1;
            assert_eq!(lan_is_dead(peers.iter().copied(), true), several, "{peers:?}, with a gateway");
        }
    }

    #[test]
    fn all_well_is_home() {
        let plan = conclude(&settings("n1"), &view(&[("n1", up("1-2")), ("n2", up("3-4")), ("n3", up("5-6"))]));
        assert_eq!(plan.mine, list("1-2"));
        assert!(plan.moves.is_empty() && plan.held.is_empty() && plan.unowned.is_empty());
    }

    #[test]
    fn health_lowers_a_share_and_its_node_drains_what_it_loses() {
        let left = |health_pct: u32, node: Node| Node { health_pct: Some(health_pct), ..node };
        let view = |n1: u32| view(&[("n1", left(n1, up("1-2"))), ("n2", up("3-4")), ("n3", left(100, up("5-6")))]);
        assert_eq!(conclude(&settings("n1"), &view(100)).mine, list("1-2"));
        let half = conclude(&settings("n1"), &view(40));
        assert_eq!((half.mine.len(), half.gave_up), (1, None));
        let step = &half.moves[0];
        assert_eq!((step.how, step.why.as_str()), (How::Drain, "health leaves n1 40 % of its weight"));
        assert_eq!(half.owners, conclude(&settings("n2"), &view(40)).owners, "the others conclude the same");
        // The last choice is one where nobody is better.
        let all = |node: Node| left(1, node);
        let last = self::view(&[("n1", all(up("1-2"))), ("n2", all(up("3-4"))), ("n3", all(up("5-6")))]);
        assert_eq!(conclude(&settings("n1"), &last).mine, list("1-2"));
    }

    #[test]
    fn a_silent_nodes_share_needs_proof() {
        let nodes = [("n1", up("1-2")), ("n2", up("3-4")), ("n3", down("5-6", 90))];
        let plan = conclude(&settings("n1"), &view(&nodes));
        assert_eq!(plan.mine, list("1-2"));
        assert_eq!(plan.needs_fence, ["n3"]);
        assert_eq!(plan.held.len(), 1);
        let mut nodes = nodes;
        nodes[2].1.proven_off = true;
        let plan = conclude(&settings("n1"), &view(&nodes));
        assert_eq!(plan.mine.len(), 3);
        assert!(plan.held.is_empty() && plan.needs_fence.is_empty());
        let taken = plan.moves.iter().find(|step| step.to == "n1").unwrap();
        assert_eq!((taken.how, taken.why.as_str()), (How::TakeOver, "n3 is off"));
    }

    #[test]
    fn without_fencing_a_lease_is_waited_for() {
        let settings = Settings { fencing: Fencing::None, ..settings("n1") };
        let nodes = view(&[("n1", up("1-2")), ("n2", up("3-4")), ("n3", down("5-6", 99))]);
        let early = plan(&settings, &nodes, &Memory::default(), at(100)).0;
        assert_eq!((early.mine.len(), early.wake), (2, Some(at(101))));
        let late = plan(&settings, &nodes, &Memory::default(), at(101)).0;
        assert_eq!((late.mine.len(), late.wake), (3, None));
        assert!(late.needs_fence.is_empty());
    }

    #[test]
    fn a_living_owner_is_waited_for_and_its_drain_is_kept() {
        // n1 comes back; n2 has its buckets.
        let nodes = [("n1", up("")), ("n2", up("1-4")), ("n3", up("5-6"))];
        let plan = conclude(&settings("n1"), &view(&nodes));
        assert!(plan.mine.is_empty() && plan.held.is_empty());
        assert_eq!(
            plan.moves[0],
            Move {
                buckets: list("1-2"),
                from: Some("n2".to_owned()),
                to: "n1".to_owned(),
                how: How::Drain,
                why: "home".to_owned()
            }
        );
        // n2 releases.
        assert_eq!(conclude(&settings("n2"), &view(&nodes)).mine, list("3-4"));
        let released = Node { draining: list("1-2"), ..up("3-4") };
        let nodes = view(&[("n1", up("")), ("n2", released), ("n3", up("5-6"))]);
        let plan = conclude(&settings("n1"), &nodes);
        assert_eq!(plan.mine, list("1-2"));
        assert_eq!(how_to_take(&nodes, "n1", 1), How::Drain);
        assert_eq!(how_to_take(&nodes, "n1", 5), How::TakeOver);
    }

    #[test]
    fn what_was_released_by_fault_is_taken_over_at_once() {
        // n3's LAN is down: it lives, talks, and lists nothing.
        let sick = Node { unfit: true, ..up("") };
        let nodes = view(&[("n1", up("1-2")), ("n2", up("3-4")), ("n3", sick)]);
        let plan = conclude(&settings("n1"), &nodes);
        assert_eq!(plan.mine.len(), 3);
        assert!(plan.needs_fence.is_empty());
        let gained = plan.mine.difference(&list("1-2")).iter().next().unwrap();
        assert_eq!(how_to_take(&nodes, "n1", gained), How::TakeOver);
        // And n3 itself holds nothing.
        let sick = Node { unfit: true, ..up("5-6") };
        let plan = conclude(&settings("n3"), &view(&[("n1", up("1-2")), ("n2", up("3-4")), ("n3", sick)]));
        assert!(plan.mine.is_empty());
        assert_eq!(plan.gave_up, Some("not well"));
        assert!(plan.moves.iter().all(|step| step.how == How::Settle));
    }

    #[test]
    fn the_last_owners_death_leaves_an_earlier_drain() {
        // n2 drains 5, n3 took it and died.
        let nodes = view(&[
            ("n1", up("1-2")),
            ("n2", Node { draining: list("5-6"), ..up("3-4") }),
            ("n3", Node { proven_off: true, ..down("5-6", 90) }),
        ]);
        let plan = conclude(&settings("n1"), &nodes);
        let gained = plan.mine.difference(&list("1-2")).iter().next().unwrap();
        assert_eq!(how_to_take(&nodes, "n1", gained), How::Drain);
    }

    #[test]
    fn a_side_without_quorum_gives_all_up() {
        let mut nodes = view(&[("n1", up("1-2")), ("n2", down("3-4", 1)), ("n3", down("5-6", 1))]);
        nodes.quorum = Quorum::No;
        let plan = conclude(&settings("n1"), &nodes);
        assert!(plan.mine.is_empty());
        assert_eq!(plan.gave_up, Some("no quorum"));
        // With the majority the same view is a take-over, once proven.
        nodes.quorum = Quorum::Yes;
        assert_eq!(conclude(&settings("n1"), &nodes).needs_fence, ["n2", "n3"]);
        // Nobody counts, and nobody is heard.
        nodes.quorum = Quorum::NotCounted;
        assert_eq!(conclude(&settings("n1"), &nodes).gave_up, Some("isolated"));
    }

    #[test]
    fn a_tie_keeps_what_it_holds_takes_nothing_and_asks_for_proof_of_the_other() {
        let two = Settings { homes: "n1=1-3,n2=4-6".parse().unwrap(), ..settings("n1") };
        let tied = |with: &[&str]| Quorum::Pending(with.iter().map(|node| (*node).to_owned()).collect());
        let mut nodes = view(&[("n1", up("1-3")), ("n2", down("4-6", 90))]);
        nodes.quorum = tied(&["n2"]);
        let plan = conclude(&two, &nodes);
        assert_eq!((plan.gave_up, plan.mine, plan.held), (None, list("1-3"), list("4-6")));
        assert_eq!(plan.needs_fence, ["n2"]);
        // It is not known whether this side even reaches the gateway: nobody is shot.
        nodes.quorum = tied(&["gateway"]);
        assert!(conclude(&two, &nodes).needs_fence.is_empty());
        // Silence is no proof in a tie.
        nodes.quorum = tied(&["n2"]);
        let silence = Settings { fencing: Fencing::None, ..two.clone() };
        assert_eq!(conclude(&silence, &nodes).mine, list("1-3"));
        nodes.nodes.get_mut("n2").unwrap().proven_off = true;
        nodes.quorum = Quorum::Yes;
        assert_eq!(conclude(&two, &nodes).mine, list("1-6"));
    }

    #[test]
    fn standby_drains_out_and_everybodys_standby_does_not() {
        let rests = Node { standby: Some("new kernel".to_owned()), ..up("1-2") };
        let nodes = view(&[("n1", rests.clone()), ("n2", up("3-4")), ("n3", up("5-6"))]);
        let plan = conclude(&settings("n1"), &nodes);
        assert!(plan.mine.is_empty());
        assert!(plan.moves.iter().all(|step| step.how == How::Drain && step.why.contains("new kernel")));
        let all = view(&[
            ("n1", rests.clone()),
            ("n2", Node { own: Some(list("3-4")), ..rests.clone() }),
            ("n3", Node { own: Some(list("5-6")), ..rests }),
        ]);
        assert_eq!(conclude(&settings("n1"), &all).mine, list("1-2"));
    }

    #[test]
    fn a_peer_never_heard_is_unknown_and_keeps_its_home() {
        let nodes = view(&[("n1", up("")), ("n2", up(""))]);
        let plan = conclude(&settings("n1"), &nodes);
        assert_eq!(plan.mine, list("1-2"));
        assert_eq!(plan.held.len(), 1);
        assert!(plan.needs_fence.is_empty());
        let waits = Settings { wait_for_all: true, ..settings("n1") };
        assert!(conclude(&waits, &nodes).mine.is_empty());
    }

    #[test]
    fn another_configuration_moves_nothing() {
        let mine = Settings { config: Some("a".to_owned()), ..settings("n1") };
        let other = Node { config: Some("b".to_owned()), ..up("1-4") };
        let nodes = view(&[("n1", up("")), ("n2", other), ("n3", up("5-6"))]);
        assert!(conclude(&mine, &nodes).mine.is_empty());
        assert_eq!(conclude(&mine, &nodes).held, list("1-2"));
        let there = Settings { config: Some("b".to_owned()), ..settings("n2") };
        let nodes =
            view(&[("n1", Node { config: Some("a".to_owned()), ..up("") }), ("n2", up("1-4")), ("n3", up("5-6"))]);
        assert_eq!(conclude(&there, &nodes).mine, list("1-4"));
    }

    #[test]
    fn a_peer_on_another_map_is_waited_for() {
        let strict = Settings { agree: true, ..settings("n1") };
        let mut nodes = view(&[
            ("n1", up("1-2")),
            ("n2", Node { epoch: Some(5), last: at(100), ..up("3-4") }),
            ("n3", Node { proven_off: true, ..down("5-6", 1) }),
        ]);
        let first = conclude(&strict, &nodes);
        assert_eq!(first.mine, list("1-2"));
        assert!(!first.held.is_empty());
        assert!(first.epoch > 5);
        let mut sick = nodes.clone();
        let n2 = sick.nodes.get_mut("n2").unwrap();
        (n2.unfit, n2.own) = (true, Some(Buckets::new()));
        assert_eq!(conclude(&strict, &sick).mine, list("1-2"), "a plan from when it was well may be under way");
        sick.nodes.get_mut("n2").unwrap().closed = true;
        assert_eq!(conclude(&strict, &sick).mine, list("1-2"), "we may have said the same just now");
        let mut later = |last: u64, now: u64| {
            sick.nodes.get_mut("n2").unwrap().last = at(last);
            let memory = Memory { concluded: Some(at(now - 1)), closed: Some(at(96)), ..Memory::default() };
            plan(&strict, &sick, &memory, at(now)).0
        };
        assert_eq!((later(100, 100).mine, later(100, 100).wake), (list("1-2"), Some(at(101))));
        assert_eq!(later(101, 101).mine, Buckets::all(6), "who holds nothing and says so need not agree");
        assert_eq!(later(101, 106).mine, list("1-2"), "its word is old");
        nodes.nodes.get_mut("n2").unwrap().epoch = Some(first.epoch);
        let second = conclude(&strict, &nodes);
        assert_eq!(second.epoch, first.epoch);
        assert_eq!(second.mine.len(), 3);
    }

    #[test]
    fn who_left_with_nothing_needs_no_proof_whatever_it_could_have_taken() {
        let could = BTreeMap::from([("n2".to_owned(), list("3-4"))]);
        let memory = Memory { could, concluded: Some(at(99)), ..Memory::default() };
        for (closed, mine, fence) in [(true, "1-2,4", &[][..]), (false, "1-2", &["n2".to_owned()][..])] {
            let left = Node { left: true, closed, ..down("", 99) };
            let nodes = view(&[("n1", up("1-2")), ("n2", left), ("n3", up("5-6"))]);
            let concluded = plan(&settings("n1"), &nodes, &memory, at(100)).0;
            assert_eq!((concluded.mine, concluded.needs_fence.as_slice()), (list(mine), fence), "{closed}");
        }
    }

    /// n2 lists what is ours by the map, and goes on: it does not hear that we list it.
    #[test]
    fn what_another_goes_on_listing_is_given_up() {
        let strict = Settings { agree: true, ..settings("n1") };
        let other = |own: &str, last: u64| Node { epoch: Some(1), last: at(last), ..up(own) };
        let nodes = |last: u64| view(&[("n1", up("1-2")), ("n2", other("2-4", last)), ("n3", other("5-6", last))]);
        let (first, memory) = plan(&strict, &nodes(100), &Memory::default(), at(100));
        assert_eq!((first.mine, first.wake), (list("1-2"), Some(at(103))), "beats that crossed");
        let (still, memory) = plan(&strict, &nodes(102), &memory, at(102));
        assert_eq!(still.mine, list("1-2"));
        let (given_up, memory) = plan(&strict, &nodes(103), &memory, at(103));
        assert_eq!(given_up.mine, list("1"));
        let mut released = nodes(104);
        released.nodes.get_mut("n1").unwrap().own = Some(list("1"));
        let (waits, memory) = plan(&strict, &released, &memory, at(104));
        assert_eq!((waits.mine, memory.twice), (list("1"), None), "it is there, and served");
        let (crossed, _) =
            plan(&strict, &nodes(100), &Memory { twice: Some((list("5"), at(90))), ..Memory::default() }, at(100));
        assert_eq!(crossed.mine, list("1-2"), "another one");
    }

    #[test]
    fn nobody_fit_is_unowned() {
        let nodes = view(&[("n1", Node { unfit: true, ..up("") }), ("n2", down("", 1)), ("n3", down("", 1))]);
        let plan = conclude(&settings("n1"), &nodes);
        assert_eq!(plan.unowned, Buckets::all(6));
    }
}
