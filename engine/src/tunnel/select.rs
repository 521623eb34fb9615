//! Which tunnel a segment uses, and what follows for the duty of each (MX7, MX8).

use super::{
    Carrier, Monitor, Output, SegmentId, TunnelId,
    watch::{Cause, Duty, Watch},
};
use crate::time::{Mono, Now};

/// How fit a tunnel is, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fitness {
    /// Not down, and known to answer.
    Proven,
    /// Down, but its last probe was answered: better than what never answered.
    Answering,
    /// Not down as far as one can know.
    Unproven,
    /// Down.
    Down,
    /// Nothing can pass.
    NoCarrier,
}

fn fitness(watch: &Watch) -> Fitness {
    match (watch.carrier, watch.down, watch.proven) {
        (Carrier::Lost | Carrier::Gone, ..) => Fitness::NoCarrier,
        (_, None, true) => Fitness::Proven,
        (_, None, false) => Fitness::Unproven,
        (_, Some(_), _) if watch.recovery.row > 0 => Fitness::Answering,
        (_, Some(_), _) => Fitness::Down,
    }
}

impl Monitor {
    /// Makes the segment use the tunnel it should, then gives every tunnel its duty. `since` is
    /// the first sign of what happened.
    pub(super) fn settle(&mut self, now: Now, segment: usize, since: Mono) {
        if let Some((position, rule)) = self.better(now.mono, segment) {
            self.activate(now, segment, position, rule, since);
        }
        for position in 0..self.segments[segment].members.len() {
            self.give_duty(now, segment, position);
        }
    }

    /// A better tunnel than the active one, and by which rule.
    fn better(&self, now: Mono, segment: usize) -> Option<(usize, &'static str)> {
        let of = &self.segments[segment];
        let watch = |position: usize| &self.tunnels[usize::from(of.members[position].0)];
        let active = fitness(watch(of.active));
        if active >= Fitness::Down {
            // None healthy: it stays, unless another is better than that. A tunnel without
            // carrier is left for any that has it.
            let enough = |fit: Fitness| match active {
                Fitness::NoCarrier => fit < Fitness::NoCarrier,
                _ => fit < Fitness::Down,
            };
            let fit = (0..of.members.len()).map(|position| (fitness(watch(position)), position));
            return fit
                .filter(|(fit, _)| enough(*fit))
                .min()
                .map(|(_, position)| (position, "fail_over"));
        }
        let back = |position: &usize| {
            watch(*position).duty == Duty::Recover
                && watch(*position).returns_at().is_some_and(|at| at <= now)
        };
        (0..of.active)
            .find(back)
            .map(|position| (position, "fail_back"))
    }

    fn activate(
        &mut self,
        now: Now,
        segment: usize,
        position: usize,
        rule: &'static str,
        since: Mono,
    ) {
        let of = &mut self.segments[segment];
        let (from, to) = (of.members[of.active], of.members[position]);
        if from == to {
            return;
        }
        of.active = position;
        let name = of.name.clone();
        let watch = &mut self.tunnels[usize::from(to.0)];
        watch.saw(now, format!("in use by {rule}"));
        if fitness(watch) < Fitness::Down || watch.speaks(now.mono) {
            watch.rise(now.mono);
        }
        self.outputs.push_back(Output::Activate {
            segment: segment_id(segment),
            from: Some(from),
            to,
            rule,
            since,
        });
        self.tell_switch(now, name, from, to, rule);
        self.shift(now, to, rule);
    }

    fn give_duty(&mut self, now: Now, segment: usize, position: usize) {
        let of = &self.segments[segment];
        let id = of.members[position];
        let alone = self.tunnels[usize::from(of.members[of.active].0)]
            .down
            .is_some();
        let active = of.active;
        let watch = &mut self.tunnels[usize::from(id.0)];
        let duty = if watch.carrier != Carrier::Up {
            Duty::Rest
        } else if alone {
            Duty::Recover
        } else if position == active {
            Duty::Watch
        } else if position < active {
            Duty::Recover
        } else if !watch.proven || watch.down.is_some() {
            Duty::Rare
        } else {
            Duty::Rest
        };
        let before = std::mem::replace(&mut watch.duty, duty);
        if before == duty {
            return;
        }
        match duty {
            Duty::Rest => watch.series = None,
            // A series for proof goes on; one that asked whether the active tunnel is dead is
            // nobody's question any more where the tunnel only stands by.
            Duty::Watch => {
                watch.recovery = super::watch::Recovery::default();
                if !watch.proven && before == Duty::Rest {
                    watch.begin(now.mono, Cause::Proof);
                    watch.tomorrow(now.mono);
                }
            }
            Duty::Recover => watch.begin_recovery(now.mono),
            Duty::Rare => {
                watch.series = None;
                watch.recovery = super::watch::Recovery::default();
                if before == Duty::Rest {
                    watch.daily = now.mono;
                } else {
                    watch.tomorrow(now.mono);
                }
            }
        }
    }
}

/// By position.
pub(super) fn segment_id(segment: usize) -> SegmentId {
    SegmentId(u16::try_from(segment).unwrap_or(u16::MAX))
}

/// By position.
pub(super) fn tunnel_id(tunnel: usize) -> TunnelId {
    TunnelId(u16::try_from(tunnel).unwrap_or(u16::MAX))
}
