//! The vocabulary between the health machine and its driver.

use std::{net::SocketAddr, time::Duration};

use crate::{
    event::{Event, Evidence},
    net::{GroupId, PathKey, ServerId},
    time::Now,
};

/// A client transaction under watch; the driver numbers them and never reuses a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An OPTIONS probe, numbered by the health machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// Methods that share response times and hunting rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// INVITE: its provisional comes at once.
    Invite,
    /// REGISTER: judged by the same codes as a probe.
    Register,
    /// Everything else.
    Other,
}

/// What a response means for the request it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a response that hunts must not reach the phone"]
pub enum Judgement {
    /// Pass it on.
    Relay,
    /// Send the request to another server, by this rule; with none left, pass it on.
    Hunt(&'static str),
}

/// What the driver is asked to do, or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send an OPTIONS over this path; report a final answer by
    /// [`Health::probe_received`](super::Health::probe_received), silence not at all.
    Probe {
        /// For the report.
        id: ProbeId,
        /// Where to.
        path: PathKey,
    },
    /// Send this request to another server; it is no longer watched.
    Hunt {
        /// Which one.
        req: RequestId,
        /// By which rule.
        rule: &'static str,
    },
    /// Something a person may ask about.
    Event(Event),
    /// The group's state or its active path changed.
    Group {
        /// Which group.
        group: GroupId,
        /// What it is now.
        state: GroupState,
    },
    /// The verdict down was reached.
    ServerDown {
        /// For this path.
        path: PathKey,
    },
    /// A down path recovered.
    ServerUp {
        /// Which one.
        path: PathKey,
    },
}

/// Whether a group can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// By this path, for requests without affinity.
    Serving {
        /// The preferred path that is not down.
        active: PathKey,
    },
    /// Every path is down.
    Survivability,
}

/// Why the machine wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A request has waited for an answer.
    Request,
    /// A burst's next probe, or its end.
    Burst,
    /// An idle or recovery probe is due, or its answer overdue.
    Probe,
    /// A 503's Retry-After ends.
    Held,
    /// A returned server's fail-back hold ends.
    Failback,
}

/// What is wanted of [`Health::choose`](super::Health::choose).
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// Among whose servers.
    pub group: GroupId,
    /// What the request is: only a REGISTER fails back under [`Failback::Registration`].
    ///
    /// [`Failback::Registration`]: super::Failback::Registration
    pub class: Class,
    /// The address of record, for the weights.
    pub aor: &'a [u8],
    /// The server that holds the AOR's registration or issued the request's nonce.
    pub affinity: Option<ServerId>,
    /// Paths this request was sent over already.
    pub tried: &'a [PathKey],
}

/// The state of a path, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathState {
    /// Never heard; used like `Up`.
    Unknown,
    /// Well.
    Up,
    /// Something went unanswered: no new requests until the burst decides.
    Suspect,
    /// Asked to be left alone by a 503 with Retry-After.
    Held,
    /// Not used.
    Down,
}

impl PathState {
    /// The state's name in events and in `status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Held => "held",
            Self::Down => "down",
        }
    }
}

/// A group as `status` and `softswitches` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Which group.
    pub id: GroupId,
    /// Its name.
    pub name: String,
    /// Whether it can serve, and by what.
    pub state: GroupState,
    /// The active server's URI.
    pub active_uri: Option<String>,
    /// The server an operator chose.
    pub switched_to: Option<ServerId>,
    /// Every (server, link).
    pub paths: Vec<PathView>,
}

/// A path as `status` and `explain` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathView {
    /// Which path.
    pub key: PathKey,
    /// The server's URI.
    pub uri: String,
    /// The server's address.
    pub address: SocketAddr,
    /// The link's name.
    pub link: String,
    /// The server's priority.
    pub priority: u16,
    /// The server's weight.
    pub weight: u16,
    /// Its state.
    pub state: PathState,
    /// Since when.
    pub since: Now,
    /// The rule that led to it.
    pub reason: &'static str,
    /// Until the next probe; `None` when none is planned.
    pub next_probe: Option<Duration>,
    /// What is left of a Retry-After.
    pub held_for: Option<Duration>,
    /// What is left of the fail-back hold; `Duration::MAX` while fail-back is manual.
    pub returns_in: Option<Duration>,
    /// Flaps not yet forgotten.
    pub flaps: u32,
    /// Smoothed time to the first response of INVITE, REGISTER, others, once known.
    pub srtt: [Option<Duration>; 3],
    /// Requests without a final answer.
    pub live_requests: usize,
    /// What was seen last, oldest first.
    pub evidence: Vec<Evidence>,
}
