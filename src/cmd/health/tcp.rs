//! `health tcp`: does something accept connections there?

use super::{Check, Monitoring, Usual, Way, evidence_of, failed, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::watch::Probed;
use crate::decide::monitor::Evidence;
use crate::record::health::{TCP_COLUMNS, TCP_SCHEMA, Tcp};
use crate::sys::clock;
use crate::sys::connect::{self, Via};
use crate::sys::worker::Stop;
use crate::types::target::Target;
use crate::types::time::{Tick, millis};
use clap::Args;
use nix::errno::Errno;
use std::sync::Arc;

pub(super) const VERB: Verb = Verb {
    name: "tcp",
    about: "Tell whether something accepts connections; a refusal is down at once, silence after --retries",
    examples: "health tcp 192.0.2.10:80                      the verdict: at once, or after 12 s of silence\n\
               health tcp 192.0.2.10:80 --retries 1          one look, as cron and a monitor action want it\n\
               health tcp db.example.org:5432 --follow | health score --follow\n\
               health tcp [fe80::1]:22%eth0 --exit ocf",
    args: flags::<Flags>,
    schemas: &[TCP_SCHEMA],
    columns: TCP_COLUMNS,
    run: |matches, process| {
        let flags: Flags = args::read(matches)?;
        let outcome = run(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

#[derive(Args, Debug)]
struct Flags {
    /// Address or name, and port; of a name with several addresses one that accepts is enough
    #[arg(value_name = "HOST:PORT")]
    target: Target,

    #[command(flatten)]
    way: Way,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    let target = flags.target.clone();
    let Some(port) = target.port() else {
        return Err(Failure::usage(format!("'{target}' names no port (192.0.2.10:80)")));
    };
    let via = flags.way.via(&target)?;
    let probe = move |deadline: Tick, _: &Stop| look(&target, port, &via, deadline);
    let check = Check {
        kind: "health.tcp",
        subject: flags.target.to_string(),
        doing: format!("connect to {}", flags.target),
        usual: Usual::Network,
        answers_in: None,
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

fn look(target: &Target, port: u16, via: &Via, deadline: Tick) -> Probed<Tcp> {
    let addresses = match connect::resolve(target, port, deadline) {
        Ok(addresses) => addresses,
        Err(error) => return Probed::untold(error),
    };
    let started = clock::boot();
    match connect::first(&addresses, via, deadline) {
        Ok((_, address)) => {
            let connect_ms = Some(millis(clock::boot().since(started)));
            Probed::new(Evidence::Good, Tcp { address: Some(address.ip().to_string()), port, connect_ms })
        }
        Err(refusals) => {
            // As long as one was silent the others' refusals settle nothing; one that could be asked
            // counts for more than one that could not.
            let weight = |errno: Errno| match evidence_of(errno) {
                Evidence::Untold => 0,
                _ if errno == Errno::ECONNREFUSED || errno == Errno::ECONNRESET => 1,
                _ => 2,
            };
            let worst = refusals.iter().copied().max_by_key(|(_, errno)| weight(*errno));
            let (address, errno) = worst.map_or((None, Errno::EHOSTUNREACH), |(at, errno)| (Some(at.ip()), errno));
            let body = Tcp { address: address.map(|address| address.to_string()), port, connect_ms: None };
            failed(errno, "connect to", &target.to_string(), via, body)
        }
    }
}
