//! Subscriptions (RFC 6665, and the implicit ones of RFC 3515): dialogs without media, or a
//! further use of a call's dialog, that end by their expiry or by a last NOTIFY.

use std::time::Duration;

use super::{Gateway, context::Kind, deadlines::Deadline};
use crate::{
    sip::{Message, Method, Name, param, seconds},
    time::Now,
};

/// Where neither side says how long: the default of most packages (RFC 3842 section 3.4).
const UNSAID: u32 = 3600;
/// What a REFER is given until its first NOTIFY says more.
const REFERRED: u32 = 300;
/// 64 T1: a last NOTIFY may be that late (RFC 6665 section 4.1.2.4, timer N).
const GRACE: Duration = Duration::from_secs(32);

impl Gateway {
    /// A final response was relayed: what it, or the NOTIFY that it answers, says about how
    /// long the subscription lasts.
    pub(super) fn note_subscription(&mut self, now: Now, id: u64, response: &Message, code: u16) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let request = ctx.request.clone();
        let dialog = match ctx.kind {
            Kind::InDialog { dialog, .. } => Some(dialog),
            _ => ctx.dialogs.last().copied(),
        };
        let Some(dialog) = dialog else { return };
        match request.method() {
            Some(Method::Subscribe) if code / 100 == 2 => {
                let granted = response.expires().or(request.expires());
                self.lasts(now, dialog, granted.unwrap_or(UNSAID));
            }
            Some(Method::Refer) if code / 100 == 2 => self.lasts(now, dialog, REFERRED),
            // RFC 6665 section 4.2.2: to a notifier these mean that nobody listens.
            Some(Method::Notify) if matches!(code, 404 | 410 | 481 | 489 | 604) => {
                self.subscription_over(now, dialog);
            }
            Some(Method::Notify) => self.notified(now, dialog, &request),
            _ => {}
        }
    }

    fn notified(&mut self, now: Now, dialog: u64, notify: &Message) {
        let Some(value) = notify.header(Name::SubscriptionState) else {
            return;
        };
        let state = notify.slice(value);
        let end = state.iter().position(|byte| *byte == b';');
        let state = state[..end.unwrap_or(state.len())].trim_ascii();
        if state.eq_ignore_ascii_case(b"terminated") {
            return self.subscription_over(now, dialog);
        }
        let params = crate::sip::Span::new(
            value.start as usize + end.unwrap_or(value.len())..value.end as usize,
        );
        let left = param(notify.bytes(), params, "expires")
            .and_then(|param| seconds(notify.slice(param.value?)));
        if let Some(left) = left {
            self.lasts(now, dialog, left);
        }
    }

    fn lasts(&mut self, now: Now, dialog: u64, secs: u32) {
        let ends = now.mono + Duration::from_secs(u64::from(secs)) + GRACE;
        if let Some(dialog) = self.dialogs.get_mut(dialog) {
            dialog.ends = Some(ends);
        }
        self.deadlines.set(Deadline::Subscription(dialog), ends);
    }

    /// It ended: its dialog goes with it, unless a call uses it too.
    pub(super) fn subscription_over(&mut self, now: Now, dialog: u64) {
        self.deadlines.clear(Deadline::Subscription(dialog));
        let Some(state) = self.dialogs.get_mut(dialog) else {
            return;
        };
        if state.ends.take().is_some() && state.session.is_none() {
            self.end_dialog(now, dialog);
        }
    }

    /// After a restart: the deadline of a dialog that is back.
    pub(super) fn await_subscription(&mut self, dialog: u64) {
        if let Some(ends) = self.dialogs.get(dialog).and_then(|dialog| dialog.ends) {
            self.deadlines.set(Deadline::Subscription(dialog), ends);
        }
    }

    /// A SUBSCRIBE in a dialog whose server is down. Where another server is left the phone is
    /// told to begin anew, which leads there (RFC 6665 section 4.1.2.3); else to come later.
    pub(super) fn resubscribe(&mut self, now: Now, id: u64, dialog: u64) {
        let path = self.dialogs.get(dialog).and_then(|dialog| dialog.path);
        if path.is_some_and(|path| !self.on_our_own(path.server.group)) {
            self.answer(now, id, 481);
            return self.subscription_over(now, dialog);
        }
        self.subscribe_later(now, id);
    }

    /// 489 would make phones give up for good (signalling.md section 4).
    pub(super) fn subscribe_later(&mut self, now: Now, id: u64) {
        let later = 60.0 + 60.0 * self.rng.unit();
        let headers = [(Name::RetryAfter, format!("{later:.0}"))];
        self.answer_with(now, id, 480, &headers);
    }
}
