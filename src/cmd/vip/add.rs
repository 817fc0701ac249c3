//! `vip add`: make the kernel carry an address.

use super::{Present, arp, ask, lease, vmac};
use crate::cli::args::{self, Changing, flags};
use crate::cli::progress::Progress;
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::vip::{self, AddStep, NoLink};
use crate::record::vip::{ACTED_COLUMNS, ADD_SCHEMA, Acted, Show, subject};
use crate::record::{Action, Head};
use crate::sys;
use crate::sys::event::Sources;
use crate::sys::netlink::{self, AddressRequest, Change, Netlink};
use crate::sys::privilege::{self, Capability};
use crate::sys::state::Lock;
use crate::types::draw::Draw;
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::{Mac, Prefix};
use crate::types::time::Span;
use clap::{ArgMatches, Args, ValueEnum};
use nix::errno::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "add",
    about: "Add addresses; one that is there already is left as it is",
    examples: "vip add 192.0.2.10/24 --dev eth0                  add it, tell nobody\n\
               vip add 2001:db8::10/64 --dev eth0 --dad off      do not wait for duplicates\n\
               vip add 192.0.2.10/32 --dev eth0 --lifetime 3s    gone in 3 s unless renewed\n\
               vip add 192.0.2.10/32 --dev eth0 --vmac 51        with the MAC of a virtual router\n\
               seq -f 192.0.2.%g/24 10 99 | vip add - --dev eth0 many in one go",
    args: flags::<Flags>,
    schemas: &[ADD_SCHEMA],
    columns: ACTED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Addresses to add; without LEN the address alone, /32 or /128 ('-' reads them from standard input, one a line)
    #[arg(value_name = "ADDR/LEN", required = true)]
    addresses: Vec<String>,

    /// The interface, by name or altname [default: the one whose network fits]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// IPv4 label, as in eth0:vip
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,

    /// Add no route to the prefix
    #[arg(long)]
    noprefixroute: bool,

    /// Never choose it as a source address (preferred lifetime 0)
    #[arg(long)]
    deprecated: bool,

    /// The kernel itself removes it after D unless it is renewed: whole seconds, at least 2
    #[arg(long, value_name = "D")]
    lifetime: Option<Span>,

    /// Look for duplicates first [default: off for IPv4, kernel for IPv6]
    #[arg(long, value_name = "HOW")]
    dad: Option<Dad>,

    /// Announce each added address N times, 200ms apart
    #[arg(long, value_name = "N", default_value = "0")]
    announce: u32,

    /// Put it on an interface of its own with the MAC of this virtual router, made if need be
    #[arg(long, value_name = "VRID", value_parser = clap::value_parser!(u8).range(1..))]
    vmac: Option<u8>,

    /// Refuse (status 75) where the link has no carrier
    #[arg(long)]
    require_carrier: bool,

    #[command(flatten)]
    changing: Changing,
}

/// How duplicates are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dad {
    /// Not at all
    Off,
    /// Ask the wire three times within 0.45 s
    Fast,
    /// As long as RFC 5227 wants: 4 to 7 s
    Full,
    /// IPv6: the kernel does, and the run waits for its verdict
    Kernel,
}

impl Dad {
    fn profile(self) -> Option<vip::Profile> {
        match self {
            Dad::Off | Dad::Kernel => None,
            Dad::Fast => Some(vip::Profile::Fast),
            Dad::Full => Some(vip::Profile::Full),
        }
    }
}

/// One address on its way.
struct Item {
    wanted: Address,
    link: Link,
    step: AddStep,
    /// MACs that have it already.
    holders: Vec<Mac>,
    announced: Option<u64>,
    /// What had to be done to the interface first.
    made: Vec<Action>,
    sysctls: BTreeMap<String, String>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let (asked, malformed) = super::operands(&flags.addresses, &process.who)?;
    let prefixes: Vec<Prefix> = asked.into_iter().map(|asked| asked.prefix).collect();
    check_flags(&flags, &prefixes)?;
    if prefixes.is_empty() {
        return Ok(malformed);
    }
    let object = flags.dev.as_deref().unwrap_or("an interface");
    let doing = match prefixes.as_slice() {
        [one] => format!("add {one} to"),
        several => format!("add {} addresses to", several.len()),
    };
    if !flags.changing.dry_run {
        privilege::need(Capability::NetAdmin, &doing, object)?;
    }
    let schedule = match flags.dad.and_then(Dad::profile) {
        Some(profile) => Some(vip::schedule(profile, &mut Draw::new(sys::raw::random_u64()?))),
        None => None,
    };
    let planned = schedule.as_ref().map_or(Duration::ZERO, |schedule| schedule.end);
    let deadline = process.deadline(planned + Duration::from_millis(200) * flags.announce);
    let present = Present::look()?;
    if let Some(dev) = &flags.dev {
        present.named(dev, &doing)?;
    }
    let subjects: Vec<String> = prefixes.iter().map(|prefix| prefix.addr.to_string()).collect();
    let lock = if flags.changing.dry_run { None } else { Some(Lock::take(&subjects, deadline)?) };
    // What another run did while this one waited for the lock counts.
    let mut present = if lock.is_some() { Present::look()? } else { present };

