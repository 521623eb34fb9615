//! Turns what the engine wants (`keepline_engine::steer`) into map writes: the only place that
//! knows map bytes.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_engine::{
    net::{LinkId, ListenerId},
    steer::{Delta, Flow, FlowId, GateId},
    time::Mono,
};

pub mod resolver;
pub mod tables;

/// Why something could not be put into the maps. The rest of the desired state is in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A table has no free entry; the old ones stay.
    #[error("the fast path's table {0} is full")]
    Full(&'static str),
    /// The kernel refused a write.
    #[error("writing {table}: {source}")]
    Write {
        /// The map.
        table: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The media port is not one of the configured range.
    #[error("{0} is not a media port of this gateway")]
    NotMedia(SocketAddr),
}

/// A flow in force, as `keepline flows` and the API list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRow {
    /// The engine's number; `None` for an orphan: pinned by an earlier run and claimed by no call.
    pub id: Option<FlowId>,
    /// Index of the interface it arrives at.
    pub ifindex: u32,
    /// The accepted source.
    pub source: SocketAddr,
    /// Where it arrives.
    pub local: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// Number of its group.
    pub group: u32,
    /// Number of the group's present hop; `None` while unresolved.
    pub hop: Option<u32>,
    /// Datagrams forwarded.
    pub packets: u64,
    /// Their payload, in bytes.
    pub bytes: u64,
    /// Datagrams of another source than the accepted one.
    pub foreign: u64,
    /// Since the last datagram; `None` when there was none.
    pub idle: Option<Duration>,
}

/// A hop in force, as `keepline hops` and the API list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopRow {
    /// Its number.
    pub id: u32,
    /// Index of the device datagrams leave by.
    pub ifindex: u32,
    /// The router or neighbour.
    pub next_hop: IpAddr,
    /// Its MAC address; `None` while unresolved.
    pub mac: Option<[u8; 6]>,
    /// The address datagrams leave from.
    pub source: IpAddr,
    /// The largest IP packet.
    pub mtu: u32,
    /// Groups that point to it.
    pub groups: Vec<u32>,
}

/// How many writes each map has seen (KL1: a switch is one group store, whatever it carries).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Writes {
    /// Words of `MEDIA`.
    pub media: u64,
    /// Records of `PLANS`.
    pub plans: u64,
    /// Words of `GROUPS`.
    pub groups: u64,
    /// Records of `HOPS`.
    pub hops: u64,
    /// Entries of `ADDRS`.
    pub addresses: u64,
    /// Entries of `CLIENTS`.
    pub clients: u64,
    /// Words of `PATHS`.
    pub paths: u64,
    /// Entries of `LISTENERS`.
    pub listeners: u64,
    /// Entries of the devmap.
    pub devices: u64,
}

/// Keeps the maps equal to the desired state.
///
/// Contract: feed every [`Delta`] to [`Self::apply`]; tell it of routes, neighbours and addresses
/// that changed; call [`Self::tick`] about once a second; call [`Self::reconcile`] with all
/// desired flows at start, after an overrun and on a schedule. `PortOpen` and `PortClose` are the
/// sockets' business and ignored here.
pub trait SteerApi {
    /// Applies one change of the desired state.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn apply(&mut self, delta: &Delta, now: Mono) -> Result<(), Error>;

    /// Makes the maps equal to all desired flows; pinned ones that nobody claims are adopted as
    /// orphans and keep forwarding.
    ///
    /// # Errors
    /// The first failure; the rest is applied all the same.
    fn reconcile(&mut self, desired: &[Flow], now: Mono) -> Result<(), Error>;

    /// Puts a listener's keepalives in XDP's hands; clients that are not set follow `gate`.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn listener_set(
        &mut self,
        listener: ListenerId,
        address: SocketAddr,
        gate: GateId,
    ) -> Result<(), Error>;

    /// Takes a listener out of XDP's hands.
    ///
    /// # Errors
    /// When the kernel refuses the write.
    fn listener_clear(&mut self, listener: ListenerId) -> Result<(), Error>;

    /// Routes or neighbours of a link changed: every group of it is resolved anew; each group
    /// whose hop differs costs one hop and one group store.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn route_changed(&mut self, egress: LinkId, now: Mono) -> Result<(), Error>;

    /// A link's address changed: one `ADDRS` entry, and one hop and one group store per group.
    /// The old address stays receive-only until [`Self::tick`] drops it 60 s later.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn address_changed(
        &mut self,
        link: LinkId,
        old: Option<IpAddr>,
        new: Option<IpAddr>,
        now: Mono,
    ) -> Result<(), Error>;

    /// Does what is due: frees slots after their grace, drops addresses that had their minute.
    ///
    /// # Errors
    /// When the kernel refuses a write.
    fn tick(&mut self, now: Mono) -> Result<(), Error>;

    /// All flows in force, orphans included.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    fn flows(&mut self) -> Result<Vec<FlowRow>, Error>;

    /// All hops in force.
    fn hops(&self) -> Vec<HopRow>;

    /// How many writes each map has seen.
    fn writes(&self) -> Writes;
}
