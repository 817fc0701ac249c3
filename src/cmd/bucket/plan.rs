//! `bucket plan`: who should own what, and what may this node do about it now?

use crate::cli::args::{self, YesNo, flags};
use crate::cli::stream::Stream;
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::decider::{self, Concluded, Decider, Deciding, Step};
use crate::cmd::fence;
use crate::cmd::life::{self, Life, ProofBy};
use crate::cmd::memory::Memory as StateFile;
use crate::decide::bucket::plan::{Memory, Node, Plan, Quorum, Settings, View, lan_is_dead, plan};
use crate::record::bucket::{
    Links, Lists, Move, NodeSeen, PLAN_COLUMNS, PLAN_SCHEMA, Plan as Record, Remembered, Score, Side, Word, read_words,
};
use crate::record::line::Line;
use crate::record::{Head, config};
use crate::sys;
use crate::sys::clock;
use crate::types::bucket::{Buckets, MAX_TOTAL, Owners};
use crate::types::node::Standby;
use crate::types::status::Status;
use crate::types::time::{Span, Tick};
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "plan",
    about: "Conclude from node records who should own what, and what this node may answer for now",
    examples: "bucket plan --total 64 --home n1=1-22,n2=23-43,n3=44-64 < nodes.jsonl\n\
               heartbeat recv ... --follow | bucket plan 192.0.2.10 --total 64 --home homes.txt --follow \
               --own own.json | bucket apply 192.0.2.10 --follow --beat own.json",
    args: flags::<Flags>,
    schemas: &[PLAN_SCHEMA],
    columns: PLAN_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IP [default: the one that the records are about]
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: Option<IpAddr>,

    /// How many buckets there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_TOTAL)))]
    total: u16,

    /// Who owns what when all are well: NODE=LIST,... or a file with one 'NODE LIST' a line
    #[arg(long, value_name = "MAP|FILE")]
    home: String,

    /// Shares by weight: NODE=N,... [default: the sizes of the homes]
    #[arg(long, value_name = "NODE=N,...", value_delimiter = ',', value_parser = weight)]
    weights: Vec<(String, u32)>,

    /// Leave buckets where they are when their home comes back
    #[arg(long)]
    no_fail_back: bool,

    /// The digest by which nodes see that they run the same configuration [default: made from these flags]
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    config: Option<String>,

    /// What proves that a silent node serves no more
    #[arg(long, value_name = "HOW", default_value = "required")]
    fencing: ProofBy,

    /// From the last sign of life to the verdict down, as heartbeat recv has it
    #[arg(long, value_name = "D", default_value = "3s")]
    dead_after: Span,

    /// The lease of the cluster IP, as bucket init has it
    #[arg(long, value_name = "D", default_value = "0s")]
    lease: Span,

    /// From the last sign of life to a take-over [default: dead-after + lease + 150ms, the least is 100ms]
    #[arg(long, value_name = "D")]
    take_after: Option<Span>,

    /// Take nothing without a word of quorum; without this flag a run that hears none does not wait for it
    #[arg(long)]
    quorum: bool,

    /// Give nothing to a node that has told no score of its health; without this flag it counts as well
    #[arg(long)]
    health: bool,

    /// Take nothing before every node was heard once [default: yes for two nodes]
    #[arg(long, value_name = "yes|no")]
    wait_for_all: Option<YesNo>,

    /// What this node holds, as bucket apply --beat writes it; read again when it changes
    #[arg(long, value_name = "FILE")]
    own: Option<PathBuf>,

    /// Give up while beats on link N say that this node's LAN carries nothing, also in one direction
    #[arg(long, value_name = "N")]
    lan_link: Option<u8>,

    /// While FILE is there this node drains out; its text is the reason
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    #[command(flatten)]
    deciding: Deciding,
}

/// It stands in the comment of a rule, where there is room for 16 bytes.
fn digest(text: &str) -> Result<String, String> {
    let fits = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if fits { Ok(text.to_owned()) } else { Err(format!("'{text}' is not a digest (1 to 16 letters and digits)")) }
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (node, number) = text.split_once('=').ok_or_else(|| format!("'{text}' is not NODE=N"))?;
    crate::types::node::check_name(node)?;
    let number = number.parse().map_err(|_| format!("'{number}' is not a weight"))?;
    Ok((node.to_owned(), number))
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    flags.deciding.check()?;
    let settings = settings(&flags, &process.node)?;
    let memory = flags.deciding.memory("bucket-plan", process);
    let _lock = memory.as_ref().map(|memory| memory.lock(process)).transpose()?;
    let mut planner = Planner::new(&flags, settings, memory, process)?;
    decider::run(&mut planner, &flags.deciding, process)
}

