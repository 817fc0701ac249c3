//! Release, tell, take among N nodes in virtual time, over beats that get lost and come late.
//!
//! The kernel of each node is played with its lease; a verdict about a node comes at another moment
//! on each peer, and at times not at all. What must never happen is checked every 10 ms.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use super::plan::{Fencing, Memory, Quorum, Settings, View, plan};
use crate::types::bucket::{Buckets, Owners};
use crate::types::draw::Draw;
use crate::types::status::Status;
use crate::types::time::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

const STEP: u64 = 10;
const BEAT: u64 = 100;
const LEASE: u64 = 500;
const DEAD_AFTER: u64 = 500;
const TAKE_AFTER: u64 = DEAD_AFTER + LEASE + 100;
/// One nft transaction.
const COMMIT: u64 = 20;

/// What a node's kernel holds, and so what its beats say.
#[derive(Clone, Default)]
struct Kernel {
    own: Buckets,
    draining: Buckets,
    epoch: u64,
    /// When the lease runs out.
    until: u64,
}

#[derive(Clone)]
struct Beat {
    sequence: u64,
    own: Buckets,
    draining: Buckets,
    epoch: u64,
    standby: bool,
    health_pct: u32,
    closed: bool,
}

struct Host {
    kernel: Kernel,
    memory: Memory,
    view: View,
    heard: BTreeMap<usize, (u64, u64)>,
    /// A plan on its way to the kernel: when it was made, when it is there.
    pending: Option<(u64, u64, Buckets, u64)>,
    next_beat: u64,
    sequence: u64,
    standby: bool,
    /// What its health leaves of its weight; 0 is unfit.
    health_pct: u32,
    /// Its LAN has no carrier: its applier has let go of all and takes nothing.
    closed: bool,
    frozen: bool,
    cut: bool,
    /// What the last conclusion was made from, and what it was.
    asked: Option<(View, u64)>,
    concluded: Option<(Buckets, u64)>,
}

impl Host {
    fn new() -> Self {
        Host {
            kernel: Kernel::default(),
            memory: Memory::default(),
            view: View::default(),
            heard: BTreeMap::new(),
            pending: None,
            next_beat: 0,
            sequence: 0,
            standby: false,
            health_pct: 100,
            closed: false,
            frozen: false,
            cut: false,
            asked: None,
            concluded: None,
        }
    }
}

struct World {
    now: u64,
    draw: Draw,
    loss_pct: u64,
    hosts: Vec<Host>,
    /// Arrival, receiver, sender, beat.
    wire: Vec<(u64, usize, usize, Beat)>,
    /// The verdict `down` of (judge, judged) falls at this time.
    verdicts: BTreeMap<(usize, usize), u64>,
    settings: Vec<Settings>,
    total: u16,
    /// Whether votes are counted, and the hosts that the others do not hear, nor they them.
    counts: bool,
    apart: Vec<usize>,
}

fn name(idx: usize) -> String {
    format!("n{}", idx + 1)
}

fn tick(ms: u64) -> Tick {
    Tick(Duration::from_millis(ms))
}

impl World {
    fn new(n_hosts: usize, total: u16, seed: u64, loss_pct: u64) -> Self {
        World {
            now: 0,
            draw: Draw::new(seed),
            loss_pct,
            hosts: (0..n_hosts).map(|_| Host::new()).collect(),
            wire: Vec::new(),
            verdicts: BTreeMap::new(),
            settings: (0..n_hosts).map(|host| Self::settings(host, n_hosts, total)).collect(),
            total,
            counts: false,
            apart: Vec::new(),
        }
    }

    fn settings(me: usize, n_hosts: usize, total: u16) -> Settings {
        let mut homes = Owners::default();
        for host in 0..n_hosts {
            let at = |host: usize| total * host as u16 / n_hosts as u16;
            homes.add(&name(host), (at(host) + 1..=at(host + 1)).collect()).unwrap();
        }
        Settings {
            total,
            homes,
            weights: BTreeMap::new(),
            fail_back: true,
            me: name(me),
            config: None,
            fencing: Fencing::None,
            take_after: Duration::from_millis(TAKE_AFTER),
            dead_after: Duration::from_millis(DEAD_AFTER),
            wait_for_all: false,
            agree: true,
        }
    }

    fn fault(&mut self, host: usize, frozen: bool) {
        let now = self.now;
        self.hosts[host].frozen = frozen;
        self.hosts[host].cut = !frozen;
        for other in (0..self.hosts.len()).filter(|&other| other != host) {
            let late = self.draw.below(2 * BEAT);
            self.verdicts.insert((other, host), now + DEAD_AFTER + late);
            if !frozen {
                // Whoever is cut off gives up at its own verdict, and not later than that.
                self.verdicts.insert((host, other), now + DEAD_AFTER);
            }
        }
    }

