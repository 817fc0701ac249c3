//! `bucket`: which buckets of a cluster IP this node answers for.

mod apply;
mod backend;
mod check;
mod clear;
mod init;
mod plan;
mod set;
mod show;
mod verify;
mod watch;

use crate::cli::args::Changing;
use crate::cli::{Exit, Failure, Reason, Tool, Verbs};
use crate::decide::bucket::change::{self, Refusal};
use crate::decide::hash_owner::{Algo, ByteOrder, Hashed, Params};
use crate::record::Head;
use crate::sys;
use crate::sys::clock::Deadline;
use crate::sys::diag::Connection;
use crate::sys::netlink::Netlink;
use crate::sys::nft::Nft;
use crate::sys::privilege::{self, Capability};
use crate::sys::state::Lock;
use crate::types::bucket::Buckets;
use crate::types::cluster::{Cluster, Held};
use crate::types::flow::{Flow, Ports};
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::{Mac, Prefix, Proto};
use crate::wire::nft::{cluster as rules, list, table_name};
use crate::wire::tcp;
use std::net::{IpAddr, SocketAddr};

/// The command.
pub const TOOL: Tool = Tool {
    name: "bucket",
    about: "Say and change which buckets of a shared cluster IP this node answers for",
    verbs: Verbs::Many(&[
        init::VERB,
        show::VERB,
        set::VERB,
        plan::VERB,
        apply::VERB,
        check::VERB,
        verify::VERB,
        watch::VERB,
        clear::VERB,
    ]),
};

/// Reads the operand VIP.
fn vip(text: &str) -> Result<IpAddr, String> {
    let vip: IpAddr = text.parse().map_err(|_| format!("'{text}' is not an address (192.0.2.10, 2001:db8::10)"))?;
    if vip.is_multicast() || vip.is_unspecified() || vip.is_loopback() {
        return Err(format!("{vip} cannot be shared by several hosts"));
    }
    Ok(vip)
}

/// Begins a change of `vip`: takes its lock, unless nothing is to be changed, and heads its record.
fn begin(
    kind: &'static str,
    vip: IpAddr,
    changing: Changing,
    deadline: Deadline,
) -> Result<(Option<Lock>, Head), Failure> {
    let lock = if changing.dry_run { None } else { Some(Lock::take(&[vip.to_string()], deadline)?) };
    Ok((lock, Head { dry_run: changing.dry_run, ..Head::new(kind).about(vip) }))
}

/// Nothing was made for `vip` here.
fn absent(doing: &str, vip: IpAddr) -> Failure {
    Failure::new(
        Exit::Missing,
        Reason::NoSuchClusterIp,
        format!(
            "cannot {doing} {vip}: it is no cluster IP on this host (make it: bucket init {vip} --dev DEV --total N)"
        ),
    )
}

/// Refuses buckets that do not exist, where a map names them.
fn within(buckets: &Buckets, total: u16, doing: &str, whose: &str) -> Result<(), Failure> {
    change::within(buckets, total)
        .map_err(|_| Failure::usage(format!("cannot {doing} for {whose}: {buckets} goes beyond --total {total}")))
}

/// A change that cannot be.
fn refusal(why: &Refusal, doing: &str, vip: IpAddr) -> Failure {
    match why {
        Refusal::Beyond { buckets, total } => {
            Failure::usage(format!("cannot {doing} {vip}: bucket {buckets} is not between 1 and {total}"))
        }
        Refusal::Both(buckets) => {
            Failure::usage(format!("cannot {doing} {vip}: bucket {buckets} is both added and removed"))
        }
    }
}

/// The kernel's setting by which a host whose rules were lost falls silent: what came to a group
/// MAC for an address of its own is dropped, unless a rule says that it is for this host.
fn silence(vip: IpAddr, dev: &str) -> String {
    let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
    format!("{family}/conf/{dev}/drop_unicast_in_l2_multicast")
}

/// The name of a setting as sysctl(8) takes it.
fn sysctl_name(path: &str) -> String {
    format!("net/{path}")
}

/// The address as `init` adds it: the whole address, no route, never chosen as source.
fn wanted_address(vip: IpAddr, ifindex: u32) -> Address {
    let mut address = sys::netlink::plain(Prefix::host(vip), ifindex);
    address.flags.0 |= AddressFlags::NOPREFIXROUTE;
    if vip.is_ipv6() {
        // The other nodes have it too: the kernel's search for duplicates would find them.
        address.flags.0 |= AddressFlags::NODAD;
        address.preferred_s = Some(0);
    }
    address
}

/// Whether the packets of a TCP peer fall into one of `buckets`, by the two ends of its connection.
fn falls_into<'a>(cluster: &'a Cluster, buckets: &'a Buckets) -> impl Fn(SocketAddr, SocketAddr) -> bool + 'a {
    let params = Params {
        algo: Algo::Nft,
        hashed: Hashed::Mode(cluster.mode),
        total: u32::from(cluster.total),
        seed: cluster.seed,
        kernel: None,
        order: if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little },
    };
    // A total that nft took is one that it can be asked about.
    let hasher = params.prepare().ok();
    move |local, peer| {
        let flow = Flow {
            dst: Some(local.ip()),
            ports: Some(Ports { src: peer.port(), dst: Some(local.port()) }),
            proto: Some(Proto::TCP),
            ..Flow::from_source(peer.ip())
        };
        let answer = hasher.as_ref().and_then(|hasher| hasher.hash(&flow).ok());
        let bucket = answer.and_then(|answer| u16::try_from(answer.bucket).ok());
        peer.ip() != cluster.vip && bucket.is_some_and(|bucket| buckets.contains(bucket))
    }
}

