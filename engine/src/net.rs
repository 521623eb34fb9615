//! How the engine names what it cannot touch: links, listeners, servers.

use std::net::{IpAddr, SocketAddr};

/// A configured interface, by its position in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);

/// A SIP socket, by its position in the resolved list of listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u16);

/// A group of servers (one softswitch domain), by its position in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// A server of a group, by its position in that group's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    /// The group it belongs to.
    pub group: GroupId,
    /// Its position in the group's list.
    pub index: u16,
}

/// A server as reached over one WAN link: the key of every health record (EM12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathKey {
    /// The server.
    pub server: ServerId,
    /// The link it is reached over.
    pub link: LinkId,
}

/// What carries SIP (RFC 3261 section 18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Transport {
    /// Datagrams.
    #[default]
    Udp,
    /// A stream.
    Tcp,
    /// A stream under TLS.
    Tls,
}

impl Transport {
    /// Whether it delivers in order or not at all: nothing is sent twice over it.
    #[must_use]
    pub fn is_stream(self) -> bool {
        self != Self::Udp
    }

    /// As Via names it (RFC 3261 section 20.42).
    #[must_use]
    pub fn via(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// The URI parameter that asks for it (RFC 3261 section 19.1.1); UDP needs none.
    #[must_use]
    pub fn uri_param(self) -> &'static str {
        match self {
            Self::Udp => "",
            Self::Tcp => ";transport=tcp",
            Self::Tls => ";transport=tls",
        }
    }

    /// By the value of a URI's `transport` parameter; names are case-insensitive.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        [Self::Udp, Self::Tcp, Self::Tls]
            .into_iter()
            .find(|transport| transport.via().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Which side of the gateway a link faces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Phones, and the PSTN gateway.
    Lan,
    /// Softswitches.
    Wan,
}

/// A configured interface as the engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The interface's name, for people.
    pub name: String,
    /// What it faces.
    pub side: Side,
    /// Its present address; `None` while it has none.
    pub address: Option<IpAddr>,
    /// The prefix length of its network: what is on-link must not be named on the other side.
    pub prefix: u8,
    /// Carrier and administrative state.
    pub up: bool,
}

/// A SIP socket as the engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The link it is bound to.
    pub link: LinkId,
    /// What it carries SIP over.
    pub transport: Transport,
    /// The address it answers from.
    pub address: SocketAddr,
    /// The listener that takes what phones send to `address`, where that is a softswitch's
    /// (transparent mode); `None`: the address is our own.
    pub taken_by: Option<ListenerId>,
}