    let routers = routers(&flags, &prefixes, &mut present, &process.node)?;
    let mut failures: HashMap<usize, Failure> = HashMap::new();
    let mut items = Vec::with_capacity(prefixes.len());
    let by_prefix: HashMap<(Prefix, u32), &Address> =
        present.addresses.iter().map(|address| ((address.prefix, address.ifindex), address)).collect();
    for (idx, prefix) in prefixes.iter().enumerate() {
        let link = match &flags.dev {
            Some(dev) => present.named(dev, &doing)?,
            None => match vip::link_with(&present.links, &present.addresses, *prefix) {
                Err(NoLink::None) => vip::link_for(&present.links, &present.addresses, *prefix),
                found => found,
            }
            .map_err(|why| super::no_link(why, "add", *prefix, "no interface has a network that it fits"))?,
        };
        let router = routers.get(&prefix.addr.is_ipv6());
        let link = router.map_or(link, |router| &router.link);
        let wanted = wanted(&flags, *prefix, link.index);
        let step = vip::add_step(by_prefix.get(&(*prefix, link.index)).copied(), &wanted);
        if let Err(failure) = guard(&flags, &present, &wanted, link, &step) {
            failures.insert(idx, failure);
        }
        items.push(Item {
            wanted,
            link: link.clone(),
            step,
            holders: Vec::new(),
            announced: None,
            made: router.map_or_else(Vec::new, |router| router.actions.clone()),
            sysctls: router.map_or_else(BTreeMap::new, |router| router.sysctls.clone()),
        });
    }
    // Everything is checked before anything is changed.
    if let Some(schedule) = schedule.filter(|_| failures.is_empty() && !flags.changing.dry_run) {
        look_for_duplicates(&mut items, &schedule, &mut failures, deadline)?;
    }
    if failures.is_empty() && !flags.changing.dry_run {
        // A run of apply that was killed has left them silent.
        lease::end(None, &process.node, prefixes.iter().map(|prefix| prefix.addr))?;
        act(&items, &mut present, &mut failures, deadline)?;
        if flags.announce > 0 {
            announce(&flags, &mut items, &mut present, &mut failures, deadline);
        }
    }
    if !failures.is_empty() && !flags.changing.dry_run {
        // Nothing was added: an interface that was made for it goes again.
        for router in routers.values() {
            vmac::release(&mut present, &router.link, &process.node)?;
        }
    }
    Ok(report(&flags, &items, &failures, &mut present, process)?.and(malformed))
}

/// The interfaces of the virtual router, one each family that is wanted; none without `--vmac`.
fn routers(
    flags: &Flags,
    prefixes: &[Prefix],
    present: &mut Present,
    node: &str,
) -> Result<HashMap<bool, vmac::Made>, Failure> {
    let mut made = HashMap::new();
    let Some(vrid) = flags.vmac else { return Ok(made) };
    for prefix in prefixes {
        let ipv6 = prefix.addr.is_ipv6();
        if made.contains_key(&ipv6) {
            continue;
        }
        let lower = match &flags.dev {
            Some(dev) => present.named(dev, "add a virtual router to")?,
            None => vip::link_for(&present.links, &present.addresses, *prefix)
                .map_err(|why| super::no_link(why, "add", *prefix, "no interface has a network that it fits"))?,
        };
        let lower = lower.clone();
        made.insert(ipv6, vmac::ensure(present, &lower, vrid, ipv6, node, flags.changing.dry_run)?);
    }
    Ok(made)
}

