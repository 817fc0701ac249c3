//! `quorum`: what does the majority say?

use super::decider::{self, Concluded, Decider, Deciding, Step};
use super::fence;
use super::heartbeat;
use super::life;
use super::memory::Memory;
use crate::cli::args::{self, YesNo, flags};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Tool, Verb, Verbs};
use crate::decide::quorum::{Conclusion, Reports, Said, Settings, Verdict};
use crate::record::Head;
use crate::record::line::Line;
use crate::record::quorum::{COLUMNS, Quorum, Remembered, SCHEMA, Stamp, Word, read};
use crate::sys::clock;
use crate::types::node::check_name;
use crate::types::proof::Proof;
use crate::types::time::{Span, Tick, WallTime, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The command.
pub const TOOL: Tool = Tool {
    name: "quorum",
    about: "Conclude from reports which members live, and whether this side may act for all",
    verbs: Verbs::One(Verb {
        name: "",
        about: "Conclude from reports which members live, and whether this side may act for all",
        examples: "quorum --members n1,n2,n3 < reports.jsonl && echo we are the majority\n\
                   heartbeat recv ... --follow | quorum --members n1,n2,n3 --follow --window 3s --table\n\
                   heartbeat recv ... --follow | quorum --members n1,n2 --tie-breaker fence --follow --window 3s --pass | \
                   bucket plan 192.0.2.10 --quorum ...",
        args: flags::<Flags>,
        schemas: &[SCHEMA],
        columns: COLUMNS,
        run,
    }),
};

#[derive(Args, Debug)]
struct Flags {
    /// All members, whether they are there or not; a majority is more than half of these
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', required = true, value_parser = member)]
    members: Vec<String>,

    /// A report that is older counts no more
    #[arg(long, value_name = "D", default_value = "60s")]
    window: Span,

    /// What settles a split into two halves
    #[arg(long, value_name = "HOW")]
    tie_breaker: Option<TieBreaker>,

    /// Not quorate while the verdict about SUBJECT is down, as health ping has it; while there is none,
    /// nothing is taken and nothing given up
    #[arg(long, value_name = "SUBJECT")]
    veto: Vec<String>,

    /// Not quorate before every member was heard once since this machine started, or is proven off
    /// [default: yes for two members]
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    wait_for_all: Option<YesNo>,

    /// A report whose time is further ahead of this clock is of unknown age; without --follow only
    #[arg(long, value_name = "D", default_value = "2s")]
    max_skew: Span,

    /// Say each change for this side on standard error too, for a log
    #[arg(long)]
    tell: bool,

    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TieBreaker {
    /// A member that is proven off is no longer counted
    Fence,
}

/// More members than this are a list by mistake: each may have a word about each.
const MOST_MEMBERS: usize = 256;

fn member(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    if flags.window.0.is_zero() {
        return Err(Failure::usage("--window must be above 0s"));
    }
    let members: BTreeSet<String> = flags.members.iter().cloned().collect();
    if members.len() != flags.members.len() {
        return Err(Failure::usage("--members names a node twice"));
    }
    if let Some(member) = flags.veto.iter().find(|subject| members.contains(*subject) || subject.is_empty()) {
        return Err(Failure::usage(format!("--veto '{member}': it is no subject of a verdict, or a member")));
    }
    if members.len() > MOST_MEMBERS {
        return Err(Failure::usage(format!("--members: {} are more than {MOST_MEMBERS}", members.len())));
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if !members.contains(&process.node) && members.iter().any(|member| short(member) == short(&process.node)) {
        process.complain(&format!(
            "this node, {}, is no member: it has no vote (another name? give --node)",
            process.node
        ));
    }
    let settings = Settings {
        wait_for_all: flags.wait_for_all.map_or(members.len() == 2, |answer| answer == YesNo::Yes),
        members,
        me: process.node.clone(),
        window: flags.window.0,
        fence: flags.tie_breaker.is_some(),
        vetoes: flags.veto.iter().cloned().collect(),
    };
    let memory = flags.deciding.memory("quorum", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut counter = Counter::new(&flags, settings, memory, process)?;
    decider::run(&mut counter, &flags.deciding, process)
}

struct Counter<'a> {
    flags: &'a Flags,
    settings: Settings,
    reports: Reports,
    /// Members whose proof stands in the file.
    filed: BTreeSet<String>,
    file: fence::Filed,
    kept: BTreeSet<String>,
    boot_id: String,
    memory: Option<Memory>,
    /// The last conclusion of a stream, and when it was said.
    told: Option<Conclusion>,
    told_at: Tick,
}

impl<'a> Counter<'a> {
    fn new(flags: &'a Flags, settings: Settings, memory: Option<Memory>, process: &Process) -> Result<Self, Failure> {
        let mut reports = Reports::default();
        if let Some(memory) = &memory
            && let Some(heard) = memory.read(process, |remembered: Remembered| Ok(remembered.heard))?
        {
            reports.heard = heard;
        }
        Ok(Counter {
            flags,
            settings,
            kept: reports.heard.clone(),
            reports,
            filed: BTreeSet::new(),
            file: fence::Filed::default(),
            boot_id: clock::boot_id(),
            memory,
            told: None,
            told_at: clock::boot(),
        })
    }

    /// A word with the point at which it arrived here; `None` for one of unknown age.
    fn age(&self, word: &Word, now: Tick) -> Option<Said> {
        let Stamp { received_ms, boot_id, time, valid_for_ms } = &word.stamp;
        let is_foreign = word.reporter.as_ref().is_some_and(|reporter| *reporter != self.settings.me);
        let ours = boot_id.as_ref().is_none_or(|boot_id| *boot_id == self.boot_id);
        let at = match (received_ms.and_then(Tick::from_ms).filter(|_| ours), time) {
            // Decimals are cut on the way; more ahead than that it is another clock's.
            (Some(received), _) if received > now.after(Duration::from_millis(1)) => return None,
            // Another host's clock, unless it came to this one.
            (Some(_), Some(time)) if !self.flags.deciding.follow && is_foreign => self.age_by(*time, now)?,
            (Some(received), _) => received.min(now),
            // It arrives with this line, unless it says that it came to another machine or boot.
            (None, _) if self.flags.deciding.follow => ours.then_some(now)?,
            (None, Some(time)) => self.age_by(*time, now)?,
            (None, None) => ours.then_some(now)?,
        };
        let valid = valid_for_ms.filter(|ms| ms.is_finite() && *ms >= 0.0);
        let until = valid.map(|ms| at.after(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX)));
        Some(Said { status: word.status, at, until })
    }

    /// When it was so by the wall clock of its writer; `None` where that is ahead, or before this boot:
    /// older than any window.
    fn age_by(&self, time: WallTime, now: Tick) -> Option<Tick> {
        let age = clock::wall().unix_us.saturating_sub(time.unix_us);
        let ahead = Duration::from_micros(u64::try_from(-age).unwrap_or(0));
        if ahead > self.flags.max_skew.0 {
            return None;
        }
        now.0.checked_sub(Duration::from_micros(u64::try_from(age).unwrap_or(0))).map(Tick)
    }

    fn conclude(&mut self, now: Tick) -> Result<Conclusion, Failure> {
        let proofs = self.file.look(&self.settings.me, now)?;
        // Who was switched on again has its vote, also where its beats do not arrive.
        let off = proofs.nodes.iter().filter(|(_, kept)| !kept.is_back);
        let filed: BTreeMap<&String, Proof> = off.map(|(node, kept)| (node, kept.proof())).collect();
        for gone in self.filed.iter().filter(|member| !filed.contains_key(*member)) {
            self.reports.unprove(gone);
        }
        for (node, proof) in &filed {
            self.reports.prove(&self.settings, node, *proof);
        }
        self.filed = filed.into_keys().cloned().collect();
        let filed = |(member, _): &(String, Proof)| self.filed.contains(member);
        let refuted: Vec<(String, Proof)> = self.reports.refuted(&self.settings).into_iter().filter(filed).collect();
        // The next run must not believe what this one has seen refuted.
        fence::strike(&self.settings.me, &refuted)?;
        if self.reports.misses_somebody_who_left() {
            self.reports.said_goodbye(heartbeat::goodbye(&self.settings.me)?);
        }
        Ok(self.reports.conclude(&self.settings, now))
    }

    /// Writes who was heard, where that is news.
    fn keep(&mut self) -> Result<(), Failure> {
        if let Some(memory) = &self.memory
            && self.kept != self.reports.heard
        {
            self.kept.clone_from(&self.reports.heard);
            memory.write(&Remembered { heard: self.kept.clone() })?;
        }
        Ok(())
    }

    /// What a conclusion means for this side, for a person.
    fn words(&self, conclusion: &Conclusion) -> String {
        let (here, members) = (conclusion.here, self.settings.members.len());
        let count = format!("{here} of {members} members are on this side, {} are needed", conclusion.needed);
        let missing = conclusion.waiting_for.join(", ");
        match (conclusion.quorate, conclusion.vetoed, conclusion.waiting_for.is_empty()) {
            (true, ..) => format!("quorate: {count}"),
            (_, true, _) => {
                let lost = self.flags.veto.iter().filter(|subject| !conclusion.reaches.contains(subject));
                let lost: Vec<&str> = lost.map(String::as_str).collect();
                format!("not quorate: this side does not reach {}", lost.join(", "))
            }
            (.., true) => format!("not quorate: {count}"),
            (.., false) if conclusion.needs_proof => format!("undecided: {count}, until {missing} is proven off"),
            (.., false) if self.flags.veto.iter().any(|subject| conclusion.waiting_for.contains(subject)) => {
                format!("undecided: there is no verdict about {missing}")
            }
            (.., false) => format!("undecided: {missing} was not heard yet, and is not proven off"),
        }
    }

    /// Prints a conclusion.
    fn tell(&self, conclusion: &Conclusion, now: Tick, renewal: bool, stream: &mut Stream) -> Result<(), Failure> {
        for verdict in &conclusion.verdicts {
            let record = Quorum::new(&self.settings, conclusion, verdict);
            stream.record(self.head(verdict, now, renewal), &record)?;
        }
        Ok(())
    }

    fn head(&self, verdict: &Verdict, now: Tick, renewal: bool) -> Head {
        let mut head = Head::new("quorum").about(&verdict.member);
        head.status = Some(verdict.status);
        head.renewal = renewal;
        head.received_ms = Some(now.as_ms());
        // Long enough for two renewals to be lost, so that only a stopped chain expires.
        head.valid_for_ms = self.flags.deciding.follow.then(|| millis(self.flags.deciding.renew.0 * 3));
        head
    }
}

fn exit(conclusion: &Conclusion) -> Exit {
    if conclusion.quorate {
        Exit::Yes
    } else if conclusion.waiting_for.is_empty() {
        Exit::No
    } else {
        Exit::Undecided
    }
}

impl Decider for Counter<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let said = read(&Line::parse(text)?, &self.settings.me)?;
        if let Some((node, life)) = said.life {
            self.reports.lives(&self.settings, &node, life);
        }
        for word in said.words {
            let Some(what) = self.age(&word, now) else { continue };
            let reporter = word.reporter.as_deref().unwrap_or(&self.settings.me).to_owned();
            if self.settings.vetoes.contains(&word.subject) {
                // What another host reaches says nothing about this side.
                if reporter == self.settings.me {
                    self.reports.veto(&word.subject, what);
                }
            } else if word.is_about_life {
                self.reports.hear(&self.settings, &reporter, &word.subject, what, word.was_heard);
            }
        }
        if let Some((member, at)) = said.left {
            let at = at.and_then(Tick::from_ms).map_or(now, |at| at.min(now));
            self.reports.leaves(&self.settings, &member, at);
        }
        for proven in said.proofs {
            let proof = Proof { incarnation: proven.incarnation, at: life::seen_off(&proven, now) };
            self.reports.prove(&self.settings, &proven.node, proof);
        }
        Ok(said.renewal)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        let now = clock::boot();
        let conclusion = self.conclude(now)?;
        for verdict in &conclusion.verdicts {
            let record = Quorum::new(&self.settings, &conclusion, verdict);
            process.out.record(&self.head(verdict, now, false), &record)?;
        }
        self.keep()?;
        Ok(exit(&conclusion))
    }

    fn watched(&self) -> Vec<PathBuf> {
        vec![fence::proofs_file(&self.settings.me)]
    }

    fn first(&self) -> Option<Tick> {
        Some(self.told_at)
    }

    fn step(&mut self, step: Step, process: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let conclusion = self.conclude(step.now)?;
        let concluded = Concluded { exit: exit(&conclusion), wake: conclusion.wake };
        let settled = Conclusion { wake: None, ..conclusion };
        let news = self.told.as_ref() != Some(&settled);
        // Whoever renews by himself is no dead man: repeated is what still hears something.
        let repeats = step.renewal || (step.fed && step.now.since(self.told_at) >= self.flags.deciding.renew.0);
        if news || repeats {
            self.tell(&settled, step.now, !news, stream)?;
            self.told_at = step.now;
            self.keep()?;
        }
        let words = self.words(&settled);
        if self.flags.tell && self.told.as_ref().is_none_or(|told| self.words(told) != words) {
            process.complain(&words);
        }
        self.told = Some(settled);
        Ok(concluded)
    }

    fn last_word(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        let Some(conclusion) = self.told.take() else { return Ok(()) };
        let given_up = Conclusion { quorate: false, may_keep: false, ..conclusion };
        self.tell(&given_up, clock::boot(), false, stream)
    }
}
