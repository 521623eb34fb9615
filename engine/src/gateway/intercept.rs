//! Transparent mode (signalling.md section 12): phones address their softswitch, and the
//! gateway takes what they send on its way.
//!
//! Each softswitch's address that a phone speaks to is a listener of its own, whose socket is
//! that of the LAN listener which took the datagram. So every rule that asks for the address of
//! a listener (Via, Contact, the source of an answer) speaks to the phone in the name of its
//! softswitch.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{
    Gateway,
    in_dialog::may_be_sent_to,
    outgoing::Target,
    persist::link_named,
    records::{ListenerRecord, Records},
    topology::Sight,
};
use crate::{
    conf::Mode,
    net::{GroupId, Listener, ListenerId, Side},
    sip::{self, Datagram, Message, Method},
    time::Now,
};

/// The address of a listener that stands for no softswitch any more.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Gateway {
    /// A datagram arrived that a phone sent to `to`, on the LAN listener that takes what is sent
    /// to others than us. `to` may be that listener's own address as well.
    pub fn intercepted(
        &mut self,
        now: Now,
        taker: ListenerId,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Vec<u8>,
    ) {
        self.spare_free();
        let place = match self.place_of(taker, to) {
            Some(place) => Some(place),
            None if begins(&bytes) => self.place(now, taker, to),
            None if self.passes_by(taker, to, from, &bytes) => return,
            // Nobody registered there: there is nothing to keep alive, nor to answer.
            None => {
                self.counters.stray += 1;
                return;
            }
        };
        match place {
            Some(place) => {
                self.learned_used(now, place);
                if !self.passes(now, (place, to), from, &bytes) {
                    self.datagram(now, place, from, bytes);
                }
            }
            None if self.passes_by(taker, to, from, &bytes) => {}
            None => self.no_room(taker, to, from, bytes),
        }
        self.pump(now);
    }

    /// The listener that a connection belongs to which a phone opened to `to`; `None` when it
    /// may not be accepted.
    pub fn may_take(
        &mut self,
        now: Now,
        taker: ListenerId,
        to: SocketAddr,
        from: SocketAddr,
    ) -> Option<ListenerId> {
        self.spare_free();
        let known = self.place_of(taker, to);
        let place = known.or_else(|| self.place(now, taker, to))?;
        self.learned_used(now, place);
        self.pump(now);
        self.may_connect(place, from).then_some(place)
    }

    /// The group that phones address by this listener; `None`: they address us.
    pub(super) fn group_addressed(&self, listener: ListenerId) -> Option<GroupId> {
        let at = self.conf.listeners.get(usize::from(listener.0))?;
        at.taken_by?;
        self.group_at(at.address.ip())
    }

    /// Whether phones speak to this address of a softswitch, so that our Contacts bear it.
    pub(super) fn is_spoken_for(&self, ip: IpAddr) -> bool {
        let mut listeners = self.conf.listeners.iter();
        listeners.any(|at| at.taken_by.is_some() && at.address.ip() == ip)
    }

    /// Who sees what is sent by a listener.
    pub(super) fn sight_at(&self, listener: ListenerId) -> Sight {
        let at = &self.conf.listeners[usize::from(listener.0)];
        Sight {
            knows: at.taken_by.map(|_| at.address.ip()),
            ..Sight::of(self.side(listener))
        }
    }

    /// Who sees a request that goes to `target`.
    pub(super) fn sight(&self, target: &Target) -> Sight {
        let transparent = self.conf.mode == Mode::Transparent;
        let server = target.path.map(|path| path.server);
        Sight {
            instead: server
                .filter(|_| transparent && target.side == Side::Wan)
                .map(|server| (server.group, self.server_address(server).ip())),
            ..self.sight_at(target.listener)
        }
    }

    /// Softswitches and their addresses that stored records speak of are known before the
    /// records are read.
    pub(super) fn places_back(&mut self, now: Now, records: &Records) {
        if self.conf.mode != Mode::Transparent {
            return;
        }
        for record in &records.bindings {
            if self.group_named(&record.group).is_none() {
                self.learn_named(now, &record.group);
            }
            if let Some(group) = self.group_named(&record.group) {
                self.learned_back(group);
            }
            self.place_back(now, &record.listener);
        }
        for record in &records.dialogs {
            for party in [&record.caller, &record.callee] {
                self.place_back(now, &party.listener);
                if let Some(asked) = &party.asked {
                    self.place_back(now, &asked.listener);
                }
            }
        }
    }

    fn place_back(&mut self, now: Now, record: &ListenerRecord) {
        let Some(link) = link_named(&self.conf, &record.link) else {
            return;
        };
        let same_port = |at: &Listener| at.address.port() == record.address.port();
        let mut takers = (0_u16..).map(ListenerId).zip(&self.conf.listeners);
        let taker = takers.find(|(id, at)| {
            at.taken_by.is_none()
                && (at.link, at.transport) == (link, record.transport)
                && same_port(at)
                && self.side(*id) == Side::Lan
        });
        let Some((taker, _)) = taker else { return };
        if self.place_of(taker, record.address).is_none() {
            let _ = self.place(now, taker, record.address);
        }
    }

    /// The listener of an address that phones are known to speak to.
    fn place_of(&self, taker: ListenerId, to: SocketAddr) -> Option<ListenerId> {
        if self.address(taker) == to {
            return Some(taker);
        }
        let mut all = (0_u16..).map(ListenerId).zip(&self.conf.listeners);
        all.find(|(_, at)| at.taken_by == Some(taker) && at.address == to)
            .map(|(id, _)| id)
    }

    /// A listener for an address that phones begin to speak to; `None` when nothing may be sent
    /// there, or there are too many softswitches.
    fn place(&mut self, now: Now, taker: ListenerId, to: SocketAddr) -> Option<ListenerId> {
        if !self.leads_on(taker, to) {
            return None;
        }
        if self.group_at(to.ip()).is_none() {
            self.learn_address(now, to, self.transport(taker))?;
        }
        self.listener_for(taker, to)
    }

    /// Whether what a phone sends there may be sent on.
    pub(super) fn leads_on(&self, taker: ListenerId, to: SocketAddr) -> bool {
        let ours = self.conf.links.iter().any(|l| l.address == Some(to.ip()));
        !ours && may_be_sent_to(to.ip()) && self.side(taker) == Side::Lan
    }

    fn listener_for(&mut self, taker: ListenerId, to: SocketAddr) -> Option<ListenerId> {
        let template = self.conf.listeners.get(usize::from(taker.0))?;
        let listener = Listener {
            address: to,
            taken_by: Some(taker),
            ..template.clone()
        };
        let free = |at: &Listener| at.taken_by == Some(taker) && at.address == NOWHERE;
        let at = match self.conf.listeners.iter().position(free) {
            Some(at) => {
                self.conf.listeners[at] = listener;
                at
            }
            None => {
                self.conf.listeners.push(listener);
                self.conf.listeners.len() - 1
            }
        };
        let id = u16::try_from(at).ok().map(ListenerId)?;
        if self.transport(id).is_stream() {
            self.transactions.over_stream(id);
        }
        Some(id)
    }

    /// The listeners of a softswitch that nobody speaks to any more stand for others later.
    pub(super) fn places_free(&mut self, address: IpAddr) {
        let listeners = self.conf.listeners.iter_mut();
        for at in listeners.filter(|at| at.taken_by.is_some() && at.address.ip() == address) {
            at.address = NOWHERE;
        }
    }

    /// A request to one softswitch too many is refused in its name, and leaves no trace.
    fn no_room(&mut self, taker: ListenerId, to: SocketAddr, from: SocketAddr, bytes: Vec<u8>) {
        self.counters.table_full += 1;
        let Ok(msg) = Message::parse(bytes) else {
            return;
        };
        let Some(spare) = self.listener_for(taker, to) else {
            return;
        };
        let tag = self.own_tag(&msg);
        let phrase = sip::reason_phrase(503);
        let answer = sip::respond(&msg, 503, phrase, Some(&tag), from);
        self.send(spare, from, answer);
        // The driver looks at the address when it sends, which is before the next input.
        self.learned.spare = Some(spare);
    }

    fn spare_free(&mut self) {
        if let Some(spare) = self.learned.spare.take() {
            self.conf.listeners[usize::from(spare.0)].address = NOWHERE;
        }
    }

    /// The group that has a server at this address.
    fn group_at(&self, ip: IpAddr) -> Option<GroupId> {
        let found = self
            .conf
            .groups
            .iter()
            .position(|group| group.has_server(ip))?;
        u16::try_from(found).ok().map(GroupId)
    }
}

/// Whether a datagram is a request that may begin something.
fn begins(bytes: &[u8]) -> bool {
    sip::classify(bytes) == Datagram::Sip
        && Message::parse(bytes.to_vec()).is_ok_and(|msg| {
            msg.is_request() && !matches!(msg.method(), Some(Method::Ack | Method::Cancel))
        })
}
