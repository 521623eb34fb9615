//! Time as an argument: the driver reads the clocks, the engine compares what it is given.

use std::{
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A point on the driver's monotonic clock, counted from an epoch the driver chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub Duration);

/// A point on the wall clock, counted from the Unix epoch. Only for people, expiry that
/// outlives a restart, and headers that carry dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(pub Duration);

/// Both clocks, read together by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For every timer and every comparison.
    pub mono: Mono,
    /// For what people and stores read.
    pub wall: Wall,
}

impl Now {
    /// The same instant plus `by` on both clocks: how simulated time moves.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self {
            mono: self.mono + by,
            wall: Wall(self.wall.0 + by),
        }
    }
}

impl Now {
    /// The wall time of a point on the monotonic clock, as the two stand to each other now.
    #[must_use]
    pub fn wall_at(self, at: Mono) -> Wall {
        Wall((self.wall.0 + at.since(self.mono)).saturating_sub(self.mono.since(at)))
    }

    /// The point on the monotonic clock of a wall time; never before the driver's epoch.
    #[must_use]
    pub fn mono_at(self, at: Wall) -> Mono {
        let ahead = at.0.saturating_sub(self.wall.0);
        let ago = self.wall.0.saturating_sub(at.0);
        self.mono + ahead - ago
    }
}

impl Mono {
    /// How long ago `earlier` was; zero when it lies in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

impl AddAssign<Duration> for Mono {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}
