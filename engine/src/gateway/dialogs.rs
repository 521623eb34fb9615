//! Dialogs the gateway is part of (signalling.md section 5).
//!
//! A call from A to B through a softswitch that is a proxy passes here twice with the same
//! Call-ID and the same tags. The key tells the two apart by the side each tag is on: first
//! (A's tag on the LAN, B's on the WAN), then the other way round. A spiral is two dialogs.

use std::{collections::HashMap, net::SocketAddr};

use crate::{
    net::{ListenerId, PathKey, Side},
    time::Now,
};

/// How many dialogs are kept; a request that would create one more is refused with 503.
pub(crate) const MAX_DIALOGS: usize = 65_536;

/// What a request in a dialog is recognised by. The side of arrival says which tag is whose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DialogKey {
    /// The Call-ID as the LAN side writes it.
    pub(crate) call_id: Vec<u8>,
    /// The tag of the party on the LAN side.
    pub(crate) lan_tag: Vec<u8>,
    /// The tag of the party on the WAN side.
    pub(crate) wan_tag: Vec<u8>,
}

/// One side of a dialog: how its party is reached and what it calls the two parties.
#[derive(Debug, Clone)]
pub(crate) struct Leg {
    /// The party's Contact URI (RFC 3261 section 12: remote target).
    pub(crate) target: Vec<u8>,
    /// Its route set, in the order requests carry it.
    pub(crate) routes: Vec<Vec<u8>>,
    /// Where its messages come from: the next hop when target or route is no address.
    pub(crate) peer: SocketAddr,
    /// The listener it is spoken to from.
    pub(crate) listener: ListenerId,
    /// URI of the LAN party as this side writes it.
    pub(crate) lan_uri: Vec<u8>,
    /// URI of the WAN party as this side writes it.
    pub(crate) wan_uri: Vec<u8>,
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

/// One dialog with its two legs.
#[derive(Debug, Clone)]
pub(crate) struct Dialog {
    pub(crate) id: u64,
    pub(crate) key: DialogKey,
    pub(crate) lan: Leg,
    pub(crate) wan: Leg,
    /// The side that called.
    pub(crate) caller: Side,
    /// The server it runs through.
    pub(crate) path: Option<PathKey>,
    /// Its media session; forks of one INVITE share it.
    pub(crate) session: Option<u64>,
    /// The offer came in a response: the ACK carries the answer (RFC 3264 with late offer).
    pub(crate) answer_in_ack: bool,
    pub(crate) phase: Phase,
    pub(crate) since: Now,
}

impl Dialog {
    pub(crate) fn leg(&self, side: Side) -> &Leg {
        match side {
            Side::Lan => &self.lan,
            Side::Wan => &self.wan,
        }
    }

    pub(crate) fn leg_mut(&mut self, side: Side) -> &mut Leg {
        match side {
            Side::Lan => &mut self.lan,
            Side::Wan => &mut self.wan,
        }
    }
}

/// All dialogs, by id and by key.
#[derive(Debug, Default)]
pub(crate) struct Dialogs {
    by_id: HashMap<u64, Dialog>,
    by_key: HashMap<DialogKey, u64>,
    /// How many dialogs share a media session.
    sessions: HashMap<u64, u32>,
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
        self.by_id.get_mut(&id)
    }

    pub(crate) fn find(&self, key: &DialogKey) -> Option<u64> {
        self.by_key.get(key).copied()
    }

    /// Adds a dialog under a fresh id, which is written into it. The caller checks the bound.
    pub(crate) fn insert(&mut self, mut dialog: Dialog) -> u64 {
        self.next += 1;
        dialog.id = self.next;
        self.by_key.insert(dialog.key.clone(), self.next);
        if let Some(session) = dialog.session {
            *self.sessions.entry(session).or_default() += 1;
        }
        self.by_id.insert(self.next, dialog);
        self.next
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Dialog> {
        let dialog = self.by_id.remove(&id)?;
        self.by_key.remove(&dialog.key);
        if let Some(session) = dialog.session
            && let Some(users) = self.sessions.get_mut(&session)
        {
            *users -= 1;
            if *users == 0 {
                self.sessions.remove(&session);
            }
        }
        Some(dialog)
    }
}

impl Dialogs {
    /// Whether any dialog still uses a media session.
    pub(crate) fn uses(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }
}

/// The other side.
pub(crate) fn opposite(side: Side) -> Side {
    match side {
        Side::Lan => Side::Wan,
        Side::Wan => Side::Lan,
    }
}
