//! A request as it leaves: the fixed list of changes a topology-hiding gateway makes, and
//! nothing else (signalling.md section 6).

use std::net::SocketAddr;

use super::{
    Gateway,
    topology::{self, Sight},
};
use crate::{
    conf::Stun,
    net::{ListenerId, PathKey, Side, Transport},
    seal,
    sip::{Edit, Message, Method, Name, NameAddr, Span, Uri},
};

/// Where a request goes and how its parties are written there.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The side it leaves on.
    pub(super) side: Side,
    pub(super) listener: ListenerId,
    pub(super) to: SocketAddr,
    /// The Request-URI.
    pub(super) uri: Vec<u8>,
    /// Route values, in order.
    pub(super) routes: Vec<Vec<u8>>,
    /// From and To URIs of a dialog; outside of one they are mapped.
    pub(super) parties: Option<(Vec<u8>, Vec<u8>)>,
    /// The server and link, towards softswitches.
    pub(super) path: Option<PathKey>,
}

/// Headers whose URIs may name a host of the other side.
const ADDRESSES: [Name; 5] = [
    Name::PAssertedIdentity,
    Name::PPreferredIdentity,
    Name::ReferredBy,
    Name::Diversion,
    Name::HistoryInfo,
];

/// Headers that begin with a Call-ID of some other dialog.
const CALL_IDS: [Name; 4] = [
    Name::Replaces,
    Name::Join,
    Name::TargetDialog,
    Name::InReplyTo,
];

impl Gateway {
    /// The branch of the copy that goes to `target`: derived from the branch received, so that
    /// a retransmission after a restart continues the same transaction (signalling.md
    /// section 2). ACK to a 2xx is a transaction of its own; CANCEL and ACK to a failure are
    /// built from the INVITE they belong to.
    pub(super) fn branch(&self, msg: &Message, target: &Target) -> String {
        let via = msg.top_via();
        let received = via
            .and_then(|via| via.branch(msg.bytes()))
            .unwrap_or_default();
        let sent_by = via.map(|via| msg.slice(via.sent_by)).unwrap_or_default();
        let call_id = msg.call_id().unwrap_or_default();
        let cseq = msg.cseq().map_or(0, |cseq| cseq.number).to_be_bytes();
        let to = target.to.to_string();
        let link = [self.conf.listeners[usize::from(target.listener.0)].link.0];
        let parts: [&[u8]; 7] = [
            received,
            sent_by,
            call_id,
            &cseq,
            msg.method_bytes(),
            to.as_bytes(),
            &link,
        ];
        format!(
            "z9hG4bK{}",
            seal::keyed_hash(&self.conf.secret, "branch", &parts)
        )
    }

