//! STUN on a SIP listener that came up to userspace.

use std::net::SocketAddr;

use super::{Gateway, Output};
use crate::{
    conf::Policy,
    health::GroupState,
    net::{GroupId, ListenerId},
    steer::{Delta, Gate, GateId},
    stun,
    time::Now,
};

impl Gateway {
    pub(super) fn stun(&mut self, now: Now, listener: ListenerId, from: SocketAddr, bytes: &[u8]) {
        self.counters.keepalives += 1;
        if let Some(told) = stun::told(bytes) {
            return self.stun_told(now, listener, from, &told);
        }
        let gate = self.gate_of(listener, from);
        if let Some(answer) = stun::answer(bytes, from, gate) {
            self.send(listener, from, answer);
        }
    }

    /// A group's state changed: its clients are told so from now on.
    pub(super) fn gate(&mut self, now: Now, group: GroupId, state: GroupState) {
        let alone = matches!(state, GroupState::Survivability);
        if let Some(before) = self.alone.get_mut(usize::from(group.0))
            && std::mem::replace(before, alone)
            && !alone
        {
            self.all_due(now, group);
        }
        if let GroupState::Serving { active } = state {
            self.returned_to(now, active.server);
        }
        let state = self.gate_for(state);
        if let Some(gate) = self.gates.get_mut(usize::from(group.0)) {
            *gate = state;
        }
        self.out.push_back(Output::Steer(Delta::GateSet {
            gate: GateId(group.0),
            state,
        }));
    }

    /// What a group's state means for its clients' keepalives.
    fn gate_for(&self, state: GroupState) -> Gate {
        let local = self.conf.survivability.policy != Policy::Off;
        match state {
            GroupState::Serving { .. } => Gate::Serving,
            GroupState::Survivability if local => Gate::Serving,
            GroupState::Survivability if self.conf.keepalive_error => Gate::Error,
            GroupState::Survivability => Gate::Silent,
        }
    }
}
