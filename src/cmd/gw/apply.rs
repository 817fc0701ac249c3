//! `gw apply`: make the kernel split new flows as planned.

use super::clear::clear;
use super::kernel::{Done, How, Kernel};
use crate::cli::args::{self, Changing, flags};
use crate::cli::input::{Complaints, Feed, Got, Lines};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::Head;
use crate::record::envelope::Nothing;
use crate::record::gw_apply::{APPLY_COLUMNS, APPLY_SCHEMA, CLEAR_SCHEMA, Plan, read_plan};
use crate::record::line::Line;
use crate::sys::clock::{self, Deadline};
use crate::sys::netlink::{Change, Netlink};
use crate::sys::nft::{Monitor, changed_by_others};
use crate::types::gateway::{Marks, TABLES};
use crate::types::net::Prefix;
use crate::types::time::Span;
use crate::wire::nft::gateway::{By, Flows, Match, table_name};
use clap::{ArgMatches, Args, ValueEnum};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "apply",
    about: "Make the kernel split new flows as the plans on standard input say",
    examples: "gw probe --gateways gateways.jsonl | gw split --state split.json | gw apply --flush-dead    each minute\n\
               gw probe ... --follow | gw split --follow | gw apply --follow       at once\n\
               gw split ... --name voip | gw apply --match udp:5060-5061,dscp:46   these flows by gateways of their own\n\
               gw apply --by client --exclude 10.0.0.0/8 < plan.json               a client keeps its gateway\n\
               gw apply --dry-run < plan.json                                      what would be changed?",
    args: flags::<Flags>,
    schemas: &[APPLY_SCHEMA, CLEAR_SCHEMA],
    columns: APPLY_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// What decides which gateway a new flow gets
    #[arg(long, value_name = "WHAT", default_value = "flow")]
    by: Word,

    /// Forget the connections of gateways that are dead or have left, so that they begin anew by another
    #[arg(long)]
    flush_dead: bool,

    /// Leave flows alone that have their source or destination in these
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    exclude: Vec<Prefix>,

    /// Split flows alone that have their source or destination in these
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',')]
    only: Option<Vec<Prefix>>,

    /// Split flows of these kinds alone: tcp, udp, tcp:443, udp:5060-5061, dscp:46
    #[arg(long = "match", value_name = "KIND,...", value_delimiter = ',')]
    matches: Vec<Match>,

    /// Split what this host itself opens too
    #[arg(long)]
    local: bool,

    /// Go on: carry out each plan as it comes, and mend what others take away
    #[arg(long)]
    follow: bool,

    /// What the end of input means with --follow
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    on_eof: OnEof,

    /// End after D
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    #[command(flatten)]
    changing: Changing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// Chance
    Flow,
    /// Its source address
    Client,
    /// Both addresses
    ClientDestination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnEof {
    /// Leave what stands
    Keep,
    /// Take everything away that was applied
    Release,
}

/// How long one step may take: a lock, a listing, a commit beside a large rule set.
const STEP: Duration = Duration::from_secs(5);
const DOING: &str = "split flows on";

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if flags.follow && flags.changing.dry_run {
        return Err(Failure::usage("--dry-run tells what one step would change: leave out --follow"));
    }
    let deadline = if flags.follow { Deadline::after(STEP) } else { process.deadline(Duration::ZERO) };
    let kernel = Kernel::open(DOING, deadline)?;
    let by = match flags.by {
        Word::Flow => By::Flow,
        Word::Client => By::Client,
        Word::ClientDestination => By::ClientDestination,
    };
    let how = How {
        by,
        flows: Flows { exclude: flags.exclude, only: flags.only, matches: flags.matches, local: flags.local },
        flush_dead: flags.flush_dead,
        changing: flags.changing,
    };
    if flags.follow {
        follow(kernel, &how, (flags.on_eof, flags.duration), process)
    } else {
        once(kernel, &how, deadline, process)
    }
}

