//! Who serves a virtual address, and whether this node may do it now.
//!
//! The highest effective priority wins, then the higher address, then the lower name. A change of owner
//! is *release, tell, take*: the old owner gives the address up and reads that back, its next beat says
//! so, and only then the new owner takes it.
//!
//! # Why two nodes never take the same address
//!
//! Nodes may see different things for a while, and so want different owners. Each election has a
//! [`Ballot`]: a counter and the owner's name, in that order. A node's ballot only grows; it takes the
//! highest it hears of if that names its own choice, and counts on from there when its choice changes. A
//! node takes the address only when every living peer says the taker's own ballot and does not serve; one
//! that stands aside is not waited for longer than words of ours count. Two nodes that both took it would each have said the other's ballot before going on to
//! their own: the one with the higher one had, when it said the lower one, not yet gone on, and the other
//! one had said the higher one only after its own take, which it then told. A ballot serves for one time
//! of standing: whoever stood aside or stood still asks for a new one.
//!
//! A peer that is silent may still serve if it did, or if this node has agreed to it since; that is held
//! until it is proven off or its lifetime has run out.

#[cfg(test)]
mod sim;

use super::bucket::plan::{Fencing, Quorum};
use crate::types::status::Status;
use crate::types::time::Tick;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The priority of a node that never said one, as VRRP has it (RFC 9568 §5.2.4).
pub(crate) const DEFAULT_PRIORITY: u32 = 100;
/// The priority of a node whose checker has died: the last choice, not absent.
pub(crate) const UNCHECKED_PRIORITY: u32 = 1;

const UNDECIDED: &str = "the quorum is undecided";

/// The configuration: the same on every node but for `me`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) me: String,
    pub(crate) members: BTreeSet<String>,
    pub(crate) fencing: Fencing,
    /// From the last sign of life to the take-over.
    pub(crate) take_after: Duration,
    /// From the last sign of life to the verdict `down`.
    pub(crate) dead_after: Duration,
    /// When the kernel itself drops what is not renewed; zero: never.
    pub(crate) lifetime: Duration,
    /// Take nothing before every living peer says the same ballot. Off for a single run by hand, whose
    /// user says that the records belong together.
    pub(crate) agree: bool,
}

impl Settings {
    /// How old the word of a living peer may be for an address to be taken by it.
    fn fresh(&self) -> Duration {
        super::fresh(self.take_after, self.dead_after)
    }

    /// How long this node may stand still and go on with what it served.
    pub(crate) fn pause(&self) -> Duration {
        if self.lifetime.is_zero() { self.fresh() } else { self.fresh().min(self.lifetime) }
    }
}

/// An owner that is agreed on, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ballot {
    pub(crate) epoch: u64,
    pub(crate) master: Option<String>,
}

/// What a node says of the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its kernel has it.
    pub(crate) mine: bool,
    pub(crate) ballot: Ballot,
}

/// What is known of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) status: Status,
    /// When the status came to be what it is.
    pub(crate) since: Tick,
    /// When its claim, or another sign of life, came in last.
    pub(crate) last: Tick,
    /// Whether it was ever heard in this life of ours.
    pub(crate) heard: bool,
    /// Its own address beside the virtual one.
    pub(crate) address: Option<IpAddr>,
    /// 0: it does not stand.
    pub(crate) priority: u32,
    /// Why it is to be left alone.
    pub(crate) standby: Option<String>,
    /// It said goodbye, and nothing else since.
    pub(crate) left: bool,
    /// A record proves that it is off, in the life that was heard last.
    pub(crate) proven_off: bool,
    /// What it said last; `None` if it never did.
    pub(crate) claim: Option<Claim>,
    /// It says what it serves of other addresses.
    pub(crate) speaks_of_others: bool,
}

impl Default for Node {
    fn default() -> Self {
        Node {
            status: Status::Unknown,
            since: Tick::default(),
            last: Tick::default(),
            heard: false,
            address: None,
            priority: DEFAULT_PRIORITY,
            standby: None,
            left: false,
            proven_off: false,
            claim: None,
            speaks_of_others: false,
        }
    }
}

