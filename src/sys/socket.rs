//! UDP sockets bound to an address, a port and an interface; memberships; raw IP to one host.

use super::event::Sources;
use super::{Error, Result, raw};
use crate::types::link::Link;
use crate::types::net::Endpoint;
use crate::types::time::Tick;
use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

/// Room for what comes while a receiver is not scheduled: 100,000 small frames are 4 to 5 ms a MiB.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A socket for datagrams, never blocking.
#[derive(Debug)]
pub(crate) struct Datagram {
    socket: Socket,
    /// Where it sends; none for a receiver.
    to: Option<SocketAddr>,
    name: String,
}

impl Datagram {
    /// Opens a receiver; a multicast address is joined.
    pub(crate) fn receiver(endpoint: &Endpoint, default_port: u16) -> Result<Self> {
        let (socket, address) = open(endpoint, default_port, "listen on")?;
        let name = endpoint.to_string();
        let failed = |error: std::io::Error| Error::io("listen on", &name, &error);
        if endpoint.addr.is_multicast() {
            // Several programs of one host may hear one group.
            socket.set_reuse_address(true).map_err(failed)?;
        }
        socket.bind(&SockAddr::from(address)).map_err(failed)?;
        // The larger size is for root alone; the plain one is cut to the system's limit.
        if nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            socket.set_recv_buffer_size(RECEIVE_BUFFER).map_err(failed)?;
        }
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReceiveTimestampns, &true)
            .map_err(|errno| Error::call("listen on", &name, errno))?;
        let ifindex = index(endpoint, "listen on")?;
        match endpoint.addr {
            IpAddr::V4(group) if group.is_multicast() => {
                let by = ifindex.map_or(
                    socket2::InterfaceIndexOrAddress::Address(std::net::Ipv4Addr::UNSPECIFIED),
                    socket2::InterfaceIndexOrAddress::Index,
                );
                socket.join_multicast_v4_n(&group, &by).map_err(failed)?;
            }
            IpAddr::V6(group) if group.is_multicast() => {
                socket.join_multicast_v6(&group, ifindex.unwrap_or(0)).map_err(failed)?;
            }
            _ => {}
        }
        Ok(Datagram { socket, to: None, name })
    }

    /// Opens a sender.
    pub(crate) fn sender(endpoint: &Endpoint, default_port: u16) -> Result<Self> {
        let (socket, address) = open(endpoint, default_port, "send to")?;
        let name = endpoint.to_string();
        let failed = |error: std::io::Error| Error::io("send to", &name, &error);
        if endpoint.addr.is_multicast() {
            let ifindex = index(endpoint, "send to")?;
            if endpoint.addr.is_ipv4() {
                socket.set_multicast_ttl_v4(1).map_err(failed)?;
                if let Some(ifindex) = ifindex {
                    let request = libc::ip_mreqn {
                        imr_multiaddr: libc::in_addr { s_addr: 0 },
                        imr_address: libc::in_addr { s_addr: 0 },
                        imr_ifindex: i32::try_from(ifindex).unwrap_or(0),
                    };
                    raw::set_multicast_interface(socket.as_fd(), &request)
                        .map_err(|errno| Error::call("send to", &name, errno))?;
                }
            } else if let Some(ifindex) = ifindex {
                socket.set_multicast_if_v6(ifindex).map_err(failed)?;
            }
        }
        Ok(Datagram { socket, to: Some(address), name })
    }

    /// Opens a sender to a group whose datagrams come back to this host and never leave it: TTL 0.
    pub(crate) fn looped(endpoint: &Endpoint, default_port: u16) -> Result<Self> {
        let sender = Self::sender(endpoint, default_port)?;
        let socket = &sender.socket;
        if endpoint.addr.is_ipv4() { socket.set_multicast_ttl_v4(0) } else { socket.set_multicast_hops_v6(0) }
            .map_err(|error| Error::io("send to", &sender.name, &error))?;
        Ok(sender)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The endpoint as the user wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends one datagram.
    ///
    /// An ICMP error that an earlier one caused is reported by the kernel at this one: it is
    /// dropped and the datagram sent again.
    pub(crate) fn send(&self, bytes: &[u8]) -> std::result::Result<(), Errno> {
        let Some(to) = self.to else { return Err(Errno::EDESTADDRREQ) };
        let to = SockAddr::from(to);
        let mut tries = 2;
        loop {
            match self.socket.send_to(bytes, &to) {
                Ok(_) => return Ok(()),
                Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)) {
                    Errno::EINTR => {}
                    Errno::ECONNREFUSED if tries > 0 => tries -= 1,
                    errno => return Err(errno),
                },
            }
        }
    }

    /// The address that it is bound to.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().and_then(|address| address.as_socket())
    }
}

fn index(endpoint: &Endpoint, doing: &'static str) -> Result<Option<u32>> {
    let index = |dev: &String| {
        nix::net::if_::if_nametoindex(dev.as_str()).map_err(|_| Error::no_interface(doing, endpoint.to_string()))
    };
    endpoint.dev.as_ref().map(index).transpose()
}

