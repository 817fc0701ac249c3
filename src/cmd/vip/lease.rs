//! Leases: what `apply` carries answers only while elections renew it.
//!
//! The kernel counts, so a frozen process loses what it does not renew. A lease that has run out is never
//! renewed: the address is given up, and taken anew by the next election.

use crate::cli::{Exit, Failure, Reason};
use crate::decide::vip::Order;
use crate::sys::clock::{self, Deadline};
use crate::sys::nft::{Heard, Loader, Monitor, Nft, changed_by_others};
use crate::sys::state::Presence;
use crate::sys::{self, state};
use crate::types::time::{Span, Tick};
use crate::wire::nft::lease as rules;
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

const DOING: &str = "lease";
/// How long one change of the rules may take.
const STEP: Duration = Duration::from_secs(5);
/// When an address that was refused is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Reads `--lease`.
pub(super) fn check(term: Duration) -> Result<(), Failure> {
    let whole = term.subsec_nanos().is_multiple_of(1_000_000);
    if !whole || term < Duration::from_millis(100) || term > Duration::from_secs(3600) {
        return Err(Failure::usage("--lease takes whole milliseconds, 100ms to 1h"));
    }
    Ok(())
}

/// The leases that one run holds.
#[derive(Debug)]
pub(super) struct Leases {
    term: Duration,
    node: String,
    nft: Nft,
    loader: Loader,
    rules: Monitor,
    granted: BTreeMap<IpAddr, Granted>,
    /// What could not be leased, and when it is tried again.
    refused: BTreeMap<IpAddr, Tick>,
    /// Somebody else has changed our rules.
    disturbed: bool,
}

#[derive(Debug)]
struct Granted {
    /// The kernel serves at least until then.
    until: Tick,
    renewed: Tick,
    /// When a renewal was tried last.
    tried: Tick,
    sign: Presence,
}

impl Leases {
    /// Refuses what cannot work at all: a missing program, or a kernel that extends nothing in place where that
    /// is needed.
    pub(super) fn open(term: Duration, node: &str) -> Result<Self, Failure> {
        let nft = Nft::find(DOING, "addresses", Deadline::after(STEP))?;
        if rules::in_place(term) {
            try_in_place(&nft, term)?;
        }
        let (mut loader, rules) = (Loader::default(), Monitor::open()?);
        loader.prepare(&nft)?;
        let (granted, refused) = (BTreeMap::new(), BTreeMap::new());
        Ok(Leases { term, node: node.to_owned(), nft, loader, rules, granted, refused, disturbed: false })
    }

