//! `heartbeat recv`: who lives?

use super::{Auth, PORT, Shared, nonce_to_text, origin, receiving_sign, sending_sign, session_file};
use crate::cli::args::{self, flags};
use crate::cli::out::Form;
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::heartbeat::{Beat, Echo, Event, Hearing, Settings, Stale, What};
use crate::record::Head;
use crate::record::heartbeat::{self, Heard, Life, Link, RECV_COLUMNS, RECV_SCHEMA, Recv, Remembered, Session};
use crate::record::state;
use crate::sys;
use crate::sys::clock;
use crate::sys::raw::Datagrams;
use crate::sys::socket::Datagram;
use crate::sys::state::Presence;
use crate::types::net::Endpoint;
use crate::types::status::Status;
use crate::types::time::{Span, Tick, millis};
use crate::wire::heartbeat::{ClusterHash, Echoes, Frame, MAX_FRAME, PeerHash, Refused};
use crate::wire::keys::Keys;
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "recv",
    about: "Hear beats, and say when a node comes, falls silent or leaves",
    examples: "heartbeat recv --bind 192.0.2.1 --key /etc/failover/key --follow\n\
               heartbeat recv --bind 192.0.2.1%eth0 --bind 198.51.100.1%eth1 --key k --follow --table\n\
               heartbeat recv --bind 0.0.0.0 --key k --expect n2,n3 --for 3s && echo all up\n\
               heartbeat recv --check --bind 192.0.2.1%eth0 --bind 198.51.100.1%eth1 --key k --expect n2\n\
               heartbeat recv --check --bind 239.0.0.43%eth0 --key k --expect n2,n3   whose firewall is it?",
    args: flags::<Flags>,
    schemas: &[RECV_SCHEMA],
    columns: RECV_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Where to listen; a multicast group is joined; several make several links
    #[arg(long, value_name = "ADDR[:PORT][%DEV]", required = true)]
    bind: Vec<Endpoint>,

    #[command(flatten)]
    shared: Shared,

    /// Nodes that should be there; without --follow the run ends when all are up
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', required_unless_present = "follow")]
    expect: Vec<String>,

    /// Does each link carry beats both ways? Names the link that does not, whose rules are at fault, and what
    /// opens the port; ends when that is known of all; needs heartbeat send of this node beside it, and both on
    /// the peers
    #[arg(long, conflicts_with = "follow")]
    check: bool,

    /// A silence worth a word [default: half of --dead-after]
    #[arg(long, value_name = "D")]
    warn_after: Option<Span>,

    /// A silence on all links that means down
    #[arg(long, value_name = "D", default_value = "3s")]
    dead_after: Span,

    /// How long an expected node may stay unheard at the start [default: twice --dead-after]
    #[arg(long, value_name = "D")]
    init_dead: Option<Span>,

    /// Go on, and report what changes
    #[arg(long)]
    follow: bool,

    /// End after D with the status of what was heard [default without --follow: --dead-after]
    #[arg(long = "for", value_name = "D")]
    duration: Option<Span>,

    /// Report every beat
    #[arg(long)]
    beats: bool,

    /// Say each change on standard error too, for a log
    #[arg(long)]
    tell: bool,

    /// Repeat what is known of each node every D
    #[arg(long, value_name = "D", default_value = "1s")]
    renew: Span,

    /// Remember no more nodes than N
    #[arg(long, value_name = "N", default_value = "256")]
    max_nodes: usize,
}

