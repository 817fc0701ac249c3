//! rtnetlink: one blocking transport, many requests a send.
//!
//! rtnetlink's own handle needs a runtime and waits for an answer to each request; 10,000
//! addresses in batches with one acknowledgement each take two thirds of its time.

use super::{Error, Result};
use crate::types::link::{Address, AddressFlags, Link, OUR_PROTO, Operstate, Scope};
use crate::types::net::{Mac, Prefix, width};
use crate::types::route::{Hop, Route, RouteKind};
use crate::types::rule::{Marked, Rule, RuleAction};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, Prop,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteProtocol, RouteScope,
    RouteType, RouteVia,
};
use netlink_packet_route::rule::{self, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Requests in one send: the kernel takes a datagram of up to 64 KiB or so at once, and an error
/// for each of them must fit the receive buffer.
const BATCH: usize = 128;
/// Room for errors: each echoes its request's header and says why.
const RECEIVE_BUFFER: usize = 1 << 20;
const MESSAGE_HEADER: usize = 16;
/// The interface's own table, not that of a bridge above it (`linux/neighbour.h`).
const NTF_SELF: u8 = 0x02;
/// As if a packet waited for the answer (`linux/neighbour.h`).
const NTF_USE: u8 = 0x01;

/// A socket to the kernel's routing tables.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Netlink({})", self.socket.as_raw_fd())
    }
}

/// One request of a batch: what to do to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressRequest {
    /// Fails if it is there.
    Add(Address),
    /// Changes lifetimes and flags of one that is there.
    Replace(Address),
    Delete {
        prefix: Prefix,
        ifindex: u32,
    },
}

/// One request of a batch: what to do to a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteRequest {
    /// Fails if one with its destination, table and metric is there, whatever else it says.
    Add(Route),
    Delete(Route),
}

/// One request of a batch: what to do to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleRequest {
    /// Fails if the very same is there.
    Add(Rule),
    /// Of several alike one.
    Delete(Rule),
}

/// A packet whose way is asked for, as far as rules of policy routing may look at it.
///
/// Kernels before 4.18 know neither protocol nor ports in the question, and leave them out of account.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) to: IpAddr,
    pub(crate) mark: u32,
    /// None is one whose source the way decides.
    pub(crate) source: Option<IpAddr>,
    /// As IP has it.
    pub(crate) protocol: Option<u8>,
    pub(crate) source_port: Option<u16>,
    pub(crate) port: Option<u16>,
}

/// Which answer to the question for a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The one hop that it takes now.
    Hop,
    /// The route that was found, with all its hops, and without what routers have told since.
    Route,
}

/// Why the kernel refused one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    /// The kernel's own words (extended ACK).
    pub(crate) said: Option<String>,
}

/// A change that the kernel reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Address {
        address: Address,
        gone: bool,
    },
    Link {
        link: Link,
        gone: bool,
    },
    /// Heard by a monitor with routes alone.
    Route {
        route: Route,
        gone: bool,
    },
    /// Messages were lost: what is known must be read anew.
    Overrun,
}

fn failed(doing: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::io(doing, "netlink", &error)
}

impl Netlink {
    /// Opens a socket for requests.
    pub(crate) fn open() -> Result<Self> {
        Self::open_with(0)
    }

    /// Opens a socket that hears of changes to links and addresses.
    pub(crate) fn monitor() -> Result<Self> {
        Self::listen(0)
    }

    /// The same with changes to routes; a router may have many of them.
    pub(crate) fn monitor_with_routes() -> Result<Self> {
        // RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE
        Self::listen(0x40 | 0x400)
    }

    fn listen(more: u32) -> Result<Self> {
        // RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR
        let netlink = Self::open_with(0x1 | 0x10 | 0x100 | more)?;
        netlink.socket.set_non_blocking(true).map_err(failed("prepare"))?;
        Ok(netlink)
    }