    /// Tells that somebody changed the rules.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.rules.as_fd()
    }

    /// The lease of an address and what is left of it.
    pub(super) fn of(&self, vip: IpAddr) -> Option<(Duration, Duration)> {
        self.granted.get(&vip).map(|granted| (self.term, granted.until.since(clock::boot())))
    }

    /// Loads a document about addresses of ours.
    fn load(&mut self, text: &str, vip: IpAddr) -> Result<(), sys::Error> {
        self.nft = self.nft.until(Deadline::after(STEP));
        let object = vip.to_string();
        let loaded = self.loader.load(&self.nft, text, &rules::name(vip), (DOING, &object), &mut self.rules)?;
        // Where the kernel does not say whose change it was, it was ours.
        self.disturbed |= loaded.process.is_some() && self.is_disturbed(&loaded.heard, loaded.process);
        self.loader.rest(&self.nft)
    }

    fn is_disturbed(&self, heard: &[Heard], ours: Option<u32>) -> bool {
        self.granted.keys().any(|vip| changed_by_others(heard, &rules::name(*vip), ours))
    }

    /// Leases what shall be carried, before it is. What cannot be leased must not be carried; it is told why once
    /// in a while, and with `None` in between.
    pub(super) fn grant(&mut self, orders: &[Order], own: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, Option<Failure>> {
        let now = clock::boot();
        let mut outcome = BTreeMap::new();
        let (mut text, mut signs) = (String::new(), BTreeMap::new());
        for order in orders {
            let vip = order.vip.addr;
            // One that stands is renewed when it is due.
            if self.granted.get(&vip).is_some_and(|granted| now < granted.until) {
                continue;
            }
            if self.refused.get(&vip).is_some_and(|again| now < *again) {
                outcome.insert(vip, None);
                continue;
            }
            let sign = match self.granted.remove(&vip) {
                Some(granted) => Ok(granted.sign),
                None => self.may_lease(vip, own.contains(&vip)),
            };
            match sign {
                Ok(sign) => {
                    let until = self.until(order);
                    text += &rules::grant(vip, self.term, until.since(now));
                    signs.insert(vip, (sign, until));
                }
                Err(failure) => drop(outcome.insert(vip, Some(failure))),
            }
        }
        if let Some((first, _)) = signs.first_key_value() {
            match self.load(&text, *first) {
                Ok(()) => {
                    for (vip, (sign, until)) in signs {
                        self.granted.insert(vip, Granted { until, renewed: now, tried: now, sign });
                    }
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    outcome.extend(signs.into_keys().map(|vip| (vip, Some(failure.clone()))));
                }
            }
        }
        self.refused.retain(|_, again| now < *again);
        self.refused.extend(outcome.iter().filter(|(_, why)| why.is_some()).map(|(vip, _)| (*vip, now.after(AGAIN))));
        outcome
    }

    /// The sign that this run leases an address; one run does.
    fn may_lease(&self, vip: IpAddr, is_own: bool) -> Result<Presence, Failure> {
        let cannot = |exit, reason, why: &str| Failure::new(exit, reason, format!("cannot lease {vip}: {why}"));
        if is_own {
            let why = "it is here as this host's own address, and would be closed to all who need the host (take that one away first)";
            return Err(cannot(Exit::No, Reason::Conflict, why));
        }
        let (family, table) = rules::of_cluster(vip);
        if self.nft.until(Deadline::after(STEP)).list_text(&["table", family, &table], &vip.to_string())?.is_some() {
            let why = format!(
                "it is a cluster IP of this host, which has a lease of its own (bucket init --lease, or: bucket clear {vip})"
            );
            return Err(cannot(Exit::No, Reason::Conflict, &why));
        }
        Presence::hold(&sign(&self.node, vip))?.ok_or_else(|| {
            let why = "another vip apply on this host leases it (end that one first)";
            cannot(Exit::Undecided, Reason::LockHeld, why)
        })
    }

    /// How far an election renews: as long as the lease from when it was said.
    fn until(&self, order: &Order) -> Tick {
        order.said.after(self.term)
    }

    /// Renews what was elected again, each third of the lease, in one go.
    pub(super) fn renew<'a>(&mut self, orders: impl Iterator<Item = &'a Order>) -> Result<(), Failure> {
        let now = clock::boot();
        let due: Vec<(IpAddr, Tick)> = orders
            .filter_map(|order| {
                let (granted, until) = (self.granted.get(&order.vip.addr)?, self.until(order));
                let is_due = now < granted.until && until > granted.until && now >= self.next_try(granted);
                is_due.then_some((order.vip.addr, until))
            })
            .collect();
        match self.try_to_renew(&due, now) {
            // One of them has no lease, or no table, any more: which?
            Err(sys::Error::Call { errno: Errno::ENOENT, .. }) => {
                due.iter().try_for_each(|one| self.renew_or_lose(*one, now))
            }
            outcome => Ok(outcome?),
        }
    }

    fn next_try(&self, granted: &Granted) -> Tick {
        granted.renewed.max(granted.tried).after(self.term / 3)
    }

    fn renew_or_lose(&mut self, (vip, until): (IpAddr, Tick), now: Tick) -> Result<(), Failure> {
        match self.try_to_renew(&[(vip, until)], now) {
            Err(sys::Error::Call { errno: Errno::ENOENT, .. }) => {
                let standing = standing(&self.nft.until(Deadline::after(STEP)), vip)?;
                match self.granted.get_mut(&vip) {
                    // It has run out.
                    Some(granted) if standing.is_some() => granted.until = now,
                    // Somebody has flushed the rules.
                    _ => self.disturbed = true,
                }
                Ok(())
            }
            outcome => Ok(outcome?),
        }
    }

    fn try_to_renew(&mut self, due: &[(IpAddr, Tick)], now: Tick) -> Result<(), sys::Error> {
        let Some((first, _)) = due.first() else { return Ok(()) };
        let mut text = String::new();
        let mut in_place = BTreeMap::new();
        for (vip, until) in due {
            let Some(granted) = self.granted.get_mut(vip) else { continue };
            granted.tried = now;
            // In place one that has run out would come back: there must be time left for the commit.
            let is_in_place = rules::in_place(self.term) && now.since(granted.renewed) < self.term / 2;
            text += &rules::renew(*vip, self.term, until.since(now), is_in_place);
            in_place.insert(*vip, is_in_place);
        }
        self.load(&text, *first)?;
        let after = clock::boot();
        for (vip, until) in due {
            let Some(granted) = self.granted.get_mut(vip) else { continue };
            let came_back = in_place.get(vip) == Some(&true) && after >= granted.until;
            // The commit came too late and may have brought it back: it is lost all the same.
            granted.until = if came_back { now } else { *until };
            granted.renewed = now;
        }
        Ok(())
    }

    /// When something is to be done about a lease.
    pub(super) fn next_due<'a>(&self, orders: impl Iterator<Item = &'a Order>) -> Option<Tick> {
        let due = |order: &Order| {
            let granted = self.granted.get(&order.vip.addr)?;
            Some(if self.until(order) > granted.until {
                self.next_try(granted).min(granted.until)
            } else {
                granted.until
            })
        };
        orders.filter_map(due).min()
    }

    /// What has run out.
    pub(super) fn lapsed(&self, now: Tick) -> BTreeSet<IpAddr> {
        self.granted.iter().filter(|(_, granted)| now >= granted.until).map(|(vip, _)| *vip).collect()
    }

    /// Makes the rules anew where somebody else has changed them; the addresses that this was for.
    pub(super) fn heal(&mut self) -> Result<Vec<IpAddr>, Failure> {
        let heard = self.rules.heard()?;
        self.disturbed |= self.is_disturbed(&heard, None);
        if !std::mem::take(&mut self.disturbed) {
            return Ok(Vec::new());
        }
        let now = clock::boot();
        let mut text = String::new();
        let mut healed = Vec::new();
        for (vip, granted) in self.granted.iter().filter(|(_, granted)| now < granted.until) {
            text += &rules::grant(*vip, self.term, granted.until.since(now));
            healed.push(*vip);
        }
        if let Some(first) = healed.first() {
            let loaded = self.load(&text, *first);
            // Whatever it was: until that was done nothing is as it should be.
            self.disturbed |= loaded.is_err();
            loaded?;
        }
        Ok(healed)
    }

    /// Takes away the rules of addresses that are no longer carried.
    fn end(&mut self, vips: &[IpAddr]) -> Result<(), Failure> {
        let Some(first) = vips.first() else { return Ok(()) };
        let text: String = vips.iter().map(|vip| rules::clear(*vip)).collect();
        self.load(&text, *first)?;
        for vip in vips {
            // While we still have it: nobody else has begun.
            let _ = std::fs::remove_file(sign(&self.node, *vip));
            self.granted.remove(vip);
        }
        Ok(())
    }
}

