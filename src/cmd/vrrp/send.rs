//! `vrrp send`: adverts as they are asked for, without a state behind them.

use super::config::{self, Preemption, RouterFlags, Signing, sequence};
use super::port::{How, Port};
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::vrrp::OWNER;
use crate::record::Head;
use crate::record::vrrp::{SEND_COLUMNS, SEND_SCHEMA, Sent};
use crate::sys;
use crate::sys::clock;
use crate::sys::netlink::Netlink;
use crate::sys::privilege::{self, Capability};
use crate::types::vrrp;
use crate::wire::vrrp::{Advert, Sum};
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "send",
    about: "Send adverts: to try a receiver, or to resign for a router that cannot",
    examples: "vrrp send --dev eth0 --vrid 51 --vip 192.0.2.10 --priority 50                 one advert\n\
               vrrp send --dev eth0 --vrid 51 --vip 192.0.2.10 --resign                      priority 0\n\
               vrrp send --dev eth0 --vrid 51 --vip 192.0.2.10 --count 10 --checksum rfc9568",
    // The version here is the protocol's.
    args: |command| flags::<Flags>(command.disable_version_flag(true)),
    schemas: &[SEND_SCHEMA],
    columns: SEND_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    #[command(flatten)]
    router: RouterFlags,

    #[command(flatten)]
    signing: Signing,

    /// Send priority 0: the backups need not wait for silence
    #[arg(long, conflicts_with = "priority")]
    resign: bool,

    /// Send N adverts, one each interval
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let none = Preemption { delay: Duration::ZERO, without: None, sync: None };
    let spec = config::spec(&flags.router, &none).map_err(Failure::usage)?;
    privilege::need(Capability::NetRaw, "send adverts on", &spec.dev)?;
    let deadline = process.deadline(spec.settings.interval * flags.count.saturating_sub(1)).tick();
    let keys = flags.signing.keys()?.filter(|_| flags.signing.signs());
    let mut last = 0;
    let mut port = Port::open(&spec.dev, spec.is_ipv6(), !spec.peers.is_empty())?;
    let vips: Vec<IpAddr> = spec.vips.iter().map(|vip| vip.addr).collect();
    port.look(&mut Netlink::open()?, &vips, spec.priority == OWNER)?;
    if !port.is_usable() {
        return Err(sys::Error::call("send on", &spec.dev, Errno::ENETDOWN).into());
    }
    let advert = Advert {
        version: spec.settings.version,
        vrid: spec.vrid,
        priority: if flags.resign { 0 } else { spec.priority },
        interval: spec.settings.interval,
        addresses: vips,
    };
    let mut pump = Pump::new(&process.node, process.form)?;
    let (mut sent, mut failed, mut failure) = (0, 0, None);
    let started = clock::boot();
    'rounds: for round in 0..flags.count {
        let due = started.after(spec.settings.interval * round);
        while clock::boot() < due {
            match pump.wait(&[], Some(due.min(deadline)))? {
                Woken::Signal(signal) => return Ok(pump.die(signal)),
                Woken::Ready(_) if clock::boot() >= deadline => break 'rounds,
                Woken::Ready(_) => {}
            }
        }
        last = sequence(last, clock::wall());
        let done = port
            .send(
                &advert,
                &How {
                    sum: spec.sum.unwrap_or(Sum::Pseudo),
                    vmac: spec.vmac,
                    peers: &spec.peers,
                    sign: keys.as_ref().map(|keys| (keys, last)),
                },
            )
            .and_then(|()| port.flush(deadline));
        match done {
            Ok(()) => sent += 1,
            Err(error) => {
                failed += 1;
                failure = Some(Failure::from(error));
            }
        }
    }
    let links = if spec.peers.is_empty() { vec![vrrp::group(advert.addresses[0])] } else { spec.peers.clone() };
    let links = links.iter().map(|to| format!("{to}%{}", spec.dev)).collect();
    let mut head = Head::new("vrrp.send").about(spec.vrid);
    head.error = failure.as_ref().map(Failure::body);
    pump.stream.record(head, &Sent { sent, failed, links })?;
    pump.stream.finish();
    match failure {
        Some(failure) => Err(failure),
        None if sent < u64::from(flags.count) => Ok(Exit::Undecided),
        None => Ok(Exit::Yes),
    }
}
