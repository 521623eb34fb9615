//! SIP in a byte stream (RFC 3261 section 18.3): where one message ends and the next begins,
//! with the keepalives that run between them (RFC 5626 sections 4.4.1 and 5.4).
//!
//! Linear in what arrives: no byte is searched twice. Bounded: a sender that exceeds a limit has
//! its connection closed, since nothing behind that point can be told apart.

use super::MAX_BYTES;

/// The longest start line and headers of a message, in bytes.
pub const MAX_HEAD: usize = 64 << 10;
/// Of a message that cannot be read, so much is looked at to answer it.
const MAX_BEGUN: usize = 8 << 10;
/// The longest STUN message: what clients send as a keepalive is far shorter.
const MAX_STUN: usize = 1_024;
/// Bytes of a STUN header (RFC 8489 section 5).
const STUN_HEAD: usize = 20;

/// What stood in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// One message, headers and body.
    Message(Vec<u8>),
    /// One STUN message.
    Stun(Vec<u8>),
    /// CRLFCRLF, which wants a CRLF.
    Ping,
    /// A single CRLF: the answer to a ping, or padding.
    Pong,
}

/// Why the stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The headers do not end.
    #[error("headers longer than {MAX_HEAD} bytes")]
    Head,
    /// A Content-Length that is no number, or larger than any message may be.
    #[error("a Content-Length that cannot be")]
    Length,
    /// Bytes that begin neither SIP nor STUN.
    #[error("neither SIP nor STUN")]
    Foreign,
    /// A message was begun and not ended in time. The driver has the clock: it tells.
    #[error("a message that does not end")]
    Slow,
}

impl Broken {
    /// What the sender is answered, if it is a SIP request that it began (RFC 3261 section 21.4).
    #[must_use]
    pub fn status(self) -> Option<(u16, &'static str)> {
        match self {
            Self::Head => Some((513, "Message Too Large")),
            Self::Length => Some((400, "Bad Content-Length")),
            Self::Slow => Some((408, "Request Timeout")),
            Self::Foreign => None,
        }
    }
}

/// Cuts a stream into frames.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// The first byte of `buffer` that is not consumed.
    start: usize,
    /// Where the search for the end of the headers goes on.
    searched: usize,
    /// Length of the message at `start`, once its headers are whole.
    length: Option<usize>,
    /// Why nothing more can be read.
    broken: Option<Broken>,
}

impl Framer {
    /// Takes bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether a message has begun and is not whole: its sender may be slow, or ill-meaning.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        let rest = &self.buffer[self.start..];
        rest.iter().any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// Nothing more came for a while: a single CRLF was no half of a ping.
    pub fn settle(&mut self) -> Option<Frame> {
        let alone = self.buffer[self.start..] == *b"\r\n";
        alone.then(|| self.padding(2, Frame::Pong))
    }

    /// Bytes that are held: a begun frame.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The whole header lines of the message that was begun, with an empty line behind them: what
    /// its sender can be answered by when the rest never comes.
    #[must_use]
    pub fn begun(&self) -> Vec<u8> {
        let rest = &self.buffer[self.start..];
        let end = end_of_headers(rest, 0).unwrap_or(rest.len());
        let head = &rest[..end.min(MAX_BEGUN)];
        let lines = head.iter().rposition(|byte| *byte == b'\n');
        let mut begun = head[..lines.map_or(0, |at| at + 1)].to_vec();
        begun.extend_from_slice(b"\r\n");
        begun
    }

