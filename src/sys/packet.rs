//! Frames on one interface, in and out.

use super::event::Sources;
use super::{Error, Result, raw};
use crate::types::link::Link;
use crate::types::time::Tick;
use nix::errno::Errno;
use socket2::{SockFilter, SockRef};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A packet socket bound to one interface and one `EtherType`.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    dev: String,
}

impl PacketSocket {
    /// Opens it; frames to any group that reach the interface are heard.
    pub(crate) fn open(link: &Link, ethertype: u16) -> Result<Self> {
        let fd = raw::packet_socket(link.index, &link.name, ethertype)?;
        raw::hear_all_groups(fd.as_fd(), link.index).map_err(|errno| Error::call("listen on", &link.name, errno))?;
        // As much as a large batch of announcements takes; the system's limit may cut it.
        let _ = nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::SndBuf, &(4 << 20));
        Ok(PacketSocket { fd, dev: link.name.clone() })
    }

    /// Opens it for what the interface lets in by itself, and for nothing more.
    pub(crate) fn open_as_it_is(link: &Link, ethertype: u16) -> Result<Self> {
        Ok(PacketSocket { fd: raw::packet_socket(link.index, &link.name, ethertype)?, dev: link.name.clone() })
    }

    /// Opens it for frames whose byte at offset `at` is `value`; the kernel drops all others.
    pub(crate) fn open_for(link: &Link, ethertype: u16, at: usize, value: u8) -> Result<Self> {
        Self::filtered(link, ethertype, ethertype, at, value)
    }

    /// The same, and heard before interfaces that stand on this one take frames for themselves.
    ///
    /// A private macvlan takes every frame that comes from its own MAC, which is what another virtual
    /// router's are.
    pub(crate) fn tap_for(link: &Link, ethertype: u16, at: usize, value: u8) -> Result<Self> {
        const EVERYTHING: u16 = 0x0003; // ETH_P_ALL
        let socket = Self::filtered(link, EVERYTHING, ethertype, at, value)?;
        // Before Linux 4.20 a tap hears what we send ourselves, which whoever reads it leaves alone.
        let _ = raw::ignore_outgoing(socket.as_fd());
        Ok(socket)
    }

    fn filtered(link: &Link, bound: u16, ethertype: u16, at: usize, value: u8) -> Result<Self> {
        let fd = raw::packet_socket(link.index, &link.name, bound)?;
        // bpf(4): load the EtherType, compare it, load the byte, compare it; the whole frame or nothing.
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let program = [
            SockFilter::new(0x28, 0, 0, 12),
            SockFilter::new(0x15, 0, 3, u32::from(ethertype)),
            SockFilter::new(0x30, 0, 0, at),
            SockFilter::new(0x15, 0, 1, u32::from(value)),
            SockFilter::new(0x06, 0, 0, 0x4_0000),
            SockFilter::new(0x06, 0, 0, 0),
        ];
        SockRef::from(&fd)
            .attach_filter(&program)
            .map_err(|error| Error::io("filter what comes on", &link.name, &error))?;
        // Room for what comes while we are not scheduled.
        if nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::RcvBufForce, &(1 << 20)).is_err() {
            let _ = nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::RcvBuf, &(1 << 20));
        }
        Ok(PacketSocket { fd, dev: link.name.clone() })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends all frames, waiting while the queue is full, at most until `deadline`.
    ///
    /// Returns how many left, and why the rest did not.
    pub(crate) fn send_all(&self, frames: &[&[u8]], deadline: Tick) -> (usize, Option<Error>) {
        let failed = |errno| Error::call("send on", &self.dev, errno);
        let mut sent = 0;
        loop {
            let (more, why) = raw::send_many(self.as_fd(), &frames[sent..]);
            sent += more;
            match why {
                Some(errno) => return (sent, Some(failed(errno))),
                None if sent == frames.len() => return (sent, None),
                None => {}
            }
            let mut sources = Sources::default();
            sources.writable(self.as_fd());
            match sources.wait(Some(deadline)) {
                Ok(true) => {}
                Ok(false) => return (sent, Some(failed(Errno::ETIMEDOUT))),
                Err(error) => return (sent, Some(error)),
            }
        }
    }

    /// Takes one frame that is queued; `None` where there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8; 2048]) -> Result<Option<usize>> {
        loop {
            match nix::unistd::read(&self.fd, &mut buffer[..]) {
                Ok(length) => return Ok(Some(length)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(Error::call("listen on", &self.dev, errno)),
            }
        }
    }
}
