//! TCP sockets of this host, seen and ended by `sock_diag(7)`.

use super::{Error, Result};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// Length of `inet_diag_req_v2` behind the netlink header.
const REQUEST_LEN: usize = 56;
/// Where the socket's identity lies in `inet_diag_msg`: ports, addresses, interface, cookie.
const IDENTITY: std::ops::Range<usize> = 4..52;

/// One TCP connection, and what the kernel knows it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    family: u8,
    identity: [u8; 48],
}

/// The TCP connections whose local address is `addr`; not listeners, and not what only waits for
/// its time to end.
pub(crate) fn connections(addr: IpAddr) -> Result<Vec<Connection>> {
    let mut found = Vec::new();
    let families: &[u8] = match addr {
        // An IPv6 socket serves IPv4 clients under mapped addresses.
        IpAddr::V4(_) => &[2, 10],
        IpAddr::V6(_) => &[10],
    };
    for family in families {
        let socket = open()?;
        // Every state but CLOSE (7), TIME_WAIT (6), LISTEN (10).
        let states: u32 = 0xfff & !(1 << 7 | 1 << 6 | 1 << 10);
        send(&socket, SOCK_DIAG_BY_FAMILY, REQUEST | DUMP, *family, states, &[0; 48])?;
        'reading: loop {
            let (bytes, _) = socket.recv_from_full().map_err(|error| Error::io("list", "TCP connections", &error))?;
            let mut rest = bytes.as_slice();
            while let Some((kind, body, tail)) = message(rest) {
                match kind {
                    DONE => break 'reading,
                    ERROR => return Err(refusal(body, "list", "TCP connections".to_owned())),
                    _ => found.extend(connection(body).filter(|connection| connection.local.ip() == addr)),
                }
                rest = tail;
            }
        }
    }
    Ok(found)
}

/// Ends a connection: both ends learn it by a reset.
///
/// # Errors
/// `EOPNOTSUPP` where the kernel was built without it.
pub(crate) fn destroy(connection: &Connection) -> Result<()> {
    let socket = open()?;
    let name = format!("the connection of {}", connection.peer);
    send(&socket, SOCK_DESTROY, REQUEST | ACK, connection.family, 0xfff, &connection.identity)?;
    let (bytes, _) = socket.recv_from_full().map_err(|error| Error::io("end", &name, &error))?;
    match message(&bytes) {
        Some((ERROR, body, _)) if body.first_chunk::<4>() != Some(&[0; 4]) => match refusal(body, "end", name) {
            // It ended by itself.
            Error::Call { errno: Errno::ENOENT, .. } => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

fn open() -> Result<Socket> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(|error| Error::io("open", "sock_diag", &error))?;
    socket.bind(&NetlinkAddress::new(0, 0)).map_err(|error| Error::io("bind", "sock_diag", &error))?;
    Ok(socket)
}

fn send(socket: &Socket, kind: u16, flags: u16, family: u8, states: u32, identity: &[u8; 48]) -> Result<()> {
    const TCP: u8 = 6;
    let mut bytes = Vec::with_capacity(16 + REQUEST_LEN);
    bytes.extend_from_slice(&72u32.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family, TCP, 0, 0]);
    bytes.extend_from_slice(&states.to_ne_bytes());
    bytes.extend_from_slice(identity);
    socket.send(&bytes, 0).map(drop).map_err(|error| Error::io("ask", "sock_diag", &error))
}

/// The first message: its kind, its body, and what follows.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(16..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn refusal(body: &[u8], doing: &str, object: String) -> Error {
    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    Error::call(doing, object, Errno::from_raw(code.saturating_neg()))
}

fn connection(body: &[u8]) -> Option<Connection> {
    let identity: [u8; 48] = body.get(IDENTITY)?.try_into().ok()?;
    let family = *body.first()?;
    let port = |at: usize| Some(u16::from_be_bytes([*identity.get(at)?, *identity.get(at + 1)?]));
    let addr = |at: usize| -> Option<IpAddr> {
        Some(match family {
            2 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(identity.get(at..at + 4)?).ok()?)),
            _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(identity.get(at..at + 16)?).ok()?)).to_canonical(),
        })
    };
    Some(Connection {
        local: SocketAddr::new(addr(4)?, port(0)?),
        peer: SocketAddr::new(addr(20)?, port(2)?),
        family,
        identity,
    })
}
