//! Groups and hops: one group per (egress link, next hop), one hop per group. Whatever changes
//! on the way out is a fresh hop and one group store.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use keepline_common::{
    limits::{GROUPS, HOPS},
    record::{HOP_FORWARD, HOP_LOCAL, Hop, Plan},
};
use keepline_engine::{net::LinkId, time::Mono};

use super::{
    Error, HopRow, Pen, bytes,
    resolver::{Resolver, Route},
    slots::Slots,
    tables::Tables,
};

/// TPID of one tag, and of the inner of two.
const CTAG: [u8; 2] = [0x81, 0x00];
/// TPID of the outer of two tags.
const STAG: [u8; 2] = [0x88, 0xa8];

/// One group.
#[derive(Debug)]
struct Group {
    /// `None` for a group that only orphans use.
    egress: Option<LinkId>,
    next_hop: IpAddr,
    /// What the word leads to; `None` = unresolved.
    hop: Option<(u32, Hop)>,
    /// Destinations of its flows, and how many each has.
    destinations: BTreeMap<IpAddr, u32>,
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    groups: BTreeMap<u32, Group>,
    group_slots: Slots,
    hop_slots: Slots,
    devices: BTreeSet<u32>,
}

impl Groups {
    /// The groups that the plans of an earlier run use. Hop 0 means "unresolved".
    pub(super) fn adopt<'a, T: Tables>(
        tables: &T,
        plans: impl Iterator<Item = &'a Plan>,
    ) -> Result<Self, Error> {
        let mut groups = BTreeMap::new();
        for plan in plans {
            if groups.contains_key(&plan.group) {
                continue;
            }
            let index = tables.group(plan.group);
            let hop = (index != 0).then(|| tables.hop(index).map(|hop| (index, hop)));
            let hop = hop.transpose().map_err(Error::of("HOPS"))?;
            let next_hop = bytes::ip(hop.map_or(plan.to, |(_, hop)| hop.next_hop));
            let group = Group {
                egress: None,
                next_hop,
                hop,
                destinations: BTreeMap::new(),
            };
            groups.insert(plan.group, group);
        }
        let used_groups = groups.keys().copied().collect();
        let used_hops: BTreeSet<u32> = groups
            .values()
            .filter_map(|group: &Group| group.hop.map(|(index, _)| index))
            .collect();
        Ok(Self {
            groups,
            group_slots: Slots::new("GROUPS", 0..GROUPS, &used_groups),
            hop_slots: Slots::new("HOPS", 1..HOPS, &used_hops),
            devices: BTreeSet::new(),
        })
    }

    /// The group that leads from `egress` to `to`; a new one is resolved and installed. Its
    /// flow is counted by [`Self::join`].
    pub(super) fn of<T: Tables, R: Resolver>(
        &mut self,
        pen: &mut Pen<'_, T>,
        resolver: &mut R,
        egress: LinkId,
        to: IpAddr,
    ) -> Result<u32, Error> {
        let route = resolver.resolve(egress, to);
        let next_hop = route.as_ref().map_or(to, |route| route.next_hop);
        let fits = |group: &Group| {
            let same_device = |route: &Route| {
                group
                    .hop
                    .is_some_and(|(_, hop)| hop.ifindex == route.ifindex)
            };
            group.next_hop == next_hop
                && group.egress.map_or_else(
                    || route.as_ref().is_some_and(same_device),
                    |link| link == egress,
                )
        };
        let found = self
            .groups
            .iter()
            .find(|(_, group)| fits(group))
            .map(|(index, _)| *index);
        let index = match found {
            Some(index) => index,
            None => self.install(pen, next_hop)?,
        };
        if let Some(group) = self.groups.get_mut(&index) {
            group.egress = Some(egress);
        }
        self.turn(pen, index, route.as_ref())?;
        Ok(index)
    }

    /// Counts a flow to `to` in.
    pub(super) fn join(&mut self, index: u32, to: IpAddr) {
        if let Some(group) = self.groups.get_mut(&index) {
            *group.destinations.entry(to).or_default() += 1;
        }
    }

    /// Counts a flow to `to` out. The group stays: the next call will want it.
    pub(super) fn leave(&mut self, index: u32, to: IpAddr) {
        let Some(group) = self.groups.get_mut(&index) else {
            return;
        };
        if let Some(flows) = group.destinations.get_mut(&to) {
            *flows -= 1;
            if *flows == 0 {
                group.destinations.remove(&to);
            }
        }
    }

    /// Resolves every group of `egress` anew. Destinations that no longer share their group's
    /// next hop are returned: their flows belong elsewhere.
    pub(super) fn resolve_again<T: Tables, R: Resolver>(
        &mut self,
        pen: &mut Pen<'_, T>,
        resolver: &mut R,
        egress: LinkId,
    ) -> Result<Vec<IpAddr>, Error> {
        let mut strayed = Vec::new();
        let of_link = self
            .groups
            .iter()
            .filter(|(_, group)| group.egress == Some(egress))
            .map(|(i, _)| *i);
        for index in of_link.collect::<Vec<_>>() {
            let Some(group) = self.groups.get_mut(&index) else {
                continue;
            };
            let fallback = group.next_hop;
            let mut ways = group
                .destinations
                .keys()
                .copied()
                .chain(group.destinations.is_empty().then_some(fallback))
                .map(|to| (to, resolver.resolve(egress, to)));
            let Some((first, way)) = ways.next() else {
                continue;
            };
            let same = |other: &Option<Route>| {
                other.as_ref().map(|route| route.next_hop)
                    == way.as_ref().map(|route| route.next_hop)
            };
            strayed.extend(ways.filter(|(_, other)| !same(other)).map(|(to, _)| to));
            group.next_hop = way.as_ref().map_or(first, |route| route.next_hop);
            self.turn(pen, index, way.as_ref())?;
        }
        Ok(strayed)
    }

    pub(super) fn tick(&mut self, now: Mono) {
        self.group_slots.tick(now);
        self.hop_slots.tick(now);
    }

    pub(super) fn rows<T: Tables>(&self, tables: &T) -> Result<Vec<HopRow>, Error> {
        let mut rows: BTreeMap<u32, HopRow> = BTreeMap::new();
        for (&index, group) in &self.groups {
            let Some((id, _)) = group.hop else { continue };
            // Read back rather than remembered: what people see is what packets see.
            let hop = tables.hop(tables.group(index)).map_err(Error::of("HOPS"))?;
            let row = rows.entry(id).or_insert_with(|| row(id, &hop));
            row.groups.push(index);
        }
        Ok(rows.into_values().collect())
    }

    /// Makes a group without a hop. A full table is swept of groups that nobody uses first.
    fn install<T: Tables>(&mut self, pen: &mut Pen<'_, T>, next_hop: IpAddr) -> Result<u32, Error> {
        let index = match self.group_slots.take(|| pen.tables.grace()) {
            Ok(index) => index,
            Err(_) => {
                self.sweep(pen);
                self.group_slots.take(|| pen.tables.grace())?
            }
        };
        pen.tables.set_group(index, 0);
        pen.writes.groups += 1;
        let group = Group {
            egress: None,
            next_hop,
            hop: None,
            destinations: BTreeMap::new(),
        };
        self.groups.insert(index, group);
        Ok(index)
    }

    fn sweep<T: Tables>(&mut self, pen: &mut Pen<'_, T>) {
        let unused = self
            .groups
            .extract_if(.., |_, g| g.egress.is_some() && g.destinations.is_empty());
        for (index, group) in unused {
            pen.tables.set_group(index, 0);
            pen.writes.groups += 1;
            self.group_slots.retire(index, pen.now);
            if let Some((hop, _)) = group.hop {
                self.hop_slots.retire(hop, pen.now);
            }
        }
    }

    /// Makes a group's word lead to the hop of `route`: nothing when it does; else a fresh hop
    /// and one store, so that a packet sees wholly the old hop or wholly the new one.
    fn turn<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        index: u32,
        route: Option<&Route>,
    ) -> Result<(), Error> {
        let Some(group) = self.groups.get_mut(&index) else {
            return Ok(());
        };
        let wanted = route.and_then(hop_of);
        if group.hop.map(|(_, hop)| hop) == wanted {
            return Ok(());
        }
        let fresh = match wanted {
            None => None,
            Some(hop) => {
                if hop.kind == HOP_FORWARD && !self.devices.contains(&hop.ifindex) {
                    pen.tables
                        .set_device(hop.ifindex)
                        .map_err(Error::of("DEVICES"))?;
                    pen.writes.devices += 1;
                    self.devices.insert(hop.ifindex);
                }
                let slot = self.hop_slots.take(|| pen.tables.grace())?;
                pen.tables.set_hop(slot, &hop).map_err(Error::of("HOPS"))?;
                pen.writes.hops += 1;
                Some((slot, hop))
            }
        };
        pen.tables
            .set_group(index, fresh.map_or(0, |(slot, _)| slot));
        pen.writes.groups += 1;
        if let Some((old, _)) = std::mem::replace(&mut group.hop, fresh) {
            self.hop_slots.retire(old, pen.now);
        }
        Ok(())
    }
}

