//! A response arrives: whose it is, and whether it is relayed, hunts its request, or comes too
//! late (signalling.md section 2).

use std::{net::SocketAddr, time::Duration};

use super::{
    Gateway,
    context::{Kind, Progress},
    deadlines::Deadline,
};
use crate::{
    health::Judgement,
    net::ListenerId,
    sip::{Message, Method, Name, seconds},
    time::Now,
    transaction::{ClientId, Received},
};

/// RFC 3261 section 16.6: timer C, which a provisional response restarts.
const TIMER_C: Duration = Duration::from_secs(185);

impl Gateway {
    pub(super) fn response(
        &mut self,
        now: Now,
        listener: ListenerId,
        from: SocketAddr,
        msg: &Message,
    ) {
        let Some((client, received)) = self.transactions.response(now, msg, from) else {
            return self.stray(listener, from, msg);
        };
        let Some(code) = msg.status() else { return };
        if let Some(probe) = self.probes.get(&client) {
            if code >= 200 {
                self.health
                    .probe_received(now, *probe, code, retry_after(msg));
            }
            return;
        }
        match received {
            Received::Retransmitted => {}
            Received::Provisional | Received::Final => {
                self.branch_response(now, client, from, msg, code)
            }
        }
    }

    fn branch_response(
        &mut self,
        now: Now,
        client: ClientId,
        from: SocketAddr,
        msg: &Message,
        code: u16,
    ) {
        let Some(&(id, index)) = self.by_client.get(&client) else {
            return;
        };
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let rang =
            ctx.progress == Progress::Ringing(index) || matches!(ctx.kind, Kind::InDialog { .. });
        let branch = &mut ctx.branches[index];
        branch.provisional = true;
        branch.finished |= code >= 200;
        let (abandoned, health) = (branch.abandoned, branch.health);
        if abandoned {
            return self.late(now, id, index, msg, code);
        }
        let judgement = match health {
            Some(request) => self
                .health
                .received(now, request, code, retry_after(msg), rang),
            None => Judgement::Relay,
        };
        match judgement {
            // With no other server left the response is the best there is.
            Judgement::Hunt(_) if self.next_path(now, id).is_some() => self.hunt(now, id, index),
            Judgement::Hunt(_) | Judgement::Relay => self.live(now, id, index, from, msg, code),
        }
        self.retire(id);
    }

    /// A response of a branch that still counts.
    fn live(
        &mut self,
        now: Now,
        id: u64,
        index: usize,
        from: SocketAddr,
        msg: &Message,
        code: u16,
    ) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let invite = ctx.request.method() == Some(Method::Invite);
        match code {
            100 => {}
            101..=199 => {
                if invite {
                    self.deadlines.set(Deadline::TimerC(id), now.mono + TIMER_C);
                }
                self.relay(now, id, index, from, msg, code);
            }
            300.. if self.others_ring(id, index) => self.keep_best(now, id, index, msg, code),
            _ => {
                if let Some((dialog, sender)) = self.refused_by_another(id, index, code) {
                    return self.server_gone(now, id, dialog, sender);
                }
                self.deadlines.clear(Deadline::TimerC(id));
                self.deadlines.clear(Deadline::HuntBudget(id));
                self.deadlines.clear(Deadline::PhoneSilent(id));
                if invite && code < 300 {
                    self.end_other_forks(now, id, index);
                }
                self.relay(now, id, index, from, msg, code);
                self.note_subscription(now, id, msg, code);
                self.after_final(now, id, code);
            }
        }
    }

    /// What a final answer means beyond being relayed.
    fn after_final(&mut self, now: Now, id: u64, code: u16) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let (method, session, kind) = (ctx.request.method(), ctx.session, ctx.kind.clone());
        match (method, kind) {
            // RFC 3311 section 5.1: a refused UPDATE changes nothing either.
            (Some(Method::Invite | Method::Update), Kind::InDialog { .. }) => {
                if code >= 300
                    && let Some(session) = session
                {
                    self.media
                        .offer_refused(now, crate::media::SessionId(session));
                }
            }
            (Some(Method::Invite), _) if code >= 300 => self.end_attempt(now, id),
            (Some(Method::Invite), _) => self.drop_lost_forks(id),
            (Some(Method::Bye), Kind::InDialog { dialog, .. }) if code != 401 && code != 407 => {
                self.end_dialog(now, dialog);
            }
            _ => {}
        }
        self.drain_media();
    }

    /// The call attempt failed: its early dialogs and its media go.
    pub(super) fn end_attempt(&mut self, now: Now, id: u64) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let (dialogs, session) = (std::mem::take(&mut ctx.dialogs), ctx.session.take());
        for dialog in dialogs {
            self.dialogs.remove(dialog);
        }
        if let Some(session) = session {
            self.media.close(now, crate::media::SessionId(session));
        }
        self.drain_media();
    }
}

/// Retry-After in seconds; a comment or parameters may follow (RFC 3261 section 20.33).
pub(super) fn retry_after(msg: &Message) -> Option<Duration> {
    let value = msg.slice(msg.header(Name::RetryAfter)?);
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    seconds(&value[..digits]).map(|secs| Duration::from_secs(u64::from(secs)))
}
