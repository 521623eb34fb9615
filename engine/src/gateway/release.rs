//! The rate at which due registrations go upstream after a return (EM17): a token bucket.

use crate::time::Mono;

/// One second's worth of REGISTERs may go at once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Release {
    /// Tokens left, in thousandths.
    left: u64,
    at: Option<Mono>,
}

impl Release {
    /// Takes a token, if there is one, from a bucket that `per_second` fill.
    pub(super) fn take(&mut self, now: Mono, per_second: u32) -> bool {
        let full = u64::from(per_second.max(1)) * 1000;
        let earned = match self.at {
            None => full,
            Some(at) => u64::try_from(now.since(at).as_millis())
                .unwrap_or(full)
                .saturating_mul(u64::from(per_second.max(1))),
        };
        self.at = Some(now);
        self.left = self.left.saturating_add(earned).min(full);
        let granted = self.left >= 1000;
        if granted {
            self.left -= 1000;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_of_one_second_then_the_rate() {
        let mut release = Release::default();
        let mut granted = 0;
        for ms in 0..3000_u64 {
            granted += u32::from(release.take(Mono(Duration::from_millis(ms)), 50));
        }
        assert!(
            (195..=200).contains(&granted),
            "{granted} in 3 s at 50/s, 50 of them at once"
        );
    }
}
