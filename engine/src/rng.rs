//! Jitter: a small seeded generator (SplitMix64, Steele, Lea and Flood 2014). Nothing secret
//! is drawn from it; tokens and tags come from keyed hashes.

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1, the latter excluded.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a double holds exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reproducible_and_within_the_unit() {
        let mut a = Rng::new(7);
        let mut b = Rng::new(7);
        let drawn: Vec<f64> = (0..1000).map(|_| a.unit()).collect();
        assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
        assert!(drawn.iter().all(|x| *x == b.unit()));
        let mean = drawn.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
