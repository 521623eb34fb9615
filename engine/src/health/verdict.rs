//! What follows from evidence: suspect, down, up, held, and which path a group uses.

use std::time::Duration;

use super::{
    Failback, GroupState, Health, MAX_RETRY_AFTER, Output, Task,
    path::{Cause, Condition},
    seconds,
};
use crate::{
    event::{Event, Evidence},
    net::{GroupId, LinkId, PathKey, ServerId},
    time::{Mono, Now},
};

/// The end of a hold that only the operator ends.
const NEVER: Mono = Mono(Duration::MAX);

impl Health {
    /// A request arrived from the server over this link.
    pub fn inbound(&mut self, now: Now, path: PathKey) {
        self.alive(now, path, "request_from_server");
        self.probe_sooner(now, path);
    }

    /// A link's carrier or address came or went.
    pub fn link_changed(&mut self, now: Now, link: LinkId, up: bool) {
        let Some(state) = self.links.iter_mut().find(|l| l.id == link && l.up != up) else {
            return;
        };
        state.up = up;
        let keys: Vec<_> = self
            .paths
            .keys()
            .copied()
            .filter(|key| key.link == link)
            .collect();
        for key in keys {
            self.note(now, key, format!("link {}", if up { "up" } else { "down" }));
            if up {
                self.restart_recovery(now, key);
            } else {
                self.fall(now, key, "link_down");
                self.stop_probing(key);
            }
        }
        self.review_links(now, if up { "link_up" } else { "link_down" });
    }

    /// The operator's choice: this server first while it is not down, and no hold for it now;
    /// `None` returns to the configured order and ends every hold.
    pub fn switch(&mut self, now: Now, group: GroupId, to: Option<ServerId>) {
        let known = to.is_none_or(|server| {
            server.group == group && self.paths.keys().any(|key| key.server == server)
        });
        let Some(state) = self.groups.get_mut(usize::from(group.0)).filter(|_| known) else {
            return;
        };
        state.switched_to = to;
        let freed: Vec<_> = self
            .paths_of(group)
            .map(|(key, _)| key)
            .filter(|key| to.is_none_or(|server| key.server == server))
            .collect();
        freed.into_iter().for_each(|key| self.give_work_back(key));
        self.regroup(now, group, "operator");
    }

    /// Something went unanswered: no new requests until a burst decides. The group's other
    /// paths are probed too, so that the next verdict is ready.
    pub(super) fn suspect(&mut self, now: Now, key: PathKey, cause: Cause, rule: &'static str) {
        let Some(path) = self.paths.get(&key).filter(|path| !path.is_down()) else {
            return;
        };
        if path.verdict_ready && cause == Cause::Silence {
            return self.fall(now, key, "burst_unanswered");
        }
        self.become_state(now, key, Condition::Suspect, rule);
        self.start_burst(now, key, cause);
        let others: Vec<_> = self
            .paths_of(key.server.group)
            .filter(|(other, path)| *other != key && !path.is_down() && !path.verdict_ready)
            .map(|(other, _)| other)
            .collect();
        others
            .into_iter()
            .for_each(|other| self.start_burst(now, other, Cause::Readiness));
    }

    /// A server that answers STUN left a keepalive unanswered for `limit`. That alone is no verdict:
    /// a burst asks whether SIP is answered.
    pub fn keepalive_missed(&mut self, now: Now, path: PathKey, limit: Duration) {
        self.note(now, path, format!("STUN unanswered for {}", seconds(limit)));
        self.suspect(now, path, Cause::Soft, "keepalive_unanswered");
    }

    /// Anything at all arrived from the server over this link. It ends the suspicion of
    /// silence, but neither a down state nor the suspicion of serving badly.
    pub(super) fn alive(&mut self, now: Now, key: PathKey, rule: &'static str) {
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        path.last_inbound = Some(now.mono);
        path.silent = 0;
        path.verdict_ready = false;
        let soft = path
            .burst
            .as_ref()
            .is_some_and(|burst| burst.cause == Cause::Soft);
        let clears = match path.condition {
            Condition::Unknown => true,
            Condition::Suspect => !soft,
            Condition::Up | Condition::Down => false,
        };
        if clears {
            self.become_state(now, key, Condition::Up, rule);
        }
    }

    pub(super) fn heard_since(&self, key: PathKey, since: Mono) -> bool {
        self.paths
            .get(&key)
            .is_some_and(|path| path.heard_since(since))
    }

