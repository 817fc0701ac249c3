//! `dns update`: make a name have the addresses that it should have.

use super::answer::Type;
use super::push::{Done, Pusher, check_zone};
use crate::cli::args::{self, Changing, flags};
use crate::cli::input::{Complaints, Feed};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::keys;
use crate::decide::update::{How, Part, Wish};
use crate::record::Head;
use crate::record::dns::{UPDATE_COLUMNS, UPDATE_SCHEMA, Wanted, read_answer};
use crate::record::envelope::Nothing;
use crate::record::line::Line;
use crate::sys::clock::{self, Deadline};
use crate::sys::event::Sources;
use crate::sys::worker::Worker;
use crate::types::domain::Domain;
use crate::types::rrset::Family;
use crate::types::target::Target;
use crate::types::time::{Span, Tick};
use clap::{ArgMatches, Args};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "update",
    about: "Make a name have these addresses, or those of the answers on standard input, by signed dynamic update",
    examples: "dns answer www.example.org --sites sites < verdicts | dns update --server 192.0.2.53 --tsig-key ddns.key\n\
               dns answer ... --follow | dns update --server 192.0.2.53 --tsig-key ddns.key --follow    as verdicts change\n\
               dns update www.example.org 192.0.2.1 --ttl 5 --server 192.0.2.53 --tsig-key ddns.key --wait\n\
               dns update www.example.org 198.51.100.1 --remove --server 192.0.2.53 --tsig-key ddns.key    the others stay\n\
               dns update www.example.org --remove --server 192.0.2.53 --tsig-key ddns.key    nobody serves\n\
               dns update www.example.org 192.0.2.1 --server 192.0.2.53 --tsig-key ddns.key --dry-run",
    args: flags::<Flags>,
    schemas: &[UPDATE_SCHEMA],
    columns: UPDATE_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The name; without one, or with -, answers are read from standard input
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Its addresses: those of one type replace what stands of that type
    #[arg(value_name = "ADDR")]
    addresses: Vec<IpAddr>,

    /// Where the zone is changed: the primary; several are tried in turn until one takes it
    #[arg(long, value_name = "ADDR[:PORT],...", value_delimiter = ',', required = true)]
    server: Vec<Target>,

    /// The key that the server knows us by: BIND's key clause, as tsig-keygen prints it; fd:N too
    #[arg(long, value_name = "FILE")]
    tsig_key: String,

    /// The zone that the name is in [default: what the server says]
    #[arg(long, value_name = "ZONE")]
    zone: Option<Domain>,

    /// How long the addresses may be kept, in seconds [default: the answer's; else what stands, else 5]
    #[arg(long, value_name = "S", value_parser = super::seconds)]
    ttl: Option<u32>,

    /// Add the addresses to those that stand
    #[arg(long, conflicts_with = "remove")]
    add: bool,

    /// Remove the addresses and leave the others; without any, all
    #[arg(long)]
    remove: bool,

    /// Addresses of this type alone
    #[arg(long = "type", value_name = "TYPE", ignore_case = true)]
    qtype: Option<Type>,

    /// Wait until every authoritative server shows it [default timeout: 15s]
    #[arg(long)]
    wait: bool,

    /// Go on: carry out each answer as it comes
    #[arg(long)]
    follow: bool,

    /// End after D
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    #[command(flatten)]
    changing: Changing,
}

/// How long one step of a stream may take.
const STEP: Duration = Duration::from_secs(5);
/// When what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// What a step that is under way at the end of the run still has, to be told as done.
const GRACE: Duration = Duration::from_millis(200);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let by_hand = by_hand(&flags)?;
    if flags.follow && flags.changing.dry_run {
        return Err(Failure::usage("--dry-run tells what one step would change: leave out --follow"));
    }
    let key = keys::read_tsig(&flags.tsig_key)?;
    // A stream has other answers to carry out meanwhile.
    let wait_at_most = flags.follow.then_some(RETRY);
    let pusher = Pusher {
        servers: flags.server,
        key,
        zone: flags.zone,
        wait: flags.wait,
        wait_at_most,
        changing: flags.changing,
    };
    if let Some((name, wish)) = by_hand {
        let outcome = pusher.carry_out(&name, &wish, process.deadline(pusher.planned()));
        return print(&name, outcome, &pusher, process);
    }
    if flags.follow { follow(pusher, flags.ttl, flags.duration, process) } else { once(&pusher, flags.ttl, process) }
}

