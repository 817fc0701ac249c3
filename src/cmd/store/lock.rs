//! `store lock`: a command that runs on one host at a time.
//!
//! Two processes. The inner one stands in line, renews, and is the command's parent; a timer of the kernel kills it,
//! and with it the command, should it not have renewed in time, even while it is stopped. The outer one is the one that was
//! started: it passes signals on, and buries what is left.

use super::backend::{At, News, Store, Trouble};
use super::leader::holder_of;
use super::{line_in, line_of, lock_name, look_at_line};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::store::{Hold, outdated};
use crate::record::Head;
use crate::record::envelope;
use crate::record::store::{LOCK_COLUMNS, LOCK_SCHEMA, Lock};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::event::{Signals, Sources};
use crate::sys::process::{self, DeadMan, Ended, Half, Inner, NotStarted, Outer, Ward};
use crate::sys::worker::{Crew, Worker};
use crate::types::store::{Change, Condition, Entry, Keys, LeaseId, Step, Transaction};
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "lock",
    about: "Run a command while this host holds a lock, and end it before another can hold it",
    examples: "store lock backup --ttl 10s -- /usr/local/sbin/backup\n\
               store lock nightly --timeout 0s -- make-report || echo another host does it\n\
               store lock iscsi/leader --ttl 3s --on-lost /usr/local/sbin/release -- place-services",
    args: flags::<Flags>,
    schemas: &[LOCK_SCHEMA],
    columns: LOCK_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The lock
    #[arg(value_name = "NAME", value_parser = lock_name)]
    name: String,

    /// How long the lock outlives a holder that does not renew it; etcd takes whole seconds and has a least of its own
    #[arg(long, value_name = "D", default_value = "10s")]
    ttl: Span,

    /// So long before the lock could be another's the command is told to end, and killed at half of it
    /// [default: a quarter of the ttl that was granted]
    #[arg(long, value_name = "D")]
    margin: Option<Span>,

    /// After TERM, INT or HUP the command has so long to end
    #[arg(long, value_name = "D", default_value = "10s")]
    kill_after: Span,

    /// Run this program when the lock is lost; it is told by STORE_LOCK and STORE_TOKEN
    #[allow(clippy::doc_markdown)] // as the help shows it
    #[arg(long, value_name = "FILE")]
    on_lost: Option<PathBuf>,

    /// So long that program may take
    #[arg(long, value_name = "D", default_value = "30s")]
    on_lost_limit: Span,

    /// A holder on NODE whose token is below REVISION is proven off: its lock is taken at once
    #[arg(long, value_name = "NODE@REVISION", value_parser = proven)]
    proven_off: Vec<(String, u64)>,

    /// Write what becomes of the lock to FILE, a record a line
    #[arg(long, value_name = "FILE|fd:N")]
    events: Option<String>,

    #[command(flatten)]
    at: At,

    /// The command, which has the lock's token in STORE_TOKEN
    #[allow(clippy::doc_markdown)] // as the help shows it
    #[arg(value_name = "CMD", last = true, required = true, num_args = 1..)]
    command: Vec<OsString>,
}

fn proven(text: &str) -> Result<(String, u64), String> {
    let wrong = || format!("'{text}' is not NODE@REVISION (n1@1234)");
    let (node, revision) = text.rsplit_once('@').ok_or_else(wrong)?;
    crate::types::node::check_name(node)?;
    Ok((node.to_owned(), revision.parse().map_err(|_| wrong())?))
}

