//! Where the ownership of buckets is kept: the kernel's rules, the old kernel's file, or our own.

use super::absent;
use crate::cli::{Exit, Failure, Process, Reason};
use crate::record::bucket::{Counts, Kept, Show, State};
use crate::record::state::{self, Origin};
use crate::sys;
use crate::sys::clock::{self, Deadline};
use crate::sys::nft::Nft;
use crate::sys::privilege::{self, Capability};
use crate::types::cluster::{Cluster, Held};
use crate::wire::clusterip;
use crate::wire::nft::cluster::{self, Listed};
use crate::wire::nft::{family, list, table_name};
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// Rules of nftables
    #[default]
    Nft,
    /// The file of the CLUSTERIP target, which left the kernel in 2023
    Proc,
    /// A state file: for rehearsal, without root
    File,
}

/// The flags that name one.
#[derive(Args, Clone, Debug)]
pub(super) struct Where {
    /// What keeps the buckets
    #[arg(long, value_name = "WHAT", default_value = "nft")]
    pub(super) backend: Backend,

    /// The root of the proc file system
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,
}

impl Where {
    /// The kernel's rules.
    pub(super) fn nft() -> Self {
        Where { backend: Backend::Nft, proc_root: PathBuf::from("/proc") }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// Not known of the old kernel's file.
    pub(super) cluster: Option<Cluster>,
    pub(super) held: Held,
    pub(super) lease_left: Option<Duration>,
    counts: [u64; 6],
    backend: Backend,
}

impl Seen {
    pub(super) fn show(&self) -> Show {
        let [accepted, accepted_bytes, dropped, dropped_bytes, drained, refused] = self.counts;
        let counts =
            Counts { accepted: (accepted, accepted_bytes), dropped: (dropped, dropped_bytes), drained, refused };
        let name = match self.backend {
            Backend::Nft => "nft",
            Backend::Proc => "proc",
            Backend::File => "file",
        };
        match &self.cluster {
            Some(cluster) => Show::new(name, cluster, &self.standing(), self.lease_left, counts),
            None => Show { backend: name, algo: "clusterip", ..Show::holding(&self.held) },
        }
    }

    /// What is held by right: nothing once the lease has run out.
    pub(super) fn standing(&self) -> Held {
        if self.is_lapsed() { Held::default() } else { self.held.clone() }
    }

    /// What a beat says of it, and why nobody can be served at this moment.
    pub(super) fn state(&self, unfit: Option<String>) -> State {
        let held = self.standing();
        State {
            own: held.owned.to_string(),
            draining: held.draining.to_string(),
            epoch: self.cluster.as_ref().map_or(0, |cluster| cluster.epoch),
            config: self.cluster.as_ref().and_then(|cluster| cluster.config.clone()),
            weight: None,
            unfit,
        }
    }

    /// Nothing is there any more.
    pub(super) fn gone() -> Seen {
        Seen { cluster: None, held: Held::default(), lease_left: None, counts: [0; 6], backend: Backend::Nft }
    }

    /// The same after a change that is in force; `renewed` if it brought the whole lease.
    pub(super) fn with(&self, cluster: &Cluster, held: &Held, renewed: bool) -> Seen {
        let lease_left = if renewed { cluster.lease } else { self.lease_left };
        Seen { cluster: Some(cluster.clone()), held: held.clone(), lease_left, ..self.clone() }
    }

    /// Whether there was a lease and it has run out: what was held is lost.
    pub(super) fn is_lapsed(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.lease.is_some()) && self.lease_left.is_none()
    }
}

impl From<Listed> for Seen {
    fn from(listed: Listed) -> Self {
        Seen {
            counts: [
                listed.accepted.packets,
                listed.accepted.bytes,
                listed.dropped.packets,
                listed.dropped.bytes,
                listed.drained.packets,
                listed.refused.packets,
            ],
            cluster: Some(listed.cluster),
            held: listed.held,
            lease_left: listed.lease_left,
            backend: Backend::Nft,
        }
    }
}

/// One of them, ready to use.
#[derive(Clone, Debug)]
pub(super) enum Store {
    Nft(Nft),
    Proc(PathBuf),
    File(Origin),
}

