//! From verdicts on services to one priority.

use crate::types::status::Status;
use crate::types::time::Tick;
use std::collections::BTreeMap;

/// How services that are down lower the priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Not at all.
    None,
    /// One that is down lowers it to 0.
    All,
    /// Only all of them down lower it to 0.
    One,
    /// Each takes its part: BP (1 - K/N).
    Progressive,
}

impl Policy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::All => "all",
            Policy::One => "one",
            Policy::Progressive => "progressive",
        }
    }

    /// The effective priority of `base` with `up` of `total` services up.
    ///
    /// Rounded down, but at least 1 while one is up: 0 means that the address is given up at once
    /// (RFC 9568 §5.2.4).
    pub(crate) fn priority(self, base: u8, up: usize, total: usize) -> u8 {
        match self {
            Policy::None => base,
            Policy::All if up == total => base,
            Policy::One if up > 0 => base,
            Policy::Progressive if up > 0 && total > 0 => {
                u8::try_from(usize::from(base) * up.min(total) / total).unwrap_or(base).max(1)
            }
            Policy::All | Policy::One | Policy::Progressive => 0,
        }
    }
}

/// What a service counts as that nobody knows about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Its last verdict until that expires, then down.
    Hold,
    Down,
    Up,
}

/// What a line says of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) status: Status,
    /// When it reached this machine.
    pub(crate) arrived: Tick,
    /// When it is too old to be a verdict; never where it has no end.
    pub(crate) expires: Option<Tick>,
}

/// What is known of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    status: Status,
    /// When that is too old.
    expires: Option<Tick>,
    /// The last verdict that was one, and when it is too old.
    verdict: Option<(Status, Option<Tick>)>,
    /// When the word that counts arrived; none in this run yet.
    arrived: Option<Tick>,
}

impl Service {
    /// One that nobody has said anything about.
    pub(crate) const SILENT: Service = Service { status: Status::Unknown, expires: None, verdict: None, arrived: None };

    /// Takes what is said of it, unless a word that arrived later is known: lines come in any order, and
    /// the newest counts, of two as new the one that is read last. Says whether it was taken.
    pub(crate) fn note(&mut self, word: Word) -> bool {
        let Word { status, arrived, expires } = word;
        if self.arrived.is_some_and(|newest| arrived < newest) {
            return false;
        }
        (self.status, self.expires, self.arrived) = (status, expires, Some(arrived));
        if status != Status::Unknown {
            self.verdict = Some((status, expires));
        }
        true
    }

    /// Whether there ever was a verdict on it.
    pub(crate) fn was_known(&self) -> bool {
        self.verdict.is_some()
    }

    /// The last verdict and its end: what is remembered from run to run.
    pub(crate) fn verdict(&self) -> Option<(Status, Option<Tick>)> {
        self.verdict
    }

    /// One that is remembered and has not been heard of in this run.
    pub(crate) fn remembered(status: Status, expires: Option<Tick>) -> Self {
        Service { verdict: Some((status, expires)), ..Service::SILENT }
    }

    fn status(&self, now: Tick) -> Status {
        if self.expires.is_some_and(|expires| expires <= now) { Status::Unknown } else { self.status }
    }

    /// What it counts as, and until when that stands.
    fn counted(&self, unknown: Unknown, now: Tick) -> (Status, Option<Tick>) {
        match (self.status(now), unknown) {
            (Status::Unknown, Unknown::Up) => (Status::Up, None),
            (Status::Unknown, Unknown::Down) => (Status::Down, None),
            (Status::Unknown, Unknown::Hold) => match self.verdict {
                Some((verdict, until)) if until.is_none_or(|until| until > now) => (verdict, until),
                _ => (Status::Down, None),
            },
            (known, _) => (known, self.expires),
        }
    }
}

/// One service in a conclusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) subject: String,
    pub(crate) status: Status,
    pub(crate) counted_as: Status,
}

/// What all services amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) services: Vec<Counted>,
    /// When the first of what this stands on is too old.
    pub(crate) until: Option<Tick>,
    /// Whether there was a verdict on any of them, ever.
    pub(crate) founded: bool,
}

impl Tally {
    /// Counts all services at `now`.
    pub(crate) fn new(services: &BTreeMap<String, Service>, unknown: Unknown, now: Tick) -> Self {
        let mut until: Option<Tick> = None;
        let counted = services
            .iter()
            .map(|(subject, service)| {
                let (counted_as, stands) = service.counted(unknown, now);
                until = [until, stands].into_iter().flatten().min();
                Counted { subject: subject.clone(), status: service.status(now), counted_as }
            })
            .collect();
        Tally { services: counted, until, founded: services.values().any(Service::was_known) }
    }

    /// How many are `status` as they were reported.
    pub(crate) fn count(&self, status: Status) -> usize {
        self.services.iter().filter(|service| service.status == status).count()
    }

