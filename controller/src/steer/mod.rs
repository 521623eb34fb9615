//! Turns what the engine wants (`keepline_engine::steer`) into map writes: the only place that
//! knows map bytes.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_common::gate::PathWord;
use keepline_engine::{
    net::{LinkId, ListenerId},
    steer::{Delta, Flow, FlowId, Gate, GateId, Stamps, Talk, TalkId},
    time::Mono,
};

mod addresses;
mod bytes;
mod flows;
mod groups;
mod keepalives;
mod plans;
pub mod resolver;
mod slots;
pub mod tables;
mod talks;

use self::{
    addresses::Addresses, flows::Flows, groups::Groups, keepalives::Keepalives, plans::Plans,
    resolver::Resolver, tables::Tables, talks::Talks,
};

/// Why something could not be put into the maps. The rest of the desired state is in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A table has no free entry; the old ones stay.
    #[error("the fast path's table {0} is full")]
    Full(&'static str),
    /// The kernel refused a read or write.
    #[error("the fast path's table {table}: {source}")]
    Write {
        /// The map.
        table: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A flow names a link that was not set.
    #[error("link {0:?} is not known to the fast path")]
    UnknownLink(LinkId),
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
    /// Entries of `FLOWS`.
    pub flows: u64,
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

impl Writes {
    /// What was written since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            media: self.media - before.media,
            plans: self.plans - before.plans,
            flows: self.flows - before.flows,
            groups: self.groups - before.groups,
            hops: self.hops - before.hops,
            addresses: self.addresses - before.addresses,
            clients: self.clients - before.clients,
            paths: self.paths - before.paths,
            listeners: self.listeners - before.listeners,
            devices: self.devices - before.devices,
        }
    }
}

/// Where a link is at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPlace {
    /// Index of the device its packets arrive at.
    pub ifindex: u32,
    /// VLAN identifiers they carry there, from the outside in; 0 = none.
    pub vlan: [u16; 2],
}

/// Keeps the maps equal to the desired state.
///
/// Contract: name every link with [`Self::link_set`]; feed every [`Delta`] to [`Self::apply`];
/// tell it of routes, neighbours and addresses that changed; call [`Self::tick`] about once a
/// second; call [`Self::reconcile`] with all desired flows at start (after the links and
/// listeners), after an overrun and on a schedule. `PortOpen` and `PortClose` are the sockets'
/// business and ignored here.
pub struct Steer<T, R> {
    tables: T,
    resolver: R,
    links: HashMap<LinkId, LinkPlace>,
    addresses: Addresses,
    groups: Groups,
    plans: Plans,
    flows: Flows,
    talks: Talks,
    keepalives: Keepalives,
    writes: Writes,
}

/// What the parts of [`Steer`] write with.
struct Pen<'a, T> {
    tables: &'a mut T,
    writes: &'a mut Writes,
    now: Mono,
}