impl Node {
    fn serves(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.mine)
    }

    /// It stands aside, and may be nobody's to ask: what elected there has ended.
    fn stands_aside(&self) -> bool {
        self.priority == 0 || self.standby.is_some()
    }
}

/// What this node sees, as far as it is about one address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) quorum: Quorum,
    /// Nothing came in for as long as a node may be silent: whoever listens for this node is gone.
    pub(crate) deaf: bool,
    /// Whether a better node takes the address from one that serves it.
    pub(crate) preempt: bool,
}

/// What is remembered of one address between two elections. Losing it is safe: it makes a node wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) ballot: Ballot,
    /// Since when the ballot is what it is.
    pub(crate) since: Tick,
    /// The ballot was for a time of standing that is over.
    pub(crate) spent: bool,
    /// Whether this node was told to serve.
    pub(crate) mine: bool,
    /// Peers that this node has agreed to and that may have taken the address since.
    pub(crate) could: BTreeSet<String>,
    /// Since when each peer is down, for runs that see it down for the first time.
    pub(crate) down: BTreeMap<String, Tick>,
    /// When the last election was.
    pub(crate) concluded: Option<Tick>,
    /// When this node last came back from where others may have taken over from it.
    pub(crate) away: Option<Tick>,
    /// When the quorum was last undecided: until then others could keep what they served.
    pub(crate) undecided: Option<Tick>,
}

/// Whether a node can be elected, and why or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) priority: u32,
    pub(crate) standing: bool,
    pub(crate) why: String,
}

/// One conclusion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Election {
    pub(crate) ballot: Ballot,
    /// Whether this node serves the address now.
    pub(crate) mine: bool,
    /// Whether this node stands.
    pub(crate) standing: bool,
    /// The best first; then those who do not stand.
    pub(crate) candidates: Vec<Candidate>,
    /// Ours to take, and somebody may still serve of whom that cannot be known.
    pub(crate) held: bool,
    /// The proof that is missing, sorted.
    pub(crate) needs_fence: Vec<String>,
    pub(crate) why: String,
    /// When time alone changes the answer.
    pub(crate) wake: Option<Tick>,
}

impl Election {
    /// Who should serve.
    pub(crate) fn winner(&self) -> Option<&str> {
        let stands = self.candidates.iter().any(|candidate| candidate.standing);
        self.ballot.master.as_deref().filter(|_| stands)
    }
}

/// What a take waits for.
enum Wait {
    /// Nothing.
    No,
    /// A living peer, which will release or agree.
    Peer(String),
    /// It cannot be known yet whether somebody serves.
    Held(String),
}

