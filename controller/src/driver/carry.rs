//! What is routed through a tunnel (MX8, KL6): calls and kernel routes move with it, and calls
//! that go silent together have it asked at once.

use std::{collections::HashMap, time::Duration};

use keepline_engine::{
    net::{LinkId, Side},
    time::Now,
    tunnel::stall::{STALL_AFTER, stalled_together},
};

use super::{Clock as _, Driver};
use crate::steer::LinkPlace;

impl Driver {
    /// Carries out what the monitor wants, then moves links whose tunnel another one carries.
    pub(super) fn drain_tunnels(&mut self) {
        let now = self.clock.now();
        for event in self.tunnels.drain(now, &mut *self.traffic) {
            self.journal.record(&event);
        }
        for carried in self.tunnels.carried(now, &self.netlink.table()) {
            self.carry(now, &carried.home, &carried.device);
        }
    }

    /// The link of an interface, if it is one, is on this device from now on: its flows arrive
    /// and leave there, its sockets hear there. No plan, address or port of a call changes.
    fn carry(&mut self, now: Now, home: &str, device: &str) {
        self.netlink.carry(home, device);
        self.sockets.carry(home, device);
        self.carry_connections(home, device);
        let Some(link) = self.link_named(home) else {
            return;
        };
        let table = self.netlink.table();
        let Some((ifindex, state)) = table.link_by_name(device) else {
            return;
        };
        self.gateway.link_changed(now, link, state.up);
        let place = LinkPlace {
            ifindex,
            vlan: [0; 2],
        };
        let moved = self.data_path.link_set(link, place, now.mono);
        // Where the place is the same, next hops may differ all the same.
        let moved = moved.and_then(|()| self.data_path.route_changed(link, now.mono));
        if let Err(error) = moved {
            tracing::warn!(%error, home, device, "flows not moved to the other tunnel");
            self.overrun = true;
        }
    }

    /// Calls whose media arrives through a tunnel and went silent together have it asked. Only
    /// a silent tunnel's calls are looked at.
    pub(super) fn watch_stalls(&mut self, now: Now) {
        for (tunnel, interface) in self.tunnels.silent(now.mono, STALL_AFTER) {
            let Some(link) = self.link_named(&interface) else {
                continue;
            };
            if let Some(stall) = stalled_together(self.idle_calls(now, link)) {
                let at = now.mono - stall.silent;
                self.tunnels.stalled(now, tunnel, stall.calls, at);
            }
        }
    }

    /// The same where media arrives by a WAN link that is no tunnel: the servers used over it are
    /// asked. Every flow is looked at, hence once a second.
    pub(super) fn watch_links(&mut self, now: Now) {
        if self.gateway.media().flows().next().is_none() {
            return;
        }
        let bare = |name: &str| self.config.tunnels.iter().all(|of| of.interface != name);
        let links = (0..).map(LinkId).zip(&self.gateway.conf().links);
        let wan: Vec<LinkId> = links
            .filter(|(_, link)| link.side == Side::Wan && bare(&link.name))
            .map(|(id, _)| id)
            .collect();
        for link in wan {
            if let Some(stall) = stalled_together(self.idle_calls(now, link)) {
                let since = now.mono - stall.silent;
                self.gateway.media_stalled(now, link, stall.calls, since);
            }
        }
    }

    /// For each call with media that arrives by this link, how long ago its last packet came:
    /// by the programs' stamps, or by what the slow path heard.
    fn idle_calls(&self, now: Now, link: LinkId) -> Vec<Duration> {
        let rows = self.data_path.flows().unwrap_or_default();
        let by_program: HashMap<_, _> = rows
            .into_iter()
            .filter_map(|row| Some((row.id?, row.idle?)))
            .collect();
        let mut calls: HashMap<_, Duration> = HashMap::new();
        for (session, flow) in self.gateway.media().flows() {
            if flow.ingress != link {
                continue;
            }
            let heard = self.media_heard.get(&flow.local);
            let by_socket = heard.map(|at| now.mono.since(*at));
            let by_program = by_program.get(&flow.id).copied();
            if let Some(idle) = by_socket.into_iter().chain(by_program).min() {
                let call = calls.entry(session).or_insert(idle);
                *call = idle.min(*call);
            }
        }
        calls.into_values().collect()
    }

    fn link_named(&self, interface: &str) -> Option<LinkId> {
        let mut interfaces = self.config.interfaces.iter();
        let index = interfaces.position(|of| of.name == interface)?;
        u8::try_from(index).ok().map(LinkId)
    }
}
