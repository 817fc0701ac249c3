//! Other programs: found without trusting PATH alone, given a deadline, never given a shell.

use super::clock::Deadline;
use super::error::Missing;
use super::{Error, Result};
use crate::types::time::Tick;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Finds a program in PATH, then where cron and agents forget to look.
///
/// # Errors
/// `Missing` with the package that brings it.
pub(crate) fn find(program: &str, package: &str, doing: &str, object: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    for folder in folders {
        let candidate = folder.join(program);
        if folder.is_absolute() && is_executable(&candidate) {
            return Ok(candidate);
        }
    }
    Err(Error::Missing {
        doing: doing.to_owned(),
        object: object.to_owned(),
        what: format!("the program '{program}' is not on this host"),
        mend: format!("install the package {package}"),
        reason: Missing::Program,
    })
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// A file that has no right to be executed, for anybody.
fn is_not_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 == 0)
}

/// Runs a program to its end with `input` on its stdin, in its own process group.
///
/// At the deadline the whole group is killed.
pub(crate) fn run(program: &Path, args: &[&str], input: &[u8], deadline: Deadline) -> Result<Finished> {
    begin(program, args, !input.is_empty(), deadline)?.finish(input)
}

/// A program that runs beside this one, its output kept for its end.
#[derive(Debug)]
pub(crate) struct Begun {
    running: Running,
    said: File,
}

/// Starts a program, to be finished by [`Begun::finish`]; without `input` it has nothing on its stdin.
///
/// What it prints goes to memory and not through a pipe: nft writes word by word, and each would wake this
/// process (seen: 11,000 writes and 7,000 wakes for a table of 100 gateways, half of the time).
pub(crate) fn begin(program: &Path, args: &[&str], input: bool, deadline: Deadline) -> Result<Begun> {
    let name = program.display().to_string();
    let said = memfd_create(c"said", MFdFlags::MFD_CLOEXEC).map_err(|errno| Error::call("run", &name, errno))?;
    let said = File::from(said);
    let mut command = command(program, args);
    command.stdout(said.try_clone().map_err(|error| Error::io("run", &name, &error))?);
    if !input {
        command.stdin(Stdio::null());
    }
    Ok(Begun { running: Running::spawn(command, deadline)?, said })
}

impl Begun {
    /// Waits for its end, and feeds it what `input` is left.
    pub(crate) fn finish(mut self, input: &[u8]) -> Result<Finished> {
        let name = self.running.name.clone();
        let mut finished = self.running.finish(input)?;
        let read = self.said.rewind().and_then(|()| self.said.read_to_end(&mut finished.stdout));
        read.map_err(|error| Error::io("read from", name, &error))?;
        Ok(finished)
    }
}

/// What is kept of what an agent says: the rest of an endless talker is read and thrown away.
const AGENT_SAYS: usize = 16 * 1024;

/// Runs a program of somebody else's to its end, with everything that it starts.
///
/// It has ended when the program itself has, whoever still holds its pipes. What it left behind then,
/// and all of it at the deadline, is killed: this process becomes the parent of orphans, so neither a
/// process group of its own nor a daemon's double fork gets out of reach. So this process must have no
/// other children. At most 16 KiB of each output are kept.
///
/// `None` means that `interrupt` could be read first. One that cannot even be killed, since a system call
/// of it does not come back, is left behind after a moment.
///
/// # Errors
/// `Late` at the deadline, or when the program cannot be started.
pub(crate) fn run_tree(
    program: &Path,
    args: &[&str],
    input: &[u8],
    deadline: Deadline,
    interrupt: BorrowedFd<'_>,
) -> Result<Option<Finished>> {
    let name = program.display().to_string();
    let failed = |errno| Error::call("run", &name, errno);
    nix::sys::prctl::set_child_subreaper(true).map_err(failed)?;
    let mut running = Running::spawn(command(program, args), deadline)?;
    let end = super::raw::pidfd(running.id()).map_err(failed);
    let outcome = end.as_ref().map_err(Error::clone).and_then(|end| {
        let until = Until { deadline, end: Some(end.as_fd()), interrupt: Some(interrupt), keep: AGENT_SAYS };
        converse(&mut running.child, input, &until, &name)
    });
    if !matches!(outcome, Ok(Some(_))) {
        kill_group(&running.child);
        if !has_ended(end.as_ref().ok().map(AsFd::as_fd))? {
            end_descendants();
            return outcome.map(|_| None);
        }
    }
    let status = running.child.wait().map_err(|error| Error::io("wait for", &name, &error));
    end_descendants();
    let Some((stdout, stderr)) = outcome? else { return Ok(None) };
    Ok(Some(Finished { status: status?, stdout, stderr }))
}