    fn open_with(groups: u32) -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open"))?;
        socket.bind(&SocketAddr::new(0, groups)).map_err(failed("bind"))?;
        socket.set_ext_ack(true).map_err(failed("prepare"))?;
        socket.set_cap_ack(true).map_err(failed("prepare"))?;
        socket.set_rx_buf_sz(i32::try_from(RECEIVE_BUFFER).unwrap_or(i32::MAX)).map_err(failed("prepare"))?;
        // Kernels before 4.20 lack it; they dump more than was asked for, which is filtered here too.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Netlink { socket, sequence: 0, buffer: Vec::with_capacity(65536) })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// All interfaces, in the kernel's order.
    pub(crate) fn links(&mut self) -> Result<Vec<Link>> {
        let mut message = LinkMessage::default();
        // Counters are half of the answer and nobody here reads them.
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut links = Vec::new();
        self.dump(RouteNetlinkMessage::GetLink(message), "list", "interfaces", |message| {
            if let RouteNetlinkMessage::NewLink(message) = message {
                links.push(link(&message));
            }
        })?;
        Ok(links)
    }

    /// All addresses, of one interface where `ifindex` is given, in the kernel's order.
    pub(crate) fn addresses(&mut self, ifindex: Option<u32>) -> Result<Vec<Address>> {
        let mut message = AddressMessage::default();
        message.header.index = ifindex.unwrap_or(0);
        let mut addresses = Vec::new();
        self.dump(RouteNetlinkMessage::GetAddress(message), "list", "addresses", |message| {
            if let RouteNetlinkMessage::NewAddress(message) = message
                && let Some(address) = address(&message)
                && ifindex.is_none_or(|ifindex| ifindex == address.ifindex)
            {
                addresses.push(address);
            }
        })?;
        Ok(addresses)
    }

    /// The MAC of a neighbour, where the kernel has a valid one.
    pub(crate) fn neighbour(&mut self, ifindex: u32, addr: IpAddr) -> Result<Option<Mac>> {
        Ok(self.neighbours(ifindex)?.remove(&addr))
    }

