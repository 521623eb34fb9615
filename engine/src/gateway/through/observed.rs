//! Requests and responses that went through: evidence of the softswitch, and what they teach of
//! phones and calls. Nothing is sent because of them.

use std::{rc::Rc, time::Duration};

use super::{Asked, Asking, MAX_ASKED, Sender, TalkId};
use crate::{
    gateway::{
        Gateway,
        bindings::{Binding, OVERDUE},
        registrar::{Asked as Contact, Pending},
        response::retry_after,
    },
    health::{Class, RequestId},
    net::PathKey,
    sip::{Message, Method, Name, seconds},
    time::{Mono, Now},
};

impl Gateway {
    /// The data path routed a datagram of a talk `ago`, and sent a copy of its payload.
    pub fn copied(&mut self, now: Now, id: TalkId, sender: Sender, ago: Duration, bytes: Vec<u8>) {
        self.counters.copies += 1;
        let talk = self
            .talks
            .by_id
            .get(&id)
            .map(|talk| (talk.place, talk.path));
        let (Some((place, path)), Ok(msg)) = (talk, Message::parse(bytes)) else {
            return;
        };
        self.learned_used(now, place);
        match (sender, msg.is_request()) {
            (Sender::Phone, true) => self.asked(now.mono - ago, id, msg, true),
            (Sender::Phone, false) => self.phone_answered(id, &msg),
            (Sender::Server, true) => self.server_asked(now, path, &msg),
            (Sender::Server, false) => self.server_answered(now, id, &msg),
        }
        self.pump(now);
    }

    /// Copies were lost. What they would have said is unknown, and so is whether anything that
    /// is waited for was answered: none of it is evidence any more.
    pub fn copies_lost(&mut self, now: Now, lost: u64) {
        self.counters.copies_lost += lost;
        for (req, (id, asking)) in std::mem::take(&mut self.talks.by_request) {
            self.health.closed(now, req);
            if let Some(talk) = self.talks.by_id.get_mut(&id) {
                talk.asked.remove(&asking);
            }
            self.await_answer(id);
        }
        self.pump(now);
    }

    /// A phone's request is on its way to its softswitch since `at`.
    pub(super) fn asked(&mut self, at: Mono, id: TalkId, msg: Message, carried: bool) {
        let Some(method) = msg.method().filter(|method| *method != Method::Ack) else {
            return;
        };
        if method == Method::Bye {
            self.talks.calls.end(&msg);
        }
        let req = RequestId(self.fresh_id());
        let Some(talk) = self.talks.by_id.get_mut(&id) else {
            return;
        };
        let asking = (msg.branch().unwrap_or_default().to_vec(), method);
        if let Some(asked) = talk.asked.get(&asking) {
            return self.health.retransmitted(self.clock, asked.req);
        }
        if talk.asked.len() >= MAX_ASKED {
            return;
        }
        let (class, path) = (class(method), talk.path);
        let what = named(&msg);
        let keep = matches!(method, Method::Invite | Method::Register);
        let asked = Asked {
            req,
            at,
            carried,
            answered: false,
            overdue: false,
            message: keep.then(|| Rc::new(msg)),
        };
        talk.asked.insert(asking.clone(), asked);
        self.talks.by_request.insert(req, (id, asking));
        self.health.observed(at, req, path, class, &what);
        self.await_answer(id);
    }

    /// A request of the softswitch to the phone.
    fn server_asked(&mut self, now: Now, path: PathKey, msg: &Message) {
        self.health.inbound(now, path);
        if msg.method() == Some(Method::Bye) {
            self.talks.calls.end(msg);
        }
    }

    /// A response of the phone to its softswitch.
    pub(super) fn phone_answered(&mut self, id: TalkId, msg: &Message) {
        if is_2xx_to_invite(msg) {
            self.talks.calls.called(id, msg);
        }
    }

    fn server_answered(&mut self, now: Now, id: TalkId, msg: &Message) {
        let (Some(code), Some(cseq)) = (msg.status(), msg.cseq()) else {
            return;
        };
        let Some(talk) = self.talks.by_id.get_mut(&id) else {
            return;
        };
        let path = talk.path;
        let asking: Asking = (msg.branch().unwrap_or_default().to_vec(), cseq.method);
        if code >= 200 {
            self.talks.farewells.end(id, Some(&asking));
        }
        let Some(asked) = talk.asked.get_mut(&asking) else {
            // Whatever it answers, it lives.
            return self.health.inbound(now, path);
        };
        let rang = std::mem::replace(&mut asked.answered, true);
        let (req, request, carried) = (asked.req, asked.message.clone(), asked.carried);
        // The phone has the answer already: there is nothing to hunt.
        let _ = self.health.received(now, req, code, retry_after(msg), rang);
        if code >= 200 {
            talk.asked.remove(&asking);
            self.talks.by_request.remove(&req);
        }
        match request {
            Some(request) if code / 100 == 2 && cseq.method == Method::Register => {
                self.registered_through(now, (id, carried), &request, msg);
            }
            Some(request) if is_2xx_to_invite(msg) => {
                self.talks.calls.answered(id, &request, msg);
            }
            _ => {}
        }
        self.await_answer(id);
        if self.health.serving(now, path.server).is_none() {
            self.talks_up(now, path);
        }
    }

