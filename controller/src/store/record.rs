//! The bytes of a record: JSON under names of our own. The engine's types are converted, never
//! serialised as they are, so that either may change without the other.
//!
//! A field that is added later needs a default; any other change needs another version of the
//! schema.

mod binding;
mod change;
mod dialog;
mod media;
mod value;

pub(super) use change::{change, read_change, read_last};

use keepline_engine::gateway::{BindingRecord, DialogRecord};
use serde::{Serialize, de::DeserializeOwned};

/// A binding's bytes.
pub(super) fn binding(record: &BindingRecord) -> Vec<u8> {
    bytes(&binding::Binding::from(record))
}

/// A binding from its bytes; `None` when they are none.
pub(super) fn read_binding(bytes: &[u8]) -> Option<BindingRecord> {
    read::<binding::Binding>(bytes).map(BindingRecord::from)
}

/// A dialog's bytes.
pub(super) fn dialog(record: &DialogRecord) -> Vec<u8> {
    bytes(&dialog::Dialog::from(record))
}

/// A dialog from its bytes; `None` when they are none.
pub(super) fn read_dialog(bytes: &[u8]) -> Option<DialogRecord> {
    read::<dialog::Dialog>(bytes).map(DialogRecord::from)
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    // Plain structures with string keys: there is nothing that JSON could refuse.
    serde_json::to_vec(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}
