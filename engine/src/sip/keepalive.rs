//! What a datagram on a SIP port is, before anything is parsed (case S6).

/// A first look at a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Datagram {
    /// Holds a NAT binding open and says nothing: empty, line ends only (RFC 5626 section
    /// 3.5.1), or Kamailio's zero bytes. Absorbed, never answered, not malformed.
    Keepalive,
    /// STUN, by its first two bits and magic cookie (RFC 8489 section 5).
    Stun,
    /// To be parsed as SIP.
    Sip,
}

/// Classifies a datagram; the time it takes is bounded for every kind.
#[must_use]
pub fn classify(datagram: &[u8]) -> Datagram {
    match datagram {
        _ if is_padding(datagram) => Datagram::Keepalive,
        [first, _, _, _, 0x21, 0x12, 0xa4, 0x42, ..]
            if first & 0xc0 == 0 && datagram.len() >= 20 =>
        {
            Datagram::Stun
        }
        _ => Datagram::Sip,
    }
}

/// Empty, or a few bytes that are all line ends or all zero. Longer runs are not what any
/// client sends: they are left to the parser, which counts them.
fn is_padding(datagram: &[u8]) -> bool {
    datagram.len() <= 8
        && (datagram.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
            || datagram.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_s6_keepalives_are_neither_sip_nor_malformed() {
        for datagram in [&b""[..], b"\r\n", b"\r\n\r\n", b"\0\0\0\0", b"\n", b"\0"] {
            assert_eq!(classify(datagram), Datagram::Keepalive, "{datagram:?}");
        }
    }

    #[test]
    fn case_s6_everything_else_goes_on() {
        let mut stun = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        assert_eq!(
            classify(&stun),
            Datagram::Sip,
            "too short for a STUN header"
        );
        stun.resize(20, 7);
        assert_eq!(classify(&stun), Datagram::Stun);
        assert_eq!(
            classify(b"\r\n\r\nOPTIONS sip:a SIP/2.0\r\n"),
            Datagram::Sip
        );
        assert_eq!(classify(b"\0\0\0\0x"), Datagram::Sip);
        assert_eq!(classify(&[0; 9]), Datagram::Sip);
    }
}
