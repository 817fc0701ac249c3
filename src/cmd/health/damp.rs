//! `health damp`: believe a verdict once it has been said often enough, and not what flaps.

use super::MOST_SUBJECTS;
use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Fed, Feed};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::memory::Memory;
use crate::cmd::watch::exit;
use crate::decide::monitor::{Damping, Past};
use crate::record::Head;
use crate::record::health::{DAMP_COLUMNS, DAMP_SCHEMA, Damped, Damping as Remembered, Mapped, Verdict, verdict};
use crate::record::line::{Line, MAX_LINE};
use crate::sys::clock;
use crate::types::status::Status;
use crate::types::time::{Span, millis};
use clap::{ArgMatches, Args};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "damp",
    about: "Pass verdicts on, changed only after they were said often enough; several subjects at once",
    examples: "health tcp 192.0.2.10:80 --follow | health damp --rise 3 --penalty | health score --follow\n\
               health load | health damp --fall 3 --state /run/failover/load.json     each minute from cron",
    args: flags::<Flags>,
    schemas: &[DAMP_SCHEMA],
    columns: DAMP_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Verdicts in a row that make up
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rise: u32,

    /// Verdicts in a row that make down
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    fall: u32,

    /// What went down stays down for D
    #[arg(long, value_name = "D", default_value = "0s")]
    hold: Span,

    /// Keep down what flaps, until its penalty has decayed: 1000 a flap, halved each 15m, down from 2000 to 750
    #[arg(long)]
    penalty: bool,

    /// Remember from run to run
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// End with status 0 whatever was said
    #[arg(long)]
    exit_zero: bool,
}

/// What the envelope of our record holds, so that the line's own is not copied beside it.
const WRITTEN: [&str; 9] = ["kind", "v", "time", "host", "subject", "status", "renewal", "received_ms", "skipped"];

/// What our keys and this node's name add to a line at most.
const OWN_BYTES: usize = 1024;

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let memory = flags.state.clone().map(|path| Memory::new(path, "health-damp", process));
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let subjects = match &memory {
        Some(memory) => memory.read(process, Remembered::read)?.unwrap_or_default(),
        None => BTreeMap::new(),
    };
    let damping = Damping { rise: flags.rise, fall: flags.fall, hold: flags.hold.0, penalty: flags.penalty };
    let mut damper = Damper {
        damping,
        subjects,
        seen: BTreeMap::new(),
        node: process.node.clone(),
        boot_id: clock::boot_id(),
        memory,
        complaints: Complaints::new(&process.who),
    };
    let mut pump = Pump::new(&process.node, process.form)?;
    let outcome = damper.follow(process, &mut pump);
    pump.stream.finish();
    damper.keep()?;
    match outcome {
        Ok(Some(signal)) => return Ok(pump.die(signal)),
        // A reader that left changes no answer.
        Err(failure) if !failure.is_reader_gone() => return Err(failure),
        Ok(None) | Err(_) => {}
    }
    let answer = damper.seen.values().map(|status| exit(*status)).reduce(Exit::and).unwrap_or(Exit::Undecided);
    let answer = if flags.exit_zero { Exit::Yes } else { answer };
    Ok(answer.and(damper.complaints.finish()))
}

struct Damper {
    damping: Damping,
    subjects: BTreeMap<String, Past>,
    /// What was said last of those that were heard of in this run.
    seen: BTreeMap<String, Status>,
    node: String,
    boot_id: String,
    memory: Option<Memory>,
    complaints: Complaints,
}

impl Damper {
    /// Line by line, to the end of input or a signal.
    fn follow(&mut self, process: &Process, pump: &mut Pump) -> Result<Option<Signal>, Failure> {
        let mut feed = Feed::default();
        let stdin = std::io::stdin();
        let end = process.stream_end(None);
        loop {
            match pump.wait(&[stdin.as_fd()], end)? {
                Woken::Signal(signal) => return Ok(Some(signal)),
                Woken::Ready(ready) if !ready.contains(&true) => return Ok(None),
                Woken::Ready(_) => {}
            }
            let lines: Vec<Fed> = feed.take()?;
            for (number, line) in lines {
                match line.and_then(|text| self.take(&text).map(|said| (text, said))) {
                    Ok((text, Some((said, before)))) => {
                        self.tell(&text, &said, before, pump)?;
                        if self.subjects.get(&said.subject).is_some_and(|past| past.status != before.status) {
                            self.keep()?;
                        }
                    }
                    Ok((text, None)) => pump.stream.pass(&text)?,
                    Err(why) => self.complaints.line(number, &why),
                }
                // A line in, a line out: a slow reader slows the writer.
                while pump.stream.is_waiting() {
                    if let Woken::Signal(signal) =
                        pump.wait(&[], Some(clock::boot().after(Duration::from_millis(100))))?
                    {
                        return Ok(Some(signal));
                    }
                }
            }
            if feed.is_ended() {
                return Ok(None);
            }
        }
    }

    /// Takes a verdict in, and gives it back with what was before it; none for another record.
    fn take(&mut self, text: &str) -> Result<Option<(Verdict, Past)>, String> {
        let now = clock::boot();
        let Some(mut said) = verdict(&Line::parse(text)?, &self.node)? else { return Ok(None) };
        if text.len() + OWN_BYTES > MAX_LINE {
            return Err(format!("with what is added to it, it would be longer than {MAX_LINE} bytes"));
        }
        let word = super::standing(&said, &self.boot_id, None, now)?;
        // Of one that is too old nobody knows what has become.
        said.status = if word.expires.is_some_and(|expires| expires <= now) { Status::Unknown } else { word.status };
        if self.subjects.len() >= MOST_SUBJECTS && !self.subjects.contains_key(&said.subject) {
            return Err(format!("there are more than {MOST_SUBJECTS} subjects"));
        }
        let before = self.subjects.get(&said.subject).copied().unwrap_or(Past::new(now));
        // A line that arrived before what is known of its subject goes on, and changes nothing.
        let past = if word.arrived < before.arrived {
            before
        } else {
            Past { arrived: word.arrived, ..before.damp(self.damping, said.status, now) }
        };
        self.seen.insert(said.subject.clone(), past.status);
        self.subjects.insert(said.subject.clone(), past);
        Ok(Some((said, before)))
    }

    /// Writes the line as it leaves.
    fn tell(&self, text: &str, said: &Verdict, before: Past, pump: &mut Pump) -> Result<(), Failure> {
        let past = self.subjects.get(&said.subject).copied().unwrap_or(before);
        let mut head = Head::new("health.damp").about(&said.subject);
        head.status = Some(past.status);
        // The word of the line before a change is no renewal of it.
        head.renewal = said.renewal && past.status == before.status;
        head.received_ms = Some(said.received_ms.unwrap_or_else(|| past.at.as_ms()));
        let own = Damped {
            raw_status: said.status,
            flapping: past.flapping,
            // Cut, not rounded: below the limit it must not read as the limit.
            penalty: (past.penalty * 10.0).floor() / 10.0,
            suppressed_for_ms: past.suppressed_for(self.damping).map(millis),
            changes: past.changes,
        };
        // It was one a moment ago.
        let line = Line::parse(text).map_err(Failure::input)?;
        pump.stream.record(head, &Mapped { own, line: &line, written: &WRITTEN })
    }

    fn keep(&self) -> Result<(), Failure> {
        match &self.memory {
            Some(memory) => memory.write(&Remembered::new(&self.subjects)),
            None => Ok(()),
        }
    }
}
