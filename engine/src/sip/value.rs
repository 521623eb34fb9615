//! The grammar that header values share: lists, parameters, quoted strings, seconds.

use super::{Span, span::is_lws};

/// One `;name=value` (RFC 3261 section 25.1, `generic-param`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Before the `=`, without white space.
    pub name: Span,
    /// After the `=`, quotes included; `None` when there is no `=`.
    pub value: Option<Span>,
    /// From its `;` to the end of its value.
    pub full: Span,
}

/// The elements of a comma-separated list. Commas inside quotes or `<>` separate nothing;
/// empty elements are skipped (RFC 3261 section 7.3.1).
pub fn split(bytes: &[u8], list: Span) -> impl Iterator<Item = Span> + '_ {
    pieces(bytes, list, b',')
        .map(|piece| piece.trim(bytes))
        .filter(|piece| !piece.is_empty())
}

/// The parameters in a span that begins with `;` (or is empty). Semicolons inside quotes
/// separate nothing.
pub fn params(bytes: &[u8], span: Span) -> impl Iterator<Item = Param> + '_ {
    // What stands before the first `;` is no parameter: a span of parameters has nothing there.
    pieces(bytes, span, b';')
        .skip(1)
        .filter_map(|piece| read_param(bytes, piece))
}

/// The first parameter of that name; names are case-insensitive.
#[must_use]
pub fn param(bytes: &[u8], span: Span, name: &str) -> Option<Param> {
    params(bytes, span).find(|param| param.name.of(bytes).eq_ignore_ascii_case(name.as_bytes()))
}

/// Without the quotes around it, if it has them. Escapes inside stay as they are.
#[must_use]
pub fn unquote(bytes: &[u8]) -> &[u8] {
    match bytes {
        [b'"', inner @ .., b'"'] => inner,
        _ => bytes,
    }
}

/// A number of seconds, or any other decimal; what exceeds 32 bits is the largest there is.
/// `None` when it is no number.
#[must_use]
pub fn seconds(bytes: &[u8]) -> Option<u32> {
    if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(bytes.iter().fold(0_u32, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
    }))
}

/// A decimal that fits.
pub(super) fn number<T: TryFrom<u32>>(bytes: &[u8]) -> Option<T> {
    let value = seconds(bytes)?;
    // Saturation is overflow here; u32::MAX itself is no legal value of anything we read.
    (value != u32::MAX).then(|| T::try_from(value).ok())?
}

/// What a scan of a value must remember so that separators in quotes or `<>` do not count.
#[derive(Default)]
pub(super) struct Nesting {
    quoted: bool,
    escaped: bool,
    angle: bool,
}

impl Nesting {
    /// Takes the next byte; true when it stands outside quotes and `<>` (the delimiters
    /// themselves count as inside).
    pub(super) fn outside(&mut self, byte: u8) -> bool {
        if self.quoted {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == b'"' {
                self.quoted = false;
            }
            return false;
        }
        match byte {
            // Inside <> a quote is part of the URI.
            b'"' if !self.angle => self.quoted = true,
            b'<' => self.angle = true,
            b'>' => self.angle = false,
            _ => return !self.angle,
        }
        false
    }
}

impl Nesting {
    /// Takes the next byte; true when it opens `<>`.
    pub(super) fn opens_angle(&mut self, byte: u8) -> bool {
        let before = self.angle;
        self.outside(byte);
        self.angle && !before
    }
}

/// The position of the first `wanted` byte outside quotes and `<>`, counted from the start of
/// the message.
pub(super) fn find_outside(bytes: &[u8], span: Span, wanted: u8) -> Option<usize> {
    let mut nesting = Nesting::default();
    let at = span
        .of(bytes)
        .iter()
        .position(|byte| nesting.outside(*byte) && *byte == wanted)?;
    Some(span.start as usize + at)
}

/// The pieces between separators outside quotes and `<>`, untrimmed.
fn pieces(bytes: &[u8], span: Span, separator: u8) -> impl Iterator<Item = Span> + '_ {
    let mut rest = Some(span);
    std::iter::from_fn(move || {
        let span = rest?;
        let Some(at) = find_outside(bytes, span, separator) else {
            rest = None;
            return Some(span);
        };
        rest = Some(Span::new(at + 1..span.end as usize));
        Some(Span::new(span.start as usize..at))
    })
}

/// One parameter, from the piece after its `;`.
fn read_param(bytes: &[u8], piece: Span) -> Option<Param> {
    let body = piece.trim(bytes);
    let equals = body.of(bytes).iter().position(|byte| *byte == b'=');
    let (name, value) = match equals {
        None => (body, None),
        Some(at) => {
            let at = body.start as usize + at;
            let value = Span::new(at + 1..body.end as usize).trim(bytes);
            (Span::new(body.start as usize..at).trim(bytes), Some(value))
        }
    };
    let full = Span::new(piece.start as usize - 1..body.end.max(piece.start) as usize);
    let token = !name.is_empty() && !name.of(bytes).iter().any(|byte| is_lws(*byte));
    token.then_some(Param { name, value, full })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Span {
        Span::new(0..text.len())
    }

    fn list(text: &str) -> Vec<&str> {
        split(text.as_bytes(), all(text))
            .map(|span| &text[span.range()])
            .collect()
    }

    #[test]
    fn commas_in_quotes_and_angles_separate_nothing() {
        assert_eq!(
            list(r#""a, \" b" <sip:x,y@z>;q="1,2", c ,, d"#),
            [r#""a, \" b" <sip:x,y@z>;q="1,2""#, "c", "d"]
        );
        assert_eq!(list(" , "), [""; 0]);
        // An unterminated quote or angle swallows the rest: one element, nothing lost.
        assert_eq!(list("\"a, b"), ["\"a, b"]);
        assert_eq!(list("<a, b"), ["<a, b"]);
    }

    #[test]
    fn parameters_keep_their_bytes() {
        let text = r#"; tag = a ;lr;+sip.instance="<urn:uuid:1;2>" ; =x;;z="#;
        let bytes = text.as_bytes();
        let seen: Vec<_> = params(bytes, all(text))
            .map(|p| (&text[p.name.range()], p.value.map(|v| &text[v.range()])))
            .collect();
        assert_eq!(
            seen,
            [
                ("tag", Some("a")),
                ("lr", None),
                ("+sip.instance", Some(r#""<urn:uuid:1;2>""#)),
                ("z", Some("")),
            ]
        );
        let lr = param(bytes, all(text), "LR").expect("lr");
        assert_eq!(&text[lr.full.range()], ";lr");
        assert!(param(bytes, all(text), "none").is_none());
    }

    #[test]
    fn numbers_saturate_or_are_refused() {
        assert_eq!(seconds(b"0070"), Some(70));
        assert_eq!(seconds(b"99999999999999999999"), Some(u32::MAX));
        assert_eq!(seconds(b"-1"), None);
        assert_eq!(seconds(b""), None);
        assert_eq!(number::<u16>(b"65536"), None);
        assert_eq!(number::<u16>(b"5060"), Some(5060));
    }
}