fn settings(flags: &Flags, me: &str) -> Result<Settings, Failure> {
    let homes = homes(&flags.home)?;
    for (node, home) in &homes.0 {
        super::within(home, flags.total, "plan", node)?;
    }
    let weights: BTreeMap<String, u32> = flags.weights.iter().cloned().collect();
    if !homes.0.contains_key(me) && !weights.contains_key(me) {
        return Err(Failure::usage(format!("this node, {me}, is not in --home (another name? give --node)")));
    }
    let least = flags.dead_after.0 + flags.lease.0 + Duration::from_millis(100);
    let take_after = flags.take_after.map_or(least + Duration::from_millis(50), |span| span.0);
    if take_after < least {
        return Err(Failure::usage(format!(
            "--take-after {} is too early: a node that is cut off may serve for {} (dead-after + lease + 100ms)",
            Span(take_after),
            Span(least)
        )));
    }
    let members = homes.0.keys().chain(weights.keys()).collect::<std::collections::BTreeSet<_>>().len();
    let owners: BTreeMap<&String, String> = homes.0.iter().map(|(node, home)| (node, home.to_string())).collect();
    let digest = config::digest(&serde_json::json!({
        "total": flags.total,
        "homes": owners,
        "weights": weights,
        "fail_back": !flags.no_fail_back,
    }));
    Ok(Settings {
        total: flags.total,
        config: Some(flags.config.clone().unwrap_or(digest)),
        homes,
        weights,
        fail_back: !flags.no_fail_back,
        me: me.to_owned(),
        fencing: flags.fencing.fencing(),
        take_after,
        dead_after: flags.dead_after.0,
        wait_for_all: flags.wait_for_all.map_or(members == 2, |answer| answer == YesNo::Yes),
        agree: flags.deciding.follow || flags.deciding.state.is_some(),
    })
}

/// A map as on a command line, or a file with one `NODE LIST` a line.
fn homes(text: &str) -> Result<Owners, Failure> {
    if text.contains('=') {
        return text.parse().map_err(Failure::usage);
    }
    let path = std::path::Path::new(text);
    let bytes = sys::state::read(path)?
        .ok_or_else(|| Failure::usage(format!("--home {text}: neither a map (n1=1-22,n2=23-43) nor a file")))?;
    let mut owners = Owners::default();
    for (idx, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |why: String| Failure::input(format!("{text}, line {}: {why}", idx + 1));
        let (node, list) =
            line.split_once([' ', '\t', '=']).ok_or_else(|| wrong(format!("'{line}' is not 'NODE LIST'")))?;
        crate::types::node::check_name(node).map_err(wrong)?;
        owners.add(node, list.trim().parse().map_err(wrong)?).map_err(wrong)?;
    }
    Ok(owners)
}

/// What is known of a node, from all that said something about it.
#[derive(Clone, Debug, Default)]
struct Known {
    life: Life,
    lists: Option<Lists>,
    /// Until when the lists hold; for lists that came in expired, since when they are.
    until: Option<Tick>,
    links: Option<Links>,
    /// What it hears of others.
    view: BTreeMap<String, Status>,
    weight: Option<u32>,
    score: Option<Score>,
}

impl Known {
    /// What is left of its weight, in per cent; `None` where it has told no score.
    ///
    /// A node whose scores fell silent is the last choice, not absent, and not better than it was.
    fn health_pct(&self, now: Tick) -> Option<u32> {
        let score = self.score?;
        let left = match (score.priority, score.base) {
            (0, _) => 0,
            (priority, Some(base @ 1..)) => (priority.saturating_mul(100) / base).clamp(1, 100),
            _ => 100,
        };
        let is_silent = score.until_ms.and_then(Tick::from_ms).is_some_and(|until| until <= now);
        Some(if is_silent { left.min(1) } else { left })
    }
}

struct Planner<'a> {
    flags: &'a Flags,
    settings: Settings,
    vip: Option<String>,
    known: BTreeMap<String, Known>,
    /// What quorum said last, and until when that holds.
    side: Option<(Side, Option<Tick>)>,
    memory: Memory,
    standby: Option<Standby>,
    /// Since when each node that was never heard here is told to be down.
    told: BTreeMap<String, Tick>,
    kept: Option<StateFile>,
    filed: fence::Filed,
    /// The last conclusion of a stream, when it was said, and when something was taken in.
    said: Option<(Plan, View)>,
    said_at: Tick,
    fed: Option<Tick>,
}

