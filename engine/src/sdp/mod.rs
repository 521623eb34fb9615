//! Session descriptions (RFC 4566) as an index over the original bytes, and patches on them.
//!
//! [`Sdp::parse`] reads what anchoring needs and refuses what cannot be anchored;
//! [`Sdp::rewrite`] changes addresses, ports, `o=` and ICE, and leaves every other byte alone.

mod index;
mod rewrite;
mod values;

pub use index::Sdp;
pub use rewrite::{Origin, Rewrite, StreamOut};
pub use values::{Direction, Host, Stream, is_private};

/// Bytes of a body; a call needs a few hundred.
pub const MAX_BYTES: usize = 16 * 1024;
/// Lines of a body.
pub const MAX_LINES: usize = 512;
/// m= lines of a body.
pub const MAX_STREAMS: usize = 8;

/// What happens to ICE attributes (`[media] ice`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ice {
    /// Taken out: peers fall back to the c= and m= lines.
    Strip,
    /// Candidates give way to one of the gateway; credentials stay, checks pass as bytes.
    Relay,
    /// A body with ICE passes as it is, and its media goes where the parties find a way.
    Pass,
}

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// More bytes, lines or streams than any call needs.
    #[error("too large")]
    TooLarge,
    /// Not a `x=value` line, or one out of place; counted from 1.
    #[error("malformed line {0}")]
    Line(usize),
    /// A required line is missing.
    #[error("no {0}= line")]
    Missing(char),
    /// A port, address or transport that cannot be anchored; its line.
    #[error("line {0} cannot be anchored")]
    Unsupported(usize),
}

impl SdpError {
    /// The SIP status for a request with this body: 400 for syntax, 488 for content.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge | Self::Unsupported(_) => 488,
            Self::Line(_) | Self::Missing(_) => 400,
        }
    }
}
