//! Relaying a response to whoever sent the request: as that side wrote it, with the tags, the
//! code and the body of the answer.

use std::net::SocketAddr;

use super::{
    Gateway,
    bodies::sdp_of,
    branches::signalled,
    context::{Branch, Context, Kind, Progress},
    dialogs::Party,
    outgoing::put_uri,
};
use crate::{
    media::SessionId,
    sip::{self, Edit, Message, Method, Name, digest},
    time::Now,
};

impl Gateway {
    /// Relays a response of a branch that counts; the first 18x or 2xx wins.
    pub(super) fn relay(
        &mut self,
        now: Now,
        id: u64,
        index: usize,
        from: SocketAddr,
        msg: &Message,
        code: u16,
    ) {
        if matches!(
            self.contexts.get(&id).map(|ctx| &ctx.kind),
            Some(Kind::Register { .. })
        ) && code / 100 == 2
        {
            return self.registered(now, id, index, msg);
        }
        if self.is_over(id, msg) {
            return self.end_unwanted(now, id, index, msg);
        }
        let dialog = self.note_dialog(now, id, index, from, msg, code);
        let body = match self.body_back(now, id, index, dialog, from, msg) {
            Ok(body) => body,
            Err(()) => return self.unusable_answer(now, id, index, msg, code),
        };
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let again = code / 100 == 2 && ctx.request.method() == Some(Method::Invite);
        if ctx.progress == Progress::Answered && !again {
            return;
        }
        if code > 100 && code < 200 {
            ctx.progress = Progress::Ringing(index);
        }
        let ctx = ctx.clone();
        if matches!(code, 401 | 407)
            && let Kind::Register { register, .. } = &ctx.kind
        {
            self.challenged(now, register);
        }
        let said = sdp_of(msg).zip(body.as_deref());
        if said.is_some() || (code / 100 == 2 && sdp_of(&ctx.request).is_some()) {
            self.remember_bodies(&ctx, index, dialog, said);
        }
        let branch = &ctx.branches[index];
        let code = if code == 503 && branch.path.is_some() {
            500
        } else {
            code
        };
        let bytes = self.response_back(&ctx, branch, msg, code, body);
        self.drain_media();
        self.respond(now, id, code, bytes);
    }

    /// A 2xx that is repeated although its call is over: whoever repeats it lacks our ACK, and
    /// nobody else wants it. Without a media session its body would pass as it is.
    fn is_over(&self, id: u64, msg: &Message) -> bool {
        let call = self.contexts.get(&id).filter(|ctx| {
            ctx.request.method() == Some(Method::Invite)
                && !matches!(ctx.kind, Kind::InDialog { .. })
        });
        let open = |session: u64| self.media.holds(SessionId(session));
        let accepts = matches!(msg.status(), Some(200..=299));
        accepts
            && call.is_some_and(|ctx| {
                ctx.progress == Progress::Answered && !ctx.session.is_some_and(open)
            })
    }

    /// The bytes of a response as the sender of the request must see it.
    pub(super) fn response_back(
        &mut self,
        ctx: &Context,
        branch: &Branch,
        msg: &Message,
        code: u16,
        body: Option<Vec<u8>>,
    ) -> Vec<u8> {
        let mut edit = Edit::new(msg);
        if msg.status() != Some(code) {
            let line = format!("SIP/2.0 {code} {}\r\n", sip::reason_phrase(code));
            edit.replace(msg.start_line(), line);
        }
        self.readdress(&mut edit, ctx, branch, msg);
        if (300..400).contains(&code) {
            for addr in msg.contacts() {
                let from = self.side(branch.listener);
                let towards = (self.sight_at(ctx.listener), ctx.listener);
                if let Some(uri) = self.callable(msg.slice(addr.uri), from, towards) {
                    put_uri(&mut edit, &addr, &uri);
                }
            }
        } else {
            let party = answering_party(msg);
            for addr in msg.contacts() {
                let contact = self.contact(msg, &addr, (ctx.side, ctx.listener), &party, branch.to);
                put_uri(&mut edit, &addr, &contact);
            }
        }
        let sides = (self.side(branch.listener), self.sight_at(ctx.listener));
        self.edit_body(&mut edit, msg, sides, body);
        let bytes = edit.finish();
        if matches!(code, 401 | 407) {
            self.challenge(ctx, branch, bytes)
        } else {
            bytes
        }
    }

