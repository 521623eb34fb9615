//! What the API answers: the JSON of `GET /api/v1/..` and of `keepline .. --json`.
//!
//! Names are a contract with scripts and dashboards: extend, never rename.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /api/v1/status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The gateway itself.
    pub gateway: GatewayStatus,
    /// One per softswitch.
    pub groups: Vec<Group>,
    /// Client sides of tunnel groups.
    pub segments: Vec<Segment>,
    /// Tunnels to concentrators.
    pub tunnels: Vec<Tunnel>,
    /// Other gateways of the mesh.
    pub nodes: Vec<Node>,
    /// Bindings in force.
    pub registrations: Active,
    /// Calls in progress.
    pub calls: Active,
    /// The XDP programs and their counters.
    pub fastpath: Fastpath,
    /// Where SIP is spoken.
    #[serde(default)]
    pub listeners: Vec<Listener>,
    /// Connections refused since the daemon started: too many of one source, or of all.
    #[serde(default)]
    pub connections_refused: u64,
    /// SIP that goes through as it is; all zero but in transparent mode without hiding.
    #[serde(default)]
    pub through: Through,
    /// What outlives the daemon.
    #[serde(default)]
    pub store: Store,
    /// What was counted of signalling since the daemon started, by name.
    #[serde(default)]
    pub signalling: BTreeMap<String, u64>,
}

/// SIP between phones and their softswitches that goes through as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Through {
    /// Phones whose SIP XDP forwards.
    pub routed: u64,
    /// Phones whose SIP comes to the daemon: not registered yet, or their softswitch is silent.
    pub up: u64,
    /// Datagrams that the daemon sent on since it started.
    pub passed: u64,
    /// Copies of forwarded datagrams that were looked at since then.
    pub copies: u64,
    /// Copies that were lost, which voids what they would have told.
    pub copies_lost: u64,
}

/// A SIP listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `udp`, `tcp` or `tls`.
    pub transport: String,
    /// `address:port`.
    pub address: String,
    /// The interface it is bound to.
    pub interface: String,
    /// Connections at present, whoever opened them.
    pub connections: u64,
}

/// What outlives the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// Why changes are lost at present; `null` while all is well.
    pub failing: Option<String>,
    /// Changes lost since the daemon started.
    pub lost: u64,
}

/// The gateway itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// `gateway.name`.
    pub name: String,
    /// `gateway.role`.
    pub role: String,
    /// `gateway.mode`.
    pub mode: String,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// Whether it refuses new work.
    pub draining: bool,
}

/// A group of servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `softswitch.name`.
    pub name: String,
    /// What its phones experience.
    pub state: GroupState,
    /// URI of the server in use.
    pub active: Option<String>,
    /// One per (server, WAN link).
    pub servers: Vec<Server>,
}

/// State of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// A server is in use.
    Serving,
    /// The gateway serves the phones itself.
    Survivability,
    /// Nobody does.
    #[default]
    Down,
}

/// A server as reached over one link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// As configured.
    pub uri: String,
    /// `address:port` in use.
    pub address: String,
    /// The interface it is reached over.
    pub link: String,
    /// Lower is preferred.
    pub priority: u16,
    /// Availability.
    pub state: ServerState,
    /// Since when, RFC 3339.
    pub since: String,
    /// Why, in one clause.
    pub reason: String,
    /// Seconds to the next probe; 0 when none is planned.
    pub next_probe_s: u64,
}

/// Availability of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Nothing heard or tried yet.
    #[default]
    Unknown,
    /// Takes work.
    Up,
    /// Takes no new work until a burst of probes has decided.
    Suspect,
    /// Asked to be left alone (503 with Retry-After).
    Held,
    /// Takes no work.
    Down,
}

/// The client side of a tunnel group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// The interface.
    pub interface: String,
    /// The tunnel in use.
    pub active: Option<String>,
    /// Times that a tunnel was left for another since the daemon's start.
    #[serde(default)]
    pub switches: u64,
}

/// A tunnel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// `up`, `idle`, `probing`, `unproven` or `down`.
    pub state: String,
    /// Seconds since the last frame from it.
    pub last_inbound_s: u64,
    /// Why, in one clause.
    pub reason: String,
    /// Its segment.
    #[serde(default)]
    pub segment: String,
    /// Whether the segment uses it.
    #[serde(default)]
    pub active: bool,
    /// Whether it ever answered a probe.
    #[serde(default)]
    pub proven: bool,
    /// Since when it is in its state, RFC 3339.
    #[serde(default)]
    pub since: String,
    /// Seconds to the next probe, should it stay silent; `null` when none is planned.
    #[serde(default)]
    pub next_probe_s: Option<u64>,
    /// Seconds of the fail-back hold that are left, once it answers again.
    #[serde(default)]
    pub returns_in_s: Option<u64>,
    /// Flaps not yet forgotten: each doubles the hold.
    #[serde(default)]
    pub flaps: u32,
}

/// `GET /api/v1/tunnels`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tunnels {
    /// One per tunnel.
    pub tunnels: Vec<Tunnel>,
    /// One per segment.
    pub segments: Vec<Segment>,
}

/// Another gateway of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: String,
    /// `up`, `suspect`, `down` or `draining`.
    pub state: String,
    /// Bindings it holds.
    pub registrations: u64,
    /// Calls it carries.
    pub calls: u64,
}

/// A count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// How many are in force.
    pub active: u64,
}

