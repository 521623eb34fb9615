//! Requests inside a dialog: re-INVITE, BYE, PRACK, UPDATE, INFO, REFER, NOTIFY and any other.

use std::net::{IpAddr, SocketAddr};

use super::{
    Gateway,
    branches::uri_of,
    context::Kind,
    dialogs::{Leg, Party, Phase},
    outgoing::Target,
    streams::default_port,
};
use crate::{
    net::{ListenerId, Side, Transport},
    sip::{Message, Method, Uri},
    time::Now,
};

impl Gateway {
    pub(super) fn in_dialog(&mut self, now: Now, id: u64) {
        let ctx = &self.contexts[&id];
        let (request, side, from) = (ctx.request.clone(), ctx.side, ctx.from);
        let found = self
            .dialog_key(&request, side)
            .and_then(|key| self.dialogs.find(&key));
        let Some((dialog, sender)) = found else {
            if self.in_dialog_through(now, id, &request) {
                return;
            }
            return self.unknown_dialog(now, id, side);
        };
        self.refresh_target(dialog, sender, &request, request.method(), from);
        self.note_cseq(dialog, sender, &request);
        self.came_from_another(id, dialog, sender);
        let Some(target) = self.dialog_target(dialog, sender.other()) else {
            return self.answer(now, id, 481);
        };
        if request.method() == Some(Method::Bye)
            && let Some(dialog) = self.dialogs.get_mut(dialog)
        {
            dialog.phase = Phase::Ending;
        }
        let session = self.dialogs.get(dialog).and_then(|dialog| dialog.session);
        if let Some(ctx) = self.contexts.get_mut(&id) {
            ctx.kind = Kind::InDialog { dialog, sender };
            ctx.session = session;
        }
        if target.path.is_some_and(|path| self.health.is_down(path)) {
            return self.without_server(now, id, dialog, sender, target);
        }
        self.branch_relayed(now, id, target);
    }

    fn note_cseq(&mut self, dialog: u64, sender: Party, request: &Message) {
        if let (Some(dialog), Some(cseq)) = (self.dialogs.get_mut(dialog), request.cseq()) {
            let highest = &mut dialog.leg_mut(sender).cseq;
            *highest = cseq.number.max(*highest);
        }
    }

    /// A NOTIFY may arrive before the 2xx that makes its dialog, and dialogs of other kinds
    /// are not kept: from the WAN the Request-URI says whose it is.
    fn unknown_dialog(&mut self, now: Now, id: u64, side: Side) {
        let ends_a_call = matches!(
            self.contexts[&id].request.method(),
            Some(Method::Invite | Method::Bye | Method::Prack | Method::Update)
        );
        if side == Side::Wan && !ends_a_call {
            self.relay_to_phone(now, id);
        } else {
            self.answer(now, id, 481);
        }
    }

    /// Where requests to a party of a dialog go: along the leg's route set to its remote target
    /// (RFC 3261 section 12.2.1.1).
    pub(super) fn dialog_target(&self, dialog: u64, party: Party) -> Option<Target> {
        let dialog = self.dialogs.get(dialog)?;
        let leg = dialog.leg(party);
        let (caller, callee) = (leg.caller_uri.clone(), leg.callee_uri.clone());
        // The other party sends: it is From.
        let parties = match party {
            Party::Callee => (caller, callee),
            Party::Caller => (callee, caller),
        };
        let phone = match party {
            Party::Callee => &leg.callee_uri,
            Party::Caller => &leg.caller_uri,
        };
        let (listener, to) = match leg.side {
            Side::Lan => self.phone_now(leg, phone),
            Side::Wan => self.hop_of(leg),
        };
        Some(Target {
            side: leg.side,
            listener,
            to,
            uri: leg.target.clone(),
            routes: leg.routes.clone(),
            parties: Some(parties),
            // Past a server that did not record a route its health says nothing.
            path: dialog
                .path
                .filter(|path| leg.side == Side::Wan && self.server_address(path.server) == to),
        })
    }
}

impl Gateway {
    /// A phone's connection may have been replaced since the call began: its registration knows
    /// the present one. A datagram goes where the phone's own came from.
    fn phone_now(&self, leg: &Leg, phone: &[u8]) -> (ListenerId, SocketAddr) {
        let held = (leg.listener, leg.peer);
        if !self.transport(leg.listener).is_stream() || self.is_connected(held.0, held.1) {
            return held;
        }
        let bindings = self.bindings.of_aor(&self.aor(phone));
        let mut bindings = bindings.iter().filter_map(|id| self.bindings.get(*id));
        bindings
            .find(|binding| binding.contact == leg.target)
            .map(|binding| (binding.listener, self.reach(binding)))
            .unwrap_or_else(|| (held.0, self.reach_at(held.0, held.1, &leg.target)))
    }

    /// The next hop and the listener on its link that speaks its transport.
    fn hop_of(&self, leg: &Leg) -> (ListenerId, SocketAddr) {
        let (to, transport) = next_hop(leg);
        let listener = transport.and_then(|transport| {
            let link = self.link(leg.listener);
            self.conf.listener_on(link, transport)
        });
        (listener.unwrap_or(leg.listener), to)
    }
}

/// Next hops that a foreign header may name: nothing that leads back here or to many
/// (cases.md, threat "SSRF-like relaying").
pub(super) fn may_be_sent_to(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || broadcast)
}

/// The address of the first route, else of the target, else where the leg's messages come from:
/// names are not looked up inside a dialog. With an address comes the transport that it is
/// reached over (RFC 3263 section 4.1).
fn next_hop(leg: &Leg) -> (SocketAddr, Option<Transport>) {
    let first = leg
        .routes
        .first()
        .map_or(leg.target.as_slice(), Vec::as_slice);
    let uri = Uri::parse(uri_of(first));
    let literal = uri.and_then(|uri| {
        let transport = uri.transport();
        let port = uri.port.unwrap_or(default_port(transport));
        let hop = SocketAddr::new(uri.host_ip()?, port);
        Some((hop, Some(transport)))
    });
    literal
        .filter(|(hop, _)| may_be_sent_to(hop.ip()))
        .unwrap_or((leg.peer, None))
}
