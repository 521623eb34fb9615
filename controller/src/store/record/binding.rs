//! A binding as it is stored.

use std::{net::SocketAddr, time::Duration};

use keepline_engine::{
    gateway::{self, BindingRecord, ListenerRecord},
    net::Transport,
};
use serde::{Deserialize, Serialize};

use super::value::{At, Text, bytes, texts};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Binding {
    id: u64,
    aor: String,
    contact: Text,
    params: Text,
    token: String,
    upstream_contact: Text,
    source: SocketAddr,
    #[serde(default)]
    proof: Option<Proof>,
    listener: Listener,
    call_id: Text,
    cseq: u32,
    credentials: Option<Text>,
    group: String,
    server: SocketAddr,
    accepted: At,
    granted_s: u64,
    phone_until: At,
    service_route: Vec<Text>,
    #[serde(default)]
    path: Vec<Text>,
    #[serde(default)]
    outbound: bool,
    associated: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Proof {
    Mac([u8; 6]),
    Certificate([u8; 32]),
}

impl From<gateway::Proof> for Proof {
    fn from(proof: gateway::Proof) -> Self {
        match proof {
            gateway::Proof::Mac(mac) => Self::Mac(mac),
            gateway::Proof::Certificate(sha256) => Self::Certificate(sha256),
        }
    }
}

impl From<Proof> for gateway::Proof {
    fn from(proof: Proof) -> Self {
        match proof {
            Proof::Mac(mac) => Self::Mac(mac),
            Proof::Certificate(sha256) => Self::Certificate(sha256),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listener {
    link: String,
    /// As Via names it; what was written before there were streams is UDP.
    #[serde(default = "udp")]
    transport: String,
    address: SocketAddr,
}

fn udp() -> String {
    Transport::Udp.via().to_owned()
}

impl From<&ListenerRecord> for Listener {
    fn from(record: &ListenerRecord) -> Self {
        Self {
            link: record.link.clone(),
            transport: record.transport.via().to_owned(),
            address: record.address,
        }
    }
}

impl From<Listener> for ListenerRecord {
    fn from(stored: Listener) -> Self {
        Self {
            link: stored.link,
            transport: Transport::named(stored.transport.as_bytes()).unwrap_or_default(),
            address: stored.address,
        }
    }
}

impl From<&BindingRecord> for Binding {
    fn from(record: &BindingRecord) -> Self {
        Self {
            id: record.id,
            aor: record.aor.clone(),
            contact: (&record.contact).into(),
            params: (&record.params).into(),
            token: record.token.clone(),
            upstream_contact: (&record.upstream_contact).into(),
            source: record.source,
            proof: record.proof.map(Proof::from),
            listener: (&record.listener).into(),
            call_id: (&record.call_id).into(),
            cseq: record.cseq,
            credentials: record.credentials.as_ref().map(Text::from),
            group: record.group.clone(),
            server: record.server,
            accepted: record.accepted.into(),
            granted_s: record.granted.as_secs(),
            phone_until: record.phone_until.into(),
            service_route: texts(&record.service_route),
            path: texts(&record.path),
            outbound: record.outbound,
            associated: record.associated.clone(),
        }
    }
}

impl From<Binding> for BindingRecord {
    fn from(stored: Binding) -> Self {
        Self {
            id: stored.id,
            aor: stored.aor,
            contact: stored.contact.into(),
            params: stored.params.into(),
            token: stored.token,
            upstream_contact: stored.upstream_contact.into(),
            source: stored.source,
            proof: stored.proof.map(gateway::Proof::from),
            listener: stored.listener.into(),
            call_id: stored.call_id.into(),
            cseq: stored.cseq,
            credentials: stored.credentials.map(Vec::from),
            group: stored.group,
            server: stored.server,
            accepted: stored.accepted.into(),
            granted: Duration::from_secs(stored.granted_s),
            phone_until: stored.phone_until.into(),
            service_route: bytes(stored.service_route),
            path: bytes(stored.path),
            outbound: stored.outbound,
            associated: stored.associated,
        }
    }
}
