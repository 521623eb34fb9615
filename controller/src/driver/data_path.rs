//! The data path behind one trait: the pinned maps and programs, or none.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_engine::{
    net::{LinkId, ListenerId},
    steer::{Delta, Flow, FlowId, GateId, Stamps, Talk, TalkId},
    time::Mono,
};

use crate::{
    fastpath::{self, Attached, InterfaceCounters},
    steer::{Error, FlowRow, HopRow, LinkPlace},
};

/// What the driver needs of the XDP programs and their maps.
pub trait DataPath {
    /// Says on which device a link is.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn link_set(&mut self, link: LinkId, place: LinkPlace, now: Mono) -> Result<(), Error>;

    /// Makes an address of ours known before its first flow.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn address_set(&mut self, address: IpAddr, now: Mono) -> Result<(), Error>;

    /// Puts a listener's keepalives in XDP's hands.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn listener_set(
        &mut self,
        listener: ListenerId,
        address: SocketAddr,
        gate: GateId,
        now: Mono,
    ) -> Result<(), Error>;

    /// Applies one change of the desired state.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn apply(&mut self, delta: &Delta, now: Mono) -> Result<(), Error>;

    /// Makes the maps equal to all desired flows and talks.
    ///
    /// # Errors
    /// The first failure; the rest is applied all the same.
    fn reconcile(&mut self, desired: (&[Flow], &[Talk]), now: Mono) -> Result<(), Error>;

    /// Routes or neighbours of a link changed.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses a write.
    fn route_changed(&mut self, egress: LinkId, now: Mono) -> Result<(), Error>;

    /// Looks whether every interface still carries the program, and puts it back on those whose
    /// device was made anew, which are returned.
    ///
    /// # Errors
    /// When the program cannot be put back; what could be is.
    fn repair(&mut self) -> Result<Vec<Attached>, fastpath::Error>;

    /// How long ago media of flows in progress had to begin to wait for steering, if it had.
    fn gap(&self) -> Option<Duration> {
        None
    }

    /// The ring of rare events, once.
    fn events(&mut self) -> Option<fastpath::events::Events> {
        None
    }

    /// The rings of copies of what talks say, once.
    fn copies(&mut self) -> Vec<fastpath::copies::Copies> {
        Vec::new()
    }

    /// Copies that were lost so far.
    fn copies_lost(&self) -> u64 {
        0
    }

    /// What was stamped of a talk.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    fn stamps(&self, _: TalkId) -> Result<Stamps, Error> {
        Ok(Stamps::default())
    }

    /// Does what is due. Orphans that were silent for `orphan_idle` go.
    ///
    /// # Errors
    /// When the kernel refuses a write.
    fn tick(&mut self, orphan_idle: Duration, now: Mono) -> Result<(), Error>;

    /// All flows in force, orphans included.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    fn flows(&self) -> Result<Vec<FlowRow>, Error>;

    /// How long ago the last packet of any of these flows passed; `None` when none ever did.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    fn silence(&self, flows: &[FlowId]) -> Result<Option<Duration>, Error>;

    /// How many flows are in force, orphans included.
    fn flow_count(&self) -> usize;

    /// All hops in force.
    ///
    /// # Errors
    /// When the kernel refuses a read.
    fn hops(&self) -> Result<Vec<HopRow>, Error>;

    /// Interfaces that were given the program.
    fn attached(&self) -> Vec<Attached>;

    /// Names of those of them that lost it and do not have it back.
    fn severed(&self) -> Vec<String>;

    /// Packets per interface and reason.
    fn counters(&self) -> Vec<InterfaceCounters>;
}

/// No XDP anywhere (`xdp = "off"` on every interface): all media takes the slow path.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDataPath;

impl DataPath for NoDataPath {
    fn link_set(&mut self, _: LinkId, _: LinkPlace, _: Mono) -> Result<(), Error> {
        Ok(())
    }

    fn address_set(&mut self, _: IpAddr, _: Mono) -> Result<(), Error> {
        Ok(())
    }

    fn listener_set(
        &mut self,
        _: ListenerId,
        _: SocketAddr,
        _: GateId,
        _: Mono,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _: &Delta, _: Mono) -> Result<(), Error> {
        Ok(())
    }

    fn reconcile(&mut self, _: (&[Flow], &[Talk]), _: Mono) -> Result<(), Error> {
        Ok(())
    }

    fn route_changed(&mut self, _: LinkId, _: Mono) -> Result<(), Error> {
        Ok(())
    }

    fn repair(&mut self) -> Result<Vec<Attached>, fastpath::Error> {
        Ok(Vec::new())
    }

    fn tick(&mut self, _: Duration, _: Mono) -> Result<(), Error> {
        Ok(())
    }

    fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        Ok(Vec::new())
    }

    fn silence(&self, _: &[FlowId]) -> Result<Option<Duration>, Error> {
        Ok(None)
    }

    fn flow_count(&self) -> usize {
        0
    }

    fn hops(&self) -> Result<Vec<HopRow>, Error> {
        Ok(Vec::new())
    }

    fn attached(&self) -> Vec<Attached> {
        Vec::new()
    }

    fn severed(&self) -> Vec<String> {
        Vec::new()
    }

    fn counters(&self) -> Vec<InterfaceCounters> {
        Vec::new()
    }
}
