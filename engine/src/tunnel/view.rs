//! Everything there is to show of segments and tunnels.

use super::{
    Monitor, SegmentView, TunnelId, TunnelView,
    conf::hold,
    select::{segment_id, tunnel_id},
    watch::Duty,
};
use crate::time::{Mono, Now};

impl Monitor {
    /// All segments.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentView> {
        let view = |(index, of): (usize, &super::Segment)| SegmentView {
            id: segment_id(index),
            name: of.name.clone(),
            active: of.members.get(of.active).copied(),
        };
        self.segments.iter().enumerate().map(view).collect()
    }

    /// All tunnels.
    #[must_use]
    pub fn tunnels(&self, now: Now) -> Vec<TunnelView> {
        let ids = (0..self.tunnels.len()).map(tunnel_id);
        ids.map(|id| self.tunnel(now, id)).collect()
    }

    fn tunnel(&self, now: Now, id: TunnelId) -> TunnelView {
        let watch = &self.tunnels[usize::from(id.0)];
        let (segment, position) = watch.place;
        let active = self
            .segments
            .get(segment)
            .is_some_and(|of| of.active == position);
        let state = watch.state(now.mono);
        let (_, since, reason) = watch.shown;
        let recovering = watch.duty == Duty::Recover;
        let held = |from: Mono| (from + hold(watch.flaps)).since(now.mono);
        TunnelView {
            id,
            name: watch.conf.name.clone(),
            segment: segment_id(segment),
            active,
            state,
            since,
            reason,
            proven: watch.proven,
            silent: watch.frame.map(|frame| now.mono.since(frame)),
            next_probe: watch.next_probe().map(|at| at.since(now.mono)),
            answers: if recovering { watch.recovery.row } else { 0 },
            returns_in: watch.recovery.since.filter(|_| recovering).map(held),
            flaps: watch.flaps,
            evidence: watch.evidence(),
        }
    }
}
