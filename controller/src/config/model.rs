//! The resolved configuration: every value checked, every default filled in.
//!
//! These types cannot hold a configuration that `keepline config check` refuses, except for
//! what only the machine knows (whether an interface exists); `doctor` and `run` look there.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use keepline_engine::{
    net::{LinkId, Side, Transport},
    tunnel::{Detect, TunnelId},
};

use crate::tls::Files;

/// A whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[gateway]`.
    pub gateway: Gateway,
    /// `[[interface]]`, in file order: the position is the [`LinkId`].
    pub interfaces: Vec<Interface>,
    /// `[listen]`.
    pub listen: Listen,
    /// `[tls]`: the certificates of listeners and servers over TLS.
    pub tls: Option<Files>,
    /// `[[softswitch]]`, in file order: the position is the engine's `GroupId`.
    pub softswitches: Vec<Softswitch>,
    /// `[[segment]]`, in file order: the position is the engine's `SegmentId`.
    pub segments: Vec<Segment>,
    /// `[[tunnel]]`, in file order: the position is the engine's `TunnelId`.
    pub tunnels: Vec<Tunnel>,
    /// `[registration]`.
    pub registration: Registration,
    /// `[survivability]`.
    pub survivability: Survivability,
    /// `[keepalive]`.
    pub keepalive: Keepalive,
    /// `[media]`.
    pub media: Media,
    /// `[fastpath]`.
    pub fastpath: Fastpath,
    /// `[store]`.
    pub store: Store,
    /// `[api]`; `None` leaves only the Unix socket.
    pub api: Option<Api>,
}

/// `[gateway]`: who this gateway is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its name in logs, metrics and status; the host name by default.
    pub name: String,
    /// What it faces.
    pub role: Role,
    /// How phones address it.
    pub mode: Mode,
    /// The SIP domain phones register in.
    pub domain: Option<String>,
    /// How long REGISTER refreshes are still served after `drain on`.
    pub drain_grace: Duration,
    /// Whether phones and softswitches are hidden from each other; `false` in transparent mode
    /// only.
    pub hide_topology: bool,
}

impl Gateway {
    /// Whether SIP over UDP goes through as it is while a phone's softswitch serves.
    #[must_use]
    pub fn goes_through(&self) -> bool {
        self.mode == Mode::Transparent && !self.hide_topology
    }
}

/// `gateway.role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Faces phones and softswitches.
    Standalone,
}

/// `gateway.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Phones use the gateway's address as their registrar and proxy.
    Normal,
    /// Phones keep their softswitch's domain and send through the gateway.
    OutboundProxy,
    /// Phones address their softswitch itself, and the gateway is their router.
    Transparent,
}

impl Mode {
    /// As the configuration writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::OutboundProxy => "outbound-proxy",
            Self::Transparent => "transparent",
        }
    }
}

/// `[[interface]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's name of it.
    pub name: String,
    /// What it faces; a tunnel faces the WAN.
    pub side: Side,
    /// How the XDP program is attached.
    pub xdp: XdpMode,
    /// Most calls at a time over this link; `None` is bounded by media ports alone.
    pub max_calls: Option<u32>,
}

/// `interface.xdp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// Native, else generic, which is shown as degraded.
    Auto,
    /// In the driver, or not at all.
    Native,
    /// In the stack, after the driver.
    Generic,
    /// No program on this interface: everything takes the slow path.
    Off,
}

/// `[listen]`: the SIP sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Over datagrams, in file order.
    pub udp: Vec<ListenAddress>,
    /// Over TCP, in file order.
    pub tcp: Vec<ListenAddress>,
    /// Over TLS, in file order.
    pub tls: Vec<ListenAddress>,
    /// Who may speak on the WAN.
    pub accept: Accept,
}

impl Listen {
    /// Every listener: the position is the engine's `ListenerId`.
    pub fn all(&self) -> impl Iterator<Item = (Transport, ListenAddress)> {
        let udp = self.udp.iter().map(|at| (Transport::Udp, *at));
        let tcp = self.tcp.iter().map(|at| (Transport::Tcp, *at));
        let tls = self.tls.iter().map(|at| (Transport::Tls, *at));
        udp.chain(tcp).chain(tls)
    }
}

/// Where a listener binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// `"lan0:5060"`: whatever address the interface has.
    Interface {
        /// The interface, by its position in the configuration.
        link: LinkId,
        /// The port.
        port: u16,
    },
    /// `"10.99.0.1:5060"`: that address only.
    Address(SocketAddr),
}

