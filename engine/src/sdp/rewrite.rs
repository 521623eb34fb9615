//! Patches: the lines that carry addresses are written anew, the rest is copied.

use std::net::IpAddr;

use super::{
    Ice, Sdp,
    index::{Line, attribute_parts, origin_tokens, port_range},
    values::{Host, Stream, is_private},
};

/// What a body becomes for the other leg.
#[derive(Debug, Clone, Copy)]
pub struct Rewrite<'p> {
    /// The gateway's address on that leg.
    pub address: IpAddr,
    /// The leg's own `o=` numbers.
    pub origin: Origin,
    /// One per m= line.
    pub streams: &'p [StreamOut],
    /// What happens to ICE attributes.
    pub ice: Ice,
    /// Addresses that no byte may show, besides private ones.
    pub hide: &'p [IpAddr],
}

/// The session id and version of an `o=` line (RFC 3264 section 8: only the version changes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The same for the leg's whole life.
    pub id: u64,
    /// One more for each different body.
    pub version: u64,
}

/// The gateway's ports for one m= line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOut {
    /// RTP; 0 takes the stream out of use.
    pub rtp: u16,
    /// RTCP, named where the body names it.
    pub rtcp: u16,
}

/// What becomes of a line.
enum Fate {
    Copy,
    Drop,
    Become(Vec<u8>),
}

impl Sdp<'_> {
    /// The body for the other leg. A c= line that means hold stays on hold.
    #[must_use]
    pub fn rewrite(&self, to: &Rewrite<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 64);
        let mut candidates_of = None;
        for line in &self.lines {
            match self.fate(line, to, &mut candidates_of) {
                Fate::Copy => out.extend_from_slice(self.full(line)),
                Fate::Drop => {}
                Fate::Become(value) => {
                    out.extend_from_slice(&[line.kind, b'=']);
                    out.extend_from_slice(&value);
                    out.extend_from_slice(self.line_break(line));
                }
            }
        }
        out
    }

    fn fate(&self, line: &Line, to: &Rewrite<'_>, candidates_of: &mut Option<usize>) -> Fate {
        let value = self.value(line);
        match line.kind {
            b'o' => Fate::Become(origin(value, to)),
            b'c' => Fate::Become(connection(value, to)),
            b'm' => Fate::Become(media(value, stream_out(line, to))),
            b'a' => self.attribute(line, value, to, candidates_of),
            b's' if shows_hidden(value, to.hide) => Fate::Become(b"-".to_vec()),
            b'v' | b't' => Fate::Copy,
            // What no RFC knows may show an address too.
            _ if shows_hidden(value, to.hide) => Fate::Drop,
            _ => Fate::Copy,
        }
    }

    fn attribute(
        &self,
        line: &Line,
        value: &[u8],
        to: &Rewrite<'_>,
        candidates_of: &mut Option<usize>,
    ) -> Fate {
        let (name, rest) = attribute_parts(value);
        match name {
            b"rtcp" => rtcp(rest, line, to),
            b"candidate" if to.ice == Ice::Relay && *candidates_of != line.stream => {
                *candidates_of = line.stream;
                let stream = line.stream.and_then(|index| self.streams().get(index));
                candidates(stream, line, self.line_break(line), to)
            }
            b"candidate" | b"remote-candidates" | b"source-filter" => Fate::Drop,
            name if to.ice != Ice::Relay && is_ice(name) => Fate::Drop,
            _ if shows_hidden(value, to.hide) => Fate::Drop,
            _ => Fate::Copy,
        }
    }

    fn full(&self, line: &Line) -> &[u8] {
        self.bytes.get(line.full.clone()).unwrap_or_default()
    }

    fn line_break(&self, line: &Line) -> &[u8] {
        match self.bytes.get(line.value.end..line.full.end) {
            Some(end) if end.ends_with(b"\n") => end,
            // The last line of a careless sender, who may write half a line break too.
            _ => b"\r\n",
        }
    }
}

fn stream_out(line: &Line, to: &Rewrite<'_>) -> StreamOut {
    let unused = StreamOut { rtp: 0, rtcp: 0 };
    line.stream
        .and_then(|index| to.streams.get(index))
        .copied()
        .unwrap_or(unused)
}

fn origin(value: &[u8], to: &Rewrite<'_>) -> Vec<u8> {
    let user = origin_tokens(value)
        .filter(|user| !shows_hidden(user, to.hide))
        .unwrap_or(b"-");
    let Origin { id, version } = to.origin;
    [
        user,
        format!(" {id} {version} {}", net_address(to.address)).as_bytes(),
    ]
    .concat()
}

fn connection(value: &[u8], to: &Rewrite<'_>) -> Vec<u8> {
    let held = Host::parse(value) == Some(Host::Hold);
    let address = if held {
        unspecified(to.address)
    } else {
        to.address
    };
    net_address(address).into_bytes()
}

