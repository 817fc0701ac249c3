//! `bucket init`: make a cluster IP on this node.

use super::backend::{self, Seen, Store, Where, listed, tables};
use super::{address_text, carried, is_joined, join, join_text, silence, sysctl_name, wanted_address};
use crate::cli::args::{self, Changing, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::decide::bucket::change::{How, Outcome, Wish, change};
use crate::decide::vip::link_called;
use crate::record::Action;
use crate::record::bucket::{ACTED_COLUMNS, Acted, INIT_SCHEMA};
use crate::sys;
use crate::sys::netlink::{AddressRequest, Netlink};
use crate::sys::nft::Nft;
use crate::sys::sysctl;
use crate::types::bucket::{Buckets, MAX_TOTAL};
use crate::types::cluster::{Cluster, Held, Mode, Rest};
use crate::types::link::{Address, Link};
use crate::types::net::{Mac, Proto, width};
use crate::types::time::Span;
use crate::wire::nft::list::Counter;
use crate::wire::nft::{cluster, family, table_name};
use clap::{ArgMatches, Args};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "init",
    about: "Make a cluster IP on this node: rules, membership, address; the same on every node",
    examples: "bucket init 192.0.2.10 --dev eth0 --total 64 --local 1-22\n\
               bucket init 2001:db8::10 --dev eth0 --mac 01:02:03:04:05:06 --total 2 --local 1 --seed 0\n\
               bucket init 192.0.2.10 --dev eth0 --total 64 --lease 2s   serves while bucket apply renews it\n\
               bucket init 192.0.2.10 --dev eth0 --total 64 --dry-run    what would be changed?",
    args: flags::<Flags>,
    schemas: &[INIT_SCHEMA],
    columns: ACTED_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The address that the nodes share
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: IpAddr,

    /// The interface on which clients reach it
    #[arg(long, value_name = "DEV")]
    dev: String,

    /// The MAC that all nodes answer with [default: made from VIP alone]
    #[arg(long, value_name = "MAC")]
    mac: Option<Mac>,

    /// Take an ordinary MAC, for routers that refuse a group MAC; the switch must flood it
    #[arg(long)]
    unicast: bool,

    /// How many buckets there are, the same on every node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_TOTAL)))]
    total: u16,

    /// Answer for these from the start [default: none, or what is held already]
    #[arg(long, value_name = "LIST")]
    local: Option<Buckets>,

    /// The seed of the hash, decimal or 0x [default: made from VIP alone]
    #[arg(long, value_name = "S", value_parser = seed)]
    seed: Option<u32>,

    /// What is hashed: sourceip, sourceip-sourceport or sourceip-sourceport-destport
    #[arg(long, value_name = "MODE", default_value = "sourceip")]
    mode: Mode,

    /// Serve this protocol alone
    #[arg(long, value_name = "PROTO")]
    proto: Option<Proto>,

    /// Serve this port alone
    #[arg(long, value_name = "PORT", requires = "proto", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// What happens to other protocols and ports: drop, or hash like the rest
    #[arg(long, value_name = "WHAT", default_value = "drop", requires = "proto")]
    rest: Rest,

    /// The kernel stops serving after D unless bucket apply renews it; at least 100ms
    #[arg(long, value_name = "D")]
    lease: Option<Span>,

    /// Remember the TCP peers of all nodes for an hour, so that a take-over can wake those that only
    /// wait (--tickle of bucket set and apply); costs each of their packets a look-up
    #[arg(long)]
    remember: bool,

    #[command(flatten)]
    place: Where,

    #[command(flatten)]
    changing: Changing,
}

fn seed(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => text.parse().ok().filter(|_| !text.starts_with('+')),
    };
    number.ok_or_else(|| format!("'{text}' is not a seed (0 to 0xffffffff)"))
}

