//! Everything there is to show of groups and paths.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Group, GroupState, GroupView, Health, Path, PathState, PathView, Task, path::Condition,
};
use crate::{
    net::{GroupId, PathKey},
    time::{Mono, Now},
};

impl Health {
    /// Everything there is to show.
    #[must_use]
    pub fn snapshot(&self, now: Now) -> Vec<GroupView> {
        let mut live = BTreeMap::new();
        for request in self.requests.values() {
            *live.entry(request.path).or_insert(0) += 1;
        }
        let ids = (0..self.groups.len())
            .filter_map(|i| u16::try_from(i).ok())
            .map(GroupId);
        ids.filter_map(|id| self.group_view(now, id, &live))
            .collect()
    }

    fn group_view(
        &self,
        now: Now,
        id: GroupId,
        live: &BTreeMap<PathKey, usize>,
    ) -> Option<GroupView> {
        // The place of a group that was taken away is empty.
        let group = self
            .group(id)
            .filter(|group| !group.conf.servers.is_empty())?;
        let view = |(key, path): (PathKey, &Path)| {
            let live = live.get(&key).copied().unwrap_or(0);
            self.path_view(now, group, key, path, live)
        };
        let active_uri = match group.state {
            GroupState::Serving { active } => Some(self.uri(active.server).to_owned()),
            GroupState::Survivability => None,
        };
        Some(GroupView {
            id,
            name: group.conf.name.clone(),
            state: group.state,
            active_uri,
            switched_to: group.switched_to,
            paths: self.paths_of(id).filter_map(view).collect(),
        })
    }

    fn path_view(
        &self,
        now: Now,
        group: &Group,
        key: PathKey,
        path: &Path,
        live_requests: usize,
    ) -> Option<PathView> {
        let server = group.conf.servers.get(usize::from(key.server.index))?;
        let left = |at: Mono| Some(at.since(now.mono)).filter(|left| !left.is_zero());
        let held_for = group
            .held_until
            .get(usize::from(key.server.index))?
            .and_then(left);
        let forever = |left: Duration| if left > FOREVER { Duration::MAX } else { left };
        // A probe in flight shows as due now.
        let due = |at: Mono| {
            if path.probe.is_some() {
                Duration::ZERO
            } else {
                at.since(now.mono)
            }
        };
        Some(PathView {
            key,
            uri: server.uri.clone(),
            address: server.address,
            link: self
                .links
                .iter()
                .find(|link| link.id == key.link)?
                .name
                .clone(),
            priority: server.priority,
            weight: server.weight,
            state: shown(path.condition, held_for.is_some()),
            since: path.since,
            reason: path.rule,
            next_probe: self.agenda.at(Task::Probe(key)).map(due),
            held_for,
            returns_in: path.returns_at.and_then(left).map(forever),
            flaps: path.remembered_flaps(now.mono),
            srtt: path.smoothed(),
            live_requests,
            evidence: path.evidence.iter().cloned().collect(),
        })
    }
}

/// No hold but the operator's lasts this long.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

fn shown(condition: Condition, held: bool) -> PathState {
    match condition {
        Condition::Down => PathState::Down,
        _ if held => PathState::Held,
        Condition::Suspect => PathState::Suspect,
        Condition::Up => PathState::Up,
        Condition::Unknown => PathState::Unknown,
    }
}
