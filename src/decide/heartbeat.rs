//! Who lives: verdicts from beats and silence.
//!
//! A node is down when all its links are silent for `dead_after`. A link that is silent while
//! another is heard is an event of its own. What was never heard is unknown, not down.

use crate::types::status::Status;
use crate::types::time::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

/// When silence means what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// A silence worth a word.
    pub(crate) warn_after: Duration,
    /// A silence that means down.
    pub(crate) dead_after: Duration,
    /// From the start on, how long an expected node may stay unheard before it is told.
    pub(crate) init_dead: Duration,
    /// Nodes that should be there.
    pub(crate) expected: Vec<String>,
    /// No more nodes than this are remembered.
    pub(crate) max_nodes: usize,
}

/// What a beat says about who hears its sender's peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// It has heard our present session.
    Ours,
    /// It has heard another session of ours: an old beat, or one sent before it heard the new one.
    Older,
    /// It does not hear us.
    None,
}

/// One beat whose signature was right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat<'a> {
    pub(crate) node: &'a str,
    /// The sender's number of the link.
    pub(crate) link: u8,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    pub(crate) echo: Echo,
    /// A bit for each of our links that its sender hears.
    pub(crate) hears_links: u64,
    pub(crate) goodbye: bool,
}

/// Why a beat with a right signature is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stale {
    /// From an earlier life of its sender.
    Incarnation,
    /// Not newer than the last one on its link.
    Replay,
    /// There is no room for one more node.
    TooManyNodes,
}

impl Stale {
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Stale::Incarnation => "old-incarnation",
            Stale::Replay => "replay",
            Stale::TooManyNodes => "too-many-nodes",
        }
    }
}

/// What changed about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Up,
    /// Silent for `warn_after`; or expected, and never heard within `init_dead`.
    Late,
    Down,
    /// It begins another life.
    Restart,
    /// It leaves, and says what it still owns.
    Goodbye,
    /// A link is heard again.
    LinkUp(u8),
    /// A link is silent while another is heard.
    LinkDown(u8),
    /// It is heard, and does not hear us.
    OneWay,
    /// It hears us, and no longer on this link of ours.
    Unheard(u8),
    /// It hears this link of ours again.
    HeardAgain(u8),
}

/// An event about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) node: String,
    pub(crate) what: What,
}

/// One link of a peer, as heard here.
#[derive(Clone, Debug)]
pub(crate) struct LinkState {
    pub(crate) up: bool,
    pub(crate) last_heard: Tick,
    last_sequence: u64,
    pub(crate) received: u64,
    /// Sequence numbers that never came.
    pub(crate) lost: u64,
    /// Mean deviation of the gaps from each other, smoothed by 1/16 (RFC 3550 §6.4.1).
    pub(crate) jitter: Duration,
    pub(crate) last_gap: Duration,
}

/// One node, as heard here.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) status: Status,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    pub(crate) links: BTreeMap<u8, LinkState>,
    /// Whether its last beat echoed our present session.
    pub(crate) hears_us: bool,
    /// A bit for each of our links that it hears, by its last beat.
    pub(crate) hears_links: u64,
    /// A bit for each of our links that it heard once and then no more.
    unheard_links: u64,
    /// The last beat, whether or not it counts as life.
    last_frame: Tick,
    /// The last beat that counts as life.
    last_alive: Option<Tick>,
    /// Since when it is heard without hearing us.
    unheard_since: Option<Tick>,
    late: bool,
    /// It was told that it is heard and does not hear us.
    pub(crate) one_way: bool,
    /// Granted once, after a pause of our own.
    grace: Duration,
    said_goodbye: bool,
}

impl Peer {
    fn new() -> Self {
        Peer {
            status: Status::Unknown,
            incarnation: 0,
            sequence: 0,
            links: BTreeMap::new(),
            hears_us: false,
            hears_links: 0,
            unheard_links: 0,
            last_frame: Tick::default(),
            last_alive: None,
            unheard_since: None,
            late: false,
            one_way: false,
            grace: Duration::ZERO,
            said_goodbye: false,
        }
    }

