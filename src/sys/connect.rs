//! TCP connections and UDP questions by a chosen way, never waited for beyond a deadline.

use super::error::Missing;
use super::event::Sources;
use super::{Error, Result, clock};
use crate::types::net::Endpoint;
use crate::types::target::Target;
use crate::types::time::Tick;
use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// More addresses of one name than this are not tried.
const MOST_ADDRESSES: usize = 16;

/// The way that a probe leaves by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Via {
    pub(crate) source: Option<IpAddr>,
    pub(crate) dev: Option<String>,
    /// The mark that the rules of policy routing are asked with.
    pub(crate) mark: Option<u32>,
}

/// The addresses of a target, with the port that it names or `default_port`.
///
/// # Errors
/// A name that cannot be looked up before `deadline`, or an interface that is not there.
pub(crate) fn resolve(target: &Target, default_port: u16, deadline: Tick) -> Result<Vec<SocketAddr>> {
    match target {
        Target::Address(endpoint) => address(endpoint, default_port).map(|address| vec![address]),
        Target::Name { name, port } => {
            let found = look_up(name, port.unwrap_or(default_port), deadline);
            found.map_err(|why| Error::Missing {
                doing: "look up".to_owned(),
                object: name.clone(),
                what: why,
                mend: "an address needs no look-up".to_owned(),
                reason: Missing::Name,
            })
        }
    }
}

/// Looks a name up in a thread of its own: the resolver has time-outs of its own, longer than ours, and
/// cannot be told to stop. One look-up that hangs is all that this process has: no other begins meanwhile.
fn look_up(name: &str, port: u16, deadline: Tick) -> std::result::Result<Vec<SocketAddr>, String> {
    const STACK: usize = 512 * 1024;
    static BUSY: AtomicBool = AtomicBool::new(false);
    if BUSY.swap(true, Ordering::SeqCst) {
        return Err("an earlier look-up still hangs, the resolver does not answer".to_owned());
    }
    let (sender, result) = sync_channel(1);
    let asked = name.to_owned();
    let job = move || {
        let found = (asked.as_str(), port).to_socket_addrs().map(|found| found.take(MOST_ADDRESSES).collect());
        BUSY.store(false, Ordering::SeqCst);
        // Nobody listens any more where it was given up.
        let _ = sender.send(found.map_err(|error| error.to_string()));
    };
    if let Err(error) = std::thread::Builder::new().stack_size(STACK).spawn(job) {
        BUSY.store(false, Ordering::SeqCst);
        return Err(format!("no thread for it: {error}"));
    }
    let mut addresses: Vec<SocketAddr> = result
        .recv_timeout(deadline.since(clock::boot()))
        .map_err(|_| "the resolver did not answer in the time given".to_owned())??;
    let mut seen = Vec::new();
    addresses.retain(|address| {
        !seen.contains(address) && {
            seen.push(*address);
            true
        }
    });
    if addresses.is_empty() { Err("it has no address".to_owned()) } else { Ok(addresses) }
}

fn address(endpoint: &Endpoint, default_port: u16) -> Result<SocketAddr> {
    let port = endpoint.port.unwrap_or(default_port);
    let scope = match &endpoint.dev {
        Some(dev) => nix::net::if_::if_nametoindex(dev.as_str())
            .map_err(|_| Error::no_interface("probe", endpoint.to_string()))?,
        None => 0,
    };
    Ok(match endpoint.addr {
        IpAddr::V4(addr) => SocketAddr::from((addr, port)),
        IpAddr::V6(addr) => SocketAddrV6::new(addr, port, 0, scope).into(),
    })
}

/// A socket on its way, bound as `via` says. Never blocking.
fn open(to: SocketAddr, kind: Type, protocol: Protocol, via: &Via) -> std::result::Result<Socket, Errno> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let socket = Socket::new(Domain::for_address(to), kind, Some(protocol)).map_err(errno)?;
    socket.set_nonblocking(true).map_err(errno)?;
    bind(&socket, to, via)?;
    Ok(socket)
}

