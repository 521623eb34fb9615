//! The desired state of the data path, in addresses; the controller turns it into map bytes.
//!
//! The engine emits [`Delta`]s as its mind changes; it can also list everything that is in
//! force, so that the controller reconciles the whole at start and on a schedule.

use std::{net::SocketAddr, time::Duration};

use crate::net::{LinkId, ListenerId};

/// One direction of one media stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// A path whose state gates the keepalive answers of the clients behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(pub u16);

/// What a flow carries: decides whether RTP arithmetic applies, and what is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowKind {
    /// RTP, possibly with RTCP multiplexed (RFC 5761).
    Rtp,
    /// RTCP on a port of its own.
    Rtcp,
    /// RTP or RTCP with the connectivity checks of ICE on the same port (RFC 8445).
    Checked,
    /// A fax: its datagrams begin with a counter, so with any byte there is (ITU-T T.38 clause 9).
    Udptl,
}

/// One direction of an anchored stream: datagrams from `source` to `local` leave from
/// `egress`'s address, port `from_port`, to `to`. Immutable: a change is a new value for the
/// same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Stable over changes of the flow.
    pub id: FlowId,
    /// What it carries.
    pub kind: FlowKind,
    /// The link the datagrams arrive on.
    pub ingress: LinkId,
    /// The gateway's address and media port they arrive at.
    pub local: SocketAddr,
    /// The only source that is forwarded.
    pub source: SocketAddr,
    /// The link they leave by.
    pub egress: LinkId,
    /// The gateway's media port they leave from.
    pub from_port: u16,
    /// Where they go.
    pub to: SocketAddr,
}

/// A phone and the softswitch that it speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TalkId(pub u32);

/// SIP between a phone and its softswitch, routed both ways as it is: addresses and ports stay
/// (transparent mode without hiding, signalling.md section 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Talk {
    /// Between 1 and [`MAX_TALKS`].
    pub id: TalkId,
    /// The link that the phone is behind.
    pub lan: LinkId,
    /// The phone's address and port.
    pub phone: SocketAddr,
    /// The link that the softswitch is reached by.
    pub wan: LinkId,
    /// The softswitch's address and port.
    pub server: SocketAddr,
    /// What the phone sends is left to the gateway's socket; what its softswitch sends is routed.
    pub up: bool,
    /// The softswitch accepted a REGISTER of it.
    pub bound: bool,
}

/// The most talks at a time: each phone on the LAN is a next hop of its own.
pub const MAX_TALKS: u32 = 4_000;

/// What the data path stamped of a talk: how long ago, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamps {
    /// The last request of the phone that was routed.
    pub request: Option<Duration>,
    /// The last response of the softswitch that was routed.
    pub response: Option<Duration>,
    /// The oldest request of the phone that was routed and that no response came after.
    pub unanswered: Option<Duration>,
}

/// Whether keepalives of the clients behind a path are answered (signalling.md section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Answered with success.
    Serving,
    /// Not answered.
    Silent,
    /// Answered with a Binding error 500.
    Error,
}

/// One change of the desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Hold a UDP socket at this address: the port is in use by a call.
    PortOpen {
        /// The link whose address it is.
        link: LinkId,
        /// Address and port to bind.
        local: SocketAddr,
    },
    /// The port is free again.
    PortClose {
        /// The address given to `PortOpen`.
        local: SocketAddr,
    },
    /// Install the flow, or replace the one with the same id.
    FlowSet(Flow),
    /// Take the flow away.
    FlowClear(FlowId),
    /// Route a talk, or change how.
    TalkSet(Talk),
    /// Route a talk no more: what either party sends goes the kernel's way.
    TalkClear(TalkId),
    /// Set what a path's clients are told.
    GateSet {
        /// The path.
        gate: GateId,
        /// The answer from now on.
        state: Gate,
    },
    /// The client at this address belongs to this path.
    ClientSet {
        /// Where its keepalives come from.
        client: SocketAddr,
        /// The listener they arrive at.
        listener: ListenerId,
        /// The path that can serve it.
        gate: GateId,
    },
    /// Forget the client: its keepalives follow the listener's own gate again.
    ClientClear {
        /// Where its keepalives came from.
        client: SocketAddr,
        /// The listener they arrived at.
        listener: ListenerId,
    },
}