/// Concludes about one address.
pub(crate) fn elect(settings: &Settings, view: &View, memory: &Memory, now: Tick) -> (Election, Memory) {
    let me = settings.me.as_str();
    let stood = memory.concluded.is_some_and(|last| now.since(last) > settings.pause());
    let gives_up = gives_up(settings, view);
    let began = (settings.agree && memory.away.is_none()).then_some(now);
    let away = if stood || gives_up.is_some() { Some(now) } else { memory.away.or(began) };
    let pending = matches!(view.quorum, Quorum::Pending(_));
    let undecided = if pending { Some(now) } else { memory.undecided };
    let serving = memory.mine && !stood;
    let round = Round { settings, view, memory, now, away, undecided, gives_up, serving };

    let mut candidates = round.candidates();
    let best = |a: &Candidate, b: &Candidate| {
        let rank = |one: &Candidate| (one.priority, one.address);
        rank(b).cmp(&rank(a)).then_with(|| a.node.cmp(&b.node))
    };
    candidates.sort_by(|a, b| b.standing.cmp(&a.standing).then_with(|| best(a, b)));
    let standing = candidates.iter().any(|one| one.standing && one.node == me);
    let winner = round.winner(&candidates);
    let spent = memory.spent || stood;
    let ballot = round.ballot(winner.as_deref(), spent);

    let mut election = Election {
        ballot,
        mine: false,
        standing,
        candidates,
        held: false,
        needs_fence: Vec::new(),
        why: String::new(),
        wake: None,
    };
    let own = election.candidates.iter().find(|one| one.node == me).map(|one| one.why.clone()).unwrap_or_default();
    (election.mine, election.why) = match winner.as_deref() {
        _ if !standing && round.hopes(&election.candidates, best) => {
            // Only the quorum is missing, and perhaps a proof for it.
            election.held = !memory.mine;
            match round.wait(&mut election) {
                Wait::Held(why) | Wait::Peer(why) => (false, why),
                Wait::No => (false, own),
            }
        }
        _ if !standing => (false, own),
        Some(winner) if winner == me => {
            let wait = if round.serving { Wait::No } else { round.wait(&mut election) };
            match wait {
                Wait::No => (true, own),
                Wait::Peer(why) => (false, why),
                Wait::Held(why) => {
                    // What was served until now is given up, not left as it is.
                    election.held = !memory.mine;
                    (false, why)
                }
            }
        }
        Some(winner) => {
            let keeps = round.serving && !round.releases(winner, &election.ballot);
            (keeps, if keeps { format!("until {winner} is ready to take it") } else { format!("{winner} is better") })
        }
        None => (false, "nobody stands".to_owned()),
    };
    election.needs_fence.sort();
    let memory = round.remember(&election, winner.as_deref(), spent);
    (election, memory)
}

/// Why this node must serve nothing at all: others may take over from it.
fn gives_up(settings: &Settings, view: &View) -> Option<&'static str> {
    if view.deaf {
        return Some("nothing is heard here any more");
    }
    if view.quorum == Quorum::No {
        return Some("its side is not quorate");
    }
    if view.nodes.get(&settings.me).is_some_and(|node| node.status == Status::Down) {
        return Some("it is judged down");
    }
    // Two nodes cannot tell a dead peer from a cut cable; three or more that hear nobody are more likely
    // alone than the only one left. Who left with a goodbye is not silent.
    let peers = settings.members.iter().filter(|name| **name != settings.me).map(|name| view.nodes.get(name));
    let peers: Vec<Option<&Node>> = peers.collect();
    let silent = || peers.iter().filter(|node| !node.is_some_and(|node| node.left));
    let alone = view.quorum == Quorum::NotCounted
        && silent().count() >= 2
        && silent().any(|node| node.is_some_and(|node| node.heard))
        && peers.iter().all(|node| node.is_none_or(|node| node.status != Status::Up && !node.proven_off));
    alone.then_some("it hears nobody")
}

struct Round<'a> {
    settings: &'a Settings,
    view: &'a View,
    memory: &'a Memory,
    now: Tick,
    away: Option<Tick>,
    undecided: Option<Tick>,
    gives_up: Option<&'static str>,
    /// Whether this node serves until now.
    serving: bool,
}

