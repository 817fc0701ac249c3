//! `health process`: does a program run?

use super::{Check, Monitoring, Usual, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::watch::Probed;
use crate::decide::monitor::{Evidence, Fault};
use crate::record::health::{PROCESS_COLUMNS, PROCESS_SCHEMA, Process as Body};
use crate::sys::worker::Stop;
use crate::sys::{self, local};
use crate::types::time::Tick;
use crate::wire::proc;
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "process",
    about: "Tell whether a program runs; a number in a pid file counts only while it is that program's",
    examples: "health process nginx\n\
               health process --pidfile /run/nginx.pid              it must be called nginx, as its file is\n\
               health process mysqld --pidfile /run/mysqld/db.pid --follow",
    args: flags::<Flags>,
    schemas: &[PROCESS_SCHEMA],
    columns: PROCESS_COLUMNS,
    run: |matches, process| {
        let flags: Flags = args::read(matches)?;
        let outcome = run(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

#[derive(Args, Debug)]
struct Flags {
    /// The program, by the last part of its path [default: the pid file's name without its ending]
    #[arg(value_name = "NAME", required_unless_present = "pidfile")]
    program: Option<String>,

    /// The file that its number stands in
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    let stem = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let program = flags.program.clone().or_else(|| flags.pidfile.as_ref().and_then(stem)).unwrap_or_default();
    if program.is_empty() || program.contains('/') {
        return Err(Failure::usage(format!("'{program}' is not the name of a program (the last part of its path)")));
    }
    let subject = match (&flags.program, &flags.pidfile) {
        (None, Some(pidfile)) => pidfile.display().to_string(),
        _ => program.clone(),
    };
    let doing = format!("look for {program}");
    let pidfile = flags.pidfile.clone();
    let probe = move |_: Tick, _: &Stop| {
        let found = match &pidfile {
            Some(pidfile) => by_file(pidfile, &program),
            None => by_name(&program),
        };
        match found {
            Ok((evidence, pid, count)) => Probed::new(evidence, Body { pid, count }),
            Err(failure) => Probed::untold(failure),
        }
    };
    let check = Check {
        kind: "health.process",
        subject,
        doing,
        usual: Usual::Local,
        answers_in: Some(Duration::ZERO),
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

/// Whether it runs and is `program`; what has ended and waits to be buried does not run.
fn runs(found: &local::Process, program: &str) -> bool {
    let exe = found.exe.as_deref().map(OsStrExt::as_bytes);
    proc::stat(&found.stat)
        .is_some_and(|(name, state)| !matches!(state, 'Z' | 'X') && proc::is_called(program, name, &found.cmdline, exe))
}

type Found = (Evidence, Option<u32>, usize);

fn by_name(program: &str) -> Result<Found, Failure> {
    let found = local::processes()?;
    // This very process has the name in its arguments only, but may be called so.
    let mut pids = found.iter().filter(|found| found.pid != std::process::id() && runs(found, program));
    let first = pids.next().map(|found| found.pid);
    let count = usize::from(first.is_some()) + pids.count();
    // What does not show may be hidden.
    if first.is_none() {
        local::all_visible()?;
    }
    Ok((if first.is_some() { Evidence::Good } else { Evidence::Bad(Fault::Refused) }, first, count))
}

fn by_file(path: &Path, program: &str) -> Result<Found, Failure> {
    // A daemon that has ended took its file along.
    let Some(bytes) = sys::state::read(path)? else { return Ok((Evidence::Bad(Fault::Refused), None, 0)) };
    let text = String::from_utf8_lossy(&bytes);
    let number = text.split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
    let pid = number.ok_or_else(|| {
        Failure::from(sys::Error::File {
            doing: "read".to_owned(),
            path: path.display().to_string(),
            why: "it does not begin with a number".to_owned(),
            mend: "is it a pid file?".to_owned(),
        })
    })?;
    Ok(match local::process(pid)? {
        Some(found) if runs(&found, program) => (Evidence::Good, Some(pid), 1),
        // The number is another program's by now.
        Some(found) if proc::stat(&found.stat).is_some_and(|(_, state)| state != 'Z') => {
            (Evidence::Bad(Fault::BadAnswer), Some(pid), 0)
        }
        _ => (Evidence::Bad(Fault::Refused), Some(pid), 0),
    })
}
