//! `vip elect`: who should serve each virtual address, and may this node do it now?

use super::Present;
use crate::cli::args::{self, flags};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::decider::{self, Concluded, Decider, Deciding, Step};
use crate::cmd::fence;
use crate::cmd::life::{self, Life, ProofBy};
use crate::cmd::memory::Memory as StateFile;
use crate::decide::bucket::plan::Quorum;
use crate::decide::elect::{self, DEFAULT_PRIORITY, Election, Memory, Node, Settings, UNCHECKED_PRIORITY, View};
use crate::record::Head;
use crate::record::bucket::Side;
use crate::record::elect::{COLUMNS, Elect, Heard, Priorities, Remembered, SCHEMA, Word, read_words};
use crate::record::line::Line;
use crate::sys;
use crate::sys::clock;
use crate::types::net::Prefix;
use crate::types::node::{Standby, check_name};
use crate::types::status::Status;
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "elect",
    about: "Conclude from node records who should serve each address, and whether this node may do it now",
    examples: "heartbeat recv ... --follow | vip elect --vip 192.0.2.10/24 --members n1,n2,n3 --follow | \
               vip apply --follow --beat beat.json\n\
               heartbeat recv ... | quorum --members n1,n2,n3 --follow --pass | vip elect ... --quorum --follow --pass | \
               fence records ... | vip apply --follow --beat beat.json\n\
               vip elect --vip 192.0.2.10/24,192.0.2.11/24 --state elect.json < nodes.jsonl | vip apply     from cron",
    args: flags::<Flags>,
    schemas: &[SCHEMA],
    columns: COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The addresses that are elected about
    #[arg(long, value_name = "ADDR/LEN,...", value_delimiter = ',', required = true)]
    vip: Vec<Prefix>,

    /// The interface that carries them [default: the one whose network fits]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// Every node that may serve [default, for a single run: the nodes that the input names]
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    members: Vec<String>,

    /// Leave an address where it is while its node stands; with addresses, for those only
    #[arg(long, value_name = "VIP,...", value_delimiter = ',', num_args = 0..=1, require_equals = true)]
    no_preempt: Option<Vec<IpAddr>>,

    /// What proves that a silent node serves no more
    #[arg(long, value_name = "HOW", default_value = "required")]
    fencing: ProofBy,

    /// From the last sign of life to the verdict down, as heartbeat recv has it
    #[arg(long, value_name = "D", default_value = "3s")]
    dead_after: Span,

    /// The lifetime of an address, as vip apply has it; the kernel may be half a second late
    #[arg(long, value_name = "D", default_value = "0s")]
    lifetime: Span,

    /// From the last sign of life to a take-over [default: dead-after + lifetime + 150ms, the least is 100ms]
    #[arg(long, value_name = "D")]
    take_after: Option<Span>,

    /// Take nothing without a word of quorum; without this flag a run that hears none does not wait for it
    #[arg(long)]
    quorum: bool,

    /// While FILE is there this node does not stand; its text is the reason
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    #[command(flatten)]
    deciding: Deciding,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    let settings = settings(&flags, &process.node)?;
    let memory = flags.deciding.memory("vip-elect", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut elector = Elector::new(&flags, settings, memory, process)?;
    decider::run(&mut elector, &flags.deciding, process)
}

fn settings(flags: &Flags, me: &str) -> Result<Settings, Failure> {
    let addresses: BTreeSet<IpAddr> = flags.vip.iter().map(|vip| vip.addr).collect();
    if addresses.len() != flags.vip.len() {
        return Err(Failure::usage("--vip names an address twice"));
    }
    if let Some(stranger) = flags.no_preempt.iter().flatten().find(|vip| !addresses.contains(vip)) {
        return Err(Failure::usage(format!("--no-preempt {stranger}: it is not in --vip")));
    }
    for member in &flags.members {
        check_name(member).map_err(|why| Failure::usage(format!("--members: {why}")))?;
    }
    let members: BTreeSet<String> = flags.members.iter().cloned().collect();
    if members.len() != flags.members.len() {
        return Err(Failure::usage("--members names a node twice"));
    }
    let agree = flags.deciding.follow || flags.deciding.state.is_some();
    if members.is_empty() && agree {
        return Err(Failure::usage(
            "--follow and --state need --members: a node that was not heard yet may serve an address",
        ));
    }
    if !members.is_empty() && !members.contains(me) {
        return Err(Failure::usage(format!("this node, {me}, is not in --members (another name? give --node)")));
    }
    // Hardening 16: the kernel counts whole seconds, and is late by up to half a second.
    let late = Duration::from_millis(if flags.lifetime.0.is_zero() { 0 } else { 500 });
    let least = flags.dead_after.0 + flags.lifetime.0 + late + Duration::from_millis(100);
    let take_after = flags.take_after.map_or(least + Duration::from_millis(50), |span| span.0);
    if take_after < least {
        return Err(Failure::usage(format!(
            "--take-after {} is too early: a node that is cut off may serve for {} (dead-after + lifetime{} + 100ms)",
            Span(take_after),
            Span(least),
            if late.is_zero() { "" } else { " + 500ms" }
        )));
    }
    Ok(Settings {
        me: me.to_owned(),
        members,
        fencing: flags.fencing.fencing(),
        take_after,
        dead_after: flags.dead_after.0,
        lifetime: flags.lifetime.0,
        agree,
    })
}