/// Whether a program that was killed is gone, after a moment for it.
fn has_ended(end: Option<BorrowedFd<'_>>) -> Result<bool> {
    const MOMENT: Duration = Duration::from_millis(100);
    let Some(end) = end else { return Ok(true) };
    let mut sources = super::event::Sources::default();
    sources.readable(end);
    sources.wait(Some(super::clock::boot().after(MOMENT)))
}

/// Kills and buries everything that descends from this process, for at most half a second.
fn end_descendants() {
    let deadline = Deadline::after(Duration::from_millis(500));
    loop {
        for pid in descendants() {
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
        }
        // Orphans become children of ours as their parents end; the last one gone is ECHILD.
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) => {}
                Err(_) => return,
            }
        }
        if deadline.left().is_zero() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends everything that descends from this process but what is `kept` and descends from that: told to end first,
/// and killed at `deadline`. Gives what cannot be ended: another user's, or one whose system call does not come back.
#[must_use]
pub(crate) fn end_tree(kept: Option<u32>, deadline: Tick) -> Vec<u32> {
    let mut signal = Some(Signal::SIGTERM);
    // What cannot be killed, since a system call of it does not come back, is left behind after a moment.
    let last = deadline.after(Duration::from_millis(500));
    loop {
        let spared: Vec<Pid> = kept.and_then(|pid| i32::try_from(pid).ok()).map(below).unwrap_or_default();
        let left: Vec<Pid> = descendants().into_iter().filter(|pid| !spared.contains(pid)).collect();
        let now = super::clock::boot();
        if left.is_empty() || now >= last {
            return left.into_iter().map(|pid| pid.as_raw().unsigned_abs()).collect();
        }
        if now >= deadline {
            signal = Some(Signal::SIGKILL);
        }
        for pid in left {
            if let Some(signal) = signal {
                let _ = nix::sys::signal::kill(pid, signal);
            }
            // Orphans are children of ours; what is kept has its own burial.
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
        if signal == Some(Signal::SIGTERM) {
            signal = None;
        }
        super::clock::sleep_until(now.after(Duration::from_millis(1)));
    }
}

/// This process in two: one that does the work, and one that buries it.
#[derive(Debug)]
pub(crate) enum Half {
    /// The one that was started: it waits for the other and outlives it.
    Outer(Inner),
    /// The one that does the work.
    Inner(Outer),
}

/// The half that was started, as the other sees it.
#[derive(Debug)]
pub(crate) struct Outer {
    end: std::os::fd::OwnedFd,
}

impl Outer {
    /// Readable once it has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// The half that does the work, as the other sees it.
#[derive(Debug)]
pub(crate) struct Inner {
    pid: Pid,
    end: std::os::fd::OwnedFd,
}

/// Parts this process in two, before it has any thread.
///
/// # Errors
/// The system has no room for another process.
pub(crate) fn part() -> Result<Half> {
    let failed = |errno| Error::call("start", "a process", errno);
    let outer = nix::unistd::getpid();
    nix::sys::prctl::set_child_subreaper(true).map_err(failed)?;
    if let Some(pid) = super::raw::fork().map_err(failed)? {
        let end = super::raw::pidfd(pid.as_raw().unsigned_abs()).map_err(failed)?;
        return Ok(Half::Outer(Inner { pid, end }));
    }
    nix::sys::prctl::set_child_subreaper(true).map_err(failed)?;
    let end = super::raw::pidfd(outer.as_raw().unsigned_abs()).map_err(failed)?;
    // It may have gone before it could be watched.
    if nix::unistd::getppid() == outer { Ok(Half::Inner(Outer { end })) } else { Err(failed(Errno::ESRCH)) }
}

impl Inner {
    /// Readable once it has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    pub(crate) fn pass_on(&self, signal: Signal) {
        let _ = nix::sys::signal::kill(self.pid, signal);
    }

    /// How it ended: its status, or what killed it.
    pub(crate) fn bury(&self) -> Ended {
        match waitpid(self.pid, None) {
            Ok(WaitStatus::Exited(_, status)) => Ended::Status(u8::try_from(status).unwrap_or(u8::MAX)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Ended::Signal(signal),
            _ => Ended::Signal(Signal::SIGKILL),
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Status(u8),
    Signal(Signal),
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal().and_then(|signal| Signal::try_from(signal).ok())) {
            (Some(code), _) => Ended::Status(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => Ended::Signal(signal.unwrap_or(Signal::SIGKILL)),
        }
    }
}

impl Ended {
    /// As a shell tells it.
    pub(crate) fn status(self) -> u8 {
        match self {
            Ended::Status(status) => status,
            Ended::Signal(signal) => 128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)),
        }
    }
}

/// The kernel kills this process at a time that was set, also while it is stopped or hangs.
pub(crate) struct DeadMan(nix::sys::timer::Timer);

impl std::fmt::Debug for DeadMan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeadMan")
    }
}

