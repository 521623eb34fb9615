//! Transactions under watch: when one hunts, and when its server is suspect.

use std::time::Duration;

use super::{Class, GroupConf, Health, Judgement, Output, RequestId, Task, path::Cause, seconds};
use crate::{
    net::PathKey,
    time::{Mono, Now},
};

/// Requests watched at once; one beyond it is served but judges nobody.
pub const MAX_REQUESTS: usize = 65_536;
/// Bytes kept of a request's name.
const MAX_WHAT: usize = 80;

/// A client transaction that has no final response yet.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: PathKey,
    class: Class,
    what: String,
    sent: Mono,
    retransmitted: bool,
    step: Step,
}

/// What happens at the request's next deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It passed by: whoever saw it says when it is overdue.
    Observed,
    /// Its server becomes suspect.
    Suspect,
    /// An INVITE hunts if nothing at all came since it was sent.
    Passive,
    /// It hunts, whatever came.
    Last,
    /// There was a 100; nothing since then would be soft evidence.
    After100(Mono),
    /// Only the verdict can move it.
    Verdict,
}

impl Request {
    fn is_unanswered(&self) -> bool {
        !matches!(self.step, Step::After100(_) | Step::Verdict)
    }

    /// No response yet, and its suspect time has passed.
    pub(super) fn is_overdue(&self) -> bool {
        matches!(self.step, Step::Passive | Step::Last)
    }

    fn deadline(&self, suspect_after: Duration, conf: &GroupConf) -> Option<Mono> {
        match self.step {
            Step::Suspect => Some(self.sent + suspect_after),
            Step::Passive => Some(self.sent + conf.passive_timeout),
            Step::Last if self.class == Class::Invite => Some(self.sent + conf.slow_timeout),
            Step::Last => Some(self.sent + conf.passive_timeout_other),
            Step::After100(since) => Some(since + conf.after_100_timeout),
            Step::Observed | Step::Verdict => None,
        }
    }
}

impl Health {
    /// A request's first transmission. `what` names it in evidence: `"INVITE sip:201@a.test"`.
    pub fn sent(&mut self, now: Now, req: RequestId, path: PathKey, class: Class, what: &str) {
        self.watch(now.mono, req, path, (class, Step::Suspect), what);
    }

    /// A request that a phone sent to a server passed by at `sent`. Its evidence is that of our
    /// own, but [`Self::overdue`] says when it has waited for too long: what is seen in passing
    /// may be incomplete.
    pub fn observed(
        &mut self,
        sent: Mono,
        req: RequestId,
        path: PathKey,
        class: Class,
        what: &str,
    ) {
        self.watch(sent, req, path, (class, Step::Observed), what);
    }

    /// An observed request is without any response, and that is certain: its server is suspect.
    pub fn overdue(&mut self, now: Now, req: RequestId) {
        let observed = |request: &&mut Request| request.step == Step::Observed;
        if let Some(request) = self.requests.get_mut(&req).filter(observed) {
            request.step = Step::Suspect;
            self.request_due(now, req);
        }
    }

