//! What a store holds and how it is asked: keys with revisions, conditions, leases.

use std::time::Duration;

/// A lease by its number; an entry without one has 0.
pub(crate) type LeaseId = u64;

/// One key and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// The revision that made it; it rises from one life of a key to the next.
    pub(crate) created: u64,
    /// The revision that last changed it.
    pub(crate) revision: u64,
    /// The lease that it ends with, or 0.
    pub(crate) lease: LeaseId,
}

impl Entry {
    /// The key as a person reads it.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }
}

/// Which keys: one, or all that begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    One(Vec<u8>),
    /// An empty prefix is every key.
    Prefix(Vec<u8>),
}

impl Keys {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Keys::One(one) => one == key,
            Keys::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// What must hold for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The key was last changed by this revision; 0 is a key that is not there.
    Revision(Vec<u8>, u64),
    /// The key was made by this revision; 0 is a key that is not there.
    Created(Vec<u8>, u64),
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Get(Keys),
    Put { key: Vec<u8>, value: Vec<u8>, lease: LeaseId },
    Delete(Keys),
}

/// Steps that are made together or not at all: `then` where all conditions hold, else `otherwise`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) when: Vec<Condition>,
    pub(crate) then: Vec<Step>,
    pub(crate) otherwise: Vec<Step>,
}

impl Transaction {
    /// One question and nothing else.
    pub(crate) fn get(keys: Keys) -> Self {
        Transaction { then: vec![Step::Get(keys)], ..Transaction::default() }
    }

    /// Whether it can change anything.
    pub(crate) fn is_question(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(|step| matches!(step, Step::Get(_)))
    }
}

/// What came of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The store's revision after it.
    pub(crate) revision: u64,
    /// All conditions held.
    pub(crate) held: bool,
    /// Of each step: what a question found, sorted by key, or what a change has replaced.
    pub(crate) found: Vec<Vec<Entry>>,
    /// It was asked for before this answer, and may have been made then: that a condition does not hold any more can be
    /// its own doing.
    pub(crate) doubt: bool,
}

impl Outcome {
    /// What the first step found.
    pub(crate) fn first(self) -> Vec<Entry> {
        self.found.into_iter().next().unwrap_or_default()
    }
}

/// One change, as a watcher hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Entry),
    /// A key that is gone, and by which revision.
    Deleted {
        key: Vec<u8>,
        revision: u64,
    },
}

impl Change {
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Deleted { key, .. } => key,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        match self {
            Change::Put(entry) => entry.revision,
            Change::Deleted { revision, .. } => *revision,
        }
    }
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// As long as the store gives it, which can be longer than was asked for.
    pub(crate) ttl: Duration,
}
