//! CANCEL, and ending what nobody wants any more.

use std::net::SocketAddr;

use super::{
    Gateway,
    context::{Branch, Context, Kind, Progress},
    deadlines::Deadline,
};
use crate::{
    media::SessionId,
    net::{ListenerId, PathKey, Side},
    seal,
    sip::{self, Message, Method, originate::Draft},
    time::Now,
    transaction::{ClientId, ServerId},
};

impl Gateway {
    /// A CANCEL arrived: it ends all branches and the hunt (487).
    pub(super) fn cancelled(
        &mut self,
        now: Now,
        invite: Option<ServerId>,
        cancel: ServerId,
        msg: &Message,
        from: SocketAddr,
    ) {
        let found = invite.and_then(|invite| self.by_server.get(&invite).copied());
        let code = if found.is_some() { 200 } else { 481 };
        let tag = self.own_tag(msg);
        let bytes = sip::respond(msg, code, sip::reason_phrase(code), Some(&tag), from);
        self.transactions.respond(now, cancel, code, bytes);
        if let Some(id) = found {
            self.give_up(now, id, 487);
        }
    }

    /// Ends a request that waits for its final answer: every branch is cancelled, the sender
    /// gets `code`.
    pub(super) fn give_up(&mut self, now: Now, id: u64, code: u16) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        if ctx.progress == Progress::Answered {
            return;
        }
        ctx.cancelled = true;
        let in_dialog = matches!(ctx.kind, Kind::InDialog { .. });
        let (branches, session) = (ctx.branches.len(), ctx.session);
        for index in 0..branches {
            self.abandon(now, id, index);
        }
        for deadline in [
            Deadline::HuntBudget,
            Deadline::TimerC,
            Deadline::PhoneSilent,
        ] {
            self.deadlines.clear(deadline(id));
        }
        self.answer(now, id, code);
        match session.filter(|_| in_dialog) {
            Some(session) => self.media.offer_refused(now, SessionId(session)),
            None => self.end_attempt(now, id),
        }
        self.drain_media();
    }

    /// A server went down: what it lets ring at phones here is nobody's call any more, and the
    /// other server's attempt must find the phones free (signalling.md section 2).
    pub(super) fn cancel_ringing_of(&mut self, now: Now, path: PathKey) {
        let server = self.server_address(path.server).ip();
        let of_it = |ctx: &&Context| {
            ctx.side == Side::Wan
                && ctx.from.ip() == server
                && self.link(ctx.listener) == path.link
                && matches!(ctx.kind, Kind::ToPhone)
                && ctx.request.method() == Some(Method::Invite)
        };
        let mut ringing: Vec<u64> = (self.contexts.values().filter(of_it))
            .map(|ctx| ctx.id)
            .collect();
        ringing.sort_unstable();
        for id in ringing {
            self.give_up(now, id, 487);
        }
    }

    /// Cancels a branch once; before its first provisional response that must wait (RFC 3261
    /// section 9.1), and [`Gateway::late`] asks again.
    pub(super) fn cancel_branch(&mut self, now: Now, id: u64, index: usize) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let branch = &mut ctx.branches[index];
        if branch.cancelled || branch.finished || branch.sent.method() != Some(Method::Invite) {
            return;
        }
        branch.cancelled = true;
        let branch = branch.clone();
        let bytes = sip::cancel_for(&branch.sent);
        let name = text(branch.sent.branch().unwrap_or_default());
        // A full table costs a ringing phone that stops by itself; nothing waits for this.
        let _ = self.originate(now, (&branch, branch.way), &name, bytes);
    }

    /// Starts a transaction of our own beside a branch, over `way`.
    fn originate(
        &mut self,
        now: Now,
        (branch, way): (&Branch, ListenerId),
        name: &str,
        bytes: Vec<u8>,
    ) -> Option<ClientId> {
        let msg = Message::parse(bytes.clone()).ok()?;
        let key = self.client_key(name, way, &msg);
        self.transactions.start(now, key, bytes, branch.to, way)
    }

    /// A 2xx that nobody wants: it needs its ACK, and then a BYE (RFC 3261 section 13.2.2.4).
    pub(super) fn end_unwanted(&mut self, now: Now, id: u64, index: usize, msg: &Message) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let first = !std::mem::replace(&mut ctx.branches[index].bye_sent, true);
        let branch = ctx.branches[index].clone();
        let Some(mut draft) = self.ack_of(&branch, msg) else {
            return;
        };
        self.send(branch.listener, branch.to, draft.build());
        if first {
            draft.method = Method::Bye;
            draft.cseq = draft.cseq.saturating_add(1);
            draft.branch = self.derived_branch(&branch, "bye");
            let own = (&branch, branch.listener);
            let _ = self.originate(now, own, &draft.branch, draft.build());
        }
    }

    /// Acknowledges a 2xx that comes too late to be told of, in a call that goes on.
    pub(super) fn acknowledge_late(&mut self, id: u64, index: usize, msg: &Message) {
        let branch = self
            .contexts
            .get(&id)
            .map(|ctx| ctx.branches[index].clone());
        if let Some(branch) = branch
            && let Some(draft) = self.ack_of(&branch, msg)
        {
            self.send(branch.listener, branch.to, draft.build());
        }
    }

    fn ack_of(&self, branch: &Branch, msg: &Message) -> Option<Draft> {
        let at = self.sent_protocol_and_by(branch.listener);
        let ack = self.derived_branch(branch, "ack");
        Draft::ack_of_2xx(&branch.sent, msg, &at, &ack)
    }

    fn derived_branch(&self, branch: &Branch, what: &str) -> String {
        let received = branch.sent.branch().unwrap_or_default();
        format!(
            "z9hG4bK{}",
            seal::keyed_hash(&self.conf.secret, what, &[received])
        )
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
