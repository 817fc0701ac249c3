//! Standard output of a stream: timers never wait for a slow reader.

use super::exit::Exit;
use super::failure::{Failure, Reason};
use super::out::{Form, write_failed};
use super::table;
use crate::record::envelope::{self, Head};
use crate::sys::clock;
use crate::sys::event::{Signals, Sources};
use crate::sys::raw;
use crate::types::time::Tick;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::Serialize;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The most that one write hands over: a pipe that is writable takes this much without blocking.
///
/// Standard output is never made non-blocking, since that would change the other end of whoever
/// shares it.
const PIECE: usize = 4096;
/// Records that may wait for a slow reader before older ones of the same subject are given up. The
/// newest of each subject is never given up, so memory is bounded by what there is to tell about.
const WAITING: usize = 256;

/// One waiting record.
#[derive(Debug)]
struct Waiting {
    subject: Option<String>,
    line: Vec<u8>,
}

/// The writer of streaming verbs.
///
/// The caller waits for `as_fd()` to be writable while `is_waiting()`, and calls `write_some`.
#[derive(Debug)]
pub(crate) struct Stream {
    host: String,
    form: Form,
    queue: VecDeque<Waiting>,
    /// What of the first record is written already.
    written: usize,
    headed: bool,
    /// By subject: records given up since the last one that was kept.
    skipped: Vec<(Option<String>, u64)>,
    stdout: std::io::Stdout,
    pipe: bool,
}

impl Stream {
    pub(crate) fn new(host: &str, form: Form) -> Self {
        let stdout = std::io::stdout();
        let pipe = nix::sys::stat::fstat(stdout.as_fd()).is_ok_and(|meta| {
            let kind = meta.st_mode & libc::S_IFMT;
            kind == libc::S_IFIFO || kind == libc::S_IFSOCK
        });
        Stream {
            host: host.to_owned(),
            form,
            queue: VecDeque::new(),
            written: 0,
            headed: false,
            skipped: Vec::new(),
            stdout,
            pipe,
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stdout.as_fd()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Queues one record and writes what can be written now.
    pub(crate) fn record(&mut self, mut head: Head, body: &impl Serialize) -> Result<(), Failure> {
        if self.queue.len() >= WAITING {
            self.give_up_one(head.subject.as_deref());
        }
        if let Some(at) = self.skipped.iter().position(|(subject, _)| *subject == head.subject) {
            head.skipped = self.skipped.swap_remove(at).1;
        }
        let mut line = Vec::new();
        envelope::write(&mut line, &head, clock::wall(), &self.host, body)
            .map_err(|why| Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write a record: {why}")))?;
        if let Form::Table(columns) = self.form {
            let row = serde_json::from_slice(&line).unwrap_or_default();
            line = table::stream_rows(columns, &row).into_bytes();
            if !self.headed {
                self.headed = true;
                line = [table::stream_head(columns).into_bytes(), line].concat();
            }
        }
        self.queue.push_back(Waiting { subject: head.subject, line });
        self.write_some()
    }

    /// Queues a line of input as it came.
    pub(crate) fn pass(&mut self, line: &str) -> Result<(), Failure> {
        if self.queue.len() >= WAITING {
            self.give_up_one(None);
        }
        self.queue.push_back(Waiting { subject: None, line: format!("{line}\n").into_bytes() });
        self.write_some()
    }

    /// Gives up the oldest waiting record of `subject`, but never one that is half written.
    fn give_up_one(&mut self, subject: Option<&str>) {
        let first = usize::from(self.written > 0);
        let same = (first..self.queue.len()).find(|&idx| self.queue[idx].subject.as_deref() == subject);
        let Some(lost) = same.and_then(|idx| self.queue.remove(idx)) else { return };
        match self.skipped.iter_mut().find(|(subject, _)| *subject == lost.subject) {
            Some((_, count)) => *count += 1,
            None => self.skipped.push((lost.subject, 1)),
        }
    }

    /// Writes as much as the reader takes without blocking.
    ///
    /// # Errors
    /// `Errno::EPIPE` comes as a failure with `Exit::Yes`: the reader has left.
    pub(crate) fn write_some(&mut self) -> Result<(), Failure> {
        if self.is_waiting() && raw::stdout_was_closed() {
            return Err(write_failed(Errno::EBADF));
        }
        while let Some(first) = self.queue.front() {
            if self.pipe && !self.is_writable() {
                return Ok(());
            }
            let rest = first.line.get(self.written..).unwrap_or_default();
            match nix::unistd::write(self.stdout.as_fd(), &rest[..rest.len().min(PIECE)]) {
                Ok(taken) if taken == rest.len() => {
                    self.queue.pop_front();
                    self.written = 0;
                }
                Ok(taken) => self.written += taken,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EPIPE) => return Err(reader_left()),
                Err(errno) => return Err(write_failed(errno)),
            }
        }
        Ok(())
    }

    fn is_writable(&self) -> bool {
        let mut sources = Sources::default();
        let slot = sources.writable(self.stdout.as_fd());
        sources.wait(Some(clock::boot())).is_ok() && sources.is_ready(slot)
    }

    /// Writes everything that still waits, at most for a second: the end of a stream.
    pub(crate) fn finish(&mut self) {
        let deadline = clock::boot().after(std::time::Duration::from_secs(1));
        while self.is_waiting() && clock::boot() < deadline {
            if self.write_some().is_err() {
                return;
            }
            if self.is_waiting() {
                let mut sources = Sources::default();
                sources.writable(self.stdout.as_fd());
                if !sources.wait(Some(deadline)).unwrap_or(false) {
                    return;
                }
            }
        }
    }
}

/// What ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// TERM, INT or HUP came: give back what is held, then `Pump::die`.
    Signal(Signal),
    /// Which of the descriptors can be read; none of them at the deadline.
    Ready(Vec<bool>),
}

/// The heart of a streaming verb: its output, its signals, and whatever it listens to.
pub(crate) struct Pump {
    pub(crate) stream: Stream,
    signals: Signals,
}

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stream.fmt(f)
    }
}

