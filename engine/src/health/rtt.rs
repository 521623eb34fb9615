//! Smoothed response times (RFC 6298), and how long silence may last before it means something.

use std::time::Duration;

/// Before this many samples the estimate is not trusted.
const TRUSTED_AFTER: u32 = 8;
/// What is used until then.
const UNTRUSTED: Duration = Duration::from_secs(1);
/// Silence shorter than T1 says nothing: the first retransmission has not even gone.
const SHORTEST: Duration = Duration::from_millis(500);

/// SRTT and RTTVAR of the time to the first response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rtt {
    srtt: Duration,
    rttvar: Duration,
    samples: u32,
}

impl Rtt {
    /// Adds the response time of a request that was sent once.
    pub(super) fn sample(&mut self, r: Duration) {
        if self.samples == 0 {
            self.srtt = r;
            self.rttvar = r / 2;
        } else {
            self.rttvar = self.rttvar * 3 / 4 + self.srtt.abs_diff(r) / 4;
            self.srtt = self.srtt * 7 / 8 + r / 8;
        }
        self.samples = self.samples.saturating_add(1);
    }

    /// The smoothed time, once there is one.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        (self.samples > 0).then_some(self.srtt)
    }

    /// How long a request may go unanswered before its server is suspect.
    pub(super) fn suspect_after(&self, passive_timeout: Duration) -> Duration {
        if self.samples < TRUSTED_AFTER {
            return UNTRUSTED.min(passive_timeout);
        }
        (self.srtt + self.rttvar * 4)
            .max(SHORTEST)
            .min(passive_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSIVE: Duration = Duration::from_millis(1_500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn eight_samples_make_the_estimate_count() {
        let mut rtt = Rtt::default();
        for _ in 0..7 {
            rtt.sample(ms(20));
        }
        assert_eq!(rtt.suspect_after(PASSIVE), ms(1_000));
        rtt.sample(ms(20));
        assert_eq!(rtt.suspect_after(PASSIVE), ms(500));
    }

    #[test]
    fn a_slow_server_gets_more_time_but_never_beyond_the_passive_timeout() {
        let mut rtt = Rtt::default();
        (0..50).for_each(|_| rtt.sample(ms(800)));
        let after = rtt.suspect_after(PASSIVE);
        assert!(ms(800) <= after && after < ms(900), "{after:?}");
        (0..50).for_each(|i| rtt.sample(ms(if i % 2 == 0 { 100 } else { 1_500 })));
        assert_eq!(rtt.suspect_after(PASSIVE), PASSIVE);
    }

    #[test]
    fn the_first_sample_sets_both_values_as_rfc_6298_says() {
        let mut rtt = Rtt::default();
        rtt.sample(ms(100));
        assert_eq!((rtt.srtt, rtt.rttvar), (ms(100), ms(50)));
        rtt.sample(ms(180));
        assert_eq!(
            (rtt.srtt, rtt.rttvar),
            (ms(110), Duration::from_micros(57_500))
        );
    }
}
