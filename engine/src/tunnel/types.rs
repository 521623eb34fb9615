//! The vocabulary between the monitor and its driver.

use std::time::Duration;

use crate::{
    event::{Event, Evidence},
    time::{Mono, Now},
};

/// A tunnel, by its position in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelId(pub u16);

/// A segment, by its position in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u16);

/// The state of a tunnel, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Client frames came out of it within `idle_timeout`.
    Up,
    /// Well, but without traffic.
    Idle,
    /// Silent, and asked whether it lives.
    Probing,
    /// Never answered a probe: nothing can be concluded from its silence.
    Unproven,
    /// Dead, or not yet trusted again.
    Down,
}

impl State {
    /// The state's name in events and in `status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Idle => "idle",
            Self::Probing => "probing",
            Self::Unproven => "unproven",
            Self::Down => "down",
        }
    }
}

/// What becomes of a link below a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// It is there and has carrier.
    Up,
    /// It is there without carrier, or switched off.
    Lost,
    /// The interface does not exist.
    Gone,
}

/// What the driver is asked to do, or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send one DHCPREQUEST out of this tunnel; report an answer by
    /// [`Monitor::answered`](super::Monitor::answered), silence not at all.
    Probe {
        /// Out of which one.
        tunnel: TunnelId,
        /// Since the first probe of this series (RFC 2131 section 2, `secs`).
        secs: u16,
        /// It begins a series: answers to earlier ones no longer count.
        fresh: bool,
    },
    /// From now on the segment's frames, and voice flows and routes through any of its tunnels,
    /// go through this one.
    Activate {
        /// Whose.
        segment: SegmentId,
        /// Through which one before; `None` at the start.
        from: Option<TunnelId>,
        /// Through which one now.
        to: TunnelId,
        /// By which rule.
        rule: &'static str,
        /// The first sign of what led to it: for the time that a fail-over took.
        since: Mono,
    },
    /// Something a person may ask about.
    Event(Event),
}

/// Why the machine wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A tunnel may have been silent for too long.
    Idle,
    /// The next probe of a series.
    Heartbeat,
    /// A series ends unanswered.
    Verdict,
    /// A tunnel above the active one, or any while none is well, is probed.
    Recovery,
    /// A returned tunnel's hold ends.
    Hold,
    /// An unproven tunnel has its daily probe.
    Daily,
}

/// A segment as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// Which one.
    pub id: SegmentId,
    /// Its name.
    pub name: String,
    /// The tunnel in use; `None` when it has none at all.
    pub active: Option<TunnelId>,
}

/// A tunnel as `status`, `tunnels` and `explain` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelView {
    /// Which one.
    pub id: TunnelId,
    /// Its name.
    pub name: String,
    /// Its segment.
    pub segment: SegmentId,
    /// Whether the segment uses it.
    pub active: bool,
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: Now,
    /// The rule that led to it.
    pub reason: &'static str,
    /// It answered a probe since it was there last.
    pub proven: bool,
    /// Since the last frame; `None` before the first.
    pub silent: Option<Duration>,
    /// Until the next probe, should it stay silent; `None` when none is planned.
    pub next_probe: Option<Duration>,
    /// Answers in a row, while it is probed for recovery.
    pub answers: u32,
    /// What is left of the fail-back hold, once it answers.
    pub returns_in: Option<Duration>,
    /// Flaps not yet forgotten.
    pub flaps: u32,
    /// What was seen last, oldest first.
    pub evidence: Vec<Evidence>,
}
