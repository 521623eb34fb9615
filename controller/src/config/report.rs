//! What reading a file found: faults, and each value with where it came from.

use std::cell::RefCell;

use super::fault::Fault;

/// A value in force and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value, as TOML.
    pub value: String,
    /// Line of the file, from 1; `None` for a default.
    pub line: Option<usize>,
}

/// A table and what is in force in it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Table {
    /// As TOML: `[gateway]`, `[[interface]]`.
    pub header: String,
    /// In the order of the documentation.
    pub entries: Vec<Entry>,
}

/// Collects while sections are read. Shared by all of them, hence the cells.
#[derive(Debug, Default)]
pub(super) struct Report {
    faults: RefCell<Vec<Fault>>,
    tables: RefCell<Vec<Table>>,
}

impl Report {
    pub(super) fn fault(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// Opens a table; its keys are noted under the returned number.
    pub(super) fn table(&self, header: String) -> usize {
        let mut tables = self.tables.borrow_mut();
        tables.push(Table {
            header,
            entries: Vec::new(),
        });
        tables.len() - 1
    }

    pub(super) fn entry(&self, table: usize, entry: Entry) {
        if let Some(table) = self.tables.borrow_mut().get_mut(table) {
            table.entries.push(entry);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Fault>, Vec<Table>) {
        (self.faults.into_inner(), self.tables.into_inner())
    }
}
