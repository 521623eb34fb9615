//! From bytes to an index of lines: one pass, bounded, nothing copied.

use super::{Line, Message, Method, Name, Refusal, Span, Why, message::Start, value::number};

/// Header lines a message may have.
pub const MAX_LINES: usize = 256;
/// Bytes a message may have: what fits a UDP datagram.
pub const MAX_BYTES: usize = 64 * 1024;

/// Reads a datagram (RFC 3261 section 18.3): line ends in front are skipped, a bare LF ends a
/// line, bytes behind Content-Length are ignored.
pub(super) fn scan(mut bytes: Vec<u8>) -> Result<Message, Refusal> {
    let skip = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    bytes.drain(..skip);
    let mut scan = Scan {
        bytes,
        at: 0,
        why: None,
    };
    if scan.bytes.is_empty() {
        return Err(Refusal::new(Why::Empty, None));
    }
    let start_line = scan.next_line();
    let Some(start) = read_start(&scan.bytes, start_line.text) else {
        return Err(Refusal::new(Why::StartLine, None));
    };
    if !is_clean(start, &scan.bytes) {
        scan.fault(Why::StartLine);
    }
    if scan.bytes.len() > MAX_BYTES {
        scan.fault(Why::TooLong);
        scan.bytes.truncate(MAX_BYTES);
    }
    if !start.version_is_2(&scan.bytes) {
        scan.fault(Why::Version);
    }
    let lines = scan.header();
    let Scan { bytes, at, why } = scan;
    let mut message = Message::assemble(bytes, start, start_line.full, lines, at);
    match why.map_or_else(|| check(&mut message), Err) {
        Ok(()) => Ok(message),
        Err(why) => {
            message.drop_body();
            Err(Refusal::new(why, Some(Box::new(message))))
        }
    }
}

/// A line's text, and the same with its line end.
#[derive(Clone, Copy)]
struct Raw {
    text: Span,
    full: Span,
}

/// The pass: what has been read, and the first fault met. It goes on after a fault, so that a
/// refused request can be answered.
struct Scan {
    bytes: Vec<u8>,
    at: usize,
    why: Option<Why>,
}

impl Scan {
    fn fault(&mut self, why: Why) {
        self.why.get_or_insert(why);
    }

    /// The next line. One without an end is a fault: the header was cut.
    fn next_line(&mut self) -> Raw {
        let rest = &self.bytes[self.at..];
        let newline = rest.iter().position(|byte| *byte == b'\n');
        let text = &rest[..newline.unwrap_or(rest.len())];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let (bare, length) = (text.contains(&b'\r'), text.len());
        let start = self.at;
        self.at = newline.map_or(self.bytes.len(), |newline| start + newline + 1);
        if newline.is_none() {
            self.fault(Why::Truncated);
        }
        if bare {
            self.fault(Why::BareCr);
        }
        Raw {
            text: Span::new(start..start + length),
            full: Span::new(start..self.at),
        }
    }

    /// All header lines, up to and without the blank line; `at` is then the start of the
    /// blank line.
    fn header(&mut self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::with_capacity(24);
        loop {
            let before = self.at;
            if before == self.bytes.len() {
                self.fault(Why::Truncated);
                return lines;
            }
            let raw = self.next_line();
            if raw.text.is_empty() {
                self.at = before;
                return lines;
            }
            if matches!(raw.text.of(&self.bytes).first(), Some(b' ' | b'\t')) {
                self.fold(lines.last_mut(), raw);
                continue;
            }
            match read_line(&self.bytes, raw) {
                None => self.fault(Why::HeaderLine),
                Some(_) if lines.len() == MAX_LINES => {
                    self.fault(Why::TooManyLines);
                    return lines;
                }
                Some(line) => lines.push(line),
            }
        }
    }

    /// Adds a continuation to the line before it (RFC 3261 section 7.3.1).
    fn fold(&mut self, line: Option<&mut Line>, raw: Raw) {
        match line {
            // Only to the line directly before: one skipped as malformed takes its folds along.
            Some(line) if line.full.end == raw.full.start => {
                line.full.end = raw.full.end;
                line.folded = true;
                // Only the new piece is looked at: a fold of blanks must not cost a walk over
                // all the blanks before it.
                let piece = raw.text.trim(&self.bytes);
                match (line.value.is_empty(), piece.is_empty()) {
                    (_, true) => {}
                    (true, false) => line.value = piece,
                    (false, false) => line.value.end = piece.end,
                }
            }
            _ => self.fault(Why::HeaderLine),
        }
    }
}

/// Splits a line at its colon. White space may stand before the colon (RFC 3261 section 7.3.1).
fn read_line(bytes: &[u8], raw: Raw) -> Option<Line> {
    let colon = raw.text.of(bytes).iter().position(|byte| *byte == b':')?;
    let colon = raw.text.start as usize + colon;
    let name_span = Span::new(raw.text.start as usize..colon).trim(bytes);
    let name = name_span.of(bytes);
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let value = Span::new(colon + 1..raw.text.end as usize).trim(bytes);
    Some(Line {
        name: Name::of(name),
        name_span,
        value,
        full: raw.full,
        folded: false,
    })
}

