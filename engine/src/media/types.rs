//! The vocabulary between the media plans and the rest of the engine.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use crate::{
    net::{LinkId, Side},
    sdp,
};

/// A dialog's media, numbered by the proxy; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The two parties of a session, by who sent its first INVITE. A party keeps its leg over all
/// re-INVITEs, whoever sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// Sent the first INVITE.
    Caller,
    /// Received it.
    Callee,
}

impl Leg {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }
}

/// How the sender of an SDP body is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signalled {
    /// The source address of the message that carried the body.
    pub from: IpAddr,
    /// That address is a NAT's: the top Via names another one (RFC 3261 section 18.2.1).
    pub behind_nat: bool,
}

/// May a source be learned from packets (`[media] learn`)?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Learn {
    /// Once per offer/answer exchange, under the rules of signalling.md section 7.
    Once,
    /// Never: only the SDP's address and port are accepted.
    Never,
}

/// The `[media]` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaConf {
    /// The ports media may use, on each link.
    pub ports: RangeInclusive<u16>,
    /// Whether sources are learned.
    pub learn: Learn,
    /// What happens to ICE attributes.
    pub ice: sdp::Ice,
    /// Silence both ways that ends a call.
    pub timeout: Duration,
    /// Decides the order in which ports are given out.
    pub seed: u64,
}

/// A link as media sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaLink {
    /// Which link.
    pub id: LinkId,
    /// Which way it faces: only a LAN phone's source can be certain without learning.
    pub side: Side,
    /// Its present address.
    pub address: Option<IpAddr>,
}

/// Why an SDP body cannot be anchored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The body is not SDP as we read it.
    #[error("SDP refused: {0}")]
    Sdp(#[from] sdp::SdpError),
    /// Every media port of the link is in use or resting.
    #[error("no media port left on this link")]
    NoPorts,
    /// The link has no address.
    #[error("the link has no address")]
    NoAddress,
    /// Media to this address would loop or leave the rules: loopback, multicast, broadcast, or
    /// an address of ours that is no media port in use.
    #[error("media may not go to {0}")]
    Target(IpAddr),
    /// The session was never opened, or was closed.
    #[error("no such media session")]
    NoSession,
    /// An answer without an offer, or one whose number of m= lines differs (RFC 3264 section 6).
    #[error("the answer does not fit the offer")]
    Mismatch,
}

impl Refused {
    /// The SIP status for the request that carried the body.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Sdp(error) => error.status(),
            Self::NoPorts | Self::NoAddress => 503,
            Self::Target(_) | Self::Mismatch => 488,
            Self::NoSession => 481,
        }
    }
}

/// What the slow path does with a datagram that arrived on a media socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an unplanned datagram must be dropped"]
pub enum Seen {
    /// Send it on from this gateway address to that remote address.
    Relay {
        /// The media socket it leaves by.
        from: SocketAddr,
        /// Where it goes.
        to: SocketAddr,
    },
    /// Drop it.
    Drop(DropReason),
}

/// Why a datagram on a media socket is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// No session holds the port.
    NoSession,
    /// The source is not the accepted one.
    ForeignSource,
    /// The other party has not said where its media goes.
    NoDestination,
}

/// A session's media as `calls` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Which session.
    pub session: SessionId,
    /// Its bodies passed as they were, and its media is not anchored here ([`crate::sdp::Ice::Pass`]).
    pub passed: bool,
    /// Each m= line, each leg.
    pub streams: Vec<StreamView>,
}

/// One m= line of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamView {
    /// `audio`, `video`, ...
    pub media: String,
    /// Port 0: not in use.
    pub disabled: bool,
    /// On hold or inactive: silence is no sign of death.
    pub held: bool,
    /// The caller's and the callee's leg.
    pub legs: [LegView; 2],
}

/// One leg of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegView {
    /// The link it is on.
    pub link: LinkId,
    /// Our RTP address.
    pub local: Option<SocketAddr>,
    /// The party's RTP address: learned, else as its SDP says.
    pub remote: Option<SocketAddr>,
    /// The accepted source, once known.
    pub source: Option<SocketAddr>,
    /// Datagrams that came up before the source was known, foreign ones included.
    pub before_lock: u32,
}
