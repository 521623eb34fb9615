//! The parts of a body (RFC 2046 section 5.1), as places in it.

use std::ops::Range;

use super::{Message, Name};

/// More parts than any call needs; what follows belongs to the last one.
const MAX_PARTS: usize = 16;

/// One part of a body: the whole of it when it is not multipart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// `type/subtype`, in lower case and without parameters.
    pub kind: String,
    /// Where its content stands in the body.
    pub range: Range<usize>,
}

/// The parts of a message's body; none without a Content-Type. A nested multipart is one part.
#[must_use]
pub fn parts(msg: &Message) -> Vec<Part> {
    let body = msg.body();
    let Some(value) = msg.header(Name::ContentType).filter(|_| !body.is_empty()) else {
        return Vec::new();
    };
    let value = msg.slice(value);
    let kind = media_type(value);
    match boundary(value).filter(|_| kind.starts_with("multipart/")) {
        Some(boundary) => multipart(body, boundary),
        None => vec![Part {
            kind,
            range: 0..body.len(),
        }],
    }
}

fn media_type(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == b';');
    let kind = value[..end.unwrap_or(value.len())].trim_ascii();
    String::from_utf8_lossy(kind).to_ascii_lowercase()
}

/// The `boundary` parameter; its quotes are not part of it.
fn boundary(value: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"boundary=";
    let at = value
        .windows(NAME.len())
        .position(|part| part.eq_ignore_ascii_case(NAME))?;
    let value = &value[at + NAME.len()..];
    let found = match value.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|byte| *byte == b'"').next()?,
        None => value.split(|byte| *byte == b';').next()?.trim_ascii_end(),
    };
    (!found.is_empty() && found.len() <= 70).then_some(found)
}

fn multipart(body: &[u8], boundary: &[u8]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut open: Option<(String, usize)> = None;
    let mut at = 0;
    // Line by line: a delimiter ends the part before it, and headers stand behind it.
    while at < body.len() {
        let end = line_end(body, at);
        let delimiter = body[at..end]
            .strip_prefix(b"--")
            .and_then(|line| line.strip_prefix(boundary))
            .map(<[u8]>::trim_ascii_end);
        let Some(tail) = delimiter.filter(|tail| tail.is_empty() || *tail == b"--") else {
            at = end;
            continue;
        };
        if let Some((kind, start)) = open.take() {
            let range = start..without_break(body, start, at);
            parts.push(Part { kind, range });
        }
        if !tail.is_empty() || parts.len() == MAX_PARTS {
            return parts;
        }
        let (kind, start) = head(body, end);
        open = Some((kind, start));
        at = start;
    }
    // Careless senders leave the last delimiter out.
    if let Some((kind, start)) = open {
        let range = start..body.len();
        parts.push(Part { kind, range });
    }
    parts
}

/// The type of the part whose headers begin here, and where its content begins. Without a
/// Content-Type it is plain text (RFC 2046 section 5.1).
fn head(body: &[u8], mut at: usize) -> (String, usize) {
    let mut kind = "text/plain".to_owned();
    while at < body.len() {
        let end = line_end(body, at);
        let line = body[at..end].trim_ascii_end();
        at = end;
        if line.is_empty() {
            break;
        }
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let name = halves.next().unwrap_or_default().trim_ascii();
        if let Some(value) = halves.next()
            && (name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"c"))
        {
            kind = media_type(value.trim_ascii_start());
        }
    }
    (kind, at)
}

/// The line break before a delimiter belongs to the delimiter.
fn without_break(body: &[u8], start: usize, end: usize) -> usize {
    let part = &body[start..end];
    let part = part.strip_suffix(b"\n").unwrap_or(part);
    start + part.strip_suffix(b"\r").unwrap_or(part).len()
}

/// Behind the line that begins here.
fn line_end(body: &[u8], at: usize) -> usize {
    let length = body[at..].iter().position(|byte| *byte == b'\n');
    length.map_or(body.len(), |length| at + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, body: &str) -> Vec<(String, String)> {
        let text = format!(
            "MESSAGE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a>;tag=1\r\n\
             To: <sip:b>\r\nCall-ID: 1\r\nCSeq: 1 MESSAGE\r\n{kind}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let msg = Message::parse(text.into_bytes()).expect("a message");
        let of = |part: Part| {
            let content = &msg.body()[part.range];
            (part.kind, String::from_utf8_lossy(content).into_owned())
        };
        parts(&msg).into_iter().map(of).collect()
    }

    fn part(kind: &str, content: &str) -> (String, String) {
        (kind.to_owned(), content.to_owned())
    }

    #[test]
    fn a_plain_body_is_one_part() {
        let one = read("c: Application/SDP ; charset=x\r\n", "v=0\r\n");
        assert_eq!(one, [part("application/sdp", "v=0\r\n")]);
        assert!(read("", "v=0\r\n").is_empty(), "of no type");
        assert!(read("c: application/sdp\r\n", "").is_empty());
    }

    #[test]
    fn parts_stand_between_their_delimiters_and_behind_their_headers() {
        let body = "preamble\r\n--b 1\r\nContent-Type: application/sdp\r\nX: y\r\n\r\nv=0\r\n\r\n\
                    --b 1\r\n\r\ntext\r\n--b 1  \r\nc:application/ISUP;base=x\r\n\r\n\0\x01\n--b 1--\r\nend";
        let found = read("Content-Type: multipart/mixed;boundary=\"b 1\"\r\n", body);
        let expected = [
            part("application/sdp", "v=0\r\n"),
            part("text/plain", "text"),
            part("application/isup", "\0\x01"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_looks_like_a_delimiter_is_none_and_a_missing_last_one_is_forgiven() {
        let kind = "c: multipart/mixed; Boundary=b\r\n";
        let body = "--b\nc: a/b\n\n--bc\n -- b\n";
        assert_eq!(read(kind, body), [part("a/b", "--bc\n -- b\n")]);
        assert!(read(kind, "nothing of it").is_empty());
        let whole = read("c: multipart/mixed\r\n", "--b\r\n");
        assert_eq!(whole, [part("multipart/mixed", "--b\r\n")], "no boundary");
    }
}
