//! `bucket watch`: rules, address, membership and MAC, as they are lost.

use super::backend::{Seen, Store, Where, listed_with_table, table};
use super::{carried, is_joined, join, silence, wanted_address};
use crate::cli::args::{self, flags};
use crate::cli::stream::{Pump, Stream, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Head;
use crate::record::bucket::{WATCH_COLUMNS, WATCH_SCHEMA, Watch};
use crate::sys::clock::{self, Deadline};
use crate::sys::netlink::{AddressRequest, Change, Netlink};
use crate::sys::nft::{Heard, Monitor, Nft, changed_by_others};
use crate::sys::packet::PacketSocket;
use crate::sys::state::Lock;
use crate::sys::sysctl;
use crate::types::cluster::Cluster;
use crate::types::link::Link;
use crate::types::net::{Mac, Prefix};
use crate::types::time::{Span, Tick};
use crate::wire::arp::{self, Form};
use crate::wire::nft::{cluster, table_name};
use crate::wire::probe::{self, Kind, Probe};
use crate::wire::{ethernet, ndp};
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "watch",
    about: "Report as it happens that rules, address, membership, setting or MAC were lost or changed",
    examples: "bucket watch 192.0.2.10\n\
               bucket watch --repair   put back what a firewall's reload or a network manager took",
    args: flags::<Flags>,
    schemas: &[WATCH_SCHEMA],
    columns: WATCH_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IPs [default: all that are there at the start]
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vips: Vec<IpAddr>,

    /// Put back at once what was lost; buckets only while their lease would still hold
    #[arg(long)]
    repair: bool,

    /// End after D
    #[arg(long = "for", value_name = "D")]
    duration: Option<Span>,
}

/// From the first word of a change to the look at it. Whoever changes rules in the course of a take-over
/// changes those of the other family too, and clients wait for both: a listing costs as much as a commit.
const SETTLE: Duration = Duration::from_millis(25);
/// The kernel tells nobody that a group was left or a setting changed, so that is looked for this often.
const LOOK: Duration = Duration::from_secs(1);
/// What was mended is announced at once and again after so long: for a second (`locktime` of arp(7)) a
/// neighbour may hold on to an answer that it got while the rules were lost.
const AGAIN: Duration = Duration::from_millis(1500);
/// How long an announcement waits for room in the interface's queue.
const PATIENCE: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_secs(5);

/// What is wrong with one cluster IP; each is told once, when it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Faults {
    rules_lost: bool,
    rules_changed: bool,
    address_lost: bool,
    membership_lost: bool,
    mac_changed: bool,
    setting_lost: bool,
}