/// Refused datagrams are reported together, at most this often.
const REFUSED_EVERY: Duration = Duration::from_secs(1);
/// How often at most it is looked whom we no longer hear: not with each of 100,000 beats a second.
const FORGET_EVERY: Duration = Duration::from_millis(10);
/// A wake that is later than this is a pause of our own.
const PAUSE: Duration = Duration::from_millis(5);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    for node in &flags.expect {
        crate::types::node::check_name(node).map_err(Failure::usage)?;
    }
    let dead_after = flags.dead_after.0;
    let warn_after = flags.warn_after.map_or(dead_after / 2, |span| span.0);
    if dead_after.is_zero() || warn_after.is_zero() || warn_after > dead_after {
        return Err(Failure::usage(
            "--warn-after and --dead-after must be above 0s, and the first not above the second",
        ));
    }
    if flags.renew.0.is_zero() {
        return Err(Failure::usage("--renew must be above 0s"));
    }
    let keys = flags.shared.keys()?;
    let sockets =
        flags.bind.iter().map(|endpoint| Datagram::receiver(endpoint, PORT)).collect::<Result<Vec<_>, _>>()?;
    let settings = Settings {
        warn_after,
        dead_after,
        init_dead: flags.init_dead.map_or(dead_after * 2, |span| span.0),
        expected: flags.expect.clone(),
        max_nodes: flags.max_nodes.max(flags.expect.len()).max(1),
    };
    let mut receiver = Receiver::new(&flags, keys, sockets, settings, process)?;
    receiver.begin()?;
    let exit = receiver.follow(process);
    // What an early end left unwritten.
    if receiver.verdict_changed {
        receiver.keep();
    }
    receiver.pump.stream.finish();
    exit
}

/// How long a datagram may take through this host.
const THROUGH: Duration = Duration::from_millis(500);

/// What became of a beat that was sent to a group and never leaves this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnBeat {
    /// It is no group.
    None,
    Sent(Tick),
    /// A rule on its way out dropped it.
    Dropped,
    Back,
}

/// Where a link of a node was last heard.
#[derive(Clone, Copy)]
struct Place {
    socket: usize,
    remote: Option<SocketAddr>,
}

struct Receiver<'a> {
    flags: &'a Flags,
    node: String,
    keys: Keys,
    cluster: ClusterHash,
    us: PeerHash,
    sockets: Vec<Datagram>,
    /// What `--check` has sent on each, and its nonce.
    own: Vec<OwnBeat>,
    own_nonce: u64,
    /// When each socket was empty last.
    drained: Vec<Tick>,
    hearing: Hearing,
    pump: Pump,
    /// Our session; a fresh one for each run, so that no older beat echoes it.
    nonce: u64,
    session: Session,
    session_changed: bool,
    /// Held while we own the session: another receiver of this node only looks on.
    sign: Option<Presence>,
    known: HashMap<String, Known>,
    refused: BTreeMap<&'static str, u64>,
    refused_from: Option<SocketAddr>,
    refused_told: Option<Tick>,
    configs_told: HashMap<String, String>,
    lag: Duration,
    form: Form,
    /// Why datagrams were refused in all, for the last word of a one-shot.
    refused_in_all: BTreeMap<&'static str, u64>,
    /// What must be written to disk, and whether it could be.
    remembered: Remembered,
    verdict_changed: bool,
    may_keep: bool,
}

/// What is known of a node besides its verdict.
#[derive(Default)]
struct Known {
    /// Where each of its links was last heard.
    places: BTreeMap<u8, Place>,
    /// What it said last, as it came.
    payload: String,
    arrived: Tick,
    /// The same without what differs from beat to beat.
    content: Vec<u8>,
    /// The cluster IP that it serves, and the digest of its configuration.
    config: Option<(String, String)>,
}

impl Known {
    /// The records that it sent last; read when they are printed, not with each beat.
    fn records(&self) -> Vec<Box<RawValue>> {
        heartbeat::arrived(&self.payload, self.arrived).unwrap_or_default()
    }
}

