//! `gw split`: verdicts about gateways in, the plan out.

use super::{Gateways, MOST};
use crate::cli::args::{self, flags};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::decider::{self, Concluded, Decider, Deciding, Step};
use crate::cmd::memory::Memory;
use crate::cmd::verdicts::Verdicts;
use crate::decide::gw::{self, Candidate, Redistribute, SLOTS};
use crate::record::Head;
use crate::record::gw::{Moved, Piece, Remembered, SPLIT_COLUMNS, SPLIT_SCHEMA, Split, read_object, reason};
use crate::record::health::verdict;
use crate::record::line::Line;
use crate::sys::clock;
use crate::sys::state::{folder, standby_of};
use crate::types::gateway::{Gateway, Marks};
use crate::types::status::Status;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::path::PathBuf;

pub(super) const VERB: Verb = Verb {
    name: "split",
    about: "Conclude from verdicts about gateways how new flows are split over them",
    examples: "(health ping 192.0.2.53 --name 192.0.2.1; health ping 192.0.2.54 --name 192.0.2.2) | \
               gw split --gateway 192.0.2.1,weight=0.3 --gateway 192.0.2.2,weight=0.7\n\
               ... | gw split --gateways gateways.jsonl --state split.json --table        each minute from cron",
    args: flags::<Flags>,
    schemas: &[SPLIT_SCHEMA],
    columns: SPLIT_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    #[command(flatten)]
    gateways: Gateways,

    /// What the plan is called
    #[arg(long, value_name = "NAME", default_value = "-")]
    name: String,

    /// Who gets the share of a gateway that is dead
    #[arg(long, value_name = "TO", default_value = "nearest")]
    redistribute: To,

    /// The bits of a mark that are ours
    #[arg(long, value_name = "MASK", default_value_t = Marks::USUAL)]
    mark_mask: Marks,

    /// While FILE.GATEWAY (by default standby.GATEWAY), by address or name, is there that gateway gets no new flows
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    /// Once, take a record without arrival by its own time, at most so far ahead of ours
    #[arg(long, value_name = "D", default_value = "2s")]
    max_skew: Span,

    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// The nearest living one in the order given, of two the earlier
    Nearest,
    /// All living ones, in proportion
    Proportional,
    /// The living ones of the next tier, in proportion
    NextTier,
}

impl To {
    fn how(self) -> Redistribute {
        match self {
            To::Nearest => Redistribute::Nearest,
            To::Proportional => Redistribute::Proportional,
            To::NextTier => Redistribute::NextTier,
        }
    }
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    let gateways = flags.gateways.all()?;
    let memory = flags.deciding.memory("gw-split", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut splitter = Splitter::new(&flags, gateways, memory, process)?;
    decider::run(&mut splitter, &flags.deciding, process)
}

struct Splitter<'a> {
    flags: &'a Flags,
    /// Whether the gateways are those that records of `gw probe` describe.
    learns: bool,
    gateways: Vec<Gateway>,
    verdicts: Verdicts,
    remembered: Remembered,
    kept: Remembered,
    memory: Option<Memory>,
    /// What a stream said last, and when.
    said: Option<Split>,
    said_at: Tick,
}

impl<'a> Splitter<'a> {
    fn new(
        flags: &'a Flags,
        gateways: Vec<Gateway>,
        memory: Option<Memory>,
        process: &Process,
    ) -> Result<Self, Failure> {
        let kept: Option<Remembered> = match &memory {
            Some(memory) => memory.read(process, Ok)?,
            None => None,
        };
        let kept = kept.unwrap_or_default();
        Ok(Splitter {
            flags,
            learns: gateways.is_empty(),
            gateways,
            verdicts: Verdicts::new(process, flags.deciding.follow, flags.max_skew),
            remembered: kept.clone(),
            kept,
            memory,
            said: None,
            said_at: clock::boot(),
        })
    }