impl Faults {
    fn each(self) -> [(&'static str, bool); 6] {
        [
            ("rules-lost", self.rules_lost),
            ("rules-changed", self.rules_changed),
            ("address-lost", self.address_lost),
            ("membership-lost", self.membership_lost),
            ("mac-changed", self.mac_changed),
            ("setting-lost", self.setting_lost),
        ]
    }
}

/// One cluster IP.
struct Watched {
    vip: IpAddr,
    /// The rules when they were last listed and whole, and when that was: what is left of a lease counts from
    /// there, whoever renewed it since.
    good: Option<(Seen, Tick)>,
    faults: Faults,
    /// When what was mended is announced once more.
    again: Option<Tick>,
}

struct Watcher {
    nft: Nft,
    netlink: Netlink,
    store: Store,
    repair: bool,
    watched: Vec<Watched>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let place = Where::nft();
    let store = Store::open(&place, "watch", flags.vips.first().copied(), process, Deadline::after(STEP))?;
    let Store::Nft(nft) = &store else { return Err(Failure::usage("watch is for nft")) };
    let nft = nft.clone();
    // Listening starts before the first look, so that nothing falls between.
    let mut rules = Monitor::open()?;
    let mut links = Netlink::monitor()?;
    let vips = if flags.vips.is_empty() { store.all()? } else { flags.vips.clone() };
    for vip in &flags.vips {
        store.need("watch", *vip)?;
    }
    let watched =
        vips.into_iter().map(|vip| Watched { vip, good: None, faults: Faults::default(), again: None }).collect();
    let mut watcher = Watcher { nft, netlink: Netlink::open()?, store, repair: flags.repair, watched };
    let mut pump = Pump::new(&process.node, process.form)?;
    let end = process.stream_end(flags.duration);
    watcher.present(&mut pump.stream)?;
    let ears = watcher.ears(process)?;
    let (mut heard, mut settled): (Vec<Heard>, Option<Tick>) = (Vec::new(), None);
    loop {
        let woken = {
            let mut fds = vec![rules.as_fd(), links.as_fd()];
            fds.extend(ears.iter().map(|(_, socket)| socket.as_fd()));
            let look = settled.unwrap_or_else(|| clock::boot().after(LOOK));
            let again = watcher.watched.iter().filter_map(|watched| watched.again);
            pump.wait(&fds, again.chain(end).chain([look]).min())?
        };
        if let Woken::Signal(signal) = woken {
            return Ok(pump.die(signal));
        }
        for (link, socket) in &ears {
            watcher.answer(link, socket, &process.node);
        }
        watcher.announce_again(process);
        let news = rules.heard()?;
        if settled.is_none() && news.iter().any(|news| !matches!(news, Heard::Generation(_))) {
            settled = Some(clock::boot().after(SETTLE));
        }
        let changes = links.changes()?;
        if news.contains(&Heard::Overrun) || changes.contains(&Change::Overrun) {
            for watched in &watcher.watched {
                let record = Watch { event: "overrun", dev: None, repaired: None };
                pump.stream.record(Head::new("bucket.watch").about(watched.vip), &record)?;
            }
        }
        heard.extend(news);
        if settled.is_none_or(|settled| clock::boot() >= settled) {
            watcher.look(&heard, process, &mut pump.stream)?;
            heard.clear();
            settled = None;
        }
        if end.is_some_and(|end| clock::boot() >= end) {
            pump.stream.finish();
            return Ok(Exit::Yes);
        }
    }
}

impl Watcher {
    fn present(&mut self, stream: &mut Stream) -> Result<(), Failure> {
        for watched in &mut self.watched {
            let seen = self.store.look(watched.vip)?;
            let dev = seen.as_ref().and_then(|seen| seen.cluster.as_ref()).map(|cluster| cluster.dev.clone());
            if let Some(seen) = seen {
                watched.good = Some((seen, clock::boot()));
                let record = Watch { event: "present", dev, repaired: None };
                stream.record(Head::new("bucket.watch").about(watched.vip), &record)?;
            }
        }
        Ok(())
    }

    /// A socket on each interface, for the probes of `bucket check --wire`.
    fn ears(&mut self, process: &Process) -> Result<Vec<(Link, PacketSocket)>, Failure> {
        let links = self.netlink.links()?;
        let devs: Vec<&String> = self.clusters().map(|cluster| &cluster.dev).collect();
        let mut ears = Vec::new();
        for link in links.into_iter().filter(|link| devs.contains(&&link.name)) {
            // Watching goes on without: only probes are not answered.
            match PacketSocket::open_as_it_is(&link, probe::ETHERTYPE) {
                Ok(socket) => ears.push((link, socket)),
                Err(error) => process.complain(&format!("{error} (bucket check --wire elsewhere will not hear us)")),
            }
        }
        Ok(ears)
    }

    fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.watched.iter().filter_map(|watched| watched.good.as_ref()?.0.cluster.as_ref())
    }

    /// Answers whoever asks for one of our MACs, by unicast.
    fn answer(&self, link: &Link, socket: &PacketSocket, node: &str) {
        // A flood of questions must not keep the watch from its work.
        const ROUNDS: usize = 64;
        let mut buffer = [0; 2048];
        for _ in 0..ROUNDS {
            let Ok(Some(length)) = socket.receive(&mut buffer) else { return };
            let Some(question) = buffer.get(..length).and_then(Probe::decode) else { continue };
            let ours = self.clusters().any(|cluster| cluster.dev == link.name && cluster.mac == question.to);
            let (true, Kind::Ask, Some(from)) = (ours, question.kind, link.mac) else { continue };
            let answer =
                Probe { to: question.from, from, kind: Kind::Answer, nonce: question.nonce, node: node.to_owned() };
            // A full queue loses the answer; who asks says so.
            let _ = socket.send_all(&[&answer.encode()], clock::boot());
        }
    }

