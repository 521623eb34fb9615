//! All transactions, found by key, by id and by their next timer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
};

use super::{
    AnyId, Cancel, ClientId, ClientKey, Counters, Incoming, Limits, Output, Reason, Received,
    ServerId,
    client::{self, Client},
    key::{ServerKey, sent_by},
    server::Server,
    timers::{Clock, Rang},
};
use crate::{
    net::ListenerId,
    sip::{Message, Method, reply_address},
    time::{Mono, Now},
};

/// All SIP transactions.
///
/// The loop to write: feed one message or call [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) says so; then drain [`poll_output`](Self::poll_output)
/// until `None`. Every call costs O(log n).
///
/// What ends by itself: everything but an INVITE that waits for a final response, on either
/// side. That wait is the user's to bound (timer C): the server side by
/// [`respond`](Self::respond), the client side by CANCEL and
/// [`stop_retransmitting`](Self::stop_retransmitting).
#[derive(Debug)]
pub struct Transactions {
    limits: Limits,
    /// Listeners over streams.
    streams: BTreeSet<ListenerId>,
    clients: HashMap<ClientId, Held<Client, ClientKey>>,
    servers: HashMap<ServerId, Held<Server, ServerKey>>,
    client_ids: HashMap<ClientKey, ClientId>,
    server_ids: HashMap<ServerKey, ServerId>,
    /// One entry per transaction that waits for anything: its next timer.
    queue: BTreeMap<(Mono, AnyId), Reason>,
    output: VecDeque<Output>,
    counters: Counters,
    next_id: u64,
}

/// A transaction with what the table must take away when it ends.
#[derive(Debug)]
struct Held<T, K> {
    inner: T,
    key: K,
    queued: Option<Mono>,
}