/// What is known of a node, from all that said something about it.
#[derive(Debug, Default)]
struct Known {
    life: Life,
    address: Option<IpAddr>,
    /// Its priorities, and until when they hold.
    priorities: Option<(Priorities, Option<Tick>)>,
    /// What it said of each address, when, and until when that holds.
    told: BTreeMap<IpAddr, (Heard, Tick, Option<Tick>)>,
}

impl Known {
    fn note(&mut self, word: Word, vips: &[Prefix], now: Tick) {
        self.life.note(&word.base, now);
        self.address = word.address.or(self.address);
        if let Some(said) = word.priorities {
            let (_, expires) = life::times(said.received_ms, said.valid_for_ms, now);
            // A node that never had a checker lost none.
            if !said.is_empty() || self.priorities.is_some() {
                self.priorities = Some((said, expires));
            }
        }
        for (vip, heard) in word.heard {
            if vips.iter().any(|prefix| prefix.addr == vip) {
                let (at, until) = life::times(heard.received_ms, heard.valid_for_ms, now);
                self.life.last = self.life.last.max(at);
                self.life.heard = true;
                self.told.insert(vip, (heard, at, until));
            }
        }
    }

    /// The effective priority: a checker that died leaves the last choice, but never more than it said.
    fn priority(&self, vip: IpAddr, now: Tick) -> u32 {
        match &self.priorities {
            None => DEFAULT_PRIORITY,
            Some((said, _)) if said.is_empty() => UNCHECKED_PRIORITY,
            Some((said, expires)) => {
                let priority = said.of(vip).unwrap_or(DEFAULT_PRIORITY);
                let expired = expires.is_some_and(|expires| expires <= now);
                if expired { priority.min(UNCHECKED_PRIORITY) } else { priority }
            }
        }
    }
}

struct Elector<'a> {
    flags: &'a Flags,
    settings: Settings,
    known: BTreeMap<String, Known>,
    /// What quorum said last, and until when that holds.
    side: Option<(Side, Option<Tick>)>,
    memory: BTreeMap<IpAddr, Memory>,
    /// When something was heard about the life of a node.
    fed: Option<Tick>,
    /// This node's own address for each virtual one, and when it was looked for.
    own: BTreeMap<IpAddr, IpAddr>,
    looked: Option<Tick>,
    kept: Option<StateFile>,
    filed: fence::Filed,
    /// What a stream said last about each address, and when everything was said.
    said: BTreeMap<IpAddr, (Elect, Election)>,
    said_at: Tick,
}

impl<'a> Elector<'a> {
    fn new(flags: &'a Flags, settings: Settings, kept: Option<StateFile>, process: &Process) -> Result<Self, Failure> {
        let remembered = match &kept {
            Some(kept) => kept.read(process, |remembered: Remembered| remembered.read())?,
            None => None,
        };
        let mut memory = remembered.unwrap_or_default();
        // What was elected before and is not any more is forgotten.
        memory.retain(|vip, _| flags.vip.iter().any(|prefix| prefix.addr == *vip));
        Ok(Elector {
            flags,
            settings,
            known: BTreeMap::new(),
            side: None,
            memory,
            fed: None,
            own: BTreeMap::new(),
            looked: None,
            kept,
            filed: fence::Filed::default(),
            said: BTreeMap::new(),
            said_at: clock::boot(),
        })
    }