/// Takes away the rules of addresses that are no longer carried under a lease, also those that a killed run
/// has left. What another living run leases is left.
pub(super) fn end(leases: Option<&mut Leases>, node: &str, vips: impl Iterator<Item = IpAddr>) -> Result<(), Failure> {
    let vips: BTreeSet<IpAddr> = vips.collect();
    let mut own = Vec::new();
    let mut left = Vec::new();
    for vip in vips {
        if leases.as_ref().is_some_and(|leases| leases.granted.contains_key(&vip)) {
            own.push(vip);
        } else if sign(node, vip).exists() {
            left.push(vip);
        }
    }
    if let Some(leases) = leases {
        leases.end(&own)?;
    }
    for vip in left {
        let path = sign(node, vip);
        let Some(_sign) = Presence::hold(&path)? else { continue };
        let nft = Nft::find("end the lease of", &vip.to_string(), Deadline::after(STEP))?;
        nft.load(&rules::clear(vip), "end the lease of", &vip.to_string())?;
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The leases that stand, of some addresses: each with what is left of it.
///
/// What cannot be found out is left out: who looks needs no right to list rules.
pub(super) fn all(node: &str, vips: impl Iterator<Item = IpAddr>) -> BTreeMap<IpAddr, (Duration, Duration)> {
    let look = |vip: IpAddr| {
        let nft = Nft::find("look at the lease of", &vip.to_string(), Deadline::after(STEP)).ok()?;
        Some((vip, standing(&nft, vip).ok()??))
    };
    // One look at the folder, whatever the number of addresses.
    let entries = std::fs::read_dir(state::folder()).into_iter().flatten();
    let names: BTreeSet<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    vips.filter(|vip| names.contains(&sign(node, *vip))).filter_map(look).collect()
}

/// The lease as the kernel has it; `None` where there are no rules for it.
fn standing(nft: &Nft, vip: IpAddr) -> Result<Option<(Duration, Duration)>, sys::Error> {
    let (family, _) = rules::of_cluster(vip);
    let text = nft.list_text(&["table", family, &rules::name(vip)], &vip.to_string())?;
    Ok(text.and_then(|text| rules::read(&text)))
}

/// The sign that a run of this node leases an address. A killed run leaves it: there are rules then.
fn sign(node: &str, vip: IpAddr) -> PathBuf {
    state::folder().join(format!("vip-{node}-lease-{}", state::file_name(&vip.to_string())))
}

/// Older kernels take a renewal in place and ignore it.
fn try_in_place(nft: &Nft, term: Duration) -> Result<(), Failure> {
    let (name, [make, extend, remove]) = rules::trial(std::process::id());
    nft.load(&make, DOING, &name)?;
    let extended = nft.load(&extend, DOING, &name);
    let text = nft.list_text(&["table", "ip", &name], &name);
    nft.load(&remove, DOING, &name)?;
    extended?;
    if rules::read(&text?.unwrap_or_default()).is_some_and(|(term, left)| left > term / 2) {
        return Ok(());
    }
    let why = format!(
        "cannot lease addresses for {}: this kernel does not extend an element in place (take --lease 1s or more)",
        Span(term)
    );
    Err(Failure::new(Exit::Missing, Reason::NoSuchFeature, why))
}

/// What a dry run says of an address that would be taken.
pub(super) fn text(order: &Order, term: Duration) -> String {
    rules::grant(order.vip.addr, term, term)
}