impl<'a> Planner<'a> {
    fn new(flags: &'a Flags, settings: Settings, kept: Option<StateFile>, process: &Process) -> Result<Self, Failure> {
        let remembered = match &kept {
            Some(kept) => kept.read(process, |remembered: Remembered| remembered.read())?,
            None => None,
        };
        Ok(Planner {
            flags,
            vip: flags.vip.map(|vip| vip.to_string()),
            known: BTreeMap::new(),
            side: None,
            memory: remembered.unwrap_or_default(),
            standby: None,
            told: BTreeMap::new(),
            kept,
            filed: fence::Filed::default(),
            said: None,
            said_at: clock::boot(),
            fed: None,
            settings,
        })
    }

    fn is_member(&self, node: &str) -> bool {
        self.settings.homes.0.contains_key(node) || self.settings.weights.contains_key(node)
    }

    fn note(&mut self, word: Word, now: Tick) {
        let (arrived, expires) = life::times(word.received_ms, word.valid_for_ms, now);
        let known = self.known.entry(word.node.clone()).or_default();
        known.life.note(&word, now);
        known.links = word.links.or(known.links.take());
        if let Some(view) = word.view {
            known.view = view;
        }
        if let Some(lists) = word.lists {
            let until = lists.until_ms.and_then(Tick::from_ms);
            known.until = match (known.until, until) {
                // A beat repeats what its applier said long ago: it is expired since then.
                (Some(old), Some(new)) if new <= now && old <= new => Some(old),
                _ => until,
            };
            known.lists = Some(lists);
            known.life.last = known.life.last.max(arrived);
            known.life.heard = true;
        }
        known.weight = word.weight.or(known.weight);
        known.score = word.score.or(known.score);
        if let Some(side) = word.quorum {
            self.side = Some((side, expires));
        }
    }