/// Shorter than this nothing can be renewed three times in.
const LEAST_TTL: Duration = Duration::from_millis(500);
/// What one look at the store may take while standing in line.
const LOOK: Duration = Duration::from_secs(2);
/// Before the store is asked again when it did not answer.
const RETRY: Duration = Duration::from_millis(100);
/// How long a lock is held before its key is followed, so that its end is noticed before the next renewal.
const FOLLOW: Duration = Duration::from_millis(200);
/// What giving the lock back may take.
const GIVE_BACK: Duration = Duration::from_secs(2);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    // Standard output is the command's, also for the titles of a table without rows.
    process.out.discard();
    if flags.ttl.0 < LEAST_TTL {
        return Err(Failure::usage("--ttl must be 500ms or more"));
    }
    if let Some(margin) = flags.margin
        && (margin.0 < Hold::LEAST_MARGIN || margin.0 > flags.ttl.0 / 2)
    {
        return Err(Failure::usage("--margin must be 100ms or more, and at most half of --ttl"));
    }
    let store = flags.at.open()?;
    let events = Events::open(flags.events.as_deref(), process)?;
    // Blocked from here on in both halves, so that none is lost.
    let mut signals = Signals::catch()?;
    let link = Link::new()?;
    match process::part()? {
        Half::Outer(inner) => outer(&flags, &inner, &link, &mut signals, &events, process),
        Half::Inner(outer) => {
            // The signals of this half are its own.
            let mut signals = Signals::catch()?;
            let mut taker = Taker { flags: &flags, store, process, events, link, outer };
            let outcome = taker.run(&mut signals);
            match outcome {
                Ok(End::Exit(exit)) => Ok(exit),
                Ok(End::Signal(signal)) => {
                    signals.die(signal);
                    Ok(Exit::Yes)
                }
                Err(failure) => Err(failure),
            }
        }
    }
}

/// What the inner half tells the outer one.
struct Link {
    /// The token, once the lock is held.
    held: EventFd,
    /// The lock is lost, or as good as.
    lost: EventFd,
    /// The command has ended, and all of it is gone: there is nothing left to lose.
    over: EventFd,
}

impl Link {
    fn new() -> Result<Self, Failure> {
        let event = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| Failure::from(sys::Error::call("make", "an event", errno)))
        };
        Ok(Link { held: event()?, lost: event()?, over: event()? })
    }
}

/// The half that was started.
fn outer(
    flags: &Flags,
    inner: &Inner,
    link: &Link,
    signals: &mut Signals,
    events: &Events,
    process: &Process,
) -> Result<Exit, Failure> {
    let (mut on_lost, mut token) = (None::<OnLost>, None::<u64>);
    loop {
        let (ended, signal, lost) = {
            let mut sources = Sources::default();
            let end = sources.readable(inner.as_fd());
            let signal = sources.readable(signals.as_fd());
            let lost = on_lost.is_none().then(|| sources.readable(link.lost.as_fd()));
            sources.wait(None)?;
            (sources.is_ready(end), sources.is_ready(signal), lost.is_some_and(|lost| sources.is_ready(lost)))
        };
        if let Ok(held) = link.held.read() {
            token = Some(held);
        }
        if lost {
            on_lost = Some(OnLost::start(flags, token, process));
        }
        // What a terminal sends, it sends to each of us.
        if signal
            && let Some((signal, by_terminal)) = signals.next_with_origin()
            && !by_terminal
        {
            inner.pass_on(signal);
        }
        if ended {
            break;
        }
    }
    let ended = inner.bury();
    if let Ok(held) = link.held.read() {
        token = Some(held);
    }
    let is_over = link.over.read().is_ok();
    // Whatever is left of the command goes at once: the inner half would have taken its time, if it had any.
    let _ = process::end_tree(on_lost.as_ref().and_then(OnLost::id), clock::boot());
    let exit = match ended {
        // It was killed while it held the lock: by the kernel's timer, or by somebody.
        Ended::Signal(Signal::SIGKILL) if token.is_some() && !is_over => {
            events.tell(&flags.name, &Lock { event: "lost", token, ..Lock::default() });
            if on_lost.is_none() {
                process.complain(&format!(
                    "the lock {} is lost: it was not renewed in time, and the command is killed",
                    flags.name
                ));
                on_lost = Some(OnLost::start(flags, token, process));
            }
            Exit::Lost
        }
        Ended::Signal(signal) => {
            if !matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) {
                process.complain(&format!("it was killed by {signal}"));
            }
            signals.die(signal);
            Exit::Foreign(Ended::Signal(signal).status())
        }
        Ended::Status(status) => Exit::Foreign(status),
    };
    if let Some(on_lost) = on_lost {
        on_lost.finish(flags, process);
    }
    Ok(exit)
}

/// The program that undoes what the command has done.
struct OnLost {
    ward: Option<Ward>,
    until: Tick,
}

