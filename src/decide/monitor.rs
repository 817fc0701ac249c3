//! From probes to verdicts: one state machine for every checker.
//!
//! [`Monitor`] says when to probe and what the probes amount to; [`Damp`] does the same to verdicts
//! that somebody else came to. Both count evidence in a [`Judge`].

use crate::types::status::Status;
use crate::types::time::Tick;
use std::collections::VecDeque;
use std::time::Duration;

/// Why a probe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing came in the time given.
    Timeout,
    /// The other side said no.
    Refused,
    /// The other side broke off.
    Reset,
    /// The network said that it cannot be reached, or there is no route.
    Unreachable,
    /// It answered, and not what was asked for.
    BadAnswer,
    /// A figure is beyond its limit.
    Limit,
    /// A file system is mounted read-only.
    ReadOnly,
    /// The probe never left this host.
    Local,
}

impl Fault {
    /// The word in records.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Fault::Timeout => "timeout",
            Fault::Refused => "refused",
            Fault::Reset => "reset",
            Fault::Unreachable => "unreachable",
            Fault::BadAnswer => "bad-answer",
            Fault::Limit => "limit",
            Fault::ReadOnly => "read-only",
            Fault::Local => "local",
        }
    }

    /// Whether one such answer settles it: a clear no needs no second asking.
    pub(crate) fn is_certain(self) -> bool {
        matches!(self, Fault::Refused | Fault::Reset)
    }
}

/// What one probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    Good,
    Bad(Fault),
    /// It could not be asked: no evidence for either.
    Untold,
}

impl Evidence {
    /// The fault, where there is one.
    pub(crate) fn fault(self) -> Option<Fault> {
        match self {
            Evidence::Good => None,
            Evidence::Bad(fault) => Some(fault),
            Evidence::Untold => Some(Fault::Local),
        }
    }
}

/// How many failures make down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fall {
    /// So many in a row.
    InARow(u32),
    /// `failed` of the last `window`.
    Of { failed: u32, window: u32 },
}

impl Fall {
    /// The failures that it takes when nothing else comes.
    pub(crate) fn needed(self) -> u32 {
        match self {
            Fall::InARow(count) | Fall::Of { failed: count, .. } => count.max(1),
        }
    }
}

/// Counts evidence until it is enough for another verdict.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    rise: u32,
    fall: Fall,
    verdict: Status,
    /// The last one's kind in a row; at most one of them is above 0, except that what could not be
    /// asked leaves the failures before it standing.
    good: u32,
    bad: u32,
    untold: u32,
    /// The last `Fall::Of` window: whether each failed.
    window: VecDeque<bool>,
}

impl Judge {
    fn new(rise: u32, fall: Fall) -> Self {
        let window = VecDeque::new();
        Judge { rise: rise.max(1), fall, verdict: Status::Unknown, good: 0, bad: 0, untold: 0, window }
    }

    fn take(&mut self, evidence: Evidence) -> Status {
        let before = self.verdict;
        match evidence {
            Evidence::Good => {
                (self.good, self.bad, self.untold) = (self.good.saturating_add(1), 0, 0);
                self.remember(false);
                if self.good >= self.rise {
                    self.verdict = Status::Up;
                }
            }
            Evidence::Bad(fault) => {
                (self.good, self.bad, self.untold) = (0, self.bad.saturating_add(1), 0);
                self.remember(true);
                if fault.is_certain() || self.has_fallen() {
                    self.verdict = Status::Down;
                }
            }
            Evidence::Untold => {
                (self.good, self.untold) = (0, self.untold.saturating_add(1));
                if self.untold >= self.fall.needed() {
                    self.verdict = Status::Unknown;
                }
            }
        }
        if self.verdict != before {
            // What led to this verdict does not count towards the next.
            self.window.clear();
        }
        self.verdict
    }

    fn remember(&mut self, failed: bool) {
        if let Fall::Of { window, .. } = self.fall {
            self.window.push_back(failed);
            while self.window.len() > usize::try_from(window).unwrap_or(usize::MAX) {
                self.window.pop_front();
            }
        }
    }

    fn has_fallen(&self) -> bool {
        match self.fall {
            Fall::InARow(count) => self.bad >= count.max(1),
            Fall::Of { failed, .. } => self.window.iter().filter(|failed| **failed).count() >= failed as usize,
        }
    }