fn open(endpoint: &Endpoint, default_port: u16, doing: &'static str) -> Result<(Socket, SocketAddr)> {
    let name = endpoint.to_string();
    let failed = |error: std::io::Error| Error::io(doing, &name, &error);
    let port = endpoint.port.unwrap_or(default_port);
    let ifindex = index(endpoint, doing)?;
    let (domain, address) = match endpoint.addr {
        IpAddr::V4(addr) => (Domain::IPV4, SocketAddr::from((addr, port))),
        // Link-local addresses mean something on one interface only.
        IpAddr::V6(addr) => (Domain::IPV6, SocketAddrV6::new(addr, port, 0, ifindex.unwrap_or(0)).into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true).map_err(failed)?;
    }
    if let Some(dev) = &endpoint.dev {
        // Without it a link slips to another interface when its own dies.
        socket.bind_device(Some(dev.as_bytes())).map_err(failed)?;
    }
    Ok((socket, address))
}

/// A multicast group that this host belongs to on one interface, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Group(#[expect(dead_code, reason = "held, not read")] Socket);

impl Group {
    pub(crate) fn join(group: IpAddr, link: &Link) -> Result<Self> {
        let failed = |error: std::io::Error| Error::io(format!("join {group} on"), &link.name, &error);
        let domain = if group.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
        match group {
            IpAddr::V4(group) => {
                socket.join_multicast_v4_n(&group, &socket2::InterfaceIndexOrAddress::Index(link.index))
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, link.index),
        }
        .map_err(failed)?;
        Ok(Group(socket))
    }
}

/// Sends packets of one IP protocol to single hosts, with TTL 255.
#[derive(Debug)]
pub(crate) struct RawIp {
    socket: Socket,
    ifindex: u32,
}

impl RawIp {
    /// Opens it on one interface. What comes is dropped by the kernel; that the socket is there keeps
    /// it from answering "protocol unreachable".
    pub(crate) fn open(source: IpAddr, protocol: u8, link: &Link) -> Result<Self> {
        let failed = |error: std::io::Error| Error::io("open a raw socket on", &link.name, &error);
        let domain = if source.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol)))).map_err(failed)?;
        socket.attach_filter(&[SockFilter::new(0x06, 0, 0, 0)]).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        socket.bind_device(Some(link.name.as_bytes())).map_err(failed)?;
        if source.is_ipv4() { socket.set_ttl_v4(255) } else { socket.set_unicast_hops_v6(255) }.map_err(failed)?;
        socket.bind(&place(source, link.index)).map_err(failed)?;
        Ok(RawIp { socket, ifindex: link.index })
    }

    /// Sends the payload of one packet.
    pub(crate) fn send(&self, to: IpAddr, bytes: &[u8]) -> std::result::Result<(), Errno> {
        loop {
            match self.socket.send_to(bytes, &place(to, self.ifindex)) {
                Ok(_) => return Ok(()),
                Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)) {
                    Errno::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }
}

/// A multicast group as the programs of this host itself reach it: through its own output and input rules.
///
/// With a TTL of 0 a packet is looped back and never leaves (Linux `ip_mc_output`, `ip6_finish_output2`).
#[derive(Debug)]
pub(crate) struct Looped {
    out: RawIp,
    back: Socket,
    group: IpAddr,
}

impl Looped {
    pub(crate) fn open(source: IpAddr, group: IpAddr, protocol: u8, link: &Link) -> Result<Self> {
        let failed = |error: std::io::Error| Error::io("open a raw socket on", &link.name, &error);
        let out = RawIp::open(source, protocol, link)?;
        if group.is_ipv4() { out.socket.set_multicast_ttl_v4(0) } else { out.socket.set_multicast_hops_v6(0) }
            .map_err(failed)?;
        let domain = if group.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        // Not the same: one that is bound to an address hears no group.
        let back = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol)))).map_err(failed)?;
        back.set_nonblocking(true).map_err(failed)?;
        back.bind_device(Some(link.name.as_bytes())).map_err(failed)?;
        match group {
            IpAddr::V4(group) => back.join_multicast_v4_n(&group, &socket2::InterfaceIndexOrAddress::Index(link.index)),
            IpAddr::V6(group) => back.join_multicast_v6(&group, link.index),
        }
        .map_err(failed)?;
        Ok(Looped { out, back, group })
    }

    /// Sends a payload; whether it has come back by `deadline`.
    ///
    /// # Errors
    /// `EPERM`: a rule on its way out dropped it.
    pub(crate) fn comes_back(&self, bytes: &[u8], deadline: Tick) -> Result<bool> {
        let failed = |errno| Error::call("send to", self.group.to_string(), errno);
        self.out.send(self.group, bytes).map_err(failed)?;
        let mut buffer = [0; 2048];
        loop {
            match nix::unistd::read(&self.back, &mut buffer) {
                // Over IPv4 the header comes along.
                Ok(length) if buffer.get(..length).is_some_and(|came| came.ends_with(bytes)) => return Ok(true),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let mut sources = Sources::default();
                    sources.readable(self.back.as_fd());
                    if !sources.wait(Some(deadline))? {
                        return Ok(false);
                    }
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
}

/// An address without port; a link-local one means something on one interface only.
fn place(addr: IpAddr, ifindex: u32) -> SockAddr {
    match addr {
        IpAddr::V4(addr) => SocketAddr::from((addr, 0)).into(),
        IpAddr::V6(addr) => SocketAddrV6::new(addr, 0, 0, ifindex).into(),
    }
}
