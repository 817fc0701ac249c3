//! A train of echoes: some to each of several targets, all by one way, and what comes back of them.
//!
//! Whoever has trains waits on their sockets until the first is due, and turns them; many run in one loop.

use crate::decide::tally::Tally;
use crate::sys::connect::Via;
use crate::sys::ping::Pinger;
use crate::sys::{Error, clock, raw};
use crate::types::time::Tick;
use crate::wire::icmp;
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Echoes of one train: their number is the ICMP sequence.
pub(super) const MOST: usize = 1 << 16;
/// So many leave at once; then a moment passes. Before a neighbour has said its MAC the kernel keeps about a
/// hundred packets for it, and a socket has room for some more answers.
const BURST: u32 = 32;
const MOMENT: Duration = Duration::from_millis(1);
/// An answer need not wake a train whose next echo is due so soon: it is taken in then, with the kernel's stamp.
const SOON: Duration = Duration::from_millis(2);

/// When echoes leave, and how long each waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// To each target.
    pub(super) count: u16,
    /// From one to the next to the same target.
    pub(super) interval: Duration,
    /// From one target to the next.
    pub(super) spacing: Duration,
    /// An answer that comes later is none.
    pub(super) patience: Duration,
}

impl Pace {
    /// When echo number `sequence` to the targets, of which there are `n`, is due.
    fn due(self, n: u32, sequence: u32) -> Duration {
        let (round, target) = (sequence / n, sequence % n);
        self.interval.max(self.offset(n)).saturating_mul(round).saturating_add(self.offset(target))
    }

    /// How long after the first target the `target`th has its turn.
    fn offset(self, target: u32) -> Duration {
        self.spacing.saturating_mul(target).max(MOMENT.saturating_mul(target / BURST))
    }

    /// How long a train to `n` targets takes at most.
    pub(super) fn lasts(self, n: usize) -> Duration {
        let n = u32::try_from(n).unwrap_or(u32::MAX).max(1);
        let last = n.saturating_mul(u32::from(self.count)).saturating_sub(1);
        self.due(n, last).saturating_add(self.patience)
    }
}

/// What became of the echoes to one target.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) tally: Tally,
    /// What the network said last instead of an answer, and who said it.
    pub(super) refusal: Option<(Errno, Option<IpAddr>)>,
    /// Why this host did not send one.
    pub(super) unsent: Option<Errno>,
}

/// A train on its way.
#[derive(Debug)]
pub(super) struct Train {
    pinger: Pinger,
    targets: Vec<SocketAddr>,
    asked: Vec<Asked>,
    pace: Pace,
    identifier: u16,
    nonce: icmp::Nonce,
    begun: Tick,
    /// By sequence: when each left, until it is settled.
    waiting: Vec<Option<Tick>>,
    total: usize,
    /// Those that were answered, refused or did not leave.
    settled: usize,
    /// The kernel had no room: when it is tried again.
    again: Option<Tick>,
    /// When it was listened last.
    heard: Tick,
}

impl Train {
    /// Makes one to `targets`, of one family and at least one; the first echo is due at once.
    ///
    /// # Errors
    /// No socket.
    pub(super) fn new(targets: Vec<SocketAddr>, pace: Pace, via: &Via, object: &str) -> Result<Self, Error> {
        let nonce: icmp::Nonce = raw::random()?;
        // Any will do: a reply is known by the nonce.
        let identifier = u16::from_be_bytes([nonce[0], nonce[1]]);
        let ipv6 = targets.first().is_some_and(SocketAddr::is_ipv6);
        let pinger = Pinger::open(ipv6, via, object, &icmp::only_replies(ipv6, identifier))?;
        let total = (targets.len() * usize::from(pace.count)).min(MOST);
        let asked = targets.iter().map(|_| Asked::default()).collect();
        let (waiting, begun) = (Vec::with_capacity(total), clock::boot());
        let (settled, again, heard) = (0, None, begun);
        Ok(Train { pinger, targets, asked, pace, identifier, nonce, begun, waiting, total, settled, again, heard })
    }

