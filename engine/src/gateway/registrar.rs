//! REGISTER on its way up: answered here while upstream need not be asked (EM24), else sent on
//! with one token Contact per phone (signalling.md section 4).

use std::{net::SocketAddr, rc::Rc, time::Duration};

use super::{Gateway, bindings::Binding, context::Kind, outgoing::Target, proof::Proof};
use crate::{
    net::{GroupId, ListenerId, Side},
    sip::{Edit, Message, Name, NameAddr, digest, seconds},
    steer::GateId,
    time::{Mono, Now},
};

/// Contacts in one REGISTER; phones send one.
const MAX_CONTACTS: usize = 8;
/// What a REGISTER without any expiry asks for (RFC 3261 section 10.2).
const DEFAULT_EXPIRES: u32 = 3600;

/// How long the answer to a challenge may take before it is shaped like any refresh.
const CHALLENGE_LIFE: Duration = Duration::from_secs(32);

/// What a REGISTER asks for, kept until its answer comes.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// Canonical address of record.
    pub(crate) aor: String,
    pub(crate) asked: Vec<Asked>,
    pub(crate) source: SocketAddr,
    pub(crate) proof: Option<Proof>,
    pub(crate) listener: ListenerId,
    pub(crate) call_id: Vec<u8>,
    pub(crate) cseq: u32,
    /// User name and realm of its credentials.
    pub(crate) credentials: Option<Vec<u8>>,
    /// The proxies between the phone and us (RFC 3327).
    pub(crate) path: Vec<Vec<u8>>,
}

/// One contact of a REGISTER.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) contact: Vec<u8>,
    /// Header parameters but `expires`, with their semicolons.
    pub(crate) params: Vec<u8>,
    /// Seconds; 0 takes the binding away.
    pub(crate) expires: u32,
    pub(crate) token: String,
}

impl Asked {
    /// Whether it names a flow of the phone's (RFC 5626 section 4.2).
    pub(crate) fn opens_flow(&self) -> bool {
        by_instance(&self.params)
    }
}

impl Gateway {
    pub(super) fn register(&mut self, now: Now, id: u64) {
        let ctx = &self.contexts[&id];
        let request = ctx.request.clone();
        let Some(pending) = self.read_register(&request, ctx.from, ctx.listener) else {
            return self.answer(now, id, 400);
        };
        if self.drained(now) && pending.asked.iter().any(|asked| asked.expires > 0) {
            return self.answer(now, id, 503);
        }
        let came = (pending.listener, pending.source);
        let Some(group) = self.group_for(&request, came) else {
            return self.answer(now, id, 403);
        };
        if self.on_our_own(group) {
            return self.register_here(now, id, group, &pending);
        }
        if self.answerable_here(now, group, &pending) {
            return self.answer_refresh(now, id, &pending);
        }
        self.set_kind(
            id,
            Kind::Register {
                group,
                register: Rc::new(pending),
            },
        );
        self.try_next(now, id);
    }

    /// Whether the drain's grace is over (signalling.md section 14).
    fn drained(&self, now: Now) -> bool {
        self.draining
            .is_some_and(|since| now.mono.since(since) >= self.conf.drain_grace)
    }

    /// `None` when it breaks RFC 3261 section 10.3 (a `*` needs `Expires: 0` and no company) or
    /// asks for too much.
    pub(super) fn read_register(
        &self,
        msg: &Message,
        from: SocketAddr,
        listener: ListenerId,
    ) -> Option<Pending> {
        let aor = self.aor(msg.slice(msg.to()?.uri));
        let contacts: Vec<NameAddr> = msg.contacts().collect();
        let proof = self.proof(listener, from);
        let asked = match contacts.as_slice() {
            [only] if msg.slice(only.uri) == b"*" => {
                (msg.expires() == Some(0)).then(|| self.every_contact(&aor, from, proof))?
            }
            many if many.len() > MAX_CONTACTS => return None,
            many if many.iter().any(|addr| msg.slice(addr.uri) == b"*") => return None,
            many => many
                .iter()
                .map(|addr| self.read_contact(msg, addr, &aor, from))
                .collect(),
        };
        Some(Pending {
            aor,
            asked,
            source: from,
            proof,
            listener,
            call_id: msg.call_id()?.to_vec(),
            cseq: msg.cseq()?.number,
            credentials: credentials(msg),
            path: msg
                .addrs(Name::Path)
                .map(|addr| msg.slice(addr.value).to_vec())
                .collect(),
        })
    }

    /// `Contact: *` means this phone's bindings, one by one: the AOR's other phones stay (F1).
    fn every_contact(&self, aor: &str, from: SocketAddr, proof: Option<Proof>) -> Vec<Asked> {
        self.bindings
            .of_aor(aor)
            .into_iter()
            .filter_map(|id| self.bindings.get(id))
            .filter(|binding| binding.is_from(from.ip(), proof))
            .map(|binding| Asked {
                contact: binding.contact.clone(),
                params: binding.params.clone(),
                expires: 0,
                token: binding.token.clone(),
            })
            .collect()
    }

