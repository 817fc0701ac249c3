//! nftables: the program `nft`, and the kernel's word that a table changed.

use super::clock::Deadline;
use super::error::Missing;
use super::process::Running;
use super::{Error, Result, process};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// The program, found.
#[derive(Clone, Debug)]
pub(crate) struct Nft {
    program: PathBuf,
    deadline: Deadline,
}

impl Nft {
    /// Finds the program; what it does from here on ends by `deadline`.
    pub(crate) fn find(doing: &str, object: &str, deadline: Deadline) -> Result<Self> {
        let program = process::find("nft", "nftables", doing, object)?;
        Ok(Nft { program, deadline })
    }

    /// The same program with more time.
    pub(crate) fn until(&self, deadline: Deadline) -> Self {
        Nft { program: self.program.clone(), deadline }
    }

    /// Carries out a document: all of it or nothing.
    pub(crate) fn load(&self, document: &str, doing: &str, object: &str) -> Result<()> {
        if document.is_empty() {
            return Ok(());
        }
        let done = process::run(&self.program, &["-f", "-"], document.as_bytes(), self.deadline)?;
        if done.status.success() { Ok(()) } else { Err(refused(&done.stderr, doing, object)) }
    }

    /// Carries out a short document, and returns as soon as the kernel has told `monitor` that it is
    /// in force.
    ///
    /// nft itself ends 10 to 20 ms later: closing its socket waits for a grace period, after which
    /// what was replaced is freed. Nothing lingers if it has ended before anything was heard, as
    /// where the kernel knows it by another number than we do (a PID namespace).
    pub(crate) fn begin_load<'a>(
        &self,
        document: &str,
        doing: &'a str,
        object: &'a str,
        monitor: &mut Monitor,
    ) -> Result<Begun<'a>> {
        let running = Running::start(&self.program, &["-f", "-"], document.as_bytes(), self.deadline)?;
        let process = running.id();
        let lingering = Lingering { running, doing, object };
        let mut heard = Vec::new();
        while lingering.running.wait_beside(monitor.as_fd())? {
            heard.extend(monitor.heard()?);
            if heard.contains(&Heard::Generation(process)) {
                return Ok(Begun { lingering: Some(lingering), process, heard });
            }
        }
        lingering.finish()?;
        heard.extend(monitor.heard()?);
        Ok(Begun { lingering: None, process, heard })
    }

    /// What `nft -j -p list …` prints; `None` where that is not there.
    ///
    /// Protocols as numbers: their names would cost nft a search of the host's files.
    pub(crate) fn list(&self, what: &[&str], object: &str) -> Result<Option<String>> {
        self.print_json(&[&["list"], what].concat(), object)
    }

    /// The same for a whole command line, as with an option more.
    pub(crate) fn print_json(&self, words: &[&str], object: &str) -> Result<Option<String>> {
        self.print(&[&["-j", "-p"], words].concat(), object)
    }

    /// What `nft list …` prints for people: the only form with milliseconds in it.
    pub(crate) fn list_text(&self, what: &[&str], object: &str) -> Result<Option<String>> {
        self.print(&[&["list"], what].concat(), object)
    }

    fn print(&self, arguments: &[&str], object: &str) -> Result<Option<String>> {
        let done = process::run(&self.program, arguments, &[], self.deadline)?;
        if done.status.success() {
            return Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned()));
        }
        match refused(&done.stderr, "list the rules of", object) {
            Error::Call { errno: Errno::ENOENT, .. } => Ok(None),
            error => Err(error),
        }
    }
}

/// A transaction that is in force.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    /// The nft that made it, where it has not ended yet.
    pub(crate) lingering: Option<Lingering<'a>>,
    /// Its number.
    pub(crate) process: u32,
    /// What the monitor heard since, of this transaction and of others.
    pub(crate) heard: Vec<Heard>,
}

/// An nft whose transaction is in force, and which has not ended yet.
#[derive(Debug)]
pub(crate) struct Lingering<'a> {
    running: Running,
    doing: &'a str,
    object: &'a str,
}

impl Lingering<'_> {
    /// Waits for its end.
    pub(crate) fn finish(self) -> Result<()> {
        let done = self.running.finish(&[])?;
        if done.status.success() { Ok(()) } else { Err(refused(&done.stderr, self.doing, self.object)) }
    }
}

/// nft tells the kernel's errno as its text, at the end of the first line.
fn refused(stderr: &[u8], doing: &str, object: &str) -> Error {
    let text = String::from_utf8_lossy(stderr);
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no word of why").trim().to_owned();
    for (words, errno) in [
        ("No such file or directory", Errno::ENOENT),
        ("Operation not permitted", Errno::EPERM),
        ("No such device", Errno::ENODEV),
        ("File exists", Errno::EEXIST),
        ("Device or resource busy", Errno::EBUSY),
    ] {
        // In nft's own words: a program of that name that cannot even start says such things too.
        if first.contains("Error: ") && text.contains(words) {
            return Error::Call { doing: doing.to_owned(), object: object.to_owned(), errno, said: Some(first) };
        }
    }
    if text.contains("Operation not supported") || text.contains("Protocol not supported") {
        return Error::Missing {
            doing: doing.to_owned(),
            object: object.to_owned(),
            what: format!("nft: {first}"),
            mend: "this kernel lacks a part of nf_tables: nft_hash, nft_fib, nft_ct, nft_reject".to_owned(),
            reason: Missing::Feature,
        };
    }
    Error::Call { doing: doing.to_owned(), object: object.to_owned(), errno: Errno::EINVAL, said: Some(first) }
}

