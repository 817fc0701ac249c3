//! Chance, handed in: whoever draws can be replayed from the seed.

/// A stream of numbers from one seed (`SplitMix64`: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Draw(seed)
    }

    /// The next number, uniform over all 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 where `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(limit)) >> 64).unwrap_or(0)
    }

    /// A number from 0 to below 1, uniform over the 2^53 that a float has there.
    #[allow(clippy::cast_precision_loss)] // 53 bits
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs for seed 1234567, as in the reference implementation's test.
        let mut draw = Draw::new(1_234_567);
        assert_eq!(draw.next(), 6_457_827_717_110_365_317);
        assert_eq!(draw.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below() {
        let mut draw = Draw::new(7);
        assert!((0..1000).all(|_| draw.below(10) < 10));
        assert_eq!(draw.below(0), 0);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&draw.unit())));
    }
}
