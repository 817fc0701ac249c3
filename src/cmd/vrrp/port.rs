//! An interface as virtual routers use it: what it has, adverts in and out.

use crate::cli::Failure;
use crate::sys;
use crate::sys::netlink::Netlink;
use crate::sys::packet::PacketSocket;
use crate::sys::socket::{Group, RawIp};
use crate::types::link::{Address, AddressFlags, Link};
use crate::types::net::Mac;
use crate::types::time::Tick;
use crate::types::vrrp;
use crate::wire::ethernet::{self, Frame};
use crate::wire::keys::Keys;
use crate::wire::vrrp::{Advert, Heard, PROTOCOL, Sum, decode};
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// One family on one interface.
pub(super) struct Port {
    /// As the user named it.
    pub(super) dev: String,
    pub(super) ipv6: bool,
    pub(super) link: Link,
    pub(super) source: Option<IpAddr>,
    packets: PacketSocket,
    /// Held so that switches which look at memberships let adverts through.
    #[expect(dead_code, reason = "held, not read")]
    group: Group,
    /// To single routers; opened with the source.
    unicast: Option<RawIp>,
    wants_unicast: bool,
    frames: Vec<Vec<u8>>,
}

/// How an advert leaves.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    pub(super) sum: Sum,
    /// From the virtual router's MAC.
    pub(super) vmac: bool,
    /// Empty: to the group.
    pub(super) peers: &'a [IpAddr],
    pub(super) sign: Option<(&'a Keys, u64)>,
}

/// How many adverts are taken at one wake, so that a flood does not keep timers waiting.
const AT_ONCE: usize = 4096;

impl Port {
    /// Opens the interface; `unicast` also for adverts to single routers. `look` comes next.
    pub(super) fn open(dev: &str, ipv6: bool, unicast: bool) -> Result<Self, Failure> {
        let link = find(&mut Netlink::open()?, dev)?;
        // The protocol's number in the IPv4 header, and the next header in the IPv6 one.
        let (ethertype, at) =
            if ipv6 { (ethernet::IPV6, ethernet::HEADER + 6) } else { (ethernet::IPV4, ethernet::HEADER + 9) };
        let packets = PacketSocket::tap_for(&link, ethertype, at, PROTOCOL)?;
        let group = if ipv6 { IpAddr::from(vrrp::GROUP_V6) } else { IpAddr::from(vrrp::GROUP_V4) };
        let group = Group::join(group, &link)?;
        Ok(Port {
            dev: dev.to_owned(),
            ipv6,
            link,
            source: None,
            packets,
            group,
            unicast: None,
            wants_unicast: unicast,
            frames: Vec::new(),
        })
    }

    /// Reads the link and the address that adverts leave from; `not` are the virtual ones, and
    /// `owner` whether one of them may be the host's own.
    pub(super) fn look(&mut self, netlink: &mut Netlink, not: &[IpAddr], owner: bool) -> Result<(), Failure> {
        let Ok(link) = find(netlink, &self.dev) else {
            self.link.up = false;
            self.source = None;
            return Ok(());
        };
        if link.index != self.link.index {
            // It was taken away and made anew: what was bound to the old one hears nothing.
            *self = Port::open(&self.dev, self.ipv6, self.wants_unicast)?;
        }
        let addresses = netlink.addresses(Some(link.index))?;
        self.link = link;
        let source = source(&addresses, self.ipv6, not, owner);
        if source != self.source || self.unicast.is_none() {
            let open = |source| RawIp::open(source, PROTOCOL, &self.link);
            self.unicast = source.filter(|_| self.wants_unicast).map(open).transpose()?;
        }
        self.source = source;
        Ok(())
    }

    /// Whether adverts can leave.
    pub(super) fn is_usable(&self) -> bool {
        self.link.is_usable()
    }

    /// How many octets the MTU lacks for a packet of that length.
    pub(super) fn lacks(&self, length: usize) -> usize {
        self.link.mtu.and_then(|mtu| usize::try_from(mtu).ok()).map_or(0, |mtu| length.saturating_sub(mtu))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }

    /// What was heard from others since the last call; with keys trailers are checked.
    pub(super) fn heard(&mut self, keys: Option<&Keys>) -> Result<Vec<Heard>, Failure> {
        let mut all = Vec::new();
        let mut buffer = [0; 2048];
        for _ in 0..AT_ONCE {
            match self.packets.receive(&mut buffer) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let frame = buffer.get(..length).and_then(Frame::decode);
                    all.extend(frame.and_then(|frame| decode(&frame, keys)));
                }
                // The link's own state is told by netlink.
                Err(sys::Error::Call { errno: Errno::ENETDOWN, .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    /// Whether an advert was for us: to the group, or to our address.
    pub(super) fn is_for_us(&self, heard: &Heard) -> bool {
        heard.dst == vrrp::group(heard.dst) || Some(heard.dst) == self.source
    }

    /// Has an advert wait for `flush`, or sends it to single routers now.
    pub(super) fn send(&mut self, advert: &Advert, how: &How<'_>) -> Result<(), sys::Error> {
        let How { sum, vmac, peers, sign } = *how;
        let Some(source) = self.source else {
            return Err(sys::Error::call("send on", &self.dev, Errno::EADDRNOTAVAIL));
        };
        if peers.is_empty() {
            let own = self.link.mac.unwrap_or(Mac([0; 6]));
            let from = if vmac { vrrp::mac(advert.vrid, self.ipv6) } else { own };
            self.frames.push(advert.frame(from, source, sum, sign));
            return Ok(());
        }
        let Some(socket) = &self.unicast else { return Ok(()) };
        let mut first = Ok(());
        for peer in peers {
            let sent = socket.send(*peer, &advert.message(source, *peer, sum, sign));
            first = first.and(sent.map_err(|errno| sys::Error::call("send to", peer.to_string(), errno)));
        }
        first
    }

    /// Sends what waits, in as few calls as possible.
    pub(super) fn flush(&mut self, deadline: Tick) -> Result<(), sys::Error> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let frames = std::mem::take(&mut self.frames);
        let pieces: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        match self.packets.send_all(&pieces, deadline) {
            (_, None) => Ok(()),
            (_, Some(error)) => Err(error),
        }
    }
}

fn find(netlink: &mut Netlink, dev: &str) -> Result<Link, Failure> {
    let links = netlink.links()?;
    crate::decide::vip::link_called(&links, dev)
        .cloned()
        .ok_or_else(|| sys::Error::no_interface("speak VRRP on", dev).into())
}

/// The address that adverts leave from: one of the host's own over IPv4, the link-local one over IPv6
/// (RFC 9568 §5.1.1.1, §5.1.2.1). The owner of a virtual address has it as its own.
fn source(addresses: &[Address], ipv6: bool, not: &[IpAddr], owner: bool) -> Option<IpAddr> {
    let own = |address: &&Address| {
        let fits = match address.prefix.addr {
            IpAddr::V4(_) => !ipv6,
            IpAddr::V6(addr) => ipv6 && addr.is_unicast_link_local(),
        };
        fits && !address.is_ours() && address.is_usable()
    };
    let is_virtual = |address: &&Address| not.contains(&address.prefix.addr);
    let mut real: Vec<&Address> = addresses.iter().filter(own).filter(|address| !is_virtual(address)).collect();
    // The same bit means temporary in IPv6; a secondary does where the first address is a virtual one.
    real.sort_by_key(|address| address.flags.has(AddressFlags::SECONDARY));
    let found = real.first().copied().or_else(|| addresses.iter().find(|address| owner && own(address)));
    found.map(|address| address.prefix.addr)
}