/// The steps that are left to do, each undone by `clear`.
struct Steps {
    /// The rules, closed.
    rules: Option<String>,
    setting: Option<String>,
    member: bool,
    address: Option<AddressRequest>,
    /// The buckets and the lease.
    open: Option<String>,
}

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    check_flags(&flags)?;
    let vip = flags.vip;
    let doing = "make the cluster IP";
    // A lease below a second is tried out, which takes a part of it.
    let deadline = process.deadline(Duration::ZERO);
    let store = Store::open(&flags.place, doing, Some(vip), process, deadline)?;
    let nft = match &store {
        Store::Nft(nft) => nft,
        Store::File(_) => return init_file(&flags, &store, process),
        Store::Proc(_) => {
            return Err(Failure::usage(
                "--backend proc: the rule of the CLUSTERIP target is made with iptables -j CLUSTERIP",
            ));
        }
    };
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let link = link_called(&links, &flags.dev)
        .ok_or_else(|| sys::Error::no_interface(format!("{doing} {vip} on"), &flags.dev))?
        .clone();
    if let Some(other) = carried(&mut netlink, vip)?.iter().find(|address| address.ifindex != link.index) {
        let name = links.iter().find(|link| link.index == other.ifindex).map_or("another", |link| link.name.as_str());
        return Err(Failure::new(
            Exit::No,
            Reason::Conflict,
            format!("cannot {doing} {vip} on {}: {name} carries it (see: ip addr show {name})", link.name),
        ));
    }
    if carried(&mut netlink, vip)?.iter().any(|address| !address.is_ours()) {
        let why = format!(
            "cannot {doing} {vip} on {}: it is there as this host's own address, and would be closed to all whom other nodes serve (choose another address, or take that one away first)",
            link.name
        );
        return Err(Failure::new(Exit::No, Reason::Conflict, why));
    }
    if let Some(why) = outside(&netlink.addresses(None)?, &link, vip)? {
        process.complain(&why);
    }
    let (_lock, mut head) = super::begin("bucket.init", vip, flags.changing, deadline)?;
    let _link_lock = super::lock_link(&link.name, flags.changing, deadline)?;
    let before = match listed(nft, vip) {
        // Somebody changed the rules so that they cannot be read: they are made anew.
        Err(failure) if failure.exit == Exit::BadInput => None,
        listed => listed?.map(Seen::from),
    };
    let mut wanted = wanted(&flags, &link, before.as_ref())?;
    wanted.sysctl_was = setting_before(nft, &wanted, before.as_ref())?;
    let (steps, outcome) = steps(&flags, nft, &mut netlink, &link, &wanted, before.as_ref())?;
    let actions = steps.actions(&wanted);
    head.changed = Some(!actions.is_empty());
    if flags.changing.shows_actions() {
        head.actions = actions;
    }
    let mut sysctls = BTreeMap::new();
    if let Some(setting) = &steps.setting {
        sysctls.insert(sysctl_name(setting), "1".to_owned());
    }
    if !flags.changing.dry_run {
        act(&steps, nft, &mut netlink, &link, &wanted, doing)?;
        if cluster::in_place(&wanted) && steps.open.is_some() {
            check_in_place(nft, &wanted)?;
        }
    }
    let now = listed(nft, vip)?.map(Seen::from);
    let dry = Seen::from(cluster_as_wanted(&wanted, &outcome.held));
    let shown = match (&now, flags.changing.dry_run) {
        (Some(now), false) => now,
        (None, false) => return Err(super::absent("read back", vip)),
        (_, true) => &dry,
    };
    let mut acted = Acted::new(shown.show(), &outcome, None);
    acted.sysctls = sysctls;
    process.out.record(&head, &acted)?;
    Ok(Exit::Yes)
}

fn check_flags(flags: &Flags) -> Result<(), Failure> {
    if let Some(mac) = flags.mac
        && mac.is_group() == flags.unicast
    {
        let (is, mend) =
            if flags.unicast { ("a group", "leave --unicast out") } else { ("an ordinary", "give --unicast too") };
        return Err(Failure::usage(format!("--mac {mac} is {is} address ({mend})")));
    }
    if flags.mac.is_some_and(|mac| mac == Mac::BROADCAST || mac.0 == [0; 6]) {
        return Err(Failure::usage("--mac: neither the broadcast address nor all zeroes can be shared"));
    }
    if let Some(mac) = flags.mac.filter(|mac| is_everybodys(*mac)) {
        return Err(Failure::usage(format!(
            "--mac {mac}: other hosts listen to that group, or bridges keep it to themselves (leave --mac out: one is made from VIP)"
        )));
    }
    if let Some(proto) = flags.proto {
        if proto.name().is_none() {
            return Err(Failure::usage(format!(
                "--proto {proto}: tcp, udp, icmp, sctp, dccp, udplite, gre, esp or ah"
            )));
        }
        if flags.port.is_some() && !proto.has_ports() {
            return Err(Failure::usage(format!("--port: {proto} has no ports")));
        }
    }
    if let Some(Span(lease)) = flags.lease {
        let whole = lease.subsec_nanos() % 1_000_000 == 0;
        if !whole || lease < Duration::from_millis(100) || lease > Duration::from_secs(3600) {
            return Err(Failure::usage("--lease takes whole milliseconds, 100ms to 1h"));
        }
    }
    Ok(())
}

