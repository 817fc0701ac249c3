//! `file:`: a store on one machine, in one file that is replaced whole.

use super::backend::{News, Store, Trouble};
use crate::cli::Failure;
use crate::decide::store::Map;
use crate::record::store::{read_map, write_map};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::event::Sources;
use crate::sys::state::{self, FileLock};
use crate::sys::watch::Watch;
use crate::sys::worker::Stop;
use crate::types::store::{Keys, Lease, LeaseId, Outcome, Transaction};
use crate::types::time::Tick;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct FileStore {
    folder: PathBuf,
}

impl FileStore {
    pub(super) fn new(folder: PathBuf) -> Self {
        FileStore { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("store.json")
    }

    fn read(&self) -> Result<Map, Failure> {
        let path = self.path();
        let Some(bytes) = state::read(&path)? else { return Ok(Map::default()) };
        read_map(&bytes, &clock::boot_id()).map_err(|why| {
            let mend = "move it away to begin with an empty store".to_owned();
            sys::Error::File { doing: "read".to_owned(), path: path.display().to_string(), why, mend }.into()
        })
    }

    /// Changes the map while nobody else does; written only where it is another one afterwards.
    fn change<T>(
        &self,
        deadline: Tick,
        change: impl FnOnce(&mut Map, Tick) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        state::make_folder(&self.folder)?;
        let _lock = FileLock::take(&self.folder.join("lock"), Deadline::at(deadline)).map_err(|error| match error {
            sys::Error::Late { why, .. } => Trouble::Away { why, unclear: false },
            other => other.into(),
        })?;
        let before = self.read()?;
        let mut map = before.clone();
        let now = clock::boot();
        map.expire(now);
        let outcome = change(&mut map, now);
        if map != before {
            state::replace(&self.path(), &write_map(&map, &clock::boot_id()))?;
        }
        outcome
    }
}

impl Store for FileStore {
    fn run(&mut self, transaction: &Transaction, deadline: Tick) -> Result<Outcome, Trouble> {
        if transaction.is_question() {
            // What stands there is whole; a lease that is over and still in it is over all the same.
            let mut map = self.read()?;
            map.expire(clock::boot());
            return map.run(transaction).map_err(|_| Trouble::NoSuchLease);
        }
        self.change(deadline, |map, _| map.run(transaction).map_err(|_| Trouble::NoSuchLease))
    }

    fn grant(&mut self, ttl: Duration, deadline: Tick) -> Result<Lease, Trouble> {
        self.change(deadline, |map, now| Ok(Lease { id: map.grant(ttl, now), ttl }))
    }

    fn keep(&mut self, lease: LeaseId, deadline: Tick) -> Result<Duration, Trouble> {
        self.change(deadline, |map, now| map.keep(lease, now).ok_or(Trouble::NoSuchLease))
    }

    fn revoke(&mut self, lease: LeaseId, deadline: Tick) -> Result<(), Trouble> {
        self.change(deadline, |map, _| {
            map.revoke(lease);
            Ok(())
        })
    }

    fn replicas(&mut self, _: Tick) -> Option<usize> {
        Some(1)
    }

    fn follow(&mut self, keys: &Keys, after: u64, stop: &Stop, tell: &dyn Fn(News)) {
        if let Err(failure) = self.follow_file(keys, after, stop, tell) {
            tell(News::Failed(failure));
        }
    }

    fn again(&self) -> Result<Box<dyn Store>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

impl FileStore {
    fn follow_file(&self, keys: &Keys, mut after: u64, stop: &Stop, tell: &dyn Fn(News)) -> Result<(), Failure> {
        // A lock that is held long has another's write behind it.
        const PATIENCE: Duration = Duration::from_secs(5);
        const AGAIN: Duration = Duration::from_millis(200);
        state::make_folder(&self.folder)?;
        let mut watch = Watch::new(&[self.path()])?;
        loop {
            let map = self.read()?;
            let is_over = map.wake().is_some_and(|wake| wake <= clock::boot());
            if is_over {
                // Whoever notices first writes it down, so that it has a revision.
                match self.change(clock::boot().after(PATIENCE), |_, _| Ok(())) {
                    Ok(()) | Err(Trouble::Away { .. } | Trouble::NoSuchLease) => continue,
                    Err(Trouble::Failed(failure)) => return Err(failure),
                }
            }
            // A file that was moved away begins anew.
            let changes = if map.revision < after { None } else { map.changes(keys, after) };
            match changes {
                Some(changes) if changes.is_empty() => {}
                Some(changes) => tell(News::Changes(changes)),
                None => tell(News::Overrun(map.find(keys), map.revision)),
            }
            after = map.revision;
            let mut sources = Sources::default();
            let stopped = sources.readable(stop.as_fd());
            sources.readable(watch.as_fd());
            // Of a folder that was taken away nothing is heard: whether there is another has to be asked.
            let again = watch.is_blind().then(|| clock::boot().after(AGAIN));
            sources.wait([map.wake(), again].into_iter().flatten().min())?;
            if sources.is_ready(stopped) {
                return Ok(());
            }
            watch.changed();
        }
    }
}
