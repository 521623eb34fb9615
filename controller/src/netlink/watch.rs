//! Keeps the [`Table`] current.
//!
//! Neighbours are followed message by message. Anything else that changes leads to a new dump
//! of everything: a link that goes down takes its routes along without a word about them, and
//! the removal of a primary address that of its secondaries.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::{StreamExt, channel::mpsc::UnboundedReceiver};
use rtnetlink::{
    Handle, MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        neighbour::{NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourState},
    },
    sys::SocketAddr,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    NetChange,
    diff::diff,
    dump::{Neighbour, Resolution, by_key, dump, neighbour},
    table::Table,
};

/// Time between two dumps, so that a routing daemon's start does not keep the gateway busy.
const DUMP_GAP: Duration = Duration::from_millis(50);
/// Neighbours kept resolved: one per group of the data path (`keepline_common::limits`).
const MAX_MANAGED: usize = keepline_common::limits::GROUPS as usize;
/// Requests and changes under way.
const QUEUE: usize = 1024;

/// The kernel's network state: a table to look things up in, and neighbours kept resolved.
#[derive(Debug, Clone)]
pub struct Netlink {
    table: Arc<RwLock<Arc<Table>>>,
    wanted: mpsc::Sender<(u32, IpAddr)>,
    /// Interfaces whose traffic another device carries, and which.
    carried: Arc<RwLock<HashMap<String, String>>>,
}

impl Netlink {
    /// Reads everything once and then keeps it current in a task of its own, until the receiver
    /// is dropped. The table is always at least as new as the changes received.
    ///
    /// # Errors
    /// When there is no netlink, or the kernel refuses the first dump.
    pub async fn start() -> io::Result<(Self, mpsc::Receiver<NetChange>)> {
        let (connection, handle, messages) = rtnetlink::new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        tokio::spawn(connection);
        let table = Arc::new(RwLock::new(Arc::new(Table::default())));
        let (wanted, requests) = mpsc::channel(QUEUE);
        let (changes, receiver) = mpsc::channel(QUEUE);
        let mut watcher = Watcher {
            handle,
            messages,
            requests,
            changes,
            shared: table.clone(),
            now: Table::default(),
            told: Table::default(),
            queue: VecDeque::new(),
            managed: HashSet::new(),
            next_dump: None,
            dirty: false,
            untold: false,
        };
        watcher.dump().await.map_err(io::Error::other)?;
        // The first table is read, not told.
        watcher.told = watcher.now.clone();
        watcher.publish();
        watcher.dirty = false;
        tokio::spawn(watcher.run());
        let netlink = Self {
            table,
            wanted,
            carried: Arc::default(),
        };
        Ok((netlink, receiver))
    }

    /// The present table. Take one per decision: two looks may differ.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What the configuration calls `interface` is on this device from now on: another tunnel
    /// carries it.
    pub fn carry(&self, interface: &str, device: &str) {
        let mut carried = self.carried.write().unwrap_or_else(PoisonError::into_inner);
        if interface == device {
            carried.remove(interface);
        } else {
            carried.insert(interface.to_owned(), device.to_owned());
        }
    }

    /// The device that carries an interface: its own, as a rule.
    #[must_use]
    pub fn device_of(&self, interface: &str) -> String {
        let carried = self.carried.read().unwrap_or_else(PoisonError::into_inner);
        carried
            .get(interface)
            .map_or(interface, String::as_str)
            .to_owned()
    }

    /// Has the kernel resolve a neighbour and keep it resolved although no packet of its own
    /// confirms it (`NTF_EXT_MANAGED`). Cheap when it is so already; a full queue forgets the
    /// request, and the next look-up makes it again.
    pub fn manage(&self, ifindex: u32, ip: IpAddr) {
        let _ = self.wanted.try_send((ifindex, ip));
    }
}

struct Watcher {
    handle: Handle,
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    requests: mpsc::Receiver<(u32, IpAddr)>,
    changes: mpsc::Sender<NetChange>,
    shared: Arc<RwLock<Arc<Table>>>,
    /// As the kernel has it.
    now: Table,
    /// As the receiver has been told, or will be by `queue`.
    told: Table,
    queue: VecDeque<NetChange>,
    managed: HashSet<(u32, IpAddr)>,
    next_dump: Option<Instant>,
    /// `now` is newer than the published table.
    dirty: bool,
    /// The published table is newer than `told`.
    untold: bool,
}

