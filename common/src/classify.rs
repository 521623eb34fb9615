//! What a UDP payload is, by its first bytes (RFC 7983, RFC 5764 section 5.1.2; case M8).

/// What a payload on a media port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Class {
    /// First byte 128–191: RTP or RTCP, encrypted or not.
    Rtp = 1,
    /// First byte 20–63: DTLS.
    Dtls = 2,
    /// First byte 0–3: STUN.
    Stun = 4,
    /// None of them.
    Other = 8,
}

impl Class {
    /// The class of a payload that begins with `first`.
    #[inline(always)]
    #[must_use]
    pub const fn of(first: u8) -> Self {
        match first {
            0..=3 => Self::Stun,
            20..=63 => Self::Dtls,
            128..=191 => Self::Rtp,
            _ => Self::Other,
        }
    }

    /// Whether it is in a plan's set.
    #[inline(always)]
    #[must_use]
    pub const fn is_in(self, set: u32) -> bool {
        set & self as u32 != 0
    }
}

/// A keepalive datagram of a SIP port (RFC 5626 section 3.5.1 and common practice; case S6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keepalive {
    /// No payload.
    Empty,
    /// CRLF.
    Crlf,
    /// CRLFCRLF.
    DoubleCrlf,
    /// Four zero bytes: Kamailio's dummy ping.
    Zeros,
}

impl Keepalive {
    /// Reads a payload of `len` bytes whose first four are `head`, zero where it is shorter.
    #[inline(always)]
    #[must_use]
    pub const fn of(len: u32, head: [u8; 4]) -> Option<Self> {
        match (len, head) {
            (0, _) => Some(Self::Empty),
            (2, [b'\r', b'\n', ..]) => Some(Self::Crlf),
            (4, [b'\r', b'\n', b'\r', b'\n']) => Some(Self::DoubleCrlf),
            (4, [0, 0, 0, 0]) => Some(Self::Zeros),
            _ => None,
        }
    }
}

/// What a datagram between a phone and its softswitch is, by its first bytes (RFC 3261
/// section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sip {
    /// A request, which has an answer.
    Request,
    /// An ACK, which has none.
    Ack,
    /// A response.
    Response,
    /// No SIP: a keepalive.
    None,
}

impl Sip {
    /// Reads a payload that begins with `head`, zero where it is shorter.
    #[inline(always)]
    #[must_use]
    pub const fn of(head: [u8; 4]) -> Self {
        match head {
            [b'S', b'I', b'P', b'/'] => Self::Response,
            [b'A', b'C', b'K', b' '] => Self::Ack,
            [b'A'..=b'Z' | b'a'..=b'z', ..] => Self::Request,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_m8_the_ranges_have_these_edges() {
        for (first, class) in [
            (0, Class::Stun),
            (3, Class::Stun),
            (4, Class::Other),
            (19, Class::Other),
            (20, Class::Dtls),
            (63, Class::Dtls),
            (64, Class::Other),
            (127, Class::Other),
            (128, Class::Rtp),
            (191, Class::Rtp),
            (192, Class::Other),
            (255, Class::Other),
        ] {
            assert_eq!(Class::of(first), class, "first byte {first}");
        }
    }

    #[test]
    fn requests_are_told_from_responses_and_keepalives() {
        for (head, kind) in [
            (*b"SIP/", Sip::Response),
            (*b"ACK ", Sip::Ack),
            (*b"ACKS", Sip::Request),
            (*b"INVI", Sip::Request),
            (*b"sip/", Sip::Request),
            (*b"\r\n\r\n", Sip::None),
            ([0; 4], Sip::None),
            ([0x80, 0, 0, 1], Sip::None),
        ] {
            assert_eq!(Sip::of(head), kind, "{head:?}");
        }
    }

    #[test]
    fn case_s6_keepalives_are_told_from_messages() {
        for (payload, kind) in [
            (&b""[..], Some(Keepalive::Empty)),
            (b"\r\n", Some(Keepalive::Crlf)),
            (b"\r\n\r\n", Some(Keepalive::DoubleCrlf)),
            (&[0; 4], Some(Keepalive::Zeros)),
            (b"\n\n", None),
            (b"\r\nOP", None),
            (b"\r\n\r", None),
            (b"\r\n\r\nOPTIONS", None),
            (&[0; 3], None),
            (&[0; 5], None),
        ] {
            let mut head = [0; 4];
            for (to, from) in head.iter_mut().zip(payload) {
                *to = *from;
            }
            assert_eq!(
                Keepalive::of(payload.len() as u32, head),
                kind,
                "{payload:?}"
            );
        }
    }
}