/// Groups that hosts and routers join by themselves (RFC 1112 §4, RFC 2464 §7), and those that no bridge
/// forwards (IEEE 802.1Q table 8-1).
fn is_everybodys(mac: Mac) -> bool {
    match mac.0 {
        [0x01, 0x00, 0x5e, 0, 0, last] | [0x33, 0x33, 0, 0, 0, last] => matches!(last, 1 | 2),
        [0x01, 0x80, 0xc2, 0, 0, last] => last < 0x10,
        _ => false,
    }
}

/// Refuses the broadcast address of a network of the link; says why clients may not find a VIP that is in none.
fn outside(addresses: &[Address], link: &Link, vip: IpAddr) -> Result<Option<String>, Failure> {
    let mut networks = addresses
        .iter()
        .filter(|address| address.ifindex == link.index && address.prefix.len < width(vip))
        .map(|address| address.prefix)
        .filter(|network| network.contains(vip));
    let Some(network) = networks.next() else {
        return Ok(Some(format!(
            "{vip} is in no network of {}: whoever does not have it as a route there will not ask for it (see: ip addr show {})",
            link.name, link.name
        )));
    };
    if let Some(network) = std::iter::once(network).chain(networks).find(|network| network.broadcast() == Some(vip)) {
        let why = format!(
            "cannot make the cluster IP {vip} on {}: it is the broadcast address of {network} (choose another)",
            link.name
        );
        return Err(Failure::new(Exit::No, Reason::Conflict, why));
    }
    Ok(None)
}

fn wanted(flags: &Flags, link: &Link, before: Option<&Seen>) -> Result<Cluster, Failure> {
    let vip = flags.vip;
    let made_from = link.mac.ok_or_else(|| {
        let why = format!("cannot make the cluster IP {vip} on {}: it has no MAC (is it a tunnel?)", link.name);
        Failure::new(Exit::Missing, Reason::NoSuchInterface, why)
    })?;
    let mut cluster = Cluster {
        vip,
        dev: link.name.clone(),
        mac: flags.mac.unwrap_or_else(|| crate::decide::bucket::mac(vip, flags.unicast)),
        made_from,
        total: flags.total,
        seed: flags.seed.unwrap_or_else(|| crate::decide::bucket::seed(vip)),
        mode: flags.mode,
        proto: flags.proto,
        port: flags.port,
        rest: flags.rest,
        lease: flags.lease.map(|lease| lease.0),
        remember: flags.remember,
        sysctl_was: None,
        epoch: 0,
        config: None,
    };
    // The map that is followed stays the same unless it can no longer be meant.
    if let Some(old) = before.and_then(|before| before.cluster.as_ref())
        && (old.total, old.seed, old.mode, old.mac) == (cluster.total, cluster.seed, cluster.mode, cluster.mac)
    {
        cluster.epoch = old.epoch;
        cluster.config.clone_from(&old.config);
    }
    Ok(cluster)
}

/// What the setting was before the first cluster IP of this family came to this interface.
fn setting_before(nft: &Nft, wanted: &Cluster, before: Option<&Seen>) -> Result<Option<u8>, Failure> {
    let own = before.and_then(|before| before.cluster.as_ref()).filter(|old| old.dev == wanted.dev);
    if let Some(was) = own.and_then(|old| old.sysctl_was) {
        return Ok(Some(was));
    }
    match sysctl::read(&silence(wanted.vip, &wanted.dev))?.as_deref() {
        Some("1") => {}
        Some(value) => return Ok(value.parse().ok()),
        None => return Ok(None),
    }
    // Set already: by another of ours, which knows what it was, or by the administrator.
    for other in tables(nft, family(wanted.vip))?.into_iter().filter(|other| *other != wanted.vip) {
        if let Some(other) = listed(nft, other)?
            && other.cluster.dev == wanted.dev
            && other.cluster.sysctl_was.is_some()
        {
            return Ok(other.cluster.sysctl_was);
        }
    }
    Ok(None)
}

