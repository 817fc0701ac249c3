//! What deciders know of the life of other nodes, from beats, votes and proofs.

use crate::decide::bucket::plan::{Fencing, Quorum};
use crate::record::bucket::{Rest, Side, Word};
use crate::record::fence::Proven;
use crate::sys::clock;
use crate::types::proof::Proof;
use crate::types::status::Status;
use crate::types::time::{Tick, WallTime};
use std::time::Duration;

/// What proves that a silent node serves no more, as the flag has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ProofBy {
    /// A record of fence
    Required,
    /// Silence for --take-after; needs a lease, or a split serves twice
    None,
}

impl ProofBy {
    pub(super) fn fencing(self) -> Fencing {
        match self {
            ProofBy::Required => Fencing::Required,
            ProofBy::None => Fencing::None,
        }
    }
}

/// When something arrived, and when it must have been said again.
pub(super) fn times(received_ms: Option<f64>, valid_for_ms: Option<f64>, now: Tick) -> (Tick, Option<Tick>) {
    let arrived = received_ms.and_then(Tick::from_ms).map_or(now, |tick| tick.min(now));
    let valid = valid_for_ms.filter(|ms| ms.is_finite() && *ms >= 0.0);
    let valid = valid.map(|ms| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX));
    (arrived, valid.map(|valid| arrived.after(valid)))
}

/// When a node was seen off, as the proof says itself: a record may have waited for days before it is read.
/// What is older than this boot counts as of its beginning.
pub(super) fn seen_off(proven: &Proven, now: Tick) -> Tick {
    let Ok(time) = proven.time.parse::<WallTime>() else { return now };
    let age = clock::wall().unix_us.saturating_sub(time.unix_us);
    Tick(now.0.saturating_sub(Duration::from_micros(u64::try_from(age).unwrap_or(0))))
}

/// What is known of the life of a node, from all that said something about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) status: Option<(Status, Tick)>,
    expires: Option<Tick>,
    voted: Option<(Status, Tick)>,
    vote_expires: Option<Tick>,
    pub(super) heard: bool,
    pub(super) last: Tick,
    /// When this node heard it last.
    up: Option<Tick>,
    pub(super) left: bool,
    pub(super) standby: Option<String>,
    incarnation: Option<u64>,
    proof: Option<Proof>,
}

impl Life {
    pub(super) fn note(&mut self, word: &Word, now: Tick) {
        let (arrived, expires) = times(word.received_ms, word.valid_for_ms, now);
        if let Some(status) = word.status {
            let slot = if word.voted { &mut self.voted } else { &mut self.status };
            match slot {
                Some((old, _)) if *old == status => {}
                _ => *slot = Some((status, arrived)),
            }
            if !word.voted && status == Status::Up {
                self.last = arrived;
                self.up = Some(arrived);
            }
            self.heard |=
                !word.voted && (status == Status::Up || (status == Status::Down && word.incarnation.is_some()));
            *(if word.voted { &mut self.vote_expires } else { &mut self.expires }) = expires;
        }
        // A proof is of one life; what the node listed in an earlier one it lost with it.
        self.incarnation = word.incarnation.or(self.incarnation);
        self.left = word.left.unwrap_or(self.left);
        match &word.standby {
            Some(Rest::Because(reason)) => self.standby = Some(reason.clone()),
            Some(Rest::No) => self.standby = None,
            None => {}
        }
        if let Some(proven) = &word.proof {
            // One that names no life is about the one that is known now.
            let at = seen_off(proven, now).min(arrived);
            self.prove(Proof { incarnation: proven.incarnation.or(self.incarnation), at });
        }
    }

    /// Takes a proof that is kept.
    pub(super) fn prove(&mut self, proof: Proof) {
        self.proof = self.proof.filter(|old| old.at > proof.at).or(Some(proof));
    }

    /// What is to be made of this node's own ears and of the votes.
    ///
    /// A majority's word holds. Where the votes are none, who is heard here lives, and who is not
    /// heard is neither alive nor dead, but for a tie that only its proof can settle.
    pub(super) fn verdict(&self, tied: bool, now: Tick) -> Option<(Status, Tick)> {
        let own = match (self.status, self.expires.filter(|expires| *expires <= now)) {
            (Some(_), Some(expired)) => Some((Status::Unknown, expired)),
            (own, _) => own,
        };
        let voted = match (self.voted, self.vote_expires.filter(|expires| *expires <= now)) {
            (Some(_), Some(expired)) => Some((Status::Unknown, expired)),
            (voted, _) => voted,
        };
        match (voted, own) {
            (Some((Status::Unknown, _)), Some((Status::Up, since))) => Some((Status::Up, since)),
            (Some((Status::Unknown, _)), Some((Status::Down, since))) if tied => Some((Status::Down, since)),
            (Some(voted), _) => Some(voted),
            (None, own) => own,
        }
    }

    pub(super) fn is_off(&self) -> bool {
        self.proof.is_some_and(|proof| proof.holds(self.incarnation, self.up))
    }
}

/// What may be done on this side, by the last word of `quorum` and until when it holds. Where one is
/// `needed` and none was heard, nothing is taken.
pub(super) fn quorum(said: Option<&(Side, Option<Tick>)>, needed: bool, now: Tick) -> Quorum {
    match said {
        None if needed => Quorum::Pending(Vec::new()),
        None => Quorum::NotCounted,
        Some((_, Some(expires))) if *expires <= now => Quorum::Pending(Vec::new()),
        Some((side, _)) if side.quorate => Quorum::Yes,
        Some((side, _)) if side.may_keep => Quorum::Pending(side.waiting_for.clone()),
        Some(_) => Quorum::No,
    }
}
