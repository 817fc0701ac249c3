//! `bucket clear`: take a cluster IP away from this node.

use super::backend::{self, Seen, Store, Where, listed, tables};
use super::{carried, is_joined, join, join_text, silence, sysctl_name};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::record::Action;
use crate::record::bucket::{ACTED_COLUMNS, CLEAR_SCHEMA, Cleared};
use crate::sys;
use crate::sys::netlink::{AddressRequest, Netlink};
use crate::sys::nft::Nft;
use crate::sys::sysctl;
use crate::types::cluster::{Cluster, Held};
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::Prefix;
use crate::wire::nft::{cluster, family};
use clap::{ArgMatches, Args};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "clear",
    about: "Take a cluster IP away: close it, then the address, the membership, the rules",
    examples: "bucket clear 192.0.2.10             one that is not there is no failure\n\
               bucket clear 192.0.2.10 --dry-run   what would go?",
    args: flags::<Flags>,
    schemas: &[CLEAR_SCHEMA],
    columns: ACTED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IP
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: IpAddr,

    #[command(flatten)]
    place: Where,

    #[command(flatten)]
    changing: Changing,
}

/// What there is to take away.
struct Found {
    before: Option<Seen>,
    /// Any of the tables, also one whose form we cannot read.
    rules: bool,
    addresses: Vec<Address>,
    member: Option<(Link, crate::types::net::Mac)>,
    setting: Option<(String, u8)>,
    /// Set to 1, by us or by somebody else.
    unknown_setting: Option<String>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let vip = flags.vip;
    let doing = "take away the cluster IP";
    let deadline = process.deadline(Duration::ZERO);
    let store = Store::open(&flags.place, doing, Some(vip), process, deadline)?;
    let (_lock, mut head) = super::begin("bucket.clear", vip, flags.changing, deadline)?;
    let nft = match &store {
        Store::Nft(nft) => nft,
        Store::File(origin) => {
            let before = store.look(vip)?;
            head.changed = Some(before.is_some());
            if !flags.changing.dry_run {
                head.changed = Some(backend::forget(origin, vip)?);
            }
            process.out.record(&head, &cleared(before.as_ref(), BTreeMap::new()))?;
            return Ok(Exit::Yes);
        }
        Store::Proc(_) => {
            return Err(Failure::usage("--backend proc: the rule of the CLUSTERIP target is removed with iptables -D"));
        }
    };
    let mut netlink = Netlink::open()?;
    // Rules of another version are taken away too: nothing else can be done with them.
    let before = listed(nft, vip).ok().flatten().map(Seen::from);
    let links = netlink.links()?;
    let addresses = left_by_us(&mut netlink, vip)?;
    let link = the_link(&mut netlink, before.as_ref(), &addresses, links);
    let _link_lock = match &link {
        Some(link) => super::lock_link(&link.name, flags.changing, deadline)?,
        None => None,
    };
    let found = look(nft, &mut netlink, vip, before, addresses, link)?;
    let actions = found.actions(vip);
    head.changed = Some(!actions.is_empty());
    if flags.changing.shows_actions() {
        head.actions = actions;
    }
    let mut sysctls = BTreeMap::new();
    let mut exit = Exit::Yes;
    if !flags.changing.dry_run {
        // Teardown goes on after a failure and tells every one.
        for failure in act(&found, nft, &mut netlink, vip, doing, &mut sysctls) {
            process.complain(&failure.sentence);
            exit = exit.and(failure.exit);
        }
    }
    if let Some(path) = &found.unknown_setting {
        process.complain(&format!(
            "{name} is 1 and stays so: the rules that knew what it was before are gone (sysctl -w {name}=0, unless it is yours)",
            name = sysctl_name(path)
        ));
    }
    process.out.record(&head, &cleared(found.before.as_ref(), sysctls))?;
    Ok(exit)
}

fn cleared(before: Option<&Seen>, sysctls: BTreeMap<String, String>) -> Cleared {
    Cleared {
        before: before.map(Seen::show),
        lost: before.map(|before| before.held.owned.to_string()).unwrap_or_default(),
        sysctls,
    }
}

/// The addresses that `init` added: after lost rules they are known by their form and our tag.
fn left_by_us(netlink: &mut Netlink, vip: IpAddr) -> Result<Vec<Address>, Failure> {
    let ours = |address: &Address| {
        address.prefix == Prefix::host(vip) && address.is_ours() && address.flags.has(AddressFlags::NOPREFIXROUTE)
    };
    Ok(carried(netlink, vip)?.into_iter().filter(ours).collect())
}

/// The interface of the cluster IP: by its rules; by its address, where they were lost or it has got another
/// name; by the membership, where it was down meanwhile and lost an IPv6 address.
fn the_link(netlink: &mut Netlink, before: Option<&Seen>, addresses: &[Address], links: Vec<Link>) -> Option<Link> {
    let cluster = before.and_then(|before| before.cluster.as_ref());
    let named = cluster.and_then(|cluster| links.iter().position(|link| link.name == cluster.dev));
    let carries = || links.iter().position(|link| addresses.iter().any(|address| address.ifindex == link.index));
    let mut is_member =
        |link: &Link| cluster.is_some_and(|cluster| is_joined(netlink, link, cluster.mac).unwrap_or_default());
    let idx = named.or_else(carries).or_else(|| links.iter().position(&mut is_member))?;
    links.into_iter().nth(idx)
}

