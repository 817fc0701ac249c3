//! From what became of probes to what that says of a gateway.

use super::monitor::Fault;
use super::tally::Tally;
use crate::types::status::Status;
use std::net::IpAddr;

/// What one target of a gateway has shown so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) tally: Tally,
    /// Answers that were not what was asked for.
    pub(crate) bad: u32,
    /// The last that went wrong, where that was told.
    pub(crate) fault: Option<Fault>,
}

impl Shown {
    /// The status, with `planned` probes in all of which at most `max_loss_pct` may fail, and why it is not up.
    ///
    /// What did not leave could have gone either way: only where that changes nothing there is a verdict.
    pub(crate) fn judge(&self, planned: u32, max_loss_pct: u8) -> (Status, Option<Fault>) {
        if let Some(fault) = self.fault.filter(|fault| fault.is_certain()) {
            return (Status::Down, Some(fault));
        }
        let failed = self.tally.lost() + self.bad;
        let unsent = planned.saturating_sub(self.tally.sent);
        let is_borne = |failed: u32| u64::from(failed) * 100 <= u64::from(max_loss_pct) * u64::from(planned);
        if is_borne(failed + unsent) {
            (Status::Up, None)
        } else if is_borne(failed) {
            (Status::Unknown, Some(Fault::Local))
        } else {
            // What it was when some answered and others did not is silence.
            let fault = self.fault.filter(|_| self.tally.lost() == 0 || self.tally.rtts.is_empty());
            (Status::Down, Some(fault.unwrap_or(Fault::Timeout)))
        }
    }
}

/// The verdict on a gateway of whose targets `need` must be up.
pub(crate) fn verdict(targets: impl IntoIterator<Item = Status>, need: usize) -> Status {
    let (mut up, mut unknown) = (0, 0);
    for status in targets {
        up += usize::from(status == Status::Up);
        unknown += usize::from(status == Status::Unknown);
    }
    if up >= need {
        Status::Up
    } else if up + unknown < need {
        Status::Down
    } else {
        Status::Unknown
    }
}

/// What a target has shown that told its address to others at the same time, where it told none here: the site is
/// well, so what came instead is of the gateway, or of what is behind it.
pub(crate) fn beside_others(own: (Status, Option<Fault>), tells_others: bool) -> (Status, Option<Fault>) {
    match own {
        (Status::Unknown, Some(Fault::BadAnswer)) if tells_others => (Status::Down, Some(Fault::BadAnswer)),
        own => own,
    }
}