impl OnLost {
    fn start(flags: &Flags, token: Option<u64>, process: &Process) -> Self {
        let until = clock::boot().after(flags.on_lost_limit.0);
        let Some(program) = &flags.on_lost else { return OnLost { ward: None, until } };
        let token = token.map(|token| token.to_string()).unwrap_or_default();
        let variables = [("STORE_LOCK", flags.name.clone()), ("STORE_TOKEN", token)];
        match Ward::start(&[program.clone().into_os_string()], &variables) {
            Ok(ward) => OnLost { ward: Some(ward), until },
            Err(NotStarted::NotFound(why) | NotStarted::NotRunnable(why)) => {
                process.complain(&format!("--on-lost: {why}"));
                OnLost { ward: None, until }
            }
        }
    }

    fn id(&self) -> Option<u32> {
        self.ward.as_ref().map(Ward::id)
    }

    fn finish(self, flags: &Flags, process: &Process) {
        let Some(mut ward) = self.ward else { return };
        let program = flags.on_lost.as_ref().map(|program| program.display().to_string()).unwrap_or_default();
        let ended = {
            let mut sources = Sources::default();
            sources.readable(ward.as_fd());
            sources.wait(Some(self.until)).unwrap_or(false)
        };
        if ended {
            match ward.bury() {
                Ended::Status(0) => {}
                other => process.complain(&format!("--on-lost: {program} has failed with status {}", other.status())),
            }
        } else {
            process.complain(&format!("--on-lost: {program} did not end in {}, and is killed", flags.on_lost_limit));
        }
        let _ = process::end_tree(None, clock::boot());
    }
}

/// Where records of the lock go: never to standard output, which is the command's.
struct Events {
    file: Option<std::fs::File>,
    host: String,
    who: String,
}

impl Events {
    fn open(place: Option<&str>, process: &Process) -> Result<Self, Failure> {
        let file = place
            .map(|place| {
                let path = place.strip_prefix("fd:").map_or_else(|| place.to_owned(), |fd| format!("/dev/fd/{fd}"));
                // A pipe that is full, or that nobody reads, must not hold up what the lock is about.
                std::fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
                    .open(&path)
                    .map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
                        Some(Errno::ENXIO) => Failure::new(
                            Exit::Refused,
                            Reason::WriteFailed,
                            format!("cannot open {place}: nobody reads it (start its reader first)"),
                        ),
                        _ => sys::Error::io("open", place, &error).into(),
                    })
            })
            .transpose()?;
        Ok(Events { file, host: process.node.clone(), who: process.who.clone() })
    }

    fn tell(&self, name: &str, body: &Lock<'_>) {
        let Some(mut file) = self.file.as_ref() else { return };
        let mut line = Vec::new();
        let written = envelope::write(&mut line, &Head::new("store.lock").about(name), clock::wall(), &self.host, body);
        // A lock is not given up for want of a log.
        if let Err(why) = written.and_then(|()| file.write_all(&line).map_err(|error| error.to_string())) {
            crate::cli::complain(&self.who, &format!("cannot write to --events: {why}"));
        }
    }
}

/// How the inner half ends.
enum End {
    Exit(Exit),
    Signal(Signal),
}

/// A lock that is held.
struct Held {
    spot: Spot,
    hold: Hold,
}

/// Where this stands in line.
#[derive(Clone)]
struct Spot {
    key: Vec<u8>,
    /// The node, which is what the key holds.
    node: Vec<u8>,
    /// By which revision it came: once it is the first, the lock's token.
    created: u64,
    /// The one that last changed it.
    revision: u64,
    lease: LeaseId,
}

impl Spot {
    /// Leaves the line, or gives the lock back; a renewal that is on its way does not bring it back.
    fn leave(&self, store: &mut dyn Store, deadline: Tick) -> Result<(), Trouble> {
        let when = vec![Condition::Created(self.key.clone(), self.created)];
        let then = vec![Step::Delete(Keys::One(self.key.clone()))];
        store.run(&Transaction { when, then, otherwise: Vec::new() }, deadline).map(drop)
    }

