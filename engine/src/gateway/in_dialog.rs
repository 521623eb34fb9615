//! Requests inside a dialog: re-INVITE, BYE, PRACK, UPDATE, INFO, REFER, NOTIFY and any other.

use std::net::{IpAddr, SocketAddr};

use super::{
    Gateway,
    context::Kind,
    dialogs::{Leg, Party, Phase},
    outgoing::Target,
};
use crate::{
    net::Side,
    sip::{Method, Uri},
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
            return self.unknown_dialog(now, id, side);
        };
        self.refresh_target(dialog, sender, &request, request.method(), from);
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
        let to = if leg.side == Side::Lan {
            leg.peer
        } else {
            next_hop(leg)
        };
        Some(Target {
            side: leg.side,
            listener: leg.listener,
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

/// Next hops that a foreign header may name: nothing that leads back here or to many
/// (cases.md, threat "SSRF-like relaying").
fn may_be_sent_to(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || broadcast)
}

/// The address of the first route, else of the target, else where the leg's messages come from:
/// names are not looked up inside a dialog.
fn next_hop(leg: &Leg) -> SocketAddr {
    let first = leg
        .routes
        .first()
        .map_or(leg.target.as_slice(), Vec::as_slice);
    let inside = first
        .split(|byte| *byte == b'<')
        .nth(1)
        .and_then(|rest| rest.split(|byte| *byte == b'>').next());
    let uri = Uri::parse(inside.unwrap_or(first));
    let literal =
        uri.and_then(|uri| Some(SocketAddr::new(uri.host_ip()?, uri.port.unwrap_or(5060))));
    literal
        .filter(|hop| may_be_sent_to(hop.ip()))
        .unwrap_or(leg.peer)
}
