//! Media plans: which ports a call holds, and which flows forward it (signalling.md section 7).

mod types;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

pub use types::{
    DropReason, Learn, Leg, LegView, MediaConf, MediaLink, Refused, Seen, SessionId, SessionView,
    Signalled, StreamView,
};

use crate::{
    net::LinkId,
    steer::{Delta, Flow},
    time::Now,
};

/// Anchors the media of every call at the gateway.
///
/// Plain data with outputs: it has no timers of its own, `now` decides when ports have rested
/// and learning windows end. After each call the driver drains [`Media::poll_output`].
#[derive(Debug)]
pub struct Media {
    outputs: VecDeque<Delta>,
}

impl Media {
    /// No session yet, every port free.
    #[must_use]
    pub fn new(conf: MediaConf, links: Vec<MediaLink>) -> Self {
        let _ = (conf, links);
        Self {
            outputs: VecDeque::new(),
        }
    }

    /// Begins a session between two links; ports are taken by the first offer.
    pub fn open(&mut self, session: SessionId, caller: LinkId, callee: LinkId) {
        let _ = (session, caller, callee);
    }

    /// Takes an offer from `from` and returns the body for the other leg. The same body again
    /// (a retransmission, a hunt to another server) returns the same bytes.
    ///
    /// # Errors
    /// [`Refused`], with the SIP status to answer; the session is as it was.
    pub fn offer(
        &mut self,
        now: Now,
        session: SessionId,
        from: Leg,
        signalled: Signalled,
        body: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let _ = (now, session, from, signalled);
        Ok(body.to_vec())
    }

    /// Takes an answer from `from` (an 18x, a 2xx, an ACK) and returns the body for the other
    /// leg. Of several answers to one offer the last wins; the same again changes nothing.
    ///
    /// # Errors
    /// [`Refused`]; the session is as it was.
    pub fn answer(
        &mut self,
        now: Now,
        session: SessionId,
        from: Leg,
        signalled: Signalled,
        body: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let _ = (now, session, from, signalled);
        Ok(body.to_vec())
    }

    /// The offer that is open was refused: what was agreed before stays in force (RFC 3264
    /// section 4). Does nothing when none is open.
    pub fn offer_refused(&mut self, now: Now, session: SessionId) {
        let _ = (now, session);
    }

    /// Moves a leg to another link, before its body is sent there: a hunt over another WAN.
    pub fn relink(&mut self, now: Now, session: SessionId, leg: Leg, link: LinkId) {
        let _ = (now, session, leg, link);
    }

    /// Ends a session: its flows are cleared, its ports closed.
    pub fn close(&mut self, now: Now, session: SessionId) {
        let _ = (now, session);
    }

    /// A datagram arrived on the media socket `local`: decides where it goes, and learns.
    pub fn source_seen(&mut self, now: Now, local: SocketAddr, from: SocketAddr) -> Seen {
        let _ = (now, local, from);
        Seen::Drop(DropReason::NoSession)
    }

    /// A link's address came, went or changed.
    pub fn address_changed(&mut self, now: Now, link: LinkId, address: Option<IpAddr>) {
        let _ = (now, link, address);
    }

    /// The next change of the desired state.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Delta> {
        self.outputs.pop_front()
    }

    /// Every flow that is in force.
    pub fn flows(&self) -> impl Iterator<Item = (SessionId, &Flow)> {
        std::iter::empty()
    }

    /// Every port that is held, with its link.
    pub fn ports(&self) -> impl Iterator<Item = (LinkId, SocketAddr)> {
        std::iter::empty()
    }

    /// A session as `calls` shows it.
    #[must_use]
    pub fn session_view(&self, session: SessionId) -> Option<SessionView> {
        let _ = session;
        None
    }
}