    /// Puts the key under a new lease: how long that is granted for, and the line; `None` where the key is gone.
    ///
    /// Not by keeping the lease alive: a member of etcd that was the leader, and stopped, says yes to that when it goes
    /// on, and ends the lease by its own count (etcd-io/etcd#15247). A grant and a put need a majority, and what a
    /// member ends that does not know of them is the old lease, under which there is nothing any more.
    fn renew(
        &mut self,
        store: &mut dyn Store,
        name: &str,
        ttl: Duration,
        deadline: Tick,
    ) -> Result<Option<(Duration, Vec<Entry>)>, Trouble> {
        const TRIES: usize = 3;
        let lease = store.grant(ttl, deadline)?;
        for _ in 0..TRIES {
            let put = Step::Put { key: self.key.clone(), value: self.node.clone(), lease: lease.id };
            let look = Step::Get(line_of(name));
            let asked = Transaction {
                when: vec![Condition::Revision(self.key.clone(), self.revision)],
                then: vec![put, look.clone()],
                otherwise: vec![look],
            };
            let found = store.run(&asked, deadline)?.found.into_iter().next_back().unwrap_or_default();
            let line = line_in(name, found);
            let Some(own) = line.iter().find(|entry| entry.key == self.key && entry.created == self.created) else {
                return Ok(None);
            };
            self.revision = own.revision;
            if own.lease == lease.id {
                self.lease = lease.id;
                return Ok(Some((lease.ttl, line)));
            }
            // An earlier try, of which nothing was heard, has gone through meanwhile.
        }
        Err(Trouble::Away { why: "the lock's key changes all the time".to_owned(), unclear: false })
    }
}

/// How standing in line ended.
enum Stood {
    Held(Held),
    /// The lease has ended meanwhile: from the beginning.
    Again,
    Ended(End),
}

/// The half that does the work.
struct Taker<'a> {
    flags: &'a Flags,
    store: Box<dyn Store>,
    process: &'a Process,
    events: Events,
    link: Link,
    outer: Outer,
}

