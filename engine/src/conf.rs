//! What the engine needs to know of the configuration, resolved: addresses, not names.

use std::{net::IpAddr, time::Duration};

use crate::{
    health::GroupConf,
    media::{MediaConf, MediaLink},
    net::{Link, LinkId, Listener, ListenerId, PathKey, Side, Transport},
};

/// The engine's configuration. Positions in the vectors are the ids of [`crate::net`].
#[derive(Debug, Clone)]
pub struct Conf {
    /// The gateway's name, for events and Warning headers.
    pub name: String,
    /// How phones address the gateway.
    pub mode: Mode,
    /// Whether parties are hidden from each other; `false`, in transparent mode: SIP over UDP
    /// between a phone and its softswitch goes through as it is while that one serves.
    pub hide_topology: bool,
    /// The domain that stands for addresses of no group's.
    pub domain: String,
    /// Interfaces, in the order of the configuration.
    pub links: Vec<Link>,
    /// SIP sockets.
    pub listeners: Vec<Listener>,
    /// Softswitch groups.
    pub groups: Vec<Group>,
    /// Who may speak on the WAN side.
    pub accept: Accept,
    /// Registration pacing (signalling.md section 4).
    pub registration: Registration,
    /// What happens when a group has no server left.
    pub survivability: Survivability,
    /// Keepalives of our own towards softswitches (signalling.md section 8).
    pub keepalive: Keepalive,
    /// The answer to keepalives of clients that cannot be served (signalling.md section 8).
    pub keepalive_error: bool,
    /// How long refreshes are still served while draining (signalling.md section 14).
    pub drain_grace: Duration,
    /// Media ports and learning.
    pub media: MediaConf,
    /// Keys every token that must be stable over restarts: branches, contacts, Call-IDs.
    pub secret: crate::seal::Key,
}

/// How phones address the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As their registrar and proxy.
    Normal,
    /// As the proxy before their softswitch, whose domain they keep.
    OutboundProxy,
    /// Not at all: they address the softswitch itself, and the gateway is on the way (EM20).
    Transparent,
}

/// A softswitch group: its health settings and what the proxy needs beside them.
#[derive(Debug, Clone)]
pub struct Group {
    /// Servers, timers and policies.
    pub health: GroupConf,
    /// The domain its phones belong to.
    pub domain: String,
    /// How long a call set-up looks for a server before it is connected locally.
    pub hunt_budget: Duration,
    /// Networks it may call from beside its servers' addresses.
    pub inbound: Vec<Prefix>,
    /// Whether its registrar is sent a Path.
    pub path: PathUse,
    /// Whether each of its servers knows the calls of the others.
    pub shared_dialogs: bool,
}

/// Whether REGISTERs carry our Path (RFC 3327).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathUse {
    /// Where the phone supports it, or has one of its own.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Group {
    /// Whether one of its servers has this address.
    #[must_use]
    pub fn has_server(&self, ip: IpAddr) -> bool {
        let mut servers = self.health.servers.iter();
        servers.any(|server| server.address.ip() == ip)
    }
}

/// An address prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Any address of the network.
    pub address: IpAddr,
    /// Its length in bits.
    pub length: u8,
}

/// Who may speak on WAN listeners (signalling.md section 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Softswitches and their `inbound` networks only.
    Peers,
    /// Anybody.
    Clients,
}

/// Registration pacing (EM24).
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    /// The expiry phones on UDP are told, before jitter.
    pub phone_expires: Duration,
    /// The expiry phones on streams are told: no NAT binding of theirs ends after a minute.
    pub phone_expires_stream: Duration,
    /// How long a binding stays trusted after its last 2xx from upstream.
    pub known_for: Duration,
}

/// Keepalives of our own on the flows to softswitches (EX4).
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    /// Which servers are sent STUN.
    pub stun: Stun,
    /// Between two of them.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Which servers are sent STUN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stun {
    /// Those that answer it; the others get CRLF.
    Auto,
    /// Every one.
    On,
    /// None, and no CRLF either.
    Off,
}

