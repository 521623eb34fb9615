//! Spread for the back-off, from a seed.

use std::time::Duration;

use crate::rng::Rng;

/// Keeps gateways from probing in step.
#[derive(Debug)]
pub(super) struct Jitter(Rng);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Between 75 % and 95 % of the delay: a cap stays a cap.
    pub(super) fn spread(&mut self, delay: Duration) -> Duration {
        let permille = 750 + self.0.next_u64() % 200;
        delay * u32::try_from(permille).unwrap_or(1000) / 1000
    }
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
