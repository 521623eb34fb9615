//! A session as plain data, and back: what a restart must bring back so that the same ports
//! stay open and the same flows are in force.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use super::{
    Leg, Media, SessionId, Signalled,
    remote::Remote,
    session::{Body, End, Exchange, Part, Session, SideOf, Slot, Stream},
    source::{Source, Target},
};
use crate::{
    net::LinkId,
    sdp::Origin,
    time::{Now, Wall},
};

/// A whole session. Links are named: their numbers may change with the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionRecord {
    /// Which session.
    pub id: u64,
    /// Caller and callee.
    pub sides: [SideRecord; 2],
    /// Each m= line.
    pub streams: Vec<StreamRecord>,
    /// The last offer, and its answer if there was one.
    pub exchange: Option<ExchangeRecord>,
}

/// A leg without its streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SideRecord {
    /// Name of the link it is on.
    pub link: String,
    /// Session id and version of the `o=` line last sent there.
    pub origin: (u64, u64),
    /// The body last sent there, without its version.
    pub sent: Option<Vec<u8>>,
}

/// One m= line on both legs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamRecord {
    /// `audio`, `video`, ...
    pub media: String,
    /// An answer was given.
    pub agreed: bool,
    /// Port 0.
    pub disabled: bool,
    /// RTCP shares RTP's port.
    pub mux: bool,
    /// The first of its four flow ids.
    pub first_flow: u64,
    /// Caller and callee.
    pub ends: [EndRecord; 2],
}

/// One leg of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EndRecord {
    /// The even port of our pair.
    pub port: Option<u16>,
    /// What the party said of itself.
    pub remote: Option<RemoteRecord>,
    /// Which source RTP is accepted from.
    pub rtp: SourceRecord,
    /// Which source RTCP is accepted from.
    pub rtcp: SourceRecord,
    /// Datagrams that came up before the source was known.
    pub before_lock: u32,
}

/// One stream of a party, as its body says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteRecord {
    /// Where RTP goes.
    pub rtp: TargetRecord,
    /// Where RTCP goes.
    pub rtcp: TargetRecord,
    /// RTCP shares RTP's port.
    pub mux: bool,
    /// On hold or one-way.
    pub held: bool,
}

/// What a body says of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TargetRecord {
    /// As declared.
    pub declared: Option<SocketAddr>,
    /// It can be sent to before anything was learned.
    pub reachable: bool,
    /// There is nothing to learn.
    pub certain: bool,
    /// On hold.
    pub hold: bool,
    /// The addresses a source may be learned from.
    pub eligible: [Option<IpAddr>; 2],
}

/// The accepted source of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceRecord {
    /// The source, once locked.
    pub accepted: Option<SocketAddr>,
    /// It was learned from packets.
    pub learned: bool,
    /// As declared.
    pub declared: Option<SocketAddr>,
    /// The addresses it may be learned from.
    pub eligible: [Option<IpAddr>; 2],
    /// Whether another source may be learned.
    pub window: WindowRecord,
    /// The source before the party moved.
    pub not: Option<SocketAddr>,
}

/// Whether a source may be learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowRecord {
    /// No.
    Closed,
    /// The first packet decides.
    First,
    /// Until then.
    Until(Wall),
}

/// An offer, and its answer if there was one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExchangeRecord {
    /// Whether the caller offered.
    pub by_caller: bool,
    /// The offer.
    pub offer: BodyRecord,
    /// What it says of each stream.
    pub remotes: Vec<Option<RemoteRecord>>,
    /// The last answer.
    pub answer: Option<BodyRecord>,
}

/// A body, from where it came, and as it went on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BodyRecord {
    /// The source address of the message that carried it.
    pub from: IpAddr,
    /// A NAT stood between.
    pub behind_nat: bool,
    /// As it came.
    pub came: Vec<u8>,
    /// As it went on.
    pub went: Vec<u8>,
}

impl Media {
    /// A session as plain data; `name` gives a link's name.
    #[must_use]
    pub fn save(
        &self,
        now: Now,
        session: SessionId,
        name: impl Fn(LinkId) -> String,
    ) -> Option<SessionRecord> {
        let state = self.sessions.get(&session)?;
        Some(SessionRecord {
            id: session.0,
            sides: [&state.sides[0], &state.sides[1]].map(|side| SideRecord {
                link: name(side.link),
                origin: (side.origin.id, side.origin.version),
                sent: side.sent.clone(),
            }),
            streams: state.streams.iter().map(|s| save_stream(now, s)).collect(),
            exchange: state.exchange.as_ref().map(save_exchange),
        })
    }

    /// Puts sessions of an earlier run back: their ports are held, their flows in force, ids go
    /// on after theirs. `link` finds a link by its name; a session on one that is gone is left
    /// out. Returns what is back.
    pub fn restore(
        &mut self,
        now: Now,
        records: &[SessionRecord],
        link: impl Fn(&str) -> Option<LinkId>,
    ) -> Vec<SessionId> {
        let mut back = Vec::new();
        for record in records {
            let session = SessionId(record.id);
            if self.sessions.contains_key(&session) {
                continue;
            }
            if let Some(state) = load_session(now, record, &link) {
                self.next_flow = record
                    .streams
                    .iter()
                    .fold(self.next_flow, |next, s| next.max(s.first_flow + 4));
                self.sessions.insert(session, state);
                back.push(session);
            }
        }
        self.hold_ports(&back);
        back.iter().for_each(|session| self.link_hairpins(*session));
        back.iter().for_each(|session| self.replan(*session));
        back
    }

