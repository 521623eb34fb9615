//! The record of one tunnel, and the arithmetic of its silence.

use std::{collections::VecDeque, time::Duration};

use super::{
    Carrier, Reason, State,
    conf::{
        DAILY, Detect, FAILBACK_ANSWERS, FAST_HEARTBEAT, FAST_IDLE, FAST_TIMEOUT, STEADY_GAP,
        STEADY_RUN, TunnelConf, hold,
    },
};
use crate::{
    event::Evidence,
    time::{Mono, Now},
};

/// How much evidence is kept of a tunnel.
const KEPT: usize = 16;

/// What the monitor asks of a tunnel in its present place (MX7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing: it cannot be probed, or stands by and is proven.
    Rest,
    /// In use: silence is looked into.
    Watch,
    /// Above the one in use, or none is well: probed until it is back.
    Recover,
    /// Stands by, and is not known to be well: probed now and then.
    Rare,
}

/// Why a series of probes is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Silence.
    Silence,
    /// The RTP of several calls stalled together (KL6).
    Stall,
    /// It is not known whether it answers at all: at start and daily.
    Proof,
}

/// A series of probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Series {
    pub(super) cause: Cause,
    pub(super) began: Mono,
    pub(super) sent: u32,
    pub(super) next: Mono,
    pub(super) ends: Mono,
    pub(super) heartbeat: Duration,
    /// Its event was told: a first probe went unanswered.
    pub(super) told: bool,
}

/// Probes for recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recovery {
    pub(super) began: Mono,
    pub(super) next: Mono,
    /// The last probe has no answer yet.
    pub(super) pending: bool,
    /// Probes answered in a row.
    pub(super) row: u32,
    /// When the row began.
    pub(super) since: Option<Mono>,
}

/// A tunnel that is called down.
#[derive(Debug, Clone, Copy)]
pub(super) struct Down {
    pub(super) since: Mono,
}

/// Everything known of one tunnel.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) conf: TunnelConf,
    /// Position of its segment, and its own in there.
    pub(super) place: (usize, usize),
    pub(super) carrier: Carrier,
    pub(super) proven: bool,
    pub(super) down: Option<Down>,
    /// The last frame out of it, by the data path's stamp.
    pub(super) frame: Option<Mono>,
    /// The first frame of a run of traffic without a gap.
    steady_from: Option<Mono>,
    /// Restarts the idle clock besides frames: an answer, a start.
    pub(super) clock: Mono,
    pub(super) duty: Duty,
    pub(super) series: Option<Series>,
    pub(super) recovery: Recovery,
    pub(super) daily: Mono,
    pub(super) flaps: u32,
    /// When it was well again after the last down.
    pub(super) recovered: Option<Mono>,
    /// What was told last.
    pub(super) shown: (State, Now, &'static str),
    evidence: VecDeque<Evidence>,
}

impl Watch {
    pub(super) fn new(now: Now, conf: TunnelConf, place: (usize, usize), carrier: Carrier) -> Self {
        let up = carrier == Carrier::Up;
        let shown = if up {
            (State::Unproven, "never_answered")
        } else {
            (State::Down, carrier_rule(carrier))
        };
        Self {
            conf: conf.bounded(),
            place,
            carrier,
            proven: false,
            down: (!up).then_some(Down { since: now.mono }),
            frame: None,
            steady_from: None,
            clock: now.mono,
            duty: Duty::Rest,
            series: None,
            recovery: Recovery::default(),
            daily: now.mono,
            flaps: 0,
            recovered: None,
            shown: (shown.0, now, shown.1),
            evidence: VecDeque::new(),
        }
    }

    /// Keeps one observation.
    pub(super) fn saw(&mut self, at: Now, what: impl Into<String>) {
        if self.evidence.len() == KEPT {
            self.evidence.pop_front();
        }
        let what = what.into();
        self.evidence.push_back(Evidence { at, what });
    }

    pub(super) fn evidence(&self) -> Vec<Evidence> {
        self.evidence.iter().cloned().collect()
    }

    /// Its state at this moment.
    pub(super) fn state(&self, now: Mono) -> State {
        let asks = |series: &Series| series.cause != Cause::Proof;
        if self.down.is_some() {
            State::Down
        } else if !self.proven {
            State::Unproven
        } else if self.series.as_ref().is_some_and(asks) {
            State::Probing
        } else if self.heard_within(now, self.conf.idle_timeout) {
            State::Up
        } else {
            State::Idle
        }
    }

    fn heard_within(&self, now: Mono, limit: Duration) -> bool {
        self.frame.is_some_and(|frame| now.since(frame) < limit)
    }

    /// Called down, yet frames came out of it since, and lately.
    pub(super) fn speaks(&self, now: Mono) -> bool {
        let since = |down: Down| self.frame.is_some_and(|frame| frame > down.since);
        self.carrier == Carrier::Up
            && self.down.is_some_and(since)
            && self.heard_within(now, self.conf.idle_timeout)
    }

