//! What a phone sends to our socket: it goes on its way unaltered, or it is taken.

use std::net::SocketAddr;

use super::{TalkId, UNUSED};
use crate::{
    gateway::{Gateway, Output, registrar::by_instance},
    net::{LinkId, ListenerId, PathKey, ServerId, Side},
    sip::{self, Datagram, Edit, Message, Method, Name},
    time::Now,
};

impl Gateway {
    /// Sends what a phone said to its softswitch on as it is; `false`: it is for us to deal with.
    pub(in crate::gateway) fn passes(
        &mut self,
        now: Now,
        (place, to): (ListenerId, SocketAddr),
        from: SocketAddr,
        bytes: &[u8],
    ) -> bool {
        let Some(path) = self.goes_through(now, place, to) else {
            return false;
        };
        let sip = sip::classify(bytes) == Datagram::Sip;
        let msg = Message::parse(bytes.to_vec()).ok().filter(|_| sip);
        let Some(msg) = msg else {
            self.pass(path.link, (from, to), bytes.to_vec());
            return true;
        };
        if self.is_with_us(&msg, from) {
            return false;
        }
        if !msg.is_request() {
            if let Some(id) = self.talks.by_parties.get(&(from, to)).copied() {
                self.phone_answered(id, &msg);
            }
            self.pass(path.link, (from, to), bytes.to_vec());
            return true;
        }
        let bytes = match msg.method() {
            Some(Method::Register) => self.with_one_contact(&msg, (place, from)),
            _ => bytes.to_vec(),
        };
        if let Some(id) = self.talk_of(now, (place, to), from, path, &msg) {
            self.asked(now.mono, id, msg, false);
        }
        self.pass(path.link, (from, to), bytes);
        true
    }

    /// What is for no softswitch that we know goes on, unobserved: the answer to a request that
    /// came past us, or a request to one softswitch too many.
    pub(in crate::gateway) fn passes_by(
        &mut self,
        taker: ListenerId,
        to: SocketAddr,
        from: SocketAddr,
        bytes: &[u8],
    ) -> bool {
        let through = !self.conf.hide_topology && !self.transport(taker).is_stream();
        let wan = self.conf.links_facing(Side::Wan).next();
        let Some((link, _)) = wan.filter(|_| through && self.leads_on(taker, to)) else {
            return false;
        };
        self.pass(link, (from, to), bytes.to_vec());
        true
    }

    /// The path by which what phones say to a softswitch goes through to it at present.
    pub(super) fn goes_through(
        &self,
        now: Now,
        place: ListenerId,
        to: SocketAddr,
    ) -> Option<PathKey> {
        if self.conf.hide_topology || self.transport(place).is_stream() {
            return None;
        }
        let group = self.group_addressed(place)?;
        let servers = &self.conf.groups[usize::from(group.0)].health.servers;
        let there = servers.iter().position(|at| at.address.ip() == to.ip())?;
        let index = u16::try_from(there).ok()?;
        self.health.serving(now, ServerId { group, index })
    }

    /// Whether a message is about something that we deal with: a transaction or dialog of ours,
    /// or a phone that is registered elsewhere through us until it registers anew.
    fn is_with_us(&self, msg: &Message, from: SocketAddr) -> bool {
        let in_dialog = || {
            let key = self.dialog_key(msg, Side::Lan);
            key.is_some_and(|key| self.dialogs.find(&key).is_some())
        };
        if self.transactions.knows(msg) || msg.is_request() && in_dialog() {
            return true;
        }
        let begins = msg.is_request() && msg.to_tag().is_none();
        begins && msg.method() != Some(Method::Register) && self.is_elsewhere(msg, from)
    }

    fn is_elsewhere(&self, msg: &Message, from: SocketAddr) -> bool {
        let sender = msg.from().map(|addr| self.aor(msg.slice(addr.uri)));
        let bindings = sender.map(|aor| self.bindings.of_aor(&aor));
        let bindings = bindings.into_iter().flatten();
        let mut bindings = bindings.filter_map(|id| self.bindings.get(id));
        bindings
            .any(|binding| binding.source == from && binding.upstream_contact != binding.contact)
    }

    /// A REGISTER takes away the Contact that stood for the phone elsewhere, and those that the
    /// phone itself replaces (EM25): the softswitch has one contact per phone.
    fn with_one_contact(&self, msg: &Message, (place, from): (ListenerId, SocketAddr)) -> Vec<u8> {
        let mut edit = Edit::new(msg);
        let pending = self.read_register(msg, from, place);
        let Some(pending) = pending else {
            return msg.bytes().to_vec();
        };
        let own = pending.asked.iter().filter(|a| !by_instance(&a.params));
        let elsewhere = own.filter_map(|a| self.bindings.find(&pending.aor, &a.contact));
        let elsewhere = elsewhere.filter_map(|id| self.bindings.get(id));
        let elsewhere = elsewhere.filter(|old| old.upstream_contact != old.contact);
        let replaced = self.superseded(&pending).into_iter();
        let replaced = replaced.filter_map(|id| self.bindings.get(id));
        let replaced = replaced.filter(|old| !by_instance(&old.params));
        for old in elsewhere.chain(replaced) {
            let upstream = old.upstream_contact.as_slice();
            if !upstream.is_empty() {
                edit.push_back(Name::Contact, [b"<", upstream, b">;expires=0"].concat());
            }
        }
        edit.finish()
    }

    /// The talk of a phone and a softswitch; a request that begins something makes one.
    fn talk_of(
        &mut self,
        now: Now,
        (place, to): (ListenerId, SocketAddr),
        from: SocketAddr,
        path: PathKey,
        msg: &Message,
    ) -> Option<TalkId> {
        let known = self.talks.by_parties.get(&(from, to)).copied();
        let id = match known {
            Some(id) => id,
            None if matches!(msg.method(), Some(Method::Ack | Method::Cancel)) => return None,
            None => self.new_talk(now, (place, to), from, path)?,
        };
        let talk = self.talks.by_id.get_mut(&id)?;
        talk.until = talk.until.max(now.mono + UNUSED);
        if known.is_none() || talk.path != path {
            talk.path = path;
            self.steer_talk(id);
        }
        Some(id)
    }

    pub(super) fn pass(
        &mut self,
        link: LinkId,
        (from, to): (SocketAddr, SocketAddr),
        bytes: Vec<u8>,
    ) {
        self.counters.passed += 1;
        self.out.push_back(Output::Pass {
            link,
            from,
            to,
            bytes,
        });
    }
}
