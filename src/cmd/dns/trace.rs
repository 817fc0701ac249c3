//! `dns trace`: who gives which answer, and until when, while a fail-over happens.

use super::answer::Type;
use super::timeline::{self, Bar};
use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Feed};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::health::standing;
use crate::decide::trace::{Attempts, Cache, Seen, Track, Until};
use crate::record::Head;
use crate::record::dns::{TRACE_COLUMNS, TRACE_SCHEMA, Trace};
use crate::record::health::verdict;
use crate::record::line::Line;
use crate::sys::connect::{self, Via};
use crate::sys::worker::Worker;
use crate::sys::{clock, process, raw, state};
use crate::types::domain::Domain;
use crate::types::net::Endpoint;
use crate::types::status::Status;
use crate::types::target::Target;
use crate::types::time::{Span, Tick, WallTime, millis};
use crate::wire::dns::{Answer, Question};
use crate::wire::getent;
use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use socket2::Socket;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

const PORT: u16 = 53;
/// The system is asked by a process of its own each time, so less often than the servers.
const OS_EVERY: u32 = 4;
/// More answers of one server are not waited for at once.
const AWAITED: usize = 64;
/// More connections are not begun before the first of them is decided.
const ATTEMPTS: usize = 64;

pub(super) const VERB: Verb = Verb {
    name: "trace",
    about: "Time a fail-over while it happens: the last old and the first new answer at each vantage point",
    examples: "dns trace www.example.org --until 198.51.100.1 --authority 192.0.2.53 --resolver 192.0.2.54\n\
               dns trace www.example.org --until 198.51.100.1 --resolver 192.0.2.54 --os --application 30s --connect 80 --svg t.svg\n\
               health http http://192.0.2.1/ --follow | dns trace www.example.org --until none --authority 192.0.2.53 -",
    args: flags::<Flags>,
    schemas: &[TRACE_SCHEMA],
    columns: TRACE_COLUMNS,
    run: |matches, process| run(&args::read(matches)?, process),
};

#[derive(Args, Debug)]
struct Flags {
    /// The name
    #[arg(value_name = "NAME")]
    name: Domain,

    /// - : read verdicts, as `health --follow` prints them, to tell when the fault was noticed
    #[arg(value_name = "-", value_parser = ["-"])]
    input: Option<String>,

    /// The addresses of the new answer, all of them; none: the name without an address
    #[arg(long, value_name = "ADDR,...|none", required = true)]
    until: Awaited,

    /// A server that has the zone
    #[arg(long, value_name = "ADDR[:PORT],...", value_delimiter = ',')]
    authority: Vec<Endpoint>,

    /// A server that asks others for its clients
    #[arg(long, value_name = "ADDR[:PORT],...", value_delimiter = ',')]
    resolver: Vec<Endpoint>,

    /// What this system gives a program (getent ahosts)
    #[arg(long)]
    os: bool,

    /// A program that asks the system, and keeps the answer for D, for java's 30s, or for ever
    #[arg(long, value_name = "D|java|forever", value_delimiter = ',')]
    application: Vec<Keeping>,

    /// Connect to the old address at this port again and again, for when it stops serving, and hold one connection
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    connect: Option<u16>,

    /// The type of the addresses
    #[arg(long = "type", value_name = "TYPE", default_value = "A")]
    qtype: Type,

    /// When the old site failed, where --connect does not find it out
    #[arg(long, value_name = "TIME")]
    fault_at: Option<WallTime>,

    /// From look to look
    #[arg(long, value_name = "D", default_value = "50ms")]
    every: Span,

    /// How long a question or a connection waits for its answer
    #[arg(long, value_name = "D", default_value = "1s")]
    response_timeout: Span,

    /// Draw what was seen, at the end
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Awaited(Until);

impl FromStr for Awaited {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Awaited(Until(Vec::new())));
        }
        let read = |word: &str| word.parse().map_err(|_| format!("'{word}' is not an address, and not 'none'"));
        text.split(',').map(read).collect::<Result<_, String>>().map(|all| Awaited(Until(all)))
    }
}