    /// Whether the last evidence speaks against the verdict.
    fn is_in_transition(&self) -> bool {
        (self.verdict != Status::Down && self.bad > 0) || (self.verdict != Status::Up && self.good > 0)
    }

    /// Forgets everything: the evidence is too old.
    fn expire(&mut self) {
        *self = Judge::new(self.rise, self.fall);
    }

    /// How much of the last kind of evidence came in a row.
    fn streak(&self) -> u32 {
        if self.untold > 0 { self.untold } else { self.good.max(self.bad) }
    }
}

/// How a monitor probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// From the start of a probe to the start of the next, unless the first takes longer.
    pub(crate) interval: Duration,
    /// The same while the last probe speaks against the verdict.
    pub(crate) fast_interval: Option<Duration>,
    /// How long a probe waits for its answer.
    pub(crate) response_timeout: Duration,
    pub(crate) fall: Fall,
    /// Good probes in a row that make up.
    pub(crate) success_retries: u32,
    /// No probe for so long after going down.
    pub(crate) down_time: Duration,
    /// How long evidence holds.
    pub(crate) valid_for: Duration,
}

impl Settings {
    /// How long evidence holds unless somebody wants it otherwise: a round may be lost, two not, so
    /// that a checker that froze is noticed. A record comes at least each interval and time-out.
    pub(crate) fn usual_validity(interval: Duration, response_timeout: Duration) -> Duration {
        2 * interval.max(response_timeout) + response_timeout
    }

    fn step(&self, in_transition: bool) -> Duration {
        self.fast_interval.filter(|_| in_transition).unwrap_or(self.interval)
    }

    /// From a fault to the verdict, the least and the most over all moments at which it can begin,
    /// where a failing probe takes `answer`: the response time-out for one that is silent.
    pub(crate) fn detection(&self, answer: Duration) -> (Duration, Duration) {
        let between = self.step(true).max(answer);
        let least = between.saturating_mul(self.fall.needed() - 1).saturating_add(answer);
        (least, least.saturating_add(self.interval))
    }

    /// The longest that a run takes to come to a first verdict.
    pub(crate) fn first_verdict(&self) -> Duration {
        let rounds = self.fall.needed().max(self.success_retries);
        self.step(true).max(self.response_timeout).saturating_mul(rounds - 1).saturating_add(self.response_timeout)
    }
}

/// One thing that is probed.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    settings: Settings,
    judge: Judge,
    next: Tick,
    /// When the verdict is too old to be one.
    expires: Option<Tick>,
}

impl Monitor {
    /// Begins to probe at once, without a verdict.
    pub(crate) fn new(settings: Settings, now: Tick) -> Self {
        let judge = Judge::new(settings.success_retries, settings.fall);
        Monitor { settings, judge, next: now, expires: None }
    }

    /// When the next probe starts.
    pub(crate) fn next_probe(&self) -> Tick {
        self.next
    }

    /// Something happened: the next probe starts at once, also within the down time.
    pub(crate) fn probe_now(&mut self, now: Tick) {
        self.next = self.next.min(now);
    }

    /// A probe that started at `started` ended at `now`.
    pub(crate) fn answered(&mut self, started: Tick, now: Tick, evidence: Evidence) {
        let before = self.status(now);
        let verdict = self.judge.take(evidence);
        self.next = started.after(self.settings.step(self.judge.is_in_transition())).max(now);
        if verdict == Status::Down && before != Status::Down {
            self.next = now.after(self.settings.down_time).max(self.next);
        }
        if evidence != Evidence::Untold {
            // A pause that was planned is no silence.
            self.expires = Some(now.max(self.next_pause(started)).after(self.settings.valid_for));
        }
    }

    /// Where the next probe lies beyond an interval, the point from which it is awaited.
    fn next_pause(&self, started: Tick) -> Tick {
        if self.next > started.after(self.settings.interval) { self.next } else { started }
    }

    /// The verdict at `now`; one whose evidence has expired is none.
    pub(crate) fn status(&mut self, now: Tick) -> Status {
        if self.expires.is_some_and(|expires| expires <= now) {
            self.expires = None;
            self.judge.expire();
        }
        self.judge.verdict
    }

    /// How many probes in a row said the last.
    pub(crate) fn streak(&self) -> u32 {
        self.judge.streak()
    }
}

