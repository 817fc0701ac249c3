//! Probe, judge, print: the loop of every checker.
//!
//! A probe runs beside the loop, which meanwhile hears signals, notices a reader that has left, and
//! gives up a probe that does not come back. Once, it ends with the first verdict; as a stream it goes
//! on, with a record each round.

use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, complain};
use crate::decide::monitor::{Evidence, Monitor, Settings};
use crate::record::Head;
use crate::sys::clock;
use crate::sys::event::{Signals, Sources};
use crate::sys::netlink::{Change, Netlink};
use crate::sys::worker::{Stop, Worker};
use crate::types::status::Status;
use crate::types::time::{Tick, WallTime};
use nix::sys::signal::Signal;
use serde::Serialize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a probe may come back late before it is given up: it keeps to its time-out by itself,
/// unless a system call of it is stuck, and on a busy host it is late.
const GRACE: Duration = Duration::from_secs(1);
/// How long a probe has to give back what it holds when the run ends.
const FAREWELL: Duration = Duration::from_millis(300);

/// What one probe brought back.
#[derive(Clone, Debug)]
pub(crate) struct Probed<B> {
    pub(crate) evidence: Evidence,
    /// What was measured.
    pub(crate) body: Option<B>,
    /// Why it could not be asked.
    pub(crate) error: Option<Failure>,
}

impl<B> Probed<B> {
    pub(crate) fn new(evidence: Evidence, body: B) -> Self {
        Probed { evidence, body: Some(body), error: None }
    }

    /// It never left this host.
    pub(crate) fn untold(error: impl Into<Failure>) -> Self {
        Probed { evidence: Evidence::Untold, body: None, error: Some(error.into()) }
    }
}

/// One probe: it has until the point given, and what it holds it gives back when the run ends.
pub(crate) type Probe<B> = Arc<dyn Fn(Tick, &Stop) -> Probed<B> + Send + Sync>;

/// A source of news that are looked at at once, not at the next interval.
pub(crate) struct News {
    pub(crate) netlink: Netlink,
    pub(crate) is_ours: Box<dyn Fn(&Change) -> bool>,
}

/// Where a run stands, for the record that is made of it.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) status: Status,
    /// Since when it is that.
    pub(crate) since: WallTime,
    /// Probes in a row that said the same.
    pub(crate) attempts: u32,
    /// The same status as in the record before.
    pub(crate) renewal: bool,
    pub(crate) now: Tick,
}

/// What is watched, and how.
pub(crate) struct Watch<B> {
    pub(crate) settings: Settings,
    pub(crate) probe: Probe<B>,
    pub(crate) news: Option<News>,
    /// Goes on until somebody ends it.
    pub(crate) follow: bool,
    /// A stream that ends as planned.
    pub(crate) end: Option<Tick>,
    /// The words that begin a complaint.
    pub(crate) who: String,
    /// What is being done, for the sentence that it took too long: `ping 192.0.2.1`.
    pub(crate) doing: String,
}

/// Standard output and the signals, once or as a stream.
pub(super) enum Outlet<'a> {
    Once(&'a mut Process, Signals),
    Stream(Box<Pump>),
}

impl<'a> Outlet<'a> {
    /// Catches the signals; call it before anything is held that a signal must give back.
    pub(super) fn new(process: &'a mut Process, follow: bool) -> Result<Self, Failure> {
        Ok(if follow {
            Outlet::Stream(Box::new(Pump::new(&process.node, process.form)?))
        } else {
            Outlet::Once(process, Signals::catch()?)
        })
    }

    pub(super) fn wait(&mut self, fds: &[BorrowedFd<'_>], deadline: Option<Tick>) -> Result<Woken, Failure> {
        match self {
            Outlet::Stream(pump) => pump.wait(fds, deadline),
            Outlet::Once(_, signals) => {
                let (signalled, ready) = {
                    let mut sources = Sources::default();
                    let signal = sources.readable(signals.as_fd());
                    let slots: Vec<_> = fds.iter().map(|fd| sources.readable(*fd)).collect();
                    sources.wait(deadline)?;
                    (sources.is_ready(signal), slots.into_iter().map(|slot| sources.is_ready(slot)).collect())
                };
                if signalled && let Some(signal) = signals.next() {
                    return Ok(Woken::Signal(signal));
                }
                Ok(Woken::Ready(ready))
            }
        }
    }

    pub(super) fn record(&mut self, head: Head, body: &impl Serialize) -> Result<(), Failure> {
        match self {
            Outlet::Stream(pump) => pump.stream.record(head, body),
            Outlet::Once(process, _) => process.out.record(&head, body),
        }
    }

    /// Writes what still waits, at the end.
    pub(super) fn finish(&mut self) {
        if let Outlet::Stream(pump) = self {
            pump.stream.finish();
        }
    }

    pub(super) fn die(&mut self, signal: Signal) {
        match self {
            Outlet::Stream(pump) => {
                pump.die(signal);
            }
            Outlet::Once(_, signals) => signals.die(signal),
        }
    }
}

/// How the rounds ended.
enum Ended {
    With(Exit),
    Signal(Signal),
}

/// The status of a run that ended with this verdict.
pub(crate) fn exit(status: Status) -> Exit {
    match status {
        Status::Up => Exit::Yes,
        Status::Down => Exit::No,
        Status::Unknown => Exit::Undecided,
    }
}

impl<B: Clone + Send + 'static> Watch<B> {
    /// Runs it; `write` makes the record of where it stands.
    pub(crate) fn run<R: Serialize>(
        mut self,
        process: &mut Process,
        write: impl Fn(&Standing, &Probed<B>) -> (Head, R),
    ) -> Result<Exit, Failure> {
        let end = if self.follow { self.end } else { Some(process.deadline(self.settings.first_verdict()).tick()) };
        let mut outlet = Outlet::new(process, self.follow)?;
        let (mut worker, mut status) = (Worker::new()?, Status::Unknown);
        let outcome = self.rounds(&mut worker, &mut outlet, end, &mut status, write);
        // However it ended, what a probe has started does not outlive it.
        worker.end(clock::boot().after(FAREWELL));
        outlet.finish();
        match outcome {
            Ok(Ended::Signal(signal)) => {
                outlet.die(signal);
                Ok(exit(status))
            }
            Ok(Ended::With(answer)) => Ok(answer),
            // A reader that left changes no answer.
            Err(failure) if failure.is_reader_gone() => Ok(exit(status)),
            Err(failure) => Err(failure),
        }
    }

