//! `vrrp run`: virtual routers in the foreground; each transition is a record.

use super::config::{self, Preemption, RouterFlags, Signing, Spec, sequence};
use super::port::{How, Port};
use crate::cli::args::{self, flags};
use crate::cli::input::{Complaints, Feed};
use crate::cli::stream::{Pump, Woken};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::cmd::keys::Auth;
use crate::decide::vrrp::{Act, Acts, Cause, Heard as Advertised, OWNER, Router, Routers, State};
use crate::record::Head;
use crate::record::state::{self, Origin};
use crate::record::vrrp::{HandOver, RUN_COLUMNS, RUN_SCHEMA, Run, Score, Told};
use crate::sys;
use crate::sys::clock;
use crate::sys::netlink::{Change, Netlink};
use crate::sys::privilege::{self, Capability};
use crate::sys::state::Lock;
use crate::sys::watch::Watch;
use crate::types::node::Standby;
use crate::types::time::{Span, Tick, millis};
use crate::types::vrrp::Version;
use crate::wire::keys::Keys;
use crate::wire::vrrp::{Advert, Fault, Found, Heard, Sum};
use clap::{ArgMatches, Args};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "run",
    about: "Be a virtual router: say who is master, as the protocol has it",
    examples: "vrrp run --dev eth0 --vrid 51 --priority 150 --vip 192.0.2.10/24 | vip apply --follow\n\
               health score --follow ... | vrrp run --config routers --track - | vip apply --follow\n\
               vrrp run --dev eth0 --vrid 51 --vip 2001:db8::10/64 --interval 100ms --table\n\
               vrrp run --dev eth0 --vrid 51 --vip 192.0.2.10/24 --peer 192.0.2.2 --no-preempt",
    // The version here is the protocol's.
    args: |command| flags::<Flags>(command.disable_version_flag(true)),
    schemas: &[RUN_SCHEMA],
    columns: RUN_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    #[command(flatten)]
    router: RouterFlags,

    #[command(flatten)]
    signing: Signing,

    /// Several virtual routers: a line each, 'VRID vip=ADDR/LEN,... priority=N', with the words of the
    /// flags as keys (and preempt=yes|no); read anew on HUP
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vrid", "vip"])]
    config: Option<PathBuf>,

    /// Leave a living master of lower priority alone; with addresses, for their routers only
    #[arg(long, value_name = "VIP,...", value_delimiter = ',', num_args = 0..=1, require_equals = true)]
    no_preempt: Option<Vec<IpAddr>>,

    /// Leave such a master alone for D; its death is no preemption
    #[arg(long, value_name = "D", default_value = "0s")]
    preempt_delay: Span,

    /// Routers of one NAME are master together or not at all
    #[arg(long, value_name = "NAME")]
    sync: Option<String>,

    /// Take the effective priority from the health.score records on standard input; when they end, the
    /// last one holds until it expires, then the priority is 1
    #[arg(long, value_name = "-", value_parser = ["-"])]
    track: Option<String>,

    /// Repeat each state every D; it holds for three times as long, so that whoever acts on it
    /// notices when this does not run [default: the shortest interval, but 100ms to 1s]
    #[arg(long, value_name = "D")]
    renew: Option<Span>,

    /// Take no part while FILE is there [default: standby in the state folder]
    #[arg(long, value_name = "FILE")]
    standby: Option<PathBuf>,

    /// Look whether all of this can be used, and do nothing
    #[arg(long)]
    check: bool,

    /// Leave without resigning or giving up, and go on where an earlier process left so; for a new binary
    /// or other flags, with vip apply --on-eof keep
    #[arg(long)]
    no_resign: bool,

    /// End after D
    #[arg(long = "for", value_name = "D")]
    duration: Option<Span>,
}

/// A wake that is later than this is a pause of our own.
const PAUSE: Duration = Duration::from_millis(5);
/// The priority of a node whose score has expired: the last choice, and there.
const UNTRACKED: u8 = 1;
/// How long an earlier process of the same virtual router has to end.
const HAND_OVER: Duration = Duration::from_secs(2);
/// Faults of others are told at most this often.
const TELL_EVERY: Duration = Duration::from_secs(60);

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    if flags.renew.is_some_and(|renew| renew.0.is_zero()) {
        return Err(Failure::usage("--renew must be above 0s"));
    }
    let specs = flags.specs()?;
    privilege::need(Capability::NetRaw, "speak VRRP on", &specs[0].dev)?;
    let mut runner = Runner::new(&flags, specs, process)?;
    if flags.check {
        return runner.check();
    }
    let exit = runner.follow(process);
    runner.pump.stream.finish();
    exit
}

