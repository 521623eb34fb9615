//! A dialog as it is stored.

use std::net::SocketAddr;

use keepline_engine::gateway::{DialogRecord, PartyRecord, PathRecord};
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
    answered_here: Option<u32>,
    since: At,
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
            answered_here: record.answered_here,
            since: record.since.into(),
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
            answered_here: stored.answered_here,
            since: stored.since.into(),
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
        }
    }
}
