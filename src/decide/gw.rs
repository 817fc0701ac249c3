//! How new flows are split over gateways.
//!
//! The range 0 to `slots` - 1 is cut into one piece for each gateway, in the order given and in the
//! proportion of the weights. The piece of one that is dead goes to others; no piece of a living one
//! moves when it goes to the nearest.

use crate::types::status::Status;
use std::ops::RangeInclusive;

/// The pieces that a split is made of: shares have two decimals of a per cent.
pub(crate) const SLOTS: u32 = 10_000;

/// Who gets the share of a gateway that is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redistribute {
    /// The nearest living one in the order given, of two the earlier.
    Nearest,
    /// All living ones, in proportion to their weights.
    Proportional,
    /// The living ones of the next tier that has any, in proportion; without one the nearest.
    NextTier,
}

/// A gateway as the split sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Finite, and not below 0. One of 0 is a spare: it serves where no other can.
    pub(crate) weight: f64,
    /// Gateways of the lowest tier that has a living one carry the traffic.
    pub(crate) tier: u32,
    pub(crate) alive: bool,
}

/// Slots that a gateway has more than by the weights, because another is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) slots: u32,
}

/// The plan, by position of the gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    /// What each gateway has; all of them together are the whole range, or nothing.
    pub(crate) ranges: Vec<Option<RangeInclusive<u32>>>,
    pub(crate) moved: Vec<Moved>,
}

/// How many slots a piece has.
pub(crate) fn len(range: Option<&RangeInclusive<u32>>) -> u32 {
    range.map_or(0, |range| range.end() - range.start() + 1)
}

/// Cuts the range; nobody has anything where nobody is alive.
pub(crate) fn split(all: &[Candidate], how: Redistribute) -> Split {
    let Some(tier) = all.iter().filter(|one| one.alive).map(|one| one.tier).min() else {
        return Split { ranges: vec![None; all.len()], moved: Vec::new() };
    };
    let weights = |takes: &dyn Fn(&Candidate) -> bool| -> Vec<f64> {
        let weights: Vec<f64> = all.iter().map(|one| if takes(one) { one.weight } else { 0.0 }).collect();
        if weights.iter().any(|weight| *weight > 0.0) {
            return weights;
        }
        // Only spares are left.
        all.iter().map(|one| if takes(one) { 1.0 } else { 0.0 }).collect()
    };
    let home = apportion(&weights(&|one| one.tier == tier));
    let lives = |one: &Candidate| one.alive && one.tier == tier;
    let next = all.iter().filter(|one| one.alive && one.tier > tier).map(|one| one.tier).min();
    let counts = match (how, next) {
        (Redistribute::Proportional, _) => apportion(&weights(&lives)),
        (Redistribute::NextTier, Some(next)) => {
            let dead: u32 = all.iter().zip(&home).filter(|(one, _)| !one.alive).map(|(_, count)| count).sum();
            let taken = apportion_of(&weights(&|one| one.alive && one.tier == next), dead);
            all.iter()
                .zip(&home)
                .zip(taken)
                .map(|((one, own), taken)| if one.alive { own + taken } else { 0 })
                .collect()
        }
        _ => to_nearest(all, &home, tier),
    };
    Split { ranges: lay_out(&counts), moved: moved(&home, &counts) }
}

/// Gives each dead gateway's count to the nearest living one of its tier.
fn to_nearest(all: &[Candidate], home: &[u32], tier: u32) -> Vec<u32> {
    let living: Vec<usize> = (0..all.len()).filter(|&at| all[at].alive && all[at].tier == tier).collect();
    let carrying: Vec<usize> = living.iter().copied().filter(|&at| all[at].weight > 0.0).collect();
    let takers = if carrying.is_empty() { living } else { carrying };
    let mut counts = vec![0; all.len()];
    for (at, count) in home.iter().enumerate() {
        let nearest = if takers.contains(&at) { Some(&at) } else { takers.iter().min_by_key(|to| to.abs_diff(at)) };
        if let Some(to) = nearest {
            counts[*to] += count;
        }
    }
    counts
}

