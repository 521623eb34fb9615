//! Connections that carry SIP: which there are, with whom, and how many may be.
//!
//! The engine names a connection by its listener and its peer, as it names a datagram's way. This
//! table finds the connection for a message or opens one; each has a task of its own
//! ([`connection`]) that reports through the driver's queue. Nothing here is unbounded: a source,
//! a connection's queue, and all half-read messages together have limits, and whoever exceeds one
//! loses its connection, not others theirs.

mod carried;
mod connect;
mod connection;
mod listen;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use keepline_engine::{
    net::ListenerId,
    sip::stream::{Broken, Frame},
};
use tokio::{
    net::TcpStream,
    runtime::Handle,
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use socket2::SockRef;
use tokio_rustls::rustls::pki_types::ServerName;

use self::{
    connect::{Secure, Way},
    connection::{Patience, Queue, Wire},
    listen::Path,
};
use super::sockets::Heard;
use crate::tls::Tls;

/// Connections at a time, over all listeners.
const MAX_CONNECTIONS: usize = 4096;
/// Connections that one address may open.
const MAX_PER_SOURCE: usize = 256;
/// Messages that wait to be written to one peer.
const MAX_WAITING: usize = 256;
/// Their bytes.
const MAX_WAITING_BYTES: usize = 512 << 10;

/// A connection's name: the listener, and the address at its far end.
pub(super) type Key = (ListenerId, SocketAddr);

/// What became of a connection.
#[derive(Debug)]
pub(in crate::driver) enum Told {
    /// Somebody connected; nobody has looked at who.
    Accepted {
        /// The listener, and who.
        key: Key,
        /// The connection.
        socket: TcpStream,
    },
    /// Something whole came.
    Frame {
        /// Which connection.
        key: Key,
        /// Which of those that had this name.
        id: u64,
        /// What came.
        frame: Frame,
    },
    /// It cannot be read on. The connection stays for an answer until it is closed.
    Broken {
        /// Which connection.
        key: Key,
        /// Which of those that had this name.
        id: u64,
        /// The header lines of what was begun.
        begun: Vec<u8>,
        /// Why.
        why: Broken,
    },
    /// It could not be opened.
    Failed {
        /// Which connection.
        key: Key,
        /// Which of those that had this name.
        id: u64,
        /// The system's reason, or ours.
        why: String,
        /// The peer was reached, and is not who it must be.
        distrusted: bool,
    },
    /// Who connected over TLS showed a certificate that was checked.
    Certified {
        /// Which connection.
        key: Key,
        /// Which of those that had this name.
        id: u64,
        /// The certificate, DER.
        certificate: Vec<u8>,
    },
    /// One that we opened stands.
    Opened {
        /// Which connection.
        key: Key,
        /// Which of those that had this name.
        id: u64,
    },
    /// It ended.
    Ended {
        /// Which connection.
        key: Key,
        /// Which of those that had this name.
        id: u64,
    },
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no connection, and no room for another.
    NoRoom,
    /// The peer does not read: its connection is gone now.
    NotRead,
}

/// A listener over connections.
#[derive(Debug)]
struct Place {
    interface: String,
    address: SocketAddr,
    /// Whether it speaks TLS.
    secure: bool,
    listening: Arc<tokio::net::TcpListener>,
    accepting: JoinHandle<()>,
    /// What is connected to by a device that the interface was on.
    ear: Option<carried::Ear>,
}

/// A second handle of a connection's socket, from when there is one.
type Hold = Arc<OnceLock<OwnedFd>>;

/// One connection, open or being opened.
#[derive(Debug)]
struct Connection {
    id: u64,
    out: mpsc::Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    task: AbortHandle,
    /// Its socket once more, where it may have to move to another device.
    socket: Option<Hold>,
    /// The source that it counts for: whoever connected to us.
    source: Option<IpAddr>,
    /// It stands: what waits can be written.
    stands: bool,
}

/// Every listener over connections, and every connection.
#[derive(Debug)]
pub(super) struct Streams {
    heard: mpsc::Sender<Heard>,
    /// What runs them: threads beside the loop's.
    beside: Handle,
    places: BTreeMap<ListenerId, Place>,
    /// Listeners that stand for the addresses of softswitches, by whose socket (transparent
    /// mode).
    stand_ins: BTreeMap<ListenerId, (ListenerId, SocketAddr)>,
    connections: HashMap<Key, Connection>,
    /// Where else a connection leads (RFC 5923): what is sent there may take it.
    aliases: HashMap<Key, SocketAddr>,
    sources: HashMap<IpAddr, usize>,
    /// Bytes of messages that are not whole, over all connections.
    held: Arc<AtomicUsize>,
    /// Connections refused because a table was full.
    refused: u64,
    /// Interfaces that another device may have to carry, and which one does.
    carried: HashMap<String, String>,
    /// The marks that lead their connections, where rules lead marks.
    marks: HashMap<String, u32>,
    /// Certificates in force.
    tls: Option<Tls>,
    /// The domain that a server's certificate must be of.
    domains: HashMap<SocketAddr, String>,
    /// Servers that were last met with a certificate that is not theirs.
    distrusted: HashSet<SocketAddr>,
    patience: Patience,
    next: u64,
}

impl Streams {
    /// No listener yet; what happens goes to `heard`. Phones are told to refresh every
    /// `refresh`, so that a connection which is silent for much longer is nobody's. The work of
    /// connections is done `beside`.
    #[must_use]
    pub(super) fn new(heard: mpsc::Sender<Heard>, refresh: Duration, beside: Handle) -> Self {
        Self {
            heard,
            beside,
            places: BTreeMap::new(),
            stand_ins: BTreeMap::new(),
            connections: HashMap::new(),
            aliases: HashMap::new(),
            sources: HashMap::new(),
            held: Arc::default(),
            refused: 0,
            carried: HashMap::new(),
            marks: HashMap::new(),
            tls: None,
            domains: HashMap::new(),
            distrusted: HashSet::new(),
            patience: Patience::with(refresh),
            next: 0,
        }
    }

    /// Later connections over TLS show and expect what was read now.
    pub(super) fn set_tls(&mut self, tls: Tls) {
        self.tls = Some(tls);
    }

    /// A server at this address shows a certificate of this domain.
    pub(super) fn expect(&mut self, server: SocketAddr, domain: &str) {
        self.domains.insert(server, domain.to_owned());
    }

    /// Takes note of whether a server is who it must be; `true` when that is news.
    pub(super) fn trust(&mut self, server: SocketAddr, trusted: bool) -> bool {
        match trusted {
            true => self.distrusted.remove(&server),
            false => self.distrusted.insert(server),
        }
    }

    /// Opens a listener, bound to its interface. With `takes` it is connected to whatever address
    /// phones connect to.
    ///
    /// # Errors
    /// When the port is taken, the address is not ours, or the process may not bind it.
    pub(super) fn listen(
        &mut self,
        listener: ListenerId,
        interface: &str,
        at: SocketAddr,
        (secure, takes): (bool, bool),
    ) -> io::Result<()> {
        let _beside = self.beside.enter();
        let path = Path::Device(interface.to_owned());
        let listening = Arc::new(listen::bind(&path, at, takes)?);
        let accept = listen::accept(listener, listening.clone(), self.heard.clone());
        let place = Place {
            interface: interface.to_owned(),
            address: at,
            secure,
            listening,
            accepting: tokio::spawn(accept),
            ear: None,
        };
        self.places.insert(listener, place);
        Ok(())
    }

    /// Connections of `listener` are those of `taker` with a softswitch's address at our end.
    pub(super) fn stand_in(&mut self, listener: ListenerId, taker: ListenerId, at: SocketAddr) {
        self.stand_ins.insert(listener, (taker, at));
    }

    /// The listener whose socket another one uses.
    fn taker(&self, listener: ListenerId) -> ListenerId {
        let stands_in = self.stand_ins.get(&listener);
        stands_in.map_or(listener, |(taker, _)| *taker)
    }

    /// Where a listener's connections are taken.
    fn place(&self, listener: ListenerId) -> Option<&Place> {
        self.places.get(&self.taker(listener))
    }

    /// How many connections a listener has at present.
    #[must_use]
    pub(super) fn count(&self, listener: ListenerId) -> usize {
        let of_it = |key: &&Key| self.taker(key.0) == listener;
        self.connections.keys().filter(of_it).count()
    }

    /// How many connections were refused because there were too many.
    #[must_use]
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a connection that somebody opened; `false` when there are too many.
    pub(super) fn adopt(&mut self, key: Key, socket: TcpStream) -> bool {
        let source = key.1.ip();
        let of_source = self.sources.get(&source).copied().unwrap_or(0);
        if self.connections.len() >= MAX_CONNECTIONS || of_source >= MAX_PER_SOURCE {
            self.refused += 1;
            return false;
        }
        let place = self.places.get(&key.0);
        if let Some(place) = place
            && let path @ Path::Mark(_) = self.path(&place.interface)
            && let Err(error) = path.set(&SockRef::from(&socket))
        {
            tracing::debug!(%error, peer = %key.1, "it stays where it connected");
        }
        let secure = place.is_some_and(|place| place.secure);
        let tls = match (secure, &self.tls) {
            (false, _) => None,
            (true, Some(tls)) => Some(tls.acceptor()),
            (true, None) => return false,
        };
        *self.sources.entry(source).or_default() += 1;
        let beside = self.beside.clone();
        let start = |wire, queue| beside.spawn(connection::accepted(socket, tls, wire, queue));
        self.put(key, Some(source), start);
        true
    }

    /// Sends over the connection with that name, an alias of it, or a new one.
    ///
    /// # Errors
    /// When nothing was sent, nor will be.
    pub(super) fn send(&mut self, key: Key, bytes: Vec<u8>) -> Result<(), Refused> {
        let way = self.way(key);
        if !self.connections.contains_key(&way) {
            self.open(way)?;
        }
        let Some(connection) = self.connections.get(&way) else {
            return Err(Refused::NoRoom);
        };
        let waiting = connection.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if waiting > MAX_WAITING_BYTES || connection.out.try_send(bytes).is_err() {
            self.drop_now(way);
            return Err(Refused::NotRead);
        }
        Ok(())
    }

    /// Whether this is the connection that now has its name, and not an earlier one.
    #[must_use]
    pub(super) fn is_current(&self, key: Key, id: u64) -> bool {
        self.connections.get(&key).is_some_and(|now| now.id == id)
    }

    /// A connection that we opened stands.
    pub(super) fn opened(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.stands = true;
        }
    }

    /// Ends a connection once what waits was written, or at once where it does not stand yet:
    /// nobody expects any more what would be written then. `false` when there is none.
    pub(super) fn close(&mut self, key: Key) -> bool {
        // Its task ends when nothing can be sent to it any more.
        let closed = self.take(key);
        if let Some(connection) = closed.as_ref().filter(|closed| !closed.stands) {
            connection.task.abort();
        }
        closed.is_some()
    }

    /// What is sent to `of` may go over the connection with `peer`.
    pub(super) fn alias(&mut self, listener: ListenerId, peer: SocketAddr, of: SocketAddr) {
        if self.connections.contains_key(&(listener, peer)) {
            self.aliases.insert((listener, of), peer);
        }
    }

    /// The connection that a message takes.
    fn way(&self, key: Key) -> Key {
        if self.connections.contains_key(&key) {
            return key;
        }
        let alias = self.aliases.get(&key).map(|peer| (key.0, *peer));
        alias
            .filter(|way| self.connections.contains_key(way))
            .unwrap_or(key)
    }

    fn open(&mut self, key: Key) -> Result<(), Refused> {
        if self.connections.len() >= MAX_CONNECTIONS {
            self.refused += 1;
            return Err(Refused::NoRoom);
        }
        let Some(place) = self.place(key.0) else {
            return Err(Refused::NoRoom);
        };
        let stands_in = self.stand_ins.get(&key.0).map(|(_, at)| *at);
        let way = Way {
            path: self.path(&place.interface),
            // What comes back must be taken too: only one port is.
            from: stands_in.unwrap_or(SocketAddr::new(place.address.ip(), 0)),
            takes: stands_in.is_some(),
            secure: place.secure.then(|| self.secure(key.1)),
        };
        let beside = self.beside.clone();
        let start = |wire, queue| beside.spawn(connection::opened(way, wire, queue));
        self.put(key, None, start);
        Ok(())
    }

    /// How a server proves who it is; why nobody at this address can.
    fn secure(&self, to: SocketAddr) -> Result<Secure, String> {
        let (Some(tls), Some(domain)) = (&self.tls, self.domains.get(&to)) else {
            return Err("nothing says whose certificate is right there".to_owned());
        };
        let connector = tls.connector(domain, to.ip());
        let name = ServerName::try_from(domain.clone());
        Ok(Secure {
            connector: connector.map_err(|error| error.to_string())?,
            name: name.map_err(|error| error.to_string())?,
        })
    }

    fn put(
        &mut self,
        key: Key,
        source: Option<IpAddr>,
        start: impl FnOnce(Wire, Queue) -> JoinHandle<()>,
    ) {
        self.next += 1;
        let (out, queue) = mpsc::channel(MAX_WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        let place = self.place(key.0);
        let moves = place.is_some_and(|place| self.carried.contains_key(&place.interface));
        let socket = moves.then(Hold::default);
        let wire = Wire {
            key,
            id: self.next,
            waiting: waiting.clone(),
            hold: socket.clone(),
            heard: self.heard.clone(),
            held: self.held.clone(),
            patience: self.patience,
        };
        let task = start(wire, queue);
        let connection = Connection {
            id: self.next,
            out,
            waiting,
            task: task.abort_handle(),
            socket,
            source,
            stands: source.is_some(),
        };
        self.connections.insert(key, connection);
    }

    /// Ends a connection at once, with whatever waits.
    fn drop_now(&mut self, key: Key) {
        if let Some(connection) = self.take(key) {
            connection.task.abort();
        }
    }

    fn take(&mut self, key: Key) -> Option<Connection> {
        let connection = self.connections.remove(&key)?;
        self.aliases.retain(|of, peer| (of.0, *peer) != key);
        if let Some(source) = connection.source
            && let Some(count) = self.sources.get_mut(&source)
        {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
        Some(connection)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for place in self.places.values() {
            place.accepting.abort();
        }
        for connection in self.connections.values() {
            connection.task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
