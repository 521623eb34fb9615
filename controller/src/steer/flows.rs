//! Flows: a plan in a fresh slot, then the word of its media port. What an earlier run left is
//! taken up when a call claims it, and kept as an orphan when none does.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_common::{
    classify::Class,
    limits::ADDRESS_SLOTS,
    record::{FlowKey, Plan, PlanWord},
};
use keepline_engine::{
    net::LinkId,
    steer::{Flow, FlowId, FlowKind},
};

use super::{
    Error, FlowRow, LinkPlace, Pen,
    addresses::Addresses,
    bytes,
    groups::Groups,
    plans::{Plans, same},
    tables::Tables,
};

/// A plan in force.
#[derive(Debug, Clone)]
struct Installed {
    /// `None` for an orphan.
    flow: Option<Flow>,
    word: PlanWord,
    plan: Plan,
}

/// All flows, by their place in `MEDIA`: a port has one plan.
#[derive(Debug)]
pub(super) struct Flows {
    by_port: HashMap<u32, Installed>,
    by_id: HashMap<FlowId, u32>,
}

impl Flows {
    /// Takes up what is in the maps, as orphans.
    pub(super) fn adopt<T: Tables>(tables: &T, addresses: &Addresses) -> Result<Self, Error> {
        let (_, ports) = tables.media_range();
        let mut by_port = HashMap::new();
        let held = (0..ADDRESS_SLOTS).filter(|slot| addresses.address(*slot).is_some());
        for index in held.flat_map(|slot| slot * ports..(slot + 1) * ports) {
            let Some(word) = PlanWord::unpack(tables.media(index)) else {
                continue;
            };
            let plan = tables.plan(word.slot).map_err(Error::of("PLANS"))?;
            let flow = None;
            by_port.insert(index, Installed { flow, word, plan });
        }
        Ok(Self {
            by_port,
            by_id: HashMap::new(),
        })
    }

    /// Where the words in force lead.
    pub(super) fn words(&self) -> impl Iterator<Item = PlanWord> {
        self.by_port.values().map(|installed| installed.word)
    }

    /// The plans of orphans.
    pub(super) fn orphaned(&self) -> impl Iterator<Item = &Plan> {
        self.by_port
            .values()
            .filter(|installed| installed.flow.is_none())
            .map(|i| &i.plan)
    }

