//! What became of several probes of one target: how many were lost, and how long answers took.

use std::time::Duration;

/// Probes that left, and their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u32,
    /// How long each answer took; at most as many as were sent.
    pub(crate) rtts: Vec<Duration>,
}

/// How long answers took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rtt {
    pub(crate) min: Duration,
    pub(crate) avg: Duration,
    pub(crate) max: Duration,
    /// The standard deviation of these, not that of all that there could be.
    pub(crate) stddev: Duration,
}

impl Tally {
    pub(crate) fn received(&self) -> u32 {
        u32::try_from(self.rtts.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received())
    }

    /// The part that was lost of what was sent; none where nothing was.
    pub(crate) fn loss_pct(&self) -> Option<f64> {
        (self.sent > 0).then(|| pct(self.lost().into(), self.sent.into()))
    }

    /// None without an answer.
    pub(crate) fn rtt(&self) -> Option<Rtt> {
        let (min, max) = (*self.rtts.iter().min()?, *self.rtts.iter().max()?);
        let avg = self.rtts.iter().sum::<Duration>() / self.received();
        let squares: f64 = self.rtts.iter().map(|rtt| rtt.abs_diff(avg).as_secs_f64().powi(2)).sum();
        let stddev = (squares / f64::from(self.received())).sqrt();
        Some(Rtt { min, avg, max, stddev: Duration::try_from_secs_f64(stddev).unwrap_or_default() })
    }
}

/// A share in per cent, with two decimals.
#[allow(clippy::cast_precision_loss)] // a share needs no 53 bits
pub(crate) fn pct(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 10_000.0).round() / 100.0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_are_those_of_ping() {
        let tally = Tally { sent: 6, rtts: [2, 4, 4, 6].map(Duration::from_millis).to_vec() };
        let rtt = tally.rtt().unwrap();
        assert_eq!([rtt.min, rtt.avg, rtt.max], [2, 4, 6].map(Duration::from_millis));
        assert!((rtt.stddev.as_secs_f64() * 1e3 - 2f64.sqrt()).abs() < 1e-6, "{rtt:?}");
        assert_eq!((tally.received(), tally.lost(), tally.loss_pct()), (4, 2, Some(33.33)));
        assert_eq!((Tally::default().rtt(), Tally::default().loss_pct()), (None, None));
    }

    proptest! {
        #[test]
        fn the_average_lies_between_and_the_deviation_within(micros in prop::collection::vec(0u64..10_000_000, 1..50)) {
            let tally = Tally { sent: 50, rtts: micros.into_iter().map(Duration::from_micros).collect() };
            let rtt = tally.rtt().unwrap();
            prop_assert!(rtt.min <= rtt.avg && rtt.avg <= rtt.max);
            prop_assert!(rtt.min + rtt.stddev <= rtt.max);
        }
    }
}
