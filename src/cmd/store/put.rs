//! `store put`: have a key hold a value, or store each record of a stream.

use super::backend::{At, Store, Trouble};
use super::{key, lock_name, look_at_line};
use crate::cli::args::{self, Changing, flags};
use crate::cli::input::{Complaints, Feed};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::line::Line;
use crate::record::store::{Backing, CHANGE_COLUMNS, Key, PUT_SCHEMA, Template, to_store};
use crate::record::{Action, Head};
use crate::sys;
use crate::sys::clock;
use crate::types::store::{Condition, Entry, Keys, LeaseId, Step, Transaction};
use crate::types::time::{Span, Tick, millis};
use clap::{ArgMatches, Args};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

/// The longest value: etcd takes requests of 1.5 MiB, and base64 makes three bytes four.
const MOST_VALUE: u64 = 1024 * 1024;
/// What one try of a stream may take before newer lines are looked at.
const TRY: Duration = Duration::from_secs(2);
/// Before a stream tries again to store what it could not.
const RETRY: Duration = Duration::from_millis(200);

pub(super) const VERB: Verb = Verb {
    name: "put",
    about: "Have a key hold a value, or store each record of standard input under a key made from it",
    examples: "store put config/mtu 1500\n\
               vip peers 192.0.2.10 | store put peers/volume1 -\n\
               store put leader-of-today n1 --if-absent || echo somebody else has it\n\
               heartbeat recv ... --follow | store put --key 'nodes/{host}/{subject}' --lease 5s -",
    args: flags::<Flags>,
    schemas: &[PUT_SCHEMA],
    columns: CHANGE_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The key; '-' and nothing else with --key
    #[arg(value_name = "KEY", value_parser = key)]
    name: String,

    /// What it is to hold; '-': what standard input holds, whole
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    value: Option<String>,

    /// Store each record of standard input under this key, {FIELD} being what the record has there
    #[arg(long = "key", value_name = "TEMPLATE", id = "template", conflicts_with_all = ["absent", "revision"])]
    template: Option<Template>,

    /// It ends after D; a stream keeps it as long as it runs, and D longer
    #[arg(long, value_name = "D")]
    lease: Option<Span>,

    /// Only if the key is not there; status 1 where it is
    #[arg(long = "if-absent", id = "absent", conflicts_with = "revision")]
    absent: bool,

    /// Only if this revision was the last to change it (0: it is not there); status 1 where another was
    #[arg(long = "if-revision", value_name = "N", id = "revision")]
    revision: Option<u64>,

    #[command(flatten)]
    guard: Guard,

    #[command(flatten)]
    changing: Changing,

    #[command(flatten)]
    at: At,
}

/// Changes are made by the holder of a lock alone.
#[derive(Args, Debug)]
pub(super) struct Guard {
    /// Only while the lock NAME is held with the token in STORE_TOKEN; status 76 where it is not
    #[allow(clippy::doc_markdown)] // as the help shows it
    #[arg(long, value_name = "NAME", value_parser = lock_name)]
    holding: Option<String>,
}

impl Guard {
    /// The condition that a change carries, so that the store itself refuses whoever has lost the lock.
    ///
    /// # Errors
    /// There is no token; the lock is another's by now.
    fn condition(&self, store: &mut dyn Store, deadline: Tick) -> Result<Option<Condition>, Failure> {
        let Some(name) = &self.holding else { return Ok(None) };
        let token = std::env::var("STORE_TOKEN").ok().and_then(|token| token.parse::<u64>().ok());
        let Some(token) = token else {
            return Err(Failure::usage(format!(
                "--holding {name}: STORE_TOKEN is not set: run it under store lock {name}"
            )));
        };
        let (line, _) =
            look_at_line(store, name, deadline).map_err(|trouble| trouble.failure("look at the lock", name))?;
        match line.first() {
            Some(holder) if holder.created == token => Ok(Some(Condition::Created(holder.key.clone(), token))),
            _ => Err(lost(name)),
        }
    }
}

fn lost(name: &str) -> Failure {
    Failure::new(
        Exit::Lost,
        Reason::LockHeld,
        format!("cannot go on: the lock {name} is not held any more (see: store leader {name})"),
    )
}