impl DeadMan {
    pub(crate) fn new() -> Result<Self> {
        use nix::sys::signal::{SigEvent, SigevNotify};
        let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        nix::sys::timer::Timer::new(nix::time::ClockId::CLOCK_BOOTTIME, event)
            .map(DeadMan)
            .map_err(|errno| Error::call("set", "a timer", errno))
    }

    /// Sets the time anew.
    pub(crate) fn arm(&mut self, at: Tick) -> Result<()> {
        use nix::sys::timer::{Expiration, TimerSetTimeFlags};
        let at = Expiration::OneShot(nix::sys::time::TimeSpec::from_duration(at.0));
        self.0.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME).map_err(|errno| Error::call("set", "a timer", errno))
    }
}

/// A program that has this process's input and output and ends with it.
#[derive(Debug)]
pub(crate) struct Ward {
    child: Child,
    end: std::os::fd::OwnedFd,
}

/// Why a program was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// There is none of this name.
    NotFound(String),
    /// It is there, and cannot be run.
    NotRunnable(String),
}

impl Ward {
    /// Starts a program with `variables` added to its environment. It is killed once the thread that calls this is
    /// gone.
    pub(crate) fn start(
        words: &[std::ffi::OsString],
        variables: &[(&str, String)],
    ) -> std::result::Result<Self, NotStarted> {
        let (name, args) = words.split_first().ok_or_else(|| NotStarted::NotFound("no program is named".to_owned()))?;
        let shown = name.to_string_lossy();
        let mut command = Command::new(name);
        command.args(args).envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        super::raw::die_with_parent(&mut command);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                NotStarted::NotFound(format!("cannot run {shown}: no such program (give its path)"))
            }
            _ => NotStarted::NotRunnable(format!("cannot run {shown}: {error}")),
        })?;
        let end = super::raw::pidfd(child.id())
            .map_err(|errno| NotStarted::NotRunnable(format!("cannot watch {shown}: {}", errno.desc())))?;
        Ok(Ward { child, end })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Readable once it has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    pub(crate) fn pass_on(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), signal);
        }
    }

    /// How it ended, once it has; one that was killed is waited for a moment, and no longer.
    pub(crate) fn bury(&mut self) -> Ended {
        if !has_ended(Some(self.end.as_fd())).unwrap_or(true) {
            return Ended::Signal(Signal::SIGKILL);
        }
        self.child.wait().map_or(Ended::Signal(Signal::SIGKILL), Ended::from)
    }
}

