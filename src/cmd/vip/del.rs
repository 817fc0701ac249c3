//! `vip del`: take an address away, that one and no other.

use super::{Asked, Present, forward, lease, share, source, vmac};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::vip::{self, NoLink};
use crate::record::vip::{ACTED_COLUMNS, DEL_SCHEMA, Deleted, Show, subject};
use crate::record::{Action, Head};
use crate::sys::netlink::AddressRequest;
use crate::sys::privilege::{self, Capability};
use crate::sys::state::Lock;
use crate::sys::{self, diag};
use crate::types::link::{Address, Link};
use crate::types::net::Prefix;
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "del",
    about: "Take addresses away; one that is not there is no failure",
    examples: "vip del 192.0.2.10/24 --dev eth0    this address, this prefix, this interface\n\
               vip del --mine                      everything that these commands have added\n\
               vip del 192.0.2.10/24 --dry-run     what would go, secondaries included?",
    args: flags::<Flags>,
    schemas: &[DEL_SCHEMA],
    columns: ACTED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// Addresses to take away ('-' reads them from standard input, one a line)
    #[arg(value_name = "ADDR[/LEN]", required_unless_present = "mine")]
    addresses: Vec<String>,

    /// The interface [default: the one that carries it]
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,

    /// Everything that these commands have added, and nothing else
    #[arg(long)]
    mine: bool,

    /// Take along the secondaries that the kernel removes with the first address of a subnet
    #[arg(long)]
    with_secondaries: bool,

    /// End the TCP connections of the address: both ends learn it at once
    #[arg(long)]
    kill_connections: bool,

    #[command(flatten)]
    changing: Changing,
}

/// One address to take away.
struct Victim {
    address: Address,
    link: Link,
    along: Vec<Address>,
}

/// What was asked for one operand.
enum Item {
    There(Victim),
    Absent(Prefix),
}

impl Item {
    fn addr(&self) -> IpAddr {
        match self {
            Item::There(victim) => victim.address.prefix.addr,
            Item::Absent(prefix) => prefix.addr,
        }
    }
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let (words, malformed) = super::operands(&flags.addresses, &process.who)?;
    let doing = match words.as_slice() {
        [one] => format!("delete {} from", one.prefix),
        _ => "delete addresses from".to_owned(),
    };
    if !flags.changing.dry_run {
        privilege::need(Capability::NetAdmin, &doing, flags.dev.as_deref().unwrap_or("an interface"))?;
    }
    let deadline = process.deadline(Duration::ZERO);
    let present = Present::look()?;
    let subjects: Vec<String> =
        wanted(&flags, &words, &present).iter().map(|asked| asked.prefix.addr.to_string()).collect();
    let _lock = if flags.changing.dry_run { None } else { Some(Lock::take(&subjects, deadline)?) };
    let mut present = Present::look()?;
    let items = wanted(&flags, &words, &present)
        .into_iter()
        .map(|asked| find(&flags, &present, asked))
        .collect::<Result<Vec<_>, _>>()?;
    refuse_to_take_along(&flags, &items)?;

