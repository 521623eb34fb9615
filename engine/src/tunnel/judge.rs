//! What is due: probes, the verdict, recovery (MX3, MX6).

use super::{
    Monitor, Output, Reason, TunnelId,
    select::tunnel_id,
    watch::{Cause, Duty, Series},
};
use crate::{event::Event, time::Now};

impl Monitor {
    /// Does what is due. Feed the stamps of the data path first: silence that is none must not
    /// be asked about.
    pub fn handle_timeout(&mut self, now: Now) {
        for index in 0..self.tunnels.len() {
            // Each step moves what is due; the bound only guards against a fault in that.
            for _ in 0..8 {
                match self.tunnels[index].due() {
                    Some((at, reason)) if at <= now.mono => {
                        self.step(now, tunnel_id(index), reason);
                    }
                    _ => break,
                }
            }
        }
    }

    fn step(&mut self, now: Now, tunnel: TunnelId, reason: Reason) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        match reason {
            Reason::Idle => {
                let silent = now.mono.since(watch.silent_since()).as_secs_f64();
                watch.saw(now, format!("silent for {silent:.1} s"));
                watch.begin(now.mono, Cause::Silence);
                self.probe_series(now, tunnel);
            }
            Reason::Heartbeat | Reason::Verdict => self.series_due(now, tunnel, reason),
            Reason::Recovery => self.probe_recovery(now, tunnel),
            Reason::Hold => {
                let since = watch.recovery.since.unwrap_or(now.mono);
                self.settle_of(now, tunnel, since);
            }
            Reason::Daily => {
                watch.begin(now.mono, Cause::Proof);
                watch.tomorrow(now.mono);
                self.probe_series(now, tunnel);
            }
        }
    }

    fn series_due(&mut self, now: Now, tunnel: TunnelId, reason: Reason) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        let Some(series) = watch.series else { return };
        let due = if reason == Reason::Verdict {
            series.ends
        } else {
            series.next
        };
        if now.mono.since(due) >= series.heartbeat {
            // The gateway itself was not awake: probes it did not send, and answers it did not
            // take, prove nothing.
            watch.saw(now, "probing begins anew: the gateway woke late");
            watch.begin(now.mono, series.cause);
            self.probe_series(now, tunnel);
        } else if reason == Reason::Heartbeat {
            self.probe_series(now, tunnel);
        } else {
            self.unanswered(now, tunnel, series);
        }
    }

    /// Sends the next probe of the series.
    pub(super) fn probe_series(&mut self, now: Now, tunnel: TunnelId) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        let Some(series) = &mut watch.series else {
            return;
        };
        let late = series.sent > 0 && series.cause != Cause::Proof;
        series.sent += 1;
        series.next += series.heartbeat;
        series.told |= late;
        let (sent, secs) = (series.sent, now.mono.since(series.began).as_secs());
        let first = sent == 1 && series.cause != Cause::Proof;
        let cause = series.cause;
        if sent > 1 {
            let heartbeat = series.heartbeat.as_secs_f64();
            watch.saw(
                now,
                format!("probe {} unanswered for {heartbeat:.1} s", sent - 1),
            );
        }
        if first && watch.proven {
            watch.shown = (watch.state(now.mono), now, rule(cause));
        }
        self.outputs.push_back(Output::Probe {
            tunnel,
            // Rising, even where probes are less than a second apart.
            secs: u16::try_from(secs.max(u64::from(sent - 1))).unwrap_or(u16::MAX),
            fresh: sent == 1,
        });
        if late && sent == 2 && self.tunnels[usize::from(tunnel.0)].proven {
            self.tell_probing(now, tunnel, rule(cause));
        }
    }

    /// Told at the first unanswered probe, not at the first one sent.
    fn tell_probing(&mut self, now: Now, tunnel: TunnelId, rule: &'static str) {
        let watch = &self.tunnels[usize::from(tunnel.0)];
        self.outputs.push_back(Output::Event(Event {
            at: now,
            kind: "tunnel",
            object: watch.conf.name.clone(),
            from: "idle".to_owned(),
            to: "probing".to_owned(),
            rule,
            evidence: watch.evidence(),
        }));
    }

    /// The series ended without an answer.
    fn unanswered(&mut self, now: Now, tunnel: TunnelId, series: Series) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        watch.series = None;
        let took = now.mono.since(series.began).as_secs_f64();
        let sent = series.sent;
        watch.saw(now, format!("{sent} probes unanswered within {took:.1} s"));
        if watch.proven && series.cause != Cause::Proof {
            let since = watch.silent_since();
            watch.fall(now.mono);
            self.shift(now, tunnel, "probes_unanswered");
            self.settle_of(now, tunnel, since);
            return;
        }
        // Unproven: silence says nothing, the next question comes after the next idle time. Of
        // one that stands by and was proven once, the daily probe will tell.
        watch.restart_clock(now.mono);
        if series.cause == Cause::Proof {
            let state = watch.state(now.mono).name().to_owned();
            let rule = if watch.proven {
                "probes_unanswered"
            } else {
                "never_answered"
            };
            let event = Event {
                at: now,
                kind: "tunnel",
                object: watch.conf.name.clone(),
                from: state.clone(),
                to: state,
                rule,
                evidence: watch.evidence(),
            };
            self.outputs.push_back(Output::Event(event));
        }
    }

    fn probe_recovery(&mut self, now: Now, tunnel: TunnelId) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        debug_assert_eq!(watch.duty, Duty::Recover);
        let recovery = &mut watch.recovery;
        if std::mem::replace(&mut recovery.pending, true) {
            // A miss ends the row.
            let row = std::mem::take(&mut recovery.row);
            recovery.since = None;
            recovery.began = if row > 0 { now.mono } else { recovery.began };
            if row > 0 {
                watch.saw(now, format!("a probe unanswered after {row} answers"));
            }
        }
        let heartbeat = watch.conf.heartbeat_interval;
        let recovery = &mut watch.recovery;
        let since = if recovery.row > 0 {
            now.mono
        } else {
            recovery.began
        };
        recovery.next = now.mono + heartbeat;
        let secs = now.mono.since(since).as_secs();
        self.outputs.push_back(Output::Probe {
            tunnel,
            secs: u16::try_from(secs).unwrap_or(u16::MAX),
            fresh: true,
        });
    }
}

fn rule(cause: Cause) -> &'static str {
    match cause {
        Cause::Silence => "idle_timeout",
        Cause::Stall => "rtp_stalled",
        Cause::Proof => "proof",
    }
}
