//! What all deciders are: lines in, and a conclusion at their end, or after each step of a stream.

use super::memory::Memory;
use crate::cli::input::{Complaints, Feed};
use crate::cli::stream::{Pump, Stream, Woken};
use crate::cli::{Exit, Failure, Process};
use crate::record::line::Line;
use crate::sys::clock;
use crate::sys::event::Sources;
use crate::sys::watch::{self, Watch};
use crate::types::time::{Span, Tick};
use clap::Args;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

/// A shorter time between repetitions floods whoever reads.
const LEAST_RENEW: Duration = Duration::from_millis(10);

/// The flags of all deciders.
#[derive(Args, Debug)]
pub(super) struct Deciding {
    /// Remember from run to run
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,

    /// Conclude after each step of the input, and print what changed
    #[arg(long)]
    pub(super) follow: bool,

    /// Repeat the conclusion at least every D, for as long as what it rests on holds
    #[arg(long, value_name = "D", default_value = "1s")]
    pub(super) renew: Span,

    /// End after D with the status of the last conclusion
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    /// Copy each line of input first
    #[arg(long)]
    pass: bool,

    /// End with status 0 whatever was concluded
    #[arg(long)]
    exit_zero: bool,
}

impl Deciding {
    /// # Errors
    /// A usage that clap cannot see.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.renew.0 < LEAST_RENEW {
            return Err(Failure::usage("--renew must be 10ms or more: each repetition is a record that others read"));
        }
        Ok(())
    }

    /// Where it remembers, if it does.
    pub(super) fn memory(&self, command: &'static str, process: &Process) -> Option<Memory> {
        let memory = self.state.clone().map(|path| Memory::new(path, command, process));
        if self.follow { memory.map(|memory| memory.of_stream(process)) } else { memory }
    }
}

/// One step of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) now: Tick,
    /// A line was taken in.
    pub(super) fed: bool,
    /// One of them renewed something that counts.
    pub(super) renewal: bool,
    /// There is no further one.
    pub(super) over: bool,
}

/// What a step of a stream has led to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Concluded {
    pub(super) exit: Exit,
    /// When time alone leads to another step.
    pub(super) wake: Option<Tick>,
}

/// A command that concludes from records.
pub(super) trait Decider {
    /// Takes one line in; says whether it renewed something that counts.
    ///
    /// # Errors
    /// Why the line is malformed.
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String>;

    /// The only conclusion, after the last line, printed and remembered.
    ///
    /// # Errors
    /// It cannot be drawn, printed or remembered.
    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure>;

    /// Files whose change is a step too.
    fn watched(&self) -> Vec<PathBuf>;

    /// When the first step comes at the latest.
    fn first(&self) -> Option<Tick>;

    /// A conclusion of a stream, printed and remembered where it is news or to be repeated.
    ///
    /// # Errors
    /// It cannot be drawn, printed or remembered.
    fn step(&mut self, step: Step, process: &Process, stream: &mut Stream) -> Result<Concluded, Failure>;

    /// The end of a stream. Nobody hears this node's conclusions any more: it must not be taken for one
    /// that goes on with what it may do.
    ///
    /// # Errors
    /// It cannot be printed.
    fn last_word(&mut self, stream: &mut Stream) -> Result<(), Failure>;
}

/// Runs a decider to the end of its input.
///
/// # Errors
/// A failure of the system, or of the decider.
pub(super) fn run(decider: &mut impl Decider, flags: &Deciding, process: &mut Process) -> Result<Exit, Failure> {
    let exit = if flags.follow { follow(decider, flags, process)? } else { once(decider, flags, process)? };
    Ok(if flags.exit_zero && matches!(exit, Exit::No | Exit::Undecided) { Exit::Yes } else { exit })
}

fn once(decider: &mut impl Decider, flags: &Deciding, process: &mut Process) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new(&process.who);
    let (mut feed, stdin) = (Feed::default(), std::io::stdin());
    let end = process.stream_end(None);
    while !feed.is_ended() {
        let mut sources = Sources::default();
        sources.readable(stdin.as_fd());
        if !sources.wait(end)? {
            process.complain(
                "the input did not end in the time given: nothing is concluded (allow longer with --timeout)",
            );
            return Ok(Exit::Undecided);
        }
        for (number, line) in feed.take()? {
            let taken = match &line {
                Ok(text) => {
                    if flags.pass && Line::parse(text).is_ok() {
                        process.out.whole_lines(format!("{text}\n").as_bytes())?;
                    }
                    decider.take(text, clock::boot()).map(drop)
                }
                Err(why) => Err(why.clone()),
            };
            if let Err(why) = taken {
                complaints.line(number, &why);
            }
        }
    }
    let malformed = complaints.finish();
    Ok(decider.once(process)?.and(malformed))
}

fn follow(decider: &mut impl Decider, flags: &Deciding, process: &mut Process) -> Result<Exit, Failure> {
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let mut exit = Exit::Undecided;
    let outcome = follow_on(decider, flags, process, &mut pump, &mut complaints, &mut exit);
    pump.stream.finish();
    match outcome {
        // A reader that left changes no answer.
        Err(failure) if !failure.is_reader_gone() => Err(failure),
        _ => Ok(exit.and(complaints.finish())),
    }
}

/// Concludes after each step of the input, and keeps the status of the last conclusion in `exit`.
fn follow_on(
    decider: &mut impl Decider,
    flags: &Deciding,
    process: &Process,
    pump: &mut Pump,
    complaints: &mut Complaints,
    exit: &mut Exit,
) -> Result<(), Failure> {
    let watched: Vec<PathBuf> = decider.watched().into_iter().filter(|path| watch::has_folder(path)).collect();
    let mut watch = Watch::new(&watched)?;
    let (mut feed, stdin) = (Feed::default(), std::io::stdin());
    let end = process.stream_end(flags.duration);
    let mut wake = decider.first();
    let caught = loop {
        let woken = pump.wait(&[stdin.as_fd(), watch.as_fd()], [wake, end].into_iter().flatten().min())?;
        let ready = match woken {
            Woken::Ready(ready) => ready,
            Woken::Signal(signal) => break Some(signal),
        };
        let mut step = Step { now: clock::boot(), fed: false, renewal: false, over: false };
        if ready.first() == Some(&true) {
            for (number, line) in feed.take()? {
                let text = match line {
                    Ok(text) => text,
                    Err(why) => {
                        complaints.line(number, &why);
                        continue;
                    }
                };
                if flags.pass && Line::parse(&text).is_ok() {
                    pump.stream.pass(&text)?;
                }
                match decider.take(&text, step.now) {
                    Ok(renewal) => (step.fed, step.renewal) = (true, step.renewal | renewal),
                    Err(why) => complaints.line(number, &why),
                }
            }
        }
        if ready.get(1) == Some(&true) || watch.is_blind() {
            watch.changed();
        }
        step.over = feed.is_ended() || end.is_some_and(|end| step.now >= end);
        let concluded = decider.step(step, process, &mut pump.stream)?;
        (*exit, wake) = (concluded.exit, concluded.wake);
        if step.over {
            break None;
        }
    };
    decider.last_word(&mut pump.stream)?;
    if let Some(signal) = caught {
        pump.die(signal);
    }
    Ok(())
}
