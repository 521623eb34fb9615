//! Talks: SIP between a phone and its softswitch, two flows of `FLOWS` each. Whether one is *up*
//! stands in the phone's word, so that turning is one store; plans stay.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_common::{
    limits::{FLOWS_DEFAULT, TALKS},
    record::{FlowKey, FlowWord, PARTY_PHONE, PARTY_SERVER, Plan, PlanWord},
};
use keepline_engine::{
    net::LinkId,
    steer::{MAX_TALKS, Stamps, Talk, TalkId},
};

use super::{
    Error, LinkPlace, Pen, bytes,
    groups::Groups,
    plans::{Plans, same},
    tables::Tables,
};

const _: () = assert!(MAX_TALKS < TALKS && 2 * MAX_TALKS <= FLOWS_DEFAULT);

/// One direction in force.
#[derive(Debug, Clone, Copy)]
struct Way {
    word: FlowWord,
    plan: Plan,
}

#[derive(Debug)]
struct Installed {
    talk: Talk,
    /// The phone's, and its softswitch's.
    ways: [Way; 2],
}

/// All talks.
#[derive(Debug)]
pub(super) struct Talks {
    by_id: HashMap<TalkId, Installed>,
    /// What an earlier run pinned and no talk has claimed yet.
    pinned: HashMap<FlowKey, Way>,
}

impl Talks {
    /// Takes up what is in the map: it goes on until the first reconciling.
    pub(super) fn adopt<T: Tables>(tables: &T) -> Result<Self, Error> {
        let mut pinned = HashMap::new();
        for (key, word) in tables.flow_words().map_err(Error::of("FLOWS"))? {
            let Some(word) = FlowWord::unpack(word) else {
                continue;
            };
            let plan = tables.plan(word.plan.slot).map_err(Error::of("PLANS"))?;
            pinned.insert(key, Way { word, plan });
        }
        Ok(Self {
            by_id: HashMap::new(),
            pinned,
        })
    }

    /// Where words of an earlier run lead.
    pub(super) fn words(&self) -> impl Iterator<Item = PlanWord> {
        self.pinned.values().map(|way| way.word.plan)
    }

    /// Plans of an earlier run.
    pub(super) fn pinned(&self) -> impl Iterator<Item = &Plan> {
        self.pinned.values().map(|way| &way.plan)
    }

    /// Puts a talk in force, or makes it what it is now; `towards`: the groups that lead to the
    /// softswitch and to the phone.
    pub(super) fn set<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        talk: &Talk,
        places: [LinkPlace; 2],
        towards: [u32; 2],
        (plans, groups): (&mut Plans, &mut Groups),
    ) -> Result<(), Error> {
        let wanted = directions(talk, places, towards);
        let before = self.by_id.remove(&talk.id);
        if before.is_none() {
            pen.tables
                .reset_talk(talk.id.0)
                .map_err(Error::of("TALKS"))?;
        }
        let mut ways = Vec::with_capacity(2);
        for (index, plan) in wanted.into_iter().enumerate() {
            let old = before.as_ref().map(|before| before.ways[index]);
            let old = old.or_else(|| self.pinned.remove(&plan.key));
            ways.push(turn(pen, plans, old, plan, talk)?);
        }
        for (group, to) in towards.into_iter().zip(ends(talk)) {
            groups.join(group, to);
        }
        if let Some(before) = &before {
            leave(before, groups);
        }
        if let Ok(ways) = ways.try_into() {
            self.by_id.insert(talk.id, Installed { talk: *talk, ways });
        }
        Ok(())
    }

    /// Takes a talk away.
    pub(super) fn clear<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        id: TalkId,
        (plans, groups): (&mut Plans, &mut Groups),
    ) -> Result<(), Error> {
        let Some(gone) = self.by_id.remove(&id) else {
            return Ok(());
        };
        leave(&gone, groups);
        let mut result = Ok(());
        for way in gone.ways {
            result = result.and(take_away(pen, plans, &way));
        }
        result
    }

    /// Takes away every talk that is not desired, and what nobody claimed.
    pub(super) fn keep_only<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        desired: &[Talk],
        (plans, groups): (&mut Plans, &mut Groups),
    ) -> Result<(), Error> {
        let wanted: HashSet<TalkId> = desired.iter().map(|talk| talk.id).collect();
        let gone = self.by_id.keys().filter(|id| !wanted.contains(id));
        let gone: Vec<TalkId> = gone.copied().collect();
        let mut result = Ok(());
        for id in gone {
            result = result.and(self.clear(pen, id, (plans, groups)));
        }
        for (_, way) in std::mem::take(&mut self.pinned) {
            result = result.and(take_away(pen, plans, &way));
        }
        result
    }

    /// Talks that a link is part of.
    pub(super) fn over(&self, link: LinkId) -> Vec<Talk> {
        let all = self.by_id.values().map(|installed| installed.talk);
        all.filter(|talk| [talk.lan, talk.wan].contains(&link))
            .collect()
    }

    /// Talks that leave by `egress` to one of `destinations`.
    pub(super) fn sent_by(&self, egress: LinkId, destinations: &[IpAddr]) -> Vec<Talk> {
        let concerned = |talk: &Talk| {
            let ways = [(talk.wan, talk.server.ip()), (talk.lan, talk.phone.ip())];
            ways.iter()
                .any(|(link, to)| *link == egress && destinations.contains(to))
        };
        let all = self.by_id.values().map(|installed| installed.talk);
        all.filter(|talk| !destinations.is_empty() && concerned(talk))
            .collect()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_id.len()
    }
}

