//! Which tunnels are alive, and which one a segment uses (features.md MX1 to MX9, signalling.md
//! section 15).
//!
//! Traffic out of a tunnel proves it; only silence is asked about, by a DHCPREQUEST that any
//! server behind it answers with ACK or NAK. The monitor sees stamps of the data path, answers
//! and link changes, and says whom to probe and when to switch.
//!
//! | file | concern |
//! |---|---|
//! | `watch` | the record of a tunnel, the arithmetic of its silence |
//! | `judge` | what is due: probes, the verdict, recovery |
//! | `select` | the tunnel of a segment; who is probed in which place (MX7) |
//! | `stall` | RTP of several calls that went silent together (KL6) |
//! | `view` | everything there is to show |
//! | `identity`, `request`, `answer` | the probe: who asks, what is sent, what counts |

pub mod answer;
pub mod conf;
pub mod identity;
mod judge;
pub mod request;
mod select;
pub mod stall;
mod types;
mod view;
mod watch;

use std::collections::VecDeque;

pub use conf::{Detect, SegmentConf, TunnelConf};
pub use types::{Carrier, Output, Reason, SegmentId, SegmentView, State, TunnelId, TunnelView};

use watch::{Cause, Duty, Watch, carrier_rule};

use crate::{
    event::Event,
    time::{Mono, Now},
};

/// The health of every tunnel, and the choice among those of a segment.
///
/// A pure machine. The driver feeds one input, drains [`Monitor::poll_output`] until `None`,
/// asks [`Monitor::poll_timeout`], and no later than then reads the data path's stamps into
/// [`Monitor::inbound`], takes answers that wait, and calls [`Monitor::handle_timeout`].
#[derive(Debug)]
pub struct Monitor {
    segments: Vec<Segment>,
    tunnels: Vec<Watch>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Segment {
    name: String,
    members: Vec<TunnelId>,
    /// Position of the tunnel in use.
    active: usize,
}

impl Monitor {
    /// Watches the tunnels of these segments, with the links as they are now. Each segment
    /// begins with its first tunnel that has carrier. A tunnel that no segment names, or that an
    /// earlier one has, is ignored there; an empty segment uses nothing.
    #[must_use]
    pub fn new(
        now: Now,
        tunnels: Vec<TunnelConf>,
        segments: Vec<SegmentConf>,
        carriers: &[Carrier],
    ) -> Self {
        let mut places = vec![None; tunnels.len()];
        let mut built = Vec::new();
        for (index, conf) in segments.into_iter().enumerate() {
            let mut members: Vec<TunnelId> = Vec::new();
            for id in conf.tunnels {
                let Some(place @ None) = places.get_mut(usize::from(id.0)) else {
                    continue;
                };
                *place = Some((index, members.len()));
                members.push(id);
            }
            let up = |id: &TunnelId| carriers.get(usize::from(id.0)) == Some(&Carrier::Up);
            built.push(Segment {
                name: conf.name,
                active: members.iter().position(up).unwrap_or(0),
                members,
            });
        }
        let watch = |(index, conf): (usize, TunnelConf)| {
            let carrier = carriers.get(index).copied().unwrap_or(Carrier::Gone);
            // A tunnel of no segment has no duty: its place is never asked for.
            let place = places[index].unwrap_or((usize::MAX, 0));
            Watch::new(now, conf, place, carrier)
        };
        let mut monitor = Self {
            tunnels: tunnels.into_iter().enumerate().map(watch).collect(),
            segments: built,
            outputs: VecDeque::new(),
        };
        for segment in 0..monitor.segments.len() {
            monitor.open(now, segment);
        }
        monitor
    }

    fn open(&mut self, now: Now, segment: usize) {
        let of = &self.segments[segment];
        let Some(&to) = of.members.get(of.active) else {
            return;
        };
        self.outputs.push_back(Output::Activate {
            segment: select::segment_id(segment),
            from: None,
            to,
            rule: "start",
            since: now.mono,
        });
        self.settle(now, segment, now.mono);
    }

    /// A frame came out of the tunnel at `at`, by the data path's stamp; stamps that were given
    /// already say nothing.
    pub fn inbound(&mut self, now: Now, tunnel: TunnelId, at: Mono) {
        let Some(watch) = self.watch(tunnel) else {
            return;
        };
        if !watch.heard(at) {
            return;
        }
        let fell = watch.down.map(|down| down.since);
        if let Some(fell) = fell {
            if at > fell && self.may_revive(tunnel) {
                self.revive(now, tunnel, "inbound_frame", "a frame came out of it");
            }
            return;
        }
        // Any inbound client frame ends probing. A series for proof asks something else.
        let asked = |series: &watch::Series| series.cause != Cause::Proof;
        if let Some(series) = watch.series.filter(asked) {
            watch.series = None;
            let age = now.mono.since(at).as_secs_f64();
            watch.saw(now, format!("a frame came out of it {age:.1} s ago"));
            self.ended(now, tunnel, series, "inbound_frame");
        } else if watch.shown.0 == State::Idle {
            watch.shown = (State::Up, now, "inbound_frame");
        }
    }

