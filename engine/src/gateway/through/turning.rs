//! Which talks the data path routes. One turns *up* when a request of it is unanswered for
//! [`UNANSWERED`]; all of a softswitch do when it is down. A false alarm turns it back at once; a
//! death only when the softswitch serves again and has accepted a REGISTER of the phone.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use super::{Asking, Stand, TalkId, UNUSED};
use crate::{
    gateway::{Gateway, Output, context::Progress, deadlines::Deadline},
    health::RequestId,
    net::{ListenerId, PathKey},
    sip::Method,
    steer::Stamps,
    time::{Mono, Now},
};

/// How long a request that goes through may be without any response.
const UNANSWERED: Duration = Duration::from_millis(500);
/// By how much two readings of one moment may differ.
const SLACK: Duration = Duration::from_millis(20);
/// How often a talk is looked at that could be routed but for the phone's business with us.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// No transaction waits longer for its final response (RFC 3261 section 16.6, timer C).
const OVER: Duration = Duration::from_secs(185);

impl Gateway {
    /// The answer to [`Output::Stamps`]. What the data path stamped decides, and not the copies:
    /// one that is late or lost is no silence.
    pub fn stamped(&mut self, now: Now, id: TalkId, stamps: Stamps) {
        let Some(talk) = self.talks.by_id.get(&id) else {
            return;
        };
        let late: Vec<(Asking, RequestId, bool)> = talk
            .asked
            .iter()
            .filter(|(_, a)| !a.answered && !a.overdue && a.at + UNANSWERED <= now.mono)
            .map(|(asking, asked)| {
                let silent = match asked.carried {
                    // No newer than the request itself: nothing was answered since.
                    true => stamps
                        .unanswered
                        .is_some_and(|ago| now.mono - ago <= asked.at + SLACK),
                    false => stamps.response.is_none_or(|ago| now.mono - ago < asked.at),
                };
                (asking.clone(), asked.req, silent)
            })
            .collect();
        for (asking, req, silent) in late {
            match silent {
                true => self.suspects(now, id, &asking, req),
                false => self.void(now, id, &asking, req),
            }
        }
        self.await_answer(id);
        self.pump(now);
    }

    /// Wakes when the oldest unanswered request of a talk is overdue.
    pub(super) fn await_answer(&mut self, id: TalkId) {
        let Some(talk) = self.talks.by_id.get(&id) else {
            return;
        };
        let waiting = talk.asked.values().filter(|a| !a.answered && !a.overdue);
        match waiting.map(|asked| asked.at + UNANSWERED).min() {
            Some(at) => self.deadlines.set(Deadline::Unanswered(id.0), at),
            None => self.deadlines.clear(Deadline::Unanswered(id.0)),
        }
    }

    pub(in crate::gateway) fn unanswered_due(&mut self, _: Now, id: TalkId) {
        self.out.push_back(Output::Stamps(id));
    }

    /// The request is without any response: the talk turns up, and its softswitch is suspect.
    fn suspects(&mut self, now: Now, id: TalkId, asking: &Asking, req: RequestId) {
        let Some(talk) = self.talks.by_id.get_mut(&id) else {
            return;
        };
        if let Some(asked) = talk.asked.get_mut(asking) {
            asked.overdue = true;
        }
        if talk.stand == Stand::Routed {
            talk.stand = Stand::Suspected;
            self.talks.suspected.insert(id);
            self.steer_talk(id);
        }
        self.health.overdue(now, req);
    }

    /// Something was answered that no copy told of: the request is no evidence any more.
    fn void(&mut self, now: Now, id: TalkId, asking: &Asking, req: RequestId) {
        if let Some(talk) = self.talks.by_id.get_mut(&id) {
            talk.asked.remove(asking);
        }
        self.talks.by_request.remove(&req);
        self.health.closed(now, req);
    }

    /// Talks whose softswitch is under suspicion no more are routed again. Asked after every
    /// input; the set is empty but for a second after a request went unanswered.
    pub(in crate::gateway) fn calm(&mut self, now: Now) {
        let calm = |id: &TalkId| {
            let talk = self.talks.by_id.get(id);
            talk.is_none_or(|talk| !self.health.is_suspect(talk.path))
        };
        let calm: Vec<TalkId> = self.talks.suspected.iter().copied().filter(calm).collect();
        for id in calm {
            self.talks.suspected.remove(&id);
            self.route_talk(now, id);
        }
    }

    /// A path is down, or its server wants no requests: its talks go by the server's other path,
    /// or turn up until the server has accepted a REGISTER of the phone again.
    pub(in crate::gateway) fn talks_up(&mut self, now: Now, path: PathKey) {
        let other = self.health.serving(now, path.server);
        let all = self.talks.by_id.iter();
        let concerned: Vec<TalkId> = all
            .filter(|(_, talk)| talk.path == path)
            .map(|(id, _)| *id)
            .collect();
        for id in concerned {
            let Some(talk) = self.talks.by_id.get_mut(&id) else {
                continue;
            };
            let before = (talk.path, talk.stand);
            match other {
                Some(other) => talk.path = other,
                None => (talk.stand, talk.returned) = (Stand::Taken, false),
            }
            if before != (talk.path, talk.stand) {
                self.steer_talk(id);
            }
        }
    }

