//! `health exec`: is a command content?

use super::{Check, Monitoring, Usual, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::watch::Probed;
use crate::decide::monitor::{Evidence, Fault};
use crate::record::health::{EXEC_COLUMNS, EXEC_SCHEMA, Exec};
use crate::sys::clock;
use crate::sys::process::{Watched, watch_tree};
use crate::sys::worker::Stop;
use crate::types::time::{Tick, millis};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

/// As much of what it prints is kept.
const KEEP: usize = 1024;

pub(super) const VERB: Verb = Verb {
    name: "exec",
    about: "Tell whether a command is content: run without a shell, killed when late, and whatever it left behind with it",
    examples: "health exec -- pg_isready -q -h 192.0.2.10\n\
               health exec --nagios --response-timeout 10s --interval 1m --follow -- \
               /usr/lib/nagios/plugins/check_ntp_time -H 192.0.2.1",
    args: flags::<Flags>,
    schemas: &[EXEC_SCHEMA],
    columns: EXEC_COLUMNS,
    run: |matches, process| {
        let flags: Flags = args::read(matches)?;
        let outcome = run(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

#[derive(Args, Debug)]
struct Flags {
    /// CMD ends as a Nagios plugin does: 0 and 1 (warning) are up, 2 is down, 3 unknown [default: 0 is up]
    #[arg(long)]
    nagios: bool,

    #[command(flatten)]
    monitoring: Monitoring,

    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    command: Vec<OsString>,
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    let (words, nagios) = (flags.command.clone(), flags.nagios);
    let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let left: Mutex<Option<Child>> = Mutex::new(None);
    let argv0 = name.clone();
    let probe = move |deadline: Tick, stop: &Stop| {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = left.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if hangs {
            let sentence = format!("cannot run {argv0}: an earlier run of it hangs in the kernel and cannot be killed");
            return Probed::untold(Failure::new(Exit::Undecided, Reason::TimedOut, sentence));
        }
        let mut command = Command::new(words.first().map_or_else(OsString::new, Clone::clone));
        command.args(words.get(1..).unwrap_or_default());
        let started = clock::boot();
        match watch_tree(command, KEEP, deadline, stop.as_fd()) {
            Ok(watched) => {
                let body = Exec {
                    argv0: argv0.clone(),
                    exit_status: watched.status.and_then(|status| status.code()),
                    signal: watched.status.and_then(|status| status.signal()),
                    runtime_ms: millis(clock::boot().since(started)),
                    output: (!watched.stdout.is_empty())
                        .then(|| String::from_utf8_lossy(&watched.stdout).trim_end().to_owned()),
                };
                let evidence = judge(&watched, nagios);
                *left = watched.stuck;
                Probed::new(evidence, body)
            }
            Err(error) => Probed::untold(error),
        }
    };
    let check = Check {
        kind: "health.exec",
        subject: name.clone(),
        doing: format!("run {name}"),
        usual: Usual::Local,
        answers_in: None,
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

fn judge(watched: &Watched, nagios: bool) -> Evidence {
    match watched.status.map(|status| status.code()) {
        None => Evidence::Bad(Fault::Timeout),
        Some(Some(0)) => Evidence::Good,
        Some(Some(1)) if nagios => Evidence::Good,
        Some(Some(3)) if nagios => Evidence::Untold,
        Some(_) => Evidence::Bad(Fault::BadAnswer),
    }
}
