//! Dialogs the gateway is part of (signalling.md section 5).
//!
//! A call from A to B through a softswitch that is a proxy passes here twice with the same
//! Call-ID and the same tags; only the side on which each party speaks tells the two apart. So
//! a request is recognised by its Call-ID, both tags and the side it arrived on, and a spiral is
//! two dialogs. A call between two phones in survivability has both parties on the LAN.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
};

use super::unanswered::Asked;
use crate::{
    media,
    net::{ListenerId, PathKey, Side},
    time::{Mono, Now},
};

/// How many dialogs are kept; a request that would create one more is refused with 503.
pub(crate) const MAX_DIALOGS: usize = 65_536;

/// Which party of a dialog: also its leg of the media session.
pub(crate) use media::Leg as Party;

/// What a request in a dialog is recognised by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DialogKey {
    /// The Call-ID as the LAN writes it.
    pub(crate) call_id: Vec<u8>,
    /// The tag of the party that speaks.
    pub(crate) speaker: Vec<u8>,
    /// The tag of the other one.
    pub(crate) listener: Vec<u8>,
    /// The side the speaker is on.
    pub(crate) side: Side,
}

/// One party of a dialog: how it is reached and what it calls the two of them.
#[derive(Debug, Clone)]
pub(crate) struct Leg {
    pub(crate) side: Side,
    pub(crate) tag: Vec<u8>,
    /// The party's Contact URI (RFC 3261 section 12: remote target).
    pub(crate) target: Vec<u8>,
    /// Its route set, in the order requests carry it.
    pub(crate) routes: Vec<Vec<u8>>,
    /// Where its messages come from: the next hop when target or route is no address.
    pub(crate) peer: SocketAddr,
    /// The listener it is spoken to from.
    pub(crate) listener: ListenerId,
    /// URI of the caller as this party writes it.
    pub(crate) caller_uri: Vec<u8>,
    /// URI of the callee as this party writes it.
    pub(crate) callee_uri: Vec<u8>,
    /// The last session description it sent, and the last that was sent to it: a session
    /// refresh is recognised and answered by them while its server is down.
    pub(crate) said: Option<Vec<u8>>,
    /// See `said`.
    pub(crate) told: Option<Vec<u8>>,
    /// CSeq of its re-INVITE that was answered here: the ACK goes no further.
    pub(crate) answered_here: Option<u32>,
    /// The highest CSeq number of its requests.
    pub(crate) cseq: u32,
    /// Its INVITE that is not settled yet.
    pub(crate) asked: Option<Asked>,
}

/// How far a dialog has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A provisional response created it.
    Early,
    /// A 2xx confirmed it.
    Confirmed,
    /// A BYE is under way.
    Ending,
}

/// One dialog with its two parties.
#[derive(Debug, Clone)]
pub(crate) struct Dialog {
    pub(crate) id: u64,
    /// The Call-ID as the LAN writes it.
    pub(crate) call_id: Vec<u8>,
    pub(crate) caller: Leg,
    pub(crate) callee: Leg,
    /// The server it runs through; `None` for a call that is connected locally.
    pub(crate) path: Option<PathKey>,
    /// Its media session; forks of one INVITE share it.
    pub(crate) session: Option<u64>,
    /// The offer came in a response: the ACK carries the answer (RFC 3264 with late offer).
    pub(crate) answer_in_ack: bool,
    pub(crate) phase: Phase,
    pub(crate) since: Now,
    /// Silence of its media counts from here.
    pub(crate) silent_from: Mono,
    /// When its subscription is over, unless it is prolonged; `None` without one.
    pub(crate) ends: Option<Mono>,
}

impl Dialog {
    pub(crate) fn leg(&self, party: Party) -> &Leg {
        match party {
            Party::Caller => &self.caller,
            Party::Callee => &self.callee,
        }
    }

    pub(crate) fn leg_mut(&mut self, party: Party) -> &mut Leg {
        match party {
            Party::Caller => &mut self.caller,
            Party::Callee => &mut self.callee,
        }
    }

    /// What requests of a party are recognised by.
    fn key(&self, party: Party) -> DialogKey {
        let (speaker, listener) = (self.leg(party), self.leg(party.other()));
        DialogKey {
            call_id: self.call_id.clone(),
            speaker: speaker.tag.clone(),
            listener: listener.tag.clone(),
            side: speaker.side,
        }
    }
}

/// All dialogs, by id and by what their requests are recognised by.
#[derive(Debug, Default)]
pub(crate) struct Dialogs {
    by_id: HashMap<u64, Dialog>,
    by_key: HashMap<DialogKey, (u64, Party)>,
    /// Which dialogs share a media session.
    sessions: HashMap<u64, Vec<u64>>,
    /// Those that a store may have to hear of.
    touched: BTreeSet<u64>,
    next: u64,
}

impl Dialogs {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Dialog> {
        self.by_id.values()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Dialog> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Dialog> {
        self.touched.insert(id);
        self.by_id.get_mut(&id)
    }

    /// The dialog, and which of its parties speaks.
    pub(crate) fn find(&self, key: &DialogKey) -> Option<(u64, Party)> {
        self.by_key.get(key).copied()
    }

    /// Adds a dialog under a fresh id, which is written into it. The caller checks the bound.
    pub(crate) fn insert(&mut self, mut dialog: Dialog) -> u64 {
        dialog.id = self.next + 1;
        self.put_back(dialog)
    }

    /// Adds a dialog under the id it has; fresh ids go on after it.
    pub(crate) fn put_back(&mut self, dialog: Dialog) -> u64 {
        let id = dialog.id;
        self.next = self.next.max(id);
        for party in [Party::Caller, Party::Callee] {
            self.by_key.insert(dialog.key(party), (id, party));
        }
        if let Some(session) = dialog.session {
            self.sessions.entry(session).or_default().push(id);
        }
        self.touched.insert(id);
        self.by_id.insert(id, dialog);
        id
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Dialog> {
        let dialog = self.by_id.remove(&id)?;
        self.touched.insert(id);
        for party in [Party::Caller, Party::Callee] {
            self.by_key.remove(&dialog.key(party));
        }
        self.leave_session(id, dialog.session);
        Some(dialog)
    }

    /// The call of a dialog ends, the dialog does not: returns the session it used.
    pub(crate) fn end_call(&mut self, id: u64) -> Option<u64> {
        let session = self.get_mut(id)?.session.take();
        self.leave_session(id, session);
        session
    }

    fn leave_session(&mut self, id: u64, session: Option<u64>) {
        if let Some(session) = session
            && let Some(users) = self.sessions.get_mut(&session)
        {
            users.retain(|user| *user != id);
            if users.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }
}

impl Dialogs {
    /// Whether any dialog still uses a media session.
    pub(crate) fn uses(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }

    /// All count as touched.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.by_id.keys());
    }

    /// Takes what was touched since this was called last, the dialogs of these sessions too.
    pub(crate) fn take_touched(&mut self, sessions: impl Iterator<Item = u64>) -> BTreeSet<u64> {
        let mut touched = std::mem::take(&mut self.touched);
        for session in sessions {
            touched.extend(self.sessions.get(&session).into_iter().flatten());
        }
        touched
    }
}

/// The other side.
pub(crate) fn opposite(side: Side) -> Side {
    match side {
        Side::Lan => Side::Wan,
        Side::Wan => Side::Lan,
    }
}
