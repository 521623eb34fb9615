//! Clusters whose servers know each other's dialogs (`shared_dialogs`, signalling.md section 5):
//! a request of a call whose server does not answer is tried at the others, and the call moves to
//! the one that takes it.

use super::{
    Gateway,
    branches::uri_of,
    context::Kind,
    dialogs::{Leg, Party},
    outgoing::Target,
};
use crate::{
    net::{GroupId, PathKey, ServerId, Side},
    sip::Uri,
    time::Now,
};

impl Gateway {
    /// The group whose servers share a dialog, if they do.
    pub(super) fn sharing_group(&self, dialog: u64) -> Option<GroupId> {
        let group = self.dialogs.get(dialog)?.path?.server.group;
        let shared = self.conf.groups[usize::from(group.0)].shared_dialogs;
        shared.then_some(group)
    }

    /// Sends a request to the next server that shares its dialog. False when there is none.
    pub(super) fn ask_another(&mut self, now: Now, id: u64, dialog: u64, sender: Party) -> bool {
        let target = self
            .next_path(now, id)
            .and_then(|path| self.target_at(dialog, sender.other(), path));
        let Some(target) = target else {
            return false;
        };
        self.branch_relayed(now, id, target);
        true
    }

    /// A request's way through another server: whatever names the one that had the call names
    /// this one instead.
    fn target_at(&self, dialog: u64, party: Party, path: PathKey) -> Option<Target> {
        let had = self.dialogs.get(dialog)?.path?.server;
        let target = self.dialog_target(dialog, party)?;
        let renamed = |uri: &Vec<u8>| self.renamed(uri, had, path.server);
        Some(Target {
            listener: self.conf.listener_to(path)?,
            to: self.server_address(path.server),
            uri: renamed(&target.uri),
            routes: target.routes.iter().map(renamed).collect(),
            path: Some(path),
            ..target
        })
        .filter(|target| target.side == Side::Wan)
    }

    /// A URI, or a route value, with the address of one server in place of another's.
    fn renamed(&self, value: &[u8], from: ServerId, to: ServerId) -> Vec<u8> {
        let (from, to) = (self.server_address(from), self.server_address(to));
        let start = value
            .iter()
            .position(|byte| *byte == b'<')
            .map_or(0, |at| at + 1);
        let named = Uri::parse(uri_of(value)).filter(|uri| uri.host_ip() == Some(from.ip()));
        let Some(uri) = named else {
            return value.to_vec();
        };
        let span = uri.host_port_span.range();
        let address = to.to_string();
        [
            &value[..start + span.start],
            address.as_bytes(),
            &value[start + span.end..],
        ]
        .concat()
    }

    /// A 481 of a server that only took over, and does not know the call after all: whose call
    /// it is. It must not end it.
    pub(super) fn refused_by_another(
        &self,
        id: u64,
        index: usize,
        code: u16,
    ) -> Option<(u64, Party)> {
        let ctx = self.contexts.get(&id).filter(|_| code == 481)?;
        let Kind::InDialog { dialog, sender } = ctx.kind else {
            return None;
        };
        let had = self.dialogs.get(dialog)?.path?.server;
        let asked = ctx.branches[index].path?.server;
        (asked != had).then_some((dialog, sender))
    }

    /// A request of the call came from another server than the one that had it.
    pub(super) fn came_from_another(&mut self, id: u64, dialog: u64, sender: Party) {
        if self.sharing_group(dialog).is_none() {
            return;
        }
        let ctx = &self.contexts[&id];
        let link = self.link(ctx.listener);
        let server = self
            .group_of_peer(ctx.from)
            .and_then(|(_, server)| server)
            .filter(|_| ctx.side == Side::Wan);
        if let Some(server) = server {
            self.move_dialog(dialog, sender, PathKey { server, link });
        }
    }

    /// The call is another server's from here on, if its servers share it.
    pub(super) fn move_dialog(&mut self, id: u64, party: Party, path: PathKey) {
        let had = self.dialogs.get(id).and_then(|dialog| dialog.path);
        let Some(had) = had.filter(|had| had.server != path.server) else {
            return;
        };
        let listener = self.conf.listener_to(path);
        let to = self.server_address(path.server);
        let (Some(listener), Some(group)) = (listener, self.sharing_group(id)) else {
            return;
        };
        let Some(leg) = self.dialogs.get(id).map(|dialog| dialog.leg(party)) else {
            return;
        };
        if group != path.server.group || leg.side != Side::Wan {
            return;
        }
        let renamed = |uri: &Vec<u8>| self.renamed(uri, had.server, path.server);
        let moved = Leg {
            target: renamed(&leg.target),
            routes: leg.routes.iter().map(renamed).collect(),
            peer: to,
            listener,
            ..leg.clone()
        };
        if let Some(dialog) = self.dialogs.get_mut(id) {
            *dialog.leg_mut(party) = moved;
            dialog.path = Some(path);
        }
    }
}