    /// The neighbours on an interface whose MAC the kernel knows.
    pub(crate) fn neighbours(&mut self, ifindex: u32) -> Result<BTreeMap<IpAddr, Mac>> {
        let mut known = BTreeMap::new();
        self.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()), "list", "neighbours", |message| {
            let RouteNetlinkMessage::NewNeighbour(message) = message else { return };
            let addr = message.attributes.iter().find_map(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
                _ => None,
            });
            let mac = message.attributes.iter().find_map(|attribute| match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
                _ => None,
            });
            if let (Some(addr), Some(mac)) = (addr, mac)
                && message.header.ifindex == ifindex
            {
                known.insert(addr, mac);
            }
        })?;
        Ok(known)
    }

    /// Has the kernel ask for the MAC of a neighbour, without waiting for the answer.
    pub(crate) fn solicit(&mut self, ifindex: u32, addr: IpAddr) -> Result<std::result::Result<(), Refusal>> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(addr);
        message.header.ifindex = ifindex;
        message.header.flags = NeighbourFlags::from_bits_retain(NTF_USE);
        message.attributes = vec![NeighbourAttribute::Destination(match addr {
            IpAddr::V4(addr) => NeighbourAddress::Inet(addr),
            IpAddr::V6(addr) => NeighbourAddress::Inet6(addr),
        })];
        self.one(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    /// The routes of one family in one table, those of one protocol where it is given, in the kernel's order.
    pub(crate) fn routes(&mut self, ipv6: bool, table: u32, proto: Option<u8>) -> Result<Vec<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        // The kernel leaves out the others, where it can: a router may have a million.
        message.header.protocol = RouteProtocol::from(proto.unwrap_or(0));
        message.attributes = vec![RouteAttribute::Table(table)];
        let mut routes = Vec::new();
        let listed = self.dump(RouteNetlinkMessage::GetRoute(message), "list", "routes", |message| {
            if let RouteNetlinkMessage::NewRoute(message) = message
                && let Some(route) = route(&message)
                && route.table == table
                && route.dst.addr.is_ipv6() == ipv6
                && proto.is_none_or(|proto| proto == route.proto)
            {
                routes.push(route);
            }
        });
        match listed {
            // A table that never had a route.
            Err(Error::Call { errno: Errno::ENOENT, .. }) => Ok(Vec::new()),
            listed => listed.map(|()| routes),
        }
    }

    /// Where the kernel has learned of one destination by itself what its routes do not say: where a router
    /// redirected it to, or how long a packet may be. `None` where it cannot list that.
    pub(crate) fn learned(&mut self, ipv6: bool) -> Option<Vec<IpAddr>> {
        let mut message = RouteMessage::default();
        message.header.address_family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        message.header.flags = RouteFlags::Cloned;
        let mut learned = Vec::new();
        let listed =
            self.dump(RouteNetlinkMessage::GetRoute(message), "list", "what was learned of routes", |message| {
                if let RouteNetlinkMessage::NewRoute(message) = message
                    && message.header.flags.contains(RouteFlags::Cloned)
                    && let Some(route) = route(&message)
                {
                    learned.push(route.dst.addr);
                }
            });
        listed.ok().map(|()| learned)
    }

    /// The way that the kernel would send a packet with this mark to `to`; the refusal where there is none.
    pub(crate) fn way_to(&mut self, to: IpAddr, mark: u32) -> Result<std::result::Result<Route, Refusal>> {
        let packet = Packet { to, mark, source: None, protocol: None, source_port: None, port: None };
        self.way_of(&packet, Answered::Hop)
    }

    /// The same for a packet of which more is known.
    pub(crate) fn way_of(
        &mut self,
        packet: &Packet,
        answered: Answered,
    ) -> Result<std::result::Result<Route, Refusal>> {
        let &Packet { to, mark, .. } = packet;
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = width(to);
        // Of which table it is; IPv6 always says so, and takes no such flag.
        message.header.flags = if to.is_ipv4() { RouteFlags::LookupTable } else { RouteFlags::empty() };
        if answered == Answered::Route {
            message.header.flags |= RouteFlags::FibMatch;
        }
        message.attributes = vec![RouteAttribute::Destination(to.into()), RouteAttribute::Mark(mark)];
        if let Some(source) = packet.source {
            message.header.source_prefix_length = width(source);
            message.attributes.push(RouteAttribute::Source(source.into()));
        }
        message.attributes.extend(packet.protocol.map(RouteAttribute::IpProto));
        message.attributes.extend(packet.source_port.map(RouteAttribute::Sport));
        message.attributes.extend(packet.port.map(RouteAttribute::Dport));
        let request = self.frame(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST);
        self.send(&request)?;
        loop {
            self.receive()?;
            for frame in Frames(&self.buffer) {
                if let Some(Answer { refusal: Some(refusal), .. }) = Answer::parse(frame) {
                    return Ok(Err(refusal));
                }
                if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(frame)
                    && let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) = message.payload
                    && let Some(route) = route(&message)
                {
                    return Ok(Ok(route));
                }
            }
        }
    }

    /// The rules of one family, in the order in which they are asked.
    pub(crate) fn rules(&mut self, ipv6: bool) -> Result<Vec<Rule>> {
        let mut message = RuleMessage::default();
        message.header.family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let mut rules = Vec::new();
        self.dump(RouteNetlinkMessage::GetRule(message), "list", "rules", |message| {
            if let RouteNetlinkMessage::NewRule(message) = message
                && let Some(rule) = decode_rule(&message)
                && rule.ipv6 == ipv6
            {
                rules.push(rule);
            }
        })?;
        Ok(rules)
    }

    /// Sends all requests in few sends; one outcome each, in order.
    pub(crate) fn change(&mut self, requests: &[AddressRequest]) -> Result<Vec<std::result::Result<(), Refusal>>> {
        self.batches(requests, request)
    }

    /// The same for routes.
    pub(crate) fn change_routes(&mut self, requests: &[RouteRequest]) -> Result<Vec<std::result::Result<(), Refusal>>> {
        self.batches(requests, route_request)
    }

    /// The same for rules.
    pub(crate) fn change_rules(&mut self, requests: &[RuleRequest]) -> Result<Vec<std::result::Result<(), Refusal>>> {
        self.batches(requests, |request| match request {
            RuleRequest::Add(rule) => (RouteNetlinkMessage::NewRule(encode_rule(rule)), NLM_F_CREATE | NLM_F_EXCL),
            RuleRequest::Delete(rule) => (RouteNetlinkMessage::DelRule(encode_rule(rule)), 0),
        })
    }

    fn batches<T>(
        &mut self,
        requests: &[T],
        message: impl Fn(&T) -> (RouteNetlinkMessage, u16),
    ) -> Result<Vec<std::result::Result<(), Refusal>>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            outcomes.extend(self.batch(batch.iter().map(&message).collect())?);
        }
        Ok(outcomes)
    }

    /// Makes a macvlan in private mode on `lower` with a MAC of its own.
    pub(crate) fn add_macvlan(&mut self, name: &str, lower: u32, mac: Mac) -> Result<std::result::Result<(), Refusal>> {
        use netlink_packet_route::link::{InfoData, InfoKind, InfoMacVlan, MacVlanMode};
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Link(lower),
            LinkAttribute::Address(mac.0.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::MacVlan),
                LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Private)])),
            ]),
        ];
        self.one(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Lets frames for the unicast address `mac` in on a link, or no longer: `bridge fdb add MAC dev DEV self`.
    pub(crate) fn set_filter(
        &mut self,
        ifindex: u32,
        mac: Mac,
        open: bool,
    ) -> Result<std::result::Result<(), Refusal>> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = ifindex;
        message.header.state = NeighbourState::Permanent;
        message.header.flags = NeighbourFlags::from_bits_retain(NTF_SELF);
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
        if open {
            self.one(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_EXCL)
        } else {
            self.one(RouteNetlinkMessage::DelNeighbour(message), 0)
        }
    }

    /// The unicast addresses that a link lets in besides its own.
    pub(crate) fn filters(&mut self, ifindex: u32) -> Result<Vec<Mac>> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        let mut macs = Vec::new();
        self.dump(RouteNetlinkMessage::GetNeighbour(message), "list", "the filters of interfaces", |message| {
            if let RouteNetlinkMessage::NewNeighbour(message) = message
                && message.header.ifindex == ifindex
                && message.header.flags.bits() & NTF_SELF != 0
            {
                macs.extend(message.attributes.iter().filter_map(|attribute| match attribute {
                    NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
                    _ => None,
                }));
            }
        })?;
        Ok(macs)
    }

    /// Sets a link up.
    pub(crate) fn set_up(&mut self, ifindex: u32) -> Result<std::result::Result<(), Refusal>> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.one(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Removes a link.
    pub(crate) fn delete_link(&mut self, ifindex: u32) -> Result<std::result::Result<(), Refusal>> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        self.one(RouteNetlinkMessage::DelLink(message), 0)
    }

    fn one(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<std::result::Result<(), Refusal>> {
        Ok(self.batch(vec![(message, flags)])?.pop().unwrap_or(Ok(())))
    }

    /// Everything that changed since the last call, without waiting.
    pub(crate) fn changes(&mut self) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            match self.receive() {
                Ok(()) => {}
                Err(Error::Call { errno: Errno::EAGAIN, .. }) => return Ok(changes),
                Err(Error::Call { errno: Errno::ENOBUFS, .. }) => {
                    changes.push(Change::Overrun);
                    continue;
                }
                Err(error) => return Err(error),
            }
            for frame in Frames(&self.buffer) {
                let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(frame) else { continue };
                let NetlinkPayload::InnerMessage(message) = message.payload else { continue };
                changes.extend(match message {
                    RouteNetlinkMessage::NewLink(message) => Some(Change::Link { link: link(&message), gone: false }),
                    RouteNetlinkMessage::DelLink(message) => Some(Change::Link { link: link(&message), gone: true }),
                    RouteNetlinkMessage::NewAddress(message) => {
                        address(&message).map(|address| Change::Address { address, gone: false })
                    }
                    RouteNetlinkMessage::DelAddress(message) => {
                        address(&message).map(|address| Change::Address { address, gone: true })
                    }
                    RouteNetlinkMessage::NewRoute(message) => {
                        route(&message).map(|route| Change::Route { route, gone: false })
                    }
                    RouteNetlinkMessage::DelRoute(message) => {
                        route(&message).map(|route| Change::Route { route, gone: true })
                    }
                    _ => None,
                });
            }
        }
    }

    fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        doing: &'static str,
        object: &'static str,
        each: impl FnMut(RouteNetlinkMessage),
    ) -> Result<()> {
        // A dump that the kernel could not take in one consistent pass is asked for again.
        const TRIES: usize = 8;
        let request = self.frame(message, NLM_F_REQUEST | NLM_F_DUMP);
        for _ in 0..TRIES {
            self.send(&request)?;
            if let Some(messages) = self.one_pass(doing, object)? {
                messages.into_iter().for_each(each);
                return Ok(());
            }
        }
        Err(Error::call(doing, object, Errno::EAGAIN))
    }

    /// The messages of one dump; `None` where something changed meanwhile.
    fn one_pass(&mut self, doing: &'static str, object: &'static str) -> Result<Option<Vec<RouteNetlinkMessage>>> {
        let mut messages = Vec::new();
        let mut interrupted = false;
        loop {
            self.receive()?;
            for frame in Frames(&self.buffer) {
                let message =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(frame).map_err(|error| Error::Call {
                        doing: doing.to_owned(),
                        object: object.to_owned(),
                        errno: Errno::EBADMSG,
                        said: Some(error.to_string()),
                    })?;
                // NLM_F_DUMP_INTR
                interrupted |= message.header.flags & 0x10 != 0;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok((!interrupted).then_some(messages)),
                    NetlinkPayload::Error(error) => {
                        return Err(Error::call(doing, object, Errno::from_raw(-error.raw_code())));
                    }
                    NetlinkPayload::InnerMessage(message) => messages.push(message),
                    _ => {}
                }
            }
        }
    }

    /// Sends up to `BATCH` requests at once and asks for one acknowledgement, of the last.
    ///
    /// The kernel works through them in order and answers each failure by its sequence number, so
    /// what was not refused by the time of that acknowledgement was done.
    fn batch(&mut self, messages: Vec<(RouteNetlinkMessage, u16)>) -> Result<Vec<std::result::Result<(), Refusal>>> {
        let count = messages.len();
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for (idx, (message, flags)) in messages.into_iter().enumerate() {
            let ack = if idx + 1 == count { NLM_F_ACK } else { 0 };
            bytes.extend(self.frame(message, NLM_F_REQUEST | ack | flags));
        }
        let mut outcomes = vec![Ok(()); count];
        if count == 0 {
            return Ok(outcomes);
        }
        self.send(&bytes)?;
        loop {
            self.receive()?;
            for frame in Frames(&self.buffer) {
                let Some(answer) = Answer::parse(frame) else { continue };
                let idx = answer.sequence.wrapping_sub(first) as usize;
                if let (Some(slot), Some(refusal)) = (outcomes.get_mut(idx), answer.refusal) {
                    *slot = Err(refusal);
                }
                if idx + 1 == count {
                    return Ok(outcomes);
                }
            }
        }
    }

    fn frame(&mut self, message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.socket.send(bytes, 0).map(drop).map_err(failed("ask"))
    }

    /// Reads one datagram into the buffer.
    fn receive(&mut self) -> Result<()> {
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read from", "netlink", &error)),
            }
        }
    }
}