/// What was stamped of a talk, as how long ago it was.
pub(super) fn stamps<T: Tables>(tables: &T, id: TalkId) -> Result<Stamps, Error> {
    let state = tables.talk(id.0).map_err(Error::of("TALKS"))?;
    let now = tables.kernel_now();
    let ago = |at: u64| (at != 0).then(|| Duration::from_nanos(now.saturating_sub(at)));
    Ok(Stamps {
        request: ago(state.request),
        response: ago(state.response),
        unanswered: ago(state.unanswered),
    })
}

/// Has a direction in force with `plan`: in the slot that it has, if that says the same.
fn turn<T: Tables>(
    pen: &mut Pen<'_, T>,
    plans: &mut Plans,
    old: Option<Way>,
    plan: Plan,
    talk: &Talk,
) -> Result<Way, Error> {
    let (place, plan) = match old.filter(|old| same(&plan, &old.plan)) {
        Some(old) => (old.word.plan, old.plan),
        None => plans.write(pen, plan)?,
    };
    let word = FlowWord {
        plan: place,
        up: talk.up && plan.party == PARTY_PHONE,
        stranger: !talk.bound,
    };
    if old.is_none_or(|old| old.word != word || old.plan.key != plan.key) {
        pen.tables
            .set_flow(plan.key, word.pack())
            .map_err(Error::of("FLOWS"))?;
        pen.writes.flows += 1;
    }
    if let Some(old) = old.filter(|old| old.plan.key != plan.key) {
        take_away(pen, plans, &old)?;
    } else if let Some(old) = old.filter(|old| old.word.plan != place) {
        plans.retire(old.word.plan.slot, pen.now);
    }
    Ok(Way { word, plan })
}

fn take_away<T: Tables>(pen: &mut Pen<'_, T>, plans: &mut Plans, way: &Way) -> Result<(), Error> {
    pen.writes.flows += 1;
    plans.retire(way.word.plan.slot, pen.now);
    pen.tables
        .clear_flow(way.plan.key)
        .map_err(Error::of("FLOWS"))
}

fn leave(gone: &Installed, groups: &mut Groups) {
    for (way, to) in gone.ways.iter().zip(ends(&gone.talk)) {
        groups.leave(way.plan.group, to);
    }
}

/// Where each direction goes.
fn ends(talk: &Talk) -> [IpAddr; 2] {
    [talk.server.ip(), talk.phone.ip()]
}

/// The plans of both directions, the phone's first.
fn directions(talk: &Talk, places: [LinkPlace; 2], [to_server, to_phone]: [u32; 2]) -> [Plan; 2] {
    let way = |from: SocketAddr, to: SocketAddr, place: LinkPlace, group, party| {
        let key = FlowKey {
            source: bytes::address(from.ip()),
            destination: bytes::address(to.ip()),
            source_port: from.port().to_be_bytes(),
            destination_port: to.port().to_be_bytes(),
            ifindex: place.ifindex,
        };
        Plan {
            key,
            generation: 0,
            group,
            to: key.destination,
            to_port: key.destination_port,
            from_port: key.source_port,
            vlan: place.vlan.map(u16::to_be_bytes),
            classes: 0,
            talk: talk.id.0,
            party,
        }
    };
    let [lan, wan] = places;
    [
        way(talk.phone, talk.server, lan, to_server, PARTY_PHONE),
        way(talk.server, talk.phone, wan, to_phone, PARTY_SERVER),
    ]
}
