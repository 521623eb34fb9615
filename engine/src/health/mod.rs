//! Which servers are alive, and which one a request goes to (signalling.md sections 1 to 3).
//!
//! Evidence is what the gateway's own transactions, its probes and the network say of a
//! (server, link). Two decisions rest on it and are kept apart: to *hunt* one request, and to
//! call a server *down*.
//!
//! | file | concern |
//! |---|---|
//! | `requests` | transactions under watch: when one hunts, when its server is suspect |
//! | `probes` | OPTIONS: at intervals, in bursts, to a down server |
//! | `verdict` | what follows from it: suspect, down, up, held, the group's active path |
//! | `select` | the path for a request |
//! | `change` | groups that come and go |
//! | `stall` | media of several calls that went silent together |
//! | `path`, `rtt`, `agenda`, `jitter` | the record of a path, and tools |

mod agenda;
mod change;
mod conf;
mod jitter;
mod path;
mod probes;
mod requests;
mod rtt;
mod select;
mod stall;
mod types;
mod verdict;
mod view;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use conf::{
    Backoff, FLAPS_FORGOTTEN, Failback, GroupConf, MAX_FAILBACK_HOLD, MAX_RETRY_AFTER, Prefer,
    ProbeMode, ServerConf,
};
pub use requests::MAX_REQUESTS;
pub use types::{
    Class, GroupState, GroupView, Judgement, Output, PathState, PathView, ProbeId, Reason,
    RequestId, Want,
};

use agenda::Agenda;
use jitter::Jitter;
use path::Path;
use probes::Probe;
use requests::Request;

use crate::{
    net::{GroupId, LinkId, PathKey, ServerId},
    time::{Mono, Now},
};

/// The health of every (server, link), and the choice among them.
///
/// A pure machine. The driver feeds one input, drains [`Health::poll_output`] until `None`,
/// asks [`Health::poll_timeout`] and calls [`Health::handle_timeout`] no later than then.
/// Inputs that name an unknown group, path, request or probe change nothing.
#[derive(Debug)]
pub struct Health {
    links: Vec<WanLink>,
    groups: Vec<Group>,
    paths: BTreeMap<PathKey, Path>,
    requests: BTreeMap<RequestId, Request>,
    probes: BTreeMap<ProbeId, Probe>,
    next_probe: u64,
    agenda: Agenda<Task>,
    jitter: Jitter,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct WanLink {
    id: LinkId,
    name: String,
    /// Carrier and address.
    up: bool,
    /// At least one server can be reached over it.
    serving: bool,
}

#[derive(Debug)]
struct Group {
    conf: GroupConf,
    /// Per server: the end of a 503's Retry-After.
    held_until: Vec<Option<Mono>>,
    switched_to: Option<ServerId>,
    state: GroupState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Request(RequestId),
    Burst(PathKey),
    /// The probe in flight is overdue; with none in flight, the next is due.
    Probe(PathKey),
    Held(ServerId),
    Failback(PathKey),
}

impl Health {
    /// Watches `groups` over the WAN `links`, given in their order of preference and taken to
    /// be up. Every path is probed at once, unless probing is off. `seed` feeds the jitter of
    /// the back-off.
    #[must_use]
    pub fn new(now: Now, groups: Vec<GroupConf>, links: Vec<(LinkId, String)>, seed: u64) -> Self {
        let link = |(id, name)| WanLink {
            id,
            name,
            up: true,
            serving: true,
        };
        let mut health = Self {
            links: links.into_iter().map(link).collect(),
            groups: groups.into_iter().map(Group::new).collect(),
            paths: BTreeMap::new(),
            requests: BTreeMap::new(),
            probes: BTreeMap::new(),
            next_probe: 0,
            agenda: Agenda::new(),
            jitter: Jitter::new(seed),
            outputs: VecDeque::new(),
        };
        health.populate(now);
        health
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(task) = self.agenda.pop_due(now.mono) {
            match task {
                Task::Request(req) => self.request_due(now, req),
                Task::Burst(path) => self.burst_due(now, path),
                Task::Probe(path) => self.probe_due(now, path),
                Task::Held(server) => self.hold_ended(now, server),
                Task::Failback(path) => self.failback_due(now, path),
            }
        }
    }

    /// When to call [`Health::handle_timeout`], and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Reason)> {
        self.agenda.next().map(|(at, task)| (at, task.reason()))
    }

    /// The next thing to do or to know.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn populate(&mut self, now: Now) {
        for (group, index) in self.servers() {
            for link in self.links.iter().map(|link| link.id) {
                let key = PathKey {
                    server: ServerId { group, index },
                    link,
                };
                self.paths.insert(key, Path::new(now));
            }
        }
        let keys: Vec<_> = self.paths.keys().copied().collect();
        keys.into_iter()
            .for_each(|key| self.plan_probe(key, now.mono));
        (0..self.groups.len())
            .filter_map(|i| u16::try_from(i).ok())
            .for_each(|index| {
                self.regroup(now, GroupId(index), "start");
            });
    }

    fn servers(&self) -> Vec<(GroupId, u16)> {
        let ids = |n: usize| 0..u16::try_from(n).unwrap_or(u16::MAX);
        ids(self.groups.len())
            .flat_map(|g| {
                ids(self.groups[usize::from(g)].conf.servers.len()).map(move |i| (GroupId(g), i))
            })
            .collect()
    }

    /// The group, when there is such a one.
    fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(usize::from(id.0))
    }

    /// The paths of a group.
    fn paths_of(&self, group: GroupId) -> impl Iterator<Item = (PathKey, &Path)> {
        let all = self.paths.iter().map(|(key, path)| (*key, path));
        all.filter(move |(key, _)| key.server.group == group)
    }

    /// The path and its group's configuration together.
    fn path(&mut self, key: PathKey) -> Option<(&mut Path, &GroupConf)> {
        let conf = &self.groups.get(usize::from(key.server.group.0))?.conf;
        Some((self.paths.get_mut(&key)?, conf))
    }

    fn note(&mut self, now: Now, key: PathKey, what: String) {
        if let Some(path) = self.paths.get_mut(&key) {
            path.note(now, what);
        }
    }
}

impl Group {
    fn new(conf: GroupConf) -> Self {
        Self {
            held_until: vec![None; conf.servers.len()],
            conf: conf::bounded(conf),
            switched_to: None,
            state: GroupState::Survivability,
        }
    }
}

impl Task {
    fn reason(self) -> Reason {
        match self {
            Self::Request(_) => Reason::Request,
            Self::Burst(_) => Reason::Burst,
            Self::Probe(_) => Reason::Probe,
            Self::Held(_) => Reason::Held,
            Self::Failback(_) => Reason::Failback,
        }
    }
}

/// Seconds with one decimal, for evidence.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