/// The messages of one datagram.
struct Frames<'a>(&'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(u32::from_ne_bytes(self.0.get(..4)?.try_into().ok()?)).ok()?;
        if length < MESSAGE_HEADER {
            return None;
        }
        let frame = self.0.get(..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(frame)
    }
}

/// An acknowledgement or an error (`struct nlmsgerr`, with capped echo and extended ACK).
struct Answer {
    sequence: u32,
    refusal: Option<Refusal>,
}

impl Answer {
    fn parse(frame: &[u8]) -> Option<Answer> {
        const ERROR: u16 = 2;
        const EXTENDED: u16 = 0x200;
        const WORDS: u16 = 1; // NLMSGERR_ATTR_MSG
        let kind = u16::from_ne_bytes(frame.get(4..6)?.try_into().ok()?);
        let flags = u16::from_ne_bytes(frame.get(6..8)?.try_into().ok()?);
        let sequence = u32::from_ne_bytes(frame.get(8..12)?.try_into().ok()?);
        if kind != ERROR {
            return None;
        }
        let code = i32::from_ne_bytes(frame.get(16..20)?.try_into().ok()?);
        if code == 0 {
            return Some(Answer { sequence, refusal: None });
        }
        let words = frame.get(MESSAGE_HEADER + 4 + MESSAGE_HEADER..).filter(|_| flags & EXTENDED != 0);
        let said = words.and_then(|attributes| {
            NlasIterator::new(attributes)
                .flatten()
                .find(|attribute| attribute.kind() == WORDS)
                .map(|attribute| String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned())
        });
        Some(Answer { sequence, refusal: Some(Refusal { errno: Errno::from_raw(code.saturating_neg()), said }) })
    }
}

