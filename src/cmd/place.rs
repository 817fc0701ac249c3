//! `place`: on which node should each service run?

use super::decider::{self, Concluded, Decider, Deciding, Step};
use super::described;
use super::fence;
use super::life::{self, Life};
use super::memory::Memory as StateFile;
use crate::cli::args::{self, flags, share};
use crate::cli::out::{Form, Out};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Tool, Verb, Verbs};
use crate::decide::bucket::plan::Quorum;
use crate::decide::place::{self, Conclusion, End, Memory, Node, Outcome, Placed, Policy, Settings, View};
use crate::record::Head;
use crate::record::bucket::Side;
use crate::record::line::Line;
use crate::record::place::{
    COLUMNS, Place, Put, Remembered, SCHEMA, SIMULATION_COLUMNS, SIMULATION_SCHEMA, Simulated, Told, read, read_file,
    read_words,
};
use crate::sys;
use crate::sys::clock;
use crate::sys::state::Standbys;
use crate::types::draw::Draw;
use crate::types::node::check_name;
use crate::types::service::{Expr, Key, Need, Service};
use crate::types::status::Status;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The command.
pub const TOOL: Tool = Tool {
    name: "place",
    about: "Conclude from node records on which node each service should run, and why",
    verbs: Verbs::One(Verb {
        name: "",
        about: "Conclude from node records on which node each service should run, and why",
        examples: "place --service web --require zone=a --need cpu=2,memory=4G < nodes.jsonl\n\
                   place --service a --service b,home=n2 --policy round-robin --state place.json --table < nodes.jsonl\n\
                   place --service lun0 --policy weighted --simulate 1000 --table < nodes.jsonl\n\
                   heartbeat recv ... --follow | quorum --members n1,n2,n3 --follow --pass | \
                   place --services services --sticky --home=60s --quorum --state place.json --follow | fence records ...",
        args: flags::<Flags>,
        schemas: &[SCHEMA, SIMULATION_SCHEMA],
        columns: COLUMNS,
        run,
    }),
};

#[derive(Args, Debug)]
struct Flags {
    /// A service; with KEY=VALUE of home, cpu, memory, bandwidth, require
    #[arg(long, value_name = "NAME[,KEY=VALUE...]", value_parser = read_words)]
    service: Vec<Service>,

    /// The services: a JSON array, JSON lines, or lines NAME KEY=VALUE ...
    #[arg(long, value_name = "FILE")]
    services: Option<String>,

    /// What each service needs that does not say itself: processors, bytes (4G), bits a second (1G)
    #[arg(long, value_name = "cpu=N,memory=N,bandwidth=N", default_value = "")]
    need: Need,

    /// What a node must satisfy: KEY(=|!=|<|<=|>|>=)VALUE on a field or label
    #[arg(long, value_name = "EXPR", num_args = 1..)]
    require: Vec<Expr>,

    /// How one is chosen among the nodes that fit
    #[arg(long, value_name = "HOW", default_value = "least-services")]
    policy: Choice,

    /// Of weighted: where the best weight is lower, the draw is inverted, from 0 to 1
    #[arg(long, value_name = "WEIGHT", default_value = "0.5", value_parser = share)]
    threshold: f64,

    /// Move no service for a better node
    #[arg(long)]
    sticky: bool,

    /// Bring services back to their home once it has been up for D [default, without D: 60s]
    #[arg(long, value_name = "D", num_args = 0..=1, require_equals = true, default_missing_value = "60s")]
    home: Option<Span>,

    /// Move so many services in one conclusion at the most, those of dead nodes first
    #[arg(long, value_name = "N")]
    max_moves: Option<usize>,

    /// What lets a service leave a node that is down
    #[arg(long, value_name = "HOW", default_value = "required")]
    fencing: Proof,

    /// Print how N services like each one would be spread, and place none
    #[arg(long, value_name = "N", conflicts_with = "follow", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    simulate: Option<u64>,

    /// Draw from N, as the records of an earlier run say
    #[arg(long, value_name = "N")]
    random_seed: Option<u64>,