    /// What to wait on beside [`Train::due`], if at all.
    pub(super) fn ear(&self) -> Option<BorrowedFd<'_>> {
        let soon = self.waiting.len() < self.total
            && self.waiting.len() > self.settled
            && self.due().is_some_and(|due| due < clock::boot().after(SOON));
        (!soon).then(|| self.pinger.as_fd())
    }

    /// When it must be turned, whatever comes; none once nothing can come of it any more.
    pub(super) fn due(&self) -> Option<Tick> {
        if self.waiting.len() < self.total {
            return Some(self.again.unwrap_or_else(|| self.next_at()));
        }
        if self.settled >= self.total {
            return None;
        }
        // The newest that is still waited for.
        self.waiting.iter().rev().find_map(|left| *left).map(|left| left.after(self.pace.patience))
    }

    pub(super) fn is_over(&self, now: Tick) -> bool {
        self.waiting.len() >= self.total && self.due().is_none_or(|end| end <= now)
    }

    /// What became of the echoes to each target, in order. One that is still waited for has not been lost.
    pub(super) fn end(mut self, now: Tick) -> Vec<Asked> {
        for (sequence, left) in self.waiting.iter().enumerate() {
            let is_open = left.is_some_and(|left| left.after(self.pace.patience) > now);
            let idx = self.target(sequence);
            if let Some(asked) = self.asked.get_mut(idx).filter(|_| is_open) {
                asked.tally.sent = asked.tally.sent.saturating_sub(1);
            }
        }
        self.asked
    }

    fn next_at(&self) -> Tick {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.begun.after(self.pace.due(number(self.targets.len()).max(1), number(self.waiting.len())))
    }

    fn target(&self, sequence: usize) -> usize {
        sequence % self.targets.len().max(1)
    }

    /// Takes in what has come, if something has, and sends what is due.
    pub(super) fn turn(&mut self, is_ready: bool) {
        if is_ready || (self.is_due() && self.settled < self.waiting.len()) {
            self.hear(is_ready);
        }
        while self.is_due() {
            if !self.send() {
                return;
            }
        }
    }

    /// Whether an echo is to leave now.
    fn is_due(&self) -> bool {
        self.waiting.len() < self.total && self.due().is_some_and(|due| due <= clock::boot())
    }

    /// Sends the next; `false` where the kernel has no room for it now.
    fn send(&mut self) -> bool {
        let idx = self.target(self.waiting.len());
        let Some(to) = self.targets.get(idx).copied() else { return false };
        let sequence = u16::try_from(self.waiting.len()).unwrap_or(u16::MAX);
        let packet = icmp::echo(to.ip(), self.identifier, sequence, &self.nonce);
        // A refusal may be about an earlier one that was on its way.
        let mut tries = 3;
        let outcome = loop {
            let now = clock::boot();
            tries -= 1;
            match self.pinger.send(&packet, to) {
                Ok(()) => break Ok(now),
                // Not a loss, and not for long.
                Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::ENOMEM)
                    if now < self.next_at().after(self.pace.interval) =>
                {
                    self.again = Some(now.after(MOMENT));
                    return false;
                }
                Err(errno) => {
                    if tries == 0 || !self.hear_of_undelivered() {
                        break Err(errno);
                    }
                }
            }
        };
        self.again = None;
        self.waiting.push(outcome.ok());
        self.settled += usize::from(outcome.is_err());
        if let Some(asked) = self.asked.get_mut(idx) {
            match outcome {
                Ok(_) => asked.tally.sent += 1,
                Err(errno) => asked.unsent = Some(errno),
            }
        }
        true
    }

    fn hear(&mut self, woken: bool) {
        let mut buffer = [0; 2048];
        let mut any = false;
        let since = std::mem::replace(&mut self.heard, clock::boot());
        while let Some((length, stamp)) = self.pinger.receive(&mut buffer) {
            any = true;
            let packet = buffer.get(..length).unwrap_or_default();
            let ipv6 = self.targets.first().is_some_and(SocketAddr::is_ipv6);
            let Some(sequence) = icmp::reply(packet, ipv6, self.pinger.is_raw && !ipv6, &self.nonce) else { continue };
            // It had not come when it was listened last.
            let now = clock::boot();
            let came = stamp.map_or(now, |stamp| clock::since_stamp(stamp, since, now));
            let took = |left: Tick| came.since(left);
            let rtt = self.waiting.get(usize::from(sequence)).copied().flatten().map(took);
            // A second answer to the same echo is none, and one that comes too late.
            let Some(rtt) = rtt.filter(|rtt| *rtt <= self.pace.patience) else { continue };
            let idx = self.settle(sequence);
            if let Some(asked) = self.asked.get_mut(idx) {
                asked.tally.rtts.push(rtt);
            }
            // Nothing more is on its way: that would be asked of the kernel once for each echo.
            if self.settled >= self.waiting.len() {
                break;
            }
        }
        // It was woken for something.
        if !any && woken {
            self.hear_of_undelivered();
        }
    }

    /// Nothing more is awaited of this echo; gives its target.
    fn settle(&mut self, sequence: u16) -> usize {
        if let Some(slot) = self.waiting.get_mut(usize::from(sequence)) {
            *slot = None;
            self.settled += 1;
        }
        self.target(sequence.into())
    }

    /// Whether something was queued as undelivered.
    fn hear_of_undelivered(&mut self) -> bool {
        let all = self.pinger.undelivered();
        for undelivered in &all {
            let ipv6 = self.targets.first().is_some_and(SocketAddr::is_ipv6);
            // A raw socket hears of others' packets too; a ping socket puts in an identifier of its own.
            let identifier = self.pinger.is_raw.then_some(self.identifier);
            let Some(sequence) = icmp::quoted(&undelivered.packet, ipv6, identifier, &self.nonce) else { continue };
            if self.waiting.get(usize::from(sequence)).copied().flatten().is_none() {
                continue;
            }
            let idx = self.settle(sequence);
            if let Some(asked) = self.asked.get_mut(idx) {
                asked.refusal = Some((undelivered.errno, undelivered.from));
            }
        }
        !all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_asked_in_turn_and_none_before_its_time() {
        let ms = Duration::from_millis;
        let pace = Pace { count: 3, interval: ms(200), spacing: ms(0), patience: ms(1000) };
        let due = |sequence| pace.due(2, sequence);
        assert_eq!([0, 1, 2, 3, 5].map(due), [0, 0, 200, 200, 400].map(ms));
        assert_eq!(pace.lasts(2), ms(1400));
        // A thousand take longer than the interval: the next round begins after the last of them.
        let slow = Pace { spacing: ms(1), ..pace };
        assert_eq!([0, 999, 1000].map(|sequence| slow.due(1000, sequence)), [0, 999, 1000].map(ms));
        assert_eq!(pace.due(1000, 999), ms(31), "no more at once than the kernel keeps");
        assert_eq!(Pace { count: 1, ..pace }.lasts(1), ms(1000));
    }
}