    /// Takes a frame's stamp; false when it says nothing new.
    pub(super) fn heard(&mut self, at: Mono) -> bool {
        if self.frame.is_some_and(|frame| at <= frame) {
            return false;
        }
        let gap = self.frame.map(|frame| at.since(frame));
        if self.steady_from.is_none() || gap.is_none_or(|gap| gap > STEADY_GAP) {
            self.steady_from = Some(at);
        }
        self.frame = Some(at);
        true
    }

    /// An answer restarts the idle clock but is not traffic: what was steady is over.
    pub(super) fn restart_clock(&mut self, now: Mono) {
        self.clock = now;
        self.steady_from = None;
    }

    /// Whether it carried steady traffic up to its last frame.
    pub(super) fn steady(&self) -> bool {
        match (self.steady_from, self.frame) {
            (Some(from), Some(frame)) => frame.since(from) >= STEADY_RUN,
            _ => false,
        }
    }

    /// The last frame or answer: where silence is counted from.
    pub(super) fn silent_since(&self) -> Mono {
        self.frame.map_or(self.clock, |frame| frame.max(self.clock))
    }

    /// Whether silence is judged by the fast arithmetic.
    pub(super) fn is_fast(&self) -> bool {
        self.conf.detect == Detect::Fast && self.steady()
    }

    /// When silence becomes a question (MX3).
    pub(super) fn idle_at(&self) -> Mono {
        let limit = if self.is_fast() {
            FAST_IDLE
        } else {
            self.conf.idle_timeout
        };
        self.silent_since() + limit
    }

    /// A series that begins now (MX6).
    pub(super) fn begin(&mut self, now: Mono, cause: Cause) {
        let fast = match cause {
            Cause::Silence => self.is_fast(),
            Cause::Stall => self.conf.detect == Detect::Fast,
            Cause::Proof => false,
        };
        let (heartbeat, timeout) = if fast {
            (FAST_HEARTBEAT, FAST_TIMEOUT)
        } else {
            (self.conf.heartbeat_interval, self.conf.probe_timeout)
        };
        self.series = Some(Series {
            cause,
            began: now,
            sent: 0,
            next: now,
            ends: now + timeout,
            heartbeat,
            told: false,
        });
    }

    /// Begins, or begins anew, to probe for recovery.
    pub(super) fn begin_recovery(&mut self, now: Mono) {
        self.series = None;
        self.recovery = Recovery {
            began: now,
            next: now,
            ..Recovery::default()
        };
    }

    /// When it may be failed back to; `None` while it has not answered often enough.
    pub(super) fn returns_at(&self) -> Option<Mono> {
        let since = self.recovery.since?;
        (self.recovery.row >= FAILBACK_ANSWERS).then(|| since + hold(self.flaps))
    }

    /// The verdict, or evidence that needs none. Flaps of a tunnel that was well for long are
    /// forgotten.
    pub(super) fn fall(&mut self, now: Mono) {
        use super::conf::FLAPS_FORGOTTEN;
        let recent = |at: Mono| now.since(at) < FLAPS_FORGOTTEN;
        self.flaps = match self.recovered {
            Some(at) if recent(at) => self.flaps.saturating_add(1),
            _ => 0,
        };
        self.down = Some(Down { since: now });
        self.series = None;
        self.recovery = Recovery::default();
        self.steady_from = None;
    }

    /// Well again.
    pub(super) fn rise(&mut self, now: Mono) {
        if self.down.take().is_some() {
            self.recovered = Some(now);
        }
    }

    /// The next thing to do for it, by its duty.
    pub(super) fn due(&self) -> Option<(Mono, Reason)> {
        if let Some(series) = &self.series {
            let next = (series.next, Reason::Heartbeat);
            let ends = (series.ends, Reason::Verdict);
            // The verdict goes first: the probe that would go with it could not be waited for.
            return Some(if ends.0 <= next.0 { ends } else { next });
        }
        match self.duty {
            Duty::Rest => None,
            Duty::Watch => Some((self.idle_at(), Reason::Idle)),
            Duty::Recover => {
                let probe = (self.recovery.next, Reason::Recovery);
                let hold = self.returns_at().map(|at| (at, Reason::Hold));
                Some(hold.filter(|hold| *hold < probe).unwrap_or(probe))
            }
            Duty::Rare => Some((self.daily, Reason::Daily)),
        }
    }

    /// When it is probed next, should it stay silent.
    pub(super) fn next_probe(&self) -> Option<Mono> {
        match (&self.series, self.duty) {
            (Some(series), _) if series.next < series.ends => Some(series.next),
            (Some(_), _) | (None, Duty::Rest) => None,
            (None, Duty::Recover) => Some(self.recovery.next),
            (None, Duty::Watch | Duty::Rare) => self.due().map(|(at, _)| at),
        }
    }

    /// The next daily probe.
    pub(super) fn tomorrow(&mut self, now: Mono) {
        self.daily = now + DAILY;
    }
}

/// The rule by which a link's state decides.
pub(super) fn carrier_rule(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Up => "carrier_returned",
        Carrier::Lost => "carrier_lost",
        Carrier::Gone => "interface_gone",
    }
}
