//! How dialogs begin and end, and the ACK that belongs to no transaction.

use std::net::SocketAddr;

use super::{
    Gateway,
    bodies::sdp_of,
    branches::signalled,
    context::{Branch, Context, Kind},
    deadlines::Deadline,
    dialogs::{Dialog, DialogKey, Leg, MAX_DIALOGS, Party, Phase},
    outgoing::put_uri,
};
use crate::{
    media::SessionId,
    net::{ListenerId, PathKey, Side},
    sip::{Message, Method, Name},
    time::Now,
};

impl Gateway {
    /// What a message that arrived on `side` is recognised by; `None` without both tags. In a
    /// response it is the party of To that speaks.
    pub(super) fn dialog_key(&self, msg: &Message, side: Side) -> Option<DialogKey> {
        let call_id = msg.call_id()?;
        let (from, to) = (msg.from_tag()?.to_vec(), msg.to_tag()?.to_vec());
        let (speaker, listener) = if msg.is_request() {
            (from, to)
        } else {
            (to, from)
        };
        let call_id = match side {
            Side::Lan => call_id.to_vec(),
            Side::Wan => self.topology.call_id(call_id),
        };
        Some(DialogKey {
            call_id,
            speaker,
            listener,
            side,
        })
    }

    /// Creates, confirms or refreshes the dialog a response belongs to.
    pub(super) fn note_dialog(
        &mut self,
        now: Now,
        id: u64,
        index: usize,
        from: SocketAddr,
        msg: &Message,
        code: u16,
    ) -> Option<u64> {
        let ctx = self.contexts.get(&id)?;
        if !(101..300).contains(&code) {
            return None;
        }
        if let Kind::InDialog { dialog, sender } = ctx.kind {
            let method = ctx.request.method();
            if code >= 200
                && let Some(path) = ctx.branches[index].path
            {
                // A server that took a request of the call has it from here on.
                self.move_dialog(dialog, sender.other(), path);
            }
            self.refresh_target(dialog, sender.other(), msg, method, from);
            if code >= 200 && matches!(method, Some(Method::Invite | Method::Update)) {
                self.await_media(now, dialog);
            }
            return Some(dialog);
        }
        if !matches!(
            ctx.request.method(),
            Some(Method::Invite | Method::Subscribe | Method::Refer)
        ) {
            return None;
        }
        let branch = &ctx.branches[index];
        let key = self.dialog_key(msg, self.side(branch.listener))?;
        let phase = if code < 200 {
            Phase::Early
        } else {
            Phase::Confirmed
        };
        if let Some((dialog, _)) = self.dialogs.find(&key) {
            self.confirm(dialog, msg, phase);
            self.await_media(now, dialog);
            return Some(dialog);
        }
        if self.dialogs.len() >= MAX_DIALOGS {
            self.counters.table_full += 1;
            return None;
        }
        let path = branch.path.or_else(|| self.came_by(ctx));
        let dialog = Dialog {
            path,
            ..new_dialog(now, ctx, branch, key, msg, phase)?
        };
        let dialog = self.dialogs.insert(dialog);
        self.contexts.get_mut(&id)?.dialogs.push(dialog);
        self.await_media(now, dialog);
        Some(dialog)
    }

    /// The server that a call for a phone came from, and the link.
    fn came_by(&self, ctx: &Context) -> Option<PathKey> {
        let (_, server) = self
            .group_of_peer(ctx.from)
            .filter(|_| ctx.side == Side::Wan)?;
        let link = self.link(ctx.listener);
        server.map(|server| PathKey { server, link })
    }

    fn confirm(&mut self, dialog: u64, msg: &Message, phase: Phase) {
        let Some(dialog) = self.dialogs.get_mut(dialog) else {
            return;
        };
        if phase == Phase::Confirmed && dialog.phase == Phase::Early {
            dialog.phase = phase;
        }
        if let Some(contact) = msg.contacts().next() {
            dialog.callee.target = msg.slice(contact.uri).to_vec();
        }
    }

    /// The remote target moves with requests and responses that may move it; a phone's address
    /// with everything it says.
    pub(super) fn refresh_target(
        &mut self,
        dialog: u64,
        party: Party,
        msg: &Message,
        method: Option<Method>,
        from: SocketAddr,
    ) {
        let Some(dialog) = self.dialogs.get_mut(dialog) else {
            return;
        };
        let leg = dialog.leg_mut(party);
        if leg.side == Side::Lan {
            leg.peer = from;
        }
        if method.is_some_and(super::outgoing::refreshes_target)
            && let Some(contact) = msg.contacts().next()
        {
            leg.target = msg.slice(contact.uri).to_vec();
        }
    }

