//! `fence off|on|reboot|status`: act, then ask the device again. Only its word is a proof.

use super::{Agents, STEP, Via, change_proofs, kept, proofs};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::heartbeat;
use crate::record::fence::{
    COLUMNS, Fenced, Kept, OFF_SCHEMA, ON_SCHEMA, Proofs, Proven, REBOOT_SCHEMA, STATUS_SCHEMA,
};
use crate::record::{Action as Shown, Head};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::event::{Signals, Sources};
use crate::sys::process::{self, Finished};
use crate::sys::state::Lock;
use crate::types::draw::Draw;
use crate::types::power::Power;
use crate::types::time::{Tick, millis};
use crate::wire::fence::{Action, Options, power, stonith};
use clap::{ArgMatches, Args};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const OFF: Verb = Verb {
    name: "off",
    about: "Switch a node off; status 0 only when its device says that it is",
    examples: "fence off n2 --agent fence_ipmilan --options /etc/failover/ipmi-{node}\n\
               fence off n2 --agent fence_ipmilan --options ipmi --agent fence_apc --options pdu   ipmi, else the PDU\n\
               fence off n2 --all --agent fence_apc --options pdu1 --agent fence_apc --options pdu2\n\
               fence off n2 --via stonith",
    args: flags::<Flags>,
    schemas: &[OFF_SCHEMA],
    columns: COLUMNS,
    run: |matches, process| run(Deed::Off, matches, process),
};

pub(super) const ON: Verb = Verb {
    name: "on",
    about: "Switch a node on; its proof ends with that",
    examples: "fence on n2 --agent fence_ipmilan --options /etc/failover/ipmi-{node}",
    args: flags::<Flags>,
    schemas: &[ON_SCHEMA],
    columns: COLUMNS,
    run: |matches, process| run(Deed::On, matches, process),
};

pub(super) const REBOOT: Verb = Verb {
    name: "reboot",
    about: "Switch a node off, prove that, and switch it on again",
    examples: "fence reboot n2 --agent fence_ipmilan --options /etc/failover/ipmi-{node}",
    args: flags::<Flags>,
    schemas: &[REBOOT_SCHEMA],
    columns: COLUMNS,
    run: |matches, process| run(Deed::Reboot, matches, process),
};

pub(super) const STATUS: Verb = Verb {
    name: "status",
    about: "Ask the device of a node whether it is on",
    examples: "fence status n2 --agent fence_ipmilan --options /etc/failover/ipmi-{node} --table",
    args: flags::<Flags>,
    schemas: &[STATUS_SCHEMA],
    columns: COLUMNS,
    run: |matches, process| run(Deed::Status, matches, process),
};

#[derive(Args, Debug)]
struct Flags {
    /// The node, as the cluster calls it
    #[arg(value_name = "NODE", value_parser = node_name)]
    target: String,

    #[command(flatten)]
    agents: Agents,

    /// The life of the node that ends [default: the newest that heartbeat recv has heard]
    #[arg(long, value_name = "N")]
    incarnation: Option<u64>,

    /// Do nothing where a proof of that life is kept already; for off alone
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    changing: Changing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Off,
    On,
    Reboot,
    Status,
}

impl Deed {
    fn kind(self) -> &'static str {
        match self {
            Deed::Off => "fence.off",
            Deed::On => "fence.on",
            Deed::Reboot => "fence.reboot",
            Deed::Status => "fence.status",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Deed::Off => "off",
            Deed::On => "on",
            Deed::Reboot => "reboot",
            Deed::Status => "status",
        }
    }
}

fn node_name(text: &str) -> Result<String, String> {
    crate::types::node::check_name(text).map(|()| text.to_owned())
}

/// Between two tries of one agent.
const PAUSE: Duration = Duration::from_secs(1);

/// One agent, ready to run.
pub(super) struct Level {
    /// Its file name, for records and sentences.
    name: String,
    program: PathBuf,
    options: Options,
}

/// What came of one or several agents.
struct Outcome {
    power: Power,
    /// When its device was asked.
    asked: Tick,
    /// Whose word that is.
    agent: String,
    level: usize,
    /// Why it is not what it should be.
    failure: Option<Failure>,
}

/// What a device says.
struct Seen {
    power: Power,
    /// When it was asked.
    asked: Tick,
    /// Why it is not what it should be.
    failure: Option<Failure>,
}

