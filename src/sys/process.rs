//! Other programs: found without trusting PATH alone, given a deadline, never given a shell.

use super::clock::Deadline;
use super::error::Missing;
use super::{Error, Result};
use crate::types::time::Tick;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
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

/// Runs a program to its end with `input` on its stdin, in its own process group.
///
/// At the deadline the whole group is killed.
pub(crate) fn run(program: &Path, args: &[&str], input: &[u8], deadline: Deadline) -> Result<Finished> {
    let mut command = command(program, args);
    if input.is_empty() {
        command.stdin(Stdio::null());
    }
    Running::spawn(command, deadline)?.finish(input)
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
        let outcome = converse(&mut self.child, input, self.deadline, &self.name);
        if outcome.is_err() {
            kill_group(&self.child);
        }
        let status = self.child.wait().map_err(|error| Error::io("wait for", &self.name, &error));
        let (stdout, stderr) = outcome?;
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
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Missing {
            doing: "run".to_owned(),
            object: name.clone(),
            what: "no such program".to_owned(),
            mend: "give its path".to_owned(),
            reason: Missing::Program,
        },
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
            read_some(&mut stdout, &mut block, keep, &mut watched.stdout).map_err(failed)?;
        } else if complained {
            read_some(&mut stderr, &mut block, keep, &mut watched.stderr).map_err(failed)?;
        } else if over {
            watched.status = Some(child.wait().map_err(|error| Error::io("wait for", &name, &error))?);
            return Ok(watched);
        }
    }
    kill_group(&child);
    let mut sources = super::event::Sources::default();
    sources.readable(ended.as_fd());
    if sources.wait(Some(super::clock::boot().after(Duration::from_millis(100))))? {
        child.wait().map_err(|error| Error::io("wait for", &name, &error))?;
    } else {
        watched.stuck = Some(child);
    }
    Ok(watched)
}

/// Reads what is there, and keeps the beginning of it all.
fn read_some<R: Read>(pipe: &mut Option<R>, block: &mut [u8], keep: usize, into: &mut Vec<u8>) -> std::io::Result<()> {
    drain(pipe, block, into)?;
    into.truncate(keep);
    Ok(())
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

/// Feeds stdin and drains both outputs without letting any of the three block the others.
fn converse(child: &mut Child, mut input: &[u8], deadline: Deadline, name: &str) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut stdin = child.stdin.take();
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let mut block = vec![0; 16384];
    let failed = |error: &std::io::Error| Error::io("talk to", name, error);
    while stdin.is_some() || stdout.is_some() || stderr.is_some() {
        let ready = {
            let mut sources = super::event::Sources::default();
            let to_child = stdin.as_ref().map(|pipe| sources.writable(pipe.as_fd()));
            let from_child = stdout.as_ref().map(|pipe| sources.readable(pipe.as_fd()));
            let complaints = stderr.as_ref().map(|pipe| sources.readable(pipe.as_fd()));
            if !sources.wait(Some(deadline.tick()))? {
                return Err(Error::Late {
                    doing: "run".to_owned(),
                    object: name.to_owned(),
                    why: "it did not end in the time given".to_owned(),
                });
            }
            [to_child, from_child, complaints].map(|slot| slot.is_some_and(|slot| sources.is_ready(slot)))
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
            drain(&mut stdout, &mut block, &mut said).map_err(|error| failed(&error))?;
        }
        if ready[2] {
            drain(&mut stderr, &mut block, &mut complained).map_err(|error| failed(&error))?;
        }
    }
    Ok((said, complained))
}

fn drain<R: Read>(pipe: &mut Option<R>, block: &mut [u8], into: &mut Vec<u8>) -> std::io::Result<()> {
    if let Some(reader) = pipe {
        let got = reader.read(block)?;
        into.extend_from_slice(&block[..got]);
        if got == 0 {
            *pipe = None;
        }
    }
    Ok(())
}
