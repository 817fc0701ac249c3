//! `health`: is it well here, and what does that leave of this node's priority?

mod damp;
pub(in crate::cmd) mod dns;
mod exec;
mod http;
mod local;
mod ping;
mod process;
mod score;
mod tcp;

use super::watch::{News, Probe, Probed, Standing, Watch};
use crate::cli::exit::Dialect;
use crate::cli::{Exit, Failure, Process, Tool, Verbs};
use crate::decide::monitor::{Evidence, Fall, Fault, Settings};
use crate::decide::score::Word;
use crate::record::Head;
use crate::record::health::{Range, Round, Verdict, failure, tick};
use crate::sys::Error;
use crate::sys::clock;
use crate::sys::connect::Via;
use crate::types::net::Endpoint;
use crate::types::status::Status;
use crate::types::target::Target;
use crate::types::time::{Span, Tick, WallTime, millis};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

/// The command.
pub const TOOL: Tool = Tool {
    name: "health",
    about: "Find out whether it is well here, damp what flaps, and turn it into a priority",
    verbs: Verbs::Many(&[
        local::LINK,
        local::LOAD,
        local::DISK,
        local::MEMORY,
        tcp::VERB,
        http::VERB,
        ping::VERB,
        dns::VERB,
        process::VERB,
        exec::VERB,
        damp::VERB,
        score::VERB,
    ]),
};

/// Most services that damp and score keep apart: more is a mistake upstream.
const MOST_SUBJECTS: usize = 10_000;

/// A record that names it, more than once, must fit the line that its readers take.
const LONGEST_SUBJECT: usize = 4096;

/// How a check is repeated and judged. Flags of all checks.
#[derive(Args, Debug)]
struct Monitoring {
    /// Go on probing, with a record each round, until the end
    #[arg(long, display_order = 100)]
    follow: bool,

    /// From the start of a probe to the start of the next; one that takes longer delays it
    #[arg(long, value_name = "D", default_value = "5s", display_order = 101)]
    interval: Span,

    /// How long a probe waits for its answer
    #[arg(long, value_name = "D", default_value = "2s", display_order = 102)]
    response_timeout: Span,

    /// Failed probes in a row that make down [default: 3 over the network, 1 for what this host knows]
    #[arg(long, value_name = "N", display_order = 103, value_parser = clap::value_parser!(u32).range(1..=1000))]
    retries: Option<u32>,

    /// Instead, K failed probes of the last N make down
    #[arg(long, value_name = "K/N", display_order = 104, conflicts_with = "retries", value_parser = k_of_n)]
    k_of_n: Option<Fall>,

    /// Good probes in a row that make up
    #[arg(long, value_name = "N", display_order = 105, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    success_retries: u32,

    /// The interval while the last probe speaks against the verdict [default: --interval]
    #[arg(long, value_name = "D", display_order = 106)]
    fast_interval: Option<Span>,

    /// No probe for so long after going down, then the interval again
    #[arg(long, value_name = "D", default_value = "30s", display_order = 107)]
    down_time: Span,

    /// How long a record holds [default: two intervals and a response time-out, so that a frozen checker is noticed]
    #[arg(long, value_name = "D", display_order = 108)]
    valid_for: Option<Span>,

    /// Call it NAME in records: what health score counts it by [default: as it is given]
    #[arg(long, value_name = "NAME", display_order = 109)]
    name: Option<String>,

    /// End with the statuses of another program's dialect; the record stays the same
    #[arg(long, value_name = "DIALECT", display_order = 110)]
    exit: Option<Dialect>,

    /// End after D with the status of the last verdict
    #[arg(long = "for", value_name = "D", display_order = 111, requires = "follow")]
    duration: Option<Span>,
}

fn k_of_n(text: &str) -> Result<Fall, String> {
    let wrong = || format!("'{text}' is not K/N, with K from 1 to N and N to 1000 (3/5)");
    let (failed, window) = text.split_once('/').ok_or_else(wrong)?;
    let (failed, window): (u32, u32) = (failed.parse().map_err(|_| wrong())?, window.parse().map_err(|_| wrong())?);
    if (1..=window).contains(&failed) && window <= 1000 { Ok(Fall::Of { failed, window }) } else { Err(wrong()) }
}