    /// Takes the ports of restored sessions. A port that two of them name stays with the first.
    fn hold_ports(&mut self, sessions: &[SessionId]) {
        let mut taken = HashSet::new();
        for &session in sessions {
            for (rtp, link, port) in self.pairs(session) {
                if taken.insert((link, port)) {
                    self.open_ports(rtp, link, port);
                } else if let Some(end) = self.end_mut(rtp) {
                    end.port = None;
                }
            }
        }
        for (link, state) in &mut self.links {
            state.ports.claim(|port| taken.contains(&(*link, port)));
        }
    }

    fn pairs(&self, session: SessionId) -> Vec<(Slot, LinkId, u16)> {
        let Some(state) = self.sessions.get(&session) else {
            return Vec::new();
        };
        let ends = (0..state.streams.len())
            .flat_map(|stream| [Leg::Caller, Leg::Callee].map(|leg| (stream, leg)));
        ends.filter_map(|(stream, leg)| {
            let port = state.end(stream, leg)?.port?;
            let rtp = Slot {
                session,
                stream,
                leg,
                part: Part::Rtp,
            };
            Some((rtp, state.side(leg).link, port))
        })
        .collect()
    }
}

fn save_stream(now: Now, stream: &Stream) -> StreamRecord {
    let end = |end: &End| EndRecord {
        port: end.port,
        remote: end.remote.as_ref().map(save_remote),
        rtp: end.rtp.save(now),
        rtcp: end.rtcp.save(now),
        before_lock: end.before_lock,
    };
    StreamRecord {
        media: stream.media.clone(),
        agreed: stream.agreed,
        disabled: stream.disabled,
        mux: stream.mux,
        first_flow: stream.ends[0].flows[0].0,
        ends: [end(&stream.ends[0]), end(&stream.ends[1])],
    }
}

fn save_exchange(exchange: &Exchange) -> ExchangeRecord {
    let body = |body: &Body| BodyRecord {
        from: body.signalled.from,
        behind_nat: body.signalled.behind_nat,
        came: body.came.clone(),
        went: body.went.clone(),
    };
    ExchangeRecord {
        by_caller: exchange.from == Leg::Caller,
        offer: body(&exchange.offer),
        remotes: exchange
            .remotes
            .iter()
            .map(|remote| remote.as_ref().map(save_remote))
            .collect(),
        answer: exchange.answer.as_ref().map(body),
    }
}

fn save_remote(remote: &Remote) -> RemoteRecord {
    let target = |target: &Target| TargetRecord {
        declared: target.declared,
        reachable: target.reachable,
        certain: target.certain,
        hold: target.hold,
        eligible: target.eligible,
    };
    RemoteRecord {
        rtp: target(&remote.rtp),
        rtcp: target(&remote.rtcp),
        mux: remote.mux,
        held: remote.held,
    }
}

fn load_session(
    now: Now,
    record: &SessionRecord,
    link: impl Fn(&str) -> Option<LinkId>,
) -> Option<Session> {
    let side = |side: &SideRecord| {
        Some(SideOf {
            link: link(&side.link)?,
            origin: Origin {
                id: side.origin.0,
                version: side.origin.1,
            },
            sent: side.sent.clone(),
        })
    };
    Some(Session {
        sides: [side(&record.sides[0])?, side(&record.sides[1])?],
        streams: record
            .streams
            .iter()
            .map(|stream| load_stream(now, stream))
            .collect(),
        exchange: record.exchange.as_ref().map(load_exchange),
        heard: None,
    })
}

fn load_stream(now: Now, record: &StreamRecord) -> Stream {
    let mut stream = Stream::new(&record.media, record.first_flow);
    stream.agreed = record.agreed;
    stream.disabled = record.disabled;
    stream.mux = record.mux;
    for (end, record) in stream.ends.iter_mut().zip(&record.ends) {
        end.port = record.port;
        end.remote = record.remote.as_ref().map(load_remote);
        end.rtp = Source::load(now, &record.rtp);
        end.rtcp = Source::load(now, &record.rtcp);
        end.before_lock = record.before_lock;
    }
    stream
}

fn load_exchange(record: &ExchangeRecord) -> Exchange {
    let body = |body: &BodyRecord| Body {
        signalled: Signalled {
            from: body.from,
            behind_nat: body.behind_nat,
        },
        came: body.came.clone(),
        went: body.went.clone(),
    };
    Exchange {
        from: if record.by_caller {
            Leg::Caller
        } else {
            Leg::Callee
        },
        offer: body(&record.offer),
        remotes: record
            .remotes
            .iter()
            .map(|remote| remote.as_ref().map(load_remote))
            .collect(),
        answer: record.answer.as_ref().map(body),
    }
}

fn load_remote(record: &RemoteRecord) -> Remote {
    let target = |target: &TargetRecord| Target {
        declared: target.declared,
        reachable: target.reachable,
        certain: target.certain,
        hold: target.hold,
        eligible: target.eligible,
    };
    Remote {
        rtp: target(&record.rtp),
        rtcp: target(&record.rtcp),
        mux: record.mux,
        held: record.held,
    }
}
