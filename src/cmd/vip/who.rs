//! `vip who` and `vip dad`: ask the wire who has an address.

use super::Present;
use super::ask::{self, Answer};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::vip::{self, NoLink, Profile, Schedule};
use crate::record::Head;
use crate::record::vip::{ASKED_COLUMNS, Asked, DAD_SCHEMA, Holder, WHO_SCHEMA};
use crate::sys;
use crate::types::draw::Draw;
use crate::types::link::Link;
use crate::types::net::Prefix;
use crate::types::time::{Span, millis};
use clap::{ArgMatches, Args, ValueEnum};
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

pub(super) const WHO: Verb = Verb {
    name: "who",
    about: "Ask the wire who has an address, and list every MAC that claims it",
    examples: "vip who 192.0.2.10 --dev eth0        one holder, none, or two masters?\n\
               vip who 2001:db8::10 --for 3s --table",
    args: flags::<Who>,
    schemas: &[WHO_SCHEMA],
    columns: ASKED_COLUMNS,
    run: run_who,
};

pub(super) const DAD: Verb = Verb {
    name: "dad",
    about: "Look for duplicates of an address without claiming it",
    examples: "vip dad 192.0.2.10 --dev eth0 && echo free\n\
               vip dad 192.0.2.10 --dev eth0 --profile full    as long as RFC 5227 wants",
    args: flags::<Dad>,
    schemas: &[DAD_SCHEMA],
    columns: ASKED_COLUMNS,
    run: run_dad,
};

#[derive(Args, Debug)]
struct Who {
    /// Addresses to ask for ('-' reads them from standard input, one a line)
    #[arg(value_name = "ADDR", required = true)]
    addresses: Vec<String>,

    /// The interface [default: the one that carries it, or whose network fits]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// How long to listen for answers
    #[arg(long = "for", value_name = "D", default_value = "1s")]
    duration: Span,
}

#[derive(Args, Debug)]
struct Dad {
    /// Addresses to look for ('-' reads them from standard input, one a line)
    #[arg(value_name = "ADDR", required = true)]
    addresses: Vec<String>,

    /// The interface [default: the one whose network fits]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// How thoroughly
    #[arg(long, value_name = "HOW", default_value = "fast")]
    profile: How,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    /// A verdict after 0.45 s
    Fast,
    /// A verdict after 4 to 7 s, as RFC 5227 has it
    Full,
}

fn run_who(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Who = args::read(matches)?;
    let rest = flags.duration.0;
    let schedule = vip::evenly(3, rest / 4, rest / 2);
    let (answers, malformed) = answers(&flags.addresses, flags.dev.as_deref(), &schedule, false, process)?;
    let exit = report(answers, process, "vip.who", |local, answer| {
        let mut holders = answer.holders.clone();
        holders.extend(local.map(|mac| (mac, None)));
        let (word, exit) = match holders.len() {
            0 => ("none", Exit::No),
            1 => ("one", Exit::Yes),
            _ => ("many", Exit::No),
        };
        (holders, word, exit)
    })?;
    Ok(exit.and(malformed))
}

fn run_dad(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Dad = args::read(matches)?;
    let profile = match flags.profile {
        How::Fast => Profile::Fast,
        How::Full => Profile::Full,
    };
    let schedule = vip::schedule(profile, &mut Draw::new(sys::raw::random_u64()?));
    let (answers, malformed) = answers(&flags.addresses, flags.dev.as_deref(), &schedule, true, process)?;
    let exit = report(answers, process, "vip.dad", |local, answer| {
        // An address that this host has itself is not free either.
        let taken = answer.is_taken() || local.is_some();
        let (word, exit) = if taken { ("taken", Exit::No) } else { ("free", Exit::Yes) };
        let wanting = answer.wanting.iter().map(|mac| (*mac, None));
        (answer.holders.iter().copied().chain(wanting).chain(local.map(|mac| (mac, None))).collect(), word, exit)
    })?;
    Ok(exit.and(malformed))
}

impl Answer {
    /// Another host has it, or is taking it at this moment (RFC 5227 §2.1.1).
    pub(super) fn is_taken(&self) -> bool {
        !self.holders.is_empty() || !self.wanting.is_empty()
    }
}

