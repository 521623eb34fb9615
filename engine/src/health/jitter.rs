//! Spread for the back-off, from a seed.

use std::time::Duration;

/// A small generator (SplitMix64): enough to keep gateways from probing in step.
#[derive(Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Between 75 % and 95 % of the delay: a cap stays a cap.
    pub(super) fn spread(&mut self, delay: Duration) -> Duration {
        let permille = 750 + self.next() % 200;
        delay * u32::try_from(permille).unwrap_or(1000) / 1000
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// SplitMix64's finaliser: a good 64-bit mixer.
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_stays_below_the_delay_and_uses_its_room() {
        let mut jitter = Jitter::new(7);
        let all: Vec<_> = (0..1_000)
            .map(|_| jitter.spread(Duration::from_secs(30)).as_millis())
            .collect();
        assert!(all.iter().all(|ms| (22_500..28_500).contains(ms)));
        assert!(all.iter().any(|&ms| ms < 23_000) && all.iter().any(|&ms| ms > 28_000));
    }
}
