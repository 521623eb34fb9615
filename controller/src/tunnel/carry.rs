//! What is routed through a tunnel that is down goes through the one in use (MX8).

use std::{fs, net::IpAddr};

use keepline_engine::{
    time::Now,
    tunnel::{Carrier, State, TunnelId},
};

use super::{Tunnels, announce, carrier, routes::Routes, traffic::Client};
use crate::{config::model::Tunnel, netlink::Table};

/// What is routed through a tunnel is on another device from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The tunnel's own interface.
    pub home: String,
    /// The device that carries it: its own again, or that of the tunnel in use.
    pub device: String,
}

impl Tunnels {
    /// Has kernel routes move with their tunnels.
    pub fn move_routes(&mut self, routes: Routes, table: &Table) {
        for segment in &self.segments {
            let devices = segment.tunnels.iter().map(|id| self.device(*id).to_owned());
            routes.home(devices.collect());
        }
        self.routes = Some(routes);
        self.routes_changed(table);
    }

    /// Remembers the routes of tunnels while every link is up: one that goes down takes its
    /// routes along.
    pub fn routes_changed(&self, table: &Table) {
        let up = |tunnel: &Tunnel| carrier(table, tunnel) == Carrier::Up;
        let Some(routes) = &self.routes else { return };
        let of = |tunnel: &Tunnel| tunnel.interface.clone();
        if self.tunnels.iter().all(up) {
            routes.look(self.tunnels.iter().map(of).collect());
        }
        let those_up = self.tunnels.iter().filter(|tunnel| up(tunnel));
        routes.follow(those_up.map(of).collect());
    }

    /// What is on another device than before: a tunnel that is down is carried by the one that
    /// its segment uses. Kernel routes are on their way; the addresses of the tunnel are
    /// announced where they are now.
    pub fn carried(&mut self, now: Now, table: &Table) -> Vec<Carried> {
        if !std::mem::take(&mut self.shifted) {
            return Vec::new();
        }
        let segments = self.monitor.segments();
        let mut moved = Vec::new();
        for view in self.monitor.tunnels(now) {
            let index = usize::from(view.id.0);
            let in_use = segments.iter().find(|of| of.id == view.segment);
            let to = match (view.state, in_use.and_then(|of| of.active)) {
                (State::Down, Some(active)) => active,
                _ => view.id,
            };
            let from = std::mem::replace(&mut self.carrier[index], to);
            if from == to {
                continue;
            }
            let home = self.device(view.id).to_owned();
            if let Some(routes) = &self.routes {
                routes.turn(&home, self.device(from), self.device(to));
            }
            self.announce_own(table, &home, to);
            let device = self.device(to).to_owned();
            moved.push(Carried { home, device });
        }
        if !moved.is_empty() {
            self.answer_arp();
        }
        moved
    }

    /// Who lets each tunnel answer ARP for its own addresses only (`arp_ignore`, where one
    /// network lies behind both) has a tunnel answer for the other's while it carries them.
    fn answer_arp(&mut self) {
        for (id, tunnel) in super::ids(&self.tunnels) {
            let carried = super::ids(&self.tunnels).zip(&self.carrier);
            let carries = carried
                .into_iter()
                .any(|((home, _), by)| *by == id && home != id);
            let path = format!("/proc/sys/net/ipv4/conf/{}/arp_ignore", tunnel.interface);
            let set = match (carries, self.arp_ignore.remove(&id)) {
                (true, Some(before)) => {
                    self.arp_ignore.insert(id, before);
                    continue;
                }
                (true, None) => {
                    let Ok(before) = fs::read_to_string(&path) else {
                        continue;
                    };
                    if before.trim() == "0" {
                        continue;
                    }
                    self.arp_ignore.insert(id, before);
                    "0".to_owned()
                }
                (false, Some(before)) => before,
                (false, None) => continue,
            };
            if let Err(error) = fs::write(&path, set) {
                tracing::warn!(%error, path, "ARP is answered for its own addresses only");
            }
        }
    }

    /// The gateway's own addresses of an interface are reached through this tunnel now.
    fn announce_own(&self, table: &Table, home: &str, through: TunnelId) {
        let (Some((_, own)), Some((_, device)), Some(listening)) = (
            table.link_by_name(home),
            table.link_by_name(self.device(through)),
            self.sockets.get(&through),
        ) else {
            return;
        };
        for (address, _) in &own.addresses {
            let (v4, v6) = match address {
                IpAddr::V4(v4) => (Some(*v4), None),
                // One for the link is the device's own.
                IpAddr::V6(v6) if v6.is_unicast_link_local() => continue,
                IpAddr::V6(v6) => (None, Some(*v6)),
            };
            let ours = Client {
                mac: device.mac,
                v4,
                v6,
                router: false,
            };
            for frame in announce::frames(&ours) {
                if let Err(error) = listening.socket.send(&frame) {
                    tracing::debug!(%error, %address, "an address was not announced");
                }
            }
        }
    }
}