/// The newest plan of each subject.
type Plans = BTreeMap<String, Plan>;

fn take(text: &str, node: &str, plans: &mut Plans) -> Result<bool, String> {
    let Some(plan) = read_plan(&Line::parse(text)?, node)? else { return Ok(false) };
    plans.insert(plan.name.clone(), plan);
    Ok(true)
}

fn once(mut kernel: Kernel, how: &How, deadline: Deadline, process: &mut Process) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new(&process.who);
    let (mut plans, mut lines) = (Plans::new(), Lines::stdin());
    while let Some(got) = lines.next()? {
        match got {
            Got::Line(number, text) => {
                if let Err(why) = take(text, &process.node, &mut plans) {
                    complaints.line(number, &why);
                }
            }
            Got::Malformed(number, why) => complaints.line(number, &why),
        }
    }
    let malformed = complaints.finish();
    if plans.is_empty() {
        if malformed == Exit::Yes {
            process.complain("no plan was read: nothing is changed (see: gw split)");
        }
        return Ok(malformed.and(Exit::Undecided));
    }
    let mut exit = malformed;
    for plan in plans.values() {
        let done = expired(plan).map_or(Ok(()), Err).and_then(|()| kernel.carry_out(plan, how, process, deadline));
        match done {
            Ok(done) => {
                if let Some(why) = complaint(plan, &done) {
                    process.complain(&why);
                }
                process.out.record(&done.head, &done.applied)?;
                exit = exit.and(done.exit);
            }
            Err(failure) => {
                process.complain(&failure.sentence);
                process.out.record(&failed(plan, &failure, how), &Nothing {})?;
                exit = exit.and(failure.exit);
            }
        }
    }
    Ok(exit)
}

/// Why a plan that was kept somewhere is no longer one.
fn expired(plan: &Plan) -> Option<Failure> {
    let is_of_this_boot = plan.boot_id.as_ref().is_none_or(|boot| *boot == clock::boot_id());
    let is_over = plan.until_ms.is_some_and(|until| until < clock::boot().as_ms());
    (is_over || !is_of_this_boot).then(|| {
        let why = format!("cannot split by the plan {}: it has expired (is gw split running?)", plan.name);
        Failure::new(Exit::Undecided, Reason::TimedOut, why)
    })
}

/// What a person should know of a plan that was taken.
fn complaint(plan: &Plan, done: &Done) -> Option<String> {
    match &done.missing {
        Some(failure) => Some(format!("{}; others have its share", failure.sentence)),
        None => (done.exit == Exit::No)
            .then(|| format!("no gateway has a share in the plan {}: what stands goes on", plan.name)),
    }
}

fn failed(plan: &Plan, failure: &Failure, how: &How) -> Head {
    let mut head = Head::new("gw.apply").about(&plan.name);
    head.dry_run = how.changing.dry_run;
    head.error = Some(failure.body());
    head
}

/// Why a stream has ended.
enum Ended {
    /// No more input.
    Input,
    /// At `--for` or `--timeout`.
    Time,
    Signal(Signal),
    /// Nobody reads the records any more.
    Reader,
}

/// What goes on in a stream.
struct Following<'a> {
    kernel: Kernel,
    how: &'a How,
    plans: Plans,
    /// Tell of what others change.
    routes: Netlink,
    rules: Monitor,
    /// What each plan failed with when that was told.
    told: BTreeMap<String, String>,
}

fn follow(
    kernel: Kernel,
    how: &How,
    (on_eof, duration): (OnEof, Option<Span>),
    process: &mut Process,
) -> Result<Exit, Failure> {
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let (routes, rules) = (Netlink::monitor_with_routes()?, Monitor::open()?);
    let mut following = Following { kernel, how, plans: Plans::new(), routes, rules, told: BTreeMap::new() };
    let ended = match following.run(duration, process, &mut pump, &mut complaints) {
        Err(failure) if failure.is_reader_gone() => Ended::Reader,
        ended => ended?,
    };
    let planned = matches!(ended, Ended::Time) && duration.is_some();
    if on_eof == OnEof::Release && !planned {
        following.release(process, &mut pump)?;
    }
    let exit = match ended {
        Ended::Signal(signal) => pump.die(signal),
        _ if planned => Exit::Yes,
        _ => Exit::No,
    };
    pump.stream.finish();
    Ok(exit.and(complaints.finish()))
}

