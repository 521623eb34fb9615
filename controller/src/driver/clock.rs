//! The clocks, behind a trait: the whole daemon runs on a simulated one in tests.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keepline_engine::time::{Mono, Now, Wall};

/// Reads both clocks together.
pub trait Clock {
    /// The present.
    fn now(&self) -> Now;
}

/// The machine's clocks; monotonic time counts from when this was made.
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
        tokio::time::Instant::from_std(self.epoch + at.0)
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
            mono: Mono(self.epoch.elapsed()),
            wall: Wall(wall),
        }
    }
}