    /// Reads what this node holds, and whether it is to be left alone.
    fn look(&mut self, now: Tick) -> Result<(), Failure> {
        let vip = self.vip.clone();
        self.standby = sys::state::standby(self.flags.standby.as_deref(), vip.as_deref())?;
        for (node, kept) in &self.filed.look(&self.settings.me, now)?.nodes {
            if self.settings.homes.0.contains_key(node) || self.settings.weights.contains_key(node) {
                self.known.entry(node.clone()).or_default().life.prove(kept.proof());
            }
        }
        let Some(path) = self.flags.own.clone() else { return Ok(()) };
        let Some(bytes) = sys::state::read(&path)? else { return Ok(()) };
        let text = String::from_utf8_lossy(&bytes);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let words = Line::parse(line).and_then(|line| read_words(&line, vip.as_deref())).map_err(|why| {
                sys::Error::File {
                    doing: "read".to_owned(),
                    path: path.display().to_string(),
                    why,
                    mend: "is it what bucket apply --beat writes?".to_owned(),
                }
            })?;
            let me = self.settings.me.clone();
            for word in words.into_iter().filter(|word| word.node == me) {
                if self.vip.is_none() {
                    self.vip.clone_from(&word.vip);
                }
                self.note(Word { standby: None, ..word }, now);
            }
        }
        Ok(())
    }

    /// Why this node's LAN is of no use, where its beats say so.
    fn lan_fault(&self, view: &View, now: Tick) -> Option<Standby> {
        let lan = self.flags.lan_link?;
        let reaches_gateway = self
            .side
            .as_ref()
            .is_some_and(|(side, expires)| side.reaches_gateway && expires.is_none_or(|expires| now < expires));
        // Who cannot serve may have lost its own LAN, and proves nothing about this one.
        let serves = |node: &Node| node.status == Status::Up && !node.unfit;
        let up = view.nodes.iter().filter(|(name, node)| **name != self.settings.me && serves(node));
        // Who hears this node on no link at all says nothing about the LAN: its receiver has ended.
        let peers = up.filter_map(|(name, _)| self.known.get(name)?.links.as_ref());
        let peers = peers.filter(|links| !links.hears.is_empty());
        let peers = peers.map(|links| (links.heard.contains(&lan), links.hears.contains(&lan)));
        let dead = lan_is_dead(peers, reaches_gateway);
        dead.then(|| Standby { reason: format!("link {lan}, the LAN, carries nothing") })
    }

    fn view(&self, now: Tick) -> View {
        let quorum = life::quorum(self.side.as_ref(), self.flags.quorum, now);
        let is_tied = |name: &String| matches!(&quorum, Quorum::Pending(tied) if tied.contains(name));
        let mut nodes: BTreeMap<String, Node> = self
            .known
            .iter()
            .map(|(name, known)| {
                let (status, since) = match known.life.verdict(known.life.heard && is_tied(name), now) {
                    None if known.lists.is_some() => (Status::Up, known.life.last),
                    None => (Status::Unknown, Tick::default()),
                    Some(verdict) => verdict,
                };
                let lists = known.lists.clone();
                // Its applier has stopped saying what it holds: by now the kernel has let go of it.
                let until = known.until;
                let (status, since) = match until {
                    Some(until) if status == Status::Up && until <= now && *name != self.settings.me => {
                        (Status::Down, until)
                    }
                    _ => (status, since),
                };
                let closed = known.lists.as_ref().is_some_and(|lists| lists.unfit);
                let health_pct = known.health_pct(now).or(self.flags.health.then_some(0));
                let node = Node {
                    status,
                    since,
                    last: known.life.last,
                    heard: known.life.heard,
                    own: lists.as_ref().map(|lists| lists.own.clone()),
                    draining: lists.as_ref().map(|lists| lists.draining.clone()).unwrap_or_default(),
                    epoch: lists.as_ref().and_then(|lists| lists.epoch),
                    config: lists.and_then(|lists| lists.config),
                    weight: known.weight,
                    health_pct,
                    standby: known.life.standby.clone(),
                    left: known.life.left,
                    unfit: health_pct == Some(0) || closed,
                    closed,
                    proven_off: known.life.is_off(),
                };
                (name.clone(), node)
            })
            .collect();
        // Whom we never heard, but somebody who lives has heard and hears no more, is as down as that.
        let living = nodes.iter().filter(|(name, node)| **name != self.settings.me && node.status == Status::Up);
        let told: Vec<(String, Tick)> = living
            .filter_map(|(name, _)| self.known.get(name))
            .flat_map(|known| known.view.iter().map(|(node, status)| (node, *status, known.life.last)))
            .filter(|(_, status, _)| *status == Status::Down)
            .map(|(node, _, at)| (node.clone(), at))
            .collect();
        for (name, at) in told {
            let heard = nodes.get(&name).is_some_and(|node| node.heard);
            if self.is_member(&name) && !heard && name != self.settings.me {
                let node = nodes.entry(name.clone()).or_default();
                let since = self.told.get(&name).copied().unwrap_or(at);
                (node.status, node.since) = (Status::Down, since);
            }
        }
        let me = nodes.entry(self.settings.me.clone()).or_default();
        if me.status == Status::Unknown {
            me.status = Status::Up;
        }
        me.unfit |= self.flags.health && me.health_pct.is_none();
        me.standby = self.standby.as_ref().map(|standby| standby.reason.clone());
        View { nodes, quorum }
    }

    fn conclude(&mut self, now: Tick) -> Result<(Plan, View), Failure> {
        self.look(now)?;
        let mut view = self.view(now);
        self.told = view
            .nodes
            .iter()
            .filter(|(_, node)| !node.heard && node.status == Status::Down)
            .map(|(name, node)| (name.clone(), node.since))
            .collect();
        if let Some(fault) = self.lan_fault(&view, now) {
            // The others learn it as a standby, and leave this node out of the map as it does itself.
            if let Some(me) = view.nodes.get_mut(&self.settings.me) {
                me.unfit = true;
            }
            self.standby = Some(fault);
        }
        if view.quorum == Quorum::No {
            // Who is heard and may not serve must be left out of the map by the others too.
            self.standby = Some(Standby { reason: "its side is not quorate".to_owned() });
        }
        let (plan, memory) = plan(&self.settings, &view, &self.memory, now);
        self.memory = memory;
        Ok((plan, view))
    }

    fn keep(&self) -> Result<(), Failure> {
        match &self.kept {
            Some(kept) => kept.write(&Remembered::new(&self.memory)),
            None => Ok(()),
        }
    }

    fn head(&self, now: Tick, renewal: bool) -> Head {
        let mut head = Head::new("bucket.plan");
        head.subject.clone_from(&self.vip);
        head.received_ms = Some(now.as_ms());
        head.renewal = renewal;
        head.standby = self.standby.as_ref().map(|standby| standby.reason.clone());
        head
    }

    fn record(&self, plan: &Plan, view: &View) -> Record {
        let owners = plan.owners.0.iter().map(|(node, own)| (node.clone(), own.to_string())).collect();
        let nodes = view.nodes.iter().map(|(name, node)| {
            let seen = NodeSeen {
                status: node.status.as_str(),
                weight: node.weight,
                health_pct: node.health_pct,
                own: node.own.as_ref().map(ToString::to_string).unwrap_or_default(),
                draining: node.draining.to_string(),
            };
            (name.clone(), seen)
        });
        Record {
            total: self.settings.total,
            epoch: plan.epoch,
            config: self.settings.config.clone(),
            owners,
            mine: plan.mine.to_string(),
            moves: plan
                .moves
                .iter()
                .map(|step| Move {
                    buckets: step.buckets.to_string(),
                    from: step.from.clone(),
                    to: step.to.clone(),
                    how: step.how.as_str(),
                    why: step.why.clone(),
                })
                .collect(),
            nodes: nodes.collect(),
            unowned: plan.unowned.to_string(),
            held: plan.held.to_string(),
            needs_fence: plan.needs_fence.clone(),
        }
    }
}

