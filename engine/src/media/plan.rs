//! From sessions to flows: where each port's packets go, through hairpins.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{
    DropReason, Leg, Media, Seen, SessionId,
    session::{Part, Slot},
    source::Match,
};
use crate::{
    net::LinkId,
    sdp::Ice,
    steer::{Delta, Flow, FlowId, FlowKind},
    time::Now,
};

/// Times a call may pass the gateway: each passage is one hairpin.
const MAX_PASSAGES: usize = 8;
/// Sessions that one change may touch through hairpins.
const MAX_TOUCHED: usize = 32;

impl Media {
    /// A datagram arrived on the media socket `local`: decides where it goes, and learns.
    pub fn source_seen(&mut self, now: Now, local: SocketAddr, from: SocketAddr) -> Seen {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let Some(&slot) = self.locals.get(&local) else {
            return Seen::Drop(DropReason::NoSession);
        };
        let Some(end) = self.end_mut(slot) else {
            return Seen::Drop(DropReason::NoSession);
        };
        if end.source(slot.part).accepted().is_none() {
            end.before_lock = end.before_lock.saturating_add(1);
        }
        match end.source_mut(slot.part).seen(now.mono, from) {
            Match::Foreign => return Seen::Drop(DropReason::ForeignSource),
            Match::Learned => {
                self.changed.insert(slot.session);
                self.replan(slot.session);
            }
            Match::Accepted => {}
        }
        if let Some(state) = self.sessions.get_mut(&slot.session) {
            state.heard = Some(now.mono);
        }
        let flow = self.flow_id(slot).and_then(|id| self.flows.get(&id));
        let relay = flow.and_then(|(_, flow)| {
            Some(Seen::Relay {
                from: self.local(flow.egress, flow.from_port)?,
                to: flow.to,
            })
        });
        relay.unwrap_or(Seen::Drop(DropReason::NoDestination))
    }

    /// Brings the flows of a session, and of those it hairpins with, up to date.
    pub(super) fn replan(&mut self, session: SessionId) {
        for session in self.touched(session) {
            for (id, wanted) in self.wanted(session) {
                self.put(session, id, wanted);
            }
        }
    }

    /// Takes all flows of these away.
    pub(super) fn clear_flows(&mut self, ids: impl IntoIterator<Item = FlowId>) {
        for id in ids {
            if self.flows.remove(&id).is_some() {
                self.outputs.push_back(Delta::FlowClear(id));
            }
        }
    }

    /// The session and every other that its media passes through.
    pub(super) fn touched(&self, session: SessionId) -> BTreeSet<SessionId> {
        let mut all = BTreeSet::from([session]);
        let mut next = vec![session];
        while let Some(session) = next.pop().filter(|_| all.len() < MAX_TOUCHED) {
            let beside = self.hairpins.get(&session).into_iter().flatten();
            next.extend(beside.copied().filter(|&other| all.insert(other)));
        }
        all
    }

    /// Notes anew which sessions this one's remote parties are.
    pub(super) fn link_hairpins(&mut self, session: SessionId) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let remotes = state
            .streams
            .iter()
            .flat_map(|s| &s.ends)
            .filter_map(|end| end.remote);
        let through: BTreeSet<_> = remotes
            .filter_map(|remote| remote.rtp.declared)
            .filter_map(|at| self.locals.get(&at))
            .map(|slot| slot.session)
            .filter(|&other| other != session)
            .collect();
        for other in through {
            self.hairpins.entry(session).or_default().insert(other);
            self.hairpins.entry(other).or_default().insert(session);
        }
    }

    pub(super) fn unlink_hairpins(&mut self, session: SessionId) {
        for other in self.hairpins.remove(&session).unwrap_or_default() {
            if let Some(beside) = self.hairpins.get_mut(&other) {
                beside.remove(&session);
                if beside.is_empty() {
                    self.hairpins.remove(&other);
                }
            }
        }
    }

    fn put(&mut self, session: SessionId, id: FlowId, wanted: Option<Flow>) {
        match wanted {
            None => self.clear_flows([id]),
            Some(flow) => {
                let before = self.flows.insert(id, (session, flow));
                if before.is_none_or(|(_, before)| before != flow) {
                    self.outputs.push_back(Delta::FlowSet(flow));
                }
            }
        }
    }

    fn wanted(&self, session: SessionId) -> Vec<(FlowId, Option<Flow>)> {
        let Some(state) = self.sessions.get(&session) else {
            return Vec::new();
        };
        let legs = |stream| [Leg::Caller, Leg::Callee].map(|leg| (stream, leg));
        (0..state.streams.len())
            .flat_map(legs)
            .flat_map(|(stream, leg)| {
                Part::BOTH.map(|part| Slot {
                    session,
                    stream,
                    leg,
                    part,
                })
            })
            .filter_map(|slot| Some((self.flow_id(slot)?, self.flow(slot))))
            .collect()
    }

    /// The flow of packets that arrive at this port, if they may and can be forwarded.
    fn flow(&self, slot: Slot) -> Option<Flow> {
        let stream = self.sessions.get(&slot.session)?.streams.get(slot.stream)?;
        let kind = match stream.kind(slot.part)? {
            FlowKind::Rtp | FlowKind::Rtcp if self.conf.ice == Ice::Relay => FlowKind::Checked,
            kind => kind,
        };
        let end = &stream.ends[slot.leg as usize];
        let source = end.source(slot.part).accepted()?;
        if self.is_ours(source.ip()) {
            return None;
        }
        let ingress = self.link_of(slot)?;
        let (sink, to) = self.sink(slot)?;
        let egress = self.link_of(sink)?;
        Some(Flow {
            id: self.flow_id(slot)?,
            kind,
            ingress,
            local: self.local(ingress, slot.part.of(end.port?))?,
            source,
            egress,
            from_port: slot.part.of(self.end(sink)?.port?),
            to,
        })
    }

    /// The far end: the opposite leg's party, or, where that is a media port of this gateway,
    /// the party beyond it. So each packet is rewritten once, however often its call passes.
    fn sink(&self, slot: Slot) -> Option<(Slot, SocketAddr)> {
        let mut at = slot.opposite();
        for _ in 0..MAX_PASSAGES {
            let to = self.destination(at)?;
            if !self.is_ours(to.ip()) {
                return Some((at, to));
            }
            at = self.locals.get(&to)?.opposite();
        }
        None
    }

    /// Where this leg's party wants its packets.
    fn destination(&self, slot: Slot) -> Option<SocketAddr> {
        let stream = self.sessions.get(&slot.session)?.streams.get(slot.stream)?;
        if stream.disabled {
            return None;
        }
        let end = &stream.ends[slot.leg as usize];
        let remote = end.remote.as_ref()?;
        let target = match slot.part {
            Part::Rtp => &remote.rtp,
            Part::Rtcp => &remote.rtcp,
        };
        if target.hold {
            return None;
        }
        let declared = target.declared.filter(|_| target.reachable);
        end.source(slot.part).learned().or(declared)
    }

    fn link_of(&self, slot: Slot) -> Option<LinkId> {
        Some(self.sessions.get(&slot.session)?.side(slot.leg).link)
    }

    fn flow_id(&self, slot: Slot) -> Option<FlowId> {
        Some(self.end(slot)?.flows[slot.part as usize])
    }
}

impl Slot {
    fn opposite(self) -> Self {
        Self {
            leg: self.leg.other(),
            ..self
        }
    }
}
