//! Sockets for ICMP echoes: without privilege where the kernel allows it, else raw.

use super::connect::{Via, bind};
use super::{Error, Result};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A socket that sends echoes to one address and hears what comes back of them.
#[derive(Debug)]
pub(crate) struct Pinger {
    socket: Socket,
    /// Of IPv4, packets come with their header.
    pub(crate) with_ip: bool,
}

impl Pinger {
    /// Opens it.
    ///
    /// # Errors
    /// Neither a ping socket (`net.ipv4.ping_group_range`) nor a raw one may be opened.
    pub(crate) fn open(to: SocketAddr, via: &Via) -> Result<Self> {
        let object = to.ip().to_string();
        let errno = |error: &std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        let (domain, protocol) =
            if to.is_ipv4() { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
        let (socket, raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => match Socket::new(domain, Type::RAW, Some(protocol)) {
                Ok(socket) => (socket, true),
                Err(error) if matches!(errno(&error), Errno::EPERM | Errno::EACCES) => {
                    return Err(Error::Privilege {
                        doing: "ping".to_owned(),
                        object,
                        capability: "CAP_NET_RAW, or a group in net.ipv4.ping_group_range",
                    });
                }
                Err(error) => return Err(Error::io("ping", object, &error)),
            },
        };
        let failed = |errno: Errno| match (errno, &via.dev) {
            (Errno::ENODEV, Some(dev)) => Error::no_interface(format!("ping {} by", to.ip()), dev),
            _ => Error::call("ping", to.ip().to_string(), errno),
        };
        let prepare = || -> std::result::Result<(), Errno> {
            socket.set_nonblocking(true).map_err(|error| errno(&error))?;
            // The network's "unreachable" comes back as an error of the next call.
            if to.is_ipv4() {
                setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
            } else {
                setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            }
            bind(&socket, to, via)
        };
        prepare().map_err(failed)?;
        Ok(Pinger { socket, with_ip: raw && to.is_ipv4() })
    }

    /// Turns it to the address, so that nothing else is heard.
    ///
    /// # Errors
    /// No route, among others.
    pub(crate) fn aim(&self, to: SocketAddr) -> std::result::Result<(), Errno> {
        let mut to = to;
        to.set_port(0);
        self.socket
            .connect(&SockAddr::from(to))
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn send(&self, packet: &[u8]) -> std::result::Result<(), Errno> {
        loop {
            match nix::sys::socket::send(self.socket.as_raw_fd(), packet, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Takes one packet that is queued, or the error that the network sent back; `None` where there
    /// is neither.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> std::result::Result<Option<usize>, Errno> {
        match nix::sys::socket::recv(self.socket.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EINTR | Errno::EAGAIN) => {
                // An error without its packet: it would wake the loop for ever.
                let queued = self.drain_errors();
                if queued { Err(Errno::EHOSTUNREACH) } else { Ok(None) }
            }
            Err(errno) => {
                self.drain_errors();
                Err(errno)
            }
        }
    }

    fn drain_errors(&self) -> bool {
        let mut any = false;
        let mut buffer = [0; 512];
        while nix::sys::socket::recv(
            self.socket.as_raw_fd(),
            &mut buffer,
            MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT,
        )
        .is_ok()
        {
            any = true;
        }
        any
    }
}
