//! A change as the journal holds it.

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
