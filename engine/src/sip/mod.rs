//! The lossless SIP wire layer (RFC 3261 section 7).
//!
//! A [`Message`] is an index over the bytes that arrived. Values are read on demand by parsers
//! that answer in [`Span`]s of those bytes; an [`Edit`] patches spans and copies the rest
//! verbatim. So unknown headers, their order, their case, folds and bodies survive a relay byte
//! for byte, whatever they contain. Nothing here panics on foreign bytes, and every parser is
//! linear in what it reads.

mod addr;
pub mod body;
mod derive;
pub mod digest;
mod edit;
mod keepalive;
mod message;
mod method;
mod name;
pub mod originate;
mod refusal;
mod respond;
mod scan;
mod span;
pub mod stream;
mod uri;
mod value;
mod via;

pub use addr::NameAddr;
pub use derive::{ack_for, cancel_for};
pub use edit::Edit;
pub use keepalive::{Datagram, classify};
pub use message::{CSeq, Line, Message};
pub use method::Method;
pub use name::Name;
pub use refusal::{Refusal, Why};
pub use respond::{reason_phrase, reply_address, reply_vias, respond, respond_with};
pub use scan::{MAX_BYTES, MAX_LINES};
pub use span::Span;
pub use uri::Uri;
pub use value::{Param, param, params, seconds, split, unquote};
pub use via::Via;