impl Round<'_> {
    fn peers(&self) -> impl Iterator<Item = (&str, Option<&Node>)> {
        let others = self.settings.members.iter().filter(|name| **name != self.settings.me);
        others.map(|name| (name.as_str(), self.view.nodes.get(name)))
    }

    fn serves(&self, name: &str) -> bool {
        if name == self.settings.me {
            return self.serving;
        }
        self.view.nodes.get(name).is_some_and(Node::serves)
    }

    /// Every member, and whether it stands.
    fn candidates(&self) -> Vec<Candidate> {
        let unheard = Node::default();
        let candidate = |name: &String| {
            let node = self.view.nodes.get(name).unwrap_or(&unheard);
            let mine = *name == self.settings.me;
            let why = if let Some(why) = self.gives_up.filter(|_| mine) {
                Err(why.to_owned())
            } else if let Some(why) = &node.standby {
                Err(format!("standby: {why}"))
            } else if !mine && node.proven_off {
                Err("it is proven off".to_owned())
            } else if !mine && node.left {
                Err("it said goodbye".to_owned())
            } else if !mine && node.status != Status::Up {
                Err(if node.heard { format!("it is {}", node.status) } else { "it was never heard".to_owned() })
            } else if node.priority == 0 {
                Err("its priority is 0".to_owned())
            } else if !mine && self.settings.agree && node.claim.is_none() {
                Err("it does not say whether it serves".to_owned())
            } else if mine && !self.serving && matches!(self.view.quorum, Quorum::Pending(_)) {
                // Nobody must give anything up for one that may not take it.
                Err(UNDECIDED.to_owned())
            } else if self.serves(name) {
                Ok("it serves".to_owned())
            } else {
                Ok("it is well".to_owned())
            };
            Candidate {
                node: name.clone(),
                address: node.address,
                priority: node.priority,
                standing: why.is_ok(),
                why: why.unwrap_or_else(|why| why),
            }
        };
        self.settings.members.iter().map(candidate).collect()
    }

    /// Whether this node would be the first if the quorum were known.
    fn hopes(&self, candidates: &[Candidate], best: impl Fn(&Candidate, &Candidate) -> Ordering) -> bool {
        let own = candidates.iter().find(|one| one.node == self.settings.me && one.why == UNDECIDED);
        own.is_some_and(|own| candidates.iter().all(|one| !one.standing || best(own, one) == Ordering::Less))
    }

    /// Who should serve, of candidates in their order.
    fn winner(&self, candidates: &[Candidate]) -> Option<String> {
        let standing = || candidates.iter().filter(|one| one.standing);
        let serving = standing().find(|one| !self.view.preempt && self.serves(&one.node));
        serving.or_else(|| standing().next()).map(|one| one.node.clone())
    }

    /// The ballot for `winner`: the highest known if that names it, else the next.
    fn ballot(&self, winner: Option<&str>, spent: bool) -> Ballot {
        let own = &self.memory.ballot;
        if winner.is_none() {
            return own.clone();
        }
        let heard = self.peers().filter_map(|(_, node)| Some(&node?.claim.as_ref()?.ballot)).max();
        let top = heard.map_or(own, |heard| heard.max(own));
        let again = spent && winner == Some(self.settings.me.as_str());
        if top.master.as_deref() == winner && !again {
            top.clone()
        } else if own.master.as_deref() == winner && !again {
            // Somebody wants another, and one of us will see what the other sees.
            own.clone()
        } else {
            Ballot { epoch: top.epoch.saturating_add(1), master: winner.map(str::to_owned) }
        }
    }

    /// Whether a peer that does not tell it now may serve.
    fn may_serve(&self, name: &str, node: Option<&Node>) -> bool {
        // Not heard since we were away: it may have taken over from us.
        let missed = node.zip(self.away).is_some_and(|(node, away)| node.heard && node.last <= away);
        let said = node.and_then(|node| node.claim.as_ref());
        missed
            || self.memory.could.contains(name)
            || said.map_or(!node.is_some_and(|node| node.left), |claim| claim.mine)
    }

    /// Whether somebody else may serve the address, that this node is to take.
    fn wait(&self, election: &mut Election) -> Wait {
        let settings = self.settings;
        let mut wait = match &self.view.quorum {
            Quorum::Pending(names) if names.is_empty() => Wait::Held("there is no quorum yet".to_owned()),
            Quorum::Pending(names) => Wait::Held(format!("the quorum waits for {}", names.join(", "))),
            _ => Wait::No,
        };
        let held = |wait: &mut Wait, why: String| {
            if !matches!(wait, Wait::Held(_)) {
                *wait = Wait::Held(why);
            }
        };
        for (name, node) in self.peers() {
            if node.is_some_and(|node| node.proven_off) {
                continue;
            }
            match node.map_or(Status::Unknown, |node| node.status) {
                Status::Up => {
                    let why = node.and_then(|node| self.objects(name, node, &election.ballot));
                    if let (Wait::No, Some(why)) = (&wait, why) {
                        wait = Wait::Peer(why);
                    }
                }
                _ if !node.is_some_and(|node| node.heard) => {
                    // A majority that has listened for so long would have heard of it.
                    let listened = self.listened();
                    if self.view.quorum != Quorum::Yes {
                        held(&mut wait, format!("{name} was never heard"));
                    } else if self.now < listened {
                        election.wake = Some(election.wake.map_or(listened, |wake| wake.min(listened)));
                        held(&mut wait, format!("{name} was not heard yet"));
                    }
                }
                _ if !self.may_serve(name, node) => {}
                Status::Unknown => held(&mut wait, format!("{name} may serve it, and is unknown")),
                Status::Down if settings.fencing == Fencing::Required => {
                    // Who may be the smaller side shoots only whom the tie is about.
                    if !matches!(&self.view.quorum, Quorum::Pending(tied) if !tied.iter().any(|node| node == name)) {
                        election.needs_fence.push(name.to_owned());
                    }
                    held(&mut wait, format!("{name} is down, may serve it, and is not proven off"));
                }
                Status::Down => {
                    let since = self.down_since(name, node);
                    let silent = since.after(settings.take_after.saturating_sub(settings.dead_after));
                    let free = silent.max(self.listened());
                    if self.now < free {
                        election.wake = Some(election.wake.map_or(free, |wake| wake.min(free)));
                        held(&mut wait, format!("{name} is down, and may serve it for a while"));
                    }
                }
            }
        }
        wait
    }

    /// When this node will have listened long enough: silence that fell while it stood still, or while the
    /// silent one could keep what it served, is none.
    fn listened(&self) -> Tick {
        let since = self.away.max(self.undecided);
        since.map(|since| since.after(self.settings.take_after)).unwrap_or_default()
    }

    fn down_since(&self, name: &str, node: Option<&Node>) -> Tick {
        let since = node.map(|node| node.since).unwrap_or_default();
        self.memory.down.get(name).map_or(since, |earlier| since.min(*earlier))
    }

    /// Why a living peer is waited for.
    fn objects(&self, name: &str, node: &Node, ballot: &Ballot) -> Option<String> {
        let claim = node.claim.as_ref();
        if claim.is_some_and(|claim| claim.mine) {
            return Some(format!("{name} still serves it"));
        }
        // After so long no word of ours lets anybody but us take it.
        let told = self.memory.ballot == *ballot && self.now.since(self.memory.since) >= self.settings.take_after;
        // Who speaks of other addresses may have no room in its beat for this one.
        let silent = (claim.is_none() && !node.speaks_of_others) || node.stands_aside();
        if !self.settings.agree || (silent && told) {
            return None;
        }
        let Some(claim) = claim else {
            let why = if node.speaks_of_others { " (does its beat have room for all addresses?)" } else { "" };
            return Some(format!("{name} does not say whether it serves it{why}"));
        };
        if claim.ballot != *ballot {
            return Some(format!("{name} does not agree yet"));
        }
        (self.now.since(node.last) > self.settings.fresh()).then(|| format!("the word of {name} is old"))
    }

    /// Whether this node gives the address up now, for `winner`.
    fn releases(&self, winner: &str, ballot: &Ballot) -> bool {
        let claim = self.view.nodes.get(winner).and_then(|node| node.claim.as_ref());
        // Twice served is worse than not served.
        !self.settings.agree || claim.is_some_and(|claim| claim.mine || claim.ballot == *ballot)
    }

    fn remember(&self, election: &Election, winner: Option<&str>, spent: bool) -> Memory {
        let mut could = BTreeSet::new();
        let mut down = BTreeMap::new();
        for (name, node) in self.peers() {
            let up = node.is_some_and(|node| node.status == Status::Up);
            let said = node.and_then(|node| node.claim.as_ref());
            // While it is up and says our ballot it can take what that gives it and no more.
            let agrees = up && said.is_some_and(|claim| claim.ballot == election.ballot);
            let off = node.is_some_and(|node| node.proven_off);
            if !off && (winner == Some(name) || (self.memory.could.contains(name) && !agrees)) {
                could.insert(name.to_owned());
            }
            if node.is_some_and(|node| node.status == Status::Down) {
                down.insert(name.to_owned(), self.down_since(name, node));
            }
        }
        let elected = winner == Some(self.settings.me.as_str());
        Memory {
            spent: if elected { false } else { spent || !election.standing },
            since: if election.ballot == self.memory.ballot { self.memory.since } else { self.now },
            ballot: election.ballot.clone(),
            mine: election.mine,
            could,
            down,
            concluded: Some(self.now),
            away: self.away,
            undecided: self.undecided,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Tick {
        Tick(Duration::from_secs(seconds))
    }

    fn settings(me: &str, agree: bool) -> Settings {
        Settings {
            me: me.to_owned(),
            members: ["n1", "n2", "n3"].map(str::to_owned).into(),
            fencing: Fencing::Required,
            take_after: Duration::from_secs(5),
            dead_after: Duration::from_secs(3),
            lifetime: Duration::ZERO,
            agree,
        }
    }

    /// `n1:100` is up and well, `n2:100*` serves too, `n3-:100*` is down and served; `n1?` is unknown.
    fn view(nodes: &str) -> View {
        let mut view = View { preempt: true, ..View::default() };
        for (idx, word) in nodes.split_whitespace().enumerate() {
            let (name, priority) = word.split_once(':').unwrap();
            let sign = name.chars().last().unwrap();
            let status = match sign {
                '-' => Status::Down,
                '?' => Status::Unknown,
                _ => Status::Up,
            };
            let node = Node {
                status,
                since: at(97),
                last: at(97),
                heard: true,
                address: Some(IpAddr::from([192, 0, 2, u8::try_from(idx).unwrap() + 8])),
                priority: priority.trim_end_matches('*').parse().unwrap(),
                claim: Some(Claim { mine: priority.ends_with('*'), ballot: Ballot::default() }),
                ..Node::default()
            };
            view.nodes.insert(name.trim_end_matches(['-', '?']).to_owned(), node);
        }
        view
    }

    fn serving(mine: bool) -> Memory {
        Memory { mine, ..Memory::default() }
    }

    /// Its beat has room for some addresses only: it may serve this one as well.
    #[test]
    fn who_speaks_of_other_addresses_alone_is_waited_for() {
        for (speaks_of_others, mine) in [(false, true), (true, false)] {
            let mut view = view("n1:200 n2:100 n3:100");
            let said = view.nodes.get_mut("n3").unwrap();
            (said.claim, said.speaks_of_others) = (None, speaks_of_others);
            let (first, memory) = elect(&settings("n1", true), &view, &Memory::default(), at(100));
            for node in ["n1", "n2"] {
                let claim = Claim { mine: false, ballot: first.ballot.clone() };
                view.nodes.get_mut(node).unwrap().claim = Some(claim);
            }
            for node in view.nodes.values_mut() {
                node.last = at(104);
            }
            let (soon, memory) = elect(&settings("n1", true), &view, &memory, at(104));
            assert!(!soon.mine);
            for node in view.nodes.values_mut() {
                node.last = at(108);
            }
            let (late, _) = elect(&settings("n1", true), &view, &memory, at(108));
            assert_eq!(late.mine, mine, "{}", late.why);
            assert!(mine || late.why.contains("room"), "{}", late.why);
        }
    }

    /// known-faults 16 and hardening 2, 7, 8, 20, by hand: no ballots.
    #[test]
    fn the_table() {
        let all = Quorum::NotCounted;
        let pending = || Quorum::Pending(Vec::new());
        for (nodes, quorum, mine_before, mine, held, needs, winner) in [
            ("n1:200 n2:100 n3:100", all.clone(), false, true, false, "", "n1"),
            // The higher address as a number: 192.0.2.10 beats 192.0.2.9 and 192.0.2.8.
            ("n1:100 n2:100 n3:100", all.clone(), false, false, false, "", "n3"),
            // Priority 0 stands aside, also when nobody else is there.
            ("n1:0 n2:1 n3:0", all.clone(), true, false, false, "", "n2"),
            ("n1:0 n2:0 n3:0", all.clone(), true, false, false, "", ""),
            // Release before take.
            ("n1:200 n2:100* n3:100", all.clone(), false, false, false, "", "n1"),
            ("n1:100 n2:200 n3:100", all.clone(), true, false, false, "", "n2"),
            // A dead one that served needs its proof; one that did not is no matter.
            ("n1:200 n2-:100* n3:100", all.clone(), false, false, true, "n2", "n1"),
            ("n1:200 n2-:100 n3:100", all.clone(), false, true, false, "", "n1"),
            ("n1:100 n2-:200 n3:50", all.clone(), true, true, false, "", "n1"),
            // Unknown is not down.
            ("n1:200 n2?:100* n3:100", all.clone(), false, false, true, "", "n1"),
            // One that was never heard.
            ("n1:200 n2:100", all.clone(), false, false, true, "", "n1"),
            ("n1:200 n2:100", Quorum::Yes, false, true, false, "", "n1"),
            // Not quorate: given up. Undecided: kept, and nothing taken.
            ("n1:200 n2:100 n3:100", Quorum::No, true, false, false, "", "n3"),
            ("n1:200 n2:100 n3:100", pending(), true, true, false, "", "n1"),
            ("n1:200 n2:100 n3:100", pending(), false, false, true, "", "n3"),
            ("n1:50 n2:100 n3:100", pending(), false, false, false, "", "n3"),
            // A tie that only a proof settles.
            ("n1:200 n2-:100* n3:100", Quorum::Pending(vec!["n2".to_owned()]), false, false, true, "n2", "n3"),
            ("n1:50 n2-:100* n3:100", Quorum::Pending(vec!["n2".to_owned()]), false, false, false, "", "n3"),
            // Three that hear nobody are more likely alone than the last.
            ("n1:200 n2-:100 n3-:100", all.clone(), true, false, false, "", ""),
            ("n1:200 n2-:100 n3-:100", Quorum::Yes, true, true, false, "", "n1"),
        ] {
            let view = View { quorum, ..view(nodes) };
            let (election, memory) = elect(&settings("n1", false), &view, &serving(mine_before), at(100));
            let got = (election.mine, election.held, election.needs_fence.join(","), election.winner().unwrap_or(""));
            assert_eq!(got, (mine, held, needs.to_owned(), winner), "{nodes} {:?}: {}", view.quorum, election.why);
            assert_eq!(memory.mine, mine);
        }
    }

    #[test]
    fn without_preemption_who_serves_stays_while_it_stands() {
        let keep = |nodes: &str| View { preempt: false, ..view(nodes) };
        let conclude = |view: &View, mine| elect(&settings("n1", false), view, &serving(mine), at(100)).0;
        assert!(conclude(&keep("n1:50 n2:200 n3:100"), true).mine);
        assert_eq!(conclude(&keep("n1:200 n2:50* n3:100"), false).winner(), Some("n2"));
        assert_eq!(conclude(&keep("n1:0 n2:200 n3:100"), true).winner(), Some("n2"));
        // Both served, after a split: the better of them goes on.
        assert!(!conclude(&keep("n1:50 n2:60* n3:100"), true).mine);
        assert!(conclude(&keep("n1:60 n2:50* n3:100"), true).mine);
    }

    #[test]
    fn proof_goodbye_and_silence_free_what_a_dead_node_served() {
        let settings = settings("n1", false);
        let mut seen = view("n1:200 n2-:100* n3:100");
        let change = |change: &dyn Fn(&mut Node)| {
            let mut seen = seen.clone();
            change(seen.nodes.get_mut("n2").unwrap());
            elect(&settings, &seen, &serving(false), at(100)).0.mine
        };
        assert!(!change(&|_| ()));
        assert!(change(&|node| node.proven_off = true));
        assert!(!change(&|node| node.left = true), "it says that it still serves");
        assert!(change(&|node| node.claim = Some(Claim { mine: false, ballot: Ballot::default() })));
        let none = Settings { fencing: Fencing::None, ..settings.clone() };
        seen.nodes.get_mut("n2").unwrap().since = at(97);
        let (early, _) = elect(&none, &seen, &serving(false), at(98));
        assert_eq!((early.mine, early.wake), (false, Some(at(99))), "take-after is 2 s after the verdict");
        assert!(elect(&none, &seen, &serving(false), at(99)).0.mine);
        let back = Memory { away: Some(at(96)), ..serving(false) };
        assert_eq!(elect(&none, &seen, &back, at(100)).0.wake, Some(at(101)), "we listen for as long ourselves");
    }

    #[test]
    fn a_stream_takes_by_agreement_and_not_with_what_it_held_before_it_stood_still() {
        let settings = settings("n1", true);
        let mut seen = view("n1:200 n2:100 n3:100");
        let (first, memory) = elect(&settings, &seen, &Memory::default(), at(97));
        assert!(!first.mine && first.why == "n2 does not agree yet", "{}", first.why);
        for node in ["n2", "n3"] {
            seen.nodes.get_mut(node).unwrap().claim = Some(Claim { mine: false, ballot: first.ballot.clone() });
        }
        let (second, memory) = elect(&settings, &seen, &memory, at(98));
        assert!(second.mine);
        let (still, memory) = elect(&settings, &seen, &memory, at(104));
        assert!(!still.mine && !still.held && still.ballot.epoch == first.ballot.epoch + 1, "{}", still.why);
        assert_eq!(memory.away, Some(at(104)));
        // Whoever listens for us is gone.
        let deaf = View { deaf: true, ..seen };
        assert!(!elect(&settings, &deaf, &serving(true), at(98)).0.standing);
    }

    proptest! {
        /// Whatever is seen: who does not stand serves nothing, who is not known to be free is not taken
        /// from, and the best of those who stand is the winner.
        #[test]
        fn nothing_is_taken_from_somebody_who_may_serve(
            nodes in proptest::collection::vec((0u8..3, 0u32..4, any::<[bool; 4]>()), 3),
            before in any::<bool>(),
            preempt in any::<bool>(),
            fence in any::<bool>(),
            quorum in 0u8..4,
        ) {
            let mut seen = view("n1:1 n2:1 n3:1");
            seen.preempt = preempt;
            seen.quorum = match quorum {
                0 => Quorum::NotCounted,
                1 => Quorum::Yes,
                2 => Quorum::No,
                _ => Quorum::Pending(Vec::new()),
            };
            for (node, (status, priority, flags)) in seen.nodes.values_mut().zip(&nodes) {
                node.status = [Status::Up, Status::Down, Status::Unknown][usize::from(*status)];
                node.priority = *priority;
                node.claim = Some(Claim { mine: flags[0], ballot: Ballot::default() });
                node.proven_off = flags[1] && node.status == Status::Down;
                node.standby = flags[2].then(|| "rest".to_owned());
                node.heard = flags[3];
            }
            seen.nodes.get_mut("n1").unwrap().proven_off = false;
            let fencing = if fence { Fencing::Required } else { Fencing::None };
            let settings = Settings { fencing, ..settings("n1", false) };
            let (election, memory) = elect(&settings, &seen, &serving(before), at(98));
            let me = &seen.nodes["n1"];
            prop_assert!(!election.mine || (me.priority > 0 && me.standby.is_none() && seen.quorum != Quorum::No));
            prop_assert!(!(election.mine && election.held) && memory.mine == election.mine);
            if election.mine && !before {
                prop_assert!(!matches!(seen.quorum, Quorum::Pending(_)));
                for (_, node) in seen.nodes.iter().filter(|(name, node)| *name != "n1" && !node.proven_off) {
                    prop_assert!(!node.serves() || (node.status != Status::Up && !node.heard));
                }
            }
            if let Some(winner) = election.winner() {
                let priority = seen.nodes[winner].priority;
                let standing = election.candidates.iter().filter(|one| one.standing);
                prop_assert!(!preempt || standing.clone().all(|one| one.priority <= priority));
                prop_assert!(standing.clone().any(|one| one.node == winner));
            }
        }
    }
}
