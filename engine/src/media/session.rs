//! What the media of one dialog consists of.

use super::{
    Leg, LegView, SessionId, SessionView, Signalled, StreamView, remote::Remote, source::Source,
};
use crate::{
    net::LinkId,
    sdp::Origin,
    steer::{FlowId, FlowKind},
    time::Mono,
};

/// RTP's or RTCP's port of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Rtp,
    Rtcp,
}

/// One of our ports, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) session: SessionId,
    pub(super) stream: usize,
    pub(super) leg: Leg,
    pub(super) part: Part,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) sides: [SideOf; 2],
    pub(super) streams: Vec<Stream>,
    pub(super) exchange: Option<Exchange>,
    /// When a packet of it last took the slow path.
    pub(super) heard: Option<Mono>,
}

/// A leg without its streams.
#[derive(Debug)]
pub(super) struct SideOf {
    pub(super) link: LinkId,
    pub(super) origin: Origin,
    /// The body last sent there, without its version.
    pub(super) sent: Option<Vec<u8>>,
}

/// One m= line on both legs.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) media: String,
    /// An answer was given: a refused offer does not take it away.
    pub(super) agreed: bool,
    pub(super) disabled: bool,
    pub(super) mux: bool,
    pub(super) ends: [End; 2],
}

/// One leg of a stream.
#[derive(Debug)]
pub(super) struct End {
    /// The even port of our pair.
    pub(super) port: Option<u16>,
    pub(super) remote: Option<Remote>,
    pub(super) rtp: Source,
    pub(super) rtcp: Source,
    /// Flows of packets that arrive here: RTP, RTCP.
    pub(super) flows: [FlowId; 2],
    pub(super) before_lock: u32,
}

/// The last offer, and its last answer.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) from: Leg,
    pub(super) offer: Body,
    pub(super) remotes: Vec<Option<Remote>>,
    pub(super) answer: Option<Body>,
}

/// A body as it came, from where, and as it went on.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) signalled: Signalled,
    pub(super) came: Vec<u8>,
    pub(super) went: Vec<u8>,
}

impl Part {
    pub(super) const BOTH: [Self; 2] = [Self::Rtp, Self::Rtcp];

    /// This part's port of a pair.
    pub(super) fn of(self, pair: u16) -> u16 {
        match self {
            Self::Rtp => pair,
            Self::Rtcp => pair | 1,
        }
    }
}

impl Stream {
    fn is_fax(&self) -> bool {
        self.media == "image"
    }

    /// What arrives at a port of it; `None`: nothing does.
    pub(super) fn kind(&self, part: Part) -> Option<FlowKind> {
        match part {
            _ if self.disabled => None,
            Part::Rtp if self.is_fax() => Some(FlowKind::Udptl),
            Part::Rtp => Some(FlowKind::Rtp),
            Part::Rtcp => (!self.mux && !self.is_fax()).then_some(FlowKind::Rtcp),
        }
    }
}

impl Exchange {
    /// The bodies go on as they come; one that is anchored has another origin at least.
    pub(super) fn is_passed(&self) -> bool {
        self.offer.came == self.offer.went
    }
}

impl Body {
    /// One that goes on as it came.
    pub(super) fn passed(signalled: Signalled, body: &[u8]) -> Self {
        Self {
            signalled,
            came: body.to_vec(),
            went: body.to_vec(),
        }
    }

    /// The same message again, or the same offer to another server.
    pub(super) fn is(&self, signalled: Signalled, came: &[u8]) -> bool {
        self.signalled == signalled && self.came == came
    }
}

impl Session {
    pub(super) fn side(&self, leg: Leg) -> &SideOf {
        &self.sides[leg as usize]
    }

    pub(super) fn side_mut(&mut self, leg: Leg) -> &mut SideOf {
        &mut self.sides[leg as usize]
    }

