//! When to fence whom, for a stream of records that wait for proof.

use crate::types::draw::Draw;
use crate::types::proof::Proof;
use crate::types::time::{Span, Tick};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

/// How long to hold one's fire: `BASE` or `BASE+RANDOM`.
///
/// Two nodes that lost each other and both reach the switch would shoot each other. Who waits longer
/// is off by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) base: Duration,
    /// The most that chance adds.
    pub(crate) random: Duration,
}

impl Delay {
    /// None for the node that wins a tie, whose name comes first, and 5 s for the other.
    pub(crate) fn of_tie(me: &str, node: &str) -> Self {
        let base = if me < node { Duration::ZERO } else { Duration::from_secs(5) };
        Delay { base, random: Duration::ZERO }
    }

    pub(crate) fn draw(self, draw: &mut Draw) -> Duration {
        let most = u64::try_from(self.random.as_micros()).unwrap_or(u64::MAX);
        self.base.saturating_add(Duration::from_micros(draw.below(most.saturating_add(1))))
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, random) = text.split_once('+').unwrap_or((text, "0s"));
        Ok(Delay { base: base.parse::<Span>()?.0, random: random.parse::<Span>()?.0 })
    }
}

/// Where the fencing of a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Begins then, if it is still asked for.
    Due(Tick),
    /// The same after a failure.
    Again(Tick),
    Running,
}

/// Keeps whose proof is asked for by whom, what is being done about it, and what is proven.
///
/// Its callers tell it what happens and do what is [`due`](Desk::due); it starts nothing itself.
#[derive(Debug)]
pub(crate) struct Desk {
    me: String,
    delay: Option<Delay>,
    draw: Draw,
    /// By what a record is about: whom its newest needs off.
    asked: BTreeMap<String, Vec<String>>,
    work: BTreeMap<String, Work>,
    proofs: BTreeMap<String, Proof>,
    lives: BTreeMap<String, u64>,
    last: BTreeMap<String, Tick>,
    silent: BTreeSet<String>,
}

/// Between a fencing that failed and the next, so that a switch that is out of order is not stormed.
const PAUSE: Duration = Duration::from_secs(3);
/// More fencings at once are a storm, or a fault of whoever asks.
const AT_ONCE: usize = 16;
/// Nobody has so many nodes and services; more is a fault of whoever writes the records.
const MOST: usize = 4096;

