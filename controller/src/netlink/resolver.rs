//! Address resolution for the data path, from the table.

use std::net::IpAddr;

use keepline_engine::net::LinkId;

use super::watch::Netlink;
use crate::steer::resolver::{Resolver, Route};

/// Looks next hops up by configured link, and has the kernel keep their neighbours resolved.
#[derive(Debug, Clone)]
pub struct LinkResolver {
    netlink: Netlink,
    /// Interface names in configuration order: the position is the [`LinkId`].
    names: Vec<String>,
}

impl LinkResolver {
    /// `names` are the configured interfaces, in their order.
    #[must_use]
    pub fn new(netlink: Netlink, names: Vec<String>) -> Self {
        Self { netlink, names }
    }
}

impl Resolver for LinkResolver {
    fn resolve(&mut self, egress: LinkId, to: IpAddr) -> Option<Route> {
        let table = self.netlink.table();
        let name = self.names.get(usize::from(egress.0))?;
        let (ifindex, link) = table.link_by_name(&self.netlink.device_of(name))?;
        // Its addresses stay its own.
        let home = table.link_by_name(name).map_or(ifindex, |(index, _)| index);
        if table.link_of_address(to).is_some() {
            return Some(Route {
                next_hop: to,
                ifindex,
                source: to,
                source_mac: link.mac,
                next_hop_mac: Some(link.mac),
                mtu: clamp(link.mtu),
                vlan: [0; 2],
                local: true,
            });
        }
        let hop = table.next_hop_by(home, ifindex, to)?;
        self.netlink.manage(hop.ifindex, hop.next_hop);
        Some(Route {
            next_hop: hop.next_hop,
            ifindex: hop.ifindex,
            source: hop.source,
            source_mac: hop.source_mac,
            next_hop_mac: hop.dest_mac,
            mtu: clamp(hop.mtu),
            vlan: [0; 2],
            local: false,
        })
    }
}

fn clamp(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}
