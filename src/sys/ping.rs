//! Sockets for ICMP echoes: without privilege where the kernel allows it, else raw.

use super::connect::{Via, bind};
use super::{Error, Result};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// A socket that sends echoes by one way, to any address of a family, and hears what comes back of them.
#[derive(Debug)]
pub(crate) struct Pinger {
    socket: Socket,
    /// It sends packets as they are, and hears them with the IPv4 header.
    pub(crate) is_raw: bool,
}

/// What became of a packet instead of an answer.
#[derive(Debug)]
pub(crate) struct Undelivered {
    pub(crate) errno: Errno,
    /// Who said so; none where it was this host's own refusal to send it.
    pub(crate) from: Option<IpAddr>,
    /// The beginning of the packet, from its ICMP header on.
    pub(crate) packet: Vec<u8>,
}

impl Pinger {
    /// Opens it. `filter` is the classic BPF program of a raw socket, which hears everybody's packets.
    ///
    /// # Errors
    /// Neither a ping socket (`net.ipv4.ping_group_range`) nor a raw one may be opened.
    pub(crate) fn open(ipv6: bool, via: &Via, object: &str, filter: &[(u16, u8, u8, u32)]) -> Result<Self> {
        let errno = |error: &std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        let (domain, protocol, any) = if ipv6 {
            (Domain::IPV6, Protocol::ICMPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
        } else {
            (Domain::IPV4, Protocol::ICMPV4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        };
        let (socket, is_raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => match Socket::new(domain, Type::RAW, Some(protocol)) {
                Ok(socket) => (socket, true),
                Err(error) if matches!(errno(&error), Errno::EPERM | Errno::EACCES) => {
                    return Err(Error::Privilege {
                        doing: "ping".to_owned(),
                        object: object.to_owned(),
                        capability: "CAP_NET_RAW, or a group in net.ipv4.ping_group_range",
                    });
                }
                Err(error) => return Err(Error::io("ping", object, &error)),
            },
        };
        let failed = |errno: Errno| match (errno, &via.dev) {
            (Errno::ENODEV, Some(dev)) => Error::no_interface(format!("ping {object} by"), dev),
            _ => Error::call("ping", object, errno),
        };
        let prepare = || -> std::result::Result<(), Errno> {
            if is_raw {
                let filter: Vec<SockFilter> =
                    filter.iter().map(|(code, yes, no, operand)| SockFilter::new(*code, *yes, *no, *operand)).collect();
                socket.attach_filter(&filter).map_err(|error| errno(&error))?;
            }
            socket.set_nonblocking(true).map_err(|error| errno(&error))?;
            // The network's "unreachable" is queued with what it is about and who said it.
            if ipv6 {
                setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            } else {
                setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
            }
            // One that does not stamp does no harm.
            let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
            bind(&socket, any, via)
        };
        prepare().map_err(failed)?;
        Ok(Pinger { socket, is_raw })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends one packet; its refusal may be about an earlier one, which then is queued as undelivered.
    pub(crate) fn send(&self, packet: &[u8], to: SocketAddr) -> std::result::Result<(), Errno> {
        let mut to = to;
        // A raw IPv6 socket takes no other.
        to.set_port(0);
        let to = SockAddr::from(to);
        loop {
            match self.socket.send_to(packet, &to) {
                Ok(_) => return Ok(()),
                Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)) {
                    Errno::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }

    /// Takes one packet that is queued: its length, and the kernel's stamp of when it came, by the wall clock.
    /// `None` where there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Option<(usize, Option<Duration>)> {
        let mut control = nix::cmsg_space!(libc::timespec);
        let mut take = || {
            let mut parts = [IoSliceMut::new(buffer)];
            let fd = self.socket.as_raw_fd();
            let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
            let came = message.cmsgs().ok().and_then(|mut all| {
                all.find_map(|one| if let ControlMessageOwned::ScmTimestampns(at) = one { Some(at) } else { None })
            });
            Ok((message.bytes, came.map(Duration::from)))
        };
        match take() {
            Ok(taken) => Some(taken),
            Err(Errno::EAGAIN) => None,
            // The errno of what is queued as undelivered comes first, once.
            Err(_) => take().ok(),
        }
    }

    /// Takes all that is queued as undelivered.
    pub(crate) fn undelivered(&self) -> Vec<Undelivered> {
        let mut all = Vec::new();
        let mut buffer = [0; 512];
        let mut control = nix::cmsg_space!(libc::timespec, (libc::sock_extended_err, libc::sockaddr_in6));
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        loop {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let taken = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags).map(
                |message| {
                    let said =
                        message.cmsgs().ok().and_then(|mut controls| controls.find_map(|control| said(&control)));
                    (message.bytes, said)
                },
            );
            match taken {
                Ok((length, said)) => {
                    let (errno, from) = said.unwrap_or((Errno::EHOSTUNREACH, None));
                    all.push(Undelivered { errno, from, packet: buffer.get(..length).unwrap_or_default().to_vec() });
                }
                Err(Errno::EINTR) => {}
                Err(_) => return all,
            }
        }
    }
}

/// The error, and who said it, of a message of the error queue (ip(7), `IP_RECVERR`).
fn said(control: &ControlMessageOwned) -> Option<(Errno, Option<IpAddr>)> {
    let (error, from) = match control {
        ControlMessageOwned::Ipv4RecvErr(error, from) => {
            (error, from.map(|from| IpAddr::V4(u32::from_be(from.sin_addr.s_addr).into())))
        }
        ControlMessageOwned::Ipv6RecvErr(error, from) => {
            (error, from.map(|from| IpAddr::V6(from.sin6_addr.s6_addr.into())))
        }
        _ => return None,
    };
    let errno = Errno::from_raw(i32::try_from(error.ee_errno).unwrap_or(libc::EIO));
    Some((errno, from.filter(|_| error.ee_origin != libc::SO_EE_ORIGIN_LOCAL)))
}
