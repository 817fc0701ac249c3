//! nftables: the program `nft`, and the kernel's word that a table changed.

use super::clock::Deadline;
use super::error::Missing;
use super::process::{Begun, Finished, Running};
use super::{Error, Result, process, raw};
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

    /// Begins to list what people read, without what changes by itself: the values of counters.
    pub(crate) fn begin_list(&self, what: &[&str], object: &str) -> Result<Listing> {
        let begun = process::begin(&self.program, &[&["-s", "list"], what].concat(), false, self.deadline)?;
        Ok(Listing { begun, object: object.to_owned() })
    }

    /// Every rule of this host as people read it, without the elements of sets.
    pub(crate) fn rule_set(&self) -> Result<Option<String>> {
        self.print(&["-t", "list", "ruleset"], "this host")
    }

    fn print(&self, arguments: &[&str], object: &str) -> Result<Option<String>> {
        printed(process::run(&self.program, arguments, &[], self.deadline)?, object)
    }
}

/// A list that nft is making while this process does something else.
#[derive(Debug)]
pub(crate) struct Listing {
    begun: Begun,
    object: String,
}

impl Listing {
    /// The list; `None` where what was asked for is not there.
    pub(crate) fn finish(self) -> Result<Option<String>> {
        printed(self.begun.finish(&[])?, &self.object)
    }
}

fn printed(done: Finished, object: &str) -> Result<Option<String>> {
    if done.status.success() {
        let text = String::from_utf8(done.stdout);
        return Ok(Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())));
    }
    match refused(&done.stderr, "list the rules of", object) {
        Error::Call { errno: Errno::ENOENT, .. } => Ok(None),
        error => Err(error),
    }
}

/// The number of this namespace's rule set: each transaction, whoever's and of whatever table, makes it
/// another (`NFT_MSG_GETGEN`). A thousandth of the cost of a listing. And that of the namespace, where the
/// kernel tells one that is never given again: another namespace begins to count anew.
pub(crate) fn generation() -> Result<(u32, Option<u64>)> {
    // NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN; NLM_F_REQUEST; an empty `struct nfgenmsg`.
    const KIND: u16 = 10 << 8 | 16;
    const LENGTH: u32 = 16 + 4;
    let failed = |error: &std::io::Error| Error::io("ask for the generation of", "nf_tables", error);
    let socket = Socket::new(NETLINK_NETFILTER).map_err(|error| failed(&error))?;
    let mut request = Vec::new();
    request.extend(LENGTH.to_ne_bytes());
    request.extend(KIND.to_ne_bytes());
    request.extend(1_u16.to_ne_bytes());
    request.resize(LENGTH as usize, 0);
    socket.send_to(&request, &SocketAddr::new(0, 0), 0).map_err(|error| failed(&error))?;
    let mut answer = Vec::with_capacity(4096);
    socket.recv(&mut answer, 0).map_err(|error| failed(&error))?;
    let generation = generation_in(&answer).ok_or_else(|| {
        Error::call("ask for the generation of", "nf_tables", refusal(&answer).unwrap_or(Errno::EBADMSG))
    })?;
    Ok((generation, raw::namespace_cookie(socket.as_fd())))
}

/// The number in an answer: attribute 1 of `NFT_MSG_NEWGEN`.
fn generation_in(answer: &[u8]) -> Option<u32> {
    const NEWGEN: u16 = 10 << 8 | 15;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let value = attribute(answer.get(HEADERS..)?, 1).filter(|_| kind == NEWGEN)?;
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// The errno in an answer that is a refusal (`struct nlmsgerr`).
fn refusal(answer: &[u8]) -> Option<Errno> {
    const ERROR: u16 = 2;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == ERROR && code < 0).then(|| Errno::from_raw(-code))
}

/// Carries out the documents of a stream, each in force as soon as the kernel has told the monitor so.
///
/// One nft is kept for many of them (`nft -i` takes one a line). An nft for each costs its start, and at its
/// end 10 to 20 ms: closing a socket by which rules were replaced waits for a grace period, and all
/// others who would change rules wait with it, as the applier of the other family does.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    session: Option<Running>,
    n_loaded: u32,
    /// No session is of use here: the kernel knows our processes by other numbers (a PID namespace), or nft
    /// was built without.
    is_unfit: bool,
}

/// A document that is in force.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The process that the kernel names for it, where there is one.
    pub(crate) process: Option<u32>,
    /// What the monitor heard meanwhile, of this document and of others.
    pub(crate) heard: Vec<Heard>,
}

