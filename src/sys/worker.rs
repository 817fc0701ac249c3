//! A job beside the loop, so that the loop hears signals and timers while it waits for something.

use super::{Error, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Runs one job at a time. One that does not come back is left behind, and nothing new is started
/// until it does: a stuck system call costs one thread, not one a round.
pub(crate) struct Worker<T> {
    sender: Sender<(u64, T)>,
    results: Receiver<(u64, T)>,
    done: Arc<EventFd>,
    stop: Stop,
    number: u64,
    busy: bool,
}

impl<T> std::fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Worker({}, busy: {})", self.number, self.busy)
    }
}

/// Readable once the run ends: a job that holds something gives it back then.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<EventFd>);

impl Stop {
    /// One of its own, for a job inside a job.
    pub(crate) fn new() -> Result<Self> {
        event().map(Stop)
    }

    /// Says that it is over.
    pub(crate) fn say(&self) {
        let _ = self.0.write(1);
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn event() -> Result<Arc<EventFd>> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .map(Arc::new)
        .map_err(|errno| Error::call("make", "an event", errno))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> Result<()> {
    // What a probe with TLS needs, and no more.
    const STACK: usize = 512 * 1024;
    let started = std::thread::Builder::new().stack_size(STACK).spawn(body);
    started.map(drop).map_err(|error| Error::io("start", "a thread", &error))
}

impl<T: Send + 'static> Worker<T> {
    pub(crate) fn new() -> Result<Self> {
        let (sender, results) = channel();
        Ok(Worker { sender, results, done: event()?, stop: Stop(event()?), number: 0, busy: false })
    }

    /// Readable when a job has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Whether a job has not come back yet, given up or not.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Starts a job in a thread of its own.
    pub(crate) fn start(&mut self, job: impl FnOnce(&Stop) -> T + Send + 'static) -> Result<()> {
        self.number += 1;
        let (number, sender, done, stop) = (self.number, self.sender.clone(), self.done.clone(), self.stop.clone());
        spawn(move || {
            let result = job(&stop);
            // Nobody listens any more where the run has ended.
            let _ = sender.send((number, result));
            let _ = done.write(1);
        })?;
        self.busy = true;
        Ok(())
    }

    /// The result of the job, once it has come back; that of one that was given up is thrown away.
    pub(crate) fn take(&mut self) -> Option<T> {
        let _ = self.done.read();
        let mut taken = None;
        while let Ok((number, result)) = self.results.try_recv() {
            self.busy = false;
            taken = (number == self.number).then_some(result);
        }
        taken
    }

    /// Does not wait for the job any longer.
    pub(crate) fn give_up(&mut self) {
        self.number += 1;
    }

    /// Asks the job to give back what it holds, and waits for that at most until `deadline`.
    pub(crate) fn end(&mut self, deadline: crate::types::time::Tick) {
        let _ = self.stop.0.write(1);
        while self.busy {
            let mut sources = super::event::Sources::default();
            sources.readable(self.done.as_fd());
            if !sources.wait(Some(deadline)).unwrap_or(false) {
                return;
            }
            self.take();
        }
    }
}

/// Many jobs at once, each in a thread of its own. What they bring back is taken, or they wait: it does not pile up.
#[derive(Debug)]
pub(crate) struct Crew<T> {
    sender: SyncSender<T>,
    results: Receiver<T>,
    done: Arc<EventFd>,
    stop: Stop,
}

impl<T: Send + 'static> Crew<T> {
    pub(crate) fn new() -> Result<Self> {
        const WAITING: usize = 256;
        let (sender, results) = sync_channel(WAITING);
        Ok(Crew { sender, results, done: event()?, stop: Stop(event()?) })
    }

    /// Readable when a job has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Starts one more job.
    pub(crate) fn start(&self, job: impl FnOnce(&Stop) -> T + Send + 'static) -> Result<()> {
        let (sender, done, stop) = (self.sender.clone(), self.done.clone(), self.stop.clone());
        spawn(move || {
            // Nobody listens any more where the run has ended.
            let _ = sender.send(job(&stop));
            let _ = done.write(1);
        })
    }

    /// Starts one that tells of several things before it ends.
    pub(crate) fn follow(&self, job: impl FnOnce(&Stop, &dyn Fn(T)) + Send + 'static) -> Result<()> {
        let (sender, done, stop) = (self.sender.clone(), self.done.clone(), self.stop.clone());
        spawn(move || {
            job(&stop, &|told| {
                // Nobody listens any more where the run has ended.
                let _ = sender.send(told);
                let _ = done.write(1);
            });
        })
    }

    /// The results of jobs that have come back since the last call.
    pub(crate) fn take(&self) -> Vec<T> {
        let _ = self.done.read();
        self.results.try_iter().collect()
    }
}

impl<T> Drop for Crew<T> {
    /// Jobs that still run have nobody to tell.
    fn drop(&mut self) {
        let _ = self.stop.0.write(1);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::clock;
    use crate::sys::event::Sources;
    use std::time::Duration;

    fn wait(fd: BorrowedFd<'_>) -> bool {
        let mut sources = Sources::default();
        sources.readable(fd);
        sources.wait(Some(clock::boot().after(Duration::from_secs(10)))).unwrap()
    }

    #[test]
    fn a_job_that_was_given_up_says_nothing_when_it_comes_back() {
        let mut worker = Worker::new().unwrap();
        worker.start(|stop| wait(stop.as_fd())).unwrap();
        assert!(worker.is_busy() && worker.take().is_none());
        worker.give_up();
        worker.end(clock::boot().after(Duration::from_secs(10)));
        assert!(!worker.is_busy());
        worker.start(|_| true).unwrap();
        assert!(wait(worker.as_fd()));
        assert_eq!(worker.take(), Some(true));
    }

    #[test]
    fn a_crew_brings_back_what_each_has_found() {
        let crew = Crew::new().unwrap();
        for number in 0..10 {
            crew.start(move |_| number).unwrap();
        }
        let mut found = Vec::new();
        while found.len() < 10 {
            assert!(wait(crew.as_fd()));
            found.extend(crew.take());
        }
        found.sort_unstable();
        assert_eq!(found, (0..10).collect::<Vec<_>>());
    }
}
