//! `store get` and `store list`: what is there.

use super::backend::At;
use super::key;
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::Head;
use crate::record::store::{Backing, COLUMNS, GET_SCHEMA, Key, LIST_SCHEMA, from_store};
use crate::sys::{self, clock};
use crate::types::store::{Keys, Transaction};
use clap::{ArgMatches, Args};
use std::io::Write;
use std::time::Duration;

pub(super) const GET: Verb = Verb {
    name: "get",
    about: "Print what a key holds; status 1 where it is not there",
    examples: "store get config/mtu\n\
               store get peers/volume1 --raw | vip tickle 192.0.2.10 --peers -",
    args: flags::<GetFlags>,
    schemas: &[GET_SCHEMA],
    columns: COLUMNS,
    run: run_get,
};

pub(super) const LIST: Verb = Verb {
    name: "list",
    about: "Print the keys that begin with a text, sorted, and what each holds",
    examples: "store list nodes/ --table\n\
               store list --store etcd:http://192.0.2.1:2379,http://192.0.2.2:2379 | jq -r .subject\n\
               store list nodes/ --records | quorum --members n1,n2,n3",
    args: flags::<ListFlags>,
    schemas: &[LIST_SCHEMA],
    columns: COLUMNS,
    run: run_list,
};

#[derive(Args, Debug)]
struct GetFlags {
    /// The key
    #[arg(value_name = "KEY", value_parser = key)]
    key: String,

    /// Print the bytes that it holds and nothing else
    #[arg(long)]
    raw: bool,

    #[command(flatten)]
    at: At,
}

#[derive(Args, Debug)]
struct ListFlags {
    /// How the keys begin; all of them where it is left out
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Print the stored records themselves, as they were put, for a filter
    #[arg(long)]
    records: bool,

    #[command(flatten)]
    at: At,
}

fn run_get(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: GetFlags = args::read(matches)?;
    let deadline = process.deadline(Duration::ZERO).tick();
    let mut store = flags.at.open()?;
    let asked = Transaction::get(Keys::One(flags.key.clone().into_bytes()));
    let outcome = store.run(&asked, deadline).map_err(|trouble| trouble.failure("get", &flags.key))?;
    let revision = outcome.revision;
    let entry = outcome.first().into_iter().next();
    if flags.raw {
        let Some(entry) = entry else { return Ok(Exit::No) };
        return print(&entry.value).map(|()| Exit::Yes);
    }
    let backing = Backing::of(store.replicas(deadline));
    let head = Head::new("store.get").about(&flags.key);
    match &entry {
        Some(entry) => process.out.record(&head, &Key::of(entry, backing))?,
        None => process.out.record(&head, &Key::absent(revision, backing))?,
    }
    Ok(if entry.is_some() { Exit::Yes } else { Exit::No })
}

/// Writes bytes as they are; a reader that left changes no answer.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure {
            reason: Reason::WriteFailed,
            ..Failure::from(sys::Error::io("write to", "standard output", &error))
        }),
        _ => Ok(()),
    }
}

fn run_list(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: ListFlags = args::read(matches)?;
    let deadline = process.deadline(Duration::ZERO).tick();
    let mut store = flags.at.open()?;
    let asked = Transaction::get(Keys::Prefix(flags.prefix.clone().into_bytes()));
    let what = if flags.prefix.is_empty() { "all keys" } else { &flags.prefix };
    let outcome = store.run(&asked, deadline).map_err(|trouble| trouble.failure("list", what))?;
    if flags.records {
        let now = clock::boot();
        // What others keep below the same prefix is no record.
        let lines = outcome.first().into_iter().filter_map(|entry| String::from_utf8(entry.value).ok());
        let lines: String = lines.filter_map(|text| from_store(&text, now).ok()).map(|line| line + "\n").collect();
        return print(lines.as_bytes()).map(|()| Exit::Yes);
    }
    let backing = Backing::of(store.replicas(deadline));
    for entry in outcome.first() {
        process.out.record(&Head::new("store.list").about(entry.name()), &Key::of(&entry, backing))?;
    }
    Ok(Exit::Yes)
}