/// Reads the first line; `None` when it is neither a request line nor a status line.
fn read_start(bytes: &[u8], line: Span) -> Option<Start> {
    let text = line.of(bytes);
    let at = |offset: usize| line.start as usize + offset;
    let first = text.iter().position(|byte| *byte == b' ')?;
    if text.len() >= 4 && text[..4].eq_ignore_ascii_case(b"SIP/") {
        let rest = &text[first + 1..];
        let code = rest.get(..3).and_then(number::<u16>)?;
        let ends = matches!(rest.get(3), None | Some(b' '));
        ((100..700).contains(&code) && ends).then_some(())?;
        let reason = Span::new(at((first + 5).min(text.len()))..line.end as usize);
        return Some(Start::Status {
            version: Span::new(at(0)..at(first)),
            code,
            reason,
        });
    }
    let end = Span::new(0..text.len()).trim(text).end as usize;
    let last = text[..end]
        .iter()
        .rposition(|byte| *byte == b' ')
        .filter(|last| *last > first)?;
    text[last + 1..]
        .get(..4)?
        .eq_ignore_ascii_case(b"SIP/")
        .then_some(())?;
    Some(Start::Request {
        method: Span::new(at(0)..at(first)),
        uri: Span::new(at(first + 1)..at(last)),
        version: Span::new(at(last + 1)..line.end as usize),
    })
}

/// Whether a request line has three parts and single spaces, and a target that can be read: a
/// URI in `<>` is the classic mistake (RFC 4475 section 3.1.2.7).
fn is_clean(start: Start, bytes: &[u8]) -> bool {
    let Start::Request {
        method,
        uri,
        version,
    } = start
    else {
        return true;
    };
    let clean =
        |span: Span| !span.is_empty() && !span.of(bytes).iter().any(u8::is_ascii_whitespace);
    clean(method) && clean(uri) && clean(version) && !uri.of(bytes).starts_with(b"<")
}

/// The syntax a proxy must insist on (RFC 3261 section 16.3): what it needs for routing can be
/// read, once, and the body is as long as it says.
fn check(message: &mut Message) -> Result<(), Why> {
    for name in [Name::From, Name::To, Name::CallId, Name::CSeq] {
        match message.count(name) {
            0 => return Err(Why::Missing(name)),
            1 => {}
            _ => return Err(Why::Repeated(name)),
        }
    }
    if message.count(Name::Via) == 0 {
        return Err(Why::Missing(Name::Via));
    }
    message.from().ok_or(Why::Malformed(Name::From))?;
    message.to().ok_or(Why::Malformed(Name::To))?;
    message.call_id().ok_or(Why::Malformed(Name::CallId))?;
    // A response is matched by the topmost alone; the rest is between other hops.
    let vias = if message.is_request() { usize::MAX } else { 1 };
    if message
        .values(Name::Via)
        .take(vias)
        .any(|value| message.read_via(value).is_none())
    {
        return Err(Why::Malformed(Name::Via));
    }
    message.top_via().ok_or(Why::Malformed(Name::Via))?;
    let cseq = message.cseq().ok_or(Why::Malformed(Name::CSeq))?;
    if message.is_request() && message.slice(cseq.method_span) != message.method_bytes() {
        return Err(Why::CSeqMethod);
    }
    if message.header(Name::MaxForwards).is_some() && message.max_forwards().is_none() {
        return Err(Why::Malformed(Name::MaxForwards));
    }
    cut_body(message)
}

/// Holds the body to Content-Length (RFC 3261 section 18.3, case S11).
fn cut_body(message: &mut Message) -> Result<(), Why> {
    let length = match message.count(Name::ContentLength) {
        0 => return Ok(()),
        1 => message.header(Name::ContentLength),
        // Two lengths are two readings of where the message ends, even when they agree now.
        _ => None,
    };
    let length = length.and_then(|span| number::<u32>(message.slice(span)));
    let length = length.ok_or(Why::ContentLength)? as usize;
    if length > message.body().len() {
        return Err(Why::ContentLength);
    }
    message.truncate_body(length);
    Ok(())
}

impl Start {
    fn version_is_2(self, bytes: &[u8]) -> bool {
        let (Self::Request { version, .. } | Self::Status { version, .. }) = self;
        version.of(bytes).eq_ignore_ascii_case(b"SIP/2.0")
    }
}

impl Message {
    /// The method named in CSeq, for both requests and responses.
    #[must_use]
    pub fn cseq_method(&self) -> Option<Method> {
        self.cseq().map(|cseq| cseq.method)
    }
}
