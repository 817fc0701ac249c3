//! Changes of one node's buckets, as an operator or a plan asks for them.

use crate::types::bucket::Buckets;
use crate::types::cluster::Held;

/// How a bucket is gained or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum How {
    /// The old owner lives and keeps its TCP connections; the new one takes openings.
    Drain,
    /// The new owner takes all, and resets what it does not know.
    TakeOver,
    /// At once and altogether: the old owner keeps nothing.
    Settle,
}

impl How {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            How::Drain => "drain",
            How::TakeOver => "take-over",
            How::Settle => "settle",
        }
    }
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which buckets are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// These more, those less.
    Change { add: Buckets, remove: Buckets },
    /// These and no others.
    Only(Buckets),
}

/// What a change did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) held: Held,
    pub(crate) gained: Buckets,
    pub(crate) lost: Buckets,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// These buckets do not exist.
    Beyond { buckets: Buckets, total: u16 },
    /// These are to be both added and removed.
    Both(Buckets),
}

/// Refuses buckets above `total`. (Zero is no bucket in any list.)
pub(crate) fn within(buckets: &Buckets, total: u16) -> Result<(), Refusal> {
    let beyond: Buckets = buckets.iter().filter(|&bucket| bucket == 0 || bucket > total).collect();
    if beyond.is_empty() { Ok(()) } else { Err(Refusal::Beyond { buckets: beyond, total }) }
}

/// What `held` becomes.
///
/// Gained by [`How::Drain`]: only openings. By [`How::TakeOver`]: everything, strangers reset. By
/// [`How::Settle`]: everything, nobody reset. Lost by [`How::Settle`]: closed altogether; else the
/// TCP connections stay, unless the bucket was still opening or had never been served.
///
/// With [`How::Settle`] the modes of the buckets that are owned afterwards end too, and so do all
/// drains: nothing but `owned` is left. Without it a bucket that is held already keeps its mode,
/// so doing the same twice changes nothing.
///
/// # Errors
/// A bucket above `total`, or one that is both added and removed.
pub(crate) fn change(held: &Held, total: u16, wish: &Wish, how: How) -> Result<Outcome, Refusal> {
    let wanted = match wish {
        Wish::Only(only) => {
            within(only, total)?;
            only.clone()
        }
        Wish::Change { add, remove } => {
            within(&add.union(remove), total)?;
            let both = add.intersection(remove);
            if !both.is_empty() {
                return Err(Refusal::Both(both));
            }
            held.owned.union(add).difference(remove)
        }
    };
    let gained = wanted.difference(&held.owned);
    let lost = held.owned.difference(&wanted);
    let mut next = Held {
        opening: held.opening.intersection(&wanted),
        reset: held.reset.intersection(&wanted),
        draining: held.draining.difference(&wanted),
        owned: wanted,
    };
    match how {
        How::Settle => {
            next.opening = Buckets::new();
            next.reset = Buckets::new();
            next.draining = Buckets::new();
        }
        How::Drain => {
            next.opening = next.opening.union(&gained);
            next.draining = next.draining.union(&lost);
        }
        How::TakeOver => {
            next.reset = next.reset.union(&gained);
            next.draining = next.draining.union(&lost);
        }
    }
    // What was drained here and comes back was never closed here: its connections are known, and
    // the next owner's are in their own drain.
    Ok(Outcome { held: next, gained, lost })
}

/// What a plan orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// These, and no others.
    pub(crate) mine: Buckets,
    /// What a living node drains: of these, openings alone.
    pub(crate) drained: Buckets,
    /// What is closed altogether if it is given up.
    pub(crate) settled: Buckets,
}

/// What `held` becomes by a plan.
///
/// A bucket that was opening, and that nobody drains any more, is reset from now on: whose drain
/// has ended has no connections left, and whoever died since had some.
///
/// # Errors
/// A bucket above `total`.
pub(crate) fn carry_out(held: &Held, total: u16, order: &Order) -> Result<(Outcome, How), Refusal> {
    within(&order.mine, total)?;
    let gained = order.mine.difference(&held.owned);
    let lost = held.owned.difference(&order.mine);
    let opening = held.opening.intersection(&order.mine);
    let next = Held {
        opening: opening.union(&gained).intersection(&order.drained),
        reset: held.reset.intersection(&order.mine).union(&opening.union(&gained).difference(&order.drained)),
        draining: held.draining.difference(&order.mine).union(&lost).difference(&order.settled),
        owned: order.mine.clone(),
    };
    let how = if gained.is_empty() {
        if lost.difference(&order.settled).is_empty() { How::Settle } else { How::Drain }
    } else if gained.difference(&order.drained).is_empty() {
        How::Drain
    } else {
        How::TakeOver
    };
    Ok((Outcome { held: next, gained, lost }, how))
}

