//! The gateway's own timers: one ordered set, each entry cancellable by value.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
};

use crate::{
    net::{ListenerId, PathKey},
    time::Mono,
};

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Deadline {
    /// The hunt of this call attempt has used its budget.
    HuntBudget(u64),
    /// A phone has not answered an INVITE at all.
    PhoneSilent(u64),
    /// RFC 3261 section 16.6, timer C: it rang for too long.
    TimerC(u64),
    /// A binding may have expired.
    Binding(u64),
    /// A client of a stream was not answered its keepalive.
    Unserved(ListenerId, SocketAddr),
    /// A connection that a large request was to take does not stand yet.
    Offer(ListenerId, SocketAddr),
    /// Phones on streams shall register anew.
    Bring,
    /// A flow to a server needs its next keepalive, or that one its next step.
    Keepalive(PathKey),
    /// The media of a dialog may have been silent for too long.
    Silent(u64),
    /// The subscription of a dialog was not prolonged.
    Subscription(u64),
    /// A softswitch that no group names may be used no more: its place among the learned.
    Learned(u16),
    /// A request that went through may have waited for too long: its talk.
    Unanswered(u32),
    /// A talk is looked at again.
    Talk(u32),
    /// A softswitch is told again of a BYE that was answered here.
    Farewell(u64),
}

/// At most one entry per [`Deadline`] value; setting it again moves it.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    ordered: BTreeSet<(Mono, Deadline)>,
    at: HashMap<Deadline, Mono>,
}

impl Deadlines {
    pub(crate) fn set(&mut self, deadline: Deadline, at: Mono) {
        self.clear(deadline);
        self.ordered.insert((at, deadline));
        self.at.insert(deadline, at);
    }

    pub(crate) fn is_set(&self, deadline: Deadline) -> bool {
        self.at.contains_key(&deadline)
    }

    pub(crate) fn clear(&mut self, deadline: Deadline) {
        if let Some(at) = self.at.remove(&deadline) {
            self.ordered.remove(&(at, deadline));
        }
    }

    pub(crate) fn next(&self) -> Option<(Mono, Deadline)> {
        self.ordered.first().copied()
    }

    /// Takes the earliest entry that is due.
    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<Deadline> {
        let (at, deadline) = *self.ordered.first()?;
        if at > now {
            return None;
        }
        self.clear(deadline);
        Some(deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn setting_again_moves_and_order_is_by_time() {
        let at = |s| Mono(Duration::from_secs(s));
        let mut deadlines = Deadlines::default();
        deadlines.set(Deadline::TimerC(1), at(5));
        deadlines.set(Deadline::Binding(1), at(3));
        deadlines.set(Deadline::TimerC(1), at(1));
        assert_eq!(deadlines.next(), Some((at(1), Deadline::TimerC(1))));
        assert_eq!(deadlines.pop_due(at(0)), None);
        assert_eq!(deadlines.pop_due(at(9)), Some(Deadline::TimerC(1)));
        assert_eq!(deadlines.pop_due(at(9)), Some(Deadline::Binding(1)));
        assert_eq!(deadlines.next(), None);
    }
}