/// Hears of changes to tables (`NFNLGRP_NFTABLES`).
pub(crate) struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

/// Whether somebody other than the process `ours` has changed the table `name`, or may have.
///
/// The kernel tells what a transaction did, and then whose it was.
pub(crate) fn changed_by_others(heard: &[Heard], name: &str, ours: Option<u32>) -> bool {
    let mut touched = false;
    for news in heard {
        match news {
            Heard::Overrun => return true,
            Heard::Table(table) => touched |= table == name,
            Heard::Generation(process) if touched && Some(*process) != ours => return true,
            Heard::Generation(_) => touched = false,
        }
    }
    touched
}

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Something of this table, other than the elements of a set.
    Table(String),
    /// A transaction of the process with this number is in force.
    Generation(u32),
    /// Messages were lost.
    Overrun,
}

impl Monitor {
    pub(crate) fn open() -> Result<Self> {
        let failed = |error: &std::io::Error| Error::io("listen to", "nf_tables", error);
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(|error| failed(&error))?;
        // NFNLGRP_NFTABLES is 7; the mask counts from bit 0.
        socket.bind(&SocketAddr::new(0, 1 << 6)).map_err(|error| failed(&error))?;
        socket.set_non_blocking(true).map_err(|error| failed(&error))?;
        let _ = socket.set_rx_buf_sz(1 << 20);
        Ok(Monitor { socket, buffer: Vec::with_capacity(65536) })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Everything since the last call, without waiting.
    pub(crate) fn heard(&mut self) -> Result<Vec<Heard>> {
        let mut heard = Vec::new();
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => return Ok(heard),
                    Some(Errno::EINTR) => continue,
                    Some(Errno::ENOBUFS) => {
                        heard.push(Heard::Overrun);
                        continue;
                    }
                    _ => return Err(Error::io("listen to", "nf_tables", &error)),
                },
            }
            let mut rest = self.buffer.as_slice();
            while let Some((news, after)) = message(rest) {
                rest = after;
                if let Some(news) = news
                    && heard.last() != Some(&news)
                {
                    heard.push(news);
                }
            }
        }
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Monitor")
    }
}

/// One message: what it says, and what follows it.
///
/// `struct nlmsghdr`, `struct nfgenmsg`, attributes; attribute 1 is the table's name in every
/// message of `nf_tables` but those of a generation, where attribute 2 is the process.
fn message(bytes: &[u8]) -> Option<(Option<Heard>, &[u8])> {
    const HEADERS: usize = 16 + 4;
    const NAME: u16 = 1;
    const NEWGEN: u8 = 15;
    const PROCESS: u16 = 2;
    // NFT_MSG_NEWSETELEM to NFT_MSG_DELSETELEM: a lease that is renewed is no change of the rules.
    const ELEMENTS: std::ops::RangeInclusive<u8> = 12..=14;
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let body = bytes.get(..length).filter(|_| length >= 16)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    let kind = *body.get(4)?;
    let mut attributes = body.get(HEADERS..).unwrap_or_default();
    let mut attribute = |wanted: u16| {
        loop {
            let size = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
            // NLA_TYPE_MASK
            let tag = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?) & 0x3fff;
            let value = attributes.get(4..size)?;
            attributes = attributes.get(size.next_multiple_of(4)..).unwrap_or_default();
            if tag == wanted {
                return Some(value);
            }
        }
    };
    let news = match kind {
        NEWGEN => attribute(PROCESS)
            .and_then(|value| value.try_into().ok())
            .map(|number| Heard::Generation(u32::from_be_bytes(number))),
        kind if ELEMENTS.contains(&kind) => None,
        _ => attribute(NAME).map(|name| Heard::Table(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())),
    };
    Some((news, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_ours_is_told_from_those_of_others() {
        let table = || Heard::Table("t".to_owned());
        let other = || Heard::Table("u".to_owned());
        for (heard, changed) in [
            (vec![], false),
            (vec![table(), Heard::Generation(7)], false),
            (vec![table(), Heard::Generation(8)], true),
            (vec![other(), Heard::Generation(8), table(), Heard::Generation(7)], false),
            (vec![table(), Heard::Generation(7), table(), Heard::Generation(8)], true),
            (vec![table(), Heard::Generation(7), table()], true),
            (vec![Heard::Overrun], true),
        ] {
            assert_eq!(changed_by_others(&heard, "t", Some(7)), changed, "{heard:?}");
        }
        assert!(changed_by_others(&[table(), Heard::Generation(7)], "t", None));
    }
}
