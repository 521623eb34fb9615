//! Calls that outlive their softswitch (EM26, signalling.md section 5): while its server is
//! down, a BYE is answered here and tried on, a session refresh that changes nothing is
//! answered here, and anything else may be tried again and ends nothing.

use super::{
    Gateway,
    context::{Context, Kind},
    dialogs::{Dialog, Party, Phase},
    outgoing::Target,
};
use crate::{
    gateway::bodies::sdp_of,
    sip::{Edit, Message, Method, Name, Uri, reason_phrase, respond},
    time::Now,
};

/// Seconds after which a request that met a dead server may be tried again.
pub(super) const TRY_AGAIN: &str = "5";

impl Gateway {
    /// A request in a dialog whose server is down.
    pub(super) fn without_server(
        &mut self,
        now: Now,
        id: u64,
        dialog: u64,
        sender: Party,
        target: Target,
    ) {
        let bye = |ctx: &Context| ctx.request.method() == Some(Method::Bye);
        if self.contexts.get(&id).is_some_and(bye) {
            // It is tried for as long as a transaction lives: the server may be back.
            self.branch_relayed(now, id, target);
        }
        self.server_gone(now, id, dialog, sender);
    }

    /// The server was found out while a request in a dialog waited for it.
    pub(super) fn server_gone(&mut self, now: Now, id: u64, dialog: u64, sender: Party) {
        if self.is_dead_early(id, dialog) {
            return self.answer(now, id, 481);
        }
        let asked = self.ask_another(now, id, dialog, sender);
        match self.contexts.get(&id).map(|ctx| ctx.request.method()) {
            Some(Some(Method::Bye)) => {
                self.answer(now, id, 200);
                self.end_dialog(now, dialog);
            }
            _ if asked => {}
            Some(Some(Method::Invite | Method::Update))
                if self.changes_nothing(id, dialog, sender) =>
            {
                self.refresh_here(now, id, dialog, sender);
            }
            Some(Some(Method::Subscribe)) => self.resubscribe(now, id, dialog),
            _ => self.answer_with(now, id, 500, &[(Name::RetryAfter, TRY_AGAIN.to_owned())]),
        }
    }

    /// Whether a PRACK or UPDATE belongs to an early dialog that died with its server: the call
    /// goes on as another one (signalling.md section 2).
    fn is_dead_early(&self, id: u64, dialog: u64) -> bool {
        let method = self.contexts.get(&id).and_then(|ctx| ctx.request.method());
        let dead = self.dialogs.get(dialog).is_none_or(|dialog| {
            let down = dialog.path.is_some_and(|path| self.health.is_down(path));
            dialog.phase == Phase::Early && down
        });
        dead && matches!(method, Some(Method::Prack | Method::Update))
    }

    /// Keeps what each party said and was told last in offer and answer.
    pub(super) fn remember_bodies(
        &mut self,
        ctx: &Context,
        index: usize,
        dialog: Option<u64>,
        answer: Option<(&[u8], &[u8])>,
    ) {
        let Some(dialog) = dialog.and_then(|dialog| self.dialogs.get_mut(dialog)) else {
            return;
        };
        let sender = match ctx.kind {
            Kind::InDialog { sender, .. } => sender,
            _ => Party::Caller,
        };
        if let Some(offer) = sdp_of(&ctx.request) {
            let told = sdp_of(&ctx.branches[index].sent).map(<[u8]>::to_vec);
            note(dialog, sender, Some(offer.to_vec()), told);
        }
        if let Some((said, told)) = answer {
            note(
                dialog,
                sender.other(),
                Some(said.to_vec()),
                Some(told.to_vec()),
            );
        }
    }

    /// A session refresh (RFC 4028): no body, or the offer that is in force.
    fn changes_nothing(&self, id: u64, dialog: u64, sender: Party) -> bool {
        let (Some(ctx), Some(dialog)) = (self.contexts.get(&id), self.dialogs.get(dialog)) else {
            return false;
        };
        let leg = dialog.leg(sender);
        match sdp_of(&ctx.request) {
            None => ctx.request.method() == Some(Method::Update),
            Some(offer) => {
                leg.told.is_some()
                    && leg
                        .said
                        .as_deref()
                        .is_some_and(|said| same_session(said, offer))
            }
        }
    }

    fn refresh_here(&mut self, now: Now, id: u64, dialog: u64, sender: Party) {
        let (Some(ctx), Some(dialog)) = (self.contexts.get(&id), self.dialogs.get_mut(dialog))
        else {
            return;
        };
        let request = ctx.request.clone();
        if request.method() == Some(Method::Invite) {
            dialog.leg_mut(sender).answered_here = request.cseq().map(|cseq| cseq.number);
        }
        let answer = sdp_of(&request).and_then(|_| dialog.leg(sender).told.clone());
        let far = dialog.leg(sender.other()).target.clone();
        let user = Uri::parse(&far)
            .and_then(|uri| uri.user)
            .unwrap_or_default()
            .to_vec();
        let contact = self.contact_uri(&user, ctx.listener);
        self.refreshed(now, id, &request, &contact, answer);
    }

    /// Answers a session refresh: the parties' `contact`, and the description in force.
    pub(super) fn refreshed(
        &mut self,
        now: Now,
        id: u64,
        request: &Message,
        contact: &[u8],
        answer: Option<Vec<u8>>,
    ) {
        let Some(from) = self.contexts.get(&id).map(|ctx| ctx.from) else {
            return;
        };
        let bytes = respond(request, 200, reason_phrase(200), None, from);
        let Ok(msg) = Message::parse(bytes) else {
            return;
        };
        let mut edit = Edit::new(&msg);
        edit.push_back(Name::Contact, [b"<", contact, b">"].concat());
        if let Some(value) = session_expires(request) {
            edit.push_back(Name::SessionExpires, value);
            edit.push_back_named("Require", "timer");
        }
        if let Some(answer) = answer {
            edit.push_back(Name::ContentType, "application/sdp");
            edit.set_body(answer);
        }
        self.respond(now, id, 200, edit.finish());
    }
}

fn note(dialog: &mut Dialog, speaker: Party, said: Option<Vec<u8>>, told: Option<Vec<u8>>) {
    dialog.leg_mut(speaker).said = said;
    if told.is_some() {
        dialog.leg_mut(speaker.other()).told = told;
    }
}

/// The interval that was asked for; the asker refreshes, as it does already (RFC 4028
/// section 9).
fn session_expires(request: &Message) -> Option<String> {
    let value = request.slice(request.header(Name::SessionExpires)?);
    let value = String::from_utf8_lossy(value).into_owned();
    Some(if value.contains("refresher=") {
        value
    } else {
        format!("{value};refresher=uac")
    })
}

/// Whether two bodies describe the same session: all but the origin's version is equal
/// (RFC 3264 section 8).
pub(super) fn same_session(one: &[u8], other: &[u8]) -> bool {
    let lines = |body| {
        let lines = <[u8]>::split(body, |byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        lines
            .filter(|line| !line.starts_with(b"o="))
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    lines(one) == lines(other)
}
