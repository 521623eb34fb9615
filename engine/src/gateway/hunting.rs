//! Hunting: a request whose server does not answer goes to the next one (signalling.md
//! section 2). What the abandoned branch says afterwards is answered here.

use super::{
    Gateway,
    context::{Kind, Progress},
    relay::nonce_used,
};
use crate::{
    health::{Class, Want},
    net::{GroupId, PathKey, ServerId},
    sip::{Message, Method},
    time::Now,
};

impl Gateway {
    /// Sends a request to the next server of its group, or says that there is none.
    pub(super) fn try_next(&mut self, now: Now, id: u64) {
        match self.next_path(now, id) {
            Some(path) => self.branch_to_server(now, id, path),
            None => self.out_of_servers(now, id),
        }
    }

    /// The path a request takes next.
    pub(super) fn next_path(&self, now: Now, id: u64) -> Option<PathKey> {
        let ctx = self.contexts.get(&id)?;
        let (group, aor) = match &ctx.kind {
            Kind::ToGroup { group, aor } => (*group, aor.clone()),
            Kind::Register { group, register } => (*group, register.aor.clone().into_bytes()),
            Kind::InDialog { dialog, .. } => (self.sharing_group(*dialog)?, Vec::new()),
            Kind::Local | Kind::ToPhone => return None,
        };
        let class = match ctx.request.method() {
            Some(Method::Invite) => Class::Invite,
            Some(Method::Register) => Class::Register,
            _ => Class::Other,
        };
        let affinity = self.affinity(group, &aor, &ctx.request);
        let tried = ctx.tried();
        self.health.choose(
            now,
            &Want {
                group,
                class,
                aor: &aor,
                affinity,
                tried: &tried,
            },
        )
    }

    /// The server that issued the nonce of a request's credentials, else the one that holds
    /// the sender's registration (signalling.md section 3).
    fn affinity(&self, group: GroupId, aor: &[u8], request: &Message) -> Option<ServerId> {
        let issuer = nonce_used(request).and_then(|nonce| self.nonces.issuer(nonce));
        let holder = || {
            let aor = String::from_utf8_lossy(aor);
            let bindings = self.bindings.of_aor(&aor);
            bindings
                .into_iter()
                .find_map(|id| self.bindings.get(id))
                .map(|binding| binding.server)
        };
        issuer
            .or_else(holder)
            .filter(|server| server.group == group)
    }

    /// A branch is given up for another server.
    pub(super) fn hunt(&mut self, now: Now, id: u64, index: usize) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        if ctx.progress == Progress::Answered || ctx.cancelled || ctx.branches[index].abandoned {
            return;
        }
        self.counters.hunts += 1;
        if let Kind::InDialog { dialog, sender } = ctx.kind {
            // A BYE is tried on: the server may be back before the transaction ends.
            if ctx.request.method() != Some(Method::Bye) {
                self.abandon(now, id, index);
            }
            return self.server_gone(now, id, dialog, sender);
        }
        self.abandon(now, id, index);
        self.forget_early(id, index);
        self.try_next(now, id);
    }

    /// Stops waiting for a branch. Its transaction lives on, silent.
    pub(super) fn abandon(&mut self, now: Now, id: u64, index: usize) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let branch = &mut ctx.branches[index];
        branch.abandoned = true;
        let (client, health, provisional, finished) = (
            branch.client,
            branch.health,
            branch.provisional,
            branch.finished,
        );
        self.transactions.stop_retransmitting(now, client);
        if let Some(health) = health {
            self.health.closed(now, health);
        }
        if provisional && !finished {
            self.cancel_branch(now, id, index);
        }
    }

    /// The early dialogs of an abandoned branch: requests in them get 481 from now on.
    fn forget_early(&mut self, id: u64, index: usize) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let path = ctx.branches[index].path;
        if ctx.progress == Progress::Ringing(index) {
            ctx.progress = Progress::Trying;
        }
        let (gone, kept) = std::mem::take(&mut ctx.dialogs)
            .into_iter()
            .partition::<Vec<_>, _>(|dialog| {
                self.dialogs
                    .get(*dialog)
                    .is_some_and(|dialog| dialog.path == path)
            });
        ctx.dialogs = kept;
        for dialog in gone {
            self.dialogs.remove(dialog);
        }
    }

    /// No server is left to try: served here where that is possible, else 500, since a 503
    /// would make the phone avoid the gateway.
    fn out_of_servers(&mut self, now: Now, id: u64) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        if ctx.has_live_branch() {
            return;
        }
        match ctx.kind.clone() {
            // Without a verdict a stranger is not refused for good: 500, and it asks again.
            Kind::Register { group, register }
                if self.on_our_own(group) || self.trusted(now, group, &register).is_some() =>
            {
                self.register_here(now, id, group, &register);
            }
            Kind::ToGroup { .. } if self.can_connect_here(now, id) => self.connect_here(now, id),
            _ => {
                self.answer(now, id, 500);
                self.end_attempt(now, id);
            }
        }
    }

    /// A response on an abandoned branch: never relayed. 1xx is cancelled, a 2xx to an INVITE
    /// acknowledged, and ended when it began a call: in a call that goes on a BYE would end
    /// that. The transaction acknowledges everything else.
    pub(super) fn late(&mut self, now: Now, id: u64, index: usize, msg: &Message, code: u16) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let invite = ctx.request.method() == Some(Method::Invite);
        let goes_on = matches!(ctx.kind, Kind::InDialog { .. });
        match code {
            _ if !invite => {}
            100..=199 => self.cancel_branch(now, id, index),
            200..=299 if goes_on => self.acknowledge_late(id, index, msg),
            200..=299 => self.end_unwanted(now, id, index, msg),
            _ => {}
        }
        self.retire(id);
    }
}
