//! Slots of an array whose records programs may still read after the last word that led there
//! was turned: a slot is reused only after its grace (fastpath.md section 1).

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use keepline_engine::time::Mono;

use super::Error;

/// How long a slot rests where the kernel does not offer to wait for a grace period.
const REST: Duration = Duration::from_secs(1);

/// The free and resting slots of one array.
#[derive(Debug)]
pub(super) struct Slots {
    table: &'static str,
    free: Vec<u32>,
    fresh: std::ops::Range<u32>,
    resting: VecDeque<(Mono, u32)>,
}

impl Slots {
    /// All slots of `range` but those in `used`.
    pub(super) fn new(
        table: &'static str,
        range: std::ops::Range<u32>,
        used: &BTreeSet<u32>,
    ) -> Self {
        let first = used.last().map_or(range.start, |last| last + 1);
        let free = (range.start..first)
            .filter(|slot| !used.contains(slot))
            .collect();
        Self {
            table,
            free,
            fresh: first..range.end,
            resting: VecDeque::new(),
        }
    }

    /// A slot that no program reads. When none is left but resting ones, `grace` is asked to
    /// wait for the programs.
    pub(super) fn take(&mut self, grace: impl FnOnce() -> bool) -> Result<u32, Error> {
        if let Some(slot) = self.free.pop().or_else(|| self.fresh.next()) {
            return Ok(slot);
        }
        if !self.resting.is_empty() && grace() {
            self.free
                .extend(self.resting.drain(..).map(|(_, slot)| slot));
        }
        self.free.pop().ok_or(Error::Full(self.table))
    }

    /// Gives a slot back whose last word was turned just before.
    pub(super) fn retire(&mut self, slot: u32, now: Mono) {
        self.resting.push_back((now, slot));
    }

    /// Frees what has rested.
    pub(super) fn tick(&mut self, now: Mono) {
        while let Some(&(since, slot)) = self.resting.front() {
            if now.since(since) < REST {
                break;
            }
            self.resting.pop_front();
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn a_slot_rests_before_it_is_taken_again() {
        let mut slots = Slots::new("PLANS", 0..1, &BTreeSet::new());
        assert_eq!(slots.take(|| false).unwrap(), 0);
        slots.retire(0, at(0));
        slots.tick(at(999));
        assert!(matches!(slots.take(|| false), Err(Error::Full("PLANS"))));
        slots.tick(at(1_000));
        assert_eq!(slots.take(|| false).unwrap(), 0);
    }

    #[test]
    fn a_grace_period_frees_at_once() {
        let mut slots = Slots::new("PLANS", 0..1, &BTreeSet::new());
        slots.take(|| false).unwrap();
        slots.retire(0, at(0));
        assert_eq!(slots.take(|| true).unwrap(), 0);
    }

    #[test]
    fn used_slots_are_left_alone() {
        let mut slots = Slots::new("HOPS", 1..4, &BTreeSet::from([2]));
        let mut taken = [slots.take(|| true).unwrap(), slots.take(|| true).unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [1, 3]);
        assert!(slots.take(|| true).is_err());
    }
}