/// The XDP programs and their counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fastpath {
    /// One per interface with `xdp` not `off`.
    pub interfaces: Vec<FastpathInterface>,
    /// Flows installed.
    pub flows: u64,
    /// Packets by verdict.
    pub verdicts: Verdicts,
    /// Packets by reason, the snake_case of its Rust variant.
    pub reasons: BTreeMap<String, u64>,
}

/// A program on an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FastpathInterface {
    /// The interface.
    pub name: String,
    /// `native`, `generic` or `tc`.
    pub mode: String,
    /// Whether the program is on it.
    pub attached: bool,
    /// Why it works less well than it could, one sentence each.
    #[serde(default)]
    pub degraded: Vec<String>,
}

/// Packets by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Answered: sent back by the interface they came from.
    pub tx: u64,
    /// Forwarded.
    pub redirect: u64,
    /// Left to the stack.
    pub pass: u64,
    /// Absorbed or refused.
    pub drop: u64,
}

/// `GET /api/v1/softswitches`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Softswitches {
    /// One per softswitch.
    pub softswitches: Vec<Group>,
}

/// `GET /api/v1/registrations`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Registrations {
    /// One per (AOR, contact).
    pub registrations: Vec<Registration>,
}

/// A binding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Address of record.
    pub aor: String,
    /// The phone's Contact.
    pub contact: String,
    /// Where its REGISTER came from.
    pub source: String,
    /// Seconds left.
    pub expires_s: u64,
    /// The server that holds it; empty when none does.
    pub server: String,
    /// Who answered its last REGISTER.
    pub state: RegistrationState,
}

/// Who vouches for a binding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistrationState {
    /// A softswitch.
    #[default]
    Upstream,
    /// The gateway itself.
    Local,
}

/// `GET /api/v1/calls`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// One per call, set-up included.
    pub calls: Vec<Call>,
}

/// A call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The gateway's own id of it.
    pub id: String,
    /// The caller's Call-ID.
    pub call_id: String,
    /// `calling`, `early`, `confirmed` or `ending`.
    pub state: String,
    /// Caller's AOR.
    pub from: String,
    /// Callee's AOR.
    pub to: String,
    /// URI of the softswitch that carries it, or `local`.
    pub via: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// One per side.
    pub legs: Vec<Leg>,
    /// False where `ice = "pass"` let the parties find their own way for media.
    pub anchored: bool,
    /// As measured in the data path.
    pub quality: Quality,
}

/// One side of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    /// The interface.
    pub interface: String,
    /// The gateway's media address.
    pub local: String,
    /// The peer's.
    pub remote: String,
}

/// Media quality of a call, the worse of its directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Packets lost (RFC 3550 section 6.4.1); `null`: not measured.
    pub lost: Option<u64>,
    /// Interarrival jitter (RFC 3550 section 6.4.1), milliseconds; `null`: not measured.
    pub jitter_ms: Option<f64>,
    /// Estimated mean opinion score, 1.0 to 4.5; `null` before enough packets came.
    pub mos: Option<f64>,
}

/// `GET /api/v1/flows`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// One per direction of a stream.
    pub flows: Vec<Flow>,
}

/// One direction of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Where its packets arrive.
    pub interface: String,
    /// The accepted source.
    pub src: String,
    /// Where its packets go.
    pub dst: String,
    /// Index in `GROUPS`.
    pub group: u32,
    /// Index in `HOPS`; `null` when the group has none.
    pub hop: Option<u32>,
    /// Packets forwarded.
    pub packets: u64,
    /// Bytes forwarded, from the IP header on.
    pub bytes: u64,
    /// Seconds since the last; `null` before the first.
    pub last_seen_s: Option<u64>,
    /// The call's id; empty for an orphan.
    pub call: String,
}

/// `GET /api/v1/hops`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hops {
    /// One per next hop in use.
    pub hops: Vec<Hop>,
}

/// A next hop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// Index in `HOPS`.
    pub id: u32,
    /// The egress interface.
    pub interface: String,
    /// The neighbour's address.
    pub next_hop: String,
    /// Its MAC; empty while unresolved.
    pub mac: String,
    /// `resolved` or `unresolved`.
    pub state: String,
    /// Groups that point to it.
    pub groups: Vec<u32>,
}

/// `GET /api/v1/events`, and `explain`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Oldest first.
    pub events: Vec<Event>,
}

/// A change of state, explained (KL7).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, RFC 3339.
    pub at: String,
    /// Of what kind the object is: `server`, `group`, `call`, ...
    pub kind: String,
    /// Which one.
    pub object: String,
    /// The state before.
    pub from: String,
    /// The state after.
    pub to: String,
    /// The rule that decided, by name.
    pub rule: String,
    /// What it rests on, oldest first.
    pub evidence: Vec<Evidence>,
}

/// One observation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// When, RFC 3339.
    pub at: String,
    /// What was seen.
    pub what: String,
}

/// `GET /api/v1/explain?object=..`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What was asked about, by its full name.
    pub object: String,
    /// Its state now.
    pub state: String,
    /// Its changes, oldest first, as far as they are kept.
    pub events: Vec<Event>,
}

/// Answer to an operation (`switch`, `drain`, `reload`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was done, in one sentence.
    pub done: String,
}

/// What every failed request answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ApiError,
}

/// An error with its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Stable, snake_case: `not_found`, `busy`, ...
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What to do; may be empty.
    pub hint: String,
}

impl ApiError {
    /// An error from its three parts.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            hint: hint.into(),
        }
    }
}
