//! On our own: what the gateway does for its phones while a group has no server left
//! (signalling.md section 4, EM13, EM21, EM22).

use std::time::Duration;

use super::{
    Gateway,
    bindings::{Binding, MAX_BINDINGS, OVERDUE},
    context::Kind,
    deadlines::Deadline,
    registrar::{Asked, Pending},
};
use crate::{
    conf::Policy,
    event::{Event, Evidence},
    net::{GroupId, ServerId},
    sip::{Method, Name, Uri},
    time::{Mono, Now},
};

/// Contacts of one address of record that are served without a softswitch.
const MAX_CONTACTS: usize = 10;

impl Gateway {
    /// Whether phones of any group have no softswitch left.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.alone.contains(&true)
    }

    /// Whether phones of a group are served here at present.
    pub(super) fn on_our_own(&self, group: GroupId) -> bool {
        let alone = self
            .alone
            .get(usize::from(group.0))
            .copied()
            .unwrap_or(false);
        alone && self.conf.survivability.policy != Policy::Off && self.is_proven(group)
    }

    /// A REGISTER while no server is left, or after all of them were tried: a known phone gets
    /// its 200, anybody else 403 (EM22).
    pub(super) fn register_here(&mut self, now: Now, id: u64, group: GroupId, pending: &Pending) {
        let Some(trusted) = self.trusted(now, group, pending) else {
            self.refuse_stranger(now, pending);
            return self.answer(now, id, 403);
        };
        if !self.has_room(pending) {
            return self.answer(now, id, 403);
        }
        for asked in &pending.asked {
            self.bind_here(now, group, pending, asked, trusted.as_ref());
        }
        let contacts = self.contacts_for_phone(now, &pending.aor);
        let mut headers: Vec<(Name, String)> = contacts
            .into_iter()
            .map(|value| (Name::Contact, value))
            .collect();
        headers.extend(self.flow_headers_of(pending));
        let associated = trusted.map(|known| known.associated).unwrap_or_default();
        headers.extend(
            associated
                .into_iter()
                .map(|uri| (Name::PAssociatedUri, uri)),
        );
        self.answer_with(now, id, 200, &headers);
    }

    /// Why a REGISTER is trusted without its softswitch: a binding of the same AOR, from the
    /// same source, that upstream accepted not too long ago. `Some(None)` is everybody's trust
    /// under `open-lan`.
    pub(super) fn trusted(
        &self,
        now: Now,
        group: GroupId,
        pending: &Pending,
    ) -> Option<Option<Binding>> {
        let known = self
            .bindings
            .of_aor(&pending.aor)
            .into_iter()
            .filter_map(|id| self.bindings.get(id))
            .find(|binding| {
                binding.is_from(pending.source.ip(), pending.proof)
                    && self.is_of(binding, group)
                    && binding.known(now.wall, self.conf.registration.known_for)
            });
        match self.conf.survivability.policy {
            Policy::Off => None,
            Policy::OpenLan => Some(known.cloned()),
            Policy::Known | Policy::LocalUsers => known.cloned().map(Some),
        }
    }

    /// Whether a request's source is a phone that may call while no server is left.
    fn may_call_here(&self, now: Now, id: u64) -> bool {
        let Some(ctx) = self.contexts.get(&id) else {
            return false;
        };
        let from = ctx
            .request
            .from()
            .map(|from| ctx.request.slice(from.uri))
            .unwrap_or_default();
        let aor = self.aor(from);
        let proof = self.proof(ctx.listener, ctx.from);
        self.conf.survivability.policy == Policy::OpenLan
            || self
                .bindings
                .of_aor(&aor)
                .into_iter()
                .filter_map(|id| self.bindings.get(id))
                .any(|binding| {
                    binding.is_from(ctx.from.ip(), proof)
                        && binding.known(now.wall, self.conf.registration.known_for)
                })
    }

    /// Whether the contacts asked for fit: one phone must not make every call to it a flood.
    fn has_room(&self, pending: &Pending) -> bool {
        let of_aor = self.bindings.of_aor(&pending.aor);
        let new = pending.asked.iter().filter(|asked| {
            let known = self.bindings.find(&pending.aor, &asked.contact);
            asked.expires > 0 && known.is_none()
        });
        let new = new.count();
        new == 0
            || (of_aor.len() + new <= MAX_CONTACTS && self.bindings.len() + new <= MAX_BINDINGS)
    }

    fn refuse_stranger(&mut self, now: Now, pending: &Pending) {
        let source = pending.source;
        let Some(untold) = self.refusals.refused(now.mono) else {
            return;
        };
        let what = match untold {
            0 => format!("REGISTER from {source}"),
            more => format!("REGISTER from {source}, and {more} more that were not told of"),
        };
        self.out.push_back(super::Output::Event(Event {
            at: now,
            kind: "binding",
            object: pending.aor.clone(),
            from: "unknown".to_owned(),
            to: "refused".to_owned(),
            rule: "not_known_from_this_source",
            evidence: vec![Evidence { at: now, what }],
        }));
    }

    fn bind_here(
        &mut self,
        now: Now,
        group: GroupId,
        pending: &Pending,
        asked: &Asked,
        known: Option<&Binding>,
    ) {
        let old = self.bindings.find(&pending.aor, &asked.contact);
        if asked.expires == 0 {
            // Upstream lets it expire: nobody here has the phone's password. What comes for it
            // until then is answered 480, and the phone is known when it comes again.
            if let Some(binding) = old.and_then(|id| self.bindings.get_mut(id)) {
                binding.phone_until = Mono(now.mono.0.saturating_sub(OVERDUE));
                binding.due = true;
            }
            return;
        }
        let longest = self.conf.survivability.expires;
        let told = self.told(longest, asked.expires);
        let inherited = old.and_then(|id| self.bindings.get(id)).or(known);
        let binding = Binding {
            aor: pending.aor.clone(),
            contact: asked.contact.clone(),
            params: asked.params.clone(),
            token: asked.token.clone(),
            upstream_contact: inherited
                .map(|known| known.upstream_contact.clone())
                .unwrap_or_default(),
            source: pending.source,
            proof: pending.proof,
            listener: pending.listener,
            call_id: pending.call_id.clone(),
            cseq: pending.cseq,
            credentials: pending.credentials.clone(),
            group,
            server: inherited.map_or(ServerId { group, index: 0 }, |known| known.server),
            accepted: inherited.map(|known| known.accepted).unwrap_or_default(),
            granted: old
                .and_then(|id| self.bindings.get(id))
                .map_or(Duration::ZERO, |old| old.granted),
            phone_until: now.mono + told,
            due: true,
            challenged: None,
            service_route: inherited
                .map(|known| known.service_route.clone())
                .unwrap_or_default(),
            path: pending.path.clone(),
            outbound: inherited.is_some_and(|known| known.outbound) && asked.opens_flow(),
            associated: inherited
                .map(|known| known.associated.clone())
                .unwrap_or_default(),
        };
        self.keep(old, binding);
    }

    /// Whether a call attempt can be connected without any server: a known phone calls one that
    /// is here.
    pub(super) fn can_connect_here(&self, now: Now, id: u64) -> bool {
        self.conf.survivability.policy != Policy::Off
            && self.may_call_here(now, id)
            && !self.callees(now, id).is_empty()
    }

    /// The phones that a request's target has here and that are not overdue.
    fn callees(&self, now: Now, id: u64) -> Vec<u64> {
        let Some(ctx) = self.contexts.get(&id) else {
            return Vec::new();
        };
        let uri = ctx
            .request
            .uri()
            .map(|span| ctx.request.slice(span))
            .unwrap_or_default();
        let group = self.group_for(&ctx.request, (ctx.listener, ctx.from));
        let present = |id: &u64| {
            self.bindings.get(*id).is_some_and(|binding| {
                binding.present(now.mono) && group.is_none_or(|group| self.is_of(binding, group))
            })
        };
        let parsed = Uri::parse(uri);
        let token = parsed.and_then(|uri| self.bindings.by_token(uri.user?));
        let mut found: Vec<u64> = match token {
            Some(binding) => vec![binding],
            None => self.bindings.of_aor(&self.aor(uri)),
        };
        if found.is_empty()
            && let Some(user) = parsed.and_then(|uri| uri.user)
        {
            found = self.by_last_digits(group, user);
        }
        found.retain(present);
        found
    }

    /// The bindings of a group whose user's digits end in what was dialled, for the lengths configured
    /// (EM16).
    fn by_last_digits(&self, group: Option<GroupId>, dialled: &[u8]) -> Vec<u64> {
        let lengths = &self.conf.survivability.last_digits;
        let short = lengths
            .iter()
            .any(|length| usize::from(*length) == dialled.len());
        if !short || !dialled.iter().all(u8::is_ascii_digit) {
            return Vec::new();
        }
        let ends = |aor: &str| {
            aor.split('@')
                .next()
                .is_some_and(|user| user.as_bytes().ends_with(dialled))
        };
        let mut found: Vec<u64> = self
            .bindings
            .iter()
            .filter(|(_, binding)| Some(binding.group) == group && ends(&binding.aor))
            .map(|(id, _)| id)
            .collect();
        found.sort_unstable();
        found
    }

    /// Serves a request between two phones: all contacts of the callee ring together (EM16).
    pub(super) fn connect_here(&mut self, now: Now, id: u64) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        match ctx.request.method() {
            Some(Method::Subscribe | Method::Publish) => return self.subscribe_later(now, id),
            _ if !self.may_call_here(now, id) => return self.answer(now, id, 403),
            _ => {}
        }
        let callees = self.callees(now, id);
        if callees.is_empty() {
            self.answer(now, id, 480);
            return self.end_attempt(now, id);
        }
        self.deadlines.clear(Deadline::HuntBudget(id));
        self.set_kind(id, Kind::ToPhone);
        for binding in callees {
            self.branch_to_phone(now, id, binding);
        }
    }

    /// The softswitches have had their time: a call between two phones of this branch waits no
    /// longer, unless one of them has said something (EM21).
    pub(super) fn budget_used(&mut self, now: Now, id: u64) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let heard = ctx
            .branches
            .iter()
            .any(|branch| branch.provisional && !branch.abandoned);
        if heard || ctx.cancelled || !matches!(ctx.kind, Kind::ToGroup { .. }) {
            return;
        }
        let branches = ctx.branches.len();
        if self.can_connect_here(now, id) {
            for index in 0..branches {
                self.abandon(now, id, index);
            }
            self.connect_here(now, id);
        }
    }
}
