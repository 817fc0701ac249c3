//! One name on one of several servers: look, decide, act, look again.

use super::authorities::{self, unseen};
use super::primary::{Look, Primary, Trouble};
use crate::cli::args::Changing;
use crate::cli::{Exit, Failure, Reason};
use crate::decide::update::{Plan, Standing, Wish, plan};
use crate::record::{Action, Head, dns};
use crate::sys::clock::{self, Deadline};
use crate::sys::connect;
use crate::sys::state::Lock;
use crate::types::domain::Domain;
use crate::types::rrset::{AddressSet, Family};
use crate::types::target::Target;
use crate::types::time::Tick;
use crate::wire::dns::update::{Fault, Key, Signed, Update};
use std::net::SocketAddr;
use std::time::Duration;

/// What is waited for, a primary may tell only after a while (BIND's notify-delay is 5 s), and then it is fetched.
const WAIT: Duration = Duration::from_secs(10);
/// How long what was done may take to be seen where it was done: some servers pass it on to the primary.
const SETTLE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
const PORT: u16 = 53;

/// # Errors
/// The name is not in the zone that was named.
pub(super) fn check_zone(name: &Domain, zone: Option<&Domain>) -> Result<(), String> {
    match zone {
        Some(zone) if !name.is_in(zone.as_str()) => Err(format!("the name {name} is not in the zone {zone}")),
        _ => Ok(()),
    }
}

/// What was done about a name.
pub(super) struct Done {
    pub(super) records: Vec<(Head, dns::Update)>,
    pub(super) exit: Exit,
    pub(super) changed: bool,
    /// What a person should know of it.
    pub(super) complaint: Option<String>,
}

/// How it went with one server.
#[derive(Default)]
struct Told {
    zone: Option<String>,
    before: Option<Standing>,
    after: Option<Standing>,
    /// The types that the records are about.
    about: Vec<Family>,
    changed: Vec<Family>,
    /// Something was changed, if only the mark.
    acted: bool,
    rcode: Option<String>,
    fault: Option<Fault>,
    failure: Option<Failure>,
    actions: Vec<Action>,
    visible_on: Option<Vec<String>>,
    /// It was a wildcard that answered for the name, before it got records of its own.
    wildcard: bool,
    /// Nothing was sent, or nothing done for certain: another server may take it.
    goes_on: bool,
    /// Where it stands as wished, as whom, and what that is.
    stands: Option<(SocketAddr, String, Plan)>,
}

/// Until when one server may take, and until when everything.
#[derive(Clone, Copy)]
struct Until {
    own: Tick,
    all: Tick,
}

/// The servers, and how they are asked.
pub(super) struct Pusher {
    /// Tried in turn until one takes it.
    pub(super) servers: Vec<Target>,
    pub(super) key: Key,
    /// Else what the server says.
    pub(super) zone: Option<Domain>,
    /// Until every authoritative server shows it.
    pub(super) wait: bool,
    /// At most so long, where it is looked again later.
    pub(super) wait_at_most: Option<Duration>,
    pub(super) changing: Changing,
}

impl Pusher {
    /// What a run takes by itself, beyond what every run may take.
    pub(super) fn planned(&self) -> Duration {
        if self.wait { WAIT } else { Duration::ZERO }
    }