    /// Print every node's verdict for every service
    #[arg(long)]
    explain: bool,

    /// The nodes that may run services [default: those that the input names]
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    members: Vec<String>,

    /// In a stream, place nothing before every member was heard of, but for at most D; without --members for D
    #[arg(long, value_name = "D", default_value = "3s")]
    first_within: Span,

    /// Place and move nothing without a word of quorum; without this flag a run that hears none does not wait for it
    #[arg(long)]
    quorum: bool,

    /// While FILE is there this node gets nothing and gives all away, while FILE.NODE is there that node; while
    /// FILE.SERVICE is there that service is left alone; the text is the reason
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// The node that runs the fewest; of equals the first by name
    LeastServices,
    /// The next by name after the last one
    RoundRobin,
    /// By chance, the more often the more of its resources would be left
    Weighted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Proof {
    /// A record of fence
    Required,
    /// That it is down: what still runs there runs twice
    None,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    let services = services(&flags)?;
    for member in &flags.members {
        check_name(member).map_err(|why| Failure::usage(format!("--members: {why}")))?;
    }
    if let Some(hold) = flags.home {
        if services.iter().all(|service| service.home.is_none()) {
            return Err(Failure::usage("--home: no service has one (--service NAME,home=NODE)"));
        }
        if !hold.0.is_zero() && !flags.deciding.follow && flags.deciding.state.is_none() {
            return Err(Failure::usage(
                "--home needs --state or --follow: it must be remembered since when a node is back (or give --home=0s)",
            ));
        }
    }
    let memory = flags.deciding.memory("place", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut placer = Placer::new(&flags, services, memory, process)?;
    decider::run(&mut placer, &flags.deciding, process)
}

fn services(flags: &Flags) -> Result<Vec<Service>, Failure> {
    let mut all = flags.service.clone();
    if let Some(file) = &flags.services {
        all.extend(described::read(file, "services", "place", read_file)?);
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = all.iter().find(|service| !names.insert(service.name.as_str())) {
        return Err(Failure::usage(format!("the service {} is named twice", twice.name)));
    }
    if all.is_empty() {
        return Err(Failure::usage("no service is named (--service NAME, --services FILE)"));
    }
    Ok(all)
}

/// What is known of a node, from all that said something about it.
#[derive(Debug, Default)]
struct Known {
    life: Life,
    told: Told,
    /// When it said what it uses.
    at: Tick,
}

impl Known {
    fn note(&mut self, told: Told, at: Tick) {
        if !told.is_nothing() {
            self.at = at;
        }
        self.told.total = told.total.or(self.told.total);
        self.told.used = told.used.or(self.told.used);
        self.told.services = told.services.or(self.told.services);
        self.told.weight = told.weight.or(self.told.weight);
        self.told.priority = told.priority.or(self.told.priority);
        if self.told.facts.is_empty() {
            self.told.facts = told.facts;
        } else {
            for (known, fact) in self.told.facts.iter_mut().zip(told.facts) {
                *known = fact.or(known.take());
            }
        }
    }
}

/// What a stream has said of a service.
#[derive(Debug)]
struct Said {
    record: Place,
    standby: Option<String>,
    end: End,
}

struct Placer<'a> {
    flags: &'a Flags,
    services: Vec<Service>,
    settings: Settings,
    members: BTreeSet<String>,
    me: String,
    known: BTreeMap<String, Known>,
    /// What quorum said last, and until when that holds.
    side: Option<(Side, Option<Tick>)>,
    memory: Memory,
    kept: Remembered,
    state: Option<StateFile>,
    filed: fence::Filed,
    /// Each conclusion has a seed of its own, so that its record replays it.
    seeds: Draw,
    seed: u64,
    begun: Tick,
    /// By service, and when everything was said.
    said: BTreeMap<String, Said>,
    said_at: Tick,
}

/// Seeds that `jq` does not round.
const SEED_BITS: u32 = 53;

impl<'a> Placer<'a> {
    fn new(
        flags: &'a Flags,
        services: Vec<Service>,
        state: Option<StateFile>,
        process: &Process,
    ) -> Result<Self, Failure> {
        let memory = match &state {
            Some(state) => state.read(process, Remembered::read)?,
            None => None,
        };
        let memory = memory.unwrap_or_default();
        let seed = match flags.random_seed {
            Some(seed) => seed,
            None => sys::raw::random_u64()? >> (u64::BITS - SEED_BITS),
        };
        let exprs = flags.require.iter().chain(services.iter().flat_map(|service| &service.requires));
        let keys: BTreeSet<&String> =
            exprs.filter_map(|expr| if let Key::Told(key) = &expr.key { Some(key) } else { None }).collect();
        let settings = Settings {
            policy: match flags.policy {
                Choice::LeastServices => Policy::LeastServices,
                Choice::RoundRobin => Policy::RoundRobin,
                Choice::Weighted => Policy::Weighted,
            },
            threshold: flags.threshold,
            sticky: flags.sticky,
            fail_back: flags.home.map(|hold| hold.0),
            max_moves: flags.max_moves,
            fencing: flags.fencing == Proof::Required,
            explain: flags.explain,
            need: flags.need,
            requires: flags.require.clone(),
            keys: keys.into_iter().cloned().collect(),
        };
        Ok(Placer {
            flags,
            services,
            settings,
            members: flags.members.iter().cloned().collect(),
            me: process.node.clone(),
            known: BTreeMap::new(),
            side: None,
            kept: Remembered::new(&memory),
            memory,
            state,
            filed: fence::Filed::default(),
            seeds: Draw::new(seed),
            seed,
            begun: clock::boot(),
            said: BTreeMap::new(),
            said_at: clock::boot(),
        })
    }

    /// Takes what an earlier record says, unless something newer is known.
    fn remember(&mut self, service: String, put: Put) {
        let time = put.time.unwrap_or_else(clock::wall);
        let known = self.memory.placed.get_mut(&service);
        if known.as_ref().is_some_and(|known| known.time > time) {
            return;
        }
        match (known, put.node) {
            // Our own record, come back.
            (Some(known), Some(node)) if known.node == node && known.unproven == put.unproven => known.time = time,
            (_, Some(node)) => {
                let placed = Placed { node, at: Tick::default(), time, unproven: put.unproven };
                self.memory.placed.insert(service, placed);
            }
            (_, None) => {
                self.memory.placed.remove(&service);
            }
        }
    }

    /// Why nothing may be placed or moved.
    fn wait(quorum: &Quorum) -> Option<String> {
        match quorum {
            Quorum::NotCounted | Quorum::Yes => None,
            Quorum::No => Some("this side is not quorate".to_owned()),
            Quorum::Pending(nodes) if nodes.is_empty() => {
                Some("quorum has not said that this side is quorate".to_owned())
            }
            Quorum::Pending(nodes) => Some(format!("this side is not quorate yet: {} is missing", nodes.join(", "))),
        }
    }

    fn standby_of<'s>(&self, name: &str, known: &'s Known, standbys: &'s Standbys) -> Option<&'s str> {
        let own = standbys.node().filter(|_| name == self.me);
        own.or_else(|| standbys.of(name)).or(known.life.standby.as_deref())
    }

    fn node<'s>(
        &'s self,
        name: &'s str,
        known: &'s Known,
        quorum: &Quorum,
        standbys: &'s Standbys,
        now: Tick,
    ) -> Node<'s> {
        let tied = matches!(quorum, Quorum::Pending(tied) if tied.iter().any(|node| node == name));
        let verdict = known.life.verdict(known.life.heard && tied, now);
        let status = verdict.map_or(Status::Unknown, |(status, _)| status);
        Node {
            name,
            status,
            gone: known.life.is_off() || (known.life.left && status == Status::Down),
            standby: self.standby_of(name, known, standbys),
            weight: known.told.weight,
            priority: known.told.priority,
            total: known.told.total.unwrap_or_default(),
            used: known.told.used.unwrap_or_default().map(Option::unwrap_or_default),
            services: known.told.services,
            told: known.at,
            facts: &known.told.facts,
        }
    }