    fn read_contact(&self, msg: &Message, addr: &NameAddr, aor: &str, from: SocketAddr) -> Asked {
        let contact = msg.slice(addr.uri).to_vec();
        let own = addr
            .param(msg.bytes(), "expires")
            .and_then(|param| param.value);
        let own = own.and_then(|span| seconds(msg.slice(span)));
        Asked {
            token: self.token(aor, &contact, from),
            params: params_without_expires(msg, addr),
            expires: own.or_else(|| msg.expires()).unwrap_or(DEFAULT_EXPIRES),
            contact,
        }
    }

    /// A refresh that may be answered without asking: upstream still holds every binding for
    /// long enough, or they are due and their turn has not come (EM17, EM24).
    fn answerable_here(&mut self, now: Now, group: GroupId, pending: &Pending) -> bool {
        if pending.asked.is_empty()
            || !pending
                .asked
                .iter()
                .all(|asked| self.continues(pending, asked))
        {
            return false;
        }
        let of = |asked: &Asked| {
            self.bindings
                .find(&pending.aor, &asked.contact)
                .and_then(|id| self.bindings.get(id))
        };
        let bindings: Vec<&Binding> = pending.asked.iter().filter_map(of).collect();
        if !bindings.iter().all(|binding| self.is_of(binding, group)) {
            return false;
        }
        if bindings
            .iter()
            .all(|binding| binding.refresh_is_local(now.mono))
        {
            return true;
        }
        let answers_a_challenge = bindings.iter().any(|binding| {
            binding
                .challenged
                .is_some_and(|at| now.mono.since(at) < CHALLENGE_LIFE)
        });
        let due = bindings.iter().all(|binding| binding.due);
        due && !answers_a_challenge
            && !self
                .release
                .take(now.mono, self.conf.survivability.recovery_register_rate)
    }

    /// A refresh of the very same registration: same source, contact, parameters, Call-ID and
    /// credentials, rising CSeq. Anything else is asked upstream (case F4).
    fn continues(&self, pending: &Pending, asked: &Asked) -> bool {
        let found = self.bindings.find(&pending.aor, &asked.contact);
        found
            .and_then(|id| self.bindings.get(id))
            .is_some_and(|binding| {
                asked.expires > 0
                    && asked.params == binding.params
                    && binding.is_from(pending.source.ip(), pending.proof)
                    && binding.call_id == pending.call_id
                    && binding.cseq < pending.cseq
                    && binding.credentials == pending.credentials
            })
    }

    fn answer_refresh(&mut self, now: Now, id: u64, pending: &Pending) {
        for asked in &pending.asked {
            let expires = self.phone_expires(pending.listener, asked.expires);
            if let Some(id) = self.bindings.find(&pending.aor, &asked.contact) {
                self.prolong(id, pending, now.mono + expires);
            }
        }
        let contacts = self.contacts_for_phone(now, &pending.aor);
        let mut headers: Vec<(Name, String)> = contacts
            .into_iter()
            .map(|value| (Name::Contact, value))
            .collect();
        headers.extend(self.flow_headers_of(pending));
        self.answer_with(now, id, 200, &headers);
    }

    /// A phone refreshed its binding, and need not do so again before `until`.
    fn prolong(&mut self, id: u64, pending: &Pending, until: Mono) {
        let Some(binding) = self.bindings.get_mut(id) else {
            return;
        };
        let before = (binding.source, binding.listener);
        binding.cseq = pending.cseq;
        binding.phone_until = until;
        // The port may have moved (NAT, restart): requests follow it.
        (binding.source, binding.listener) = (pending.source, pending.listener);
        binding.proof = pending.proof.or(binding.proof);
        binding.path.clone_from(&pending.path);
        let gate = GateId(binding.group.0);
        self.watch_binding(id);
        self.steer_moved(Some(before), (pending.source, pending.listener), gate);
    }