    /// A request that went through shall be hunted: an INVITE is taken over as if it had come to
    /// us; of any other the phone's next transmission is.
    pub(in crate::gateway) fn take_over(&mut self, now: Now, req: RequestId) {
        let Some((id, asking)) = self.talks.by_request.remove(&req) else {
            return;
        };
        let Some(talk) = self.talks.by_id.get_mut(&id) else {
            return;
        };
        let message = talk.asked.remove(&asking).and_then(|asked| asked.message);
        let (place, phone, path) = (talk.place, talk.phone, talk.path);
        let invite = message.filter(|_| asking.1 == Method::Invite);
        let serves = self.health.serving(now, path.server).is_some();
        let Some(invite) = invite.filter(|msg| !serves || msg.to_tag().is_none()) else {
            return;
        };
        self.engage(now, place, phone);
        self.talks.taken_from = Some(path);
        let bytes = Rc::unwrap_or_clone(invite).into_bytes();
        self.message(now, place, phone, bytes);
        self.talks.taken_from = None;
    }

    /// We speak to a phone in its softswitch's name: its answers must come to us.
    pub(in crate::gateway) fn engage(&mut self, now: Now, place: ListenerId, phone: SocketAddr) {
        let server = self.address(place);
        let Some(id) = self.talks.by_parties.get(&(phone, server)).copied() else {
            return;
        };
        if let Some(talk) = self.talks.by_id.get_mut(&id)
            && talk.stand != Stand::Taken
        {
            talk.stand = Stand::Taken;
            self.talks.suspected.remove(&id);
            self.deadlines
                .set(Deadline::Talk(id.0), now.mono + LOOK_AGAIN);
            self.steer_talk(id);
        }
    }

    /// A talk is up until the softswitch has accepted another REGISTER of the phone.
    pub(super) fn turn_up(&mut self, id: TalkId) {
        if let Some(talk) = self.talks.by_id.get_mut(&id) {
            (talk.stand, talk.returned) = (Stand::Taken, false);
            self.steer_talk(id);
        }
    }

    /// Has a talk routed by the data path, if nothing speaks against it.
    pub(super) fn route_talk(&mut self, now: Now, id: TalkId) {
        let Some(talk) = self.talks.by_id.get(&id) else {
            return;
        };
        if talk.stand == Stand::Routed || !talk.returned {
            return;
        }
        let well = self.health.serving(now, talk.path.server) == Some(talk.path)
            && !self.health.is_suspect(talk.path);
        if well && !self.is_engaged(talk.place, talk.phone) {
            if let Some(talk) = self.talks.by_id.get_mut(&id) {
                talk.stand = Stand::Routed;
            }
            self.steer_talk(id);
        } else {
            let next = now.mono + LOOK_AGAIN;
            self.deadlines.set(Deadline::Talk(id.0), next);
        }
    }

    /// Whether a phone has any request or call with us by this listener. One that was answered is
    /// over, though its transaction waits 32 s for retransmissions: a phone that asks more often
    /// would never go home. Only an INVITE's may still have its ACK to come.
    fn is_engaged(&self, place: ListenerId, phone: SocketAddr) -> bool {
        let asks = self.contexts.values().any(|ctx| {
            let invite = ctx.request.method() == Some(Method::Invite);
            let answered = ctx.progress == Progress::Answered && !invite;
            let mut branches = ctx.branches.iter();
            ((ctx.listener, ctx.from) == (place, phone) && !answered)
                || branches.any(|branch| {
                    let over = branch.finished && !invite;
                    (branch.listener, branch.to) == (place, phone) && !over
                })
        });
        asks || self.dialogs.iter().any(|dialog| {
            let legs = [&dialog.caller, &dialog.callee];
            legs.into_iter()
                .any(|leg| (leg.listener, leg.peer) == (place, phone))
        })
    }

    /// Looks at a talk again.
    pub(in crate::gateway) fn talk_due(&mut self, now: Now, id: TalkId) {
        let Some(talk) = self.talks.by_id.get(&id) else {
            return;
        };
        if talk.until <= now.mono {
            return self.end_talk(now, id);
        }
        let next: Mono = talk.until.min(now.mono + UNUSED);
        let old = |at: Mono| now.mono.since(at) >= OVER;
        let over = talk.asked.iter().filter(|(_, asked)| old(asked.at));
        let over: Vec<_> = over.map(|(key, asked)| (key.clone(), asked.req)).collect();
        let (path, server) = (talk.path, talk.path.server);
        self.deadlines.set(Deadline::Talk(id.0), next);
        for (asking, req) in over {
            self.void(now, id, &asking, req);
        }
        if let Some(better) = self.health.serving(now, server)
            && better != path
            && let Some(talk) = self.talks.by_id.get_mut(&id)
        {
            talk.path = better;
            self.steer_talk(id);
        }
        self.route_talk(now, id);
    }
}