fn steps(
    flags: &Flags,
    nft: &Nft,
    netlink: &mut Netlink,
    link: &Link,
    wanted: &Cluster,
    before: Option<&Seen>,
) -> Result<(Steps, Outcome), Failure> {
    let vip = wanted.vip;
    let lapsed = before.is_some_and(Seen::is_lapsed);
    let old = before.and_then(|before| before.cluster.as_ref());
    let mut same = old.is_some_and(|old| Cluster { sysctl_was: wanted.sysctl_was, ..old.clone() } == *wanted);
    // The table that tells the parameters may be right, and one of the others gone.
    if let Some(before) = before.filter(|_| same) {
        for table in cluster::tables(wanted, &before.held).map_err(Failure::usage)? {
            let got = backend::table(nft, table.family, vip)?;
            same &= got.is_some_and(|got| cluster::differences(&table, &got).is_empty());
        }
    }
    let kept = match before {
        // Another hash: who owns what means nothing any more.
        Some(before)
            if !lapsed
                && old
                    .is_some_and(|old| (old.total, old.seed, old.mode) == (wanted.total, wanted.seed, wanted.mode)) =>
        {
            before.held.clone()
        }
        _ => Held::default(),
    };
    let refused = |why| super::refusal(&why, "make the cluster IP", vip);
    let outcome = match &flags.local {
        Some(local) => change(&kept, wanted.total, &Wish::Only(local.clone()), How::Settle).map_err(refused)?,
        None => Outcome { held: kept.clone(), ..Outcome::default() },
    };
    let path = silence(vip, &wanted.dev);
    let setting = matches!(sysctl::read(&path)?.as_deref(), Some(value) if value != "1");
    let member = !is_joined(netlink, link, wanted.mac)?;
    let address = carried(netlink, vip)?.iter().find(|address| address.ifindex == link.index).cloned();
    let address = (!address.is_some_and(|address| fits(&address, vip)))
        .then(|| AddressRequest::Add(wanted_address(vip, link.index)));
    // Rules that are right and open stay open while a lost address comes back.
    let rules = if same { None } else { Some(cluster::init(wanted, &Held::default(), None).map_err(Failure::usage)?) };
    let opens = rules.is_some() || lapsed || before.is_none_or(|before| before.held != outcome.held);
    let open = if opens {
        let map = cluster::map(wanted, &outcome.held).map_err(Failure::usage)?;
        let lease = if rules.is_some() || lapsed { cluster::grant(wanted) } else { cluster::renew(wanted) };
        Some(map + &lease)
    } else {
        None
    };
    Ok((Steps { rules, setting: setting.then_some(path), member, address, open }, outcome))
}

/// Whether an address that is there can stay: whole, so that no route comes and goes with it.
fn fits(address: &Address, vip: IpAddr) -> bool {
    address.prefix == crate::types::net::Prefix::host(vip) && address.is_usable()
}

impl Steps {
    fn actions(&self, wanted: &Cluster) -> Vec<Action> {
        let nft = |text: &Option<String>| text.clone().map(|text| Action { op: "nft", text });
        let mut actions: Vec<Action> = nft(&self.rules).into_iter().collect();
        if let Some(setting) = &self.setting {
            actions.push(Action { op: "sysctl", text: format!("sysctl -w {}=1", sysctl_name(setting)) });
        }
        if self.member {
            actions.push(Action { op: "membership-add", text: join_text(&wanted.dev, wanted.mac, true) });
        }
        if self.address.is_some() {
            actions.push(Action { op: "address-add", text: address_text(wanted.vip, &wanted.dev) });
        }
        actions.extend(nft(&self.open));
        actions
    }
}

