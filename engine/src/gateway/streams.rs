//! SIP over connections: frames of a stream, keepalives in it, and what their loss means
//! (signalling.md sections 1 and 8).
//!
//! A connection is named like everything else: by listener and peer. The driver finds or opens
//! the one that an [`Output::Send`](super::Output::Send) needs.

use std::{net::SocketAddr, time::Duration};

use super::{
    Gateway, Output, bindings::Binding, deadlines::Deadline, in_dialog::may_be_sent_to, sizes::Why,
};
use crate::{
    net::{ListenerId, Transport},
    sip::{
        Message, Uri, respond,
        stream::{Broken, Frame},
    },
    steer::Gate,
    stun,
    time::Now,
    transaction::ClientId,
};

/// A client that is not served hears no keepalive answer, and then loses its connection, so that
/// it looks for another gateway (signalling.md section 8).
const UNSERVED: Duration = Duration::from_secs(3);
/// The answer to a ping (RFC 5626 section 4.4.1).
const PONG: &[u8] = b"\r\n";

impl Gateway {
    /// A frame came in a connection of a stream listener.
    pub fn stream(&mut self, now: Now, listener: ListenerId, from: SocketAddr, frame: Frame) {
        self.connected.insert((listener, from));
        match frame {
            Frame::Message(bytes) => self.message(now, listener, from, bytes),
            Frame::Pong => self.counters.keepalives += 1,
            Frame::Ping => self.ping(now, listener, from, |gate| {
                (gate == Gate::Serving).then(|| PONG.to_vec())
            }),
            Frame::Stun(bytes) => match stun::told(&bytes) {
                Some(told) => {
                    self.counters.keepalives += 1;
                    self.stun_told(now, listener, from, &told);
                }
                None => self.ping(now, listener, from, |gate| stun::answer(&bytes, from, gate)),
            },
        }
        self.pump(now);
    }

    fn ping(
        &mut self,
        now: Now,
        listener: ListenerId,
        from: SocketAddr,
        answer: impl FnOnce(Gate) -> Option<Vec<u8>>,
    ) {
        self.counters.keepalives += 1;
        let gate = self.gate_of(listener, from);
        if let Some(answer) = answer(gate) {
            self.send(listener, from, answer);
        }
        if gate != Gate::Serving {
            let close = Deadline::Unserved(listener, from);
            self.deadlines.set(close, now.mono + UNSERVED);
        }
    }

    /// The client is told nothing any more, unless its group came back meanwhile.
    pub(super) fn unserved(&mut self, listener: ListenerId, peer: SocketAddr) {
        if self.gate_of(listener, peer) != Gate::Serving {
            self.out.push_back(Output::Close { listener, peer });
        }
    }

    /// Whether a connection from this address may be accepted at all (signalling.md section 11).
    #[must_use]
    pub fn may_connect(&mut self, listener: ListenerId, from: SocketAddr) -> bool {
        let may = self.may_speak(listener, from);
        self.counters.not_a_peer += u64::from(!may);
        may
    }

    /// A connection cannot be read on. Who began a request in it is told why; `begun` is what of
    /// it could be read. Then it is closed.
    pub fn stream_broken(
        &mut self,
        now: Now,
        listener: ListenerId,
        peer: SocketAddr,
        begun: Vec<u8>,
        why: Broken,
    ) {
        self.counters.malformed += 1;
        if let Some((code, reason)) = why.status() {
            let tag = self.fresh_tag();
            let answer = match Message::parse(begun) {
                Ok(msg) if msg.is_request() => Some(respond(&msg, code, reason, Some(&tag), peer)),
                Ok(_) => None,
                Err(refusal) => refusal.answer(&tag, peer),
            };
            if let Some(answer) = answer {
                self.send(listener, peer, answer);
            }
        }
        self.out.push_back(Output::Close { listener, peer });
        self.pump(now);
    }