/// What the command line wishes; none where standard input does.
///
/// # Errors
/// A usage that clap cannot see.
fn by_hand(flags: &Flags) -> Result<Option<(Domain, Wish)>, Failure> {
    let Some(name) = flags.name.as_deref().filter(|name| *name != "-") else {
        if flags.add || flags.remove || flags.qtype.is_some() || !flags.addresses.is_empty() {
            let why =
                "answers on standard input say what their names have: ADDR, --add, --remove and --type need a NAME";
            return Err(Failure::usage(why));
        }
        return Ok(None);
    };
    let name: Domain = name.parse().map_err(|why: String| Failure::usage(why))?;
    if flags.follow {
        return Err(Failure::usage("--follow takes answers from standard input: leave out the name"));
    }
    check_zone(&name, flags.zone.as_ref()).map_err(Failure::usage)?;
    let family = flags.qtype.map(Type::family);
    for address in &flags.addresses {
        if address.is_unspecified() || address.is_multicast() {
            return Err(Failure::usage(format!("{address} is no address of a site")));
        }
        if let Some(family) = family.filter(|family| *family != Family::of(*address)) {
            return Err(Failure::usage(format!("{address} is no address of the type {family}")));
        }
    }
    let all: BTreeSet<IpAddr> = flags.addresses.iter().copied().collect();
    let part = |family: Family| Part {
        family,
        addresses: all.iter().copied().filter(|address| Family::of(*address) == family).collect(),
        ttl_s: flags.ttl,
    };
    let how = match (flags.add, flags.remove) {
        // None named: the name has none.
        (_, true) if all.is_empty() => How::Set,
        (_, true) => How::Remove,
        _ if all.is_empty() => {
            return Err(Failure::usage("no address is given (to take all away: --remove)"));
        }
        (true, _) => How::Add,
        _ => How::Set,
    };
    let is_named = |part: &Part| {
        if all.is_empty() { family.is_none_or(|family| family == part.family) } else { !part.addresses.is_empty() }
    };
    let parts = Family::ALL.into_iter().map(part).filter(is_named).collect();
    Ok(Some((name, Wish { how, parts })))
}

/// A name of which nobody was asked.
fn failed(name: &Domain, failure: &Failure, pusher: &Pusher) -> Head {
    let mut head = Head::new("dns.update").about(name);
    head.dry_run = pusher.changing.dry_run;
    head.error = Some(failure.body());
    head
}

fn print(
    name: &Domain,
    outcome: Result<Done, Failure>,
    pusher: &Pusher,
    process: &mut Process,
) -> Result<Exit, Failure> {
    match outcome {
        Ok(done) => {
            if let Some(why) = &done.complaint {
                process.complain(why);
            }
            for (head, body) in &done.records {
                process.out.record(head, body)?;
            }
            Ok(done.exit)
        }
        Err(failure) => {
            process.complain(&failure.sentence);
            process.out.record(&failed(name, &failure, pusher), &Nothing {})?;
            Ok(failure.exit)
        }
    }
}

/// The newest answer of each type of a name.
#[derive(Default)]
struct Answers(BTreeMap<Domain, BTreeMap<Family, Wanted>>);

impl Answers {
    /// Takes a line in; the name that it is about, if it is an answer.
    fn take(&mut self, text: &str) -> Result<Option<Domain>, String> {
        let Some(wanted) = read_answer(&Line::parse(text)?)? else { return Ok(None) };
        let name = wanted.name.clone();
        let mut others = self.0.get(&name).into_iter().flat_map(BTreeMap::values);
        if let Some(other) = others.find(|other| other.view != wanted.view) {
            let view = |wanted: &Wanted| wanted.view.clone().unwrap_or_else(|| "none".to_owned());
            return Err(format!(
                "its view is {} and that of an earlier answer for {name} {} (one dns update, with its own key, for each \
                 view)",
                view(&wanted),
                view(other)
            ));
        }
        self.0.entry(name.clone()).or_default().insert(wanted.family, wanted);
        Ok(Some(name))
    }

