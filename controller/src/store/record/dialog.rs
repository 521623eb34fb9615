//! A dialog as it is stored.

use std::net::SocketAddr;

use keepline_engine::gateway::{AskedRecord, DialogRecord, PartyRecord, PathRecord};
use serde::{Deserialize, Serialize};

use super::{
    binding::Listener,
    media::Session,
    value::{At, Text, bytes, texts},
};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Dialog {
    id: u64,
    call_id: Text,
    caller: Party,
    callee: Party,
    path: Option<Path>,
    answer_in_ack: bool,
    since: At,
    #[serde(default)]
    ends: Option<At>,
    media: Option<Session>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Party {
    listener: Listener,
    tag: Text,
    target: Text,
    routes: Vec<Text>,
    peer: SocketAddr,
    caller_uri: Text,
    callee_uri: Text,
    said: Option<Text>,
    told: Option<Text>,
    #[serde(default)]
    answered_here: Option<u32>,
    #[serde(default)]
    cseq: u32,
    #[serde(default)]
    asked: Option<Asked>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    request: Text,
    from: SocketAddr,
    listener: Listener,
    since: At,
}

#[derive(Debug, Serialize, Deserialize)]
struct Path {
    group: String,
    server: SocketAddr,
    link: String,
}

impl From<&DialogRecord> for Dialog {
    fn from(record: &DialogRecord) -> Self {
        Self {
            id: record.id,
            call_id: (&record.call_id).into(),
            caller: (&record.caller).into(),
            callee: (&record.callee).into(),
            path: record.path.as_ref().map(|path| Path {
                group: path.group.clone(),
                server: path.server,
                link: path.link.clone(),
            }),
            answer_in_ack: record.answer_in_ack,
            since: record.since.into(),
            ends: record.ends.map(Into::into),
            media: record.media.as_ref().map(Session::from),
        }
    }
}

impl From<Dialog> for DialogRecord {
    fn from(stored: Dialog) -> Self {
        Self {
            id: stored.id,
            call_id: stored.call_id.into(),
            caller: stored.caller.into(),
            callee: stored.callee.into(),
            path: stored.path.map(|path| PathRecord {
                group: path.group,
                server: path.server,
                link: path.link,
            }),
            answer_in_ack: stored.answer_in_ack,
            since: stored.since.into(),
            ends: stored.ends.map(Into::into),
            media: stored.media.map(Into::into),
        }
    }
}

impl From<&PartyRecord> for Party {
    fn from(record: &PartyRecord) -> Self {
        Self {
            listener: (&record.listener).into(),
            tag: (&record.tag).into(),
            target: (&record.target).into(),
            routes: texts(&record.routes),
            peer: record.peer,
            caller_uri: (&record.caller_uri).into(),
            callee_uri: (&record.callee_uri).into(),
            said: record.said.as_ref().map(Text::from),
            told: record.told.as_ref().map(Text::from),
            answered_here: record.answered_here,
            cseq: record.cseq,
            asked: record.asked.as_ref().map(|asked| Asked {
                request: (&asked.request).into(),
                from: asked.from,
                listener: (&asked.listener).into(),
                since: asked.since.into(),
            }),
        }
    }
}

impl From<Party> for PartyRecord {
    fn from(stored: Party) -> Self {
        Self {
            listener: stored.listener.into(),
            tag: stored.tag.into(),
            target: stored.target.into(),
            routes: bytes(stored.routes),
            peer: stored.peer,
            caller_uri: stored.caller_uri.into(),
            callee_uri: stored.callee_uri.into(),
            said: stored.said.map(Vec::from),
            told: stored.told.map(Vec::from),
            answered_here: stored.answered_here,
            cseq: stored.cseq,
            asked: stored.asked.map(|asked| AskedRecord {
                request: asked.request.into(),
                from: asked.from,
                listener: asked.listener.into(),
                since: asked.since.into(),
            }),
        }
    }
}