fn family(addr: IpAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn request(request: &AddressRequest) -> (RouteNetlinkMessage, u16) {
    match request {
        AddressRequest::Add(address) => (RouteNetlinkMessage::NewAddress(encode(address)), NLM_F_CREATE | NLM_F_EXCL),
        AddressRequest::Replace(address) => {
            (RouteNetlinkMessage::NewAddress(encode(address)), NLM_F_CREATE | NLM_F_REPLACE)
        }
        AddressRequest::Delete { prefix, ifindex } => {
            let mut message = AddressMessage::default();
            message.header.family = family(prefix.addr);
            message.header.prefix_len = prefix.len;
            message.header.index = *ifindex;
            message.attributes = vec![AddressAttribute::Local(prefix.addr), AddressAttribute::Address(prefix.addr)];
            (RouteNetlinkMessage::DelAddress(message), 0)
        }
    }
}

fn encode(address: &Address) -> AddressMessage {
    let Prefix { addr, len } = address.prefix;
    let mut message = AddressMessage::default();
    message.header.family = family(addr);
    message.header.prefix_len = len;
    message.header.scope = AddressScope::from(address.scope.0);
    message.header.index = address.ifindex;
    // Bits above the header's eight travel in the attribute alone.
    message.header.flags = AddressHeaderFlags::from_bits_retain(address.flags.0.to_le_bytes()[0]);
    message.attributes = vec![
        AddressAttribute::Local(addr),
        AddressAttribute::Address(address.peer.unwrap_or(addr)),
        AddressAttribute::Flags(netlink_packet_route::address::AddressFlags::from_bits_retain(address.flags.0)),
        AddressAttribute::Protocol(AddressProtocol::from(address.proto)),
    ];
    if let IpAddr::V4(addr) = addr
        && len < 31
    {
        let broadcast = addr.to_bits() | u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        message.attributes.push(AddressAttribute::Broadcast(broadcast.into()));
    }
    if let Some(label) = &address.label {
        message.attributes.push(AddressAttribute::Label(label.clone()));
    }
    if address.valid_s.is_some() || address.preferred_s.is_some() {
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_valid = address.valid_s.unwrap_or(u32::MAX);
        lifetimes.ifa_preferred = address.preferred_s.unwrap_or(u32::MAX);
        message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
    }
    message
}

/// Reads an address out of a message; `None` for what is neither IPv4 nor IPv6.
fn address(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut other, mut label, mut cache, mut proto) = (None, None, None, None, 0);
    let mut flags = u32::from(message.header.flags.bits());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(addr) => local = Some(*addr),
            AddressAttribute::Address(addr) => other = Some(*addr),
            AddressAttribute::Label(text) => label = Some(text.clone()),
            AddressAttribute::Flags(bits) => flags = bits.bits(),
            AddressAttribute::CacheInfo(info) => cache = Some(*info),
            AddressAttribute::Protocol(number) => proto = u8::from(*number),
            _ => {}
        }
    }
    let addr = local.or(other)?;
    let finite = |seconds: u32| (seconds != u32::MAX).then_some(seconds);
    Some(Address {
        prefix: Prefix { addr, len: message.header.prefix_len },
        peer: other.filter(|other| *other != addr),
        ifindex: message.header.index,
        label,
        scope: Scope(u8::from(message.header.scope)),
        flags: AddressFlags(flags),
        valid_s: cache.and_then(|cache| finite(cache.ifa_valid)),
        preferred_s: cache.and_then(|cache| finite(cache.ifa_preferred)),
        proto,
    })
}