/// What a flap costs (the penalties and limits that routers use for RFC 2439 §4.2, and the half-life
/// of its examples).
const FLAP: f64 = 1000.0;
const SUPPRESS: f64 = 2000.0;
const REUSE: f64 = 750.0;
const HALF_LIFE: Duration = Duration::from_secs(15 * 60);
/// Nothing is suppressed for longer than four half-lives after its last flap.
const CEILING: f64 = REUSE * 16.0;

/// How verdicts are damped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damping {
    /// Verdicts in a row that make up.
    pub(crate) rise: u32,
    /// Verdicts in a row that make down.
    pub(crate) fall: u32,
    /// What went down stays down for so long.
    pub(crate) hold: Duration,
    /// What flaps is kept down until its penalty has decayed.
    pub(crate) penalty: bool,
}

/// What is remembered of one subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Past {
    /// When the newest word on it arrived.
    pub(crate) arrived: Tick,
    /// What was said of it last.
    pub(crate) raw: Status,
    /// What came of it.
    pub(crate) status: Status,
    /// The verdict before hold-down and penalty.
    pub(crate) verdict: Status,
    pub(crate) good: u32,
    pub(crate) bad: u32,
    pub(crate) untold: u32,
    /// The penalty at `at`.
    pub(crate) penalty: f64,
    pub(crate) at: Tick,
    pub(crate) flapping: bool,
    /// When it went down last.
    pub(crate) fell: Option<Tick>,
    /// How often `status` has changed.
    pub(crate) changes: u64,
}

impl Past {
    /// Nothing is known yet.
    pub(crate) fn new(now: Tick) -> Self {
        Past {
            arrived: Tick(Duration::ZERO),
            raw: Status::Unknown,
            status: Status::Unknown,
            verdict: Status::Unknown,
            good: 0,
            bad: 0,
            untold: 0,
            penalty: 0.0,
            at: now,
            flapping: false,
            fell: None,
            changes: 0,
        }
    }

    /// Takes the verdict that somebody came to at `now`.
    ///
    /// A flap is counted as it is said, before rise and fall hide it. Going down is never held back:
    /// only the way up is.
    #[must_use]
    pub(crate) fn damp(mut self, damping: Damping, raw: Status, now: Tick) -> Past {
        let mut judge = Judge {
            verdict: self.verdict,
            good: self.good,
            bad: self.bad,
            untold: self.untold,
            ..Judge::new(damping.rise, Fall::InARow(damping.fall))
        };
        self.verdict = judge.take(match raw {
            Status::Up => Evidence::Good,
            Status::Down => Evidence::Bad(Fault::BadAnswer),
            Status::Unknown => Evidence::Untold,
        });
        (self.good, self.bad, self.untold) = (judge.good, judge.bad, judge.untold);
        self.penalty = decayed(self.penalty, now.since(self.at));
        if self.raw == Status::Up && raw == Status::Down {
            self.penalty = (self.penalty + FLAP).min(CEILING);
        }
        self.flapping = self.penalty >= if self.flapping { REUSE } else { SUPPRESS };
        if raw != Status::Unknown {
            self.raw = raw;
        }
        self.at = now;
        let held = self.fell.is_some_and(|fell| now.since(fell) < damping.hold);
        // The end of a hold-down is no evidence: what comes up then is up in a row at that moment.
        let risen = self.status == Status::Up || self.good >= damping.rise.max(1);
        let status = match self.verdict {
            Status::Up if held || !risen || (damping.penalty && self.flapping) => Status::Down,
            verdict => verdict,
        };
        let falls = self.status == Status::Up || self.verdict == Status::Down;
        if status == Status::Down && self.status != Status::Down && falls {
            self.fell = Some(now);
        }
        if status != self.status {
            self.changes += 1;
        }
        self.status = status;
        self
    }

    /// How long the penalty alone will keep it down; none where it does not.
    pub(crate) fn suppressed_for(&self, damping: Damping) -> Option<Duration> {
        (damping.penalty && self.flapping)
            .then(|| HALF_LIFE.mul_f64((self.penalty / REUSE).log2().clamp(0.0, CEILING.log2())))
    }
}

