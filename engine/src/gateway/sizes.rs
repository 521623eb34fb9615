//! Messages too large for a datagram (RFC 3261 section 18.1.1, case S12): requests take an offered
//! stream; where there is none, and with what follows a request's way, they go in fragments,
//! counted and said once.
//!
//! Only the Via tells the two ways apart: Contact and dialog stay with the datagrams' listener,
//! so that what follows and fits goes as ever.

use std::{collections::BTreeMap, net::SocketAddr, rc::Rc, time::Duration};

use super::{Gateway, Output, deadlines::Deadline, outgoing::Target};
use crate::{
    event::{Event, Evidence},
    net::{LinkId, ListenerId, Side, Transport},
    sip::{Edit, Message, Uri},
    time::{Mono, Now},
    transaction::ClientId,
};

/// Bytes of a request that go as a datagram whatever the path's MTU (RFC 3261 section 18.1.1).
const LARGEST: usize = 1300;
/// How long a next hop may take to accept a connection that is only tried.
const OFFER: Duration = Duration::from_millis(500);
/// How long is remembered that it does not, and not said again.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Next hops that are remembered: one that is forgotten is tried, and told of, again.
const MAX_REMEMBERED: usize = 1024;

/// A next hop on the WAN, or all phones of a link; `true` for what follows requests there.
type Hop = (LinkId, Option<SocketAddr>, bool);

/// Next hops that were sent large datagrams, each with when that is forgotten, and whether it
/// refused a stream.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    hops: BTreeMap<Hop, (Mono, bool)>,
}

impl Sizes {
    fn refuses(&self, hop: Hop, now: Mono) -> bool {
        matches!(self.hops.get(&hop), Some((until, true)) if now < *until)
    }

    /// `true` when that is news.
    fn remember(&mut self, hop: Hop, now: Mono, refused: bool) -> bool {
        self.hops.retain(|_, (until, _)| now < *until);
        if let Some((_, known)) = self.hops.get_mut(&hop) {
            let news = refused && !*known;
            *known |= refused;
            return news;
        }
        if self.hops.len() >= MAX_REMEMBERED {
            self.hops.pop_first();
        }
        self.hops.insert(hop, (now + REMEMBERED, refused));
        true
    }
}

/// Why a large message goes as a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// We have no listener whose Via a request over TCP could name.
    NoListener,
    /// The phone opened no connection.
    NoConnection,
    /// Whoever named the next hop named its transport.
    Typed,
    /// It was tried not long ago.
    Known,
    /// It did not answer in time.
    Late,
    /// It refused, or closes what it accepts.
    Refused,
    /// It is a response, or an ACK: it takes the way that the request took.
    Follows,
}

impl Why {
    /// Whether the next hop itself is to blame.
    fn refused(self) -> bool {
        matches!(self, Self::Known | Self::Late | Self::Refused)
    }

    fn text(self) -> &'static str {
        match self {
            Self::NoListener => "no TCP is listened to on the link",
            Self::NoConnection => "the phone has no connection",
            Self::Typed => "its transport is typed",
            Self::Known | Self::Refused => "no TCP at the next hop",
            Self::Late => "no connection within 500 ms",
            Self::Follows => "it takes the way of the request",
        }
    }
}

impl Gateway {
    /// The listener that a request leaves from: the target's own, or one over streams beside it
    /// when it is large.
    pub(super) fn way_of(&mut self, now: Now, target: &Target, request: &[u8]) -> ListenerId {
        let own = target.listener;
        if request.len() <= LARGEST || self.transport(own).is_stream() {
            return own;
        }
        match self.offered(now, target) {
            Ok(stream) => stream,
            Err(why) => {
                self.fragmented(now, (own, target.to), request, why);
                own
            }
        }
    }

    /// A stream that the next hop may take: one of a phone's must stand already, and a softswitch
    /// that is typed with a transport has no other.
    fn offered(&self, now: Now, target: &Target) -> Result<ListenerId, Why> {
        let stream = self.stream_beside(target.listener).ok_or(Why::NoListener)?;
        let at = (stream, target.to);
        if target.side == Side::Lan {
            let stands = self.connected.contains(&at) || self.aliased.contains_key(&at);
            return stands.then_some(stream).ok_or(Why::NoConnection);
        }
        if self.is_typed(target) {
            return Err(Why::Typed);
        }
        let hop = (self.link(target.listener), Some(target.to), false);
        match self.sizes.refuses(hop, now.mono) {
            true => Err(Why::Known),
            false => Ok(stream),
        }
    }

    /// Whether whoever named the next hop named its transport too.
    fn is_typed(&self, target: &Target) -> bool {
        let names = |uri: &[u8]| {
            let inside = uri.split(|byte| *byte == b'<').next_back().unwrap_or(uri);
            let inside = inside.split(|byte| *byte == b'>').next().unwrap_or(inside);
            Uri::parse(inside).is_some_and(|uri| uri.param("transport").is_some())
        };
        let server = target.path.is_some_and(|path| {
            let group = &self.conf.groups[usize::from(path.server.group.0)];
            let server = &group.health.servers[usize::from(path.server.index)];
            names(server.uri.as_bytes())
        });
        let in_dialog = target.parties.is_some();
        server || (in_dialog && names(target.routes.first().unwrap_or(&target.uri)))
    }

