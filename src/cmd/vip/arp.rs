//! `vip arp`: tell the neighbours who has an address.

use super::{Present, who};
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::record::Head;
use crate::record::vip::{ARP_COLUMNS, ARP_SCHEMA, Announced};
use crate::sys::packet::PacketSocket;
use crate::sys::privilege::{self, Capability};
use crate::sys::{self, clock, sysctl};
use crate::types::link::Link;
use crate::types::net::{Mac, Prefix};
use crate::types::time::{Span, Tick};
use crate::types::vrrp;
use crate::wire::arp::{self, Form};
use crate::wire::ndp;
use clap::{ArgMatches, Args, ValueEnum};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "arp",
    about: "Announce addresses: gratuitous ARP, unsolicited neighbour advertisements",
    examples: "vip arp 192.0.2.10 --dev eth0 --count 5 --interval 200ms\n\
               vip arp 192.0.2.10 --dev eth0 --mac 01:02:03:04:05:06     with the MAC of a cluster\n\
               vip arp 192.0.2.10 --dev eth0 --target 192.0.2.1          one neighbour alone\n\
               vip show --mine | jq -r .subject | vip arp - --dev eth0   all of ours",
    args: flags::<Flags>,
    schemas: &[ARP_SCHEMA],
    columns: ARP_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Addresses to announce ('-' reads them from standard input, one a line)
    #[arg(value_name = "ADDR", required = true)]
    addresses: Vec<String>,

    /// The interface [default: the one that carries it, or whose network fits]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// Say it N times
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Time from one round to the next
    #[arg(long, value_name = "D", default_value = "200ms")]
    interval: Span,

    /// Send no more than N frames a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// Go on, and say it again every D
    #[arg(long, value_name = "D")]
    refresh: Option<Span>,

    /// The MAC to announce [default: the interface's]
    #[arg(long, value_name = "MAC", conflicts_with = "vmac")]
    mac: Option<Mac>,

    /// Announce the virtual router MAC of this VRID
    #[arg(long, value_name = "VRID", value_parser = clap::value_parser!(u8).range(1..))]
    vmac: Option<u8>,

    /// Tell this neighbour alone
    #[arg(long, value_name = "HOST")]
    target: Option<IpAddr>,

    /// IPv4: which form; some gear obeys only one
    #[arg(long, value_name = "FORM", default_value = "both")]
    form: Forms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Forms {
    /// A question from and for the address itself (RFC 5227)
    Request,
    /// An answer that nobody asked for
    Reply,
    /// Each in turn
    Both,
}

/// What is announced of an address, and to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) mac: Option<Mac>,
    pub(super) vmac: Option<u8>,
    pub(super) target: Option<IpAddr>,
    pub(super) form: Forms,
}

/// One address and its frames.
pub(super) struct Item {
    addr: IpAddr,
    pub(super) frames: Vec<Vec<u8>>,
    forms: Vec<&'static str>,
    mac: Mac,
}

/// All addresses of one interface.
struct Group {
    link: Link,
    items: Vec<Item>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let (asked, malformed) = super::operands(&flags.addresses, &process.who)?;
    let prefixes: Vec<Prefix> = asked.into_iter().map(|asked| asked.prefix).collect();
    super::only_hosts(&prefixes)?;
    if let Some(target) = flags.target
        && prefixes.iter().any(|prefix| prefix.addr.is_ipv4() != target.is_ipv4())
    {
        return Err(Failure::usage(format!("--target {target} is of another family than an address to announce")));
    }
    privilege::need(Capability::NetRaw, "announce on", flags.dev.as_deref().unwrap_or("an interface"))?;
    let planned = flags.interval.0 * flags.count.saturating_sub(1);
    let deadline = process.deadline(planned).tick();
    let mut present = Present::look()?;
    let how = How { mac: flags.mac, vmac: flags.vmac, target: flags.target, form: flags.form };
    let mut groups: Vec<Group> = Vec::new();
    for prefix in prefixes {
        let link = who::find(&present, prefix, flags.dev.as_deref(), "announce")?.clone();
        let item = item(how, &mut present, &link, prefix.addr)?;
        match groups.iter_mut().find(|group| group.link.index == link.index) {
            Some(group) => group.items.push(item),
            None => groups.push(Group { link, items: vec![item] }),
        }
    }
    let sockets = groups
        .iter()
        // Nothing is to be heard: EtherType 0 on a packet socket hears nothing.
        .map(|group| PacketSocket::open(&group.link, 0))
        .collect::<Result<Vec<_>, _>>()?;
    match flags.refresh {
        None => {
            let mut exit = malformed;
            for (group, socket) in groups.iter().zip(&sockets) {
                exit = exit.and(once(&flags, group, socket, deadline, process)?);
            }
            Ok(exit)
        }
        Some(refresh) => follow(&flags, refresh.0, &groups, &sockets, process),
    }
}

