//! Requests that repeat another one: the ACK of a non-2xx and CANCEL. Their headers must equal
//! those of the request they belong to, so they are copied bytes, not built values.

use super::{Message, Name, Span};

/// The ACK of a final response other than 2xx, from the INVITE as it was sent (RFC 3261
/// section 17.1.1.3): same Request-URI, top Via, From, Call-ID, CSeq number and routes; To is
/// that of the response.
#[must_use]
pub fn ack_for(invite: &Message, response: &Message) -> Vec<u8> {
    let to = response
        .header(Name::To)
        .map(|span| response.slice(span))
        .unwrap_or_default();
    repeat(invite, "ACK", to)
}

/// The CANCEL of a request as it was sent (RFC 3261 section 9.1): same Request-URI, top Via,
/// From, To, Call-ID, CSeq number and routes.
#[must_use]
pub fn cancel_for(request: &Message) -> Vec<u8> {
    let to = request
        .header(Name::To)
        .map(|span| request.slice(span))
        .unwrap_or_default();
    repeat(request, "CANCEL", to)
}

fn repeat(request: &Message, method: &str, to: &[u8]) -> Vec<u8> {
    let slice = |span: Option<Span>| span.map(|span| request.slice(span)).unwrap_or_default();
    let mut out = [
        method.as_bytes(),
        b" ",
        slice(request.uri()),
        b" SIP/2.0\r\n",
    ]
    .concat();
    let mut push = |name: &str, value: &[u8]| {
        out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    };
    push("Via", slice(request.values(Name::Via).next()));
    for line in request
        .lines()
        .iter()
        .filter(|line| line.name == Name::Route)
    {
        push("Route", request.slice(line.value));
    }
    push("Max-Forwards", b"70");
    push("From", slice(request.header(Name::From)));
    push("To", to);
    push("Call-ID", slice(request.header(Name::CallId)));
    let number = slice(request.cseq().map(|cseq| cseq.number_span));
    push("CSeq", &[number, b" ", method.as_bytes()].concat());
    push("Content-Length", b"0");
    out.extend_from_slice(b"\r\n");
    out
}