    /// All changes but Contact and body, which depend on the kind of request.
    pub(super) fn outgoing<'m>(
        &self,
        msg: &'m Message,
        from: Side,
        target: &Target,
        branch: &str,
    ) -> Edit<'m> {
        let mut edit = Edit::new(msg);
        if let Some(uri) = msg.uri() {
            edit.replace(uri, &target.uri);
        }
        edit.remove_all(Name::Via);
        let keep = match msg.method() {
            // We take keepalives of a registrar's (RFC 6223 section 4.2).
            Some(Method::Register) if self.conf.keepalive.stun != Stun::Off => ";keep",
            _ => "",
        };
        edit.push_front(Name::Via, self.via(target.listener, branch) + keep);
        match msg.header(Name::MaxForwards) {
            Some(span) => {
                let left = msg.max_forwards().unwrap_or(70).saturating_sub(1);
                edit.replace(span, left.to_string());
            }
            None => edit.push_back(Name::MaxForwards, "69"),
        }
        edit.remove_all(Name::Route);
        edit.remove_all(Name::RecordRoute);
        for route in &target.routes {
            edit.push_back(Name::Route, route);
        }
        match &target.parties {
            Some((from, to)) => {
                for (addr, uri) in [(msg.from(), from), (msg.to(), to)] {
                    if let Some(addr) = addr {
                        put_uri(&mut edit, &addr, uri);
                    }
                }
            }
            None => {
                let sides = (from, self.sight(target));
                self.map_uri(&mut edit, msg, msg.from(), sides);
                self.map_uri(&mut edit, msg, msg.to(), sides);
            }
        }
        self.hide(&mut edit, msg, from, (self.sight(target), target.listener));
        edit
    }

    /// Our Via on a listener.
    pub(super) fn via(&self, listener: ListenerId, branch: &str) -> String {
        let alias = match self.transport(listener).is_stream() {
            // Requests to us may take the connection that we opened (RFC 5923).
            true => ";alias",
            false => "",
        };
        format!(
            "SIP/2.0/{};branch={branch};rport{alias}",
            self.sent_protocol_and_by(listener)
        )
    }

    /// Transport and sent-by of our Via on a listener, as in `UDP 192.0.2.1:5060`.
    pub(super) fn sent_protocol_and_by(&self, listener: ListenerId) -> String {
        let transport = self.transport(listener).via();
        format!("{transport} {}", self.address(listener))
    }

    /// What a listener carries SIP over.
    pub(super) fn transport(&self, listener: ListenerId) -> Transport {
        self.conf.listeners[usize::from(listener.0)].transport
    }

    /// `sip:user@address`, or `sip:address` without a user, at a listener of ours.
    pub(super) fn contact_uri(&self, user: &[u8], listener: ListenerId) -> Vec<u8> {
        let at = self.address(listener).to_string();
        let separator: &[u8] = if user.is_empty() { b"" } else { b"@" };
        let transport = self.transport(listener).uri_param();
        [
            b"sip:",
            user,
            separator,
            at.as_bytes(),
            transport.as_bytes(),
        ]
        .concat()
    }

    /// The address a listener answers from.
    pub(super) fn address(&self, listener: ListenerId) -> SocketAddr {
        self.conf.listeners[usize::from(listener.0)].address
    }

    /// What is translated alike in requests and responses: the Call-ID, identities, references
    /// to other dialogs, Warning agents.
    pub(super) fn hide(
        &self,
        edit: &mut Edit<'_>,
        msg: &Message,
        from: Side,
        (towards, listener): (Sight, ListenerId),
    ) {
        if from != towards.side {
            self.map_call_ids(edit, msg);
        }
        for addr in msg.addrs(Name::ReferTo) {
            if let Some(uri) = self.callable(msg.slice(addr.uri), from, (towards, listener)) {
                put_uri(edit, &addr, &uri);
            }
        }
        for name in ADDRESSES {
            for addr in msg.addrs(name) {
                self.map_uri(edit, msg, Some(addr), (from, towards));
            }
        }
        for value in msg.values(Name::Warning) {
            self.map_warning(edit, msg, value, (from, towards));
        }
    }

    /// The Contact that stands for a party on the other side. Towards softswitches it is a
    /// token at the WAN address, stable over restarts; towards phones the user at the gateway.
    pub(super) fn contact(
        &self,
        msg: &Message,
        addr: &NameAddr,
        target: (Side, ListenerId),
        party: &[u8],
        source: SocketAddr,
    ) -> Vec<u8> {
        let uri = msg.slice(addr.uri);
        let user = match target.0 {
            Side::Wan => self.token(&self.aor(party), uri, source).into_bytes(),
            Side::Lan => Uri::parse(uri)
                .and_then(|uri| uri.user)
                .unwrap_or_default()
                .to_vec(),
        };
        self.contact_uri(&user, target.1)
    }

    /// The user part that stands for a phone's contact upstream (signalling.md section 4).
    pub(super) fn token(&self, aor: &str, contact: &[u8], source: SocketAddr) -> String {
        let source = source.ip().to_string();
        let parts: [&[u8]; 3] = [aor.as_bytes(), contact, source.as_bytes()];
        format!(
            "k{}",
            seal::keyed_hash(&self.conf.secret, "contact", &parts)
        )
    }

    /// The address of record in canonical form: `user@domain`, the gateway's own addresses
    /// standing for the domain.
    pub(super) fn aor(&self, uri: &[u8]) -> String {
        let Some(uri) = Uri::parse(uri) else {
            return String::from_utf8_lossy(uri).into_owned();
        };
        let user = String::from_utf8_lossy(uri.user.unwrap_or_default()).into_owned();
        let host = match uri.host_ip() {
            Some(ip) => self.topology.domain_of(ip).to_owned(),
            None => String::from_utf8_lossy(uri.host).into_owned(),
        };
        format!("{user}@{}", host.to_ascii_lowercase())
    }

    fn map_uri(
        &self,
        edit: &mut Edit<'_>,
        msg: &Message,
        addr: Option<NameAddr>,
        (from, towards): (Side, Sight),
    ) {
        if let Some(addr) = addr
            && let Some(uri) = self.topology.uri(msg.slice(addr.uri), from, towards)
        {
            put_uri(edit, &addr, &uri);
        }
    }

    fn map_call_ids(&self, edit: &mut Edit<'_>, msg: &Message) {
        if let Some(span) = msg.header(Name::CallId) {
            self.map_call_id(edit, msg, span.trim(msg.bytes()));
        }
        for name in CALL_IDS {
            for value in msg.values(name) {
                let end = msg.slice(value).iter().position(|byte| *byte == b';');
                let length = end.unwrap_or(value.len());
                let start = value.start as usize;
                self.map_call_id(
                    edit,
                    msg,
                    Span::new(start..start + length).trim(msg.bytes()),
                );
            }
        }
    }

    fn map_call_id(&self, edit: &mut Edit<'_>, msg: &Message, span: Span) {
        let mapped = self.topology.call_id(msg.slice(span));
        if mapped != msg.slice(span) {
            edit.replace(span, mapped);
        }
    }

    /// `399 agent "text"`: the agent may be an address (RFC 3261 section 20.43).
    fn map_warning(
        &self,
        edit: &mut Edit<'_>,
        msg: &Message,
        value: Span,
        (from, towards): (Side, Sight),
    ) {
        let text = msg.slice(value);
        let mut words = text.split(|byte| *byte == b' ');
        let (Some(code), Some(agent)) = (words.next(), words.next()) else {
            return;
        };
        let Ok(host) = std::str::from_utf8(agent) else {
            return;
        };
        let ip = host
            .parse()
            .ok()
            .or_else(|| host.parse::<SocketAddr>().ok().map(|at| at.ip()));
        if ip.is_some_and(|ip| self.topology.hides(ip, from, towards.side)) {
            let start = value.start as usize + code.len() + 1;
            let known = towards.knows.map(topology::host);
            edit.replace(
                Span::new(start..start + agent.len()),
                known.as_deref().unwrap_or(&self.conf.domain).as_bytes(),
            );
        }
    }
}

/// Whether a request's method lets it create or refresh a dialog's remote target
/// (RFC 3261 section 12.2.1.1, RFC 3311, RFC 6665).
pub(super) fn refreshes_target(method: Method) -> bool {
    matches!(
        method,
        Method::Invite | Method::Update | Method::Subscribe | Method::Notify | Method::Refer
    )
}

/// Puts a URI in the place of an address's, in `<>` where it stood without: its parameters must
/// not become the header's (RFC 3261 section 20.10).
pub(super) fn put_uri(edit: &mut Edit<'_>, addr: &NameAddr, uri: &[u8]) {
    if addr.angle {
        edit.replace(addr.uri, uri);
    } else {
        edit.replace(addr.uri, [b"<", uri, b">"].concat());
    }
}