/// For how long a program keeps an answer.
#[derive(Clone, Copy, Debug)]
struct Keeping(Option<Span>);

impl FromStr for Keeping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forever" => Ok(Keeping(None)),
            "java" => Ok(Keeping(Some(Span(Duration::from_secs(30))))),
            other => {
                other.parse().map(|span| Keeping(Some(span))).map_err(|why: String| format!("{why}, java or forever"))
            }
        }
    }
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    check(flags)?;
    let end = process.stream_end(None);
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut tracer = Tracer::new(flags, process)?;
    // What cannot be written is known before hours have gone by.
    tracer.draw()?;
    let outcome = tracer.follow(&mut pump, end);
    tracer.os.end(clock::boot());
    let ended = outcome.and_then(|ended| tracer.sum_up(&mut pump).map(|()| ended));
    pump.stream.finish();
    let answer = match ended {
        Ok(Ended::Signal(signal)) => {
            tracer.draw()?;
            pump.die(signal);
            Exit::Undecided
        }
        Ok(Ended::New) => Exit::Yes,
        Ok(Ended::Deadline) => {
            process.complain(&format!(
                "the new answer was not seen everywhere in the time given: {} (allow longer with --timeout)",
                tracer.missing()
            ));
            Exit::Undecided
        }
        // A reader that left changes no answer.
        Err(failure) if failure.is_reader_gone() => Exit::Undecided,
        Err(failure) => return Err(failure),
    };
    tracer.draw()?;
    Ok(answer.and(tracer.complaints.finish()))
}

/// # Errors
/// A usage that clap cannot see.
fn check(flags: &Flags) -> Result<(), Failure> {
    if flags.authority.is_empty() && flags.resolver.is_empty() && !flags.os && flags.application.is_empty() {
        return Err(Failure::usage("nothing is watched (--authority ADDR, --resolver ADDR, --os, --application D)"));
    }
    for (flag, span) in [("--every", flags.every), ("--response-timeout", flags.response_timeout)] {
        if span.0 < Duration::from_millis(1) {
            return Err(Failure::usage(format!("{flag} must be 1ms or more")));
        }
    }
    if let Some(other) = flags.until.0.0.iter().find(|address| !flags.qtype.is_of(**address)) {
        return Err(Failure::usage(format!("--until {other} is no address of the type {}", flags.qtype.as_str())));
    }
    Question::new(flags.name.as_str(), flags.qtype.as_str(), 0).map_err(Failure::usage).map(drop)
}

/// A point of the wall clock on our own.
///
/// # Errors
/// It has not come yet, or was before this host's boot.
fn fault(at: WallTime, now: Tick, now_at: WallTime) -> Result<Tick, Failure> {
    let why = |why: &str| Failure::usage(format!("--fault-at {at} {why}"));
    let age = u64::try_from(now_at.unix_us.saturating_sub(at.unix_us)).map_err(|_| why("has not come yet"))?;
    let since_boot = now.0.checked_sub(Duration::from_micros(age));
    since_boot.map(Tick).ok_or_else(|| why("is before the boot of this host, which times are counted from"))
}

enum Ended {
    New,
    Deadline,
    Signal(Signal),
}

/// A place from where it is looked.
struct Vantage {
    phase: &'static str,
    name: String,
    track: Track,
    /// It ends the run that this one has the new answer too.
    awaited: bool,
    /// The first verdict, of one that gives verdicts.
    first_word: Option<Status>,
}

impl Vantage {
    fn new(phase: &'static str, name: &impl ToString, awaited: bool) -> Self {
        Vantage { phase, name: name.to_string(), track: Track::default(), awaited, first_word: None }
    }
}

/// A server that is asked again and again, from one port.
struct Lane {
    /// Its vantage, by position.
    at: usize,
    to: SocketAddr,
    socket: Result<Socket, Errno>,
    recursion: bool,
    asked: VecDeque<(Question, Tick)>,
}