impl<'a> Receiver<'a> {
    fn new(
        flags: &'a Flags,
        keys: Keys,
        sockets: Vec<Datagram>,
        settings: Settings,
        process: &Process,
    ) -> Result<Self, Failure> {
        let started = clock::boot();
        let mut hearing = Hearing::new(settings, started);
        let sign = Presence::hold(&receiving_sign(&process.node))?;
        let nonce = loop {
            match sys::raw::random_u64()? {
                0 => {}
                nonce => break nonce,
            }
        };
        let remembered = remembered(&process.node)?;
        for (node, life) in &remembered.nodes {
            hearing.remember(node, life.incarnation, life.sequence);
        }
        Ok(Receiver {
            flags,
            node: process.node.clone(),
            keys,
            cluster: ClusterHash::new(&flags.shared.cluster),
            us: PeerHash::new(&process.node),
            drained: vec![started; sockets.len()],
            own: vec![OwnBeat::None; sockets.len()],
            own_nonce: sys::raw::random_u64()?,
            sockets,
            hearing,
            pump: Pump::new(&process.node, process.form)?,
            form: process.form,
            refused_in_all: BTreeMap::new(),
            nonce,
            session: Session { nonce: nonce_to_text(nonce), heard: BTreeMap::new(), view: BTreeMap::new() },
            session_changed: false,
            sign,
            known: HashMap::new(),
            refused: BTreeMap::new(),
            refused_from: None,
            refused_told: None,
            configs_told: HashMap::new(),
            lag: Duration::ZERO,
            remembered,
            verdict_changed: false,
            may_keep: true,
        })
    }