impl<T: Tables, R: Resolver> Steer<T, R> {
    /// Takes up the maps as they are: what an earlier run pinned keeps forwarding, as orphans,
    /// until [`Self::reconcile`] claims it. Negative keepalive answers of a path that falls are
    /// spread over `gate_spread`.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    pub fn new(mut tables: T, resolver: R, gate_spread: Duration) -> Result<Self, Error> {
        tables.clear_clients().map_err(Error::of("CLIENTS"))?;
        let addresses = Addresses::adopt(&tables)?;
        let flows = Flows::adopt(&tables, &addresses)?;
        let talks = Talks::adopt(&tables)?;
        let plans = Plans::beside(&tables, flows.words().chain(talks.words()));
        let groups = Groups::adopt(&tables, flows.orphaned().chain(talks.pinned()))?;
        // Whatever the earlier run had unlinked is no longer read after this.
        tables.grace();
        Ok(Self {
            tables,
            resolver,
            links: HashMap::new(),
            addresses,
            groups,
            plans,
            flows,
            talks,
            keepalives: Keepalives::new(gate_spread),
            writes: Writes::default(),
        })
    }

    /// Says where a link is. A link that moved to another device has its flows and hops moved.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    pub fn link_set(&mut self, link: LinkId, place: LinkPlace, now: Mono) -> Result<(), Error> {
        if self
            .links
            .insert(link, place)
            .is_none_or(|before| before == place)
        {
            return Ok(());
        }
        let moved = self.flows.arriving_on(link);
        moved.iter().try_for_each(|flow| self.flow_set(flow, now))?;
        let moved = self.talks.over(link);
        moved.iter().try_for_each(|talk| self.talk_set(talk, now))?;
        self.route_changed(link, now)
    }

    /// Applies one change of the desired state.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    pub fn apply(&mut self, delta: &Delta, now: Mono) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        match delta {
            Delta::PortOpen { .. } | Delta::PortClose { .. } => Ok(()),
            Delta::FlowSet(flow) => self.flow_set(flow, now),
            Delta::FlowClear(id) => {
                self.flows
                    .clear(pen, *id, (&mut self.plans, &mut self.groups));
                Ok(())
            }
            Delta::TalkSet(talk) => self.talk_set(talk, now),
            Delta::TalkClear(id) => self
                .talks
                .clear(pen, *id, (&mut self.plans, &mut self.groups)),
            Delta::GateSet { gate, state } => self.keepalives.gate(pen, *gate, *state),
            Delta::ClientSet {
                client,
                listener,
                gate,
            } => self.keepalives.client(pen, *client, *listener, Some(*gate)),
            Delta::ClientClear { client, listener } => {
                self.keepalives.client(pen, *client, *listener, None)
            }
        }
    }

    /// Makes the maps equal to all desired flows and talks. Flows in the maps that nobody claims
    /// stay as orphans and keep forwarding; talks and listeners nobody set go.
    ///
    /// # Errors
    /// The first failure; the rest is applied all the same.
    pub fn reconcile(
        &mut self,
        (desired, talks): (&[Flow], &[Talk]),
        now: Mono,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        for flow in desired {
            result = result.and(self.flow_set(flow, now));
        }
        for talk in talks {
            result = result.and(self.talk_set(talk, now));
        }
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        let installed = (&mut self.plans, &mut self.groups);
        self.flows.keep_only(pen, desired, installed);
        let installed = (&mut self.plans, &mut self.groups);
        let result = result.and(self.talks.keep_only(pen, talks, installed));
        result.and(self.keepalives.drop_unknown_listeners(pen))
    }

    /// Takes orphans away that were silent for `idle`; returns how many.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    pub fn forget_orphans(&mut self, idle: Duration, now: Mono) -> Result<usize, Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        let installed = (&mut self.plans, &mut self.groups);
        self.flows.forget_orphans(pen, idle, installed)
    }

    /// Makes an address known before its first flow: what comes for its media ports is then told
    /// from strangers. [`Steer::listener_set`] does so too.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    pub fn address_set(&mut self, address: IpAddr, now: Mono) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        self.addresses.slot(pen, address).map(drop)
    }

    /// Puts a listener's keepalives in XDP's hands; clients that are not set follow `gate`.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    pub fn listener_set(
        &mut self,
        listener: ListenerId,
        address: SocketAddr,
        gate: GateId,
        now: Mono,
    ) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        self.addresses.slot(pen, address.ip())?;
        self.keepalives.listener_set(pen, listener, address, gate)
    }

    /// Takes a listener out of XDP's hands.
    ///
    /// # Errors
    /// When the kernel refuses the write.
    pub fn listener_clear(&mut self, listener: ListenerId, now: Mono) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        self.keepalives.listener_clear(pen, listener)
    }

    /// Routes or neighbours of a link changed: its groups are resolved anew. A group whose hop
    /// differs costs one hop and one group store, whatever it carries; only where its
    /// destinations no longer share a next hop do flows move to another group.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    pub fn route_changed(&mut self, egress: LinkId, now: Mono) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        let strayed = self.groups.resolve_again(pen, &mut self.resolver, egress)?;
        let moving = self.flows.sent_by(egress, &strayed);
        moving
            .iter()
            .try_for_each(|flow| self.flow_set(flow, now))?;
        let moving = self.talks.sent_by(egress, &strayed);
        moving.iter().try_for_each(|talk| self.talk_set(talk, now))
    }

    /// A link's address changed: one `ADDRS` entry, and one hop and one group store per group.
    /// The old address stays receive-only until [`Self::tick`] drops it 60 s later.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    pub fn address_changed(
        &mut self,
        link: LinkId,
        old: Option<IpAddr>,
        new: Option<IpAddr>,
        now: Mono,
    ) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        self.addresses.changed(pen, old, new)?;
        self.route_changed(link, now)
    }

    /// Does what is due: frees slots after their grace, drops addresses that had their minute.
    ///
    /// # Errors
    /// When the kernel refuses a write.
    pub fn tick(&mut self, now: Mono) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        self.plans.tick(now);
        self.groups.tick(now);
        self.addresses.tick(pen)
    }

    /// All flows in force, orphans included.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    pub fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        self.flows.rows(&self.tables, &self.addresses)
    }

    /// How long ago the last packet of any of these flows passed; `None` when none ever did.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    pub fn silence(&self, flows: &[FlowId]) -> Result<Option<Duration>, Error> {
        self.flows.silence(&self.tables, flows)
    }

    /// What was stamped of a talk.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    pub fn stamps(&self, talk: TalkId) -> Result<Stamps, Error> {
        talks::stamps(&self.tables, talk)
    }

    /// How many talks are in force.
    #[must_use]
    pub fn talk_count(&self) -> usize {
        self.talks.count()
    }

    /// How many flows are in force, orphans included.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.count()
    }

    /// All hops in force.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    pub fn hops(&self) -> Result<Vec<HopRow>, Error> {
        self.groups.rows(&self.tables)
    }

    /// What the clients of a path are told once all of them have been.
    #[must_use]
    pub fn gate(&self, gate: GateId) -> Gate {
        keepalives::state(PathWord::from_bits(self.tables.path(u32::from(gate.0))))
    }

    /// How many writes each map has seen.
    #[must_use]
    pub const fn writes(&self) -> Writes {
        self.writes
    }

    /// The resolver, so that it can be told what it resolves with.
    pub const fn resolver(&mut self) -> &mut R {
        &mut self.resolver
    }

    /// The maps, for reading.
    pub const fn tables(&self) -> &T {
        &self.tables
    }

    /// The maps, for what is no steering: counters of a device that was made anew.
    pub const fn tables_mut(&mut self) -> &mut T {
        &mut self.tables
    }

    fn flow_set(&mut self, flow: &Flow, now: Mono) -> Result<(), Error> {
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        let place = *self
            .links
            .get(&flow.ingress)
            .ok_or(Error::UnknownLink(flow.ingress))?;
        let slot = self.addresses.slot(pen, flow.local.ip())?;
        let group = self
            .groups
            .of(pen, &mut self.resolver, flow.egress, flow.to.ip())?;
        let installed = (&mut self.plans, &mut self.groups);
        self.flows.set(pen, flow, place, slot, group, installed)
    }

    fn talk_set(&mut self, talk: &Talk, now: Mono) -> Result<(), Error> {
        let place = |link: LinkId| {
            let place = self.links.get(&link).copied();
            place.ok_or(Error::UnknownLink(link))
        };
        let places = [place(talk.lan)?, place(talk.wan)?];
        let pen = &mut Pen {
            tables: &mut self.tables,
            writes: &mut self.writes,
            now,
        };
        let resolver = &mut self.resolver;
        let to_server = (self.groups).of(pen, resolver, talk.wan, talk.server.ip())?;
        let to_phone = (self.groups).of(pen, resolver, talk.lan, talk.phone.ip())?;
        let installed = (&mut self.plans, &mut self.groups);
        let towards = [to_server, to_phone];
        self.talks.set(pen, talk, places, towards, installed)
    }
}

impl Error {
    fn of(table: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::E2BIG) => Self::Full(table),
            _ => Self::Write { table, source },
        }
    }
}

#[cfg(test)]
mod tests;
