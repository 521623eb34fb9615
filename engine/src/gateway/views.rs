//! What people and the API see of bindings and calls.

use std::{net::SocketAddr, time::Duration};

use super::{Gateway, dialogs::Phase};
use crate::{
    media::{SessionId, SessionView},
    net::{PathKey, ServerId, Side},
    time::Now,
};

/// One binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationView {
    /// Address of record.
    pub aor: String,
    /// The phone's Contact URI.
    pub contact: String,
    /// Where it registers from.
    pub source: SocketAddr,
    /// Until its phone is overdue.
    pub expires: Duration,
    /// The server that holds it.
    pub server: ServerId,
    /// Whether upstream vouches for it at present; the gateway does while no server is left.
    pub upstream: bool,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallView {
    /// Stable while the call lasts.
    pub id: u64,
    /// Its Call-ID as the LAN writes it.
    pub call_id: String,
    /// `"early"`, `"confirmed"` or `"ending"`.
    pub state: &'static str,
    /// The caller's URI.
    pub from: String,
    /// The callee's URI.
    pub to: String,
    /// The server it runs through.
    pub path: Option<PathKey>,
    /// When it began.
    pub since: Now,
    /// The side that called.
    pub caller: Side,
    /// Where each party's signalling comes from: caller, callee.
    pub legs: [LegView; 2],
    /// Its media.
    pub media: Option<SessionView>,
    /// The session of its media: what its flows are found by.
    pub session: Option<SessionId>,
}

/// One party of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegView {
    /// Our address towards it.
    pub local: SocketAddr,
    /// Its address.
    pub remote: SocketAddr,
}

impl Gateway {
    /// Every binding whose phone is not overdue.
    pub fn registrations(&self, now: Now) -> impl Iterator<Item = RegistrationView> {
        self.bindings
            .iter()
            .filter(move |(_, binding)| binding.present(now.mono))
            .map(move |(_, binding)| RegistrationView {
                aor: binding.aor.clone(),
                contact: String::from_utf8_lossy(&binding.contact).into_owned(),
                source: binding.source,
                expires: binding.phone_until.since(now.mono),
                server: binding.server,
                upstream: binding.upstream_alive(now.mono) && !self.on_our_own(binding.group),
            })
    }

    /// How many bindings there are whose phone is not overdue.
    #[must_use]
    pub fn registration_count(&self, now: Now) -> usize {
        self.bindings
            .iter()
            .filter(|(_, binding)| binding.present(now.mono))
            .count()
    }

    /// Every call, ringing ones included.
    pub fn calls(&self) -> impl Iterator<Item = CallView> {
        self.dialogs
            .iter()
            .filter(|dialog| dialog.session.is_some())
            .map(|dialog| {
                let near = &dialog.caller;
                let text = |uri: &[u8]| String::from_utf8_lossy(uri).into_owned();
                let (from, to) = (text(&near.caller_uri), text(&near.callee_uri));
                CallView {
                    id: dialog.id,
                    call_id: text(&dialog.call_id),
                    state: match dialog.phase {
                        Phase::Early => "early",
                        Phase::Confirmed => "confirmed",
                        Phase::Ending => "ending",
                    },
                    from,
                    to,
                    path: dialog.path,
                    since: dialog.since,
                    caller: near.side,
                    legs: [&dialog.caller, &dialog.callee].map(|leg| LegView {
                        local: self.address(leg.listener),
                        remote: leg.peer,
                    }),
                    media: dialog
                        .session
                        .and_then(|session| self.media.session_view(SessionId(session))),
                    session: dialog.session.map(SessionId),
                }
            })
    }

    /// How many calls there are.
    #[must_use]
    pub fn call_count(&self) -> usize {
        self.dialogs
            .iter()
            .filter(|dialog| dialog.session.is_some())
            .count()
    }
}
