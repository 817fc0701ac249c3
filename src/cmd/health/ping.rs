//! `health ping`: does the host answer echoes?

use super::{Check, Monitoring, Usual, Way, evidence_of, failed, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::echo::{Asked, Pace, Train};
use crate::cmd::watch::Probed;
use crate::decide::monitor::{Evidence, Fault};
use crate::decide::tally::Tally;
use crate::record::health::{PING_COLUMNS, PING_SCHEMA, Ping};
use crate::sys::connect::{self, Via};
use crate::sys::event::Sources;
use crate::sys::worker::Stop;
use crate::sys::{Error, clock};
use crate::types::target::Target;
use crate::types::time::{Span, Tick, millis};
use clap::Args;
use nix::errno::Errno;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "ping",
    about: "Tell whether a host answers echoes; without privilege where net.ipv4.ping_group_range allows it",
    examples: "health ping 192.0.2.1\n\
               health ping 192.0.2.1 --count 5 --echo-interval 100ms --max-loss 20\n\
               health ping fe80::1%eth0 --retries 1 --exit nagios",
    args: flags::<Flags>,
    schemas: &[PING_SCHEMA],
    columns: PING_COLUMNS,
    run: |matches, process| {
        let flags: Flags = args::read(matches)?;
        let outcome = run(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

#[derive(Args, Debug)]
struct Flags {
    /// Address or name; of a name the first address
    #[arg(value_name = "HOST")]
    target: Target,

    /// Echoes in a probe; all within its response time-out
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// From echo to echo
    #[arg(long, value_name = "D", default_value = "200ms")]
    echo_interval: Span,

    /// The highest loss of a good probe, in per cent
    #[arg(long, value_name = "PCT", default_value = "50", value_parser = clap::value_parser!(u8).range(0..=99))]
    max_loss: u8,

    #[command(flatten)]
    way: Way,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    let target = flags.target.clone();
    if target.port().is_some() {
        return Err(Failure::usage(format!("'{target}' names a port: echoes have none (health tcp has)")));
    }
    let (interval, patience) = (flags.echo_interval.0, flags.monitoring.response_timeout.0);
    let sending = interval.saturating_mul(u32::from(flags.count) - 1);
    if sending >= patience {
        return Err(Failure::usage(format!(
            "{} echoes take {} to send: that does not fit --response-timeout {}",
            flags.count,
            Span(sending),
            flags.monitoring.response_timeout
        )));
    }
    let pace = Pace { count: flags.count, interval, spacing: Duration::ZERO, patience };
    let max_loss = flags.max_loss;
    let via = flags.way.via(&target)?;
    let probe = move |deadline: Tick, _: &Stop| {
        let to = match connect::resolve(&target, 0, deadline) {
            Ok(addresses) => addresses.into_iter().next(),
            Err(error) => return Probed::untold(error),
        };
        match to {
            Some(to) => look(&target.to_string(), to, pace, max_loss, &via, deadline),
            None => Probed::untold(Error::call("look up", target.to_string(), Errno::EADDRNOTAVAIL)),
        }
    };
    let check = Check {
        kind: "health.ping",
        subject: flags.target.to_string(),
        doing: format!("ping {}", flags.target),
        usual: Usual::Network,
        answers_in: None,
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

fn body(tally: &Tally) -> Ping {
    let rtt = tally.rtt();
    Ping {
        sent: tally.sent,
        received: tally.received(),
        loss_pct: tally.loss_pct().unwrap_or(100.0),
        rtt_min_ms: rtt.map(|rtt| millis(rtt.min)),
        rtt_avg_ms: rtt.map(|rtt| millis(rtt.avg)),
        rtt_max_ms: rtt.map(|rtt| millis(rtt.max)),
    }
}

fn look(name: &str, to: SocketAddr, pace: Pace, max_loss: u8, via: &Via, deadline: Tick) -> Probed<Ping> {
    let asked = match echo(name, to, pace, via, deadline) {
        Ok(asked) => asked,
        Err(error) => return Probed::untold(error),
    };
    let body = body(&asked.tally);
    if body.received > 0 {
        let well = body.loss_pct <= f64::from(max_loss);
        return Probed::new(if well { Evidence::Good } else { Evidence::Bad(Fault::Timeout) }, body);
    }
    match (asked.unsent, asked.refusal) {
        // It never left: nothing is known of the other side.
        (Some(errno), _) if body.sent == 0 => failed(errno, "ping", name, via, body),
        // What the network said of it is a reason, whatever it is; silence has none.
        (_, Some((errno, _))) if evidence_of(errno) != Evidence::Untold => Probed::new(evidence_of(errno), body),
        _ => Probed::new(Evidence::Bad(Fault::Timeout), body),
    }
}

/// Sends the echoes and takes in what comes, until all are answered or the deadline passes.
fn echo(name: &str, to: SocketAddr, pace: Pace, via: &Via, deadline: Tick) -> Result<Asked, Error> {
    let mut train = Train::new(vec![to], pace, via, name)?;
    let mut is_ready = false;
    loop {
        train.turn(is_ready);
        let now = clock::boot();
        let Some(due) = train.due().filter(|_| now < deadline && !train.is_over(now)) else { break };
        let mut sources = Sources::default();
        let slot = train.ear().map(|ear| sources.readable(ear));
        is_ready = sources.wait(Some(due.min(deadline)))? && slot.is_some_and(|slot| sources.is_ready(slot));
    }
    // The deadline is that of all of them.
    Ok(train.end(Tick(Duration::MAX)).pop().unwrap_or_default())
}