impl ListenAddress {
    /// The port it binds.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Interface { port, .. } => port,
            Self::Address(address) => address.port(),
        }
    }
}

/// `listen.accept`: who may speak on WAN listeners (signalling.md section 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Only softswitches and their `inbound` networks.
    Peers,
    /// Anybody, within the guard's limits.
    Clients,
}

/// `[[softswitch]]`: a group of servers of one domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Softswitch {
    /// The group's name.
    pub name: String,
    /// The domain its servers are responsible for.
    pub domain: String,
    /// Its servers, in file order: the position is `ServerId::index`.
    pub servers: Vec<Server>,
    /// Which servers are sent OPTIONS.
    pub probe: ProbePolicy,
    /// Time between idle probes of one server.
    pub interval: Duration,
    /// How long a probe's answer may take.
    pub timeout: Duration,
    /// Idle probes unanswered in a row until the server is down.
    pub max_unanswered: u32,
    /// When an unanswered INVITE hunts, at the latest, if nothing at all came from the server.
    pub passive_timeout: Duration,
    /// The same for other methods.
    pub passive_timeout_other: Duration,
    /// When an INVITE hunts although something came from the server.
    pub slow_timeout: Duration,
    /// How long softswitches are tried before a local callee is called locally.
    pub hunt_budget: Duration,
    /// A 100 and nothing more for this long is soft evidence.
    pub after_100_timeout: Duration,
    /// What comes next when a path fails.
    pub prefer: Prefer,
    /// Whether another server of the group knows the dialogs of a dead one.
    pub shared_dialogs: bool,
    /// Answers in a row until a down server is up.
    pub recover_answers: u32,
    /// Status codes that count as failure (probes, REGISTER) or soft evidence (INVITE).
    pub down_codes: Vec<u16>,
    /// How often a down server is probed.
    pub backoff: Backoff,
    /// When work returns to a better server.
    pub failback: Failback,
    /// How long the better server must have been up first.
    pub failback_hold: Duration,
    /// Networks it may call from besides its servers' addresses.
    pub inbound: Vec<IpNet>,
    /// Whether its registrar is sent a Path (RFC 3327).
    pub path: PathUse,
}

/// `softswitch.path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// Where the phone supports it, or has one of its own.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// One server of a softswitch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// As written: `sip:192.0.2.10:5060;transport=udp`.
    pub uri: String,
    /// What it is spoken to over.
    pub transport: Transport,
    /// Where it listens.
    pub address: SocketAddr,
    /// Lower is preferred.
    pub priority: u16,
    /// Share among servers of one priority.
    pub weight: u16,
}

/// `softswitch.probe` (EM5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbePolicy {
    /// None, but suspicion is still confirmed by a burst.
    Off,
    /// Servers that are not in use.
    Inactive,
    /// Those, and the one in use when silent for `interval`.
    Idle,
    /// Every server, always.
    All,
}

/// `softswitch.prefer` (signalling.md section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// The same server over the next link, then the next server.
    Link,
    /// The next server over the same link first.
    Server,
}

/// `softswitch.failback` (EM11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failback {
    /// Each AOR returns at its next REGISTER; its calls follow.
    Registration,
    /// Everything new, at once.
    Immediate,
    /// Only by `keepline switch`.
    Manual,
}

/// `softswitch.backoff` (EM7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait while another server is available.
    pub max: Duration,
    /// The longest wait while none is.
    pub max_alone: Duration,
}

/// `[[segment]]`: a client side, and the tunnels that carry it (MX1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its interface; `None` for tunnels that carry only what is routed.
    pub interface: Option<String>,
    /// Its tunnels, the preferred one first.
    pub tunnels: Vec<TunnelId>,
}

impl Segment {
    /// What it is called in status and events.
    #[must_use]
    pub fn name<'a>(&'a self, tunnels: &'a [Tunnel]) -> &'a str {
        let first = || {
            self.tunnels
                .first()
                .and_then(|id| tunnels.get(usize::from(id.0)))
        };
        match &self.interface {
            Some(interface) => interface,
            None => first().map_or("", |tunnel| &tunnel.name),
        }
    }
}

