//! SIP transactions over datagrams and streams (RFC 3261 section 17, RFC 6026, RFC 3581).

mod client;
mod key;
mod server;
mod table;
mod timers;

use std::net::SocketAddr;

pub use table::Transactions;
pub use timers::Timers;

use crate::{net::ListenerId, sip::Method};

/// A server transaction: a request that someone sent us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub(crate) u64);

/// A client transaction: a request that we sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub(crate) u64);

/// What tells a client transaction from all others (RFC 3261 section 17.1.3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey {
    /// The branch of our Via.
    pub branch: Vec<u8>,
    /// The sent-by of our Via.
    pub sent_by: Vec<u8>,
    /// The method; methods without a name of their own share one, which the branch tells apart.
    pub method: Method,
}

/// What became of an incoming request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Incoming {
    /// A retransmission, or the ACK of a non-2xx: done with.
    Absorbed,
    /// A new request.
    New(ServerId),
    /// A new CANCEL, to be answered like any request.
    Cancel {
        /// The INVITE it is about; `None` when there is none (any more): 481.
        invite: Option<ServerId>,
        /// The CANCEL's own transaction.
        id: ServerId,
    },
    /// An ACK that belongs to no transaction: that of a 2xx.
    Ack2xx,
    /// No room: counted, and the request was not taken.
    Overloaded,
}

/// What became of an incoming response that belongs to a client transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// A 1xx.
    Provisional,
    /// A final response. A 2xx to INVITE is reported each time it comes: each needs its ACK.
    Final,
    /// A response without further meaning: a final one seen before (for an INVITE its ACK was
    /// sent again), or a 1xx that a final one has overtaken.
    Retransmitted,
}

/// A transaction of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyId {
    /// A client transaction.
    Client(ClientId),
    /// A server transaction.
    Server(ServerId),
}

/// What the driver must do or know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Output {
    /// Send this message.
    Send {
        /// The socket to send from.
        listener: ListenerId,
        /// Where to.
        to: SocketAddr,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A request was sent again: it has not been answered yet.
    Retransmitted(ClientId),
    /// A request was not answered finally in 64·T1 (timer B or F); it ends with this.
    TimedOut(ClientId),
    /// The transaction is over; its id means nothing any more.
    Ended(AnyId),
}

/// Bounds of the table, and its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Server transactions at once. Bounded apart from the others, so that a flood of requests
    /// leaves room for our own.
    pub servers: usize,
    /// Client transactions at once.
    pub clients: usize,
    /// Bytes of requests and responses kept for sending again, both kinds together.
    pub bytes: usize,
    /// T1, T2 and T4.
    pub timers: Timers,
}

impl Default for Limits {
    fn default() -> Self {
        let timers = Timers::default();
        Self {
            servers: 50_000,
            clients: 50_000,
            bytes: 256 << 20,
            timers,
        }
    }
}

/// What is in the table, and what did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Server transactions now.
    pub servers: usize,
    /// Client transactions now.
    pub clients: usize,
    /// Bytes kept for sending again.
    pub bytes: usize,
    /// Requests not taken, or not sent, because a limit was reached.
    pub refused: u64,
    /// Requests of ours sent again.
    pub retransmitted: u64,
    /// Messages that came again and were absorbed.
    pub absorbed: u64,
}

/// Why the machine wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A transaction's timer, by its letter in RFC 3261 section 17 (L and M: RFC 6026).
    Timer(char),
}

/// What is needed to cancel a client transaction (RFC 3261 section 9.1): give the request to
/// [`cancel_for`](crate::sip::cancel_for), and start the result as a transaction of its own with
/// the same branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancel<'t> {
    /// The request as it was sent.
    pub request: &'t [u8],
    /// Where it was sent.
    pub to: SocketAddr,
    /// From which socket.
    pub listener: ListenerId,
}