pub(super) fn item(how: How, present: &mut Present, link: &Link, addr: IpAddr) -> Result<Item, Failure> {
    let Some(device) = link.mac else {
        let sentence =
            format!("cannot announce {addr} on {}: the link has no MAC addresses (name another: --dev DEV)", link.name);
        return Err(Failure::new(Exit::Missing, Reason::NoSuchFeature, sentence));
    };
    let mac = match (how.mac, how.vmac) {
        (Some(mac), _) => mac,
        (None, Some(vrid)) => vrrp::mac(vrid, addr.is_ipv6()),
        (None, None) => device,
    };
    let neighbour = how.target.map(|target| neighbour(present, link, target)).transpose()?;
    let (frames, forms) = match addr {
        IpAddr::V4(vip) => {
            let to = neighbour.unwrap_or(Mac::BROADCAST);
            let forms: &[(Form, &str)] = match how.form {
                Forms::Request => &[(Form::Request, "request")],
                Forms::Reply => &[(Form::Reply, "reply")],
                Forms::Both => &[(Form::Request, "request"), (Form::Reply, "reply")],
            };
            forms.iter().map(|(form, word)| (arp::announcement(*form, mac, device, vip, to), *word)).unzip()
        }
        IpAddr::V6(vip) => {
            let router = how.vmac.is_some() || forwards(&link.name)?;
            let to = match (neighbour, how.target) {
                (Some(mac), Some(IpAddr::V6(target))) => Some((mac, target)),
                _ => None,
            };
            (vec![ndp::advertisement(mac, device, vip, router, to)], vec!["na"])
        }
    };
    Ok(Item { addr, frames, forms, mac })
}

/// Whether this host is a router there, which an advertisement must not deny (RFC 4861 §4.4).
fn forwards(dev: &str) -> sys::Result<bool> {
    Ok(sysctl::read(&format!("ipv6/conf/{dev}/forwarding"))?.is_some_and(|value| value != "0"))
}

/// The MAC of one neighbour, as the kernel has it or as it answers now.
fn neighbour(present: &mut Present, link: &Link, target: IpAddr) -> Result<Mac, Failure> {
    if let Some(mac) = present.netlink.neighbour(link.index, target)? {
        return Ok(mac);
    }
    let schedule = crate::decide::vip::evenly(3, Duration::from_millis(200), Duration::from_millis(400));
    let answers = super::ask::ask(link, &[target], &schedule, true, clock::boot().after(schedule.end))?;
    let mac = answers.get(&target).and_then(|answer| answer.holders.first()).map(|(mac, _)| *mac);
    mac.ok_or_else(|| {
        let sentence =
            format!("cannot tell {target}: it does not answer on {} (see: ip neigh show {target})", link.name);
        Failure::new(Exit::Undecided, Reason::TimedOut, sentence)
    })
}

/// The rounds of one interface; a record an address.
fn once(
    flags: &Flags,
    group: &Group,
    socket: &PacketSocket,
    deadline: Tick,
    process: &mut Process,
) -> Result<Exit, Failure> {
    let mut sent = vec![0; group.items.len()];
    let mut failure: Option<Failure> = None;
    let started = clock::boot();
    for round in 0..flags.count {
        if round > 0 {
            clock::sleep_until(started.after(flags.interval.0 * round));
        }
        failure = announce(flags.rate, group, socket, deadline, &mut sent).err();
        if failure.is_some() {
            break;
        }
    }
    for (item, sent) in group.items.iter().zip(sent) {
        let (head, body) = announced(flags, group, item, sent, flags.count, failure.as_ref());
        process.out.record(&head, &body)?;
    }
    match failure {
        None => Ok(Exit::Yes),
        Some(failure) => {
            process.complain(&failure.sentence);
            Ok(failure.exit)
        }
    }
}

