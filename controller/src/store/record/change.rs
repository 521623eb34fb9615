//! A change as the journal holds it.

use std::collections::HashSet;

use keepline_engine::gateway::Change;
use serde::{Deserialize, Serialize};

use super::{binding::Binding, bytes, dialog::Dialog, read};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    Binding(Box<Binding>),
    BindingGone(u64),
    Dialog(Box<Dialog>),
    DialogGone(u64),
    Anew,
}

/// What a change is about, read without the rest of it.
#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
enum About {
    Binding(Whose),
    BindingGone(u64),
    Dialog(Whose),
    DialogGone(u64),
    Anew,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Whose {
    id: u64,
}

impl About {
    /// Of a binding or not, and its number; `None` for all of them.
    fn record(&self) -> Option<(bool, u64)> {
        match self {
            Self::Binding(Whose { id }) | Self::BindingGone(id) => Some((true, *id)),
            Self::Dialog(Whose { id }) | Self::DialogGone(id) => Some((false, *id)),
            Self::Anew => None,
        }
    }
}

/// Changes from their bytes, without those that later ones take back: a phone that refreshed, or a
/// call that came and went, is read and written once. What is no change is left out.
pub(in crate::store) fn read_last(changes: &[Vec<u8>]) -> Vec<Change> {
    let mut later = HashSet::new();
    let mut last = Vec::new();
    for bytes in changes.iter().rev() {
        let Some(about) = read::<About>(bytes) else {
            continue;
        };
        let record = about.record();
        if record.is_some_and(|record| later.contains(&record)) {
            continue;
        }
        // One that cannot be read takes nothing back.
        let Some(change) = read_change(bytes) else {
            continue;
        };
        last.push(change);
        match record {
            Some(record) => drop(later.insert(record)),
            None => break,
        }
    }
    last.reverse();
    last
}

/// A change's bytes.
pub(in crate::store) fn change(change: &Change) -> Vec<u8> {
    bytes(&match change {
        Change::Binding(record) => Stored::Binding(Box::new(record.as_ref().into())),
        Change::BindingGone(id) => Stored::BindingGone(*id),
        Change::Dialog(record) => Stored::Dialog(Box::new(record.as_ref().into())),
        Change::DialogGone(id) => Stored::DialogGone(*id),
        Change::Anew => Stored::Anew,
    })
}

/// A change from its bytes; `None` when they are none.
pub(in crate::store) fn read_change(bytes: &[u8]) -> Option<Change> {
    Some(match read(bytes)? {
        Stored::Binding(stored) => Change::Binding(Box::new((*stored).into())),
        Stored::BindingGone(id) => Change::BindingGone(id),
        Stored::Dialog(stored) => Change::Dialog(Box::new((*stored).into())),
        Stored::DialogGone(id) => Change::DialogGone(id),
        Stored::Anew => Change::Anew,
    })
}
