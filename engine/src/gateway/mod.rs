//! The machine that joins all others: a dialog-stateful, topology-hiding SIP proxy with the
//! health of its softswitches, the bindings of its phones and the media of its calls.
//!
//! # The loop to write
//! Feed one input ([`Gateway::datagram`], [`Gateway::unreachable`], ..., or
//! [`Gateway::handle_timeout`]), drain [`Gateway::poll_output`] until `None`, then sleep until
//! [`Gateway::poll_timeout`] or the next input. Outputs are in the order in which they must
//! happen: flows are steered before the answer that makes media come.

mod bindings;
mod bodies;
mod branches;
mod bring;
mod calls;
mod cancel;
mod context;
mod deadlines;
mod dialogs;

mod forks;
mod hunting;
mod in_dialog;
mod intercept;
mod learned;
mod nonces;
mod operate;
mod outbound;
mod outgoing;
mod persist;
mod proof;
mod records;
mod refresh;
mod refusals;
mod registered;
mod registrar;
mod relay;
mod release;
mod request;
mod respond;
mod response;
mod serving;
mod shared;
mod silence;
mod sizes;
mod strays;
mod streams;
mod stun;
mod subscriptions;
mod superseded;
mod survive;
mod targets;
mod through;
mod timers;
mod topology;
mod unanswered;
mod upstream;
mod views;
mod words;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    net::{IpAddr, SocketAddr},
};

use bindings::Bindings;
use context::Context;
use deadlines::Deadlines;
use dialogs::Dialogs;
use nonces::Nonces;
use release::Release;
use topology::Topology;

pub use operate::SwitchError;
pub use proof::Proof;
pub use records::{
    AskedRecord, BindingRecord, Change, DialogRecord, ListenerRecord, PartyRecord, PathRecord,
    Records, Restored,
};
pub use through::Sender;
pub use views::{CallView, LegView, RegistrationView};

use crate::{
    conf::Conf,
    event::Event,
    health::{Health, ProbeId, RequestId},
    media::Media,
    net::{GroupId, LinkId, ListenerId, Side},
    rng::Rng,
    steer::{Delta, FlowId, Gate, TalkId},
    time::{Mono, Now},
    transaction::{ClientId, ServerId, Transactions},
};

/// What the driver must do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a message from a listener: as a datagram from its socket, or over its connection
    /// with that peer, which is opened where there is none.
    Send {
        /// Whose socket.
        listener: ListenerId,
        /// Where to.
        to: SocketAddr,
        /// The whole message.
        bytes: Vec<u8>,
    },
    /// Close a stream listener's connection.
    Close {
        /// Whose.
        listener: ListenerId,
        /// With whom.
        peer: SocketAddr,
    },
    /// The party at `peer` also takes what is sent to `of`, over the connection it opened
    /// (RFC 5923).
    Alias {
        /// The listener it is connected to.
        listener: ListenerId,
        /// The connection's far end.
        peer: SocketAddr,
        /// Where it says that it listens.
        of: SocketAddr,
    },
    /// Change the data path.
    Steer(Delta),
    /// Write this to the store, before any later output is carried out.
    Keep(Change),
    /// Record a change of state.
    Event(Event),
    /// Tell [`Gateway::silent_for`] how long ago the last packet of any of these flows passed.
    Silence {
        /// Whose media.
        dialog: u64,
        /// Its flows.
        flows: Vec<FlowId>,
    },
    /// Send a datagram of a phone on to its softswitch, in the phone's own name.
    Pass {
        /// The link it leaves by.
        link: LinkId,
        /// Whose it is.
        from: SocketAddr,
        /// Where to.
        to: SocketAddr,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// Tell [`Gateway::stamped`] what the data path stamped of this talk.
    Stamps(TalkId),
}

/// What is counted rather than logged: hostile input must not flood a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Datagrams that are no SIP message and no keepalive.
    pub malformed: u64,
    /// Messages from WAN sources that may not speak here.
    pub not_a_peer: u64,
    /// Responses and ACKs that belong to nothing.
    pub stray: u64,
    /// Requests refused because a table was full.
    pub table_full: u64,
    /// Requests that were sent to another server.
    pub hunts: u64,
    /// Keepalives answered or absorbed in userspace.
    pub keepalives: u64,
    /// Messages over 1,300 bytes that went over UDP (RFC 3261 section 18.1.1).
    pub large_over_udp: u64,
    /// Datagrams of phones sent on as they were.
    pub passed: u64,
    /// Copies of what the data path routed that were looked at.
    pub copies: u64,
    /// Copies that were lost: what they would have said is no evidence.
    pub copies_lost: u64,
}

