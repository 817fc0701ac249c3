//! `store leader`: who holds a lock.

use super::backend::{At, News, Store, Trouble};
use super::{line_of, lock_name, look_at_line};
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::store::{LEADER_SCHEMA, LOCK_COLUMNS, Lock};
use crate::sys::clock;
use crate::sys::worker::Crew;
use crate::types::store::Entry;
use crate::types::time::Span;
use clap::{ArgMatches, Args};
use nix::sys::signal::Signal;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "leader",
    about: "Tell which node holds a lock; status 1 where none does",
    examples: "store leader iscsi/leader\n\
               store leader iscsi/leader --follow --table",
    args: flags::<Flags>,
    schemas: &[LEADER_SCHEMA],
    columns: LOCK_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The lock
    #[arg(value_name = "NAME", value_parser = lock_name)]
    name: String,

    /// Tell each change of holder too
    #[arg(long)]
    follow: bool,

    /// End after D with the status of the last answer
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    #[command(flatten)]
    at: At,
}

/// Who a holder is: the node that its value names, or where another program holds it, the end of its key.
pub(super) fn holder_of(entry: &Entry) -> String {
    let named = String::from_utf8_lossy(&entry.value);
    if named.is_empty() {
        let key = entry.name();
        key.rsplit('/').next().unwrap_or(&key).to_owned()
    } else {
        named.into_owned()
    }
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let mut store = flags.at.open()?;
    let deadline = process.deadline(Duration::ZERO).tick();
    let look = |store: &mut dyn Store| {
        look_at_line(store, &flags.name, deadline).map_err(|trouble| trouble.failure("look at the lock", &flags.name))
    };
    if !flags.follow {
        let (line, _) = look(store.as_mut())?;
        let waiting: Vec<String> = line.iter().skip(1).map(holder_of).collect();
        process.out.record(&Head::new("store.leader").about(&flags.name), &body(line.first(), &waiting))?;
        return Ok(exit(line.first()));
    }
    let mut pump = Pump::new(&process.node, process.form)?;
    let outcome = follow(&flags, store.as_mut(), &mut pump, process);
    pump.stream.finish();
    match outcome {
        Ok((_, Some(signal))) => Ok(pump.die(signal)),
        Ok((exit, None)) => Ok(exit),
        Err(failure) if failure.is_reader_gone() => Ok(Exit::Yes),
        Err(failure) => Err(failure),
    }
}

fn exit(holder: Option<&Entry>) -> Exit {
    if holder.is_some() { Exit::Yes } else { Exit::No }
}

fn body<'a>(holder: Option<&'a Entry>, waiting: &'a [String]) -> Lock<'a> {
    Lock {
        event: if holder.is_some() { "leader" } else { "none" },
        token: holder.map(|holder| holder.created),
        holder: holder.map(|holder| holder_of(holder).into()),
        waiting,
        ..Lock::default()
    }
}

/// Looks again after each change of the line, and tells a change of its first.
fn follow(
    flags: &Flags,
    store: &mut dyn Store,
    pump: &mut Pump,
    process: &Process,
) -> Result<(Exit, Option<Signal>), Failure> {
    let end = process.stream_end(flags.duration);
    let first = look_at_line(store, &flags.name, process.deadline(Duration::ZERO).tick());
    let (mut line, revision) = first.map_err(|trouble| trouble.failure("look at the lock", &flags.name))?;
    let crew: Crew<News> = Crew::new()?;
    let mut follower = store.again()?;
    let keys = line_of(&flags.name);
    crew.follow(move |stop, tell| follower.follow(&keys, revision, stop, tell))?;
    let mut told: Option<Option<u64>> = None;
    loop {
        let holder = line.first();
        if told != Some(holder.map(|holder| holder.created)) {
            told = Some(holder.map(|holder| holder.created));
            let waiting: Vec<String> = line.iter().skip(1).map(holder_of).collect();
            pump.stream.record(Head::new("store.leader").about(&flags.name), &body(holder, &waiting))?;
        }
        let answer = exit(holder);
        match pump.wait(&[crew.as_fd()], end)? {
            Woken::Signal(signal) => return Ok((answer, Some(signal))),
            Woken::Ready(_) if end.is_some_and(|end| clock::boot() >= end) => {
                return Ok((if flags.duration.is_some() { answer } else { Exit::Undecided }, None));
            }
            Woken::Ready(_) => {}
        }
        for news in crew.take() {
            match news {
                News::Failed(failure) => return Err(failure),
                News::Silent(why) => process.complain(&format!("the store does not answer: {why} (goes on asking)")),
                News::Back => process.complain("the store answers again"),
                News::Changes(_) | News::Overrun(..) => {}
            }
        }
        match look_at_line(store, &flags.name, clock::boot().after(Duration::from_secs(2))) {
            Ok((found, _)) => line = found,
            Err(Trouble::Away { .. }) => {}
            Err(trouble) => return Err(trouble.failure("look at the lock", &flags.name)),
        }
    }
}