    /// Puts a flow in force, or makes it what it is now. A flow that is in force already costs
    /// no write.
    pub(super) fn set<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        flow: &Flow,
        place: LinkPlace,
        address_slot: u32,
        group: u32,
        (plans, groups): (&mut Plans, &mut Groups),
    ) -> Result<(), Error> {
        let index = media_index(pen.tables.media_range(), flow.local, address_slot)?;
        let plan = plan_of(flow, place, address_slot, group);
        let before = self.by_port.get(&index);
        let same = before.is_some_and(|before| same(&plan, &before.plan));
        let installed = match before {
            Some(before) if same => Installed {
                flow: Some(*flow),
                ..before.clone()
            },
            _ => install(pen, plans, flow, plan, index)?,
        };
        groups.join(group, flow.to.ip());
        // The same flow at another port leaves that one; another flow at this port loses it.
        if let Some(old) = self
            .by_id
            .get(&flow.id)
            .copied()
            .filter(|old| *old != index)
        {
            self.release(pen, old, (plans, groups));
        }
        if let Some(old) = self.by_port.insert(index, installed) {
            self.forget(&old, flow.id, groups);
            if !same {
                plans.retire(old.word.slot, pen.now);
            }
        }
        self.by_id.insert(flow.id, index);
        Ok(())
    }

    /// Takes a flow away.
    pub(super) fn clear<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        id: FlowId,
        installed: (&mut Plans, &mut Groups),
    ) {
        if let Some(index) = self.by_id.remove(&id) {
            self.release(pen, index, installed);
        }
    }

    /// Takes away every claimed flow that is not desired.
    pub(super) fn keep_only<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        desired: &[Flow],
        (plans, groups): (&mut Plans, &mut Groups),
    ) {
        let wanted: HashSet<FlowId> = desired.iter().map(|flow| flow.id).collect();
        let gone: Vec<FlowId> = self
            .by_id
            .keys()
            .copied()
            .filter(|id| !wanted.contains(id))
            .collect();
        for id in gone {
            self.clear(pen, id, (plans, groups));
        }
    }

    /// Takes orphans away that were silent for `idle`.
    pub(super) fn forget_orphans<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        idle: Duration,
        (plans, groups): (&mut Plans, &mut Groups),
    ) -> Result<usize, Error> {
        let now = pen.tables.kernel_now();
        let mut silent = Vec::new();
        for (index, installed) in self.by_port.iter().filter(|(_, i)| i.flow.is_none()) {
            let state = pen
                .tables
                .state(installed.word.slot)
                .map_err(Error::of("STATE"))?;
            if Duration::from_nanos(now.saturating_sub(state.last_seen)) >= idle {
                silent.push(*index);
            }
        }
        for index in &silent {
            self.release(pen, *index, (plans, groups));
        }
        Ok(silent.len())
    }

    /// Flows that arrive on `link`.
    pub(super) fn arriving_on(&self, link: LinkId) -> Vec<Flow> {
        self.claimed()
            .filter(|flow| flow.ingress == link)
            .copied()
            .collect()
    }

    /// Flows that leave by `egress` to one of `destinations`.
    pub(super) fn sent_by(&self, egress: LinkId, destinations: &[IpAddr]) -> Vec<Flow> {
        if destinations.is_empty() {
            return Vec::new();
        }
        self.claimed()
            .filter(|flow| flow.egress == egress && destinations.contains(&flow.to.ip()))
            .copied()
            .collect()
    }

    pub(super) fn count(&self) -> usize {
        self.by_port.len()
    }

    pub(super) fn rows<T: Tables>(
        &self,
        tables: &T,
        addresses: &Addresses,
    ) -> Result<Vec<FlowRow>, Error> {
        let now = tables.kernel_now();
        let mut rows = Vec::with_capacity(self.by_port.len());
        for Installed { flow, word, plan } in self.by_port.values() {
            let state = tables.state(word.slot).map_err(Error::of("STATE"))?;
            let [.., a, b, c, d] = plan.key.destination;
            let local = addresses.address(u32::from_be_bytes([a, b, c, d]));
            let hop = tables.group(plan.group);
            let idle = now.saturating_sub(state.last_seen);
            rows.push(FlowRow {
                id: flow.map(|flow| flow.id),
                ifindex: plan.key.ifindex,
                source: bytes::socket(plan.key.source, plan.key.source_port),
                local: SocketAddr::new(
                    local.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)),
                    u16::from_be_bytes(plan.key.destination_port),
                ),
                to: bytes::socket(plan.to, plan.to_port),
                group: plan.group,
                hop: (hop != 0).then_some(hop),
                packets: state.packets,
                bytes: state.bytes,
                foreign: state.foreign,
                idle: (state.last_seen != 0).then(|| Duration::from_nanos(idle)),
            });
        }
        rows.sort_by_key(|row| (row.local, row.source));
        Ok(rows)
    }

    /// See [`super::Steer::silence`].
    pub(super) fn silence<T: Tables>(
        &self,
        tables: &T,
        flows: &[FlowId],
    ) -> Result<Option<Duration>, Error> {
        let now = tables.kernel_now();
        let mut last = 0;
        let installed = flows
            .iter()
            .filter_map(|id| self.by_port.get(self.by_id.get(id)?));
        for installed in installed {
            let state = tables
                .state(installed.word.slot)
                .map_err(Error::of("STATE"))?;
            last = state.last_seen.max(last);
        }
        Ok((last != 0).then(|| Duration::from_nanos(now.saturating_sub(last))))
    }

    fn claimed(&self) -> impl Iterator<Item = &Flow> {
        self.by_port
            .values()
            .filter_map(|installed| installed.flow.as_ref())
    }

    /// Empties a port.
    fn release<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        index: u32,
        (plans, groups): (&mut Plans, &mut Groups),
    ) {
        let Some(old) = self.by_port.remove(&index) else {
            return;
        };
        pen.tables.set_media(index, 0);
        pen.writes.media += 1;
        plans.retire(old.word.slot, pen.now);
        if let Some(flow) = old.flow {
            groups.leave(old.plan.group, flow.to.ip());
        }
    }

    /// Forgets whom a port belonged to before `now` took it.
    fn forget(&mut self, old: &Installed, now: FlowId, groups: &mut Groups) {
        let Some(flow) = old.flow else { return };
        groups.leave(old.plan.group, flow.to.ip());
        if flow.id != now {
            self.by_id.remove(&flow.id);
        }
    }
}

/// Writes a plan into a fresh slot and turns the port's word to it.
fn install<T: Tables>(
    pen: &mut Pen<'_, T>,
    plans: &mut Plans,
    flow: &Flow,
    plan: Plan,
    index: u32,
) -> Result<Installed, Error> {
    let (word, plan) = plans.write(pen, plan)?;
    pen.tables.set_media(index, word.pack());
    pen.writes.media += 1;
    let flow = Some(*flow);
    Ok(Installed { flow, word, plan })
}

/// Where the word of a media port stands.
fn media_index(
    (first, ports): (u16, u32),
    local: SocketAddr,
    address_slot: u32,
) -> Result<u32, Error> {
    let offset = local.port().checked_sub(first).map(u32::from);
    let offset = offset
        .filter(|offset| *offset < ports)
        .ok_or(Error::NotMedia(local))?;
    Ok(address_slot * ports + offset)
}

fn plan_of(flow: &Flow, place: LinkPlace, address_slot: u32, group: u32) -> Plan {
    Plan {
        key: FlowKey::anchored(
            bytes::address(flow.source.ip()),
            flow.source.port().to_be_bytes(),
            address_slot,
            flow.local.port().to_be_bytes(),
            place.ifindex,
        ),
        generation: 0,
        group,
        to: bytes::address(flow.to.ip()),
        to_port: flow.to.port().to_be_bytes(),
        from_port: flow.from_port.to_be_bytes(),
        vlan: place.vlan.map(u16::to_be_bytes),
        classes: classes(flow.kind),
        talk: 0,
        party: 0,
    }
}

/// What XDP forwards of a flow: encrypted media is set up in its own stream; what is neither goes
/// to the port's socket. ICE asks on the port itself, and a fax begins with any byte.
fn classes(kind: FlowKind) -> u32 {
    let media = Class::Rtp as u32 | Class::Dtls as u32;
    match kind {
        FlowKind::Rtp | FlowKind::Rtcp => media,
        FlowKind::Checked => media | Class::Stun as u32,
        FlowKind::Udptl => media | Class::Stun as u32 | Class::Other as u32,
    }
}