impl Following<'_> {
    fn run(
        &mut self,
        duration: Option<Span>,
        process: &Process,
        pump: &mut Pump,
        complaints: &mut Complaints,
    ) -> Result<Ended, Failure> {
        let (mut feed, stdin) = (Feed::default(), std::io::stdin());
        let end = process.stream_end(duration);
        loop {
            let woken = pump.wait(&[stdin.as_fd(), self.routes.as_fd(), self.rules.as_fd()], end)?;
            let ready = match woken {
                Woken::Ready(ready) => ready,
                Woken::Signal(signal) => return Ok(Ended::Signal(signal)),
            };
            let mut news = self.is_disturbed()?;
            if ready.first() == Some(&true) {
                for (number, line) in feed.take()? {
                    match line.and_then(|text| take(&text, &process.node, &mut self.plans)) {
                        Ok(is_plan) => news |= is_plan,
                        Err(why) => complaints.line(number, &why),
                    }
                }
            }
            if news {
                self.carry_out(process, pump)?;
            }
            if feed.is_ended() {
                return Ok(Ended::Input);
            }
            if end.is_some_and(|end| clock::boot() >= end) {
                return Ok(Ended::Time);
            }
        }
    }

    /// Whether something was changed that plans rest on. Our own changes are heard as well, and looked at once
    /// more: somebody else may have changed something right behind them.
    fn is_disturbed(&mut self) -> Result<bool, Failure> {
        let routes = self.routes.changes()?.into_iter().any(|change| match change {
            Change::Route { route, .. } => (TABLES + 1..=TABLES + Marks::PROBES).contains(&route.table),
            // By which a gateway may be reached, or no longer.
            Change::Link { .. } | Change::Address { .. } | Change::Overrun => true,
        });
        let heard = self.rules.heard()?;
        let rules = self.plans.keys().any(|name| changed_by_others(&heard, &table_name(name), None));
        Ok((routes || rules) && !self.plans.is_empty())
    }

    fn carry_out(&mut self, process: &Process, pump: &mut Pump) -> Result<(), Failure> {
        for plan in self.plans.values() {
            match self.kernel.carry_out(plan, self.how, process, Deadline::after(STEP)) {
                Ok(done) => {
                    let why = complaint(plan, &done);
                    let is_news = why.is_some() && self.told.get(&plan.name) != why.as_ref();
                    if let Some(why) = why.as_ref().filter(|_| is_news) {
                        process.complain(why);
                    }
                    match why {
                        Some(why) => self.told.insert(plan.name.clone(), why),
                        None => self.told.remove(&plan.name),
                    };
                    if is_news || done.head.changed == Some(true) {
                        pump.stream.record(done.head, &done.applied)?;
                    }
                }
                // Tried again with the next plan or change.
                Err(failure) => {
                    let known = self.told.insert(plan.name.clone(), failure.sentence.clone());
                    if known.as_ref() != Some(&failure.sentence) {
                        process.complain(&failure.sentence);
                        pump.stream.record(failed(plan, &failure, self.how), &Nothing {})?;
                    }
                }
            }
        }
        Ok(())
    }

    fn release(&mut self, process: &Process, pump: &mut Pump) -> Result<(), Failure> {
        for name in self.plans.keys() {
            let (head, cleared) =
                clear(&mut self.kernel, Some(name), self.how.changing, process, Deadline::after(STEP))?;
            match pump.stream.record(head, &cleared) {
                Err(failure) if !failure.is_reader_gone() => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }
}
