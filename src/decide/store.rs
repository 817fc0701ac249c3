//! A map with revisions, conditions and leases: what `file:` is, and what every other store must agree with.

use crate::types::store::{Change, Condition, Entry, Keys, LeaseId, Outcome, Step, Transaction};
use crate::types::time::Tick;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many changes are remembered for watchers that come late.
const REMEMBERED: usize = 1024;
/// And so many bytes of them.
const REMEMBERED_BYTES: usize = 1024 * 1024;

/// A lease that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) ttl: Duration,
    pub(crate) until: Tick,
}

/// The whole store at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// Of the last change; 0 before the first.
    pub(crate) revision: u64,
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
    pub(crate) leases: BTreeMap<LeaseId, Running>,
    /// The number that the last lease got: none is used twice.
    pub(crate) last_lease: LeaseId,
    /// The last changes, in their order.
    pub(crate) history: VecDeque<Change>,
    /// Changes up to this revision are no longer remembered.
    pub(crate) forgotten: u64,
}

impl Map {
    /// Makes a transaction; it has one revision, whatever the number of its steps.
    ///
    /// # Errors
    /// It names a lease that does not live; nothing is changed.
    pub(crate) fn run(&mut self, transaction: &Transaction) -> Result<Outcome, NoSuchLease> {
        let held = transaction.when.iter().all(|condition| self.holds(condition));
        let steps = if held { &transaction.then } else { &transaction.otherwise };
        for step in steps {
            if let Step::Put { lease, .. } = step
                && *lease != 0
                && !self.leases.contains_key(lease)
            {
                return Err(NoSuchLease);
            }
        }
        let next = self.revision + 1;
        let found = steps.iter().map(|step| self.step(step, next)).collect();
        Ok(Outcome { revision: self.revision, held, found, doubt: false })
    }

    fn holds(&self, condition: &Condition) -> bool {
        let entry = |key: &Vec<u8>| self.entries.get(key);
        match condition {
            Condition::Revision(key, revision) => entry(key).map_or(0, |entry| entry.revision) == *revision,
            Condition::Created(key, created) => entry(key).map_or(0, |entry| entry.created) == *created,
        }
    }

    fn step(&mut self, step: &Step, next: u64) -> Vec<Entry> {
        match step {
            Step::Get(keys) => self.find(keys),
            Step::Put { key, value, lease } => {
                let before = self.entries.get(key).cloned();
                let created = before.as_ref().map_or(next, |before| before.created);
                let entry = Entry { key: key.clone(), value: value.clone(), created, revision: next, lease: *lease };
                self.entries.insert(key.clone(), entry.clone());
                self.remember(Change::Put(entry));
                before.into_iter().collect()
            }
            Step::Delete(keys) => {
                let gone = self.find(keys);
                self.remove(gone.iter().map(|entry| entry.key.clone()), next);
                gone
            }
        }
    }

    fn remove(&mut self, keys: impl Iterator<Item = Vec<u8>>, revision: u64) {
        for key in keys {
            self.entries.remove(&key);
            self.remember(Change::Deleted { key, revision });
        }
    }

    fn remember(&mut self, change: Change) {
        self.revision = change.revision();
        self.history.push_back(change);
        let size = |change: &Change| match change {
            Change::Put(entry) => entry.key.len() + entry.value.len(),
            Change::Deleted { key, .. } => key.len(),
        };
        let mut bytes: usize = self.history.iter().map(size).sum();
        while self.history.len() > REMEMBERED || (bytes > REMEMBERED_BYTES && self.history.len() > 1) {
            let Some(lost) = self.history.pop_front() else { return };
            bytes -= size(&lost);
            // One of several changes of a revision is as good as none of them.
            self.forgotten = lost.revision();
        }
    }