/// A stream has taken standard output.
static OWNS_STDOUT: AtomicBool = AtomicBool::new(false);

/// Whether a stream has taken standard output.
pub(crate) fn owns_stdout() -> bool {
    OWNS_STDOUT.load(Ordering::Relaxed)
}

impl Pump {
    /// Catches the signals; call it before anything is held that a signal must give back.
    pub(crate) fn new(host: &str, form: Form) -> Result<Self, Failure> {
        OWNS_STDOUT.store(true, Ordering::Relaxed);
        Ok(Pump { signals: Signals::catch()?, stream: Stream::new(host, form) })
    }

    /// Waits for the first of `fds`, a signal or the deadline, and writes meanwhile.
    ///
    /// # Errors
    /// `reader_left` when nobody reads any more, or an error on standard output.
    pub(crate) fn wait(&mut self, fds: &[BorrowedFd<'_>], deadline: Option<Tick>) -> Result<Woken, Failure> {
        loop {
            let (signal, out, ready) = {
                let mut sources = Sources::default();
                let signal = sources.readable(self.signals.as_fd());
                let waiting = self.stream.is_waiting();
                let out =
                    if waiting { sources.writable(self.stream.as_fd()) } else { sources.gone(self.stream.as_fd()) };
                let slots: Vec<_> = fds.iter().map(|fd| sources.readable(*fd)).collect();
                sources.wait(deadline)?;
                let ready: Vec<bool> = slots.into_iter().map(|slot| sources.is_ready(slot)).collect();
                (sources.is_ready(signal), sources.is_ready(out), ready)
            };
            if out && !self.stream.is_waiting() {
                return Err(reader_left());
            }
            if out {
                self.stream.write_some()?;
            }
            if signal && let Some(signal) = self.signals.next() {
                return Ok(Woken::Signal(signal));
            }
            if !out || ready.contains(&true) {
                return Ok(Woken::Ready(ready));
            }
        }
    }

    /// Waits for `fd`, a signal or the deadline, and leaves the output alone: what is under way goes on although
    /// nobody reads any more.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(crate) fn hear(&mut self, fd: BorrowedFd<'_>, deadline: Option<Tick>) -> Result<Option<Signal>, Failure> {
        let came = {
            let mut sources = Sources::default();
            let signal = sources.readable(self.signals.as_fd());
            sources.readable(fd);
            sources.wait(deadline)?;
            sources.is_ready(signal)
        };
        Ok(if came { self.signals.next() } else { None })
    }

    /// Ends the run by `signal` itself, after everything that waits was written.
    pub(crate) fn die(&mut self, signal: Signal) -> Exit {
        self.stream.finish();
        self.signals.die(signal);
        Exit::Yes
    }
}

/// The reader of standard output has left: a quiet end with the answer so far.
pub(crate) fn reader_left() -> Failure {
    Failure { exit: Exit::Yes, reason: Reason::WriteFailed, errno: Some(Errno::EPIPE), sentence: String::new() }
}
