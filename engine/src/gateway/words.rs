//! Addresses and Call-IDs in running text: bodies of events, and URIs that carry headers.

use std::net::IpAddr;

use super::topology::{Sight, Topology};
use crate::{net::Side, sip::Uri};

/// Headers of a URI that begin with a Call-ID (RFC 3891, 3911, 4538).
const CALL_IDS: [&str; 3] = ["replaces", "join", "target-dialog"];
/// What RFC 4235 calls the Call-ID of a dialog.
const XML_CALL_ID: &[u8] = b"call-id=\"";

impl Topology {
    /// The text as `towards` may see it, if it must change: addresses of the other side give
    /// way to the domain, with the port that follows them; Call-IDs are written as there.
    pub(crate) fn text(&self, text: &[u8], from: Side, towards: Sight) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let begins = at == 0 || !of_an_address(text[at - 1]);
            if begins && let Some((length, ip)) = address(rest) {
                match self.stand_in(ip, from, towards) {
                    None => out.extend_from_slice(&rest[..length]),
                    Some(host) => out.extend_from_slice(host.as_bytes()),
                }
                at += length;
            } else if rest.starts_with(XML_CALL_ID) {
                let value = &rest[XML_CALL_ID.len()..];
                let end = value.iter().position(|byte| *byte == b'"');
                let call_id = &value[..end.unwrap_or(0)];
                out.extend_from_slice(XML_CALL_ID);
                out.extend_from_slice(&self.call_id(call_id));
                at += XML_CALL_ID.len() + call_id.len();
            } else {
                out.push(text[at]);
                at += 1;
            }
        }
        (out != text).then_some(out)
    }

    /// The headers of a URI (from its `?`) with the Call-IDs in them as the other side writes
    /// them, if that changes them (RFC 5589 section 7: an attended transfer).
    pub(crate) fn uri_headers(&self, uri: &Uri<'_>) -> Option<Vec<u8>> {
        let headers = uri.headers.strip_prefix(b"?")?;
        let mapped: Vec<Vec<u8>> = headers
            .split(|byte| *byte == b'&')
            .map(|header| self.uri_header(header).unwrap_or_else(|| header.to_vec()))
            .collect();
        let mapped = [b"?", mapped.join(&b'&').as_slice()].concat();
        (mapped != uri.headers).then_some(mapped)
    }

    fn uri_header(&self, header: &[u8]) -> Option<Vec<u8>> {
        let equals = header.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&header[..equals], &header[equals + 1..]);
        let known = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        CALL_IDS.into_iter().find(|name| known(name))?;
        let value = unescaped(value);
        let end = value.iter().position(|byte| *byte == b';');
        let (call_id, params) = value.split_at(end.unwrap_or(value.len()));
        let mapped = self.call_id(call_id);
        let differs = mapped != call_id;
        differs.then(|| [name, b"=", &escaped(&[&mapped, params].concat())].concat())
    }
}

fn of_an_address(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.'
}

/// The address that the text begins with, and how long it is with its brackets and port.
fn address(text: &[u8]) -> Option<(usize, IpAddr)> {
    let (length, ip) = match text.first()? {
        b'[' => {
            let end = text.iter().take(48).position(|byte| *byte == b']')?;
            (end + 1, parsed(&text[1..end])?)
        }
        first if first.is_ascii_hexdigit() => bare(text)?,
        _ => return None,
    };
    let port = text[length..].strip_prefix(b":").unwrap_or_default();
    let digits = port.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let port = if digits == 0 { 0 } else { digits + 1 };
    Some((length + port, ip))
}

fn bare(text: &[u8]) -> Option<(usize, IpAddr)> {
    let run = |of: fn(&u8) -> bool| {
        let run = &text[..text.iter().take_while(|byte| of(byte)).count()];
        // A sentence may end behind an address.
        let run = run.strip_suffix(b".").unwrap_or(run);
        parsed(run).map(|ip| (run.len(), ip))
    };
    let ends = |(length, _): &(usize, IpAddr)| {
        text.get(*length)
            .is_none_or(|byte| !byte.is_ascii_alphanumeric())
    };
    run(|byte| byte.is_ascii_digit() || *byte == b'.')
        .filter(ends)
        .or_else(|| run(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')))
}

fn parsed(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `%40` and the like undone (RFC 3261 section 19.1.2); what is no escape stays.
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let code = (*byte == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(code.unwrap_or(*byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    out
}

/// Every byte escaped that a URI's header may not hold as it is (RFC 3261 section 25.1).
fn escaped(text: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()[]/?:+$".contains(byte);
    let mut out = Vec::with_capacity(text.len() + 16);
    for byte in text {
        match plain(byte) {
            true => out.push(*byte),
            false => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_text_with_their_ports() {
        let found =
            |text: &str| address(text.as_bytes()).map(|(length, ip)| (length, ip.to_string()));
        let is = |length: usize, ip: &str| Some((length, ip.to_owned()));
        assert_eq!(found("10.99.1.11>"), is(10, "10.99.1.11"));
        assert_eq!(found("10.99.1.11:5060;x"), is(15, "10.99.1.11"));
        assert_eq!(found("10.99.1.11: and"), is(10, "10.99.1.11"));
        assert_eq!(found("10.99.1.11. And"), is(10, "10.99.1.11"));
        assert_eq!(found("[fd00::7]:5061 x"), is(14, "fd00::7"));
        assert_eq!(found("fd00::7 x"), is(7, "fd00::7"));
        for none in [
            "10.99.1",
            "10.99.1.11.5",
            "12:30:45",
            "1.2.3.4a",
            "[x]",
            "cafe",
            "",
        ] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn escapes_are_undone_and_made() {
        assert_eq!(
            unescaped(b"a%4010.0.0.1%3Bto-tag%3d1%zz%4"),
            b"a@10.0.0.1;to-tag=1%zz%4"
        );
        assert_eq!(escaped(b"a@b;to-tag=1"), b"a%40b%3Bto-tag%3D1");
    }
}
