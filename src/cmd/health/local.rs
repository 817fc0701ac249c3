//! `health link`, `load`, `disk`, `memory`: what this host knows about itself.

use super::{Check, Monitoring, Usual, in_dialect};
use crate::cli::args::{self, flags};
use crate::cli::{Exit, Failure, Process, Reason, Verb};
use crate::cmd::watch::{News, Probed};
use crate::decide::monitor::{Evidence, Fault};
use crate::decide::tally::pct;
use crate::record::health::{
    DISK_COLUMNS, DISK_SCHEMA, Disk, LINK_COLUMNS, LINK_SCHEMA, LOAD_COLUMNS, LOAD_SCHEMA, Link, Load, MEMORY_COLUMNS,
    MEMORY_SCHEMA, Memory,
};
use crate::sys::local::{self, Space};
use crate::sys::netlink::{Change, Netlink};
use crate::sys::process::Watched;
use crate::sys::state::Presence;
use crate::sys::worker::Stop;
use crate::sys::{self, Error};
use crate::types::link::Operstate;
use crate::types::time::Tick;
use crate::wire::proc;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const LINK: Verb = Verb {
    name: "link",
    about: "Tell whether an interface is up and something is at its other end",
    examples: "health link eth0\n\
               health link eth0 --follow        a lost carrier is told in milliseconds, not at the next interval",
    args: flags::<LinkFlags>,
    schemas: &[LINK_SCHEMA],
    columns: LINK_COLUMNS,
    run: |matches, process| {
        let flags: LinkFlags = args::read(matches)?;
        let outcome = link(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

pub(super) const LOAD: Verb = Verb {
    name: "load",
    about: "Tell whether there is more to run than this host can",
    examples: "health load --limit 1.5          per CPU: on 8 CPUs the limit is a load of 12\n\
               health load --over 1 --follow",
    args: flags::<LoadFlags>,
    schemas: &[LOAD_SCHEMA],
    columns: LOAD_COLUMNS,
    run: |matches, process| {
        let flags: LoadFlags = args::read(matches)?;
        let outcome = load(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

pub(super) const DISK: Verb = Verb {
    name: "disk",
    about: "Tell whether a file system has room and is mounted to be written to; one that hangs is unknown in time",
    examples: "health disk /var --limit 90\n\
               health disk /mnt/nfs --response-timeout 1s",
    args: flags::<DiskFlags>,
    schemas: &[DISK_SCHEMA],
    columns: DISK_COLUMNS,
    run: |matches, process| {
        let flags: DiskFlags = args::read(matches)?;
        if flags.look {
            return look(&flags.path, process);
        }
        let outcome = disk(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

pub(super) const MEMORY: Verb = Verb {
    name: "memory",
    about: "Tell whether there is memory to be had without swapping",
    examples: "health memory --limit 256M\n\
               health memory --limit 10% --exit nagios",
    args: flags::<MemoryFlags>,
    schemas: &[MEMORY_SCHEMA],
    columns: MEMORY_COLUMNS,
    run: |matches, process| {
        let flags: MemoryFlags = args::read(matches)?;
        let outcome = memory(&flags, process);
        in_dialect(flags.monitoring.exit, process, outcome)
    },
};

/// A figure against its limit.
fn within(fits: bool) -> Evidence {
    if fits { Evidence::Good } else { Evidence::Bad(Fault::Limit) }
}

#[derive(Args, Debug)]
struct LinkFlags {
    /// The interface, by name or altname
    #[arg(value_name = "DEV")]
    dev: String,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn link(flags: &LinkFlags, process: &mut Process) -> Result<Exit, Failure> {
    // Listening starts before looking: what happens in between is told twice, never lost.
    let news = if flags.monitoring.follow {
        let dev = flags.dev.clone();
        let is_ours =
            Box::new(move |change: &Change| matches!(change, Change::Link { link, .. } if link.is_called(&dev)));
        Some(News { netlink: Netlink::monitor()?, is_ours })
    } else {
        None
    };
    let (dev, seen) = (flags.dev.clone(), AtomicBool::new(false));
    let probe = move |_: Tick, _: &Stop| match look_at_link(&dev) {
        Ok(Some(found)) => {
            seen.store(true, Ordering::Relaxed);
            let body = Link {
                carrier: found.is_usable(),
                operstate: found.operstate.as_str(),
                speed_mbit: local::speed(&found),
            };
            Probed::new(within(body.carrier), body)
        }
        // What was there and is gone is down; what never was, nobody can tell anything of.
        Ok(None) if seen.load(Ordering::Relaxed) => {
            let body = Link { carrier: false, operstate: Operstate::NOT_PRESENT.as_str(), speed_mbit: None };
            Probed::new(Evidence::Bad(Fault::Limit), body)
        }
        Ok(None) => Probed::untold(Error::no_interface("look at", &dev)),
        Err(error) => Probed::untold(error),
    };
    let check = Check {
        kind: "health.link",
        subject: flags.dev.clone(),
        doing: format!("look at {}", flags.dev),
        usual: Usual::Local,
        answers_in: Some(Duration::ZERO),
        news,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

fn look_at_link(dev: &str) -> sys::Result<Option<crate::types::link::Link>> {
    Ok(Netlink::open()?.links()?.into_iter().find(|link| link.is_called(dev)))
}

#[derive(Args, Debug)]
struct LoadFlags {
    /// The highest load for each CPU that is online
    #[arg(long, value_name = "LOAD", default_value = "2", value_parser = load_limit)]
    limit: f64,

    /// The average over so many minutes that the limit is for
    #[arg(long, value_name = "1|5|15", default_value = "5", value_parser = minutes)]
    over: usize,

    #[command(flatten)]
    monitoring: Monitoring,
}

fn load_limit(text: &str) -> Result<f64, String> {
    let limit = text.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit > 0.0);
    limit.ok_or_else(|| format!("'{text}' is not a load above 0 (1.5)"))
}

/// The place of an average in /proc/loadavg.
fn minutes(text: &str) -> Result<usize, String> {
    ["1", "5", "15"].iter().position(|known| *known == text).ok_or_else(|| format!("'{text}' is none of 1, 5, 15"))
}

fn load(flags: &LoadFlags, process: &mut Process) -> Result<Exit, Failure> {
    let (limit, over) = (flags.limit, flags.over);
    let probe = move |_: Tick, _: &Stop| match look_at_load() {
        Ok((averages, cpus)) => {
            #[allow(clippy::cast_precision_loss)] // there are fewer CPUs
            let limit_load = limit * cpus as f64;
            let [load1, load5, load15] = averages;
            Probed::new(within(averages[over] <= limit_load), Load { load1, load5, load15, cpus, limit_load })
        }
        Err(failure) => Probed::untold(failure),
    };
    let check = Check {
        kind: "health.load",
        subject: "load".to_owned(),
        doing: "look at the load".to_owned(),
        usual: Usual::Local,
        answers_in: Some(Duration::ZERO),
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

/// A file of the kernel that is not as proc(5) says.
fn strange(path: &str) -> Failure {
    Failure::new(Exit::Missing, Reason::NoSuchFeature, format!("cannot read {path}: it is not as proc(5) says"))
}

fn look_at_load() -> Result<([f64; 3], usize), Failure> {
    const LOADAVG: &str = "/proc/loadavg";
    let averages = proc::loadavg(&local::text(LOADAVG)?).ok_or_else(|| strange(LOADAVG))?;
    Ok((averages, proc::cpus(&local::text("/proc/stat")?).max(1)))
}

#[derive(Args, Debug)]
struct MemoryFlags {
    /// What must be left: bytes, with K, M, G or T, or a share of all memory with %
    #[arg(long, value_name = "SIZE", default_value = "5%", value_parser = amount)]
    limit: Amount,

    #[command(flatten)]
    monitoring: Monitoring,
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Bytes(u64),
    Pct(u8),
}

fn amount(text: &str) -> Result<Amount, String> {
    let wrong = || format!("'{text}' is not an amount (256M, 1G, 10%)");
    // 0 is no limit.
    if let Some(share) = text.strip_suffix('%') {
        return share.parse().ok().filter(|share| (1..=100).contains(share)).map(Amount::Pct).ok_or_else(wrong);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..) {
        Some("") => 1,
        Some("K") => 1 << 10,
        Some("M") => 1 << 20,
        Some("G") => 1 << 30,
        Some("T") => 1u64 << 40,
        _ => return Err(wrong()),
    };
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    number.and_then(|number| number.checked_mul(factor)).map(Amount::Bytes).ok_or_else(wrong)
}

fn memory(flags: &MemoryFlags, process: &mut Process) -> Result<Exit, Failure> {
    const MEMINFO: &str = "/proc/meminfo";
    let limit = flags.limit;
    let look = move || -> Result<Memory, Failure> {
        let text = local::text(MEMINFO)?;
        let figure = |key: &str| proc::meminfo(&text, key).ok_or_else(|| strange(MEMINFO));
        let limit_bytes = match limit {
            Amount::Bytes(bytes) => bytes,
            Amount::Pct(share) => figure("MemTotal")? / 100 * u64::from(share),
        };
        Ok(Memory { available_bytes: figure("MemAvailable")?, limit_bytes })
    };
    let probe = move |_: Tick, _: &Stop| match look() {
        Ok(body) => Probed::new(within(body.available_bytes >= body.limit_bytes), body),
        Err(failure) => Probed::untold(failure),
    };
    let check = Check {
        kind: "health.memory",
        subject: "memory".to_owned(),
        doing: "look at the memory".to_owned(),
        usual: Usual::Local,
        answers_in: Some(Duration::ZERO),
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

#[derive(Args, Debug)]
struct DiskFlags {
    /// Any path on the file system
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// The highest share of blocks and of inodes in use, in per cent
    #[arg(long, value_name = "PCT", default_value = "95", value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,

    /// A file system that is mounted read-only is well too
    #[arg(long)]
    read_only: bool,

    /// Look in this process, and print the figures for the one that asked
    #[arg(long, hide = true)]
    look: bool,

    #[command(flatten)]
    monitoring: Monitoring,
}

/// Looks at a file system for another `health disk`, which cannot be hung by it: a process that is
/// stuck in a system call cannot end either.
///
/// While one is stuck no other begins to look at the same path, so that a check a minute leaves one
/// hanging process behind, not one a minute.
fn look(path: &Path, process: &mut Process) -> Result<Exit, Failure> {
    let name = sys::state::file_name(&path.display().to_string());
    let sign = Presence::hold(&sys::state::folder().join("lock").join(format!("health-disk-{name}")));
    // Who may not write there looks without.
    if matches!(sign, Ok(None)) {
        return Ok(Exit::Undecided);
    }
    let Space { used, available, inodes, inodes_free, read_only } = local::space(path)?;
    process
        .out
        .whole_lines(format!("{used} {available} {inodes} {inodes_free} {}\n", u8::from(read_only)).as_bytes())?;
    Ok(Exit::Yes)
}

fn read_look(text: &str) -> Option<Space> {
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let mut next = || words.next().flatten();
    Some(Space { used: next()?, available: next()?, inodes: next()?, inodes_free: next()?, read_only: next()? == 1 })
}

/// Has another process look, and waits for it no longer than until `deadline`.
fn ask_for_space(path: &Path, left: &Mutex<Option<Child>>, deadline: Tick, stop: &Stop) -> Result<Space, Failure> {
    let name = path.display().to_string();
    let hangs = |why: &str| {
        Failure::from(Error::Late { doing: "look at".to_owned(), object: name.clone(), why: why.to_owned() })
    };
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(child) = left.as_mut() {
        if matches!(child.try_wait(), Ok(None)) {
            return Err(hangs("an earlier look at it still hangs; is its server gone?"));
        }
        *left = None;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("disk").arg("--look").arg("--").arg(path).stderr(Stdio::piped());
    let Watched { status, stdout, stderr, stuck } = sys::process::watch(command, 4096, deadline, stop.as_fd())?;
    *left = stuck;
    match status.and_then(|status| status.code()) {
        None => Err(hangs("it did not answer in time; is its server gone?")),
        Some(code) if code == i32::from(Exit::Undecided.code()) => {
            Err(hangs("an earlier look at it still hangs; is its server gone?"))
        }
        Some(0) => read_look(&String::from_utf8_lossy(&stdout)).ok_or_else(|| hangs("nobody could look")),
        Some(code) => {
            // `health disk: cannot look at /x: …`
            let said = String::from_utf8_lossy(&stderr);
            let why = said.trim().rsplit_once(&format!("{name}: ")).map_or(said.trim(), |(_, why)| why);
            let (exit, reason) = [(Exit::NotPermitted, Reason::NotPermitted), (Exit::Missing, Reason::NoSuchPath)]
                .into_iter()
                .find(|(exit, _)| i32::from(exit.code()) == code)
                .unwrap_or((Exit::Refused, Reason::Refused));
            Err(Failure::new(exit, reason, format!("cannot look at {name}: {why}")))
        }
    }
}

fn disk(flags: &DiskFlags, process: &mut Process) -> Result<Exit, Failure> {
    let (path, limit_pct, read_only) = (flags.path.clone(), f64::from(flags.limit), flags.read_only);
    let left = Mutex::new(None);
    let probe = move |deadline: Tick, stop: &Stop| match ask_for_space(&path, &left, deadline, stop) {
        Ok(space) => {
            let body = Disk {
                used_pct: pct(space.used, space.used.saturating_add(space.available)),
                available_bytes: space.available,
                inodes_pct: (space.inodes > 0)
                    .then(|| pct(space.inodes.saturating_sub(space.inodes_free), space.inodes)),
                read_only: space.read_only,
                limit_pct,
            };
            let fits = body.used_pct <= limit_pct && body.inodes_pct.is_none_or(|share| share <= limit_pct);
            let refused = body.read_only && !read_only;
            Probed::new(if refused { Evidence::Bad(Fault::ReadOnly) } else { within(fits) }, body)
        }
        Err(failure) => Probed::untold(failure),
    };
    let check = Check {
        kind: "health.disk",
        subject: flags.path.display().to_string(),
        doing: format!("look at {}", flags.path.display()),
        usual: Usual::Local,
        answers_in: Some(Duration::ZERO),
        news: None,
        probe: Arc::new(probe),
    };
    check.run(&flags.monitoring, process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read() {
        for (text, read) in [
            ("5%", Some(Amount::Pct(5))),
            ("256M", Some(Amount::Bytes(256 << 20))),
            ("17", Some(Amount::Bytes(17))),
            ("101%", None),
            ("0", None),
            ("0%", None),
            ("0G", None),
            ("", None),
            ("M", None),
            ("1.5G", None),
            ("1m", None),
            ("99999999999T", None),
        ] {
            assert_eq!(amount(text).ok(), read, "{text}");
        }
    }

    #[test]
    fn the_figures_of_a_look_read_back() {
        let space = Space { used: 1, available: 2, inodes: 3, inodes_free: 4, read_only: true };
        assert_eq!(read_look("1 2 3 4 1\n"), Some(space));
        assert_eq!(read_look("1 2 3\n"), None);
    }
}
