//! OPTIONS: at intervals, in bursts beside a request, and to a server that is down.

use std::time::Duration;

use super::{
    Class, GroupState, Health, Output, ProbeId, ProbeMode, Task,
    path::{Burst, Cause, Condition},
    seconds,
};
use crate::{
    net::{GroupId, PathKey},
    time::{Mono, Now},
};

/// Probes of a burst, between two of them, and the limit after the last.
const BURST_PROBES: usize = 3;
const BURST_STEP: Duration = Duration::from_millis(200);
const BURST_LIMIT: Duration = Duration::from_millis(300);
/// Between the probes of a down server that has begun to answer.
const RECOVERY_STEP: Duration = Duration::from_secs(1);

/// A probe in flight. A late answer finds none, and changes nothing.
#[derive(Debug)]
pub(super) struct Probe {
    path: PathKey,
    sent: Mono,
}

impl Probe {
    pub(super) fn is_of(&self, group: GroupId) -> bool {
        self.path.server.group == group
    }
}

impl Health {
    /// A probe's final answer.
    pub fn probe_received(
        &mut self,
        now: Now,
        id: ProbeId,
        code: u16,
        retry_after: Option<Duration>,
    ) {
        let Some(Probe { path, sent }) = self.probes.remove(&id) else {
            return;
        };
        let held = self.hold(now, path, code, retry_after);
        let speaks_for = held || !self.is_down_code(path, code);
        if self.paths.get(&path).is_some_and(super::Path::is_down) {
            return self.recovery_answer(now, path, sent, code, speaks_for && !held);
        }
        if !speaks_for {
            return self.bad_answer(now, path, id, sent, code);
        }
        if let Some(path) = self.paths.get_mut(&path) {
            path.rtt_mut(Class::Other).sample(now.mono.since(sent));
        }
        self.alive(now, path, "probe_answered");
        self.accepted(path);
        self.burst_answered(now, path);
        self.probe_settled(now, path, id);
    }

    /// Plans the next probe of a path that is not down. In `Idle` it may come due early: then
    /// it is planned anew from what was heard meanwhile.
    pub(super) fn plan_probe(&mut self, key: PathKey, at: Mono) {
        let Some(group) = self.group(key.server.group) else {
            return;
        };
        if group.conf.probe == ProbeMode::Off || !self.link_is_up(key.link) {
            self.agenda.clear(Task::Probe(key));
        } else {
            self.agenda.set(Task::Probe(key), at);
        }
    }

