//! `fence records`: let what needs a proof wait for it, and nothing else.

use super::{Agents, Filed, STEP, act, change_proofs};
use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Feed};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::heartbeat;
use crate::decide::fence::Desk;
use crate::record::fence::{COLUMNS, OFF_SCHEMA, Proven, read_asks, with_proofs};
use crate::record::line::Line;
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::process::Beside;
use crate::types::draw::Draw;
use crate::types::time::Tick;
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::os::fd::AsFd;

pub(super) const VERB: Verb = Verb {
    name: "records",
    about: "Pass records on, and fence the nodes that some of them need off",
    examples: "bucket plan ... < nodes.jsonl | fence records --agent fence_ipmilan --options ipmi-{node} | bucket apply 192.0.2.10\n\
               ... | bucket plan 192.0.2.10 ... --follow --pass | fence records --agent fence_ipmilan --options ipmi-{node} | \
               bucket apply 192.0.2.10 --follow",
    args: flags::<Flags>,
    schemas: &[OFF_SCHEMA],
    columns: COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    #[command(flatten)]
    agents: Agents,

    /// Say each fencing on standard error too, for a log
    #[arg(long)]
    tell: bool,

    /// End with status 0 whatever was concluded
    #[arg(long)]
    exit_zero: bool,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.agents.check()?;
    // Not in the outage.
    act::levels(&flags.agents, None, process)?;
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut clerk = Clerk::new(&flags, process)?;
    let mut complaints = Complaints::new(&process.who);
    let outcome = clerk.follow(process, &mut pump, &mut complaints);
    for (_, job) in std::mem::take(&mut clerk.jobs) {
        job.stop();
    }
    pump.stream.finish();
    let signal = match outcome {
        // A reader that left changes no answer.
        Err(failure) if !failure.is_reader_gone() => return Err(failure),
        Err(_) => None,
        Ok(signal) => signal,
    };
    if let Some(signal) = signal {
        return Ok(pump.die(signal));
    }
    let answer = if clerk.desk.lacks() { clerk.failed.unwrap_or(Exit::Undecided) } else { Exit::Yes };
    Ok(complaints.finish().and(if flags.exit_zero { Exit::Yes } else { answer }))
}

struct Clerk<'a> {
    flags: &'a Flags,
    me: String,
    desk: Desk,
    filed: Filed,
    /// The newest record that needs a proof, by what it is about, as it came.
    held: BTreeMap<String, (Vec<String>, String)>,
    /// How each proof is told.
    told: BTreeMap<String, Proven>,
    /// The fencings that go on.
    jobs: BTreeMap<String, Beside>,
    /// How the last one ended that proved nothing.
    failed: Option<Exit>,
}

impl<'a> Clerk<'a> {
    fn new(flags: &'a Flags, process: &Process) -> Result<Self, Failure> {
        let draw = Draw::new(sys::raw::random_u64()?);
        let mut clerk = Clerk {
            flags,
            me: process.node.clone(),
            desk: Desk::new(&process.node, flags.agents.delay, draw),
            filed: Filed::default(),
            held: BTreeMap::new(),
            told: BTreeMap::new(),
            jobs: BTreeMap::new(),
            failed: None,
        };
        clerk.read_proofs(clock::boot())?;
        Ok(clerk)
    }

    /// Takes the proofs that are kept: of an earlier run, by hand, or for another address.
    fn read_proofs(&mut self, now: Tick) -> Result<(), Failure> {
        for (node, kept) in &self.filed.look(&self.me, now)?.nodes {
            self.desk.keep(node, kept.proof());
            self.told.insert(node.clone(), kept.proven.clone());
        }
        Ok(())
    }

    fn follow(
        &mut self,
        process: &Process,
        pump: &mut Pump,
        complaints: &mut Complaints,
    ) -> Result<Option<nix::sys::signal::Signal>, Failure> {
        let mut feed = Feed::default();
        let stdin = std::io::stdin();
        let end = process.stream_end(None);
        loop {
            let names: Vec<String> = self.jobs.keys().cloned().collect();
            let woken = {
                let jobs = self.jobs.values().filter_map(Beside::as_fd);
                let input = (!feed.is_ended()).then(|| stdin.as_fd());
                let fds: Vec<_> = jobs.chain(input).collect();
                pump.wait(&fds, [self.desk.wake(), end].into_iter().flatten().min())?
            };
            let ready = match woken {
                Woken::Ready(ready) => ready,
                Woken::Signal(signal) => return Ok(Some(signal)),
            };
            let now = clock::boot();
            if !feed.is_ended() && ready.last() == Some(&true) {
                for (number, line) in feed.take()? {
                    match line {
                        Ok(text) => {
                            if let Err(why) = self.take(&text, now, pump)? {
                                complaints.line(number, &why);
                            }
                        }
                        Err(why) => complaints.line(number, &why),
                    }
                }
                self.forget()?;
            }
            for (node, _) in names.iter().zip(&ready).filter(|(_, ready)| **ready) {
                self.hear(node, now, pump)?;
            }
            for node in self.desk.due(now) {
                self.start(&node)?;
            }
            // What is under way is waited for; what failed is not begun again.
            if (feed.is_ended() && self.jobs.is_empty() && !self.desk.is_untried()) || end.is_some_and(|end| now >= end)
            {
                return Ok(None);
            }
        }
    }