/// The TCP connections of this host whose packets fall into `buckets`; those with itself left out.
///
/// What containers serve is not among them.
fn connections_in(cluster: &Cluster, buckets: &Buckets) -> sys::Result<Vec<Connection>> {
    let falls_in = falls_into(cluster, buckets);
    let all = sys::diag::connections(cluster.vip)?;
    Ok(all.into_iter().filter(|connection| falls_in(connection.local, connection.peer)).collect())
}

/// Refuses to wake anybody where that cannot be.
fn may_wake(cluster: &Cluster, doing: &str) -> Result<(), Failure> {
    privilege::need(Capability::NetRaw, "tickle the peers of", &cluster.vip.to_string())?;
    if cluster.remember {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "cannot {doing} {vip} with --tickle: nobody remembers its peers (make it with bucket init {vip} … --remember)",
        vip = cluster.vip
    )))
}

/// After a take-over, makes each TCP peer of `buckets` notice that its connection has gone: it answers
/// a bare segment, and gets the reset, instead of waiting for its own next word. How many there were.
fn wake(who: &str, nft: &Nft, cluster: &Cluster, buckets: &Buckets) -> u64 {
    let told = |why: String| {
        crate::cli::complain(who, &format!("cannot tickle the peers of {}: {why}", cluster.vip));
        0
    };
    let name = table_name(cluster.vip);
    let text = match nft.list(&["set", "netdev", &name, rules::PEERS], &name) {
        Ok(Some(text)) => text,
        Ok(None) => return told(format!("table netdev {name} is gone (see: bucket check {})", cluster.vip)),
        Err(error) => return told(error.to_string()),
    };
    let peers = match list::peers(&text) {
        Ok(peers) => peers,
        Err(why) => return told(why),
    };
    let socket = match sys::raw::ip_socket(cluster.vip.is_ipv6()) {
        Ok(socket) => socket,
        Err(errno) => return told(errno.desc().to_owned()),
    };
    let falls_in = falls_into(cluster, buckets);
    let mut woken = 0;
    for (peer, theirs, ours) in peers {
        let (local, peer) = (SocketAddr::new(cluster.vip, ours), SocketAddr::new(peer, theirs));
        if !falls_in(local, peer) {
            continue;
        }
        // One that cannot be reached is none that waits for us.
        let sent = tcp::tickle(local, peer).map(|packet| sys::raw::send_ip(&socket, &packet, peer.ip()));
        woken += u64::from(matches!(sent, Some(Ok(()))));
    }
    woken
}

/// Ends the TCP connections of buckets that were closed altogether.
///
/// Their sockets would go on retransmitting into a closed door, and their peers would hang until a
/// time-out; so each peer gets a reset that fits its sequence.
fn end_connections(who: &str, cluster: &Cluster, before: &Held, after: &Held) {
    let served = |held: &Held| held.owned.union(&held.draining);
    let closed = served(before).difference(&served(after));
    if closed.is_empty() {
        return;
    }
    let ended =
        connections_in(cluster, &closed).and_then(|connections| connections.iter().try_for_each(sys::diag::destroy));
    // The buckets are closed all the same, which is what was asked for.
    if let Err(error) = ended {
        crate::cli::complain(who, &format!("{error} (their peers will time out)"));
    }
}

/// How ip(8) would add it.
fn address_text(vip: IpAddr, dev: &str) -> String {
    let options = if vip.is_ipv6() { " nodad preferred_lft 0" } else { "" };
    format!("ip addr add {} dev {dev} noprefixroute{options}", Prefix::host(vip))
}

/// What the cluster IPs of one interface share, the membership and the setting, is counted and changed
/// by one run at a time. Taken after the lock of the address itself, always.
fn lock_link(dev: &str, changing: Changing, deadline: Deadline) -> Result<Option<Lock>, Failure> {
    Ok(if changing.dry_run { None } else { Some(Lock::take(&[format!("link {dev}")], deadline)?) })
}

/// Whether frames for `mac` are let in on the link.
fn is_joined(netlink: &mut Netlink, link: &Link, mac: Mac) -> sys::Result<bool> {
    Ok(if mac.is_group() { sys::group::joined(&link.name)? } else { netlink.filters(link.index)? }.contains(&mac))
}

/// Lets frames for `mac` in on the link, or no longer.
fn join(netlink: &mut Netlink, link: &Link, mac: Mac, join: bool) -> sys::Result<()> {
    if mac.is_group() {
        return sys::raw::set_group(&link.name, mac, join);
    }
    let doing = if join { "let in frames for" } else { "no longer let in frames for" };
    netlink.set_filter(link.index, mac, join)?.map_err(|refusal| sys::Error::Call {
        doing: format!("{doing} {mac} on"),
        object: link.name.clone(),
        errno: refusal.errno,
        said: refusal.said,
    })
}

/// How ip(8) or bridge(8) would do it.
fn join_text(dev: &str, mac: Mac, join: bool) -> String {
    match (mac.is_group(), join) {
        (true, true) => format!("ip maddr add {mac} dev {dev}"),
        (true, false) => format!("ip maddr del {mac} dev {dev}"),
        (false, true) => format!("bridge fdb add {mac} dev {dev} self"),
        (false, false) => format!("bridge fdb del {mac} dev {dev} self"),
    }
}

/// The addresses of `vip` on this host.
fn carried(netlink: &mut Netlink, vip: IpAddr) -> sys::Result<Vec<Address>> {
    Ok(netlink.addresses(None)?.into_iter().filter(|address| address.prefix.addr == vip).collect())
}
