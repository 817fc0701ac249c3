//! What this host says about itself: files of the kernel, file systems, processes, interfaces.

use super::{Error, Result};
use crate::types::link::Link;
use std::path::Path;

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
    let stat = statvfs(path).map_err(|errno| Error::call("look at", path.display().to_string(), errno))?;
    let block = stat.fragment_size();
    Ok(Space {
        used: stat.blocks().saturating_sub(stat.blocks_free()).saturating_mul(block),
        available: stat.blocks_available().saturating_mul(block),
        inodes: stat.files(),
        inodes_free: stat.files_available(),
        read_only: stat.flags().contains(FsFlags::ST_RDONLY),
    })
}

/// A process: its number, its `stat` line and its command line.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) stat: String,
    pub(crate) cmdline: Vec<u8>,
}

/// One process; none where it has gone.
pub(crate) fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(Process { pid, stat: String::from_utf8_lossy(&stat).into_owned(), cmdline })
}

/// All processes that can be seen, by their numbers.
pub(crate) fn processes() -> Result<Vec<Process>> {
    let entries = std::fs::read_dir("/proc").map_err(|error| Error::io("read", "/proc", &error))?;
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids.into_iter().filter_map(process).collect())
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