/// Ends what is left of a drain or a take-over for `buckets` alone.
pub(crate) fn settle(held: &Held, buckets: &Buckets) -> Held {
    Held {
        owned: held.owned.clone(),
        opening: held.opening.difference(buckets),
        reset: held.reset.difference(buckets),
        draining: held.draining.difference(buckets),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Buckets {
        text.parse().unwrap()
    }

    fn held(owned: &str, opening: &str, reset: &str, draining: &str) -> Held {
        Held { owned: list(owned), opening: list(opening), reset: list(reset), draining: list(draining) }
    }

    fn plus(add: &str, remove: &str) -> Wish {
        Wish::Change { add: list(add), remove: list(remove) }
    }

    #[test]
    fn a_bucket_is_gained_and_lost_in_its_mode() {
        for (before, wish, how, after, gained, lost) in [
            (held("1", "", "", ""), plus("2", ""), How::Drain, held("1-2", "2", "", ""), "2", ""),
            (held("1", "", "", ""), plus("2", ""), How::TakeOver, held("1-2", "", "2", ""), "2", ""),
            (held("1", "", "", ""), plus("2", ""), How::Settle, held("1-2", "", "", ""), "2", ""),
            (held("1-2", "", "", ""), plus("", "2"), How::TakeOver, held("1", "", "", "2"), "", "2"),
            (held("1-2", "2", "", ""), plus("", "2"), How::Settle, held("1", "", "", ""), "", "2"),
            (held("1", "", "", "2"), plus("2", ""), How::Drain, held("1-2", "2", "", ""), "2", ""),
            (held("1-3", "", "3", "4"), Wish::Only(list("3-4")), How::Drain, held("3-4", "4", "3", "1-2"), "4", "1-2"),
            (held("1-2", "1", "2", "3"), Wish::Only(list("1-2")), How::Settle, held("1-2", "", "", ""), "", ""),
        ] {
            let outcome = change(&before, 4, &wish, how).unwrap();
            assert_eq!(outcome.held, after, "{before:?} {wish:?} {how:?}");
            assert_eq!((outcome.gained, outcome.lost), (list(gained), list(lost)));
        }
    }

    #[test]
    fn a_bucket_that_does_not_exist_is_refused() {
        assert_eq!(
            change(&held("1", "", "", ""), 2, &plus("3", ""), How::Drain),
            Err(Refusal::Beyond { buckets: list("3"), total: 2 })
        );
        assert!(change(&Held::default(), 2, &Wish::Only(list("1-3")), How::Drain).is_err());
        assert!(change(&Held::default(), 2, &plus("", "3"), How::Drain).is_err());
        assert_eq!(change(&Held::default(), 2, &plus("1", "1"), How::Drain), Err(Refusal::Both(list("1"))));
    }

    #[test]
    fn a_plan_is_carried_out_by_what_the_others_drain() {
        let order = |mine: &str, drained: &str, settled: &str| Order {
            mine: list(mine),
            drained: list(drained),
            settled: list(settled),
        };
        for (before, order, after, how) in [
            (held("1", "", "", ""), order("1-3", "2", ""), held("1-3", "2", "3", ""), How::TakeOver),
            (held("1-3", "2", "3", ""), order("1-3", "", ""), held("1-3", "", "2-3", ""), How::Settle),
            (held("1", "", "", ""), order("1-2", "2", ""), held("1-2", "2", "", ""), How::Drain),
            (held("1-2", "", "2", ""), order("1", "", ""), held("1", "", "", "2"), How::Drain),
            (held("1-2", "", "2", ""), order("", "", "1-2"), held("", "", "", ""), How::Settle),
            (held("1", "", "", "2"), order("", "", "1-2"), held("", "", "", ""), How::Settle),
            (held("1", "", "", "2"), order("1-2", "", ""), held("1-2", "", "2", ""), How::TakeOver),
        ] {
            let (outcome, done) = carry_out(&before, 4, &order).unwrap();
            assert_eq!((outcome.held, done), (after, how), "{before:?} {order:?}");
        }
        assert!(carry_out(&Held::default(), 4, &order("5", "", "")).is_err());
    }

    fn some() -> impl Strategy<Value = Buckets> {
        proptest::collection::vec(1u16..=8, 0..8).prop_map(|list| list.into_iter().collect())
    }

    proptest! {
        #[test]
        fn twice_is_once(first in some(), add in some(), remove in some(), how in 0..3) {
            let how = [How::Drain, How::TakeOver, How::Settle][usize::try_from(how).unwrap()];
            let wish = Wish::Change { remove: remove.difference(&add), add };
            let before = Held { owned: first, ..Held::default() };
            let once = change(&before, 8, &wish, how).unwrap();
            let twice = change(&once.held, 8, &wish, how).unwrap();
            prop_assert_eq!(&once.held, &twice.held);
            prop_assert!(twice.gained.is_empty() && twice.lost.is_empty());
            // What is in a mode is owned, what drains is not.
            let held = &once.held;
            prop_assert!(held.opening.union(&held.reset).difference(&held.owned).is_empty());
            prop_assert!(held.draining.intersection(&held.owned).is_empty());
            prop_assert!(held.opening.intersection(&held.reset).is_empty());
        }
    }
}