    /// Does something with what is known now.
    fn decide<T>(
        &mut self,
        now: Tick,
        what: impl FnOnce(&[Service], &Settings, &View<'_>, &mut Memory, &mut Draw) -> T,
    ) -> Result<T, Failure> {
        for (node, kept) in &self.filed.look(&self.me, now)?.nodes {
            if let Some(known) = self.known.get_mut(node) {
                known.life.prove(kept.proof());
            }
        }
        let standbys = Standbys::read(self.flags.standby.as_deref())?;
        let quorum = life::quorum(self.side.as_ref(), self.flags.quorum, now);
        let mut memory = std::mem::take(&mut self.memory);
        let nodes = self.known.iter().map(|(name, known)| self.node(name, known, &quorum, &standbys, now)).collect();
        let own = |service: &Service| Some((service.name.clone(), standbys.of(&service.name)?.to_owned()));
        let standby = self.services.iter().filter_map(own).collect();
        let view = View { nodes, wait: Self::wait(&quorum), standby, now, time: clock::wall() };
        let done = what(&self.services, &self.settings, &view, &mut memory, &mut Draw::new(self.seed));
        self.memory = memory;
        Ok(done)
    }

    fn conclude(&mut self, now: Tick) -> Result<Conclusion, Failure> {
        self.decide(now, place::place)
    }

    fn keep(&mut self) -> Result<(), Failure> {
        if let Some(state) = &self.state {
            state.keep(&mut self.kept, &Remembered::new(&self.memory))?;
        }
        Ok(())
    }

    fn head(&self, kind: &'static str, service: &str, now: Tick) -> Head {
        let mut head = Head::new(kind).about(service);
        head.received_ms = Some(now.as_ms());
        // It may be written to a file, which outlives the boot.
        head.boot_id = (!self.flags.deciding.follow).then(clock::boot_id).filter(|id| !id.is_empty());
        head.valid_for_ms = self.flags.deciding.follow.then(|| millis(self.flags.deciding.renew.0 * 3));
        head
    }

    fn record(&self, outcome: Outcome) -> Place {
        Place::new(self.settings.policy.as_str(), self.seed, outcome)
    }

    fn simulate(&mut self, count: u64, process: &mut Process) -> Result<Exit, Failure> {
        if let Form::Table(_) = process.form {
            process.out = Out::new(&process.node, Form::Table(SIMULATION_COLUMNS));
        }
        let now = clock::boot();
        let all = self.decide(now, |services, settings, view, memory, draw| {
            let one = |idx| place::simulate(idx, services, count, settings, view, memory, draw);
            (0..services.len()).map(one).collect::<Vec<_>>()
        })?;
        let (policy, mut exit) = (self.settings.policy, Exit::Yes);
        for (service, (got, rejected)) in self.services.iter().zip(all) {
            let placed: u64 = got.values().sum();
            let mut rows: Vec<(Option<String>, u64)> = got.into_iter().map(|(node, got)| (Some(node), got)).collect();
            rows.sort_by_key(|(_, got)| std::cmp::Reverse(*got));
            if placed < count {
                rows.push((None, count - placed));
                exit = Exit::No;
            }
            let mut rejected = Some(rejected);
            for (node, services) in rows {
                let record = Simulated {
                    rejected: if node.is_none() { rejected.take().unwrap_or_default() } else { BTreeMap::new() },
                    node,
                    policy: policy.as_str(),
                    random_seed: (policy == Policy::Weighted).then_some(self.seed),
                    services,
                    #[allow(clippy::cast_precision_loss)] // at most ten million
                    share: services as f64 / count as f64,
                };
                process.out.record(&self.head("place.simulation", &service.name, now), &record)?;
            }
        }
        Ok(exit)
    }

    /// Whether somebody may still be heard who was up all the time.
    fn is_early(&self, now: Tick) -> bool {
        let all_heard = !self.members.is_empty() && self.members.iter().all(|member| self.known.contains_key(member));
        self.said.is_empty() && !all_heard && now < self.begun.after(self.flags.first_within.0)
    }
}

fn exit(ends: impl Iterator<Item = End>) -> Exit {
    let each = ends.map(|end| match end {
        End::Placed => Exit::Yes,
        End::NoFit => Exit::No,
        End::Waiting => Exit::Undecided,
    });
    each.fold(Exit::Yes, Exit::and)
}

impl Decider for Placer<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let heard = read(&Line::parse(text)?, &self.settings.keys)?;
        if let Some((service, put)) = heard.placed {
            self.remember(service, put);
        }
        for (word, told) in heard.words {
            if !self.members.is_empty() && !self.members.contains(&word.node) {
                continue;
            }
            let (arrived, expires) = life::times(word.received_ms, word.valid_for_ms, now);
            if let Some(side) = &word.quorum {
                self.side = Some((side.clone(), expires));
            }
            if told.is_none() && !self.known.contains_key(&word.node) && check_name(&word.node).is_err() {
                continue;
            }
            let known = self.known.entry(word.node.clone()).or_default();
            known.life.note(&word, now);
            if let Some(told) = told {
                known.note(told, arrived);
            }
        }
        Ok(heard.renewal)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        if let Some(count) = self.flags.simulate {
            return self.simulate(count, process);
        }
        let now = clock::boot();
        let conclusion = self.conclude(now)?;
        let exit = exit(conclusion.outcomes.iter().map(|outcome| outcome.end));
        // Before it is told: what was told and is not remembered would be placed twice.
        self.keep()?;
        for (service, outcome) in self.services.iter().zip(conclusion.outcomes) {
            let mut head = self.head("place", &service.name, now);
            head.standby.clone_from(&outcome.standby);
            process.out.record(&head, &self.record(outcome))?;
        }
        Ok(exit)
    }

    fn watched(&self) -> Vec<PathBuf> {
        let standby = self.flags.standby.clone().unwrap_or_else(|| sys::state::folder().join("standby"));
        vec![standby, fence::proofs_file(&self.me)]
    }

    fn first(&self) -> Option<Tick> {
        Some(self.begun.after(self.flags.first_within.0))
    }

    fn step(&mut self, step: Step, _: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let (now, renew) = (step.now, self.flags.deciding.renew.0);
        if !step.over && self.is_early(now) {
            return Ok(Concluded { exit: Exit::Undecided, wake: self.first() });
        }
        let conclusion = self.conclude(now)?;
        let exit = exit(conclusion.outcomes.iter().map(|outcome| outcome.end));
        self.keep()?;
        // Whoever renews by himself is no dead man: repeated is what still hears something.
        let repeats = step.renewal || (step.fed && now.since(self.said_at) >= renew);
        for (service, outcome) in self.services.iter().zip(conclusion.outcomes) {
            let (end, standby) = (outcome.end, outcome.standby.clone());
            let mut head = self.head("place", &service.name, now);
            head.standby.clone_from(&standby);
            let record = self.record(outcome);
            let same = self.said.get(&service.name).filter(|said| {
                let was = &said.record;
                (was.held, said.end, &said.standby) == (record.held, end, &standby)
                    && (&was.node, &was.needs_fence) == (&record.node, &record.needs_fence)
            });
            // A choice is told as it was made; what stands in its way, as it is now.
            let record = match same {
                Some(said) if end == End::Placed => said.record.clone(),
                _ => record,
            };
            head.renewal = same.is_some();
            if same.is_none() || repeats {
                stream.record(head, &record)?;
            }
            self.said.insert(service.name.clone(), Said { record, standby, end });
        }
        if repeats {
            self.said_at = now;
        }
        self.seed = self.seeds.next() >> (u64::BITS - SEED_BITS);
        let again = now.after(renew);
        Ok(Concluded { exit, wake: Some(conclusion.wake.map_or(again, |wake| wake.min(again))) })
    }

    /// Services stay where they are.
    fn last_word(&mut self, _: &mut Stream) -> Result<(), Failure> {
        Ok(())
    }
}