    /// The probe in flight is overdue; with none in flight, the next is due.
    pub(super) fn probe_due(&mut self, now: Now, key: PathKey) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        let (down, timeout) = (path.is_down(), conf.timeout);
        if let Some(id) = path.probe.take() {
            self.probes.remove(&id);
            self.note(
                now,
                key,
                format!("OPTIONS unanswered for {}", seconds(timeout)),
            );
            return if down {
                self.recovery_miss(now, key)
            } else {
                self.idle_miss(now, key)
            };
        }
        if !down && let Some(later) = self.not_yet(now.mono, key) {
            return self.plan_probe(key, later);
        }
        self.send_regular(now, key);
    }

    /// Starts a burst, or makes the one that runs answer this question too.
    pub(super) fn start_burst(&mut self, now: Now, key: PathKey, cause: Cause) {
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        if let Some(burst) = &mut path.burst {
            if burst.cause == Cause::Readiness {
                burst.cause = cause;
            }
            return;
        }
        let started = now.mono;
        path.burst = Some(Burst {
            cause,
            started,
            probes: Vec::new(),
            refused: false,
        });
        self.burst_due(now, key);
    }

    pub(super) fn burst_due(&mut self, now: Now, key: PathKey) {
        let Some(burst) = self.paths.get(&key).and_then(|path| path.burst.as_ref()) else {
            return;
        };
        let sent = burst.probes.len();
        if sent == BURST_PROBES {
            return self.burst_over(now, key);
        }
        let id = self.send_probe(now, key);
        if let Some(burst) = self
            .paths
            .get_mut(&key)
            .and_then(|path| path.burst.as_mut())
        {
            burst.probes.push(id);
        }
        let wait = if sent + 1 == BURST_PROBES {
            BURST_LIMIT
        } else {
            BURST_STEP
        };
        self.agenda.set(Task::Burst(key), now.mono + wait);
    }

    /// Forgets whatever is in flight to this path.
    pub(super) fn drop_probes(&mut self, key: PathKey) {
        self.probes.retain(|_, probe| probe.path != key);
    }

    /// The path's link is gone: nothing can be sent, and no answer will come.
    pub(super) fn stop_probing(&mut self, key: PathKey) {
        self.agenda.clear(Task::Probe(key));
        self.drop_probes(key);
        if let Some(path) = self.paths.get_mut(&key) {
            path.probe = None;
            path.good = 0;
        }
    }

    /// A down path whose link came back is probed at once.
    pub(super) fn restart_recovery(&mut self, now: Now, key: PathKey) {
        if let Some((path, conf)) = self.path(key) {
            path.backoff = conf.backoff.initial;
            self.agenda.set(Task::Probe(key), now.mono);
        }
    }

    /// A request from a server that is down: see at once whether it answers, too.
    pub(super) fn probe_sooner(&mut self, now: Now, key: PathKey) {
        let waits = |path: &&super::Path| path.is_down() && path.probe.is_none() && path.good == 0;
        let Some(path) = self.paths.get_mut(&key).filter(|path| waits(&&**path)) else {
            return;
        };
        // The last step of the back-off bounds how often this can happen.
        let soonest = path
            .last_probe
            .map_or(now.mono, |at| at + RECOVERY_STEP)
            .max(now.mono);
        if self
            .agenda
            .at(Task::Probe(key))
            .is_some_and(|at| at > soonest)
        {
            self.agenda.set(Task::Probe(key), soonest);
        }
    }

    /// Plans the next probe of a down path, counted from `since`: the back-off doubles up to
    /// the long cap while another path of the group can serve, to the short one while none can.
    pub(super) fn plan_recovery_probe(&mut self, now: Mono, since: Mono, key: PathKey) {
        let Some(group) = self.group(key.server.group) else {
            return;
        };
        let alone = group.state == GroupState::Survivability;
        let backoff = group.conf.backoff;
        let cap = if alone {
            backoff.max_alone
        } else {
            backoff.max
        };
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        let delay = path.backoff.min(cap);
        path.backoff = path
            .backoff
            .saturating_mul(2)
            .min(backoff.max.max(backoff.max_alone));
        let at = since + self.jitter.spread(delay);
        self.agenda.set(Task::Probe(key), at.max(now));
    }

    /// No path of the group is left: none may wait longer than the short cap any more.
    pub(super) fn hurry_recovery(&mut self, now: Now, id: GroupId) {
        let Some(group) = self.group(id) else { return };
        let cap = group.conf.backoff.max_alone;
        let waiting: Vec<_> = self
            .paths_of(id)
            .filter(|(_, path)| path.is_down() && path.probe.is_none())
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            let latest = now.mono + self.jitter.spread(cap);
            if self
                .agenda
                .at(Task::Probe(key))
                .is_some_and(|at| at > latest)
            {
                self.agenda.set(Task::Probe(key), latest);
            }
        }
    }

    /// When an interval probe is not wanted yet, or not at all: when to look again.
    fn not_yet(&self, now: Mono, key: PathKey) -> Option<Mono> {
        let (path, group) = (self.paths.get(&key)?, self.group(key.server.group)?);
        if path.condition == Condition::Suspect || path.silent > 0 {
            return None;
        }
        let interval = group.conf.interval;
        let active = matches!(group.state, GroupState::Serving { active } if active == key);
        let in_use = active || path.heard_since(now - interval);
        match group.conf.probe {
            ProbeMode::Inactive if in_use => Some(now + interval),
            ProbeMode::Idle => path
                .last_inbound
                .map(|at| at + interval)
                .filter(|&silent_at| silent_at > now),
            ProbeMode::Off | ProbeMode::Inactive | ProbeMode::All => None,
        }
    }

    fn send_regular(&mut self, now: Now, key: PathKey) {
        let id = self.send_probe(now, key);
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        path.probe = Some(id);
        let overdue = now.mono + conf.timeout;
        self.agenda.set(Task::Probe(key), overdue);
    }

    fn send_probe(&mut self, now: Now, key: PathKey) -> ProbeId {
        let id = ProbeId(self.next_probe);
        self.next_probe += 1;
        self.probes.insert(
            id,
            Probe {
                path: key,
                sent: now.mono,
            },
        );
        if let Some(path) = self.paths.get_mut(&key) {
            path.last_probe = Some(now.mono);
        }
        self.outputs.push_back(Output::Probe { id, path: key });
        id
    }

    /// An interval probe went unanswered; the next goes at once.
    fn idle_miss(&mut self, now: Now, key: PathKey) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        path.silent += 1;
        if path.silent + path.refused >= conf.max_unanswered {
            return self.fall(now, key, "probes_unanswered");
        }
        self.send_regular(now, key);
    }

    fn recovery_miss(&mut self, now: Now, key: PathKey) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        let was_recovering = std::mem::take(&mut path.good) > 0;
        if was_recovering {
            path.backoff = conf.backoff.initial;
        }
        let since = now.mono - conf.timeout;
        self.plan_recovery_probe(now.mono, since, key);
    }

    fn recovery_answer(&mut self, now: Now, key: PathKey, sent: Mono, code: u16, good: bool) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        path.probe = None;
        if !good {
            path.note(now, format!("OPTIONS answered {code}"));
            return self.recovery_miss(now, key);
        }
        path.good += 1;
        path.last_inbound = Some(now.mono);
        let (good, wanted) = (path.good, conf.recover_answers);
        path.note(
            now,
            format!("OPTIONS answered {code}, {good} of {wanted} in a row"),
        );
        if good < wanted {
            return self
                .agenda
                .set(Task::Probe(key), (sent + RECOVERY_STEP).max(now.mono));
        }
        self.rise(now, key);
        self.plan_next(now, key);
    }

    /// A down code in answer to a probe: as bad as silence, but not silence.
    fn bad_answer(&mut self, now: Now, key: PathKey, id: ProbeId, sent: Mono, code: u16) {
        let Some((path, conf)) = self.path(key) else {
            return;
        };
        path.last_inbound = Some(now.mono);
        path.note(now, format!("OPTIONS answered {code}"));
        let next = sent + conf.timeout;
        if let Some(burst) = path
            .burst
            .as_mut()
            .filter(|burst| burst.probes.contains(&id))
        {
            burst.refused = true;
            return;
        }
        if path.probe == Some(id) {
            path.probe = None;
            self.agenda.set(Task::Probe(key), next.max(now.mono));
        }
        self.refused(now, key);
    }

    /// The interval probe was answered well: the next one in `interval`.
    fn probe_settled(&mut self, now: Now, key: PathKey, id: ProbeId) {
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        if path.probe == Some(id) {
            path.probe = None;
            self.plan_next(now, key);
        }
    }

    fn plan_next(&mut self, now: Now, key: PathKey) {
        if let Some(group) = self.group(key.server.group) {
            let at = now.mono + group.conf.interval;
            self.plan_probe(key, at);
        }
    }

    fn burst_answered(&mut self, now: Now, key: PathKey) {
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        if path.burst.take().is_some() {
            self.end_burst(key);
            self.clear_suspicion(now, key, "burst_answered");
        }
    }

    /// Every probe of the burst is overdue: what does that say?
    fn burst_over(&mut self, now: Now, key: PathKey) {
        self.end_burst(key);
        let Some(burst) = self.paths.get_mut(&key).and_then(|path| path.burst.take()) else {
            return;
        };
        let heard = self.heard_since(key, burst.started);
        let count = burst.probes.len();
        match burst.cause {
            _ if burst.refused => self.burst_refused(now, key, burst.cause),
            _ if heard && self.has_overdue(key) => {
                self.note(
                    now,
                    key,
                    format!("{count} OPTIONS unanswered, but the server spoke"),
                );
                self.start_burst(now, key, burst.cause);
            }
            _ if heard => self.clear_suspicion(now, key, "server_spoke"),
            Cause::Readiness => {
                self.note(
                    now,
                    key,
                    format!("{count} OPTIONS unanswered beside another's burst"),
                );
                self.await_accusation(now, key);
            }
            Cause::Silence | Cause::Soft => {
                self.note(now, key, format!("{count} OPTIONS in a burst unanswered"));
                self.fall(now, key, "burst_unanswered");
            }
        }
    }

    fn burst_refused(&mut self, now: Now, key: PathKey, cause: Cause) {
        if cause == Cause::Readiness {
            self.refused(now, key);
        } else {
            self.fall(now, key, "burst_refused");
        }
    }

    /// A readiness burst found silence. That alone is no verdict, but the next request that
    /// passes its suspect time is; until then probes go on one after the other.
    fn await_accusation(&mut self, now: Now, key: PathKey) {
        let Some(path) = self.paths.get_mut(&key) else {
            return;
        };
        path.verdict_ready = true;
        let in_flight = path.probe.is_some();
        self.become_state(now, key, Condition::Suspect, "readiness_unanswered");
        if !in_flight {
            self.agenda.set(Task::Probe(key), now.mono);
        }
    }

    fn clear_suspicion(&mut self, now: Now, key: PathKey, rule: &'static str) {
        let Some(path) = self.paths.get(&key) else {
            return;
        };
        if path.condition == Condition::Suspect {
            self.become_state(now, key, Condition::Up, rule);
        }
    }

    /// The burst's probes are no longer awaited.
    fn end_burst(&mut self, key: PathKey) {
        self.agenda.clear(Task::Burst(key));
        let keep = self.paths.get(&key).and_then(|path| path.probe);
        self.probes
            .retain(|id, probe| probe.path != key || Some(*id) == keep);
    }
}
