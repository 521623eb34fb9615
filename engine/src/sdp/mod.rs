//! Session descriptions (RFC 4566) as an index over the original bytes, and patches on them.

/// What happens to ICE attributes (`[media] ice`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ice {
    /// Taken out: peers fall back to the c= and m= lines.
    Strip,
    /// Candidates give way to one of the gateway; credentials stay, checks pass as bytes.
    Relay,
}

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// More bytes or lines than any call needs.
    #[error("too large")]
    TooLarge,
    /// Not a `x=value` line, or one out of place.
    #[error("malformed line {0}")]
    Line(usize),
    /// A required line is missing.
    #[error("no {0}= line")]
    Missing(char),
    /// A port, address or transport that cannot be anchored.
    #[error("unsupported m= or c= line")]
    Unsupported,
}

impl SdpError {
    /// The SIP status for a request with this body: 400 for syntax, 488 for content.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge | Self::Unsupported => 488,
            Self::Line(_) | Self::Missing(_) => 400,
        }
    }
}