impl Store {
    /// Refuses what cannot work at all: a missing right first, then a missing part.
    pub(super) fn open(
        place: &Where,
        doing: &str,
        vip: Option<IpAddr>,
        process: &Process,
        deadline: Deadline,
    ) -> Result<Self, Failure> {
        let object = vip.map_or_else(|| "the cluster IPs of this host".to_owned(), |vip| vip.to_string());
        Ok(match place.backend {
            Backend::Nft => {
                privilege::need(Capability::NetAdmin, doing, &object)?;
                Store::Nft(Nft::find(doing, &object, deadline)?)
            }
            Backend::Proc => Store::Proc(place.proc_root.join("net/ipt_CLUSTERIP")),
            Backend::File => Store::File(Origin {
                command: "bucket",
                host: process.node.clone(),
                boot_id: clock::boot_id(),
                at: clock::boot(),
            }),
        })
    }

    /// What is there now.
    pub(super) fn look(&self, vip: IpAddr) -> Result<Option<Seen>, Failure> {
        match self {
            Store::Nft(nft) => Ok(listed(nft, vip)?.map(Seen::from)),
            Store::Proc(folder) => look_proc(folder, vip),
            Store::File(origin) => look_file(origin, vip),
        }
    }

    /// The same, where it must be there.
    pub(super) fn need(&self, doing: &str, vip: IpAddr) -> Result<Seen, Failure> {
        self.look(vip)?.ok_or_else(|| absent(doing, vip))
    }

    /// Every cluster IP there is.
    pub(super) fn all(&self) -> Result<Vec<IpAddr>, Failure> {
        match self {
            Store::Nft(nft) => {
                let mut vips = Vec::new();
                for family in ["ip", "ip6"] {
                    vips.extend(tables(nft, family)?);
                }
                Ok(vips)
            }
            Store::Proc(folder) => Ok(names(folder).iter().filter_map(|name| name.parse().ok()).collect()),
            Store::File(origin) => {
                let prefix = format!("bucket-{}-", sys::state::file_name(&origin.host));
                let vip = |name: &String| name.strip_prefix(&prefix)?.strip_suffix(".json")?.parse().ok();
                Ok(names(&sys::state::folder()).iter().filter_map(vip).collect())
            }
        }
    }
}

/// The files of a folder, sorted; none where there is no folder.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok().and_then(|entry| entry.file_name().into_string().ok())).collect();
    names.sort();
    names
}

/// The addresses whose tables of `family` are ours.
pub(super) fn tables(nft: &Nft, family: &str) -> Result<Vec<IpAddr>, Failure> {
    let Some(text) = nft.list(&["tables", family], family)? else { return Ok(Vec::new()) };
    let names = list::table_names(&text, family).map_err(|why| foreign("the tables", &why))?;
    Ok(names
        .iter()
        .filter_map(|name| {
            let address = name.strip_prefix("failover_")?;
            // Those of both families have tables in `netdev`.
            [".", ":"].iter().find_map(|dot| address.replace('_', dot).parse().ok())
        })
        .collect())
}

/// The rules of `vip`, read; `None` where there are none.
pub(super) fn listed(nft: &Nft, vip: IpAddr) -> Result<Option<Listed>, Failure> {
    Ok(listed_with_table(nft, vip)?.map(|(listed, _)| listed))
}

/// The rules of `vip`, read, and the table that they were read from: one look, since the next may
/// see another map.
pub(super) fn listed_with_table(nft: &Nft, vip: IpAddr) -> Result<Option<(Listed, list::Table)>, Failure> {
    let Some(table) = table(nft, family(vip), vip)? else { return Ok(None) };
    let listed = cluster::read(vip, &table)
        .map_err(|why| foreign(&format!("table {} {}", family(vip), table_name(vip)), &why))?;
    Ok(Some((listed, table)))
}

/// One table of `vip` as listed.
pub(super) fn table(nft: &Nft, family: &str, vip: IpAddr) -> Result<Option<list::Table>, Failure> {
    let name = table_name(vip);
    // The peers that are remembered there may be many thousands.
    let what: &[&str] = if family == "netdev" { &["-t", "list"] } else { &["list"] };
    let Some(text) = nft.print_json(&[what, &["table", family, &name]].concat(), &vip.to_string())? else {
        return Ok(None);
    };
    list::parse(&text).map(Some).map_err(|why| foreign(&format!("table {family} {name}"), &why))
}