fn route_request(request: &RouteRequest) -> (RouteNetlinkMessage, u16) {
    match request {
        RouteRequest::Add(route) => (RouteNetlinkMessage::NewRoute(encode_route(route)), NLM_F_CREATE | NLM_F_EXCL),
        RouteRequest::Delete(route) => (RouteNetlinkMessage::DelRoute(encode_route(route)), 0),
    }
}

fn encode_route(route: &Route) -> RouteMessage {
    let gateway = |hop: &Hop| {
        hop.via.map(|via| match via {
            IpAddr::V6(via) if route.dst.addr.is_ipv4() => RouteAttribute::Via(RouteVia::Inet6(via)),
            via => RouteAttribute::Gateway(via.into()),
        })
    };
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(route.dst.addr);
    header.destination_prefix_length = route.dst.len;
    header.table = u8::try_from(route.table).unwrap_or_default();
    header.protocol = RouteProtocol::from(route.proto);
    header.kind = RouteType::from(route.kind.0);
    if route.dst.addr.is_ipv4() && route.hops.iter().any(|hop| hop.via.is_none()) {
        header.scope = RouteScope::Link;
    }
    message.attributes.push(RouteAttribute::Table(route.table));
    if route.dst.len > 0 {
        message.attributes.push(RouteAttribute::Destination(route.dst.addr.into()));
    }
    if route.metric > 0 {
        message.attributes.push(RouteAttribute::Priority(route.metric));
    }
    message.attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    if let [hop] = route.hops.as_slice() {
        if hop.onlink {
            message.header.flags = RouteFlags::Onlink;
        }
        message.attributes.extend(gateway(hop));
        message.attributes.push(RouteAttribute::Oif(hop.ifindex));
    } else if !route.hops.is_empty() {
        let hops = route.hops.iter().map(|hop| {
            let mut next = RouteNextHop::default();
            next.flags = if hop.onlink { RouteNextHopFlags::Onlink } else { RouteNextHopFlags::empty() };
            next.hops = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
            next.interface_index = hop.ifindex;
            next.attributes = gateway(hop).into_iter().collect();
            next
        });
        message.attributes.push(RouteAttribute::MultiPath(hops.collect()));
    }
    message
}

