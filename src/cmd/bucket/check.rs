//! `bucket check`: does this host hold all that a cluster IP needs?

use super::backend::{Store, Where, listed_with_table, table};
use super::{absent, address_text, carried, is_joined, join_text, silence, sysctl_name};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Verb};
use crate::decide::bucket::check::differences;
use crate::record::Head;
use crate::record::bucket::{CHECK_COLUMNS, CHECK_SCHEMA, Check, Difference, Warning};
use crate::sys;
use crate::sys::clock;
use crate::sys::event::Sources;
use crate::sys::netlink::Netlink;
use crate::sys::nft::Nft;
use crate::sys::packet::PacketSocket;
use crate::sys::sysctl;
use crate::types::cluster::{Cluster, Mode};
use crate::types::net::Prefix;
use crate::types::status::Status;
use crate::wire::nft::cluster;
use crate::wire::probe::{self, Kind, Probe};
use clap::{ArgMatches, Args};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "check",
    about: "Check that rules, address, membership and settings agree; say what mends them",
    examples: "bucket check 192.0.2.10 && echo whole\n\
               bucket check 192.0.2.10 | jq -r '.differences[].mend'\n\
               bucket check 192.0.2.10 --wire | jq .seen_by   do frames reach the others?",
    args: flags::<Flags>,
    schemas: &[CHECK_SCHEMA],
    columns: CHECK_COLUMNS,
    run,
};

#[derive(Args, Debug)]
struct Flags {
    /// The cluster IP
    #[arg(value_name = "VIP", value_parser = super::vip)]
    vip: IpAddr,

    /// Send one frame to the cluster MAC, and ask who heard it; each bucket watch on it answers
    #[arg(long)]
    wire: bool,

    #[command(flatten)]
    place: Where,
}

/// How long the other nodes have to answer.
const ANSWERS: Duration = Duration::from_millis(500);

/// Facts as name, value and what mends it.
type Facts = Vec<(String, String, Option<String>)>;

const PRESENT: &str = "present";

fn run(matches: &ArgMatches, process: &mut Process) -> Result<Exit, Failure> {
    let flags: Flags = args::read(matches)?;
    let vip = flags.vip;
    let deadline = process.deadline(Duration::ZERO);
    let store = Store::open(&flags.place, "check", Some(vip), process, deadline)?;
    let mut found = Vec::new();
    let mut seen_by = None;
    let mut warnings = Vec::new();
    let looked = match &store {
        Store::Nft(nft) => match listed_with_table(nft, vip) {
            Err(failure) if failure.exit == Exit::BadInput => {
                let mend = format!("bucket init {vip} … with the flags it was made with");
                found.push(difference("rules".to_owned(), "as made", &failure.sentence, Some(&mend)));
                None
            }
            looked => Some((nft, looked?.ok_or_else(|| absent("check", vip))?)),
        },
        _ => None,
    };
    if let Some((nft, (listed, own))) = looked {
        let remake = format!("bucket init {vip} --dev {} … with the flags it was made with", listed.cluster.dev);
        for wanted in cluster::tables(&listed.cluster, &listed.held).map_err(Failure::usage)? {
            let got = if wanted.family == own.family { Some(own.clone()) } else { table(nft, wanted.family, vip)? };
            let Some(got) = got else {
                found.push(difference(format!("table {}", wanted.family), PRESENT, "absent", Some(&remake)));
                continue;
            };
            for (what, want, got) in cluster::differences(&wanted, &got) {
                found.push(Difference { what, want, got, mend: Some(remake.clone()) });
            }
        }
        let mut netlink = Netlink::open()?;
        let (wanted, got) = facts(&mut netlink, &listed.cluster)?;
        found.extend(differences(&wanted, &got).into_iter().map(|found| Difference {
            what: found.what,
            want: found.want,
            got: found.got,
            mend: found.mend,
        }));
        if listed.cluster.lease.is_some() && listed.lease_left.is_none() {
            found.push(difference("lease".to_owned(), "renewed", "run out", Some("is bucket apply --follow running?")));
        }
        warnings = warn(nft, &listed.cluster)?;
        if flags.wire {
            let heard = ask(&listed.cluster, &process.node)?;
            if heard.is_empty() {
                warnings.extend(causes(&listed.cluster));
            }
            seen_by = Some(heard);
        }
    } else if found.is_empty() {
        store.need("check", vip)?;
    }
    let whole = found.is_empty();
    let unheard = seen_by.as_ref().is_some_and(Vec::is_empty);
    let (status, exit) = match (whole, unheard) {
        (false, _) => (Status::Down, Exit::No),
        // Nobody answers: nothing comes through, or nobody watches.
        (true, true) => (Status::Unknown, Exit::Undecided),
        (true, false) => (Status::Up, Exit::Yes),
    };
    let mut head = Head::new("bucket.check").about(vip);
    head.status = Some(status);
    process.out.record(&head, &Check { differences: found, warnings, seen_by })?;
    Ok(exit)
}

fn difference(what: String, want: &str, got: &str, mend: Option<&str>) -> Difference {
    Difference { what, want: want.to_owned(), got: got.to_owned(), mend: mend.map(str::to_owned) }
}

