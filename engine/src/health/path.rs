//! What is known of one (server, link).

use std::{collections::VecDeque, time::Duration};

use super::{
    Class, GroupConf, MAX_FAILBACK_HOLD, ProbeId, RequestId, conf::FLAPS_FORGOTTEN, rtt::Rtt,
};
use crate::{
    event::Evidence,
    time::{Mono, Now},
};

/// Observations kept per path.
const MAX_EVIDENCE: usize = 16;
/// Soft evidence of different requests that starts a burst, and how long each counts.
const SOFT_LIMIT: usize = 3;
const SOFT_WINDOW: Duration = Duration::from_secs(60);

/// A path's own state; being held is the server's and lies over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Unknown,
    Up,
    Suspect,
    Down,
}

impl Condition {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
        }
    }
}

/// Why a burst runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Another path of the group is suspect: this one's verdict shall be ready.
    Readiness,
    /// A request passed its suspect time, or ICMP answered it.
    Silence,
    /// Three requests fared badly though the server speaks.
    Soft,
}

/// Three OPTIONS in quick succession.
#[derive(Debug)]
pub(super) struct Burst {
    pub(super) cause: Cause,
    pub(super) started: Mono,
    pub(super) probes: Vec<ProbeId>,
    /// One of them was answered by a down code.
    pub(super) refused: bool,
}

/// The health record of one (server, link).
#[derive(Debug)]
pub(super) struct Path {
    pub(super) condition: Condition,
    pub(super) since: Now,
    pub(super) rule: &'static str,
    pub(super) last_inbound: Option<Mono>,
    pub(super) burst: Option<Burst>,
    /// The idle or recovery probe in flight.
    pub(super) probe: Option<ProbeId>,
    /// When the last probe of any kind went.
    pub(super) last_probe: Option<Mono>,
    /// Probes in a row that nothing answered.
    pub(super) silent: u32,
    /// Probes and REGISTERs in a row that a down code answered.
    pub(super) refused: u32,
    /// A readiness burst went unanswered and nothing arrived since: the verdict is ready.
    pub(super) verdict_ready: bool,
    /// Down: good answers in a row.
    pub(super) good: u32,
    /// Down: the next delay before jitter and cap.
    pub(super) backoff: Duration,
    /// Up again, but not yet given its work back; the far future while fail-back is manual.
    pub(super) returns_at: Option<Mono>,
    pub(super) flaps: u32,
    pub(super) evidence: VecDeque<Evidence>,
    rtt: [Rtt; 3],
    soft: VecDeque<(Mono, RequestId)>,
    recovered_at: Option<Mono>,
}

impl Path {
    pub(super) fn new(now: Now) -> Self {
        Self {
            condition: Condition::Unknown,
            since: now,
            rule: "start",
            last_inbound: None,
            burst: None,
            probe: None,
            last_probe: None,
            silent: 0,
            refused: 0,
            verdict_ready: false,
            good: 0,
            backoff: Duration::ZERO,
            returns_at: None,
            flaps: 0,
            evidence: VecDeque::new(),
            rtt: [Rtt::default(); 3],
            soft: VecDeque::new(),
            recovered_at: None,
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.condition == Condition::Down
    }

    /// Did anything arrive at or after this instant?
    pub(super) fn heard_since(&self, since: Mono) -> bool {
        self.last_inbound.is_some_and(|at| at >= since)
    }

    /// Keeps an observation, forgetting the oldest beyond the bound.
    pub(super) fn note(&mut self, now: Now, what: String) {
        if self.evidence.len() == MAX_EVIDENCE {
            self.evidence.pop_front();
        }
        self.evidence.push_back(Evidence { at: now, what });
    }

    pub(super) fn rtt_mut(&mut self, class: Class) -> &mut Rtt {
        &mut self.rtt[class as usize]
    }

    pub(super) fn smoothed(&self) -> [Option<Duration>; 3] {
        self.rtt.map(|rtt| rtt.smoothed())
    }

    /// How long a request may go unanswered before this path is suspect.
    pub(super) fn suspect_after(&self, class: Class, conf: &GroupConf) -> Duration {
        self.rtt[class as usize].suspect_after(conf.passive_timeout)
    }

    /// Counts soft evidence; true when enough different requests bear it.
    pub(super) fn soft(&mut self, now: Mono, req: RequestId) -> bool {
        self.soft
            .retain(|&(at, known)| now.since(at) <= SOFT_WINDOW && known != req);
        self.soft.push_back((now, req));
        let enough = self.soft.len() >= SOFT_LIMIT;
        if enough {
            self.soft.clear();
        }
        enough
    }

    /// The verdict: forgets what was in progress and counts the flap.
    pub(super) fn fall(&mut self, now: Now, initial: Duration) {
        let flapped = self
            .recovered_at
            .is_some_and(|up| now.mono.since(up) < FLAPS_FORGOTTEN);
        self.flaps = if flapped {
            self.flaps.saturating_add(1)
        } else {
            0
        };
        self.burst = None;
        self.probe = None;
        self.silent = 0;
        self.refused = 0;
        self.verdict_ready = false;
        self.good = 0;
        self.backoff = initial;
        self.returns_at = None;
        self.soft.clear();
    }

    /// Recovery: how long this path must prove itself before it gets its work back.
    pub(super) fn rise(&mut self, now: Now, failback_hold: Duration) -> Duration {
        self.recovered_at = Some(now.mono);
        self.good = 0;
        let doubled = failback_hold.saturating_mul(1 << self.flaps.min(16));
        doubled.min(MAX_FAILBACK_HOLD.max(failback_hold))
    }

    /// Flaps that still count at this instant.
    pub(super) fn remembered_flaps(&self, now: Mono) -> u32 {
        let stable = !self.is_down()
            && self
                .recovered_at
                .is_none_or(|up| now.since(up) >= FLAPS_FORGOTTEN);
        if stable { 0 } else { self.flaps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Now {
        Now::default().after(Duration::from_secs(s))
    }

    #[test]
    fn evidence_is_bounded_and_keeps_the_newest() {
        let mut path = Path::new(at(0));
        (0..40).for_each(|i| path.note(at(i), i.to_string()));
        assert_eq!(path.evidence.len(), MAX_EVIDENCE);
        assert_eq!(path.evidence.back().map(|e| e.what.as_str()), Some("39"));
    }

    #[test]
    fn soft_evidence_needs_three_different_requests_within_a_minute() {
        let mut path = Path::new(at(0));
        assert!(!path.soft(at(0).mono, RequestId(1)));
        assert!(
            !path.soft(at(1).mono, RequestId(1)),
            "the same request counts once"
        );
        assert!(!path.soft(at(2).mono, RequestId(2)));
        assert!(
            !path.soft(at(62).mono, RequestId(3)),
            "the first is too old"
        );
        assert!(path.soft(at(62).mono, RequestId(4)));
    }

    #[test]
    fn the_hold_doubles_per_flap_and_is_forgotten_when_stable() {
        let (hold, initial) = (Duration::from_secs(60), Duration::from_secs(2));
        let mut path = Path::new(at(0));
        let mut now = 0;
        let mut flap = |path: &mut Path, stable: u64| {
            now += stable;
            path.fall(at(now), initial);
            path.rise(at(now), hold).as_secs()
        };
        let holds: Vec<_> = (0..6).map(|_| flap(&mut path, 30)).collect();
        assert_eq!(holds, [60, 120, 240, 480, 600, 600]);
        assert_eq!(flap(&mut path, 30 * 60), 60);
    }
}