    /// Looks at all, and tells what is newly wrong.
    fn look(&mut self, heard: &[Heard], process: &Process, stream: &mut Stream) -> Result<(), Failure> {
        self.nft = self.nft.until(Deadline::after(STEP));
        self.store = Store::Nft(self.nft.clone());
        for idx in 0..self.watched.len() {
            let Some(watched) = self.watched.get(idx) else { continue };
            let name = table_name(watched.vip);
            let news = changed_by_others(heard, &name, None);
            let (faults, seen) = self.faults(watched, news)?;
            let before = watched.faults;
            if let (Some(watched), Some(seen)) = (self.watched.get_mut(idx), seen) {
                watched.good = Some((seen, clock::boot()));
            }
            let Some(watched) = self.watched.get(idx) else { continue };
            let dev =
                watched.good.as_ref().and_then(|(good, _)| good.cluster.as_ref()).map(|cluster| cluster.dev.clone());
            let vip = watched.vip;
            let begun: Vec<&'static str> = faults
                .each()
                .into_iter()
                .zip(before.each())
                .filter(|(now, then)| now.1 && !then.1)
                .map(|(now, _)| now.0)
                .collect();
            let mut repaired = None;
            if self.repair && faults != Faults::default() {
                let outcome = self.mend(idx, faults);
                if let Err(failure) = &outcome
                    && !begun.is_empty()
                {
                    process.complain(&failure.sentence);
                }
                repaired = Some(matches!(outcome, Ok(true)));
                if repaired == Some(true) {
                    self.announce(idx, process);
                    if let Some(watched) = self.watched.get_mut(idx) {
                        watched.again = Some(clock::boot().after(AGAIN));
                    }
                }
            }
            for event in begun {
                let record = Watch { event, dev: dev.clone(), repaired };
                stream.record(Head::new("bucket.watch").about(vip), &record)?;
            }
            if let Some(watched) = self.watched.get_mut(idx) {
                // What was mended and is lost again is told again.
                watched.faults = if repaired == Some(true) { Faults::default() } else { faults };
            }
        }
        Ok(())
    }

    fn faults(&self, watched: &Watched, news: bool) -> Result<(Faults, Option<Seen>), Failure> {
        let mut faults = Faults::default();
        let mut netlink = Netlink::open()?;
        let vip = watched.vip;
        // The rules are listed only when the kernel said that they changed, or they were wrong.
        let look = news || watched.good.is_none() || watched.faults.rules_lost || watched.faults.rules_changed;
        let mut seen = None;
        if look {
            match listed_with_table(&self.nft, vip) {
                // A first rule that somebody changed.
                Err(failure) if failure.exit == Exit::BadInput => faults.rules_changed = true,
                Err(failure) => return Err(failure),
                Ok(None) => faults.rules_lost = watched.good.is_some(),
                Ok(Some((listed, own))) => {
                    for wanted in cluster::tables(&listed.cluster, &listed.held).map_err(Failure::usage)? {
                        let got = if wanted.family == own.family {
                            Some(own.clone())
                        } else {
                            table(&self.nft, wanted.family, vip)?
                        };
                        faults.rules_changed |= got.is_none_or(|got| !cluster::differences(&wanted, &got).is_empty());
                    }
                    seen = Some(Seen::from(listed)).filter(|_| !faults.rules_changed);
                }
            }
        }
        let cluster =
            seen.as_ref().or(watched.good.as_ref().map(|(good, _)| good)).and_then(|seen| seen.cluster.clone());
        let Some(cluster) = cluster else { return Ok((faults, seen)) };
        let Some(link) = netlink.links()?.into_iter().find(|link| link.name == cluster.dev) else {
            faults.address_lost = true;
            return Ok((faults, seen));
        };
        faults.address_lost = !carried(&mut netlink, vip)?
            .iter()
            .any(|address| address.ifindex == link.index && address.prefix == Prefix::host(vip));
        faults.membership_lost = !is_joined(&mut netlink, &link, cluster.mac)?;
        faults.mac_changed = link.mac != Some(cluster.made_from);
        faults.setting_lost = is_loud(&cluster)?;
        Ok((faults, seen))
    }

