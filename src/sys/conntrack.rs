//! A socket to the kernel's connection tracking (`NETLINK_NETFILTER`).

use super::{Error, Result};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

/// Carries requests there and answers back.
pub(crate) struct Conntrack {
    socket: Socket,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Conntrack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Conntrack")
    }
}

impl Conntrack {
    pub(crate) fn open() -> Result<Self> {
        let failed = |error: &std::io::Error| Error::io("open", "conntrack", error);
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(|error| failed(&error))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(|error| failed(&error))?;
        // An error echoes its request; with less a batch of them would not fit.
        socket.set_cap_ack(true).map_err(|error| failed(&error))?;
        socket.set_rx_buf_sz(1 << 20).map_err(|error| failed(&error))?;
        Ok(Conntrack { socket, buffer: Vec::with_capacity(65536) })
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<()> {
        self.socket.send(bytes, 0).map(drop).map_err(|error| Error::io("ask", "conntrack", &error))
    }

    /// The next datagram.
    pub(crate) fn receive(&mut self) -> Result<&[u8]> {
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => return Ok(&self.buffer),
                Err(error) if error.raw_os_error() == Some(Errno::EINTR as i32) => {}
                Err(error) => return Err(Error::io("read from", "conntrack", &error)),
            }
        }
    }
}
