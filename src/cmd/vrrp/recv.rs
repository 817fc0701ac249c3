//! `vrrp recv`: who is master here, and what is wrong with what they say?

use super::check::{self, Families};
use super::port::Port;
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::keys;
use crate::record::Head;
use crate::record::vrrp::{RECV_COLUMNS, RECV_SCHEMA, Received};
use crate::sys::clock;
use crate::sys::netlink::Netlink;
use crate::sys::privilege::{self, Capability};
use crate::types::time::{Span, Tick, millis};
use crate::wire::vrrp::{Auth, Heard};
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) const VERB: Verb = Verb {
    name: "recv",
    about: "Hear adverts: masters, priorities, intervals, and every fault of theirs",
    examples: "vrrp recv --dev eth0 --table          who is master here?\n\
               vrrp recv --dev eth0 --vrid 51 && echo exactly one\n\
               vrrp recv --dev eth0 --check          does this host's firewall let VRRP out and in?\n\
               vrrp recv --dev eth0 --follow | jq -c 'select(.faults != [])'",
    args: flags::<Flags>,
    schemas: &[RECV_SCHEMA],
    columns: RECV_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The interface
    #[arg(long, value_name = "DEV")]
    dev: String,

    /// This virtual router alone
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    vrid: Option<u8>,

    /// Check the signatures of version 3 adverts with these keys: lines '[ID] HEX', mode 0600
    #[arg(long, value_name = "FILE")]
    key: Option<String>,

    /// Do this host's own rules let VRRP out and in, and can what is heard be believed? Names the rule that is
    /// missing; sends one advert that never leaves this host
    #[arg(long, value_name = "FAMILY", num_args = 0..=1, require_equals = true, default_missing_value = "both",
          conflicts_with = "follow")]
    check: Option<Families>,

    /// Print each advert as it comes
    #[arg(long)]
    follow: bool,

    /// Listen for D [default without --follow: 4s, more than three intervals of 1s]
    #[arg(long = "for", value_name = "D")]
    duration: Option<Span>,
}

/// A silence after which a master is none any more, in its own intervals.
const SILENT_AFTER: u32 = 4;
/// Adverts of no more sources than this are kept; a forger can invent them.
const MOST: usize = 1024;

/// Which virtual router of which generation and family, and who speaks for it.
type Key = (u8, u8, IpAddr);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    privilege::need(Capability::NetRaw, "hear VRRP on", &flags.dev)?;
    let keys = flags.key.as_deref().map(keys::read).transpose()?;
    let mut ports = [Port::open(&flags.dev, false, false)?, Port::open(&flags.dev, true, false)?];
    let mut pump = Pump::new(&process.node, process.form)?;
    let closed = flags.check.map(|families| own_rules(&mut ports, families, &flags, process)).transpose()?;
    let planned = flags.duration.or((!flags.follow).then_some(Span(std::time::Duration::from_secs(4))));
    let end = process.stream_end(planned);
    let mut newest: BTreeMap<Key, (Heard, Tick)> = BTreeMap::new();
    loop {
        let woken = {
            let fds: Vec<_> = ports.iter().map(Port::as_fd).collect();
            pump.wait(&fds, end)?
        };
        match woken {
            Woken::Signal(signal) => return Ok(pump.die(signal)),
            Woken::Ready(ready) if ready.contains(&true) => {
                let now = clock::boot();
                for port in &mut ports {
                    for heard in port.heard(keys.as_ref())? {
                        let advert = &heard.advert;
                        if flags.vrid.is_some_and(|vrid| vrid != advert.vrid) {
                            continue;
                        }
                        let key = (advert.vrid, advert.version.number(), heard.src);
                        if newest.len() < MOST || newest.contains_key(&key) {
                            newest.insert(key, (heard.clone(), now));
                        }
                        if flags.follow {
                            tell(&heard, &masters(&newest, &heard, now), &flags, &mut pump)?;
                        }
                    }
                }
            }
            Woken::Ready(_) => break,
        }
    }
    let now = clock::boot();
    let mut exit = Exit::Undecided;
    for (heard, _) in newest.values() {
        let masters = masters(&newest, heard, now);
        if !flags.follow {
            tell(heard, &masters, &flags, &mut pump)?;
        }
        let one = match masters.len() {
            0 => continue,
            1 => Exit::Yes,
            _ => Exit::No,
        };
        exit = if exit == Exit::Undecided { one } else { exit.and(one) };
    }
    if flags.check.is_some() {
        for (heard, _) in newest.values().filter(|(heard, _)| !heard.is_believed()) {
            let faults: Vec<&str> = heard.faults.iter().map(|fault| fault.slug()).collect();
            process.complain(&format!(
                "an advert of {} for router {} cannot be believed: {}",
                heard.src,
                heard.advert.vrid,
                faults.join(", ")
            ));
            exit = if exit == Exit::Undecided { Exit::No } else { exit.and(Exit::No) };
        }
    }
    pump.stream.finish();
    if newest.is_empty() {
        let why = match closed {
            Some(false) => "this host lets them in: does another send, do its output rules and the switch let it?",
            _ => "is it the right interface? see: ip link",
        };
        process.complain(&format!(
            "no advert was heard on {} in {} ms ({why})",
            flags.dev,
            millis(planned.unwrap_or(Span(std::time::Duration::ZERO)).0)
        ));
    }
    if closed == Some(true) {
        // Whatever was heard: it was beside these rules.
        return Ok(Exit::No);
    }
    // `--for` is a planned end, `--timeout` a deadline.
    Ok(if planned.is_some() { exit } else { exit.and(Exit::Undecided) })
}