/// How many failures make down where nobody says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usual {
    /// A datagram gets lost now and then.
    Network,
    /// The kernel's word is not lost on the way.
    Local,
}

impl Monitoring {
    fn settings(&self, usual: Usual) -> Result<Settings, Failure> {
        for (flag, span) in [("--interval", Some(self.interval)), ("--response-timeout", Some(self.response_timeout))]
            .into_iter()
            .chain([("--fast-interval", self.fast_interval), ("--valid-for", self.valid_for)])
        {
            if span.is_some_and(|span| span.0.is_zero()) {
                return Err(Failure::usage(format!("{flag} must be above 0s")));
            }
        }
        if let Some(fast) = self.fast_interval
            && fast > self.interval
        {
            return Err(Failure::usage(format!(
                "--fast-interval {fast} is longer than --interval {}: it is there to be sure sooner",
                self.interval
            )));
        }
        let retries = self.retries.unwrap_or(if usual == Usual::Network { 3 } else { 1 });
        let (interval, response_timeout) = (self.interval.0, self.response_timeout.0);
        Ok(Settings {
            interval,
            fast_interval: self.fast_interval.map(|fast| fast.0),
            response_timeout,
            fall: self.k_of_n.unwrap_or(Fall::InARow(retries)),
            success_retries: self.success_retries,
            down_time: self.down_time.0,
            valid_for: self
                .valid_for
                .map_or_else(|| Settings::usual_validity(interval, response_timeout), |span| span.0),
        })
    }
}

/// The way that a probe leaves by.
#[derive(Args, Debug)]
struct Way {
    /// Leave by this interface
    #[arg(long, value_name = "DEV", display_order = 50)]
    dev: Option<String>,

    /// Leave with this address
    #[arg(long, value_name = "ADDR", display_order = 51)]
    source: Option<IpAddr>,
}

impl Way {
    /// The way to `target`.
    ///
    /// # Errors
    /// A link-local address without a link: the kernel says no more of it than "Invalid argument".
    fn via(&self, target: &Target) -> Result<Via, Failure> {
        let dev = self.dev.clone().or_else(|| target.dev().map(str::to_owned));
        if let Target::Address(Endpoint { addr: IpAddr::V6(addr), .. }) = target
            && addr.is_unicast_link_local()
            && dev.is_none()
        {
            return Err(Failure::usage(format!(
                "'{target}' is a link-local address, and each link may have it: name the interface (%eth0 behind it, \
                 or --dev eth0)"
            )));
        }
        Ok(Via { source: self.source, dev, mark: None })
    }
}

/// One check, ready to run.
struct Check<B> {
    kind: &'static str,
    /// The operand as it was given.
    subject: String,
    /// `probe 192.0.2.1:80`
    doing: String,
    usual: Usual,
    /// How long a probe takes that fails; the response time-out where that may be silent.
    answers_in: Option<Duration>,
    news: Option<News>,
    probe: Probe<B>,
}

impl<B: Clone + Serialize + Send + 'static> Check<B> {
    fn run(self, flags: &Monitoring, process: &mut Process) -> Result<Exit, Failure> {
        let settings = flags.settings(self.usual)?;
        if [Some(&self.subject), flags.name.as_ref()].into_iter().flatten().any(|name| name.len() > LONGEST_SUBJECT) {
            return Err(Failure::usage(format!("what is checked has a name of more than {LONGEST_SUBJECT} bytes")));
        }
        let (answer, told_at_once) = match self.answers_in {
            Some(answer) => (answer, self.news.is_some() && flags.follow),
            None => (settings.response_timeout, false),
        };
        let (least, most) = settings.detection(answer);
        let detect_ms = Range::new((least, if told_at_once { least } else { most }));
        let valid_for = millis(settings.valid_for);
        let subject = flags.name.clone().unwrap_or(self.subject);
        let boot_id = (!flags.follow).then(clock::boot_id).filter(|id| !id.is_empty());
        let kind = self.kind;
        let watch = Watch {
            settings,
            probe: self.probe,
            news: self.news.filter(|_| flags.follow),
            follow: flags.follow,
            end: process.stream_end(flags.duration).filter(|_| flags.follow),
            who: process.who.clone(),
            doing: self.doing,
        };
        watch.run(process, |standing: &Standing, probed: &Probed<B>| {
            let mut head = Head::new(kind).about(&subject);
            head.status = Some(standing.status);
            head.renewal = standing.renewal;
            head.valid_for_ms = Some(valid_for);
            head.received_ms = Some(standing.now.as_ms());
            // It may be written to a file, which outlives the boot.
            head.boot_id.clone_from(&boot_id);
            head.error = probed.error.as_ref().map(Failure::body);
            let body = Round {
                detect_ms,
                failure: failure(probed.evidence.fault()),
                attempts: standing.attempts,
                since: standing.since,
                body: probed.body.clone(),
            };
            (head, body)
        })
    }
}