/// What must hold for a change of `key` to be made.
///
/// # Errors
/// The lock that guards it is lost, or cannot be looked at.
pub(super) fn changes_only_when(
    store: &mut dyn Store,
    key: &[u8],
    absent: bool,
    revision: Option<u64>,
    guard: &Guard,
    deadline: Tick,
) -> Result<Vec<Condition>, Failure> {
    let own = revision.or(absent.then_some(0)).map(|revision| Condition::Revision(key.to_vec(), revision));
    Ok(own.into_iter().chain(guard.condition(store, deadline)?).collect())
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if flags.lease.is_some_and(|lease| lease.0.is_zero()) {
        return Err(Failure::usage("--lease must be above 0s"));
    }
    let mut store = flags.at.open()?;
    match (&flags.template, &flags.value) {
        (Some(template), None) if flags.name == "-" => stream(&flags, template, store.as_mut(), process),
        (Some(_), _) => Err(Failure::usage("--key stores the records of standard input: give '-' and nothing else")),
        (None, Some(value)) => {
            let value = if value == "-" { read_value()? } else { value.clone().into_bytes() };
            one(&flags, &value, store.as_mut(), process)
        }
        (None, None) => Err(Failure::usage("a value is missing: store put KEY VALUE, or KEY - for standard input")),
    }
}

fn read_value() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let read = std::io::stdin().lock().take(MOST_VALUE + 1).read_to_end(&mut value);
    read.map_err(|error| sys::Error::io("read", "standard input", &error))?;
    if value.len() as u64 > MOST_VALUE {
        return Err(Failure::input("standard input is longer than 1 MiB, which no value may be"));
    }
    Ok(value)
}

/// What a put came to.
enum Put {
    Done {
        entry: Entry,
        changed: bool,
    },
    /// The condition does not hold; what is there instead.
    Refused(Option<Entry>, u64),
}

/// What is to be put, and the lock that must be held meanwhile.
struct Wanted<'a> {
    key: &'a [u8],
    value: &'a [u8],
    lease: LeaseId,
    guard: Option<Condition>,
}

impl Wanted<'_> {
    fn is(&self, entry: &Entry) -> bool {
        entry.value == self.value && entry.lease == self.lease
    }

    /// Puts it if `revision` was the last to change the key: whether it was, what is there now, and the rest.
    ///
    /// A put without a condition could be kept back by a member that hangs, and be carried out much later, over
    /// what others have put since.
    fn put_over(&self, store: &mut dyn Store, revision: u64, deadline: Tick) -> Result<Came, Trouble> {
        let (key, value) = (self.key.to_vec(), self.value.to_vec());
        let get = Step::Get(Keys::One(key.clone()));
        let own = Condition::Revision(key.clone(), revision);
        let asked = Transaction {
            when: std::iter::once(own).chain(self.guard.clone()).collect(),
            then: vec![Step::Put { key, value, lease: self.lease }, get.clone()],
            otherwise: vec![get],
        };
        let outcome = store.run(&asked, deadline)?;
        let entry = outcome.found.into_iter().next_back().unwrap_or_default().pop();
        Ok(Came { held: outcome.held, entry, at: outcome.revision, doubt: outcome.doubt })
    }

    /// Has the key hold the value, whatever it holds; `known` is the revision that perhaps changed it last.
    fn put(&self, store: &mut dyn Store, known: Option<u64>, deadline: Tick) -> Result<Put, Trouble> {
        let mut revision = if let Some(revision) = known {
            revision
        } else {
            match store.run(&Transaction::get(Keys::One(self.key.to_vec())), deadline)?.first().pop() {
                // What it holds already is not written again; a lease of its own it has to get.
                Some(entry) if self.lease == 0 && self.guard.is_none() && self.is(&entry) => {
                    return Ok(Put::Done { entry, changed: false });
                }
                entry => entry.map_or(0, |entry| entry.revision),
            }
        };
        loop {
            let Came { held, entry, at, doubt } = self.put_over(store, revision, deadline)?;
            let there = entry.as_ref().map_or(0, |entry| entry.revision);
            match entry {
                Some(entry) if held => return Ok(Put::Done { entry, changed: true }),
                // It went through, and only the answer was lost; or another has put the same.
                Some(entry) if there != revision && self.is(&entry) => return Ok(Put::Done { entry, changed: doubt }),
                // The lock is not held any more.
                entry if there == revision => return Ok(Put::Refused(entry, at)),
                // It may have gone through before another put what is there now: not over that.
                _ if doubt => {
                    let why = "no answer came, and another has changed it since".to_owned();
                    return Err(Trouble::Away { why, unclear: true });
                }
                // Another was faster.
                _ => revision = there,
            }
            if clock::boot() >= deadline {
                return Err(Trouble::Away { why: "others change it all the time".to_owned(), unclear: doubt });
            }
        }
    }

    /// The same, only if `revision` was the last to change it.
    fn put_if(&self, store: &mut dyn Store, revision: u64, deadline: Tick) -> Result<Put, Trouble> {
        let Came { held, entry, at, doubt } = self.put_over(store, revision, deadline)?;
        match entry {
            Some(entry) if held => Ok(Put::Done { entry, changed: true }),
            // Another may have put the same under the same condition, and this run has lost; or it has won, and another
            // has changed it since.
            entry if doubt && entry.as_ref().map_or(0, |entry| entry.revision) != revision => {
                let why = match entry {
                    Some(entry) if self.is(&entry) => "it holds this value now, by this run or by another",
                    _ => "no answer came, and another has changed it since",
                };
                Err(Trouble::Away { why: why.to_owned(), unclear: true })
            }
            entry => Ok(Put::Refused(entry, at)),
        }
    }
}