/// Whether this host's own rules drop VRRP, each place told.
fn own_rules(ports: &mut [Port; 2], families: Families, flags: &Flags, process: &Process) -> Result<bool, Failure> {
    let mut netlink = Netlink::open()?;
    let (mut checked, mut closed) = (false, false);
    for port in ports.iter_mut().filter(|port| families.has(port.ipv6)) {
        port.look(&mut netlink, &[], true)?;
        let Some(source) = port.source.filter(|_| port.is_usable()) else { continue };
        checked = true;
        if let Some(why) = check::own_rules(port, source, flags.vrid.unwrap_or(u8::MAX))? {
            process.complain(&why);
            closed = true;
        }
    }
    if checked {
        return Ok(closed);
    }
    let why =
        format!("cannot check VRRP on {}: it is down, or has no address of that family (see: ip addr)", flags.dev);
    Err(Failure::new(Exit::Undecided, Reason::Refused, why))
}

/// Everybody who is master of the virtual router of `of`, as far as they can be believed.
fn masters(newest: &BTreeMap<Key, (Heard, Tick)>, of: &Heard, now: Tick) -> Vec<IpAddr> {
    newest
        .values()
        .filter(|(heard, at)| {
            let advert = &heard.advert;
            advert.vrid == of.advert.vrid
                && heard.src.is_ipv4() == of.src.is_ipv4()
                && advert.priority != 0
                // A password keeps nobody from being master.
                && heard.faults.iter().all(|fault| !fault.discards() || matches!(heard.auth, Some(Auth::Password)))
                && now.since(*at) < advert.interval * SILENT_AFTER
        })
        .map(|(heard, _)| heard.src)
        // More than a few are a forger's, and the list is in each record.
        .take(16)
        .collect()
}

fn tell(heard: &Heard, masters: &[IpAddr], flags: &Flags, pump: &mut Pump) -> Result<(), Failure> {
    let advert = &heard.advert;
    let body = Received {
        vrid: advert.vrid,
        version: advert.version.number(),
        dst: heard.dst.to_string(),
        dev: &flags.dev,
        priority: advert.priority,
        advert_interval_ms: millis(advert.interval),
        addresses: advert.addresses.iter().map(ToString::to_string).collect(),
        checksum: heard.checksum.slug(),
        ttl: heard.ttl,
        source_mac: heard.source_mac.to_string(),
        auth: heard.auth.map(Auth::slug),
        masters: masters.iter().map(ToString::to_string).collect(),
        faults: heard.faults.iter().map(|fault| fault.slug()).collect(),
    };
    pump.stream.record(Head::new("vrrp.recv").about(heard.src), &body)
}