/// Cuts the range of a plan anew where some of its gateways turn out not to serve: by how many slots each has in
/// it and whether it serves. Their pieces go to the nearest of those that have some, or else of the others; no
/// slot of one that serves moves. `None` where nobody serves.
pub(crate) fn recut_to_nearest(pieces: &[(u32, bool)]) -> Option<Vec<Option<RangeInclusive<u32>>>> {
    let home: Vec<u32> = pieces.iter().map(|(count, _)| *count).collect();
    let takes = |(count, alive): &(u32, bool)| Candidate { weight: f64::from(*count), tier: 1, alive: *alive };
    let all: Vec<Candidate> = pieces.iter().map(takes).collect();
    all.iter().any(|one| one.alive).then(|| lay_out(&to_nearest(&all, &home, 1)))
}

/// Slots in proportion to weights, by largest remainder; of equal remainders the earlier first.
fn apportion(weights: &[f64]) -> Vec<u32> {
    apportion_of(weights, SLOTS)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // floors of quotas that are at most `slots`
fn apportion_of(weights: &[f64], slots: u32) -> Vec<u32> {
    let most = weights.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return vec![0; weights.len()];
    }
    // Scaled first: the sum of great weights may be no number.
    let total: f64 = weights.iter().map(|weight| weight / most).sum();
    let quotas: Vec<f64> = weights.iter().map(|weight| weight / most / total * f64::from(slots)).collect();
    let mut counts: Vec<u32> = quotas.iter().map(|quota| quota.floor() as u32).collect();
    let mut order: Vec<usize> = (0..weights.len()).filter(|&at| weights[at] > 0.0).collect();
    order.sort_by(|&a, &b| (quotas[b] - quotas[b].floor()).total_cmp(&(quotas[a] - quotas[a].floor())));
    let given: u32 = counts.iter().sum();
    for &at in order.iter().cycle().take(slots.saturating_sub(given) as usize) {
        counts[at] += 1;
    }
    counts
}

/// The pieces, one behind the other.
fn lay_out(counts: &[u32]) -> Vec<Option<RangeInclusive<u32>>> {
    let mut next = 0;
    counts
        .iter()
        .map(|count| {
            let first = next;
            next += count;
            (*count > 0).then(|| first..=next - 1)
        })
        .collect()
}

/// Who has more than by the weights, and from whom: in the order given on both sides.
fn moved(home: &[u32], counts: &[u32]) -> Vec<Moved> {
    let mut lost: Vec<(usize, u32)> = Vec::new();
    let mut gained: Vec<(usize, u32)> = Vec::new();
    for (at, (was, is)) in home.iter().zip(counts).enumerate() {
        if was > is {
            lost.push((at, was - is));
        } else if is > was {
            gained.push((at, is - was));
        }
    }
    let mut moved = Vec::new();
    let mut gained = gained.into_iter();
    let mut open = gained.next();
    for (from, mut left) in lost {
        while left > 0 {
            let Some((to, room)) = open else { break };
            let slots = left.min(room);
            moved.push(Moved { from, to, slots });
            left -= slots;
            open = if room > slots { Some((to, room - slots)) } else { gained.next() };
        }
    }
    moved
}

/// Whether a gateway counts as living: what is not known is as it was.
pub(crate) fn is_alive(now: Status, before: Option<Status>) -> bool {
    match now {
        Status::Up => true,
        Status::Unknown => before == Some(Status::Up),
        Status::Down => false,
    }
}