/// What came of one try to put.
struct Came {
    held: bool,
    entry: Option<Entry>,
    /// The store's revision.
    at: u64,
    /// An earlier try, of which nothing was heard, may have gone through.
    doubt: bool,
}

fn one(flags: &Flags, value: &[u8], store: &mut dyn Store, process: &mut Process) -> Result<Exit, Failure> {
    let deadline = process.deadline(Duration::ZERO).tick();
    let name = flags.name.clone();
    let failed = |trouble: Trouble| trouble.failure("put", &name);
    let when = changes_only_when(store, name.as_bytes(), flags.absent, flags.revision, &flags.guard, deadline)?;
    let mut head = Head::new("store.put").about(&name);
    head.dry_run = flags.changing.dry_run;
    let mut lease_ms = None;
    let put = if flags.changing.dry_run {
        let get = Transaction { when: when.clone(), ..Transaction::get(Keys::One(name.clone().into_bytes())) };
        let get = Transaction { otherwise: get.then.clone(), ..get };
        let outcome = store.run(&get, deadline).map_err(failed)?;
        let (held, revision) = (outcome.held, outcome.revision);
        let entry = outcome.first().pop();
        if held {
            let same = entry.as_ref().is_some_and(|entry| entry.value == value && entry.lease == 0 && when.is_empty());
            let changed = !same || flags.lease.is_some();
            Put::Done { entry: entry.unwrap_or(Entry { revision, value: value.to_vec(), ..Entry::default() }), changed }
        } else {
            Put::Refused(entry, revision)
        }
    } else {
        let lease = match flags.lease {
            None => 0,
            Some(span) => {
                let lease = store.grant(span.0, deadline).map_err(failed)?;
                lease_ms = Some(millis(lease.ttl));
                lease.id
            }
        };
        let guard = when.iter().find(|condition| matches!(condition, Condition::Created(..))).cloned();
        let wanted = Wanted { key: name.as_bytes(), value, lease, guard };
        match flags.revision.or(flags.absent.then_some(0)) {
            Some(revision) => wanted.put_if(store, revision, deadline),
            None => wanted.put(store, None, deadline),
        }
        .map_err(failed)?
    };
    let backing = Backing::of(store.replicas(deadline));
    match put {
        Put::Done { entry, changed } => {
            head.changed = Some(changed);
            if changed && flags.changing.shows_actions() {
                head.actions =
                    vec![Action { op: "store-put", text: format!("put {name} {}", String::from_utf8_lossy(value)) }];
            }
            process.out.record(&head, &Key::of(&entry, backing).lease(lease_ms))?;
            Ok(Exit::Yes)
        }
        Put::Refused(entry, revision) => {
            head.changed = Some(false);
            let there = match &entry {
                Some(entry) => format!("revision {} was the last to change it", entry.revision),
                None => "it is not there".to_owned(),
            };
            if let (Some(lock), true) = (&flags.guard.holding, flags.revision.is_none() && !flags.absent) {
                return Err(lost(lock));
            }
            head.error = Some(
                Failure::new(Exit::No, Reason::Conflict, format!("cannot put {name}: {there} (look: store get)"))
                    .body(),
            );
            match &entry {
                Some(entry) => process.out.record(&head, &Key::of(entry, backing))?,
                None => process.out.record(&head, &Key::absent(revision, backing))?,
            }
            Ok(Exit::No)
        }
    }
}

