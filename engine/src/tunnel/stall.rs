//! RTP of several calls that goes silent together (KL6): the way they share is asked about, not
//! the calls.

use std::time::Duration;

/// Media that still flows has a packet every 20 ms, rarely every 60 ms (RFC 3551 section 4.2).
pub const STALL_AFTER: Duration = Duration::from_millis(300);
/// Last packets that lie so close together ended by one cause.
pub const TOGETHER: Duration = Duration::from_millis(150);
/// One silent call is a phone on hold.
pub const SEVERAL: usize = 2;

/// Calls that stalled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// How many.
    pub calls: usize,
    /// How long ago the last packet of all came.
    pub silent: Duration,
}

/// Looks at the streams that arrive over one link: for each, how long ago its last packet came.
/// A stream that ended earlier than the others was silent before; one that still flows clears
/// the link of suspicion.
#[must_use]
pub fn stalled_together(idle: impl IntoIterator<Item = Duration>) -> Option<Stall> {
    let idle: Vec<Duration> = idle.into_iter().collect();
    let silent = *idle.iter().min()?;
    let together = |of: &&Duration| of.saturating_sub(silent) <= TOGETHER;
    let calls = idle.iter().filter(together).count();
    (silent >= STALL_AFTER && calls >= SEVERAL).then_some(Stall { calls, silent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(idle: &[u64]) -> Option<Stall> {
        stalled_together(idle.iter().copied().map(Duration::from_millis))
    }

    #[test]
    fn kl6_two_calls_that_end_together_are_a_stall() {
        let stall = of(&[320, 340, 9_000]).expect("a stall");
        assert_eq!(stall.calls, 2);
        assert_eq!(stall.silent, Duration::from_millis(320));
    }

    #[test]
    fn kl6_one_silent_call_or_one_that_still_flows_is_none() {
        assert_eq!(of(&[320, 9_000]), None);
        assert_eq!(of(&[10, 320, 340]), None);
        assert_eq!(of(&[280, 290]), None);
        assert_eq!(of(&[]), None);
    }
}
