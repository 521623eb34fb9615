//! A dialog's media as it is stored.

use std::net::{IpAddr, SocketAddr};

use keepline_engine::media::{
    BodyRecord, EndRecord, ExchangeRecord, RemoteRecord, SessionRecord, SideRecord, SourceRecord,
    StreamRecord, TargetRecord, WindowRecord,
};
use serde::{Deserialize, Serialize};

use super::value::{At, Text};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    id: u64,
    sides: [Side; 2],
    streams: Vec<Stream>,
    exchange: Option<Exchange>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Side {
    link: String,
    origin: (u64, u64),
    sent: Option<Text>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stream {
    media: String,
    agreed: bool,
    disabled: bool,
    mux: bool,
    first_flow: u64,
    ends: [End; 2],
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    port: Option<u16>,
    remote: Option<Remote>,
    rtp: Source,
    rtcp: Source,
    before_lock: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Remote {
    rtp: Target,
    rtcp: Target,
    mux: bool,
    held: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Target {
    declared: Option<SocketAddr>,
    reachable: bool,
    certain: bool,
    hold: bool,
    eligible: [Option<IpAddr>; 2],
}

#[derive(Debug, Serialize, Deserialize)]
struct Source {
    accepted: Option<SocketAddr>,
    learned: bool,
    declared: Option<SocketAddr>,
    eligible: [Option<IpAddr>; 2],
    window: Window,
    not: Option<SocketAddr>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Window {
    Closed,
    First,
    Until(At),
}

#[derive(Debug, Serialize, Deserialize)]
struct Exchange {
    by_caller: bool,
    offer: Body,
    remotes: Vec<Option<Remote>>,
    answer: Option<Body>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Body {
    from: IpAddr,
    behind_nat: bool,
    came: Text,
    went: Text,
}

impl From<&SessionRecord> for Session {
    fn from(record: &SessionRecord) -> Self {
        let side = |side: &SideRecord| Side {
            link: side.link.clone(),
            origin: side.origin,
            sent: side.sent.as_ref().map(Text::from),
        };
        Self {
            id: record.id,
            sides: [side(&record.sides[0]), side(&record.sides[1])],
            streams: record.streams.iter().map(Stream::from).collect(),
            exchange: record.exchange.as_ref().map(Exchange::from),
        }
    }
}

impl From<Session> for SessionRecord {
    fn from(stored: Session) -> Self {
        Self {
            id: stored.id,
            sides: stored.sides.map(|side| SideRecord {
                link: side.link,
                origin: side.origin,
                sent: side.sent.map(Vec::from),
            }),
            streams: stored.streams.into_iter().map(Into::into).collect(),
            exchange: stored.exchange.map(Into::into),
        }
    }
}

impl From<&StreamRecord> for Stream {
    fn from(record: &StreamRecord) -> Self {
        Self {
            media: record.media.clone(),
            agreed: record.agreed,
            disabled: record.disabled,
            mux: record.mux,
            first_flow: record.first_flow,
            ends: [(&record.ends[0]).into(), (&record.ends[1]).into()],
        }
    }
}

impl From<Stream> for StreamRecord {
    fn from(stored: Stream) -> Self {
        Self {
            media: stored.media,
            agreed: stored.agreed,
            disabled: stored.disabled,
            mux: stored.mux,
            first_flow: stored.first_flow,
            ends: stored.ends.map(Into::into),
        }
    }
}

impl From<&EndRecord> for End {
    fn from(record: &EndRecord) -> Self {
        Self {
            port: record.port,
            remote: record.remote.as_ref().map(Remote::from),
            rtp: (&record.rtp).into(),
            rtcp: (&record.rtcp).into(),
            before_lock: record.before_lock,
        }
    }
}

impl From<End> for EndRecord {
    fn from(stored: End) -> Self {
        Self {
            port: stored.port,
            remote: stored.remote.map(Into::into),
            rtp: stored.rtp.into(),
            rtcp: stored.rtcp.into(),
            before_lock: stored.before_lock,
        }
    }
}

impl From<&RemoteRecord> for Remote {
    fn from(record: &RemoteRecord) -> Self {
        Self {
            rtp: (&record.rtp).into(),
            rtcp: (&record.rtcp).into(),
            mux: record.mux,
            held: record.held,
        }
    }
}

impl From<Remote> for RemoteRecord {
    fn from(stored: Remote) -> Self {
        Self {
            rtp: stored.rtp.into(),
            rtcp: stored.rtcp.into(),
            mux: stored.mux,
            held: stored.held,
        }
    }
}

impl From<&TargetRecord> for Target {
    fn from(record: &TargetRecord) -> Self {
        Self {
            declared: record.declared,
            reachable: record.reachable,
            certain: record.certain,
            hold: record.hold,
            eligible: record.eligible,
        }
    }
}

impl From<Target> for TargetRecord {
    fn from(stored: Target) -> Self {
        Self {
            declared: stored.declared,
            reachable: stored.reachable,
            certain: stored.certain,
            hold: stored.hold,
            eligible: stored.eligible,
        }
    }
}

impl From<&SourceRecord> for Source {
    fn from(record: &SourceRecord) -> Self {
        Self {
            accepted: record.accepted,
            learned: record.learned,
            declared: record.declared,
            eligible: record.eligible,
            window: match record.window {
                WindowRecord::Closed => Window::Closed,
                WindowRecord::First => Window::First,
                WindowRecord::Until(at) => Window::Until(at.into()),
            },
            not: record.not,
        }
    }
}

impl From<Source> for SourceRecord {
    fn from(stored: Source) -> Self {
        Self {
            accepted: stored.accepted,
            learned: stored.learned,
            declared: stored.declared,
            eligible: stored.eligible,
            window: match stored.window {
                Window::Closed => WindowRecord::Closed,
                Window::First => WindowRecord::First,
                Window::Until(at) => WindowRecord::Until(at.into()),
            },
            not: stored.not,
        }
    }
}

impl From<&ExchangeRecord> for Exchange {
    fn from(record: &ExchangeRecord) -> Self {
        Self {
            by_caller: record.by_caller,
            offer: (&record.offer).into(),
            remotes: (record.remotes.iter())
                .map(|remote| remote.as_ref().map(Remote::from))
                .collect(),
            answer: record.answer.as_ref().map(Body::from),
        }
    }
}

impl From<Exchange> for ExchangeRecord {
    fn from(stored: Exchange) -> Self {
        Self {
            by_caller: stored.by_caller,
            offer: stored.offer.into(),
            remotes: (stored.remotes.into_iter())
                .map(|remote| remote.map(Into::into))
                .collect(),
            answer: stored.answer.map(Into::into),
        }
    }
}

impl From<&BodyRecord> for Body {
    fn from(record: &BodyRecord) -> Self {
        Self {
            from: record.from,
            behind_nat: record.behind_nat,
            came: (&record.came).into(),
            went: (&record.went).into(),
        }
    }
}

impl From<Body> for BodyRecord {
    fn from(stored: Body) -> Self {
        Self {
            from: stored.from,
            behind_nat: stored.behind_nat,
            came: stored.came.into(),
            went: stored.went.into(),
        }
    }
}
