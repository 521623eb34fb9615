//! What outlives the daemon: bindings and answered calls (signalling.md section 5).
//!
//! | file | concern |
//! |---|---|
//! | `file` | the store on disk: journal and database joined |
//! | `segment` | one file of the journal: framed, checksummed, its torn tail tolerated |
//! | `database` | the durable half, in redb |
//! | `aside` | what cannot be read is renamed, never deleted |
//! | `record` | the bytes of a record, with their version |
//! | `memory` | the same store for tests |
//!
//! Changes are appended to the journal by one write(2) before the datagrams that make them
//! visible leave: the kernel has them then, and `kill -9` cannot take them back. Once a second the
//! journal goes into the database in one durable commit, so a power cut costs at most that
//! second.

mod aside;
mod database;
mod file;
mod memory;
mod record;
mod segment;

use std::{io, path::PathBuf};

pub use file::FileStore;
pub use memory::MemoryStore;

use keepline_engine::gateway::Change;

/// Where changes go. Losing one is counted, never fatal: calls go on.
pub trait Store {
    /// Takes changes, in their order. When this returns, the death of the process cannot undo
    /// them.
    fn append(&mut self, changes: &[Change]);

    /// How the store is. Asked once a second.
    fn health(&mut self) -> Health;
}

/// How a store is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// Why changes are lost at present; `None` while all is well.
    pub failing: Option<String>,
    /// It lost changes and takes them again: it must be told everything anew. Said once.
    pub recovered: bool,
    /// Changes lost so far.
    pub lost: u64,
}

/// Why a store cannot be opened at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The directory cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}
