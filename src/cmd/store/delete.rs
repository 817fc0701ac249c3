//! `store delete`: take keys away.

use super::backend::{At, Trouble};
use super::key;
use super::put::{Guard, changes_only_when};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::store::{Backing, CHANGE_COLUMNS, DELETE_SCHEMA, Key};
use crate::record::{Action, Head};
use crate::types::store::{Keys, Step, Transaction};
use clap::{ArgMatches, Args};
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "delete",
    about: "Take away a key, or all that begin with a text",
    examples: "store delete placement/volume1\n\
               store delete --prefix nodes/n3/ --dry-run",
    args: flags::<Flags>,
    schemas: &[DELETE_SCHEMA],
    columns: CHANGE_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The key
    #[arg(value_name = "KEY", value_parser = key, required_unless_present = "prefix")]
    key: Option<String>,

    /// All keys that begin so, instead of one
    #[arg(long, value_name = "PREFIX", value_parser = key, conflicts_with_all = ["key", "revision"])]
    prefix: Option<String>,

    /// Only if this revision was the last to change it; status 1 where another was
    #[arg(long = "if-revision", value_name = "N", id = "revision")]
    revision: Option<u64>,

    #[command(flatten)]
    guard: Guard,

    #[command(flatten)]
    changing: Changing,

    #[command(flatten)]
    at: At,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if flags.revision == Some(0) {
        return Err(Failure::usage("--if-revision 0 is a key that is not there: there is nothing to delete"));
    }
    let deadline = process.deadline(Duration::ZERO).tick();
    let mut store = flags.at.open()?;
    let (keys, what) = match (&flags.key, &flags.prefix) {
        (Some(key), _) => (Keys::One(key.clone().into_bytes()), key.clone()),
        (None, prefix) => {
            let prefix = prefix.clone().unwrap_or_default();
            (Keys::Prefix(prefix.clone().into_bytes()), prefix)
        }
    };
    let failed = |trouble: Trouble| trouble.failure("delete", &what);
    let first = what.clone().into_bytes();
    let when = changes_only_when(store.as_mut(), &first, false, flags.revision, &flags.guard, deadline)?;
    let step = if flags.changing.dry_run { Step::Get(keys.clone()) } else { Step::Delete(keys.clone()) };
    let asked = Transaction { when, then: vec![step], otherwise: vec![Step::Get(keys.clone())] };
    let outcome = match store.run(&asked, deadline) {
        // Gone is gone, whoever did it.
        Err(Trouble::Away { why, unclear: true }) => {
            let look = store.run(&Transaction::get(keys.clone()), deadline).map_err(failed)?;
            if !look.clone().first().is_empty() {
                return Err(failed(Trouble::Away { why, unclear: true }));
            }
            look
        }
        other => other.map_err(failed)?,
    };
    let (held, revision) = (outcome.held || asked.when.is_empty(), outcome.revision);
    let found = outcome.first();
    let backing = Backing::of(store.replicas(deadline));
    for entry in &found {
        let mut head = Head::new("store.delete").about(entry.name());
        head.changed = Some(held);
        head.dry_run = flags.changing.dry_run;
        if held && flags.changing.shows_actions() {
            head.actions = vec![Action { op: "store-delete", text: format!("delete {}", entry.name()) }];
        }
        if !held {
            let sentence = format!(
                "cannot delete {}: revision {} was the last to change it, or the lock is not held any more (look: store get)",
                entry.name(),
                entry.revision
            );
            head.error = Some(Failure::new(Exit::No, Reason::Conflict, sentence).body());
        }
        process.out.record(&head, &Key::of(entry, backing))?;
    }
    if found.is_empty()
        && let Some(key) = &flags.key
    {
        let mut head = Head::new("store.delete").about(key);
        head.changed = Some(false);
        head.dry_run = flags.changing.dry_run;
        process.out.record(&head, &Key::absent(revision, backing))?;
    }
    Ok(if held { Exit::Yes } else { Exit::No })
}
