//! The virtual router's state machine (RFC 9568 §6.4; RFC 3768 §6.4 for version 2).
//!
//! Where the RFC leaves clients behind, more is done than it asks: the loser of a contest sends one
//! last advert, so that the winner hears of it and announces again; a router that was itself not
//! scheduled hears what is queued before it judges; and one whose mastership lapsed meanwhile does
//! not go on as if nothing had been.

use crate::types::time::Tick;
use crate::types::vrrp::Version;
use std::net::IpAddr;
use std::time::Duration;

/// The priority of who carries the address as its own.
pub(crate) const OWNER: u8 = 255;

/// Where a virtual router stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It takes no part.
    Init,
    Backup,
    Master,
}

/// What one virtual router is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) version: Version,
    pub(crate) interval: Duration,
    /// Whether it takes over from a living master of lower priority.
    pub(crate) preempt: bool,
    /// How long it leaves such a master alone.
    pub(crate) preempt_delay: Duration,
    /// Virtual routers of one group are master together or not at all.
    pub(crate) sync: Option<String>,
}

/// An advert that a receiver may believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) source: IpAddr,
    pub(crate) priority: u8,
    pub(crate) interval: Duration,
}

/// The master as a backup knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) source: IpAddr,
    pub(crate) priority: u8,
    pub(crate) heard: Tick,
}

/// Why a router changed, or says again what it is. Its word stands in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Start,
    /// No advert came in time.
    Silence,
    /// The master resigned with priority 0.
    Resigned,
    /// A master of higher priority, or of the same and a higher address, was heard.
    Higher,
    /// Another master was heard, and this one wins.
    Contested,
    /// This process did not run for so long that another may have taken over.
    Paused,
    /// The effective priority is 0.
    Unfit,
    LinkDown,
    /// The group moves together.
    Sync,
    Shutdown,
    /// A backup hears another master than before.
    Master,
    /// The effective priority changed.
    Priority,
    /// The settings changed.
    Settings,
}

impl Cause {
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Cause::Start => "start",
            Cause::Silence => "silence",
            Cause::Resigned => "resigned",
            Cause::Higher => "higher-priority",
            Cause::Contested => "contested",
            Cause::Paused => "paused",
            Cause::Unfit => "priority-zero",
            Cause::LinkDown => "link-down",
            Cause::Sync => "sync",
            Cause::Shutdown => "shutdown",
            Cause::Master => "master",
            Cause::Priority => "priority",
            Cause::Settings => "settings",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Send an advert of this priority now.
    Send(u8),
    /// Tell that the router went from one state to the one it is in now; as master, it announces.
    Became(State, Cause),
    /// Tell that it is what it was, and what happened; a master announces again.
    Again(Cause),
}

/// What happened to one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Start,
    /// It may no longer take part; the flag: its link still carries an advert.
    Stop(Cause, bool),
    Timer,
    Advert(Heard),
    Priority(u8),
    /// Its group went there.
    Follow(State),
    /// This process did not run for so long.
    Paused(Duration),
}

/// One virtual router.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    pub(crate) settings: Settings,
    pub(crate) state: State,
    /// The effective priority; 0 keeps it out.
    pub(crate) priority: u8,
    /// The address that its adverts leave from; none where the link has none.
    pub(crate) source: Option<IpAddr>,
    pub(crate) link_up: bool,
    /// An earlier process was master until just now, and did not resign: this one goes on.
    pub(crate) resumes: bool,
    pub(crate) master: Option<Master>,
    /// The master's interval, as its adverts say (`Active_Adver_Interval`).
    active_interval: Duration,
    /// Backup: when the silence began that the down timer counts. Master: the last advert.
    from: Tick,
    /// The master has resigned: the skew time alone is waited for.
    resigned: bool,
    /// One more interval was waited for after a pause of our own.
    waited: bool,
    /// Since when a master of lower priority is heard.
    lower_since: Option<Tick>,
    /// When another master was last answered.
    answered: Option<Tick>,
    /// When another master was last told.
    noted: Option<Tick>,
}