    /// The next whole frame; `None` until more bytes have come.
    ///
    /// # Errors
    /// When the stream cannot be read on; it stays so.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Broken> {
        if let Some(why) = self.broken {
            return Err(why);
        }
        self.cut().inspect_err(|why| self.broken = Some(*why))
    }

    fn cut(&mut self) -> Result<Option<Frame>, Broken> {
        let rest = &self.buffer[self.start..];
        match rest {
            [] => Ok(None),
            [b'\r', b'\n', b'\r', b'\n', ..] => Ok(Some(self.padding(4, Frame::Ping))),
            // Half a ping, or a pong: what comes next decides.
            [b'\r'] | [b'\r', b'\n'] | [b'\r', b'\n', b'\r'] => Ok(None),
            [b'\r', b'\n', ..] => Ok(Some(self.padding(2, Frame::Pong))),
            [b'\n', ..] => Ok(Some(self.padding(1, Frame::Pong))),
            [0 | 1, ..] => self.stun(),
            [first, ..] if first.is_ascii_alphabetic() => self.message(),
            _ => Err(Broken::Foreign),
        }
    }

    fn padding(&mut self, length: usize, frame: Frame) -> Frame {
        self.consume(length);
        frame
    }

    fn stun(&mut self) -> Result<Option<Frame>, Broken> {
        let rest = &self.buffer[self.start..];
        let Some(head) = rest.get(..STUN_HEAD) else {
            return Ok(None);
        };
        let length = STUN_HEAD + usize::from(u16::from_be_bytes([head[2], head[3]]));
        if head[4..8] != [0x21, 0x12, 0xa4, 0x42] || length > MAX_STUN {
            return Err(Broken::Foreign);
        }
        Ok(self.take(length).map(Frame::Stun))
    }

    fn message(&mut self) -> Result<Option<Frame>, Broken> {
        let length = match self.length {
            Some(length) => length,
            None => match self.head()? {
                Some(length) => *self.length.insert(length),
                None => return Ok(None),
            },
        };
        Ok(self.take(length).map(Frame::Message))
    }

    /// The message's length, once its headers are whole.
    fn head(&mut self) -> Result<Option<usize>, Broken> {
        let from = self.searched.max(self.start);
        let found = end_of_headers(&self.buffer, from);
        // The last three bytes may be the beginning of what is searched for.
        self.searched = found.unwrap_or(self.buffer.len().saturating_sub(3).max(from));
        let head = found.unwrap_or(self.buffer.len()) - self.start;
        if head > MAX_HEAD {
            return Err(Broken::Head);
        }
        let Some(end) = found else { return Ok(None) };
        let body = content_length(&self.buffer[self.start..end]).ok_or(Broken::Length)?;
        Ok(Some(head + body))
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let frame = self.buffer.get(self.start..self.start + length)?.to_vec();
        self.consume(length);
        Some(frame)
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        self.searched = self.start;
        self.length = None;
    }
}

/// Where the body begins: behind an empty line, whose line ends may lack their CR (case S5).
fn end_of_headers(bytes: &[u8], from: usize) -> Option<usize> {
    let lines = bytes.get(from..)?.iter().enumerate();
    lines
        .filter(|(_, byte)| **byte == b'\n')
        .find_map(|(at, _)| {
            let next = from + at + 1;
            match bytes.get(next..)? {
                [b'\n', ..] => Some(next + 1),
                [b'\r', b'\n', ..] => Some(next + 2),
                _ => None,
            }
        })
}