    /// Takes one line in and passes it on; what is wrong with it is the inner error.
    fn take(&mut self, text: &str, now: Tick, pump: &mut Pump) -> Result<Result<(), String>, Failure> {
        let asks = match Line::parse(text).and_then(|line| read_asks(&line, &self.me)) {
            Ok(asks) => asks,
            Err(why) => return Ok(Err(why)),
        };
        if let Some((node, life)) = asks.life {
            self.desk.lives(&node, life);
        }
        if let Some(node) = asks.silent {
            self.desk.silent(&node);
        }
        if let Some((node, at)) = asks.lives {
            self.desk.heard(&node, at.and_then(Tick::from_ms).map_or(now, |at| at.min(now)));
        }
        let Some(needs) = asks.needs else { return pump.stream.pass(text).map(Ok) };
        if let Some(why) = needs.iter().find_map(|node| crate::types::node::check_name(node).err()) {
            return Ok(Err(format!("'needs_fence': {why}")));
        }
        if needs.iter().any(|node| !self.desk.is_proven(node)) {
            // Perhaps another run has proven it since.
            self.read_proofs(now)?;
        }
        self.desk.ask(&asks.about, &needs, now);
        if self.desk.is_asked(&asks.about) {
            self.held.insert(asks.about, (needs.clone(), text.to_owned()));
        } else {
            self.held.remove(&asks.about);
        }
        self.pass(text, &needs, pump).map(Ok)
    }

    /// Passes a record on with the proofs that it needs and that there are. Without them it is what its
    /// writer made it: a record that takes nothing.
    fn pass(&self, text: &str, needs: &[String], pump: &mut Pump) -> Result<(), Failure> {
        let proven = needs.iter().filter(|node| self.desk.is_proven(node));
        let proofs: Vec<Proven> = proven.filter_map(|node| self.told.get(node)).cloned().collect();
        if proofs.is_empty() {
            return pump.stream.pass(text);
        }
        // It was read before, so it reads again.
        pump.stream.pass(&with_proofs(text, &proofs).unwrap_or_else(|_| text.to_owned()))
    }

    /// Starts the fencing of a node beside the stream.
    fn start(&mut self, node: &str) -> Result<(), Failure> {
        let agents = &self.flags.agents;
        let mut words = vec!["off".to_owned(), node.to_owned(), "--once".to_owned()];
        for (flag, values) in [("--agent", &agents.agent), ("--options", &agents.options)] {
            for value in values {
                words.push(format!("{flag}={value}"));
            }
        }
        words.extend(agents.all.then(|| "--all".to_owned()));
        words.extend(agents.via.map(|_| "--via=stonith".to_owned()));
        words.push(format!("--retries={}", agents.retries));
        words.push(format!("--limit={}", agents.limit));
        words.push(format!("--node={}", self.me));
        let life = match self.desk.life(node) {
            Some(life) => Some(life),
            None => heartbeat::last_life(&self.me, node)?,
        };
        words.extend(life.map(|life| format!("--incarnation={life}")));
        if self.flags.tell {
            crate::cli::complain("fence records", &format!("fencing {node}"));
        }
        self.jobs.insert(node.to_owned(), Beside::start(&words)?);
        Ok(())
    }

    /// Hears a fencing out; at its end its record and those that waited for it go on.
    fn hear(&mut self, node: &str, now: Tick, pump: &mut Pump) -> Result<(), Failure> {
        let Some(ended) = self.jobs.get_mut(node).map(Beside::hear).transpose()?.flatten() else { return Ok(()) };
        self.jobs.remove(node);
        let (status, said) = ended;
        self.read_proofs(now)?;
        let proven = status.success() && self.desk.is_proven(node);
        if self.flags.tell && proven {
            let agent = self.told.get(node).map_or("another run", |proven| proven.agent.as_str());
            crate::cli::complain("fence records", &format!("{node} is proven off by {agent}"));
        }
        if !proven {
            self.failed = Some(match status.code() {
                Some(1) => Exit::No,
                Some(5) => Exit::Missing,
                Some(6) => Exit::BadInput,
                _ => Exit::Undecided,
            });
        }
        for line in String::from_utf8_lossy(&said).lines() {
            pump.stream.pass(line)?;
        }
        let waiting = self.desk.done(node, proven, now);
        for about in waiting.iter().filter(|_| proven) {
            if let Some((needs, text)) = self.held.get(about) {
                self.pass(text, needs, pump)?;
            }
        }
        Ok(())
    }

    /// Strikes the proofs that a beat has ended.
    fn forget(&mut self) -> Result<(), Failure> {
        let ended = self.desk.ended();
        if ended.is_empty() {
            return Ok(());
        }
        self.told.retain(|node, _| !ended.contains(node));
        let desk = &self.desk;
        change_proofs(&self.me, Deadline::after(STEP), |proofs| {
            // Unless somebody has proven it again meanwhile.
            proofs.nodes.retain(|node, kept| !ended.contains(node) || desk.holds(node, kept.proof()));
        })
    }
}
