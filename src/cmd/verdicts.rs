//! What was said last of each subject, and until when that holds.

use super::health::standing;
use crate::cli::Process;
use crate::decide::score::Word;
use crate::record::health::Verdict;
use crate::sys::clock;
use crate::types::status::Status;
use crate::types::time::{Span, Tick};
use std::collections::BTreeMap;
use std::time::Duration;

/// The newest verdict on each subject.
#[derive(Debug)]
pub(super) struct Verdicts {
    words: BTreeMap<String, Word>,
    boot_id: String,
    node: String,
    /// How far ahead of ours the time of a record without arrival may be; none counts in a stream.
    skew: Option<Duration>,
}

impl Verdicts {
    pub(super) fn new(process: &Process, follow: bool, max_skew: Span) -> Self {
        Verdicts {
            words: BTreeMap::new(),
            boot_id: clock::boot_id(),
            node: process.node.clone(),
            skew: (!follow).then_some(max_skew.0),
        }
    }

    /// This node, whose own records need not say so.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Takes in what was said of `subject`; says whether it renewed what holds already.
    ///
    /// # Errors
    /// Its times are none.
    pub(super) fn take(&mut self, subject: &str, said: &Verdict, now: Tick) -> Result<bool, String> {
        let word = standing(said, &self.boot_id, self.skew, now)?;
        let renewal = said.renewal && self.status(subject, now) == word.status;
        // The newest counts, whatever the order of arrival.
        if self.words.get(subject).is_none_or(|known| known.arrived <= word.arrived) {
            self.words.insert(subject.to_owned(), word);
        }
        Ok(renewal)
    }

    /// A subject's status: a verdict that has expired is none.
    pub(super) fn status(&self, subject: &str, now: Tick) -> Status {
        let said = self.words.get(subject).filter(|said| said.expires.is_none_or(|expires| expires > now));
        said.map_or(Status::Unknown, |said| said.status)
    }

    /// What was said last of a subject since `since`, whether it holds still or not.
    pub(super) fn last(&self, subject: &str, since: Tick) -> Option<Status> {
        let said = self.words.get(subject).filter(|said| said.arrived >= since);
        said.map(|said| said.status).filter(|status| *status != Status::Unknown)
    }

    /// When those that hold will expire.
    pub(super) fn ends(&self, now: Tick) -> impl Iterator<Item = Tick> {
        self.words.values().filter_map(|said| said.expires).filter(move |expires| *expires > now)
    }
}