impl Router {
    /// A router that takes no part yet.
    pub(crate) fn new(settings: Settings, priority: u8) -> Self {
        Router {
            active_interval: settings.interval,
            settings,
            state: State::Init,
            priority,
            source: None,
            link_up: false,
            resumes: false,
            master: None,
            from: Tick::default(),
            resigned: false,
            waited: false,
            lower_since: None,
            answered: None,
            noted: None,
        }
    }

    /// `Skew_Time`: the lower the priority, the later (RFC 9568 §6.1; RFC 3768 counts in seconds).
    pub(crate) fn skew(&self) -> Duration {
        let unit = match self.settings.version {
            Version::V2 => Duration::from_secs(1),
            Version::V3 => self.active_interval,
        };
        unit * (256 - u32::from(self.priority)) / 256
    }

    /// `Active_Down_Interval`: the silence that means that there is no master.
    pub(crate) fn down_interval(&self) -> Duration {
        self.active_interval * 3 + self.skew()
    }

    /// The interval that counts: the master's, which is its own where it is master.
    pub(crate) fn advert_interval(&self) -> Duration {
        if self.state == State::Backup { self.active_interval } else { self.settings.interval }
    }

    /// When its timer runs out.
    pub(crate) fn due(&self) -> Option<Tick> {
        match self.state {
            State::Init => None,
            State::Backup if self.resigned => Some(self.from.after(self.skew())),
            State::Backup => Some(self.from.after(self.down_interval())),
            State::Master => Some(self.from.after(self.settings.interval)),
        }
    }

    /// Has a backup's timer run out at `due`.
    fn run_out_at(&mut self, due: Tick) {
        let patience = if self.resigned { self.skew() } else { self.down_interval() };
        self.from = Tick(due.0.saturating_sub(patience));
    }

    fn is_able(&self) -> bool {
        self.link_up && self.priority > 0 && self.source.is_some()
    }

    /// Whether an advert beats this router as master (RFC 9568 §6.4.3).
    fn loses_to(&self, heard: &Heard) -> bool {
        heard.priority > self.priority
            || (heard.priority == self.priority && self.source.is_some_and(|own| heard.source > own))
    }

    /// A master is there; the silence begins anew.
    /// Whether a living master is heard that this router must not take over from.
    fn is_led(&self, now: Tick) -> bool {
        let in_time = self.due().is_some_and(|due| now < due);
        let better = |master: Master| master.priority >= self.priority || !self.settings.preempt;
        self.state == State::Backup && !self.resigned && in_time && self.master.is_some_and(better)
    }

    fn hear(&mut self, heard: &Heard, now: Tick, acts: &mut Vec<Act>) {
        self.note(heard, now, acts);
        if self.settings.version == Version::V3 {
            self.active_interval = heard.interval;
        }
        self.from = now;
        self.resigned = false;
        self.waited = false;
    }

    /// Keeps who is master; another than before is news.
    fn note(&mut self, heard: &Heard, now: Tick, acts: &mut Vec<Act>) {
        let master = Master { source: heard.source, priority: heard.priority, heard: now };
        let before = self.master.replace(master);
        let news = before.is_none_or(|before| before.source != heard.source);
        // Not each of a flood of them: the next renewal has the newest.
        if news && self.noted.is_none_or(|last| now.since(last) >= self.settings.interval) {
            self.noted = Some(now);
            acts.push(Act::Again(Cause::Master));
        }
    }

    fn become_backup(&mut self, cause: Cause, now: Tick, acts: &mut Vec<Act>) {
        let before = std::mem::replace(&mut self.state, State::Backup);
        self.from = now;
        self.resigned = false;
        self.lower_since = None;
        acts.push(Act::Became(before, cause));
    }

    fn become_master(&mut self, cause: Cause, now: Tick, acts: &mut Vec<Act>) {
        let before = std::mem::replace(&mut self.state, State::Master);
        self.from = now;
        self.master = None;
        // First the word to the other routers, then the work.
        acts.push(Act::Send(self.priority));
        acts.push(Act::Became(before, cause));
    }