    let before: Vec<Address> = present.addresses.clone();
    let mut failures: Vec<Option<Failure>> = vec![None; items.len()];
    let mut killed: HashMap<usize, u64> = HashMap::new();
    let mut unmade: HashMap<usize, Vec<Action>> = HashMap::new();
    if !flags.changing.dry_run {
        // Before the address goes: the reset that tells the peer leaves from it.
        for (idx, item) in items.iter().enumerate().filter(|_| flags.kill_connections) {
            let Item::There(victim) = item else { continue };
            let mut count = 0;
            for connection in diag::connections(victim.address.prefix.addr)? {
                match diag::destroy(&connection) {
                    Ok(()) => count += 1,
                    Err(error) => failures[idx] = Some(error.into()),
                }
            }
            killed.insert(idx, count);
        }
        for (idx, failure) in act(&items, &mut present)? {
            failures[idx] = Some(failure);
        }
        present.look_again()?;
        for (idx, item) in items.iter().enumerate() {
            let Item::There(victim) = item else { continue };
            match vmac::release(&mut present, &victim.link, &process.node) {
                Ok(done) => drop(unmade.insert(idx, done)),
                Err(failure) => failures[idx] = Some(failure),
            }
        }
    }
    if !flags.changing.dry_run {
        vmac::sweep(&mut present, &process.node)?;
        share::sweep(&present, &process.node)?;
        let stays = |addr| present.addresses.iter().any(|address| address.is_ours() && address.prefix.addr == addr);
        let named = items.iter().map(Item::addr);
        lease::end(None, &process.node, named.filter(|addr| !stays(*addr)))?;
        sweep_routes(&flags, &items, &mut present, &process.node)?;
    }
    let left: HashSet<(Prefix, u32)> =
        present.addresses.iter().map(|address| (address.prefix, address.ifindex)).collect();
    let mut exit = malformed;
    for (idx, (item, failure)) in items.iter().zip(&failures).enumerate() {
        let mut head = Head::new("vip.del");
        head.dry_run = flags.changing.dry_run;
        match item {
            Item::Absent(prefix) => {
                head = head.about(prefix.addr);
                head.changed = Some(false);
                process.out.record(&head, &Deleted { before: None, removed: Vec::new(), connections_killed: None })?;
            }
            Item::There(victim) => {
                let gone = |address: &Address| {
                    if flags.changing.dry_run {
                        failure.is_none()
                    } else {
                        !left.contains(&(address.prefix, address.ifindex))
                    }
                };
                head = head.about(subject(&victim.address, &victim.link));
                head.changed = Some(gone(&victim.address));
                if flags.changing.dry_run || flags.changing.explain {
                    head.actions.push(Action {
                        op: "address-del",
                        text: format!("ip addr del {} dev {}", victim.address.prefix, victim.link.name),
                    });
                    head.actions.extend(unmade.remove(&idx).unwrap_or_default());
                }
                if let Some(failure) = failure {
                    process.complain(&failure.sentence);
                    head.error = Some(failure.body());
                    exit = exit.and(failure.exit);
                }
                let removed = before
                    .iter()
                    .filter(|address| is_about(address, victim) && gone(address))
                    .map(|address| address.prefix.to_string())
                    .collect();
                process.out.record(
                    &head,
                    &Deleted {
                        before: Some(Show::new(&victim.address, &victim.link)),
                        removed,
                        connections_killed: killed.get(&idx).copied(),
                    },
                )?;
            }
        }
    }
    Ok(exit)
}

/// Finishes what killed runs have begun with the addresses that are gone: routes by which this host sends from
/// them, and what is sent on for them.
fn sweep_routes(flags: &Flags, items: &[Item], present: &mut Present, node: &str) -> Result<(), Failure> {
    let mut gone: BTreeSet<IpAddr> = items
        .iter()
        .map(|item| match item {
            Item::There(victim) => victim.address.prefix.addr,
            Item::Absent(prefix) => prefix.addr,
        })
        .collect();
    if flags.mine && flags.dev.is_none() {
        gone.extend(forward::sent_on(present)?);
    }
    gone.retain(|addr| !present.addresses.iter().any(|address| address.prefix.addr == *addr));
    if !gone.is_empty() {
        source::settle(present, &[], &gone, false)?;
        forward::clear(present, node, &gone)?;
    }
    Ok(())
}

/// Whether `address` is the victim itself or goes with it.
fn is_about(address: &Address, victim: &Victim) -> bool {
    let same = |other: &Address| other.prefix == address.prefix && other.ifindex == address.ifindex;
    same(&victim.address) || victim.along.iter().any(same)
}

/// What the operands and `--mine` name, and whether each names its length.
fn wanted(flags: &Flags, words: &[Asked], present: &Present) -> Vec<Asked> {
    let dev = flags.dev.as_deref().and_then(|dev| vip::link_called(&present.links, dev)).map(|link| link.index);
    let mut wanted = words.to_vec();
    if flags.mine {
        let ours = present
            .addresses
            .iter()
            .filter(|address| address.is_ours() && dev.is_none_or(|dev| dev == address.ifindex));
        if words.is_empty() {
            // Secondaries first: then no first address takes one along.
            let mut ours: Vec<&Address> = ours.collect();
            ours.sort_by_key(|address| !address.flags.has(crate::types::link::AddressFlags::SECONDARY));
            wanted = ours.into_iter().map(|address| Asked { prefix: address.prefix, exact: true }).collect();
        } else {
            let ours: Vec<&Address> = ours.collect();
            wanted.retain(|asked| ours.iter().any(|address| asked.is(address.prefix)));
        }
    }
    wanted
}