    /// What is wished of a name by the answers that hold.
    ///
    /// One without an address says that nobody serves: what the name has of the other type goes too, where no
    /// answer of its own says better.
    ///
    /// # Errors
    /// None holds, or none concludes.
    fn wish(&self, name: &Domain, ttl: Option<u32>) -> Result<Wish, Failure> {
        let now_ms = clock::boot().as_ms();
        let holds = |wanted: &&Wanted| {
            wanted.until_ms.is_none_or(|until| until >= now_ms)
                && wanted.boot_id.as_ref().is_none_or(|boot| *boot == clock::boot_id())
        };
        let undecided =
            |why: &str| Failure::new(Exit::Undecided, Reason::TimedOut, format!("cannot update {name}: {why}"));
        let all: Vec<&Wanted> = self.0.get(name).into_iter().flat_map(BTreeMap::values).filter(holds).collect();
        if all.is_empty() {
            return Err(undecided("its answer has expired (is dns answer running?)"));
        }
        let is_said = |wanted: &&&Wanted| wanted.empty || !wanted.addresses.is_empty();
        let mut parts: Vec<Part> = Vec::new();
        for wanted in all.iter().filter(is_said) {
            let ttl_s = ttl.or(Some(wanted.ttl_s));
            parts.push(Part { family: wanted.family, addresses: wanted.addresses.clone(), ttl_s });
            let other = if wanted.family == Family::A { Family::Aaaa } else { Family::A };
            // An answer that holds no more says that there is one: what stands of that type is left.
            let is_alone = !self.0.get(name).is_some_and(|all| all.contains_key(&other));
            if wanted.empty && !wanted.beside_other && is_alone {
                parts.push(Part { family: other, addresses: BTreeSet::new(), ttl_s });
            }
        }
        if parts.is_empty() {
            return Err(undecided(
                "its answer concludes nothing, so what stands there is left (see dns answer --all-down)",
            ));
        }
        Ok(Wish { how: How::Set, parts })
    }
}

fn once(pusher: &Pusher, ttl: Option<u32>, process: &mut Process) -> Result<Exit, Failure> {
    let end = process.stream_end(None);
    let mut complaints = Complaints::new(&process.who);
    let (mut feed, mut answers, stdin) = (Feed::default(), Answers::default(), std::io::stdin());
    while !feed.is_ended() {
        let mut sources = Sources::default();
        sources.readable(stdin.as_fd());
        if !sources.wait(end)? {
            process
                .complain("the input did not end in the time given: nothing is changed (allow longer with --timeout)");
            return Ok(Exit::Undecided);
        }
        for (number, line) in feed.take()? {
            if let Err(why) = line.and_then(|text| answers.take(&text)) {
                complaints.line(number, &why);
            }
        }
    }
    let malformed = complaints.finish();
    if answers.0.is_empty() {
        if malformed == Exit::Yes {
            process.complain("no answer was read: nothing is changed (see: dns answer)");
        }
        return Ok(malformed.and(Exit::Undecided));
    }
    let deadline = match end {
        Some(end) => Deadline::after(end.since(clock::boot())),
        None => process.deadline(pusher.planned()),
    };
    let mut exit = malformed;
    for name in answers.0.keys() {
        let wish = answers.wish(name, ttl);
        let outcome = wish.and_then(|wish| pusher.carry_out(name, &wish, deadline));
        exit = exit.and(print(name, outcome, pusher, process)?);
    }
    Ok(exit)
}

/// Why a stream has ended.
enum Ended {
    /// No more input, or nobody reads the records any more.
    Input,
    /// At `--for` or `--timeout`.
    Time,
    Signal(Signal),
}

fn follow(pusher: Pusher, ttl: Option<u32>, duration: Option<Span>, process: &mut Process) -> Result<Exit, Failure> {
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let mut following = Following {
        pusher: Arc::new(pusher),
        ttl,
        duration,
        answers: Answers::default(),
        told: BTreeMap::new(),
        again: BTreeSet::new(),
        worker: Worker::new()?,
        unwritten: None,
    };
    let ended = match following.run(process, &mut pump, &mut complaints) {
        Err(failure) if failure.is_reader_gone() => Ended::Input,
        ended => ended?,
    };
    let exit = match ended {
        Ended::Signal(signal) => pump.die(signal),
        Ended::Time if duration.is_some() => Exit::Yes,
        _ => Exit::No,
    };
    pump.stream.finish();
    Ok(exit.and(complaints.finish()))
}

/// What goes on in a stream.
struct Following {
    pusher: Arc<Pusher>,
    ttl: Option<u32>,
    duration: Option<Span>,
    answers: Answers,
    /// What was wrong with a name when that was told; nothing: it was told that all is well.
    told: BTreeMap<Domain, Option<String>>,
    /// What failed and is tried again.
    again: BTreeSet<Domain>,
    /// A step of its own, so that signals and the end of the run are heard while a server is silent.
    worker: Worker<Result<Done, Failure>>,
    /// Why records can no longer be written, once they cannot.
    unwritten: Option<Failure>,
}

