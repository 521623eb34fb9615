//! A datagram arrives: keepalive, response, or request; and which kind of request.

use std::{net::SocketAddr, rc::Rc};

use super::{
    Gateway,
    context::{Context, Kind, Progress},
    deadlines::Deadline,
};
use crate::{
    conf::Accept,
    net::{GroupId, ListenerId, PathKey, ServerId, Side},
    sip::{self, Datagram, Message, Method, Uri},
    time::Now,
    transaction::{self, Incoming},
};

impl Gateway {
    /// A datagram arrived on a SIP listener.
    pub fn datagram(&mut self, now: Now, listener: ListenerId, from: SocketAddr, bytes: Vec<u8>) {
        match sip::classify(&bytes) {
            Datagram::Keepalive => self.counters.keepalives += 1,
            Datagram::Stun => self.stun(now, listener, from, &bytes),
            Datagram::Sip => self.message(now, listener, from, bytes),
        }
        self.pump(now);
    }

    pub(super) fn message(
        &mut self,
        now: Now,
        listener: ListenerId,
        from: SocketAddr,
        bytes: Vec<u8>,
    ) {
        let msg = match Message::parse(bytes) {
            Ok(msg) => msg,
            Err(refusal) => {
                self.counters.malformed += 1;
                if self.may_speak(listener, from)
                    && let Some(answer) = refusal.answer(&self.fresh_tag(), from)
                {
                    self.send(listener, from, answer);
                }
                return;
            }
        };
        if !msg.is_request() {
            self.response(now, listener, from, &msg);
        } else if self.may_speak(listener, from) {
            self.request(now, listener, from, msg);
        } else {
            self.counters.not_a_peer += 1;
        }
    }

    /// Whether requests from this source are heard at all (signalling.md section 11).
    pub(super) fn may_speak(&self, listener: ListenerId, from: SocketAddr) -> bool {
        self.side(listener) == Side::Lan
            || self.conf.accept == Accept::Clients
            || self.group_of_peer(from).is_some()
    }

    /// The group whose servers or `inbound` networks hold this address, and the server itself
    /// when it is one.
    pub(super) fn group_of_peer(&self, from: SocketAddr) -> Option<(GroupId, Option<ServerId>)> {
        let ip = from.ip().to_canonical();
        (0_u16..)
            .map(GroupId)
            .zip(&self.conf.groups)
            .find_map(|(id, group)| {
                let index = group
                    .health
                    .servers
                    .iter()
                    .position(|server| server.address.ip() == ip);
                let server = index
                    .and_then(|index| u16::try_from(index).ok())
                    .map(|index| ServerId { group: id, index });
                let inbound = group.inbound.iter().any(|prefix| prefix.contains(ip));
                (server.is_some() || inbound).then_some((id, server))
            })
    }

    fn request(&mut self, now: Now, listener: ListenerId, from: SocketAddr, msg: Message) {
        if let Some((_, Some(server))) = self.group_of_peer(from)
            && self.side(listener) == Side::Wan
        {
            let link = self.conf.listeners[usize::from(listener.0)].link;
            self.health.inbound(now, PathKey { server, link });
        }
        if self.transport(listener).is_stream() {
            self.alias(listener, from, &msg);
        }
        match self.transactions.request(now, &msg, from, listener) {
            Incoming::Absorbed => {}
            Incoming::Overloaded => self.counters.table_full += 1,
            Incoming::Ack2xx => self.ack(now, listener, from, &msg),
            Incoming::Cancel { invite, id } => self.cancelled(now, invite, id, &msg, from),
            Incoming::New(id) => self.new_request(now, id, listener, from, msg),
        }
    }

    fn new_request(
        &mut self,
        now: Now,
        server: transaction::ServerId,
        listener: ListenerId,
        from: SocketAddr,
        msg: Message,
    ) {
        let ctx = Context {
            id: self.fresh_id(),
            server,
            request: Rc::new(msg),
            from,
            listener,
            side: self.side(listener),
            kind: Kind::Local,
            branches: Vec::new(),
            went_by: self.talks.taken_from.take(),
            progress: Progress::Trying,
            session: None,
            dialogs: Vec::new(),
            offered: false,
            best: None,
            cancelled: false,
            server_ended: false,
        };
        let (id, request) = (ctx.id, ctx.request.clone());
        self.by_server.insert(server, id);
        self.contexts.insert(id, ctx);
        if request.method() == Some(Method::Invite) {
            self.note_asked(now, listener, from, &request);
            self.answer(now, id, 100);
        }
        if request.max_forwards() == Some(0) {
            self.answer(now, id, 483);
        } else {
            self.dispatch(now, id, &request);
        }
        self.retire(id);
    }