/// Gives the statuses of a run, a failed one too, in the dialect that was asked for.
fn in_dialect(
    dialect: Option<Dialect>,
    process: &mut Process,
    outcome: Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let Some(dialect) = dialect else { return outcome };
    // What cannot be written is a failure of the run too, and known only then.
    let written = process.out.finish(true);
    Ok(match outcome.and_then(|exit| written.map(|()| exit)) {
        Ok(exit) => dialect.of(exit),
        Err(failure) => {
            if !failure.sentence.is_empty() {
                process.complain(&failure.sentence);
            }
            dialect.of(failure.exit)
        }
    })
}

/// What an errno of the network says about the other side.
pub(in crate::cmd) fn evidence_of(errno: Errno) -> Evidence {
    match errno {
        Errno::ETIMEDOUT => Evidence::Bad(Fault::Timeout),
        Errno::ECONNREFUSED => Evidence::Bad(Fault::Refused),
        Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED => Evidence::Bad(Fault::Reset),
        Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EHOSTDOWN | Errno::ENETDOWN | Errno::ENONET => {
            Evidence::Bad(Fault::Unreachable)
        }
        Errno::EMSGSIZE | Errno::EPROTO => Evidence::Bad(Fault::BadAnswer),
        _ => Evidence::Untold,
    }
}

/// A probe that failed so: a verdict on the other side, or a failure of our own.
fn failed<B>(errno: Errno, doing: &str, object: &str, via: &Via, body: B) -> Probed<B> {
    match (evidence_of(errno), &via.dev) {
        (Evidence::Untold, Some(dev)) if errno == Errno::ENODEV => {
            Probed::untold(Error::no_interface(format!("{doing} {object} by"), dev))
        }
        (Evidence::Untold, _) => Probed::untold(Error::call(doing, object, errno)),
        (evidence, _) => Probed::new(evidence, body),
    }
}

/// What a verdict is worth at `now`, when it arrived, and when it is too old to be one.
///
/// One of another boot, or of a clock that is ahead, is no verdict of today. Its own time counts only
/// where it has no arrival and `skew` says how far ahead that may be: in a run that reads files.
pub(in crate::cmd) fn standing(
    said: &Verdict,
    boot_id: &str,
    skew: Option<Duration>,
    now: Tick,
) -> Result<Word, String> {
    // Older than anything that was said today.
    const NO_VERDICT: Word = Word { status: Status::Unknown, arrived: Tick(Duration::ZERO), expires: None };
    if said.boot_id.as_ref().is_some_and(|other| other != boot_id) {
        return Ok(NO_VERDICT);
    }
    let arrived = match (said.received_ms, &said.time, skew) {
        (Some(ms), _, _) => tick("received_ms", ms)?,
        (None, Some(time), Some(skew)) => {
            let time: WallTime = time.parse()?;
            let age_us = clock::wall().unix_us.saturating_sub(time.unix_us);
            if age_us < -i64::try_from(skew.as_micros()).unwrap_or(i64::MAX) {
                return Ok(NO_VERDICT);
            }
            Tick(now.0.saturating_sub(Duration::from_micros(u64::try_from(age_us).unwrap_or(0))))
        }
        _ => now,
    };
    // Decimals are cut on the way; more ahead than that it is another boot's.
    if arrived > now.after(Duration::from_millis(1)) {
        return Ok(NO_VERDICT);
    }
    let valid_for = said.valid_for_ms.map(|ms| tick("valid_for_ms", ms)).transpose()?;
    Ok(Word { status: said.status, arrived, expires: valid_for.map(|valid_for| arrived.after(valid_for.0)) })
}
