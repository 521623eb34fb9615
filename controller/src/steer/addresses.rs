//! Our addresses and their slots of `MEDIA`. A slot outlives its address, so that a changed
//! address changes no plan.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use keepline_common::limits::ADDRESS_SLOTS;
use keepline_engine::time::Mono;

use super::{Error, Pen, bytes, tables::Tables};

/// How long an address that was replaced is still received on.
const RECEIVE_ONLY: Duration = Duration::from_secs(60);

/// Addresses by slot.
#[derive(Debug)]
pub(super) struct Addresses {
    slots: HashMap<IpAddr, u32>,
    leaving: Vec<(Mono, IpAddr)>,
}

impl Addresses {
    /// The addresses that are in the map.
    pub(super) fn adopt<T: Tables>(tables: &T) -> Result<Self, Error> {
        let pinned = tables.addresses().map_err(Error::of("ADDRS"))?;
        let slots = pinned
            .into_iter()
            .map(|(address, slot)| (bytes::ip(address), slot))
            .collect();
        Ok(Self {
            slots,
            leaving: Vec::new(),
        })
    }

    /// The slot of an address; a new address gets one.
    pub(super) fn slot<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        address: IpAddr,
    ) -> Result<u32, Error> {
        if let Some(slot) = self.slots.get(&address) {
            return Ok(*slot);
        }
        let used: BTreeSet<u32> = self.slots.values().copied().collect();
        let free = (0..ADDRESS_SLOTS).find(|slot| !used.contains(slot));
        let slot = free.ok_or(Error::Full("ADDRS"))?;
        self.insert(pen, address, slot)?;
        Ok(slot)
    }

    /// One of the addresses of a slot, the present one first.
    pub(super) fn address(&self, slot: u32) -> Option<IpAddr> {
        let leaving = |address: &IpAddr| self.leaving.iter().any(|(_, left)| left == address);
        self.slots
            .iter()
            .filter(|&(_, of)| *of == slot)
            .map(|(address, _)| *address)
            .min_by_key(leaving)
    }

    /// Gives the slot of `old` to `new`; `old` is received on for another minute.
    pub(super) fn changed<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        old: Option<IpAddr>,
        new: Option<IpAddr>,
    ) -> Result<(), Error> {
        let slot = old.and_then(|old| self.slots.get(&old).copied());
        if let (Some(slot), Some(new)) = (slot, new) {
            self.leaving.retain(|(_, address)| *address != new);
            if self.slots.get(&new) != Some(&slot) {
                self.insert(pen, new, slot)?;
            }
        }
        if let (Some(old), true) = (old, slot.is_some() && old != new) {
            self.leaving.push((pen.now, old));
        }
        Ok(())
    }

    /// Forgets addresses that had their minute.
    pub(super) fn tick<T: Tables>(&mut self, pen: &mut Pen<'_, T>) -> Result<(), Error> {
        let now = pen.now;
        let gone = self
            .leaving
            .extract_if(.., |(since, _)| now.since(*since) >= RECEIVE_ONLY);
        for (_, address) in gone {
            self.slots.remove(&address);
            pen.writes.addresses += 1;
            pen.tables
                .clear_address(bytes::address(address))
                .map_err(Error::of("ADDRS"))?;
        }
        Ok(())
    }

    fn insert<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        address: IpAddr,
        slot: u32,
    ) -> Result<(), Error> {
        pen.tables
            .set_address(bytes::address(address), slot)
            .map_err(Error::of("ADDRS"))?;
        pen.writes.addresses += 1;
        self.slots.insert(address, slot);
        Ok(())
    }
}
