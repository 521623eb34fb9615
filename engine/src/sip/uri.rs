//! URIs, taken apart without being rewritten (RFC 3261 section 19.1, RFC 3966).

use std::net::IpAddr;

use super::{Param, Span, value::param, via::host_port};
use crate::net::Transport;

/// A URI in pieces. Spans count from the URI's own first byte: for patching inside a message,
/// [`Span::shift`] them by the start of the URI's span.
///
/// `sip:` and `sips:` are taken apart wholly. A `tel:` number is the `user`, its host is empty.
/// Any other scheme keeps everything in `rest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uri<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Before the first colon, as written.
    pub scheme: &'a [u8],
    /// Everything after the scheme's colon.
    pub rest: &'a [u8],
    /// The user, without a password; a `tel:` number.
    pub user: Option<&'a [u8]>,
    /// The password, without its colon.
    pub password: Option<&'a [u8]>,
    /// The host, without the brackets of an IPv6 reference.
    pub host: &'a [u8],
    /// The port, when one is written.
    pub port: Option<u16>,
    /// The parameters, from the first `;`; empty when there are none.
    pub params: &'a [u8],
    /// The headers, from the `?`; empty when there are none.
    pub headers: &'a [u8],
    /// Where the user stands.
    pub user_span: Option<Span>,
    /// Where `host[:port]` stands, brackets included.
    pub host_port_span: Span,
    /// Where the parameters stand; empty, behind the host, when there are none.
    pub params_span: Span,
}