/// Survivability (EM13, EM22).
#[derive(Debug, Clone)]
pub struct Survivability {
    /// Who is served.
    pub policy: Policy,
    /// The longest expiry a local 200 grants.
    pub expires: Duration,
    /// A dialled number of so many digits also means the user whose digits end in it (EM16).
    pub last_digits: Vec<u8>,
    /// REGISTERs released upstream per second after a return.
    pub recovery_register_rate: u32,
}

/// Who is served when no softswitch is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Nobody: requests are refused, keepalives go unanswered.
    Off,
    /// Addresses of record that earned a 2xx upstream, from the same source.
    Known,
    /// Known ones, and users with local credentials.
    LocalUsers,
    /// Everybody on the LAN.
    OpenLan,
}

impl Conf {
    /// The links that face softswitches, in order of preference, with their names.
    #[must_use]
    pub fn wan_links(&self) -> Vec<(LinkId, String)> {
        self.links_facing(Side::Wan)
            .map(|(id, link)| (id, link.name.clone()))
            .collect()
    }

    /// Every link as media sees it.
    #[must_use]
    pub fn media_links(&self) -> Vec<MediaLink> {
        let links = (0_u8..).map(LinkId).zip(&self.links);
        links
            .map(|(id, link)| MediaLink {
                id,
                side: link.side,
                address: link.address,
            })
            .collect()
    }

    /// The links of a side with their ids.
    pub fn links_facing(&self, side: Side) -> impl Iterator<Item = (LinkId, &Link)> {
        (0_u8..)
            .map(LinkId)
            .zip(&self.links)
            .filter(move |(_, link)| link.side == side)
    }

    /// The first listener on a link for a transport.
    #[must_use]
    pub fn listener_on(&self, link: LinkId, transport: Transport) -> Option<ListenerId> {
        (0_u16..)
            .map(ListenerId)
            .zip(&self.listeners)
            .find(|(_, listener)| listener.link == link && listener.transport == transport)
            .map(|(id, _)| id)
    }

    /// The listener that requests to a server leave from.
    #[must_use]
    pub fn listener_to(&self, path: PathKey) -> Option<ListenerId> {
        let group = self.groups.get(usize::from(path.server.group.0))?;
        let server = group.health.servers.get(usize::from(path.server.index))?;
        self.listener_on(path.link, server.transport)
    }

    /// Whether a listener takes what phones send to other addresses than its own (transparent
    /// mode). What comes over TLS is meant for the softswitch alone.
    #[must_use]
    pub fn takes(&self, id: ListenerId) -> bool {
        let on = &self.listeners[usize::from(id.0)];
        self.mode == Mode::Transparent
            && on.taken_by.is_none()
            && on.transport != Transport::Tls
            && self.links[usize::from(on.link.0)].side == Side::Lan
    }

    /// The listeners over streams.
    pub fn streams(&self) -> impl Iterator<Item = ListenerId> {
        (0_u16..)
            .map(ListenerId)
            .zip(&self.listeners)
            .filter(|(_, listener)| listener.transport.is_stream())
            .map(|(id, _)| id)
    }
}

impl Prefix {
    /// Whether the address lies in the prefix; families never mix.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.length.min(32));
                u32::from(net).checked_shr(shift).unwrap_or(0)
                    == u32::from(ip).checked_shr(shift).unwrap_or(0)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.length.min(128));
                u128::from(net).checked_shr(shift).unwrap_or(0)
                    == u128::from(ip).checked_shr(shift).unwrap_or(0)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_compare_whole_bits_and_never_families() {
        let net = Prefix {
            address: "192.0.2.128".parse().unwrap(),
            length: 25,
        };
        assert!(net.contains("192.0.2.129".parse().unwrap()));
        assert!(!net.contains("192.0.2.1".parse().unwrap()));
        assert!(!net.contains("::ffff:192.0.2.129".parse().unwrap()));
        let any = Prefix {
            address: "0.0.0.0".parse().unwrap(),
            length: 0,
        };
        assert!(any.contains("203.0.113.9".parse().unwrap()));
    }
}
