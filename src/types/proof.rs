//! The proof that one life of a node is over.

use super::time::Tick;

/// A node was seen to be off, by the device that powers it or by the fencer of its cluster.
///
/// It is about one life: a node that is switched on again begins another, and its first beat ends the
/// proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The life that ended; `None` where no beat of the node was ever heard.
    pub(crate) incarnation: Option<u64>,
    /// When it was seen to be off.
    pub(crate) at: Tick,
}

impl Proof {
    /// Whether it still holds for a node whose newest life is `life`, and which was heard here last at
    /// `heard`.
    ///
    /// A beat that came in later shows that it was the wrong plug, or that the node is back.
    pub(crate) fn holds(self, life: Option<u64>, heard: Option<Tick>) -> bool {
        let same_life = match (life, self.incarnation) {
            (None, _) => true,
            (Some(life), Some(proven)) => life <= proven,
            (Some(_), None) => false,
        };
        same_life && heard.is_none_or(|heard| heard <= self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_newer_life_or_a_later_word_ends_a_proof() {
        let at = |seconds| Tick(Duration::from_secs(seconds));
        let proof = Proof { incarnation: Some(7), at: at(10) };
        for (life, heard, holds) in [
            (None, None, true),
            (Some(7), Some(at(9)), true),
            (Some(6), None, true),
            (Some(8), None, false),
            (Some(7), Some(at(11)), false),
        ] {
            assert_eq!(proof.holds(life, heard), holds, "{life:?} {heard:?}");
        }
        let nameless = Proof { incarnation: None, at: at(10) };
        assert!(nameless.holds(None, None));
        assert!(!nameless.holds(Some(1), None));
    }
}