    /// The priority of `base`; none where nothing was ever known and nothing stands in for it.
    pub(crate) fn priority(&self, policy: Policy, unknown: Unknown, base: u8) -> Option<u8> {
        let up = self.services.iter().filter(|service| service.counted_as == Status::Up).count();
        let stands_in = policy == Policy::None || (unknown != Unknown::Hold && !self.services.is_empty());
        (self.founded || stands_in).then(|| policy.priority(base, up, self.services.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// known-faults 16.
    #[test]
    fn priority_zero_is_not_a_low_priority() {
        for (policy, base, up, priority) in [
            (Policy::Progressive, 100, 3, 75),
            (Policy::Progressive, 100, 0, 0),
            (Policy::Progressive, 1, 1, 1),
            (Policy::Progressive, 3, 1, 1),
            (Policy::Progressive, 255, 4, 255),
            (Policy::All, 100, 4, 100),
            (Policy::All, 100, 3, 0),
            (Policy::One, 100, 1, 100),
            (Policy::One, 100, 0, 0),
            (Policy::None, 100, 0, 100),
        ] {
            assert_eq!(policy.priority(base, up, 4), priority, "{policy:?} {base} {up}");
        }
    }

    #[test]
    fn partly_up_is_never_zero_and_more_up_is_never_less() {
        for base in 1..=255u8 {
            for total in 1..=300 {
                let mut before = 0;
                for up in 0..=total {
                    let priority = Policy::Progressive.priority(base, up, total);
                    assert!((priority == 0) == (up == 0) && priority >= before && priority <= base);
                    before = priority;
                }
                assert_eq!(before, base);
            }
        }
    }

    fn at(ms: u64) -> Tick {
        Tick(Duration::from_millis(ms))
    }

    fn word(status: Status, arrived: u64, expires: u64) -> Word {
        Word { status, arrived: at(arrived), expires: Some(at(expires)) }
    }

    #[test]
    fn the_newest_word_counts_and_not_the_last_line() {
        let mut service = Service::SILENT;
        assert!(service.note(word(Status::Down, 50, 1000)));
        assert!(!service.note(word(Status::Up, 49, 9000)), "it is older");
        assert_eq!(service.counted(Unknown::Hold, at(60)), (Status::Down, Some(at(1000))));
        assert!(service.note(word(Status::Up, 50, 900)), "of two as new the last");
        assert_eq!(service.counted(Unknown::Hold, at(60)), (Status::Up, Some(at(900))));
    }

    #[test]
    fn an_unknown_service_keeps_its_verdict_until_that_expires() {
        let mut service = Service::SILENT;
        service.note(word(Status::Up, 0, 100));
        service.note(word(Status::Unknown, 1, 1000));
        let services = BTreeMap::from([("a".to_owned(), service)]);
        for (unknown, now, counted_as, until) in [
            (Unknown::Hold, 99, Status::Up, Some(at(100))),
            (Unknown::Hold, 100, Status::Down, None),
            (Unknown::Down, 99, Status::Down, None),
            (Unknown::Up, 5000, Status::Up, None),
        ] {
            let tally = Tally::new(&services, unknown, at(now));
            assert_eq!((tally.services[0].counted_as, tally.until), (counted_as, until), "{unknown:?} {now}");
            assert_eq!(tally.services[0].status, Status::Unknown);
        }
    }

    #[test]
    fn a_conclusion_stands_as_long_as_the_shortest_of_its_verdicts() {
        let (mut one, mut other) = (Service::SILENT, Service::SILENT);
        one.note(word(Status::Up, 0, 300));
        other.note(word(Status::Down, 0, 200));
        let services = BTreeMap::from([("a".to_owned(), one), ("b".to_owned(), other)]);
        let tally = Tally::new(&services, Unknown::Hold, at(0));
        assert_eq!((tally.until, tally.count(Status::Up)), (Some(at(200)), 1));
        assert_eq!(tally.priority(Policy::Progressive, Unknown::Hold, 100), Some(50));
        // At 200 the verdict is too old and counts as down, as it did; at 300 the other's too.
        let later = Tally::new(&services, Unknown::Hold, at(300));
        assert_eq!((later.count(Status::Unknown), later.priority(Policy::One, Unknown::Hold, 100)), (2, Some(0)));
    }

    #[test]
    fn of_nothing_comes_nothing() {
        let tally = Tally::new(&BTreeMap::new(), Unknown::Hold, at(0));
        for policy in [Policy::All, Policy::One, Policy::Progressive] {
            assert_eq!(tally.priority(policy, Unknown::Hold, 100), None);
            assert_eq!(tally.priority(policy, Unknown::Up, 100), None);
        }
        assert_eq!(tally.priority(Policy::None, Unknown::Hold, 100), Some(100));
        let silent = BTreeMap::from([("a".to_owned(), Service::SILENT)]);
        for (unknown, priority) in [(Unknown::Hold, None), (Unknown::Down, Some(0)), (Unknown::Up, Some(100))] {
            assert_eq!(Tally::new(&silent, unknown, at(0)).priority(Policy::All, unknown, 100), priority);
        }
    }
}
