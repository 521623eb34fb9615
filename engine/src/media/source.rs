//! Which source one port accepts, and how it is learned (signalling.md section 7).

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::record::{SourceRecord, WindowRecord};
use crate::time::{Mono, Now};

/// How long a re-offer lets a settled source change.
const RELEARN: Duration = Duration::from_secs(2);

/// What an SDP body, and where it came from, say of one port of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// As declared; `None` on hold, for a host name, and where there is no such port.
    pub(super) declared: Option<SocketAddr>,
    /// It can be sent to before anything was learned.
    pub(super) reachable: bool,
    /// Its packets come from the declared address: there is nothing to learn.
    pub(super) certain: bool,
    /// On hold: nothing new is said of the source.
    pub(super) hold: bool,
    /// The addresses a source may be learned from.
    pub(super) eligible: [Option<IpAddr>; 2],
}

/// The accepted source of one of our ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Source {
    accepted: Option<SocketAddr>,
    learned: bool,
    declared: Option<SocketAddr>,
    eligible: [Option<IpAddr>; 2],
    window: Window,
    /// The source before the party moved: its late packets teach nothing.
    not: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Window {
    #[default]
    Closed,
    /// Until the first packet.
    First,
    /// For another source than the accepted one, until then.
    Until(Mono),
}

/// What a packet's source means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// It is the accepted one.
    Accepted,
    /// It is the accepted one from now on.
    Learned,
    /// It never matches.
    Foreign,
}

impl Source {
    /// The source after an offer/answer exchange said `target` of the party.
    pub(super) fn renewed(self, now: Mono, target: &Target) -> Self {
        if target.hold {
            return self;
        }
        let base = Self {
            declared: target.declared,
            eligible: target.eligible,
            ..Self::default()
        };
        if target.certain {
            return Self {
                accepted: target.declared,
                ..base
            };
        }
        if self.accepted.is_some() && self.declared == target.declared {
            let window = Window::Until(now + RELEARN);
            return Self {
                accepted: self.accepted,
                learned: self.learned,
                window,
                ..base
            };
        }
        Self {
            window: Window::First,
            not: self.accepted,
            ..base
        }
    }

    /// One new learning of the same party: our own address changed, and with it maybe a NAT's.
    pub(super) fn reopened(self, now: Mono) -> Self {
        match self.window {
            Window::Closed if self.learned => Self {
                window: Window::Until(now + RELEARN),
                ..self
            },
            _ => self,
        }
    }

    pub(super) fn accepted(&self) -> Option<SocketAddr> {
        self.accepted
    }

    pub(super) fn save(&self, now: Now) -> SourceRecord {
        SourceRecord {
            accepted: self.accepted,
            learned: self.learned,
            declared: self.declared,
            eligible: self.eligible,
            window: match self.window {
                Window::Closed => WindowRecord::Closed,
                Window::First => WindowRecord::First,
                Window::Until(end) => WindowRecord::Until(now.wall_at(end)),
            },
            not: self.not,
        }
    }

    pub(super) fn load(now: Now, record: &SourceRecord) -> Self {
        Self {
            accepted: record.accepted,
            learned: record.learned,
            declared: record.declared,
            eligible: record.eligible,
            window: match record.window {
                WindowRecord::Closed => Window::Closed,
                WindowRecord::First => Window::First,
                // A clock that went back must not hold a window open.
                WindowRecord::Until(end) => Window::Until(now.mono_at(end).min(now.mono + RELEARN)),
            },
            not: record.not,
        }
    }

    /// Where packets for the party go, if they come from here.
    pub(super) fn learned(&self) -> Option<SocketAddr> {
        self.accepted.filter(|_| self.learned)
    }

    pub(super) fn seen(&mut self, now: Mono, from: SocketAddr) -> Match {
        if self.accepted == Some(from) {
            return Match::Accepted;
        }
        let open = match self.window {
            Window::Closed => false,
            Window::First => true,
            Window::Until(end) => now < end,
        };
        let eligible = self.eligible.contains(&Some(from.ip())) && self.not != Some(from);
        if !open || !eligible {
            return Match::Foreign;
        }
        *self = Self {
            accepted: Some(from),
            learned: true,
            window: Window::Closed,
            ..*self
        };
        Match::Learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn target(declared: &str) -> Target {
        let declared = addr(declared);
        Target {
            declared: Some(declared),
            reachable: true,
            certain: false,
            hold: false,
            eligible: [Some(declared.ip()), None],
        }
    }

    #[test]
    fn the_first_packet_of_an_eligible_address_locks_and_another_never_matches() {
        let mut source = Source::default().renewed(at(0), &target("192.0.2.7:4000"));
        assert_eq!(source.seen(at(1), addr("203.0.113.9:4000")), Match::Foreign);
        assert_eq!(
            source.seen(at(9_000), addr("192.0.2.7:4444")),
            Match::Learned
        );
        assert_eq!(
            source.seen(at(9_001), addr("192.0.2.7:4000")),
            Match::Foreign
        );
        assert_eq!(
            source.seen(at(9_001), addr("192.0.2.7:4444")),
            Match::Accepted
        );
    }

    #[test]
    fn a_certain_source_is_never_learned() {
        let certain = Target {
            certain: true,
            ..target("192.0.2.7:4000")
        };
        let mut source = Source::default().renewed(at(0), &certain);
        assert_eq!(source.seen(at(1), addr("192.0.2.7:4001")), Match::Foreign);
        assert_eq!(source.accepted(), Some(addr("192.0.2.7:4000")));
        assert_eq!(source.learned(), None);
    }

    #[test]
    fn case_m5_a_new_source_needs_a_re_offer_and_gets_one_learning_of_two_seconds() {
        let offer = target("192.0.2.7:4000");
        let mut source = Source::default().renewed(at(0), &offer);
        assert_eq!(source.seen(at(1), addr("192.0.2.7:4000")), Match::Learned);
        assert_eq!(source.seen(at(2), addr("192.0.2.7:5000")), Match::Foreign);

        let mut late = source.renewed(at(1_000), &offer);
        assert_eq!(late.seen(at(3_000), addr("192.0.2.7:5000")), Match::Foreign);
        let mut soon = source.renewed(at(1_000), &offer);
        assert_eq!(soon.seen(at(2_999), addr("192.0.2.7:5000")), Match::Learned);
        assert_eq!(soon.seen(at(2_999), addr("192.0.2.7:6000")), Match::Foreign);
    }

    #[test]
    fn case_m1_a_late_packet_of_the_old_port_teaches_nothing() {
        let mut source = Source::default().renewed(at(0), &target("192.0.2.7:34150"));
        assert_eq!(source.seen(at(1), addr("192.0.2.7:34150")), Match::Learned);
        let mut moved = source.renewed(at(1_000), &target("192.0.2.7:30840"));
        assert_eq!(
            moved.seen(at(1_010), addr("192.0.2.7:34150")),
            Match::Foreign
        );
        assert_eq!(
            moved.seen(at(1_020), addr("192.0.2.7:30840")),
            Match::Learned
        );
        assert_eq!(
            moved.seen(at(1_030), addr("192.0.2.7:34150")),
            Match::Foreign
        );
    }

    #[test]
    fn hold_keeps_the_source() {
        let mut source = Source::default().renewed(at(0), &target("192.0.2.7:4000"));
        assert_eq!(source.seen(at(1), addr("192.0.2.7:4000")), Match::Learned);
        let hold = Target {
            declared: None,
            hold: true,
            ..target("192.0.2.7:4000")
        };
        assert_eq!(source.renewed(at(5), &hold), source);
    }
}
