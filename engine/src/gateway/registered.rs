//! The registrar's 2xx: bindings are learned from it, and the phone gets its own contacts back.

use std::{net::SocketAddr, time::Duration};

use super::{
    Gateway,
    bindings::Binding,
    context::{Context, Kind},
    deadlines::Deadline,
    outbound::lists,
    registrar::{Asked, Pending},
};
use crate::{
    net::{GroupId, ListenerId, ServerId},
    sip::{Edit, Message, Name, Uri, seconds},
    steer::{Delta, GateId},
    time::Now,
};

impl Gateway {
    pub(super) fn registered(&mut self, now: Now, id: u64, index: usize, msg: &Message) {
        let Some(ctx) = self.contexts.get(&id).cloned() else {
            return;
        };
        let Kind::Register { register, group } = &ctx.kind else {
            return;
        };
        let Some(path) = ctx.branches[index].path else {
            return;
        };
        let at = ctx.branches[index].listener;
        self.flow_shown(path, msg);
        for old in self.superseded(register) {
            self.forget_binding(old);
        }
        for asked in &register.asked {
            self.learn(now, register, asked, (*group, path.server, at), msg);
        }
        let bytes = self.registered_back(now, &ctx, index, register, msg);
        self.respond(now, id, 200, bytes);
    }

    fn learn(
        &mut self,
        now: Now,
        register: &Pending,
        asked: &Asked,
        upstream: (GroupId, ServerId, ListenerId),
        msg: &Message,
    ) {
        let granted = granted(msg, &asked.token).unwrap_or(asked.expires);
        let old = self.bindings.find(&register.aor, &asked.contact);
        if asked.expires == 0 || granted == 0 {
            if let Some(old) = old {
                self.forget_binding(old);
            }
            return;
        }
        let (group, server, at) = upstream;
        self.proven(now, group, &register.aor);
        let told = self.phone_expires(register.listener, asked.expires.min(granted));
        let binding = Binding {
            aor: register.aor.clone(),
            contact: asked.contact.clone(),
            params: asked.params.clone(),
            token: asked.token.clone(),
            upstream_contact: self.contact_uri(asked.token.as_bytes(), at),
            source: register.source,
            proof: register.proof,
            listener: register.listener,
            call_id: register.call_id.clone(),
            cseq: register.cseq,
            credentials: register.credentials.clone(),
            group,
            server,
            accepted: now,
            granted: Duration::from_secs(u64::from(granted)),
            phone_until: now.mono + told,
            due: false,
            challenged: None,
            service_route: msg
                .addrs(Name::ServiceRoute)
                .map(|addr| msg.slice(addr.value).to_vec())
                .collect(),
            path: register.path.clone(),
            outbound: lists(msg, Name::Require, "outbound") && asked.opens_flow(),
            associated: msg
                .values(Name::PAssociatedUri)
                .map(|value| String::from_utf8_lossy(msg.slice(value)).into_owned())
                .collect(),
        };
        self.keep(old, binding);
    }

    pub(super) fn keep(&mut self, old: Option<u64>, binding: Binding) {
        let old = old.and_then(|id| self.bindings.get(id));
        let before = old.map(|old| (old.source, old.listener));
        let at = (binding.source, binding.listener);
        let gate = GateId(binding.group.0);
        match self.bindings.put(binding) {
            Ok(id) => {
                self.watch_binding(id);
                self.steer_moved(before, at, gate);
            }
            // The phone stays registered upstream; only survivability will not know it.
            Err(_) => self.counters.table_full += 1,
        }
    }

    /// The keepalives of a phone come from here now, and are answered as its group stands.
    pub(super) fn steer_moved(
        &mut self,
        before: Option<(SocketAddr, ListenerId)>,
        (client, listener): (SocketAddr, ListenerId),
        gate: GateId,
    ) {
        if let Some((gone, at)) = before.filter(|before| *before != (client, listener)) {
            let gone = Delta::ClientClear {
                client: gone,
                listener: at,
            };
            self.steer_client(at, gone);
        }
        let set = Delta::ClientSet {
            client,
            listener,
            gate,
        };
        self.steer_client(listener, set);
    }

    /// Looks at a binding again when its phone is overdue.
    pub(super) fn watch_binding(&mut self, id: u64) {
        if let Some(binding) = self.bindings.get(id) {
            self.deadlines
                .set(Deadline::Binding(id), binding.phone_until);
        }
    }

    pub(super) fn forget_binding(&mut self, id: u64) {
        self.deadlines.clear(Deadline::Binding(id));
        if let Some(gone) = self.bindings.remove(id) {
            let (client, listener) = (gone.source, gone.listener);
            self.steer_client(listener, Delta::ClientClear { client, listener });
        }
    }

    /// The data path answers keepalives in datagrams to addresses of ours; all others are
    /// answered here.
    pub(super) fn steer_client(&mut self, listener: ListenerId, delta: Delta) {
        let ours = self.conf.listeners[usize::from(listener.0)]
            .taken_by
            .is_none();
        if ours && !self.transport(listener).is_stream() {
            self.out.push_back(super::Output::Steer(delta));
        }
    }

    /// The 200 for the phone: its own contacts byte for byte with the expiry it is told; routes
    /// of the far side stay here (RFC 3608 is applied on the phone's behalf).
    fn registered_back(
        &mut self,
        now: Now,
        ctx: &Context,
        index: usize,
        register: &Pending,
        msg: &Message,
    ) -> Vec<u8> {
        let mut edit = Edit::new(msg);
        let branch = &ctx.branches[index];
        self.readdress(&mut edit, ctx, branch, msg);
        let ours = [Name::Path, Name::ServiceRoute, Name::FlowTimer];
        for name in [Name::Contact, Name::Expires].into_iter().chain(ours) {
            edit.remove_all(name);
        }
        for contact in self.contacts_for_phone(now, &register.aor) {
            edit.push_back(Name::Contact, contact);
        }
        for path in &register.path {
            edit.push_back(Name::Path, path);
        }
        // The registrar's own Require stands already.
        let flow = self.flow_headers_of(register).into_iter();
        for (name, value) in flow.filter(|(name, _)| *name != Name::Require) {
            edit.push_back(name, value);
        }
        edit.finish()
    }
}

/// The seconds granted to the contact with our token: its own parameter, else Expires.
fn granted(msg: &Message, token: &str) -> Option<u32> {
    let contact = msg
        .contacts()
        .find(|addr| has_token(msg.slice(addr.uri), token))?;
    let own = contact
        .param(msg.bytes(), "expires")
        .and_then(|param| param.value);
    own.and_then(|span| seconds(msg.slice(span)))
        .or_else(|| msg.expires())
}

fn has_token(uri: &[u8], token: &str) -> bool {
    Uri::parse(uri).is_some_and(|uri| uri.user == Some(token.as_bytes()))
}