/// `[[tunnel]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Its name.
    pub name: String,
    /// The kernel's name of its interface.
    pub interface: String,
    /// The address that probes ask for (option 50); outside of the served network, an
    /// authoritative server answers NAK and gives no lease (MX9).
    pub health_check_ip: Ipv4Addr,
    /// Between unanswered probes.
    pub heartbeat_interval: Duration,
    /// Silence that starts probing.
    pub idle_timeout: Duration,
    /// From the first probe to the verdict.
    pub probe_timeout: Duration,
    /// How soon silence is looked into.
    pub detect: Detect,
    /// The only server whose answers count; `None`: any.
    pub expected_server: Option<Ipv4Addr>,
}

/// `[registration]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Expiry told to phones over UDP.
    pub phone_expires_udp: Duration,
    /// Expiry told to phones over TCP and TLS.
    pub phone_expires_stream: Duration,
    /// How long a binding is trusted after its last upstream 2xx.
    pub known_for: Duration,
}

/// `[survivability]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivability {
    /// Expiry of a registration that the gateway answers itself.
    pub expires: Duration,
    /// Who is served.
    pub policy: SurvivabilityPolicy,
    /// REGISTERs a second that go upstream after a return.
    pub recovery_register_rate: u32,
    /// `aliases.last_digits`: a number of so many digits is matched against the end of AORs.
    pub last_digits: Vec<u8>,
}

/// `survivability.policy` (EM22).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurvivabilityPolicy {
    /// Nobody: no survivability mode.
    Off,
    /// Who has registered upstream before, from the same source.
    Known,
    /// Anybody on the LAN.
    OpenLan,
}

/// `[keepalive]`: keepalives to softswitches, and from clients (signalling.md section 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepalive {
    /// Which softswitches are sent STUN.
    pub stun: Stun,
    /// Between two keepalives to a softswitch.
    pub interval: Duration,
    /// How long its answer may take.
    pub timeout: Duration,
    /// What clients hear while their path is down.
    pub on_path_down: OnPathDown,
    /// Over how long a negative is spread.
    pub gate_spread: Duration,
}

/// `keepalive.stun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stun {
    /// Those that answer it; the others get CRLF.
    Auto,
    /// Every one.
    On,
    /// None, and no CRLF either.
    Off,
}

/// `keepalive.on_path_down`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPathDown {
    /// No answer.
    Silent,
    /// A Binding error 500.
    Error,
}

/// `[media]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// The ports media is anchored at.
    pub ports: RangeInclusive<u16>,
    /// Whether a media source may be learned.
    pub learn: Learn,
    /// What happens to ICE.
    pub ice: Ice,
    /// Silence both ways that ends a call.
    pub timeout: Duration,
}

/// `media.learn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learn {
    /// Once per offer, then locked.
    Once,
    /// Never: SDP is obeyed.
    Never,
}

/// `media.ice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ice {
    /// All ICE attributes are taken out.
    Strip,
    /// One candidate of the gateway stands for all; checks are relayed.
    Relay,
    /// Descriptions with ICE pass as they are, and their media is not anchored.
    Pass,
}

/// `[fastpath]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fastpath {
    /// Where maps and links are pinned: a directory on a bpffs.
    pub pin: PathBuf,
    /// Limits by class of source (signalling.md section 11).
    pub guard: Guard,
}

/// `fastpath.guard`: packets per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Per source with a live binding.
    pub bound: u32,
    /// Per unknown source.
    pub unknown: u32,
    /// All unknown sources of one listener together.
    pub unknown_total: u32,
    /// STUN, per source.
    pub stun: u32,
    /// Networks that are never limited.
    pub allow: Vec<IpNet>,
}

/// `[store]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// A directory of the gateway's own.
    pub path: PathBuf,
}

/// `[api]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Where `/api/v1` is served over TCP.
    pub listen: SocketAddr,
}

impl Config {
    /// The interface a listener's or a server's address belongs to is only known at run time;
    /// this finds a configured one by name.
    #[must_use]
    pub fn link_by_name(&self, name: &str) -> Option<LinkId> {
        let index = self.interfaces.iter().position(|i| i.name == name)?;
        u8::try_from(index).ok().map(LinkId)
    }

    /// Whether a source address is one of a softswitch's servers or `inbound` networks.
    #[must_use]
    pub fn group_of_source(&self, source: IpAddr) -> Option<usize> {
        self.softswitches.iter().position(|group| {
            group.servers.iter().any(|s| s.address.ip() == source)
                || group.inbound.iter().any(|net| net.contains(&source))
        })
    }
}