    /// Looks for the proofs that are kept, and for this node's own addresses.
    fn look(&mut self, now: Tick) -> Result<(), Failure> {
        for (node, kept) in &self.filed.look(&self.settings.me, now)?.nodes {
            if self.settings.members.contains(node) {
                self.known.entry(node.clone()).or_default().life.prove(kept.proof());
            }
        }
        if self.looked.is_none_or(|looked| now.since(looked) >= self.flags.deciding.renew.0) {
            let present = Present::look()?;
            let own = |vip: &Prefix| Some((vip.addr, present.own_address(*vip, self.flags.dev.as_deref())?));
            self.own = self.flags.vip.iter().filter_map(own).collect();
            self.looked = Some(now);
        }
        Ok(())
    }

    /// Whether nothing was heard for as long as a node may be silent.
    fn is_deaf(&self, now: Tick) -> bool {
        let alone = self.settings.members.iter().all(|member| *member == self.settings.me);
        !alone && self.flags.deciding.follow && self.fed.is_none_or(|fed| now.since(fed) > self.settings.dead_after)
    }

    fn node(&self, name: &str, vip: IpAddr, quorum: &Quorum, now: Tick) -> Node {
        let mine = name == self.settings.me;
        let Some(known) = self.known.get(name) else {
            let status = if mine { Status::Up } else { Status::Unknown };
            return Node { status, address: self.own.get(&vip).copied().filter(|_| mine), ..Node::default() };
        };
        let tied = matches!(quorum, Quorum::Pending(tied) if tied.iter().any(|node| node == name));
        let told = known.told.get(&vip);
        let (mut status, mut since) = match known.life.verdict(known.life.heard && tied, now) {
            None if told.is_some() => (Status::Up, known.life.last),
            None => (Status::Unknown, Tick::default()),
            Some(verdict) => verdict,
        };
        if mine && status == Status::Unknown {
            status = Status::Up;
        }
        // Its applier has stopped saying what it serves: by now the kernel has let go of it.
        if let Some((_, _, Some(until))) = told
            && !mine
            && status == Status::Up
            && *until <= now
        {
            (status, since) = (Status::Down, *until);
        }
        let standby = told.and_then(|(heard, ..)| heard.standby.clone()).or_else(|| known.life.standby.clone());
        Node {
            status,
            since,
            last: told.map_or(known.life.last, |(_, at, _)| *at),
            heard: known.life.heard,
            address: if mine {
                self.own.get(&vip).copied().or(known.address)
            } else {
                told.and_then(|(heard, ..)| heard.address).or(known.address)
            },
            priority: known.priority(vip, now),
            standby: standby.filter(|_| !mine),
            left: known.life.left,
            proven_off: known.life.is_off(),
            claim: told.map(|(heard, ..)| heard.claim.clone()),
            speaks_of_others: known.told.keys().any(|other| *other != vip),
        }
    }

    fn standby(&self, vip: IpAddr) -> Result<Option<Standby>, Failure> {
        Ok(sys::state::standby(self.flags.standby.as_deref(), Some(&vip.to_string()))?)
    }

    /// Concludes about every address.
    fn conclude(&mut self, now: Tick) -> Result<Vec<(Prefix, Election)>, Failure> {
        self.look(now)?;
        let quorum = life::quorum(self.side.as_ref(), self.flags.quorum, now);
        let deaf = self.is_deaf(now);
        let mut elections = Vec::new();
        for vip in &self.flags.vip {
            let mut nodes: BTreeMap<String, Node> = self
                .settings
                .members
                .iter()
                .map(|name| (name.clone(), self.node(name, vip.addr, &quorum, now)))
                .collect();
            if let Some(me) = nodes.get_mut(&self.settings.me) {
                me.standby = self.standby(vip.addr)?.map(|standby| standby.reason);
            }
            let without = self.flags.no_preempt.as_ref();
            let preempt = without.is_none_or(|without| !without.is_empty() && !without.contains(&vip.addr));
            let view = View { nodes, quorum: quorum.clone(), deaf, preempt };
            let memory = self.memory.entry(vip.addr).or_default();
            let (election, next) = elect::elect(&self.settings, &view, memory, now);
            *memory = next;
            elections.push((*vip, election));
        }
        Ok(elections)
    }

    /// Often enough to see that verdicts expired, and that it was not we who stood still.
    fn often(&self) -> Duration {
        self.settings.pause().min(self.settings.dead_after) / 4
    }

    fn keep(&self) -> Result<(), Failure> {
        match &self.kept {
            Some(kept) => kept.write(&Remembered::new(&self.memory)),
            None => Ok(()),
        }
    }

