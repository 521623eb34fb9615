//! A store that forgets with the process: for tests of the daemon on fakes.

use keepline_engine::gateway::{Change, Records};

use super::{Health, Store};

/// Holds what it is told in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    /// What a store on disk would hold now.
    pub records: Records,
    /// Changes that are to be lost, as on a full disk.
    pub full: bool,
    lost: u64,
    told: u64,
}

impl Store for MemoryStore {
    fn append(&mut self, changes: &[Change]) {
        if self.full {
            self.lost += changes.len() as u64;
        } else {
            let changes = changes.iter().cloned();
            changes.for_each(|change| self.records.apply(change));
        }
    }

    fn health(&mut self) -> Health {
        let recovered = !self.full && self.told < self.lost;
        if recovered {
            self.told = self.lost;
        }
        Health {
            failing: self.full.then(|| "no space left".to_owned()),
            recovered,
            lost: self.lost,
        }
    }
}