/// Binds a socket to the interface, the mark and the address that it shall leave by.
pub(super) fn bind(socket: &Socket, to: SocketAddr, via: &Via) -> std::result::Result<(), Errno> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    if let Some(dev) = &via.dev {
        socket.bind_device(Some(dev.as_bytes())).map_err(errno)?;
    }
    if let Some(mark) = via.mark {
        socket.set_mark(mark).map_err(errno)?;
    }
    if let Some(source) = via.source {
        if source.is_ipv4() != to.is_ipv4() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        socket.bind(&SockAddr::from(SocketAddr::new(source, 0))).map_err(errno)?;
    }
    Ok(())
}

/// Why each address could not be connected to; `ETIMEDOUT` for one that said nothing.
pub(crate) type Refusals = Vec<(SocketAddr, Errno)>;

/// Begins to connect, and does not wait.
///
/// # Errors
/// There is no way there.
pub(crate) fn begin(to: SocketAddr, via: &Via) -> std::result::Result<Socket, Errno> {
    let socket = open(to, Type::STREAM, Protocol::TCP, via)?;
    match socket.connect(&SockAddr::from(to)).map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
        Ok(()) | Err(Some(Errno::EINPROGRESS)) => Ok(socket),
        Err(errno) => Err(errno.unwrap_or(Errno::EIO)),
    }
}

/// What has become of a connection that was begun: `None` while it is on its way.
pub(crate) fn outcome(socket: &Socket) -> Option<std::result::Result<(), Errno>> {
    match socket.take_error() {
        Ok(Some(error)) | Err(error) => Some(Err(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))),
        Ok(None) => socket.peer_addr().is_ok().then_some(Ok(())),
    }
}

/// Lets the kernel ask three times, a second apart, whether the other side is still there.
///
/// # Errors
/// The system refuses it.
pub(crate) fn keep_alive(socket: &Socket) -> std::result::Result<(), Errno> {
    const EVERY: Duration = Duration::from_secs(1);
    let asks = TcpKeepalive::new().with_time(EVERY).with_interval(EVERY).with_retries(3);
    socket.set_tcp_keepalive(&asks).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Connects to all addresses at once; the first that accepts, the others are dropped.
///
/// The socket stays non-blocking.
pub(crate) fn first(
    addresses: &[SocketAddr],
    via: &Via,
    deadline: Tick,
) -> std::result::Result<(Socket, SocketAddr), Refusals> {
    let mut refusals = Vec::new();
    let mut waiting: Vec<(Socket, SocketAddr)> = Vec::new();
    for &to in addresses {
        let begun = begin(to, via);
        match begun {
            Ok(socket) => waiting.push((socket, to)),
            Err(errno) => refusals.push((to, errno)),
        }
    }
    while !waiting.is_empty() {
        let ready: Vec<bool> = {
            let mut sources = Sources::default();
            let slots: Vec<_> = waiting.iter().map(|(socket, _)| sources.writable(socket.as_fd())).collect();
            if !sources.wait(Some(deadline)).unwrap_or(false) {
                break;
            }
            slots.into_iter().map(|slot| sources.is_ready(slot)).collect()
        };
        let mut rest = Vec::new();
        for ((socket, to), ready) in waiting.into_iter().zip(ready) {
            if !ready {
                rest.push((socket, to));
                continue;
            }
            match socket.take_error() {
                Ok(None) => return Ok((socket, to)),
                Ok(Some(error)) | Err(error) => {
                    refusals.push((to, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))));
                }
            }
        }
        waiting = rest;
    }
    refusals.extend(waiting.into_iter().map(|(_, to)| (to, Errno::ETIMEDOUT)));
    Err(refusals)
}

/// A socket for datagrams to and from one address, from a port of its own: what others send does not come
/// in, and the errors that the network sends back do.
///
/// # Errors
/// There is no way there.
pub(crate) fn datagrams(to: SocketAddr, via: &Via) -> std::result::Result<Socket, Errno> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let socket = open(to, Type::DGRAM, Protocol::UDP, via)?;
    socket.connect(&SockAddr::from(to)).map_err(errno)?;
    Ok(socket)
}