    /// Puts back what was lost, in the order of `init`; whether that was called for.
    fn mend(&mut self, idx: usize, faults: Faults) -> Result<bool, Failure> {
        let Some((vip, (good, since))) =
            self.watched.get(idx).and_then(|watched| watched.good.clone().map(|good| (watched.vip, good)))
        else {
            return Ok(false);
        };
        let doing = "mend";
        let Some(cluster) = good.cluster.clone() else { return Ok(false) };
        let _lock = Lock::take(&[vip.to_string()], Deadline::after(STEP))?;
        // Somebody else may have mended it while the lock was held.
        let link = self.link(&cluster.dev, vip)?;
        let made_from = link.mac.unwrap_or(Mac([0; 6]));
        let present = match self.store.look(vip) {
            Err(failure) if failure.exit == Exit::BadInput => Some(good.clone()),
            present => present?,
        };
        // Rules and address gone together, or while we waited: that was `bucket clear`.
        if present.is_none() && (!faults.rules_lost || faults.address_lost) {
            return Ok(false);
        }
        if faults.rules_lost || faults.rules_changed || faults.mac_changed {
            let now = clock::boot();
            let base = present.clone().filter(|_| !faults.rules_changed).unwrap_or(good);
            let mut wanted = base.cluster.clone().unwrap_or_else(|| cluster.clone());
            wanted.made_from = made_from;
            // Only what is left of the lease that it had: nobody renewed it since.
            let left = match present {
                Some(present) => present.lease_left,
                None => base.lease_left.map(|left| left.saturating_sub(now.since(since))),
            };
            let left = left.filter(|left| !left.is_zero());
            let held = if wanted.lease.is_some() && left.is_none() {
                crate::types::cluster::Held::default()
            } else {
                base.held.clone()
            };
            let text = cluster::init(&wanted, &held, left).map_err(Failure::usage)?;
            self.nft.load(&text, doing, &vip.to_string())?;
        }
        if faults.setting_lost {
            sysctl::write(&silence(vip, &cluster.dev), "1")?;
        }
        if faults.membership_lost {
            join(&mut self.netlink, &link, cluster.mac, true)?;
        }
        if faults.address_lost {
            // It may have come back by itself meanwhile.
            let _ = self.netlink.change(&[AddressRequest::Add(wanted_address(vip, link.index))])?;
        }
        Ok(true)
    }

    /// Tells the neighbours the cluster MAC: without rules this host answered them with its own.
    fn announce(&self, idx: usize, process: &Process) {
        let cluster = self.watched.get(idx).and_then(|watched| watched.good.as_ref()?.0.cluster.as_ref());
        if let Some(cluster) = cluster
            && let Err(failure) = announce(cluster)
        {
            process.complain(&failure.sentence);
        }
    }

    fn announce_again(&mut self, process: &Process) {
        let now = clock::boot();
        for idx in 0..self.watched.len() {
            let again = self.watched.get_mut(idx).and_then(|watched| watched.again.take_if(|again| *again <= now));
            if again.is_some() {
                self.announce(idx, process);
            }
        }
    }

    fn link(&mut self, dev: &str, vip: IpAddr) -> Result<Link, Failure> {
        let links: BTreeMap<String, Link> =
            self.netlink.links()?.into_iter().map(|link| (link.name.clone(), link)).collect();
        links.get(dev).cloned().ok_or_else(|| crate::sys::Error::no_interface(format!("mend {vip} on"), dev).into())
    }
}

/// Whether a loss of the rules would be heard: the setting that makes it silence is another.
fn is_loud(cluster: &Cluster) -> Result<bool, Failure> {
    Ok(sysctl::read(&silence(cluster.vip, &cluster.dev))?.is_some_and(|value| value != "1"))
}

/// Sends the cluster MAC of an address to all neighbours, from the interface's own: a switch must not learn
/// where a shared MAC is. A dead link carries nothing, which is no failure of this.
fn announce(cluster: &Cluster) -> Result<(), Failure> {
    let links = Netlink::open()?.links()?;
    let Some((link, own)) = links
        .iter()
        .find(|link| link.name == cluster.dev && link.is_usable())
        .and_then(|link| link.mac.map(|mac| (link, mac)))
    else {
        return Ok(());
    };
    let mut frames = match cluster.vip {
        IpAddr::V4(vip) => [Form::Request, Form::Reply]
            .map(|form| arp::announcement(form, cluster.mac, own, vip, Mac::BROADCAST))
            .to_vec(),
        IpAddr::V6(vip) => {
            let router =
                sysctl::read(&format!("ipv6/conf/{}/forwarding", link.name))?.is_some_and(|value| value != "0");
            vec![ndp::advertisement(cluster.mac, own, vip, router, None)]
        }
    };
    for frame in &mut frames {
        ethernet::send_from(frame, own);
    }
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    match PacketSocket::open_as_it_is(link, 0)?.send_all(&frames, clock::boot().after(PATIENCE)) {
        (_, Some(error)) => Err(error.into()),
        (_, None) => Ok(()),
    }
}