struct Tracer<'a> {
    flags: &'a Flags,
    node: String,
    boot_id: String,
    vantages: Vec<Vantage>,
    lanes: Vec<Lane>,
    os: Worker<Option<Vec<IpAddr>>>,
    /// Positions of the vantages that see what the system sees, with what they keep.
    programs: Vec<(usize, Cache)>,
    attempts: Attempts,
    fault: Option<Tick>,
    connecting: Vec<(Socket, Tick)>,
    /// An address of the first old answer.
    old: Option<IpAddr>,
    /// The connection that is held, and where it is seen from.
    held: Option<Socket>,
    connection: Option<usize>,
    begun: Tick,
    /// The same by the wall clock: a step of it later moves no time that was told.
    begun_at: WallTime,
    feed: Feed,
    complaints: Complaints,
}

impl<'a> Tracer<'a> {
    fn new(flags: &'a Flags, process: &Process) -> Result<Self, Failure> {
        let mut vantages = Vec::new();
        let mut lanes = Vec::new();
        let begun = clock::boot();
        let servers = flags.authority.iter().map(|server| ("authority", server, false));
        for (phase, server, recursion) in servers.chain(flags.resolver.iter().map(|it| ("resolver", it, true))) {
            let to = connect::resolve(&Target::Address(server.clone()), PORT, begun)?.remove(0);
            lanes.push(Lane {
                at: vantages.len(),
                to,
                socket: connect::datagrams(to, &Via::default()),
                recursion,
                asked: VecDeque::new(),
            });
            vantages.push(Vantage::new(phase, server, true));
        }
        let mut programs = Vec::new();
        if flags.os {
            programs.push((vantages.len(), Cache::new(Some(Duration::ZERO))));
            vantages.push(Vantage::new("os", &"getaddrinfo", true));
        }
        for Keeping(keeps) in &flags.application {
            programs.push((vantages.len(), Cache::new(keeps.map(|span| span.0))));
            let name = keeps.map_or("forever".to_owned(), |span| span.to_string());
            vantages.push(Vantage::new("application", &format!("keeps {name}"), keeps.is_some()));
        }
        let connection = flags.connect.map(|_| vantages.len());
        if let Some(port) = flags.connect {
            vantages.push(Vantage::new("connection", &format!("held to port {port}"), false));
        }
        let begun_at = clock::wall();
        let fault = flags.fault_at.map(|at| fault(at, begun, begun_at)).transpose()?;
        Ok(Tracer {
            flags,
            node: process.node.clone(),
            boot_id: clock::boot_id(),
            vantages,
            lanes,
            os: Worker::new()?,
            programs,
            attempts: Attempts::default(),
            fault,
            connecting: Vec::new(),
            old: None,
            held: None,
            connection,
            begun,
            begun_at,
            feed: Feed::default(),
            complaints: Complaints::new(&process.who),
        })
    }

    /// Looks and looks, until all that are awaited have the new answer.
    fn follow(&mut self, pump: &mut Pump, end: Option<Tick>) -> Result<Ended, Failure> {
        let (mut next, mut turn) = (self.begun, 0_u32);
        let stdin = std::io::stdin();
        loop {
            let now = clock::boot();
            if now >= next {
                self.look(turn, now, pump)?;
                turn = turn.wrapping_add(1);
                // One that was held up does not catch up.
                next = next.after(self.flags.every.0).max(now);
            }
            if self.vantages.iter().all(|vantage| vantage.track.is_new() || !vantage.awaited) {
                return Ok(Ended::New);
            }
            if end.is_some_and(|end| now >= end) {
                return Ok(Ended::Deadline);
            }
            let woken = {
                let mut fds: Vec<BorrowedFd<'_>> = vec![self.os.as_fd()];
                fds.extend(self.lanes.iter().filter_map(|lane| lane.socket.as_ref().ok()).map(AsFd::as_fd));
                fds.extend(self.held.as_ref().map(AsFd::as_fd));
                fds.extend(self.listens().then(|| stdin.as_fd()));
                pump.wait(&fds, Some(end.map_or(next, |end| end.min(next))))?
            };
            let ready = match woken {
                Woken::Signal(signal) => return Ok(Ended::Signal(signal)),
                Woken::Ready(ready) => ready,
            };
            if !ready.contains(&true) {
                continue;
            }
            for at in 0..self.lanes.len() {
                self.hear(at, pump)?;
            }
            if let Some(told) = self.os.take() {
                self.system_says(told.as_deref(), pump)?;
            }
            self.hold(pump)?;
            if self.listens() && ready.last() == Some(&true) {
                self.take_in(pump)?;
            }
        }
    }