/// Numbers for gateways that have none, the lowest that are neither known nor taken, at most `most`; those
/// that are known stay, so that the flows which carry their marks do.
pub(crate) fn number(known: &[Option<u32>], taken: &[u32], most: u32) -> Vec<Option<u32>> {
    let mut free = (1..=most).filter(|number| !known.contains(&Some(*number)) && !taken.contains(number));
    known.iter().map(|known| known.or_else(|| free.next())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn up(weight: f64) -> Candidate {
        Candidate { weight, tier: 1, alive: true }
    }

    fn down(weight: f64) -> Candidate {
        Candidate { alive: false, ..up(weight) }
    }

    fn counts(all: &[Candidate], how: Redistribute) -> Vec<u32> {
        split(all, how).ranges.iter().map(|range| len(range.as_ref())).collect()
    }

    #[test]
    fn weights_are_shares_and_nothing_is_left_over() {
        for (weights, wanted) in [
            (&[1.0][..], &[10_000][..]),
            (&[0.1, 0.9], &[1000, 9000]),
            (&[1.0, 1.0, 1.0], &[3334, 3333, 3333]),
            // Sums above 1, and far above what a sum can hold.
            (&[0.7, 0.7], &[5000, 5000]),
            (&[f64::MAX, f64::MAX], &[5000, 5000]),
            (&[f64::MAX, 1.0], &[10_000, 0]),
            (&[1e-9, 1.0], &[0, 10_000]),
            (&[1e-9, 1e-9], &[5000, 5000]),
            (&[0.0, 1.0], &[0, 10_000]),
            (&[0.0, 0.0], &[5000, 5000]),
        ] {
            let all: Vec<Candidate> = weights.iter().map(|weight| up(*weight)).collect();
            assert_eq!(counts(&all, Redistribute::Nearest), wanted, "{weights:?}");
        }
    }

    #[test]
    fn a_dead_one_s_share_goes_to_the_nearest_and_of_two_to_the_earlier() {
        let nearest = |all: &[Candidate]| split(all, Redistribute::Nearest);
        let plan = nearest(&[up(1.0), down(1.0), up(1.0), up(1.0)]);
        assert_eq!(plan.ranges, [Some(0..=4999), None, Some(5000..=7499), Some(7500..=9999)]);
        assert_eq!(plan.moved, [Moved { from: 1, to: 0, slots: 2500 }]);
        let plan = nearest(&[down(1.0), down(1.0), up(1.0), down(1.0)]);
        assert_eq!(plan.ranges, [None, None, Some(0..=9999), None]);
        let from: Vec<usize> = plan.moved.iter().map(|moved| moved.from).collect();
        assert_eq!(from, [0, 1, 3]);
        // A spare takes nothing while another lives.
        assert_eq!(counts(&[down(1.0), up(0.0), up(1.0)], Redistribute::Nearest), [0, 0, 10_000]);
        assert_eq!(counts(&[down(1.0), up(0.0), down(1.0)], Redistribute::Nearest), [0, 10_000, 0]);
    }

    #[test]
    fn proportional_keeps_the_proportions_of_the_living() {
        let all = [up(3.0), down(4.0), up(1.0)];
        assert_eq!(counts(&all, Redistribute::Proportional), [7500, 0, 2500]);
    }

    #[test]
    fn a_tier_rests_while_a_lower_one_lives() {
        let second = |one: Candidate| Candidate { tier: 2, ..one };
        let all = |first: [Candidate; 2]| [first[0], first[1], second(up(1.0)), second(up(3.0))];
        assert_eq!(counts(&all([up(1.0), up(1.0)]), Redistribute::Nearest), [5000, 5000, 0, 0]);
        assert_eq!(counts(&all([up(1.0), down(1.0)]), Redistribute::Nearest), [10_000, 0, 0, 0]);
        assert_eq!(counts(&all([up(1.0), down(1.0)]), Redistribute::NextTier), [5000, 0, 1250, 3750]);
        assert_eq!(counts(&all([down(1.0), down(1.0)]), Redistribute::Nearest), [0, 0, 2500, 7500]);
        let none = [up(1.0), down(1.0)];
        assert_eq!(counts(&none, Redistribute::NextTier), [10_000, 0], "no further tier: the nearest");
    }

    #[test]
    fn nobody_alive_is_no_plan() {
        let plan = split(&[down(1.0), down(0.0)], Redistribute::Nearest);
        assert_eq!((plan.ranges, plan.moved), (vec![None, None], Vec::new()));
        assert_eq!(split(&[], Redistribute::Proportional), Split::default());
    }

    #[test]
    fn who_turns_out_not_to_serve_gives_its_piece_to_the_nearest() {
        let recut = |pieces: &[(u32, bool)]| recut_to_nearest(pieces);
        assert_eq!(
            recut(&[(3000, true), (3000, false), (0, true), (4000, true)]),
            Some(vec![Some(0..=5999), None, None, Some(6000..=9999)])
        );
        // Without any other a spare serves, and of two the nearest.
        assert_eq!(recut(&[(0, true), (0, false), (10, false)]), Some(vec![Some(0..=9), None, None]));
        assert_eq!(recut(&[(0, false), (10, false)]), None);
        assert_eq!(recut(&[]), None);
    }

    #[test]
    fn unknown_is_as_before() {
        for (now, before, alive) in [
            (Status::Up, None, true),
            (Status::Unknown, Some(Status::Up), true),
            (Status::Unknown, Some(Status::Down), false),
            (Status::Unknown, None, false),
            (Status::Down, Some(Status::Up), false),
        ] {
            assert_eq!(is_alive(now, before), alive, "{now:?} {before:?}");
        }
    }

    #[test]
    fn a_number_stays_with_its_gateway() {
        assert_eq!(number(&[None, None], &[], 9), [Some(1), Some(2)]);
        assert_eq!(number(&[None, Some(1), None, Some(3)], &[], 9), [Some(2), Some(1), Some(4), Some(3)]);
        assert_eq!(number(&[Some(1), None, None], &[], 2), [Some(1), Some(2), None]);
        assert_eq!(number(&[None, Some(1)], &[2, 3], 9), [Some(4), Some(1)]);
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let weight = prop_oneof![Just(0.0), Just(1e-9), 0.0..2.0f64, Just(1e300)];
        let one = (weight, 1..4u32, any::<bool>()).prop_map(|(weight, tier, alive)| Candidate { weight, tier, alive });
        prop::collection::vec(one, 0..20)
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_whole_range_and_go_to_the_living(all in candidates(), how in 0usize..3) {
            let how = [Redistribute::Nearest, Redistribute::Proportional, Redistribute::NextTier][how];
            let plan = split(&all, how);
            prop_assert_eq!(plan.ranges.len(), all.len());
            let mut next = 0;
            for (one, range) in all.iter().zip(&plan.ranges) {
                let Some(range) = range else { continue };
                prop_assert!(one.alive);
                prop_assert_eq!(*range.start(), next);
                prop_assert!(range.end() >= range.start());
                next = range.end() + 1;
            }
            prop_assert_eq!(next, if all.iter().any(|one| one.alive) { SLOTS } else { 0 });
            // Nobody alive loses anything.
            prop_assert!(plan.moved.iter().all(|moved| !all[moved.from].alive || how == Redistribute::Proportional));
        }

        /// What a death changes is the dead one's piece and where it goes, nothing else.
        #[test]
        fn a_death_moves_no_slot_of_the_living(weights in prop::collection::vec(0.01..1.0f64, 2..12), who in any::<prop::sample::Index>()) {
            let all: Vec<Candidate> = weights.iter().map(|weight| up(*weight)).collect();
            let mut without = all.clone();
            let dead = who.index(all.len());
            without[dead].alive = false;
            let (before, after) = (split(&all, Redistribute::Nearest), split(&without, Redistribute::Nearest));
            let owner = |plan: &Split, slot: u32| plan.ranges.iter().position(|range| range.as_ref().is_some_and(|range| range.contains(&slot)));
            for slot in 0..SLOTS {
                let was = owner(&before, slot).unwrap();
                if was != dead {
                    prop_assert_eq!(owner(&after, slot), Some(was));
                }
            }
        }
    }
}
