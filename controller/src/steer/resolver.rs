//! How a destination is reached: answered by netlink, faked in tests.

use std::net::IpAddr;

use keepline_engine::net::LinkId;

/// How datagrams leave a link towards a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The router, or the destination itself when it is a neighbour.
    pub next_hop: IpAddr,
    /// The device they leave by.
    pub ifindex: u32,
    /// The address they leave from.
    pub source: IpAddr,
    /// The device's MAC address.
    pub source_mac: [u8; 6],
    /// The next hop's MAC address; `None` while it is not known.
    pub next_hop_mac: Option<[u8; 6]>,
    /// The largest IP packet the path takes, in bytes.
    pub mtu: u16,
    /// VLAN identifiers from the outside in; 0 = none.
    pub vlan: [u16; 2],
    /// The destination is an address of this machine: XDP must not send to it (X12).
    pub local: bool,
}

/// Finds routes and neighbours. Implementations answer from what they know, without waiting:
/// an unknown MAC is `None`, and its arrival is told by `Steer::neighbour_changed`.
pub trait Resolver {
    /// The way from `egress` to `to`; `None` when there is no route.
    fn resolve(&mut self, egress: LinkId, to: IpAddr) -> Option<Route>;
}