    /// Whether verdicts are still read.
    fn listens(&self) -> bool {
        self.flags.input.is_some() && !self.feed.is_ended()
    }

    /// Asks everybody once.
    fn look(&mut self, turn: u32, now: Tick, pump: &mut Pump) -> Result<(), Failure> {
        for at in 0..self.lanes.len() {
            self.ask(at, now, pump)?;
        }
        if !self.programs.is_empty() && turn.is_multiple_of(OS_EVERY) && !self.os.is_busy() {
            let (name, until) = (format!("{}.", self.flags.name.as_str()), now.after(self.flags.response_timeout.0));
            let getent = process::find("getent", "libc-bin", "ask the system for", self.flags.name.as_str())?;
            self.os.start(move |stop| {
                let mut command = Command::new(getent);
                command.args(["ahosts", &name]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
                let watched = process::watch(command, 64 * 1024, until, stop.as_fd()).ok()?;
                // 2: the name has no address, or nobody could say.
                let code = watched.status?.code();
                matches!(code, Some(0 | 2)).then(|| getent::ahosts(&String::from_utf8_lossy(&watched.stdout)))
            })?;
        }
        self.connect(now);
        self.hold(pump)
    }

    /// Sends a server the next question, and gives up those that it has not answered.
    fn ask(&mut self, at: usize, now: Tick, pump: &mut Pump) -> Result<(), Failure> {
        let patience = self.flags.response_timeout.0;
        let mut silent = Vec::new();
        let lane = &mut self.lanes[at];
        while let Some((_, sent)) =
            lane.asked.front().filter(|(_, sent)| sent.after(patience) <= now || lane.asked.len() >= AWAITED)
        {
            silent.push(*sent);
            lane.asked.pop_front();
        }
        let [high, low] = raw::random()?;
        let question =
            Question::new(self.flags.name.as_str(), self.flags.qtype.as_str(), u16::from_be_bytes([high, low]))
                .map_err(Failure::usage)?
                .with_edns();
        let question = if lane.recursion { question } else { question.without_recursion() };
        let bytes = question.encode().map_err(Failure::usage)?;
        if lane.socket.is_err() {
            lane.socket = connect::datagrams(lane.to, &Via::default());
        }
        let sent = lane.socket.as_ref().is_ok_and(|socket| {
            // The refusal may be of the one before.
            socket.send(&bytes).or_else(|_| socket.send(&bytes)).is_ok()
        });
        if sent {
            lane.asked.push_back((question, now));
        } else {
            silent.push(now);
        }
        let at = lane.at;
        silent.into_iter().try_for_each(|sent| self.note(at, Seen::Nothing, sent, pump))
    }

    /// Takes in what a server has said.
    fn hear(&mut self, at: usize, pump: &mut Pump) -> Result<(), Failure> {
        let mut buffer = [0; 4096];
        loop {
            let lane = &mut self.lanes[at];
            let Ok(socket) = &lane.socket else { return Ok(()) };
            let length = match connect::receive(socket, &mut buffer) {
                Ok(Some(length)) => length,
                Ok(None) => return Ok(()),
                Err(_) => {
                    // Nobody listens there: none of them will be answered.
                    let refused: Vec<Tick> = lane.asked.drain(..).map(|(_, sent)| sent).collect();
                    let at = lane.at;
                    return refused.into_iter().try_for_each(|sent| self.note(at, Seen::Nothing, sent, pump));
                }
            };
            let bytes = buffer.get(..length).unwrap_or_default();
            let found =
                lane.asked.iter().enumerate().find_map(|(idx, (question, _))| Some((idx, question.answer(bytes)?)));
            let Some((idx, answer)) = found else { continue };
            lane.asked.remove(idx);
            let at = lane.at;
            let seen = self.judge(&answer);
            self.note(at, seen, clock::boot(), pump)?;
        }
    }

    /// What an answer is. That the name is not there at all has no address either.
    fn judge(&mut self, answer: &Answer) -> Seen {
        if answer.truncated || !matches!(answer.rcode.as_str(), "NOERROR" | "NXDOMAIN") {
            return Seen::Nothing;
        }
        // Where an alias leads out of what it knows, or to itself, or it sends us elsewhere, it says nothing of addresses.
        let is_elsewhere = answer.soa.is_none() && (!answer.aliases.is_empty() || !answer.servers.is_empty());
        if answer.addresses.is_empty() && is_elsewhere {
            return Seen::Nothing;
        }
        self.judge_set(&answer.addresses)
    }

    fn judge_set(&mut self, addresses: &[IpAddr]) -> Seen {
        let seen = self.flags.until.0.judge(addresses);
        if seen == Seen::Old {
            self.old = self.old.or(addresses.first().copied());
        }
        seen
    }

    /// Takes in what the system has said to a program.
    fn system_says(&mut self, addresses: Option<&[IpAddr]>, pump: &mut Pump) -> Result<(), Failure> {
        let now = clock::boot();
        let fresh = addresses.map_or(Seen::Nothing, |addresses| {
            let of_type: Vec<IpAddr> = addresses.iter().copied().filter(|it| self.flags.qtype.is_of(*it)).collect();
            // That there is none, and that it could not be found out, look alike: it counts where there was one.
            if of_type.is_empty() && self.old.is_none() { Seen::Nothing } else { self.judge_set(&of_type) }
        });
        let seen: Vec<(usize, Seen)> =
            self.programs.iter_mut().map(|(at, cache)| (*at, cache.look(fresh, now))).collect();
        seen.into_iter().try_for_each(|(at, seen)| self.note(at, seen, now, pump))
    }

    /// Tries whether the old site still serves, until it is known that it does not.
    fn connect(&mut self, now: Tick) {
        let (Some(port), Some(old)) = (self.flags.connect, self.old) else { return };
        let (attempts, patience) = (&mut self.attempts, self.flags.response_timeout.0);
        let mut alive = None;
        self.connecting = std::mem::take(&mut self.connecting)
            .into_iter()
            .filter_map(|(socket, begun)| match connect::outcome(&socket) {
                Some(Ok(())) => {
                    attempts.ended(begun, true);
                    alive = Some(socket);
                    None
                }
                None if begun.after(patience) > now => Some((socket, begun)),
                _ => {
                    attempts.ended(begun, false);
                    None
                }
            })
            .collect();
        self.fault = self.fault.or(attempts.fault());
        // One is kept, and another in its place where the server ends it by itself.
        if self.held.is_none() && self.fault.is_none() {
            self.held = alive.filter(|socket| connect::keep_alive(socket).is_ok());
        }
        if self.fault.is_none() && self.connecting.len() < ATTEMPTS {
            match connect::begin(SocketAddr::new(old, port), &Via::default()) {
                Ok(socket) => self.connecting.push((socket, now)),
                Err(_) => self.attempts.ended(now, false),
            }
        }
    }

    /// Looks after the connection that is held.
    fn hold(&mut self, pump: &mut Pump) -> Result<(), Failure> {
        let (Some(at), Some(socket)) = (self.connection, &self.held) else { return Ok(()) };
        let mut buffer = [0; 4096];
        let open = loop {
            match connect::receive(socket, &mut buffer) {
                Ok(None) => break true,
                Ok(Some(0)) | Err(_) => break false,
                Ok(Some(_)) => {}
            }
        };
        if !open {
            self.held = None;
        }
        self.note(at, if open { Seen::Old } else { Seen::New }, clock::boot(), pump)
    }

    /// Takes in verdicts: which of them turned, and when.
    fn take_in(&mut self, pump: &mut Pump) -> Result<(), Failure> {
        let now = clock::boot();
        for (number, line) in self.feed.take()? {
            let said = line.and_then(|line| {
                let line = Line::parse(&line)?;
                let host: Option<String> = line.get("host")?;
                let Some(mut said) = verdict(&line, host.as_deref().unwrap_or(&self.node))? else { return Ok(None) };
                if host.is_some_and(|host| host != self.node) {
                    // Its clock is not ours: what counts is when we hear of it.
                    (said.received_ms, said.boot_id) = (None, None);
                }
                standing(&said, &self.boot_id, None, now).map(|word| Some((said.subject, word)))
            });
            match said {
                Err(why) => self.complaints.line(number, &why),
                Ok(Some((subject, word))) if word.status != Status::Unknown => {
                    let known = self.vantages.iter().position(|it| it.phase == "detection" && it.name == subject);
                    let at = known.unwrap_or_else(|| {
                        self.vantages.push(Vantage::new("detection", &subject, false));
                        self.vantages.len() - 1
                    });
                    // Another than the first of this subject.
                    let first = *self.vantages[at].first_word.get_or_insert(word.status);
                    let seen = if first == word.status { Seen::Old } else { Seen::New };
                    self.note(at, seen, word.arrived, pump)?;
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Notes what was seen, and tells where it turned.
    fn note(&mut self, at: usize, seen: Seen, when: Tick, pump: &mut Pump) -> Result<(), Failure> {
        if self.vantages[at].track.observe(seen, when) {
            let (head, record) = self.record(&self.vantages[at]);
            pump.stream.record(head, &record)?;
        }
        Ok(())
    }

    /// What the times count from.
    fn zero(&self) -> Tick {
        self.fault.unwrap_or(self.begun)
    }

    fn record(&self, vantage: &Vantage) -> (Head, Trace) {
        let (now, zero) = (clock::boot(), self.zero());
        let time = |at: Tick| {
            let us = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
            let from_begin = us(at.since(self.begun)).saturating_sub(us(self.begun.since(at)));
            WallTime { unix_us: self.begun_at.unix_us.saturating_add(from_begin) }.to_string()
        };
        let track = &vantage.track;
        let record = Trace {
            phase: vantage.phase,
            vantage: vantage.name.clone(),
            last_old: track.last_old.map(time),
            first_new: track.first_new.map(time),
            since: time(zero),
            elapsed_ms: millis(track.first_new.unwrap_or(now).since(zero)),
            samples: track.samples,
        };
        (Head::new("dns.trace").about(self.flags.name.as_str()), record)
    }

    /// Tells the last of each, now that it is known when the fault was.
    fn sum_up(&self, pump: &mut Pump) -> Result<(), Failure> {
        for vantage in self.in_order() {
            let (mut head, record) = self.record(vantage);
            head.renewal = true;
            pump.stream.record(head, &record)?;
        }
        Ok(())
    }

    /// As the phases follow each other.
    fn in_order(&self) -> impl Iterator<Item = &Vantage> {
        ["detection", "authority", "resolver", "os", "application", "connection"]
            .into_iter()
            .flat_map(|phase| self.vantages.iter().filter(move |vantage| vantage.phase == phase))
    }

    /// Who has not had the new answer.
    fn missing(&self) -> String {
        let missing = self.vantages.iter().filter(|vantage| vantage.awaited && !vantage.track.is_new());
        missing.map(|vantage| format!("{} {}", vantage.phase, vantage.name)).collect::<Vec<_>>().join(", ")
    }

    fn draw(&self) -> Result<(), Failure> {
        let Some(path) = &self.flags.svg else { return Ok(()) };
        let zero = self.zero();
        let bars: Vec<Bar> = self
            .in_order()
            .map(|vantage| Bar {
                label: format!("{} {}", vantage.phase, vantage.name),
                spells: vantage.track.spells.clone(),
                took: vantage.track.first_new.map(|first| first.since(zero)),
            })
            .collect();
        let since = if self.fault.is_some() { "since the fault" } else { "since the start" };
        let title = format!("{} {}: seconds {since}", self.flags.name.as_str(), self.flags.qtype.as_str());
        state::publish(path, timeline::draw(&title, &bars, zero, clock::boot()).as_bytes())?;
        Ok(())
    }
}
