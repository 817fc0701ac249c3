//! `vip apply`: make the kernel agree with an election.

use super::beat::Beat;
use super::forward::{Forward, Settled};
use super::lease::Leases;
use super::settings::Settings;
use super::speaker::Speaker;
use super::{Present, lease, no_link, share, source, vmac};
use crate::cli::args::{self, Changing, flags};
use crate::cli::input::{Complaints, Feed, Got, Lines};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::route;
use crate::decide::vip::{self, AddStep, Order, Role};
use crate::record::elect::TOLD_SCHEMA;
use crate::record::vip::{APPLIED_COLUMNS, APPLY_SCHEMA, Applied, Show, read_order, subject};
use crate::record::{Action, Head};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::diag;
use crate::sys::netlink::{self, AddressRequest, Change, Netlink};
use crate::sys::nft::{self, Nft};
use crate::sys::privilege::{self, Capability};
use crate::sys::state::Lock;
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::Mac;
use crate::types::time::{Span, Tick};
use clap::{ArgMatches, Args, ValueEnum};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "apply",
    about: "Make the kernel agree with the elections on standard input: carry and announce what is mine",
    examples: "vrrp run --dev eth0 --vrid 51 --vip 192.0.2.10/24 | vip apply --follow\n\
               vip elect ... --follow | vip apply --follow --beat beat.json     and the others hear of it by heartbeat\n\
               vrrp run ... --renew 50ms | vip apply --follow --lease 200ms    frozen, it falls silent within 200 ms\n\
               vip elect ... < nodes.jsonl | vip apply                         once, from cron\n\
               vrrp run ... | vip apply --follow | while read -r line; do ...  a hook, in order, after the act\n\
               vrrp run ... | vip apply --follow --forward                     clients that still send here are served\n\
               vrrp run ... | vip apply --follow --src-route 192.0.2.10        this host sends from the address too\n\
               vip apply --dry-run < elections.jsonl                           what would be changed?",
    args: flags::<Flags>,
    schemas: &[APPLY_SCHEMA, TOLD_SCHEMA],
    columns: APPLIED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Go on; when the input ends, give everything back
    #[arg(long)]
    follow: bool,

    /// What the end of input means with --follow
    #[arg(long, value_name = "WHAT", default_value = "release")]
    on_eof: OnEof,

    /// End after D, leaving what stands
    #[arg(long = "for", value_name = "D", requires = "follow")]
    duration: Option<Span>,

    /// The interface, where an election names none [default: the one whose network fits]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// These addresses alone; others of ours are taken away
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    only: Option<Vec<IpAddr>>,

    /// Serve these addresses as backup too, where their traffic reaches this node: carried without
    /// answering ARP for them
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    share: Vec<IpAddr>,

    /// Send on to the master, as backup, what reaches this node for an address; --share wins for its own
    #[arg(long)]
    forward: bool,

    /// Send what this host itself sends to other networks from this address while it is here; one of each family
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    src_route: Vec<IpAddr>,

    /// Put an address on an interface of its own with the virtual MAC of its election's VRID
    #[arg(long)]
    vmac: bool,

    /// The kernel itself removes an address that was not elected again for D: whole seconds, at least 2;
    /// with --follow, silence of the input for D gives everything back
    #[arg(long, value_name = "D")]
    lifetime: Option<Span>,

    /// The kernel stops answering for an address that was not elected again for D, at least 100ms; silence of the
    /// input for D gives everything back
    #[arg(long, value_name = "D")]
    lease: Option<Span>,

    /// Announce a gained address N times at once, and as often again 5 s later
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(0..=100))]
    announce: u16,

    /// Announce what is carried again every D
    #[arg(long, value_name = "D", requires = "follow")]
    refresh: Option<Span>,

    /// Write what this node serves (vip.address) to FILE, for heartbeat send --payload
    #[arg(long, value_name = "FILE")]
    beat: Option<PathBuf>,

    /// End the TCP connections of an address that is given up: both ends learn it at once
    #[arg(long)]
    kill_connections: bool,

    #[command(flatten)]
    changing: Changing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnEof {
    /// Give every address back
    Release,
    /// Leave what stands
    Keep,
}

/// How long one step may take.
const STEP: Duration = Duration::from_secs(5);
/// A wake that is later than this is a pause of our own.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a stream waits for a lock.
const MOMENT: Duration = Duration::from_millis(200);
/// How long an announcement may wait for a full queue.
const SEND: Duration = Duration::from_millis(20);
/// When a gained address is announced again, as keepalived does.
const AGAIN: Duration = Duration::from_secs(5);
/// When the wire is asked who else has a gained address, and an announcement that failed is tried again.
const ASK: Duration = Duration::from_millis(200);
/// How long a claim of another waits for its answer.
const HEED: Duration = Duration::from_millis(30);
/// Another's claim is answered at most this often: two that defend would keep each other busy.
const DEFEND: Duration = Duration::from_secs(1);
/// How much earlier than asked the kernel may end a lifetime.
const ROUNDING: Duration = Duration::from_millis(200);
/// How late the kernel may end a lifetime.
const LATE: Duration = Duration::from_millis(500);
/// Repairs in this time that are worth a word about who prunes.
const MINUTE: Duration = Duration::from_secs(60);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if let Some(Span(lifetime)) = flags.lifetime
        && (lifetime.subsec_nanos() != 0 || !(2..u64::from(u32::MAX)).contains(&lifetime.as_secs()))
    {
        return Err(Failure::usage("--lifetime takes whole seconds, at least 2s: the kernel counts in seconds"));
    }
    if let Some(Span(term)) = flags.lease {
        lease::check(term)?;
        if !flags.follow && !flags.changing.dry_run {
            return Err(Failure::usage("--lease needs --follow: nobody else would renew it"));
        }
        if let Some(lifetime) = flags.lifetime.filter(|lifetime| lifetime.0 <= term) {
            return Err(Failure::usage(format!(
                "--lifetime {lifetime} is no longer than --lease {}: it would end what the lease still allows",
                Span(term)
            )));
        }
    }
    if flags.refresh.is_some_and(|refresh| refresh.0.is_zero()) {
        return Err(Failure::usage("--refresh must be above 0s"));
    }
    if flags.follow && flags.changing.dry_run {
        return Err(Failure::usage("--dry-run tells what one step would change: leave out --follow"));
    }
    for ipv6 in [false, true] {
        if flags.src_route.iter().filter(|addr| addr.is_ipv6() == ipv6).count() > 1 {
            return Err(Failure::usage("--src-route takes one address of each family: a host has one way out"));
        }
    }
    if flags.forward {
        Nft::find("guard packets on", "an interface", process.deadline(Duration::ZERO))?;
    }
    if !flags.changing.dry_run {
        let object = flags.dev.as_deref().unwrap_or("an interface");
        privilege::need(Capability::NetAdmin, "apply elections to", object)?;
        privilege::need(Capability::NetRaw, "announce on", object)?;
    }
    let term = flags.lease.map(|term| term.0).filter(|_| !flags.changing.dry_run);
    let mut applier = Applier {
        flags: &flags,
        leases: term.map(|term| Leases::open(term, &process.node)).transpose()?,
        warned: BTreeSet::new(),
        who: process.who.clone(),
        node: process.node.clone(),
        present: Present::look()?,
        held: BTreeMap::new(),
        shared: BTreeMap::new(),
        forward: Forward::new(
            &process.node,
            if flags.forward && flags.follow { Some(nft::Monitor::open()?) } else { None },
        ),
        unsourced: None,
        named: BTreeSet::new(),
        speakers: Vec::new(),
        beat: flags
            .beat
            .clone()
            .filter(|_| !flags.changing.dry_run)
            .map(|path| Beat::new(path, &process.node, flags.dev.as_deref(), flags.kernel_serves())),
    };
    if flags.follow { follow(&mut applier, process) } else { once(&mut applier, process) }
}

