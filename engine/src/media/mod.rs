//! Media plans: which ports a call holds, and which flows forward it (signalling.md section 7).
//!
//! | file | concern |
//! |---|---|
//! | `exchange` | offers and answers, and the bodies that go on |
//! | `remote` | what a body says of its sender, and what it may not say |
//! | `source` | the one source a port accepts, and how it is learned |
//! | `plan` | where each port's packets go, through hairpins |
//! | `ports` | port pairs, and their rest |
//! | `record` | a session as plain data, and back |

mod exchange;
mod plan;
mod ports;
mod record;
mod remote;
mod session;
mod source;
mod types;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

pub use record::{
    BodyRecord, EndRecord, ExchangeRecord, RemoteRecord, SessionRecord, SideRecord, SourceRecord,
    StreamRecord, TargetRecord, WindowRecord,
};
pub use types::{
    DropReason, Learn, Leg, LegView, MediaConf, MediaLink, Refused, Seen, SessionId, SessionView,
    Signalled, StreamView,
};

use ports::Ports;
use session::{End, Part, Session, SideOf, Slot};

use crate::{
    net::{LinkId, Side},
    rng::Rng,
    sdp::Origin,
    steer::{Delta, Flow, FlowId},
    time::Now,
};

/// Anchors the media of every call at the gateway.
///
/// Plain data with outputs: it has no timers of its own, `now` decides when ports have rested
/// and learning windows end. After each call the driver drains [`Media::poll_output`].
#[derive(Debug)]
pub struct Media {
    conf: MediaConf,
    links: BTreeMap<LinkId, LinkState>,
    sessions: BTreeMap<SessionId, Session>,
    /// Every port that is held.
    locals: HashMap<SocketAddr, Slot>,
    flows: BTreeMap<FlowId, (SessionId, Flow)>,
    /// Sessions whose media passes through each other.
    hairpins: BTreeMap<SessionId, BTreeSet<SessionId>>,
    next_flow: u64,
    /// Sessions that a store must hear of anew.
    changed: BTreeSet<SessionId>,
    outputs: VecDeque<Delta>,
}

#[derive(Debug)]
struct LinkState {
    side: Side,
    address: Option<IpAddr>,
    ports: Ports,
}

impl Media {
    /// No session yet, every port free.
    #[must_use]
    pub fn new(conf: MediaConf, links: Vec<MediaLink>) -> Self {
        let state = |link: MediaLink| {
            let ports = Ports::new(&conf.ports, conf.seed ^ u64::from(link.id.0));
            let address = link.address.map(|ip| ip.to_canonical());
            (
                link.id,
                LinkState {
                    side: link.side,
                    address,
                    ports,
                },
            )
        };
        Self {
            links: links.into_iter().map(state).collect(),
            conf,
            sessions: BTreeMap::new(),
            locals: HashMap::new(),
            flows: BTreeMap::new(),
            hairpins: BTreeMap::new(),
            next_flow: 1,
            changed: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Begins a session between two links; ports are taken by the first offer.
    pub fn open(&mut self, session: SessionId, caller: LinkId, callee: LinkId) {
        let side = |leg: Leg, link| SideOf {
            link,
            // 31 bits: there are phones that read it into an int.
            origin: Origin {
                id: Rng::new(self.conf.seed ^ (session.0 << 1) ^ leg as u64).next_u64() >> 33,
                version: 0,
            },
            sent: None,
        };
        let sides = [side(Leg::Caller, caller), side(Leg::Callee, callee)];
        let state = Session {
            sides,
            streams: Vec::new(),
            exchange: None,
            heard: None,
        };
        self.sessions.entry(session).or_insert(state);
    }

    /// Moves a leg to another link, before its body is sent there: a hunt over another WAN.
    /// The offer must be given again.
    pub fn relink(&mut self, now: Now, session: SessionId, leg: Leg, link: LinkId) {
        let Some(state) = self
            .sessions
            .get(&session)
            .filter(|s| s.side(leg).link != link)
        else {
            return;
        };
        (0..state.streams.len()).for_each(|stream| self.free_end(now, session, stream, leg));
        if let Some(state) = self.sessions.get_mut(&session) {
            state.side_mut(leg).link = link;
            state.exchange = None;
        }
        self.changed.insert(session);
        self.replan(session);
    }

    /// Whether this session is open.
    #[must_use]
    pub fn holds(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Ends a session: its flows are cleared, its ports closed.
    pub fn close(&mut self, now: Now, session: SessionId) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let touched = self.touched(session);
        (0..state.streams.len()).for_each(|stream| self.free_stream(now, session, stream));
        self.unlink_hairpins(session);
        self.sessions.remove(&session);
        touched.into_iter().for_each(|other| self.replan(other));
    }

    /// A link's address came, went or changed: its ports are held anew, its flows follow, and
    /// sources behind it may be learned once more.
    pub fn address_changed(&mut self, now: Now, link: LinkId, address: Option<IpAddr>) {
        let address = address.map(|ip| ip.to_canonical());
        let Some(state) = self
            .links
            .get(&link)
            .filter(|state| state.address != address)
        else {
            return;
        };
        let old = state.address;
        let slots = self.slots_on(link);
        for &(slot, port) in &slots {
            if let Some(old) = old {
                self.close_port(SocketAddr::new(old, slot.part.of(port)));
            }
        }
        if let Some(state) = self.links.get_mut(&link) {
            state.address = address;
        }
        for &(slot, port) in slots.iter().filter(|(slot, _)| slot.part == Part::Rtp) {
            self.open_ports(slot, link, port);
        }
        for &(slot, _) in &slots {
            if let Some(end) = self.end_mut(slot) {
                let source = end.source_mut(slot.part);
                *source = source.reopened(now.mono);
            }
            self.changed.insert(slot.session);
        }
        slots.iter().for_each(|(slot, _)| self.replan(slot.session));
    }

    /// The next change of the desired state.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Delta> {
        self.outputs.pop_front()
    }

    /// Takes the sessions whose record is another than when this was called last.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.changed)
    }