    fn assert(&mut self, cause: Cause, now: Tick, acts: &mut Vec<Act>) {
        self.from = now;
        acts.push(Act::Send(self.priority));
        acts.push(Act::Again(cause));
    }

    fn step(&mut self, event: Event, now: Tick, acts: &mut Vec<Act>) {
        match (self.state, event) {
            (State::Init, Event::Start) => {
                self.active_interval = self.settings.interval;
                self.master = None;
                if std::mem::take(&mut self.resumes) || self.priority == OWNER {
                    self.become_master(Cause::Start, now, acts);
                } else {
                    self.become_backup(Cause::Start, now, acts);
                }
            }
            (State::Init, Event::Priority(priority)) => self.priority = priority,
            (State::Init, _)
            | (_, Event::Start | Event::Follow(State::Init))
            | (State::Backup, Event::Follow(State::Backup))
            | (State::Master, Event::Follow(State::Master)) => {}

            (state, Event::Stop(cause, can_send)) => {
                if state == State::Master && can_send {
                    acts.push(Act::Send(0));
                }
                self.state = State::Init;
                self.master = None;
                acts.push(Act::Became(state, cause));
            }

            (State::Backup, Event::Timer) => {
                let cause = if self.resigned { Cause::Resigned } else { Cause::Silence };
                self.become_master(cause, now, acts);
            }
            (State::Backup, Event::Advert(heard)) if heard.priority == 0 => {
                // Of two masters one may resign while the other goes on; only ours counts.
                if self.master.is_none_or(|master| master.source == heard.source) {
                    self.from = now;
                    self.resigned = true;
                }
            }
            (State::Backup, Event::Advert(heard)) => {
                if heard.priority >= self.priority {
                    self.lower_since = None;
                    self.hear(&heard, now, acts);
                    return;
                }
                let since = *self.lower_since.get_or_insert(now);
                let patient = now.since(since) < self.settings.preempt_delay;
                let owner = self.priority == OWNER;
                if (!self.settings.preempt && !owner) || patient {
                    self.hear(&heard, now, acts);
                } else {
                    self.note(&heard, now, acts);
                }
            }
            (State::Backup, Event::Priority(priority)) => {
                self.priority = priority;
                acts.push(Act::Again(Cause::Priority));
            }
            (State::Backup, Event::Follow(State::Master)) => self.become_master(Cause::Sync, now, acts),
            (State::Backup, Event::Paused(pause)) => {
                // Once: an overloaded node must still find a dead master dead.
                if pause * 2 >= self.active_interval && !std::mem::replace(&mut self.waited, true) {
                    let least = now.after(self.active_interval);
                    if self.due().is_some_and(|due| due < least) {
                        self.run_out_at(least);
                    }
                }
            }

            (State::Master, Event::Timer) => {
                self.from = now;
                acts.push(Act::Send(self.priority));
            }
            (State::Master, Event::Advert(heard)) => {
                if heard.priority != 0 && self.loses_to(&heard) {
                    // A winner that was not silenced by our adverts would not know that clients
                    // believe us: it hears of us once more, and announces.
                    acts.push(Act::Send(self.priority));
                    let mut told = Vec::new();
                    self.hear(&heard, now, &mut told);
                    self.become_backup(Cause::Higher, now, acts);
                } else if self.answered.is_none_or(|last| now.since(last) * 10 >= self.settings.interval) {
                    // Not each of a flood of them.
                    self.answered = Some(now);
                    self.assert(Cause::Contested, now, acts);
                }
            }
            (State::Master, Event::Priority(priority)) => {
                self.priority = priority;
                self.from = now;
                acts.push(Act::Send(priority));
                acts.push(Act::Again(Cause::Priority));
            }
            (State::Master, Event::Follow(State::Backup)) => self.become_backup(Cause::Sync, now, acts),
            (State::Master, Event::Paused(pause)) => {
                // The shortest silence after which a backup takes over.
                if pause < self.settings.interval * 3 {
                    return;
                }
                if self.settings.preempt || self.priority == OWNER {
                    self.assert(Cause::Paused, now, acts);
                } else {
                    self.become_backup(Cause::Paused, now, acts);
                }
            }
        }
    }
}

