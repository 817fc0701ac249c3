//! `quorum`: what does the majority say?

use super::fence;
use crate::cli::args::{self, YesNo, flags};
use crate::cli::input::{Complaints, Feed, Got, Lines};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Tool, Verb, Verbs};
use crate::decide::quorum::{Conclusion, Reports, Said, Settings, Verdict};
use crate::record::Head;
use crate::record::line::Line;
use crate::record::quorum::{COLUMNS, Quorum, Remembered, SCHEMA, Stamp, Word, read};
use crate::record::state::{self, Origin};
use crate::sys;
use crate::sys::clock;
use crate::sys::state::Lock;
use crate::sys::watch::Watch;
use crate::types::node::check_name;
use crate::types::proof::Proof;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The command.
pub const TOOL: Tool = Tool {
    name: "quorum",
    about: "Conclude from reports which members live, and whether this side may act for all",
    verbs: Verbs::One(Verb {
        name: "",
        about: "Conclude from reports which members live, and whether this side may act for all",
        examples: "quorum --members n1,n2,n3 < reports.jsonl && echo we are the majority\n\
                   heartbeat recv ... --follow | quorum --members n1,n2,n3 --follow --window 1s --table\n\
                   heartbeat recv ... --follow | quorum --members n1,n2 --tie-breaker fence --follow --window 1s --pass | \
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

    /// Remember who was heard, from run to run of one boot
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Conclude after each step of the input, and print what changed
    #[arg(long)]
    follow: bool,

    /// Repeat the conclusion at least every D while reports come in
    #[arg(long, value_name = "D", default_value = "1s")]
    renew: Span,

    /// End after D with the status of the last conclusion
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    /// Say each change for this side on standard error too, for a log
    #[arg(long)]
    tell: bool,

    /// Copy each line of input first
    #[arg(long)]
    pass: bool,

    /// End with status 0 whatever was concluded
    #[arg(long)]
    exit_zero: bool,
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
    if flags.window.0.is_zero() || flags.renew.0.is_zero() {
        return Err(Failure::usage("--window and --renew must be above 0s"));
    }
    let members: BTreeSet<String> = flags.members.iter().cloned().collect();
    if members.len() != flags.members.len() {
        return Err(Failure::usage("--members names a node twice"));
    }
    if members.len() > MOST_MEMBERS {
        return Err(Failure::usage(format!("--members: {} are more than {MOST_MEMBERS}", members.len())));
    }
    let settings = Settings {
        wait_for_all: flags.wait_for_all.map_or(members.len() == 2, |answer| answer == YesNo::Yes),
        members,
        me: process.node.clone(),
        window: flags.window.0,
        fence: flags.tie_breaker.is_some(),
        vetoes: flags.veto.iter().cloned().collect(),
    };
    let deadline = process.deadline(Duration::ZERO);
    let _lock = match (&flags.state, flags.follow) {
        (Some(path), false) => Some(Lock::take(&[format!("quorum-{}", path.display())], deadline)?),
        _ => None,
    };
    let mut counter = Counter::new(&flags, settings, process)?;
    let exit = if flags.follow { follow(&mut counter, process)? } else { once(&mut counter, process)? };
    Ok(if flags.exit_zero && matches!(exit, Exit::No | Exit::Undecided) { Exit::Yes } else { exit })
}

struct Counter<'a> {
    flags: &'a Flags,
    settings: Settings,
    reports: Reports,
    /// Members whose proof stands in the file.
    filed: BTreeSet<String>,
    kept: BTreeSet<String>,
    origin: Origin,
}

impl<'a> Counter<'a> {
    fn new(flags: &'a Flags, settings: Settings, process: &Process) -> Result<Self, Failure> {
        let boot_id = clock::boot_id();
        let origin = Origin { command: "quorum", host: process.node.clone(), boot_id, at: clock::boot() };
        let mut reports = Reports::default();
        if let Some(path) = &flags.state
            && let Some(bytes) = sys::state::read(path)?
        {
            match state::read::<Remembered>(&bytes, &origin) {
                Ok(state::Read::Current(remembered)) => reports.heard = remembered.heard,
                Ok(state::Read::OtherBoot) => {
                    process.complain(&format!("{} is of an earlier boot: a first run", path.display()));
                }
                Err(why) => {
                    let (path, mend) = (path.display().to_string(), "move it away to begin anew".to_owned());
                    return Err(sys::Error::File { doing: "read".to_owned(), path, why, mend }.into());
                }
            }
        }
        let kept = reports.heard.clone();
        Ok(Counter { flags, settings, reports, filed: BTreeSet::new(), kept, origin })
    }

    /// Takes one line in; says whether it was a renewal.
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
        if let Some(member) = said.left {
            self.reports.leaves(&self.settings, &member);
        }
        for proven in said.proofs {
            let proof = Proof { incarnation: proven.incarnation, at: now };
            self.reports.prove(&self.settings, &proven.node, proof);
        }
        Ok(said.renewal)
    }

    /// A word with the point at which it arrived here; `None` for one of unknown age.
    fn age(&self, word: &Word, now: Tick) -> Option<Said> {
        let Stamp { received_ms, boot_id, time, valid_for_ms } = &word.stamp;
        let ours = boot_id.as_ref().is_none_or(|boot_id| *boot_id == self.origin.boot_id);
        let at = match (received_ms.and_then(Tick::from_ms).filter(|_| ours), time) {
            (Some(received), _) => received.min(now),
            // It arrives with this line, unless it says that it came to another machine or boot.
            (None, _) if self.flags.follow => ours.then_some(now)?,
            (None, Some(time)) => {
                let age = clock::wall().unix_us.saturating_sub(time.unix_us);
                let ahead = Duration::from_micros(u64::try_from(-age).unwrap_or(0));
                if ahead > self.flags.max_skew.0 {
                    return None;
                }
                let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
                // What is older than this boot is older than any window.
                Tick(now.0.checked_sub(age)?)
            }
            (None, None) => ours.then_some(now)?,
        };
        let valid = valid_for_ms.filter(|ms| ms.is_finite() && *ms >= 0.0);
        let until = valid.map(|ms| at.after(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX)));
        Some(Said { status: word.status, at, until })
    }

    fn conclude(&mut self, now: Tick) -> Result<Conclusion, Failure> {
        let filed = fence::proofs(&self.settings.me, now)?.nodes;
        for gone in self.filed.iter().filter(|member| !filed.contains_key(*member)) {
            self.reports.unprove(gone);
        }
        for (node, kept) in &filed {
            self.reports.prove(&self.settings, node, kept.proof());
        }
        self.filed = filed.into_keys().collect();
        Ok(self.reports.conclude(&self.settings, now))
    }

    /// Writes who was heard, where that is news.
    fn keep(&mut self) -> Result<(), Failure> {
        if let Some(path) = &self.flags.state
            && self.kept != self.reports.heard
        {
            self.kept.clone_from(&self.reports.heard);
            let origin = Origin { at: clock::boot(), ..self.origin.clone() };
            let remembered = Remembered { heard: self.kept.clone() };
            sys::state::replace(path, &state::write(&origin, &remembered).unwrap_or_default())?;
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
            (_, true, _) => format!("not quorate: this side does not reach {}", self.flags.veto.join(", ")),
            (.., true) => format!("not quorate: {count}"),
            (.., false) if conclusion.needs_proof => format!("undecided: {count}, until {missing} is proven off"),
            (.., false) if self.flags.veto.iter().any(|subject| conclusion.waiting_for.contains(subject)) => {
                format!("undecided: there is no verdict about {missing}")
            }
            (.., false) => format!("undecided: {missing} was not heard yet, and is not proven off"),
        }
    }

    fn head(&self, verdict: &Verdict, now: Tick, renewal: bool) -> Head {
        let mut head = Head::new("quorum").about(&verdict.member);
        head.status = Some(verdict.status);
        head.renewal = renewal;
        head.received_ms = Some(now.as_ms());
        // Long enough for two renewals to be lost, so that only a stopped chain expires.
        head.valid_for_ms = self.flags.follow.then(|| millis(self.flags.renew.0 * 3));
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

fn once(counter: &mut Counter<'_>, process: &mut Process) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new(&process.who);
    let mut lines = Lines::stdin();
    while let Some(got) = lines.next()? {
        match got {
            Got::Line(number, text) => {
                if counter.flags.pass && Line::parse(text).is_ok() {
                    process.out.whole_lines(format!("{text}\n").as_bytes())?;
                }
                if let Err(why) = counter.take(text, clock::boot()) {
                    complaints.line(number, &why);
                }
            }
            Got::Malformed(number, why) => complaints.line(number, &why),
        }
    }
    let now = clock::boot();
    let conclusion = counter.conclude(now)?;
    for verdict in &conclusion.verdicts {
        let record = Quorum::new(&counter.settings, &conclusion, verdict);
        process.out.record(&counter.head(verdict, now, false), &record)?;
    }
    counter.keep()?;
    Ok(exit(&conclusion).and(complaints.finish()))
}

fn follow(counter: &mut Counter<'_>, process: &mut Process) -> Result<Exit, Failure> {
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let mut status = Exit::Undecided;
    let outcome = follow_on(counter, process, &mut pump, &mut complaints, &mut status);
    pump.stream.finish();
    match outcome {
        // A reader that left changes no answer.
        Err(failure) if !failure.is_reader_gone() => Err(failure),
        _ => Ok(status.and(complaints.finish())),
    }
}

/// Concludes after each step of the input, and keeps the `status` of the last conclusion.
fn follow_on(
    counter: &mut Counter<'_>,
    process: &Process,
    pump: &mut Pump,
    complaints: &mut Complaints,
    status: &mut Exit,
) -> Result<(), Failure> {
    let proofs = fence::proofs_file(&counter.settings.me);
    let watched: Vec<PathBuf> =
        Some(proofs).filter(|path| path.parent().is_some_and(Path::is_dir)).into_iter().collect();
    let mut watch = Watch::new(&watched)?;
    let mut feed = Feed::default();
    let stdin = std::io::stdin();
    let end = process.stream_end(counter.flags.duration);
    let mut told: Option<Conclusion> = None;
    let mut told_at = clock::boot();
    let mut wake = Some(told_at);
    let caught = loop {
        let woken = pump.wait(&[stdin.as_fd(), watch.as_fd()], [wake, end].into_iter().flatten().min())?;
        let ready = match woken {
            Woken::Ready(ready) => ready,
            Woken::Signal(signal) => break Some(signal),
        };
        let now = clock::boot();
        let mut renewal = false;
        if ready.first() == Some(&true) {
            for (number, line) in feed.take()? {
                match line {
                    Ok(text) => {
                        if counter.flags.pass && Line::parse(&text).is_ok() {
                            pump.stream.pass(&text)?;
                        }
                        match counter.take(&text, now) {
                            Ok(is_renewal) => renewal |= is_renewal || now.since(told_at) >= counter.flags.renew.0,
                            Err(why) => complaints.line(number, &why),
                        }
                    }
                    Err(why) => complaints.line(number, &why),
                }
            }
        }
        if ready.get(1) == Some(&true) {
            watch.changed();
        }
        let conclusion = counter.conclude(now)?;
        *status = exit(&conclusion);
        wake = conclusion.wake;
        let settled = Conclusion { wake: None, ..conclusion };
        let news = told.as_ref() != Some(&settled);
        if news || renewal {
            for verdict in &settled.verdicts {
                let record = Quorum::new(&counter.settings, &settled, verdict);
                pump.stream.record(counter.head(verdict, now, !news), &record)?;
            }
            told_at = now;
            counter.keep()?;
        }
        let words = counter.words(&settled);
        if counter.flags.tell && told.as_ref().is_none_or(|told| counter.words(told) != words) {
            process.complain(&words);
        }
        told = Some(settled);
        if feed.is_ended() || end.is_some_and(|end| now >= end) {
            break None;
        }
    };
    // Nobody counts here any more: it must not be taken for a side that has the majority.
    if let Some(conclusion) = &told {
        let given_up = Conclusion { quorate: false, may_keep: false, ..conclusion.clone() };
        for verdict in &given_up.verdicts {
            let record = Quorum::new(&counter.settings, &given_up, verdict);
            pump.stream.record(counter.head(verdict, clock::boot(), false), &record)?;
        }
    }
    if let Some(signal) = caught {
        pump.die(signal);
    }
    Ok(())
}