/// In this order, so that at no point more is answered than in the end.
fn act(
    steps: &Steps,
    nft: &Nft,
    netlink: &mut Netlink,
    link: &Link,
    wanted: &Cluster,
    doing: &str,
) -> Result<(), Failure> {
    let object = wanted.vip.to_string();
    if let Some(rules) = &steps.rules {
        nft.load(rules, doing, &object)?;
    }
    if let Some(setting) = &steps.setting {
        sysctl::write(setting, "1")?;
    }
    if steps.member {
        join(netlink, link, wanted.mac, true)?;
    }
    if let Some(request) = &steps.address {
        for outcome in netlink.change(std::slice::from_ref(request))? {
            // Added by somebody between look and act: what is there is what was wanted.
            if let Err(refusal) = outcome
                && refusal.errno != nix::errno::Errno::EEXIST
            {
                return Err(sys::Error::Call {
                    doing: format!("add {object} to"),
                    object: link.name.clone(),
                    errno: refusal.errno,
                    said: refusal.said,
                }
                .into());
            }
        }
    }
    if let Some(open) = &steps.open {
        nft.load(open, doing, &object)?;
    }
    Ok(())
}

/// Older kernels take a renewal in place and ignore it: then a lease below a second ends for good.
fn check_in_place(nft: &Nft, wanted: &Cluster) -> Result<(), Failure> {
    let lease = wanted.lease.unwrap_or_default();
    let (family, name) = (family(wanted.vip), table_name(wanted.vip));
    std::thread::sleep(lease / 4);
    nft.load(&cluster::renew(wanted), "renew the lease of", &wanted.vip.to_string())?;
    let text = nft.list_text(&["set", family, &name, "lease"], &name)?.unwrap_or_default();
    if cluster::left(&text).is_some_and(|left| left > lease * 4 / 5) {
        return Ok(());
    }
    let why = format!(
        "cannot lease {} for {}: this kernel does not extend an element in place (take --lease 1s or more)",
        wanted.vip,
        Span(lease)
    );
    Err(Failure::new(Exit::Missing, Reason::NoSuchFeature, why))
}

fn cluster_as_wanted(wanted: &Cluster, held: &Held) -> cluster::Listed {
    cluster::Listed {
        cluster: wanted.clone(),
        held: held.clone(),
        lease_left: wanted.lease,
        accepted: Counter::default(),
        dropped: Counter::default(),
        drained: Counter::default(),
        refused: Counter::default(),
    }
}

fn init_file(flags: &Flags, store: &Store, process: &mut Process) -> Result<Exit, Failure> {
    let Store::File(origin) = store else { return Err(super::absent("make", flags.vip)) };
    let deadline = process.deadline(Duration::ZERO);
    let (_lock, mut head) = super::begin("bucket.init", flags.vip, flags.changing, deadline)?;
    let before = store.look(flags.vip)?;
    // A rehearsal needs no interface; where there is one its MAC is told.
    let link = Netlink::open().and_then(|mut netlink| netlink.links()).ok();
    let link = link
        .as_ref()
        .and_then(|links| link_called(links, &flags.dev))
        .cloned()
        .unwrap_or_else(|| Link { name: flags.dev.clone(), ..Link::default() });
    let link = Link { mac: link.mac.or(Some(Mac([0; 6]))), ..link };
    let mut wanted = wanted(flags, &link, before.as_ref())?;
    (wanted.lease, wanted.remember) = (None, false);
    let kept = before.as_ref().map(|before| before.held.clone()).unwrap_or_default();
    let refused = |why| super::refusal(&why, "make the cluster IP", flags.vip);
    let outcome = match &flags.local {
        Some(local) => change(&kept, wanted.total, &Wish::Only(local.clone()), How::Settle).map_err(refused)?,
        None => Outcome { held: kept, ..Outcome::default() },
    };
    let changes =
        before.as_ref().is_none_or(|before| before.cluster.as_ref() != Some(&wanted) || before.held != outcome.held);
    if changes && !flags.changing.dry_run {
        backend::keep(origin, &wanted, &outcome.held)?;
    }
    head.changed = Some(changes);
    let now = if flags.changing.dry_run { None } else { store.look(flags.vip)? };
    let show = now.unwrap_or_else(|| Seen::from(cluster_as_wanted(&wanted, &outcome.held))).show();
    process.out.record(&head, &Acted::new(show, &outcome, None))?;
    Ok(Exit::Yes)
}