/// The first Content-Length, in either form; without one there is no body to be told from the
/// next message. `None` when it cannot be.
fn content_length(head: &[u8]) -> Option<usize> {
    let mut lines = head.split(|byte| *byte == b'\n').skip(1).peekable();
    while let Some(line) = lines.next() {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        // What begins with a blank goes on with the line before, whatever it looks like.
        let named = match name.trim_ascii_end() {
            [b' ' | b'\t', ..] => false,
            name => name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"l"),
        };
        if !named {
            continue;
        }
        let mut value = line.get(name.len() + 1..)?.to_vec();
        while let Some(more) = lines.next_if(|next| matches!(next, [b' ' | b'\t', ..])) {
            value.extend_from_slice(more);
        }
        let digits = std::str::from_utf8(value.trim_ascii()).ok()?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let length = plain.then(|| digits.parse().ok()).flatten()?;
        return (length <= MAX_BYTES).then_some(length);
    }
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &[u8] = b"INVITE sip:b SIP/2.0\r\nContent-Length: 4\r\n\r\nv=0\n";
    const BYE: &[u8] = b"BYE sip:b SIP/2.0\nl : 0\n\n";
    const STUN: [u8; 20] = [
        0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    ];

    fn all(framer: &mut Framer) -> Result<Vec<Frame>, Broken> {
        std::iter::from_fn(|| framer.next_frame().transpose()).collect()
    }

    fn message(bytes: &[u8]) -> Frame {
        Frame::Message(bytes.to_vec())
    }

    #[test]
    fn case_s10_keepalives_ahead_of_a_message_do_not_corrupt_it() {
        let mut framer = Framer::default();
        framer.push(b"\r\n\r\n\r\n");
        framer.push(INVITE);
        let frames = all(&mut framer).unwrap();
        assert_eq!(frames, [Frame::Ping, Frame::Pong, message(INVITE)]);
        assert!(!framer.is_pending());
    }

    #[test]
    fn frames_are_the_same_however_the_stream_is_cut() {
        let stream = [INVITE, b"\r\n\r\n", &STUN, BYE, INVITE, b"\r\n\r\n"].concat();
        let whole = [
            message(INVITE),
            Frame::Ping,
            Frame::Stun(STUN.to_vec()),
            message(BYE),
            message(INVITE),
            Frame::Ping,
        ];
        for size in 1..stream.len() {
            let mut framer = Framer::default();
            let mut frames = Vec::new();
            for part in stream.chunks(size) {
                framer.push(part);
                frames.extend(all(&mut framer).unwrap());
            }
            assert_eq!(frames, whole, "in parts of {size}");
        }
    }

    #[test]
    fn a_pong_is_one_once_nothing_follows_it() {
        let mut framer = Framer::default();
        framer.push(b"\r\n");
        assert_eq!(framer.next_frame(), Ok(None), "it may be half a ping");
        assert!(!framer.is_pending(), "and nobody is late with anything");
        assert_eq!(framer.settle(), Some(Frame::Pong));
        assert_eq!((framer.settle(), framer.held()), (None, 0));
    }

    #[test]
    fn limits_close_the_stream_and_nothing_else_does() {
        let broken = |bytes: &[u8]| {
            let mut framer = Framer::default();
            framer.push(bytes);
            all(&mut framer)
        };
        let endless = [b"INVITE sip:b SIP/2.0\r\nX: ".as_slice(), &[b'x'; MAX_HEAD]].concat();
        assert_eq!(broken(&endless), Err(Broken::Head));
        for length in ["-1", "x", "", "4294967296", "99999999999999999999", "+4"] {
            let text = format!("BYE sip:b SIP/2.0\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(broken(text.as_bytes()), Err(Broken::Length), "{length:?}");
        }
        assert_eq!(broken(b"\x16\x03\x01\x02"), Err(Broken::Foreign));
        assert_eq!(broken(&[0; 20]), Err(Broken::Foreign), "no magic cookie");
        assert_eq!(broken(b"BYE sip:b SIP/2.0\r\nVia: x"), Ok(Vec::new()));
    }

    #[test]
    fn what_was_begun_can_be_answered() {
        let mut framer = Framer::default();
        framer.push(BYE);
        framer.push(b"INVITE sip:b SIP/2.0\r\nVia: x\r\nSubject: ha");
        assert_eq!(framer.next_frame(), Ok(Some(message(BYE))));
        assert_eq!(framer.next_frame(), Ok(None));
        assert_eq!(framer.begun(), b"INVITE sip:b SIP/2.0\r\nVia: x\r\n\r\n");
        assert_eq!(framer.held(), 41);
    }

    #[test]
    fn a_fold_that_looks_like_a_length_is_none_and_a_folded_length_is_one() {
        let hidden = b"BYE sip:b SIP/2.0\r\nSubject: x\r\n l: 5\r\nl: 0\r\n\r\n";
        let folded = b"BYE sip:b SIP/2.0\r\nContent-Length:\r\n 4\r\n\r\nv=0\n";
        let mut framer = Framer::default();
        framer.push(&[hidden.as_slice(), folded].concat());
        let frames = all(&mut framer).unwrap();
        assert_eq!(frames, [message(hidden), message(folded)]);
    }

    #[test]
    fn a_message_without_a_length_has_no_body() {
        let mut framer = Framer::default();
        framer.push(b"OPTIONS sip:b SIP/2.0\r\n\r\n");
        framer.push(BYE);
        let frames = all(&mut framer).unwrap();
        assert_eq!(
            frames,
            [message(b"OPTIONS sip:b SIP/2.0\r\n\r\n"), message(BYE)]
        );
    }
}