impl Following {
    fn run(&mut self, process: &Process, pump: &mut Pump, complaints: &mut Complaints) -> Result<Ended, Failure> {
        let (mut feed, stdin) = (Feed::default(), std::io::stdin());
        let end = process.stream_end(self.duration);
        let mut retry: Option<Tick> = None;
        loop {
            let woken = pump.wait(&[stdin.as_fd()], [retry, end].into_iter().flatten().min())?;
            let ready = match woken {
                Woken::Ready(ready) => ready,
                Woken::Signal(signal) => return Ok(Ended::Signal(signal)),
            };
            let mut names = BTreeSet::new();
            if retry.is_some_and(|retry| retry <= clock::boot()) {
                names = std::mem::take(&mut self.again);
                retry = None;
            }
            if ready.first() == Some(&true) {
                for (number, line) in feed.take()? {
                    match line.and_then(|text| self.answers.take(&text)) {
                        Ok(name) => names.extend(name),
                        Err(why) => complaints.line(number, &why),
                    }
                }
            }
            for name in names {
                if let Some(ended) = self.carry_out(&name, process, pump, end)? {
                    return Ok(ended);
                }
            }
            // Who does not read has no name left half done.
            if let Some(failure) = self.unwritten.take() {
                return Err(failure);
            }
            // Other names' lines do not put it off.
            retry = if self.again.is_empty() { None } else { retry.or_else(|| Some(clock::boot().after(RETRY))) };
            if feed.is_ended() {
                return Ok(Ended::Input);
            }
            if end.is_some_and(|end| clock::boot() >= end) {
                return Ok(Ended::Time);
            }
        }
    }

    /// Tells what has changed, and what goes wrong otherwise than before; why the run ended meanwhile, if it did.
    fn carry_out(
        &mut self,
        name: &Domain,
        process: &Process,
        pump: &mut Pump,
        end: Option<Tick>,
    ) -> Result<Option<Ended>, Failure> {
        self.again.remove(name);
        let (outcome, ended) = match self.answers.wish(name, self.ttl) {
            // With the next answer it begins anew.
            Err(failure) => (Err(failure), None),
            Ok(wish) => {
                let (outcome, ended) = self.step(name, wish, pump, end)?;
                // Who lost a race does not race again: the next answer is later than what the other did.
                if !matches!(&outcome, Ok(Done { exit: Exit::Yes | Exit::No, .. })) {
                    self.again.insert(name.clone());
                }
                (outcome, ended)
            }
        };
        let written = self.tell(name, outcome, process, pump);
        self.unwritten = self.unwritten.take().or(written.err());
        Ok(ended)
    }

    /// One step, cut short where the run ends: soon, and at once where it does not answer.
    #[allow(clippy::type_complexity)] // what came of it, and what ended the run
    fn step(
        &mut self,
        name: &Domain,
        wish: Wish,
        pump: &mut Pump,
        end: Option<Tick>,
    ) -> Result<(Result<Done, Failure>, Option<Ended>), Failure> {
        let (pusher, of) = (self.pusher.clone(), name.clone());
        let deadline = Deadline::after(STEP + pusher.planned());
        self.worker.start(move |_| pusher.carry_out(&of, &wish, deadline))?;
        let mut ended = None;
        let mut until = end;
        loop {
            let signal = pump.hear(self.worker.as_fd(), until)?;
            if let Some(outcome) = self.worker.take() {
                return Ok((outcome, ended));
            }
            let is_over = until.is_some_and(|until| clock::boot() >= until);
            if ended.is_some() && is_over {
                let why = format!(
                    "cannot update {name}: the run ended before the server answered; what was sent may be done yet (run \
                     it again)"
                );
                return Ok((Err(Failure::new(Exit::Undecided, Reason::TimedOut, why)), ended));
            }
            if ended.is_none() && (signal.is_some() || is_over) {
                ended = Some(signal.map_or(Ended::Time, Ended::Signal));
                until = Some(clock::boot().after(GRACE));
            }
        }
    }

    fn tell(
        &mut self,
        name: &Domain,
        outcome: Result<Done, Failure>,
        process: &Process,
        pump: &mut Pump,
    ) -> Result<(), Failure> {
        let complaint = match &outcome {
            Ok(done) => done.complaint.clone(),
            Err(failure) => Some(failure.sentence.clone()),
        };
        let is_news = self.told.get(name) != Some(&complaint);
        if let Some(why) = complaint.as_ref().filter(|_| is_news) {
            process.complain(why);
        }
        self.told.insert(name.clone(), complaint);
        if self.unwritten.is_some() {
            return Ok(());
        }
        match outcome {
            Ok(done) if is_news || done.changed => {
                done.records.into_iter().try_for_each(|(head, body)| pump.stream.record(head, &body))
            }
            Err(failure) if is_news => pump.stream.record(failed(name, &failure, &self.pusher), &Nothing {}),
            _ => Ok(()),
        }
    }
}