/// A run: what it works on, and what ends it early.
struct Run<'a> {
    node: &'a str,
    retries: u32,
    deadline: Deadline,
    signals: Signals,
    attempts: u64,
}

/// Why a step has no result.
enum Broken {
    Failed(Failure),
    /// A signal came; every agent has ended.
    Interrupted,
}

impl<E: Into<Failure>> From<E> for Broken {
    fn from(error: E) -> Self {
        Broken::Failed(error.into())
    }
}

fn run(deed: Deed, matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.agents.check()?;
    if flags.agents.via.is_some() && deed == Deed::Status {
        return Err(Failure::usage(
            "--via stonith: Pacemaker's fencer tells nobody whether a node is on (give --agent)",
        ));
    }
    if flags.target == process.node && matches!(deed, Deed::Off | Deed::Reboot) {
        return Err(Failure::usage(format!("{} is this node (another name? give --node)", flags.target)));
    }
    if flags.once && deed != Deed::Off {
        return Err(Failure::usage("--once is for fence off: whatever else is asked for is done"));
    }
    let seed = sys::raw::random_u64()?;
    let delay = flags.agents.delay.unwrap_or_default().draw(&mut Draw::new(seed));
    let planned = delay.saturating_add(flags.agents.limit.0);
    let deadline = process.deadline(planned).min(Deadline::after(planned));
    let levels = levels(&flags.agents, Some(&flags.target), process)?;
    let incarnation = match flags.incarnation {
        Some(incarnation) => Some(incarnation),
        None => heartbeat::last_life(&process.node, &flags.target)?,
    };
    let mut head = Head::new(deed.kind()).about(&flags.target);
    head.dry_run = flags.changing.dry_run;
    if flags.changing.shows_actions() {
        head.actions = actions(deed, &flags, &levels);
    }
    if flags.changing.dry_run {
        let fenced = Fenced {
            power: Power::Unknown.as_str(),
            proof: false,
            incarnation,
            agent: levels.first().map_or("stonith", |level| &level.name).to_owned(),
            level: 1,
            attempts: 0,
            elapsed_ms: 0.0,
        };
        process.out.record(&head, &fenced)?;
        return Ok(Exit::Yes);
    }
    let started = clock::boot();
    // Until an agent runs a signal ends this at once.
    clock::sleep_until(started.after(delay));
    let lock = match deed {
        Deed::Status => None,
        _ => Some(Lock::take(&[format!("fence-{}", flags.target)], deadline)?),
    };
    if let Some(lock) = &lock {
        // An agent that outlives this process may still act.
        lock.hand_down()?;
    }
    let mut run =
        Run { node: &flags.target, retries: flags.agents.retries, deadline, signals: Signals::catch()?, attempts: 0 };
    let outcome = carry_out(deed, &flags, incarnation, &levels, &mut run, process);
    let (outcome, proof) = match outcome {
        Ok(outcome) => outcome,
        Err(Broken::Failed(failure)) => return Err(failure),
        Err(Broken::Interrupted) => {
            if let Some(signal) = run.signals.next() {
                run.signals.die(signal);
            }
            return Ok(Exit::Undecided);
        }
    };
    let exit = match (&outcome.failure, deed, outcome.power) {
        (Some(failure), ..) => failure.exit,
        (None, Deed::Status, Power::Off) => Exit::No,
        (None, ..) => Exit::Yes,
    };
    if let Some(failure) = &outcome.failure {
        process.complain(&failure.sentence);
        head.error = Some(failure.body());
    }
    let fenced = Fenced {
        power: outcome.power.as_str(),
        proof,
        incarnation,
        agent: outcome.agent,
        level: outcome.level,
        attempts: run.attempts,
        elapsed_ms: millis(clock::boot().since(started)),
    };
    process.out.record(&head, &fenced)?;
    // The first half of a reboot is what others wait for.
    Ok(if deed == Deed::Reboot && proof { Exit::Yes } else { exit })
}