    /// Has one of the servers do what is wished.
    ///
    /// # Errors
    /// None was asked.
    pub(super) fn carry_out(&self, name: &Domain, wish: &Wish, deadline: Deadline) -> Result<Done, Failure> {
        check_zone(name, self.zone.as_ref()).map_err(|why| Failure::input(format!("cannot update {name}: {why}")))?;
        let dry_run = self.changing.dry_run;
        let lock = if dry_run { None } else { Some(Lock::take(&[name.as_str()], deadline)?) };
        let mut all: Vec<(&Target, Told)> = Vec::new();
        for (idx, target) in self.servers.iter().enumerate() {
            let rest = u32::try_from(self.servers.len() - idx).unwrap_or(1);
            let until = Until { own: clock::boot().after(deadline.left() / rest), all: deadline.tick() };
            let told = self.ask(target, name, wish, until);
            let goes_on = told.goes_on;
            all.push((target, told));
            if !goes_on {
                break;
            }
        }
        // Nobody has to wait for another server's copy before the next change.
        drop(lock);
        if let Some((target, told)) = all.last_mut().filter(|_| self.wait && !dry_run) {
            let limit = self.wait_at_most.map(|limit| clock::boot().after(limit));
            self.await_all(target, name, told, limit.map_or(deadline.tick(), |limit| limit.min(deadline.tick())));
        }
        let mut done = Done { records: Vec::new(), exit: Exit::Yes, changed: false, complaint: None };
        let mut sentences = Vec::new();
        for (target, told) in all {
            let (goes_on, exit) = (told.goes_on, told.failure.as_ref().map_or(Exit::Yes, |failure| failure.exit));
            // What one took, nobody need know of the others; their records tell it.
            if !goes_on && exit == Exit::Yes {
                sentences.clear();
            }
            sentences.extend(told.failure.as_ref().map(|failure| failure.sentence.clone()));
            done.exit = if goes_on { done.exit.and(exit) } else { exit };
            done.changed = told.acted;
            done.records.extend(told.records(target, name, dry_run));
        }
        done.complaint = Some(sentences.join("; ")).filter(|text| !text.is_empty());
        Ok(done)
    }

    /// Waits until every authoritative server shows what stands.
    fn await_all(&self, target: &Target, name: &Domain, told: &mut Told, until: Tick) {
        let Some((to, zone, plan)) = told.stands.take() else { return };
        let primary = Primary { target, to, key: &self.key, name };
        match authorities::wait(&primary, &zone, &plan, until) {
            Ok(seen) => {
                told.failure = (!seen.missing.is_empty()).then(|| unseen(&primary, &seen.missing));
                told.visible_on = Some(seen.on);
            }
            Err(trouble) => told.failure = Some(trouble.failure),
        }
    }

    fn ask(&self, target: &Target, name: &Domain, wish: &Wish, until: Until) -> Told {
        let mut told = Told { about: wish.parts.iter().map(|part| part.family).collect(), ..Told::default() };
        if let Err(trouble) = self.try_on(target, name, wish, until, &mut told) {
            told.rcode = trouble.rcode.or(told.rcode);
            told.fault = trouble.fault;
            told.failure = Some(trouble.failure);
        }
        told
    }

    /// Looks, decides, acts, and looks again; what came of it stands in `told`.
    fn try_on(
        &self,
        target: &Target,
        name: &Domain,
        wish: &Wish,
        until: Until,
        told: &mut Told,
    ) -> Result<(), Trouble> {
        told.goes_on = true;
        // A name may have an address that this host has no way to; the one that is reached is asked all else.
        let mut reached = Err(Failure::usage(format!("the server {target} has no address")).into());
        for to in connect::resolve(target, PORT, until.own).map_err(Failure::from)? {
            let primary = Primary { target, to, key: &self.key, name };
            reached = primary.look(self.zone.is_none(), until.own).map(|look| (primary, look));
            if !matches!(&reached, Err(Trouble { failure, .. }) if failure.reason == Reason::Unreachable) {
                break;
            }
        }
        let (primary, look) = reached?;
        told.rcode = Some(look.rcode);
        let zone = self.zone.as_ref().map(|zone| zone.as_str().to_owned()).or(look.zone);
        let zone = zone.filter(|zone| name.is_in(zone)).ok_or_else(|| {
            primary.failure(Exit::BadInput, Reason::NotInZone, "it does not tell the zone of the name (give --zone)")
        })?;
        told.zone = Some(zone.clone());
        told.before = Some(look.standing.clone());
        let mut plan = plan(&look.standing, wish);
        self.act(&primary, &zone, &plan, until, told)?;
        if told.failure.is_some() && told.rcode.as_deref() == Some("NXRRSET") && told.after == told.before {
            // Nobody was faster, and still it does not stand at the name: it comes from a wildcard (RFC 4592).
            told.failure = None;
            plan = plan.of_its_own();
            self.act(&primary, &zone, &plan, until, told)?;
            told.wildcard = told.acted;
        }
        told.goes_on = false;
        if told.failure.is_none() {
            told.stands = Some((primary.to, zone, plan));
        }
        Ok(())
    }