fn exit(plan: &Plan) -> Exit {
    let unowned = if plan.unowned.is_empty() { Exit::Yes } else { Exit::No };
    if plan.held.is_empty() { unowned } else { unowned.and(Exit::Undecided) }
}

impl Decider for Planner<'_> {
    fn take(&mut self, text: &str, now: Tick) -> Result<bool, String> {
        let words = read_words(&Line::parse(text)?, self.vip.as_deref())?;
        let mut renewal = false;
        for word in words {
            if !self.is_member(&word.node) {
                continue;
            }
            if self.vip.is_none() {
                self.vip.clone_from(&word.vip);
            }
            renewal |= word.renewal;
            self.note(word, now);
        }
        Ok(renewal)
    }

    fn once(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        // Runs with a pause between them do not stand still in it.
        self.memory.concluded = None;
        let now = clock::boot();
        let (plan, view) = self.conclude(now)?;
        process.out.record(&self.head(now, false), &self.record(&plan, &view))?;
        self.keep()?;
        Ok(exit(&plan))
    }

    fn watched(&self) -> Vec<PathBuf> {
        let standby = self.flags.standby.clone().unwrap_or_else(|| sys::state::folder().join("standby"));
        self.flags.own.iter().cloned().chain([standby, fence::proofs_file(&self.settings.me)]).collect()
    }

    fn first(&self) -> Option<Tick> {
        Some(self.said_at.after(self.settings.fresh() / 4))
    }

    fn step(&mut self, step: Step, _: &Process, stream: &mut Stream) -> Result<Concluded, Failure> {
        let now = step.now;
        self.fed = if step.fed { Some(now) } else { self.fed };
        let (plan, view) = self.conclude(now)?;
        let said = (plan, settled(&view));
        // Whoever renews by himself is no dead man: an input that stands still is repeated no longer
        // than a node may be silent, so that the lease has run out before others take.
        let alive = self.fed.is_some_and(|fed| now.since(fed) < self.settings.dead_after);
        let renew = self.flags.deciding.renew.0;
        let repeats = step.renewal || (alive && now.since(self.said_at) >= renew);
        let news = self.said.as_ref() != Some(&said);
        if news || repeats {
            stream.record(self.head(now, repeats && !news), &self.record(&said.0, &view))?;
            self.said_at = now;
            if news {
                self.keep()?;
            }
        }
        // Often enough to see that verdicts expired, and that it was not we who stood still.
        let soon = now.after(self.settings.fresh() / 4);
        let again = alive.then(|| self.said_at.after(renew));
        let wake = [said.0.wake, Some(soon), again].into_iter().flatten().min();
        let exit = exit(&said.0);
        self.said = Some(said);
        Ok(Concluded { exit, wake })
    }

    fn last_word(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        let Some((plan, view)) = self.said.take() else { return Ok(()) };
        let given_up = Plan { mine: Buckets::new(), moves: Vec::new(), ..plan };
        stream.record(self.head(clock::boot(), false), &self.record(&given_up, &view))
    }
}

/// A view without what changes with every beat.
fn settled(view: &View) -> View {
    let mut view = view.clone();
    for node in view.nodes.values_mut() {
        node.last = Tick::default();
        node.since = Tick::default();
    }
    view
}
