//! Why bytes are not a message, and what the sender is told.

use std::{fmt, net::SocketAddr};

use super::{Message, Method, Name, respond};

/// What is wrong with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// Nothing but line ends, or nothing at all.
    Empty,
    /// Neither a request line nor a status line.
    StartLine,
    /// A SIP version other than 2.0.
    Version,
    /// The header has no end.
    Truncated,
    /// A header line without a colon or with a malformed name, or a fold before any header.
    HeaderLine,
    /// A carriage return that ends no line: other parsers may see a line end there.
    BareCr,
    /// More than [`MAX_LINES`](super::MAX_LINES) header lines.
    TooManyLines,
    /// More than [`MAX_BYTES`](super::MAX_BYTES).
    TooLong,
    /// Content-Length is repeated, not a number, or larger than the datagram (case S11).
    ContentLength,
    /// A mandatory header is missing.
    Missing(Name),
    /// A mandatory header that may stand once stands twice.
    Repeated(Name),
    /// A mandatory header cannot be read.
    Malformed(Name),
    /// The method of CSeq is not that of the request.
    CSeqMethod,
}

/// Bytes that are not a message; for a request, with what is needed to say so.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The first fault found.
    pub why: Why,
    /// Everything that could be read, the body left out; `None` when not even the start line.
    partial: Option<Box<Message>>,
}

impl Refusal {
    pub(super) fn new(why: Why, partial: Option<Box<Message>>) -> Self {
        Self { why, partial }
    }

    /// What a request is answered with; `None` for what is dropped: responses, ACK, and what
    /// is no SIP.
    #[must_use]
    pub fn status(&self) -> Option<(u16, &'static str)> {
        let partial = self.partial.as_deref()?;
        if !partial.is_request() || partial.method() == Some(Method::Ack) {
            return None;
        }
        Some(match self.why {
            Why::Version => (505, "Version Not Supported"),
            Why::TooLong | Why::TooManyLines => (513, "Message Too Large"),
            Why::ContentLength => (400, "Bad Content-Length"),
            Why::Missing(_) => (400, "Missing Header"),
            Why::Repeated(_) => (400, "Repeated Header"),
            Why::Malformed(_) => (400, "Malformed Header"),
            Why::CSeqMethod => (400, "CSeq Method Mismatch"),
            _ => (400, "Bad Request"),
        })
    }

    /// The whole answer, when one is due and there is enough of the request to recognise it
    /// by: Via, From, To, Call-ID and CSeq, readable or not. It goes to where the request came
    /// from.
    #[must_use]
    pub fn answer(&self, to_tag: &str, received_from: SocketAddr) -> Option<Vec<u8>> {
        let (code, reason) = self.status()?;
        let partial = self.partial.as_deref()?;
        let needed = [Name::Via, Name::From, Name::To, Name::CallId, Name::CSeq];
        needed
            .iter()
            .all(|name| partial.header(*name).is_some())
            .then_some(())?;
        Some(respond(partial, code, reason, Some(to_tag), received_from))
    }

    /// The readable part of the message: for logs, and for counting by method.
    #[must_use]
    pub fn partial(&self) -> Option<&Message> {
        self.partial.as_deref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = |name: Name| name.long().unwrap_or("header");
        match self.why {
            Why::Empty => out.write_str("empty"),
            Why::StartLine => out.write_str("neither a request line nor a status line"),
            Why::Version => out.write_str("SIP version other than 2.0"),
            Why::Truncated => out.write_str("header without an end"),
            Why::HeaderLine => out.write_str("malformed header line"),
            Why::BareCr => out.write_str("carriage return inside a line"),
            Why::TooManyLines => out.write_str("too many header lines"),
            Why::TooLong => out.write_str("too long"),
            Why::ContentLength => out.write_str("bad Content-Length"),
            Why::Missing(name) => write!(out, "{} missing", header(name)),
            Why::Repeated(name) => write!(out, "{} repeated", header(name)),
            Why::Malformed(name) => write!(out, "malformed {}", header(name)),
            Why::CSeqMethod => out.write_str("CSeq names another method"),
        }
    }
}

impl std::error::Error for Refusal {}
