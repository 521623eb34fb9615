//! What must hold for any bytes: the bodies of the fuzz targets, replayed over the committed
//! corpus by `sip/corpus.rs` in every run.

mod edit;
mod message;

pub(crate) use edit::sip_edit;
pub(crate) use message::sip_message;
