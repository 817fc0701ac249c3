//! Waiting on several things at once: `ppoll`, one absolute deadline, signals as readable.

use super::clock;
use super::{Error, Result};
use crate::types::time::Tick;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A set of descriptors to wait on, made anew for each wait.
#[derive(Default)]
pub(crate) struct Sources<'fd> {
    fds: Vec<PollFd<'fd>>,
}

/// Names one descriptor of a `Sources`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot(usize);

impl<'fd> Sources<'fd> {
    /// Waits until `fd` can be read, or has ended.
    pub(crate) fn readable(&mut self, fd: BorrowedFd<'fd>) -> Slot {
        self.push(fd, PollFlags::POLLIN)
    }

    /// Waits until `fd` takes at least `PIPE_BUF` bytes, or its reader is gone.
    pub(crate) fn writable(&mut self, fd: BorrowedFd<'fd>) -> Slot {
        self.push(fd, PollFlags::POLLOUT)
    }

    /// Waits until the reader of `fd` is gone, and for nothing else.
    pub(crate) fn gone(&mut self, fd: BorrowedFd<'fd>) -> Slot {
        self.push(fd, PollFlags::empty())
    }

    fn push(&mut self, fd: BorrowedFd<'fd>, flags: PollFlags) -> Slot {
        self.fds.push(PollFd::new(fd, flags));
        Slot(self.fds.len() - 1)
    }

    /// Waits for the first of them, at most until `deadline`; `false` if that came first.
    ///
    /// `EINTR` goes on waiting. The kernel's timer runs on `CLOCK_MONOTONIC`; the deadline is
    /// looked at again after each wake, so a suspend makes it late, never early.
    pub(crate) fn wait(&mut self, deadline: Option<Tick>) -> Result<bool> {
        // The kernel takes no time without end; it is waited for again after a day.
        const MOST: Duration = Duration::from_secs(86_400);
        let left = || deadline.map(|deadline| deadline.since(clock::boot()).min(MOST));
        loop {
            match ppoll(&mut self.fds, left().map(TimeSpec::from_duration), None) {
                Ok(0) if left().is_some_and(|left| left.is_zero()) => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(Error::call("wait for", "events", errno)),
            }
        }
    }

    /// Whether the last wait found something at `slot`, an error or an end included.
    pub(crate) fn is_ready(&self, slot: Slot) -> bool {
        self.fds.get(slot.0).and_then(PollFd::any).unwrap_or(false)
    }
}

/// TERM, INT and HUP as something to wait on, so that a stream can give back what it holds first.
pub(crate) struct Signals {
    fd: SignalFd,
    mask: SigSet,
}

impl Signals {
    /// Blocks the three signals for this process and makes them readable.
    pub(crate) fn catch() -> Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        let failed = |errno| Error::call("catch", "signals", errno);
        mask.thread_block().map_err(failed)?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)?;
        Ok(Signals { fd, mask })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal that came, if one did.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        self.next_with_origin().map(|(signal, _)| signal)
    }

    /// The same, and whether a terminal sent it, which sends it to every process of the job (`SI_KERNEL`).
    pub(crate) fn next_with_origin(&mut self) -> Option<(Signal, bool)> {
        const SI_KERNEL: i32 = 0x80;
        let info = self.fd.read_signal().ok().flatten()?;
        let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())?;
        Some((signal, info.ssi_code == SI_KERNEL))
    }

    /// Ends this process by `signal` itself, as whoever sent it expects to see.
    pub(crate) fn die(&self, signal: Signal) {
        super::raw::let_end(signal);
        let _ = nix::sys::signal::raise(signal);
        let _ = self.mask.thread_unblock();
    }
}
