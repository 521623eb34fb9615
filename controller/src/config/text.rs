//! Values that are written as text: durations, rates, ports, listeners, server URIs.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use keepline_engine::net::Transport;

use super::{
    fault::Fault,
    value::{Node, Value, quoted, read_text},
};

type Parsed<T> = Result<T, (String, String)>;

impl Value for Duration {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(
            node,
            faults,
            "a duration in quotes: \"1500ms\", \"10s\", \"14d\"",
            |text| {
                humantime::parse_duration(text).map_err(|error| {
                    (
                        format!("`{text}` is not a duration: {error}"),
                        "write a number and a unit, such as `1500ms`, `10s`, `5m` or `14d`"
                            .to_owned(),
                    )
                })
            },
        )
    }

    fn show(&self) -> String {
        quoted(&show_duration(*self))
    }
}

/// The shortest exact form with one unit: `1500ms`, `10s`, `14d`.
fn show_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("s", 1000)];
    if milliseconds == 0 {
        return "0s".to_owned();
    }
    units
        .into_iter()
        .find(|(_, size)| milliseconds.is_multiple_of(*size))
        .map_or_else(
            || format!("{milliseconds}ms"),
            |(unit, size)| format!("{}{unit}", milliseconds / size),
        )
}

/// Packets per second: `"50/s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rate(pub(super) u32);

impl Value for Rate {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(node, faults, "a rate in quotes: \"50/s\"", |text| {
            text.strip_suffix("/s")
                .and_then(|n| n.parse().ok())
                .map(Self)
                .ok_or_else(|| {
                    (
                        format!("`{text}` is not a rate"),
                        "write a whole number per second, such as `50/s`".to_owned(),
                    )
                })
        })
    }

    fn show(&self) -> String {
        quoted(&format!("{}/s", self.0))
    }
}

/// Ports, both ends included: `"10000-32767"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ports(pub(super) RangeInclusive<u16>);

impl Value for Ports {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(node, faults, "a range in quotes: \"10000-32767\"", |text| {
            parse_ports(text).map(Self)
        })
    }

    fn show(&self) -> String {
        quoted(&format!("{}-{}", self.0.start(), self.0.end()))
    }
}

fn parse_ports(text: &str) -> Parsed<RangeInclusive<u16>> {
    let wrong = || {
        (
            format!("`{text}` is not a range of ports"),
            "write FIRST-LAST, such as `10000-32767`".to_owned(),
        )
    };
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let port = |part: &str| part.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err((
            format!("`{text}` ends before it begins"),
            format!("write `{last}-{first}`"),
        ));
    }
    Ok(first..=last)
}

/// A listener as written: `interface:port` or `address:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListenText {
    Interface { name: String, port: u16 },
    Address(SocketAddr),
}

impl fmt::Display for ListenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface { name, port } => write!(f, "{name}:{port}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Value for ListenText {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(
            node,
            faults,
            "INTERFACE:PORT in quotes: \"lan0:5060\"",
            parse_listen,
        )
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

fn parse_listen(text: &str) -> Parsed<ListenText> {
    let wrong = || {
        (
            format!("`{text}` is not a listener"),
            "write INTERFACE:PORT or ADDRESS:PORT, such as `lan0:5060` or `192.0.2.1:5060`"
                .to_owned(),
        )
    };
    let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port
        .parse::<u16>()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(wrong)?;
    if let Ok(address) = text.parse::<SocketAddr>() {
        if address.ip().is_unspecified() {
            return Err((
                format!("`{text}` names no interface"),
                "name each interface: what arrives is treated by the side it arrives on".to_owned(),
            ));
        }
        return Ok(ListenText::Address(address));
    }
    if name.is_empty() || name.contains([':', '[', ']']) {
        return Err(wrong());
    }
    Ok(ListenText::Interface {
        name: name.to_owned(),
        port,
    })
}

/// A server's URI, reduced to what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerUri {
    pub(super) text: String,
    pub(super) transport: Transport,
    pub(super) address: SocketAddr,
}

impl Value for ServerUri {
    fn read(node: &Node<'_>, faults: &mut Vec<Fault>) -> Option<Self> {
        read_text(
            node,
            faults,
            "a SIP URI in quotes: \"sip:192.0.2.10:5060\"",
            |text| {
                parse_server(text).map(|(transport, address)| Self {
                    text: text.to_owned(),
                    transport,
                    address,
                })
            },
        )
    }

    fn show(&self) -> String {
        quoted(&self.text)
    }
}

