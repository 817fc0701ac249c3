//! What this host says about itself: files of the kernel, file systems, processes, interfaces.

use super::error::Missing;
use super::{Error, Result};
use crate::types::link::Link;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads a file of /proc or /sys.
pub(crate) fn text(path: &str) -> Result<String> {
    // A name that is no UTF-8 is one that nobody looks for.
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| Error::io("read", path, &error))
}

/// What a file system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes that are taken.
    pub(crate) used: u64,
    /// Bytes that an ordinary user can still have.
    pub(crate) available: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
    pub(crate) read_only: bool,
}

/// Asks the file system of `path`. Where its server is gone this may never come back.
pub(crate) fn space(path: &Path) -> Result<Space> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    let stat = statvfs(path).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ENOTDIR => Error::Missing {
            doing: "look at".to_owned(),
            object: path.display().to_string(),
            what: "no such path".to_owned(),
            mend: "is it mounted?".to_owned(),
            reason: Missing::Path,
        },
        errno => Error::call("look at", path.display().to_string(), errno),
    })?;
    let block = stat.fragment_size();
    Ok(Space {
        used: stat.blocks().saturating_sub(stat.blocks_free()).saturating_mul(block),
        available: stat.blocks_available().saturating_mul(block),
        inodes: stat.files(),
        inodes_free: stat.files_available(),
        read_only: stat.flags().contains(FsFlags::ST_RDONLY),
    })
}

/// A process: its number, its `stat` line, its command line and the file that it runs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) stat: String,
    pub(crate) cmdline: Vec<u8>,
    /// None where only its owner may know it, and for the kernel's own.
    pub(crate) exe: Option<OsString>,
}

/// One process; none where it cannot be seen.
fn visible(pid: u32) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok().map(PathBuf::into_os_string);
    Some(Process { pid, stat: String::from_utf8_lossy(&stat).into_owned(), cmdline, exe })
}

/// One process; none where it has gone.
///
/// # Errors
/// It is there and hidden, or nothing can be seen in /proc.
pub(crate) fn process(pid: u32) -> Result<Option<Process>> {
    let found = visible(pid);
    // Signal 0 only asks whether it is there (kill(2)), of whoever it is.
    let number = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let is_there = number.is_some_and(|pid| nix::sys::signal::kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH));
    if found.is_none() && is_there {
        all_visible()?;
    }
    Ok(found)
}

/// All processes that can be seen, by their numbers.
///
/// # Errors
/// /proc cannot be read, or is not that of this process.
pub(crate) fn processes() -> Result<Vec<Process>> {
    let entries = std::fs::read_dir("/proc").map_err(|error| Error::io("read", "/proc", &error))?;
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let found: Vec<Process> = pids.into_iter().filter_map(visible).collect();
    if found.is_empty() { all_visible().map(|()| found) } else { Ok(found) }
}

/// Whether /proc shows all processes, so that one that is not in it is not there.
///
/// # Errors
/// It is not mounted, or hides those of others (`hidepid`, proc(5)).
pub(crate) fn all_visible() -> Result<()> {
    if visible(std::process::id()).is_none() {
        return Err(Error::Missing {
            doing: "look at".to_owned(),
            object: "processes".to_owned(),
            what: "/proc does not show even this one".to_owned(),
            mend: "mount it".to_owned(),
            reason: Missing::Feature,
        });
    }
    // There always is a first one, and it is root's.
    if visible(1).is_none() {
        return Err(Error::Privilege {
            doing: "look at".to_owned(),
            object: "processes of others, which /proc hides (hidepid)".to_owned(),
            capability: "CAP_SYS_PTRACE",
        });
    }
    Ok(())
}

/// The speed of an interface in Mbit/s; none where it has none or /sys is another network's.
pub(crate) fn speed(link: &Link) -> Option<u64> {
    let file = |name: &str| std::fs::read_to_string(format!("/sys/class/net/{}/{name}", link.name)).ok();
    // /sys shows the network that it was mounted in, which may have one of this name too.
    let same = file("ifindex")?.trim() == link.index.to_string()
        && link.mac.is_none_or(|mac| file("address").is_some_and(|address| address.trim() == mac.to_string()));
    // A link without carrier says -1, a virtual one without a speed nothing.
    file("speed").filter(|_| same)?.trim().parse().ok()
}
