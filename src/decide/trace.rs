//! What a client was given while a fail-over happened: the last old answer, the first new one, and what lay between.

use crate::types::time::Tick;
use std::net::IpAddr;
use std::time::Duration;

/// Changes of one vantage that are remembered for a picture.
const SPELLS: usize = 1000;
/// So many attempts in a row that fail are the fault, and not a lost packet.
const FAILURES: u32 = 3;

/// What one look gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What was there before.
    Old,
    /// What is awaited, and nothing beside it.
    New,
    /// No answer, or none with an address where one is awaited.
    Nothing,
}

/// The addresses that are awaited; none where the name is to have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Until(pub(crate) Vec<IpAddr>);

impl Until {
    /// Whether a set of addresses is the awaited one.
    pub(crate) fn judge(&self, answer: &[IpAddr]) -> Seen {
        let holds = |all: &[IpAddr], one: &IpAddr| all.contains(one);
        let same = answer.iter().all(|one| holds(&self.0, one)) && self.0.iter().all(|one| holds(answer, one));
        match (same, answer.is_empty()) {
            (true, _) => Seen::New,
            (false, true) => Seen::Nothing,
            (false, false) => Seen::Old,
        }
    }
}

/// A time in which the same was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spell {
    pub(crate) seen: Seen,
    pub(crate) from: Tick,
}

/// One vantage point: what it has been given so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    pub(crate) samples: u64,
    pub(crate) last_old: Option<Tick>,
    /// The first new answer that no old one has followed.
    pub(crate) first_new: Option<Tick>,
    /// By time, the last until now.
    pub(crate) spells: Vec<Spell>,
}

impl Track {
    /// Takes in a look; says whether it turned: to the new, or back to the old.
    ///
    /// What comes late is of its own time: an old answer before the newest new one is no turn back.
    pub(crate) fn observe(&mut self, seen: Seen, at: Tick) -> bool {
        self.samples += 1;
        let was_new = self.is_new();
        match seen {
            Seen::Old => {
                self.last_old = self.last_old.max(Some(at));
                if self.first_new.is_some_and(|first| first < at) {
                    self.first_new = None;
                }
            }
            Seen::New => {
                if self.last_old.is_none_or(|old| old <= at) {
                    self.first_new.get_or_insert(at);
                }
            }
            Seen::Nothing => {}
        }
        let last = self.spells.last();
        if last.is_none_or(|last| last.seen != seen && last.from <= at) {
            if self.spells.len() >= SPELLS {
                self.spells.remove(0);
            }
            self.spells.push(Spell { seen, from: at });
        }
        was_new != self.is_new()
    }

    /// Whether it has what is awaited.
    pub(crate) fn is_new(&self) -> bool {
        self.first_new.is_some()
    }
}

/// A program that keeps what it was told for a time of its own, whatever the TTL: Java, a browser, or one that asks
/// once and never again.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// For ever where it is `None`.
    keeps: Option<Duration>,
    held: Option<(Seen, Tick)>,
}

impl Cache {
    pub(crate) fn new(keeps: Option<Duration>) -> Self {
        Cache { keeps, held: None }
    }

    /// What the program goes by, when the system would tell it `fresh`. No answer is none to keep.
    pub(crate) fn look(&mut self, fresh: Seen, at: Tick) -> Seen {
        if let Some((held, since)) = self.held
            && self.keeps.is_none_or(|keeps| at < since.after(keeps))
        {
            return held;
        }
        self.held = (fresh != Seen::Nothing).then_some((fresh, at));
        fresh
    }
}

/// Attempts to reach the old site: when it stopped serving.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// When those began that failed, since one that went well.
    failed: Vec<Tick>,
}

impl Attempts {
    /// Takes in what became of an attempt that began at `begun`. Those that go well are heard of before those
    /// that nobody answers.
    pub(crate) fn ended(&mut self, begun: Tick, well: bool) {
        if well {
            self.failed.retain(|failed| *failed > begun);
        } else {
            self.failed.push(begun);
        }
    }

