//! `health score`: what do the verdicts leave of this node's priority?

use super::MOST_SUBJECTS;
use crate::cli::args::{self, flags};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::decider::{self, Concluded, Decider, Deciding, Step};
use crate::cmd::memory::Memory;
use crate::cmd::watch::exit;
use crate::decide::score::{Policy, Service, Tally, Unknown};
use crate::record::Head;
use crate::record::health::{Base, Known, SCORE_COLUMNS, SCORE_SCHEMA, Score, verdict};
use crate::record::line::Line;
use crate::sys::clock;
use crate::sys::state::{folder, standby};
use crate::types::status::Status;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) const VERB: Verb = Verb {
    name: "score",
    about: "Conclude from verdicts what is left of this node's priority; 0 gives the address up",
    examples: "(health link eth0; health tcp 127.0.0.1:80 --retries 1) | health score --policy all\n\
               health tcp 127.0.0.1:80 --follow | health score --follow --brief | heartbeat send --payload - \
               --to 192.0.2.2 --key k\n\
               health score --base 192.0.2.10=200,192.0.2.11=100 --expect web,db --follow < verdicts",
    args: flags::<Flags>,
    schemas: &[SCORE_SCHEMA],
    columns: SCORE_COLUMNS,
    run,
};

/// Bytes that `--base` may take in a record, where it stands twice.
const MOST_BASE: usize = 8 * 1024;

#[derive(Args, Debug)]
struct Flags {
    /// How services that are down lower the priority
    #[arg(long, value_name = "HOW", default_value = "progressive")]
    policy: How,

    /// The priority when all is well, 1 to 255: one number, or one for each VIP
    #[arg(long, value_name = "BP|VIP=BP,...", default_value = "100", value_delimiter = ',', value_parser = base)]
    base: Vec<(Option<String>, u8)>,

    /// What a service counts as that nobody knows about
    #[arg(long, value_name = "AS", default_value = "hold")]
    unknown: CountAs,

    /// Services that count also before anybody has said anything of them
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    expect: Vec<String>,

    /// As a stream, wait so long for a verdict on each that is expected, before the first conclusion
    #[arg(long, value_name = "D", default_value = "15s")]
    settle: Span,

    /// While FILE is there the priority is 0; its text is the reason
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    /// Leave the services out: short enough for a beat
    #[arg(long)]
    brief: bool,

    /// Once, take a record without arrival by its own time, at most so far ahead of ours
    #[arg(long, value_name = "D", default_value = "2s")]
    max_skew: Span,

    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Not at all
    None,
    /// One that is down lowers it to 0
    All,
    /// Only all of them down lower it to 0
    One,
    /// Each takes its part: base x up / total, rounded down, but at least 1 while one is up
    Progressive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CountAs {
    /// Its last verdict until that expires, then down
    Hold,
    /// Down at once
    Down,
    /// Up
    Up,
}

fn base(text: &str) -> Result<(Option<String>, u8), String> {
    let (vip, number) = text.split_once('=').map_or((None, text), |(vip, number)| (Some(vip.to_owned()), number));
    if vip.as_ref().is_some_and(String::is_empty) {
        return Err(format!("'{text}' names no VIP"));
    }
    let number = number.parse().ok().filter(|number| *number > 0 && !text.contains('+'));
    number.map(|number| (vip, number)).ok_or_else(|| format!("'{text}' is not a priority from 1 to 255"))
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    let memory = flags.deciding.memory("health-score", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut scorer = Scorer::new(&flags, memory, process)?;
    decider::run(&mut scorer, &flags.deciding, process)
}

/// What was concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Conclusion {
    tally: Tally,
    priority: Option<u8>,
    priorities: Option<BTreeMap<String, u8>>,
    standby: Option<String>,
}

impl Conclusion {
    fn status(&self) -> Status {
        let highest = self.priority.or(self.priorities.as_ref().and_then(|each| each.values().max().copied()));
        match highest {
            None => Status::Unknown,
            Some(0) => Status::Down,
            Some(_) => Status::Up,
        }
    }