    fn act(
        &self,
        primary: &Primary<'_>,
        zone: &str,
        plan: &Plan,
        until: Until,
        told: &mut Told,
    ) -> Result<(), Trouble> {
        let (name, edits) = (primary.name.as_str(), plan.edits.as_slice());
        let update = Update { zone, name, prerequisites: &plan.prerequisites, edits };
        told.about = plan.about().to_vec();
        if self.changing.shows_actions() && !edits.is_empty() {
            told.actions = vec![Action { op: "dns-update", text: update.as_nsupdate(primary.to) }];
        }
        if edits.is_empty() {
            told.after.clone_from(&told.before);
            return Ok(());
        }
        let signed = primary.sign(&update)?;
        if self.changing.dry_run {
            told.does(plan);
            told.after = Some(plan.after.clone());
            return Ok(());
        }
        told.send(primary, zone, &signed, plan, until)
    }
}

/// What a name has, of what a plan is about.
fn text(standing: &Standing, plan: &Plan) -> String {
    let parts: Vec<String> = plan
        .about()
        .iter()
        .map(|family| {
            let set = standing.of(*family);
            if set.is_empty() { format!("no {family}") } else { format!("{family} {}", list(set).join(", ")) }
        })
        .collect();
    parts.join(" and ")
}

fn list(set: &AddressSet) -> Vec<String> {
    set.addresses.iter().map(ToString::to_string).collect()
}

impl Told {
    fn does(&mut self, plan: &Plan) {
        self.changed.clone_from(&plan.changed);
        self.acted = true;
    }