    fn watch(
        &mut self,
        sent: Mono,
        req: RequestId,
        path: PathKey,
        (class, step): (Class, Step),
        what: &str,
    ) {
        if !self.paths.contains_key(&path) || self.requests.len() >= MAX_REQUESTS {
            return;
        }
        let what = what
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX_WHAT)
            .collect();
        let request = Request {
            path,
            class,
            what,
            sent,
            retransmitted: false,
            step,
        };
        self.requests.insert(req, request);
        self.plan_request(req);
    }

    /// The request was sent again: its response time no longer counts (Karn).
    pub fn retransmitted(&mut self, now: Now, req: RequestId) {
        let _ = now;
        if let Some(request) = self.requests.get_mut(&req) {
            request.retransmitted = true;
        }
    }

    /// A response arrived for a request. `after_18x` is true when a provisional other than 100
    /// came before it, and for requests within a dialog: then every final is passed on.
    ///
    /// Responses to requests that were hunted or closed change nothing.
    pub fn received(
        &mut self,
        now: Now,
        req: RequestId,
        code: u16,
        retry_after: Option<Duration>,
        after_18x: bool,
    ) -> Judgement {
        if !self.requests.contains_key(&req) {
            return Judgement::Relay;
        }
        self.first_response(now, req);
        if code >= 200 {
            return self.final_response(now, req, code, retry_after, after_18x);
        }
        let trying = self
            .requests
            .get(&req)
            .is_some_and(|r| r.step != Step::Verdict);
        let only_100 = code == 100 && trying;
        self.step_to(
            req,
            if only_100 {
                Step::After100(now.mono)
            } else {
                Step::Verdict
            },
        );
        Judgement::Relay
    }

    /// The request ended for another reason: it is judged no more.
    pub fn closed(&mut self, now: Now, req: RequestId) {
        let _ = now;
        self.forget(req);
    }

    /// An ICMP error arrived whose quoted header matched this live request: it hunts, and the
    /// burst starts. No verdict follows from it alone.
    pub fn icmp(&mut self, now: Now, req: RequestId) {
        self.unreachable(now, req, "answered by ICMP unreachable", "icmp");
    }

    /// The connection that this live request needs could not be opened: the same evidence as an
    /// ICMP error.
    pub fn connect_failed(&mut self, now: Now, req: RequestId) {
        self.unreachable(now, req, "not sent: no connection", "connect_failed");
    }

    fn unreachable(&mut self, now: Now, req: RequestId, what: &str, rule: &'static str) {
        let Some(request) = self.requests.get(&req) else {
            return;
        };
        let (path, unanswered) = (request.path, request.is_unanswered());
        let what = format!("{} {what}", request.what);
        self.note(now, path, what);
        if unanswered {
            self.hunt(req, rule);
        }
        self.suspect(now, path, Cause::Silence, rule);
    }

    /// Everything live on a path that is down hunts.
    pub(super) fn hunt_all(&mut self, path: PathKey) {
        let live: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, r)| r.path == path)
            .map(|(id, _)| *id)
            .collect();
        live.into_iter()
            .for_each(|req| self.hunt(req, "server_down"));
    }

    /// Does a request on this path wait beyond its suspect time?
    pub(super) fn has_overdue(&self, path: PathKey) -> bool {
        self.requests
            .values()
            .any(|r| r.path == path && r.is_overdue())
    }

    pub(super) fn request_due(&mut self, now: Now, req: RequestId) {
        let Some(request) = self.requests.get(&req) else {
            return;
        };
        let (path, sent, invite) = (request.path, request.sent, request.class == Class::Invite);
        let waited = format!(
            "{} unanswered for {}",
            request.what,
            seconds(now.mono.since(sent))
        );
        match request.step {
            Step::Suspect => {
                self.step_to(req, if invite { Step::Passive } else { Step::Last });
                self.note(now, path, waited);
                self.suspect(now, path, Cause::Silence, "request_unanswered");
            }
            Step::Passive if self.heard_since(path, sent) => self.step_to(req, Step::Last),
            Step::Passive => {
                self.note(
                    now,
                    path,
                    format!("{waited}, and nothing else came: it hunts"),
                );
                self.hunt(req, "passive_timeout");
            }
            Step::Last => {
                self.note(now, path, format!("{waited}: it hunts"));
                self.hunt(
                    req,
                    if invite {
                        "slow_timeout"
                    } else {
                        "passive_timeout_other"
                    },
                );
                self.soft_evidence(now, path, req);
            }
            Step::After100(since) => {
                let silence = seconds(now.mono.since(since));
                let what = format!("{}: nothing for {silence} after its 100", request.what);
                self.step_to(req, Step::Verdict);
                self.note(now, path, what);
                self.soft_evidence(now, path, req);
            }
            Step::Observed | Step::Verdict => {}
        }
    }

    /// The first sign of the request's life: its response time, and its server's.
    fn first_response(&mut self, now: Now, req: RequestId) {
        let Some(request) = self.requests.get_mut(&req) else {
            return;
        };
        let (path, class, took) = (request.path, request.class, now.mono.since(request.sent));
        let first = request.is_unanswered();
        let timed = first && !request.retransmitted;
        if first {
            request.step = Step::After100(now.mono);
        }
        if timed && let Some(path) = self.paths.get_mut(&path) {
            path.rtt_mut(class).sample(took);
        }
        self.alive(now, path, "response");
    }

    fn final_response(
        &mut self,
        now: Now,
        req: RequestId,
        code: u16,
        retry_after: Option<Duration>,
        after_18x: bool,
    ) -> Judgement {
        let Some(request) = self.forget(req) else {
            return Judgement::Relay;
        };
        let path = request.path;
        let held = self.hold(now, path, code, retry_after);
        if !self.is_down_code(path, code) {
            if request.class == Class::Register {
                self.accepted(path);
            }
            return Judgement::Relay;
        }
        self.note(now, path, format!("{} answered {code}", request.what));
        match request.class {
            Class::Invite if after_18x => Judgement::Relay,
            Class::Other => Judgement::Relay,
            _ if held => Judgement::Hunt("retry_after"),
            Class::Invite => {
                self.soft_evidence(now, path, req);
                Judgement::Hunt("down_code")
            }
            Class::Register => {
                self.refused(now, path);
                self.suspect(now, path, Cause::Soft, "register_refused");
                Judgement::Hunt("down_code")
            }
        }
    }

    fn soft_evidence(&mut self, now: Now, path: PathKey, req: RequestId) {
        let enough = self
            .paths
            .get_mut(&path)
            .is_some_and(|path| path.soft(now.mono, req));
        if enough {
            self.suspect(now, path, Cause::Soft, "soft_evidence");
        }
    }

    fn hunt(&mut self, req: RequestId, rule: &'static str) {
        if self.forget(req).is_some() {
            self.outputs.push_back(Output::Hunt { req, rule });
        }
    }

    fn forget(&mut self, req: RequestId) -> Option<Request> {
        self.agenda.clear(Task::Request(req));
        self.requests.remove(&req)
    }

    fn step_to(&mut self, req: RequestId, step: Step) {
        if let Some(request) = self.requests.get_mut(&req) {
            request.step = step;
        }
        self.plan_request(req);
    }

    fn plan_request(&mut self, req: RequestId) {
        let Some(request) = self.requests.get(&req) else {
            return;
        };
        let (Some(path), Some(group)) = (
            self.paths.get(&request.path),
            self.group(request.path.server.group),
        ) else {
            return;
        };
        let suspect_after = path.suspect_after(request.class, &group.conf);
        match request.deadline(suspect_after, &group.conf) {
            Some(at) => self.agenda.set(Task::Request(req), at),
            None => self.agenda.clear(Task::Request(req)),
        }
    }
}