    /// Via, parties, Call-ID and routes of the side the request came from.
    pub(super) fn readdress(
        &self,
        edit: &mut Edit<'_>,
        ctx: &Context,
        branch: &Branch,
        msg: &Message,
    ) {
        let request = &ctx.request;
        edit.remove_all(Name::Via);
        edit.remove_all(Name::RecordRoute);
        let code = msg.status().unwrap_or_default();
        let keep = self.keep_promised(ctx.listener, request, code);
        edit.push_lines(sip::reply_vias(request, ctx.from, keep));
        let towards = (self.sight_at(ctx.listener), ctx.listener);
        self.hide(edit, msg, self.side(branch.listener), towards);
        for (theirs, ours) in [(msg.from(), request.from()), (msg.to(), request.to())] {
            if let (Some(theirs), Some(ours)) = (theirs, ours) {
                put_uri(edit, &theirs, request.slice(ours.uri));
            }
        }
        for route in request.addrs(Name::RecordRoute) {
            edit.push_back(Name::RecordRoute, request.slice(route.value));
        }
    }

    /// Remembers who issued a nonce, and calls a foreign one stale: the phone then answers
    /// again without asking its user (EM23).
    fn challenge(&mut self, ctx: &Context, branch: &Branch, bytes: Vec<u8>) -> Vec<u8> {
        let (Some(path), Ok(msg)) = (branch.path, Message::parse(bytes.clone())) else {
            return bytes;
        };
        for name in [Name::WwwAuthenticate, Name::ProxyAuthenticate] {
            if let Some(nonce) = msg
                .header(name)
                .and_then(|span| digest::nonce(msg.slice(span)))
            {
                self.nonces.issued(nonce, path.server);
            }
        }
        let used = nonce_used(&ctx.request).and_then(|nonce| self.nonces.issuer(nonce));
        match used {
            Some(issuer) if issuer != path.server => digest::mark_stale(&msg),
            _ => bytes,
        }
    }

    /// The body of a response for the sender of the request: an answer to its offer, or an
    /// offer of its own when the request had none (RFC 3264).
    fn body_back(
        &mut self,
        now: Now,
        id: u64,
        index: usize,
        dialog: Option<u64>,
        from: SocketAddr,
        msg: &Message,
    ) -> Result<Option<Vec<u8>>, ()> {
        let Some(ctx) = self.contexts.get(&id) else {
            return Ok(None);
        };
        let (Some(session), Some(body)) = (ctx.session, sdp_of(msg)) else {
            return Ok(None);
        };
        let session = SessionId(session);
        let party = match &ctx.kind {
            Kind::InDialog { sender, .. } => sender.other(),
            _ => Party::Callee,
        };
        let side = self.side(ctx.branches[index].listener);
        let signalled = signalled(msg, from, side);
        let rewritten = if ctx.offered {
            self.media.answer(now, session, party, signalled, body)
        } else {
            if let Some(dialog) = dialog.and_then(|dialog| self.dialogs.get_mut(dialog)) {
                dialog.answer_in_ack = true;
            }
            self.media.offer(now, session, party, signalled, body)
        };
        rewritten.map(Some).map_err(|_| ())
    }

    /// A response whose body cannot be anchored: a failed answer ends the call on both sides.
    fn unusable_answer(&mut self, now: Now, id: u64, index: usize, msg: &Message, code: u16) {
        if code >= 200
            && self
                .contexts
                .get(&id)
                .is_some_and(|ctx| ctx.request.method() == Some(Method::Invite))
        {
            self.end_unwanted(now, id, index, msg);
        }
        if code >= 200 {
            self.answer(now, id, 502);
            self.end_attempt(now, id);
        }
    }
}

/// The nonce of the credentials a request carries.
pub(super) fn nonce_used(request: &Message) -> Option<&[u8]> {
    [Name::ProxyAuthorization, Name::Authorization]
        .into_iter()
        .find_map(|name| digest::nonce(request.slice(request.header(name)?)))
}

/// The phone that answered, as its own side writes it: keys its Contact token.
fn answering_party(msg: &Message) -> Vec<u8> {
    msg.to()
        .map(|addr| msg.slice(addr.uri).to_vec())
        .unwrap_or_default()
}
