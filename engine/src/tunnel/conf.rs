//! What tunnels and segments are configured with; the defaults are the shipped values.

use std::time::Duration;

use super::TunnelId;

/// Fail-back waits so long after the first answer, doubled by each flap.
pub const FAILBACK_HOLD: Duration = Duration::from_secs(30);
/// The longest hold that flaps can earn.
pub const MAX_FAILBACK_HOLD: Duration = Duration::from_secs(600);
/// A tunnel that stayed well for so long has its flaps forgotten.
pub const FLAPS_FORGOTTEN: Duration = Duration::from_secs(30 * 60);
/// Answers in a row until a tunnel may be failed back to.
pub const FAILBACK_ANSWERS: u32 = 3;
/// An unproven tunnel is probed again after so long.
pub const DAILY: Duration = Duration::from_secs(86_400);

/// `fast`: steady traffic that is silent for so long is probed.
pub const FAST_IDLE: Duration = Duration::from_secs(1);
/// `fast`: between probes.
pub const FAST_HEARTBEAT: Duration = Duration::from_millis(500);
/// `fast`: from the first probe to the verdict.
pub const FAST_TIMEOUT: Duration = Duration::from_secs(1);
/// Traffic is steady when no gap in it was longer than this ...
pub const STEADY_GAP: Duration = Duration::from_millis(500);
/// ... for at least so long.
pub const STEADY_RUN: Duration = Duration::from_secs(3);

/// How soon silence is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detect {
    /// After `idle_timeout`.
    Classic,
    /// After a second, where traffic was steady; else like `Classic`.
    Fast,
}

/// One tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelConf {
    /// Its name, for people.
    pub name: String,
    /// Between unanswered probes, and between probes for recovery.
    pub heartbeat_interval: Duration,
    /// Silence that starts probing.
    pub idle_timeout: Duration,
    /// From the first probe to the verdict.
    pub probe_timeout: Duration,
    /// How soon silence is looked into.
    pub detect: Detect,
}

impl TunnelConf {
    /// A tunnel with the shipped timers.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            heartbeat_interval: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(30),
            detect: Detect::Classic,
        }
    }

    /// The same, `fast`.
    #[must_use]
    pub fn fast(name: impl Into<String>) -> Self {
        Self {
            detect: Detect::Fast,
            ..Self::new(name)
        }
    }

    /// Keeps a configuration from making the machine spin: no timer is shorter than this.
    pub(super) fn bounded(mut self) -> Self {
        const SHORTEST: Duration = Duration::from_millis(20);
        for timer in [
            &mut self.heartbeat_interval,
            &mut self.idle_timeout,
            &mut self.probe_timeout,
        ] {
            *timer = (*timer).max(SHORTEST);
        }
        self
    }
}

/// A client side and its tunnels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentConf {
    /// Its name, for people.
    pub name: String,
    /// Its tunnels, the preferred one first. A tunnel belongs to one segment.
    pub tunnels: Vec<TunnelId>,
}

/// How long a tunnel with so many flaps waits for its work.
#[must_use]
pub fn hold(flaps: u32) -> Duration {
    FAILBACK_HOLD
        .saturating_mul(1 << flaps.min(16))
        .min(MAX_FAILBACK_HOLD)
}