/// Every process below this one, from /proc/PID/stat (proc(5): the parent is the second field after the
/// name, which ends with the last bracket).
fn descendants() -> Vec<Pid> {
    below(nix::unistd::getpid().as_raw()).into_iter().skip(1).collect()
}

/// A process and every one below it.
fn below(root: i32) -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        if let Some(parent) = after.split_whitespace().nth(1).and_then(|parent| parent.parse::<i32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(pid, of)| *of == parent && !found.contains(pid))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    found.into_iter().map(Pid::from_raw).collect()
}

/// A program that has not ended yet.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
    deadline: Deadline,
}

impl Running {
    fn spawn(mut command: Command, deadline: Deadline) -> Result<Self> {
        let name = command.get_program().display().to_string();
        let child = command.spawn().map_err(|error| Error::io("run", &name, &error))?;
        Ok(Running { child, name, deadline })
    }

    /// Starts a program that takes one line after another: see [`Running::say`]. What it prints is
    /// thrown away, what it complains of is kept, and it has no home to write a history to.
    pub(crate) fn start(program: &Path, args: &[&str], deadline: Deadline) -> Result<Self> {
        let mut command = command(program, args);
        command.stdout(Stdio::null()).env("HOME", "/dev/null");
        Running::spawn(command, deadline)
    }