    fn conclude(&mut self, now: Tick) -> Result<(Split, Exit), Failure> {
        let subjects: Vec<String> = self.gateways.iter().map(Gateway::subject).collect();
        let mut candidates = Vec::new();
        let mut words = Vec::new();
        for (gateway, subject) in self.gateways.iter().zip(&subjects) {
            let status = self.verdicts.status(subject, now);
            let before = self.remembered.up.get(subject).map(|up| if *up { Status::Up } else { Status::Down });
            let lives = gw::is_alive(status, before);
            if status != Status::Unknown {
                self.remembered.up.insert(subject.clone(), lives);
            }
            // By its address, or by the name that a person knows it by.
            let mut rests = false;
            for known_as in [Some(subject), gateway.name.as_ref()].into_iter().flatten() {
                rests |= standby_of(self.flags.standby.as_deref(), known_as)?.is_some();
            }
            words.push(if rests { "standby" } else { status.as_str() });
            candidates.push(Candidate { weight: gateway.weight.0, tier: gateway.tier, alive: lives && !rests });
        }
        let plan = gw::split(&candidates, self.flags.redistribute.how());
        let marks = self.flags.mark_mask;
        let known: Vec<Option<u32>> =
            subjects.iter().map(|subject| self.remembered.numbers.get(subject).copied()).collect();
        // Another split of this host may have the state in common, and other gateways.
        let others = self.remembered.numbers.iter().filter(|(subject, _)| !subjects.contains(subject));
        let taken: Vec<u32> = others.map(|(_, number)| *number).collect();
        let mut numbers = gw::number(&known, &taken, marks.most_gateways());
        if numbers.contains(&None) {
            self.remembered.numbers.retain(|subject, _| subjects.contains(subject));
            numbers = gw::number(&known, &[], marks.most_gateways());
        }
        let mut pieces = Vec::new();
        for (at, (gateway, subject)) in self.gateways.iter().zip(&subjects).enumerate() {
            let number = numbers[at].ok_or_else(|| {
                Failure::usage(format!("{} gateways are more than the mask has marks for", self.gateways.len()))
            })?;
            self.remembered.numbers.insert(subject.clone(), number);
            let range = plan.ranges[at].as_ref();
            pieces.push(Piece {
                gateway: subject.clone(),
                name: gateway.name.clone(),
                dev: gateway.dev.clone(),
                status: words[at],
                weight: gateway.weight.0,
                share: f64::from(gw::len(range)) / f64::from(SLOTS),
                slots: range.map(|range| [*range.start(), *range.end()]),
                mark: format!("{:#010x}", marks.gateway(number)),
                table: marks.table(marks.gateway(number)),
            });
        }
        let moved = plan.moved.iter().map(|moved| Moved {
            from: subjects[moved.from].clone(),
            to: subjects[moved.to].clone(),
            slots: moved.slots,
        });
        let split = Split { slots: SLOTS, mark_mask: marks.to_string(), gateways: pieces, moved: moved.collect() };
        let exit = if split.gateways.iter().any(|piece| piece.slots.is_some()) {
            Exit::Yes
        } else if words.iter().all(|word| *word == Status::Unknown.as_str()) {
            Exit::Undecided
        } else {
            Exit::No
        };
        Ok((split, exit))
    }

    fn keep(&mut self) -> Result<(), Failure> {
        if let Some(memory) = &self.memory {
            memory.keep(&mut self.kept, &self.remembered)?;
        }
        Ok(())
    }

    fn head(&self, now: Tick, renewal: bool) -> Head {
        let mut head = Head::new("gw.split").about(&self.flags.name);
        head.received_ms = Some(now.as_ms());
        head.renewal = renewal;
        head.valid_for_ms = self.flags.deciding.follow.then(|| millis(self.flags.deciding.renew.0 * 3));
        head
    }
}

impl Decider for Splitter<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let line = Line::parse(text)?;
        let Some(mut said) = verdict(&line, self.verdicts.node())? else { return Ok(false) };
        if self.learns && line.get::<String>("kind")?.as_deref() == Some("gw.probe") {
            let gateway = read_object(&line)?;
            match self.gateways.iter().position(|known| known.subject() == gateway.subject()) {
                Some(at) => self.gateways[at] = gateway,
                None if self.gateways.len() < MOST => self.gateways.push(gateway),
                None => return Err(format!("there are more than {MOST} gateways")),
            }
        }
        if !self.gateways.iter().any(|gateway| gateway.subject() == said.subject) {
            return Ok(false);
        }
        // Whoever cannot even be asked forwards nothing.
        if said.status == Status::Unknown && reason(&line)?.as_deref() == Some(Reason::NoSuchInterface.slug()) {
            said.status = Status::Down;
        }
        self.verdicts.take(&said.subject, &said, now)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        if self.gateways.is_empty() {
            process.complain("no gateway was heard of: nothing is concluded (name them: --gateways FILE)");
            return Ok(Exit::Undecided);
        }
        let now = clock::boot();
        let (split, exit) = self.conclude(now)?;
        process.out.record(&self.head(now, false), &split)?;
        self.keep()?;
        Ok(exit)
    }

    fn watched(&self) -> Vec<PathBuf> {
        vec![self.flags.standby.clone().unwrap_or_else(|| folder().join("standby"))]
    }

    fn first(&self) -> Option<Tick> {
        Some(self.said_at.after(self.flags.deciding.renew.0))
    }

    fn step(&mut self, step: Step, _: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let (now, renew) = (step.now, self.flags.deciding.renew.0);
        let again = |said_at: Tick| Some(said_at.after(renew));
        if self.gateways.is_empty() {
            self.said_at = now;
            return Ok(Concluded { exit: Exit::Undecided, wake: again(now) });
        }
        let (split, exit) = self.conclude(now)?;
        let news = self.said.as_ref() != Some(&split);
        if news || step.renewal || now.since(self.said_at) >= renew {
            stream.record(self.head(now, !news), &split)?;
            self.said_at = now;
        }
        if news {
            self.keep()?;
        }
        self.said = Some(split);
        let ends = self.verdicts.ends(now);
        Ok(Concluded { exit, wake: ends.chain(again(self.said_at)).min() })
    }

    /// A plan is no right to anything: what stands goes on.
    fn last_word(&mut self, _: &mut Stream) -> Result<(), Failure> {
        Ok(())
    }
}