/// The address that most have said; of two the one that was said first.
pub(crate) fn most_said(said: &[IpAddr]) -> Option<IpAddr> {
    let count = |addr: &IpAddr| said.iter().filter(|other| *other == addr).count();
    // The last of equals is taken.
    said.iter().rev().copied().max_by_key(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn shown(sent: u32, received: usize, bad: u32, fault: Option<Fault>) -> Shown {
        Shown { tally: Tally { sent, rtts: vec![Duration::from_millis(1); received] }, bad, fault }
    }

    #[test]
    fn a_target_is_up_with_no_more_than_the_loss_that_is_borne() {
        let up = (Status::Up, None);
        let down = |fault| (Status::Down, Some(fault));
        let unknown = (Status::Unknown, Some(Fault::Local));
        for (shown, planned, max_loss, wanted) in [
            (shown(3, 3, 0, None), 3, 0, up),
            (shown(20, 12, 0, None), 20, 40, up),
            (shown(20, 12, 0, None), 20, 39, down(Fault::Timeout)),
            (shown(3, 0, 0, None), 3, 50, down(Fault::Timeout)),
            (shown(3, 0, 0, Some(Fault::Unreachable)), 3, 50, down(Fault::Unreachable)),
            (shown(3, 1, 0, Some(Fault::Unreachable)), 3, 50, down(Fault::Timeout)),
            // One refusal settles it.
            (shown(1, 0, 0, Some(Fault::Refused)), 3, 99, down(Fault::Refused)),
            // An answer is no loss, and may be bad.
            (shown(2, 2, 2, Some(Fault::BadAnswer)), 3, 50, down(Fault::BadAnswer)),
            // It could not be asked.
            (shown(0, 0, 0, None), 3, 99, unknown),
            (shown(1, 1, 0, None), 3, 50, unknown),
            (shown(1, 0, 0, None), 3, 50, unknown),
            (shown(2, 2, 0, None), 3, 50, up),
            (shown(2, 0, 0, None), 3, 50, down(Fault::Timeout)),
        ] {
            assert_eq!(shown.judge(planned, max_loss), wanted, "{shown:?} of {planned}");
        }
    }

    #[test]
    fn unknown_targets_leave_it_open_only_where_they_count() {
        use Status::{Down, Unknown, Up};
        for (targets, need, wanted) in [
            (&[Up][..], 1, Up),
            (&[Down, Up, Unknown], 1, Up),
            (&[Down, Unknown, Down], 1, Unknown),
            (&[Down, Down, Down], 1, Down),
            (&[Up, Unknown, Down], 2, Unknown),
            (&[Up, Down, Down], 2, Down),
            (&[Unknown], 1, Unknown),
            (&[], 1, Down),
            (&[], 0, Up),
        ] {
            assert_eq!(verdict(targets.iter().copied(), need), wanted, "{targets:?} {need}");
        }
    }

    #[test]
    fn what_a_site_tells_others_speaks_against_the_gateway() {
        let (page, silence) = ((Status::Unknown, Some(Fault::BadAnswer)), (Status::Down, Some(Fault::Timeout)));
        assert_eq!(beside_others(page, true), (Status::Down, Some(Fault::BadAnswer)));
        assert_eq!(beside_others(page, false), page, "the site may be what is wrong");
        for own in [silence, (Status::Up, None), (Status::Unknown, Some(Fault::Local))] {
            assert_eq!(beside_others(own, true), own);
        }
    }

    #[test]
    fn the_majority_names_the_address() {
        let addr = |last: u8| IpAddr::from([192, 0, 2, last]);
        assert_eq!(most_said(&[addr(1), addr(2), addr(2)]), Some(addr(2)));
        assert_eq!(most_said(&[addr(1), addr(2)]), Some(addr(1)));
        assert_eq!(most_said(&[]), None);
    }

    fn status() -> impl Strategy<Value = Status> {
        prop_oneof![Just(Status::Up), Just(Status::Down), Just(Status::Unknown)]
    }

    proptest! {
        /// Whatever becomes of those that did not leave, a verdict stands.
        #[test]
        fn what_is_not_known_cannot_overturn_a_verdict(planned in 1u32..30, sent in 0u32..30, answered in 0u32..30, later in 0u32..30, max_loss in 0u8..100) {
            let sent = sent.min(planned);
            let answered = answered.min(sent);
            let early = shown(sent, answered as usize, 0, None).judge(planned, max_loss).0;
            let later = later.min(planned - sent);
            let end = shown(planned, (answered + later) as usize, 0, None).judge(planned, max_loss).0;
            prop_assert_ne!(end, Status::Unknown);
            prop_assert!(early == Status::Unknown || early == end);
            prop_assert!(sent < planned || early == end);
        }

        #[test]
        fn one_more_good_answer_makes_nothing_worse(sent in 1u32..30, answered in 0u32..30, max_loss in 0u8..100) {
            let answered = answered.min(sent - 1) as usize;
            let judge = |answered| shown(sent, answered, 0, None).judge(sent, max_loss).0;
            prop_assert!(judge(answered) != Status::Up || judge(answered + 1) == Status::Up);
            prop_assert_eq!(judge(0), Status::Down);
        }

        #[test]
        fn a_verdict_holds_whatever_the_unknown_ones_are(targets in prop::collection::vec(status(), 0..8), resolved in prop::collection::vec(any::<bool>(), 8), need in 1usize..6) {
            let early = verdict(targets.iter().copied(), need);
            let known = targets.iter().zip(&resolved).map(|(status, up)| match status {
                Status::Unknown if *up => Status::Up,
                Status::Unknown => Status::Down,
                known => *known,
            });
            let end = verdict(known, need);
            prop_assert!(early == Status::Unknown || early == end);
        }
    }
}