/// Finds the agents and reads their options. One that is missing is told, and the others are tried.
///
/// Without a target the files that are for one node each are not looked at.
pub(super) fn levels(agents: &Agents, target: Option<&str>, process: &Process) -> Result<Vec<Level>, Failure> {
    let object = target.unwrap_or("nodes");
    let mut levels = Vec::new();
    let mut missing = None;
    for (idx, agent) in agents.agent.iter().enumerate() {
        let found = if agent.contains('/') {
            let path = PathBuf::from(agent);
            let what = || format!("the fence agent {agent} is not there");
            if path.is_file() { Ok(path) } else { Err(no_agent(object, what())) }
        } else {
            process::find(agent, "fence-agents", "fence", object)
        };
        match found {
            Ok(program) => {
                let options = agents.options.get(idx).or(agents.options.first());
                let options = options.filter(|name| target.is_some() || !name.contains("{node}"));
                let options = options.map(|name| read_options(name, object)).transpose()?.unwrap_or_default();
                let name =
                    Path::new(agent).file_name().map_or(agent.clone(), |name| name.to_string_lossy().into_owned());
                levels.push(Level { name, program, options });
            }
            // With --all the others are no proof.
            Err(error) if agents.all => return Err(error.into()),
            Err(error) => {
                if let Some(told) = missing.replace(Failure::from(error)) {
                    process.complain(&told.sentence);
                }
            }
        }
    }
    match missing {
        Some(failure) if levels.is_empty() => Err(failure),
        Some(failure) => {
            process.complain(&failure.sentence);
            Ok(levels)
        }
        None => Ok(levels),
    }
}

fn no_agent(node: &str, what: String) -> sys::Error {
    sys::Error::Missing {
        doing: "fence".to_owned(),
        object: node.to_owned(),
        what,
        mend: "see: fence off --help".to_owned(),
        reason: sys::error::Missing::Program,
    }
}

fn read_options(name: &str, node: &str) -> Result<Options, Failure> {
    const DOING: &str = "use the options file";
    let path = name.replace("{node}", node);
    let mend = format!("key=value lines; chmod 600 {path}");
    let text = sys::state::read_secret(Path::new(&path), DOING, &mend)?;
    Options::parse(&text).map_err(|why| sys::Error::File { doing: DOING.to_owned(), path, why, mend }.into())
}

/// What would be run, without what the agents are told: that may be secret.
fn actions(deed: Deed, flags: &Flags, levels: &[Level]) -> Vec<Shown> {
    let word = deed.word();
    if flags.agents.via.is_some() {
        let words = stonith(word, &flags.target, flags.agents.limit.0.as_secs()).join(" ");
        return vec![Shown { op: "fence", text: format!("stonith_admin {words}") }];
    }
    let acts: &[Action] = match deed {
        Deed::Off => &[Action::Off, Action::Status],
        Deed::On => &[Action::On, Action::Status],
        Deed::Reboot => &[Action::Off, Action::Status, Action::On, Action::Status],
        Deed::Status => &[Action::Status],
    };
    let text = |level: &Level, action: Action| {
        let told = Options::default().input(action, &flags.target);
        let told = told.lines().filter(|line| !line.starts_with("port=") || !level.options.names_plug());
        let secret = if level.options.is_empty() { "" } else { " and its options" };
        format!("{}, told {}{secret}", level.program.display(), told.collect::<Vec<_>>().join(" "))
    };
    let shown = |level| acts.iter().map(move |action| Shown { op: "fence", text: text(level, *action) });
    levels.iter().flat_map(shown).collect()
}