    /// Whether another link has brought later beats. One alone is none: a beat does not come on several links at the same
    /// moment, and a node can die between the two.
    fn is_behind(&self, link: &LinkState) -> bool {
        link.up && link.last_sequence + 1 < self.sequence
    }

    /// The longest gap that its beats usually have.
    fn interval(&self) -> Duration {
        self.links.values().map(|link| link.last_gap).max().unwrap_or_default()
    }
}

/// All that was heard.
#[derive(Clone, Debug)]
pub(crate) struct Hearing {
    settings: Settings,
    started: Tick,
    peers: BTreeMap<String, Peer>,
    /// Whether this node sends too, so that a live peer must echo our session.
    mutual: bool,
}

impl Hearing {
    pub(crate) fn new(settings: Settings, started: Tick) -> Self {
        let peers = settings.expected.iter().map(|name| (name.clone(), Peer::new())).collect();
        Hearing { settings, started, peers, mutual: false }
    }

    /// This node sends beats itself (or stopped to): from now on only an echo of our present
    /// session is life, and no replay survives a restart of either side.
    pub(crate) fn set_mutual(&mut self, mutual: bool) {
        self.mutual = mutual;
    }

    pub(crate) fn peer(&self, node: &str) -> Option<&Peer> {
        self.peers.get(node)
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = (&str, &Peer)> {
        self.peers.iter().map(|(name, peer)| (name.as_str(), peer))
    }

    /// Whether no later beat of a node was heard than this one, on any link.
    pub(crate) fn is_newest(&self, node: &str, incarnation: u64, sequence: u64) -> bool {
        let newer = |peer: &Peer| (peer.incarnation, peer.sequence) > (incarnation, sequence);
        !self.peers.get(node).is_some_and(newer)
    }

    /// A bit for each link of a node that is heard here.
    pub(crate) fn heard_links(&self, node: &str) -> u64 {
        let links = self.peers.get(node).map(|peer| &peer.links).into_iter().flatten();
        links.filter(|(number, link)| link.up && **number < 64).fold(0, |bits, (number, _)| bits | 1 << number)
    }

    /// Whether its beats arrive here, alive or not: whom we hear, our own beats echo.
    pub(crate) fn is_heard(&self, node: &str, now: Tick) -> bool {
        self.peers
            .get(node)
            .is_some_and(|peer| !peer.links.is_empty() && now.since(peer.last_frame) < self.settings.dead_after)
    }

    /// What an earlier run of this receiver had heard: older beats are replays.
    pub(crate) fn remember(&mut self, node: &str, incarnation: u64, sequence: u64) {
        if self.peers.len() < self.settings.max_nodes || self.peers.contains_key(node) {
            let peer = self.peers.entry(node.to_owned()).or_insert_with(Peer::new);
            (peer.incarnation, peer.sequence) = (incarnation, sequence);
        }
    }

    /// Takes one beat in.
    ///
    /// # Errors
    /// Why it does not count; nothing is changed then.
    pub(crate) fn hear(&mut self, beat: &Beat<'_>, now: Tick) -> Result<Vec<Event>, Stale> {
        if !self.peers.contains_key(beat.node) {
            if self.peers.len() >= self.settings.max_nodes {
                return Err(Stale::TooManyNodes);
            }
            self.peers.insert(beat.node.to_owned(), Peer::new());
        }
        let Some(peer) = self.peers.get_mut(beat.node) else { return Err(Stale::TooManyNodes) };
        let mut events = Vec::new();
        let mut event = |what| events.push(Event { node: beat.node.to_owned(), what });
        if beat.incarnation < peer.incarnation {
            return Err(Stale::Incarnation);
        }
        let restart = beat.incarnation > peer.incarnation && peer.last_alive.is_some();
        if beat.incarnation > peer.incarnation {
            peer.links.clear();
            peer.sequence = 0;
        }
        let last = match peer.links.get(&beat.link) {
            Some(link) => Some(link.last_sequence),
            // Remembered from an earlier run, which kept one number for all links.
            None if peer.links.is_empty() && peer.sequence > 0 => Some(peer.sequence),
            None => None,
        };
        if last.is_some_and(|last| beat.sequence <= last) {
            return Err(Stale::Replay);
        }
        let is_newest = beat.sequence >= peer.sequence;
        peer.incarnation = beat.incarnation;
        peer.sequence = peer.sequence.max(beat.sequence);
        let came_back = peer.take_link(beat, now);
        peer.last_frame = now;
        if !is_newest {
            // Late on a slower link: that link works, and what the beat says is over.
            if came_back && peer.status == Status::Up {
                event(What::LinkUp(beat.link));
            }
            return Ok(events);
        }
        peer.hears_us = beat.echo == Echo::Ours;
        let heard = if peer.hears_us { beat.hears_links } else { 0 };
        let (lost, regained) =
            if peer.hears_us { (peer.hears_links & !heard, peer.unheard_links & heard) } else { (0, 0) };
        peer.unheard_links = (peer.unheard_links | lost) & !regained;
        peer.hears_links = heard;
        let alive = !self.mutual || beat.echo == Echo::Ours;
        if alive {
            peer.unheard_since = None;
            peer.one_way = false;
        } else {
            peer.unheard_since.get_or_insert(now);
        }
        let was_up = peer.status == Status::Up;
        if alive {
            peer.last_alive = Some(now);
            peer.late = false;
            peer.grace = Duration::ZERO;
            if restart {
                event(What::Restart);
            }
            if peer.status != Status::Up && !beat.goodbye {
                peer.status = Status::Up;
                event(What::Up);
            }
        }
        if came_back && was_up && alive {
            event(What::LinkUp(beat.link));
        }
        if was_up && alive {
            for number in (0..64).filter(|number| (lost | regained) >> number & 1 == 1) {
                let lost = lost >> number & 1 == 1;
                event(if lost { What::Unheard(number) } else { What::HeardAgain(number) });
            }
        }
        // Said on each link, told once.
        if beat.goodbye && alive && !peer.said_goodbye {
            peer.status = Status::Down;
            event(What::Goodbye);
        }
        peer.said_goodbye = beat.goodbye;
        Ok(events)
    }

    /// What the silence until `now` means.
    ///
    /// `paused` is how long this receiver itself did not run. The caller has taken in what was
    /// queued meanwhile; who is still silent after that gets one interval more, once.
    pub(crate) fn judge(&mut self, now: Tick, paused: Duration) -> Vec<Event> {
        let Settings { warn_after, dead_after, init_dead, .. } = self.settings;
        let mut events = Vec::new();
        for (name, peer) in &mut self.peers {
            let mut event = |what| events.push(Event { node: name.clone(), what });
            let Some(last) = peer.last_alive else {
                if !peer.late && now.since(self.started) >= init_dead && self.settings.expected.contains(name) {
                    peer.late = true;
                    event(What::Late);
                }
                if let Some(since) = peer.unheard_since
                    && !peer.one_way
                    && now.since(since) >= warn_after
                {
                    peer.one_way = true;
                    event(What::OneWay);
                }
                continue;
            };
            if peer.status != Status::Up {
                continue;
            }
            if !paused.is_zero() && peer.grace.is_zero() {
                peer.grace = peer.interval().min(dead_after);
            }
            let silence = now.since(last);
            if let Some(since) = peer.unheard_since
                && !peer.one_way
                && now.since(since) >= warn_after
            {
                peer.one_way = true;
                event(What::OneWay);
            }
            if silence >= dead_after + peer.grace {
                peer.status = Status::Down;
                peer.links.values_mut().for_each(|link| link.up = false);
                event(What::Down);
                continue;
            }
            if silence >= warn_after && !peer.late {
                peer.late = true;
                event(What::Late);
            }
            let quiet: Vec<u8> = peer
                .links
                .iter()
                .filter(|(_, link)| peer.is_behind(link) && now.since(link.last_heard) >= dead_after + peer.grace)
                .map(|(number, _)| *number)
                .collect();
            for number in quiet {
                if let Some(link) = peer.links.get_mut(&number) {
                    link.up = false;
                    event(What::LinkDown(number));
                }
            }
        }
        events
    }

    /// The next point at which silence will mean something new; `None` while nothing can.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        let Settings { warn_after, dead_after, init_dead, .. } = self.settings;
        let mut next: Option<Tick> = None;
        let mut at = |tick: Tick| next = Some(next.map_or(tick, |next: Tick| next.min(tick)));
        for (name, peer) in &self.peers {
            if let Some(since) = peer.unheard_since.filter(|_| !peer.one_way) {
                at(since.after(warn_after));
            }
            match peer.last_alive {
                None if !peer.late && self.settings.expected.contains(name) => at(self.started.after(init_dead)),
                Some(last) if peer.status == Status::Up => {
                    if !peer.late {
                        at(last.after(warn_after));
                    }
                    at(last.after(dead_after + peer.grace));
                    for link in peer.links.values().filter(|link| peer.is_behind(link)) {
                        at(link.last_heard.after(dead_after + peer.grace));
                    }
                }
                _ => {}
            }
        }
        next
    }
}

