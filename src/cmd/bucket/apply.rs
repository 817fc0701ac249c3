//! `bucket apply`: make the kernel agree with the plan.

use super::backend::{self, Backend, Seen, Store, Where};
use super::set::document;
use crate::cli::args::{self, Changing, flags};
use crate::cli::input::{Complaints, Feed, Got, Lines};
use crate::cli::stream::{Pump, Stream, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::bucket::change::{How, Outcome, carry_out, settle};
use crate::record::bucket::{ACTED_COLUMNS, APPLY_SCHEMA, Acted, Ordered, read_plan};
use crate::record::line::Line;
use crate::record::{Action, Head, envelope};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::netlink::{Change, Netlink};
use crate::sys::nft::{Loader, Monitor, changed_by_others};
use crate::sys::state::Lock;
use crate::types::bucket::Buckets;
use crate::types::cluster::{Cluster, Held};
use crate::types::time::{Span, Tick, millis};
use crate::wire::nft::{cluster, table_name};
use clap::{ArgMatches, Args, ValueEnum};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "apply",
    about: "Make the kernel agree with the plans on standard input, and renew the lease by them",
    examples: "bucket plan ... < nodes.jsonl | bucket apply 192.0.2.10\n\
               bucket plan ... --follow | bucket apply 192.0.2.10 --follow --beat own.json\n\
               bucket apply 192.0.2.10 --dry-run < plan.json   what would be changed?",
    args: flags::<Flags>,
    schemas: &[APPLY_SCHEMA],
    columns: ACTED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IP; plans for others are left alone
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: IpAddr,

    /// Go on; when the input ends or falls silent for as long as the lease, release everything
    #[arg(long)]
    follow: bool,

    /// What the end of input means with --follow
    #[arg(long, value_name = "WHAT", default_value = "release")]
    on_eof: OnEof,

    /// End after D
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    /// With --follow, cut what is left of a drain after D
    #[arg(long, value_name = "D", default_value = "60s")]
    drain_max: Span,

    /// Write what is held (bucket.state) to FILE, for heartbeat send --payload and bucket plan --own
    #[arg(long, value_name = "FILE")]
    beat: Option<PathBuf>,

    /// Wake the TCP peers of what is taken over, so that those who only wait notice; needs init --remember
    #[arg(long)]
    tickle: bool,

    #[command(flatten)]
    place: Where,

    #[command(flatten)]
    changing: Changing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnEof {
    /// Close every bucket, established connections too
    Release,
    /// Leave what stands
    Keep,
}

/// How long one step may take: a lock, a listing, a commit beside a large rule set.
const STEP: Duration = Duration::from_secs(5);
/// How long rules that are gone may be on their way back where there is no longer lease: `bucket watch
/// --repair` puts back what a firewall's reload took, and what an operator cleared stays away.
const AWAY: Duration = Duration::from_secs(1);
/// A wake that is later than this is a pause of our own.
const PAUSE: Duration = Duration::from_millis(100);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if flags.place.backend == Backend::Proc {
        return Err(Failure::usage(
            "--backend proc: the old kernel's file knows no drain and no lease (use bucket set)",
        ));
    }
    let deadline = if flags.follow { Deadline::after(STEP) } else { process.deadline(Duration::ZERO) };
    let store = Store::open(&flags.place, "apply the plan for", Some(flags.vip), process, deadline)?;
    // At the start alone: later it is a courtesy that must not stop the service.
    if flags.tickle
        && let Some(cluster) = store.need(Applier::doing(), flags.vip)?.cluster
    {
        super::may_wake(&cluster, Applier::doing())?;
    }
    let mut applier = Applier {
        flags: &flags,
        store,
        node: process.node.clone(),
        renewed: None,
        draining: BTreeMap::new(),
        standby: None,
        unfit: None,
        done: None,
        known: None,
        epoch: None,
        rules: None,
        loader: Loader::default(),
        dev: None,
        lease: None,
        mute: false,
        gone: None,
    };
    if flags.follow { follow(&mut applier, process) } else { once(&mut applier, deadline, process) }
}