/// Records on their way into the store.
struct Stream<'a> {
    flags: &'a Flags,
    store: &'a mut dyn Store,
    backing: Option<Backing>,
    /// The lease of everything that this run has stored, when it was renewed, and its time.
    lease: Option<(LeaseId, Tick, Duration)>,
    /// What must be stored yet, by key: the newest of each.
    waiting: BTreeMap<String, String>,
    /// What is stored under the lease: stored again if that ends.
    kept: BTreeMap<String, String>,
    /// The revisions by which this run has stored each key.
    known: BTreeMap<String, u64>,
    /// The store does not answer; said once.
    is_away: bool,
}

fn stream(flags: &Flags, template: &Template, store: &mut dyn Store, process: &mut Process) -> Result<Exit, Failure> {
    if flags.changing.dry_run {
        return Err(Failure::usage("--dry-run goes with KEY VALUE, not with a stream"));
    }
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let mut stream = Stream {
        flags,
        store,
        backing: None,
        lease: None,
        waiting: BTreeMap::new(),
        kept: BTreeMap::new(),
        known: BTreeMap::new(),
        is_away: false,
    };
    let outcome = stream.run(template, &mut pump, &mut complaints, process);
    pump.stream.finish();
    match outcome {
        Ok(Some(signal)) => Ok(pump.die(signal)),
        Ok(None) if stream.waiting.is_empty() => Ok(complaints.finish()),
        Ok(None) => {
            process.complain(&format!("{} records could not be stored in the time given", stream.waiting.len()));
            Ok(complaints.finish().and(Exit::Undecided))
        }
        // A reader that left changes no answer, and what was stored is stored.
        Err(failure) if failure.is_reader_gone() => Ok(complaints.finish()),
        Err(failure) => Err(failure),
    }
}