/// Reads a route out of a message; `None` for what is neither IPv4 nor IPv6.
fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        dst: Prefix { addr: any, len: header.destination_prefix_length },
        table: u32::from(header.table),
        metric: 0,
        kind: RouteKind(u8::from(header.kind)),
        hops: Vec::new(),
        source: None,
        proto: u8::from(header.protocol),
    };
    let (mut via, mut ifindex) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => route.dst.addr = ip(addr).unwrap_or(any),
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(addr) => route.source = ip(addr),
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::MultiPath(hops) => {
                route.hops = hops
                    .iter()
                    .map(|hop| Hop {
                        via: hop.attributes.iter().find_map(router),
                        ifindex: hop.interface_index,
                        weight: u16::from(hop.hops) + 1,
                        onlink: hop.flags.contains(RouteNextHopFlags::Onlink),
                    })
                    .collect();
            }
            other => via = router(other).or(via),
        }
    }
    if let (Some(ifindex), true) = (ifindex, route.hops.is_empty()) {
        let onlink = header.flags.contains(RouteFlags::Onlink);
        route.hops.push(Hop { via, ifindex, weight: 1, onlink });
    }
    Some(route)
}

fn encode_rule(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.attributes =
        vec![RuleAttribute::Priority(rule.priority), RuleAttribute::Protocol(RouteProtocol::from(rule.proto))];
    if let Some(Marked { mark, mask, not }) = rule.mark {
        message.attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
        if not {
            message.header.flags = RuleFlags::Invert;
        }
    }
    message.header.action = match rule.action {
        RuleAction::Look { table, suppress } => {
            message.header.table = u8::try_from(table).unwrap_or_default();
            message.attributes.push(RuleAttribute::Table(table));
            message.attributes.extend(suppress.map(|length| RuleAttribute::SuppressPrefixLen(length.into())));
            rule::RuleAction::ToTable
        }
        RuleAction::Unreachable => rule::RuleAction::Unreachable,
        RuleAction::Other(action) => rule::RuleAction::from(action),
    };
    message
}

