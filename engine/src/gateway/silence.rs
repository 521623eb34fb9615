//! Calls whose media fell silent both ways for the media timeout end with a BYE to each party
//! (signalling.md section 7): somebody's phone lost its power, and the softswitch may be billing.
//!
//! Packets that are forwarded are not seen here. When a call could be over, the driver is asked
//! once how long its flows were silent ([`Output::Silence`]), and the next look is when they
//! would have been silent long enough.

use std::time::Duration;

use super::{
    Gateway, Output,
    deadlines::Deadline,
    dialogs::{Dialog, Party, Phase},
    outgoing::Target,
};
use crate::{
    event::{Event, Evidence},
    media::SessionId,
    net::{LinkId, PathKey, Side},
    seal,
    sip::{Message, Method, originate::Draft},
    time::{Mono, Now},
};

/// How long after trouble on its way a call may stay silent on top of the timeout.
const SETTLE: Duration = Duration::from_secs(60);

impl Gateway {
    /// The media of a call was agreed on, or anew: its silence counts from here.
    pub(super) fn await_media(&mut self, now: Now, dialog: u64) {
        let Some(dialog) = self.dialogs.get_mut(dialog) else {
            return;
        };
        if dialog.session.is_some() && dialog.phase == Phase::Confirmed {
            dialog.silent_from = now.mono;
            let at = now.mono + self.conf.media.timeout;
            self.deadlines.set(Deadline::Silent(dialog.id), at);
        }
    }

    /// A call could have been silent for long enough.
    pub(super) fn silence_due(&mut self, now: Now, id: u64) {
        let Some(dialog) = self.dialogs.get(id) else {
            return;
        };
        let Some(session) = dialog.session.map(SessionId) else {
            return;
        };
        let quiet = self.media.may_be_silent(session);
        let links = [dialog.caller.listener, dialog.callee.listener].map(|l| self.link(l));
        let trouble = links
            .map(|link| self.trouble_on(now, link, dialog.path))
            .into_iter()
            .max();
        let floor = if quiet { now.mono } else { dialog.silent_from };
        let floor = floor.max(trouble.flatten().unwrap_or(floor));
        let due = floor + self.conf.media.timeout;
        if let Some(dialog) = self.dialogs.get_mut(id) {
            dialog.silent_from = floor;
        }
        if due > now.mono {
            self.deadlines.set(Deadline::Silent(id), due);
        } else {
            let flows = self.media.flows_of(session);
            self.out.push_back(Output::Silence { dialog: id, flows });
        }
    }

    /// The driver's answer to [`Output::Silence`]: how long ago the last packet of any of the
    /// flows passed; `None` when none ever did.
    pub fn silent_for(&mut self, now: Now, id: u64, silent: Option<Duration>) {
        let Some(dialog) = self.dialogs.get(id) else {
            return;
        };
        let passed = silent.map(|silent| Mono(now.mono.0.saturating_sub(silent)));
        let relayed = (dialog.session).and_then(|session| self.media.heard(SessionId(session)));
        let heard = [passed, relayed].into_iter().flatten().max();
        let last = heard.map_or(dialog.silent_from, |at| at.max(dialog.silent_from));
        let due = last + self.conf.media.timeout;
        if due > now.mono {
            self.deadlines.set(Deadline::Silent(id), due);
        } else {
            self.hang_up(now, id, heard);
        }
        self.pump(now);
    }

    /// Something on a link went wrong or became well: silence on it is no sign of death yet.
    pub(super) fn note_trouble(&mut self, now: Now, link: LinkId) {
        self.trouble.insert(link, now.mono);
    }

    /// Until when trouble on a link excuses silence: its last moment, and a while to settle.
    fn trouble_on(&self, now: Now, link: LinkId, path: Option<PathKey>) -> Option<Mono> {
        let state = &self.conf.links[usize::from(link.0)];
        let server_down = path.is_some_and(|path| path.link == link && self.health.is_down(path));
        let last = if !state.up || state.address.is_none() || server_down {
            Some(now.mono)
        } else {
            self.trouble.get(&link).copied()
        };
        last.map(|at| at + SETTLE)
    }

    /// A BYE to both parties, as if each came from the other.
    fn hang_up(&mut self, now: Now, id: u64, heard: Option<Mono>) {
        for to in [Party::Caller, Party::Callee] {
            if let (Some(dialog), Some(target)) = (self.dialogs.get(id), self.dialog_target(id, to))
                && let Some(draft) = self.own_bye(dialog, to, &target)
                && let Ok(msg) = Message::parse(draft.build())
            {
                let key = self.client_key(&draft.branch, target.listener, &msg);
                let bytes = msg.bytes().to_vec();
                // A full table: the party finds out by itself that nobody is there.
                let _ = (self.transactions).start(now, key, bytes, target.to, target.listener);
            }
        }
        if let Some(dialog) = self.dialogs.get(id) {
            let event = self.hung_up(now, dialog, heard);
            self.out.push_back(Output::Event(event));
        }
        self.end_dialog(now, id);
    }

    /// The BYE that `to` would get from the other party.
    fn own_bye(&self, dialog: &Dialog, to: Party, target: &Target) -> Option<Draft> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (leg, other) = (dialog.leg(to), dialog.leg(to.other()));
        let call_id = match leg.side {
            Side::Lan => dialog.call_id.clone(),
            Side::Wan => self.topology.call_id(&dialog.call_id),
        };
        let (from, of) = target.parties.as_ref()?;
        let parts = [call_id.as_slice(), &other.tag, &leg.tag];
        let branch = seal::keyed_hash(&self.conf.secret, "silent-bye", &parts);
        Some(Draft {
            method: Method::Bye,
            uri: text(&target.uri),
            via: self.sent_protocol_and_by(target.listener),
            branch: format!("z9hG4bK{branch}"),
            from: format!("<{}>;tag={}", text(from), text(&other.tag)),
            to: format!("<{}>;tag={}", text(of), text(&leg.tag)),
            call_id: text(&call_id),
            cseq: other.cseq.saturating_add(1),
            routes: target.routes.iter().map(|route| text(route)).collect(),
            headers: Vec::new(),
        })
    }

    fn hung_up(&self, now: Now, dialog: &Dialog, heard: Option<Mono>) -> Event {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let what = match heard {
            Some(at) => format!(
                "no packet either way for {} s",
                now.mono.since(at).as_secs()
            ),
            None => "no packet ever passed".to_owned(),
        };
        Event {
            at: now,
            kind: "call",
            object: format!(
                "{} {} to {}",
                text(&dialog.call_id),
                text(&dialog.caller.caller_uri),
                text(&dialog.caller.callee_uri)
            ),
            from: "up".to_owned(),
            to: "ended".to_owned(),
            rule: "media_timeout",
            evidence: vec![Evidence { at: now, what }],
        }
    }
}