impl Flags {
    /// How long the kernel goes on by itself; absent: for good.
    fn kernel_serves(&self) -> Option<Duration> {
        // It counts lifetimes in whole seconds and may be that late.
        let lifetime = self.lifetime.map(|lifetime| lifetime.0 + LATE);
        self.lease.map(|term| term.0).or(lifetime)
    }

    /// After which silence of the input everything is given back.
    fn silence(&self) -> Option<Duration> {
        self.lease.or(self.lifetime).map(|longest| longest.0)
    }
}

/// An address that is carried.
struct Holding {
    order: Order,
    address: Address,
    /// Whether the kernel had it when it was last looked at.
    is_there: bool,
    /// When it is announced, and how often.
    bursts: Vec<(Tick, usize)>,
    /// When the wire is asked who else has it.
    asks: Option<Tick>,
    /// It was given a moment more after a pause of our own.
    forgiven: bool,
    /// Others that claim it.
    contested: BTreeSet<Mac>,
    defended: Option<Tick>,
    repairs: Vec<Tick>,
}

/// Puts what was done beside the addresses into the records about them; one each.
fn combine(done: &mut Vec<Done>, more: Vec<Done>) {
    for one in more {
        let Some(first) = done.iter_mut().find(|other| other.addr == one.addr) else {
            done.push(one);
            continue;
        };
        first.head.changed = Some(first.head.changed == Some(true) || one.head.changed == Some(true));
        first.head.actions.extend(one.head.actions);
        first.applied.sysctls.extend(one.applied.sysctls);
        if first.applied.role == "leave" {
            (first.applied.role, first.applied.via) = (one.applied.role, one.applied.via);
        }
        first.failure = first.failure.take().or(one.failure);
    }
}

/// What became of one address.
struct Done {
    addr: IpAddr,
    head: Head,
    applied: Applied,
    failure: Option<Failure>,
}

struct Applier<'a> {
    flags: &'a Flags,
    who: String,
    node: String,
    present: Present,
    held: BTreeMap<IpAddr, Holding>,
    /// What is served as backup.
    shared: BTreeMap<IpAddr, Order>,
    /// What is sent on as backup.
    forward: Forward,
    /// Why this host cannot send from an address, as it was told last.
    unsourced: Option<String>,
    /// Everything that the input has named: nothing else is touched.
    named: BTreeSet<IpAddr>,
    speakers: Vec<Speaker>,
    beat: Option<Beat>,
    leases: Option<Leases>,
    /// Of which addresses it was told that others do not wait long enough.
    warned: BTreeSet<IpAddr>,
}