    /// What kind of request it is decides where it goes.
    fn dispatch(&mut self, now: Now, id: u64, request: &Rc<Message>) {
        let side = self.contexts[&id].side;
        match request.method() {
            Some(Method::Register) if side == Side::Lan => self.register(now, id),
            Some(Method::Register) => self.answer(now, id, 403),
            _ if request.to_tag().is_some() => self.in_dialog(now, id),
            Some(Method::Options) if self.is_for_us(id) => self.options(now, id),
            Some(Method::Invite) if self.draining.is_some() => self.answer(now, id, 503),
            _ if side == Side::Lan => self.relay_to_group(now, id),
            _ => self.relay_to_phone(now, id),
        }
    }

    /// An OPTIONS without a user at one of our addresses, or at our domain from the LAN. One that
    /// is addressed to a softswitch is that one's, while it lives.
    fn is_for_us(&self, id: u64) -> bool {
        let (request, side) = (&self.contexts[&id].request, self.contexts[&id].side);
        let Some(uri) = request
            .uri()
            .and_then(|span| Uri::parse(request.slice(span)))
        else {
            return false;
        };
        let nobody = uri.user.is_none_or(<[u8]>::is_empty);
        if let Some(group) = self.group_addressed(self.contexts[&id].listener) {
            return nobody && self.on_our_own(group);
        }
        nobody
            && match uri.host_ip() {
                Some(ip) => self.conf.links.iter().any(|link| link.address == Some(ip)),
                None => {
                    side == Side::Lan || uri.host.eq_ignore_ascii_case(self.conf.domain.as_bytes())
                }
            }
    }

    /// A keepalive from a peer (EM5): 200, or 503 without Retry-After while draining (P5).
    fn options(&mut self, now: Now, id: u64) {
        let code = if self.draining.is_some() { 503 } else { 200 };
        self.answer(now, id, code);
    }

    /// A request of a phone, outside any dialog.
    fn relay_to_group(&mut self, now: Now, id: u64) {
        let request = self.contexts[&id].request.clone();
        let from = request
            .from()
            .map(|from| request.slice(from.uri).to_vec())
            .unwrap_or_default();
        let came = (self.contexts[&id].listener, self.contexts[&id].from);
        let Some(group) = self.group_for(&request, came) else {
            return self.answer(now, id, 403);
        };
        let aor = self.aor(&from).into_bytes();
        self.set_kind(id, Kind::ToGroup { group, aor });
        self.open_session(id);
        if self.on_our_own(group) {
            return self.connect_here(now, id);
        }
        if request.method() == Some(Method::Invite) {
            let budget = self.conf.groups[usize::from(group.0)].hunt_budget;
            self.deadlines
                .set(Deadline::HuntBudget(id), now.mono + budget);
        }
        self.try_next(now, id);
    }

    /// A request from the WAN, outside any dialog: its Request-URI is a Contact of ours.
    pub(super) fn relay_to_phone(&mut self, now: Now, id: u64) {
        let request = self.contexts[&id].request.clone();
        let user = request
            .uri()
            .and_then(|span| Uri::parse(request.slice(span)))
            .and_then(|uri| uri.user);
        let Some(binding) = user.and_then(|user| self.bindings.by_token(user)) else {
            return self.answer(now, id, 404);
        };
        self.set_kind(id, Kind::ToPhone);
        let failed = |binding| self.flow_failed(now, binding);
        if self.bindings.get(binding).is_some_and(failed) {
            return self.answer(now, id, 430);
        }
        if self
            .bindings
            .get(binding)
            .is_some_and(|binding| !binding.present(now.mono))
        {
            return self.answer(now, id, 480);
        }
        self.open_session(id);
        self.branch_to_phone(now, id, binding);
    }

    pub(super) fn set_kind(&mut self, id: u64, kind: Kind) {
        if let Some(ctx) = self.contexts.get_mut(&id) {
            ctx.kind = kind;
        }
    }
}