/// One address with what was heard of it.
struct Heard {
    addr: IpAddr,
    link: Link,
    /// Our own MAC, where this host has the address itself.
    local: Option<crate::types::net::Mac>,
    outcome: Result<Answer, Failure>,
}

fn answers(
    words: &[String],
    dev: Option<&str>,
    schedule: &Schedule,
    first_claim: bool,
    process: &Process,
) -> Result<(Vec<Heard>, Exit), Failure> {
    let (asked, malformed) = super::operands(words, &process.who)?;
    let prefixes: Vec<Prefix> = asked.into_iter().map(|asked| asked.prefix).collect();
    super::only_hosts(&prefixes)?;
    let deadline = process.deadline(schedule.end).tick();
    let present = Present::look()?;
    let mut by_link: Vec<(Link, Vec<IpAddr>)> = Vec::new();
    for prefix in &prefixes {
        let link = find(&present, *prefix, dev, "ask for")?;
        match by_link.iter_mut().find(|(known, _)| known.index == link.index) {
            Some((_, addresses)) => addresses.push(prefix.addr),
            None => by_link.push((link.clone(), vec![prefix.addr])),
        }
    }
    let mut heard = Vec::new();
    for (link, addresses) in by_link {
        let mut outcome = match ask::cannot_tell(&link, addresses[0]) {
            Some(failure) => Err(failure),
            None => match ask::ask(&link, &addresses, schedule, first_claim, deadline) {
                Err(failure) if failure.exit != Exit::Undecided => return Err(failure),
                outcome => outcome,
            },
        };
        for addr in addresses {
            let own = present
                .addresses
                .iter()
                .any(|address| address.prefix.addr == addr && address.ifindex == link.index && address.is_usable());
            let local = link.mac.filter(|_| own);
            let outcome = match &mut outcome {
                Ok(answers) => Ok(answers.remove(&addr).unwrap_or_default()),
                Err(failure) => Err(failure.clone()),
            };
            heard.push(Heard { addr, link: link.clone(), local, outcome });
        }
    }
    Ok((heard, malformed))
}

/// The interface to ask on: named, or carrying the address, or with a network that it fits.
pub(super) fn find<'a>(
    present: &'a Present,
    prefix: Prefix,
    dev: Option<&str>,
    doing: &str,
) -> Result<&'a Link, Failure> {
    if let Some(dev) = dev {
        return present.named(dev, &format!("{doing} {} on", prefix.addr));
    }
    let carries = |link: &&Link| {
        present.addresses.iter().any(|address| address.ifindex == link.index && address.prefix.addr == prefix.addr)
    };
    let carrying: Vec<&Link> = present.links.iter().filter(carries).collect();
    match carrying.as_slice() {
        [link] => Ok(link),
        [] => vip::link_for(&present.links, &present.addresses, prefix)
            .map_err(|why| super::no_link(why, doing, prefix, "no interface has a network that it fits")),
        several => {
            let names = several.iter().map(|link| link.name.clone()).collect();
            Err(super::no_link(NoLink::Several(names), doing, prefix, ""))
        }
    }
}

type Judged = (Vec<(crate::types::net::Mac, Option<Duration>)>, &'static str, Exit);

fn report(
    heard: Vec<Heard>,
    process: &mut Process,
    kind: &'static str,
    judge: impl Fn(Option<crate::types::net::Mac>, &Answer) -> Judged,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Yes;
    let mut told: HashSet<String> = HashSet::new();
    for Heard { addr, link, local, outcome } in heard {
        let mut head = Head::new(kind).about(addr);
        let (holders, answer) = match &outcome {
            Ok(answer) => {
                let (holders, word, status) = judge(local, answer);
                exit = exit.and(status);
                (holders, word)
            }
            Err(failure) => {
                if told.insert(failure.sentence.clone()) {
                    process.complain(&failure.sentence);
                }
                head.error = Some(failure.body());
                exit = exit.and(failure.exit);
                (Vec::new(), "unknown")
            }
        };
        let holders =
            holders.into_iter().map(|(mac, rtt)| Holder { mac: mac.to_string(), rtt_ms: rtt.map(millis) }).collect();
        process.out.record(&head, &Asked { dev: link.name.clone(), holders, answer })?;
    }
    Ok(exit)
}