impl Applier<'_> {
    /// The interface on which clients reach an address.
    fn dev_of(&self, order: &Order) -> Result<Link, Failure> {
        let link = match order.dev.as_deref().or(self.flags.dev.as_deref()) {
            Some(dev) => self.present.named(dev, &format!("add {} to", order.vip))?,
            None => vip::link_for(&self.present.links, &self.present.addresses, order.vip)
                .map_err(|why| no_link(why, "add", order.vip, "no interface has a network that it fits"))?,
        };
        Ok(link.clone())
    }

    /// The interface for an order, made where it is a virtual router's.
    fn place(&mut self, order: &Order) -> Result<(Link, Settings), Failure> {
        let link = self.dev_of(order)?;
        match order.vrid.filter(|_| self.flags.vmac) {
            Some(vrid) => {
                let (ipv6, dry_run) = (order.vip.addr.is_ipv6(), self.flags.changing.dry_run);
                let made = vmac::ensure(&mut self.present, &link, vrid, ipv6, &self.node, dry_run)?;
                Ok((made.link, made.sysctls))
            }
            None => Ok((link, Settings::new())),
        }
    }

    fn wanted(&self, order: &Order, link: &Link) -> Address {
        let mut address = netlink::plain(order.vip, link.index);
        if order.vip.addr.is_ipv6() {
            // The election decides; a frozen owner's kernel would still defend it.
            address.flags.0 |= AddressFlags::NODAD;
        }
        let seconds = self.flags.lifetime.and_then(|lifetime| u32::try_from(lifetime.0.as_secs()).ok());
        (address.valid_s, address.preferred_s) = (seconds, seconds);
        address
    }

    /// The locks of some addresses. A stream waits but a moment for them: an election is carried out
    /// whoever holds a lock, and the kernel takes one change after the other.
    fn lock(&self, orders: &[&Order], deadline: Deadline) -> Result<Vec<Lock>, Failure> {
        if self.flags.changing.dry_run {
            return Ok(Vec::new());
        }
        let mut locks = Vec::new();
        let moment = Deadline::after(MOMENT);
        for order in orders {
            let subject = order.vip.addr.to_string();
            match Lock::take(&[subject], if self.flags.follow { moment } else { deadline }) {
                Ok(lock) => locks.push(lock),
                Err(error) if self.flags.follow => {
                    crate::cli::out::complain(&self.who, &format!("{error}; going on without it"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(locks)
    }

    /// Carries out what one step of the input says; the newest order of an address counts.
    fn step(&mut self, orders: Vec<Order>, deadline: Deadline) -> Result<Vec<Done>, Failure> {
        let now = clock::boot();
        let mut newest: BTreeMap<IpAddr, Order> = BTreeMap::new();
        let mut unknown = BTreeSet::new();
        let lifetime = self.flags.lifetime.filter(|_| self.flags.follow).map(|lifetime| now.after(lifetime.0));
        for mut order in orders {
            // A lease counts from when it was said: what waited in a pipe is as old as it is.
            let lease = self.flags.lease.map(|term| order.said.after(term.0));
            order.until = order.until.into_iter().chain(lifetime).chain(lease).min();
            self.warn_of_takers(&order);
            let addr = order.vip.addr;
            // Whatever an earlier run has left is not this one's: its first word is no renewal.
            if self.named.insert(addr) {
                order.renewal = false;
                unknown.insert(addr);
            }
            if let Some(before) = newest.get(&addr) {
                order.renewal &= before.renewal && before.mine == order.mine;
            }
            newest.insert(addr, order);
        }
        self.forward.doubt(&unknown, &self.present);
        if let Some(beat) = &mut self.beat {
            self.present.look_again()?;
            beat.before(&newest.values().cloned().collect::<Vec<_>>(), &self.present)?;
        }
        let mut done = Vec::new();
        let (mut serve, mut leave) = (Vec::new(), Vec::new());
        for order in newest.into_values() {
            match order.role(now) {
                Some(Role::Serve) => serve.push(order),
                Some(Role::Leave) => leave.push(order),
                None => self.forward.hold(&order),
            }
        }
        // What is given up goes first: nobody waits for it, and somebody may for its absence.
        let quiet = |order: &Order| {
            let addr = order.vip.addr;
            let to_share = self.flags.share.contains(&addr) && !self.shared.contains_key(&addr);
            order.renewal && !self.held.contains_key(&addr) && !to_share
        };
        let backups = leave.clone();
        leave.retain(|order| !quiet(order));
        if !leave.is_empty() {
            done.extend(self.give_up(&leave, false, deadline)?);
            // At once: somebody may wait for it.
            self.tell()?;
        }
        // Before the address is there: the table would drop what the old master sends to it.
        for order in &serve {
            self.forward.leave(order.vip.addr);
        }
        let withdrawn = if serve.is_empty() { Vec::new() } else { self.settle_forward() };
        if !serve.is_empty() {
            done.extend(self.take(serve, deadline)?);
        }
        combine(&mut done, withdrawn);
        self.tell()?;
        let sent_on = self.send_on(&backups);
        combine(&mut done, sent_on);
        if self.flags.src_route.is_empty() && !unknown.is_empty() {
            // A killed run may have sent from what this one does not.
            self.send_from(&[], &unknown, &mut done)?;
        }
        self.forward.sweep(&mut self.present)?;
        Ok(done)
    }

    /// Has what reaches this node sent on to the masters that the orders name.
    fn send_on(&mut self, orders: &[Order]) -> Vec<Done> {
        let (now, dry_run) = (clock::boot(), self.flags.changing.dry_run);
        let mut done = Vec::new();
        for order in orders {
            let addr = order.vip.addr;
            let is_meant = self.flags.forward && !self.flags.share.contains(&addr);
            let Some(master) = order.way(&self.present.addresses, now).filter(|_| is_meant) else {
                self.forward.leave(addr);
                continue;
            };
            if self.forward.renew(order, master) {
                continue;
            }
            let aimed = self.dev_of(order).and_then(|link| self.forward.aim(order, link, master, dry_run));
            if let Err(failure) = aimed {
                self.forward.leave(addr);
                done.push(self.forwarded(addr, Settled { failure: Some(failure), ..Settled::default() }));
            }
        }
        done.extend(self.settle_forward());
        // A stream comes back to it by itself.
        let waits = !self.flags.follow && !dry_run;
        while waits && self.forward.is_waiting() && done.iter().all(|one| one.failure.is_none()) {
            clock::sleep_until(self.forward.due().unwrap_or(now));
            self.forward.look();
            done.extend(self.settle_forward());
        }
        done
    }

    /// Makes the kernel agree with what is to be sent on. What fails is told, and tried again.
    fn settle_forward(&mut self) -> Vec<Done> {
        if !self.forward.is_stale() {
            return Vec::new();
        }
        let dry_run = self.flags.changing.dry_run;
        let looked = self.present.look_anew().map_err(Failure::from);
        match looked.and_then(|()| self.forward.settle(&mut self.present, &self.named, dry_run)) {
            Ok(settled) => settled
                .into_iter()
                .filter(|(_, one)| one.changed || one.failure.is_some())
                .map(|(addr, one)| self.forwarded(addr, one))
                .collect(),
            Err(failure) => {
                let (addresses, is_news) = self.forward.failed();
                if is_news && addresses.is_empty() {
                    crate::cli::out::complain(&self.who, &failure.sentence);
                }
                let failed = || Settled { failure: Some(failure.clone()), ..Settled::default() };
                let untold = addresses.into_iter().filter(|_| is_news);
                untold.map(|addr| self.forwarded(addr, failed())).collect()
            }
        }
    }

    /// What is sent on no longer, and why.
    fn send_on_no_more(&mut self, addresses: &[IpAddr], why: &str) -> Vec<Done> {
        for addr in addresses {
            self.forward.leave(*addr);
        }
        let mut done = self.settle_forward();
        for one in done.iter_mut().filter(|one| addresses.contains(&one.addr)) {
            one.applied.why = Some(why.to_owned());
        }
        done
    }

    /// The addresses that are carried.
    fn serving(&self) -> Vec<IpAddr> {
        self.held.iter().filter(|(_, holding)| holding.is_there).map(|(addr, _)| *addr).collect()
    }

    /// Makes the routes by which this host sends from its addresses agree with what it carries; `named` ones
    /// that it does not carry are the source of nothing.
    fn send_from(&mut self, serving: &[IpAddr], named: &BTreeSet<IpAddr>, done: &mut [Done]) -> Result<(), Failure> {
        let dry_run = self.flags.changing.dry_run;
        let wanted: Vec<IpAddr> = self.flags.src_route.iter().copied().filter(|addr| serving.contains(addr)).collect();
        let mut unsourced = None;
        for (addr, sourced) in source::settle(&mut self.present, &wanted, named, dry_run)? {
            unsourced = unsourced.or(sourced.failure.as_ref().map(|failure| failure.sentence.clone()));
            let Some(one) = done.iter_mut().find(|one| one.addr == addr) else { continue };
            one.head.changed = Some(one.head.changed == Some(true) || sourced.changed);
            if self.flags.changing.shows_actions() {
                one.head.actions.extend(sourced.actions);
            }
            one.applied.src_routes = sourced.routes;
            one.failure = one.failure.take().or(sourced.failure);
        }
        self.unsourced = unsourced;
        Ok(())
    }

    /// The default route has changed, or somebody took one of our routes: `lost`.
    fn send_from_again(&mut self, lost: bool) -> Result<Vec<Done>, Failure> {
        let before = self.unsourced.clone();
        let serving = self.serving();
        let addresses: Vec<IpAddr> = self.flags.src_route.iter().copied().filter(|one| serving.contains(one)).collect();
        let mut done: Vec<Done> = addresses.into_iter().map(|addr| self.told(addr, Vec::new(), Ok(0))).collect();
        self.send_from(&serving, &self.named.clone(), &mut done)?;
        let is_news = self.unsourced != before;
        done.retain(|one| one.head.changed == Some(true) || (one.failure.is_some() && is_news));
        for one in &mut done {
            one.applied.repaired = lost && one.failure.is_none();
        }
        Ok(done)
    }

    /// A record about an address whose packets are sent on, or are no longer.
    fn forwarded(&self, addr: IpAddr, settled: Settled) -> Done {
        let mut head = Head::new("vip.apply").about(addr);
        head.dry_run = self.flags.changing.dry_run;
        head.changed = Some(settled.changed);
        if self.flags.changing.shows_actions() {
            head.actions = settled.actions;
        }
        let role = if settled.via.is_some() { "forward" } else { "leave" };
        let via = settled.via.map(|via| via.to_string());
        let why = self.forward.orders().find(|order| order.vip.addr == addr).and_then(|order| order.why.clone());
        let applied = Applied { role, via, sysctls: settled.sysctls, why, ..Applied::default() };
        Done { addr, head, applied, failure: settled.failure }
    }

    /// Tells the other nodes what the kernel has.
    fn tell(&mut self) -> Result<(), Failure> {
        let Some(beat) = &mut self.beat else { return Ok(()) };
        self.present.look_again()?;
        beat.after(&self.present)
    }

    /// Adds what is not there, renews what has a lifetime, and tells the neighbours.
    fn take(&mut self, orders: Vec<Order>, deadline: Deadline) -> Result<Vec<Done>, Failure> {
        let now = clock::boot();
        let quick = |order: &Order| {
            let same = |holding: &Holding| {
                let before = &holding.order;
                holding.is_there && (&before.vip, &before.dev, before.vrid) == (&order.vip, &order.dev, order.vrid)
            };
            order.renewal && self.flags.lifetime.is_none() && self.held.get(&order.vip.addr).is_some_and(same)
        };
        let (renewed, orders): (Vec<Order>, Vec<Order>) = orders.into_iter().partition(quick);
        for order in renewed {
            if let Some(holding) = self.held.get_mut(&order.vip.addr) {
                (holding.order, holding.forgiven) = (order, false);
            }
        }
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let _locks = self.lock(&orders.iter().collect::<Vec<_>>(), deadline)?;
        self.present = Present::look()?;
        // Before the address: at no point does it answer without.
        let mut unleased = self.grant(&orders)?;
        let (mut items, mut requests) = (Vec::new(), Vec::new());
        for order in orders {
            if let Some(why) = unleased.remove(&order.vip.addr) {
                items.extend(why.map(|failure| (order, None, AddStep::Keep, Settings::new(), Some(failure))));
                continue;
            }
            let (link, sysctls) = match self.place(&order) {
                Ok(place) => place,
                Err(failure) => {
                    items.push((order, None, AddStep::Keep, Settings::new(), Some(failure)));
                    continue;
                }
            };
            let wanted = self.wanted(&order, &link);
            let is_it = |address: &&Address| address.prefix == wanted.prefix && address.ifindex == wanted.ifindex;
            let there = self.present.addresses.iter().find(is_it);
            let step = vip::add_step(there, &wanted);
            let mut failure = None;
            match &step {
                AddStep::Add => requests.push(AddressRequest::Add(wanted.clone())),
                AddStep::Change | AddStep::Renew => requests.push(AddressRequest::Replace(wanted.clone())),
                AddStep::Keep => {}
                AddStep::Differs(how) => {
                    let why = format!(
                        "cannot add {} to {}: it is there with {how} (see: vip show {})",
                        order.vip, link.name, order.vip.addr
                    );
                    failure = Some(Failure::new(Exit::No, crate::cli::Reason::Conflict, why));
                }
            }
            items.push((order, Some((wanted, link)), step, sysctls, failure));
        }
        // Served by the right interface from now on: the one on loopback is no longer needed.
        let named: Vec<IpAddr> = items.iter().filter(|item| item.4.is_none()).map(|item| item.0.vip.addr).collect();
        for address in &self.present.addresses {
            if named.contains(&address.prefix.addr) && share::is_shared(&self.present, address) {
                requests.push(AddressRequest::Delete { prefix: address.prefix, ifindex: address.ifindex });
            }
        }
        self.shared.retain(|addr, _| !named.contains(addr));
        let dry_run = self.flags.changing.dry_run;
        let mut outcomes = if dry_run { Vec::new() } else { self.present.netlink.change(&requests)? }.into_iter();
        let (mut done, mut replaced) = (Vec::new(), Vec::new());
        for (order, place, step, sysctls, mut failure) in items {
            let mut head = Head::new("vip.apply").about(order.vip.addr);
            head.dry_run = dry_run;
            let mut applied = Applied { role: "serve", why: order.why.clone(), sysctls, ..Applied::default() };
            let Some((wanted, link)) = place else {
                // Told once; each renewal tries again.
                if let Some(holding) = self.held.get_mut(&order.vip.addr)
                    && !std::mem::take(&mut holding.is_there)
                    && order.renewal
                {
                    continue;
                }
                done.push(Done { addr: order.vip.addr, head, applied, failure });
                continue;
            };
            head = head.about(subject(&wanted, &link));
            let acts = matches!(step, AddStep::Add | AddStep::Change | AddStep::Renew);
            if acts
                && let Some(Err(refusal)) = outcomes.next()
                && refusal.errno != Errno::EEXIST
            {
                failure = Some(refused(&refusal, format!("add {} to", order.vip), &link.name));
            }
            let gained = !self.held.contains_key(&order.vip.addr);
            head.changed = Some(step == AddStep::Add && failure.is_none());
            head.renewal = step == AddStep::Renew && order.renewal;
            if let Some(Span(term)) = self.flags.lease.filter(|_| self.flags.changing.shows_actions() && gained) {
                head.actions.push(Action { op: "nft", text: lease::text(&order, term) });
            }
            if self.flags.changing.shows_actions() && acts {
                let verb = if step == AddStep::Add { "add" } else { "replace" };
                let text = format!("ip addr {verb} {} dev {} proto {}", wanted.prefix, link.name, wanted.proto);
                head.actions.push(Action { op: "address-add", text });
            }
            if failure.is_none() && !dry_run {
                let rounds = match (gained, order.renewal) {
                    (true, _) => usize::from(self.flags.announce),
                    (false, false) => usize::from(self.flags.announce).min(1),
                    (false, true) => 0,
                };
                let holding = self.held.entry(order.vip.addr).or_insert_with(|| Holding {
                    order: order.clone(),
                    address: wanted.clone(),
                    is_there: true,
                    forgiven: false,
                    bursts: Vec::new(),
                    asks: Some(now.after(ASK)),
                    contested: BTreeSet::new(),
                    defended: None,
                    repairs: Vec::new(),
                });
                holding.order = order.clone();
                (holding.is_there, holding.forgiven) = (true, false);
                let before = std::mem::replace(&mut holding.address, wanted.clone());
                if (before.prefix, before.ifindex) != (wanted.prefix, wanted.ifindex) {
                    // It moved to another interface or prefix: in one place only.
                    replaced.push(before);
                }
                if rounds > 0 {
                    holding.bursts.retain(|(at, _)| *at < now);
                    holding.bursts.push((now.after(AGAIN), usize::from(self.flags.announce)));
                    match self.announce(order.vip.addr, rounds) {
                        Ok(sent) => applied.announced = Some(sent),
                        Err(why) => failure = Some(why),
                    }
                }
            }
            applied.show = Some(Show::new(&wanted, &link));
            done.push(Done { addr: order.vip.addr, head, applied, failure });
        }
        if !replaced.is_empty() {
            let delete = |old: &Address| AddressRequest::Delete { prefix: old.prefix, ifindex: old.ifindex };
            // One that went with its interface is gone as it should be.
            let _ = self.present.netlink.change(&replaced.iter().map(delete).collect::<Vec<_>>())?;
        }
        if !self.flags.src_route.is_empty() {
            let planned = done.iter().filter(|one| dry_run && one.failure.is_none()).map(|one| one.addr);
            let serving: Vec<IpAddr> = self.serving().into_iter().chain(planned).collect();
            self.send_from(&serving, &self.named.clone(), &mut done)?;
        }
        if !dry_run {
            let failed = done.iter().filter(|one| one.failure.is_some() && !self.held.contains_key(&one.addr));
            let failed = failed.map(|one| one.addr).collect();
            self.end_leases(failed);
            self.present.look_again()?;
            self.read_back(&mut done);
        }
        Ok(done)
    }

    /// Puts what the kernel has now into the records.
    fn read_back(&self, done: &mut [Done]) {
        for one in done {
            let (Some(show), Some(holding)) = (&mut one.applied.show, self.held.get(&one.addr)) else { continue };
            let (address, link) = (&holding.address, self.present.link(holding.address.ifindex));
            let is_it = |other: &&Address| other.prefix == address.prefix && other.ifindex == address.ifindex;
            if let (Some(now), Some(link)) = (self.present.addresses.iter().find(is_it), link) {
                *show = self.leased(one.addr, Show::new(now, link));
            }
        }
    }

    fn leased(&self, addr: IpAddr, show: Show) -> Show {
        show.leased(self.leases.as_ref().and_then(|leases| leases.of(addr)))
    }

    /// Leases what is to be carried; without leases the rules of a run that was killed go.
    fn grant(&mut self, orders: &[Order]) -> Result<BTreeMap<IpAddr, Option<Failure>>, Failure> {
        let foreign = self.present.addresses.iter().filter(|address| !address.is_ours());
        let foreign = foreign.map(|address| address.prefix.addr).collect();
        match &mut self.leases {
            Some(leases) => Ok(leases.grant(orders, &foreign)),
            None if self.flags.changing.dry_run => Ok(BTreeMap::new()),
            None => {
                lease::end(None, &self.node, orders.iter().map(|order| order.vip.addr))?;
                Ok(BTreeMap::new())
            }
        }
    }

    /// Addresses that are no longer here need no lease.
    fn end_leases(&mut self, addresses: Vec<IpAddr>) {
        if let Err(failure) = lease::end(self.leases.as_mut(), &self.node, addresses.into_iter()) {
            crate::cli::out::complain(&self.who, &failure.sentence);
        }
    }

    /// Renews leases that are due, mends their rules, and gives up what has run out: that is lost, whatever is
    /// said of it next.
    fn keep_leases(&mut self, process: &Process) -> Result<Vec<Done>, Failure> {
        let Some(leases) = &mut self.leases else { return Ok(Vec::new()) };
        let healed = leases.heal();
        let renewed = leases.renew(self.held.values().map(|holding| &holding.order));
        let healed = healed.and_then(|mut first| {
            first.extend(leases.heal()?);
            Ok(first)
        });
        let lapsed = leases.lapsed(clock::boot());
        let mut done = Vec::new();
        for addr in or_complain(healed, process) {
            let mut one = self.told(addr, Vec::new(), Ok(0));
            (one.applied.announced, one.applied.repaired) = (None, true);
            done.push(one);
        }
        or_complain(renewed, process);
        if lapsed.is_empty() {
            return Ok(done);
        }
        // What could not be carried needs none; what could not be taken away is left closed.
        let is_here = |addr: IpAddr| self.present.addresses.iter().any(|one| one.prefix.addr == addr);
        self.end_leases(
            lapsed.iter().copied().filter(|addr| !self.held.contains_key(addr) && !is_here(*addr)).collect(),
        );
        let why = Some("its lease ran out".to_owned());
        let carried = self.held.iter().filter(|(addr, _)| lapsed.contains(addr));
        let orders: Vec<Order> =
            carried.map(|(_, holding)| Order { mine: false, why: why.clone(), ..holding.order.clone() }).collect();
        if !orders.is_empty() {
            done.extend(self.give_up(&orders, false, Deadline::after(STEP))?);
            self.tell()?;
        }
        Ok(done)
    }

    /// Says it once where others may take an address over that this kernel still answers for.
    fn warn_of_takers(&mut self, order: &Order) {
        let Some((serves, wait)) = self.flags.kernel_serves().zip(order.takers_wait()) else { return };
        if order.mine && serves > wait && self.warned.insert(order.vip.addr) {
            let (serves, wait, vip) = (Span(serves), Span(wait), order.vip.addr);
            let why = format!(
                "frozen, this kernel answers for {vip} for up to {serves}, and others take it over {wait} after the last word: for a moment both may have it (a shorter --lease, or longer intervals of vrrp run on all)"
            );
            crate::cli::out::complain(&self.who, &why);
        }
    }

    /// Takes away what is ours, and puts back what the kernel takes along.
    ///
    /// What is shared is carried on, without ARP, unless everything is `ending`.
    fn give_up(&mut self, orders: &[Order], ending: bool, deadline: Deadline) -> Result<Vec<Done>, Failure> {
        let dry_run = self.flags.changing.dry_run;
        let _locks = self.lock(&orders.iter().collect::<Vec<_>>(), deadline)?;
        self.present = Present::look()?;
        let before = self.present.addresses.clone();
        let shares = |addr: IpAddr| !ending && self.flags.share.contains(&addr);
        let leaving: Vec<Address> = before
            .iter()
            .filter(|one| one.is_ours() && orders.iter().any(|order| order.vip.addr == one.prefix.addr))
            .filter(|one| !(shares(one.prefix.addr) && share::is_shared(&self.present, one)))
            .cloned()
            .collect();
        let going = |address: &Address| leaving.contains(address);
        let mut requests = Vec::new();
        let mut along: Vec<Address> = Vec::new();
        let mut killed: BTreeMap<IpAddr, u64> = BTreeMap::new();
        for address in before.iter().filter(|address| going(address)) {
            if self.flags.kill_connections && !dry_run {
                // Before the address goes: the reset that tells the peer leaves from it.
                let connections = diag::connections(address.prefix.addr)?;
                let ended = connections.iter().filter(|connection| diag::destroy(connection).is_ok()).count();
                killed.insert(address.prefix.addr, ended as u64);
            }
            requests.push(AddressRequest::Delete { prefix: address.prefix, ifindex: address.ifindex });
            let dev = self.present.link(address.ifindex).map_or("", |link| link.name.as_str());
            let promotes = super::promotes_secondaries(dev)?;
            let taken = vip::taken_along(&before, address, promotes);
            along.extend(taken.into_iter().filter(|other| !going(other)).cloned());
        }
        // In the same send: what was on the interface and is not meant stays there.
        let deletions = requests.len();
        requests.extend(along.into_iter().map(AddressRequest::Add));
        let mut sysctls: BTreeMap<IpAddr, Settings> = BTreeMap::new();
        for order in orders.iter().filter(|order| shares(order.vip.addr)) {
            let addr = order.vip.addr;
            let there = before.iter().any(|one| one.prefix.addr == addr && share::is_shared(&self.present, one));
            if !dry_run && addr.is_ipv4() {
                sysctls.insert(addr, share::ensure(&self.dev_of(order)?, &self.node)?);
            }
            if !there {
                requests.extend(share::wanted(&self.present, addr).map(AddressRequest::Add));
            }
        }
        let mut unsourced = BTreeMap::new();
        if !self.flags.src_route.is_empty() {
            // IPv6 routes would outlive their source.
            let addresses: BTreeSet<IpAddr> = orders.iter().map(|order| order.vip.addr).collect();
            unsourced = source::settle(&mut self.present, &[], &addresses, dry_run).unwrap_or_else(|failure| {
                // That is no reason to keep the address.
                crate::cli::out::complain(&self.who, &failure.sentence);
                BTreeMap::new()
            });
        }
        let outcomes = if dry_run { Vec::new() } else { self.present.netlink.change(&requests)? };
        if !dry_run {
            self.present.look_again()?;
            // One that could not be taken away is left closed.
            let addresses = &self.present.addresses;
            let is_there =
                |old: &Address| addresses.iter().any(|one| one.prefix == old.prefix && one.ifindex == old.ifindex);
            let stays = |addr| leaving.iter().any(|old| old.prefix.addr == addr && is_there(old));
            self.end_leases(orders.iter().map(|order| order.vip.addr).filter(|addr| !stays(*addr)).collect());
        }
        let mut done = Vec::new();
        for order in orders {
            let ours: Vec<(usize, &Address)> = before
                .iter()
                .filter(|address| going(address))
                .enumerate()
                .filter(|(_, address)| address.prefix.addr == order.vip.addr)
                .collect();
            let held = self.held.remove(&order.vip.addr).is_some() | self.shared.remove(&order.vip.addr).is_some();
            let sharing = !ending && self.flags.share.contains(&order.vip.addr);
            if sharing {
                self.shared.insert(order.vip.addr, order.clone());
            }
            let mut head = Head::new("vip.apply").about(order.vip.addr);
            head.dry_run = dry_run;
            let role = if sharing { "share" } else { "leave" };
            let mut applied = Applied { role, why: order.why.clone(), ..Applied::default() };
            applied.sysctls = sysctls.remove(&order.vip.addr).unwrap_or_default();
            applied.connections_killed = killed.get(&order.vip.addr).copied();
            let mut failure = None;
            if let Some(sourced) = unsourced.remove(&order.vip.addr).filter(|_| self.flags.changing.shows_actions()) {
                head.actions.extend(sourced.actions);
            }
            for (idx, address) in ours {
                let dev = self.present.link(address.ifindex).map_or_else(|| "?".to_owned(), |link| link.name.clone());
                let is_it = |other: &Address| other.prefix == address.prefix && other.ifindex == address.ifindex;
                if self.flags.changing.shows_actions() {
                    let text = format!("ip addr del {} dev {dev}", address.prefix);
                    head.actions.push(Action { op: "address-del", text });
                }
                if dry_run || !self.present.addresses.iter().any(is_it) {
                    applied.removed.push(address.prefix.to_string());
                } else if let Some(Err(refusal)) = outcomes.get(idx).filter(|_| idx < deletions) {
                    failure = Some(refused(refusal, format!("delete {} from", address.prefix), &dev));
                }
            }
            let carried = |addresses: &[Address]| {
                addresses.iter().any(|one| one.prefix.addr == order.vip.addr && share::is_shared(&self.present, one))
            };
            let began = sharing && !carried(&before) && (dry_run || carried(&self.present.addresses));
            head.changed = Some(!applied.removed.is_empty() || began);
            let foreign = |one: &&Address| one.prefix.addr == order.vip.addr && !one.is_ours();
            if let Some(foreign) = self.present.addresses.iter().find(foreign).filter(|_| held || !self.flags.follow) {
                let dev = self.present.link(foreign.ifindex).map_or("?", |link| link.name.as_str());
                applied.why = Some(format!("{} on {dev} is not ours: it is left, and answers", foreign.prefix));
            }
            // Of an address that was not here and is not now there is nothing to say in a stream.
            if head.changed == Some(true) || failure.is_some() || held || !self.flags.follow {
                done.push(Done { addr: order.vip.addr, head, applied, failure });
            }
        }
        Ok(done)
    }

    /// Gives everything back: the end.
    fn release(&mut self, why: &str) -> Result<Vec<Done>, Failure> {
        let carried = self.held.values().map(|holding| &holding.order).chain(self.shared.values());
        let orders: Vec<Order> =
            carried.map(|order| Order { mine: false, why: Some(why.to_owned()), ..order.clone() }).collect();
        let mut done = if orders.is_empty() { Vec::new() } else { self.give_up(&orders, true, Deadline::after(STEP))? };
        let sent_on: Vec<IpAddr> = self.forward.orders().map(|order| order.vip.addr).collect();
        done.extend(self.send_on_no_more(&sent_on, why));
        self.forward.sweep(&mut self.present)?;
        if self.flags.vmac {
            vmac::sweep(&mut self.present, &self.node)?;
        }
        if !self.flags.share.is_empty() {
            share::sweep(&self.present, &self.node)?;
        }
        self.tell()?;
        Ok(done)
    }

    fn speaker(&mut self, link: &Link) -> Result<usize, Failure> {
        if let Some(known) = self.speakers.iter().position(|speaker| speaker.link.index == link.index) {
            self.speakers[known].link = link.clone();
            return Ok(known);
        }
        self.speakers.push(Speaker::open(link)?);
        Ok(self.speakers.len() - 1)
    }

    /// Tells the neighbours of one address.
    fn announce(&mut self, addr: IpAddr, rounds: usize) -> Result<u64, Failure> {
        let Some(holding) = self.held.get(&addr) else { return Ok(0) };
        let (ifindex, vrid) = (holding.address.ifindex, holding.order.vrid.filter(|_| self.flags.vmac));
        let Some(link) = self.present.link(ifindex).cloned() else { return Ok(0) };
        if link.loopback || link.mac.is_none() {
            return Ok(0);
        }
        let speaker = self.speaker(&link)?;
        let deadline = clock::boot().after(SEND);
        self.speakers[speaker].announce(&mut self.present, addr, vrid, rounds, deadline)
    }

    /// When something is to be said or asked next.
    fn next_due(&self) -> Option<Tick> {
        self.held
            .values()
            .flat_map(|holding| {
                let bursts = holding.bursts.iter().map(|(at, _)| *at);
                bursts.chain(holding.asks).chain(holding.order.until)
            })
            .chain(self.leases.as_ref().and_then(|leases| leases.next_due(self.held.values().map(|one| &one.order))))
            .chain(self.forward.orders().filter_map(|order| order.until))
            .chain(self.forward.due())
            .min()
    }

    /// Announcements and questions that are due; a failure is told and tried again.
    fn speak(&mut self, now: Tick, process: &Process) {
        for addr in self.held.keys().copied().collect::<Vec<_>>() {
            let Some(holding) = self.held.get_mut(&addr) else { continue };
            let due: usize = holding.bursts.iter().filter(|(at, _)| *at <= now).map(|(_, rounds)| rounds).sum();
            holding.bursts.retain(|(at, _)| *at > now);
            let asks = holding.asks.is_some_and(|at| at <= now);
            if asks {
                holding.asks = None;
            }
            let ifindex = holding.address.ifindex;
            if due > 0
                && let Err(failure) = self.announce(addr, due)
            {
                process.complain(&format!("{addr} was not announced: {}", failure.sentence));
                if let Some(holding) = self.held.get_mut(&addr) {
                    holding.bursts.push((now.after(AGAIN), 1));
                }
            }
            if asks
                && let Some(link) = self.present.link(ifindex).cloned()
                && let Ok(speaker) = self.speaker(&link)
            {
                self.speakers[speaker].ask(addr, now.after(SEND));
            }
        }
    }

    /// Somebody else claims an address that is carried here: the neighbours hear of us again.
    fn hear_claims(&mut self, now: Tick) -> Result<Vec<Done>, Failure> {
        let wanted: Vec<IpAddr> = self.held.keys().copied().collect();
        let mut claims = BTreeSet::new();
        for speaker in &self.speakers {
            claims.extend(speaker.claims(&wanted)?);
        }
        let ours: BTreeSet<Mac> = self.present.links.iter().filter_map(|link| link.mac).collect();
        let mut done = Vec::new();
        for (addr, mac) in claims.into_iter().filter(|(_, mac)| !ours.contains(mac)) {
            let Some(holding) = self.held.get_mut(&addr) else { continue };
            let news = holding.contested.insert(mac);
            if let Some(next) = holding.defended.map(|last| last.after(DEFEND)).filter(|next| now < *next) {
                // Answered when it may be: the last word must be ours.
                if !holding.bursts.iter().any(|(at, _)| *at <= next) {
                    holding.bursts.push((next, 1));
                }
                continue;
            }
            holding.defended = Some(now);
            // Not at once: where the other is the new owner, the word to give up is on its way here. Claims
            // come in bursts; once more behind this one.
            holding.bursts.extend([(now.after(HEED), 1), (now.after(ASK), 1)]);
            let contested: Vec<String> = holding.contested.iter().map(ToString::to_string).collect();
            if news {
                done.push(self.told(addr, contested, Ok(0)));
            }
        }
        Ok(done)
    }

    /// A record about an address that is carried.
    fn told(&self, addr: IpAddr, contested_by: Vec<String>, announced: Result<u64, Failure>) -> Done {
        let mut head = Head::new("vip.apply").about(addr);
        head.changed = Some(false);
        let mut applied = Applied { role: "serve", contested_by, ..Applied::default() };
        let failure = announced.map(|sent| applied.announced = Some(sent)).err();
        if let Some(holding) = self.held.get(&addr)
            && let Some(link) = self.present.link(holding.address.ifindex)
        {
            head = head.about(subject(&holding.address, link));
            applied.show = Some(self.leased(addr, Show::new(&holding.address, link)));
        }
        Done { addr, head, applied, failure }
    }

    /// Puts back what somebody else took away.
    fn repair(&mut self, changes: &[Change], now: Tick, process: &Process) -> Result<Vec<Done>, Failure> {
        let is_lost = |change: &Change| matches!(change, Change::Route { route, gone: true } if route::is_half(route));
        let concerns_source = |change: &Change| match change {
            Change::Route { route, .. } => route.dst.len == 0 || route::is_half(route),
            other => *other == Change::Overrun,
        };
        let concerns_way = |change: &Change| match change {
            Change::Route { route, gone } => *gone && route.is_ours() && route.is_host(),
            other => *other == Change::Overrun,
        };
        let mut done = Vec::new();
        if self.flags.forward && changes.iter().any(concerns_way) {
            self.forward.look();
            done.extend(self.settle_forward());
            for one in &mut done {
                one.applied.repaired = one.applied.via.is_some();
            }
        }
        done.extend(self.repair_addresses(changes, now, process)?);
        if !self.flags.src_route.is_empty() && changes.iter().any(concerns_source) {
            done.extend(self.send_from_again(changes.iter().any(is_lost))?);
        }
        Ok(done)
    }

    fn repair_addresses(&mut self, changes: &[Change], now: Tick, process: &Process) -> Result<Vec<Done>, Failure> {
        let relevant = changes.iter().any(|change| match change {
            Change::Overrun => true,
            Change::Route { .. } => false,
            Change::Link { link, .. } => self.held.values().any(|holding| {
                // Made again it has another number.
                holding.address.ifindex == link.index || !holding.is_there
            }),
            Change::Address { address, gone } => *gone && self.held.contains_key(&address.prefix.addr),
        });
        if !relevant {
            return Ok(Vec::new());
        }
        self.present = Present::look()?;
        let lost: Vec<IpAddr> = self
            .held
            .iter()
            .filter(|(_, holding)| {
                let wanted = &holding.address;
                let is_it = |other: &Address| other.prefix == wanted.prefix && other.ifindex == wanted.ifindex;
                // What was not elected again in time is not put back: it was we who stood still.
                let expired = holding.order.until.is_some_and(|until| now >= until);
                !expired && !self.present.addresses.iter().any(is_it)
            })
            .map(|(addr, _)| *addr)
            .collect();
        let mut done = Vec::new();
        for addr in lost {
            let Some(holding) = self.held.get_mut(&addr) else { continue };
            // The kernel's own count of a lifetime is rounded, and may end before ours.
            let early = self.flags.lifetime.map_or(Duration::ZERO, |_| ROUNDING);
            if holding.order.until.is_some_and(|until| now.after(early) >= until) {
                // Nobody took it: its time is over.
                continue;
            }
            holding.repairs.retain(|at| now.since(*at) < MINUTE);
            holding.repairs.push(now);
            let often = holding.repairs.len() == 5;
            let order = Order { renewal: false, ..holding.order.clone() };
            if often {
                process.complain(&format!(
                    "{addr} was taken away five times within a minute: a network manager prunes it (systemd-networkd: KeepConfiguration=yes; NetworkManager: leave the interface unmanaged)"
                ));
            }
            for mut one in self.take(vec![order], Deadline::after(STEP))? {
                one.applied.repaired = one.failure.is_none();
                done.push(one);
            }
        }
        Ok(done)
    }

    /// Addresses whose election was not said again in time.
    ///
    /// If it was this process that did not run, what says it again may not have run either: once it gets
    /// a moment more.
    fn expire(&mut self, lag: Duration, now: Tick) -> Result<Vec<Done>, Failure> {
        // With a lease the kernel has stopped meanwhile, whoever stood still.
        for holding in self.held.values_mut().filter(|_| lag > PAUSE && self.leases.is_none()) {
            if let Some(until) = holding.order.until.filter(|until| now >= *until && !holding.forgiven) {
                (holding.order.until, holding.forgiven) = (Some(until.max(now.after(PAUSE * 2))), true);
            }
        }
        let expired = |holding: &&Holding| holding.order.until.is_some_and(|until| now >= until);
        let orders: Vec<Order> = self
            .held
            .values()
            .filter(expired)
            .map(|holding| Order {
                mine: false,
                why: Some("its election was not said again in time".to_owned()),
                ..holding.order.clone()
            })
            .collect();
        let old: Vec<IpAddr> = self
            .forward
            .orders()
            .filter(|order| order.until.is_some_and(|until| now >= until))
            .map(|order| order.vip.addr)
            .collect();
        let mut done = Vec::new();
        if !old.is_empty() {
            done.extend(self.send_on_no_more(&old, "its election was not said again in time"));
            self.forward.sweep(&mut self.present)?;
        }
        if !orders.is_empty() {
            done.extend(self.give_up(&orders, false, Deadline::after(STEP))?);
            self.tell()?;
        }
        Ok(done)
    }

    /// Looks again whether what is sent on is sent where it should be.
    fn look_after(&mut self, now: Tick) -> Result<Vec<Done>, Failure> {
        if self.forward.due().is_some_and(|due| now >= due) {
            self.forward.look();
        }
        let done = self.settle_forward();
        self.forward.sweep(&mut self.present)?;
        Ok(done)
    }

    /// With `--only`: addresses of ours that are not in the list.
    fn others(&self) -> Vec<Order> {
        let Some(only) = &self.flags.only else { return Vec::new() };
        let other = |address: &&Address| address.is_ours() && !only.contains(&address.prefix.addr);
        let order = |address: &Address| Order {
            vip: address.prefix,
            dev: None,
            vrid: None,
            mine: false,
            held: false,
            master: None,
            members: Vec::new(),
            elected: None,
            epoch: None,
            standby: None,
            renewal: false,
            said: clock::boot(),
            until: None,
            adverts: None,
            why: Some("it is not in --only".to_owned()),
        };
        self.present.addresses.iter().filter(other).map(order).collect()
    }

    /// Whether an order concerns this run.
    fn is_meant(&self, order: &Order) -> bool {
        self.flags.only.as_ref().is_none_or(|only| only.contains(&order.vip.addr))
    }
}

pub(super) fn refused(refusal: &netlink::Refusal, doing: String, dev: &str) -> Failure {
    let (errno, said) = (refusal.errno, refusal.said.clone());
    sys::Error::Call { doing, object: dev.to_owned(), errno, said }.into()
}

fn once(applier: &mut Applier<'_>, process: &mut Process) -> Result<Exit, Failure> {
    let deadline = process.deadline(Duration::ZERO);
    let mut complaints = Complaints::new(&process.who);
    let mut lines = Lines::stdin();
    let mut orders = applier.others();
    let mut read = false;
    while let Some(got) = lines.next()? {
        match got {
            Got::Line(number, text) => match read_order(text, clock::boot()) {
                Ok(order) => {
                    read |= order.is_some();
                    orders.extend(order.filter(|order| applier.is_meant(order)));
                }
                Err(why) => complaints.line(number, &why),
            },
            Got::Malformed(number, why) => complaints.line(number, &why),
        }
    }
    let mut exit = complaints.finish();
    if !read && applier.flags.only.is_none() {
        if exit == Exit::Yes {
            process.complain("no election was read: nothing is changed");
        }
        return Ok(exit.and(Exit::Undecided));
    }
    for done in applier.step(orders, deadline)? {
        exit = exit.and(report(done, process, |head, applied, process| process.out.record(head, applied))?);
    }
    Ok(exit)
}

/// Prints a record, and its failure as a sentence.
fn report(
    done: Done,
    process: &mut Process,
    mut print: impl FnMut(&Head, &Applied, &mut Process) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let Done { mut head, applied, failure, .. } = done;
    let exit = failure.as_ref().map_or(Exit::Yes, |failure| failure.exit);
    if let Some(failure) = &failure {
        process.complain(&failure.sentence);
        head.error = Some(failure.body());
    }
    print(&head, &applied, process)?;
    Ok(exit)
}

/// Why a stream has ended.
enum Ended {
    Input,
    Silence,
    Time,
    Signal(Signal),
    Reader,
}

fn follow(applier: &mut Applier<'_>, process: &mut Process) -> Result<Exit, Failure> {
    let mut pump = Pump::new(&process.node, process.form)?;
    let mut complaints = Complaints::new(&process.who);
    let outcome = match follow_on(applier, process, &mut pump, &mut complaints) {
        Err(failure) if failure.is_reader_gone() => Ok(Ended::Reader),
        outcome => outcome,
    };
    let planned = matches!(outcome, Ok(Ended::Time)) && applier.flags.duration.is_some();
    let keeps = planned || (applier.flags.on_eof == OnEof::Keep && matches!(outcome, Ok(Ended::Input)));
    if !keeps {
        let why = match &outcome {
            Ok(Ended::Input) => "the input has ended",
            Ok(Ended::Silence) => "the input fell silent",
            Ok(Ended::Signal(_)) => "it was told to stop",
            Ok(Ended::Reader) => "nobody reads what is done",
            Ok(Ended::Time) => "its time is over",
            Err(_) => "a failure",
        };
        // Before anything else: whoever ends this run may count on it.
        let released = applier.release(why);
        for done in or_complain(released, process) {
            // Nobody may be left to read it.
            let _ = report(done, process, |head, applied, _| pump.stream.record(head.clone(), applied));
        }
    }
    let exit = match outcome? {
        Ended::Signal(signal) => pump.die(signal),
        _ if planned => Exit::Yes,
        _ => Exit::No,
    };
    pump.stream.finish();
    Ok(exit.and(complaints.finish()))
}

fn follow_on(
    applier: &mut Applier<'_>,
    process: &mut Process,
    pump: &mut Pump,
    complaints: &mut Complaints,
) -> Result<Ended, Failure> {
    let has_routes = applier.flags.forward || !applier.flags.src_route.is_empty();
    let mut monitor = if has_routes { Netlink::monitor_with_routes()? } else { Netlink::monitor()? };
    let mut feed = Feed::default();
    let stdin = std::io::stdin();
    let end = process.stream_end(applier.flags.duration);
    let silence = applier.flags.silence();
    let refresh = applier.flags.refresh.map(|refresh| refresh.0);
    let mut refreshes = refresh.map(|refresh| clock::boot().after(refresh));
    let mut spoken = clock::boot();
    // A short lease must not end what has not begun: nothing is held until the first word.
    let (mut begun, mut forgiven) = (applier.leases.is_none(), false);
    let mut done = applier.step(applier.others(), Deadline::after(STEP))?;
    loop {
        for one in done.drain(..) {
            report(one, process, |head, applied, _| pump.stream.record(head.clone(), applied))?;
        }
        let silent = silence.filter(|_| begun).map(|silence| spoken.after(silence));
        let deadline = [end, silent, refreshes, applier.next_due()].into_iter().flatten().min();
        let (woken, others) = {
            let speakers = applier.speakers.iter().flat_map(Speaker::fds);
            let own = [stdin.as_fd(), monitor.as_fd()].into_iter().chain(applier.forward.fd());
            let leases = applier.leases.as_ref().map(Leases::as_fd);
            let fds: Vec<_> = own.clone().chain(speakers).chain(leases).collect();
            (pump.wait(&fds, deadline)?, own.count())
        };
        let ready = match woken {
            Woken::Ready(ready) => ready,
            Woken::Signal(signal) => return Ok(Ended::Signal(signal)),
        };
        let now = clock::boot();
        let lag = deadline.map_or(Duration::ZERO, |deadline| now.since(deadline));
        // First: what ran out while this process stood still is lost, and not defended.
        let kept = applier.keep_leases(process);
        done.extend(or_complain(kept, process));
        if ready.first() == Some(&true) {
            let mut orders = Vec::new();
            for (number, line) in feed.take()? {
                match line.and_then(|text| read_order(&text, now)) {
                    Ok(order) => {
                        if order.is_some() {
                            (spoken, begun, forgiven) = (now, true, false);
                        }
                        orders.extend(order.filter(|order| applier.is_meant(order)));
                    }
                    Err(why) => complaints.line(number, &why),
                }
            }
            let asked = orders.clone();
            match applier.step(orders, Deadline::after(STEP)) {
                Ok(more) => done.extend(more.into_iter().filter(is_news)),
                // One step that failed is told; the next one may do.
                Err(failure) if !asked.is_empty() => {
                    process.complain(&failure.sentence);
                    for order in asked {
                        let mut head = Head::new("vip.apply").about(order.vip.addr);
                        head.error = Some(failure.body());
                        let role = if order.mine { "serve" } else { "leave" };
                        pump.stream.record(head, &Applied { role, ..Applied::default() })?;
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        if applier.leases.is_some() {
            let (kept, expired) = (applier.keep_leases(process), applier.expire(lag, now));
            done.extend(or_complain(kept, process));
            done.extend(or_complain(expired, process));
        }
        if ready.get(1) == Some(&true) {
            let changes = monitor.changes()?;
            let repaired = applier.repair(&changes, now, process);
            done.extend(or_complain(repaired, process));
        }
        if others > 2 && ready.get(2) == Some(&true) {
            applier.forward.hear()?;
        }
        if ready.iter().skip(others).any(|ready| *ready) {
            let claimed = applier.hear_claims(now);
            done.extend(or_complain(claimed, process));
        }
        let expired = applier.expire(lag, now);
        done.extend(or_complain(expired, process));
        let looked = applier.look_after(now);
        done.extend(or_complain(looked, process));
        applier.speak(now, process);
        if let (Some(refresh), Some(due)) = (refresh, refreshes)
            && now >= due
        {
            for holding in applier.held.values_mut() {
                holding.bursts.push((now, 1));
            }
            applier.speak(now, process);
            refreshes = Some(due.after(refresh).max(now));
        }
        if silent.is_some_and(|silent| now >= silent) && spoken.after(silence.unwrap_or_default()) <= now {
            if lag > PAUSE && !forgiven {
                // It was we who stood still, perhaps with whoever speaks: once it gets its time anew.
                (spoken, forgiven) = (now, true);
                continue;
            }
            let what = if applier.leases.is_some() { "lease" } else { "lifetime" };
            process.complain(&format!("the input fell silent for as long as the {what}: everything is given back"));
            return Ok(Ended::Silence);
        }
        if feed.is_ended() {
            return Ok(Ended::Input);
        }
        if end.is_some_and(|end| now >= end) {
            return Ok(Ended::Time);
        }
    }
}

/// One address that failed must not be the end of all others.
fn or_complain<T: Default>(outcome: Result<T, Failure>, process: &Process) -> T {
    outcome.unwrap_or_else(|failure| {
        process.complain(&failure.sentence);
        T::default()
    })
}

/// What a stream tells: changes, failures and announcements, not that all is as it was.
fn is_news(done: &Done) -> bool {
    // An address that was given up is told also where somebody else's stays.
    let left = done.applied.role == "leave";
    left || done.failure.is_some()
        || done.head.changed == Some(true)
        || done.applied.announced.is_some_and(|sent| sent > 0)
}
