//! What a command remembers from run to run of one boot.

use crate::cli::{Failure, Process, complain};
use crate::record::state::{self, Origin};
use crate::sys;
use crate::sys::clock;
use crate::sys::state::Lock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

/// A state file and whose it is.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    command: &'static str,
    host: String,
    /// As whom a stream, which goes on, complains of a file that cannot be written.
    streams_as: Option<String>,
    is_told: Cell<bool>,
}

impl Memory {
    /// `command` stands in the file, so that none reads another's.
    pub(super) fn new(path: PathBuf, command: &'static str, process: &Process) -> Self {
        // Two runs may name it differently.
        let path = std::path::absolute(&path).unwrap_or(path);
        Memory { path, command, host: process.node.clone(), streams_as: None, is_told: Cell::new(false) }
    }

    /// The same for a stream: what it cannot remember makes the next run wait, and must not end this one.
    pub(super) fn of_stream(self, process: &Process) -> Self {
        Memory { streams_as: Some(process.who.clone()), ..self }
    }

    /// Keeps two runs with one file apart.
    ///
    /// # Errors
    /// The other run takes longer than this one has time.
    pub(super) fn lock(&self, process: &Process) -> Result<Lock, Failure> {
        let subject = format!("{}-{}", self.command, self.path.display());
        Ok(Lock::take(&[subject], process.deadline(Duration::ZERO))?)
    }

    fn origin(&self) -> Origin {
        Origin { command: self.command, host: self.host.clone(), boot_id: clock::boot_id(), at: clock::boot() }
    }

    /// What an earlier run of this boot has left; none at a first run.
    ///
    /// # Errors
    /// The file cannot be read, or is not what this command writes.
    pub(super) fn read<F: DeserializeOwned, T>(
        &self,
        process: &Process,
        read: impl FnOnce(F) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let Some(bytes) = sys::state::read(&self.path)? else { return Ok(None) };
        let bad = |why: String| sys::Error::File {
            doing: "read".to_owned(),
            path: self.path.display().to_string(),
            why,
            mend: "move it away to begin anew".to_owned(),
        };
        match state::read::<F>(&bytes, &self.origin()).map_err(bad)? {
            state::Read::Current(found) => Ok(Some(read(found).map_err(bad)?)),
            state::Read::OtherBoot => {
                process.complain(&format!("{} is of an earlier boot: a first run", self.path.display()));
                Ok(None)
            }
        }
    }

    /// Removes the file, if it is there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn forget(&self) -> Result<(), Failure> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(sys::Error::io("remove", self.path.display().to_string(), &error).into())
            }
            _ => Ok(()),
        }
    }

    /// Replaces the file where `now` is not what was `kept` there.
    ///
    /// # Errors
    /// As [`Memory::write`].
    pub(super) fn keep<T: Serialize + Clone + PartialEq>(&self, kept: &mut T, now: &T) -> Result<(), Failure> {
        if kept != now {
            self.write(now)?;
            kept.clone_from(now);
        }
        Ok(())
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// It cannot be written, and this is no stream; what was there stays.
    pub(super) fn write(&self, what: &impl Serialize) -> Result<(), Failure> {
        let bytes = state::write(&self.origin(), what)
            .map_err(|why| Failure::input(format!("cannot write {}: {why}", self.path.display())))?;
        match (sys::state::replace(&self.path, &bytes), &self.streams_as) {
            (Err(error), Some(who)) => {
                if !self.is_told.replace(true) {
                    complain(who, &format!("{error}; going on without it"));
                }
            }
            (written, _) => {
                written?;
                self.is_told.set(false);
            }
        }
        Ok(())
    }
}