    /// Parts some hosts from the others. Each judges by itself, and nobody hears the other side's votes.
    fn split(&mut self, apart: Vec<usize>) {
        for host in 0..self.hosts.len() {
            for other in 0..self.hosts.len() {
                if apart.contains(&host) != apart.contains(&other) {
                    // Whoever is in the smaller side gives up at its own verdict, and not later than that.
                    let is_small = self.is_small(host, &apart);
                    let late = if is_small { 0 } else { self.draw.below(2 * BEAT) };
                    self.verdicts.insert((host, other), self.now + DEAD_AFTER + late);
                }
            }
        }
        self.apart = apart;
    }

    fn is_small(&self, host: usize, apart: &[usize]) -> bool {
        let side = if apart.contains(&host) { apart.len() } else { self.hosts.len() - apart.len() };
        side * 2 <= self.hosts.len()
    }

    fn join(&mut self) {
        let apart = std::mem::take(&mut self.apart);
        self.verdicts.retain(|(host, other), _| apart.contains(host) == apart.contains(other));
    }

    /// The LAN of a host loses its carrier, or has it again; the beats go another way.
    fn unplug(&mut self, host: usize, closed: bool) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        if host.frozen {
            return;
        }
        host.closed = closed;
        if closed {
            host.kernel.own = Buckets::new();
            host.pending = None;
        }
        host.next_beat = now;
    }

    fn heal(&mut self, host: usize) {
        self.hosts[host].frozen = false;
        self.hosts[host].cut = false;
        let others = |&(judge, judged): &(usize, usize)| judge != host && judged != host;
        self.verdicts.retain(|pair, _| others(pair));
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        let due: Vec<_> = self.wire.iter().filter(|(at, ..)| *at <= now).cloned().collect();
        self.wire.retain(|(at, ..)| *at > now);
        for (_, to, from, beat) in due {
            self.hear(to, from, &beat);
        }
        for host in 0..self.hosts.len() {
            if !self.hosts[host].frozen {
                self.judge(host);
                self.conclude(host);
                self.commit(host);
                self.tell(host);
            }
        }
        self.check();
    }

    fn hear(&mut self, to: usize, from: usize, beat: &Beat) {
        let (now, host) = (self.now, &mut self.hosts[to]);
        if host.frozen || host.heard.get(&from).is_some_and(|(_, sequence)| *sequence >= beat.sequence) {
            return;
        }
        host.heard.insert(from, (now, beat.sequence));
        let node = host.view.nodes.entry(name(from)).or_default();
        if node.status != Status::Up {
            node.status = Status::Up;
            node.since = tick(now);
        }
        node.heard = true;
        node.last = tick(now);
        node.own = Some(beat.own.clone());
        node.draining = beat.draining.clone();
        node.epoch = Some(beat.epoch);
        node.standby = beat.standby.then(|| "rest".to_owned());
        node.health_pct = Some(beat.health_pct);
        node.closed = beat.closed;
        node.unfit = beat.health_pct == 0 || beat.closed;
    }

    /// Verdicts: `down` where it is due, and `unknown` for what is too old (a thaw) or by chance.
    fn judge(&mut self, host: usize) {
        let now = self.now;
        for other in 0..self.hosts.len() {
            // Where votes are counted that is a side that gives up, and takes a take-after to come back.
            let chance = self.draw.below(2_000) == 0 && !self.counts;
            let down = self.verdicts.get(&(host, other)).is_some_and(|at| *at <= now);
            let host = &mut self.hosts[host];
            let Some(&(heard, _)) = host.heard.get(&other) else { continue };
            let Some(node) = host.view.nodes.get_mut(&name(other)) else { continue };
            let status = match node.status {
                _ if down => Status::Down,
                Status::Up if chance || now - heard > 3 * DEAD_AFTER => Status::Unknown,
                status => status,
            };
            if status != node.status {
                node.status = status;
                node.since = tick(now);
            }
        }
        if self.counts {
            let (all, me) = (self.hosts.len(), name(host));
            let view = &mut self.hosts[host].view;
            let here = view.nodes.iter().filter(|(node, seen)| **node != me && seen.status == Status::Up).count() + 1;
            view.quorum = if here * 2 > all { Quorum::Yes } else { Quorum::No };
        }
    }

    fn conclude(&mut self, idx: usize) {
        let now = self.now;
        let settings = self.settings[idx].clone();
        let host = &mut self.hosts[idx];
        // The lease ran out while nobody renewed it: what was held is lost, and asked for again.
        if host.kernel.until < now {
            host.kernel.own = Buckets::new();
        }
        let me = host.view.nodes.entry(settings.me.clone()).or_default();
        me.status = Status::Up;
        me.heard = true;
        me.own = Some(host.kernel.own.clone());
        me.epoch = Some(host.kernel.epoch);
        me.standby = host.standby.then(|| "rest".to_owned());
        me.health_pct = Some(host.health_pct);
        me.closed = host.closed;
        me.unfit = host.health_pct == 0 || host.closed;
        // Concluding again without news and before its time would say the same.
        let asked = (host.view.clone(), now / BEAT);
        if host.asked.as_ref() != Some(&asked) {
            let (concluded, memory) = plan(&settings, &host.view, &host.memory, tick(now));
            host.memory = memory;
            host.asked = Some(asked);
            host.concluded = Some((concluded.mine, concluded.epoch));
        }
        let (mine, epoch) = host.concluded.clone().unwrap();
        if host.pending.is_none() && (mine != host.kernel.own || epoch != host.kernel.epoch) {
            host.pending = Some((now, now + COMMIT, mine, epoch));
        }
        host.kernel.until = now + LEASE;
    }

    fn commit(&mut self, idx: usize) {
        let now = self.now;
        let host = &mut self.hosts[idx];
        if let Some((made, at, mine, epoch)) = host.pending.take_if(|(_, at, ..)| *at <= now) {
            // A plan older than the lease is no plan: its reader stood still.
            if at + LEASE < now || made + LEASE < now || (host.closed && !mine.is_empty()) {
                return;
            }
            host.kernel.draining = host.kernel.draining.union(&host.kernel.own).difference(&mine);
            host.kernel.own = mine;
            host.kernel.epoch = epoch;
            host.next_beat = now;
        }
        // A drain ends some time.
        if self.draw.below(200) == 0 {
            self.hosts[idx].kernel.draining = Buckets::new();
        }
    }

    fn tell(&mut self, idx: usize) {
        let now = self.now;
        if self.hosts[idx].next_beat > now {
            return;
        }
        self.hosts[idx].next_beat = now + BEAT;
        self.hosts[idx].sequence += 1;
        let host = &self.hosts[idx];
        let beat = Beat {
            sequence: host.sequence,
            own: host.kernel.own.clone(),
            draining: host.kernel.draining.clone(),
            epoch: host.kernel.epoch,
            standby: host.standby,
            health_pct: host.health_pct,
            closed: host.closed,
        };
        for other in (0..self.hosts.len()).filter(|&other| other != idx) {
            let delay = self.draw.below(3 * BEAT);
            let parted = self.apart.contains(&idx) != self.apart.contains(&other);
            if self.draw.below(100) >= self.loss_pct && !parted && !self.hosts[idx].cut && !self.hosts[other].cut {
                self.wire.push((now + delay, other, idx, beat.clone()));
            }
        }
    }

    /// No bucket is served twice, by a frozen host's kernel neither.
    fn check(&self) {
        for bucket in 1..=self.total {
            let owners: Vec<usize> = (0..self.hosts.len())
                .filter(|&idx| self.hosts[idx].kernel.until >= self.now && self.hosts[idx].kernel.own.contains(bucket))
                .collect();
            assert!(owners.len() <= 1, "at {} ms bucket {bucket} is served by {owners:?}", self.now);
        }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP {
            self.step();
        }
    }

    fn owned(&self) -> Vec<Buckets> {
        self.hosts.iter().map(|host| host.kernel.own.clone()).collect()
    }
}