impl Watcher {
    async fn run(mut self) {
        let changes = self.changes.clone();
        let mut last_dump = Instant::now();
        loop {
            self.tell();
            let due = self.next_dump;
            tokio::select! {
                message = self.messages.next() => match message {
                    Some((message, _)) => self.message(message, last_dump).await,
                    None => return tracing::error!("netlink ended: network changes are no longer seen"),
                },
                () = sleep_until(due.unwrap_or(last_dump)), if due.is_some() => {
                    self.next_dump = None;
                    if let Err(error) = self.dump().await {
                        tracing::warn!(%error, "netlink dump failed, trying again");
                        self.next_dump = Some(Instant::now() + DUMP_GAP);
                    }
                    last_dump = Instant::now();
                }
                Ok(permit) = changes.reserve(), if !self.queue.is_empty() => {
                    if let Some(change) = self.queue.pop_front() {
                        permit.send(change);
                    }
                }
                Some((ifindex, ip)) = self.requests.recv() => self.want(ifindex, ip).await,
                () = changes.closed() => return,
            }
        }
    }

    /// Publishes a changed table at once; queues what differs from what was told when that has
    /// been taken, so that the queue never holds more than one difference between two tables.
    fn tell(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.publish();
            self.untold = true;
        }
        if self.untold && self.queue.is_empty() {
            self.queue.extend(diff(&self.told, &self.now));
            self.told = self.now.clone();
            self.untold = false;
        }
    }

    fn publish(&self) {
        *self.shared.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(self.now.clone());
    }

    async fn message(&mut self, message: NetlinkMessage<RouteNetlinkMessage>, last_dump: Instant) {
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => {
                if let Some(neighbour) = neighbour(&message) {
                    self.dirty |= self.now.apply(&neighbour);
                }
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(message)) => {
                if let Some(gone) = neighbour(&message) {
                    self.neighbour_gone(gone.ifindex, gone.ip).await;
                }
            }
            // An overrun has lost messages: only a dump tells which.
            NetlinkPayload::InnerMessage(_) | NetlinkPayload::Overrun(_) => {
                self.next_dump.get_or_insert(last_dump + DUMP_GAP);
            }
            _ => {}
        }
    }

    /// A flushed entry says nothing about the neighbour: one that is wanted keeps its MAC and
    /// is asked for again.
    async fn neighbour_gone(&mut self, ifindex: u32, ip: IpAddr) {
        if self.managed.contains(&(ifindex, ip)) {
            self.install(ifindex, ip).await;
        } else {
            self.dirty |= self.now.neighbours.remove(&(ifindex, ip)).is_some();
        }
    }

    async fn dump(&mut self) -> Result<(), rtnetlink::Error> {
        let (mut table, neighbours) = dump(&self.handle).await?;
        let known = by_key(&neighbours);
        self.managed
            .retain(|(ifindex, _)| table.links.contains_key(ifindex));
        for key in &self.managed {
            if let Some(&mac) = self.now.neighbours.get(key) {
                table.neighbours.insert(*key, mac);
            }
        }
        for neighbour in &neighbours {
            table.apply(neighbour);
        }
        self.dirty |= table != self.now;
        self.now = table;
        let lost: Vec<_> = self
            .managed
            .iter()
            .filter(|key| known.get(*key).is_none_or(|neighbour| !neighbour.managed))
            .copied()
            .collect();
        for (ifindex, ip) in lost {
            self.install(ifindex, ip).await;
        }
        Ok(())
    }

    async fn want(&mut self, ifindex: u32, ip: IpAddr) {
        if self.managed.len() >= MAX_MANAGED {
            return tracing::warn!(%ip, "too many neighbours are kept resolved; this one is not");
        }
        if self.managed.insert((ifindex, ip)) {
            self.install(ifindex, ip).await;
        }
    }

    async fn install(&self, ifindex: u32, ip: IpAddr) {
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

impl Table {
    /// Only another MAC or a failure changes an entry; being stale or asked for does not. Tells
    /// whether it did.
    fn apply(&mut self, neighbour: &Neighbour) -> bool {
        let key = (neighbour.ifindex, neighbour.ip);
        match neighbour.state {
            Resolution::At(mac) => self.neighbours.insert(key, mac) != Some(mac),
            Resolution::Failed => self.neighbours.remove(&key).is_some(),
            Resolution::Pending => false,
        }
    }
}