    /// Whether it says something else than `other`; how long it holds changes with every record.
    fn is_news(&self, other: &Conclusion) -> bool {
        let settled = |conclusion: &Conclusion| Conclusion {
            tally: Tally { until: None, ..conclusion.tally.clone() },
            ..conclusion.clone()
        };
        settled(self) != settled(other)
    }
}

struct Scorer<'a> {
    flags: &'a Flags,
    policy: Policy,
    unknown: Unknown,
    base: Base,
    services: BTreeMap<String, Service>,
    node: String,
    boot_id: String,
    memory: Option<Memory>,
    /// What a stream said last, and when.
    told: Option<(Conclusion, Tick)>,
    /// When it concludes whoever has not been told of.
    settled: Tick,
}

impl<'a> Scorer<'a> {
    fn new(flags: &'a Flags, memory: Option<Memory>, process: &Process) -> Result<Self, Failure> {
        let each: BTreeMap<String, u8> =
            flags.base.iter().filter_map(|(vip, number)| Some((vip.clone()?, *number))).collect();
        let base = match flags.base.as_slice() {
            [(None, number)] => Base::One(*number),
            several if each.len() == several.len() => Base::Each(each),
            _ => return Err(Failure::usage("--base: one number, or VIP=BP,... with each VIP once")),
        };
        // It stands in every record, beside the services.
        if flags.base.iter().map(|(vip, _)| vip.as_ref().map_or(0, String::len) + 10).sum::<usize>() > MOST_BASE {
            return Err(Failure::usage(format!("--base: the names of the VIPs are longer than {MOST_BASE} bytes")));
        }
        let mut services = match &memory {
            Some(memory) => memory.read(process, Known::read)?.unwrap_or_default(),
            None => BTreeMap::new(),
        };
        for name in &flags.expect {
            services.entry(name.clone()).or_insert(Service::SILENT);
        }
        Ok(Scorer {
            policy: match flags.policy {
                How::None => Policy::None,
                How::All => Policy::All,
                How::One => Policy::One,
                How::Progressive => Policy::Progressive,
            },
            unknown: match flags.unknown {
                CountAs::Hold => Unknown::Hold,
                CountAs::Down => Unknown::Down,
                CountAs::Up => Unknown::Up,
            },
            base,
            services,
            node: process.node.clone(),
            boot_id: clock::boot_id(),
            memory,
            told: None,
            settled: clock::boot().after(flags.settle.0),
            flags,
        })
    }

    fn conclude(&self, now: Tick) -> Result<Conclusion, Failure> {
        let tally = Tally::new(&self.services, self.unknown, now);
        let file = self.flags.standby.as_deref();
        let rest = standby(file, None)?;
        let priority = |base: u8, rests: bool| {
            if rests { Some(0) } else { tally.priority(self.policy, self.unknown, base) }
        };
        let (one, each) = match &self.base {
            Base::One(base) => (priority(*base, rest.is_some()), None),
            Base::Each(bases) => {
                let mut each = BTreeMap::new();
                for (vip, base) in bases {
                    if let Some(priority) = priority(*base, standby(file, Some(vip))?.is_some()) {
                        each.insert(vip.clone(), priority);
                    }
                }
                (None, Some(each).filter(|each| !each.is_empty()))
            }
        };
        Ok(Conclusion { tally, priority: one, priorities: each, standby: rest.map(|rest| rest.reason) })
    }

