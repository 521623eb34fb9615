//! What `status`, `tunnels` and `explain` show of them.

use keepline_engine::{event::Event, time::Now, tunnel::TunnelView};

use super::Tunnels;
use crate::api::model;

impl Tunnels {
    /// Segments, for `status`.
    #[must_use]
    pub fn segments(&self) -> Vec<model::Segment> {
        let views = self.monitor.segments().into_iter();
        views
            .zip(self.segments.iter().zip(&self.switches))
            .map(|(view, (segment, &switches))| model::Segment {
                interface: segment.interface.clone().unwrap_or_default(),
                active: view.active.map(|id| self.name(id)),
                switches,
            })
            .collect()
    }

    /// Tunnels, for `status` and `tunnels`.
    #[must_use]
    pub fn views(&self, now: Now) -> Vec<model::Tunnel> {
        let views = self.monitor.tunnels(now).into_iter();
        views.map(|view| self.shown(now, &view)).collect()
    }

    fn shown(&self, now: Now, view: &TunnelView) -> model::Tunnel {
        let tunnel = &self.tunnels[usize::from(view.id.0)];
        let segment = self.segments.get(usize::from(view.segment.0));
        // Never heard: since the daemon watches it.
        let silent = view
            .silent
            .unwrap_or_else(|| now.mono.since(view.since.mono));
        model::Tunnel {
            name: tunnel.name.clone(),
            interface: tunnel.interface.clone(),
            state: view.state.name().to_owned(),
            last_inbound_s: silent.as_secs(),
            reason: view.reason.to_owned(),
            segment: segment
                .map(|segment| segment.name(&self.tunnels).to_owned())
                .unwrap_or_default(),
            active: view.active,
            proven: view.proven,
            since: timestamp(view.since),
            next_probe_s: view.next_probe.map(|left| left.as_secs()),
            returns_in_s: view.returns_in.map(|left| left.as_secs()),
            flaps: view.flaps,
        }
    }

    /// Why a tunnel or segment of this name is in its state: name, state, present evidence.
    #[must_use]
    pub fn explain(&self, now: Now, object: &str) -> Option<(String, String, Event)> {
        let views = self.monitor.tunnels(now);
        let named = |view: &&TunnelView| {
            view.name == object || self.tunnels[usize::from(view.id.0)].interface == object
        };
        let segment = || {
            let of = self.monitor.segments();
            let view = of.iter().find(|segment| segment.name == object)?.active?;
            views.iter().find(|tunnel| tunnel.id == view)
        };
        let view = views.iter().find(named).or_else(segment)?;
        let state = view.state.name().to_owned();
        let present = Event {
            at: now,
            kind: "tunnel",
            object: view.name.clone(),
            from: state.clone(),
            to: state.clone(),
            rule: view.reason,
            evidence: view.evidence.clone(),
        };
        Some((view.name.clone(), state, present))
    }
}

fn timestamp(at: Now) -> String {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + at.wall.0).to_string()
}