    pub(super) fn is_down_code(&self, key: PathKey, code: u16) -> bool {
        self.group(key.server.group)
            .is_some_and(|group| group.conf.down_codes.contains(&code))
    }

    /// A probe or REGISTER was answered by a down code; enough of them are a verdict.
    pub(super) fn refused(&mut self, now: Now, key: PathKey) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        path.refused += 1;
        if !path.is_down() && path.refused + path.silent >= conf.max_unanswered {
            self.fall(now, key, "probes_refused");
        }
    }

    /// A probe or REGISTER had an answer that speaks for the server.
    pub(super) fn accepted(&mut self, key: PathKey) {
        if let Some(path) = self.paths.get_mut(&key) {
            path.refused = 0;
        }
    }

    /// A 503 with Retry-After: the server is left alone until then. True when it was one.
    pub(super) fn hold(
        &mut self,
        now: Now,
        key: PathKey,
        code: u16,
        retry_after: Option<Duration>,
    ) -> bool {
        let Some(wait) = retry_after.filter(|wait| code == 503 && !wait.is_zero()) else {
            return false;
        };
        let wait = wait.min(MAX_RETRY_AFTER);
        self.note(
            now,
            key,
            format!("503 with Retry-After: held for {}", seconds(wait)),
        );
        let server = key.server;
        let Some(held) = self.held_slot(server) else {
            return false;
        };
        let (before, until) = (*held, now.mono + wait);
        *held = before.max(Some(until));
        let until = held.unwrap_or(until);
        self.agenda.set(Task::Held(server), until);
        if before.is_none() {
            self.server_event(now, key, ("serving", "held"), "retry_after");
        }
        self.regroup(now, server.group, "retry_after");
        true
    }

    pub(super) fn hold_ended(&mut self, now: Now, server: ServerId) {
        if let Some(held) = self.held_slot(server) {
            *held = None;
        }
        if let Some(key) = self.paths.keys().copied().find(|key| key.server == server) {
            self.server_event(now, key, ("held", "serving"), "retry_after_over");
        }
        self.regroup(now, server.group, "retry_after_over");
    }

    /// The verdict down: everything live on the path hunts.
    pub(super) fn fall(&mut self, now: Now, key: PathKey, rule: &'static str) {
        let link_up = self.link_is_up(key.link);
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        if path.is_down() {
            return;
        }
        let initial = conf.backoff.initial;
        path.fall(now, initial);
        self.agenda.clear(Task::Burst(key));
        self.agenda.clear(Task::Failback(key));
        self.drop_probes(key);
        self.become_state(now, key, Condition::Down, rule);
        self.outputs.push_back(Output::ServerDown { path: key });
        self.regroup(now, key.server.group, rule);
        if link_up {
            self.plan_recovery_probe(now.mono, now.mono, key);
            self.review_links(now, "all_servers_down");
        }
        self.hunt_all(key);
    }

    /// Enough good answers: up, and on hold before it gets its work back.
    pub(super) fn rise(&mut self, now: Now, key: PathKey) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        let hold = path.rise(now, conf.failback_hold);
        let returns_at = if conf.failback == Failback::Manual {
            NEVER
        } else {
            now.mono + hold
        };
        path.returns_at = Some(returns_at);
        self.become_state(now, key, Condition::Up, "recovered");
        self.outputs.push_back(Output::ServerUp { path: key });
        if returns_at != NEVER {
            self.agenda.set(Task::Failback(key), returns_at);
        }
        self.regroup(now, key.server.group, "recovered");
        self.review_links(now, "server_recovered");
    }

    pub(super) fn failback_due(&mut self, now: Now, key: PathKey) {
        self.give_work_back(key);
        self.regroup(now, key.server.group, "failback_hold_over");
    }

    /// Finds the group's active path anew; a change is told with the evidence of the path that
    /// led to it. Suspicion, which may pass within milliseconds, does not move it.
    pub(super) fn regroup(&mut self, now: Now, id: GroupId, rule: &'static str) {
        let state = match self.active(now, id) {
            Some(active) => GroupState::Serving { active },
            None => GroupState::Survivability,
        };
        if let GroupState::Serving { active } = state {
            // In service out of need or by right: there is no work left to give back.
            self.give_work_back(active);
        }
        let Some(group) = self.groups.get_mut(usize::from(id.0)) else {
            return;
        };
        let before = std::mem::replace(&mut group.state, state);
        if before == state {
            return;
        }
        if state == GroupState::Survivability {
            self.hurry_recovery(now, id);
        }
        let object = self
            .group(id)
            .map(|group| group.conf.name.clone())
            .unwrap_or_default();
        let (from, to) = (self.describe(before), self.describe(state));
        let evidence = self.group_evidence(id, before, state);
        self.event(Event {
            at: now,
            kind: "group",
            object,
            from,
            to,
            rule,
            evidence,
        });
        self.outputs.push_back(Output::Group { group: id, state });
    }

    pub(super) fn link_is_up(&self, link: LinkId) -> bool {
        self.links.iter().any(|l| l.id == link && l.up)
    }

    /// A path's name in events: `"core sip:192.0.2.10:5060 wan0"`.
    fn path_name(&self, key: PathKey) -> String {
        let link = self
            .links
            .iter()
            .find(|l| l.id == key.link)
            .map_or("", |l| &l.name);
        let group = self
            .group(key.server.group)
            .map_or("", |group| &group.conf.name);
        format!("{group} {} {link}", self.uri(key.server))
    }

    pub(super) fn uri(&self, server: ServerId) -> &str {
        self.group(server.group)
            .and_then(|group| group.conf.servers.get(usize::from(server.index)))
            .map_or("", |server| &server.uri)
    }

    pub(super) fn become_state(
        &mut self,
        now: Now,
        key: PathKey,
        to: Condition,
        rule: &'static str,
    ) {
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        let from = std::mem::replace(&mut path.condition, to);
        if from == to {
            return;
        }
        path.since = now;
        path.rule = rule;
        self.server_event(now, key, (from.name(), to.name()), rule);
    }

    fn server_event(
        &mut self,
        now: Now,
        key: PathKey,
        (from, to): (&str, &str),
        rule: &'static str,
    ) {
        let evidence = self.evidence(key);
        let object = self.path_name(key);
        let (from, to) = (from.to_owned(), to.to_owned());
        self.event(Event {
            at: now,
            kind: "server",
            object,
            from,
            to,
            rule,
            evidence,
        });
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn evidence(&self, key: PathKey) -> Vec<Evidence> {
        self.paths
            .get(&key)
            .map(|path| path.evidence.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// What led away from the old path, or, out of survivability, to the new one.
    fn group_evidence(&self, _: GroupId, before: GroupState, after: GroupState) -> Vec<Evidence> {
        match (before, after) {
            (GroupState::Serving { active }, _) | (_, GroupState::Serving { active }) => {
                self.evidence(active)
            }
            _ => Vec::new(),
        }
    }

    fn describe(&self, state: GroupState) -> String {
        match state {
            GroupState::Serving { active } => {
                let link = self
                    .links
                    .iter()
                    .find(|l| l.id == active.link)
                    .map_or("", |l| &l.name);
                format!("{} {link}", self.uri(active.server))
            }
            GroupState::Survivability => "survivability".to_owned(),
        }
    }

    /// A link is down when its carrier, its address, or all its servers are.
    fn review_links(&mut self, now: Now, rule: &'static str) {
        for index in 0..self.links.len() {
            let (id, up) = (self.links[index].id, self.links[index].up);
            let serving = up
                && self
                    .paths
                    .iter()
                    .any(|(key, p)| key.link == id && !p.is_down());
            if std::mem::replace(&mut self.links[index].serving, serving) == serving {
                continue;
            }
            let (from, to) = if serving {
                ("down", "up")
            } else {
                ("up", "down")
            };
            let object = self.links[index].name.clone();
            let (from, to) = (from.to_owned(), to.to_owned());
            let evidence = Vec::new();
            self.event(Event {
                at: now,
                kind: "link",
                object,
                from,
                to,
                rule,
                evidence,
            });
        }
    }

    fn give_work_back(&mut self, key: PathKey) {
        self.agenda.clear(Task::Failback(key));
        if let Some(path) = self.paths.get_mut(&key) {
            path.returns_at = None;
        }
    }

    fn held_slot(&mut self, server: ServerId) -> Option<&mut Option<Mono>> {
        let group = self.groups.get_mut(usize::from(server.group.0))?;
        group.held_until.get_mut(usize::from(server.index))
    }
}