impl Flags {
    fn specs(&self) -> Result<Vec<Spec>, Failure> {
        let preemption =
            Preemption { delay: self.preempt_delay.0, without: self.no_preempt.clone(), sync: self.sync.clone() };
        match &self.config {
            Some(path) => config::read(path, &self.router, &preemption),
            None => Ok(vec![config::spec(&self.router, &preemption).map_err(Failure::usage)?]),
        }
    }
}

struct Runner<'a> {
    flags: &'a Flags,
    node: String,
    specs: Vec<Spec>,
    routers: Routers,
    ports: Vec<Port>,
    /// The port of each router.
    at: Vec<usize>,
    /// The form of sums that others were heard with.
    sums: Vec<Option<Sum>>,
    /// One process is a virtual router on this host.
    locks: BTreeMap<String, Lock>,
    keys: Option<Keys>,
    /// The number of our last signed advert.
    sequence: u64,
    /// The number of the last signed advert of each other, by router.
    heard: BTreeMap<(usize, IpAddr), u64>,
    score: Option<Score>,
    standby: Vec<Option<Standby>>,
    pump: Pump,
    lag: Duration,
    /// What was complained of, and when.
    told: Vec<(String, Tick)>,
    who: String,
}

impl<'a> Runner<'a> {
    fn new(flags: &'a Flags, specs: Vec<Spec>, process: &Process) -> Result<Self, Failure> {
        let mut runner = Runner {
            flags,
            node: process.node.clone(),
            specs: Vec::new(),
            routers: Routers::default(),
            ports: Vec::new(),
            at: Vec::new(),
            sums: Vec::new(),
            locks: BTreeMap::new(),
            keys: flags.signing.keys()?,
            sequence: 0,
            heard: BTreeMap::new(),
            score: None,
            standby: Vec::new(),
            pump: Pump::new(&process.node, process.form)?,
            lag: Duration::ZERO,
            told: Vec::new(),
            who: process.who.clone(),
        };
        runner.set(specs)?;
        Ok(runner)
    }

    /// How often each state is repeated: about as often as its adverts, so that a frozen process is
    /// noticed about when the others notice it.
    fn renew(&self) -> Duration {
        let shortest = self.specs.iter().map(|spec| spec.settings.interval).min().unwrap_or_default();
        let own = shortest.clamp(Duration::from_millis(100), Duration::from_secs(1));
        self.flags.renew.map_or(own, |renew| renew.0)
    }

