//! Softswitches that phones address and that no group of the configuration names: each is a
//! group of one (signalling.md section 12). It is proven by a 2xx to a REGISTER; survivability
//! is for phones of those only. One that nobody uses any more is forgotten, and its place is
//! another's.

use std::{net::SocketAddr, time::Duration};

use super::{Gateway, deadlines::Deadline};
use crate::{
    conf::{Group, PathUse},
    event::{Event, Evidence},
    health::{GroupConf, ServerConf},
    net::{GroupId, ListenerId, Side, Transport},
    sip::Uri,
    steer::Gate,
    time::{Mono, Now},
};

/// How many there may be at a time, those on trial included.
pub(super) const MAX_LEARNED: u16 = 64;
/// One that is spoken to no more is looked at after this: no transaction lives as long.
const UNUSED: Duration = Duration::from_secs(64);
/// How long a call looks for a server before it is connected locally: the shipped default.
const HUNT_BUDGET: Duration = Duration::from_secs(4);

/// The learned groups: their ids lie behind those of the configuration.
#[derive(Debug)]
pub(super) struct Learned {
    first: u16,
    places: Vec<Option<Use>>,
    /// Speaks for a softswitch that there is no room for.
    pub(super) spare: Option<ListenerId>,
}

#[derive(Debug, Clone, Copy)]
struct Use {
    last: Mono,
    proven: bool,
}

impl Learned {
    /// None yet; the configuration has so many groups.
    pub(super) fn behind(groups: usize) -> Self {
        Self {
            first: u16::try_from(groups).unwrap_or(u16::MAX),
            places: Vec::new(),
            spare: None,
        }
    }

    fn get(&mut self, group: GroupId) -> Option<&mut Use> {
        let place = group.0.checked_sub(self.first)?;
        self.places.get_mut(usize::from(place))?.as_mut()
    }

    /// Takes a free place.
    fn take(&mut self, now: Mono) -> Option<u16> {
        let used = Some(Use {
            last: now,
            proven: false,
        });
        if let Some(free) = self.places.iter().position(Option::is_none) {
            self.places[free] = used;
            return u16::try_from(free).ok();
        }
        let place = u16::try_from(self.places.len()).ok();
        let place = place.filter(|place| *place < MAX_LEARNED)?;
        self.places.push(used);
        Some(place)
    }
}

impl Gateway {
    /// A softswitch that phones begin to speak to; `None` when there are too many.
    pub(super) fn learn_address(
        &mut self,
        now: Now,
        at: SocketAddr,
        over: Transport,
    ) -> Option<GroupId> {
        let place = self.learned.take(now.mono)?;
        let id = GroupId(self.learned.first + place);
        let group = self.group_of_one(at, over);
        let health = group.health.clone();
        let index = usize::from(id.0);
        if index < self.conf.groups.len() {
            self.conf.groups[index] = group;
        } else {
            self.conf.groups.push(group);
            self.gates.push(Gate::Serving);
            self.alone.push(false);
        }
        self.topology = super::topology::Topology::new(&self.conf);
        self.health.put_group(now, id, health);
        self.keep_alive(now, id);
        self.deadlines
            .set(Deadline::Learned(place), now.mono + UNUSED);
        Some(id)
    }

    /// The same from its name in a stored record.
    pub(super) fn learn_named(&mut self, now: Now, name: &str) {
        let Some(uri) = Uri::parse(name.as_bytes()) else {
            return;
        };
        if let Some(at) = uri.host_ip().zip(uri.port) {
            let _ = self.learn_address(now, at.into(), uri.transport());
        }
    }

    fn group_of_one(&self, at: SocketAddr, over: Transport) -> Group {
        let mut wan = self.conf.links_facing(Side::Wan);
        // Over what the phone speaks, where we can.
        let transport = match wan.any(|(link, _)| self.conf.listener_on(link, over).is_some()) {
            true => over,
            false => Transport::Udp,
        };
        let server = ServerConf {
            uri: format!("sip:{at}{}", transport.uri_param()),
            address: at,
            transport,
            priority: 1,
            weight: 1,
        };
        Group {
            domain: super::topology::host(at.ip()),
            hunt_budget: HUNT_BUDGET,
            inbound: Vec::new(),
            path: PathUse::Auto,
            shared_dialogs: false,
            health: GroupConf {
                name: format!("sip:{at}{}", over.uri_param()),
                servers: vec![server],
                ..GroupConf::default()
            },
        }
    }

