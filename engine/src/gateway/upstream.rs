//! Keepalives of our own on the SIP flows to softswitches (EX4, signalling.md section 8): STUN to
//! those that speak it, CRLF to the others. They hold NAT bindings open, find a silent peer before
//! a call does, and tell when our address in its eyes has changed.
//!
//! STUN may be answered where SIP is not, and the reverse: an answer is no sign of life for the
//! health machine, and silence is confirmed by OPTIONS before anybody is called down.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    time::Duration,
};

use super::{Gateway, Output, deadlines::Deadline, outbound::lists};
use crate::{
    conf::Stun,
    event::{Event, Evidence},
    net::{GroupId, ListenerId, PathKey, ServerId},
    seal,
    sip::{Message, Name, seconds},
    stun,
    time::{Mono, Now},
};

/// A ping in streams (RFC 5626 section 3.5.1); over UDP it only holds a NAT binding open.
const PING: &[u8] = b"\r\n\r\n";
/// When a request is repeated over UDP, after the first one.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(1500)];
/// How long a server that did not answer STUN over UDP is not tried again.
const DEAF: Duration = Duration::from_secs(24 * 3600);
/// Requests in a row that a server which spoke STUN leaves unanswered until it counts as one that
/// does not.
const MISSES: u8 = 3;
/// What a server may ask for as interval, in seconds (RFC 5626 section 4.4.1, RFC 6223).
const ASKED_FOR: std::ops::RangeInclusive<u32> = 10..=3600;

/// Whether a server answers STUN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Speech {
    #[default]
    Unknown,
    Speaks,
    Deaf(Mono),
}

/// One flow: our listener and a server.
#[derive(Debug, Default)]
struct Flow {
    speech: Speech,
    /// Its server showed that it takes keepalives in streams.
    shown: bool,
    /// The interval that it asked for.
    every: Option<Duration>,
    /// Our address as it sees it.
    mapped: Option<SocketAddr>,
    misses: u8,
    asked: Option<Asked>,
}

/// A request that waits for its answer.
#[derive(Debug, Clone, Copy)]
struct Asked {
    id: stun::Id,
    began: Mono,
    sent: usize,
}

/// Every flow to a softswitch.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<PathKey, Flow>,
    asked: HashMap<stun::Id, PathKey>,
}

impl Flows {
    fn forget(&mut self, path: PathKey) {
        if let Some(asked) = self.flows.remove(&path).and_then(|flow| flow.asked) {
            self.asked.remove(&asked.id);
        }
    }
}

impl Gateway {
    /// The flows to a group's servers are kept alive from now on.
    pub(super) fn keep_alive(&mut self, now: Now, group: GroupId) {
        if self.conf.keepalive.stun == Stun::Off {
            return;
        }
        let Some(of) = self.conf.groups.get(usize::from(group.0)) else {
            return;
        };
        let servers = u16::try_from(of.health.servers.len()).unwrap_or(u16::MAX);
        for index in 0..servers {
            for (link, _) in self.conf.wan_links() {
                let server = ServerId { group, index };
                let path = PathKey { server, link };
                if self.conf.listener_to(path).is_some() {
                    // A learned softswitch may have the place of a forgotten one.
                    self.upstream.forget(path);
                    self.upstream.flows.insert(path, Flow::default());
                    self.keep_alive_next(now, path);
                }
            }
        }
    }

    /// The next keepalive of a flow, or the next step of the one under way.
    pub(super) fn keep_alive_due(&mut self, now: Now, path: PathKey) {
        let Some((listener, server)) = self.flow_at(path) else {
            self.upstream.forget(path);
            return;
        };
        let Some(flow) = self.upstream.flows.get(&path) else {
            return;
        };
        let stream = self.transport(listener).is_stream();
        match flow.asked {
            Some(asked) if now.mono.since(asked.began) >= self.conf.keepalive.timeout => {
                self.keepalive_unanswered(now, path);
            }
            Some(asked) => self.ask_flow(path, asked),
            // A connection is opened by what is to be said, and a dead server is probed anyhow.
            None if self.health.is_down(path)
                || (stream && !self.is_connected(listener, server)) =>
            {
                self.keep_alive_next(now, path);
            }
            None if self.takes_stun(now, flow, stream) => {
                let id = self.stun_id(now, path);
                self.upstream.asked.insert(id, path);
                let (began, sent) = (now.mono, 0);
                self.ask_flow(path, Asked { id, began, sent });
            }
            None => {
                self.send(listener, server, PING.to_vec());
                self.keep_alive_next(now, path);
            }
        }
    }

    fn takes_stun(&self, now: Now, flow: &Flow, stream: bool) -> bool {
        match (self.conf.keepalive.stun, flow.speech) {
            (Stun::Off, _) => false,
            (Stun::On, _) => true,
            (Stun::Auto, Speech::Deaf(until)) if now.mono < until => false,
            (Stun::Auto, _) => flow.shown || !stream,
        }
    }

    /// The listener and the server of a flow, while both are there.
    fn flow_at(&self, path: PathKey) -> Option<(ListenerId, SocketAddr)> {
        let listener = self.conf.listener_to(path)?;
        Some((listener, self.server_address(path.server)))
    }

    fn ask_flow(&mut self, path: PathKey, asked: Asked) {
        let Some((listener, server)) = self.flow_at(path) else {
            return;
        };
        let again = match self.transport(listener).is_stream() {
            true => None,
            false => AGAIN.get(asked.sent).copied(),
        };
        let limit = self.conf.keepalive.timeout;
        let next = asked.began + again.map_or(limit, |again| again.min(limit));
        let sent = asked.sent + 1;
        if let Some(flow) = self.upstream.flows.get_mut(&path) {
            flow.asked = Some(Asked { sent, ..asked });
        }
        self.deadlines.set(Deadline::Keepalive(path), next);
        self.send(listener, server, stun::ask(asked.id));
    }

