//! `store delete`: take keys away.

use super::backend::{At, Store, Trouble};
use super::key;
use super::put::{Guard, changes_only_when};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::store::{Backing, CHANGE_COLUMNS, DELETE_SCHEMA, Key};
use crate::record::{Action, Head};
use crate::sys::clock;
use crate::types::store::{Condition, Entry, Keys, Step, Transaction};
use crate::types::time::Tick;
use clap::{ArgMatches, Args};
use std::time::Duration;

/// etcd takes 128 steps in one transaction (`--max-txn-ops`).
const MOST_STEPS: usize = 100;

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
    let look = Transaction::get(keys.clone());
    let guards = changes_only_when(store.as_mut(), b"", false, None, &flags.guard, deadline)?;
    let there = store.run(&look, deadline).map_err(failed)?;
    let revision = there.revision;
    let mut found = there.first();
    let mut held = found.iter().all(|entry| flags.revision.is_none_or(|wanted| wanted == entry.revision));
    // One that is gone already was changed by another, as far as the condition goes.
    held &= !(found.is_empty() && flags.revision.is_some());
    if held && !flags.changing.dry_run {
        let mut gone = Vec::new();
        for some in found.chunks(MOST_STEPS) {
            gone.extend(remove(store.as_mut(), some, &guards, flags.revision, deadline).map_err(failed)?);
        }
        held = gone.iter().all(|gone| matches!(gone, Gone::Removed(_) | Gone::Before));
        found = gone
            .into_iter()
            .filter_map(|gone| match gone {
                Gone::Removed(entry) | Gone::Changed(entry) => Some(entry),
                Gone::Before => None,
            })
            .collect();
    }
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
        if !held {
            let sentence = format!("cannot delete {key}: it is not there (look: store get)");
            head.error = Some(Failure::new(Exit::No, Reason::Conflict, sentence).body());
        }
        process.out.record(&head, &Key::absent(revision, backing))?;
    }
    Ok(if held { Exit::Yes } else { Exit::No })
}

/// What became of one key.
enum Gone {
    /// By this run; what it held.
    Removed(Entry),
    /// Somebody else has taken it away.
    Before,
    /// It is another's by now, and stays.
    Changed(Entry),
}

/// Takes keys away over the revisions that they were seen with: a request that is kept back, and carried out later, takes
/// nothing away that was put since.
fn remove(
    store: &mut dyn Store,
    entries: &[Entry],
    guards: &[Condition],
    only: Option<u64>,
    deadline: Tick,
) -> Result<Vec<Gone>, Trouble> {
    let mut wanted = entries.to_vec();
    loop {
        let one = |entry: &Entry| Keys::One(entry.key.clone());
        let over = wanted.iter().map(|entry| Condition::Revision(entry.key.clone(), entry.revision));
        let asked = Transaction {
            when: over.chain(guards.iter().cloned()).collect(),
            then: wanted.iter().map(|entry| Step::Delete(one(entry))).collect(),
            otherwise: wanted.iter().map(|entry| Step::Get(one(entry))).collect(),
        };
        let outcome = store.run(&asked, deadline)?;
        if outcome.held {
            return Ok(wanted.into_iter().map(Gone::Removed).collect());
        }
        let now: Vec<Option<Entry>> = outcome.found.into_iter().map(|found| found.into_iter().next()).collect();
        let is_same =
            |(was, now): (&Entry, &Option<Entry>)| now.as_ref().is_some_and(|now| now.revision == was.revision);
        if wanted.iter().zip(&now).all(is_same) {
            // The lock that guards it is not held any more.
            return Ok(now.into_iter().flatten().map(Gone::Changed).collect());
        }
        if outcome.doubt && now.iter().all(Option::is_none) {
            // It went through, and only the answer was lost.
            return Ok(wanted.into_iter().map(Gone::Removed).collect());
        }
        if only.is_some() {
            return Ok(now.into_iter().map(|now| now.map_or(Gone::Before, Gone::Changed)).collect());
        }
        // Others have changed some of them: once more, over what is there now.
        wanted = now.into_iter().flatten().collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if clock::boot() >= deadline {
            return Err(Trouble::Away { why: "others change it all the time".to_owned(), unclear: outcome.doubt });
        }
    }
}