    /// A phone speaks to the softswitch that this listener stands for.
    pub(super) fn learned_used(&mut self, now: Now, listener: ListenerId) {
        if let Some(group) = self.group_addressed(listener)
            && let Some(used) = self.learned.get(group)
        {
            used.last = now.mono;
        }
    }

    /// Whether a group is one of the configuration, or accepted a REGISTER once.
    pub(super) fn is_proven(&self, group: GroupId) -> bool {
        let Some(place) = group.0.checked_sub(self.learned.first) else {
            return true;
        };
        let place = self.learned.places.get(usize::from(place));
        matches!(place, Some(Some(Use { proven: true, .. })))
    }

    /// A stored binding says so.
    pub(super) fn learned_back(&mut self, group: GroupId) {
        if let Some(used) = self.learned.get(group) {
            used.proven = true;
        }
    }

    /// A softswitch accepted a REGISTER: it serves phones from now on, and they survive it.
    pub(super) fn proven(&mut self, now: Now, group: GroupId, aor: &str) {
        let Some(used) = self.learned.get(group).filter(|used| !used.proven) else {
            return;
        };
        used.proven = true;
        let what = format!("it accepted a REGISTER of {aor}");
        self.tell_learned(now, group, ("unknown", "learned"), what);
    }

    /// Looks whether anybody still uses a learned softswitch.
    pub(super) fn learned_due(&mut self, now: Now, place: u16) {
        let group = GroupId(self.learned.first + place);
        let Some(used) = self.learned.get(group).copied() else {
            return;
        };
        let again = used.last + UNUSED;
        if again > now.mono || self.is_used(group) {
            let at = again.max(now.mono + UNUSED);
            return self.deadlines.set(Deadline::Learned(place), at);
        }
        if used.proven {
            let what = "no registration, call or request of it is left".to_owned();
            self.tell_learned(now, group, ("learned", "forgotten"), what);
        }
        let index = usize::from(group.0);
        let server = self.conf.groups[index].health.servers.first();
        if let Some(address) = server.map(|server| server.address.ip()) {
            self.places_free(address);
        }
        self.conf.groups[index] = Group {
            domain: String::new(),
            hunt_budget: HUNT_BUDGET,
            inbound: Vec::new(),
            path: PathUse::Auto,
            shared_dialogs: false,
            health: GroupConf::default(),
        };
        self.topology = super::topology::Topology::new(&self.conf);
        self.health.take_group(group);
        self.alone[index] = false;
        self.learned.places[usize::from(place)] = None;
    }

    fn is_used(&self, group: GroupId) -> bool {
        let here = |listener| self.group_addressed(listener) == Some(group);
        self.bindings
            .iter()
            .any(|(_, at)| at.group == group || here(at.listener))
            || self.dialogs.iter().any(|dialog| {
                dialog.path.is_some_and(|path| path.server.group == group)
                    || here(dialog.caller.listener)
                    || here(dialog.callee.listener)
            })
            || self.contexts.values().any(|ctx| {
                let mut paths = ctx.branches.iter().filter_map(|branch| branch.path);
                here(ctx.listener)
                    || paths.any(|path| path.server.group == group)
                    || ctx.branches.iter().any(|branch| here(branch.listener))
            })
            || self.connected.iter().any(|(listener, _)| here(*listener))
    }

    fn tell_learned(&mut self, now: Now, group: GroupId, change: (&str, &str), what: String) {
        self.out.push_back(super::Output::Event(Event {
            at: now,
            kind: "group",
            object: self.conf.groups[usize::from(group.0)].health.name.clone(),
            from: change.0.to_owned(),
            to: change.1.to_owned(),
            rule: "addressed_by_phones",
            evidence: vec![Evidence { at: now, what }],
        }));
    }
}