/// What the parser cannot know.
fn check_flags(flags: &Flags, prefixes: &[Prefix]) -> Result<(), Failure> {
    let v4 = prefixes.iter().find(|prefix| prefix.addr.is_ipv4());
    let v6 = prefixes.iter().find(|prefix| prefix.addr.is_ipv6());
    if let (Some(Dad::Kernel), Some(prefix)) = (flags.dad, v4) {
        return Err(Failure::usage(format!("--dad kernel is for IPv6, and {prefix} is IPv4 (IPv4: --dad fast)")));
    }
    if let (Some(_), Some(prefix)) = (&flags.label, v6) {
        return Err(Failure::usage(format!("--label is for IPv4, and {prefix} is IPv6")));
    }
    if let Some(label) = &flags.label
        && (label.is_empty() || label.len() > 15)
    {
        return Err(Failure::usage(format!("--label '{label}': the kernel takes 1 to 15 bytes")));
    }
    if let Some(Span(lifetime)) = flags.lifetime
        && (lifetime.subsec_nanos() != 0 || lifetime.as_secs() < 2 || lifetime.as_secs() >= u64::from(u32::MAX))
    {
        return Err(Failure::usage("--lifetime takes whole seconds, at least 2s: the kernel counts in seconds"));
    }
    super::only_hosts(prefixes)
}

fn wanted(flags: &Flags, prefix: Prefix, ifindex: u32) -> Address {
    let mut address = netlink::plain(prefix, ifindex);
    address.label.clone_from(&flags.label);
    if flags.noprefixroute {
        address.flags.0 |= AddressFlags::NOPREFIXROUTE;
    }
    // Asked by ourselves, or not to be asked at all.
    if prefix.addr.is_ipv6() && !matches!(flags.dad, None | Some(Dad::Kernel)) {
        address.flags.0 |= AddressFlags::NODAD;
    }
    let seconds = flags.lifetime.and_then(|lifetime| u32::try_from(lifetime.0.as_secs()).ok());
    address.valid_s = seconds;
    address.preferred_s = if flags.deprecated { Some(0) } else { seconds };
    address
}

/// What would do harm is refused before anything is changed.
fn guard(flags: &Flags, present: &Present, wanted: &Address, link: &Link, step: &AddStep) -> Result<(), Failure> {
    let prefix = wanted.prefix;
    let cannot = |why: String| format!("cannot add {prefix} to {}: {why}", link.name);
    if let AddStep::Differs(how) = step {
        let why = format!(
            "it is there with {how} (see: vip show {prefix}; to have it anew: vip del {prefix} --dev {})",
            link.name
        );
        return Err(Failure::new(Exit::No, Reason::Conflict, cannot(why)));
    }
    if flags.require_carrier && !link.is_usable() {
        let why = if link.up { "the link has no carrier" } else { "the link is down" };
        return Err(Failure::new(
            Exit::Undecided,
            Reason::Refused,
            cannot(format!("{why} (see: ip link show {})", link.name)),
        ));
    }
    if flags.lifetime.is_some()
        && vip::would_be_primary(&present.addresses, wanted)
        && !super::promotes_secondaries(&link.name)?
    {
        let why = format!(
            "when its lifetime ends the kernel would remove every other address of its subnet too (add it as {}/32, or: sysctl net.ipv4.conf.{}.promote_secondaries=1)",
            prefix.addr, link.name
        );
        return Err(Failure::new(Exit::No, Reason::OtherAddressesToo, cannot(why)));
    }
    Ok(())
}

/// Asks the wire before anything is added: a holder, or no answer to be had, and nothing is.
fn look_for_duplicates(
    items: &mut [Item],
    schedule: &vip::Schedule,
    failures: &mut HashMap<usize, Failure>,
    deadline: sys::clock::Deadline,
) -> Result<(), Failure> {
    for indices in added_by_link(items, failures).into_values() {
        let Some(first) = indices.first().and_then(|idx| items.get(*idx)) else { continue };
        let link = first.link.clone();
        if let Some(failure) = ask::cannot_tell(&link, first.wanted.prefix.addr) {
            failures.extend(indices.into_iter().map(|idx| (idx, failure.clone())));
            continue;
        }
        let addresses: Vec<IpAddr> = indices.iter().map(|idx| items[*idx].wanted.prefix.addr).collect();
        let answers = ask::ask(&link, &addresses, schedule, false, deadline.tick())?;
        for idx in indices {
            let item = &mut items[idx];
            let prefix = item.wanted.prefix;
            let Some(answer) = answers.get(&prefix.addr).filter(|answer| answer.is_taken()) else { continue };
            item.holders = answer.holders.iter().map(|(mac, _)| *mac).chain(answer.wanting.iter().copied()).collect();
            let names: Vec<String> = item.holders.iter().map(ToString::to_string).collect();
            let why = format!(
                "cannot add {prefix} to {}: {} has it (see: vip who {})",
                link.name,
                names.join(", "),
                prefix.addr
            );
            failures.insert(idx, Failure::new(Exit::No, Reason::Conflict, why));
        }
    }
    Ok(())
}