fn foreign(object: &str, why: &str) -> Failure {
    Failure::new(
        Exit::BadInput,
        Reason::BadInput,
        format!("cannot read {object}: {why} (made by something else? see: nft list ruleset)"),
    )
}

fn look_proc(folder: &Path, vip: IpAddr) -> Result<Option<Seen>, Failure> {
    let missing = |reason, why: String| Failure::new(Exit::Missing, reason, why);
    if !folder.is_dir() {
        return Err(missing(
            Reason::NoSuchFeature,
            format!(
                "cannot look at {vip}: this kernel has no CLUSTERIP target: no folder {} (use --backend nft)",
                folder.display()
            ),
        ));
    }
    let path = folder.join(vip.to_string());
    let Some(bytes) = sys::state::read(&path)? else {
        return Err(missing(
            Reason::NoSuchClusterIp,
            format!(
                "cannot look at {vip}: no CLUSTERIP rule was made for it: no file {} (make it with iptables)",
                path.display()
            ),
        ));
    };
    let text = String::from_utf8_lossy(&bytes);
    let owned = clusterip::parse(&text).map_err(|why| {
        Failure::new(
            Exit::BadInput,
            Reason::BadFile,
            format!("cannot read {}: {why} (is it the kernel's?)", path.display()),
        )
    })?;
    Ok(Some(Seen {
        cluster: None,
        held: Held { owned, ..Held::default() },
        lease_left: None,
        counts: [0; 6],
        backend: Backend::Proc,
    }))
}

fn state_file(origin: &Origin, vip: IpAddr) -> PathBuf {
    let name = |text: &str| sys::state::file_name(text);
    sys::state::folder().join(format!("bucket-{}-{}.json", name(&origin.host), name(&vip.to_string())))
}

fn look_file(origin: &Origin, vip: IpAddr) -> Result<Option<Seen>, Failure> {
    let path = state_file(origin, vip);
    let Some(bytes) = sys::state::read(&path)? else { return Ok(None) };
    let bad = |why: String| sys::Error::File {
        doing: "read".to_owned(),
        path: path.display().to_string(),
        why,
        mend: "move it away to begin anew".to_owned(),
    };
    let kept = match state::read::<Kept>(&bytes, origin).map_err(bad)? {
        state::Read::Current(kept) => kept,
        state::Read::OtherBoot => return Ok(None),
    };
    let (cluster, held) = kept.read().map_err(bad)?;
    Ok(Some(Seen { cluster: Some(cluster), held, lease_left: None, counts: [0; 6], backend: Backend::File }))
}

/// Writes the state file.
pub(super) fn keep(origin: &Origin, cluster: &Cluster, held: &Held) -> Result<(), Failure> {
    let path = state_file(origin, cluster.vip);
    let bytes = state::write(origin, &Kept::new(cluster, held)).map_err(|why| {
        Failure::new(Exit::Bug, Reason::WriteFailed, format!("cannot write {}: {why}", path.display()))
    })?;
    Ok(sys::state::replace(&path, &bytes)?)
}

/// Removes the state file; says whether there was one.
pub(super) fn forget(origin: &Origin, vip: IpAddr) -> Result<bool, Failure> {
    let path = state_file(origin, vip);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(sys::Error::io("remove", path.display().to_string(), &error).into()),
    }
}

/// Tells the old kernel one change after another: its file takes one a write.
pub(super) fn tell_proc(folder: &Path, vip: IpAddr, from: &Held, to: &Held) -> Result<(), Failure> {
    use std::io::Write;
    let path = folder.join(vip.to_string());
    let name = path.display().to_string();
    let lost = from.owned.difference(&to.owned);
    let gained = to.owned.difference(&from.owned);
    // Release before take, as everywhere.
    let words = lost.iter().map(clusterip::remove).chain(gained.iter().map(clusterip::add));
    for word in words {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(word.as_bytes()))
            .map_err(|error| sys::Error::io(format!("write {} to", word.trim_end()), &name, &error))?;
    }
    Ok(())
}