    /// When the first of them began that failed and after which none went well.
    pub(crate) fn fault(&self) -> Option<Tick> {
        (self.failed.len() >= FAILURES as usize).then(|| self.failed.iter().min().copied()).flatten()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Tick {
        Tick(Duration::from_millis(ms))
    }

    fn addr(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_new_answer_is_the_awaited_set_and_no_other() {
        let until = Until(vec![addr(1), addr(2)]);
        assert_eq!(until.judge(&[addr(2), addr(1)]), Seen::New);
        assert_eq!(until.judge(&[addr(1)]), Seen::Old);
        assert_eq!(until.judge(&[]), Seen::Nothing);
        assert_eq!(until.judge(&[addr(1), addr(2), addr(3)]), Seen::Old);
        assert_eq!(Until(Vec::new()).judge(&[]), Seen::New);
        assert_eq!(Until(Vec::new()).judge(&[addr(1)]), Seen::Old);
    }

    #[test]
    fn the_first_new_answer_is_one_that_no_old_one_follows() {
        let mut track = Track::default();
        assert!(!track.observe(Seen::Old, at(0)));
        assert!(!track.observe(Seen::Nothing, at(50)));
        assert!(track.observe(Seen::New, at(100)));
        // Several caches behind one address.
        assert!(track.observe(Seen::Old, at(150)));
        assert!(track.observe(Seen::New, at(200)));
        // One that was on its way for long.
        assert!(!track.observe(Seen::Old, at(180)));
        assert_eq!((track.last_old, track.first_new, track.samples), (Some(at(180)), Some(at(200)), 6));
        let seen: Vec<Seen> = track.spells.iter().map(|spell| spell.seen).collect();
        assert_eq!(seen, [Seen::Old, Seen::Nothing, Seen::New, Seen::Old, Seen::New]);
    }

    #[test]
    fn a_program_goes_by_what_it_keeps() {
        let mut java = Cache::new(Some(Duration::from_millis(300)));
        assert_eq!(java.look(Seen::Nothing, at(0)), Seen::Nothing);
        assert_eq!(java.look(Seen::Old, at(100)), Seen::Old);
        assert_eq!(java.look(Seen::New, at(399)), Seen::Old);
        assert_eq!(java.look(Seen::New, at(400)), Seen::New);
        let mut once = Cache::new(None);
        assert_eq!(once.look(Seen::Old, at(0)), Seen::Old);
        assert_eq!(once.look(Seen::New, at(1_000_000)), Seen::Old);
    }

    #[test]
    fn a_fault_is_where_the_first_of_three_began() {
        let mut attempts = Attempts::default();
        attempts.ended(at(0), true);
        attempts.ended(at(50), false);
        attempts.ended(at(100), true);
        attempts.ended(at(150), false);
        attempts.ended(at(250), false);
        assert_eq!(attempts.fault(), None);
        attempts.ended(at(200), false);
        assert_eq!(attempts.fault(), Some(at(150)));
    }

    proptest! {
        #[test]
        fn no_old_answer_comes_after_the_first_new_one(looks in prop::collection::vec((0u8..3, 0u64..500), 1..60)) {
            let mut track = Track::default();
            for (seen, ms) in &looks {
                track.observe([Seen::Old, Seen::New, Seen::Nothing][usize::from(*seen)], at(*ms));
            }
            prop_assert_eq!(track.samples, looks.len() as u64);
            let newest_old = looks.iter().filter(|(seen, _)| *seen == 0).map(|(_, ms)| at(*ms)).max();
            prop_assert_eq!(track.last_old, newest_old);
            if let (Some(first), Some(old)) = (track.first_new, newest_old) {
                prop_assert!(old <= first);
            }
            prop_assert!(track.spells.windows(2).all(|two| two[0].seen != two[1].seen && two[0].from <= two[1].from));
        }
    }
}