    fn rounds<R: Serialize>(
        &mut self,
        worker: &mut Worker<Probed<B>>,
        outlet: &mut Outlet<'_>,
        end: Option<Tick>,
        status: &mut Status,
        write: impl Fn(&Standing, &Probed<B>) -> (Head, R),
    ) -> Result<Ended, Failure> {
        let mut monitor = Monitor::new(self.settings.clone(), clock::boot());
        let mut since = clock::wall();
        // When the probe started that is on its way, the last that came back, and what was told of it.
        let mut asked: Option<Tick> = None;
        let mut patience = clock::boot();
        // News that came while a probe was on its way, which may have looked before them.
        let mut look_again = false;
        let mut last: Option<Probed<B>> = None;
        let mut told: Option<(Status, Tick)> = None;
        let renew_every = self.settings.interval.max(self.settings.response_timeout);
        loop {
            let now = clock::boot();
            if asked.is_none() && monitor.next_probe() <= now {
                if !worker.is_busy() {
                    let (probe, until) = (self.probe.clone(), now.after(self.settings.response_timeout));
                    worker.start(move |stop| probe(until, stop))?;
                }
                asked = Some(now);
                patience = now.after(self.settings.response_timeout).after(GRACE);
            }
            let given_up = asked.map(|_| patience);
            let next = Some(monitor.next_probe()).filter(|_| asked.is_none());
            // Within a pause the same is said again, so that it does not expire; near its end a probe will.
            let renew = told
                .map(|(_, at)| at.after(renew_every))
                .filter(|renew| next.is_some_and(|next| renew.after(self.settings.response_timeout) < next));
            let woken = {
                let news = self.news.as_ref().map(|news| news.netlink.as_fd());
                let fds: Vec<BorrowedFd<'_>> = [Some(worker.as_fd()), news].into_iter().flatten().collect();
                outlet.wait(&fds, [given_up, renew, next, end].into_iter().flatten().min())?
            };
            let now = clock::boot();
            if let Woken::Signal(signal) = woken {
                return Ok(Ended::Signal(signal));
            }
            if let Some(news) = &mut self.news
                && news.netlink.changes()?.iter().any(|change| *change == Change::Overrun || (news.is_ours)(change))
            {
                monitor.probe_now(now);
                look_again = asked.is_some();
            }
            let mut came = worker.take().filter(|_| asked.is_some());
            if came.is_none() && given_up.is_some_and(|given_up| given_up <= now) {
                if now.since(patience) > GRACE / 10 {
                    // It was we who stood still: the probe has had no more time than we had.
                    patience = now.after(GRACE);
                } else {
                    worker.give_up();
                    came = Some(self.stuck());
                }
            }
            let fresh = came.is_some();
            if let (Some(probed), Some(started)) = (came, asked) {
                monitor.answered(started, now, probed.evidence);
                if std::mem::take(&mut look_again) {
                    monitor.probe_now(now);
                }
                if let Some(error) = &probed.error
                    && last.as_ref().and_then(|last| last.error.as_ref()) != Some(error)
                {
                    complain(&self.who, &error.sentence);
                }
                (asked, last) = (None, Some(probed));
            }
            let standing = monitor.status(now);
            let changed = standing != *status;
            if changed {
                since = clock::wall();
            }
            *status = standing;
            let over = end.is_some_and(|end| end <= now);
            // Once, a look that could not be taken is an answer too: trying again will not mend it.
            let untold = last.as_ref().is_some_and(|last| last.evidence == Evidence::Untold);
            let concluded = standing != Status::Unknown || untold;
            let say = if self.follow {
                // One that ends within its first look says so.
                fresh || changed || renew.is_some_and(|renew| renew <= now) || (over && told.is_none())
            } else {
                concluded || over
            };
            if say {
                let probed = last.get_or_insert_with(|| {
                    let stuck = self.stuck();
                    stuck.error.iter().for_each(|error| complain(&self.who, &error.sentence));
                    stuck
                });
                let renewal = told.is_some_and(|(before, _)| before == standing);
                let standing = Standing { status: standing, since, attempts: monitor.streak(), renewal, now };
                let (head, record) = write(&standing, probed);
                outlet.record(head, &record)?;
                told = Some((standing.status, now));
            }
            if over || (concluded && !self.follow) {
                let error = last.as_ref().and_then(|last| last.error.as_ref());
                let own = error.filter(|_| standing == Status::Unknown).map(|error| error.exit);
                return Ok(Ended::With(own.unwrap_or(exit(standing))));
            }
        }
    }

    /// It has not come back.
    fn stuck(&self) -> Probed<B> {
        let sentence = format!("cannot {}: it did not end in the time given", self.doing);
        Probed::untold(Failure::new(Exit::Undecided, Reason::TimedOut, sentence))
    }
}