/// `sip:ADDRESS[:PORT][;transport=udp|tcp|tls]` or `sips:ADDRESS[:PORT]`, RFC 3261 section 19.1.1 without its user part.
fn parse_server(text: &str) -> Parsed<(Transport, SocketAddr)> {
    let fault = |what: &str, hint: &str| (format!("`{text}` {what}"), hint.to_owned());
    const FORM: &str = "write `sip:ADDRESS:PORT`, such as `sip:192.0.2.10:5060`";
    let sips = strip_scheme(text, "sips:");
    let rest = sips
        .or_else(|| strip_scheme(text, "sip:"))
        .ok_or_else(|| fault("is not a SIP URI", FORM))?;
    if rest.contains('@') {
        return Err(fault("names a user; a server has none", FORM));
    }
    let mut parts = rest.split(';');
    let host = parts.next().unwrap_or_default();
    let mut transport = Transport::Udp;
    for parameter in parts {
        match parameter.to_ascii_lowercase().as_str() {
            "transport=udp" => transport = Transport::Udp,
            "transport=tcp" => transport = Transport::Tcp,
            "transport=tls" => transport = Transport::Tls,
            _ => {
                return Err(fault(
                    "has a parameter that means nothing here",
                    "only `;transport=` is used",
                ));
            }
        }
    }
    if sips.is_some() && transport == Transport::Udp && text.contains(';') {
        return Err(fault(
            "asks for TLS and for UDP",
            "write `sips:` or `;transport=udp`, not both",
        ));
    }
    // TCP under `sips:` is TLS over TCP (RFC 3261 section 26.2.2).
    let transport = sips.map_or(transport, |_| Transport::Tls);
    let port = if transport == Transport::Tls {
        5061
    } else {
        5060
    };
    let address = parse_host(host, port).ok_or_else(|| {
        let name = host.chars().any(|c| c.is_ascii_alphabetic()) && !host.starts_with('[');
        if name {
            fault(
                "names a host; names are not looked up in this version",
                "write the server's address: `sip:192.0.2.10:5060`",
            )
        } else {
            fault("has no valid address", FORM)
        }
    })?;
    Ok((transport, address))
}

fn strip_scheme<'t>(text: &'t str, scheme: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn parse_host(host: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Some(address).filter(|address| address.port() != 0);
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let address = bare.parse::<IpAddr>().ok()?;
    // An IPv6 address without brackets is not a URI's host.
    (address.is_ipv4() == (bare == host)).then_some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_short_as_they_are_exact() {
        let shown = |ms| show_duration(Duration::from_millis(ms));
        assert_eq!(shown(1500), "1500ms");
        assert_eq!(shown(60_000), "60s");
        assert_eq!(shown(14 * 86_400_000), "14d");
        assert_eq!(shown(0), "0s");
    }

    #[test]
    fn listeners() {
        let interface = |name: &str, port| ListenText::Interface {
            name: name.to_owned(),
            port,
        };
        assert_eq!(parse_listen("lan0:5060"), Ok(interface("lan0", 5060)));
        assert_eq!(
            parse_listen("eth0.100:5060"),
            Ok(interface("eth0.100", 5060))
        );
        let address = |text: &str| Ok(ListenText::Address(text.parse().expect("an address")));
        assert_eq!(
            parse_listen("[2001:db8::1]:5060"),
            address("[2001:db8::1]:5060")
        );
        for wrong in [
            "lan0",
            "lan0:",
            "lan0:0",
            "lan0:70000",
            ":5060",
            "0.0.0.0:5060",
            "a:b:5060",
        ] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn server_uris() {
        let over = |transport, text: &str| {
            Ok((transport, text.parse::<SocketAddr>().expect("an address")))
        };
        let address = |text: &str| over(Transport::Udp, text);
        assert_eq!(
            parse_server("sip:192.0.2.10;transport=TCP"),
            over(Transport::Tcp, "192.0.2.10:5060")
        );
        for tls in [
            "sips:192.0.2.10",
            "sip:192.0.2.10;transport=tls",
            "sips:192.0.2.10;transport=tcp",
        ] {
            assert_eq!(parse_server(tls), over(Transport::Tls, "192.0.2.10:5061"));
        }
        assert_eq!(parse_server("sip:192.0.2.10"), address("192.0.2.10:5060"));
        assert_eq!(
            parse_server("SIP:192.0.2.10:5070;transport=UDP"),
            address("192.0.2.10:5070")
        );
        assert_eq!(
            parse_server("sip:[2001:db8::1]"),
            address("[2001:db8::1]:5060")
        );
        assert_eq!(
            parse_server("sip:[2001:db8::1]:5070"),
            address("[2001:db8::1]:5070")
        );
        for (wrong, why) in [
            ("192.0.2.10", "not a SIP URI"),
            ("sips:192.0.2.10;transport=udp", "TLS and for UDP"),
            ("sip:core.example.test", "names a host"),
            ("sip:bob@192.0.2.10", "names a user"),
            ("sip:192.0.2.10;transport=sctp", "parameter"),
            ("sip:192.0.2.10;lr", "parameter"),
            ("sip:192.0.2.300", "no valid address"),
            ("sip:192.0.2.10:0", "no valid address"),
            ("sip:[2001:db8::1", "no valid address"),
            ("sip:", "no valid address"),
        ] {
            let (message, _) = parse_server(wrong).expect_err(wrong);
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn port_ranges() {
        assert_eq!(parse_ports("10000-32767"), Ok(10_000..=32_767));
        let (message, hint) = parse_ports("20000-10000").expect_err("reversed");
        assert!(message.contains("ends before"), "{message}");
        assert!(hint.contains("10000-20000"), "{hint}");
        for wrong in ["10000", "a-b", "1-70000", ""] {
            assert!(parse_ports(wrong).is_err(), "{wrong}");
        }
    }
}
