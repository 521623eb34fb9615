//! Time passes, and the machines inside speak: what each of their outputs means here.

use std::time::Duration;

use super::{
    Gateway, Output,
    bindings::OVERDUE,
    context::{Context, Progress},
    deadlines::Deadline,
};
use crate::{
    conf::Policy,
    health::{self, ProbeId},
    net::PathKey,
    seal,
    sip::{Message, Method, originate::Draft},
    steer::TalkId,
    time::Now,
    transaction::{self, AnyId, ClientId},
};

/// How often a binding whose phone is away is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

impl Gateway {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.transactions.handle_timeout(now);
        self.health.handle_timeout(now);
        while let Some(deadline) = self.deadlines.pop_due(now.mono) {
            self.due(now, deadline);
        }
        self.pump(now);
    }

    fn due(&mut self, now: Now, deadline: Deadline) {
        match deadline {
            Deadline::HuntBudget(id) => self.budget_used(now, id),
            Deadline::PhoneSilent(id) => self.phone_silent(now, id),
            Deadline::TimerC(id) => self.give_up(now, id, 408),
            Deadline::Binding(id) => self.binding_due(now, id),
            Deadline::Unserved(listener, peer) => self.unserved(listener, peer),
            Deadline::Offer(listener, to) => self.offer_over(now, listener, to),
            Deadline::Bring => self.bring_due(now),
            Deadline::Keepalive(path) => self.keep_alive_due(now, path),
            Deadline::Silent(id) => self.silence_due(now, id),
            Deadline::Subscription(id) => self.subscription_over(now, id),
            Deadline::Learned(place) => self.learned_due(now, place),
            Deadline::Unanswered(id) => self.unanswered_due(now, TalkId(id)),
            Deadline::Talk(id) => self.talk_due(now, TalkId(id)),
            Deadline::Farewell(number) => self.farewell_due(now, number),
        }
    }

    /// A phone is overdue. Its binding stays as long as it may be trusted in survivability.
    fn binding_due(&mut self, now: Now, id: u64) {
        let Some(binding) = self.bindings.get(id) else {
            return;
        };
        let absent_at = binding.phone_until + OVERDUE;
        if binding.present(now.mono) {
            self.deadlines.set(Deadline::Binding(id), absent_at);
        } else if self.conf.survivability.policy == Policy::Off
            || !binding.known(now.wall, self.conf.registration.known_for)
        {
            self.forget_binding(id);
        } else {
            self.deadlines
                .set(Deadline::Binding(id), now.mono + LOOK_AGAIN);
        }
    }

    /// Carries out what the machines inside ask for, until they are quiet.
    pub(super) fn pump(&mut self, now: Now) {
        self.clock = now;
        loop {
            if let Some(output) = self.transactions.poll_output() {
                self.on_transaction(now, output);
            } else if let Some(output) = self.health.poll_output() {
                self.on_health(now, output);
            } else {
                break;
            }
        }
        self.calm(now);
        self.drain_media();
        self.keep_changes();
    }

    pub(super) fn drain_media(&mut self) {
        while let Some(delta) = self.media.poll_output() {
            self.out.push_back(Output::Steer(delta));
        }
    }

    fn on_transaction(&mut self, now: Now, output: transaction::Output) {
        match output {
            transaction::Output::Send {
                listener,
                to,
                bytes,
            } => self.send(listener, to, bytes),
            transaction::Output::Retransmitted(client) => {
                if let Some(request) = self.branch_of(client).and_then(|branch| branch.health) {
                    self.health.retransmitted(now, request);
                }
            }
            transaction::Output::TimedOut(client) => self.timed_out(now, client),
            transaction::Output::Ended(AnyId::Client(client)) => self.client_ended(client),
            transaction::Output::Ended(AnyId::Server(server)) => {
                if let Some(id) = self.by_server.remove(&server) {
                    if let Some(ctx) = self.contexts.get_mut(&id) {
                        ctx.server_ended = true;
                    }
                    self.retire(id);
                }
            }
        }
    }

    fn branch_of(&self, client: ClientId) -> Option<&super::context::Branch> {
        let (id, index) = self.by_client.get(&client)?;
        self.contexts.get(id)?.branches.get(*index)
    }

    pub(super) fn timed_out(&mut self, now: Now, client: ClientId) {
        let Some(&(id, index)) = self.by_client.get(&client) else {
            return;
        };
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let branch = &mut ctx.branches[index];
        branch.finished = true;
        let (abandoned, to_server) = (branch.abandoned, branch.path.is_some());
        if abandoned || ctx.progress == Progress::Answered {
            return;
        }
        if to_server {
            self.hunt(now, id, index);
        } else {
            self.settle_timed_out(now, id);
        }
    }

    /// A phone that said something and then nothing for a transaction's life.
    fn settle_timed_out(&mut self, now: Now, id: u64) {
        if self
            .contexts
            .get(&id)
            .is_some_and(|ctx| !ctx.has_live_branch() && ctx.best.is_none())
        {
            self.give_up(now, id, 408);
        } else {
            self.settle(now, id);
        }
    }

    fn client_ended(&mut self, client: ClientId) {
        self.probes.remove(&client);
        let Some((id, index)) = self.by_client.remove(&client) else {
            return;
        };
        if let Some(branch) = self
            .contexts
            .get_mut(&id)
            .and_then(|ctx| ctx.branches.get_mut(index))
        {
            branch.finished = true;
            branch.ended = true;
            if let Some(health) = branch.health {
                self.by_health.remove(&health);
            }
        }
        self.retire(id);
    }

    /// Forgets a context that nothing can happen to any more.
    pub(super) fn retire(&mut self, id: u64) {
        if self.contexts.get(&id).is_some_and(Context::is_over) {
            self.contexts.remove(&id);
            for deadline in [
                Deadline::HuntBudget,
                Deadline::TimerC,
                Deadline::PhoneSilent,
            ] {
                self.deadlines.clear(deadline(id));
            }
        }
    }

    fn on_health(&mut self, now: Now, output: health::Output) {
        match output {
            health::Output::Probe { id, path } => self.probe(now, id, path),
            health::Output::Hunt { req, .. } => match self.by_health.get(&req) {
                Some(&(id, index)) => self.hunt(now, id, index),
                None => self.take_over(now, req),
            },
            health::Output::Event(event) => self.out.push_back(Output::Event(event)),
            health::Output::Group { group, state } => self.gate(now, group, state),
            health::Output::ServerDown { path } => {
                self.note_trouble(now, path.link);
                self.server_down(now, path);
                self.talks_up(now, path);
                self.cancel_ringing_of(now, path);
            }
            health::Output::ServerUp { path, .. } => self.note_trouble(now, path.link),
        }
    }

    /// An OPTIONS to a server: sent once, since a lost one is evidence too.
    fn probe(&mut self, now: Now, id: ProbeId, path: PathKey) {
        let Some(listener) = self.conf.listener_to(path) else {
            return;
        };
        let group = &self.conf.groups[usize::from(path.server.group.0)];
        let server = group.health.servers[usize::from(path.server.index)].address;
        // Unpredictable to others, so that an answer proves that the probe was seen.
        let token = |what: &str, salt: u64| {
            let parts = [id.0.to_be_bytes(), salt.to_be_bytes()].concat();
            seal::keyed_hash(&self.conf.secret, what, &[&parts])
        };
        let salt = now
            .wall
            .0
            .as_nanos()
            .to_le_bytes()
            .iter()
            .fold(0, |sum: u64, byte| {
                (sum << 8) ^ (sum >> 56) ^ u64::from(*byte)
            });
        let branch = format!("z9hG4bK{}", token("probe-branch", salt));
        let draft = Draft {
            method: Method::Options,
            uri: format!("sip:{server}"),
            via: self.sent_protocol_and_by(listener),
            branch: branch.clone(),
            from: format!(
                "<sip:{}>;tag={}",
                self.conf.domain,
                token("probe-tag", salt)
            ),
            to: format!("<sip:{server}>"),
            call_id: token("probe-call", salt),
            cseq: 1,
            routes: Vec::new(),
            headers: Vec::new(),
        };
        let bytes = draft.build();
        let Ok(msg) = Message::parse(bytes.clone()) else {
            return;
        };
        let key = self.client_key(&branch, listener, &msg);
        if let Some(client) = self.transactions.start(now, key, bytes, server, listener) {
            if !self.transport(listener).is_stream() {
                self.transactions.stop_retransmitting(now, client);
            }
            self.probes.insert(client, id);
        }
    }

    /// Every binding of a dead server is due: its phone's next refresh finds another one.
    fn server_down(&mut self, now: Now, path: PathKey) {
        self.call_in(now, |binding| binding.server == path.server);
    }
}
