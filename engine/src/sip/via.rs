//! Via values (RFC 3261 section 20.42).

use std::net::IpAddr;

use super::{
    Param, Span,
    span::is_lws,
    value::{find_outside, number, param},
};

/// One Via value, read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Via {
    /// All of it.
    pub value: Span,
    /// `UDP`, `TCP`, `TLS`, ...
    pub transport: Span,
    /// `host[:port]`.
    pub sent_by: Span,
    /// The host, without the brackets of an IPv6 reference.
    pub host: Span,
    /// The port, when one is written.
    pub port: Option<u16>,
    /// The parameters, from the first `;`; empty when there are none.
    pub params: Span,
}

impl Via {
    /// Reads one value of a list. White space and folds may stand around every separator.
    pub(super) fn read(bytes: &[u8], value: Span) -> Option<Self> {
        let end = value.end as usize;
        let semicolon = find_outside(bytes, value, b';').unwrap_or(end);
        let head = Span::new(value.start as usize..semicolon).trim(bytes);
        let (name, rest) = token(bytes, head)?;
        let (version, rest) = token(bytes, after_slash(bytes, rest)?)?;
        let (transport, rest) = token(bytes, after_slash(bytes, rest)?)?;
        if !name.of(bytes).eq_ignore_ascii_case(b"SIP") || version.of(bytes) != b"2.0" {
            return None;
        }
        let sent_by = rest.trim(bytes);
        // The protocol and the host are separated by white space or run into each other.
        if sent_by.is_empty() || sent_by.start == transport.end {
            return None;
        }
        let (host, port) = host_port(bytes, sent_by)?;
        Some(Self {
            value,
            transport,
            sent_by,
            host,
            port,
            params: Span::new(semicolon..end),
        })
    }

    /// A parameter by name.
    #[must_use]
    pub fn param(&self, bytes: &[u8], name: &str) -> Option<Param> {
        param(bytes, self.params, name)
    }

    /// The branch (RFC 3261 section 8.1.1.7); `None` when missing or empty.
    #[must_use]
    pub fn branch<'m>(&self, bytes: &'m [u8]) -> Option<&'m [u8]> {
        let value = self.param(bytes, "branch")?.value?;
        (!value.is_empty()).then(|| value.of(bytes))
    }

    /// The host as an address; `None` for a name.
    #[must_use]
    pub fn host_ip(&self, bytes: &[u8]) -> Option<IpAddr> {
        std::str::from_utf8(self.host.of(bytes)).ok()?.parse().ok()
    }
}

/// Splits `host[:port]` into the host without brackets and the port.
pub(super) fn host_port(bytes: &[u8], sent_by: Span) -> Option<(Span, Option<u16>)> {
    let text = sent_by.of(bytes);
    let start = sent_by.start as usize;
    let (host, rest) = if text.first() == Some(&b'[') {
        let close = text.iter().position(|byte| *byte == b']')?;
        (
            Span::new(start + 1..start + close),
            Span::new(start + close + 1..start + text.len()),
        )
    } else {
        let colon = text
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(text.len());
        (
            Span::new(start..start + colon).trim(bytes),
            Span::new(start + colon..start + text.len()),
        )
    };
    if host.is_empty() || !host.of(bytes).iter().all(|byte| is_host_byte(*byte)) {
        return None;
    }
    let rest = rest.trim(bytes);
    if rest.is_empty() {
        return Some((host, None));
    }
    (rest.of(bytes).first() == Some(&b':')).then_some(())?;
    let digits = Span::new(rest.start as usize + 1..rest.end as usize).trim(bytes);
    Some((host, Some(number::<u16>(digits.of(bytes))?)))
}

/// What a name or an address is made of, and bytes beyond ASCII. Above all none of the bytes
/// that other parts of a value are found by.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%:".contains(&byte) || !byte.is_ascii()
}

/// The token at the start of the span and what follows it.
fn token(bytes: &[u8], span: Span) -> Option<(Span, Span)> {
    let span = span.trim(bytes);
    let text = span.of(bytes);
    let stop = |byte: &u8| is_lws(*byte) || b"/;,<>\"".contains(byte);
    let end = text.iter().position(stop).unwrap_or(text.len());
    let at = span.start as usize + end;
    (end > 0).then(|| {
        (
            Span::new(span.start as usize..at),
            Span::new(at..span.end as usize),
        )
    })
}

/// What follows a slash, which must come next.
fn after_slash(bytes: &[u8], span: Span) -> Option<Span> {
    let span = span.trim(bytes);
    (span.of(bytes).first() == Some(&b'/'))
        .then(|| Span::new(span.start as usize + 1..span.end as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Via> {
        Via::read(text.as_bytes(), Span::new(0..text.len()))
    }

    #[test]
    fn plain_spaced_folded_and_ipv6() {
        for (text, transport, sent_by, host, port, branch) in [
            (
                "SIP/2.0/UDP 192.0.2.1:5078;branch=z9hG4bK1;rport",
                "UDP",
                "192.0.2.1:5078",
                "192.0.2.1",
                Some(5078),
                Some("z9hG4bK1"),
            ),
            (
                "SIP  / 2.0\r\n /UDP\r\n\t192.0.2.2 : 5060 ; branch = z9 ",
                "UDP",
                "192.0.2.2 : 5060",
                "192.0.2.2",
                Some(5060),
                Some("z9"),
            ),
            (
                "sip/2.0/tls [2001:db8::9]:5061;received=x",
                "tls",
                "[2001:db8::9]:5061",
                "2001:db8::9",
                Some(5061),
                None,
            ),
            (
                "SIP/2.0/UNKNOWN t1.example.org",
                "UNKNOWN",
                "t1.example.org",
                "t1.example.org",
                None,
                None,
            ),
        ] {
            let via = read(text).expect(text);
            let bytes = text.as_bytes();
            assert_eq!(&text[via.transport.range()], transport);
            assert_eq!(&text[via.sent_by.range()], sent_by);
            assert_eq!(&text[via.host.range()], host);
            assert_eq!(via.port, port);
            assert_eq!(via.branch(bytes), branch.map(str::as_bytes));
        }
        assert!(
            read("SIP/2.0/UDP [2001:db8::9]")
                .and_then(|via| via.host_ip(b"SIP/2.0/UDP [2001:db8::9]"))
                .is_some()
        );
    }

    #[test]
    fn what_cannot_be_answered_is_refused() {
        for text in [
            "",
            ";",
            "SIP/2.0/UDP",
            "SIP/2.0 192.0.2.1",
            "SIP/7.0/UDP 192.0.2.1",
            "HTTP/2.0/UDP 192.0.2.1",
            "SIP/2.0/UDP 192.0.2.1:65536",
            "SIP/2.0/UDP 192.0.2.1:",
            "SIP/2.0/UDP :5060",
            "SIP/2.0/UDP [2001:db8::9",
            "SIP/2.0/UDP [::1]x",
            "SIP/2.0/UDP< 192.0.2.1;branch=1",
            "SIP/2.0/UDP a<b;branch=1",
            "SIP/2.0/UDP a b",
            "SIP/2.0/UDP;branch=1",
        ] {
            assert!(read(text).is_none(), "{text:?}");
        }
    }
}