    pub(super) fn end(&self, stream: usize, leg: Leg) -> Option<&End> {
        self.streams
            .get(stream)
            .map(|stream| &stream.ends[leg as usize])
    }
}

impl Stream {
    pub(super) fn new(media: &str, first_flow: u64) -> Self {
        let end = |at: u64| End {
            port: None,
            remote: None,
            rtp: Source::default(),
            rtcp: Source::default(),
            flows: [FlowId(at), FlowId(at + 1)],
            before_lock: 0,
        };
        Self {
            media: media.to_owned(),
            agreed: false,
            disabled: false,
            mux: false,
            ends: [end(first_flow), end(first_flow + 2)],
        }
    }
}

impl End {
    pub(super) fn source(&self, part: Part) -> &Source {
        match part {
            Part::Rtp => &self.rtp,
            Part::Rtcp => &self.rtcp,
        }
    }

    pub(super) fn source_mut(&mut self, part: Part) -> &mut Source {
        match part {
            Part::Rtp => &mut self.rtp,
            Part::Rtcp => &mut self.rtcp,
        }
    }
}

impl super::Media {
    /// Silence of a session says nothing: it is on hold, or inactive, or carries a fax
    /// (T.38 pauses for as long as a page takes), or has no media at all here.
    #[must_use]
    pub fn may_be_silent(&self, session: SessionId) -> bool {
        let live = |stream: &&Stream| !stream.disabled && stream.ends[0].port.is_some();
        let held = |stream: &Stream| {
            let mut remotes = stream.ends.iter().filter_map(|end| end.remote);
            remotes.any(|remote| remote.held)
        };
        let streams: Vec<&Stream> = self.one_call(session).flat_map(|s| &s.streams).collect();
        let mut live = streams.into_iter().filter(live).peekable();
        live.peek().is_none() || live.any(|stream| stream.is_fax() || held(stream))
    }

    /// The flows that are in force of a session, and of those that are the same call: a packet
    /// that hairpins is seen in one of them only.
    #[must_use]
    pub fn flows_of(&self, session: SessionId) -> Vec<FlowId> {
        let ends = self.one_call(session).flat_map(|state| &state.streams);
        let all = ends
            .flat_map(|stream| &stream.ends)
            .flat_map(|end| end.flows);
        all.filter(|id| self.flows.contains_key(id)).collect()
    }

    /// When a packet of a session, or of those that are the same call, last took the slow path.
    #[must_use]
    pub fn heard(&self, session: SessionId) -> Option<Mono> {
        self.one_call(session).filter_map(|state| state.heard).max()
    }

    fn one_call(&self, session: SessionId) -> impl Iterator<Item = &Session> {
        let all = self.touched(session).into_iter();
        all.filter_map(|session| self.sessions.get(&session))
    }

    /// A session as `calls` shows it.
    #[must_use]
    pub fn session_view(&self, session: SessionId) -> Option<SessionView> {
        let state = self.sessions.get(&session)?;
        let leg = |end: &End, leg: Leg| {
            let link = state.side(leg).link;
            let declared = end.remote.and_then(|remote| remote.rtp.declared);
            LegView {
                link,
                local: end.port.and_then(|port| self.local(link, port)),
                remote: end.rtp.learned().or(declared),
                source: end.rtp.accepted(),
                before_lock: end.before_lock,
            }
        };
        let stream = |stream: &Stream| StreamView {
            media: stream.media.clone(),
            disabled: stream.disabled,
            held: stream
                .ends
                .iter()
                .any(|end| end.remote.is_some_and(|remote| remote.held)),
            legs: [
                leg(&stream.ends[0], Leg::Caller),
                leg(&stream.ends[1], Leg::Callee),
            ],
        };
        let passed = |open: &Exchange| open.is_passed() && state.streams.is_empty();
        Some(SessionView {
            passed: state.exchange.as_ref().is_some_and(passed),
            session,
            streams: state.streams.iter().map(stream).collect(),
        })
    }
}