    /// Takes other settings over; a router that stays keeps its state.
    fn set(&mut self, specs: Vec<Spec>) -> Result<(), Failure> {
        let mut ports: Vec<Port> = Vec::new();
        let (mut at, mut routers, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for spec in &specs {
            let unicast = specs.iter().any(|other| other.dev == spec.dev && !other.peers.is_empty());
            let same = |port: &Port| port.dev == spec.dev && port.ipv6 == spec.is_ipv6();
            let place = ports.iter().position(same);
            at.push(place.map_or_else(
                || {
                    ports.push(Port::open(&spec.dev, spec.is_ipv6(), unicast)?);
                    Ok::<_, Failure>(ports.len() - 1)
                },
                Ok,
            )?);
            let known = self.specs.iter().position(|known| known.is_same(spec));
            routers.push(match known {
                Some(known) => {
                    let mut router = self.routers.all[known].clone();
                    router.settings = spec.settings.clone();
                    router
                }
                None => Router::new(spec.settings.clone(), spec.priority),
            });
            sums.push(known.and_then(|known| self.sums[known]));
        }
        let names: BTreeSet<String> = specs.iter().map(Spec::name).collect();
        if !self.flags.check {
            for name in &names {
                if !self.locks.contains_key(name) {
                    // One that was told to end is waited for.
                    let lock = Lock::take(&[name], clock::Deadline::after(HAND_OVER))?;
                    self.locks.insert(name.clone(), lock);
                }
            }
        }
        // Everything could be opened: from here on the new settings hold.
        self.locks.retain(|name, _| names.contains(name));
        self.tell_removed(&specs)?;
        let gone: Vec<usize> =
            (0..self.specs.len()).filter(|old| !specs.iter().any(|spec| spec.is_same(&self.specs[*old]))).collect();
        let acts = self.routers.shutdown(true, clock::boot());
        let acts = acts.into_iter().filter(|(at, _)| gone.contains(at)).collect();
        self.act(acts, clock::boot())?;
        (self.specs, self.ports, self.at, self.sums) = (specs, ports, at, sums);
        // By place in the list, which is another now.
        self.heard.clear();
        self.standby = vec![None; self.specs.len()];
        self.routers = Routers { all: routers };
        Ok(())
    }

    /// Addresses that their router has no longer are nobody's here.
    fn tell_removed(&mut self, specs: &[Spec]) -> Result<(), Failure> {
        let stays = |addr: IpAddr| specs.iter().any(|spec| spec.vips.iter().any(|vip| vip.addr == addr));
        for at in 0..self.specs.len() {
            let (spec, mut router) = (&self.specs[at], self.routers.all[at].clone());
            let told = Told::Became(std::mem::replace(&mut router.state, State::Init), Cause::Settings);
            // A router that is gone says so itself.
            let goes_on = specs.iter().any(|other| other.is_same(spec));
            for vip in spec.vips.iter().filter(|vip| goes_on && !stays(vip.addr)) {
                let body = Run::new(&router, *vip, &spec.dev, spec.vrid, told, self.lag);
                self.pump.stream.record(Head::new("vrrp.run").about(vip.addr), &body)?;
            }
        }
        Ok(())
    }

    /// Runs until told to stop; whatever ends it, a master resigns first.
    fn follow(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        let outcome = self.follow_on(process);
        if outcome.is_err() {
            // Nobody acts on it any more: no reason to be master.
            let now = clock::boot();
            let acts = self.routers.shutdown(!self.flags.no_resign, now);
            self.send(&acts, now);
        }
        outcome
    }

    fn follow_on(&mut self, process: &mut Process) -> Result<Exit, Failure> {
        let end = process.stream_end(self.flags.duration);
        let mut netlink = Netlink::open()?;
        let mut monitor = Netlink::monitor()?;
        let mut watch = self.watch()?;
        let mut feed = self.flags.track.is_some().then(Feed::default);
        let mut complaints = Complaints::new(&self.who);
        self.resume(clock::boot())?;
        // Who is in standby or has no priority yet does not even begin.
        self.look_for_standby(clock::boot())?;
        self.look(&mut netlink, clock::boot())?;
        for at in 0..self.routers.all.len() {
            // Whatever an earlier run has left is not this one's: the first word is no renewal.
            if self.routers.all[at].state == State::Init {
                self.tell(at, Told::Again(Cause::Start))?;
            }
        }
        let mut renew = clock::boot().after(self.renew());
        let mut standby = renew;
        loop {
            let until = self.score.as_ref().and_then(|score| score.until);
            let deadline = [self.routers.due(), Some(renew), end, until].into_iter().flatten().min();
            let stdin = std::io::stdin();
            let listens = feed.as_ref().is_some_and(|feed| !feed.is_ended());
            let woken = {
                let mut fds = vec![monitor.as_fd(), watch.as_fd()];
                fds.extend(self.ports.iter().map(Port::as_fd));
                if listens {
                    fds.push(stdin.as_fd());
                }
                self.pump.wait(&fds, deadline)
            };
            let now = clock::boot();
            let ready = match woken {
                Ok(Woken::Ready(ready)) => ready,
                Ok(Woken::Signal(Signal::SIGHUP)) if self.flags.config.is_some() => {
                    self.reload(process)?;
                    watch = self.watch()?;
                    self.look(&mut netlink, now)?;
                    self.look_for_standby(now)?;
                    continue;
                }
                Ok(Woken::Signal(signal)) => {
                    self.leave()?;
                    self.pump.die(signal);
                    return Ok(Exit::Yes);
                }
                Err(failure) => return Err(failure),
            };
            self.lag = deadline.map_or(Duration::ZERO, |deadline| now.since(deadline));
            if self.lag > PAUSE {
                let acts = self.routers.paused(self.lag, now);
                self.act(acts, now)?;
            }
            let is_ready = |slot: usize| ready.get(slot).copied().unwrap_or(false);
            if is_ready(0) && self.concerns_us(&monitor.changes()?) {
                self.look(&mut netlink, now)?;
            }
            if (is_ready(1) || watch.is_blind()) && watch.changed().contains(&true) {
                self.look_for_standby(now)?;
            }
            for port in 0..self.ports.len() {
                // After a pause of our own also what came meanwhile.
                if is_ready(2 + port) || self.lag > PAUSE {
                    self.hear(port, now)?;
                }
            }
            if listens
                && is_ready(2 + self.ports.len())
                && let Some(feed) = &mut feed
            {
                for (number, line) in feed.take()? {
                    match line.and_then(|line| Score::read(&line, &self.node, now)) {
                        Ok(Some(score)) => self.score = Some(score),
                        Ok(None) => {}
                        Err(why) => complaints.line(number, &why),
                    }
                }
                self.set_priorities(now)?;
            }
            if until.is_some_and(|until| now >= until) {
                self.complain(&format!("the score has expired: priority {UNTRACKED} from now on"), now);
                self.set_priorities(now)?;
            }
            let acts = self.routers.timers(now);
            self.act(acts, now)?;
            if now >= renew {
                // A link tells no event, nor does a folder that was taken away and made anew.
                if now >= standby {
                    self.look_for_standby(now)?;
                    standby = now.after(Duration::from_secs(1));
                }
                for at in 0..self.routers.all.len() {
                    self.tell(at, Told::Renewal)?;
                }
                renew = now.after(self.renew());
            }
            if end.is_some_and(|end| now >= end) {
                self.leave()?;
                // `--for` is a planned end, `--timeout` a deadline.
                return Ok(if self.flags.duration.is_some() { complaints.finish() } else { Exit::Undecided });
            }
        }
    }

    /// Reads the configuration anew; a wrong one changes nothing.
    fn reload(&mut self, process: &Process) -> Result<(), Failure> {
        match self.flags.specs() {
            Ok(specs) => {
                let result = self.set(specs);
                if let Err(failure) = &result {
                    process.complain(&format!("{}; the settings stay as they were", failure.sentence));
                }
                for at in 0..self.routers.all.len() {
                    self.tell(at, Told::Again(Cause::Settings))?;
                }
                Ok(())
            }
            Err(failure) => {
                process.complain(&format!("{}; the settings stay as they were", failure.sentence));
                Ok(())
            }
        }
    }

    fn watch(&self) -> Result<Watch, Failure> {
        let mut paths = vec![self.flags.standby.clone().unwrap_or_else(|| sys::state::folder().join("standby"))];
        paths.extend(self.vips().map(|vip| sys::state::standby_file(&vip.to_string())));
        for folder in paths.iter().filter_map(|path| path.parent()) {
            sys::state::make_folder(folder)?;
        }
        let mut watch = Watch::new(&paths)?;
        // What is there now is looked at next.
        let _ = watch.changed();
        Ok(watch)
    }

    fn vips(&self) -> impl Iterator<Item = IpAddr> {
        self.specs.iter().flat_map(|spec| spec.vips.iter().map(|vip| vip.addr))
    }

    /// Whether a change of the kernel's could be one of our links or source addresses.
    fn concerns_us(&self, changes: &[Change]) -> bool {
        changes.iter().any(|change| match change {
            Change::Overrun => true,
            Change::Link { link, .. } => {
                self.ports.iter().any(|port| port.link.index == link.index || link.is_called(&port.dev))
            }
            // Ours come and go with each transition.
            Change::Address { address, .. } => {
                !address.is_ours() && self.ports.iter().any(|port| port.link.index == address.ifindex)
            }
            Change::Route { .. } => false,
        })
    }

    /// Reads the links and the addresses that adverts leave from; says where one is missing.
    fn look_at_ports(&mut self, netlink: &mut Netlink, now: Tick) -> Result<bool, Failure> {
        let vips: Vec<IpAddr> = self.vips().collect();
        let mut missing = Vec::new();
        let owners: Vec<bool> = (0..self.ports.len())
            .map(|port| self.specs.iter().zip(&self.at).any(|(spec, at)| *at == port && spec.priority == OWNER))
            .collect();
        for (port, owner) in self.ports.iter_mut().zip(owners) {
            port.look(netlink, &vips, owner)?;
            if port.is_usable() && port.source.is_none() {
                let what = if port.ipv6 { "link-local" } else { "IPv4" };
                missing.push(format!("{} has no {what} address of its own to speak from (see: ip addr)", port.dev));
            }
        }
        for (at, port) in self.at.iter().enumerate().map(|(at, port)| (at, &self.ports[*port])) {
            let length = self.advert_length(at);
            let short = port.lacks(length);
            if port.is_usable() && short > 0 {
                let (dev, vrid) = (&port.dev, self.specs[at].vrid);
                missing.push(format!(
                    "{dev} cannot carry the adverts of router {vrid}: its MTU is {short} octets below their {length} (see: ip link set {dev} mtu {length}, or give the router fewer addresses)"
                ));
            }
        }
        for sentence in &missing {
            self.complain(sentence, now);
        }
        Ok(missing.is_empty())
    }

    /// How long a packet with an advert of a router is.
    fn advert_length(&self, at: usize) -> usize {
        let is_signed = self.keys.is_some() && self.flags.signing.signs();
        self.advert(at, 0).packet_len(self.ports[self.at[at]].ipv6, is_signed)
    }

    fn check(&mut self) -> Result<Exit, Failure> {
        let complete = self.look_at_ports(&mut Netlink::open()?, clock::boot())?;
        Ok(if complete { Exit::Yes } else { Exit::Missing })
    }

    fn look(&mut self, netlink: &mut Netlink, now: Tick) -> Result<(), Failure> {
        self.look_at_ports(netlink, now)?;
        for at in 0..self.specs.len() {
            let port = &self.ports[self.at[at]];
            // Who cannot tell that it serves must not serve.
            let usable = port.is_usable() && port.lacks(self.advert_length(at)) == 0;
            let source = port.source;
            let acts = self.routers.link(at, usable, source, now);
            self.act(acts, now)?;
        }
        Ok(())
    }

    fn look_for_standby(&mut self, now: Tick) -> Result<(), Failure> {
        for at in 0..self.specs.len() {
            let mut found = None;
            let mut unknown = None;
            for vip in &self.specs[at].vips {
                let subject = vip.addr.to_string();
                match sys::state::standby(self.flags.standby.as_deref(), Some(&subject)) {
                    Ok(standby) => found = found.or(standby),
                    Err(error) => unknown = Some(error),
                }
            }
            match unknown {
                // What was known goes on.
                Some(error) => self.complain(&format!("cannot tell whether this is standby: {error}"), now),
                None => self.standby[at] = found,
            }
        }
        self.set_priorities(now)
    }

    /// The effective priorities, of everything that lowers them; a group has the lowest of its own.
    fn set_priorities(&mut self, now: Tick) -> Result<(), Failure> {
        let mut priorities = Vec::with_capacity(self.specs.len());
        for at in 0..self.specs.len() {
            let spec = &self.specs[at];
            let priority = match &self.score {
                _ if self.standby[at].is_some() => 0,
                Some(score) if score.until.is_some_and(|until| now >= until) => UNTRACKED,
                // Tracked, and not heard of yet: as if it had expired.
                None if self.flags.track.is_some() => UNTRACKED,
                Some(score) => score.of(&spec.vips).unwrap_or(spec.priority),
                None => spec.priority,
            };
            priorities.push(priority);
        }
        for at in 0..self.specs.len() {
            let sync = self.specs[at].settings.sync.as_ref();
            let same =
                |other: &usize| *other == at || (sync.is_some() && self.specs[*other].settings.sync.as_ref() == sync);
            let lowest = (0..self.specs.len()).filter(same).map(|other| priorities[other]).min().unwrap_or(0);
            let acts = self.routers.priority(at, lowest, now);
            self.act(acts, now)?;
        }
        if let Some(score) = &mut self.score
            && score.until.is_some_and(|until| now >= until)
        {
            // Told once; it stays expired until there is another.
            self.score = None;
        }
        Ok(())
    }

    fn hear(&mut self, port: usize, now: Tick) -> Result<(), Failure> {
        let heard = self.ports[port].heard(self.keys.as_ref())?;
        let mut seen = BTreeSet::new();
        // The newest of each router counts: what waited in a queue is no news.
        let newest: Vec<Heard> = heard
            .into_iter()
            .rev()
            .filter(|heard| {
                // One that is not believed must not stand for one that is.
                let proven = (heard.is_believed(), heard.sequence.is_some());
                seen.insert((heard.src, heard.advert.vrid, heard.advert.version, proven))
            })
            .collect();
        for heard in newest.into_iter().rev() {
            self.hear_one(port, &heard, now)?;
        }
        Ok(())
    }

    fn hear_one(&mut self, port: usize, heard: &Heard, now: Tick) -> Result<(), Failure> {
        let ours = |at: &usize| self.at[*at] == port && self.specs[*at].vrid == heard.advert.vrid;
        let Some(at) = (0..self.specs.len()).find(ours) else { return Ok(()) };
        if let Some(why) = self.refuse(at, heard) {
            self.complain(&why, now);
            return Ok(());
        }
        if let Some(remark) = self.remark(at, heard) {
            self.complain(&remark, now);
        }
        if !self.ports[port].is_for_us(heard) {
            return Ok(());
        }
        if let Found::Is(sum) = heard.checksum {
            self.sums[at] = Some(sum);
        }
        if let Some(sequence) = heard.sequence {
            self.heard.insert((at, heard.src), sequence);
        }
        let advert = Advertised { source: heard.src, priority: heard.advert.priority, interval: heard.advert.interval };
        let acts = self.routers.advert(at, advert, now);
        self.act(acts, now)
    }

    /// Why an advert is not believed, if it is not (RFC 9568 §7.1, RFC 3768 §7.1).
    fn refuse(&self, at: usize, heard: &Heard) -> Option<String> {
        let (spec, source, vrid) = (&self.specs[at], heard.src, heard.advert.vrid);
        if Some(source) == self.ports[self.at[at]].source {
            return Some(format!(
                "an advert of router {vrid} came from {source}, our own address: a loop, or another host with it"
            ));
        }
        if !spec.peers.is_empty() && !spec.peers.contains(&source) {
            return Some(format!("{source} speaks for router {vrid} and is no --peer: not believed"));
        }
        if let Some(fault) = heard.faults.iter().find(|fault| fault.discards()) {
            let hint = if *fault == Fault::Ttl { ": it came from beyond the link" } else { "" };
            return Some(format!("an advert of {source} for router {vrid} is wrong ({}{hint})", fault.slug()));
        }
        if self.keys.is_some() && spec.settings.version == Version::V3 {
            let last = self.heard.get(&(at, source));
            match heard.sequence {
                None if self.flags.signing.auth == Auth::Enforce => {
                    return Some(format!("an advert of {source} for router {vrid} is unsigned: not believed"));
                }
                // The newest and the oldest of a serial number, 2^63 apart (RFC 1982).
                Some(new) if last.is_some_and(|last| new.wrapping_sub(*last).wrapping_sub(1) >> 63 == 1) => {
                    return Some(format!(
                        "an advert of {source} for router {vrid} is older than its last one: a replay, or its clock went back"
                    ));
                }
                _ => {}
            }
        }
        let (theirs, ours) = (heard.advert.version, spec.settings.version);
        if theirs != ours {
            return Some(format!("{source} speaks version {theirs} for router {vrid}, this one {ours}: not believed"));
        }
        let (theirs, ours) = (Span(heard.advert.interval), Span(spec.settings.interval));
        (spec.settings.version == Version::V2 && theirs != ours).then(|| {
            format!("{source} sends router {vrid} every {theirs}, this one every {ours}: not believed (set both alike)")
        })
    }

    /// What is odd about an advert that is believed.
    fn remark(&self, at: usize, heard: &Heard) -> Option<String> {
        let (spec, source, vrid) = (&self.specs[at], heard.src, heard.advert.vrid);
        if heard.advert.priority == OWNER && spec.priority == OWNER {
            return Some(format!("{source} has priority 255 for router {vrid} as well: an address has one owner"));
        }
        let theirs: BTreeSet<IpAddr> = heard.advert.addresses.iter().copied().collect();
        let ours: BTreeSet<IpAddr> = spec.vips.iter().map(|vip| vip.addr).collect();
        (theirs != ours).then(|| format!("{source} serves other addresses as router {vrid} (compare --vip)"))
    }

    /// Sends what is to be sent, then tells what is to be told.
    fn act(&mut self, acts: Acts, now: Tick) -> Result<(), Failure> {
        self.send(&acts, now);
        for (at, act) in acts {
            match act {
                Act::Send(_) => {}
                Act::Became(from, cause) => self.tell(at, Told::Became(from, cause))?,
                Act::Again(cause) => self.tell(at, Told::Again(cause))?,
            }
        }
        Ok(())
    }

    fn advert(&self, at: usize, priority: u8) -> Advert {
        let spec = &self.specs[at];
        Advert {
            version: spec.settings.version,
            vrid: spec.vrid,
            priority,
            interval: spec.settings.interval,
            addresses: spec.vips.iter().map(|vip| vip.addr).collect(),
        }
    }

    fn send(&mut self, acts: &Acts, now: Tick) {
        let mut failed = Vec::new();
        for (at, act) in acts {
            let Act::Send(priority) = act else { continue };
            let advert = self.advert(*at, *priority);
            let (spec, port) = (&self.specs[*at], &mut self.ports[self.at[*at]]);
            let sum = spec.sum.or(self.sums[*at]).unwrap_or(Sum::Pseudo);
            self.sequence = sequence(self.sequence, clock::wall());
            let sign = self.keys.as_ref().filter(|_| self.flags.signing.signs()).map(|keys| (keys, self.sequence));
            failed.extend(port.send(&advert, &How { sum, vmac: spec.vmac, peers: &spec.peers, sign }).err());
        }
        for port in &mut self.ports {
            // A queue that is full for that long is a fault of its own.
            failed.extend(port.flush(now.after(Duration::from_millis(5))).err());
        }
        for error in failed {
            self.complain(&error.to_string(), now);
        }
    }

    /// Prints what a router is now, for each of its addresses.
    fn tell(&mut self, at: usize, told: Told) -> Result<(), Failure> {
        let (spec, router) = (&self.specs[at], &self.routers.all[at]);
        for vip in &spec.vips {
            let mut head = Head::new("vrrp.run").about(vip.addr);
            head.renewal = told == Told::Renewal;
            // Whoever acts on it need not wait for a word that never comes; what waited in a pipe is as old
            // as it is.
            head.received_ms = Some(clock::boot().as_ms());
            head.valid_for_ms = Some(millis(self.renew() * 3));
            head.standby = self.standby[at].as_ref().map(|standby| standby.reason.clone());
            let body = Run::new(router, *vip, &spec.dev, spec.vrid, told, self.lag);
            self.pump.stream.record(head, &body)?;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Failure> {
        if self.flags.no_resign {
            // Whoever comes next goes on: nothing is given up.
            return self.hand_over();
        }
        let acts = self.routers.shutdown(!self.flags.no_resign, clock::boot());
        self.act(acts, clock::boot())
    }

    fn hand_over_file(&self) -> (PathBuf, Origin) {
        let path = sys::state::folder().join(format!("vrrp-{}-handover.json", self.node));
        let (boot_id, at) = (clock::boot_id(), clock::boot());
        (path, Origin { command: "vrrp-handover", host: self.node.clone(), boot_id, at })
    }

    fn hand_over(&self) -> Result<(), Failure> {
        let (path, origin) = self.hand_over_file();
        let masters = self.specs.iter().zip(&self.routers.all).filter(|(_, router)| router.state == State::Master);
        let masters = masters.map(|(spec, _)| spec.name()).collect();
        let bytes = state::write(&origin, &HandOver { masters, at_ms: origin.at.as_ms() }).unwrap_or_default();
        Ok(sys::state::replace(&path, &bytes)?)
    }

    /// Goes on for a process that has just left without resigning; its word counts once, and for as long
    /// as nobody else can have taken over.
    fn resume(&mut self, now: Tick) -> Result<(), Failure> {
        let (path, origin) = self.hand_over_file();
        let Some(bytes) = sys::state::read(&path)?.filter(|_| self.flags.no_resign) else { return Ok(()) };
        let _ = std::fs::remove_file(&path);
        match state::read::<HandOver>(&bytes, &origin) {
            Ok(state::Read::Current(left)) => {
                for (spec, router) in self.specs.iter().zip(&mut self.routers.all) {
                    let in_time = now.as_ms() - left.at_ms < millis(spec.settings.interval * 3);
                    router.resumes = in_time && left.masters.contains(&spec.name());
                }
            }
            Ok(state::Read::OtherBoot) => {}
            Err(why) => self.complain(&format!("{} is not what an earlier run left: {why}", path.display()), now),
        }
        Ok(())
    }

    /// Tells a fault on standard error, the same at most once a minute.
    fn complain(&mut self, sentence: &str, now: Tick) {
        self.told.retain(|(_, at)| now.since(*at) < TELL_EVERY);
        // Bounded, since a forger can invent sources.
        if self.told.len() < 64 && !self.told.iter().any(|(told, _)| told == sentence) {
            self.told.push((sentence.to_owned(), now));
            crate::cli::out::complain(&self.who, sentence);
        }
    }
}
