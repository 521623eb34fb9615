//! Keeps the [`Table`] current.
//!
//! Neighbours are followed message by message. Anything else that changes leads to a new dump
//! of everything: a link that goes down takes its routes along without a word about them, and
//! the removal of a primary address that of its secondaries.

mod managed;

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
    packet_route::RouteNetlinkMessage,
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
/// Requests and changes under way.
const QUEUE: usize = 1024;

/// The kernel's network state: a table to look things up in, and neighbours kept resolved.
#[derive(Debug, Clone)]
pub struct Netlink {
    table: Arc<RwLock<Arc<Table>>>,
    wanted: mpsc::Sender<Request>,
    /// Interfaces whose traffic another device carries, and which.
    carried: Arc<RwLock<HashMap<String, String>>>,
}

/// What the kernel shall do about neighbours.
#[derive(Debug, Clone, Copy)]
enum Request {
    /// Keep this one resolved.
    Manage(u32, IpAddr),
    /// Ask none of this link, which another device carries.
    Rest(u32),
    /// Ask those of this link again.
    Wake(u32),
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
            resting: HashSet::new(),
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
    /// carries it. Neighbours of its own device are not asked meanwhile: a question tells them
    /// that our address is there, and draws traffic to a tunnel that is not believed in yet.
    pub fn carry(&self, interface: &str, device: &str) {
        let own = self.table().link_by_name(interface).map(|(index, _)| index);
        if let Some(own) = own {
            let _ = self.wanted.try_send(match interface == device {
                true => Request::Wake(own),
                false => Request::Rest(own),
            });
        }
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
        let _ = self.wanted.try_send(Request::Manage(ifindex, ip));
    }
}

struct Watcher {
    handle: Handle,
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    requests: mpsc::Receiver<Request>,
    changes: mpsc::Sender<NetChange>,
    shared: Arc<RwLock<Arc<Table>>>,
    /// As the kernel has it.
    now: Table,
    /// As the receiver has been told, or will be by `queue`.
    told: Table,
    queue: VecDeque<NetChange>,
    managed: HashSet<(u32, IpAddr)>,
    /// Links whose neighbours are not asked: what is known of them stays.
    resting: HashSet<u32>,
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
                Some(request) = self.requests.recv() => self.asked(request).await,
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
                if let Some(neighbour) = neighbour(&message).filter(|one| !self.rests(one)) {
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
        for neighbour in neighbours.iter().filter(|one| !self.rests(one)) {
            table.apply(neighbour);
        }
        self.dirty |= table != self.now;
        self.now = table;
        let lost: Vec<_> = self
            .managed
            .iter()
            .filter(|key| known.get(*key).is_none_or(|neighbour| !neighbour.managed))
            .filter(|(ifindex, _)| !self.resting.contains(ifindex))
            .copied()
            .collect();
        for (ifindex, ip) in lost {
            self.install(ifindex, ip).await;
        }
        Ok(())
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