    /// The entries of some keys, sorted by key.
    pub(crate) fn find(&self, keys: &Keys) -> Vec<Entry> {
        match keys {
            Keys::One(key) => self.entries.get(key).cloned().into_iter().collect(),
            Keys::Prefix(prefix) => {
                let from = self.entries.range::<Vec<u8>, _>(prefix..);
                from.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, entry)| entry.clone()).collect()
            }
        }
    }

    /// The changes of some keys after revision `after`; `None` where some are forgotten.
    pub(crate) fn changes(&self, keys: &Keys, after: u64) -> Option<Vec<Change>> {
        if after < self.forgotten {
            return None;
        }
        let new = self.history.iter().filter(|change| change.revision() > after && keys.contains(change.key()));
        Some(new.cloned().collect())
    }

    /// Grants a lease.
    pub(crate) fn grant(&mut self, ttl: Duration, now: Tick) -> LeaseId {
        self.last_lease += 1;
        self.leases.insert(self.last_lease, Running { ttl, until: now.after(ttl) });
        self.last_lease
    }

    /// Renews a lease; its time, or `None` where it has ended.
    pub(crate) fn keep(&mut self, lease: LeaseId, now: Tick) -> Option<Duration> {
        let running = self.leases.get_mut(&lease)?;
        running.until = now.after(running.ttl);
        Some(running.ttl)
    }

    /// Ends a lease, and every key that it holds, in one revision; whether it lived.
    pub(crate) fn revoke(&mut self, lease: LeaseId) -> bool {
        if self.leases.remove(&lease).is_none() {
            return false;
        }
        let held: Vec<Vec<u8>> =
            self.entries.values().filter(|entry| entry.lease == lease).map(|entry| entry.key.clone()).collect();
        self.remove(held.into_iter(), self.revision + 1);
        true
    }

    /// Ends every lease whose time is over; whether there was one.
    pub(crate) fn expire(&mut self, now: Tick) -> bool {
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, running)| running.until <= now).map(|(id, _)| *id).collect();
        for lease in &over {
            self.revoke(*lease);
        }
        !over.is_empty()
    }

    /// Ends all leases: their holders are gone with an earlier boot.
    pub(crate) fn expire_all(&mut self) {
        while let Some(lease) = self.leases.keys().next().copied() {
            self.revoke(lease);
        }
    }

    /// When the next lease ends.
    pub(crate) fn wake(&self) -> Option<Tick> {
        self.leases.values().map(|running| running.until).min()
    }
}

/// A lease that was named does not live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSuchLease;

/// Who stands in line for a lock: the keys below its name, by age. The first holds it.
///
/// As etcd's concurrency package and `etcdctl lock` have it: NAME/LEASE in hexadecimal, and the lowest revision of
/// creation wins.
///
/// A key without a lease is nobody's who could go: it stands there for something else.
pub(crate) fn line(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.lease != 0);
    entries.sort_by_key(|entry| entry.created);
    entries
}

/// The holder of `line` that need not be waited for: it is of a node that is proven off, and older than the proof.
pub(crate) fn outdated<'a>(line: &'a [Entry], node: &str, before: u64) -> Option<&'a Entry> {
    line.first().filter(|holder| holder.value == node.as_bytes() && holder.created < before)
}

/// How long a lock may be used: the times of one lease, counted on the clock of whoever holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// As the store granted it.
    ttl: Duration,
    /// The work must be told to end so long before the lease does.
    margin: Duration,
    /// When the last renewal that went through was sent: the lease does not end before `ttl` after it.
    renewed: Tick,
    /// When the last one was tried.
    tried: Tick,
}

impl Hold {
    /// The shortest margin: a process must be killed and buried in it.
    pub(crate) const LEAST_MARGIN: Duration = Duration::from_millis(100);

    /// The margin where none is named: a quarter of the time.
    pub(crate) fn usual_margin(ttl: Duration) -> Duration {
        (ttl / 4).max(Self::LEAST_MARGIN)
    }

    pub(crate) fn new(ttl: Duration, margin: Duration, sent: Tick) -> Self {
        Hold { ttl, margin, renewed: sent, tried: sent }
    }

