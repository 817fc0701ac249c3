//! What a virtual router is: flags for one, a file for several.

use crate::cli::Failure;
use crate::cmd::keys::{self, Auth};
use crate::decide::vrrp::Settings;
use crate::sys;
use crate::types::net::Prefix;
use crate::types::time::{Span, WallTime};
use crate::types::vrrp::{self, Version};
use crate::wire::keys::Keys;
use crate::wire::vrrp::{LONGEST_V3, MAX_ADDRESSES, Sum};
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// How the sum of a version 3 advert over IPv4 is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Checksum {
    /// In the form that the other routers use; with a pseudo-header until one is heard
    Auto,
    /// Over the message alone
    Rfc9568,
    /// With a pseudo-header, as keepalived sends it unless told otherwise
    Pseudo,
}

impl Checksum {
    pub(super) fn form(self) -> Option<Sum> {
        match self {
            Checksum::Auto => None,
            Checksum::Rfc9568 => Some(Sum::Rfc9568),
            Checksum::Pseudo => Some(Sum::Pseudo),
        }
    }
}

/// Signatures of version 3 adverts (draft-cassen-vrrp-auth-hmac).
#[derive(Args, Clone, Debug)]
pub(super) struct Signing {
    /// Sign version 3 adverts, and check those of others: lines '[ID] HEX', 32 bytes or more, mode 0600;
    /// the first signs
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<String>,

    /// Step of a roll-out of signatures
    #[arg(long, value_name = "STEP", default_value = "enforce", requires = "key")]
    pub(super) auth: Auth,
}

impl Signing {
    pub(super) fn keys(&self) -> Result<Option<Keys>, Failure> {
        self.key.as_deref().map(keys::read).transpose()
    }

    /// Whether this side signs.
    pub(super) fn signs(&self) -> bool {
        self.auth != Auth::ReceiveOnly
    }
}

/// The number of a signed advert: seconds, their binary fraction, and what tells two of one moment
/// apart; above the last one in any case.
pub(super) fn sequence(last: u64, now: WallTime) -> u64 {
    let seconds = u64::try_from(now.unix_us.div_euclid(1_000_000)).unwrap_or(0) & 0xffff_ffff;
    let fraction = u64::try_from(now.unix_us.rem_euclid(1_000_000)).unwrap_or(0) * 65_536 / 1_000_000;
    (seconds << 32 | fraction << 16).max(last + 1)
}

/// What `run` and `send` take for one virtual router.
#[derive(Args, Clone, Debug)]
pub(super) struct RouterFlags {
    /// The interface
    #[arg(long, value_name = "DEV")]
    pub(super) dev: Option<String>,

    /// Number of the virtual router on its LAN
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) vrid: Option<u8>,

    /// Base priority: 255 is the owner of the address
    #[arg(long, value_name = "BP", default_value = "100")]
    pub(super) priority: u8,

    /// The virtual addresses, of one family
    #[arg(long, value_name = "ADDR[/LEN],...", value_delimiter = ',')]
    pub(super) vip: Vec<Prefix>,

    /// Time from advert to advert: whole seconds in version 2, from 10ms on in version 3
    #[arg(long, value_name = "D", default_value = "1s")]
    pub(super) interval: Span,

    /// Version of the protocol: 2 (IPv4 only) or 3
    #[arg(long, value_name = "N", default_value = "3", value_parser = version)]
    pub(super) version: Version,

    /// Sum of version 3 adverts over IPv4
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub(super) checksum: Checksum,

    /// Send to these routers alone instead of the multicast group
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    pub(super) peer: Vec<IpAddr>,

    /// Send from the virtual router's MAC, as the RFC asks
    #[arg(long)]
    pub(super) vmac: bool,
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "2" => Ok(Version::V2),
        "3" => Ok(Version::V3),
        _ => Err("the versions are 2 and 3".to_owned()),
    }
}

