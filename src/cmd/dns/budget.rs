//! `dns budget`: how long a fail-over takes on paper.

use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::budget::{self, Keeps, Parts};
use crate::decide::monitor::{Fall, Settings};
use crate::record::Head;
use crate::record::dns::{BUDGET_COLUMNS, BUDGET_SCHEMA, Budget, Phase};
use crate::types::domain::Domain;
use crate::types::time::Span;
use clap::{ArgMatches, Args};
use std::str::FromStr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "budget",
    about: "Add up how long a fail-over by DNS takes: detection, servers, resolvers, system, program",
    examples: "dns budget www.example.org --ttl 5 --table\n\
               dns budget www.example.org --ttl 5 --floor 60 --runtime java --clients 20000\n\
               dns budget www.example.org --empty --negative-ttl 3600 --refused",
    args: flags::<Flags>,
    schemas: &[BUDGET_SCHEMA],
    columns: BUDGET_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The name
    #[arg(value_name = "NAME")]
    name: Domain,

    /// From the start of a probe to the start of the next
    #[arg(long, value_name = "D", default_value = "5s")]
    interval: Span,

    /// How long a probe waits for its answer
    #[arg(long, value_name = "D", default_value = "2s")]
    response_timeout: Span,

    /// Failed probes in a row that make down
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    retries: u32,

    /// Good probes in a row that make up
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    success_retries: u32,

    /// No probe for so long after going down
    #[arg(long, value_name = "D", default_value = "30s")]
    down_time: Span,

    /// The site refuses connections when it fails, which counts at once
    #[arg(long)]
    refused: bool,

    /// From the decision until every authoritative server has it
    #[arg(long, value_name = "D", default_value = "0s")]
    propagation: Span,

    /// The TTL of the addresses, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = super::seconds)]
    ttl: u32,

    /// Resolvers keep an answer at least so long, in seconds (cache-min-ttl of Unbound, min-cache-ttl of BIND)
    #[arg(long, value_name = "S", default_value = "0", value_parser = super::seconds)]
    floor: u32,

    /// Resolvers serve stale answers, to be kept for so many seconds (RFC 8767: 30)
    #[arg(long, value_name = "S", default_value = "0", value_parser = super::seconds)]
    stale: u32,

    /// How long an answer without an address may be kept: the lower of the SOA's TTL and MINIMUM, in seconds
    #[arg(long, value_name = "S", default_value = "3600", value_parser = super::seconds)]
    negative_ttl: u32,

    /// When all sites are down the answer has no address (dns answer --all-down empty)
    #[arg(long)]
    empty: bool,

    /// What the system keeps by a clock of its own: none (glibc, systemd-resolved), or a duration
    #[arg(long, value_name = "WHAT", default_value = "none")]
    os: Kept,

    /// What the program keeps: none, java (30s), java-forever (with a security manager), browser, curl (60s),
    /// nginx (until it is loaded anew), or a duration
    #[arg(long, value_name = "WHAT", default_value = "none")]
    runtime: Kept,

    /// How long an open connection takes to notice that nobody answers
    #[arg(long, value_name = "D")]
    connection: Option<Span>,

    /// Resolvers that have clients all the time, for the questions that the authority gets
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
}

/// What a cache keeps, by the name of who has it.
#[derive(Clone, Copy, Debug)]
struct Kept(Keeps);

impl FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = |seconds| Keeps::For(Duration::from_secs(seconds));
        Ok(Kept(match text {
            "none" => Keeps::Nothing,
            "java" => seconds(30),
            "browser" | "curl" => seconds(60),
            "java-forever" | "nginx" => Keeps::Forever,
            other => {
                let span: Span = other.parse().map_err(|_| {
                    format!("'{other}' is not none, java, java-forever, browser, curl, nginx or a duration (30s)")
                })?;
                if span.0.is_zero() { Keeps::Nothing } else { Keeps::For(span.0) }
            }
        }))
    }
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    for (flag, span) in [("--interval", flags.interval), ("--response-timeout", flags.response_timeout)] {
        if span.0.is_zero() {
            return Err(Failure::usage(format!("{flag} must be above 0s")));
        }
    }
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let (interval, response_timeout) = (flags.interval.0, flags.response_timeout.0);
    let parts = Parts {
        monitor: Settings {
            interval,
            fast_interval: None,
            response_timeout,
            fall: Fall::InARow(flags.retries),
            success_retries: flags.success_retries,
            down_time: flags.down_time.0,
            valid_for: Settings::usual_validity(interval, response_timeout),
        },
        refuses: flags.refused,
        propagation: flags.propagation.0,
        ttl: seconds(flags.ttl),
        floor: seconds(flags.floor),
        stale: seconds(flags.stale),
        negative: seconds(flags.negative_ttl),
        empty: flags.empty,
        system: flags.os.0,
        runtime: flags.runtime.0,
        connection: flags.connection.map(|span| span.0),
    };
    let sum = budget::budget(&parts);
    let phases = sum.phases.iter().map(|phase| Phase::new(phase.name, phase.min, phase.max, &phase.from));
    let kept = seconds(flags.ttl.max(flags.floor));
    let record = Budget::new(
        phases.collect(),
        (sum.min, sum.max),
        flags.negative_ttl,
        flags.clients.and_then(|clients| budget::questions_per_s(clients, kept)),
    );
    process.out.record(&Head::new("dns.budget").about(flags.name.as_str()), &record)?;
    Ok(Exit::Yes)
}
