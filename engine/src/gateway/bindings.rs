//! Bindings learned from REGISTERs that the softswitch accepted, keyed (AOR, contact), never
//! the AOR alone (signalling.md section 4, case F1).

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    time::Duration,
};

use super::proof::Proof;
use crate::{
    net::{GroupId, ListenerId, ServerId},
    time::{Mono, Now, Wall},
};

/// How many bindings are kept; a REGISTER beyond that is refused with 503.
pub(crate) const MAX_BINDINGS: usize = 100_000;

/// How long a phone that missed its refresh is still listed and called.
pub(crate) const OVERDUE: Duration = Duration::from_secs(32);

/// One phone's contact under one address of record.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    /// Address of record, canonical: `user@domain`.
    pub(crate) aor: String,
    /// The phone's Contact URI, byte for byte.
    pub(crate) contact: Vec<u8>,
    /// Its header parameters but for `expires`, byte for byte with their semicolons.
    pub(crate) params: Vec<u8>,
    /// The user part of the Contact that stands for it upstream.
    pub(crate) token: String,
    /// The Contact URI last registered upstream: it changes with the WAN address (EM25).
    pub(crate) upstream_contact: Vec<u8>,
    /// Where its REGISTER came from, and so where requests to it go while that can be reached.
    pub(crate) source: SocketAddr,
    /// What proved who sent it.
    pub(crate) proof: Option<Proof>,
    /// The listener it speaks to.
    pub(crate) listener: ListenerId,
    /// Call-ID and CSeq of its last accepted REGISTER: a refresh continues them.
    pub(crate) call_id: Vec<u8>,
    /// See `call_id`.
    pub(crate) cseq: u32,
    /// User name and realm of the credentials it was accepted with.
    pub(crate) credentials: Option<Vec<u8>>,
    /// The group it belongs to.
    pub(crate) group: GroupId,
    /// The server that holds its registration (affinity).
    pub(crate) server: ServerId,
    /// When the last 2xx came from upstream, and how long it granted.
    pub(crate) accepted: Now,
    /// See `accepted`.
    pub(crate) granted: Duration,
    /// When the phone must have refreshed, as it was told.
    pub(crate) phone_until: Mono,
    /// The next refresh goes upstream whatever the clock says.
    pub(crate) due: bool,
    /// When upstream last challenged it, or its connection was closed to bring it: the REGISTER
    /// that answers is never held back.
    pub(crate) challenged: Option<Mono>,
    /// Route for later requests (RFC 3608), hidden from the phone.
    pub(crate) service_route: Vec<Vec<u8>>,
    /// The proxies between the phone and us, as requests to it carry them (RFC 3327).
    pub(crate) path: Vec<Vec<u8>>,
    /// Its registrar reaches it by the flow that it opened (RFC 5626).
    pub(crate) outbound: bool,
    /// P-Associated-URI values of its last 2xx (RFC 7315): repeated in local answers.
    pub(crate) associated: Vec<String>,
}

impl Binding {
    /// Whether upstream still holds it.
    pub(crate) fn upstream_alive(&self, now: Mono) -> bool {
        now < self.accepted.mono + self.granted
    }

    /// Whether its phone is here: not overdue by more than a transaction's life.
    pub(crate) fn present(&self, now: Mono) -> bool {
        now < self.phone_until + OVERDUE
    }

    /// Whether it is trusted without asking upstream (signalling.md section 4).
    pub(crate) fn known(&self, now: Wall, known_for: Duration) -> bool {
        now.0 < self.accepted.wall.0.saturating_add(known_for)
    }

    /// Whether a refresh may be answered without asking upstream (EM24).
    pub(crate) fn refresh_is_local(&self, now: Mono) -> bool {
        !self.due && now < self.accepted.mono + self.granted / 2
    }
}

/// All bindings, found by contact, by token and by address of record.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    by_id: HashMap<u64, Binding>,
    /// Those of an address of record, in the order of their contacts.
    by_aor: HashMap<String, Vec<u64>>,
    by_token: HashMap<String, u64>,
    /// Those that a store may have to hear of.
    touched: BTreeSet<u64>,
    next: u64,
}

/// The table is full; the entry was not taken and the old ones stay.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Bindings {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Binding)> {
        self.by_id.iter().map(|(id, binding)| (*id, binding))
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Binding> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Binding> {
        self.touched.insert(id);
        self.by_id.get_mut(&id)
    }

    pub(crate) fn find(&self, aor: &str, contact: &[u8]) -> Option<u64> {
        let of_aor = self.by_aor.get(aor)?;
        self.place(of_aor, contact).ok().map(|at| of_aor[at])
    }

    pub(crate) fn by_token(&self, token: &[u8]) -> Option<u64> {
        self.by_token.get(std::str::from_utf8(token).ok()?).copied()
    }

    /// Every contact of an address of record, in a stable order.
    pub(crate) fn of_aor(&self, aor: &str) -> Vec<u64> {
        self.by_aor.get(aor).cloned().unwrap_or_default()
    }

    /// Where a contact stands among those of its address of record, or where it would.
    fn place(&self, of_aor: &[u64], contact: &[u8]) -> Result<usize, usize> {
        let contact_of = |id: &u64| self.by_id.get(id).map(|binding| binding.contact.as_slice());
        of_aor.binary_search_by(|id| contact_of(id).cmp(&Some(contact)))
    }

    /// Adds a binding or replaces the one with the same key.
    pub(crate) fn put(&mut self, binding: Binding) -> Result<u64, Full> {
        let id = match self.find(&binding.aor, &binding.contact) {
            Some(id) => id,
            None if self.by_id.len() >= MAX_BINDINGS => return Err(Full),
            None => self.next + 1,
        };
        self.put_back(id, binding);
        Ok(id)
    }

    /// Puts a binding under this id; fresh ids go on after it.
    pub(crate) fn put_back(&mut self, id: u64, binding: Binding) {
        self.remove(id);
        self.next = self.next.max(id);
        let of_aor = self.by_aor.get(&binding.aor).map_or(&[][..], Vec::as_slice);
        let (Ok(at) | Err(at)) = self.place(of_aor, &binding.contact);
        match self.by_aor.get_mut(&binding.aor) {
            Some(of_aor) => of_aor.insert(at, id),
            None => drop(self.by_aor.insert(binding.aor.clone(), vec![id])),
        }
        self.by_token.insert(binding.token.clone(), id);
        self.by_id.insert(id, binding);
        self.touched.insert(id);
    }

    /// The next refresh of those that `wanted` picks goes upstream. The rest is not touched.
    pub(crate) fn mark_due(&mut self, wanted: impl Fn(&Binding) -> bool) {
        for (id, binding) in &mut self.by_id {
            if wanted(binding) {
                binding.due = true;
                self.touched.insert(*id);
            }
        }
    }

    /// All count as touched.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.by_id.keys());
    }

    /// Takes what was touched since this was called last.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Binding> {
        let binding = self.by_id.remove(&id)?;
        self.touched.insert(id);
        if let Some(of_aor) = self.by_aor.get_mut(&binding.aor) {
            of_aor.retain(|other| *other != id);
            if of_aor.is_empty() {
                self.by_aor.remove(&binding.aor);
            }
        }
        if self.by_token.get(&binding.token) == Some(&id) {
            self.by_token.remove(&binding.token);
        }
        Some(binding)
    }
}