fn find(flags: &Flags, present: &Present, asked: Asked) -> Result<Item, Failure> {
    let prefix = asked.prefix;
    let named = match &flags.dev {
        // An interface that is gone has taken its addresses along: that is what was asked for.
        Some(dev) => match vip::link_called(&present.links, dev) {
            Some(link) => Some(link),
            None => return Ok(Item::Absent(prefix)),
        },
        None => None,
    };
    let mut found: Vec<&Address> = present
        .addresses
        .iter()
        .filter(|address| {
            asked.is(address.prefix)
                && named.is_none_or(|link| link.index == address.ifindex)
                && (!flags.mine || address.is_ours())
        })
        .collect();
    let Some(address) = found.pop() else {
        return Ok(Item::Absent(prefix));
    };
    if !found.is_empty() {
        found.push(address);
        let places = found
            .iter()
            .map(|address| {
                let dev = present.link(address.ifindex).map_or("?", |link| link.name.as_str());
                format!("{} on {dev}", address.prefix)
            })
            .collect();
        return Err(match super::no_link(NoLink::Several(places), "delete", prefix, "") {
            failure if named.is_some() => Failure {
                sentence: failure.sentence.replace("(name one: --dev DEV)", "(name its length: ADDR/LEN)"),
                ..failure
            },
            failure => failure,
        });
    }
    let Some(link) = present.link(address.ifindex) else { return Ok(Item::Absent(prefix)) };
    let promote = super::promotes_secondaries(&link.name)?;
    let along = vip::taken_along(&present.addresses, address, promote).into_iter().cloned().collect();
    Ok(Item::There(Victim { address: address.clone(), link: link.clone(), along }))
}

/// Refuses the whole run if an address that nobody named would go too.
fn refuse_to_take_along(flags: &Flags, items: &[Item]) -> Result<(), Failure> {
    if flags.with_secondaries {
        return Ok(());
    }
    let named: HashSet<(Prefix, u32)> = items
        .iter()
        .filter_map(|item| match item {
            Item::There(victim) => Some((victim.address.prefix, victim.address.ifindex)),
            Item::Absent(_) => None,
        })
        .collect();
    for item in items {
        let Item::There(victim) = item else { continue };
        let others: Vec<String> = victim
            .along
            .iter()
            .filter(|address| !named.contains(&(address.prefix, address.ifindex)))
            .map(|address| address.prefix.to_string())
            .collect();
        if !others.is_empty() {
            let dev = &victim.link.name;
            let sentence = format!(
                "cannot delete {} from {dev}: the kernel would remove {} too (keep them: sysctl net.ipv4.conf.{dev}.promote_secondaries=1; take them along: --with-secondaries)",
                victim.address.prefix,
                others.join(", ")
            );
            return Err(Failure::new(Exit::No, Reason::OtherAddressesToo, sentence));
        }
    }
    Ok(())
}

fn act(items: &[Item], present: &mut Present) -> Result<Vec<(usize, Failure)>, Failure> {
    let victims: Vec<(usize, &Victim)> = items
        .iter()
        .enumerate()
        .filter_map(|(idx, item)| match item {
            Item::There(victim) => Some((idx, victim)),
            Item::Absent(_) => None,
        })
        .collect();
    let requests: Vec<AddressRequest> = victims
        .iter()
        .map(|(_, victim)| AddressRequest::Delete { prefix: victim.address.prefix, ifindex: victim.address.ifindex })
        .collect();
    let mut failures = Vec::new();
    for ((idx, victim), outcome) in victims.iter().zip(present.netlink.change(&requests)?) {
        let Err(refusal) = outcome else { continue };
        // Gone between look and act, with its interface or its first address: as was asked.
        if matches!(refusal.errno, Errno::EADDRNOTAVAIL | Errno::ENODEV) {
            continue;
        }
        let error = sys::Error::Call {
            doing: format!("delete {} from", victim.address.prefix),
            object: victim.link.name.clone(),
            errno: refusal.errno,
            said: refusal.said,
        };
        failures.push((*idx, error.into()));
    }
    Ok(failures)
}
