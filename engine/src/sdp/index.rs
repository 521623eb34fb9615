//! The index: one pass over the bytes.

use std::ops::Range;

use super::{
    MAX_BYTES, MAX_LINES, MAX_STREAMS, SdpError,
    values::{self, Direction, Host, Stream},
};

/// A body, read. Line breaks may be CRLF or LF, as sent by the field.
#[derive(Debug, Clone)]
pub struct Sdp<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) lines: Vec<Line>,
    streams: Vec<Stream>,
}

/// `x=value`, with its line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) kind: u8,
    pub(super) value: Range<usize>,
    pub(super) full: Range<usize>,
    /// The m= line it stands under.
    pub(super) stream: Option<usize>,
}

impl<'a> Sdp<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// [`SdpError`]: not SDP, or nothing that can be anchored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SdpError> {
        if bytes.len() > MAX_BYTES {
            return Err(SdpError::TooLarge);
        }
        let lines = split(bytes)?;
        let mut sdp = Self {
            bytes,
            lines,
            streams: Vec::new(),
        };
        sdp.check_session()?;
        sdp.streams = sdp.read_streams()?;
        Ok(sdp)
    }

    /// The m= lines, in order.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Whether its sender does ICE (RFC 8839 section 4.2.1: without a fragment there is none).
    #[must_use]
    pub fn has_ice(&self) -> bool {
        let attributes = self.lines.iter().filter(|line| line.kind == b'a');
        let mut values = attributes.map(|line| self.value(line));
        values.any(|value| value.starts_with(b"ice-ufrag:"))
    }

    pub(super) fn value(&self, line: &Line) -> &'a [u8] {
        self.bytes.get(line.value.clone()).unwrap_or_default()
    }

    /// `v=0` first, then an `o=` before the first m= line.
    fn check_session(&self) -> Result<(), SdpError> {
        match self.lines.first() {
            None => return Err(SdpError::Missing('v')),
            Some(line) if line.kind != b'v' => return Err(SdpError::Missing('v')),
            Some(line) if self.value(line) != b"0" => return Err(SdpError::Line(1)),
            Some(_) => {}
        }
        let mut origins = self
            .lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.kind == b'o');
        let Some((_, first)) = origins.next() else {
            return Err(SdpError::Missing('o'));
        };
        if first.stream.is_some() || origin_tokens(self.value(first)).is_none() {
            return Err(SdpError::Line(
                1 + self.lines.iter().position(|l| l == first).unwrap_or(0),
            ));
        }
        match origins.next() {
            Some((second, _)) => Err(SdpError::Line(second + 1)),
            None => Ok(()),
        }
    }

    fn read_streams(&self) -> Result<Vec<Stream>, SdpError> {
        let mut session = Stream {
            media: String::new(),
            port: 0,
            over_udp: false,
            host: None,
            rtcp: None,
            mux: false,
            direction: Direction::default(),
        };
        let mut streams: Vec<Stream> = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let value = self.value(line);
            if line.kind == b'm' {
                let stream = Stream {
                    host: session.host,
                    direction: session.direction,
                    ..media(value, index + 1)?
                };
                streams.push(stream);
                continue;
            }
            let target = streams.last_mut().unwrap_or(&mut session);
            match line.kind {
                b'c' => {
                    target.host = Some(Host::parse(value).ok_or(SdpError::Unsupported(index + 1))?)
                }
                b'a' => attribute(target, value).ok_or(SdpError::Unsupported(index + 1))?,
                _ => {}
            }
        }
        let homeless = streams
            .iter()
            .any(|stream| stream.port != 0 && stream.host.is_none());
        if homeless {
            Err(SdpError::Missing('c'))
        } else {
            Ok(streams)
        }
    }
}

/// The attribute's name, and what follows the colon.
pub(super) fn attribute_parts(value: &[u8]) -> (&[u8], &[u8]) {
    match value.iter().position(|&b| b == b':') {
        Some(colon) => (&value[..colon], &value[colon + 1..]),
        None => (value, b""),
    }
}

/// The user name of an `o=` value, which ends with five more words.
pub(super) fn origin_tokens(value: &[u8]) -> Option<&[u8]> {
    let words = value
        .split(|&b| b == b' ')
        .filter(|word| !word.is_empty())
        .count();
    let user = value.split(|&b| b == b' ').next()?;
    (words == 6 && !user.is_empty()).then_some(user)
}

