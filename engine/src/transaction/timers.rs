//! When a transaction sends again and when it ends (RFC 3261 section 17, table 4).

use std::time::Duration;

use super::Reason;
use crate::time::{Mono, Now};

/// The three times everything else is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// Estimate of the round trip.
    pub t1: Duration,
    /// Longest interval between retransmissions of anything but an INVITE.
    pub t2: Duration,
    /// How long a datagram may live in the network.
    pub t4: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            t1: ms(500),
            t2: ms(4000),
            t4: ms(5000),
        }
    }
}

impl Timers {
    /// 64·T1: timers B, F, H, J, L and M.
    #[must_use]
    pub fn life(&self) -> Duration {
        self.t1 * 64
    }
}

/// An interval that doubles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    due: Mono,
    interval: Duration,
    cap: Duration,
    letter: char,
}

impl Backoff {
    pub(super) fn new(now: Now, first: Duration, cap: Duration, letter: char) -> Self {
        Self {
            due: now.mono + first,
            interval: first,
            cap,
            letter,
        }
    }

    /// Sets the next time, counted from when this one was due: a driver that wakes late does
    /// not stretch the schedule. One that slept through a whole interval starts anew from now
    /// instead of sending a burst.
    fn advance(&mut self, now: Now) {
        self.interval = (self.interval * 2).min(self.cap);
        self.due += self.interval;
        if self.due <= now.mono {
            self.due = now.mono + self.interval;
        }
    }
}

/// The timers of one transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    again: Option<Backoff>,
    end: Option<(Mono, char)>,
}

/// What a clock rang for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rang {
    /// Send again.
    Again,
    /// The transaction's time is up.
    End,
}

impl Clock {
    /// Sends again at growing intervals.
    pub(super) fn repeat(&mut self, backoff: Backoff) {
        self.again = Some(backoff);
    }

    /// Sends no more.
    pub(super) fn hush(&mut self) {
        self.again = None;
    }

    /// Makes the next interval, and all after it, the longest (RFC 3261 section 17.1.2.2).
    pub(super) fn slow_down(&mut self, cap: Duration) {
        if let Some(backoff) = &mut self.again {
            backoff.interval = cap;
        }
    }

    /// Ends `after` from now.
    pub(super) fn end_in(&mut self, now: Now, after: Duration, letter: char) {
        self.end = Some((now.mono + after, letter));
    }

    /// Has no end.
    pub(super) fn endless(&mut self) {
        self.end = None;
    }

    /// Whether it has an end.
    pub(super) fn ends(&self) -> bool {
        self.end.is_some()
    }

    /// The next ring. The end comes before a repetition due at the same instant.
    pub(super) fn next(&self) -> Option<(Mono, Reason)> {
        let again = self
            .again
            .map(|backoff| (backoff.due, Reason::Timer(backoff.letter)));
        let end = self.end.map(|(due, letter)| (due, Reason::Timer(letter)));
        match (end, again) {
            (Some(end), Some(again)) if again.0 < end.0 => Some(again),
            (Some(end), _) => Some(end),
            (None, again) => again,
        }
    }

    /// Takes the ring that is due, if any.
    pub(super) fn ring(&mut self, now: Now) -> Option<Rang> {
        let (due, _) = self.next().filter(|(due, _)| *due <= now.mono)?;
        if self.end.is_some_and(|(end, _)| end == due) {
            self.again = None;
            self.end = None;
            return Some(Rang::End);
        }
        self.again.as_mut()?.advance(now);
        Some(Rang::Again)
    }
}