    fn record(&self, vip: Prefix, election: &Election) -> Elect {
        Elect::new(vip, self.flags.dev.as_deref(), &self.settings.me, election)
    }

    /// The others learn from `standby` why this node does not stand.
    fn head(&self, vip: Prefix, election: &Election, now: Tick, renewal: bool) -> Head {
        let mut head = Head::new("vip.elect").about(vip.addr);
        head.received_ms = Some(now.as_ms());
        head.valid_for_ms = self.flags.deciding.follow.then(|| millis(self.flags.deciding.renew.0 * 3));
        head.renewal = renewal;
        let own = election.candidates.iter().find(|one| one.node == self.settings.me);
        head.standby = own.filter(|own| !own.standing).map(|own| own.why.clone());
        head
    }
}

fn exit(elections: &[(Prefix, Election)]) -> Exit {
    if elections.iter().any(|(_, election)| election.mine) { Exit::Yes } else { Exit::No }
}

impl Decider for Elector<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let mut renewal = false;
        for word in read_words(&Line::parse(text)?)? {
            let node = word.base.node.clone();
            if self.flags.members.is_empty() && word.is_node && check_name(&node).is_ok() {
                self.settings.members.insert(node.clone());
            }
            if !self.settings.members.contains(&node) {
                continue;
            }
            if word.base.status.is_some() {
                self.fed = Some(now);
                renewal |= word.base.renewal;
            }
            if let Some(side) = &word.base.quorum {
                let (_, expires) = life::times(word.base.received_ms, word.base.valid_for_ms, now);
                self.side = Some((side.clone(), expires));
            }
            self.known.entry(node).or_default().note(word, &self.flags.vip, now);
        }
        Ok(renewal)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        if self.fed.is_none() && self.flags.members.len() != 1 {
            process.complain("no node was heard of: nothing is concluded");
            return Ok(Exit::Undecided);
        }
        self.settings.members.insert(self.settings.me.clone());
        // Runs with a pause between them do not stand still in it.
        for memory in self.memory.values_mut() {
            memory.concluded = None;
        }
        let now = clock::boot();
        let elections = self.conclude(now)?;
        for (vip, election) in &elections {
            process.out.record(&self.head(*vip, election, now, false), &self.record(*vip, election))?;
        }
        self.keep()?;
        Ok(exit(&elections))
    }

    fn watched(&self) -> Vec<PathBuf> {
        let standby = self.flags.standby.clone().unwrap_or_else(|| sys::state::folder().join("standby"));
        let own = self.flags.vip.iter().map(|vip| sys::state::standby_file(&vip.addr.to_string()));
        [standby, fence::proofs_file(&self.settings.me)].into_iter().chain(own).collect()
    }

    fn first(&self) -> Option<Tick> {
        Some(self.said_at.after(self.often()))
    }

    fn step(&mut self, step: Step, _: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let (now, renew) = (step.now, self.flags.deciding.renew.0);
        let elections = self.conclude(now)?;
        let heard = self.fed.is_some() || self.settings.members.len() == 1;
        let exit = if heard { exit(&elections) } else { Exit::Undecided };
        // Whoever renews by himself is no dead man: who hears nothing gives up, and says that once.
        let alive = !self.is_deaf(now);
        let repeats = step.renewal || (alive && now.since(self.said_at) >= renew);
        let mut changed = false;
        let mut wake = now.after(self.often());
        for (vip, election) in elections {
            let record = self.record(vip, &election);
            let news = self.said.get(&vip.addr).is_none_or(|(before, _)| *before != record);
            if news || repeats {
                stream.record(self.head(vip, &election, now, !news), &record)?;
            }
            changed |= news;
            wake = election.wake.map_or(wake, |at| wake.min(at));
            self.said.insert(vip.addr, (record, election));
        }
        if repeats {
            self.said_at = now;
        }
        if changed {
            self.keep()?;
        }
        if alive {
            wake = wake.min(self.said_at.after(renew));
        }
        Ok(Concluded { exit, wake: Some(wake) })
    }

    fn last_word(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        for vip in &self.flags.vip {
            if let Some((record, election)) = self.said.remove(&vip.addr) {
                let mut head = self.head(*vip, &election, clock::boot(), false);
                head.standby = Some("its election has ended".to_owned());
                stream.record(head, &record.gives_up("the election has ended"))?;
            }
        }
        Ok(())
    }
}