/// One virtual router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) dev: String,
    pub(super) vrid: u8,
    pub(super) priority: u8,
    /// As they are told in adverts: over IPv6 a link-local one comes first.
    pub(super) vips: Vec<Prefix>,
    pub(super) settings: Settings,
    /// None: the form that others use.
    pub(super) sum: Option<Sum>,
    pub(super) vmac: bool,
    /// Empty: the multicast group.
    pub(super) peers: Vec<IpAddr>,
}

impl Spec {
    pub(super) fn is_ipv6(&self) -> bool {
        self.vips.first().is_some_and(|vip| vip.addr.is_ipv6())
    }

    /// What no two processes of one host may be.
    pub(super) fn name(&self) -> String {
        format!("vrrp{}-{}-{}", if self.is_ipv6() { 6 } else { 4 }, self.vrid, self.dev)
    }

    /// Whether both are the same virtual router, however they are set.
    pub(super) fn is_same(&self, other: &Spec) -> bool {
        self.vrid == other.vrid && self.dev == other.dev && self.is_ipv6() == other.is_ipv6()
    }
}

fn is_link_local(vip: &Prefix) -> bool {
    matches!(vip.addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// What applies to every router of a run.
#[derive(Clone, Debug)]
pub(super) struct Preemption {
    pub(super) delay: Duration,
    /// None: every address preempts. Empty: none does.
    pub(super) without: Option<Vec<IpAddr>>,
    pub(super) sync: Option<String>,
}

/// Makes a router of flags and checks it.
///
/// # Errors
/// What does not go together, as a sentence.
pub(super) fn spec(flags: &RouterFlags, preemption: &Preemption) -> Result<Spec, String> {
    let vrid = flags.vrid.ok_or("--vrid is missing")?;
    let dev = flags.dev.clone().ok_or("--dev is missing")?;
    let first = *flags.vip.first().ok_or("--vip is missing")?;
    let ipv6 = first.addr.is_ipv6();
    if flags.vip.iter().any(|vip| vip.addr.is_ipv6() != ipv6) {
        return Err("the addresses of one virtual router are of one family (give each family its own)".to_owned());
    }
    let no_host = |vip: &&Prefix| {
        vip.addr.is_multicast()
            || vip.addr.is_unspecified()
            || vip.addr.is_loopback()
            || matches!(vip.addr, IpAddr::V4(addr) if addr.is_broadcast())
    };
    if let Some(vip) = flags.vip.iter().find(no_host) {
        return Err(format!("{} is no address of a host", vip.addr));
    }
    if flags.peer.iter().any(|peer| peer.is_ipv6() != ipv6) {
        return Err("a peer is of another family than the addresses".to_owned());
    }
    let interval = flags.interval.0;
    match flags.version {
        Version::V2 if ipv6 => return Err("version 2 knows no IPv6 (use version 3)".to_owned()),
        Version::V2 if interval.subsec_nanos() != 0 || !(1..=255).contains(&interval.as_secs()) => {
            return Err(format!("version 2 takes intervals of 1s to 255s in whole seconds, not {}", flags.interval));
        }
        Version::V3
            if interval.is_zero() || interval > LONGEST_V3 || !interval.as_nanos().is_multiple_of(10_000_000) =>
        {
            return Err(format!(
                "version 3 takes intervals of 10ms to 40s950ms in steps of 10ms, not {}",
                flags.interval
            ));
        }
        _ => {}
    }
    if flags.priority == 0 {
        return Err("a base priority is 1 to 255; 0 is what a router says when it leaves".to_owned());
    }
    let mut vips = flags.vip.clone();
    if ipv6 && !is_link_local(&first) {
        vips.insert(0, Prefix { addr: vrrp::link_local(vrid).into(), len: 64 });
    }
    // What fits an Ethernet frame with the longest trailer.
    let room = if ipv6 { 89 } else { MAX_ADDRESSES };
    if vips.len() > room {
        return Err(format!(
            "an advert has room for {room} addresses, not for {} (split them over several routers)",
            vips.len()
        ));
    }
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = vips.iter().find(|vip| !seen.insert(vip.addr)) {
        return Err(format!("{} stands there twice", twice.addr));
    }
    let preempt = match &preemption.without {
        None => true,
        Some(list) => !list.is_empty() && !vips.iter().any(|vip| list.contains(&vip.addr)),
    };
    Ok(Spec {
        dev,
        vrid,
        priority: flags.priority,
        vips,
        settings: Settings {
            version: flags.version,
            interval,
            preempt,
            preempt_delay: preemption.delay,
            sync: preemption.sync.clone(),
        },
        sum: flags.checksum.form(),
        vmac: flags.vmac,
        peers: flags.peer.clone(),
    })
}

/// Reads a file of routers: `VRID key=value...` a line, with the words of the flags; `#` begins a
/// comment. What a line does not say is as the flags say.
pub(super) fn read(path: &Path, flags: &RouterFlags, preemption: &Preemption) -> Result<Vec<Spec>, Failure> {
    let wrong = |why: String| sys::Error::File {
        doing: "use the configuration".to_owned(),
        path: path.display().to_string(),
        why,
        mend: "a line is: VRID vip=ADDR/LEN,... priority=N dev=DEV".to_owned(),
    };
    let bytes = sys::state::read(path)?.ok_or_else(|| wrong("it is not there".to_owned()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text".to_owned()))?;
    let mut specs: Vec<Spec> = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let at = |why: String| wrong(format!("line {}: {why}", idx + 1));
        let spec = one(line, flags, preemption).map_err(at)?;
        if let Some(other) = specs.iter().find(|other| other.is_same(&spec)) {
            return Err(at(format!("router {} on {} stands there twice", other.vrid, other.dev)).into());
        }
        for vip in &spec.vips {
            let same = |other: &&Spec| other.vips.iter().any(|known| known.addr == vip.addr && !is_link_local(known));
            if let Some(other) = specs.iter().find(same) {
                return Err(at(format!("{} is router {}'s already", vip.addr, other.vrid)).into());
            }
        }
        specs.push(spec);
    }
    if specs.is_empty() { Err(wrong("it names no router".to_owned()).into()) } else { Ok(specs) }
}

fn one(line: &str, flags: &RouterFlags, preemption: &Preemption) -> Result<Spec, String> {
    let (mut flags, mut preemption) = (flags.clone(), preemption.clone());
    let mut words = line.split_whitespace();
    let vrid = words.next().unwrap_or_default();
    flags.vrid = Some(vrid.parse().ok().filter(|vrid| *vrid > 0).ok_or(format!("'{vrid}' is no VRID (1 to 255)"))?);
    for word in words {
        let (key, value) = word.split_once('=').ok_or(format!("'{word}' is not key=value"))?;
        let list = || value.split(',').filter(|part| !part.is_empty());
        let named = |why: String| format!("{key}: {why}");
        match key {
            "dev" => flags.dev = Some(value.to_owned()),
            "priority" => flags.priority = value.parse().map_err(|_| named(format!("'{value}' is not 1 to 255")))?,
            "vip" => flags.vip = list().map(str::parse).collect::<Result<_, _>>().map_err(named)?,
            "interval" => flags.interval = value.parse().map_err(named)?,
            "version" => flags.version = version(value).map_err(named)?,
            "checksum" => flags.checksum = Checksum::from_str(value, false).map_err(named)?,
            "peer" => {
                flags.peer = list()
                    .map(|peer| peer.parse().map_err(|_| named(format!("'{peer}' is no address"))))
                    .collect::<Result<_, _>>()?;
            }
            "vmac" => flags.vmac = yes(value).map_err(named)?,
            "preempt" => preemption.without = (!yes(value).map_err(named)?).then(Vec::new),
            "preempt-delay" => preemption.delay = value.parse::<Span>().map_err(named)?.0,
            "sync" => preemption.sync = Some(value.to_owned()),
            _ => return Err(format!("'{key}' is no setting of a router")),
        }
    }
    spec(&flags, &preemption)
}

fn yes(value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("'{value}' is not yes or no")),
    }
}
