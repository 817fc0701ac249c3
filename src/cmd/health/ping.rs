//! `health ping`: does the host answer echoes?

use super::{Check, Monitoring, Usual, Way, evidence_of, failed, in_dialect, pct};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::watch::Probed;
use crate::decide::monitor::{Evidence, Fault};
use crate::record::health::{PING_COLUMNS, PING_SCHEMA, Ping};
use crate::sys::connect::{self, Via};
use crate::sys::event::Sources;
use crate::sys::ping::Pinger;
use crate::sys::worker::Stop;
use crate::sys::{clock, raw};
use crate::types::target::Target;
use crate::types::time::{Span, Tick, millis};
use crate::wire::icmp;
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

/// What a probe consists of.
#[derive(Clone, Copy, Debug)]
struct Train {
    count: u16,
    interval: Duration,
    max_loss: u8,
}

fn run(flags: &Flags, process: &mut Process) -> Result<Exit, Failure> {
    let target = flags.target.clone();
    if target.port().is_some() {
        return Err(Failure::usage(format!("'{target}' names a port: echoes have none (health tcp has)")));
    }
    let train = Train { count: flags.count, interval: flags.echo_interval.0, max_loss: flags.max_loss };
    let sending = train.interval.saturating_mul(u32::from(train.count) - 1);
    if sending >= flags.monitoring.response_timeout.0 {
        return Err(Failure::usage(format!(
            "{} echoes take {} to send: that does not fit --response-timeout {}",
            train.count,
            Span(sending),
            flags.monitoring.response_timeout
        )));
    }
    let via = flags.way.via(&target)?;
    let probe = move |deadline: Tick, _: &Stop| {
        let to = match connect::resolve(&target, 0, deadline) {
            Ok(addresses) => addresses.into_iter().next(),
            Err(error) => return Probed::untold(error),
        };
        match to {
            Some(to) => look(&target.to_string(), to, train, &via, deadline),
            None => Probed::untold(crate::sys::Error::call("look up", target.to_string(), Errno::EADDRNOTAVAIL)),
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

/// What became of the echoes so far.
#[derive(Debug, Default)]
struct Tally {
    sent: u32,
    /// By sequence: when each left, until it is answered.
    waiting: Vec<Option<Tick>>,
    rtts: Vec<Duration>,
    /// What this host or the network said instead.
    refusal: Option<Errno>,
    refused: usize,
}

impl Tally {
    fn body(&self) -> Ping {
        let received = u32::try_from(self.rtts.len()).unwrap_or(u32::MAX);
        let count = u32::max(received, 1);
        Ping {
            sent: self.sent,
            received,
            loss_pct: if self.sent == 0 { 100.0 } else { pct(u64::from(self.sent - received), u64::from(self.sent)) },
            rtt_min_ms: self.rtts.iter().min().map(|rtt| millis(*rtt)),
            rtt_avg_ms: (received > 0).then(|| millis(self.rtts.iter().sum::<Duration>() / count)),
            rtt_max_ms: self.rtts.iter().max().map(|rtt| millis(*rtt)),
        }
    }
}

fn look(name: &str, to: SocketAddr, train: Train, via: &Via, deadline: Tick) -> Probed<Ping> {
    let pinger = match Pinger::open(to, via) {
        Ok(pinger) => pinger,
        Err(error) => return Probed::untold(error),
    };
    let mut tally = Tally::default();
    if let Err(errno) = pinger.aim(to) {
        return failed(errno, "ping", name, via, tally.body());
    }
    let nonce: icmp::Nonce = match raw::random() {
        Ok(nonce) => nonce,
        Err(error) => return Probed::untold(error),
    };
    if let Err(error) = echo(&pinger, to, train, &nonce, deadline, &mut tally) {
        return Probed::untold(error);
    }
    let body = tally.body();
    if body.received > 0 {
        let well = body.loss_pct <= f64::from(train.max_loss);
        return Probed::new(if well { Evidence::Good } else { Evidence::Bad(Fault::Timeout) }, body);
    }
    match tally.refusal {
        // It never left: nothing is known of the other side.
        Some(errno) if tally.sent == 0 => failed(errno, "ping", name, via, body),
        // What the network said of it is a reason, whatever it is; silence has none.
        Some(errno) if evidence_of(errno) != Evidence::Untold => Probed::new(evidence_of(errno), body),
        _ => Probed::new(Evidence::Bad(Fault::Timeout), body),
    }
}

/// Sends the echoes and takes in what comes, until all are answered or the deadline passes.
fn echo(
    pinger: &Pinger,
    to: SocketAddr,
    train: Train,
    nonce: &icmp::Nonce,
    deadline: Tick,
    tally: &mut Tally,
) -> Result<(), crate::sys::Error> {
    let identifier = u16::from_be_bytes([nonce[0], nonce[1]]);
    let mut buffer = [0; 2048];
    let mut next_at = Some(clock::boot());
    loop {
        let now = clock::boot();
        if next_at.is_some_and(|at| at <= now) {
            let sequence = u16::try_from(tally.waiting.len()).unwrap_or(u16::MAX);
            match pinger.send(&icmp::echo(to.ip(), identifier, sequence, nonce)) {
                Ok(()) => {
                    tally.sent += 1;
                    tally.waiting.push(Some(now));
                }
                Err(errno) => {
                    tally.refusal = Some(errno);
                    tally.waiting.push(None);
                }
            }
            next_at = (tally.waiting.len() < usize::from(train.count)).then(|| now.after(train.interval));
        }
        loop {
            match pinger.receive(&mut buffer) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let packet = buffer.get(..length).unwrap_or_default();
                    let sequence = icmp::reply(packet, to.is_ipv6(), pinger.with_ip, nonce);
                    let slot = sequence.and_then(|sequence| tally.waiting.get_mut(usize::from(sequence)));
                    // A second answer to the same echo is none.
                    if let Some(left) = slot.and_then(Option::take) {
                        tally.rtts.push(clock::boot().since(left));
                    }
                }
                Err(errno) => {
                    tally.refusal = Some(errno);
                    tally.refused += 1;
                }
            }
        }
        let settled = tally.rtts.len() + tally.refused >= tally.sent as usize;
        if next_at.is_none() && settled {
            return Ok(());
        }
        let mut sources = Sources::default();
        sources.readable(pinger.as_fd());
        let wake = next_at.map_or(deadline, |at| at.min(deadline));
        if !sources.wait(Some(wake))? && clock::boot() >= deadline {
            return Ok(());
        }
    }
}
