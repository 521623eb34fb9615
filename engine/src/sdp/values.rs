//! The values anchoring reads: addresses, ports, directions.

use std::{
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

/// Where a stream's media is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// An address; v4-mapped ones are given as IPv4.
    Ip(IpAddr),
    /// `0.0.0.0` or `::`: on hold, as RFC 2543 did it.
    Hold,
    /// A host name: legal, but nothing that a data path can use.
    Name,
}

/// RFC 3264's direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// The default.
    #[default]
    SendRecv,
    /// Only from the sender of the body.
    SendOnly,
    /// Only to it.
    RecvOnly,
    /// Neither.
    Inactive,
}

/// One m= line and what applies to it, session level included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// `audio`, `video`, `image`, ...
    pub media: String,
    /// 0: not in use.
    pub port: u16,
    /// Carried over UDP: RTP, UDPTL, DTLS. The rest cannot be anchored.
    pub over_udp: bool,
    /// Where it is wanted; `None` only for a stream not in use.
    pub host: Option<Host>,
    /// The port of `a=rtcp`, and its address if it has one (RFC 3605).
    pub rtcp: Option<(u16, Option<IpAddr>)>,
    /// RTCP on the RTP port is offered or accepted (RFC 5761).
    pub mux: bool,
    /// The stream's own direction, else the session's.
    pub direction: Direction,
}

impl Direction {
    /// From an attribute's name.
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"sendrecv" => Self::SendRecv,
            b"sendonly" => Self::SendOnly,
            b"recvonly" => Self::RecvOnly,
            b"inactive" => Self::Inactive,
            _ => return None,
        })
    }
}

impl Host {
    /// Reads `IN IP4 address[/ttl]`; `None` when it is no such thing.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let mut tokens = std::str::from_utf8(value).ok()?.split_ascii_whitespace();
        let (net, kind, address) = (tokens.next()?, tokens.next()?, tokens.next()?);
        if net != "IN" || tokens.next().is_some() {
            return None;
        }
        let (address, _ttl) = address.split_once('/').unwrap_or((address, ""));
        let ip = match (kind, IpAddr::from_str(address)) {
            ("IP4", Ok(ip @ IpAddr::V4(_))) | ("IP6", Ok(ip @ IpAddr::V6(_))) => ip.to_canonical(),
            ("IP4" | "IP6", Err(_)) if is_name(address) => return Some(Self::Name),
            _ => return None,
        };
        Some(if ip.is_unspecified() {
            Self::Hold
        } else {
            Self::Ip(ip)
        })
    }
}

/// Reads the value of `a=rtcp`: `port [IN IP4 address]`.
pub(super) fn rtcp(value: &[u8]) -> Option<(u16, Option<IpAddr>)> {
    let end = value.iter().position(|&b| b == b' ').unwrap_or(value.len());
    let (port, rest) = value.split_at(end);
    let port = number(port)?;
    if rest.is_empty() {
        return Some((port, None));
    }
    match Host::parse(rest)? {
        Host::Ip(ip) => Some((port, Some(ip))),
        Host::Hold | Host::Name => Some((port, None)),
    }
}

/// Digits only, no sign, within a port's range.
pub(super) fn number(bytes: &[u8]) -> Option<u16> {
    let digits = !bytes.is_empty() && bytes.len() <= 5 && bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

/// Not reachable over the Internet: RFC 1918, 6598, 3927, 4193, 4291 link-local.
#[must_use]
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || is_shared(v4),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn is_shared(v4: Ipv4Addr) -> bool {
    let [a, b, ..] = v4.octets();
    a == 100 && b & 0xc0 == 64
}

fn is_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
    // A name ends in a label with a letter: what looks like a broken address is one.
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    text.len() <= 255 && text.bytes().all(allowed) && last.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connection_data_is_read_in_every_legal_form() {
        for (value, host) in [
            ("IN IP4 192.0.2.7", Host::Ip(ip("192.0.2.7"))),
            ("IN IP4 224.2.36.42/127", Host::Ip(ip("224.2.36.42"))),
            ("IN IP6 2001:db8::7", Host::Ip(ip("2001:db8::7"))),
            ("IN IP6 ::ffff:127.0.0.1", Host::Ip(ip("127.0.0.1"))),
            ("IN IP4 0.0.0.0", Host::Hold),
            ("IN IP6 ::", Host::Hold),
            ("IN IP6 ::ffff:0.0.0.0", Host::Hold),
            ("IN IP4 phone.example.test", Host::Name),
        ] {
            assert_eq!(Host::parse(value.as_bytes()), Some(host), "{value}");
        }
        for value in [
            "",
            "IN",
            "IN IP4",
            "IN IP4 2001:db8::7",
            "IN IP6 192.0.2.7",
            "IN IP4 1.2.3",
            "IN IP4 1.2.3.256",
            "IN IP4 1.2.3.4 5",
            "ATM NSAP 1.2.3.4",
            "IN IP5 192.0.2.7",
        ] {
            assert_eq!(Host::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn ports_are_digits_within_range() {
        assert_eq!(number(b"65535"), Some(65_535));
        for bad in ["", "65536", "+1", "-1", " 1", "000001", "4294967296"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn private_ranges_end_where_the_rfcs_say() {
        for private in [
            "10.0.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.127.1.1",
            "169.254.1.1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(ip(private)), "{private}");
        }
        for public in [
            "172.32.0.1",
            "100.128.0.1",
            "100.63.0.1",
            "192.0.2.1",
            "2001:db8::1",
        ] {
            assert!(!is_private(ip(public)), "{public}");
        }
    }
}
