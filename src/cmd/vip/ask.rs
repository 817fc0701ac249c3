//! Asking the wire who has an address: what `who`, `dad` and `add --dad` share.

use crate::cli::{Exit, Failure, Reason};
use crate::decide::vip::Schedule;
use crate::sys::clock;
use crate::sys::event::Sources;
use crate::sys::netlink::Netlink;
use crate::sys::packet::PacketSocket;
use crate::sys::privilege::{self, Capability};
use crate::types::link::Link;
use crate::types::net::Mac;
use crate::types::time::Tick;
use crate::wire::arp::{self, Arp, Claim};
use crate::wire::ethernet::{self, Frame};
use crate::wire::ndp::{self, Ndp};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Who answered for one address.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// Each MAC once, in the order of the answers, and how long after the last question.
    pub(super) holders: Vec<(Mac, Option<Duration>)>,
    /// MACs that are looking for duplicates of it too.
    pub(super) wanting: Vec<Mac>,
}

impl Answer {
    fn add(&mut self, claim: Claim, rtt: Option<Duration>) {
        match claim {
            Claim::Has(mac) if !self.holders.iter().any(|(known, _)| *known == mac) => self.holders.push((mac, rtt)),
            Claim::Wants(mac) if !self.wanting.contains(&mac) => self.wanting.push(mac),
            _ => {}
        }
    }
}

/// Why the wire could not be asked. Never "free" and never "taken".
pub(super) fn cannot_tell(link: &Link, addr: impl std::fmt::Display) -> Option<Failure> {
    let why = if link.mac.is_none() || link.loopback {
        "the link has no MAC addresses to ask"
    } else if !link.up {
        "the link is down"
    } else if !link.carrier {
        "the link has no carrier"
    } else {
        return None;
    };
    let sentence = format!("cannot ask for {addr} on {}: {why} (see: ip link show {})", link.name, link.name);
    Some(Failure::new(Exit::Undecided, Reason::Refused, sentence))
}

/// Asks for each address at the times of the schedule, and collects what is claimed.
///
/// With `first_claim`, ends as soon as each address was claimed by somebody.
///
/// # Errors
/// A question could not be sent: then the answer is unknown.
pub(super) fn ask(
    link: &Link,
    addresses: &[IpAddr],
    schedule: &Schedule,
    first_claim: bool,
    deadline: Tick,
) -> Result<HashMap<IpAddr, Answer>, Failure> {
    let object = link.name.as_str();
    privilege::need(Capability::NetRaw, "ask on", object)?;
    let Some(us) = link.mac else { return Ok(HashMap::new()) };
    let socket = |ethertype: u16, wanted: bool| wanted.then(|| PacketSocket::open(link, ethertype)).transpose();
    let arp_socket = socket(ethernet::ARP, addresses.iter().any(IpAddr::is_ipv4))?;
    let ndp_socket = socket(ethernet::IPV6, addresses.iter().any(IpAddr::is_ipv6))?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for addr in addresses {
        match addr {
            IpAddr::V4(addr) => v4.push(arp::probe(us, *addr)),
            IpAddr::V6(addr) => v6.push(ndp::probe(us, *addr)),
        }
    }
    let mut answers: HashMap<IpAddr, Answer> = addresses.iter().map(|addr| (*addr, Answer::default())).collect();
    let started = clock::boot();
    let end = started.after(schedule.end).min(deadline);
    let mut asks = schedule.asks.iter().map(|offset| started.after(*offset)).peekable();
    let mut asked_at = None;
    let mut buffer = [0; 2048];
    loop {
        let now = clock::boot();
        if asks.next_if(|ask| *ask <= now).is_some() {
            for (socket, frames) in [(&arp_socket, &v4), (&ndp_socket, &v6)] {
                let Some(socket) = socket else { continue };
                let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                if let (_, Some(error)) = socket.send_all(&frames, end) {
                    let failure = Failure::from(error);
                    return Err(Failure { exit: Exit::Undecided, ..failure });
                }
            }
            asked_at = Some(clock::boot());
            continue;
        }
        if now >= end || (first_claim && answers.values().all(|answer| !answer.holders.is_empty())) {
            // A link that died meanwhile carried no answer.
            return match link_now(link)? {
                Some(failure) if answers.values().any(|answer| answer.holders.is_empty()) => Err(failure),
                _ => Ok(answers),
            };
        }
        let mut sources = Sources::default();
        let slots: Vec<_> =
            [&arp_socket, &ndp_socket].into_iter().flatten().map(|socket| sources.readable(socket.as_fd())).collect();
        sources.wait(Some(asks.peek().map_or(end, |ask| (*ask).min(end))))?;
        let ready = slots.into_iter().any(|slot| sources.is_ready(slot));
        if !ready {
            continue;
        }
        for socket in [&arp_socket, &ndp_socket].into_iter().flatten() {
            loop {
                let length = match socket.receive(&mut buffer) {
                    Ok(Some(length)) => length,
                    Ok(None) => break,
                    Err(error) => {
                        let failure = Failure::from(error);
                        return Err(Failure { exit: Exit::Undecided, ..failure });
                    }
                };
                let Some(frame) = buffer.get(..length).and_then(Frame::decode) else { continue };
                let rtt = asked_at.map(|asked: Tick| clock::boot().since(asked));
                take(&frame, us, &mut answers, rtt);
            }
        }
    }
}

/// Why the link cannot have carried the last answers, where that is so.
fn link_now(link: &Link) -> Result<Option<Failure>, Failure> {
    let links = Netlink::open()?.links()?;
    let Some(now) = links.iter().find(|now| now.index == link.index) else {
        let failure = Failure::from(crate::sys::Error::no_interface("ask on", &link.name));
        return Ok(Some(Failure { exit: Exit::Undecided, ..failure }));
    };
    Ok(cannot_tell(now, "the address"))
}

/// Looks whether a frame claims one of the addresses.
fn take(frame: &Frame<'_>, us: Mac, answers: &mut HashMap<IpAddr, Answer>, rtt: Option<Duration>) {
    if let Some(arp) = Arp::decode(frame) {
        for addr in [arp.sender_ip, arp.target_ip] {
            if let Some(answer) = answers.get_mut(&IpAddr::V4(addr))
                && let Some(claim) = arp.claim(frame, us, addr)
            {
                answer.add(claim, rtt);
                return;
            }
        }
    } else if let Some(ndp) = Ndp::decode(frame)
        && let Some(answer) = answers.get_mut(&IpAddr::V6(ndp.target))
        && let Some(claim) = ndp.claim(frame, us, ndp.target)
    {
        answer.add(claim, rtt);
    }
}