    /// The REGISTER as the softswitch sees it: one token per contact, the expiry the phone
    /// asked for, and the contact it replaces taken away in the same request (EM25).
    pub(super) fn branch_register(
        &mut self,
        now: Now,
        id: u64,
        target: &Target,
        register: &Pending,
    ) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let request = ctx.request.clone();
        let branch = self.branch(&request, target);
        let mut edit = self.outgoing(&request, Side::Lan, target, &branch);
        self.push_path(&mut edit, &request, target, register);
        edit.remove_all(Name::Contact);
        for asked in &register.asked {
            self.push_upstream_contact(&mut edit, target, &register.aor, asked);
        }
        for old in self.superseded(register) {
            if let Some(old) = self
                .bindings
                .get(old)
                .filter(|old| !by_instance(&old.params))
            {
                let gone = [b"<", old.upstream_contact.as_slice(), b">;expires=0"].concat();
                edit.push_back(Name::Contact, gone);
            }
        }
        let bytes = edit.finish();
        self.start(now, id, target, &branch, bytes);
    }

    fn push_upstream_contact(
        &self,
        edit: &mut Edit<'_>,
        target: &Target,
        aor: &str,
        asked: &Asked,
    ) {
        let uri = self.contact_uri(asked.token.as_bytes(), target.listener);
        let value = [b"<", uri.as_slice(), b">", &asked.params].concat();
        edit.push_back(
            Name::Contact,
            [&value, format!(";expires={}", asked.expires).as_bytes()].concat(),
        );
        let old = self
            .bindings
            .find(aor, &asked.contact)
            .and_then(|id| self.bindings.get(id));
        if let Some(old) =
            old.filter(|old| old.upstream_contact != uri && !by_instance(&asked.params))
        {
            edit.push_back(
                Name::Contact,
                [b"<", old.upstream_contact.as_slice(), b">;expires=0"].concat(),
            );
        }
    }

    /// What the 200 says of the phone's flow, when one of its contacts is one.
    pub(super) fn flow_headers_of(&self, pending: &Pending) -> Vec<(Name, String)> {
        let mut found = pending.asked.iter().filter_map(|asked| {
            let id = self.bindings.find(&pending.aor, &asked.contact)?;
            self.bindings.get(id).filter(|binding| binding.outbound)
        });
        found
            .next()
            .map(|binding| self.flow_headers(binding))
            .unwrap_or_default()
    }

    /// What a phone is told: short, on UDP shorter, and never more than it asked for.
    pub(super) fn phone_expires(&mut self, listener: ListenerId, asked: u32) -> Duration {
        let registration = self.conf.registration;
        let about = match self.transport(listener).is_stream() {
            true => registration.phone_expires_stream,
            false => registration.phone_expires,
        };
        self.told(about, asked)
    }

    /// An expiry within 10 % of `about` either way, so that phones do not march in step, and
    /// never more than asked.
    pub(super) fn told(&mut self, about: Duration, asked: u32) -> Duration {
        let told = about.mul_f64(0.9 + 0.2 * self.rng.unit());
        told.min(Duration::from_secs(u64::from(asked)))
            .max(Duration::from_secs(1))
    }

    /// Upstream challenged a REGISTER: the phone's answer is not held back.
    pub(super) fn challenged(&mut self, now: Now, register: &Pending) {
        for asked in &register.asked {
            let found = self.bindings.find(&register.aor, &asked.contact);
            if let Some(binding) = found.and_then(|id| self.bindings.get_mut(id)) {
                binding.challenged = Some(now.mono);
            }
        }
    }

    /// Every contact of an AOR as its phones wrote them, with what is left of their time.
    pub(super) fn contacts_for_phone(&self, now: Now, aor: &str) -> Vec<String> {
        let left = |binding: &Binding| Duration::as_secs(&binding.phone_until.since(now.mono));
        self.bindings
            .of_aor(aor)
            .into_iter()
            .filter_map(|id| self.bindings.get(id))
            .filter(|binding| binding.phone_until > now.mono)
            .map(|binding| {
                let contact = String::from_utf8_lossy(&binding.contact);
                let params = String::from_utf8_lossy(&binding.params);
                format!("<{contact}>{params};expires={}", left(binding).max(1))
            })
            .collect()
    }
}

/// RFC 5626 section 4.2: instance and reg-id make the registrar replace the old contact itself.
pub(super) fn by_instance(params: &[u8]) -> bool {
    let text = String::from_utf8_lossy(params).to_ascii_lowercase();
    text.contains("+sip.instance") && text.contains("reg-id")
}

/// Instance and reg-id of a Contact's parameters (RFC 5626 section 4.1), when it has an instance.
pub(super) fn instance_of(params: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(params).to_ascii_lowercase();
    let value = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        let rest = rest.trim_start().strip_prefix('=')?;
        Some(rest.split(';').next().unwrap_or_default().trim().to_owned())
    };
    Some((value("+sip.instance")?, value("reg-id").unwrap_or_default()))
}

fn params_without_expires(msg: &Message, addr: &NameAddr) -> Vec<u8> {
    let params = msg.slice(addr.params);
    let Some(expires) = addr.param(msg.bytes(), "expires") else {
        return params.to_vec();
    };
    let start = (expires.full.start - addr.params.start) as usize;
    let end = (expires.full.end - addr.params.start) as usize;
    [&params[..start], &params[end..]].concat()
}

/// User name and realm of a request's credentials: what "changed credentials" compares.
fn credentials(msg: &Message) -> Option<Vec<u8>> {
    let header = msg
        .header(Name::Authorization)
        .or_else(|| msg.header(Name::ProxyAuthorization))?;
    let credentials = digest::Credentials::parse(msg.slice(header))?;
    Some([credentials.username, b"\0", credentials.realm].concat())
}