impl Taker<'_> {
    fn run(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        let until = self.process.stream_deadline().map(Deadline::tick);
        let mut silent = false;
        loop {
            match self.acquire(signals, until, &mut silent)? {
                Stood::Again => {}
                Stood::Ended(end) => return Ok(end),
                Stood::Held(held) => return self.hold(held, signals),
            }
        }
    }

    fn failed(&self, trouble: Trouble) -> Failure {
        trouble.failure("take the lock", &self.flags.name)
    }

    fn margin(&self, ttl: Duration) -> Duration {
        self.flags.margin.map_or_else(|| Hold::usual_margin(ttl), |margin| margin.0)
    }

    /// Waits for a signal, a descriptor or a point in time. That the other half was killed is a signal too.
    fn pause(
        &self,
        signals: &mut Signals,
        other: Option<std::os::fd::BorrowedFd<'_>>,
        until: Option<Tick>,
    ) -> Result<Option<Signal>, Failure> {
        let (came, alone) = {
            let mut sources = Sources::default();
            let (signal, outer) = (sources.readable(signals.as_fd()), sources.readable(self.outer.as_fd()));
            if let Some(other) = other {
                sources.readable(other);
            }
            sources.wait(until)?;
            (sources.is_ready(signal), sources.is_ready(outer))
        };
        Ok(if alone { Some(Signal::SIGTERM) } else { came.then(|| signals.next()).flatten() })
    }

    /// Stands in line until this is the first.
    fn acquire(&mut self, signals: &mut Signals, until: Option<Tick>, silent: &mut bool) -> Result<Stood, Failure> {
        let name = self.flags.name.clone();
        // `--timeout 0s` is one try, which takes the time that it takes.
        let is_late = |until: Option<Tick>| until.is_some_and(|until| clock::boot() >= until);
        let sent = clock::boot();
        let lease = match self.store.grant(self.flags.ttl.0, sent.after(LOOK)) {
            Ok(lease) => lease,
            Err(Trouble::Away { why, unclear }) => {
                return self.away(Trouble::Away { why, unclear }, signals, until, silent);
            }
            Err(trouble) => return Err(self.failed(trouble)),
        };
        let mut hold = Hold::new(lease.ttl, self.margin(lease.ttl), sent);
        let key = format!("{name}/{:x}", lease.id).into_bytes();
        let node = self.process.node.clone().into_bytes();
        let look = Step::Get(line_of(&name));
        let put = Step::Put { key: key.clone(), value: node.clone(), lease: lease.id };
        // Nobody else has this key, so it may be put twice.
        let stand = Transaction {
            when: vec![Condition::Created(key.clone(), 0)],
            then: vec![put, look.clone()],
            otherwise: vec![look],
        };
        let outcome = match self.store.run(&stand, clock::boot().after(LOOK)) {
            Ok(outcome) => outcome,
            Err(Trouble::NoSuchLease) => return Ok(Stood::Again),
            Err(Trouble::Away { why, unclear }) => {
                let _ = self.store.revoke(lease.id, clock::boot().after(RETRY));
                return self.away(Trouble::Away { why, unclear }, signals, until, silent);
            }
            Err(trouble) => return Err(self.failed(trouble)),
        };
        let revision = outcome.revision;
        let line = line_in(&name, outcome.found.into_iter().next_back().unwrap_or_default());
        let Some(own) = line.iter().find(|entry| entry.key == key) else { return Ok(Stood::Again) };
        let mut spot = Spot { key, node, created: own.created, revision: own.revision, lease: lease.id };
        // Until then it counts from what was granted, which nothing but a majority does.
        let renewal = hold.next();
        let crew: Crew<News> = Crew::new()?;
        let (mut is_following, mut is_told, mut is_news) = (false, false, false);
        let mut seen = Some(line);
        loop {
            let look = match seen.take() {
                Some(line) => Ok(Some(line)),
                None if std::mem::take(&mut is_news) || is_late(until) => {
                    look_at_line(self.store.as_mut(), &name, clock::boot().after(LOOK)).map(|(line, _)| Some(line))
                }
                None => Ok(None),
            };
            match look {
                // Others renew, which changes nothing in the line.
                Ok(None) => {}
                Ok(Some(line)) => {
                    *silent = false;
                    let Some(place) = line.iter().position(|entry| entry.key == spot.key) else {
                        return Ok(Stood::Again);
                    };
                    if place == 0 && clock::boot() < renewal {
                        return Ok(Stood::Held(Held { spot, hold }));
                    } else if place == 0 {
                        // What was granted long ago may be over: it counts from a renewal that went through now.
                        let sent = clock::boot();
                        match spot.renew(self.store.as_mut(), &name, self.flags.ttl.0, sent.after(LOOK)) {
                            Ok(Some((ttl, line))) if line.first().is_some_and(|first| first.key == spot.key) => {
                                hold.renew(ttl, sent);
                                return Ok(Stood::Held(Held { spot, hold }));
                            }
                            Ok(_) | Err(Trouble::NoSuchLease) => return Ok(Stood::Again),
                            Err(Trouble::Away { why, .. }) => {
                                self.silence(&why, silent);
                                is_news = true;
                            }
                            Err(trouble) => return Err(self.failed(trouble)),
                        }
                    } else if self.take_over(&line)? {
                        is_news = true;
                        continue;
                    } else if is_late(until) {
                        let _ = spot.leave(self.store.as_mut(), clock::boot().after(GIVE_BACK));
                        let holder = line.first().map(holder_of).unwrap_or_default();
                        return Err(Failure::new(
                            Exit::Undecided,
                            Reason::LockHeld,
                            format!("cannot take the lock {name}: {holder} holds it (see: store leader {name})"),
                        ));
                    } else if !std::mem::replace(&mut is_told, true) {
                        let holder = line.first().map(|holder| holder_of(holder).into());
                        let token = line.first().map(|holder| holder.created);
                        self.events.tell(&name, &Lock { event: "waiting", token, holder, ..Lock::default() });
                    }
                }
                Err(Trouble::Away { why, .. }) if is_late(until) => {
                    let _ = spot.leave(self.store.as_mut(), clock::boot().after(RETRY));
                    return Err(self.failed(Trouble::Away { why, unclear: false }));
                }
                Err(Trouble::Away { why, .. }) => {
                    self.silence(&why, silent);
                    is_news = true;
                }
                Err(trouble) => return Err(self.failed(trouble)),
            }
            if !std::mem::replace(&mut is_following, true) {
                let mut follower = self.store.again()?;
                let keys = line_of(&name);
                crew.follow(move |stop, tell| follower.follow(&keys, revision, stop, tell))?;
            }
            let retry = is_news.then(|| clock::boot().after(RETRY));
            let wake = [Some(hold.next()), until, retry].into_iter().flatten().min();
            let signal = self.pause(signals, Some(crew.as_fd()), wake)?;
            if let Some(signal) = signal {
                let _ = spot.leave(self.store.as_mut(), clock::boot().after(GIVE_BACK));
                return Ok(Stood::Ended(End::Signal(signal)));
            }
            for news in crew.take() {
                match news {
                    News::Failed(failure) => return Err(failure),
                    News::Changes(changes) => {
                        is_news |= changes.iter().any(|change| matches!(change, Change::Deleted { .. }));
                    }
                    News::Overrun(..) | News::Back => is_news = true,
                    News::Silent(_) => {}
                }
            }
            let now = clock::boot();
            if now >= hold.next() {
                // Who only waits loses no more than its spot where this is not kept.
                match self.store.keep(spot.lease, now.after(lease.ttl / 3)) {
                    Ok(ttl) => hold.renew(ttl, now),
                    Err(Trouble::NoSuchLease) => return Ok(Stood::Again),
                    Err(Trouble::Away { why, .. }) => {
                        hold.fail(now);
                        self.silence(&why, silent);
                    }
                    Err(trouble) => return Err(self.failed(trouble)),
                }
            }
        }
    }

    /// Breaks the lock of a holder that is proven off.
    fn take_over(&mut self, line: &[Entry]) -> Result<bool, Failure> {
        for (node, revision) in &self.flags.proven_off {
            let Some(holder) = outdated(line, node, *revision) else { continue };
            match self.store.revoke(holder.lease, clock::boot().after(LOOK)) {
                Ok(()) => return Ok(true),
                Err(Trouble::Away { .. }) => return Ok(false),
                Err(trouble) => return Err(self.failed(trouble)),
            }
        }
        Ok(false)
    }

    fn silence(&self, why: &str, silent: &mut bool) {
        if !std::mem::replace(silent, true) {
            self.process.complain(&format!("the store does not answer: {why} (goes on asking)"));
        }
    }

    /// The store does not answer: a while later again, unless the time is over.
    fn away(
        &self,
        trouble: Trouble,
        signals: &mut Signals,
        until: Option<Tick>,
        silent: &mut bool,
    ) -> Result<Stood, Failure> {
        if until.is_some_and(|until| clock::boot() >= until) {
            return Err(self.failed(trouble));
        }
        if let Trouble::Away { why, .. } = &trouble {
            self.silence(why, silent);
        }
        let next = clock::boot().after(RETRY);
        let signal = self.pause(signals, None, Some(until.map_or(next, |until| until.min(next))))?;
        Ok(signal.map_or(Stood::Again, |signal| Stood::Ended(End::Signal(signal))))
    }

    /// Runs the command while the lock is held.
    fn hold(&mut self, held: Held, signals: &mut Signals) -> Result<End, Failure> {
        let Held { spot, mut hold } = held;
        let (token, name) = (spot.created, self.flags.name.clone());
        let mut dead_man = DeadMan::new()?;
        dead_man.arm(last_moment(&hold))?;
        let _ = self.link.held.write(token);
        let mut told = Lock { event: "acquired", token: Some(token), ..Lock::default() };
        told.holder = Some(self.process.node.as_str().into());
        told.ttl_ms = Some(millis(hold.ttl()));
        self.events.tell(&name, &told);
        let variables = [("STORE_LOCK", name.clone()), ("STORE_TOKEN", token.to_string())];
        let ward = match Ward::start(&self.flags.command, &variables) {
            Ok(ward) => ward,
            Err(not) => {
                self.give_back(&spot, None);
                let (exit, why) = match not {
                    NotStarted::NotFound(why) => (Exit::Foreign(127), why),
                    NotStarted::NotRunnable(why) => (Exit::Foreign(126), why),
                };
                return Err(Failure::new(exit, Reason::NoSuchProgram, why));
            }
        };
        let mut shift = Shift {
            ward,
            hold,
            spot,
            worker: Worker::new()?,
            spare: None,
            end: None,
            warned: false,
            crew: Crew::new()?,
            follow: Some(clock::boot().after(FOLLOW)),
            is_news: false,
        };
        let over = shift.work(self, &mut dead_man, signals)?;
        hold = shift.hold;
        let (spot, status) = (shift.spot.clone(), shift.ward.bury().status());
        // What it left behind is its work too, and ends before the lock does.
        let until = match over {
            Over::Ended => hold.kill().min(clock::boot().after(self.flags.kill_after.0)),
            Over::Lost(..) => clock::boot(),
        };
        let left = process::end_tree(None, until);
        if !left.is_empty() {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            self.process.complain(&format!(
                "cannot end what the command has started: {} (it is another user's, or hangs in a system call: look at it; the lock is not given back, and ends by itself)",
                left.join(", ")
            ));
        }
        // From here on the store may take its time.
        drop(dead_man);
        let _ = self.link.over.write(1);
        match over {
            Over::Ended => {
                if left.is_empty() {
                    self.give_back(&spot, Some(status));
                }
                // A status of ours must not be mistaken for the command's.
                Ok(End::Exit(Exit::Foreign(if matches!(status, 75 | 76) { 1 } else { status })))
            }
            Over::Lost(why, is_alone) => {
                self.process.complain(&format!("the lock {name} is lost: {why}"));
                let told = Lock { event: "lost", token: Some(token), child_status: Some(status), ..Lock::default() };
                self.events.tell(&name, &told);
                if is_alone {
                    OnLost::start(self.flags, Some(token), self.process).finish(self.flags, self.process);
                }
                // Nothing of it runs any more, so nobody need wait for it.
                if left.is_empty() && clock::boot() < hold.end() {
                    let _ = spot.leave(self.store.as_mut(), hold.end());
                }
                Ok(End::Exit(Exit::Lost))
            }
        }
    }

    fn give_back(&mut self, spot: &Spot, child_status: Option<u8>) {
        if let Err(trouble) = spot.leave(self.store.as_mut(), clock::boot().after(GIVE_BACK)) {
            let failure = trouble.failure("give back the lock", &self.flags.name);
            self.process.complain(&format!("{}; it ends by itself", failure.sentence));
        }
        let told = Lock { event: "released", token: Some(spot.created), child_status, ..Lock::default() };
        self.events.tell(&self.flags.name, &told);
    }
}

