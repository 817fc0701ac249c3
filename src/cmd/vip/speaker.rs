//! One interface as `apply` speaks and listens on it: announcements, questions, and who else claims.

use super::Present;
use super::arp::{Forms, How, item};
use crate::cli::Failure;
use crate::sys;
use crate::sys::packet::PacketSocket;
use crate::types::link::Link;
use crate::types::net::Mac;
use crate::types::time::Tick;
use crate::wire::arp::{self, Arp, Claim};
use crate::wire::ethernet::{self, Frame};
use crate::wire::ndp::{self, Ndp};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Where a frame of ICMP version 6 without extension headers says which message it is.
const ICMPV6_TYPE: usize = ethernet::HEADER + 40;
const ADVERTISEMENT: u8 = 136;
/// Claims that are looked at in one go.
const AT_ONCE: usize = 256;

pub(super) struct Speaker {
    pub(super) link: Link,
    arp: PacketSocket,
    ndp: PacketSocket,
}

impl Speaker {
    /// Opens it; all ARP and all neighbour advertisements that reach the interface are heard.
    pub(super) fn open(link: &Link) -> Result<Self, sys::Error> {
        Ok(Speaker {
            link: link.clone(),
            arp: PacketSocket::open_as_it_is(link, ethernet::ARP)?,
            ndp: PacketSocket::open_for(link, ethernet::IPV6, ICMPV6_TYPE, ADVERTISEMENT)?,
        })
    }

    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.arp.as_fd(), self.ndp.as_fd()]
    }

    /// Announces an address `rounds` times in one go; the frames that left.
    ///
    /// # Errors
    /// Some did not leave: a dead link, a full queue.
    pub(super) fn announce(
        &self,
        present: &mut Present,
        addr: IpAddr,
        vrid: Option<u8>,
        rounds: usize,
        deadline: Tick,
    ) -> Result<u64, Failure> {
        let how = How { mac: None, vmac: vrid, target: None, form: Forms::Both };
        let item = item(how, present, &self.link, addr)?;
        let one: Vec<&[u8]> = item.frames.iter().map(Vec::as_slice).collect();
        match self.arp.send_all(&one.repeat(rounds), deadline) {
            (sent, None) => Ok(sent as u64),
            (_, Some(error)) => Err(error.into()),
        }
    }

    /// Asks who else has an address; answers come as claims.
    pub(super) fn ask(&self, addr: IpAddr, deadline: Tick) {
        let Some(us) = self.link.mac else { return };
        let frame = match addr {
            IpAddr::V4(addr) => arp::probe(us, addr),
            IpAddr::V6(addr) => ndp::probe(us, addr),
        };
        // A question that did not leave is asked again with the next announcement.
        let _ = self.arp.send_all(&[&frame], deadline);
    }

    /// Who claims one of `wanted`, as far as it is another.
    pub(super) fn claims(&self, wanted: &[IpAddr]) -> Result<Vec<(IpAddr, Mac)>, sys::Error> {
        let us = self.link.mac.unwrap_or(Mac([0; 6]));
        let mut claims = Vec::new();
        let mut buffer = [0; 2048];
        for socket in [&self.arp, &self.ndp] {
            for _ in 0..AT_ONCE {
                let length = match socket.receive(&mut buffer) {
                    Ok(Some(length)) => length,
                    Ok(None) => break,
                    // The state of the link is told by netlink.
                    Err(sys::Error::Call { errno: nix::errno::Errno::ENETDOWN, .. }) => continue,
                    Err(error) => return Err(error),
                };
                let Some(frame) = buffer.get(..length).and_then(Frame::decode) else { continue };
                let claim = if let Some(arp) = Arp::decode(&frame) {
                    let addr = IpAddr::V4(arp.sender_ip);
                    arp.claim(&frame, us, arp.sender_ip).map(|claim| (addr, claim))
                } else {
                    let ndp = Ndp::decode(&frame);
                    ndp.and_then(|ndp| Some((IpAddr::V6(ndp.target), ndp.claim(&frame, us, ndp.target)?)))
                };
                if let Some((addr, Claim::Has(mac))) = claim
                    && mac != us
                    && wanted.contains(&addr)
                {
                    claims.push((addr, mac));
                }
            }
        }
        Ok(claims)
    }
}
