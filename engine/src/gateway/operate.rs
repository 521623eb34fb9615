//! What an operator, the kernel and the media sockets tell the gateway.

use std::net::SocketAddr;

use super::Gateway;
use crate::{
    event::Event,
    media::Seen,
    net::{GroupId, LinkId, ServerId},
    sip::Message,
    time::{Mono, Now},
};

/// Why a `switch` names nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// No group of that name.
    #[error("no group is called {0}")]
    NoGroup(String),
    /// The group has no such server.
    #[error("group {0} has no server {1}")]
    NoServer(String, String),
}

impl Gateway {
    /// An ICMP error arrived for a datagram that was sent to `to`; `quoted` is
    /// as much of it as came back. It counts only when it names a live request
    /// (signalling.md section 1).
    pub fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: Vec<u8>) {
        let quoted = match Message::parse(quoted) {
            Ok(msg) => Some(msg),
            Err(refusal) => refusal.partial().cloned(),
        };
        let client = quoted.and_then(|msg| self.transactions.find(&msg));
        if let Some(&(id, index)) = client.and_then(|client| self.by_client.get(&client))
            && let Some(branch) = self
                .contexts
                .get(&id)
                .and_then(|ctx| ctx.branches.get(index))
            && branch.to == to
            && let Some(health) = branch.health
        {
            self.health.icmp(now, health);
        }
        self.pump(now);
    }

    /// A datagram came up to the media socket `local`: where it goes, and whether its source
    /// is learned.
    pub fn media_seen(&mut self, now: Now, local: SocketAddr, from: SocketAddr) -> Seen {
        let seen = self.media.source_seen(now, local, from);
        self.drain_media();
        self.keep_changes();
        seen
    }

    /// A link's carrier or address came or went.
    pub fn link_changed(&mut self, now: Now, link: LinkId, up: bool) {
        if let Some(link) = self.conf.links.get_mut(usize::from(link.0)) {
            link.up = up;
        }
        self.note_trouble(now, link);
        self.health.link_changed(now, link, up);
        self.pump(now);
    }

    /// The RTP of several calls that arrives by this link ended together at `since` (KL6): the
    /// servers used over it are asked.
    pub fn media_stalled(&mut self, now: Now, link: LinkId, calls: usize, since: Mono) {
        self.health.media_stalled(now, link, calls, since);
        self.pump(now);
    }

    /// Sends a group's new work to one server, or back to the configured order (`auto`). Every
    /// binding is due, so that registrations follow at their next refresh.
    ///
    /// # Errors
    /// When the group or the server does not exist.
    pub fn switch(&mut self, now: Now, group: &str, server: &str) -> Result<(), SwitchError> {
        let found = self
            .conf
            .groups
            .iter()
            .position(|conf| conf.health.name == group);
        let id = found
            .and_then(|at| u16::try_from(at).ok())
            .map(GroupId)
            .ok_or_else(|| SwitchError::NoGroup(group.to_owned()))?;
        let to = match server {
            "auto" => None,
            named => Some(
                self.server_named(id, named)
                    .ok_or_else(|| SwitchError::NoServer(group.to_owned(), named.to_owned()))?,
            ),
        };
        self.health.switch(now, id, to);
        self.all_due(now, id);
        self.pump(now);
        Ok(())
    }

    /// Every binding of a group goes upstream at its next refresh.
    pub(super) fn all_due(&mut self, now: Now, group: GroupId) {
        self.call_in(now, |binding| binding.group == group);
    }

    /// A server is the group's choice from now on: registrations at those that only stood in for
    /// it go there at their next refresh.
    pub(super) fn returned_to(&mut self, now: Now, server: ServerId) {
        let servers = &self.conf.groups[usize::from(server.group.0)].health.servers;
        let priorities: Vec<u16> = servers.iter().map(|server| server.priority).collect();
        let of = |server: ServerId| priorities.get(usize::from(server.index)).copied();
        let stood_in = |at: ServerId| at.group == server.group && of(at) > of(server);
        self.call_in(now, |binding| stood_in(binding.server));
    }

    /// A server by its URI as configured, or by its address.
    fn server_named(&self, group: GroupId, named: &str) -> Option<ServerId> {
        let servers = &self.conf.groups[usize::from(group.0)].health.servers;
        let index = servers.iter().position(|server| {
            server.uri == named
                || server.address.to_string() == named
                || server.address.ip().to_string() == named
        })?;
        Some(ServerId {
            group,
            index: u16::try_from(index).ok()?,
        })
    }

    /// Begins or ends a drain (signalling.md section 14).
    pub fn drain(&mut self, now: Now, on: bool) {
        if on == self.draining.is_some() {
            return;
        }
        self.draining = on.then_some(now.mono);
        let name = |draining| if draining { "draining" } else { "serving" }.to_owned();
        self.out.push_back(super::Output::Event(Event {
            at: now,
            kind: "gateway",
            object: self.conf.name.clone(),
            from: name(!on),
            to: name(on),
            rule: "operator_drain",
            evidence: Vec::new(),
        }));
    }

    /// Whether the gateway drains.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.draining.is_some()
    }
}
