//! Whose softswitch serves whom (EM19): in normal mode the first group serves all but requests
//! that name another's domain; as an outbound proxy every phone keeps its own; in transparent
//! mode it is the one that the phone addresses (EM20).

use std::net::SocketAddr;

use super::{Gateway, bindings::Binding};
use crate::{
    conf::Mode,
    net::{GroupId, ListenerId, Side},
    sip::{Message, Method, Uri},
    steer::Gate,
};

impl Gateway {
    /// The group that a phone's request belongs to. `None`: a domain of no group, which an
    /// outbound proxy refuses, or it would relay to anywhere.
    pub(super) fn group_for(
        &self,
        request: &Message,
        (listener, from): (ListenerId, SocketAddr),
    ) -> Option<GroupId> {
        if let Some(addressed) = self.group_addressed(listener) {
            return Some(addressed);
        }
        let target = request.uri().map(|span| request.slice(span));
        let named = target.and_then(|uri| self.group_of_uri(uri));
        if self.conf.mode == Mode::Normal {
            return Some(named.unwrap_or(GroupId(0)));
        }
        if request.method() == Some(Method::Register) {
            return named;
        }
        // A call to a foreign domain is its own softswitch's business.
        let sender = request.from().map(|addr| request.slice(addr.uri));
        sender
            .and_then(|uri| self.group_of_uri(uri))
            .or(named)
            .or_else(|| self.group_of_client(from))
    }

    /// Whether a binding is of this group. Where phones choose their softswitch by its address,
    /// two of them may serve the same domain, and neither vouches for phones of the other.
    pub(super) fn is_of(&self, binding: &Binding, group: GroupId) -> bool {
        self.conf.mode != Mode::Transparent || binding.group == group
    }

    /// The group whose domain, or the address of whose server, is the host of a URI.
    fn group_of_uri(&self, uri: &[u8]) -> Option<GroupId> {
        let uri = Uri::parse(uri)?;
        let ip = uri.host_ip();
        let found = self.conf.groups.iter().position(|group| match ip {
            Some(ip) => group.has_server(ip),
            None => uri.host.eq_ignore_ascii_case(group.domain.as_bytes()),
        })?;
        u16::try_from(found).ok().map(GroupId)
    }

    /// The group of the phone that registered from this address and port. All bindings are
    /// looked at: it is asked for what XDP left alone, and where there are several groups.
    fn group_of_client(&self, from: SocketAddr) -> Option<GroupId> {
        let mut bindings = self.bindings.iter().map(|(_, binding)| binding);
        let found = bindings.find(|binding| binding.source == from);
        found.map(|binding| binding.group)
    }

    /// What a client is told by the answers to its keepalives (signalling.md section 8): its
    /// group's state, or the first group's before it registered.
    pub(super) fn gate_of(&self, listener: ListenerId, from: SocketAddr) -> Gate {
        // Servers keep their connections to us alive whatever becomes of their group.
        if self.side(listener) == Side::Wan && self.group_of_peer(from).is_some() {
            return Gate::Serving;
        }
        let group = match self.gates.len() {
            1 => None,
            _ => self
                .group_addressed(listener)
                .or_else(|| self.group_of_client(from)),
        };
        let group = usize::from(group.unwrap_or(GroupId(0)).0);
        self.gates.get(group).copied().unwrap_or(Gate::Silent)
    }
}