#[test]
fn a_cold_start_ends_at_home() {
    for n_hosts in [2, 3, 5] {
        let mut world = World::new(n_hosts, 16, 1, 0);
        world.run(3_000);
        let homes: Vec<Buckets> = world.settings[0].homes.0.values().cloned().collect();
        assert_eq!(world.owned(), homes);
    }
}

#[test]
fn a_frozen_host_is_replaced_within_the_stated_time_and_comes_home() {
    let mut world = World::new(3, 64, 7, 0);
    world.run(3_000);
    let homes = world.owned();
    world.fault(2, true);
    // take-after, the spread of the verdicts, two commits and the beats between them.
    world.run(TAKE_AFTER + 2 * BEAT + 2 * COMMIT + 6 * BEAT + 100);
    let served: usize = world.owned()[..2].iter().map(Buckets::len).sum();
    assert_eq!(served, 64);
    world.heal(2);
    world.run(4_000);
    assert_eq!(world.owned(), homes);
}

#[test]
fn a_standby_drains_out_and_back() {
    let mut world = World::new(3, 12, 3, 20);
    world.run(4_000);
    let homes = world.owned();
    world.hosts[0].standby = true;
    world.run(4_000);
    assert!(world.owned()[0].is_empty());
    assert_eq!(world.owned().iter().map(Buckets::len).sum::<usize>(), 12);
    world.hosts[0].standby = false;
    world.run(4_000);
    assert_eq!(world.owned(), homes);
}