    /// Hands it a line that fits a pipe; what follows has until `deadline`.
    pub(crate) fn say(&mut self, line: &str, deadline: Deadline) {
        self.deadline = deadline;
        if let Some(stdin) = &mut self.child.stdin {
            // One that has ended already says why at the end.
            let _ = stdin.write_all(line.as_bytes());
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `other` can be read, which is `true`, or the program speaks or ends.
    pub(crate) fn wait_beside(&self, other: BorrowedFd<'_>) -> Result<bool> {
        let mut sources = super::event::Sources::default();
        let slot = sources.readable(other);
        if let Some(stderr) = &self.child.stderr {
            sources.readable(stderr.as_fd());
        }
        if !sources.wait(Some(self.deadline.tick()))? {
            return Ok(false);
        }
        Ok(sources.is_ready(slot))
    }

    /// Waits for its end, and feeds it what `input` is left.
    pub(crate) fn finish(mut self, input: &[u8]) -> Result<Finished> {
        let until = Until { deadline: self.deadline, end: None, interrupt: None, keep: usize::MAX };
        let outcome = converse(&mut self.child, input, &until, &self.name);
        if outcome.is_err() {
            kill_group(&self.child);
        }
        let status = self.child.wait().map_err(|error| Error::io("wait for", &self.name, &error));
        // Nothing interrupts it, so there is always something.
        let (stdout, stderr) = outcome?.unwrap_or_default();
        Ok(Finished { status: status?, stdout, stderr })
    }
}

/// How a program that was watched ended.
#[derive(Debug)]
pub(crate) struct Watched {
    /// None where it was killed: at the deadline, or since the run ended.
    pub(crate) status: Option<ExitStatus>,
    /// What it printed, its beginning.
    pub(crate) stdout: Vec<u8>,
    /// What it complained of, where that was piped.
    pub(crate) stderr: Vec<u8>,
    /// It could not even be killed: a system call of it does not come back.
    pub(crate) stuck: Option<Child>,
}

/// Runs a program in its own process group until it ends itself, `deadline` passes or `stop` becomes
/// readable; the group is killed then.
///
/// Of what it says the first `keep` bytes are kept. Its end counts, not that of its output: a daemon that
/// it left behind may hold that open.
pub(crate) fn watch(mut command: Command, keep: usize, deadline: Tick, stop: BorrowedFd<'_>) -> Result<Watched> {
    let name = command.get_program().display().to_string();
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    super::raw::unblock_signals(&mut command);
    let no_program = |what: &str, mend: &str| Error::Missing {
        doing: "run".to_owned(),
        object: name.clone(),
        what: what.to_owned(),
        mend: mend.to_owned(),
        reason: Missing::Program,
    };
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => no_program("no such program", "give its path"),
        // Nobody may run it, root neither.
        std::io::ErrorKind::PermissionDenied if is_not_executable(Path::new(command.get_program())) => {
            no_program("the file is not executable", "see: chmod +x")
        }
        _ => Error::io("run", &name, &error),
    })?;
    let ended = super::raw::pidfd(child.id()).map_err(|errno| Error::call("watch", &name, errno))?;
    let mut watched = Watched { status: None, stdout: Vec::new(), stderr: Vec::new(), stuck: None };
    let (mut stdout, mut stderr, mut block) = (child.stdout.take(), child.stderr.take(), vec![0; 16384]);
    loop {
        let (over, said, complained) = {
            let mut sources = super::event::Sources::default();
            let (end, stopped) = (sources.readable(ended.as_fd()), sources.readable(stop));
            let output = stdout.as_ref().map(|pipe| sources.readable(pipe.as_fd()));
            let complaints = stderr.as_ref().map(|pipe| sources.readable(pipe.as_fd()));
            if !sources.wait(Some(deadline))? || sources.is_ready(stopped) {
                break;
            }
            let ready = |slot: Option<_>| slot.is_some_and(|slot| sources.is_ready(slot));
            (sources.is_ready(end), ready(output), ready(complaints))
        };
        let failed = |error: std::io::Error| Error::io("read from", &name, &error);
        if said {
            drain(&mut stdout, &mut block, &mut watched.stdout, keep).map_err(failed)?;
        } else if complained {
            drain(&mut stderr, &mut block, &mut watched.stderr, keep).map_err(failed)?;
        } else if over {
            watched.status = Some(child.wait().map_err(|error| Error::io("wait for", &name, &error))?);
            return Ok(watched);
        }
    }
    kill_group(&child);
    if has_ended(Some(ended.as_fd()))? {
        child.wait().map_err(|error| Error::io("wait for", &name, &error))?;
    } else {
        watched.stuck = Some(child);
    }
    Ok(watched)
}

/// The same, and everything that the program started ends with it: what it leaves behind is killed too,
/// also what made itself a session. So this process must have no other children: see [`run_tree`].
pub(crate) fn watch_tree(command: Command, keep: usize, deadline: Tick, stop: BorrowedFd<'_>) -> Result<Watched> {
    let name = command.get_program().display().to_string();
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| Error::call("watch", name, errno))?;
    let watched = watch(command, keep, deadline, stop);
    end_descendants();
    watched
}

/// One of our own programs, run beside a stream.
#[derive(Debug)]
pub(crate) struct Beside {
    child: Child,
    said: Vec<u8>,
}