    fn record(&self, conclusion: &Conclusion, node: &str, renewal: bool, now: Tick) -> (Head, Score) {
        let mut head = Head::new("health.score").about(node);
        head.status = Some(conclusion.status());
        head.renewal = renewal;
        head.valid_for_ms = conclusion.tally.until.map(|until| millis(until.since(now)));
        head.received_ms = Some(now.as_ms());
        head.boot_id = (!self.flags.deciding.follow).then(|| self.boot_id.clone()).filter(|id| !id.is_empty());
        head.standby.clone_from(&conclusion.standby);
        let mut score = Score::new(self.policy.as_str(), self.base.clone(), &conclusion.tally, self.flags.brief);
        score.priority = conclusion.priority;
        score.priorities.clone_from(&conclusion.priorities);
        (head, score)
    }

    fn keep(&self) -> Result<(), Failure> {
        match &self.memory {
            Some(memory) => memory.write(&Known::new(&self.services)),
            None => Ok(()),
        }
    }

    /// Whether there is something to conclude from: each expected service was told of, or enough time
    /// has passed. A node that has just started must not give up what it does not know about yet.
    fn is_settled(&self, now: Tick) -> bool {
        let told = !self.services.is_empty() && self.services.values().all(Service::was_known);
        now >= self.settled || told || self.unknown != Unknown::Hold
    }

    /// When it speaks again without news.
    fn again(&self) -> Tick {
        self.told.as_ref().map_or(self.settled, |(_, at)| at.after(self.flags.deciding.renew.0))
    }
}

impl Decider for Scorer<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let Some(said) = verdict(&Line::parse(text)?, &self.node)? else { return Ok(false) };
        if self.services.len() >= MOST_SUBJECTS && !self.services.contains_key(&said.subject) {
            return Err(format!("there are more than {MOST_SUBJECTS} subjects"));
        }
        let skew = (!self.flags.deciding.follow).then_some(self.flags.max_skew.0);
        let word = super::standing(&said, &self.boot_id, skew, now)?;
        let counts = self.services.entry(said.subject).or_insert(Service::SILENT).note(word);
        Ok(said.renewal && counts)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        let now = clock::boot();
        let conclusion = self.conclude(now)?;
        let (head, record) = self.record(&conclusion, &process.node, false, now);
        process.out.record(&head, &record)?;
        self.keep()?;
        Ok(exit(conclusion.status()))
    }

    fn watched(&self) -> Vec<PathBuf> {
        vec![self.flags.standby.clone().unwrap_or_else(|| folder().join("standby"))]
    }

    fn first(&self) -> Option<Tick> {
        Some(self.settled)
    }

    fn step(&mut self, step: Step, process: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let now = step.now;
        let conclusion = self.conclude(now)?;
        if step.over || conclusion.standby.is_some() || self.is_settled(now) {
            let news = self.told.as_ref().is_none_or(|(before, _)| conclusion.is_news(before));
            if news || step.renewal || now >= self.again() {
                let (head, record) = self.record(&conclusion, &process.node, !news, now);
                stream.record(head, &record)?;
                self.told = Some((conclusion, now));
            } else if let Some((before, _)) = &mut self.told {
                before.tally.until = conclusion.tally.until;
            }
            if news {
                self.keep()?;
            }
        }
        let told = self.told.as_ref().map(|(conclusion, _)| conclusion);
        let status = told.map_or(Status::Unknown, Conclusion::status);
        let expiry = told.and_then(|told| told.tally.until);
        Ok(Concluded { exit: exit(status), wake: Some(expiry.map_or(self.again(), |at| at.min(self.again()))) })
    }

    /// A score is no right to anything: it expires.
    fn last_word(&mut self, _: &mut Stream) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_outside_1_to_255_is_refused() {
        for (text, read) in [
            ("100", Some((None, 100))),
            ("192.0.2.1=255", Some((Some("192.0.2.1".to_owned()), 255))),
            ("2001:db8::1=1", Some((Some("2001:db8::1".to_owned()), 1))),
            ("0", None),
            ("256", None),
            ("-1", None),
            ("+1", None),
            ("192.0.2.1=0", None),
            ("=1", None),
            ("", None),
        ] {
            assert_eq!(base(text).ok(), read, "{text}");
        }
    }
}