impl Peer {
    /// Takes a beat into its link's figures; says whether the link had been down.
    fn take_link(&mut self, beat: &Beat<'_>, now: Tick) -> bool {
        let Some(link) = self.links.get_mut(&beat.link) else {
            let state = LinkState {
                up: true,
                last_heard: now,
                last_sequence: beat.sequence,
                received: 1,
                lost: 0,
                jitter: Duration::ZERO,
                last_gap: Duration::ZERO,
            };
            self.links.insert(beat.link, state);
            return false;
        };
        let gap = now.since(link.last_heard);
        if link.received > 1 {
            let deviation = gap.abs_diff(link.last_gap);
            link.jitter = link.jitter * 15 / 16 + deviation / 16;
        }
        link.last_gap = gap;
        link.last_heard = now;
        link.received += 1;
        link.lost += beat.sequence - link.last_sequence - 1;
        link.last_sequence = beat.sequence;
        !std::mem::replace(&mut link.up, true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Tick {
        Tick(Duration::from_millis(ms))
    }

    fn settings() -> Settings {
        Settings {
            warn_after: 150 * MS,
            dead_after: 300 * MS,
            init_dead: 600 * MS,
            expected: vec!["n2".to_owned()],
            max_nodes: 4,
        }
    }

    fn hearing() -> Hearing {
        Hearing::new(settings(), at(0))
    }

    fn beat(link: u8, incarnation: u64, sequence: u64) -> Beat<'static> {
        Beat { node: "n2", link, incarnation, sequence, echo: Echo::None, hears_links: 0, goodbye: false }
    }

    fn what(events: Vec<Event>) -> Vec<What> {
        events.into_iter().map(|event| event.what).collect()
    }

    /// The same beats come on a slower link later: they say nothing any more.
    #[test]
    fn a_beat_that_is_late_on_another_link_says_only_that_the_link_works() {
        let mut hearing = hearing();
        hearing.hear(&beat(0, 1, 1), at(0)).unwrap();
        hearing.hear(&beat(0, 1, 2), at(100)).unwrap();
        let goodbye = Beat { goodbye: true, ..beat(1, 1, 1) };
        assert!(hearing.hear(&goodbye, at(150)).unwrap().is_empty());
        let peer = hearing.peer("n2").unwrap();
        assert_eq!((peer.status, peer.last_alive, peer.links.len()), (Status::Up, Some(at(100)), 2));
        assert!(!hearing.is_newest("n2", 1, 1) && hearing.is_newest("n2", 1, 2) && hearing.is_newest("n2", 2, 1));
        assert_eq!(hearing.hear(&goodbye, at(151)).unwrap_err(), Stale::Replay);
    }

    #[test]
    fn silence_is_late_then_down_at_its_time_and_not_before() {
        let mut hearing = hearing();
        assert_eq!(what(hearing.hear(&beat(0, 1, 1), at(100)).unwrap()), [What::Up]);
        assert_eq!(hearing.next_deadline(), Some(at(250)));
        assert!(hearing.judge(at(249), Duration::ZERO).is_empty());
        assert_eq!(what(hearing.judge(at(250), Duration::ZERO)), [What::Late]);
        assert_eq!(hearing.next_deadline(), Some(at(400)));
        assert!(hearing.judge(at(399), Duration::ZERO).is_empty());
        assert_eq!(what(hearing.judge(at(400), Duration::ZERO)), [What::Down]);
        assert_eq!(hearing.next_deadline(), None);
        assert_eq!(what(hearing.hear(&beat(0, 1, 2), at(500)).unwrap()), [What::Up]);
    }

    #[test]
    fn what_was_never_heard_is_unknown_and_never_down() {
        let mut hearing = hearing();
        assert!(hearing.judge(at(599), Duration::ZERO).is_empty());
        assert_eq!(what(hearing.judge(at(600), Duration::ZERO)), [What::Late]);
        assert!(hearing.judge(at(60_000), Duration::ZERO).is_empty());
        assert_eq!(hearing.peer("n2").unwrap().status, Status::Unknown);
    }

    /// known-faults 13: one link of two goes away.
    #[test]
    fn a_lost_link_is_named_and_the_node_stays_up() {
        let mut hearing = hearing();
        hearing.hear(&beat(0, 1, 1), at(0)).unwrap();
        hearing.hear(&beat(1, 1, 1), at(0)).unwrap();
        let mut events = Vec::new();
        for n in 1..=4 {
            events.extend(hearing.hear(&beat(0, 1, 1 + n), at(n * 100)).unwrap());
            events.extend(hearing.judge(at(n * 100), Duration::ZERO));
        }
        assert_eq!(what(events), [What::LinkDown(1)]);
        assert_eq!(what(hearing.hear(&beat(1, 1, 6), at(450)).unwrap()), [What::LinkUp(1)]);
        assert_eq!(hearing.peer("n2").unwrap().links[&1].lost, 4);
    }

    #[test]
    fn a_node_that_dies_between_two_links_has_no_link_events() {
        let mut hearing = hearing();
        hearing.hear(&beat(0, 1, 1), at(0)).unwrap();
        hearing.hear(&beat(1, 1, 1), at(30)).unwrap();
        hearing.hear(&beat(0, 1, 2), at(100)).unwrap();
        assert!(hearing.judge(at(330), Duration::ZERO).iter().all(|event| event.what == What::Late));
        assert_eq!(hearing.next_deadline(), Some(at(400)));
        assert_eq!(what(hearing.judge(at(400), Duration::ZERO)), [What::Down]);
    }

    #[test]
    fn a_replay_and_an_older_life_are_refused() {
        let mut hearing = hearing();
        hearing.hear(&beat(0, 5, 10), at(0)).unwrap();
        assert_eq!(hearing.hear(&beat(0, 5, 10), at(1)).unwrap_err(), Stale::Replay);
        assert_eq!(hearing.hear(&beat(0, 5, 9), at(1)).unwrap_err(), Stale::Replay);
        assert_eq!(hearing.hear(&beat(0, 4, 99), at(1)).unwrap_err(), Stale::Incarnation);
        assert_eq!(what(hearing.hear(&beat(0, 6, 1), at(2)).unwrap()), [What::Restart]);
        assert_eq!(hearing.hear(&beat(0, 5, 11), at(3)).unwrap_err(), Stale::Incarnation);
        // The same beat on the other link is the normal case.
        assert!(hearing.hear(&beat(1, 6, 1), at(3)).is_ok());
    }

    #[test]
    fn a_restarted_receiver_remembers() {
        let mut hearing = hearing();
        hearing.remember("n2", 5, 10);
        assert_eq!(hearing.hear(&beat(0, 5, 10), at(0)).unwrap_err(), Stale::Replay);
        assert_eq!(what(hearing.hear(&beat(0, 5, 11), at(0)).unwrap()), [What::Up]);
    }

    #[test]
    fn where_both_send_only_an_echo_of_our_session_is_life() {
        let mut hearing = hearing();
        hearing.set_mutual(true);
        let with = |echo, sequence| Beat { echo, ..beat(0, 1, sequence) };
        assert!(hearing.hear(&with(Echo::None, 1), at(0)).unwrap().is_empty());
        assert!(hearing.hear(&with(Echo::Older, 2), at(100)).unwrap().is_empty());
        assert_eq!(what(hearing.hear(&with(Echo::Ours, 3), at(120)).unwrap()), [What::Up]);
        // It stops hearing us: told first, down when that has lasted.
        for n in 2..=4 {
            assert!(hearing.hear(&with(Echo::None, 2 + n), at(n * 100)).unwrap().is_empty());
        }
        assert_eq!(what(hearing.judge(at(400), Duration::ZERO)), [What::OneWay, What::Late]);
        assert_eq!(what(hearing.judge(at(420), Duration::ZERO)), [What::Down]);
    }

    #[test]
    fn a_link_of_ours_that_a_peer_no_longer_hears_is_told() {
        let mut hearing = hearing();
        hearing.set_mutual(true);
        let with = |hears_links, sequence| Beat { echo: Echo::Ours, hears_links, ..beat(0, 1, sequence) };
        assert_eq!(what(hearing.hear(&with(0b01, 1), at(0)).unwrap()), [What::Up]);
        assert!(hearing.hear(&with(0b11, 2), at(10)).unwrap().is_empty());
        assert_eq!(what(hearing.hear(&with(0b10, 3), at(20)).unwrap()), [What::Unheard(0)]);
        assert!(hearing.hear(&with(0b10, 4), at(30)).unwrap().is_empty());
        assert_eq!(what(hearing.hear(&with(0b11, 5), at(40)).unwrap()), [What::HeardAgain(0)]);
    }

    #[test]
    fn a_goodbye_is_down_at_once_and_told_once() {
        let mut hearing = hearing();
        hearing.hear(&beat(0, 1, 1), at(0)).unwrap();
        let bye = |link| Beat { goodbye: true, ..beat(link, 1, 2) };
        assert_eq!(what(hearing.hear(&bye(0), at(10)).unwrap()), [What::Goodbye]);
        assert!(hearing.hear(&bye(1), at(10)).unwrap().is_empty());
        assert_eq!(hearing.peer("n2").unwrap().status, Status::Down);
        assert!(hearing.judge(at(10_000), Duration::ZERO).is_empty());
    }

    #[test]
    fn a_pause_of_our_own_grants_one_interval_once() {
        let mut hearing = hearing();
        for n in 0..4 {
            hearing.hear(&beat(0, 1, 1 + n), at(n * 100)).unwrap();
        }
        // Asleep from 300 to 5000, and nothing was queued.
        assert_eq!(what(hearing.judge(at(5000), 4700 * MS)), [What::Down], "a silence longer than the grace is death");
        for n in 0..4 {
            hearing.hear(&beat(0, 1, 5 + n), at(6000 + n * 100)).unwrap();
        }
        assert_eq!(what(hearing.judge(at(6650), 250 * MS)), [What::Late]);
        assert!(hearing.hear(&beat(0, 1, 9), at(6660)).unwrap().is_empty());
    }

    #[test]
    fn the_number_of_nodes_is_bounded() {
        let mut hearing = hearing();
        let names = ["a", "b", "c", "d", "e"];
        let full = names.iter().filter(|node| hearing.hear(&Beat { node, ..beat(0, 1, 1) }, at(0)).is_err()).count();
        assert_eq!((full, hearing.peers().count()), (2, 4));
    }

    proptest! {
        /// Beats at an interval below half of dead_after, with any single gap below dead_after,
        /// never make a node down; and silence always does, within dead_after of the last beat.
        #[test]
        fn no_beating_node_dies_and_every_silent_one_does(gaps in proptest::collection::vec(1u64..299, 1..200)) {
            let mut hearing = hearing();
            let mut now = 0;
            for (n, gap) in gaps.iter().enumerate() {
                hearing.hear(&beat(0, 1, 1 + n as u64), at(now)).unwrap();
                now += gap;
                prop_assert!(!what(hearing.judge(at(now), Duration::ZERO)).contains(&What::Down));
            }
            hearing.hear(&beat(0, 1, 1000), at(now)).unwrap();
            let mut down = None;
            while let Some(deadline) = hearing.next_deadline() {
                if what(hearing.judge(deadline, Duration::ZERO)).contains(&What::Down) {
                    down = Some(deadline);
                }
            }
            prop_assert_eq!(down, Some(at(now + 300)));
        }
    }
}