/// The record of a route; `None` while its neighbour is unknown.
fn hop_of(route: &Route) -> Option<Hop> {
    let to = if route.local {
        [0; 6]
    } else {
        route.next_hop_mac?
    };
    let [a, b, c, d, e, f] = to;
    let [g, h, i, j, k, l] = route.source_mac;
    let (tags, tag_bytes) = tags(route.vlan);
    Some(Hop {
        ifindex: route.ifindex,
        mtu: u32::from(route.mtu),
        source: bytes::address(route.source),
        next_hop: bytes::address(route.next_hop),
        macs: [a, b, c, d, e, f, g, h, i, j, k, l],
        tags,
        tag_bytes,
        kind: if route.local { HOP_LOCAL } else { HOP_FORWARD },
    })
}

/// The tags of a frame in these VLANs, and their length.
fn tags(vlan: [u16; 2]) -> ([u8; 8], u16) {
    let [[a, b], [c, d]] = vlan.map(u16::to_be_bytes);
    match vlan {
        [0, _] => ([0; 8], 0),
        [_, 0] => ([CTAG[0], CTAG[1], a, b, 0, 0, 0, 0], 4),
        _ => ([STAG[0], STAG[1], a, b, CTAG[0], CTAG[1], c, d], 8),
    }
}

fn row(id: u32, hop: &Hop) -> HopRow {
    let [a, b, c, d, e, f, ..] = hop.macs;
    HopRow {
        id,
        ifindex: hop.ifindex,
        next_hop: bytes::ip(hop.next_hop),
        mac: (hop.kind == HOP_FORWARD).then_some([a, b, c, d, e, f]),
        source: bytes::ip(hop.source),
        mtu: hop.mtu,
        groups: Vec::new(),
    }
}