    /// Sends the update, and finds out what has come of it.
    fn send(
        &mut self,
        primary: &Primary<'_>,
        zone: &str,
        update: &Signed,
        plan: &Plan,
        until: Until,
    ) -> Result<(), Trouble> {
        let now = clock::boot();
        // What is left is for the look that follows.
        let answer_by = now.after(until.own.since(now) * 2 / 3);
        match primary.update(update, answer_by) {
            Ok(rcode) if rcode == "NOERROR" => {
                self.rcode = Some(rcode);
                self.does(plan);
                self.goes_on = false;
                self.look_again(primary, plan, until)
            }
            Ok(rcode) if rcode == "NXRRSET" || rcode == "YXRRSET" => {
                self.rcode = Some(rcode);
                self.goes_on = false;
                self.lose(primary, plan, until);
                Ok(())
            }
            Ok(rcode) => Err(primary.refused(&rcode, zone)),
            Err(trouble) if trouble.unclear => {
                self.goes_on = false;
                self.clear_up(primary, plan, until, trouble)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// It was done: it must be seen.
    fn look_again(&mut self, primary: &Primary<'_>, plan: &Plan, until: Until) -> Result<(), Trouble> {
        let patience = clock::boot().after(SETTLE).min(until.all);
        let standing = loop {
            let look = primary.look(false, until.all).map_err(|trouble| {
                let why = primary.why(&trouble.failure);
                let why = format!("it took the update, and what stands there now could not be read: {why}");
                Trouble { failure: primary.failure(Exit::Undecided, Reason::TimedOut, &why), ..trouble }
            })?;
            let is_late = Some(&look.standing) == self.before.as_ref() && clock::boot() < patience;
            if !is_late {
                break look.standing;
            }
            clock::sleep_until(clock::boot().after(PAUSE).min(patience));
        };
        if !plan.holds(&standing) {
            let why = format!(
                "it took the update, and yet the name has {} (somebody else changed it since, or the server left out a \
                 part)",
                text(&standing, plan)
            );
            self.failure = Some(primary.failure(Exit::No, Reason::Conflict, &why));
        }
        self.after = Some(standing);
        Ok(())
    }

    /// Somebody else was faster. Who wanted the same has not lost.
    fn lose(&mut self, primary: &Primary<'_>, plan: &Plan, until: Until) {
        let now = primary.look(false, until.all).map(|look| look.standing).ok();
        if !now.as_ref().is_some_and(|standing| plan.holds(standing)) {
            let has = now.as_ref().map_or_else(String::new, |standing| format!(", it has {}", text(standing, plan)));
            let why = format!("somebody else changed it meanwhile{has}; nothing was overwritten (run it again)");
            self.failure = Some(primary.failure(Exit::No, Reason::Conflict, &why));
        }
        self.after = now;
    }

    /// It was sent and not answered, so that nobody knows: whether it was done is seen.
    fn clear_up(&mut self, primary: &Primary<'_>, plan: &Plan, until: Until, trouble: Trouble) -> Result<(), Trouble> {
        let patience = clock::boot().after(SETTLE).min(until.all);
        let why = loop {
            let look = primary.look(false, until.all);
            let is_over = clock::boot() >= patience;
            match look {
                Ok(Look { standing, rcode, .. }) if plan.holds(&standing) => {
                    self.does(plan);
                    self.rcode = Some(rcode);
                    self.after = Some(standing);
                    return Ok(());
                }
                Ok(Look { standing, .. }) if is_over => {
                    let has = text(&standing, plan);
                    self.after = Some(standing);
                    break format!("the name has {has}");
                }
                Err(_) if is_over => break "what stands there now could not be read".to_owned(),
                _ => clock::sleep_until(clock::boot().after(PAUSE).min(patience)),
            }
        };
        self.rcode = None;
        let sentence = format!("{}; the update was sent and may be done yet: {why} (run it again)", trouble.failure);
        Err(Trouble { failure: Failure { exit: Exit::Undecided, sentence, ..trouble.failure }, ..trouble })
    }

    /// One for each type.
    fn records(self, target: &Target, name: &Domain, dry_run: bool) -> Vec<(Head, dns::Update)> {
        let (mut records, mut actions) = (Vec::new(), self.actions);
        for (idx, &family) in self.about.iter().enumerate() {
            let mut head = Head::new("dns.update").about(name);
            // The mark is changed beside the first.
            let marked = idx == 0 && self.changed.is_empty() && self.acted;
            head.changed = Some(self.changed.contains(&family) || marked);
            head.dry_run = dry_run;
            head.actions = std::mem::take(&mut actions);
            head.error = self.failure.as_ref().map(Failure::body);
            let ahead_s = match self.fault {
                Some(Fault::BadTime { ahead_s } | Fault::OutOfTime { ahead_s }) => Some(ahead_s),
                _ => None,
            };
            #[allow(clippy::cast_precision_loss)] // exact for longer than any clock is wrong
            let body = dns::Update {
                server: target.to_string(),
                zone: self.zone.clone(),
                qtype: family.as_str(),
                before: self.before.as_ref().map(|standing| list(standing.of(family))),
                after: self.after.as_ref().map(|standing| list(standing.of(family))),
                rcode: self.rcode.clone(),
                tsig_error: self.fault.map(Fault::slug),
                skew_ms: ahead_s.map(|seconds| seconds as f64 * 1000.0),
                visible_on: self.visible_on.clone(),
                wildcard: self.wildcard.then_some(true),
            };
            records.push((head, body));
        }
        records
    }
}