impl<'a> Uri<'a> {
    /// Takes a URI apart. `None` without a scheme, or for a SIP URI without a readable host.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let colon = bytes.iter().position(|byte| *byte == b':')?;
        let (scheme, rest) = (&bytes[..colon], &bytes[colon + 1..]);
        let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        if !scheme.first()?.is_ascii_alphabetic() || !scheme.iter().all(legal) {
            return None;
        }
        let end = bytes.len();
        let blank = Self {
            bytes,
            scheme,
            rest,
            user: None,
            password: None,
            host: &[],
            port: None,
            params: &[],
            headers: &[],
            user_span: None,
            host_port_span: Span::new(end..end),
            params_span: Span::new(end..end),
        };
        match blank.scheme {
            _ if blank.is_sip() => blank.read_sip(colon + 1),
            _ if blank.is_tel() => Some(blank.read_tel(colon + 1)),
            _ => Some(blank),
        }
    }

    /// `sip:` or `sips:`.
    #[must_use]
    pub fn is_sip(&self) -> bool {
        self.scheme.eq_ignore_ascii_case(b"sip") || self.is_sips()
    }

    /// `sips:`.
    #[must_use]
    pub fn is_sips(&self) -> bool {
        self.scheme.eq_ignore_ascii_case(b"sips")
    }

    /// `tel:`.
    #[must_use]
    pub fn is_tel(&self) -> bool {
        self.scheme.eq_ignore_ascii_case(b"tel")
    }

    /// The host as an address; `None` for a name.
    #[must_use]
    pub fn host_ip(&self) -> Option<IpAddr> {
        std::str::from_utf8(self.host).ok()?.parse().ok()
    }

    /// What carries requests to it where its host is an address (RFC 3263 section 4.1): as its
    /// `transport` parameter says, else TLS for `sips:` and UDP for `sip:`. TCP under `sips:` is
    /// TLS over TCP.
    #[must_use]
    pub fn transport(&self) -> Transport {
        let named = self
            .param("transport")
            .and_then(|param| Transport::named(param.value?.of(self.bytes)));
        match named {
            _ if self.is_sips() => Transport::Tls,
            named => named.unwrap_or_default(),
        }
    }

    /// A parameter by name, its spans counted like the URI's.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<Param> {
        param(self.bytes, self.params_span, name)
    }

    fn read_sip(mut self, start: usize) -> Option<Self> {
        let bytes = self.bytes;
        // '@' is legal nowhere but behind the user (section 25.1), whose ';' and '?' are its own.
        let at = bytes[start..]
            .iter()
            .position(|byte| *byte == b'@')
            .map(|at| start + at);
        if let Some(at) = at {
            let colon = bytes[start..at].iter().position(|byte| *byte == b':');
            let user_end = colon.map_or(at, |colon| start + colon);
            self.user = Some(&bytes[start..user_end]);
            self.user_span = Some(Span::new(start..user_end));
            self.password = colon.map(|_| &bytes[user_end + 1..at]);
        }
        let host_start = at.map_or(start, |at| at + 1);
        let params_start = self.split_tail(host_start);
        self.host_port_span = Span::new(host_start..params_start);
        let (host, port) = host_port(bytes, self.host_port_span)?;
        self.host = host.of(bytes);
        self.port = port;
        Some(self)
    }

    fn read_tel(mut self, start: usize) -> Self {
        let params_start = self.split_tail(start);
        let number = Span::new(start..params_start);
        self.user = Some(number.of(self.bytes));
        self.user_span = Some(number);
        self.host_port_span = Span::new(params_start..params_start);
        self
    }

    /// Reads parameters and headers of what begins at `from`; returns where they begin.
    fn split_tail(&mut self, from: usize) -> usize {
        let tail = &self.bytes[from..];
        let question = tail
            .iter()
            .position(|byte| *byte == b'?')
            .unwrap_or(tail.len());
        let semicolon = tail[..question]
            .iter()
            .position(|byte| *byte == b';')
            .unwrap_or(question);
        self.headers = &tail[question..];
        self.params = &tail[semicolon..question];
        self.params_span = Span::new(from + semicolon..from + question);
        from + semicolon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sip_uris_in_pieces() {
        for (text, user, host, port, params, headers) in [
            (
                "sip:a:secret@h.example:5070;lr;transport=udp?To=x",
                Some("a"),
                "h.example",
                Some(5070),
                ";lr;transport=udp",
                "?To=x",
            ),
            ("SIPS:[2001:db8::1]", None, "2001:db8::1", None, "", ""),
            (
                "sip:[2001:db8::1]:5061;ob",
                None,
                "2001:db8::1",
                Some(5061),
                ";ob",
                "",
            ),
            (
                "sip:user;par=u%40example.net@example.com",
                Some("user;par=u%40example.net"),
                "example.com",
                None,
                "",
                "",
            ),
            (
                "sip:+1-201@gw;user=phone",
                Some("+1-201"),
                "gw",
                None,
                ";user=phone",
                "",
            ),
            ("sip:@h", Some(""), "h", None, "", ""),
        ] {
            let uri = Uri::parse(text.as_bytes()).expect(text);
            assert_eq!(uri.user, user.map(str::as_bytes), "{text}");
            assert_eq!(uri.host, host.as_bytes());
            assert_eq!(uri.port, port);
            assert_eq!(uri.params, params.as_bytes());
            assert_eq!(uri.headers, headers.as_bytes());
            assert_eq!(uri.params_span.of(uri.bytes), uri.params);
            if let Some(span) = uri.user_span {
                assert_eq!(Some(span.of(uri.bytes)), uri.user);
            }
        }
    }

    #[test]
    fn other_schemes_are_kept() {
        let tel = Uri::parse(b"tel:+358-555-1234567;postd=pp22").expect("tel");
        assert_eq!(tel.user, Some(&b"+358-555-1234567"[..]));
        assert_eq!(tel.params, b";postd=pp22");
        assert!(tel.host.is_empty());
        let urn = Uri::parse(b"urn:service:sos").expect("urn");
        assert_eq!(urn.rest, b"service:sos");
        assert_eq!(urn.user, None);
    }

    #[test]
    fn nonsense_is_none() {
        for text in [
            "",
            ":",
            "sip",
            "sip:",
            "sip:a@",
            "sip:a@h:99999",
            "1sip:h",
            "<sip:h>",
            "*",
        ] {
            assert!(Uri::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