impl Beside {
    /// Starts this program itself with other words; what it complains of goes where ours does.
    pub(crate) fn start(args: &[String]) -> Result<Self> {
        let failed = |error: &std::io::Error| Error::io("run", "this program", error);
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Beside { child: command.spawn().map_err(|error| failed(&error))?, said: Vec::new() })
    }

    /// What to wait on; `None` once it has said all.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.child.stdout.as_ref().map(AsFd::as_fd)
    }

    /// Takes what it says, called when `as_fd` can be read; at its end all of it and the status.
    pub(crate) fn hear(&mut self) -> Result<Option<(ExitStatus, Vec<u8>)>> {
        let failed = |error: &std::io::Error| Error::io("read from", "this program", error);
        let mut block = vec![0; AGENT_SAYS];
        drain(&mut self.child.stdout, &mut block, &mut self.said, AGENT_SAYS).map_err(|error| failed(&error))?;
        if self.child.stdout.is_some() {
            return Ok(None);
        }
        let status = self.child.wait().map_err(|error| failed(&error))?;
        Ok(Some((status, std::mem::take(&mut self.said))))
    }

    /// Tells it to stop, and waits until it has undone what it must.
    pub(crate) fn stop(mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn kill_group(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may have ended by itself meanwhile: then there is nothing to kill.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// When a conversation is over, and what is kept of it.
struct Until<'fd> {
    deadline: Deadline,
    /// Readable once the program has ended; without it the ends of its outputs count.
    end: Option<BorrowedFd<'fd>>,
    /// Readable when it is to be broken off.
    interrupt: Option<BorrowedFd<'fd>>,
    /// Bytes of each output.
    keep: usize,
}

/// What a program wrote on its two outputs.
type Said = (Vec<u8>, Vec<u8>);

/// Feeds stdin and drains both outputs without letting any of the three block the others.
fn converse(child: &mut Child, mut input: &[u8], until: &Until<'_>, name: &str) -> Result<Option<Said>> {
    let mut stdin = child.stdin.take();
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let mut block = vec![0; 16384];
    let failed = |error: &std::io::Error| Error::io("talk to", name, error);
    let mut ended = false;
    while !ended && (until.end.is_some() || stdin.is_some() || stdout.is_some() || stderr.is_some()) {
        let ready = {
            let mut sources = super::event::Sources::default();
            let to_child = stdin.as_ref().map(|pipe| sources.writable(pipe.as_fd()));
            let from_child = stdout.as_ref().map(|pipe| sources.readable(pipe.as_fd()));
            let complaints = stderr.as_ref().map(|pipe| sources.readable(pipe.as_fd()));
            let end = until.end.map(|end| sources.readable(end));
            let interrupt = until.interrupt.map(|interrupt| sources.readable(interrupt));
            // An endless talker is always ready, and its time runs out all the same.
            if !sources.wait(Some(until.deadline.tick()))? || until.deadline.left().is_zero() {
                return Err(Error::Late {
                    doing: "run".to_owned(),
                    object: name.to_owned(),
                    why: "it did not end in the time given".to_owned(),
                });
            }
            let ready =
                [to_child, from_child, complaints, end].map(|slot| slot.is_some_and(|slot| sources.is_ready(slot)));
            if interrupt.is_some_and(|slot| sources.is_ready(slot)) {
                return Ok(None);
            }
            // What it said before its end is in the pipes by now, and read once more below.
            ended = ready[3];
            ready
        };
        if ready[0]
            && let Some(pipe) = stdin.as_mut()
        {
            // At most what a pipe takes without blocking once it is writable (PIPE_BUF).
            match pipe.write(&input[..input.len().min(4096)]) {
                Ok(taken) => input = &input[taken..],
                Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => input = &[],
                Err(error) => return Err(failed(&error)),
            }
            if input.is_empty() {
                stdin = None;
            }
        }
        if ready[1] {
            drain(&mut stdout, &mut block, &mut said, until.keep).map_err(|error| failed(&error))?;
        }
        if ready[2] {
            drain(&mut stderr, &mut block, &mut complained, until.keep).map_err(|error| failed(&error))?;
        }
    }
    Ok(Some((said, complained)))
}

fn drain<R: Read>(pipe: &mut Option<R>, block: &mut [u8], into: &mut Vec<u8>, keep: usize) -> std::io::Result<()> {
    if let Some(reader) = pipe {
        let got = reader.read(block)?;
        into.extend_from_slice(&block[..got.min(keep.saturating_sub(into.len()))]);
        if got == 0 {
            *pipe = None;
        }
    }
    Ok(())
}
