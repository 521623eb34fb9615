//! `name-addr` and `addr-spec` (RFC 3261 section 25.1): From, To, Contact, Route and the like.

use super::{
    Param, Span, Uri,
    span::is_lws,
    value::{Nesting, param},
};

/// An address with its display name and header parameters, read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameAddr {
    /// All of it.
    pub value: Span,
    /// The display name, quotes included.
    pub display: Option<Span>,
    /// The URI without `<>`; `*` in `Contact: *`.
    pub uri: Span,
    /// The header parameters, from the first `;`. Without `<>` everything after the first `;`
    /// is one (RFC 3261 section 20.10).
    pub params: Span,
    /// Whether the URI stood in `<>`.
    pub angle: bool,
}

impl NameAddr {
    /// Reads one value of a list.
    pub(super) fn read(bytes: &[u8], value: Span) -> Option<Self> {
        let value = value.trim(bytes);
        let read = match open_angle(bytes, value) {
            Some(open) => Self::read_angle(bytes, value, open)?,
            None => Self::read_bare(bytes, value)?,
        };
        (!read.uri.is_empty()).then_some(read)
    }

    /// A header parameter by name.
    #[must_use]
    pub fn param(&self, bytes: &[u8], name: &str) -> Option<Param> {
        param(bytes, self.params, name)
    }

    /// The tag of a From or To; `None` when missing or empty.
    #[must_use]
    pub fn tag<'m>(&self, bytes: &'m [u8]) -> Option<&'m [u8]> {
        let value = self.param(bytes, "tag")?.value?;
        (!value.is_empty()).then(|| value.of(bytes))
    }

    /// The URI, taken apart.
    #[must_use]
    pub fn parse_uri<'m>(&self, bytes: &'m [u8]) -> Option<Uri<'m>> {
        Uri::parse(self.uri.of(bytes))
    }

    fn read_angle(bytes: &[u8], value: Span, open: usize) -> Option<Self> {
        let end = value.end as usize;
        let inside = Span::new(open + 1..end);
        let close = open + 1 + inside.of(bytes).iter().position(|byte| *byte == b'>')?;
        let rest = Span::new(close + 1..end);
        let semicolon = rest.of(bytes).iter().position(|byte| *byte == b';');
        let params = semicolon.map_or(end, |at| close + 1 + at);
        let display = Span::new(value.start as usize..open).trim(bytes);
        Some(Self {
            value,
            display: (!display.is_empty()).then_some(display),
            uri: Span::new(open + 1..close).trim(bytes),
            params: Span::new(params..end),
            angle: true,
        })
    }

    fn read_bare(bytes: &[u8], value: Span) -> Option<Self> {
        let text = value.of(bytes);
        let start = value.start as usize;
        let params = text
            .iter()
            .position(|byte| *byte == b';')
            .unwrap_or(text.len());
        let uri = text[..params]
            .iter()
            .position(|byte| is_lws(*byte))
            .unwrap_or(params);
        let uri = Span::new(start..start + uri);
        let plausible = uri.of(bytes) == b"*" || uri.of(bytes).contains(&b':');
        let params = Span::new(start + params..value.end as usize);
        plausible.then_some(Self {
            value,
            display: None,
            uri,
            params,
            angle: false,
        })
    }
}

/// Where `<` opens, outside quotes.
fn open_angle(bytes: &[u8], value: Span) -> Option<usize> {
    let mut nesting = Nesting::default();
    let at = value
        .of(bytes)
        .iter()
        .position(|byte| nesting.opens_angle(*byte))?;
    Some(value.start as usize + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_angles_and_bare_addresses() {
        for (text, display, uri, params, angle) in [
            (
                r#""A \" < ;," <sip:a@b;lr>;tag=1"#,
                Some(r#""A \" < ;,""#),
                "sip:a@b;lr",
                ";tag=1",
                true,
            ),
            (
                "caller<sip:caller@example.com>;tag=323",
                Some("caller"),
                "sip:caller@example.com",
                ";tag=323",
                true,
            ),
            (
                "Bell, Alexander <sip:a.g.bell@bell-tel.com> ;tag=43",
                Some("Bell, Alexander"),
                "sip:a.g.bell@bell-tel.com",
                ";tag=43",
                true,
            ),
            ("sip:a@b;tag=9", None, "sip:a@b", ";tag=9", false),
            ("sip:a@b ; tag=9", None, "sip:a@b", "; tag=9", false),
            ("*", None, "*", "", false),
            ("<sip:a@b>", None, "sip:a@b", "", true),
        ] {
            let addr = NameAddr::read(text.as_bytes(), Span::new(0..text.len())).expect(text);
            assert_eq!(
                addr.display.map(|span| &text[span.range()]),
                display,
                "{text}"
            );
            assert_eq!(&text[addr.uri.range()], uri);
            assert_eq!(&text[addr.params.range()], params);
            assert_eq!(addr.angle, angle);
        }
    }

    #[test]
    fn no_address_no_value() {
        for text in [
            "",
            " ",
            "<>",
            "\"name\" <sip:a@b",
            ";tag=1",
            "\"unterminated <",
            "alice",
        ] {
            let read = NameAddr::read(text.as_bytes(), Span::new(0..text.len()));
            assert!(read.is_none(), "{text:?}");
        }
    }
}