    /// A probe of this tunnel was answered, through it, by `server`: with ACK or NAK alike.
    pub fn answered(&mut self, now: Now, tunnel: TunnelId, server: &str) {
        let Some(watch) = self.watch(tunnel) else {
            return;
        };
        if watch.carrier != Carrier::Up {
            return; // it was on its way when the link went
        }
        watch.saw(now, server.to_owned());
        watch.restart_clock(now.mono);
        let first = !std::mem::replace(&mut watch.proven, true);
        let series = watch.series.take();
        if watch.duty == Duty::Recover && std::mem::take(&mut watch.recovery.pending) {
            watch.recovery.row += 1;
            watch.recovery.since.get_or_insert(now.mono);
        }
        if watch.down.is_some() {
            if self.may_revive(tunnel) {
                self.revive(now, tunnel, "probe_answered", "");
                return;
            }
        } else if first {
            self.shift(now, tunnel, "probe_answered");
        } else if let Some(series) = series {
            self.ended(now, tunnel, series, "probe_answered");
        }
        self.settle_of(now, tunnel, now.mono);
    }

    /// The link below a tunnel changed.
    pub fn carrier(&mut self, now: Now, tunnel: TunnelId, carrier: Carrier) {
        let Some(watch) = self.watch(tunnel) else {
            return;
        };
        let before = std::mem::replace(&mut watch.carrier, carrier);
        if before == carrier {
            return;
        }
        watch.saw(now, carrier_rule(carrier).replace('_', " "));
        if carrier == Carrier::Up {
            // Whatever is behind it now has to speak for itself.
            watch.restart_clock(now.mono);
            if !watch.proven {
                watch.rise(now.mono);
            }
        } else if watch.down.is_none() {
            watch.fall(now.mono);
        }
        watch.series = None;
        watch.recovery = watch::Recovery::default();
        watch.duty = Duty::Rest;
        self.shift(now, tunnel, carrier_rule(carrier));
        self.settle_of(now, tunnel, now.mono);
    }

    /// The RTP of `calls` calls through the tunnel went silent together at `at` (KL6): it is
    /// asked at once, before any idle time.
    pub fn stalled(&mut self, now: Now, tunnel: TunnelId, calls: usize, at: Mono) {
        let Some(watch) = self.watch(tunnel) else {
            return;
        };
        let heard_since = watch.frame.is_some_and(|frame| frame > at);
        let asked = watch
            .series
            .is_some_and(|series| series.cause != Cause::Proof);
        if watch.duty != Duty::Watch || watch.down.is_some() || asked || heard_since {
            return;
        }
        let age = now.mono.since(at).as_millis();
        watch.saw(
            now,
            format!("the RTP of {calls} calls stalled together {age} ms ago"),
        );
        watch.begin(now.mono, Cause::Stall);
        self.probe_series(now, tunnel);
    }

    /// The next thing to do or tell; drain it after every input.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Monitor::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Reason)> {
        self.tunnels.iter().filter_map(Watch::due).min()
    }

    /// Active, or standing by below the active one: a sign of life is enough. What stands above
    /// it has to earn its return.
    fn may_revive(&self, tunnel: TunnelId) -> bool {
        let (segment, position) = self.tunnels[usize::from(tunnel.0)].place;
        self.segments
            .get(segment)
            .is_some_and(|of| position >= of.active)
    }

    fn revive(&mut self, now: Now, tunnel: TunnelId, rule: &'static str, what: &str) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        if !what.is_empty() {
            watch.saw(now, what);
        }
        watch.series = None;
        watch.rise(now.mono);
        self.shift(now, tunnel, rule);
        self.settle_of(now, tunnel, now.mono);
    }

    /// A series that asked after the tunnel's life ended well.
    fn ended(&mut self, now: Now, tunnel: TunnelId, series: watch::Series, rule: &'static str) {
        let state = self.tunnels[usize::from(tunnel.0)].state(now.mono);
        if series.told {
            self.shift(now, tunnel, rule);
        } else {
            // Routine: a first probe that was answered is no news, or a quiet night would fill
            // the journal.
            self.tunnels[usize::from(tunnel.0)].shown = (state, now, rule);
        }
    }

    fn watch(&mut self, tunnel: TunnelId) -> Option<&mut Watch> {
        let watch = self.tunnels.get_mut(usize::from(tunnel.0))?;
        (watch.place.0 != usize::MAX).then_some(watch)
    }

    fn settle_of(&mut self, now: Now, tunnel: TunnelId, since: Mono) {
        let segment = self.tunnels[usize::from(tunnel.0)].place.0;
        self.settle(now, segment, since);
    }

    /// Tells that a tunnel's state is another, if it is.
    fn shift(&mut self, now: Now, tunnel: TunnelId, rule: &'static str) {
        let watch = &mut self.tunnels[usize::from(tunnel.0)];
        let (before, to) = (watch.shown.0, watch.state(now.mono));
        if before == to {
            return;
        }
        watch.shown = (to, now, rule);
        let event = Event {
            at: now,
            kind: "tunnel",
            object: watch.conf.name.clone(),
            from: before.name().to_owned(),
            to: to.name().to_owned(),
            rule,
            evidence: watch.evidence(),
        };
        self.outputs.push_back(Output::Event(event));
    }

    fn tell_switch(
        &mut self,
        now: Now,
        segment: String,
        from: TunnelId,
        to: TunnelId,
        rule: &'static str,
    ) {
        let name = |id: TunnelId| self.tunnels[usize::from(id.0)].conf.name.clone();
        let why = match rule {
            "fail_back" => to,
            _ => from,
        };
        let event = Event {
            at: now,
            kind: "segment",
            object: segment,
            from: name(from),
            to: name(to),
            rule,
            evidence: self.tunnels[usize::from(why.0)].evidence(),
        };
        self.outputs.push_back(Output::Event(event));
    }
}