    /// Every flow that is in force, with the session it belongs to.
    pub fn flows(&self) -> impl Iterator<Item = (SessionId, &Flow)> {
        self.flows.values().map(|(session, flow)| (*session, flow))
    }

    /// Every port that is held, with its link.
    pub fn ports(&self) -> impl Iterator<Item = (LinkId, SocketAddr)> {
        self.locals.iter().filter_map(|(local, slot)| {
            Some((
                self.sessions.get(&slot.session)?.side(slot.leg).link,
                *local,
            ))
        })
    }

    fn address(&self, link: LinkId) -> Option<IpAddr> {
        self.links.get(&link)?.address
    }

    fn local(&self, link: LinkId, port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address(link)?, port))
    }

    fn is_ours(&self, ip: IpAddr) -> bool {
        self.links.values().any(|link| link.address == Some(ip))
    }

    fn end(&self, slot: Slot) -> Option<&End> {
        self.sessions.get(&slot.session)?.end(slot.stream, slot.leg)
    }

    fn end_mut(&mut self, slot: Slot) -> Option<&mut End> {
        let stream = self
            .sessions
            .get_mut(&slot.session)?
            .streams
            .get_mut(slot.stream)?;
        Some(&mut stream.ends[slot.leg as usize])
    }

    /// Every port that calls have on a link, held or waiting for an address, with its pair.
    fn slots_on(&self, link: LinkId) -> Vec<(Slot, u16)> {
        let mut slots = Vec::new();
        for (&session, state) in &self.sessions {
            for leg in [Leg::Caller, Leg::Callee]
                .into_iter()
                .filter(|&l| state.side(l).link == link)
            {
                for (stream, s) in state.streams.iter().enumerate() {
                    let Some(pair) = s.ends[leg as usize].port else {
                        continue;
                    };
                    slots.extend(Part::BOTH.map(|part| {
                        (
                            Slot {
                                session,
                                stream,
                                leg,
                                part,
                            },
                            pair,
                        )
                    }));
                }
            }
        }
        slots
    }

    fn free_stream(&mut self, now: Now, session: SessionId, stream: usize) {
        [Leg::Caller, Leg::Callee]
            .into_iter()
            .for_each(|leg| self.free_end(now, session, stream, leg));
    }

    /// Gives a leg's pair back; both directions of its stream stop.
    fn free_end(&mut self, now: Now, session: SessionId, stream: usize, leg: Leg) {
        let rtp = Slot {
            session,
            stream,
            leg,
            part: Part::Rtp,
        };
        let Some(link) = self
            .sessions
            .get(&session)
            .map(|state| state.side(leg).link)
        else {
            return;
        };
        let Some(end) = self.end_mut(rtp) else { return };
        let flows = end.flows;
        let Some(port) = end.port.take() else { return };
        self.clear_flows(flows);
        for part in Part::BOTH {
            if let Some(local) = self.local(link, part.of(port)) {
                self.close_port(local);
            }
        }
        if let Some(state) = self.links.get_mut(&link) {
            state.ports.give(now.mono, port);
        }
    }

    fn close_port(&mut self, local: SocketAddr) {
        if self.locals.remove(&local).is_some() {
            self.outputs.push_back(Delta::PortClose { local });
        }
    }
}