/// Everything between the first look and the record; and whether the node was seen off.
fn carry_out(
    deed: Deed,
    flags: &Flags,
    incarnation: Option<u64>,
    levels: &[Level],
    run: &mut Run<'_>,
    process: &Process,
) -> Result<(Outcome, bool), Broken> {
    let me = &process.node;
    if flags.once
        && let Some(kept) = proofs(me, clock::boot())?.nodes.remove(run.node)
        && kept.proof().holds(incarnation, None)
    {
        let asked = kept.proof().at;
        let outcome = Outcome { power: Power::Off, asked, agent: kept.proven.agent, level: 1, failure: None };
        return Ok((outcome, true));
    }
    // What cannot be kept afterwards is told before anything is done.
    let before = kept(me, clock::boot())?;
    if deed == Deed::Status {
        let outcome = if flags.agents.all { run.each(levels, Action::Status, Power::Off)? } else { run.ask(levels)? };
        let proof = outcome.power == Power::Off;
        strike_if_on(me, run, &before, &outcome)?;
        return Ok((outcome, proof));
    }
    if deed == Deed::On {
        // Before it can be untrue.
        change_proofs(me, run.deadline, |proofs| drop(proofs.nodes.remove(run.node)))?;
    }
    let first = if deed == Deed::On { Power::On } else { Power::Off };
    let mut outcome = match flags.agents.via {
        Some(Via::Stonith) => run.stonith(deed)?,
        None => run.reach(levels, first, flags.agents.all)?,
    };
    let by_fencer = flags.agents.via.is_some();
    let proof = deed != Deed::On && outcome.failure.is_none() && (outcome.power == Power::Off || by_fencer);
    if deed != Deed::On {
        strike_if_on(me, run, &before, &outcome)?;
    }
    if proof {
        let proven = Proven {
            node: run.node.to_owned(),
            incarnation,
            time: clock::wall().to_string(),
            agent: outcome.agent.clone(),
        };
        // Of the time of the question: a beat that came in since is of a later life, however long this
        // process has stood still.
        let kept = Kept { proven, at_ms: outcome.asked.as_ms(), is_back: deed == Deed::Reboot };
        let keep = |proofs: &mut Proofs| drop(proofs.nodes.insert(run.node.to_owned(), kept));
        // The node is off all the same, and whoever reads the record should know.
        outcome.failure = change_proofs(me, Deadline::after(STEP), keep).err();
    }
    if deed == Deed::Reboot && proof && !by_fencer {
        let unkept = outcome.failure.take();
        let back = run.reach(levels, Power::On, flags.agents.all)?;
        return Ok((Outcome { failure: unkept.or(back.failure), ..back }, true));
    }
    Ok((outcome, proof))
}

/// A device that says on is stronger than a proof from before.
fn strike_if_on(me: &str, run: &Run<'_>, before: &Proofs, outcome: &Outcome) -> Result<(), Failure> {
    if outcome.power != Power::On || !before.nodes.contains_key(run.node) {
        return Ok(());
    }
    change_proofs(me, Deadline::after(STEP), |proofs| {
        proofs.nodes.retain(|node, kept| node != run.node || kept.proof().at > outcome.asked);
    })
}