fn media(value: &[u8], out: StreamOut) -> Vec<u8> {
    let Some(port) = port_range(value) else {
        return value.to_vec();
    };
    [
        &value[..port.start],
        out.rtp.to_string().as_bytes(),
        &value[port.end..],
    ]
    .concat()
}

/// `a=rtcp` of a stream in use names our port; of another it says nothing.
fn rtcp(rest: &[u8], line: &Line, to: &Rewrite<'_>) -> Fate {
    let out = stream_out(line, to);
    if out.rtp == 0 {
        return Fate::Drop;
    }
    let with_address = rest.contains(&b' ');
    let address = if with_address {
        format!(" {}", net_address(to.address))
    } else {
        String::new()
    };
    Fate::Become(format!("rtcp:{}{address}", out.rtcp).into_bytes())
}

/// One host candidate per component: the gateway's own (RFC 8839 section 5.1).
fn candidates(stream: Option<&Stream>, line: &Line, line_break: &[u8], to: &Rewrite<'_>) -> Fate {
    let out = stream_out(line, to);
    if out.rtp == 0 {
        return Fate::Drop;
    }
    let one = |component: u32, port: u16| {
        let priority = (126 << 24) + (65_535 << 8) + (256 - component);
        format!(
            "candidate:1 {component} UDP {priority} {} {port} typ host",
            to.address
        )
    };
    let mut value = one(1, out.rtp).into_bytes();
    if !stream.is_some_and(|stream| stream.mux) {
        value.extend_from_slice(line_break);
        value.extend_from_slice(b"a=");
        value.extend_from_slice(one(2, out.rtcp).as_bytes());
    }
    Fate::Become(value)
}

fn is_ice(name: &[u8]) -> bool {
    name.starts_with(b"ice-") || name == b"end-of-candidates"
}

/// Does an address that must not be seen stand anywhere in the value?
fn shows_hidden(value: &[u8], hide: &[IpAddr]) -> bool {
    let in_address = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b'.' | b':');
    let words = value
        .split(|b| !in_address(b))
        .filter(|word| word.len() >= 2);
    words
        .filter_map(|word| std::str::from_utf8(word).ok())
        .flat_map(|word| {
            // `cname:10.0.0.1` glues a colon to the address, `10.0.0.1:5004` a port.
            let trimmed = word.trim_matches(|c| c == ':' || c == '.');
            [word, trimmed].into_iter().chain(trimmed.split(':'))
        })
        .filter_map(|word| word.parse::<IpAddr>().ok())
        .map(|ip| ip.to_canonical())
        .any(|ip| is_private(ip) || hide.contains(&ip))
}