fn look(
    nft: &Nft,
    netlink: &mut Netlink,
    vip: IpAddr,
    before: Option<Seen>,
    addresses: Vec<Address>,
    link: Option<Link>,
) -> Result<Found, Failure> {
    let mut rules = before.is_some();
    for family in cluster::families(vip) {
        rules = rules || tables(nft, family)?.contains(&vip);
    }
    let Some(link) = link else {
        return Ok(Found { before, rules, addresses, member: None, setting: None, unknown_setting: None });
    };
    let cluster = before.as_ref().and_then(|before| before.cluster.as_ref());
    let mut others = Vec::new();
    for family in ["ip", "ip6"] {
        for other in tables(nft, family)?.into_iter().filter(|other| *other != vip) {
            let is_here =
                |other: &Cluster| other.dev == link.name || cluster.is_some_and(|cluster| cluster.dev == other.dev);
            others.extend(listed(nft, other)?.map(|listed| listed.cluster).filter(is_here));
        }
    }
    // Of lost rules nobody knows the MAC: the one that is made from the address is as good as sure.
    let mac = cluster.map_or_else(|| crate::decide::bucket::mac(vip, false), |cluster| cluster.mac);
    let joined = !others.iter().any(|other| other.mac == mac) && is_joined(netlink, &link, mac)?;
    let path = silence(vip, &link.name);
    let last = !others.iter().any(|other: &Cluster| family(other.vip) == family(vip));
    let was = cluster.and_then(|cluster| cluster.sysctl_was).filter(|_| last);
    let now = sysctl::read(&path)?;
    let unknown_setting = (cluster.is_none() && last && now.as_deref() == Some("1")).then(|| path.clone());
    let setting = match (was, now) {
        (Some(was), Some(now)) if now != was.to_string() => Some((path, was)),
        _ => None,
    };
    Ok(Found { before, rules, addresses, member: joined.then_some((link, mac)), setting, unknown_setting })
}

impl Found {
    fn closing(&self) -> Option<String> {
        let cluster = self.before.as_ref()?.cluster.as_ref()?;
        cluster::map(cluster, &Held::default()).ok()
    }

    fn actions(&self, vip: IpAddr) -> Vec<Action> {
        let mut actions = Vec::new();
        actions.extend(self.closing().map(|text| Action { op: "nft", text }));
        for address in &self.addresses {
            actions.push(Action { op: "address-del", text: format!("ip addr del {}", address.prefix) });
        }
        if let Some((link, mac)) = &self.member {
            actions.push(Action { op: "membership-del", text: join_text(&link.name, *mac, false) });
        }
        if let Some((path, was)) = &self.setting {
            actions.push(Action { op: "sysctl", text: format!("sysctl -w {}={was}", sysctl_name(path)) });
        }
        if self.rules {
            actions.push(Action { op: "nft", text: cluster::clear(vip) });
        }
        actions
    }
}

/// The reverse of `init`: closed first, rules last.
fn act(
    found: &Found,
    nft: &Nft,
    netlink: &mut Netlink,
    vip: IpAddr,
    doing: &str,
    sysctls: &mut BTreeMap<String, String>,
) -> Vec<Failure> {
    let object = vip.to_string();
    let mut failures: Vec<Failure> = Vec::new();
    // What went away by itself between look and act is away.
    let mut note = |outcome: sys::Result<()>| {
        let gone = [Errno::ENOENT, Errno::ENODEV, Errno::ENXIO, Errno::EADDRNOTAVAIL];
        let is_gone = |error: &sys::Error| matches!(error, sys::Error::Call { errno, .. } if gone.contains(errno));
        failures.extend(outcome.err().filter(|error| !is_gone(error)).map(Failure::from));
    };
    if let Some(closing) = found.closing() {
        note(nft.load(&closing, doing, &object));
        if let Some(before) = &found.before
            && let Some(cluster) = &before.cluster
        {
            // While the address is there: the resets leave from it.
            super::end_connections("bucket clear", cluster, &before.held, &Held::default());
        }
    }
    let requests: Vec<AddressRequest> = found
        .addresses
        .iter()
        .map(|address| AddressRequest::Delete { prefix: address.prefix, ifindex: address.ifindex })
        .collect();
    match netlink.change(&requests) {
        Err(error) => note(Err(error)),
        Ok(outcomes) => {
            for refusal in outcomes.into_iter().filter_map(Result::err) {
                let doing = format!("take {object} away from");
                let object = "its interface".to_owned();
                note(Err(sys::Error::Call { doing, object, errno: refusal.errno, said: refusal.said }));
            }
        }
    }
    if let Some((link, mac)) = &found.member {
        note(join(netlink, link, *mac, false));
    }
    if let Some((path, was)) = &found.setting {
        match sysctl::write(path, &was.to_string()) {
            Ok(_) => drop(sysctls.insert(sysctl_name(path), was.to_string())),
            Err(error) => note(Err(error)),
        }
    }
    if found.rules {
        note(nft.load(&cluster::clear(vip), doing, &object));
    }
    failures
}
