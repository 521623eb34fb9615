//! Phones on streams are brought at once when their registrations are due (signalling.md section
//! 4): they would refresh minutes later, so their connections are closed, and they connect and
//! register anew. No more of them a second than `recovery_register_rate` lets go upstream.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use super::{Gateway, Output, bindings::Binding, context::Context, deadlines::Deadline};
use crate::{
    net::{ListenerId, Side},
    time::Now,
};

/// How soon the next ones are brought.
const STEP: Duration = Duration::from_millis(100);
/// How soon is looked whether a phone that was busy is free.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bindings whose phones shall come, in this order.
#[derive(Debug, Default)]
pub(super) struct Bring {
    waiting: VecDeque<u64>,
}

impl Gateway {
    /// The next refresh of those that `wanted` picks goes upstream, and who would wait for long
    /// until then is brought.
    pub(super) fn call_in(&mut self, now: Now, wanted: impl Fn(&Binding) -> bool) {
        self.bindings.mark_due(&wanted);
        let known: HashSet<u64> = self.bring.waiting.iter().copied().collect();
        let bindings = self.bindings.iter().filter(|(id, binding)| {
            wanted(binding)
                && !known.contains(id)
                && self.is_connected(binding.listener, binding.source)
        });
        let mut more: Vec<u64> = bindings.map(|(id, _)| id).collect();
        more.sort_unstable();
        self.bring.waiting.extend(more);
        if !self.bring.waiting.is_empty() && !self.deadlines.is_set(Deadline::Bring) {
            self.deadlines.set(Deadline::Bring, now.mono + STEP);
        }
    }

    /// Closes as many connections as may register anew now.
    pub(super) fn bring_due(&mut self, now: Now) {
        let busy = self.busy_connections();
        let rate = self.conf.survivability.recovery_register_rate;
        let mut paced = false;
        for id in std::mem::take(&mut self.bring.waiting) {
            let Some(at) = self.absent_soon(id) else {
                continue;
            };
            paced = paced || (!busy.contains(&at) && !self.release.take(now.mono, rate));
            match paced || busy.contains(&at) {
                true => self.bring.waiting.push_back(id),
                false => self.bring(now, at),
            }
        }
        if !self.bring.waiting.is_empty() {
            let wait = if paced { STEP } else { LOOK_AGAIN };
            self.deadlines.set(Deadline::Bring, now.mono + wait);
        }
    }

    /// The connection of a binding that is still due. While no server is left nothing is gained:
    /// the return of one is what brings the phones then.
    fn absent_soon(&self, id: u64) -> Option<(ListenerId, SocketAddr)> {
        let binding = self.bindings.get(id).filter(|binding| binding.due)?;
        let alone = self.alone.get(usize::from(binding.group.0)).copied();
        let at = (binding.listener, binding.source);
        (alone == Some(false) && self.connected.contains(&at)).then_some(at)
    }

    /// What its phones say when they are back is not held back once more.
    fn bring(&mut self, now: Now, (listener, peer): (ListenerId, SocketAddr)) {
        let there = |binding: &Binding| (binding.listener, binding.source) == (listener, peer);
        let bindings = self.bindings.iter().filter(|(_, binding)| there(binding));
        let ids: Vec<u64> = bindings.map(|(id, _)| id).collect();
        for id in ids {
            if let Some(binding) = self.bindings.get_mut(id) {
                binding.challenged = Some(now.mono);
            }
        }
        self.connected.remove(&(listener, peer));
        self.out.push_back(Output::Close { listener, peer });
    }

    /// Connections of phones that ask or are asked something, or are in a call: theirs would be
    /// cut off, or its next request late.
    fn busy_connections(&self) -> HashSet<(ListenerId, SocketAddr)> {
        let mut busy = HashSet::new();
        for ctx in self.contexts.values() {
            if !ctx.server_ended {
                busy.insert((ctx.listener, ctx.from));
            }
            let open = |ctx: &Context| {
                let live = ctx.branches.iter().filter(|branch| !branch.ended);
                live.map(|branch| (branch.way, branch.to))
                    .collect::<Vec<_>>()
            };
            busy.extend(open(ctx));
        }
        for dialog in self.dialogs.iter() {
            let legs = [&dialog.caller, &dialog.callee].into_iter();
            let phones = legs.filter(|leg| leg.side == Side::Lan);
            busy.extend(phones.map(|leg| (leg.listener, leg.peer)));
        }
        busy
    }
}