    /// As the store granted it.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A renewal was sent at `sent`, and `ttl` was granted.
    pub(crate) fn renew(&mut self, ttl: Duration, sent: Tick) {
        self.ttl = ttl;
        self.renewed = self.renewed.max(sent);
        self.tried = self.tried.max(sent);
    }

    /// A renewal was sent at `sent` and has failed.
    pub(crate) fn fail(&mut self, sent: Tick) {
        self.tried = self.tried.max(sent);
    }

    /// When to renew next: each third of the time; after a failure three times as often.
    pub(crate) fn next(&self) -> Tick {
        if self.tried > self.renewed { self.tried.after(self.ttl / 9) } else { self.renewed.after(self.ttl / 3) }
    }

    /// When the work is told to end.
    pub(crate) fn warn(&self) -> Tick {
        self.renewed.after(self.ttl.saturating_sub(self.margin))
    }

    /// When what is left of it is killed.
    pub(crate) fn kill(&self) -> Tick {
        self.renewed.after(self.ttl.saturating_sub(self.margin / 2))
    }

    /// When another may have the lock.
    pub(crate) fn end(&self) -> Tick {
        self.renewed.after(self.ttl)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(key: &str, value: &str, lease: LeaseId) -> Transaction {
        let step = Step::Put { key: key.into(), value: value.into(), lease };
        Transaction { then: vec![step], ..Transaction::default() }
    }

    fn at(seconds: u64) -> Tick {
        Tick(Duration::from_secs(seconds))
    }

    #[test]
    fn a_condition_that_does_not_hold_changes_nothing() {
        let mut map = Map::default();
        map.run(&put("a", "1", 0)).unwrap();
        for condition in
            [Condition::Revision("a".into(), 0), Condition::Revision("a".into(), 7), Condition::Created("b".into(), 1)]
        {
            let mut transaction = put("a", "3", 0);
            transaction.when.push(condition.clone());
            transaction.otherwise.push(Step::Get(Keys::One("a".into())));
            let before = map.clone();
            let outcome = map.run(&transaction).unwrap();
            assert!(!outcome.held && outcome.first()[0].value == b"1", "{condition:?}");
            assert_eq!(map, before, "{condition:?}");
        }
    }

    #[test]
    fn a_key_that_was_gone_is_another_one() {
        let mut map = Map::default();
        map.run(&put("a", "1", 0)).unwrap();
        map.run(&put("a", "2", 0)).unwrap();
        let twice = map.find(&Keys::One("a".into()))[0].clone();
        assert_eq!((twice.created, twice.revision), (1, 2));
        let delete = Transaction { then: vec![Step::Delete(Keys::Prefix("a".into()))], ..Transaction::default() };
        assert_eq!(map.run(&delete).unwrap().first()[0].value, b"2");
        map.run(&put("a", "3", 0)).unwrap();
        assert_eq!(map.find(&Keys::One("a".into()))[0].created, 4);
        // Deleting what is not there is no change.
        let nothing = Transaction { then: vec![Step::Delete(Keys::One("b".into()))], ..Transaction::default() };
        assert_eq!(map.run(&nothing).unwrap().revision, 4);
    }

    #[test]
    fn a_lease_takes_its_keys_along_in_one_revision() {
        let mut map = Map::default();
        let lease = map.grant(Duration::from_secs(3), at(10));
        map.run(&put("a", "1", lease)).unwrap();
        map.run(&put("b", "1", lease)).unwrap();
        map.run(&put("c", "1", 0)).unwrap();
        assert!(!map.expire(at(12)));
        assert_eq!(map.keep(lease, at(12)), Some(Duration::from_secs(3)));
        assert_eq!(map.wake(), Some(at(15)));
        assert!(!map.expire(at(14)) && map.expire(at(15)) && map.wake().is_none());
        let left: Vec<String> = map.find(&Keys::Prefix(Vec::new())).iter().map(Entry::name).collect();
        assert_eq!((left, map.revision), (vec!["c".to_owned()], 4));
        assert_eq!(map.keep(lease, at(15)), None);
        assert_eq!(map.run(&put("a", "2", lease)), Err(NoSuchLease));
        // A put without a lease lets go of it.
        let lease = map.grant(Duration::from_secs(3), at(20));
        map.run(&put("d", "1", lease)).unwrap();
        map.run(&put("d", "2", 0)).unwrap();
        map.expire_all();
        assert_eq!(map.find(&Keys::One("d".into())).len(), 1);
    }

    #[test]
    fn who_holds_a_lock_is_who_came_first() {
        let entry = |key: &str, created, value: &str| Entry {
            key: key.into(),
            value: value.into(),
            created,
            revision: created,
            lease: 1,
        };
        let line = line(vec![entry("l/b", 9, "n2"), entry("l/a", 12, "n3"), entry("l/c", 7, "n1")]);
        assert_eq!(line.iter().map(|entry| entry.created).collect::<Vec<_>>(), [7, 9, 12]);
        // A proof is about a life before it, of the node that it names, and about who holds.
        assert_eq!(outdated(&line, "n1", 8).map(|entry| entry.created), Some(7));
        assert_eq!((outdated(&line, "n1", 7), outdated(&line, "n2", 20)), (None, None));
    }

    #[test]
    fn the_work_ends_before_another_can_hold_the_lock() {
        let mut hold = Hold::new(Duration::from_secs(3), Hold::usual_margin(Duration::from_secs(3)), at(100));
        assert_eq!(hold.next(), at(101));
        hold.fail(at(101));
        assert!(hold.next() > at(101) && hold.next() < at(102));
        assert!(hold.warn() < hold.kill() && hold.kill() < hold.end() && hold.end() == at(103));
        hold.renew(Duration::from_secs(4), at(102));
        assert_eq!((hold.end(), hold.warn() < hold.end()), (at(106), true));
        // An answer that is older than one that came before it takes nothing back.
        hold.renew(Duration::from_secs(4), at(101));
        assert_eq!(hold.end(), at(106));
    }

    proptest! {
        /// Whoever follows the changes has what a look shows, from any revision that is remembered.
        #[test]
        fn changes_lead_to_what_is_there(
            steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u8..9), 1..60),
            from in 0_usize..60,
        ) {
            let mut map = Map::default();
            let mut seen: Option<(u64, BTreeMap<Vec<u8>, Entry>)> = None;
            let lease = map.grant(Duration::from_secs(5), at(0));
            for (idx, (what, key, value)) in steps.iter().enumerate() {
                if idx == from.min(steps.len() - 1) {
                    seen = Some((map.revision, map.entries.clone()));
                }
                let key = format!("k{key}");
                match what {
                    0 => drop(map.run(&Transaction {
                        then: vec![Step::Delete(Keys::One(key.into_bytes()))], ..Transaction::default()
                    })),
                    1 => drop(map.run(&put(&key, &value.to_string(), lease))),
                    2 if *value == 0 => drop(map.revoke(lease)),
                    _ => drop(map.run(&put(&key, &value.to_string(), 0))),
                }
            }
            let (revision, mut entries) = seen.unwrap();
            let mut last = revision;
            for change in map.changes(&Keys::Prefix(b"k".to_vec()), revision).unwrap() {
                prop_assert!(change.revision() >= last);
                last = change.revision();
                match change {
                    Change::Put(entry) => drop(entries.insert(entry.key.clone(), entry)),
                    Change::Deleted { key, .. } => prop_assert!(entries.remove(&key).is_some()),
                }
            }
            prop_assert_eq!(entries, map.entries);
        }
    }

    #[test]
    fn what_is_forgotten_is_said() {
        let mut map = Map::default();
        for number in 0..REMEMBERED + 10 {
            map.run(&put("a", &number.to_string(), 0)).unwrap();
        }
        let all = Keys::Prefix(Vec::new());
        assert_eq!(map.changes(&all, 9), None);
        assert_eq!(map.changes(&all, 10).unwrap().len(), REMEMBERED);
    }
}