/// Where the port stands in an m= value.
pub(super) fn port_range(value: &[u8]) -> Option<Range<usize>> {
    let start = value.iter().position(|&b| b == b' ')? + 1;
    let rest = value.get(start..)?;
    let end = rest.iter().position(|&b| b == b' ')?;
    Some(start..start + end)
}

fn split(bytes: &[u8]) -> Result<Vec<Line>, SdpError> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut start, mut streams, mut number) = (0, 0_usize, 0);
    let mut blank = false;
    while start < bytes.len() {
        number += 1;
        let end = bytes[start..]
            .iter()
            .position(|&b| b == b'\n')
            .map_or(bytes.len(), |i| start + i);
        let full = start..(end + 1).min(bytes.len());
        let text = bytes[start..end]
            .strip_suffix(b"\r")
            .unwrap_or(&bytes[start..end]);
        let value = start + 2..start + text.len();
        start = full.end;
        if text.is_empty() {
            // Blank lines may end a body, but not part it.
            blank = true;
            continue;
        }
        let plain = !text.iter().any(|&b| matches!(b, b'\r' | 0));
        let shaped = matches!(text, [b'a'..=b'z', b'=', ..]);
        if blank || !plain || !shaped {
            return Err(SdpError::Line(number));
        }
        let kind = text[0];
        streams += usize::from(kind == b'm');
        if lines.len() == MAX_LINES || streams > MAX_STREAMS {
            return Err(SdpError::TooLarge);
        }
        lines.push(Line {
            kind,
            value,
            full,
            stream: streams.checked_sub(1),
        });
    }
    Ok(lines)
}

/// `media port proto fmt...`; the formats are the parties' own business.
fn media(value: &[u8], number: usize) -> Result<Stream, SdpError> {
    let words: Vec<_> = value.split(|&b| b == b' ').collect();
    let [media, port, proto, formats @ ..] = words.as_slice() else {
        return Err(SdpError::Line(number));
    };
    if media.is_empty() || formats.is_empty() {
        return Err(SdpError::Line(number));
    }
    let port = values::number(port).ok_or(SdpError::Unsupported(number))?;
    Ok(Stream {
        media: String::from_utf8_lossy(media)
            .chars()
            .filter(|c| !c.is_control())
            .take(32)
            .collect(),
        port,
        over_udp: is_over_udp(proto),
        host: None,
        rtcp: None,
        mux: false,
        direction: Direction::default(),
    })
}

fn is_over_udp(proto: &[u8]) -> bool {
    let proto = proto.to_ascii_uppercase();
    let first = proto.split(|&b| b == b'/').next().unwrap_or_default();
    matches!(first, b"RTP" | b"UDP" | b"UDPTL")
}