    /// Tells our sender the session; without the sign we look on with the session of the other.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.sign.is_some() {
            self.write_session()?;
        } else if let Some(session) = super::read_session(&self.node) {
            self.nonce = super::nonce_from_text(&session.nonce).unwrap_or(self.nonce);
        }
        if self.flags.check { self.ask_own_rules() } else { Ok(()) }
    }

    /// Sends a beat of our own to each group, through this host's own rules and no further.
    fn ask_own_rules(&mut self) -> Result<(), Failure> {
        for (idx, endpoint) in self.flags.bind.iter().enumerate().filter(|(_, endpoint)| endpoint.addr.is_multicast()) {
            let mut echoes = Vec::new();
            let frame = Frame {
                goodbye: false,
                extra: true,
                link: 0,
                incarnation: 0,
                sequence: 0,
                sent_us: 0,
                nonce: self.own_nonce,
                name: &self.node,
                payload: "",
                echoes: Echoes::write(&[], &mut echoes),
            };
            let mut bytes = Vec::new();
            frame
                .encode(self.cluster, Some(&self.keys), &mut bytes)
                .map_err(|why| Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write a frame: {why}")))?;
            self.own[idx] = match Datagram::looped(endpoint, PORT)?.send(&bytes) {
                Ok(()) => OwnBeat::Sent(clock::boot()),
                Err(Errno::EPERM) => OwnBeat::Dropped,
                Err(errno) => return Err(sys::Error::call("send to", endpoint.to_string(), errno).into()),
            };
        }
        Ok(())
    }

    /// Puts back what somebody has removed: our sender and other receivers look for it.
    fn mend(&mut self) -> Result<(), Failure> {
        let path = receiving_sign(&self.node);
        let Some(sign) = &self.sign else { return Ok(()) };
        let is_there = sign.stands_at(&path);
        if !is_there {
            self.sign = Presence::hold(&path)?;
        }
        if self.sign.is_some() && !(is_there && session_file(&self.node).exists()) {
            self.write_session()?;
        }
        Ok(())
    }

    fn write_session(&self) -> Result<(), Failure> {
        let bytes =
            state::write(&origin("heartbeat-session", &self.node, clock::boot()), &self.session).unwrap_or_default();
        Ok(sys::state::replace(&session_file(&self.node), &bytes)?)
    }

    fn follow(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        let mut datagrams = Datagrams::new(256, MAX_FRAME + 1);
        let end = match (self.flags.duration, self.flags.follow) {
            (Some(span), _) => Some(clock::boot().after(span.0)),
            (None, false) => Some(clock::boot().after(self.flags.dead_after.0)),
            (None, true) => process.stream_deadline().map(clock::Deadline::tick),
        };
        let mut renew = clock::boot().after(self.flags.renew.0);
        let sign = sending_sign(&self.node);
        let mut look_for_sender = clock::boot();
        let mut forget = clock::boot();
        loop {
            let now = clock::boot();
            if now >= look_for_sender {
                // Asked again and again, since a sender may start later than we did.
                self.hearing.set_mutual(Presence::is_held(&sign));
                self.mend()?;
                look_for_sender = now.after(Duration::from_millis(200));
            }
            if !self.flags.follow && !self.flags.check && self.all_up() {
                return Ok(Exit::Yes);
            }
            if self.flags.check && self.is_judged(now) {
                return Ok(self.conclusion(process));
            }
            if end.is_some_and(|end| now >= end) {
                let conclusion = self.conclusion(process);
                // `--for` is a planned end, `--timeout` a deadline.
                let planned = self.flags.duration.is_some() || !self.flags.follow;
                return Ok(if planned { conclusion } else { conclusion.and(Exit::Undecided) });
            }
            let silence = self.hearing.next_deadline();
            let own = self.own.iter().filter_map(|own| match own {
                OwnBeat::Sent(at) => Some(at.after(THROUGH)).filter(|due| now < *due),
                _ => None,
            });
            let planned = [Some(renew), end, silence, self.refused_due(), Some(look_for_sender), own.min()];
            let deadline = planned.into_iter().flatten().min();
            let woken = {
                let fds: Vec<_> = self.sockets.iter().map(Datagram::as_fd).collect();
                self.pump.wait(&fds, deadline)
            };
            let ready = match woken {
                Ok(Woken::Ready(ready)) => ready,
                Ok(Woken::Signal(signal)) => {
                    self.keep();
                    self.pump.die(signal);
                    return Ok(self.conclusion(process));
                }
                Err(failure) => {
                    self.keep();
                    return Err(failure);
                }
            };
            let now = clock::boot();
            self.lag = deadline.map_or(Duration::ZERO, |deadline| now.since(deadline));
            for (idx, ready) in ready.into_iter().enumerate() {
                if ready {
                    self.receive(idx, &mut datagrams, now)?;
                } else {
                    self.drained[idx] = now;
                }
            }
            // Everything queued is heard before silence is judged.
            let paused = if self.lag > PAUSE { self.lag } else { Duration::ZERO };
            if !paused.is_zero() || silence.is_some_and(|silence| now >= silence) {
                let events = self.hearing.judge(now, paused);
                self.tell(events)?;
            }
            if now >= forget {
                forget = now.after(FORGET_EVERY);
                self.forget_sessions(now);
            }
            self.write()?;
            self.tell_refused(now)?;
            if now >= renew {
                renew = now.after(self.flags.renew.0);
                self.renew()?;
            }
        }
    }

    /// Takes everything that is queued on one socket.
    fn receive(&mut self, idx: usize, datagrams: &mut Datagrams, now: Tick) -> Result<(), Failure> {
        // Bounded, so that a flood on one link does not keep the others and the clock waiting.
        const ROUNDS: usize = 64;
        for _ in 0..ROUNDS {
            // An ICMP error, or the interface went down: the socket goes on.
            let Ok(got) = datagrams.receive(self.sockets[idx].as_fd()) else { return Ok(()) };
            for (bytes, from, stamp) in datagrams.iter() {
                // What waited in the socket while we did not run is as old as it is.
                let arrived = stamp.map_or(now, |stamp| clock::since_stamp(stamp, self.drained[idx], now));
                self.take(idx, bytes, from, arrived)?;
            }
            if got < 256 {
                self.drained[idx] = now;
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, socket: usize, bytes: &[u8], from: Option<SocketAddr>, now: Tick) -> Result<(), Failure> {
        let unsigned_too = self.flags.shared.auth != Auth::Enforce;
        // Read into parts that do not borrow from us: the cluster, the keys and the node stay put.
        let frame = match Frame::decode(bytes, self.cluster, &self.keys, unsigned_too) {
            Ok(frame) => frame,
            Err(refused) => {
                self.refuse(Refused::slug(refused), from);
                return Ok(());
            }
        };
        if frame.name == self.node {
            if frame.nonce == self.own_nonce {
                self.own[socket] = OwnBeat::Back;
            }
            return Ok(());
        }
        let echo = match frame.echoes.of(self.us) {
            Some(echoed) if echoed.nonce == self.nonce => Echo::Ours,
            Some(_) => Echo::Older,
            None => Echo::None,
        };
        let beat = Beat {
            node: frame.name,
            link: frame.link,
            incarnation: frame.incarnation,
            sequence: frame.sequence,
            echo,
            hears_links: frame.echoes.of(self.us).map_or(0, |echoed| echoed.links),
            goodbye: frame.goodbye,
        };
        let events = match self.hearing.hear(&beat, now) {
            Ok(events) => events,
            Err(stale) => {
                self.refuse(Stale::slug(stale), from);
                return Ok(());
            }
        };
        let place = Place { socket, remote: from };
        let news = if self.hearing.is_newest(frame.name, frame.incarnation, frame.sequence) {
            self.note_session(frame.name, frame.nonce);
            self.note(&frame, place, now)
        } else {
            self.known.entry(frame.name.to_owned()).or_default().places.insert(frame.link, place);
            false
        };
        let told = !events.is_empty();
        self.tell(events)?;
        if news && !told {
            self.record(frame.name, "payload", None, false)?;
        }
        if self.flags.beats {
            self.record(frame.name, "beat", None, false)?;
        }
        if news {
            self.compare_configs(frame.name)?;
        }
        Ok(())
    }

    /// Keeps the nonce to echo; it changes only when the peer's receiver starts anew.
    fn note_session(&mut self, node: &str, nonce: u64) {
        let links = self.hearing.heard_links(node);
        let is_known = |heard: &Heard| heard.links == links && super::nonce_from_text(&heard.nonce) == Some(nonce);
        if nonce != 0 && !self.session.heard.get(node).is_some_and(is_known) {
            self.session.heard.insert(node.to_owned(), Heard { nonce: nonce_to_text(nonce), links });
            self.session_changed = true;
        }
    }

    /// Echoes no longer what we no longer hear: the other side must learn that.
    fn forget_sessions(&mut self, now: Tick) {
        let hearing = &self.hearing;
        let mut changed = false;
        self.session.heard.retain(|node, heard| {
            let links = heard.links & hearing.heard_links(node);
            let keep = hearing.is_heard(node, now);
            changed |= links != heard.links || !keep;
            heard.links = links;
            keep
        });
        let view: BTreeMap<String, String> =
            view(hearing).into_iter().map(|(node, status)| (node.to_owned(), status.to_owned())).collect();
        changed |= view != self.session.view;
        self.session.view = view;
        self.session_changed |= changed;
    }

    /// Writes what must be on disk, once for all that was heard since.
    fn write(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.verdict_changed) {
            self.keep();
        }
        let changed = std::mem::take(&mut self.session_changed);
        if changed && self.sign.is_some() { self.write_session() } else { Ok(()) }
    }

    /// Keeps what a node says and where it was heard; whether it says anything new.
    fn note(&mut self, frame: &Frame<'_>, place: Place, now: Tick) -> bool {
        if !self.known.contains_key(frame.name) {
            self.known.insert(frame.name.to_owned(), Known::default());
        }
        let Some(known) = self.known.get_mut(frame.name) else { return false };
        known.places.insert(frame.link, place);
        let Ok(content) = heartbeat::content(frame.payload) else {
            self.refuse("payload", place.remote);
            return false;
        };
        known.payload.clear();
        known.payload.push_str(frame.payload);
        known.arrived = now;
        let news = known.content != content;
        if news {
            known.content = content;
            known.config = heartbeat::config_of(frame.payload);
        }
        news
    }

    /// Says so when two nodes run the same cluster IP from different configurations.
    fn compare_configs(&mut self, node: &str) -> Result<(), Failure> {
        let config = |name: &str| self.known.get(name).and_then(|known| known.config.as_ref());
        let Some((subject, own)) = config(node).cloned() else { return Ok(()) };
        let other = self.hearing.peers().map(|(name, _)| name).find_map(|name| {
            let (theirs, digest) = config(name)?;
            (*theirs == subject && *digest != own).then(|| name.to_owned())
        });
        match other {
            Some(other) if self.configs_told.get(node) != Some(&own) => {
                self.configs_told.insert(node.to_owned(), own);
                let reason = format!("{subject}: {node} and {other} run different configurations");
                self.record(node, "config-differs", Some(reason), false)
            }
            _ => Ok(()),
        }
    }

    fn refuse(&mut self, slug: &'static str, from: Option<SocketAddr>) {
        *self.refused.entry(slug).or_default() += 1;
        *self.refused_in_all.entry(slug).or_default() += 1;
        self.refused_from = from;
    }

    fn refused_due(&self) -> Option<Tick> {
        if self.refused.is_empty() {
            return None;
        }
        Some(self.refused_told.map_or(Tick::default(), |told| told.after(REFUSED_EVERY)))
    }

    fn tell_refused(&mut self, now: Tick) -> Result<(), Failure> {
        if self.refused_due().is_none_or(|due| now < due) {
            return Ok(());
        }
        self.refused_told = Some(now);
        let refused = std::mem::take(&mut self.refused);
        let from = self.refused_from.map_or_else(String::new, |from| format!("the last came from {from}"));
        let body = Recv {
            event: "refused",
            cluster: &self.flags.shared.cluster,
            incarnation: None,
            sequence: None,
            hears_us: None,
            hears_links: None,
            links: Vec::new(),
            lag_ms: millis(self.lag),
            reason: Some(from),
            refused,
            view: view(&self.hearing),
            payload: &[],
        };
        self.pump.stream.record(Head::new("heartbeat.recv"), &body)
    }

    fn tell(&mut self, events: Vec<Event>) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        self.verdict_changed |=
            events.iter().any(|event| matches!(event.what, What::Up | What::Down | What::Restart | What::Goodbye));
        for Event { node, what } in events {
            let reason = self.hearing.peer(&node).and_then(|peer| heartbeat::reason(&what, peer, &node));
            self.record(&node, heartbeat::event(&what), reason, false)?;
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<(), Failure> {
        if !self.flags.follow {
            return Ok(());
        }
        let known: Vec<(String, Status)> =
            self.hearing.peers().map(|(name, peer)| (name.to_owned(), peer.status)).collect();
        for (name, status) in known {
            // A remembered node that nobody expects and nobody has heard is not worth a line.
            if status != Status::Unknown || self.flags.expect.contains(&name) {
                let word = match status {
                    Status::Up => "up",
                    Status::Down => "down",
                    Status::Unknown => "late",
                };
                self.record(&name, word, None, true)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, node: &str, event: &str, reason: Option<String>, renewal: bool) -> Result<(), Failure> {
        let Some(peer) = self.hearing.peer(node) else { return Ok(()) };
        if renewal && matches!(self.form, Form::Table(_)) {
            return Ok(());
        }
        if self.flags.tell && !renewal && !matches!(event, "beat" | "payload") {
            let words = match (event, &reason) {
                ("up", _) => format!("{node} is up"),
                ("down", _) => format!("{node} is down: nothing was heard of it for {}", self.flags.dead_after),
                ("goodbye", _) => format!("{node} has said goodbye"),
                (_, Some(reason)) => format!("{node}: {event}: {reason}"),
                (_, None) => format!("{node}: {event}"),
            };
            crate::cli::complain("heartbeat recv", &words);
        }
        let mut head = Head::new("heartbeat.recv").about(node);
        head.status = Some(peer.status);
        head.renewal = renewal;
        // Long enough for two renewals to be lost, so that only a stopped chain expires.
        let valid = (self.flags.renew.0 * 3).max(self.flags.dead_after.0);
        head.valid_for_ms = Some(millis(valid));
        head.received_ms = Some(clock::boot().as_ms());
        let known = self.known.get(node);
        let links = peer
            .links
            .iter()
            .map(|(number, link)| {
                let place = known.and_then(|known| known.places.get(number));
                let local =
                    place.and_then(|place| self.sockets.get(place.socket)).map(|socket| socket.name().to_owned());
                Link::new(*number, link, local, place.and_then(|place| place.remote).map(|remote| remote.to_string()))
            })
            .collect();
        let payload = known.map(Known::records).unwrap_or_default();
        let known = peer.incarnation > 0;
        let body = Recv {
            event,
            cluster: &self.flags.shared.cluster,
            incarnation: known.then_some(peer.incarnation),
            sequence: known.then_some(peer.sequence),
            hears_us: Some(peer.hears_us),
            hears_links: known.then(|| heartbeat::numbers(peer.hears_links)),
            links,
            lag_ms: millis(self.lag),
            reason,
            refused: BTreeMap::new(),
            view: view(&self.hearing),
            payload: &payload,
        };
        self.pump.stream.record(head, &body)
    }

    fn all_up(&self) -> bool {
        self.flags.expect.iter().all(|node| self.hearing.peer(node).is_some_and(|peer| peer.status == Status::Up))
    }

    /// The answer: all expected are up, one is down, or one was never heard.
    fn conclusion(&self, process: &Process) -> Exit {
        let mut exit = Exit::Yes;
        if self.flags.check {
            for (fault, verdict) in self.faults() {
                process.complain(&fault);
                exit = exit.and(verdict);
            }
            return exit;
        }
        for node in &self.flags.expect {
            exit = exit.and(match self.hearing.peer(node).map(|peer| peer.status) {
                Some(Status::Up) => Exit::Yes,
                Some(Status::Down) => Exit::No,
                _ => {
                    process.complain(&self.never_heard(node));
                    Exit::Undecided
                }
            });
        }
        exit
    }

    /// Why a node may never have been heard, and what to do.
    fn never_heard(&self, node: &str) -> String {
        if !self.refused_in_all.is_empty() {
            let reasons: Vec<String> =
                self.refused_in_all.iter().map(|(slug, count)| format!("{slug} {count}")).collect();
            return format!(
                "never heard {node}; datagrams came and were refused: {} (the same --key, --cluster and --auth on both sides?)",
                reasons.join(", ")
            );
        }
        let port = self.port();
        format!("never heard {node} on UDP port {port} (is it sending, and is the port open? {})", opens("input", port))
    }

    fn port(&self) -> u16 {
        self.sockets.first().and_then(Datagram::local).map_or(PORT, |local| local.port())
    }

    /// What does not work between this node and those it expects, and what that says of the links:
    /// a clear no where something else is heard, undecided where nothing is.
    fn faults(&self) -> Vec<(String, Exit)> {
        let mut faults = self.own_faults();
        let closed = self.own.iter().any(|own| matches!(own, OwnBeat::Sent(_)));
        let port = self.port();
        if !Presence::is_held(&sending_sign(&self.node)) {
            let why =
                "cannot tell whether the others hear us: no heartbeat send of this node runs (start it beside this)";
            faults.push((why.to_owned(), Exit::Undecided));
        }
        for node in &self.flags.expect {
            let heard = self.hearing.peer(node).filter(|peer| !peer.links.is_empty());
            let Some(peer) = heard else {
                // Where our own rules drop what comes, that is why.
                if !closed {
                    faults.push((self.never_heard(node), Exit::Undecided));
                }
                continue;
            };
            // Who does not hear us is down for that alone.
            if peer.hears_us && peer.status == Status::Down {
                faults.push((format!("{node} was heard and is down"), Exit::No));
                continue;
            }
            if !peer.hears_us {
                let why = match self.closed_to(node) {
                    Some(to) => format!(
                        "one-way: {node} does not hear us: this host's own output rules drop UDP port {port} to {to} ({})",
                        opens("output", port)
                    ),
                    None => format!(
                        "one-way: {node} does not hear us (is UDP port {port} open there? {})",
                        opens("input", port)
                    ),
                };
                faults.push((why, Exit::No));
            }
            let places = self.known.get(node).map(|known| &known.places);
            for (idx, socket) in self.sockets.iter().enumerate() {
                if !places.is_some_and(|places| places.values().any(|place| place.socket == idx)) {
                    let name = socket.name();
                    let port = socket.local().map_or(port, |local| local.port());
                    let why = format!(
                        "{node} is not heard on {name}, and is elsewhere (does it send there, and is UDP port {port} open here? {})",
                        opens("input", port)
                    );
                    faults.push((why, Exit::No));
                }
            }
        }
        faults
    }

    /// Where this host's own rules drop what it sends to a group.
    fn own_faults(&self) -> Vec<(String, Exit)> {
        let mut faults = Vec::new();
        for (own, socket) in self.own.iter().zip(&self.sockets) {
            let port = socket.local().map_or(PORT, |local| local.port());
            let hook = match own {
                OwnBeat::None | OwnBeat::Back => continue,
                OwnBeat::Sent(_) => "input",
                OwnBeat::Dropped => "output",
            };
            let name = socket.name();
            let why = format!("this host's own {hook} rules drop UDP port {port} to {name} ({})", opens(hook, port));
            faults.push((why, Exit::No));
        }
        faults
    }

    /// To which address of a node this host's own rules let nothing out.
    fn closed_to(&self, node: &str) -> Option<IpAddr> {
        let places = &self.known.get(node)?.places;
        places.values().find_map(|place| {
            let (addr, bind) = (place.remote?.ip(), self.flags.bind.get(place.socket)?);
            let port = self.sockets.get(place.socket)?.local()?.port();
            let to = Endpoint { addr, port: Some(port), dev: bind.dev.clone() };
            // One byte is no beat: a peer that does hear it refuses it.
            let sent = Datagram::sender(&to, PORT).ok()?.send(&[0]);
            (sent == Err(Errno::EPERM)).then_some(addr)
        })
    }

    /// Whether `--check` knows all that it can know: of each expected node that it is heard on every link and
    /// hears us, or that it does not hear us; and of each group what became of our own beat.
    fn is_judged(&self, now: Tick) -> bool {
        let due = |own: &OwnBeat| matches!(own, OwnBeat::Sent(at) if now < at.after(THROUGH));
        let heard_everywhere = |node: &String| {
            let places = self.known.get(node).map(|known| &known.places);
            let heard = |idx| places.is_some_and(|places| places.values().any(|place| place.socket == idx));
            (0..self.sockets.len()).all(heard)
        };
        let judged = |node: &String| {
            self.hearing.peer(node).is_some_and(|peer| {
                peer.one_way || (peer.status == Status::Up && peer.hears_us && heard_everywhere(node))
            })
        };
        !self.own.iter().any(due) && self.flags.expect.iter().all(judged)
    }

    /// Writes the lives that were heard; a stream does so on a change of verdict only.
    fn keep(&mut self) {
        let nodes = self
            .hearing
            .peers()
            .filter(|(_, peer)| peer.incarnation > 0)
            .map(|(name, peer)| (name.to_owned(), Life { incarnation: peer.incarnation, sequence: peer.sequence }))
            .collect();
        let now = Remembered { nodes };
        if now == self.remembered || !self.may_keep || self.sign.is_none() {
            return;
        }
        let bytes = state::write(&origin("heartbeat-recv", &self.node, clock::boot()), &now).unwrap_or_default();
        match sys::state::replace(&remembered_file(&self.node), &bytes) {
            Ok(()) => self.remembered = now,
            Err(error) => {
                self.may_keep = false;
                crate::cli::complain(
                    "heartbeat recv",
                    &format!("{error}; after a restart old beats are refused by the echo alone"),
                );
            }
        }
    }
}

/// What opens the port in a firewall. firewalld lets everything out by itself.
fn opens(hook: &str, port: u16) -> String {
    let nft = format!("nft add rule inet filter {hook} udp dport {port} accept");
    if hook == "output" { nft } else { format!("{nft}; or firewall-cmd --add-port={port}/udp") }
}

/// What is heard of each node, as it travels to those who count votes.
fn view(hearing: &Hearing) -> BTreeMap<&str, &'static str> {
    hearing.peers().map(|(name, peer)| (name, peer.status.as_str())).collect()
}

/// The lives that this node has heard.
pub(super) fn remembered(node: &str) -> Result<Remembered, Failure> {
    let path = remembered_file(node);
    let Some(bytes) = sys::state::read(&path)? else { return Ok(Remembered::default()) };
    let read = state::read_lasting::<Remembered>(&bytes, &origin("heartbeat-recv", node, clock::boot()));
    let (remembered, _) = read.map_err(|why| sys::Error::File {
        doing: "read".to_owned(),
        path: path.display().to_string(),
        why,
        mend: "move it away to begin anew".to_owned(),
    })?;
    Ok(remembered)
}

fn remembered_file(node: &str) -> PathBuf {
    sys::state::lasting_folder().join(format!("heartbeat-recv-{node}.json"))
}
