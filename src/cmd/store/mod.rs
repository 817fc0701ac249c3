//! `store`: a map that several hosts share, and locks in it.

mod backend;
mod delete;
mod etcd;
mod file;
mod get;
mod leader;
mod lock;
mod put;
mod watch;

use crate::cli::{Tool, Verbs};
use crate::types::store::{Entry, Keys, Transaction};
use crate::types::time::Tick;
use backend::{Store, Trouble};

/// The command.
pub const TOOL: Tool = Tool {
    name: "store",
    about: "Keep what several hosts must agree on, tell its changes, and run a command on one host at a time",
    verbs: Verbs::Many(&[get::GET, get::LIST, put::VERB, delete::VERB, watch::VERB, lock::VERB, leader::VERB]),
};

/// A key on the command line.
///
/// # Errors
/// It is empty.
fn key(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a key is at least one byte long".to_owned()) } else { Ok(text.to_owned()) }
}

/// The name of a lock: what stands in line for it lies below it.
///
/// # Errors
/// It is empty or ends with a slash.
fn lock_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.ends_with('/') {
        return Err(format!("'{text}' is no name of a lock: it must not be empty, nor end with a slash"));
    }
    Ok(text.to_owned())
}

/// The keys of whoever stands in line for a lock.
fn line_of(name: &str) -> Keys {
    Keys::Prefix(format!("{name}/").into_bytes())
}

/// Who stands in line for a lock, the holder first, and the store's revision.
fn look_at_line(store: &mut dyn Store, name: &str, deadline: Tick) -> Result<(Vec<Entry>, u64), Trouble> {
    let outcome = store.run(&Transaction::get(line_of(name)), deadline)?;
    let revision = outcome.revision;
    Ok((line_in(name, outcome.first()), revision))
}

/// Of the keys below a lock's name those that stand in line, the holder first.
fn line_in(name: &str, entries: Vec<Entry>) -> Vec<Entry> {
    // What lies deeper is another lock's.
    let below = name.len() + 1;
    let own = entries.into_iter().filter(|entry| !entry.key.iter().skip(below).any(|byte| *byte == b'/'));
    crate::decide::store::line(own.collect())
}