impl Loader {
    /// More than this does not surely fit a pipe that nobody reads yet.
    const LONGEST: usize = 60_000;
    /// It keeps every line it was told, for a person to repeat.
    const MANY: u32 = 64;

    /// Makes an nft ready before there is a document.
    pub(crate) fn prepare(&mut self, nft: &Nft) -> Result<()> {
        if self.session.is_none() && !self.is_unfit {
            self.session = Some(Running::start(&nft.program, &["-i"], nft.deadline)?);
            self.n_loaded = 0;
        }
        Ok(())
    }

    /// Carries out a document that changes the table `name`: all of it or nothing.
    pub(crate) fn load(
        &mut self,
        nft: &Nft,
        document: &str,
        name: &str,
        (doing, object): (&str, &str),
        monitor: &mut Monitor,
    ) -> Result<Loaded> {
        self.prepare(nft)?;
        let line = document.trim_end().replace('\n', "; ") + "\n";
        let Some(session) = self.session.as_mut().filter(|_| line.len() <= Self::LONGEST) else {
            nft.load(document, doing, object)?;
            return Ok(Loaded { process: None, heard: monitor.heard()? });
        };
        let process = session.id();
        session.say(&line, nft.deadline);
        let mut heard = Vec::new();
        while session.wait_beside(monitor.as_fd())? {
            heard.extend(monitor.heard()?);
            if heard.contains(&Heard::Generation(process)) {
                self.n_loaded += 1;
                return Ok(Loaded { process: Some(process), heard });
            }
            // Of a transaction that is still being told nobody knows whose it is.
            let whole = heard.iter().rposition(|news| !matches!(news, Heard::Table(_))).map_or(0, |last| last + 1);
            if changed_by_others(heard.get(..whole).unwrap_or_default(), name, Some(process)) {
                break;
            }
        }
        // It complains, it has ended, it is late; or somebody changed the table, perhaps it was this.
        let done = self.session.take().map(|session| session.finish(&[])).transpose()?;
        heard.extend(monitor.heard()?);
        match done {
            Some(done) if !done.stderr.is_empty() => Err(refused(&done.stderr, doing, object)),
            _ if heard.contains(&Heard::Generation(process)) => Ok(Loaded { process: Some(process), heard }),
            _ => {
                // Twice is once.
                self.is_unfit = true;
                nft.load(document, doing, object)?;
                heard.extend(monitor.heard()?);
                Ok(Loaded { process: None, heard })
            }
        }
    }

    /// Between two documents when nobody waits: takes a fresh nft in place of one that has done many.
    pub(crate) fn rest(&mut self, nft: &Nft) -> Result<()> {
        if self.n_loaded >= Self::MANY
            && let Some(session) = self.session.take()
        {
            session.finish(&[])?;
            self.prepare(nft)?;
        }
        Ok(())
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
            mend: "this kernel lacks a part of nf_tables: nft_hash, nft_fib, nft_ct, nft_numgen, nft_reject".to_owned(),
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

/// `struct nlmsghdr` and `struct nfgenmsg`.
const HEADERS: usize = 16 + 4;

/// The value of the first attribute of a kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
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
}

/// One message: what it says, and what follows it.
///
/// `struct nlmsghdr`, `struct nfgenmsg`, attributes; attribute 1 is the table's name in every
/// message of `nf_tables` but those of a generation, where attribute 2 is the process.
fn message(bytes: &[u8]) -> Option<(Option<Heard>, &[u8])> {
    const NAME: u16 = 1;
    const NEWGEN: u8 = 15;
    const PROCESS: u16 = 2;
    // NFT_MSG_NEWSETELEM to NFT_MSG_DELSETELEM: a lease that is renewed is no change of the rules.
    const ELEMENTS: std::ops::RangeInclusive<u8> = 12..=14;
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let body = bytes.get(..length).filter(|_| length >= 16)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    let kind = *body.get(4)?;
    let attribute = |wanted: u16| attribute(body.get(HEADERS..).unwrap_or_default(), wanted);
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

    /// As Linux 6.18 answers.
    #[test]
    fn the_generation_stands_in_the_answer() {
        let mut answer = vec![0; HEADERS];
        answer[4..6].copy_from_slice(&(10_u16 << 8 | 15).to_ne_bytes());
        for (kind, value) in [(1_u16, [0, 0, 0, 7]), (2, [0, 0, 2, 9])] {
            answer.extend(8_u16.to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
        }
        assert_eq!(generation_in(&answer), Some(7));
        answer[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!((generation_in(&answer), refusal(&answer)), (None, Some(Errno::EPERM)));
        assert_eq!((generation_in(&[]), refusal(&[])), (None, None));
    }

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
