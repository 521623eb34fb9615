//! SIP transactions over UDP (RFC 3261 section 17, RFC 6026, RFC 3581).

use std::net::SocketAddr;

use crate::{
    net::ListenerId,
    sip::{Message, Method},
    time::{Mono, Now},
};

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
    /// A new CANCEL (to be answered like any request), and the INVITE it is about.
    Cancel {
        /// The INVITE's transaction, if there is one that is not yet over.
        invite: Option<ServerId>,
        /// The CANCEL's own.
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
    /// A final response seen before; for an INVITE its ACK was sent again.
    Retransmitted,
}

/// Which transaction ended.
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
    /// Send this datagram.
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
    /// A request was not answered in 64·T1 (timer B or F).
    TimedOut(ClientId),
    /// The transaction is over; its id means nothing any more.
    Ended(AnyId),
}

/// Bounds of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Transactions of both kinds at once.
    pub transactions: usize,
}

/// Why the machine wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A transaction's timer, by its letter in RFC 3261 section 17 (or RFC 6026).
    Timer(char),
}

/// What is needed to build the CANCEL of a client transaction (RFC 3261 section 9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancel<'t> {
    /// The request as it was sent.
    pub request: &'t [u8],
    /// Where it was sent.
    pub to: SocketAddr,
    /// From which socket.
    pub listener: ListenerId,
}

/// All transactions.
#[derive(Debug)]
pub struct Transactions {
    limits: Limits,
}

impl Transactions {
    /// An empty table.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// Takes a request.
    pub fn request(
        &mut self,
        now: Now,
        msg: &Message,
        from: SocketAddr,
        listener: ListenerId,
    ) -> Incoming {
        let _ = (now, msg, from, listener, self.limits);
        todo!()
    }

    /// Sends a response. 1xx, 2xx or another final, in any state that allows it.
    pub fn respond(&mut self, now: Now, id: ServerId, code: u16, bytes: Vec<u8>) {
        let _ = (now, id, code, bytes);
        todo!()
    }

    /// Sends a request and keeps sending it until it is answered. `None`: no room, counted.
    pub fn start(
        &mut self,
        now: Now,
        key: ClientKey,
        bytes: Vec<u8>,
        to: SocketAddr,
        listener: ListenerId,
    ) -> Option<ClientId> {
        let _ = (now, key, bytes, to, listener);
        todo!()
    }

    /// Sends no more of a request that is being hunted; its transaction lives on to 64·T1.
    pub fn stop_retransmitting(&mut self, id: ClientId) {
        let _ = id;
        todo!()
    }

    /// Takes a response; `None` when it belongs to no transaction.
    pub fn response(
        &mut self,
        now: Now,
        msg: &Message,
        from: SocketAddr,
    ) -> Option<(ClientId, Received)> {
        let _ = (now, msg, from);
        todo!()
    }

    /// What is needed to cancel it; `None` when there is nothing to cancel yet (no provisional
    /// response: ask again at the first) or any more.
    #[must_use]
    pub fn cancel_bytes(&self, id: ClientId) -> Option<Cancel<'_>> {
        let _ = id;
        todo!()
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Now) {
        let _ = now;
        todo!()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Reason)> {
        todo!()
    }

    /// What to do next; call until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        todo!()
    }
}