/// Sends one datagram; false where the kernel has no room for it now.
///
/// # Errors
/// What the network said of an earlier one, or why it cannot leave.
pub(crate) fn send(socket: &Socket, bytes: &[u8]) -> std::result::Result<bool, Errno> {
    loop {
        match socket.send(bytes).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))) {
            Ok(_) => return Ok(true),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => return Ok(false),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The length of the datagram that was there to be read, or none.
///
/// # Errors
/// `ECONNREFUSED` where the host says that nobody listens.
pub(crate) fn receive(mut socket: &Socket, buffer: &mut [u8]) -> std::result::Result<Option<usize>, Errno> {
    loop {
        match socket.read(buffer).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))) {
            Ok(length) => return Ok(Some(length)),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Connects to one address.
///
/// # Errors
/// Why it could not be done; `ETIMEDOUT` where it said nothing.
pub(crate) fn one(to: SocketAddr, via: &Via, deadline: Tick) -> std::result::Result<Socket, Errno> {
    first(&[to], via, deadline)
        .map(|(socket, _)| socket)
        .map_err(|refusals| refusals.first().map_or(Errno::EHOSTUNREACH, |(_, errno)| *errno))
}

/// Sends one datagram from a port of its own, and gives what comes back until `is_answer` takes one.
///
/// # Errors
/// `ETIMEDOUT` at the deadline, `ECONNREFUSED` where the host says that nobody listens.
pub(crate) fn ask<T>(
    to: SocketAddr,
    question: &[u8],
    via: &Via,
    deadline: Tick,
    mut is_answer: impl FnMut(&[u8]) -> Option<T>,
) -> std::result::Result<T, Errno> {
    let socket = datagrams(to, via)?;
    socket.send(question).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let mut buffer = vec![0; 65_535];
    loop {
        if let Some(length) = receive(&socket, &mut buffer)? {
            if let Some(answer) = buffer.get(..length).and_then(&mut is_answer) {
                return Ok(answer);
            }
        } else {
            let mut sources = Sources::default();
            sources.readable(socket.as_fd());
            if !sources.wait(Some(deadline)).unwrap_or(false) {
                return Err(Errno::ETIMEDOUT);
            }
        }
    }
}

/// Sends all of `bytes` over a connection and reads until `is_whole` takes what has come.
///
/// # Errors
/// `ETIMEDOUT` at the deadline, `ECONNRESET` where the other side ends it before.
pub(crate) fn converse<T>(
    socket: &Socket,
    mut bytes: &[u8],
    most: usize,
    deadline: Tick,
    mut is_whole: impl FnMut(&[u8]) -> Option<T>,
) -> std::result::Result<T, Errno> {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let (mut stream, mut sources) = (socket, Sources::default());
        let done = if bytes.is_empty() {
            sources.readable(socket.as_fd());
            stream.read(&mut buffer)
        } else {
            sources.writable(socket.as_fd());
            stream.write(bytes)
        };
        match done {
            Ok(taken) if !bytes.is_empty() => bytes = bytes.get(taken..).unwrap_or_default(),
            Ok(0) => return Err(Errno::ECONNRESET),
            Ok(length) => {
                got.extend_from_slice(&buffer[..length]);
                if let Some(whole) = is_whole(&got) {
                    return Ok(whole);
                }
                if got.len() > most {
                    return Err(Errno::EMSGSIZE);
                }
            }
            Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)) {
                Errno::EAGAIN => {
                    if !sources.wait(Some(deadline)).unwrap_or(false) {
                        return Err(Errno::ETIMEDOUT);
                    }
                }
                Errno::EINTR => {}
                errno => return Err(errno),
            },
        }
        if clock::boot() > deadline {
            return Err(Errno::ETIMEDOUT);
        }
    }
}
