//! Timers by name: each task has at most one deadline, and setting it again moves it.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Mono;

/// Deadlines of tasks, earliest first.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    due: BTreeSet<(Mono, T)>,
    at: BTreeMap<T, Mono>,
}

impl<T: Copy + Ord> Agenda<T> {
    pub(super) fn new() -> Self {
        Self {
            due: BTreeSet::new(),
            at: BTreeMap::new(),
        }
    }

    /// Gives the task this deadline, whatever it had.
    pub(super) fn set(&mut self, task: T, at: Mono) {
        self.clear(task);
        self.due.insert((at, task));
        self.at.insert(task, at);
    }

    /// Takes the task's deadline away.
    pub(super) fn clear(&mut self, task: T) {
        if let Some(at) = self.at.remove(&task) {
            self.due.remove(&(at, task));
        }
    }

    /// The task's deadline.
    pub(super) fn at(&self, task: T) -> Option<Mono> {
        self.at.get(&task).copied()
    }

    /// The earliest deadline of all.
    pub(super) fn next(&self) -> Option<(Mono, T)> {
        self.due.first().copied()
    }

    /// Takes the earliest task that is due.
    pub(super) fn pop_due(&mut self, now: Mono) -> Option<T> {
        let (_, task) = self.next().filter(|&(at, _)| at <= now)?;
        self.clear(task);
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn a_task_set_again_is_due_once_and_at_the_new_time() {
        let mut agenda = Agenda::new();
        agenda.set('a', at(10));
        agenda.set('b', at(20));
        agenda.set('a', at(30));

        assert_eq!(agenda.pop_due(at(25)), Some('b'));
        assert_eq!(agenda.pop_due(at(25)), None);
        assert_eq!(agenda.next(), Some((at(30), 'a')));
        agenda.clear('a');
        assert_eq!(agenda.next(), None);
    }
}
