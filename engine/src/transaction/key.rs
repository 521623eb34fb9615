//! What makes two messages part of one transaction (RFC 3261 sections 17.1.3 and 17.2.3).

use crate::sip::{Message, Method, Name, Span};

/// The key of a server transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ServerKey {
    identity: Vec<u8>,
    method: Vec<u8>,
}

impl ServerKey {
    /// The transaction a request belongs to; an ACK belongs to its INVITE's. `None` for what
    /// is no request.
    pub(super) fn of(msg: &Message) -> Option<Self> {
        let method = match msg.method()? {
            Method::Ack => b"INVITE",
            _ => msg.method_bytes(),
        };
        Some(Self {
            identity: identity(msg)?,
            method: method.to_vec(),
        })
    }

    /// The same for the INVITE that a CANCEL is about (RFC 3261 section 9.2).
    pub(super) fn invite(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            method: b"INVITE".to_vec(),
        }
    }
}

/// Branch and sent-by; for a client of RFC 2543, whose branch says nothing, what that RFC
/// compares. To is left out there: an ACK bears the tag that the INVITE lacked.
fn identity(msg: &Message) -> Option<Vec<u8>> {
    let via = msg.top_via()?;
    let bytes = msg.bytes();
    if let Some(branch) = via.branch(bytes).filter(|branch| is_rfc_3261(branch)) {
        return Some(joined(&[branch, &sent_by(msg.slice(via.sent_by))]));
    }
    let slice = |span: Option<Span>| span.map(|span| msg.slice(span)).unwrap_or_default();
    Some(joined(&[
        b"2543",
        slice(msg.uri()),
        msg.from_tag().unwrap_or_default(),
        slice(msg.header(Name::CallId)),
        slice(msg.cseq().map(|cseq| cseq.number_span)),
        msg.slice(via.value),
    ]))
}

/// A sent-by in one spelling: lower case, no white space, the default port left out.
pub(super) fn sent_by(written: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = written
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .copied()
        .collect();
    plain.make_ascii_lowercase();
    if let Some(host) = plain.strip_suffix(b":5060")
        && (!host.contains(&b':') || host.ends_with(b"]"))
    {
        plain.truncate(host.len());
    }
    plain
}

/// The magic cookie, compared without case.
fn is_rfc_3261(branch: &[u8]) -> bool {
    branch.len() > 7 && branch[..7].eq_ignore_ascii_case(b"z9hG4bK")
}

/// Length-prefixed, so that no two lists of parts run into each other.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        out.extend_from_slice(&(part.len() as u32).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_of_sent_by() {
        for (written, plain) in [
            ("Pbx.Example : 5060", "pbx.example"),
            ("192.0.2.1:5060", "192.0.2.1"),
            ("192.0.2.1:50600", "192.0.2.1:50600"),
            ("[2001:DB8::1]:5060", "[2001:db8::1]"),
            ("2001:db8::5060", "2001:db8::5060"),
            ("2001:db8:5060", "2001:db8:5060"),
        ] {
            assert_eq!(sent_by(written.as_bytes()), plain.as_bytes(), "{written}");
        }
    }
}