fn net_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("IN IP4 {v4}"),
        IpAddr::V6(v6) => format!("IN IP6 {v6}"),
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn rewrite(body: &str, address: &str, ice: Ice) -> String {
        let sdp = Sdp::parse(body.as_bytes()).unwrap();
        let streams: Vec<_> = (0..4)
            .map(|i| StreamOut {
                rtp: 20_000 + 2 * i,
                rtcp: 20_001 + 2 * i,
            })
            .zip(sdp.streams())
            .map(|(out, s)| {
                if s.port == 0 {
                    StreamOut { rtp: 0, rtcp: 0 }
                } else {
                    out
                }
            })
            .collect();
        let to = Rewrite {
            address: ip(address),
            origin: Origin { id: 77, version: 3 },
            streams: &streams,
            ice,
            hide: &[ip("203.0.113.66")],
        };
        String::from_utf8(sdp.rewrite(&to)).unwrap()
    }

    const OFFER: &str = "v=0\r\no=alice 2890844526 2890844527 IN IP4 10.99.1.20\r\ns=call\r\n\
        c=IN IP4 10.99.1.20\r\nt=0 0\r\nm=audio 4000 RTP/AVP 8 101\r\na=rtpmap:8 PCMA/8000\r\n\
        a=rtcp:4001 IN IP4 10.99.1.20\r\na=candidate:1 1 UDP 2130706431 10.99.1.20 4000 typ host\r\n\
        a=ice-ufrag:abcd\r\na=ice-pwd:efgh\r\na=X-weird:  kept as \t is\r\na=sendrecv\r\n";

    #[test]
    fn only_addresses_ports_origin_and_ice_change() {
        let body = rewrite(OFFER, "198.51.100.9", Ice::Strip);
        assert_eq!(
            body,
            "v=0\r\no=alice 77 3 IN IP4 198.51.100.9\r\ns=call\r\nc=IN IP4 198.51.100.9\r\n\
             t=0 0\r\nm=audio 20000 RTP/AVP 8 101\r\na=rtpmap:8 PCMA/8000\r\n\
             a=rtcp:20001 IN IP4 198.51.100.9\r\na=X-weird:  kept as \t is\r\na=sendrecv\r\n"
        );
    }

    #[test]
    fn a_relayed_ice_offer_names_one_candidate_of_ours_per_component() {
        let body = rewrite(OFFER, "198.51.100.9", Ice::Relay);
        assert!(body.contains("a=candidate:1 1 UDP 2130706431 198.51.100.9 20000 typ host\r\n"));
        assert!(body.contains("a=candidate:1 2 UDP 2130706430 198.51.100.9 20001 typ host\r\n"));
        assert!(
            body.contains("a=ice-ufrag:abcd\r\n") && !body.contains("10.99."),
            "{body}"
        );
    }

    #[test]
    fn hold_stays_hold_and_a_disabled_stream_stays_disabled() {
        let body = "v=0\no=- 1 1 IN IP4 10.99.1.20\ns=-\nc=IN IP4 0.0.0.0\nm=audio 4000 RTP/AVP 0\nm=video 0 RTP/AVP 9\na=rtcp:1\n";
        assert_eq!(
            rewrite(body, "2001:db8::9", Ice::Strip),
            "v=0\no=- 77 3 IN IP6 2001:db8::9\ns=-\nc=IN IP6 ::\nm=audio 20000 RTP/AVP 0\nm=video 0 RTP/AVP 9\n"
        );
    }

    #[test]
    fn em18_no_address_survives_in_any_line() {
        let body = "v=0\r\no=10.99.1.20 1 1 IN IP4 10.99.1.20\r\ns=call from 10.99.1.20\r\n\
            i=192.168.4.4\r\nu=http://203.0.113.66/\r\ne=a@10.99.1.20\r\nc=IN IP4 10.99.1.20\r\n\
            m=audio 4000 RTP/AVP 0\r\nc=IN IP4 10.99.1.21\r\na=ssrc:1 cname:x@10.99.1.20\r\n\
            a=source-filter: incl IN IP4 * 192.0.2.1\r\na=note:[fd00::7]:5060\r\n\
            a=note:::ffff:10.1.1.1\r\na=note:10.1.1.1:5004\r\na=fmtp:0 v=1.2.3.4\r\n";
        let out = rewrite(body, "198.51.100.9", Ice::Strip);
        for hidden in [
            "10.99.",
            "192.168.",
            "203.0.113.66",
            "fd00",
            "10.1.1.1",
            "source-filter",
        ] {
            assert!(!out.contains(hidden), "{hidden} in {out}");
        }
        assert!(
            out.contains("s=-\r\n")
                && out.contains("o=- 77 3")
                && out.contains("a=fmtp:0 v=1.2.3.4")
        );
    }

    #[test]
    fn a_fingerprint_is_no_address() {
        let line = "a=fingerprint:sha-256 FD:00:AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45\r\n";
        let body = format!("{OFFER}{line}");
        assert!(rewrite(&body, "198.51.100.9", Ice::Strip).contains(line));
    }

    proptest! {
        /// Whatever parses, its rewriting parses too, with our ports and nothing lost or added.
        #[test]
        fn what_was_read_can_be_read_again(
            lines in proptest::collection::vec("(m=audio [0-9]{1,5} RTP/AVP [0-9 ]{1,6}|c=IN IP4 (10\\.99\\.1\\.[0-9]{1,2}|0\\.0\\.0\\.0|h\\.test)|[abist]=[ -~]{0,30}|a=rtcp:[0-9]{1,4}|a=candidate:[0-9 ]{1,9})", 0..20),
            crlf in any::<bool>(),
        ) {
            let end = if crlf { "\r\n" } else { "\n" };
            let body = ["v=0", "o=- 1 1 IN IP4 10.99.1.20"].into_iter().map(str::to_owned).chain(lines)
                .map(|line| line + end).collect::<String>();
            let Ok(sdp) = Sdp::parse(body.as_bytes()) else { return Ok(()) };
            let streams: Vec<_> = sdp.streams().iter()
                .map(|s| if s.port == 0 { StreamOut { rtp: 0, rtcp: 0 } } else { StreamOut { rtp: 20_000, rtcp: 20_001 } })
                .collect();
            let to = Rewrite { address: ip("198.51.100.9"), origin: Origin { id: 1, version: 1 }, streams: &streams, ice: Ice::Strip, hide: &[] };
            let out = sdp.rewrite(&to);
            let again = Sdp::parse(&out).expect("the output is SDP");
            prop_assert_eq!(again.streams().len(), sdp.streams().len());
            for (before, after) in sdp.streams().iter().zip(again.streams()) {
                prop_assert_eq!(after.port, if before.port == 0 { 0 } else { 20_000 });
                prop_assert_eq!(&before.direction, &after.direction);
                prop_assert_eq!(before.host == Some(super::Host::Hold), after.host == Some(super::Host::Hold));
            }
            // Rewriting is idempotent: nothing of the first sender is left to change.
            prop_assert_eq!(again.rewrite(&to), out);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(sdp) = Sdp::parse(&bytes) {
                prop_assert!(sdp.streams().len() <= crate::sdp::MAX_STREAMS);
            }
        }
    }
}