/// The items that are to be added, by interface; those that failed left out.
fn added_by_link(items: &[Item], failures: &HashMap<usize, Failure>) -> HashMap<u32, Vec<usize>> {
    let mut by_link: HashMap<u32, Vec<usize>> = HashMap::new();
    for (idx, item) in items.iter().enumerate() {
        if item.step == AddStep::Add && !failures.contains_key(&idx) {
            by_link.entry(item.link.index).or_default().push(idx);
        }
    }
    by_link
}

/// Tells the neighbours of what was added.
fn announce(
    flags: &Flags,
    items: &mut [Item],
    present: &mut Present,
    failures: &mut HashMap<usize, Failure>,
    deadline: sys::clock::Deadline,
) {
    for indices in added_by_link(items, failures).into_values() {
        let addresses: Vec<IpAddr> = indices.iter().map(|idx| items[*idx].wanted.prefix.addr).collect();
        let Some(link) = indices.first().map(|idx| items[*idx].link.clone()) else { continue };
        match arp::tell(present, &link, &addresses, flags.announce, deadline.tick()) {
            Ok(sent) => indices.into_iter().zip(sent).for_each(|(idx, sent)| items[idx].announced = Some(sent)),
            // The address is there, and nobody was told: that is no success.
            Err(failure) => failures.extend(indices.into_iter().map(|idx| (idx, failure.clone()))),
        }
    }
}

fn act(
    items: &[Item],
    present: &mut Present,
    failures: &mut HashMap<usize, Failure>,
    deadline: sys::clock::Deadline,
) -> Result<(), Failure> {
    // Progress is shown after each.
    const PIECE: usize = 1024;
    let waits = |item: &Item| {
        item.step == AddStep::Add && item.wanted.prefix.addr.is_ipv6() && !item.wanted.flags.has(AddressFlags::NODAD)
    };
    // Listening starts before the kernel can have an answer.
    let mut monitor = if items.iter().any(waits) { Some(Netlink::monitor()?) } else { None };
    let mut progress = Progress::new(items.len() as u64, "adding");
    let (mut numbers, mut requests) = (Vec::new(), Vec::new());
    for (idx, item) in items.iter().enumerate() {
        let request = match item.step {
            AddStep::Add => AddressRequest::Add(item.wanted.clone()),
            AddStep::Change | AddStep::Renew => AddressRequest::Replace(item.wanted.clone()),
            AddStep::Keep | AddStep::Differs(_) => continue,
        };
        numbers.push(idx);
        requests.push(request);
    }
    for (numbers, requests) in numbers.chunks(PIECE).zip(requests.chunks(PIECE)) {
        for (idx, outcome) in numbers.iter().zip(present.netlink.change(requests)?) {
            let Err(refusal) = outcome else { continue };
            let item = &items[*idx];
            // Added by somebody between look and act: what is there is read back below.
            if refusal.errno == Errno::EEXIST {
                continue;
            }
            let error = sys::Error::Call {
                doing: format!("add {} to", item.wanted.prefix),
                object: item.link.name.clone(),
                errno: refusal.errno,
                said: refusal.said,
            };
            failures.insert(*idx, error.into());
        }
        progress.at(numbers.last().map_or(0, |last| *last as u64));
    }
    present.look_again()?;
    if let Some(monitor) = &mut monitor {
        await_dad(items, &waits, present, monitor, failures, deadline)?;
    }
    Ok(())
}