    /// A request says that its sender may be sent requests by the connection it came over. Only
    /// its own address is believed (RFC 5923 section 9.3).
    pub(super) fn alias(&mut self, listener: ListenerId, from: SocketAddr, msg: &Message) {
        let Some(via) = msg.top_via() else { return };
        let port = via.port.unwrap_or(default_port(self.transport(listener)));
        let same = via.host_ip(msg.bytes()) == Some(from.ip().to_canonical());
        if same && port != from.port() && via.param(msg.bytes(), "alias").is_some() {
            let of = SocketAddr::new(from.ip(), port);
            self.aliased.insert((listener, of), from);
            self.out.push_back(Output::Alias {
                listener,
                peer: from,
                of,
            });
        }
    }

    /// Where a phone is reached: where its REGISTER came from, or, when that connection is gone,
    /// at its Contact.
    pub(super) fn reach(&self, binding: &Binding) -> SocketAddr {
        self.reach_at(binding.listener, binding.source, &binding.contact)
    }

    /// The connection with `peer` while it stands, else the address in `contact`, if it is the
    /// same machine's: nothing else may make the gateway connect anywhere.
    pub(super) fn reach_at(
        &self,
        listener: ListenerId,
        peer: SocketAddr,
        contact: &[u8],
    ) -> SocketAddr {
        let transport = self.transport(listener);
        if !transport.is_stream() || self.is_connected(listener, peer) {
            return peer;
        }
        let contact = Uri::parse(contact).and_then(|uri| {
            let port = uri.port.unwrap_or(default_port(transport));
            Some(SocketAddr::new(uri.host_ip()?, port))
        });
        contact
            .filter(|at| at.ip() == peer.ip().to_canonical() && may_be_sent_to(at.ip()))
            .unwrap_or(peer)
    }

    /// Whether a frame came by this connection, which is not known to be gone.
    pub(super) fn is_connected(&self, listener: ListenerId, peer: SocketAddr) -> bool {
        self.connected.contains(&(listener, peer))
    }

    /// A connection that an [`Output::Send`](super::Output::Send) needs could not be opened.
    /// Towards a server this is evidence like an ICMP error: each request that waits there
    /// hunts, and the confirming burst starts. A phone that cannot be reached is not waited for.
    pub fn connection_failed(&mut self, now: Now, listener: ListenerId, to: SocketAddr) {
        self.deadlines.clear(Deadline::Offer(listener, to));
        for client in self.transactions.unanswered(listener, to) {
            if !self.fall_back(now, client, Why::Refused) {
                self.unreached(now, client);
            }
        }
        self.pump(now);
    }

    /// A connection ended. What waited for an answer on it is sent anew, over another one; only
    /// if that cannot be opened is anybody to blame (RFC 3261 section 18.4).
    pub fn connection_lost(&mut self, now: Now, listener: ListenerId, peer: SocketAddr) {
        self.deadlines.clear(Deadline::Unserved(listener, peer));
        self.deadlines.clear(Deadline::Offer(listener, peer));
        self.connected.remove(&(listener, peer));
        self.certificates.remove(&(listener, peer));
        self.aliased
            .retain(|(on, _), end| (*on, *end) != (listener, peer));
        for client in self.transactions.connection_lost(listener, peer) {
            self.fall_back(now, client, Why::Refused);
        }
        self.pump(now);
    }

    fn unreached(&mut self, now: Now, client: ClientId) {
        let Some(&(id, index)) = self.by_client.get(&client) else {
            return;
        };
        let branch = self.contexts.get(&id).map(|ctx| &ctx.branches[index]);
        match branch.map(|branch| branch.health) {
            Some(Some(health)) => self.health.connect_failed(now, health),
            Some(None) => {
                self.transactions.stop_retransmitting(now, client);
                self.timed_out(now, client);
            }
            None => {}
        }
    }
}

/// The port that a URI or a Via without one means (RFC 3261 section 19.1.2).
pub(super) fn default_port(transport: Transport) -> u16 {
    match transport {
        Transport::Tls => 5061,
        Transport::Udp | Transport::Tcp => 5060,
    }
}