#[test]
fn health_moves_a_share_or_all_of_it_and_brings_it_back() {
    let mut world = World::new(3, 12, 5, 20);
    world.run(4_000);
    let homes = world.owned();
    let sizes = |world: &World| world.owned().iter().map(Buckets::len).collect::<Vec<_>>();
    world.hosts[0].health_pct = 50;
    world.run(4_000);
    assert_eq!(sizes(&world), [2, 5, 5]);
    for host in 0..3 {
        world.hosts[host].health_pct = 0;
    }
    world.run(4_000);
    assert_eq!(sizes(&world), [0, 0, 0], "all gave up");
    world.hosts[1].health_pct = 1;
    world.run(4_000);
    assert_eq!(sizes(&world), [0, 12, 0], "the first that is back serves all");
    for host in 0..3 {
        world.hosts[host].health_pct = 100;
    }
    world.run(4_000);
    assert_eq!(world.owned(), homes);
}

#[test]
fn a_split_is_served_by_the_larger_side_alone() {
    for seed in 0..2 * runs() {
        let n_hosts = [3, 5, 4][seed as usize % 3];
        let mut world = World::new(n_hosts, 12, seed, [0, 20][seed as usize % 2]);
        world.counts = true;
        world.run(4_000);
        let homes = world.owned();
        let mut hosts: Vec<usize> = (0..n_hosts).collect();
        for idx in (1..n_hosts).rev() {
            hosts.swap(idx, world.draw.below(idx as u64 + 1) as usize);
        }
        hosts.truncate(1 + world.draw.below(n_hosts as u64 - 1) as usize);
        world.split(hosts.clone());
        world.run(4_000);
        let owned = |world: &World, small: bool| -> usize {
            let side = (0..n_hosts).filter(|&host| world.is_small(host, &hosts) == small);
            side.map(|host| world.hosts[host].kernel.own.len()).sum()
        };
        let has_majority = hosts.len() * 2 != n_hosts;
        assert_eq!((owned(&world, true), owned(&world, false)), (0, if has_majority { 12 } else { 0 }), "seed {seed}");
        world.join();
        world.run(6_000);
        assert_eq!(world.owned(), homes, "seed {seed}");
    }
}

/// The switch of the LAN is off for a while: all ports lose their carrier, and come back, within moments.
#[test]
fn all_ports_that_come_back_together_leave_one_owner_each() {
    for seed in 0..20 * runs() {
        let n_hosts = [2, 3, 5][seed as usize % 3];
        let mut world = World::new(n_hosts, 12, seed, [0, 20][seed as usize % 2]);
        world.run(4_000);
        let homes = world.owned();
        for closed in [true, false] {
            for host in 0..n_hosts {
                world.unplug(host, closed);
                let time = world.draw.below(4) * BEAT / 2;
                world.run(time);
            }
            let time = world.draw.below(3) * 1_000;
            world.run(time);
        }
        world.run(6_000);
        assert_eq!(world.owned(), homes, "seed {seed}");
    }
}

/// How many worlds are played: seconds' worth, and minutes' worth by night.
fn runs() -> u64 {
    if std::env::var_os("FAILOVER_NIGHTLY").is_some() { 600 } else { 12 }
}

#[test]
fn no_bucket_is_ever_served_twice() {
    for seed in 0..runs() {
        let n_hosts = 2 + seed as usize % 4;
        let mut world = World::new(n_hosts, 12, seed, [0, 10, 30, 50][seed as usize % 4]);
        world.run(1_000);
        for _ in 0..25 {
            let host = world.draw.below(n_hosts as u64) as usize;
            match world.draw.below(7) {
                0 => world.hosts[host].standby ^= true,
                4 => world.hosts[host].health_pct = [0, 1, 50, 100][world.draw.below(4) as usize],
                5 => world.unplug(host, true),
                6 => (0..n_hosts).for_each(|host| world.unplug(host, false)),
                // One fault at a time: who two hosts that are cut off from each other should
                // believe is a question for `quorum`.
                _ if world.hosts.iter().any(|host| host.frozen || host.cut) => {
                    let sick = world.hosts.iter().position(|host| host.frozen || host.cut).unwrap();
                    world.heal(sick);
                }
                1 => world.fault(host, true),
                // Of two hosts, each of which is cut off? Without quorum both would serve all.
                2 if n_hosts > 2 => world.fault(host, false),
                _ => {}
            }
            let time = world.draw.below(2_500);
            world.run(time);
        }
        // In the end all are well, and every bucket is owned.
        for host in 0..n_hosts {
            world.heal(host);
            world.hosts[host].standby = false;
            world.hosts[host].health_pct = 100;
            world.unplug(host, false);
        }
        world.loss_pct = 0;
        world.run(6_000);
        assert_eq!(world.owned().iter().map(Buckets::len).sum::<usize>(), 12, "seed {seed}");
    }
}