/// Reads a rule out of a message; `None` for what is neither IPv4 nor IPv6.
fn decode_rule(message: &RuleMessage) -> Option<Rule> {
    // What the kernel says of a rule that suppresses nothing.
    const NOTHING: u32 = u32::MAX;
    let header = &message.header;
    let ipv6 = match header.family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return None,
    };
    let (mut table, mut suppress, mut mark, mut mask) = (u32::from(header.table), None, None, None);
    let mut rule = Rule {
        ipv6,
        // One of priority 0 does not say so.
        priority: 0,
        mark: None,
        action: RuleAction::Unreachable,
        proto: 0,
        asks_more: header.src_len > 0 || header.dst_len > 0 || header.tos > 0,
        more: None,
        source_ports: None,
    };
    // In ip's words; what is not among them cannot be told, nor a name that is more than a word.
    let is_plain = |dev: &str| dev.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@:".contains(&byte));
    let (mut more, mut is_told) = (Vec::new(), header.tos == 0);
    let (mut from, mut to) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Protocol(proto) => rule.proto = u8::from(*proto),
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = Some(*value),
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::SuppressPrefixLen(length) => {
                suppress = (*length != NOTHING).then(|| u8::try_from(*length).unwrap_or(u8::MAX));
            }
            RuleAttribute::Source(addr) => from = Some(*addr),
            RuleAttribute::Destination(addr) => to = Some(*addr),
            RuleAttribute::Iifname(dev) if is_plain(dev) => more.push(format!("iif {dev}")),
            RuleAttribute::Oifname(dev) if is_plain(dev) => more.push(format!("oif {dev}")),
            RuleAttribute::UidRange(range) => more.push(format!("uidrange {}-{}", range.start, range.end)),
            RuleAttribute::IpProtocol(protocol) => more.push(format!("ipproto {}", i32::from(*protocol))),
            RuleAttribute::SourcePortRange(range) => {
                more.push(format!("sport {}-{}", range.start, range.end));
                rule.source_ports = Some((range.start, range.end));
            }
            RuleAttribute::DestinationPortRange(range) => more.push(format!("dport {}-{}", range.start, range.end)),
            RuleAttribute::SuppressIfGroup(group) if *group != NOTHING => (rule.asks_more, is_told) = (true, false),
            RuleAttribute::Iifname(_)
            | RuleAttribute::Oifname(_)
            | RuleAttribute::L3MDev(true)
            | RuleAttribute::Goto(_)
            | RuleAttribute::TunId(_) => (rule.asks_more, is_told) = (true, false),
            _ => {}
        }
    }
    for (word, addr, len) in [("from", from, header.src_len), ("to", to, header.dst_len)] {
        match addr {
            Some(addr) if len > 0 => more.push(format!("{word} {}", Prefix { addr, len })),
            _ => is_told &= len == 0,
        }
    }
    rule.asks_more |= !more.is_empty();
    let not = header.flags.contains(RuleFlags::Invert);
    // One for the mark 0 says its mask alone; without a mask all bits count.
    if mark.is_some() || mask.is_some() {
        rule.mark = Some(Marked { mark: mark.unwrap_or(0), mask: mask.unwrap_or(u32::MAX), not });
    } else if not {
        rule.asks_more = true;
        more.push("not".to_owned());
    }
    rule.more = (rule.asks_more && is_told).then(|| more.iter().map(|words| format!(" {words}")).collect());
    rule.action = match header.action {
        rule::RuleAction::ToTable => RuleAction::Look { table, suppress },
        rule::RuleAction::Unreachable => RuleAction::Unreachable,
        other => RuleAction::Other(u8::from(other)),
    };
    Some(rule)
}

fn router(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(addr) => ip(addr),
        RouteAttribute::Via(RouteVia::Inet(addr)) => Some(IpAddr::V4(*addr)),
        RouteAttribute::Via(RouteVia::Inet6(addr)) => Some(IpAddr::V6(*addr)),
        _ => None,
    }
}

fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(addr) => Some(IpAddr::V4(*addr)),
        RouteAddress::Inet6(addr) => Some(IpAddr::V6(*addr)),
        _ => None,
    }
}

fn link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback) || message.header.link_layer_type == LinkLayerType::Loopback,
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            // The loopback's address is all zeroes: it has none.
            LinkAttribute::Address(bytes) => {
                link.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac).filter(|mac| *mac != Mac([0; 6]));
            }
            LinkAttribute::Link(index) => link.lower = Some(*index),
            LinkAttribute::Mtu(mtu) => link.mtu = Some(*mtu),
            LinkAttribute::OperState(state) => link.operstate = Operstate(u8::from(*state)),
            LinkAttribute::PropList(properties) => {
                link.altnames.extend(properties.iter().filter_map(|property| match property {
                    Prop::AltIfName(name) => Some(name.clone()),
                    _ => None,
                }));
            }
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link
}

/// An address of ours to be added to `ifindex`, plain and for ever.
pub(crate) fn plain(prefix: Prefix, ifindex: u32) -> Address {
    Address {
        prefix,
        peer: None,
        ifindex,
        label: None,
        scope: Scope::GLOBAL,
        flags: AddressFlags(0),
        valid_s: None,
        preferred_s: None,
        proto: OUR_PROTO,
    }
}