/// What must hold besides the rules, and what does.
fn facts(netlink: &mut Netlink, cluster: &Cluster) -> Result<(Facts, BTreeMap<String, String>), Failure> {
    let (vip, dev) = (cluster.vip, &cluster.dev);
    let mut wanted: Facts = Vec::new();
    let mut got = BTreeMap::new();
    let mut fact = |what: &str, want: &str, mend: String| wanted.push((what.to_owned(), want.to_owned(), Some(mend)));
    fact("interface", PRESENT, format!("see: ip link show {dev}"));
    let Some(link) = netlink.links()?.into_iter().find(|link| link.name == *dev) else {
        return Ok((wanted, got));
    };
    got.insert("interface".to_owned(), PRESENT.to_owned());
    fact("link", "up with carrier", format!("ip link set {dev} up"));
    let state = if !link.up {
        "down"
    } else if link.carrier {
        "up with carrier"
    } else {
        "up without carrier"
    };
    got.insert("link".to_owned(), state.to_owned());
    fact("address", PRESENT, address_text(vip, dev));
    if carried(netlink, vip)?
        .iter()
        .any(|address| address.ifindex == link.index && address.prefix == Prefix::host(vip) && address.is_usable())
    {
        got.insert("address".to_owned(), PRESENT.to_owned());
    }
    fact("membership", PRESENT, join_text(dev, cluster.mac, true));
    if is_joined(netlink, &link, cluster.mac)? {
        got.insert("membership".to_owned(), PRESENT.to_owned());
    }
    // The correction of IPv6 sums is made from the interface's own MAC: with another every
    // advertisement would be dropped for its sum.
    fact("made_from_mac", &cluster.made_from.to_string(), format!("bucket init {vip} --dev {dev} … again"));
    got.insert("made_from_mac".to_owned(), link.mac.map_or_else(|| "none".to_owned(), |mac| mac.to_string()));
    let path = silence(vip, dev);
    if let Some(value) = sysctl::read(&path)? {
        fact(&sysctl_name(&path), "1", format!("sysctl -w {}=1", sysctl_name(&path)));
        got.insert(sysctl_name(&path), value);
    }
    Ok((wanted, got))
}

/// Sends one frame to the cluster MAC and collects the names of those who heard it.
fn ask(cluster: &Cluster, node: &str) -> Result<Vec<String>, Failure> {
    let link = Netlink::open()?
        .links()?
        .into_iter()
        .find(|link| link.name == cluster.dev)
        .ok_or_else(|| sys::Error::no_interface("probe on", &cluster.dev))?;
    let socket = PacketSocket::open_as_it_is(&link, probe::ETHERTYPE)?;
    let nonce = sys::raw::random_u64()?;
    let from = link.mac.unwrap_or(cluster.made_from);
    let question = Probe { to: cluster.mac, from, kind: Kind::Ask, nonce, node: node.to_owned() }.encode();
    let end = clock::boot().after(ANSWERS);
    if let (_, Some(error)) = socket.send_all(&[&question], end) {
        return Err(error.into());
    }
    let mut heard = BTreeSet::new();
    let mut buffer = [0; 2048];
    loop {
        let mut sources = Sources::default();
        sources.readable(socket.as_fd());
        if !sources.wait(Some(end))? {
            return Ok(heard.into_iter().collect());
        }
        while let Some(length) = socket.receive(&mut buffer)? {
            let answer = buffer.get(..length).and_then(Probe::decode);
            heard.extend(
                answer.filter(|answer| answer.kind == Kind::Answer && answer.nonce == nonce).map(|answer| answer.node),
            );
        }
        if clock::boot() >= end {
            return Ok(heard.into_iter().collect());
        }
    }
}

/// Why nobody heard it, the commonest first.
///
/// Not among them: a Linux bridge that snoops, with a querier on it. It sends IP for the group to
/// router ports only and lets every other `EtherType` through, this question too.
fn causes(cluster: &Cluster) -> Vec<Warning> {
    let (mac, vip) = (cluster.mac, cluster.vip);
    let cause = |what: String, mend: &str| Warning { what, mend: Some(mend.to_owned()) };
    vec![
        cause(
            format!("nobody heard a frame for {mac}: do the other nodes run?"),
            &format!("bucket watch {vip}   on each of them, as the recipe has it"),
        ),
        cause("or does the switch filter it?".to_owned(), "a static entry for it on each node's port"),
        cause("or have the other nodes left the group?".to_owned(), &format!("bucket check {vip}   on each of them")),
    ]
}

/// What works now and may do harm one day.
fn warn(nft: &Nft, cluster: &Cluster) -> Result<Vec<Warning>, Failure> {
    let mut warnings = Vec::new();
    let mut warn = |what: String, mend: Option<&str>| warnings.push(Warning { what, mend: mend.map(str::to_owned) });
    if cluster.lease.is_none() {
        warn(
            "no lease: a frozen host answers for its buckets until it is fenced".to_owned(),
            Some("bucket init … --lease 2s"),
        );
    } else {
        warn(
            "a machine that its hypervisor pauses stops the lease's clock too: there only fencing helps".to_owned(),
            None,
        );
    }
    let established =
        sysctl::read("netfilter/nf_conntrack_tcp_timeout_established")?.and_then(|text| text.parse::<u64>().ok());
    if let Some(seconds) = established
        && seconds < 3600
    {
        warn(
            format!(
                "a drain loses TCP connections that are idle for {seconds} s: nf_conntrack_tcp_timeout_established"
            ),
            Some("sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=432000"),
        );
    }
    let rules = nft.rule_set()?.unwrap_or_default();
    let untracks =
        |line: &str| line.split_whitespace().any(|word| word == "notrack") && !line.contains(cluster::TICKLE);
    if rules.lines().any(untracks) {
        warn(
            "a rule untracks packets: untracked connections cannot be drained".to_owned(),
            Some("see: nft list ruleset"),
        );
    }
    let helped =
        rules.contains("ct helper set") || sysctl::read("netfilter/nf_conntrack_helper")?.as_deref() == Some("1");
    if helped && cluster.mode != Mode::SourceIp {
        warn(
            "connection helpers (FTP, SIP, TFTP) need --mode sourceip: with ports their data connections hash elsewhere".to_owned(),
            None,
        );
    }
    Ok(warnings)
}