impl Stream<'_> {
    fn run(
        &mut self,
        template: &Template,
        pump: &mut Pump,
        complaints: &mut Complaints,
        process: &Process,
    ) -> Result<Option<Signal>, Failure> {
        let mut feed = Feed::default();
        let stdin = std::io::stdin();
        let (boot_id, end) = (clock::boot_id(), process.stream_end(None));
        let (mut retry, mut last) = (None::<Tick>, None::<Tick>);
        loop {
            let woken = {
                let input: Vec<_> = (!feed.is_ended()).then(|| stdin.as_fd()).into_iter().collect();
                let renew = self.lease.map(|(_, at, ttl)| at.after(ttl / 3));
                pump.wait(&input, [renew, retry, end, last].into_iter().flatten().min())?
            };
            let ready = match woken {
                Woken::Signal(signal) => return Ok(Some(signal)),
                Woken::Ready(ready) => ready,
            };
            let now = clock::boot();
            if ready.first() == Some(&true) {
                for (number, line) in feed.take()? {
                    let stored = line.and_then(|text| {
                        let line = Line::parse(&text)?;
                        Ok((template.key(&line)?, to_store(&line, &boot_id, now)?))
                    });
                    match stored {
                        Ok((key, value)) => self.take(key, value, pump)?,
                        Err(why) => complaints.line(number, &why),
                    }
                }
            }
            if feed.is_ended() && last.is_none() {
                last = Some(process.deadline(Duration::ZERO).tick());
            }
            self.renew(process)?;
            if retry.is_none_or(|retry| clock::boot() >= retry) {
                self.store_all(pump, process)?;
            }
            retry = (!self.waiting.is_empty()).then(|| clock::boot().after(RETRY));
            let is_over = [end, last].into_iter().flatten().any(|end| clock::boot() >= end);
            if is_over || (feed.is_ended() && self.waiting.is_empty()) {
                return Ok(None);
            }
        }
    }

    /// Takes one record. While the store answers each is stored; what waits for it is the newest of each key.
    fn take(&mut self, key: String, value: String, pump: &mut Pump) -> Result<(), Failure> {
        self.waiting.insert(key, value);
        if self.is_away { Ok(()) } else { self.store_waiting(pump) }
    }

    /// Stores what waits, and says once that the store is away, and once that it is back.
    fn store_all(&mut self, pump: &mut Pump, process: &Process) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let was_away = self.is_away;
        self.store_waiting(pump)?;
        if was_away && !self.is_away {
            process.complain("the store answers again");
        }
        Ok(())
    }

    fn store_waiting(&mut self, pump: &mut Pump) -> Result<(), Failure> {
        while let Some((key, value)) = self.waiting.first_key_value().map(|(key, value)| (key.clone(), value.clone())) {
            match self.store_one(&key, &value) {
                Ok((entry, changed)) => {
                    self.is_away = false;
                    self.waiting.remove(&key);
                    let lease_ms = self.lease.map(|(_, _, ttl)| millis(ttl));
                    let mut head = Head::new("store.put").about(&key);
                    head.changed = Some(changed);
                    let backing = self.backing.unwrap_or_default();
                    pump.stream.record(head, &Key::of(&entry, backing).lease(lease_ms))?;
                    if self.lease.is_some() {
                        self.kept.insert(key, value);
                    }
                }
                Err(Trouble::NoSuchLease) => self.lose_lease(),
                Err(Trouble::Away { why, .. }) => {
                    self.away(&why);
                    return Ok(());
                }
                Err(Trouble::Failed(failure)) => return Err(failure),
            }
        }
        Ok(())
    }

    fn away(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_away, true) {
            crate::cli::complain("store put", &format!("the store does not answer: {why} (goes on trying)"));
        }
    }

    fn store_one(&mut self, key: &str, value: &str) -> Result<(Entry, bool), Trouble> {
        let deadline = clock::boot().after(TRY);
        if self.backing.is_none() {
            self.backing = Some(Backing::of(self.store.replicas(deadline)));
        }
        if self.lease.is_none()
            && let Some(span) = self.flags.lease
        {
            let sent = clock::boot();
            let lease = self.store.grant(span.0, deadline)?;
            self.lease = Some((lease.id, sent, lease.ttl));
        }
        let lease = self.lease.map_or(0, |(id, ..)| id);
        let guard = self.flags.guard.condition(self.store, deadline)?;
        let wanted = Wanted { key: key.as_bytes(), value: value.as_bytes(), lease, guard };
        // Most often this run was the last to put it.
        let known = self.known.get(key).copied();
        match wanted.put(self.store, Some(known.unwrap_or(0)), deadline)? {
            Put::Done { entry, changed } => {
                self.known.insert(key.to_owned(), entry.revision);
                Ok((entry, changed))
            }
            Put::Refused(..) => Err(lost(self.flags.guard.holding.as_deref().unwrap_or_default()).into()),
        }
    }

    /// Renews the lease when it is time.
    fn renew(&mut self, process: &Process) -> Result<(), Failure> {
        let Some((id, at, ttl)) = self.lease else { return Ok(()) };
        let now = clock::boot();
        if now < at.after(ttl / 3) {
            return Ok(());
        }
        match self.store.keep(id, now.after((ttl / 3).min(TRY))) {
            Ok(ttl) => self.lease = Some((id, now, ttl)),
            Err(Trouble::NoSuchLease) => {
                process.complain("the lease has ended: what it held is stored again");
                self.lose_lease();
            }
            Err(Trouble::Away { why, .. }) => {
                self.away(&why);
                // Not at once again, and well before the lease ends.
                self.lease = Some((id, now.after(ttl / 9).0.checked_sub(ttl / 3).map_or(at, Tick), ttl));
            }
            Err(Trouble::Failed(failure)) => return Err(failure),
        }
        Ok(())
    }

    /// What the lease held is gone, and is stored anew.
    fn lose_lease(&mut self) {
        self.lease = None;
        for (key, value) in std::mem::take(&mut self.kept) {
            self.waiting.entry(key).or_insert(value);
        }
    }
}
