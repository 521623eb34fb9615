//! Responses the gateway makes itself (RFC 3261 section 8.2.6), and where responses go.

use std::net::SocketAddr;

use super::{Message, Name, Span, Via};

/// Builds a response to a request.
///
/// Every Via is copied, the topmost with `received` and `rport` of the real source (RFC 3581,
/// case S8); From, Call-ID and CSeq are copied; To gets `to_tag` when it has none, but not in a
/// 100; Timestamp is copied into a 100. The body is empty. A caller that must add headers
/// patches the result.
#[must_use]
pub fn respond(
    request: &Message,
    code: u16,
    reason: &str,
    to_tag: Option<&str>,
    received_from: SocketAddr,
) -> Vec<u8> {
    let vias = reply_vias(request, received_from, None);
    respond_with(request, (code, reason), to_tag, &vias, &[])
}

/// The same with these Via lines, as [`reply_vias`] makes them, and with lines of the caller's own
/// at the end of the header.
#[must_use]
pub fn respond_with(
    request: &Message,
    (code, reason): (u16, &str),
    to_tag: Option<&str>,
    vias: &[u8],
    headers: &[(Name, String)],
) -> Vec<u8> {
    let mut out = format!("SIP/2.0 {code} {reason}\r\n").into_bytes();
    out.extend_from_slice(vias);
    for name in [
        Name::From,
        Name::To,
        Name::CallId,
        Name::CSeq,
        Name::Timestamp,
    ] {
        let Some(value) = request.header(name) else {
            continue;
        };
        if name == Name::Timestamp && code != 100 {
            continue;
        }
        match to_tag.filter(|_| name == Name::To && code > 100 && request.to_tag().is_none()) {
            Some(tag) => push(&mut out, name, &tagged(request, value, tag)),
            None => push(&mut out, name, request.slice(value)),
        }
    }
    out.extend_from_slice(b"Content-Length: 0\r\n");
    for (name, value) in headers {
        push(&mut out, *name, value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// The Via lines of a response to this request, line ends included: as they came, but the
/// topmost value with the real source in `received`, and in `rport` when the client asked. A `keep`
/// without a value is an offer to send keepalives: it is given `keep` seconds (RFC 6223 section 4.4).
#[must_use]
pub fn reply_vias(request: &Message, received_from: SocketAddr, keep: Option<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut top = request.top_via();
    for value in request.values(Name::Via) {
        match top.take() {
            Some(via) => push(
                &mut out,
                Name::Via,
                &stamped(request, &via, received_from, keep),
            ),
            None => push(&mut out, Name::Via, request.slice(value)),
        }
    }
    out
}

/// Where a response to this request goes over UDP: to its source. Only a client that did not
/// ask for `rport`, and whose Via names the very address it sent from, is answered at the port
/// its Via names (RFC 3261 section 18.2.2): behind a NAT that port would lead nowhere.
#[must_use]
pub fn reply_address(request: &Message, received_from: SocketAddr) -> SocketAddr {
    let Some(via) = request.top_via() else {
        return received_from;
    };
    let bytes = request.bytes();
    let symmetric = via.param(bytes, "rport").is_some();
    if symmetric || via.host_ip(bytes) != Some(received_from.ip().to_canonical()) {
        return received_from;
    }
    SocketAddr::new(received_from.ip(), via.port.unwrap_or(5060))
}

/// The usual phrase of a code (RFC 3261 section 21 and the registry); empty for a code that has
/// none.
#[must_use]
pub fn reason_phrase(code: u16) -> &'static str {
    match code {
        100 => "Trying",
        180 => "Ringing",
        181 => "Call Is Being Forwarded",
        182 => "Queued",
        183 => "Session Progress",
        200 => "OK",
        202 => "Accepted",
        204 => "No Notification",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        305 => "Use Proxy",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Request Entity Too Large",
        416 => "Unsupported URI Scheme",
        420 => "Bad Extension",
        421 => "Extension Required",
        422 => "Session Interval Too Small",
        423 => "Interval Too Brief",
        430 => "Flow Failed",
        439 => "First Hop Lacks Outbound Support",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        482 => "Loop Detected",
        483 => "Too Many Hops",
        484 => "Address Incomplete",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        489 => "Bad Event",
        491 => "Request Pending",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Server Time-out",
        505 => "Version Not Supported",
        513 => "Message Too Large",
        600 => "Busy Everywhere",
        603 => "Decline",
        604 => "Does Not Exist Anywhere",
        606 => "Not Acceptable",
        _ => "",
    }
}

/// A To value with a tag. It goes before the other parameters: an open quote in one of those
/// would swallow it.
fn tagged(request: &Message, value: Span, tag: &str) -> Vec<u8> {
    let params = request
        .read_addr(value)
        .map_or(value.end, |addr| addr.params.start);
    let (head, tail) = (
        Span {
            end: params,
            ..value
        },
        Span {
            start: params,
            ..value
        },
    );
    [
        request.slice(head),
        b";tag=",
        tag.as_bytes(),
        request.slice(tail),
    ]
    .concat()
}

/// A Via value with `received` and `rport` filled, whatever stood there. They go before the
/// other parameters: an open quote in one of those would swallow them.
fn stamped(request: &Message, via: &Via, from: SocketAddr, keep: Option<u32>) -> Vec<u8> {
    let bytes = request.bytes();
    let head = Span {
        start: via.value.start,
        end: via.params.start,
    };
    let mut out = head.trim(bytes).of(bytes).to_vec();
    out.extend_from_slice(format!(";received={}", from.ip().to_canonical()).as_bytes());
    if via.param(bytes, "rport").is_some() {
        out.extend_from_slice(format!(";rport={}", from.port()).as_bytes());
    }
    let mut keep = keep;
    for param in super::params(bytes, via.params) {
        let name = param.name.of(bytes);
        if name.eq_ignore_ascii_case(b"keep")
            && let Some(seconds) = keep.take().filter(|_| param.value.is_none())
        {
            out.extend_from_slice(format!(";keep={seconds}").as_bytes());
        } else if !name.eq_ignore_ascii_case(b"received") && !name.eq_ignore_ascii_case(b"rport") {
            out.extend_from_slice(param.full.of(bytes));
        }
    }
    out
}

fn push(out: &mut Vec<u8>, name: Name, value: &[u8]) {
    out.extend_from_slice(name.long().unwrap_or_default().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