    /// Early dialogs of an answered INVITE that were not confirmed.
    pub(super) fn drop_lost_forks(&mut self, id: u64) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        for dialog in std::mem::take(&mut ctx.dialogs) {
            if self
                .dialogs
                .get(dialog)
                .is_some_and(|dialog| dialog.phase == Phase::Early)
            {
                self.dialogs.remove(dialog);
            }
        }
    }

    /// Ends a dialog, and its media unless another fork still uses it. A dialog that a REFER
    /// of the call made a subscription in lives on for its NOTIFYs (RFC 5589 section 7.2).
    pub(super) fn end_dialog(&mut self, now: Now, dialog: u64) {
        let subscribed = |dialog: &Dialog| dialog.session.is_some() && dialog.ends.is_some();
        let session = match self.dialogs.get(dialog).is_some_and(subscribed) {
            true => self.dialogs.end_call(dialog),
            false => self.dialogs.remove(dialog).and_then(|gone| gone.session),
        };
        if let Some(session) = session
            && !self.dialogs.uses(session)
        {
            self.media.close(now, SessionId(session));
            self.drain_media();
        }
        self.deadlines.clear(Deadline::Silent(dialog));
    }

    /// The ACK of a 2xx travels end to end (RFC 3261 section 13.2.2.4).
    pub(super) fn ack(&mut self, now: Now, listener: ListenerId, from: SocketAddr, msg: &Message) {
        let side = self.side(listener);
        let found = self
            .dialog_key(msg, side)
            .and_then(|key| self.dialogs.find(&key));
        let target = found.and_then(|(id, party)| self.dialog_target(id, party.other()));
        let (Some((dialog, party)), Some(target)) = (found, target) else {
            self.counters.stray += 1;
            return;
        };
        let here = self
            .dialogs
            .get(dialog)
            .and_then(|dialog| dialog.leg(party).answered_here);
        if here.is_some() && here == msg.cseq().map(|cseq| cseq.number) {
            self.settle_asked(listener, msg);
            return;
        }
        self.settle_asked(listener, msg);
        let branch = self.branch(msg, &target);
        let body = self.ack_body(now, dialog, party, from, msg);
        let mut edit = self.outgoing(msg, side, &target, &branch);
        for addr in msg.contacts() {
            let party = msg
                .from()
                .map(|from| msg.slice(from.uri).to_vec())
                .unwrap_or_default();
            let contact = self.contact(msg, &addr, (target.side, target.listener), &party, from);
            put_uri(&mut edit, &addr, &contact);
        }
        self.edit_body(&mut edit, msg, (side, self.sight(&target)), body);
        let bytes = edit.finish();
        self.drain_media();
        self.follows(now, (target.listener, target.to), &bytes);
        self.send(target.listener, target.to, bytes);
    }

    /// The answer to an offer that came in the 2xx. One that cannot be anchored goes out as it
    /// came: the parties then hear that there is no media, and end the call.
    fn ack_body(
        &mut self,
        now: Now,
        dialog: u64,
        party: Party,
        from: SocketAddr,
        msg: &Message,
    ) -> Option<Vec<u8>> {
        let dialog = self.dialogs.get_mut(dialog)?;
        let body = sdp_of(msg)?;
        if !std::mem::take(&mut dialog.answer_in_ack) {
            return None;
        }
        let (session, side) = (SessionId(dialog.session?), dialog.leg(party).side);
        self.media
            .answer(now, session, party, signalled(msg, from, side), body)
            .ok()
    }
}

/// The dialog that a response from the callee makes; `key` is what the callee's requests in it
/// are recognised by.
fn new_dialog(
    now: Now,
    ctx: &Context,
    branch: &Branch,
    key: DialogKey,
    msg: &Message,
    phase: Phase,
) -> Option<Dialog> {
    let request = &ctx.request;
    let routes = |msg: &Message| -> Vec<Vec<u8>> {
        msg.addrs(Name::RecordRoute)
            .map(|addr| msg.slice(addr.value).to_vec())
            .collect()
    };
    let caller = Leg {
        side: ctx.side,
        tag: key.listener,
        target: contact(request)?,
        routes: routes(request),
        peer: ctx.from,
        listener: ctx.listener,
        caller_uri: request.slice(request.from()?.uri).to_vec(),
        callee_uri: request.slice(request.to()?.uri).to_vec(),
        said: None,
        told: None,
        answered_here: None,
        cseq: request.cseq().map_or(0, |cseq| cseq.number),
        asked: None,
    };
    let sent = &branch.sent;
    let callee = Leg {
        side: key.side,
        tag: key.speaker,
        // Without a Contact in a provisional response the request's own URI still reaches it.
        target: contact(msg).or_else(|| Some(sent.slice(sent.uri()?).to_vec()))?,
        routes: routes(msg).into_iter().rev().collect(),
        peer: branch.to,
        listener: branch.listener,
        caller_uri: sent.slice(sent.from()?.uri).to_vec(),
        callee_uri: sent.slice(sent.to()?.uri).to_vec(),
        said: None,
        told: None,
        answered_here: None,
        cseq: 0,
        asked: None,
    };
    Some(Dialog {
        id: 0,
        call_id: key.call_id,
        caller,
        callee,
        path: None,
        session: ctx.session,
        answer_in_ack: false,
        phase,
        since: now,
        silent_from: now.mono,
        ends: None,
    })
}

fn contact(msg: &Message) -> Option<Vec<u8>> {
    msg.contacts()
        .next()
        .map(|addr| msg.slice(addr.uri).to_vec())
}