/// One round; counts what left for each address.
fn announce(
    rate: Option<u32>,
    group: &Group,
    socket: &PacketSocket,
    deadline: Tick,
    sent: &mut [u64],
) -> Result<(), Failure> {
    // A veth or a NIC takes frames while nobody is at the other end; that is no announcement.
    let link = Present::look()?.link(group.link.index).cloned();
    if let Some(failure) = link.as_ref().map_or_else(
        || Some(sys::Error::no_interface("announce on", &group.link.name).into()),
        |link| (!link.is_usable()).then(|| dead(link)),
    ) {
        return Err(failure);
    }
    let frames: Vec<&[u8]> = group.items.iter().flat_map(|item| item.frames.iter().map(Vec::as_slice)).collect();
    let mut left = 0;
    let mut failure = None;
    // With a rate: a hundredth of a second's worth each hundredth of a second.
    let piece = rate.map_or(frames.len().max(1), |rate| (rate as usize / 100).max(1));
    let pause = rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) * u32::try_from(piece).unwrap_or(1) / rate);
    let started = clock::boot();
    for (number, frames) in (0..).zip(frames.chunks(piece)) {
        clock::sleep_until(started.after(pause * number));
        let (more, why) = socket.send_all(frames, deadline);
        left += more;
        if let Some(error) = why {
            failure = Some(Failure::from(error));
            break;
        }
    }
    for (item, sent) in group.items.iter().zip(sent) {
        let own = left.min(item.frames.len());
        *sent += own as u64;
        left -= own;
    }
    failure.map_or(Ok(()), Err)
}

/// Announces addresses of one interface `count` times, 200 ms apart; the frames that left for each.
///
/// # Errors
/// Some did not leave: a dead link, a full queue.
pub(super) fn tell(
    present: &mut Present,
    link: &Link,
    addresses: &[IpAddr],
    count: u32,
    deadline: Tick,
) -> Result<Vec<u64>, Failure> {
    const INTERVAL: Duration = Duration::from_millis(200);
    let how = How { mac: None, vmac: None, target: None, form: Forms::Both };
    let items = addresses.iter().map(|addr| item(how, present, link, *addr)).collect::<Result<Vec<_>, _>>()?;
    let group = Group { link: link.clone(), items };
    let socket = PacketSocket::open(link, 0)?;
    let mut sent = vec![0; group.items.len()];
    let started = clock::boot();
    for round in 0..count {
        clock::sleep_until(started.after(INTERVAL * round));
        announce(None, &group, &socket, deadline, &mut sent)?;
    }
    Ok(sent)
}

fn dead(link: &Link) -> Failure {
    let why = if link.up { "the link has no carrier" } else { "the link is down" };
    let sentence = format!("cannot announce on {}: {why} (see: ip link show {})", link.name, link.name);
    Failure { errno: Some(nix::errno::Errno::ENETDOWN), ..Failure::new(Exit::Refused, Reason::Refused, sentence) }
}

fn announced(
    flags: &Flags,
    group: &Group,
    item: &Item,
    sent: u64,
    rounds: u32,
    failure: Option<&Failure>,
) -> (Head, Announced) {
    let wanted = item.frames.len() as u64 * u64::from(rounds);
    let mut head = Head::new("vip.arp").about(item.addr);
    head.error = failure.filter(|_| sent < wanted).map(Failure::body);
    let body = Announced {
        dev: group.link.name.clone(),
        mac: item.mac.to_string(),
        target: flags.target.map(|target| target.to_string()),
        forms: item.forms.clone(),
        sent,
        failed: wanted.saturating_sub(sent),
    };
    (head, body)
}

/// Says it again and again; a failure is told and tried again at the next round.
fn follow(
    flags: &Flags,
    refresh: Duration,
    groups: &[Group],
    sockets: &[PacketSocket],
    process: &mut Process,
) -> Result<Exit, Failure> {
    if refresh.is_zero() {
        return Err(Failure::usage("--refresh must be above 0s"));
    }
    let mut pump = Pump::new(&process.node, process.form)?;
    let end = process.stream_deadline().map(clock::Deadline::tick);
    let mut due = clock::boot();
    loop {
        for (group, socket) in groups.iter().zip(sockets) {
            let mut sent = vec![0; group.items.len()];
            let failure = announce(flags.rate, group, socket, due.after(refresh), &mut sent).err();
            for (item, sent) in group.items.iter().zip(sent) {
                let (head, body) = announced(flags, group, item, sent, 1, failure.as_ref());
                pump.stream.record(head, &body)?;
            }
        }
        due = due.after(refresh).max(clock::boot());
        while clock::boot() < due {
            if end.is_some_and(|end| clock::boot() >= end) {
                pump.stream.finish();
                return Ok(Exit::Undecided);
            }
            if let Woken::Signal(signal) = pump.wait(&[], Some(end.map_or(due, |end| end.min(due))))? {
                return Ok(pump.die(signal));
            }
        }
    }
}
