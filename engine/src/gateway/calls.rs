//! How dialogs begin and end, and the ACK that belongs to no transaction.

use std::net::SocketAddr;

use super::{
    Gateway,
    branches::{leg_of, sdp_of, signalled},
    context::{Branch, Context, Kind},
    dialogs::{Dialog, DialogKey, Leg, MAX_DIALOGS, Phase, opposite},
    outgoing::put_uri,
};
use crate::{
    media::SessionId,
    net::{ListenerId, Side},
    sip::{Message, Method, Name},
    time::Now,
};

impl Gateway {
    /// The key of the dialog a message that arrived on `side` belongs to. `None` without both
    /// tags.
    pub(super) fn dialog_key(
        &self,
        msg: &Message,
        side: Side,
        sender_first: bool,
    ) -> Option<DialogKey> {
        let call_id = msg.call_id()?;
        let (from, to) = (msg.from_tag()?.to_vec(), msg.to_tag()?.to_vec());
        let (near, far) = if sender_first { (from, to) } else { (to, from) };
        Some(match side {
            Side::Lan => DialogKey {
                call_id: call_id.to_vec(),
                lan_tag: near,
                wan_tag: far,
            },
            Side::Wan => DialogKey {
                call_id: self.topology.call_id(call_id),
                lan_tag: far,
                wan_tag: near,
            },
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
        if let Kind::InDialog { dialog } = ctx.kind {
            self.refresh_target(dialog, opposite(ctx.side), msg, ctx.request.method(), from);
            return Some(dialog);
        }
        if !matches!(
            ctx.request.method(),
            Some(Method::Invite | Method::Subscribe | Method::Refer)
        ) {
            return None;
        }
        let key = self.dialog_key(msg, opposite(ctx.side), false)?;
        let phase = if code < 200 {
            Phase::Early
        } else {
            Phase::Confirmed
        };
        if let Some(dialog) = self.dialogs.find(&key) {
            self.confirm(dialog, opposite(ctx.side), msg, phase);
            return Some(dialog);
        }
        if self.dialogs.len() >= MAX_DIALOGS {
            self.counters.table_full += 1;
            return None;
        }
        let dialog = new_dialog(now, ctx, &ctx.branches[index], key, msg, phase)?;
        let dialog = self.dialogs.insert(dialog);
        self.contexts.get_mut(&id)?.dialogs.push(dialog);
        Some(dialog)
    }

    fn confirm(&mut self, dialog: u64, answering: Side, msg: &Message, phase: Phase) {
        let Some(dialog) = self.dialogs.get_mut(dialog) else {
            return;
        };
        if phase == Phase::Confirmed && dialog.phase == Phase::Early {
            dialog.phase = phase;
        }
        if let Some(contact) = msg.contacts().next() {
            dialog.leg_mut(answering).target = msg.slice(contact.uri).to_vec();
        }
    }

    /// The remote target moves with requests and responses that may move it.
    pub(super) fn refresh_target(
        &mut self,
        dialog: u64,
        side: Side,
        msg: &Message,
        method: Option<Method>,
        from: SocketAddr,
    ) {
        let Some(dialog) = self.dialogs.get_mut(dialog) else {
            return;
        };
        let leg = dialog.leg_mut(side);
        if side == Side::Lan {
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

    /// Ends a dialog, and its media unless another fork still uses it.
    pub(super) fn end_dialog(&mut self, now: Now, dialog: u64) {
        if let Some(session) = self
            .dialogs
            .remove(dialog)
            .and_then(|dialog| dialog.session)
            && !self.dialogs.uses(session)
        {
            self.media.close(now, SessionId(session));
            self.drain_media();
        }
    }

    /// The ACK of a 2xx travels end to end (RFC 3261 section 13.2.2.4).
    pub(super) fn ack(&mut self, now: Now, listener: ListenerId, from: SocketAddr, msg: &Message) {
        let side = self.side(listener);
        let found = self
            .dialog_key(msg, side, true)
            .and_then(|key| self.dialogs.find(&key));
        let Some((dialog, target)) =
            found.and_then(|id| Some((id, self.dialog_target(id, opposite(side))?)))
        else {
            self.counters.stray += 1;
            return;
        };
        let branch = self.branch(msg, &target);
        let body = self.ack_body(now, dialog, side, from, msg);
        let mut edit = self.outgoing(msg, &target, &branch);
        for addr in msg.contacts() {
            let party = msg
                .from()
                .map(|from| msg.slice(from.uri).to_vec())
                .unwrap_or_default();
            let contact = self.contact(msg, &addr, (target.side, target.listener), &party, from);
            put_uri(&mut edit, &addr, &contact);
        }
        if let Some(body) = body {
            edit.set_body(body);
        }
        let bytes = edit.finish();
        self.drain_media();
        self.send(target.listener, target.to, bytes);
    }

    /// The answer to an offer that came in the 2xx. One that cannot be anchored goes out as it
    /// came: the parties then hear that there is no media, and end the call.
    fn ack_body(
        &mut self,
        now: Now,
        dialog: u64,
        side: Side,
        from: SocketAddr,
        msg: &Message,
    ) -> Option<Vec<u8>> {
        let dialog = self.dialogs.get_mut(dialog)?;
        let body = sdp_of(msg)?;
        if !std::mem::take(&mut dialog.answer_in_ack) {
            return None;
        }
        let (session, leg) = (SessionId(dialog.session?), leg_of(dialog.caller, side));
        self.media
            .answer(now, session, leg, signalled(msg, from, side), body)
            .ok()
    }
}

fn new_dialog(
    now: Now,
    ctx: &Context,
    branch: &Branch,
    key: DialogKey,
    msg: &Message,
    phase: Phase,
) -> Option<Dialog> {
    let request = &ctx.request;
    let near_routes = request
        .addrs(Name::RecordRoute)
        .map(|addr| request.slice(addr.value).to_vec())
        .collect();
    let mut far_routes: Vec<Vec<u8>> = msg
        .addrs(Name::RecordRoute)
        .map(|addr| msg.slice(addr.value).to_vec())
        .collect();
    far_routes.reverse();
    let near = leg(
        request,
        ctx.side,
        contact(request)?,
        near_routes,
        ctx.from,
        ctx.listener,
    )?;
    // Without a Contact in a provisional response the request's own URI still reaches the party.
    let target = contact(msg).or_else(|| Some(branch.sent.slice(branch.sent.uri()?).to_vec()))?;
    let far = leg(
        &branch.sent,
        ctx.side,
        target,
        far_routes,
        branch.to,
        branch.listener,
    )?;
    let (lan, wan) = match ctx.side {
        Side::Lan => (near, far),
        Side::Wan => (far, near),
    };
    Some(Dialog {
        id: 0,
        key,
        lan,
        wan,
        caller: ctx.side,
        path: branch.path,
        session: ctx.session,
        answer_in_ack: false,
        phase,
        since: now,
    })
}

/// A leg as `msg` writes it; From is the caller, who is on `caller`'s side.
fn leg(
    msg: &Message,
    caller: Side,
    target: Vec<u8>,
    routes: Vec<Vec<u8>>,
    peer: SocketAddr,
    listener: ListenerId,
) -> Option<Leg> {
    let from = msg.slice(msg.from()?.uri).to_vec();
    let to = msg.slice(msg.to()?.uri).to_vec();
    let (lan_uri, wan_uri) = match caller {
        Side::Lan => (from, to),
        Side::Wan => (to, from),
    };
    Some(Leg {
        target,
        routes,
        peer,
        listener,
        lan_uri,
        wan_uri,
    })
}

fn contact(msg: &Message) -> Option<Vec<u8>> {
    msg.contacts()
        .next()
        .map(|addr| msg.slice(addr.uri).to_vec())
}