impl Run<'_> {
    /// Runs an agent once, on the way to `goal`.
    fn tell(&self, level: &Level, action: Action, goal: Power, deadline: Deadline) -> Result<Finished, Broken> {
        let input = level.options.input(action, self.node);
        let given = deadline.left();
        match process::run_tree(&level.program, &[], input.as_bytes(), deadline, self.signals.as_fd()) {
            Ok(finished) => finished.ok_or(Broken::Interrupted),
            Err(sys::Error::Late { .. }) => {
                let why = format!(
                    "action={} did not end within {}ms and was killed (allow longer with --limit)",
                    action.as_str(),
                    given.as_millis()
                );
                let failure = self.cannot(goal, &level.name, Exit::Undecided, &why);
                Err(Broken::Failed(Failure { reason: Reason::TimedOut, ..failure }))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn cannot(&self, goal: Power, agent: &str, exit: Exit, why: &str) -> Failure {
        let doing = match goal {
            Power::Unknown => format!("cannot ask {agent} whether {} is on", self.node),
            goal => format!("cannot switch {} {} by {agent}", self.node, goal.as_str()),
        };
        Failure::new(exit, Reason::NotProven, format!("{doing}: {why}"))
    }

    /// Asks an agent what its device says.
    fn status(&self, level: &Level, goal: Power, deadline: Deadline) -> Result<Seen, Broken> {
        let asked = clock::boot();
        let finished = self.tell(level, Action::Status, goal, deadline)?;
        let power = power(finished.status.code());
        let unknown = || {
            let why = format!(
                "its status cannot be had: {} (is the device reachable, with these options?)",
                end_of(&finished)
            );
            self.cannot(goal, &level.name, Exit::Undecided, &why)
        };
        Ok(Seen { power, asked, failure: (power == Power::Unknown).then(unknown) })
    }

    /// Whether an agent whose action failed can be believed at all: it reaches its device.
    ///
    /// A script that a shell cannot read, or that lacks an option, ends with 2 whatever it is asked, and 2
    /// means off.
    fn is_sane(&self, level: &Level, goal: Power, deadline: Deadline) -> Result<bool, Broken> {
        let checked = unless_broken_off(self.tell(level, Action::Monitor, goal, deadline))?;
        Ok(checked.is_ok_and(|finished| finished.status.success()))
    }

    /// Lets a device breathe between two tries, unless a signal comes.
    fn pause(&self, deadline: Deadline) -> Result<(), Broken> {
        let mut sources = Sources::default();
        sources.readable(self.signals.as_fd());
        let until = Deadline::after(PAUSE.min(deadline.left() / 4));
        if sources.wait(Some(until.tick()))? { Err(Broken::Interrupted) } else { Ok(()) }
    }

    /// Acts until the device says what it should, or the tries or the time of this level are used up.
    fn try_level(&mut self, level: &Level, goal: Power, deadline: Deadline) -> Result<Seen, Broken> {
        let action = if goal == Power::On { Action::On } else { Action::Off };
        let late = self.cannot(goal, &level.name, Exit::Undecided, "its time was over before it was asked");
        let mut last = Seen { power: Power::Unknown, asked: clock::boot(), failure: Some(late) };
        for done in 0..=self.retries {
            if done > 0 {
                self.pause(deadline)?;
            }
            let left = deadline.left();
            if left.is_zero() {
                break;
            }
            self.attempts += 1;
            let share = left / (self.retries - done + 1);
            let whole = Deadline::after(share);
            // Whatever the agent says, and whether it says anything: the device is asked. It was off
            // already, or the agent was too slow to tell.
            let acted = unless_broken_off(self.tell(level, action, goal, Deadline::after(share / 4 * 3)))?;
            let Seen { power, asked, failure } = self.look(level, goal, whole)?;
            let obeys = matches!(&acted, Ok(finished) if finished.status.success());
            let is_believed = power != goal || obeys || self.is_sane(level, goal, whole)?;
            if power == goal && is_believed {
                return Ok(Seen { power, asked, failure: None });
            }
            let failure = match (acted, failure) {
                (acted, _) if !is_believed => {
                    let how = acted.map_or_else(|failure| failure.sentence, |finished| end_of(&finished));
                    let why = format!(
                        "action={} and action=monitor failed ({how}): that it says {} is not believed",
                        action.as_str(),
                        goal.as_str()
                    );
                    self.cannot(goal, &level.name, Exit::Undecided, &why)
                }
                (Err(failure), _) | (Ok(_), Some(failure)) => failure,
                (Ok(finished), None) => {
                    let said = if finished.status.success() {
                        "says that it is done".to_owned()
                    } else {
                        format!("failed: {}", end_of(&finished))
                    };
                    let device = power.as_str();
                    let why = format!("the agent {said}, and the device that it is {device} (the right plug?)");
                    self.cannot(goal, &level.name, Exit::No, &why)
                }
            };
            let power = if is_believed { power } else { Power::Unknown };
            let failure = if power == Power::Unknown { failure } else { Failure { exit: Exit::No, ..failure } };
            last = Seen { power, asked, failure: Some(failure) };
        }
        Ok(last)
    }

    /// The part of the time that is left for the first of `levels` levels.
    fn share(&self, levels: usize) -> Deadline {
        Deadline::after(self.deadline.left() / u32::try_from(levels.max(1)).unwrap_or(1))
    }

    /// Makes the node's power `goal` by the first level that can, or by all of them.
    fn reach(&mut self, levels: &[Level], goal: Power, all: bool) -> Result<Outcome, Broken> {
        if all {
            let action = if goal == Power::On { Action::On } else { Action::Off };
            return self.each(levels, action, goal);
        }
        let mut best = nothing();
        for (idx, level) in levels.iter().enumerate() {
            let Seen { power, asked, failure } = self.try_level(level, goal, self.share(levels.len() - idx))?;
            let outcome = Outcome { power, asked, agent: level.name.clone(), level: idx + 1, failure };
            if outcome.failure.is_none() {
                return Ok(outcome);
            }
            // A device that answers says more than one that does not.
            if power != Power::Unknown || best.power == Power::Unknown {
                best = outcome;
            }
        }
        Ok(best)
    }

    /// Has every level reach `goal`, or say so; the first that does not is told.
    fn each(&mut self, levels: &[Level], action: Action, goal: Power) -> Result<Outcome, Broken> {
        let names: Vec<&str> = levels.iter().map(|level| level.name.as_str()).collect();
        let (agent, asked) = (names.join("+"), clock::boot());
        let mut whole = Outcome { power: goal, asked, agent, level: levels.len(), failure: None };
        for (idx, level) in levels.iter().enumerate() {
            let share = self.share(levels.len() - idx);
            let Seen { power, failure, .. } = match action {
                Action::Status => self.look(level, Power::Unknown, share)?,
                _ => self.try_level(level, goal, share)?,
            };
            if whole.failure.is_none() && power != goal {
                whole = Outcome { power, asked, agent: level.name.clone(), level: idx + 1, failure };
            } else if power == Power::On {
                // One supply that feeds it is enough.
                whole.power = Power::On;
            }
        }
        Ok(whole)
    }

    /// Asks one level; that it cannot be asked is an answer too.
    fn look(&self, level: &Level, goal: Power, deadline: Deadline) -> Result<Seen, Broken> {
        let asked = clock::boot();
        let seen = unless_broken_off(self.status(level, goal, deadline))?;
        Ok(seen.unwrap_or_else(|failure| Seen { power: Power::Unknown, asked, failure: Some(failure) }))
    }

    /// Asks level after level until one knows.
    fn ask(&mut self, levels: &[Level]) -> Result<Outcome, Broken> {
        let mut last = nothing();
        for (idx, level) in levels.iter().enumerate() {
            let Seen { power, asked, failure } = self.look(level, Power::Unknown, self.share(levels.len() - idx))?;
            last = Outcome { power, asked, agent: level.name.clone(), level: idx + 1, failure };
            if power != Power::Unknown {
                break;
            }
        }
        Ok(last)
    }

    /// Hands it to Pacemaker, whose fencer has asked the device before its tool says 0.
    fn stonith(&mut self, deed: Deed) -> Result<Outcome, Broken> {
        let program = process::find("stonith_admin", "pacemaker-cli-utils", "fence", self.node)?;
        let words = stonith(deed.word(), self.node, self.deadline.left().as_secs().max(1));
        self.attempts += 1;
        let goal = if deed == Deed::Off { Power::Off } else { Power::On };
        let words = words.each_ref().map(String::as_str);
        let asked = clock::boot();
        let finished = process::run_tree(&program, &words, b"", self.deadline, self.signals.as_fd());
        let (power, failure) = match finished {
            Ok(Some(finished)) if finished.status.success() => (goal, None),
            Ok(Some(finished)) => {
                let why =
                    format!("stonith_admin failed: {} (see: stonith_admin --history {})", end_of(&finished), self.node);
                (Power::Unknown, Some(self.cannot(goal, "stonith", Exit::Undecided, &why)))
            }
            Ok(None) => return Err(Broken::Interrupted),
            Err(error) => (Power::Unknown, Some(error.into())),
        };
        Ok(Outcome { power, asked, agent: "stonith".to_owned(), level: 1, failure })
    }
}

/// A failure as a result to go on with; a signal ends everything.
fn unless_broken_off<T>(result: Result<T, Broken>) -> Result<Result<T, Failure>, Broken> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Broken::Failed(failure)) => Ok(Err(failure)),
        Err(Broken::Interrupted) => Err(Broken::Interrupted),
    }
}

/// Nobody was asked yet.
fn nothing() -> Outcome {
    Outcome { power: Power::Unknown, asked: clock::boot(), agent: String::new(), level: 0, failure: None }
}

/// How a program ended, in its own last words where it had some.
fn end_of(finished: &Finished) -> String {
    let how = match (finished.status.code(), finished.status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    let said = if finished.stderr.is_empty() { &finished.stdout } else { &finished.stderr };
    let text = String::from_utf8_lossy(said);
    // The agents' last word is where to read more.
    let says = |line: &&str| !line.is_empty() && !line.ends_with("Please use '-h' for usage");
    match text.lines().map(str::trim).rfind(says) {
        Some(words) => format!("{how}, {}", without_stamp(words)),
        None => how,
    }
}

/// A line of an agent's log without when it was written: `2026-11-30 12:00:00,000 ERROR: why`.
fn without_stamp(line: &str) -> &str {
    let is_stamped = line.starts_with(|first: char| first.is_ascii_digit());
    ["ERROR: ", "WARNING: "]
        .iter()
        .filter(|_| is_stamped)
        .find_map(|level| line.split_once(level))
        .map_or(line, |cut| cut.1)
}