/// All virtual routers of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routers {
    pub(crate) all: Vec<Router>,
}

/// What is to be done, and for which router.
pub(crate) type Acts = Vec<(usize, Act)>;

impl Routers {
    /// When the next timer runs out.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.all.iter().filter_map(Router::due).min()
    }

    fn step(&mut self, at: usize, event: Event, now: Tick, acts: &mut Acts) {
        let Some(router) = self.all.get_mut(at) else { return };
        let before = router.state;
        let mut own = Vec::new();
        router.step(event, now, &mut own);
        let after = router.state;
        acts.extend(own.into_iter().map(|act| (at, act)));
        if before != after && !matches!(event, Event::Follow(_) | Event::Stop(..) | Event::Start) {
            for other in self.group(at) {
                self.step(other, Event::Follow(after), now, acts);
            }
        }
    }

    /// The others of its group.
    fn group(&self, at: usize) -> Vec<usize> {
        let Some(sync) = self.all.get(at).and_then(|router| router.settings.sync.as_ref()) else { return Vec::new() };
        let same = |other: &usize| *other != at && self.all[*other].settings.sync.as_ref() == Some(sync);
        (0..self.all.len()).filter(same).collect()
    }

    /// Lets in who may take part, and out who may not.
    fn fit(&mut self, now: Tick, acts: &mut Acts) {
        for at in 0..self.all.len() {
            let own = self.all[at].is_able();
            let able = own && self.group(at).into_iter().all(|other| self.all[other].is_able());
            let router = &self.all[at];
            match (router.state, able) {
                (State::Init, true) => self.step(at, Event::Start, now, acts),
                (State::Backup | State::Master, false) => {
                    let can_send = router.link_up && router.source.is_some();
                    let cause = match own {
                        true => Cause::Sync,
                        false if can_send => Cause::Unfit,
                        false => Cause::LinkDown,
                    };
                    self.step(at, Event::Stop(cause, can_send), now, acts);
                }
                _ => {}
            }
        }
    }

    /// The state of a router's link, and the address that it speaks from.
    pub(crate) fn link(&mut self, at: usize, up: bool, source: Option<IpAddr>, now: Tick) -> Acts {
        let mut acts = Vec::new();
        if let Some(router) = self.all.get_mut(at) {
            router.link_up = up;
            router.source = source;
        }
        self.fit(now, &mut acts);
        acts
    }

    /// The effective priority.
    pub(crate) fn priority(&mut self, at: usize, priority: u8, now: Tick) -> Acts {
        let mut acts = Vec::new();
        match self.all.get_mut(at) {
            Some(router) if router.priority == priority => {}
            // Left as it was in the last advert: the resignation is told with the state.
            Some(router) if priority == 0 => router.priority = 0,
            Some(_) => self.step(at, Event::Priority(priority), now, &mut acts),
            None => {}
        }
        self.fit(now, &mut acts);
        acts
    }

    /// An advert for a router, from another.
    pub(crate) fn advert(&mut self, at: usize, heard: Heard, now: Tick) -> Acts {
        let mut acts = Vec::new();
        self.step(at, Event::Advert(heard), now, &mut acts);
        acts
    }

    /// Runs out the timers that are due.
    pub(crate) fn timers(&mut self, now: Tick) -> Acts {
        let mut acts = Vec::new();
        for at in 0..self.all.len() {
            if self.all[at].due().is_none_or(|due| due > now) {
                continue;
            }
            // Together or not at all: a master that is heard for one of a group keeps the others waiting.
            let led = self.group(at).into_iter().filter(|other| self.all[*other].is_led(now));
            let wait = led.filter_map(|other| self.all[other].due()).max();
            if let Some(wait) = wait.filter(|_| self.all[at].state == State::Backup) {
                self.all[at].run_out_at(wait);
                continue;
            }
            self.step(at, Event::Timer, now, &mut acts);
        }
        acts
    }

    /// This process did not run for `pause`; what came meanwhile was told before.
    pub(crate) fn paused(&mut self, pause: Duration, now: Tick) -> Acts {
        let mut acts = Vec::new();
        for at in 0..self.all.len() {
            self.step(at, Event::Paused(pause), now, &mut acts);
        }
        acts
    }

    /// Leaves: masters resign, unless another process goes on with their work at once.
    pub(crate) fn shutdown(&mut self, resign: bool, now: Tick) -> Acts {
        let mut acts = Vec::new();
        for at in 0..self.all.len() {
            let can_send = resign && self.all[at].link_up;
            self.step(at, Event::Stop(Cause::Shutdown, can_send), now, &mut acts);
        }
        acts
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick(Duration::from_millis(ms))
    }

    fn settings() -> Settings {
        Settings { version: Version::V3, interval: SECOND, preempt: true, preempt_delay: Duration::ZERO, sync: None }
    }

    fn source(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn heard(last: u8, priority: u8) -> Heard {
        Heard { source: source(last), priority, interval: SECOND }
    }

    /// One router at 192.0.2.9 that runs since 0.
    fn one_router(settings: Settings, priority: u8) -> Routers {
        let mut routers = Routers { all: vec![Router::new(settings, priority)] };
        let _ = routers.link(0, true, Some(source(9)), at(0));
        routers
    }

    fn master(settings: Settings, priority: u8) -> Routers {
        let mut routers = one_router(settings, priority);
        let _ = routers.timers(at(4000));
        assert_eq!(routers.all[0].state, State::Master);
        routers
    }

    /// Figures of RFC 9568 §6.1, and keepalived's of the research notes: 150 and 1 s are 3.414 s.
    #[test]
    fn the_down_interval_is_three_intervals_and_the_skew() {
        let router = one_router(settings(), 150);
        assert_eq!(router.all[0].due().unwrap().0.as_millis(), 3414);
        let v2 = one_router(Settings { version: Version::V2, interval: SECOND * 5, ..settings() }, 150);
        assert_eq!(v2.all[0].due().unwrap().0.as_millis(), 15_414);
        let v3 = one_router(Settings { interval: SECOND * 5, ..settings() }, 150);
        assert_eq!(v3.all[0].due().unwrap().0.as_millis(), 17_070);
    }

    type Step = fn(&mut Routers) -> Acts;

    /// RFC 9568 §6.4.1 to §6.4.3, row by row: state, what happens, what is done, where it ends.
    #[test]
    fn the_table_of_the_rfc() {
        use Act::{Again, Became, Send};
        let backup = || one_router(settings(), 100);
        let stays = || one_router(Settings { preempt: false, ..settings() }, 100);
        let active = || master(settings(), 100);
        let rows: Vec<(&str, Routers, Step, Vec<Act>, State)> = vec![
            (
                "the timer makes a backup master",
                backup(),
                |r| r.timers(at(3610)),
                vec![Send(100), Became(State::Backup, Cause::Silence)],
                State::Master,
            ),
            ("not a moment before", backup(), |r| r.timers(at(3608)), vec![], State::Backup),
            (
                "a higher advert keeps a backup",
                backup(),
                |r| r.advert(0, heard(1, 150), at(500)),
                vec![Again(Cause::Master)],
                State::Backup,
            ),
            (
                "an equal one too, whatever its address",
                backup(),
                |r| r.advert(0, heard(1, 100), at(500)),
                vec![Again(Cause::Master)],
                State::Backup,
            ),
            (
                "a lower one does not reset the timer",
                backup(),
                |r| {
                    let _ = r.advert(0, heard(1, 50), at(3000));
                    r.timers(at(3610))
                },
                vec![Send(100), Became(State::Backup, Cause::Silence)],
                State::Master,
            ),
            (
                "without preemption it does",
                stays(),
                |r| {
                    let _ = r.advert(0, heard(1, 50), at(3000));
                    r.timers(at(3610))
                },
                vec![],
                State::Backup,
            ),
            (
                "priority 0 leaves the skew time",
                backup(),
                |r| {
                    let _ = r.advert(0, heard(1, 150), at(400));
                    let _ = r.advert(0, heard(1, 0), at(500));
                    r.timers(at(1110))
                },
                vec![Send(100), Became(State::Backup, Cause::Resigned)],
                State::Master,
            ),
            (
                "and not less",
                backup(),
                |r| {
                    let _ = r.advert(0, heard(1, 0), at(500));
                    r.timers(at(1108))
                },
                vec![],
                State::Backup,
            ),
            (
                "another's resignation is none of the master's",
                backup(),
                |r| {
                    let _ = r.advert(0, heard(1, 150), at(400));
                    let _ = r.advert(0, heard(2, 0), at(500));
                    r.timers(at(1110))
                },
                vec![],
                State::Backup,
            ),
            (
                "a backup leaves without a word",
                backup(),
                |r| r.shutdown(true, at(500)),
                vec![Became(State::Backup, Cause::Shutdown)],
                State::Init,
            ),
            ("the advert timer sends", active(), |r| r.timers(at(5000)), vec![Send(100)], State::Master),
            (
                "a lower advert is answered at once",
                active(),
                |r| r.advert(0, heard(200, 50), at(4500)),
                vec![Send(100), Again(Cause::Contested)],
                State::Master,
            ),
            (
                "a resignation too",
                active(),
                |r| r.advert(0, heard(200, 0), at(4500)),
                vec![Send(100), Again(Cause::Contested)],
                State::Master,
            ),
            (
                "a higher one wins, and hears of us",
                active(),
                |r| r.advert(0, heard(1, 150), at(4500)),
                vec![Send(100), Became(State::Master, Cause::Higher)],
                State::Backup,
            ),
            (
                "equal priority: the higher address wins",
                active(),
                |r| r.advert(0, heard(10, 100), at(4500)),
                vec![Send(100), Became(State::Master, Cause::Higher)],
                State::Backup,
            ),
            (
                "and the lower one loses, as a number",
                active(),
                |r| r.advert(0, heard(8, 100), at(4500)),
                vec![Send(100), Again(Cause::Contested)],
                State::Master,
            ),
            (
                "a master that leaves resigns",
                active(),
                |r| r.shutdown(true, at(4500)),
                vec![Send(0), Became(State::Master, Cause::Shutdown)],
                State::Init,
            ),
            (
                "unless another goes on",
                active(),
                |r| r.shutdown(false, at(4500)),
                vec![Became(State::Master, Cause::Shutdown)],
                State::Init,
            ),
            (
                "a new priority is told at once",
                active(),
                |r| r.priority(0, 60, at(4500)),
                vec![Send(60), Again(Cause::Priority)],
                State::Master,
            ),
            (
                "priority 0 resigns at once",
                active(),
                |r| r.priority(0, 0, at(4500)),
                vec![Send(0), Became(State::Master, Cause::Unfit)],
                State::Init,
            ),
            (
                "a dead link cannot be told",
                active(),
                |r| r.link(0, false, Some(source(9)), at(4500)),
                vec![Became(State::Master, Cause::LinkDown)],
                State::Init,
            ),
        ];
        for (what, mut routers, step, acts, state) in rows {
            let got: Vec<Act> = step(&mut routers).into_iter().map(|(_, act)| act).collect();
            assert_eq!((got, routers.all[0].state), (acts, state), "{what}");
        }
    }

    #[test]
    fn an_owner_is_master_from_the_start() {
        let mut routers = Routers { all: vec![Router::new(settings(), OWNER)] };
        let acts = routers.link(0, true, Some(source(9)), at(0));
        assert_eq!(acts, [(0, Act::Send(255)), (0, Act::Became(State::Init, Cause::Start))]);
    }

    #[test]
    fn who_goes_on_for_another_process_is_master_at_once_and_once() {
        let mut router = Router::new(settings(), 100);
        router.resumes = true;
        let mut routers = Routers { all: vec![router] };
        let acts = routers.link(0, true, Some(source(9)), at(0));
        assert_eq!(acts, [(0, Act::Send(100)), (0, Act::Became(State::Init, Cause::Start))]);
        let _ = routers.link(0, false, None, at(100));
        let acts = routers.link(0, true, Some(source(9)), at(200));
        assert_eq!(acts, [(0, Act::Became(State::Init, Cause::Start))], "a link that was down is a new start");
    }

    #[test]
    fn the_master_s_own_interval_counts_in_version_3() {
        let mut routers = one_router(settings(), 156);
        let _ = routers.advert(0, Heard { interval: Duration::from_millis(100), ..heard(1, 200) }, at(1000));
        assert_eq!(routers.due().unwrap(), at(1000).after(Duration::from_micros(339_062) + Duration::from_nanos(500)));
    }

    #[test]
    fn preemption_waits_for_its_delay_and_no_death_does() {
        let delayed = Settings { preempt_delay: SECOND * 10, ..settings() };
        let mut routers = one_router(delayed, 200);
        for second in 1..=10 {
            let _ = routers.advert(0, heard(1, 100), at(second * 1000));
            assert!(routers.timers(at(second * 1000)).is_empty());
        }
        // From 11 s on the lower adverts no longer count; the last that did was at 10 s.
        let _ = routers.advert(0, heard(1, 100), at(11_000));
        assert!(routers.timers(at(13_200)).is_empty());
        assert!(!routers.timers(at(13_219)).is_empty());
        let delayed = Settings { preempt_delay: SECOND * 10, ..settings() };
        let mut dead = one_router(delayed, 200);
        let _ = dead.advert(0, heard(1, 100), at(1000));
        let _ = dead.advert(0, heard(1, 0), at(2000));
        assert!(!dead.timers(at(2219)).is_empty(), "a resignation is no preemption");
    }

    #[test]
    fn a_backup_that_slept_waits_one_interval_once() {
        let mut routers = one_router(settings(), 100);
        let _ = routers.advert(0, heard(1, 150), at(1000));
        assert!(routers.paused(SECOND * 60, at(61_000)).is_empty());
        assert!(routers.timers(at(61_999)).is_empty());
        assert!(routers.paused(SECOND, at(61_500)).is_empty());
        assert!(!routers.timers(at(62_000)).is_empty(), "a second pause is no second reprieve");
    }

    #[test]
    fn a_master_that_slept_asserts_itself_or_yields() {
        let mut preempting = master(settings(), 100);
        assert!(preempting.paused(SECOND, at(5000)).is_empty());
        let acts = preempting.paused(SECOND * 3, at(8000));
        assert_eq!(acts, [(0, Act::Send(100)), (0, Act::Again(Cause::Paused))]);
        let mut staying = master(Settings { preempt: false, ..settings() }, 100);
        let acts = staying.paused(SECOND * 3, at(8000));
        assert_eq!(acts, [(0, Act::Became(State::Master, Cause::Paused))]);
    }

    #[test]
    fn a_group_is_master_together_or_not_at_all() {
        let member = || Router::new(Settings { sync: Some("g".to_owned()), ..settings() }, 100);
        let mut routers = Routers { all: vec![member(), member()] };
        let _ = routers.link(0, true, Some(source(9)), at(0));
        assert_eq!(routers.all[0].state, State::Init, "half a group takes no part");
        let _ = routers.link(1, true, Some(source(9)), at(0));
        let _ = routers.advert(1, heard(1, 150), at(3000));
        assert!(routers.timers(at(3610)).is_empty(), "one of them still has a master");
        assert!(routers.timers(at(6600)).is_empty());
        let acts = routers.timers(at(6610));
        assert_eq!(
            acts,
            [
                (0, Act::Send(100)),
                (0, Act::Became(State::Backup, Cause::Silence)),
                (1, Act::Send(100)),
                (1, Act::Became(State::Backup, Cause::Sync)),
            ]
        );
        let _ = routers.advert(0, heard(1, 150), at(7000));
        assert!(routers.all.iter().all(|router| router.state == State::Backup));
        let _ = routers.timers(at(11_000));
        let acts = routers.link(1, false, None, at(11_500));
        assert_eq!(
            acts,
            [
                (0, Act::Send(0)),
                (0, Act::Became(State::Master, Cause::Sync)),
                (1, Act::Became(State::Master, Cause::LinkDown)),
            ]
        );
    }

    /// A LAN on which every advert arrives after 1 ms, unless it is cut in two.
    struct World {
        routers: Vec<Routers>,
        side: Vec<usize>,
        flying: Vec<(Tick, usize, u8)>,
        changes: usize,
    }

    impl World {
        fn act(&mut self, node: usize, acts: Acts, now: Tick) {
            for (_, act) in acts {
                match act {
                    Act::Send(priority) => {
                        self.flying.push((now.after(Duration::from_millis(1)), node, priority));
                    }
                    Act::Became(..) => self.changes += 1,
                    Act::Again(_) => {}
                }
            }
        }

        fn run(&mut self, from: u64, until: u64) {
            for ms in from..until {
                let now = at(ms);
                let (arrived, flying) = std::mem::take(&mut self.flying).into_iter().partition(|(due, ..)| *due <= now);
                self.flying = flying;
                let arrived: Vec<(Tick, usize, u8)> = arrived;
                for (_, from, priority) in arrived {
                    for to in 0..self.routers.len() {
                        if to != from && self.side[to] == self.side[from] {
                            let advert = heard(u8::try_from(from).unwrap() + 1, priority);
                            let acts = self.routers[to].advert(0, advert, now);
                            self.act(to, acts, now);
                        }
                    }
                }
                for node in 0..self.routers.len() {
                    let acts = self.routers[node].timers(now);
                    self.act(node, acts, now);
                }
            }
        }

        fn masters(&self) -> Vec<usize> {
            (0..self.routers.len()).filter(|node| self.routers[*node].all[0].state == State::Master).collect()
        }
    }

    proptest! {
        /// Whatever the priorities and the cut: one master a side, one after it healed, no change after.
        #[test]
        fn one_master_a_side_and_one_in_all(
            priorities in proptest::collection::vec(1u8..=254, 2..5),
            cut in proptest::collection::vec(0usize..2, 5),
            heal in 8300u64..9300,
            preempt in any::<bool>(),
        ) {
            let routers = (1u8..).zip(&priorities).map(|(last, priority)| {
                let mut one = Routers { all: vec![Router::new(Settings { preempt, ..settings() }, *priority)] };
                let _ = one.link(0, true, Some(source(last)), at(0));
                one
            }).collect();
            let mut world = World { routers, side: vec![0; priorities.len()], flying: vec![], changes: 0 };
            world.run(0, 4200);
            prop_assert_eq!(world.masters().len(), 1);
            world.side = cut[..priorities.len()].to_vec();
            world.run(4200, heal);
            let sides: std::collections::BTreeSet<usize> = world.side.iter().copied().collect();
            prop_assert_eq!(world.masters().len(), sides.len());
            world.side.fill(0);
            world.run(heal, heal + 1100);
            prop_assert_eq!(world.masters().len(), 1, "one interval after the cut healed");
            world.run(heal + 1100, heal + 6000);
            if preempt {
                let best = (0..priorities.len()).max_by_key(|node| (priorities[*node], *node)).unwrap();
                let winner = world.masters()[0];
                prop_assert_eq!(priorities[winner], priorities[best]);
            }
            world.changes = 0;
            world.run(heal + 6000, heal + 20_000);
            prop_assert_eq!(world.changes, 0);
        }
    }
}