    /// About every `interval`: over UDP 80 to 97 % of it, so that flows do not march in step and
    /// a NAT that forgets after 30 s does not.
    fn keep_alive_next(&mut self, now: Now, path: PathKey) {
        let told = self.upstream.flows.get(&path).and_then(|flow| flow.every);
        let every = told.unwrap_or(self.conf.keepalive.interval);
        let stream = self.flow_at(path);
        let stream = stream.is_some_and(|(on, _)| self.transport(on).is_stream());
        let wait = match stream && told.is_none() {
            true => every,
            false => every.mul_f64(0.8 + 0.166 * self.rng.unit()),
        };
        self.deadlines
            .set(Deadline::Keepalive(path), now.mono + wait);
    }

    /// A STUN response came: to a request of ours, or to nothing.
    pub(super) fn stun_told(
        &mut self,
        now: Now,
        listener: ListenerId,
        from: SocketAddr,
        told: &stun::Told,
    ) {
        let Some(path) = self.upstream.asked.get(&told.id).copied() else {
            return;
        };
        if self.flow_at(path) != Some((listener, from)) {
            return;
        }
        let Some(mapped) = told.mapped else {
            // It speaks STUN, and says that it cannot serve.
            return self.keepalive_unanswered(now, path);
        };
        self.upstream.asked.remove(&told.id);
        let Some(flow) = self.upstream.flows.get_mut(&path) else {
            return;
        };
        (flow.speech, flow.misses, flow.asked) = (Speech::Speaks, 0, None);
        let before = flow.mapped.replace(mapped);
        self.keep_alive_next(now, path);
        if let Some(before) = before.filter(|before| *before != mapped) {
            self.flow_changed(now, path, before, mapped);
        }
    }

    /// Nobody answers: of a server that never did, that is all there is to know.
    fn keepalive_unanswered(&mut self, now: Now, path: PathKey) {
        let (auto, limit) = (
            self.conf.keepalive.stun == Stun::Auto,
            self.conf.keepalive.timeout,
        );
        let Some((listener, server)) = self.flow_at(path) else {
            return;
        };
        let Some(flow) = self.upstream.flows.get_mut(&path) else {
            return;
        };
        if let Some(asked) = flow.asked.take() {
            self.upstream.asked.remove(&asked.id);
        }
        let spoke = flow.speech == Speech::Speaks;
        flow.misses = flow.misses.saturating_add(u8::from(spoke));
        if !spoke || flow.misses >= MISSES {
            (flow.speech, flow.misses) = (Speech::Deaf(now.mono + DEAF), 0);
        }
        if spoke {
            self.health.keepalive_missed(now, path, limit);
            if self.transport(listener).is_stream() {
                // The flow failed (RFC 5626 section 4.4): the next one is another connection.
                let peer = server;
                self.out.push_back(Output::Close { listener, peer });
            }
        } else if auto {
            self.send(listener, server, PING.to_vec());
        }
        self.keep_alive_next(now, path);
    }

    /// What a REGISTER of a phone came back with says whether its server takes keepalives.
    pub(super) fn flow_shown(&mut self, path: PathKey, msg: &Message) {
        let mut names = [Name::Require, Name::Supported].into_iter();
        let outbound = names.any(|name| lists(msg, name, "outbound"));
        let timer = msg.header(Name::FlowTimer).map(|span| msg.slice(span));
        let via = msg.top_via();
        let keep = via.and_then(|via| via.param(msg.bytes(), "keep")?.value);
        let keep = keep.map(|span| msg.slice(span));
        let every = timer.or(keep).and_then(seconds);
        let Some(flow) = self.upstream.flows.get_mut(&path) else {
            return;
        };
        flow.shown |= outbound || every.is_some();
        if let Some(every) = every.filter(|every| ASKED_FOR.contains(every)) {
            flow.every = Some(Duration::from_secs(u64::from(every)));
        }
    }

    /// Another address stands for us: what the server would send to the old one is lost, so its
    /// registrations are renewed.
    fn flow_changed(&mut self, now: Now, path: PathKey, before: SocketAddr, after: SocketAddr) {
        let group = &self.conf.groups[usize::from(path.server.group.0)];
        let uri = &group.health.servers[usize::from(path.server.index)].uri;
        let link = &self.conf.links[usize::from(path.link.0)].name;
        let what = format!("STUN told {after}, {before} before");
        self.out.push_back(Output::Event(Event {
            at: now,
            kind: "flow",
            object: format!("{} {uri} {link}", group.health.name),
            from: before.to_string(),
            to: after.to_string(),
            rule: "mapped_address_changed",
            evidence: vec![Evidence { at: now, what }],
        }));
        self.call_in(now, |binding| binding.server == path.server);
    }

    /// Unpredictable to others, so that an answer proves that the request was seen.
    fn stun_id(&mut self, now: Now, path: PathKey) -> stun::Id {
        let number = self.fresh_id().to_be_bytes();
        let wall = now.wall.0.as_nanos().to_be_bytes();
        let server = self.server_address(path.server).to_string();
        let parts: [&[u8]; 3] = [&number, &wall, server.as_bytes()];
        let hash = seal::keyed_hash(&self.conf.secret, "stun", &parts);
        let mut id = stun::Id::default();
        id.iter_mut()
            .zip(hash.bytes())
            .for_each(|(to, from)| *to = from);
        id
    }
}