/// The gateway. One value, owned by one task.
#[derive(Debug)]
pub struct Gateway {
    conf: Conf,
    topology: Topology,
    transactions: Transactions,
    health: Health,
    media: Media,
    bindings: Bindings,
    dialogs: Dialogs,
    nonces: Nonces,
    deadlines: Deadlines,
    contexts: HashMap<u64, Context>,
    /// Which context and branch a client transaction belongs to.
    by_client: HashMap<ClientId, (u64, usize)>,
    by_server: HashMap<ServerId, u64>,
    by_health: HashMap<RequestId, (u64, usize)>,
    probes: HashMap<ClientId, ProbeId>,
    /// What each group's clients are told (signalling.md section 8).
    gates: Vec<Gate>,
    /// Which groups have no server left.
    alone: Vec<bool>,
    /// When something last went wrong, or became well, on a link.
    trouble: BTreeMap<LinkId, Mono>,
    /// Softswitches that no group of the configuration names.
    learned: learned::Learned,
    /// What goes through as it is.
    talks: through::Talks,
    /// Which refused strangers were told of.
    refusals: refusals::Refusals,
    /// Paces due registrations after a return.
    release: Release,
    /// Phones on streams that shall register anew.
    bring: bring::Bring,
    /// Keepalives of our own.
    upstream: upstream::Flows,
    /// Set while draining (signalling.md section 14).
    draining: Option<Mono>,
    /// Connections that a frame came by, and that are not known to be gone.
    connected: HashSet<(ListenerId, SocketAddr)>,
    /// Ethernet addresses of neighbours on LAN links.
    neighbours: HashMap<(LinkId, IpAddr), [u8; 6]>,
    /// SHA-256 of the certificates of TLS clients.
    certificates: HashMap<(ListenerId, SocketAddr), [u8; 32]>,
    /// Where else their far ends say that they listen, and which connection leads there.
    aliased: HashMap<(ListenerId, SocketAddr), SocketAddr>,
    /// Next hops that take no large request over a stream.
    sizes: sizes::Sizes,
    counters: Counters,
    /// What the store was told.
    kept: persist::Kept,
    /// Both clocks at the last input: how wall-clock times are told to the store.
    clock: Now,
    rng: Rng,
    next: u64,
    out: VecDeque<Output>,
}

/// Why the gateway wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A SIP transaction's timer.
    Transaction(crate::transaction::Reason),
    /// A health timer.
    Health(crate::health::Reason),
    /// A timer of the proxy itself: ringing, silent phones, bindings.
    Proxy,
}

impl Gateway {
    /// A gateway with no bindings and no calls. `seed` drives jitter only.
    #[must_use]
    pub fn new(now: Now, conf: Conf, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let groups = conf
            .groups
            .iter()
            .map(|group| group.health.clone())
            .collect();
        let wan = conf.wan_links();
        let health = Health::new(now, groups, wan, rng.next_u64());
        let media = Media::new(conf.media.clone(), conf.media_links());
        let mut gateway = Self {
            topology: Topology::new(&conf),
            transactions: Transactions::new(crate::transaction::Limits::default())
                .over_streams(conf.streams()),
            health,
            media,
            bindings: Bindings::default(),
            dialogs: Dialogs::default(),
            nonces: Nonces::default(),
            deadlines: Deadlines::default(),
            contexts: HashMap::new(),
            by_client: HashMap::new(),
            by_server: HashMap::new(),
            by_health: HashMap::new(),
            probes: HashMap::new(),
            gates: vec![Gate::Serving; conf.groups.len()],
            alone: vec![false; conf.groups.len()],
            trouble: BTreeMap::new(),
            learned: learned::Learned::behind(conf.groups.len()),
            talks: through::Talks::default(),
            refusals: refusals::Refusals::default(),
            release: Release::default(),
            bring: bring::Bring::default(),
            upstream: upstream::Flows::default(),
            draining: None,
            connected: HashSet::new(),
            neighbours: HashMap::new(),
            certificates: HashMap::new(),
            aliased: HashMap::new(),
            sizes: sizes::Sizes::default(),
            counters: Counters::default(),
            kept: persist::Kept::default(),
            clock: now,
            rng,
            next: 0,
            out: VecDeque::new(),
            conf,
        };
        for group in (0..).take(gateway.conf.groups.len()) {
            gateway.keep_alive(now, GroupId(group));
        }
        gateway.pump(now);
        gateway
    }

    /// The next thing to do; `None` when all is done.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When to call [`Self::handle_timeout`], and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Reason)> {
        let transaction = self
            .transactions
            .poll_timeout()
            .map(|(at, why)| (at, Reason::Transaction(why)));
        let health = self
            .health
            .poll_timeout()
            .map(|(at, why)| (at, Reason::Health(why)));
        let own = self.deadlines.next().map(|(at, _)| (at, Reason::Proxy));
        [transaction, health, own]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The configuration in force.
    #[must_use]
    pub fn conf(&self) -> &Conf {
        &self.conf
    }

    /// The health machine, for views.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The media machine, for views and for reconciling the data path.
    #[must_use]
    pub fn media(&self) -> &Media {
        &self.media
    }

    fn side(&self, listener: ListenerId) -> Side {
        let link = self.conf.listeners[usize::from(listener.0)].link;
        self.conf.links[usize::from(link.0)].side
    }

    fn fresh_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What the datagram makes visible is in the store before it leaves (signalling.md
    /// section 5).
    fn send(&mut self, listener: ListenerId, to: SocketAddr, bytes: Vec<u8>) {
        self.keep_changes();
        self.out.push_back(Output::Send {
            listener,
            to,
            bytes,
        });
    }
}
