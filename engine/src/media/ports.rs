//! The media ports of one link: pairs of an even RTP and the next RTCP port.

use std::{collections::VecDeque, ops::RangeInclusive, time::Duration};

use crate::{rng::Rng, time::Mono};

/// A freed pair rests for this long: late packets of its old call must not reach a new one.
pub(super) const REST: Duration = Duration::from_secs(10);

/// Pairs by their even port.
#[derive(Debug)]
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    free: VecDeque<u16>,
    /// In the order in which they were freed.
    resting: VecDeque<(Mono, u16)>,
}

impl Ports {
    /// Every whole pair of the range, in an order that cannot be guessed from outside.
    pub(super) fn new(range: &RangeInclusive<u16>, seed: u64) -> Self {
        let first = range.start().saturating_add(range.start() % 2);
        let mut pairs: Vec<u16> = (first..*range.end()).step_by(2).collect();
        let mut rng = Rng::new(seed);
        for i in (1..pairs.len()).rev() {
            let j = usize::try_from(rng.next_u64() % (i as u64 + 1)).unwrap_or(0);
            pairs.swap(i, j);
        }
        Self {
            range: range.clone(),
            free: pairs.into(),
            resting: VecDeque::new(),
        }
    }

    /// Pairs that could be taken now.
    pub(super) fn available(&mut self, now: Mono) -> usize {
        while let Some(&(freed, port)) = self.resting.front()
            && now.since(freed) >= REST
        {
            self.resting.pop_front();
            self.free.push_back(port);
        }
        self.free.len()
    }

    pub(super) fn take(&mut self, now: Mono) -> Option<u16> {
        self.available(now);
        self.free.pop_front()
    }

    /// A port outside the range, of a run with another configuration, does not come back.
    pub(super) fn give(&mut self, now: Mono, port: u16) {
        if self.range.contains(&port) && port < *self.range.end() {
            self.resting.push_back((now, port));
        }
    }

    /// Takes every free pair that `of` names.
    pub(super) fn claim(&mut self, of: impl Fn(u16) -> bool) {
        self.free.retain(|port| !of(*port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    #[test]
    fn only_whole_pairs_are_given_and_each_once() {
        let mut ports = Ports::new(&(10_001..=10_010), 1);
        let mut taken: Vec<_> = std::iter::from_fn(|| ports.take(at(0))).collect();
        taken.sort_unstable();
        assert_eq!(taken, [10_002, 10_004, 10_006, 10_008]);
    }

    #[test]
    fn a_freed_pair_rests_before_it_serves_again() {
        let mut ports = Ports::new(&(10_000..=10_001), 1);
        let port = ports.take(at(0)).unwrap();
        ports.give(at(1), port);
        assert_eq!(ports.take(at(10)), None);
        assert_eq!(ports.take(at(11)), Some(10_000));
    }

    #[test]
    fn the_order_depends_on_the_seed() {
        let order = |seed| {
            let mut ports = Ports::new(&(10_000..=11_000), seed);
            std::iter::from_fn(|| ports.take(at(0)))
                .take(8)
                .collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
        assert_eq!(order(1), order(1));
    }
}