struct Applier<'a> {
    flags: &'a Flags,
    store: Store,
    node: String,
    /// The last renewal that the kernel took.
    renewed: Option<Tick>,
    /// Since when each bucket is draining.
    draining: BTreeMap<u16, Tick>,
    standby: Option<String>,
    /// Why nobody can be served at this moment.
    unfit: Option<String>,
    /// The plan that was carried out last, and the lease that goes with it.
    done: Option<(Ordered, Option<Duration>)>,
    /// What stands in the kernel, where that is known without a look.
    known: Option<Seen>,
    /// The number of the map that is followed. The kernel gets it with the next change.
    epoch: Option<u64>,
    /// Tells whether that still holds; of a stream alone.
    rules: Option<Monitor>,
    /// What changes the rules of a stream.
    loader: Loader,
    /// The interface of the cluster IP.
    dev: Option<String>,
    /// Its lease.
    lease: Option<Duration>,
    /// The beat could not be written: the others believe what is no longer so.
    mute: bool,
    /// Since when the rules of a stream are gone.
    gone: Option<Tick>,
}

/// A change that is decided on.
struct Step {
    head: Head,
    seen: Seen,
    next: Cluster,
    outcome: Outcome,
    how: Option<How>,
}

/// What of the lease goes with a change of the map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lease {
    /// It is renewed, or granted where it has run out.
    Renewed,
    /// Nothing: whoever gives everything up needs none.
    Left,
}

/// What one step did.
struct Done {
    head: Head,
    acted: Acted,
    exit: Exit,
}

