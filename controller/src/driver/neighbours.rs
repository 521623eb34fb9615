//! Phones are known by their Ethernet address where they have one that we see: the engine is told
//! of neighbours on LAN links.

use std::net::{IpAddr, SocketAddr};

use keepline_engine::net::{LinkId, ListenerId, Side};

use super::Driver;
use crate::netlink::Mac;

impl Driver {
    /// Before somebody is heard: what the kernel learned a moment ago, when who came or took an
    /// address asked for ours, may not have been told yet. About who is new, and while it is for
    /// us to say who is who, the kernel itself is asked.
    pub(super) fn introduce(&mut self, listener: ListenerId, from: SocketAddr) {
        let link = self.gateway.conf().listeners[usize::from(listener.0)].link;
        if !self.is_lan(link) {
            return;
        }
        let interface = &self.config.interfaces[usize::from(link.0)].name;
        let table = self.netlink.table();
        let Some((ifindex, state)) = table.link_by_name(interface) else {
            return;
        };
        let told = table.mac_of(ifindex, from.ip());
        let ask = state.is_on_link(from.ip()) && (told.is_none() || self.gateway.is_alone());
        let asked = ask.then(|| self.neighbours.mac_of(ifindex, from.ip()));
        let mac = asked.unwrap_or(Ok(told)).unwrap_or_else(|error| {
            tracing::debug!(%error, "the kernel does not say who a neighbour is");
            told
        });
        self.gateway.neighbour(link, from.ip(), mac);
    }

    /// One that the engine may know has another address, or is gone.
    pub(super) fn neighbour_changed(&mut self, ifindex: u32, ip: IpAddr, mac: Option<Mac>) {
        let name = self.interface_name(ifindex);
        let mut interfaces = self.config.interfaces.iter();
        let index = interfaces.position(|interface| interface.name == name);
        let link = index.and_then(|index| u8::try_from(index).ok()).map(LinkId);
        if let Some(link) = link.filter(|link| self.is_lan(*link)) {
            self.gateway.neighbour(link, ip, mac);
        }
    }

    fn is_lan(&self, link: LinkId) -> bool {
        self.gateway.conf().links[usize::from(link.0)].side == Side::Lan
    }
}