fn decayed(penalty: f64, after: Duration) -> f64 {
    let left = penalty * 0.5f64.powf(after.as_secs_f64() / HALF_LIFE.as_secs_f64());
    // Below half a point it is none (RFC 2439 §4.8.3 lets such a figure go).
    if left < 0.5 { 0.0 } else { left }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> Tick {
        Tick(ms(millis))
    }

    fn defaults() -> Settings {
        Settings {
            interval: ms(5000),
            fast_interval: None,
            response_timeout: ms(2000),
            fall: Fall::InARow(3),
            success_retries: 1,
            down_time: ms(30_000),
            valid_for: Settings::usual_validity(ms(5000), ms(2000)),
        }
    }

    /// Goes on probing a target that answers at once before `fault` and is silent from then on; when it
    /// is down, and when the first failed probe started.
    fn silence(monitor: &Monitor, fault: Tick) -> (Tick, Tick) {
        let mut monitor = monitor.clone();
        let mut first = None;
        loop {
            let started = monitor.next_probe();
            let (ended, evidence) = if started < fault {
                (started, Evidence::Good)
            } else {
                first.get_or_insert(started);
                (started.after(monitor.settings.response_timeout), Evidence::Bad(Fault::Timeout))
            };
            monitor.answered(started, ended, evidence);
            if monitor.status(ended) == Status::Down {
                return (ended, first.unwrap());
            }
        }
    }

    #[test]
    fn a_silent_target_is_down_12_s_after_the_first_failed_probe_started() {
        let (down, first) = silence(&Monitor::new(defaults(), at(0)), at(7000));
        assert_eq!((first, down), (at(10_000), at(22_000)));
        assert_eq!(defaults().detection(ms(2000)), (ms(12_000), ms(17_000)));
    }

    #[test]
    fn a_refusing_target_is_down_with_the_first_probe() {
        let mut monitor = Monitor::new(defaults(), at(0));
        monitor.answered(at(0), at(1), Evidence::Bad(Fault::Refused));
        assert_eq!(monitor.status(at(1)), Status::Down);
    }

    #[test]
    fn after_going_down_there_is_a_pause_then_the_interval_again() {
        let mut monitor = Monitor::new(defaults(), at(0));
        monitor.answered(at(0), at(1), Evidence::Bad(Fault::Refused));
        assert_eq!(monitor.next_probe(), at(30_001));
        assert_eq!(monitor.status(at(30_000)), Status::Down, "a planned pause does not expire it");
        monitor.answered(at(30_001), at(30_002), Evidence::Bad(Fault::Refused));
        assert_eq!(monitor.next_probe(), at(35_001));
        monitor.answered(at(35_001), at(35_002), Evidence::Good);
        assert_eq!((monitor.status(at(35_002)), monitor.next_probe()), (Status::Up, at(40_001)));
    }

    #[test]
    fn an_event_is_looked_at_at_once_and_within_the_pause_too() {
        let mut monitor = Monitor::new(defaults(), at(0));
        monitor.answered(at(0), at(1), Evidence::Bad(Fault::Refused));
        monitor.probe_now(at(500));
        assert_eq!(monitor.next_probe(), at(500));
    }

    #[test]
    fn some_of_the_last_are_enough_where_that_was_asked_for() {
        let settings = Settings { fall: Fall::Of { failed: 3, window: 5 }, ..defaults() };
        let mut monitor = Monitor::new(settings, at(0));
        let bad = Evidence::Bad(Fault::Timeout);
        let mut verdicts = Vec::new();
        for (number, evidence) in
            [Evidence::Good, bad, Evidence::Good, bad, Evidence::Good, Evidence::Good, bad, bad].into_iter().enumerate()
        {
            let now = at(number as u64 * 5000);
            monitor.answered(now, now, evidence);
            verdicts.push(monitor.status(now));
        }
        assert!(verdicts[..7].iter().all(|verdict| *verdict == Status::Up), "{verdicts:?}");
        assert_eq!(verdicts[7], Status::Down, "3 of the last 5");
    }

    #[test]
    fn evidence_expires() {
        let mut monitor = Monitor::new(defaults(), at(0));
        monitor.answered(at(0), at(1), Evidence::Good);
        assert_eq!(monitor.status(at(12_000)), Status::Up);
        assert_eq!(monitor.status(at(12_001)), Status::Unknown);
        // Nothing is left of it: the count begins anew.
        monitor.answered(at(13_000), at(13_001), Evidence::Bad(Fault::Timeout));
        assert_eq!(monitor.status(at(13_001)), Status::Unknown);
    }

    #[test]
    fn what_cannot_be_asked_is_unknown_after_as_many_tries_and_never_down() {
        let mut monitor = Monitor::new(defaults(), at(0));
        monitor.answered(at(0), at(0), Evidence::Good);
        for (round, verdict) in [(1, Status::Up), (2, Status::Up), (3, Status::Unknown), (4, Status::Unknown)] {
            // Before it would expire by itself.
            monitor.answered(at(round), at(round), Evidence::Untold);
            assert_eq!(monitor.status(at(round)), verdict, "{round}");
        }
    }

    fn fall() -> impl Strategy<Value = Fall> {
        prop_oneof![
            (1u32..6).prop_map(Fall::InARow),
            (1u32..6, 0u32..4).prop_map(|(failed, more)| Fall::Of { failed, window: failed + more }),
        ]
    }

    prop_compose! {
        fn settings()(
            interval in 10u64..8000,
            fast in proptest::option::of(1u64..=100),
            response in 1u64..5000,
            fall in fall(),
            success_retries in 1u32..5,
            down_time in 0u64..40_000,
        ) -> Settings {
            Settings {
                interval: ms(interval),
                fast_interval: fast.map(|pct| ms(interval * pct / 100).max(ms(1))),
                response_timeout: ms(response),
                fall,
                success_retries,
                down_time: ms(down_time),
                valid_for: Settings::usual_validity(ms(interval), ms(response)),
            }
        }
    }

    fn evidence() -> impl Strategy<Value = Evidence> {
        prop_oneof![
            3 => Just(Evidence::Good),
            3 => Just(Evidence::Bad(Fault::Timeout)),
            1 => Just(Evidence::Bad(Fault::Refused)),
            1 => Just(Evidence::Untold),
        ]
    }

    proptest! {
        /// What is promised is what happens, at every moment at which the fault can begin.
        #[test]
        fn detection_is_what_the_machine_does_over_all_phases(settings in settings(), rounds in 10u32..20) {
            let (least, most) = settings.detection(settings.response_timeout);
            let interval = u64::try_from(settings.interval.as_millis()).unwrap();
            let mut steady = Monitor::new(settings.clone(), at(0));
            for _ in 0..rounds {
                let started = steady.next_probe();
                steady.answered(started, started, Evidence::Good);
            }
            let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
            for phase in 1..=interval {
                // From just after a probe to the moment at which the next one starts.
                let fault = Tick(steady.next_probe().0 + ms(phase));
                let (down, _) = silence(&steady, fault);
                shortest = shortest.min(down.since(fault));
                longest = longest.max(down.since(fault));
            }
            prop_assert_eq!(shortest, least);
            // The fault begins a millisecond after a probe at the earliest, in this grid.
            prop_assert_eq!(longest, most.saturating_sub(ms(1)));
        }

        /// Up comes of good probes in a row, down of failures enough or a clear no, and neither of nothing.
        #[test]
        fn no_verdict_without_evidence_and_no_flap_faster_than_allowed(
            settings in settings(),
            rounds in proptest::collection::vec((evidence(), 0u64..5000), 1..200),
        ) {
            let mut monitor = Monitor::new(settings.clone(), at(0));
            prop_assert_eq!(monitor.status(at(0)), Status::Unknown);
            let (mut history, mut verdict) = (Vec::new(), Status::Unknown);
            let mut fell: Option<Tick> = None;
            for (evidence, answer) in rounds {
                let started = monitor.next_probe();
                let now = started.after(ms(answer).min(settings.response_timeout));
                let standing = monitor.status(now);
                prop_assert!(standing == verdict || standing == Status::Unknown);
                monitor.answered(started, now, evidence);
                history.push(evidence);
                let after = monitor.status(now);
                let told = |count: u32, fits: fn(&Evidence) -> bool| {
                    history.iter().rev().take(count as usize).filter(|evidence| fits(evidence)).count() == count as usize
                };
                if after != standing {
                    match after {
                        Status::Up => {
                            prop_assert!(told(settings.success_retries, |evidence| *evidence == Evidence::Good));
                            if let Some(fell) = fell {
                                prop_assert!(standing == Status::Unknown || now.since(fell) >= settings.down_time);
                            }
                        }
                        Status::Down => {
                            fell = Some(now);
                            let failed = history.iter().filter(|evidence| matches!(evidence, Evidence::Bad(_))).count();
                            let sure = evidence == Evidence::Bad(Fault::Refused);
                            prop_assert!(sure || failed >= settings.fall.needed() as usize);
                            prop_assert!(matches!(evidence, Evidence::Bad(_)));
                        }
                        Status::Unknown => {
                            prop_assert!(told(settings.fall.needed(), |evidence| *evidence == Evidence::Untold));
                        }
                    }
                }
                // Probes do not come faster than they may.
                let least = settings.interval.min(settings.fast_interval.unwrap_or(settings.interval));
                prop_assert!(monitor.next_probe().since(started) >= least);
                verdict = after;
            }
        }

        #[test]
        fn a_verdict_nobody_renews_ends(settings in settings(), evidence in evidence()) {
            let mut monitor = Monitor::new(settings.clone(), at(0));
            monitor.answered(at(0), at(0), evidence);
            let late = monitor.next_probe().max(at(0)).after(settings.valid_for);
            prop_assert_eq!(monitor.status(late), Status::Unknown);
        }

        /// A steady checker never lets its own verdict expire.
        #[test]
        fn a_living_checker_s_verdict_does_not_expire(settings in settings(), slow in any::<bool>()) {
            let mut monitor = Monitor::new(settings.clone(), at(0));
            let mut known = false;
            for _ in 0..50 {
                let started = monitor.next_probe();
                let now = if slow { started.after(settings.response_timeout) } else { started };
                if known {
                    prop_assert_ne!(monitor.status(now), Status::Unknown);
                }
                monitor.answered(started, now, Evidence::Bad(Fault::Timeout));
                known = monitor.status(now) != Status::Unknown;
            }
        }

        /// Held down is held down, and what is up was said to be up.
        #[test]
        fn damping_keeps_its_word(
            rise in 1u32..4,
            fall in 1u32..4,
            hold in 0u64..100,
            penalty in any::<bool>(),
            said in proptest::collection::vec((0u8..3, 1u64..200), 1..200),
        ) {
            let damping = Damping { rise, fall, hold: Duration::from_secs(hold), penalty };
            let (mut past, mut now, mut fell) = (Past::new(at(0)), at(0), None);
            let mut ups = 0;
            for (kind, pause) in said {
                now = now.after(Duration::from_secs(pause));
                let raw = [Status::Up, Status::Down, Status::Unknown][usize::from(kind)];
                ups = if raw == Status::Up { ups + 1 } else { 0 };
                let before = past.status;
                past = past.damp(damping, raw, now);
                prop_assert!((0.0..=CEILING).contains(&past.penalty));
                if past.status == Status::Up && before != Status::Up {
                    prop_assert!(ups >= rise);
                    prop_assert!(fell.is_none_or(|fell: Tick| now.since(fell) >= damping.hold));
                    prop_assert!(!(penalty && past.flapping));
                }
                if past.status == Status::Down && before == Status::Up {
                    prop_assert_eq!(raw, Status::Down);
                    fell = Some(now);
                }
                if let Some(left) = past.suppressed_for(damping) {
                    prop_assert!(left <= 4 * HALF_LIFE + ms(1));
                }
            }
        }
    }

    #[test]
    fn the_penalty_s_figures_are_those_of_the_routers() {
        let damping = Damping { rise: 1, fall: 1, hold: Duration::ZERO, penalty: true };
        let mut past = Past::new(at(0));
        for second in 0..6 {
            let raw = if second % 2 == 0 { Status::Up } else { Status::Down };
            past = past.damp(damping, raw, at(second * 1000));
        }
        assert!(past.flapping && (2990.0..3000.0).contains(&past.penalty), "{past:?}");
        // 3000 to 750 is two half-lives.
        let left = past.suppressed_for(damping).unwrap();
        assert!((ms(1_790_000)..ms(1_800_000)).contains(&left), "{left:?}");
        let up = past.damp(damping, Status::Up, at(6000));
        assert_eq!((up.status, up.verdict), (Status::Down, Status::Up), "kept down while it flaps");
        let later = up.damp(damping, Status::Up, at(5000 + 1_800_000));
        assert_eq!((later.status, later.flapping), (Status::Up, false));
    }
}
