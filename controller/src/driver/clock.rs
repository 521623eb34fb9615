//! The clocks, behind a trait: the whole daemon runs on a simulated one in tests.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keepline_engine::time::{Mono, Now, Wall};

/// Reads both clocks together.
pub trait Clock {
    /// The present.
    fn now(&self) -> Now;
}

/// What monotonic time reads at the start: a year, so that what a store says of the time before
/// has a place on it.
const BEFORE: Duration = Duration::from_secs(366 * 86_400);

/// The machine's clocks; monotonic time counts from a year before this was made.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    epoch: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            epoch: Instant::now(),
        }
    }

    /// The instant tokio sleeps until for a point of the engine's time.
    #[must_use]
    pub fn instant(&self, at: Mono) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.epoch + at.0.saturating_sub(BEFORE))
    }

    /// How long ago the clock was made, at a point of the engine's time.
    #[must_use]
    pub fn age(&self, at: Mono) -> Duration {
        at.0.saturating_sub(BEFORE)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Now {
            mono: Mono(BEFORE + self.epoch.elapsed()),
            wall: Wall(wall),
        }
    }
}