impl Applier<'_> {
    fn doing() -> &'static str {
        "apply the plan for"
    }

    /// Gives every step its own time, lock and record.
    fn begin(&mut self, deadline: Deadline) -> Result<(Option<Lock>, Head), Failure> {
        if let Store::Nft(nft) = &mut self.store {
            *nft = nft.until(deadline);
        }
        super::begin("bucket.apply", self.flags.vip, self.flags.changing, deadline)
    }

    /// Looks at the rules, and remembers them for as long as nobody changes them.
    fn look(&mut self) -> Result<Option<Seen>, Failure> {
        if let (Store::Nft(nft), true) = (&mut self.store, self.flags.follow) {
            // A stream looks long after its last step.
            *nft = nft.until(Deadline::after(STEP));
        }
        // What is heard up to here is in what is seen; what comes later is not.
        self.hear_of_rules()?;
        let seen = self.store.look(self.flags.vip)?;
        if let Some(cluster) = seen.as_ref().and_then(|seen| seen.cluster.as_ref()) {
            self.dev = Some(cluster.dev.clone());
            self.lease = cluster.lease;
        }
        if seen.is_some() {
            self.gone = None;
        }
        self.known.clone_from(&seen);
        Ok(seen)
    }

    /// The same, where there must be something.
    fn need(&mut self) -> Result<Seen, Failure> {
        self.look()?.ok_or_else(|| super::absent(Self::doing(), self.flags.vip))
    }

    /// Forgets what was seen if the kernel says that the rules were changed since.
    fn hear_of_rules(&mut self) -> Result<(), Failure> {
        let Some(rules) = &mut self.rules else {
            self.known = None;
            return Ok(());
        };
        if changed_by_others(&rules.heard()?, &table_name(self.flags.vip), None) {
            self.known = None;
        }
        Ok(())
    }

    /// Says what stands after somebody else has changed it. Where nothing stands, or nothing that can be
    /// read, the next plan finds out what is to be done.
    fn look_again(&mut self) -> Result<(), Failure> {
        let knew = self.known.is_some();
        self.hear_of_rules()?;
        if knew
            && self.known.is_none()
            && let Ok(Some(seen)) = self.look()
        {
            self.tell(&seen)?;
        }
        Ok(())
    }

    /// What stands, for as long as nobody changed the rules and the lease cannot have run out.
    fn known(&mut self) -> Result<Option<Seen>, Failure> {
        self.hear_of_rules()?;
        let known = self.known.clone();
        Ok(known.filter(|seen| seen.cluster.as_ref().is_some_and(|cluster| self.is_fresh(cluster))))
    }

    /// Does something about what stands: by what is known, since clients wait, and by a look where
    /// that was refused, since somebody may have changed the rules just now. `None` if nothing is
    /// there any more.
    fn act_on(&mut self, act: impl Fn(&mut Self, Seen) -> Result<Done, Failure>) -> Result<Option<Done>, Failure> {
        if let Some(seen) = self.known()? {
            match act(self, seen) {
                Ok(done) => return Ok(Some(done)),
                // A lease that was lost, or a plan that is too old: a look makes neither younger.
                Err(failure) if failure.exit == Exit::Undecided || self.mute => return Err(failure),
                Err(_) => {}
            }
        }
        let Some(seen) = self.look()? else { return Ok(None) };
        match act(self, seen) {
            // Gone between the look and the act.
            Err(failure) if !self.mute && failure.exit != Exit::Undecided && self.look()?.is_none() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Carries one plan out.
    fn carry_out(&mut self, ordered: &Ordered, deadline: Deadline) -> Result<Done, Failure> {
        let (_lock, head) = self.begin(deadline)?;
        self.standby.clone_from(&ordered.standby);
        let done = self.act_on(|applier, seen| applier.obey(ordered, head.clone(), seen))?;
        done.ok_or_else(|| super::absent(Self::doing(), self.flags.vip))
    }

    fn obey(&mut self, ordered: &Ordered, head: Head, seen: Seen) -> Result<Done, Failure> {
        let vip = self.flags.vip;
        let Some(cluster) = &seen.cluster else { return Err(super::absent(Self::doing(), vip)) };
        if ordered.total != cluster.total {
            return Err(Failure::input(format!(
                "cannot apply the plan for {vip}: it divides {} buckets, and {} were made here (the same --total everywhere)",
                ordered.total, cluster.total
            )));
        }
        let too_old = cluster
            .lease
            .zip(ordered.received_ms)
            .is_some_and(|(lease, made_ms)| clock::boot().as_ms() - made_ms > lease.as_secs_f64() * 1000.0);
        if too_old {
            return Err(Failure::new(
                Exit::Undecided,
                Reason::TimedOut,
                format!("cannot apply the plan for {vip}: it is older than the lease (is the planner running?)"),
            ));
        }
        let before = seen.standing();
        let mut order = ordered.order.clone();
        // The planner believed that these were held: they were lost since, perhaps to somebody
        // else, and have to be asked for again.
        order.mine = order.mine.difference(&ordered.known.difference(&before.owned));
        if self.unfit.is_some() {
            order.mine = Buckets::new();
        }
        let lease = cluster.lease;
        let (outcome, how) =
            carry_out(&before, cluster.total, &order).map_err(|why| super::refusal(&why, Self::doing(), vip))?;
        let next = Cluster { epoch: ordered.epoch, config: ordered.config.clone(), ..cluster.clone() };
        self.epoch = Some(ordered.epoch);
        let done = if outcome.held == seen.held && next != *cluster && self.may_wait(lease) {
            self.tell(&seen)?;
            let acted = Acted::new(seen.show(), &outcome, Some(how));
            Done { head, acted, exit: Exit::Yes }
        } else {
            self.act(Step { head, seen, next, outcome, how: Some(how) })?
        };
        self.done = (done.exit == Exit::Yes).then(|| (ordered.clone(), lease));
        Ok(done)
    }

    /// Whether a new number alone goes to the kernel with the next renewal: the others wait for this
    /// node to say it, and a commit would keep the one that may follow waiting.
    fn may_wait(&self, lease: Option<Duration>) -> bool {
        self.rules.is_some() && !self.flags.changing.dry_run && lease.is_some() && !self.is_due(lease)
    }

    /// Looks whether the interface can carry anything; says whether that is news.
    fn look_at_link(&mut self) -> Result<bool, Failure> {
        let (Store::Nft(_), Some(dev)) = (&self.store, &self.dev) else { return Ok(false) };
        let links = Netlink::open()?.links()?;
        let unfit = match links.iter().find(|link| link.name == *dev) {
            Some(link) if link.is_usable() => None,
            Some(link) if link.up => Some(format!("{} has no carrier", link.name)),
            Some(link) => Some(format!("{} is down", link.name)),
            None => Some(format!("{dev} is gone")),
        };
        let news = unfit.is_some() != self.unfit.is_some();
        self.unfit = unfit;
        Ok(news)
    }

    /// Closes everything: a fault, or the end. The beat says so in any case.
    fn release(&mut self) -> Result<Option<Done>, Failure> {
        self.done = None;
        let (_lock, head) = self.begin(Deadline::after(STEP))?;
        self.act_on(|applier, seen| applier.close(head.clone(), seen))
    }

    fn close(&mut self, head: Head, seen: Seen) -> Result<Done, Failure> {
        let Some(mut next) = seen.cluster.clone() else { return Err(super::absent(Self::doing(), self.flags.vip)) };
        next.epoch = self.epoch.unwrap_or(next.epoch);
        let outcome = Outcome { held: Held::default(), gained: Buckets::new(), lost: seen.held.owned.clone() };
        let changes = seen.held != outcome.held;
        let text = if changes { Some(cluster::map(&next, &outcome.held).map_err(Failure::usage)?) } else { None };
        let done =
            self.commit(Step { head, seen, next, outcome, how: Some(How::Settle) }, text, changes, Lease::Left)?;
        if done.head.changed != Some(true) || done.head.dry_run {
            self.tell_now()?;
        }
        Ok(done)
    }

    /// Releases everything for good. The beat says so, or the others would wait for a node that
    /// lives and follows no map.
    fn end(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        self.unfit = Some("bucket apply has ended".to_owned());
        let released = self.release()?;
        if released.is_none() {
            self.tell(&Seen::gone())?;
        }
        match released.map(|done| stream.record(done.head, &done.acted)) {
            // Nobody is left to read it.
            Some(Err(failure)) if !failure.is_reader_gone() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Cuts drains that have lasted long enough; says when the next one has.
    fn end_drains(&mut self, now: Tick) -> Result<Option<Done>, Failure> {
        let limit = self.flags.drain_max.0;
        let over: Buckets =
            self.draining.iter().filter(|(_, since)| now.since(**since) >= limit).map(|(bucket, _)| *bucket).collect();
        if over.is_empty() {
            return Ok(None);
        }
        let (_lock, head) = self.begin(Deadline::after(STEP))?;
        let Some((seen, next)) = self.look()?.and_then(|seen| seen.cluster.clone().map(|next| (seen, next))) else {
            // What comes back begins its drains anew.
            self.draining.clear();
            return Ok(None);
        };
        let held = settle(&seen.held, &over.intersection(&seen.held.draining));
        let outcome = Outcome { held, ..Outcome::default() };
        self.act(Step { head, seen, next, outcome, how: None }).map(Some)
    }

    fn next_drain_end(&self) -> Option<Tick> {
        self.draining.values().map(|since| since.after(self.flags.drain_max.0)).min()
    }

    /// The map and the lease with it, or the lease alone where that is due.
    fn act(&mut self, step: Step) -> Result<Done, Failure> {
        let (seen, next, held) = (&step.seen, &step.next, &step.outcome.held);
        let lapsed = seen.is_lapsed();
        let holds_nothing = *held == Held::default();
        let changes = *held != seen.held || (lapsed && !holds_nothing) || seen.cluster.as_ref() != Some(next);
        let text = if changes {
            Some(document(next, held, lapsed)?)
        } else if lapsed {
            Some(cluster::grant(next))
        } else if self.is_due(next.lease) {
            if cluster::in_place(next) && !self.may_extend(next) && !self.flags.changing.dry_run {
                return Err(lost(self.flags.vip));
            }
            Some(cluster::renew(next))
        } else {
            None
        };
        self.commit(step, text, changes, Lease::Renewed)
    }

    /// One transaction, the word of it in the beat as soon as it is in force, and a look at what came
    /// of it.
    fn commit(&mut self, step: Step, text: Option<String>, changes: bool, lease: Lease) -> Result<Done, Failure> {
        let Step { mut head, seen, next, outcome, how } = step;
        let vip = self.flags.vip;
        head.standby.clone_from(&self.standby);
        let is_nft = matches!(self.store, Store::Nft(_));
        if changes && self.flags.changing.shows_actions() {
            let text = text.clone().unwrap_or_default();
            head.actions = vec![Action { op: if is_nft { "nft" } else { "file" }, text }];
        }
        let acts = !self.flags.changing.dry_run;
        // Whether something was loaded, and if so, whether the beat told of it.
        let mut told = None;
        match (&self.store, text) {
            (Store::Nft(_), Some(text)) if acts => {
                let in_force = seen.with(&next, &outcome.held, lease == Lease::Renewed);
                let renews_alone = !changes && !seen.is_lapsed();
                let loaded = self.load(&text, &in_force, lease, |error| match error {
                    // The element to renew is gone: the lease ran out since the look.
                    sys::Error::Call { errno: nix::errno::Errno::ENOENT, .. } if renews_alone => lost(vip),
                    error => error.into(),
                })?;
                told = Some(loaded);
            }
            (Store::File(origin), _) if changes && acts => backend::keep(origin, &next, &outcome.held)?,
            _ => {}
        }
        if let (Store::Nft(nft), false) = (&self.store, changes) {
            self.loader.rest(nft)?;
        }
        // A renewal alone changes nothing that could be read back.
        let now = if changes && acts { self.need()? } else { seen.clone() };
        let as_ordered = !changes || !acts || now.held == outcome.held;
        head.changed = Some(changes && as_ordered);
        if changes && acts && (told != Some(true) || !as_ordered) {
            self.tell(&now)?;
        } else if told == Some(false) {
            // A renewal, and somebody changed the rules meanwhile.
            self.tell_now()?;
        }
        if changes && acts && is_nft {
            // After the beat: whoever takes over waits for that alone.
            super::end_connections("bucket apply", &next, &seen.held, &outcome.held);
        }
        let mut acted = Acted::new(now.show(), &outcome, how);
        if let (true, true, Store::Nft(nft)) = (self.flags.tickle && acts, as_ordered, &self.store) {
            let taken_over = outcome.gained.intersection(&outcome.held.reset);
            // A courtesy: where it cannot be, that is told, and the service goes on.
            acted.tickled = (!taken_over.is_empty()).then(|| super::wake("bucket apply", nft, &next, &taken_over));
        }
        Ok(Done { head, acted, exit: if as_ordered { Exit::Yes } else { Exit::Refused } })
    }

    /// Loads a document, and knows from then on what stands. Whether the beat told of it: it does
    /// where the kernel says itself that it is in force, and nobody else changed anything beside it.
    fn load(
        &mut self,
        text: &str,
        in_force: &Seen,
        lease: Lease,
        refused: impl Fn(sys::Error) -> Failure,
    ) -> Result<bool, Failure> {
        let Store::Nft(nft) = self.store.clone() else { return Ok(false) };
        let vip = self.flags.vip.to_string();
        let now = clock::boot();
        self.known = None;
        let Some(rules) = &mut self.rules else {
            nft.load(text, Self::doing(), &vip).map_err(refused)?;
            self.renewed = (lease == Lease::Renewed).then_some(now).or(self.renewed);
            return Ok(false);
        };
        let name = table_name(self.flags.vip);
        let loaded = self.loader.load(&nft, text, &name, (Self::doing(), &vip), rules).map_err(refused)?;
        self.renewed = (lease == Lease::Renewed).then_some(now).or(self.renewed);
        if changed_by_others(&loaded.heard, &name, loaded.process) {
            return Ok(false);
        }
        self.known = Some(in_force.clone());
        self.tell(in_force)?;
        Ok(true)
    }

    /// Whether a plan is the one that stands already, with time left until the lease needs it: then
    /// not even a look is due, which costs a process. What others do to the rules, `watch` mends.
    fn stands(&self, ordered: &Ordered) -> bool {
        self.done.as_ref().is_some_and(|(done, lease)| {
            let same = Ordered { received_ms: done.received_ms, renewal: done.renewal, ..ordered.clone() } == *done;
            same && !self.is_due(*lease)
        })
    }

    fn is_due(&self, lease: Option<Duration>) -> bool {
        let Some(lease) = lease else { return false };
        self.renewed.is_none_or(|renewed| clock::boot().since(renewed) >= lease / 3)
    }

    /// Whether the lease cannot have run out unseen.
    fn is_fresh(&self, cluster: &Cluster) -> bool {
        cluster.lease.is_none_or(|lease| self.renewed.is_some_and(|renewed| clock::boot().since(renewed) < lease / 2))
    }

    /// In place even a lapsed lease could be brought back: only soon after the last renewal.
    fn may_extend(&self, cluster: &Cluster) -> bool {
        let lease = cluster.lease.unwrap_or_default();
        self.renewed.is_none_or(|renewed| clock::boot().since(renewed) < lease / 2)
    }

    /// Notes what drains since when, and tells the beat.
    fn tell(&mut self, seen: &Seen) -> Result<(), Failure> {
        let now = clock::boot();
        let draining = seen.standing().draining;
        self.draining.retain(|bucket, _| draining.contains(*bucket));
        for bucket in draining.iter() {
            self.draining.entry(bucket).or_insert(now);
        }
        let Some(path) = &self.flags.beat else { return Ok(()) };
        let mut state = seen.state(self.unfit.clone());
        state.epoch = self.epoch.unwrap_or(state.epoch);
        let mut head = Head::new("bucket.state").about(self.flags.vip);
        head.standby.clone_from(&self.standby);
        // No longer than the kernel serves by itself: who reads this must not wait for an applier
        // that stands still.
        if let Some(lease) = seen.cluster.as_ref().and_then(|cluster| cluster.lease) {
            let since = self.renewed.map_or(Duration::ZERO, |renewed| now.since(renewed));
            head.received_ms = Some(now.as_ms());
            head.valid_for_ms = Some(millis(lease.saturating_sub(since)));
        }
        let mut line = Vec::new();
        envelope::write(&mut line, &head, clock::wall(), &self.node, &state).map_err(|why| {
            Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write {}: {why}", path.display()))
        })?;
        let written = sys::state::replace(path, &line);
        self.mute = written.is_err();
        Ok(written?)
    }

    /// Tells what is there before anything is done.
    fn tell_now(&mut self) -> Result<(), Failure> {
        if let Some(seen) = self.look()? {
            self.tell(&seen)?;
        }
        Ok(())
    }
}

fn lost(vip: IpAddr) -> Failure {
    let why =
        format!("cannot renew the lease of {vip}: too long since the last renewal, so what was held counts as lost");
    Failure::new(Exit::Undecided, Reason::TimedOut, why)
}

fn once(applier: &mut Applier<'_>, deadline: Deadline, process: &mut Process) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new(&process.who);
    let mut newest = None;
    let mut lines = Lines::stdin();
    let vip = applier.flags.vip.to_string();
    while let Some(got) = lines.next()? {
        match got {
            Got::Line(number, text) => match Line::parse(text).and_then(|line| read_plan(&line, &vip, &process.node)) {
                Ok(plan) => newest = plan.or(newest),
                Err(why) => complaints.line(number, &why),
            },
            Got::Malformed(number, why) => complaints.line(number, &why),
        }
    }
    let malformed = complaints.finish();
    let Some(ordered) = newest else {
        if malformed == Exit::Yes {
            process.complain(&format!("no plan for {vip} was read: nothing is changed"));
        }
        return Ok(malformed.and(Exit::Undecided));
    };
    applier.look()?;
    applier.look_at_link()?;
    let done = applier.carry_out(&ordered, deadline)?;
    process.out.record(&done.head, &done.acted)?;
    if applier.flags.beat.is_some() && !applier.flags.changing.dry_run {
        applier.tell_now()?;
    }
    Ok(done.exit.and(malformed))
}

/// Why a stream has ended.
enum Ended {
    /// No more input.
    Input,
    /// No plan for as long as the lease.
    Silence,
    /// At `--for` or `--timeout`.
    Time,
    Signal(Signal),
    /// Nobody reads the records any more: the pipeline is being taken down.
    Reader,
}

fn follow(applier: &mut Applier<'_>, process: &mut Process) -> Result<Exit, Failure> {
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let outcome = match follow_on(applier, process, &mut pump, &mut complaints) {
        Err(failure) if failure.is_reader_gone() => Ok(Ended::Reader),
        outcome => outcome,
    };
    if outcome.is_err() && applier.epoch.is_some() {
        // Plans were followed here. Whatever it was that failed: nothing is held any longer, and the
        // beat says so, as far as that can be.
        let _ = applier.end(&mut pump.stream);
    }
    let outcome = outcome.and_then(|ended| {
        let planned = matches!(ended, Ended::Time) && applier.flags.duration.is_some();
        let keeps = planned || (applier.flags.on_eof == OnEof::Keep && !matches!(ended, Ended::Silence));
        // Before anything else: whoever ends this run may count on it.
        if !keeps {
            applier.end(&mut pump.stream)?;
        }
        Ok(match ended {
            Ended::Signal(signal) => pump.die(signal),
            _ if planned => Exit::Yes,
            _ => Exit::No,
        })
    });
    pump.stream.finish();
    Ok(outcome?.and(complaints.finish()))
}

fn follow_on(
    applier: &mut Applier<'_>,
    process: &Process,
    pump: &mut Pump,
    complaints: &mut Complaints,
) -> Result<Ended, Failure> {
    let mut links = Netlink::monitor()?;
    if let Store::Nft(nft) = &applier.store {
        applier.rules = Some(Monitor::open()?);
        if !applier.flags.changing.dry_run {
            applier.loader.prepare(nft)?;
        }
    }
    let mut feed = Feed::default();
    let stdin = std::io::stdin();
    let vip = applier.flags.vip.to_string();
    let seen = applier.need()?;
    applier.look_at_link()?;
    let lease = seen.cluster.as_ref().and_then(|cluster| cluster.lease);
    applier.tell(&seen)?;
    let end = process.stream_end(applier.flags.duration);
    // Silence counts from here on: a planner needs a moment to say its first word.
    let mut spoken = clock::boot();
    let (mut released, mut forgiven) = (false, false);
    loop {
        let silent = lease.filter(|_| !released).map(|lease| spoken.after(lease));
        let deadline = [silent, end, applier.next_drain_end()].into_iter().flatten().min();
        let woken = {
            let rules = applier.rules.as_ref().map(Monitor::as_fd);
            let sources: Vec<_> = [stdin.as_fd(), links.as_fd()].into_iter().chain(rules).collect();
            pump.wait(&sources, deadline)?
        };
        let ready = match woken {
            Woken::Ready(ready) => ready,
            Woken::Signal(signal) => return Ok(Ended::Signal(signal)),
        };
        if ready.get(2) == Some(&true) {
            applier.look_again()?;
        }
        let now = clock::boot();
        if !forgiven && silent.is_some_and(|silent| now.since(silent) > PAUSE) {
            // It was we who stood still, perhaps the planner with us: it gets its time once more. The
            // kernel serves nothing meanwhile, and what lapsed is not renewed but asked for again.
            (spoken, forgiven) = (now, true);
        }
        if ready.get(1) == Some(&true) {
            let changed = links.changes()?;
            let of_links = changed.iter().any(|change| !matches!(change, Change::Address { .. }));
            if of_links && applier.look_at_link()? {
                if let Some(why) = applier.unfit.clone() {
                    let released = applier.release()?;
                    process.complain(&format!("{why}: everything is released"));
                    if let Some(done) = released {
                        pump.stream.record(done.head, &done.acted)?;
                    }
                } else {
                    applier.tell_now()?;
                }
            }
        }
        let mut newest = None;
        if ready.first() == Some(&true) {
            for (number, line) in feed.take()? {
                let read = line.and_then(|text| read_plan(&Line::parse(&text)?, &vip, &process.node));
                match read {
                    Ok(plan) => newest = plan.or(newest),
                    Err(why) => complaints.line(number, &why),
                }
            }
        }
        if let Some(ordered) = newest {
            spoken = now;
            (released, forgiven) = (false, false);
            if !applier.stands(&ordered) {
                step(applier, &ordered, &mut pump.stream, process)?;
            }
        }
        if let Some(done) = applier.end_drains(now)? {
            pump.stream.record(done.head, &done.acted)?;
        }
        if silent.is_some_and(|silent| now >= silent) && spoken.after(lease.unwrap_or_default()) <= now {
            // The kernel has stopped by itself; what stands in the rules must not come back.
            process.complain("no plan for as long as the lease: everything is released");
            if applier.flags.on_eof == OnEof::Release {
                return Ok(Ended::Silence);
            }
            if let Some(done) = applier.release()? {
                pump.stream.record(done.head, &done.acted)?;
            }
            released = true;
        }
        if feed.is_ended() {
            return Ok(Ended::Input);
        }
        if end.is_some_and(|end| now >= end) {
            return Ok(Ended::Time);
        }
    }
}

/// One plan of a stream: a failure is told, and the stream goes on.
fn step(applier: &mut Applier<'_>, ordered: &Ordered, stream: &mut Stream, process: &Process) -> Result<(), Failure> {
    match applier.carry_out(ordered, Deadline::after(STEP)) {
        Ok(done) => {
            if done.head.changed == Some(true) {
                stream.record(done.head, &done.acted)?;
            }
        }
        // The beat says on what it said: who puts the rules back puts the buckets back too, and both end
        // with the lease.
        Err(failure) if failure.reason == Reason::NoSuchClusterIp => {
            let now = clock::boot();
            let wait = applier.lease.unwrap_or_default().max(AWAY);
            match applier.gone {
                None => {
                    applier.gone = Some(now);
                    let vip = applier.flags.vip;
                    process.complain(&format!(
                        "the rules of {vip} are gone: waiting {} for bucket watch --repair",
                        Span(wait)
                    ));
                    tell_failure(&failure, vip, stream)?;
                }
                Some(since) if now.since(since) < wait => {}
                // Cleared by hand: there is nothing left to apply to, and whoever started this must know.
                Some(_) => return Err(failure),
            }
        }
        // The others take by what the beat says: who cannot say what it holds must hold nothing.
        Err(failure) if applier.mute => return Err(failure),
        Err(failure) => {
            process.complain(&failure.sentence);
            tell_failure(&failure, applier.flags.vip, stream)?;
            // Whatever went wrong, the others must hear what the kernel has.
            applier.tell_now()?;
        }
    }
    Ok(())
}

fn tell_failure(failure: &Failure, vip: IpAddr, stream: &mut Stream) -> Result<(), Failure> {
    let mut head = Head::new("bucket.apply").about(vip);
    head.error = Some(failure.body());
    stream.record(head, &envelope::Nothing {})
}