impl Desk {
    pub(crate) fn new(me: &str, delay: Option<Delay>, draw: Draw) -> Self {
        Desk {
            me: me.to_owned(),
            delay,
            draw,
            asked: BTreeMap::new(),
            work: BTreeMap::new(),
            proofs: BTreeMap::new(),
            lives: BTreeMap::new(),
            last: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    /// The newest record about something needs these off. This node never shoots itself.
    pub(crate) fn ask(&mut self, about: &str, needs: &[String], now: Tick) {
        if needs.is_empty() {
            self.asked.remove(about);
        } else if self.asked.len() < MOST || self.asked.contains_key(about) {
            let needs: Vec<String> = needs.iter().filter(|node| **node != self.me).take(MOST).cloned().collect();
            for node in &needs {
                if !self.is_proven(node) && !self.work.contains_key(node) {
                    let due = now.after(self.draw_delay(node));
                    self.work.insert(node.clone(), Work::Due(due));
                }
            }
            self.asked.insert(about.to_owned(), needs);
        }
        // Whoever is not asked for any more is not shot: it came back in time.
        let asked = &self.asked;
        let is_asked = |node: &String| asked.values().any(|needs| needs.contains(node));
        self.work.retain(|node, work| *work == Work::Running || is_asked(node));
    }

    fn draw_delay(&mut self, node: &str) -> Duration {
        self.delay.unwrap_or_else(|| Delay::of_tie(&self.me, node)).draw(&mut self.draw)
    }

    /// A node is not heard any more.
    pub(crate) fn silent(&mut self, node: &str) {
        if self.silent.len() < MOST {
            self.silent.insert(node.to_owned());
        }
    }

    /// A node was heard. One that is back after a silence is not fenced, unless somebody asks again; one
    /// that was heard all along is asked for because of what it holds.
    pub(crate) fn heard(&mut self, node: &str, at: Tick) {
        if self.silent.remove(node) {
            self.work.retain(|name, work| *work == Work::Running || name != node);
        }
        if self.last.len() < MOST || self.last.contains_key(node) {
            let last = self.last.entry(node.to_owned()).or_default();
            *last = at.max(*last);
        }
    }

    /// The newest life of a node.
    pub(crate) fn lives(&mut self, node: &str, life: u64) {
        if self.lives.len() < MOST || self.lives.contains_key(node) {
            let newest = self.lives.entry(node.to_owned()).or_default();
            *newest = life.max(*newest);
        }
    }

    pub(crate) fn life(&self, node: &str) -> Option<u64> {
        self.lives.get(node).copied()
    }

    /// Takes the proofs that are kept.
    pub(crate) fn keep(&mut self, node: &str, proof: Proof) {
        self.proofs.insert(node.to_owned(), proof);
    }

    /// Whether a proof holds by what was heard of the node.
    pub(crate) fn holds(&self, node: &str, proof: Proof) -> bool {
        proof.holds(self.life(node), self.last.get(node).copied())
    }

    pub(crate) fn is_proven(&self, node: &str) -> bool {
        self.proofs.get(node).is_some_and(|proof| self.holds(node, *proof))
    }

    /// The proofs that ended, each told once.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let ended: Vec<String> = self.proofs.keys().filter(|node| !self.is_proven(node)).cloned().collect();
        self.proofs.retain(|node, _| !ended.contains(node));
        ended
    }

    /// Whom to fence now; they count as begun.
    pub(crate) fn due(&mut self, now: Tick) -> Vec<String> {
        let mut due = Vec::new();
        let mut room = AT_ONCE.saturating_sub(self.work.values().filter(|work| **work == Work::Running).count());
        for (node, work) in &mut self.work {
            if room == 0 {
                break;
            }
            if matches!(work, Work::Due(at) | Work::Again(at) if *at <= now) {
                *work = Work::Running;
                room -= 1;
                due.push(node.clone());
            }
        }
        due
    }

    /// When `due` has something; what has no room waits for an end, which is told anyway.
    pub(crate) fn wake(&self) -> Option<Tick> {
        if self.work.values().filter(|work| **work == Work::Running).count() >= AT_ONCE {
            return None;
        }
        let due = |work: &Work| match work {
            Work::Due(at) | Work::Again(at) => Some(*at),
            Work::Running => None,
        };
        self.work.values().filter_map(due).min()
    }

    /// Whether something has not been tried yet.
    pub(crate) fn is_untried(&self) -> bool {
        self.work.values().any(|work| matches!(work, Work::Due(_)))
    }

    /// A fencing has ended, and its proof, where there is one, is kept. What it was asked for, if it is
    /// still.
    pub(crate) fn done(&mut self, node: &str, proven: bool, now: Tick) -> Vec<String> {
        self.work.remove(node);
        let asks =
            |(about, needs): (&String, &Vec<String>)| needs.iter().any(|needed| needed == node).then(|| about.clone());
        let asked: Vec<String> = self.asked.iter().filter_map(asks).collect();
        if !proven && !asked.is_empty() {
            // The other side may be about to try again too.
            let due = now.after(PAUSE).after(self.draw_delay(node));
            self.work.insert(node.to_owned(), Work::Again(due));
        }
        asked
    }

    /// Whether a record about this still waits for somebody.
    pub(crate) fn is_asked(&self, about: &str) -> bool {
        self.asked.contains_key(about)
    }

    /// Whether somebody who is asked for is not proven off.
    pub(crate) fn lacks(&self) -> bool {
        self.asked.values().flatten().any(|node| !self.is_proven(node))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick(Duration::from_secs(seconds))
    }

    fn desk(me: &str) -> Desk {
        Desk::new(me, None, Draw::new(1))
    }

    fn needs(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }

    #[test]
    fn the_winner_of_a_tie_shoots_at_once_and_the_other_holds_its_fire() {
        let (mut first, mut second) = (desk("n1"), desk("n2"));
        first.ask("plan", &needs(&["n2"]), at(10));
        second.ask("plan", &needs(&["n1"]), at(10));
        assert_eq!((first.due(at(10)), second.due(at(10))), (needs(&["n2"]), needs(&[])));
        assert_eq!(second.wake(), Some(at(15)));
        // It is back before that.
        second.ask("plan", &[], at(14));
        assert!(second.due(at(20)).is_empty());
    }

    #[test]
    fn who_is_heard_before_its_fencing_begins_is_left_alone() {
        let mut desk = desk("n1");
        desk.delay = Some(Delay { base: Duration::from_secs(2), random: Duration::ZERO });
        desk.silent("n2");
        desk.ask("plan", &needs(&["n2", "n3"]), at(10));
        desk.heard("n2", at(11));
        desk.heard("n3", at(11));
        assert_eq!(desk.due(at(12)), ["n3"], "its heart beats, and what it holds must be free");
        desk.silent("n3");
        desk.heard("n3", at(13));
        assert!(!desk.is_untried() && desk.due(at(20)).is_empty());
        desk.ask("plan", &needs(&["n2"]), at(21));
        assert_eq!(desk.due(at(23)), ["n2"], "the plan needs it again");
    }

    #[test]
    fn a_list_by_mistake_is_no_storm() {
        let mut desk = desk("n0");
        let all: Vec<String> = (1..=300).map(|n| format!("n{n}")).collect();
        desk.ask("plan", &all, at(10));
        let first = desk.due(at(10));
        assert_eq!((first.len(), desk.due(at(11)).len(), desk.wake()), (AT_ONCE, 0, None));
        desk.done(&first[0], true, at(12));
        assert_eq!(desk.due(at(12)).len(), 1);
    }

    #[test]
    fn a_proof_counts_also_when_the_plan_comes_again_and_ends_with_the_next_life() {
        let mut desk = desk("n1");
        desk.lives("n2", 7);
        desk.ask("plan", &needs(&["n2"]), at(10));
        assert_eq!(desk.due(at(10)), ["n2"]);
        desk.ask("plan", &needs(&["n2"]), at(11));
        assert!(desk.due(at(11)).is_empty(), "one at a time");
        desk.keep("n2", Proof { incarnation: Some(7), at: at(12) });
        assert_eq!(desk.done("n2", true, at(12)), ["plan"]);
        desk.ask("plan", &needs(&["n2"]), at(13));
        assert!(desk.is_proven("n2") && desk.due(at(99)).is_empty() && !desk.lacks());
        desk.lives("n2", 8);
        assert_eq!(desk.ended(), ["n2"]);
        desk.ask("plan", &needs(&["n2"]), at(14));
        assert_eq!(desk.due(at(14)), ["n2"]);
    }

    #[test]
    fn a_failure_is_tried_again_after_a_pause_while_it_is_asked_for() {
        let mut desk = desk("n1");
        desk.ask("a", &needs(&["n2"]), at(10));
        desk.ask("b", &needs(&["n2", "n1"]), at(10));
        assert_eq!(desk.due(at(10)), ["n2"]);
        assert_eq!(desk.done("n2", false, at(11)), ["a", "b"]);
        assert!(desk.lacks() && desk.due(at(13)).is_empty());
        desk.ask("a", &[], at(13));
        assert_eq!(desk.due(at(14)), ["n2"]);
        desk.ask("b", &[], at(17));
        assert!(desk.done("n2", false, at(18)).is_empty());
        assert_eq!(desk.wake(), None);
    }

    #[test]
    fn a_delay_is_a_base_and_what_chance_adds() {
        let delay: Delay = "1s+500ms".parse().unwrap();
        let mut draw = Draw::new(3);
        for _ in 0..100 {
            assert!((delay.base..=delay.base + delay.random).contains(&delay.draw(&mut draw)));
        }
        assert_eq!("2s".parse::<Delay>().unwrap().draw(&mut draw), Duration::from_secs(2));
        assert!("2".parse::<Delay>().is_err() && "+1s".parse::<Delay>().is_err());
    }
}