    /// The softswitch accepted a REGISTER: the phone is known by its own contact.
    fn registered_through(
        &mut self,
        now: Now,
        (id, carried): (TalkId, bool),
        request: &Message,
        msg: &Message,
    ) {
        let Some(talk) = self.talks.by_id.get(&id) else {
            return;
        };
        let (phone, place, path) = (talk.phone, talk.place, talk.path);
        let Some(pending) = self.read_register(request, phone, place) else {
            return;
        };
        let mut until = None;
        for asked in &pending.asked {
            until = until.max(self.learn_through(now, path, &pending, asked, msg));
        }
        let Some(until) = until else { return };
        if let Some(talk) = self.talks.by_id.get_mut(&id) {
            talk.until = until + OVERDUE;
        }
        self.proven(now, path.server.group, &pending.aor);
        self.vouch(id);
        let replaced = self.superseded(&pending);
        if carried && !replaced.is_empty() {
            // The softswitch still has them: the next REGISTER comes by us, who take them away.
            return self.turn_up(id);
        }
        for old in replaced {
            self.forget_binding(old);
        }
        self.route_talk(now, id);
    }

    /// Keeps a contact as its softswitch does; until when.
    fn learn_through(
        &mut self,
        now: Now,
        path: PathKey,
        pending: &Pending,
        asked: &Contact,
        msg: &Message,
    ) -> Option<Mono> {
        let granted = granted(msg, &asked.contact).unwrap_or(asked.expires);
        let old = self.bindings.find(&pending.aor, &asked.contact);
        if asked.expires == 0 || granted == 0 {
            if let Some(old) = old {
                self.forget_binding(old);
            }
            return None;
        }
        let granted = Duration::from_secs(u64::from(granted));
        let lines = |name| msg.addrs(name).map(|addr| msg.slice(addr.value).to_vec());
        let binding = Binding {
            aor: pending.aor.clone(),
            contact: asked.contact.clone(),
            params: asked.params.clone(),
            token: asked.token.clone(),
            upstream_contact: asked.contact.clone(),
            source: pending.source,
            proof: pending.proof,
            listener: pending.listener,
            call_id: pending.call_id.clone(),
            cseq: pending.cseq,
            credentials: pending.credentials.clone(),
            group: path.server.group,
            server: path.server,
            accepted: now,
            granted,
            // The phone was told what its softswitch granted.
            phone_until: now.mono + granted,
            due: false,
            challenged: None,
            path: pending.path.clone(),
            // Its flow is the phone's own, to its softswitch: none of ours can be lost.
            outbound: false,
            service_route: lines(Name::ServiceRoute).collect(),
            associated: msg
                .values(Name::PAssociatedUri)
                .map(|value| String::from_utf8_lossy(msg.slice(value)).into_owned())
                .collect(),
        };
        self.keep(old, binding);
        Some(now.mono + granted)
    }
}

fn class(method: Method) -> Class {
    match method {
        Method::Invite => Class::Invite,
        Method::Register => Class::Register,
        _ => Class::Other,
    }
}

/// A request in evidence: `"INVITE sip:201@a.test"`.
fn named(msg: &Message) -> String {
    let to = msg.to().map(|to| msg.slice(to.uri)).unwrap_or_default();
    let method = String::from_utf8_lossy(msg.method_bytes());
    format!("{method} {}", to.escape_ascii())
}

fn is_2xx_to_invite(msg: &Message) -> bool {
    let invite = |msg: &Message| msg.cseq().is_some_and(|cseq| cseq.method == Method::Invite);
    msg.status().is_some_and(|code| code / 100 == 2) && invite(msg)
}

/// The seconds granted to a contact: its own parameter, else Expires.
fn granted(msg: &Message, contact: &[u8]) -> Option<u32> {
    let mut all = msg.contacts();
    let found = all.find(|addr| msg.slice(addr.uri) == contact)?;
    let own = found.param(msg.bytes(), "expires");
    let own = own.and_then(|param| seconds(msg.slice(param.value?)));
    own.or_else(|| msg.expires())
}
