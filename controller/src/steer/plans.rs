//! Records of `PLANS` in fresh slots: what media and talks are both installed by.

use std::collections::BTreeSet;

use keepline_common::record::{Plan, PlanWord};
use keepline_engine::time::Mono;

use super::{Error, Pen, slots::Slots, tables::Tables};

/// The slots, and the generation that was given last.
#[derive(Debug)]
pub(super) struct Plans {
    slots: Slots,
    generation: u32,
}

impl Plans {
    /// All slots but those that words in the maps lead to.
    pub(super) fn beside<T: Tables>(tables: &T, words: impl Iterator<Item = PlanWord>) -> Self {
        let (mut used, mut generation) = (BTreeSet::new(), 0);
        for word in words {
            used.insert(word.slot);
            generation = word.generation.max(generation);
        }
        Self {
            slots: Slots::new("PLANS", 0..tables.plan_slots(), &used),
            generation,
        }
    }

    /// Writes a plan into a slot that nobody reads, its counters zero. No word leads there yet.
    pub(super) fn write<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        plan: Plan,
    ) -> Result<(PlanWord, Plan), Error> {
        let slot = self.slots.take(|| pen.tables.grace())?;
        self.generation = self.generation.wrapping_add(1).max(1);
        let generation = self.generation;
        let plan = Plan { generation, ..plan };
        let written = pen
            .tables
            .set_plan(slot, &plan)
            .map_err(Error::of("PLANS"))
            .and_then(|()| pen.tables.reset_state(slot).map_err(Error::of("STATE")));
        if let Err(error) = written {
            self.slots.retire(slot, pen.now);
            return Err(error);
        }
        pen.writes.plans += 1;
        Ok((PlanWord { slot, generation }, plan))
    }

    /// Gives a slot back whose last word was turned just before.
    pub(super) fn retire(&mut self, slot: u32, now: Mono) {
        self.slots.retire(slot, now);
    }

    pub(super) fn tick(&mut self, now: Mono) {
        self.slots.tick(now);
    }
}

/// Whether two plans say the same, whatever their generation.
pub(super) fn same(one: &Plan, other: &Plan) -> bool {
    let generation = other.generation;
    Plan { generation, ..*one } == *other
}