/// When the kernel kills the inner half: after it should have killed the command itself, and before the end.
fn last_moment(hold: &Hold) -> Tick {
    let left = hold.end().since(hold.kill());
    hold.kill().after(left / 2)
}

/// How the time with the lock ended.
enum Over {
    Ended,
    /// Why, and whether nobody else is left to run what `--on-lost` names.
    Lost(String, bool),
}

/// What a renewal that is under way brings back: the time, or that the lock is another's.
type Renewal = (Box<dyn Store>, Spot, Tick, Result<Option<Duration>, Trouble>);

/// The time with the lock.
struct Shift {
    ward: Ward,
    hold: Hold,
    spot: Spot,
    worker: Worker<Renewal>,
    /// The store for the next renewal, while none is under way.
    spare: Option<Box<dyn Store>>,
    /// When the command is killed, since a signal told it to end.
    end: Option<Tick>,
    /// The command was told to end, since the lock was not renewed.
    warned: bool,
    /// Tells when the key goes.
    crew: Crew<News>,
    /// When that begins; short work is over before.
    follow: Option<Tick>,
    /// The key is gone, or may be: to be looked at now.
    is_news: bool,
}

impl Shift {
    fn work(&mut self, taker: &mut Taker<'_>, dead_man: &mut DeadMan, signals: &mut Signals) -> Result<Over, Failure> {
        let mut why = "it could not be renewed".to_owned();
        loop {
            let next = if self.worker.is_busy() { self.hold.warn() } else { self.hold.next() };
            let limit = if self.warned { self.hold.kill() } else { next.min(self.hold.warn()) };
            let wake = [self.end, self.follow].into_iter().flatten().fold(limit, Tick::min);
            let (ended, signal, renewed, alone, news) = {
                let mut sources = Sources::default();
                let end = sources.readable(self.ward.as_fd());
                let signal = sources.readable(signals.as_fd());
                let renewed = sources.readable(self.worker.as_fd());
                let outer = sources.readable(taker.outer.as_fd());
                let news = sources.readable(self.crew.as_fd());
                sources.wait(Some(wake))?;
                let ready = |slot| sources.is_ready(slot);
                (ready(end), ready(signal), ready(renewed), ready(outer), ready(news))
            };
            if news {
                self.is_news |= self.crew.take().iter().any(|news| match news {
                    News::Changes(changes) => changes.iter().any(|change| matches!(change, Change::Deleted { .. })),
                    News::Overrun(..) => true,
                    _ => false,
                });
            }
            if alone {
                // Nobody is left to hear how it goes on, nor to bury what is left.
                let why = "the process that was started is gone".to_owned();
                self.ward.pass_on(Signal::SIGKILL);
                return Ok(Over::Lost(why, true));
            }
            if renewed && let Some((store, spot, sent, outcome)) = self.worker.take() {
                self.spare = Some(store);
                self.spot = spot;
                match outcome {
                    Ok(Some(ttl)) => {
                        self.hold.renew(ttl, sent);
                        dead_man.arm(last_moment(&self.hold))?;
                    }
                    Ok(None) => return Ok(self.lose(taker, "somebody has taken it away".to_owned())),
                    Err(Trouble::NoSuchLease) => return Ok(self.lose(taker, "the store has ended it".to_owned())),
                    Err(Trouble::Away { why: said, .. }) => {
                        why = format!("it could not be renewed: {said}");
                        self.hold.fail(sent);
                    }
                    Err(trouble) => {
                        why = format!("it could not be renewed: {}", taker.failed(trouble).sentence);
                        self.hold.fail(sent);
                    }
                }
            }
            // Once it was told to end since the lock is lost, its end is no success.
            if ended && self.warned {
                return Ok(Over::Lost(why, false));
            }
            if ended {
                return Ok(Over::Ended);
            }
            if signal && let Some((signal, by_terminal)) = signals.next_with_origin() {
                if !by_terminal {
                    self.ward.pass_on(signal);
                }
                self.end.get_or_insert(clock::boot().after(taker.flags.kill_after.0));
            }
            let now = clock::boot();
            if self.end.is_some_and(|end| now >= end) {
                // It does not want to.
                self.ward.pass_on(Signal::SIGKILL);
                self.end = None;
            }
            if now >= self.hold.kill() {
                return Ok(self.lose(taker, why));
            }
            if now >= self.hold.warn() && !std::mem::replace(&mut self.warned, true) {
                let _ = taker.link.lost.write(1);
                self.ward.pass_on(Signal::SIGTERM);
            }
            if self.follow.is_some_and(|begin| now >= begin) {
                self.follow = None;
                let (mut store, key, revision) =
                    (taker.store.again()?, Keys::One(self.spot.key.clone()), self.spot.revision);
                self.crew.follow(move |stop, tell| store.follow(&key, revision, stop, tell))?;
            }
            if !self.warned && (now >= self.hold.next() || self.is_news) && !self.worker.is_busy() {
                self.is_news = false;
                self.renew(taker, now)?;
            }
        }
    }

    /// It is another's by now, or may be: no time for words.
    fn lose(&self, taker: &Taker<'_>, why: String) -> Over {
        self.ward.pass_on(Signal::SIGKILL);
        let _ = taker.link.lost.write(1);
        Over::Lost(why, false)
    }

    fn renew(&mut self, taker: &Taker<'_>, now: Tick) -> Result<(), Failure> {
        let mut store = match self.spare.take() {
            Some(store) => store,
            None => taker.store.again()?,
        };
        let (name, mut spot, ttl) = (taker.flags.name.clone(), self.spot.clone(), taker.flags.ttl.0);
        let until = self.hold.warn();
        self.worker.start(move |_| {
            let renewed = spot.renew(store.as_mut(), &name, ttl, until);
            let outcome = renewed.map(|renewed| {
                renewed.filter(|(_, line)| line.first().is_some_and(|first| first.key == spot.key)).map(|(ttl, _)| ttl)
            });
            (store, spot, now, outcome)
        })?;
        Ok(())
    }
}