impl Transactions {
    /// An empty table.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            streams: BTreeSet::new(),
            clients: HashMap::new(),
            servers: HashMap::new(),
            client_ids: HashMap::new(),
            server_ids: HashMap::new(),
            queue: BTreeMap::new(),
            output: VecDeque::new(),
            counters: Counters::default(),
            next_id: 0,
        }
    }

    /// Says which listeners are streams: transactions over them repeat nothing (RFC 3261
    /// section 17, table 4).
    #[must_use]
    pub fn over_streams(mut self, streams: impl IntoIterator<Item = ListenerId>) -> Self {
        self.streams = streams.into_iter().collect();
        self
    }

    /// One more listener over streams.
    pub fn over_stream(&mut self, listener: ListenerId) {
        self.streams.insert(listener);
    }

    /// What is in the table, and what did not fit.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            servers: self.servers.len(),
            clients: self.clients.len(),
            ..self.counters
        }
    }

    /// Takes a request: answers its retransmissions with the last response, and keeps the ACK
    /// of a non-2xx to itself. A response given here by mistake is absorbed.
    pub fn request(
        &mut self,
        now: Now,
        msg: &Message,
        from: SocketAddr,
        listener: ListenerId,
    ) -> Incoming {
        let (Some(key), Some(method)) = (ServerKey::of(msg), msg.method()) else {
            return Incoming::Absorbed;
        };
        let known = self.server_ids.get(&key).copied();
        match (known, method) {
            (Some(id), Method::Ack) => self.ack(now, id),
            (None, Method::Ack) => Incoming::Ack2xx,
            (Some(id), _) => self.repeated(id),
            (None, _) => {
                let invite = self.server_ids.get(&key.invite()).copied();
                let stream = self.streams.contains(&listener);
                // In a stream the answer takes the way the request came (section 18.2.2).
                let to = if stream {
                    from
                } else {
                    reply_address(msg, from)
                };
                let invite_itself = method == Method::Invite;
                let server =
                    Server::new(now, self.limits.timers, invite_itself, to, listener, stream);
                match (self.insert_server(key, server), method) {
                    (None, _) => Incoming::Overloaded,
                    (Some(id), Method::Cancel) => Incoming::Cancel { invite, id },
                    (Some(id), _) => Incoming::New(id),
                }
            }
        }
    }

    /// Whether a message belongs to a transaction here: a request to one that it began, cancels
    /// or acknowledges, a response to one that was sent.
    #[must_use]
    pub fn knows(&self, msg: &Message) -> bool {
        if msg.is_request() {
            let Some(key) = ServerKey::of(msg) else {
                return false;
            };
            let cancels = msg.method() == Some(Method::Cancel);
            return self.server_ids.contains_key(&key)
                || cancels && self.server_ids.contains_key(&key.invite());
        }
        let key = || {
            let via = msg.top_via()?;
            Some(ClientKey {
                branch: via.branch(msg.bytes())?.to_vec(),
                sent_by: sent_by(msg.slice(via.sent_by)),
                method: msg.cseq()?.method,
            })
        };
        key().is_some_and(|key| self.client_ids.contains_key(&key))
    }

    /// Sends a response and remembers it for retransmissions. What the transaction's state does
    /// not allow any more is dropped, and `false`: a second final response, a late 1xx, an id that
    /// ended. Of a 2xx to INVITE each is sent: the far end repeats it (RFC 6026).
    pub fn respond(&mut self, now: Now, id: ServerId, code: u16, bytes: Vec<u8>) -> bool {
        let Some(held) = self.servers.get_mut(&id) else {
            return false;
        };
        let before = held.inner.last.len();
        if !held.inner.respond(now, code, bytes.clone()) {
            return false;
        }
        let after = held.inner.last.len();
        let (listener, to) = (held.inner.listener, held.inner.to);
        self.output.push_back(Output::Send {
            listener,
            to,
            bytes,
        });
        self.account(before, after);
        self.reschedule(AnyId::Server(id));
        true
    }

    /// Sends a request and keeps sending it until it is answered.
    ///
    /// `None`, and nothing is sent: no room (counted), or the key is in use.
    pub fn start(
        &mut self,
        now: Now,
        key: ClientKey,
        bytes: Vec<u8>,
        to: SocketAddr,
        listener: ListenerId,
    ) -> Option<ClientId> {
        let key = ClientKey {
            sent_by: sent_by(&key.sent_by),
            ..key
        };
        if self.client_ids.contains_key(&key) {
            return None;
        }
        let full = self.clients.len() >= self.limits.clients;
        if full || self.counters.bytes + bytes.len() > self.limits.bytes {
            self.counters.refused += 1;
            return None;
        }
        let id = ClientId(self.new_id());
        self.account(0, bytes.len());
        self.output.push_back(Output::Send {
            listener,
            to,
            bytes: bytes.clone(),
        });
        let stream = self.streams.contains(&listener);
        let timers = self.limits.timers;
        let inner = Client::new(now, timers, key.method, bytes, to, listener, stream);
        self.client_ids.insert(key.clone(), id);
        self.clients.insert(
            id,
            Held {
                inner,
                key,
                queued: None,
            },
        );
        self.reschedule(AnyId::Client(id));
        Some(id)
    }

    /// Sends no more of a request that is being hunted or was cancelled. It lives on for at
    /// most 64·T1 to take what comes late: late responses are reported as ever.
    pub fn stop_retransmitting(&mut self, now: Now, id: ClientId) {
        if let Some(held) = self.clients.get_mut(&id) {
            held.inner.abandon(now);
            self.reschedule(AnyId::Client(id));
        }
    }

    /// Takes a response; `None` when it belongs to no transaction. Where it came from is not
    /// judged: servers of a farm answer from other addresses, and the branch is not guessable.
    pub fn response(
        &mut self,
        now: Now,
        msg: &Message,
        _from: SocketAddr,
    ) -> Option<(ClientId, Received)> {
        msg.status()?;
        let via = msg.top_via()?;
        let key = ClientKey {
            branch: via.branch(msg.bytes())?.to_vec(),
            sent_by: sent_by(msg.slice(via.sent_by)),
            method: msg.cseq()?.method,
        };
        let id = *self.client_ids.get(&key)?;
        let client = &mut self.clients.get_mut(&id)?.inner;
        let before = client.bytes.len();
        let (received, ack) = client.response(now, msg);
        let after = client.bytes.len();
        if ack {
            let (listener, to, bytes) = (client.listener, client.to, client.bytes.clone());
            self.output.push_back(Output::Send {
                listener,
                to,
                bytes,
            });
        }
        self.account(before, after);
        self.counters.absorbed += u64::from(received == Received::Retransmitted);
        self.reschedule(AnyId::Client(id));
        Some((id, received))
    }

    /// The live client transaction of a request as it was sent, which may be cut short behind
    /// its Via and CSeq: whose an ICMP error is.
    #[must_use]
    pub fn find(&self, sent: &Message) -> Option<ClientId> {
        let via = sent.top_via()?;
        let key = ClientKey {
            branch: via.branch(sent.bytes())?.to_vec(),
            sent_by: sent_by(sent.slice(via.sent_by)),
            method: sent.method()?,
        };
        self.client_ids.get(&key).copied()
    }

    /// The unanswered requests that went to `to` over a stream listener.
    #[must_use]
    pub fn unanswered(&self, listener: ListenerId, to: SocketAddr) -> Vec<ClientId> {
        let there = |held: &Held<Client, ClientKey>| {
            let client = &held.inner;
            client.listener == listener && client.to == to && client.is_unanswered()
        };
        let mut ids: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, held)| there(held))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// A connection is gone: what waited for an answer on it is sent anew, once. What was
    /// before, and waits in vain now, is returned.
    pub fn connection_lost(&mut self, listener: ListenerId, to: SocketAddr) -> Vec<ClientId> {
        let mut in_vain = self.unanswered(listener, to);
        in_vain.retain(|id| {
            let Some(held) = self.clients.get_mut(id) else {
                return false;
            };
            if !held.inner.lost_connection() {
                return true;
            }
            self.output.push_back(Output::Send {
                listener,
                to,
                bytes: held.inner.bytes.clone(),
            });
            false
        });
        in_vain
    }

    /// Sends a request that nothing answered from another listener, under the key that its Via
    /// now makes. `false` when there is no such request, or the key is in use.
    pub fn send_by(
        &mut self,
        now: Now,
        id: ClientId,
        key: ClientKey,
        bytes: Vec<u8>,
        listener: ListenerId,
    ) -> bool {
        let key = ClientKey {
            sent_by: sent_by(&key.sent_by),
            ..key
        };
        if self.client_ids.get(&key).is_some_and(|other| *other != id) {
            return false;
        }
        let (stream, timers) = (self.streams.contains(&listener), self.limits.timers);
        let Some(held) = self.clients.get_mut(&id) else {
            return false;
        };
        let (to, before) = (held.inner.to, held.inner.bytes.len());
        held.inner = Client::new(now, timers, key.method, bytes.clone(), to, listener, stream);
        self.client_ids.remove(&held.key);
        held.key = key.clone();
        self.client_ids.insert(key, id);
        self.account(before, bytes.len());
        self.output.push_back(Output::Send {
            listener,
            to,
            bytes,
        });
        self.reschedule(AnyId::Client(id));
        true
    }

    /// What is needed to cancel it; `None` while there is no provisional response (ask again
    /// when it comes) and once there is a final one.
    #[must_use]
    pub fn cancel_bytes(&self, id: ClientId) -> Option<Cancel<'_>> {
        let client = &self.clients.get(&id)?.inner;
        let (to, listener) = (client.to, client.listener);
        (client.state == client::State::Proceeding).then_some(Cancel {
            request: &client.bytes,
            to,
            listener,
        })
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some((&(due, id), _)) = self.queue.first_key_value()
            && due <= now.mono
        {
            match id {
                AnyId::Client(id) => self.ring_client(now, id),
                AnyId::Server(id) => self.ring_server(now, id),
            }
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next, and for which timer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Reason)> {
        self.queue
            .first_key_value()
            .map(|((due, _), reason)| (*due, *reason))
    }

    /// What to do next; call until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    fn ack(&mut self, now: Now, id: ServerId) -> Incoming {
        let Some(held) = self.servers.get_mut(&id) else {
            return Incoming::Ack2xx;
        };
        let before = held.inner.last.len();
        let ours = held.inner.ack(now);
        let after = held.inner.last.len();
        self.account(before, after);
        self.reschedule(AnyId::Server(id));
        if ours {
            Incoming::Absorbed
        } else {
            Incoming::Ack2xx
        }
    }

    fn repeated(&mut self, id: ServerId) -> Incoming {
        self.counters.absorbed += 1;
        self.send_last(id);
        Incoming::Absorbed
    }

    fn send_last(&mut self, id: ServerId) {
        let Some(held) = self.servers.get(&id) else {
            return;
        };
        if held.inner.is_answered_again() {
            let (listener, to) = (held.inner.listener, held.inner.to);
            self.output.push_back(Output::Send {
                listener,
                to,
                bytes: held.inner.last.clone(),
            });
        }
    }

    fn insert_server(&mut self, key: ServerKey, inner: Server) -> Option<ServerId> {
        let full = self.servers.len() >= self.limits.servers;
        if full || self.counters.bytes >= self.limits.bytes {
            self.counters.refused += 1;
            return None;
        }
        let id = ServerId(self.new_id());
        self.server_ids.insert(key.clone(), id);
        self.servers.insert(
            id,
            Held {
                inner,
                key,
                queued: None,
            },
        );
        self.reschedule(AnyId::Server(id));
        Some(id)
    }

    fn ring_client(&mut self, now: Now, id: ClientId) {
        let Some(held) = self.clients.get_mut(&id) else {
            return;
        };
        match held.inner.clock.ring(now) {
            Some(Rang::Again) => {
                let (listener, to) = (held.inner.listener, held.inner.to);
                let bytes = held.inner.bytes.clone();
                self.output.push_back(Output::Send {
                    listener,
                    to,
                    bytes,
                });
                self.output.push_back(Output::Retransmitted(id));
                self.counters.retransmitted += 1;
                self.reschedule(AnyId::Client(id));
            }
            Some(Rang::End) => {
                if held.inner.is_unanswered() {
                    self.output.push_back(Output::TimedOut(id));
                }
                self.end(AnyId::Client(id));
            }
            None => self.reschedule(AnyId::Client(id)),
        }
    }

    fn ring_server(&mut self, now: Now, id: ServerId) {
        let Some(held) = self.servers.get_mut(&id) else {
            return;
        };
        match held.inner.clock.ring(now) {
            Some(Rang::Again) => {
                self.send_last(id);
                self.reschedule(AnyId::Server(id));
            }
            Some(Rang::End) => self.end(AnyId::Server(id)),
            None => self.reschedule(AnyId::Server(id)),
        }
    }

    fn end(&mut self, id: AnyId) {
        let (queued, bytes) = match id {
            AnyId::Client(id) => {
                let Some(held) = self.clients.remove(&id) else {
                    return;
                };
                self.client_ids.remove(&held.key);
                (held.queued, held.inner.bytes.len())
            }
            AnyId::Server(id) => {
                let Some(held) = self.servers.remove(&id) else {
                    return;
                };
                self.server_ids.remove(&held.key);
                (held.queued, held.inner.last.len())
            }
        };
        if let Some(due) = queued {
            self.queue.remove(&(due, id));
        }
        self.account(bytes, 0);
        self.output.push_back(Output::Ended(id));
    }

    /// Moves a transaction's entry in the queue to its next timer.
    fn reschedule(&mut self, id: AnyId) {
        let slot: Option<(&Clock, &mut Option<Mono>)> = match id {
            AnyId::Client(id) => self
                .clients
                .get_mut(&id)
                .map(|held| (&held.inner.clock, &mut held.queued)),
            AnyId::Server(id) => self
                .servers
                .get_mut(&id)
                .map(|held| (&held.inner.clock, &mut held.queued)),
        };
        let Some((clock, queued)) = slot else { return };
        if let Some(due) = queued.take() {
            self.queue.remove(&(due, id));
        }
        if let Some((due, reason)) = clock.next() {
            *queued = Some(due);
            self.queue.insert((due, id), reason);
        }
    }

    fn account(&mut self, before: usize, after: usize) {
        self.counters.bytes = self
            .counters
            .bytes
            .saturating_sub(before)
            .saturating_add(after);
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