/// Waits until no address that was added is tentative any more, and takes away duplicates.
fn await_dad(
    items: &[Item],
    waits: &dyn Fn(&Item) -> bool,
    present: &mut Present,
    monitor: &mut Netlink,
    failures: &mut HashMap<usize, Failure>,
    deadline: sys::clock::Deadline,
) -> Result<(), Failure> {
    loop {
        let state: HashMap<(Prefix, u32), AddressFlags> =
            present.addresses.iter().map(|address| ((address.prefix, address.ifindex), address.flags)).collect();
        let mut pending = false;
        for (idx, item) in items.iter().enumerate().filter(|(_, item)| waits(item)) {
            if failures.contains_key(&idx) {
                continue;
            }
            let prefix = item.wanted.prefix;
            let Some(flags) = state.get(&(prefix, item.wanted.ifindex)) else { continue };
            if flags.has(AddressFlags::DADFAILED) {
                let request = AddressRequest::Delete { prefix, ifindex: item.wanted.ifindex };
                // It may have gone by itself: then there is nothing left to take away.
                let _ = present.netlink.change(&[request])?;
                let why = format!(
                    "cannot add {prefix} to {}: another host has it (see: vip who {})",
                    item.link.name, prefix.addr
                );
                failures.insert(idx, Failure::new(Exit::No, Reason::Conflict, why));
            } else if flags.has(AddressFlags::TENTATIVE) && item.link.is_usable() {
                pending = true;
            }
        }
        if !pending {
            return Ok(present.look_again()?);
        }
        let mut sources = Sources::default();
        sources.readable(monitor.as_fd());
        if !sources.wait(Some(deadline.tick()))? {
            return Ok(());
        }
        let _: Vec<Change> = monitor.changes()?;
        present.look_again()?;
    }
}

fn report(
    flags: &Flags,
    items: &[Item],
    failures: &HashMap<usize, Failure>,
    present: &mut Present,
    process: &mut Process,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Yes;
    let state: HashMap<(Prefix, u32), &Address> =
        present.addresses.iter().map(|address| ((address.prefix, address.ifindex), address)).collect();
    // One bad item and nothing was changed: the others are not reported as if they had been looked at.
    let refused_early = !failures.is_empty() && items.len() != failures.len();
    for (idx, item) in items.iter().enumerate() {
        let mut head = Head::new("vip.add").about(subject(&item.wanted, &item.link));
        head.dry_run = flags.changing.dry_run;
        let changes = matches!(item.step, AddStep::Add | AddStep::Change);
        head.renewal = item.step == AddStep::Renew;
        if (flags.changing.dry_run || flags.changing.explain) && (changes || head.renewal) {
            head.actions.extend(item.made.iter().cloned());
            head.actions.push(action(item));
        }
        let now = state.get(&(item.wanted.prefix, item.wanted.ifindex)).copied();
        match failures.get(&idx) {
            Some(failure) => {
                process.complain(&failure.sentence);
                head.error = Some(failure.body());
                head.changed = Some(changes && now.is_some() && !flags.changing.dry_run);
                exit = exit.and(failure.exit);
            }
            None if now.is_none() && !flags.changing.dry_run => {
                head.changed = Some(false);
                if !refused_early {
                    let why = format!(
                        "cannot add {} to {}: it went away again at once (is a network manager pruning it?)",
                        item.wanted.prefix, item.link.name
                    );
                    let failure = Failure::new(Exit::Refused, Reason::Refused, why);
                    process.complain(&failure.sentence);
                    head.error = Some(failure.body());
                    exit = exit.and(failure.exit);
                }
            }
            None => head.changed = Some(changes && (flags.changing.dry_run || now.is_some())),
        }
        let seen = now.unwrap_or(&item.wanted);
        let shown = now.is_some() || head.dry_run;
        let acted = Acted {
            // Of an address that is not there nothing more can be said.
            show: shown.then(|| Show::new(seen, &item.link)),
            removed: Vec::new(),
            sysctls: item.sysctls.clone(),
            announced: item.announced,
            holders: item.holders.iter().map(ToString::to_string).collect(),
        };
        if head.error.is_none()
            && acted.show.as_ref().is_some_and(|show| show.state.tentative)
            && !flags.changing.dry_run
            && item.step == AddStep::Add
        {
            exit = exit.and(Exit::Undecided);
        }
        process.out.record(&head, &acted)?;
    }
    Ok(exit)
}

/// The change as `ip` would say it.
fn action(item: &Item) -> Action {
    let (address, dev) = (&item.wanted, &item.link.name);
    let mut text = format!(
        "ip addr {} {} dev {dev} proto {}",
        if item.step == AddStep::Add { "add" } else { "replace" },
        address.prefix,
        address.proto
    );
    if let Some(label) = &address.label {
        let _ = write!(text, " label {label}");
    }
    if let Some(seconds) = address.valid_s {
        let _ = write!(text, " valid_lft {seconds}");
    }
    if let Some(seconds) = address.preferred_s {
        let _ = write!(text, " preferred_lft {seconds}");
    }
    for (flag, word) in [(AddressFlags::NODAD, " nodad"), (AddressFlags::NOPREFIXROUTE, " noprefixroute")] {
        if address.flags.has(flag) {
            text.push_str(word);
        }
    }
    Action { op: if item.step == AddStep::Add { "address-add" } else { "address-change" }, text }
}
