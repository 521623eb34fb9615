//! What outlives the process, as plain data: names instead of positions, wall-clock times
//! instead of monotonic ones, so that a record means the same after a restart with another
//! configuration.

use std::{net::SocketAddr, time::Duration};

use super::proof::Proof;
use crate::{media::SessionRecord, net::Transport, time::Wall};

/// One change of what a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A binding is so from now on.
    Binding(Box<BindingRecord>),
    /// The binding with this id is gone.
    BindingGone(u64),
    /// A dialog is so from now on.
    Dialog(Box<DialogRecord>),
    /// The dialog with this id is gone.
    DialogGone(u64),
    /// Nothing of before is so any more; all that is follows.
    Anew,
}

/// All that a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// Each binding.
    pub bindings: Vec<BindingRecord>,
    /// Each confirmed dialog.
    pub dialogs: Vec<DialogRecord>,
}

/// What became of stored records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Bindings that are back.
    pub bindings: usize,
    /// Dialogs that are back.
    pub dialogs: usize,
    /// Records that mean nothing any more: too old, or of a link, listener or group that is gone.
    pub dropped: usize,
}

/// A listener, by the name of its link and its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListenerRecord {
    /// Name of its link.
    pub link: String,
    /// What it carries SIP over.
    pub transport: Transport,
    /// Its address.
    pub address: SocketAddr,
}

/// One phone's contact under one address of record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BindingRecord {
    /// Stable while the binding lasts.
    pub id: u64,
    /// Address of record, canonical.
    pub aor: String,
    /// The phone's Contact URI, byte for byte.
    pub contact: Vec<u8>,
    /// Its header parameters but for `expires`.
    pub params: Vec<u8>,
    /// User part of the Contact that stands for it upstream.
    pub token: String,
    /// The Contact URI last registered upstream.
    pub upstream_contact: Vec<u8>,
    /// Where its REGISTER came from.
    pub source: SocketAddr,
    /// What proved who sent it.
    pub proof: Option<Proof>,
    /// The listener it speaks to.
    pub listener: ListenerRecord,
    /// Call-ID of its last accepted REGISTER.
    pub call_id: Vec<u8>,
    /// CSeq of its last accepted REGISTER.
    pub cseq: u32,
    /// User name and realm of the credentials it was accepted with.
    pub credentials: Option<Vec<u8>>,
    /// Name of its group.
    pub group: String,
    /// Address of the server that holds its registration.
    pub server: SocketAddr,
    /// When the last 2xx came from upstream.
    pub accepted: Wall,
    /// How long that granted.
    pub granted: Duration,
    /// When the phone must have refreshed.
    pub phone_until: Wall,
    /// Route for later requests (RFC 3608).
    pub service_route: Vec<Vec<u8>>,
    /// The proxies between the phone and us (RFC 3327).
    pub path: Vec<Vec<u8>>,
    /// It is reached by the flow that it opened (RFC 5626).
    pub outbound: bool,
    /// P-Associated-URI values of its last 2xx.
    pub associated: Vec<String>,
}

/// A confirmed dialog with its two parties and its media.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DialogRecord {
    /// Stable while the dialog lasts.
    pub id: u64,
    /// The Call-ID as the LAN writes it.
    pub call_id: Vec<u8>,
    /// Who sent the first request.
    pub caller: PartyRecord,
    /// Who answered it.
    pub callee: PartyRecord,
    /// The server it runs through; `None` for a call that is connected locally.
    pub path: Option<PathRecord>,
    /// The ACK is still to bring the answer.
    pub answer_in_ack: bool,
    /// When it began.
    pub since: Wall,
    /// When its subscription is over; `None` without one.
    pub ends: Option<Wall>,
    /// Its media; forks of one INVITE carry the same.
    pub media: Option<SessionRecord>,
}

/// One party of a dialog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartyRecord {
    /// The listener it is spoken to from; its link tells the side.
    pub listener: ListenerRecord,
    /// Its tag.
    pub tag: Vec<u8>,
    /// Its Contact URI.
    pub target: Vec<u8>,
    /// Its route set, in the order requests carry it.
    pub routes: Vec<Vec<u8>>,
    /// Where its messages come from.
    pub peer: SocketAddr,
    /// URI of the caller as this party writes it.
    pub caller_uri: Vec<u8>,
    /// URI of the callee as this party writes it.
    pub callee_uri: Vec<u8>,
    /// The last session description it sent.
    pub said: Option<Vec<u8>>,
    /// The last that was sent to it.
    pub told: Option<Vec<u8>>,
    /// CSeq of its re-INVITE that was answered here.
    pub answered_here: Option<u32>,
    /// No request of it had a higher CSeq number.
    pub cseq: u32,
    /// Its INVITE that is not settled yet.
    pub asked: Option<AskedRecord>,
}

/// A re-INVITE that waits for its final answer, or for the ACK of a 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AskedRecord {
    /// As it came.
    pub request: Vec<u8>,
    /// From where.
    pub from: SocketAddr,
    /// To which listener.
    pub listener: ListenerRecord,
    /// When.
    pub since: Wall,
}

/// A server as reached over one link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathRecord {
    /// Name of the group.
    pub group: String,
    /// The server's address.
    pub server: SocketAddr,
    /// Name of the link.
    pub link: String,
}

impl Records {
    /// Applies a change, as every store must; records stay in the order of their ids.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Binding(record) => put(&mut self.bindings, *record, |old| old.id),
            Change::BindingGone(id) => self.bindings.retain(|old| old.id != id),
            Change::Dialog(record) => put(&mut self.dialogs, *record, |old| old.id),
            Change::DialogGone(id) => self.dialogs.retain(|old| old.id != id),
            Change::Anew => *self = Self::default(),
        }
    }
}

fn put<T>(records: &mut Vec<T>, record: T, id: impl Fn(&T) -> u64) {
    match records.binary_search_by_key(&id(&record), &id) {
        Ok(at) => records[at] = record,
        Err(at) => records.insert(at, record),
    }
}
