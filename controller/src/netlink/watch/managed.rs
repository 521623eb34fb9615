//! Neighbours that the kernel keeps resolved for the data path, which sends to them without it.

use std::net::IpAddr;

use rtnetlink::packet_route::neighbour::{
    NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourState,
};

use super::{Neighbour, Request, Watcher};

/// How many there may be: one per group of the data path (`keepline_common::limits`).
const MAX_MANAGED: usize = keepline_common::limits::GROUPS as usize;

impl Watcher {
    /// A flushed entry says nothing about the neighbour: one that is wanted keeps its MAC and
    /// is asked for again.
    pub(super) async fn neighbour_gone(&mut self, ifindex: u32, ip: IpAddr) {
        if self.managed.contains(&(ifindex, ip)) {
            if !self.resting.contains(&ifindex) {
                self.install(ifindex, ip).await;
            }
        } else {
            self.dirty |= self.now.neighbours.remove(&(ifindex, ip)).is_some();
        }
    }

    pub(super) async fn asked(&mut self, request: Request) {
        match request {
            Request::Manage(ifindex, ip) => self.want(ifindex, ip).await,
            Request::Rest(ifindex) => {
                self.resting.insert(ifindex);
                for (_, ip) in self.managed_on(ifindex) {
                    self.let_go(ifindex, ip).await;
                }
            }
            Request::Wake(ifindex) => {
                self.resting.remove(&ifindex);
                for (_, ip) in self.managed_on(ifindex) {
                    self.install(ifindex, ip).await;
                }
            }
        }
    }

    fn managed_on(&self, ifindex: u32) -> Vec<(u32, IpAddr)> {
        let on = |key: &&(u32, IpAddr)| key.0 == ifindex;
        self.managed.iter().filter(on).copied().collect()
    }

    /// Whether what the kernel says of this neighbour counts for nothing: we had it forget.
    pub(super) fn rests(&self, neighbour: &Neighbour) -> bool {
        let key = (neighbour.ifindex, neighbour.ip);
        self.resting.contains(&neighbour.ifindex) && self.managed.contains(&key)
    }

    async fn want(&mut self, ifindex: u32, ip: IpAddr) {
        if self.managed.len() >= MAX_MANAGED {
            return tracing::warn!(%ip, "too many neighbours are kept resolved; this one is not");
        }
        if self.managed.insert((ifindex, ip)) && !self.resting.contains(&ifindex) {
            self.install(ifindex, ip).await;
        }
    }

    async fn let_go(&self, ifindex: u32, ip: IpAddr) {
        let mut entry = self.handle.neighbours().add(ifindex, ip);
        let entry = entry.message_mut().clone();
        if let Err(error) = self.handle.neighbours().del(entry).execute().await {
            tracing::debug!(%ip, ifindex, %error, "the kernel goes on asking this neighbour");
        }
    }

    pub(super) async fn install(&self, ifindex: u32, ip: IpAddr) {
        let mut request = self
            .handle
            .neighbours()
            .add(ifindex, ip)
            .state(NeighbourState::None)
            .flags(NeighbourFlags::empty())
            .replace();
        let flags = NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed);
        request.message_mut().attributes.push(flags);
        // A link that is down refuses; its coming up leads to a dump, which asks again.
        if let Err(error) = request.execute().await {
            tracing::debug!(%ip, ifindex, %error, "the kernel does not keep this neighbour");
        }
    }
}