/// `None` when an attribute that anchoring needs cannot be read.
fn attribute(stream: &mut Stream, value: &[u8]) -> Option<()> {
    let (name, rest) = attribute_parts(value);
    if let Some(direction) = Direction::from_name(name) {
        stream.direction = direction;
    }
    match name {
        b"rtcp-mux" => stream.mux = true,
        b"rtcp" => stream.rtcp = Some(values::rtcp(rest)?),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: &str =
        "v=0\r\no=- 1 1 IN IP4 10.99.1.20\r\ns=-\r\nc=IN IP4 10.99.1.20\r\nt=0 0\r\n";

    fn parse(tail: &str) -> Result<Vec<Stream>, SdpError> {
        let body = format!("{PHONE}{tail}");
        Sdp::parse(body.as_bytes()).map(|sdp| sdp.streams().to_vec())
    }

    #[test]
    fn the_media_level_overrides_the_session_level() {
        let streams = parse(
            "a=sendonly\r\nm=audio 4000 RTP/AVP 8 101\r\nc=IN IP4 10.99.1.21\r\na=rtcp:4009 IN IP4 10.99.1.22\r\n\
             a=sendrecv\r\nm=video 0 RTP/AVP 97\r\nm=image 4020 udptl t38\r\na=rtcp-mux\r\nm=message 9 TCP/MSRP *\r\n",
        )
        .unwrap();
        let [audio, video, fax, chat] = streams.as_slice() else {
            panic!("{streams:?}")
        };
        assert_eq!(audio.host, Some(Host::Ip("10.99.1.21".parse().unwrap())));
        assert_eq!(
            audio.rtcp,
            Some((4_009, Some("10.99.1.22".parse().unwrap())))
        );
        assert_eq!(
            (audio.direction, fax.direction),
            (Direction::SendRecv, Direction::SendOnly)
        );
        assert_eq!(video.port, 0);
        assert_eq!(fax.host, Some(Host::Ip("10.99.1.20".parse().unwrap())));
        assert!(fax.mux && fax.over_udp && !audio.mux && !chat.over_udp);
    }

    #[test]
    fn malformed_sdp_is_refused_with_the_right_status() {
        for (tail, status) in [
            ("m=audio 65536 RTP/AVP 0\r\n", 488),
            ("m=audio -1 RTP/AVP 0\r\n", 488),
            ("m=audio 4000/2 RTP/AVP 0\r\n", 488),
            ("m=audio 4000 RTP/AVP\r\n", 400),
            ("m=audio\r\n", 400),
            ("m=audio 4000 RTP/AVP 0\r\nc=IN IP4 300.1.1.1\r\n", 488),
            ("m=audio 4000 RTP/AVP 0\r\na=rtcp:70000\r\n", 488),
            (
                "m=audio 4000 RTP/AVP 0\r\n\r\nm=audio 4002 RTP/AVP 0\r\n",
                400,
            ),
            ("m=audio 4000 RTP/AVP 0\r\na=x\ra=y\r\n", 400),
            ("m=audio 4000 RTP/AVP 0\r\na=x\0y\r\n", 400),
            ("M=audio 4000 RTP/AVP 0\r\n", 400),
            ("hello\r\n", 400),
            ("o=- 1 1 IN IP4 10.99.1.20\r\n", 400),
        ] {
            let refused = parse(tail).expect_err(tail);
            assert_eq!(refused.status(), status, "{tail:?}: {refused}");
        }
        for (body, status) in [
            ("", 400),
            ("v=1\r\no=- 1 1 IN IP4 10.99.1.20\r\n", 400),
            ("o=- 1 1 IN IP4 10.99.1.20\r\nv=0\r\n", 400),
            ("v=0\r\ns=-\r\nm=audio 0 RTP/AVP 0\r\n", 400),
            ("v=0\r\no=- 1 IN IP4 10.99.1.20\r\n", 400),
            (
                "v=0\r\no=- 1 1 IN IP4 10.99.1.20\r\nm=audio 4000 RTP/AVP 0\r\n",
                400,
            ),
        ] {
            assert_eq!(
                Sdp::parse(body.as_bytes()).unwrap_err().status(),
                status,
                "{body:?}"
            );
        }
    }

    #[test]
    fn what_only_looks_wrong_passes() {
        assert_eq!(
            parse("m=audio 17000 RTP/AVP 4294967296\r\n").unwrap()[0].port,
            17_000
        );
        assert_eq!(parse("m=audio 0 RTP/AVP 0\r\n").unwrap()[0].port, 0);
        assert_eq!(
            parse("i=\r\nm=audio 4000 RTP/AVP 0\r\ni= bogus \r\n")
                .unwrap()
                .len(),
            1
        );
        assert_eq!(
            parse("m=audio 4000 RTP/AVP 0\r\n\r\n\r\n").unwrap().len(),
            1
        );
        assert_eq!(parse("m=audio 4000 RTP/AVP 0").unwrap().len(), 1);
        let body = PHONE.replace("\r\n", "\n") + "m=audio 4000 RTP/AVP 0\n";
        assert_eq!(Sdp::parse(body.as_bytes()).unwrap().streams().len(), 1);
        let held = parse("m=audio 4000 RTP/AVP 0\r\nc=IN IP4 0.0.0.0\r\n").unwrap();
        assert_eq!(held[0].host, Some(Host::Hold));
    }

    #[test]
    fn size_is_bounded() {
        let lines = "a=x\r\n".repeat(10_000);
        assert_eq!(parse(&lines).unwrap_err(), SdpError::TooLarge);
        let streams = "m=audio 4000 RTP/AVP 0\r\n".repeat(MAX_STREAMS + 1);
        assert_eq!(parse(&streams).unwrap_err(), SdpError::TooLarge);
        let huge = format!("s={}\r\n", "x".repeat(MAX_BYTES));
        assert_eq!(parse(&huge).unwrap_err(), SdpError::TooLarge);
    }
}