    /// The listener over TCP at the same address.
    fn stream_beside(&self, listener: ListenerId) -> Option<ListenerId> {
        let at = |id: ListenerId| &self.conf.listeners[usize::from(id.0)];
        let own = at(listener);
        self.conf.streams().find(|id| {
            let on = at(*id);
            (on.transport, on.link) == (Transport::Tcp, own.link)
                && on.address.ip() == own.address.ip()
                && on.taken_by.is_some() == own.taken_by.is_some()
        })
    }

    /// The request with the Via of another listener.
    pub(super) fn by_way(&self, request: Vec<u8>, way: ListenerId, branch: &str) -> Vec<u8> {
        let Ok(msg) = Message::parse(request.clone()) else {
            return request;
        };
        let mut edit = Edit::new(&msg);
        if let Some(via) = msg.top_via() {
            edit.replace(via.value, self.via(way, branch));
        }
        edit.finish()
    }

    /// A large request is on its way to a connection: one that does not stand yet is not waited
    /// for.
    pub(super) fn await_offer(&mut self, now: Now, way: ListenerId, to: SocketAddr) {
        let offer = Deadline::Offer(way, to);
        if !self.is_connected(way, to) && !self.deadlines.is_set(offer) {
            self.deadlines.set(offer, now.mono + OFFER);
        }
    }

    /// A connection that an [`Output::Send`] needed stands.
    pub fn connection_opened(&mut self, now: Now, listener: ListenerId, peer: SocketAddr) {
        self.deadlines.clear(Deadline::Offer(listener, peer));
        self.connected.insert((listener, peer));
        self.pump(now);
    }

    /// The connection was not there in time: what waits for it goes as datagrams.
    pub(super) fn offer_over(&mut self, now: Now, listener: ListenerId, to: SocketAddr) {
        for client in self.transactions.unanswered(listener, to) {
            self.fall_back(now, client, Why::Late);
        }
        self.out.push_back(Output::Close { listener, peer: to });
    }

    /// Sends a request as a datagram after all, if it was its size that made it take a stream.
    pub(super) fn fall_back(&mut self, now: Now, client: ClientId, why: Why) -> bool {
        let Some(&(id, index)) = self.by_client.get(&client) else {
            return false;
        };
        let found = self.contexts.get(&id).map(|ctx| &ctx.branches[index]);
        let Some(branch) = found.filter(|branch| branch.way != branch.listener) else {
            return false;
        };
        if branch.provisional || branch.abandoned {
            return false;
        }
        let (own, to, sent) = (branch.listener, branch.to, branch.sent.clone());
        let name = String::from_utf8_lossy(sent.branch().unwrap_or_default()).into_owned();
        let bytes = self.by_way(sent.bytes().to_vec(), own, &name);
        let Ok(again) = Message::parse(bytes.clone()) else {
            return false;
        };
        self.fragmented(now, (own, to), &bytes, why);
        let key = self.client_key(&name, own, &again);
        if let Some(ctx) = self.contexts.get_mut(&id) {
            let branch = &mut ctx.branches[index];
            (branch.way, branch.sent) = (own, Rc::new(again));
        }
        self.transactions.send_by(now, client, key, bytes, own)
    }

    /// A response or an ACK is on its way: like a request it may be lost for its size.
    pub(super) fn follows(&mut self, now: Now, way: (ListenerId, SocketAddr), message: &[u8]) {
        if message.len() > LARGEST && !self.transport(way.0).is_stream() {
            self.fragmented(now, way, message, Why::Follows);
        }
    }

    /// A large message goes as a datagram, which the network may lose for that alone.
    fn fragmented(
        &mut self,
        now: Now,
        (listener, to): (ListenerId, SocketAddr),
        message: &[u8],
        why: Why,
    ) {
        self.counters.large_over_udp += 1;
        let follows = why == Why::Follows;
        let link = self.link(listener);
        let name = self.conf.links[usize::from(link.0)].name.clone();
        let (hop, object) = match self.side(listener) {
            Side::Wan => (Some(to), format!("{to} {name}")),
            Side::Lan => (None, name),
        };
        let hop = (link, hop, follows);
        if !self.sizes.remember(hop, now.mono, why.refused()) {
            return;
        }
        // The status of a response, the method of a request.
        let words = message.strip_prefix(b"SIP/2.0 ").unwrap_or(message);
        let word = words.split(|byte| *byte == b' ').next().unwrap_or(words);
        let what = format!(
            "{} of {} bytes: {}; what is this large is sent in fragments, and may be lost",
            word.escape_ascii(),
            message.len(),
            why.text()
        );
        self.out.push_back(Output::Event(Event {
            at: now,
            kind: "transport",
            object,
            from: if follows { "whole" } else { "tcp" }.to_owned(),
            to: if follows { "fragments" } else { "udp" }.to_owned(),
            rule: match follows {
                true => "response_over_1300_bytes",
                false => "request_over_1300_bytes",
            },
            evidence: vec![Evidence { at: now, what }],
        }));
    }
}
