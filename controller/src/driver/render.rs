//! From what the engine and the maps know to the JSON of the API.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, UNIX_EPOCH},
};

use keepline_common::reason::{Reason, Verdict};
use keepline_engine::{
    event::{Event, Evidence},
    gateway::{CallView, Counters, Gateway, RegistrationView},
    health::{GroupState, GroupView, PathState, PathView},
    media::SessionId,
    net::{LinkId, Side},
    time::{Now, Wall},
};

use crate::{
    api::model,
    fastpath::{Attached, InterfaceCounters},
    steer::{FlowRow, HopRow},
    store::Health,
};

/// RFC 3339 with milliseconds, in UTC.
#[must_use]
pub(super) fn timestamp(at: Wall) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + at.0).to_string()
}

/// An event as the API shows it.
#[must_use]
pub(super) fn event(event: &Event) -> model::Event {
    model::Event {
        at: timestamp(event.at.wall),
        kind: event.kind.to_owned(),
        object: event.object.clone(),
        from: event.from.clone(),
        to: event.to.clone(),
        rule: event.rule.to_owned(),
        evidence: event.evidence.iter().map(evidence).collect(),
    }
}

/// One observation.
#[must_use]
pub(super) fn evidence(seen: &Evidence) -> model::Evidence {
    model::Evidence {
        at: timestamp(seen.at.wall),
        what: seen.what.clone(),
    }
}

/// The store began to lose changes, or takes them again.
#[must_use]
pub(super) fn store_event(now: Now, path: String, health: &Health) -> Event {
    let name = |failing| if failing { "failing" } else { "well" }.to_owned();
    let failing = health.failing.is_some();
    let what = match &health.failing {
        Some(why) => format!("{why}; a restart would forget what changes now"),
        None => format!("{} changes were lost, all was written anew", health.lost),
    };
    Event {
        at: now,
        kind: "store",
        object: path,
        from: name(!failing),
        to: name(failing),
        rule: "store_write",
        evidence: vec![Evidence { at: now, what }],
    }
}

/// Maps of another version were made anew, and the flows of known calls steered into them.
#[must_use]
pub(super) fn rebuilt_event(now: Now, gap: Duration, flows: usize) -> Event {
    let what = format!(
        "media waited {} ms, {flows} flows are back",
        gap.as_millis()
    );
    Event {
        at: now,
        kind: "fastpath",
        object: "maps".to_owned(),
        from: "rebuilt".to_owned(),
        to: "steered".to_owned(),
        rule: "maps_of_another_version",
        evidence: vec![Evidence { at: now, what }],
    }
}

/// An interface began or ceased to work less well than it could.
#[must_use]
pub(super) fn degraded_event(now: Now, name: &str, before: &[String], why: &[String]) -> Event {
    let state = |why: &[String]| if why.is_empty() { "well" } else { "degraded" }.to_owned();
    let what = |what: &String| Evidence {
        at: now,
        what: what.clone(),
    };
    Event {
        at: now,
        kind: "fastpath",
        object: name.to_owned(),
        from: state(before),
        to: state(why),
        rule: "fastpath_degraded",
        evidence: why.iter().map(what).collect(),
    }
}

/// All groups with their servers. `local` says whether survivability serves anybody.
#[must_use]
pub(super) fn groups(views: &[GroupView], local: bool) -> Vec<model::Group> {
    views.iter().map(|view| group(view, local)).collect()
}

fn group(view: &GroupView, local: bool) -> model::Group {
    model::Group {
        name: view.name.clone(),
        state: match view.state {
            GroupState::Serving { .. } => model::GroupState::Serving,
            GroupState::Survivability if local => model::GroupState::Survivability,
            GroupState::Survivability => model::GroupState::Down,
        },
        active: view.active_uri.clone(),
        servers: view.paths.iter().map(server).collect(),
    }
}

fn server(path: &PathView) -> model::Server {
    model::Server {
        uri: path.uri.clone(),
        address: path.address.to_string(),
        link: path.link.clone(),
        priority: path.priority,
        state: match path.state {
            PathState::Unknown => model::ServerState::Unknown,
            PathState::Up => model::ServerState::Up,
            PathState::Suspect => model::ServerState::Suspect,
            PathState::Held => model::ServerState::Held,
            PathState::Down => model::ServerState::Down,
        },
        since: timestamp(path.since.wall),
        reason: path.reason.to_owned(),
        next_probe_s: path.next_probe.map_or(0, |left| left.as_secs()),
    }
}

/// A binding.
#[must_use]
pub(super) fn registration(gateway: &Gateway, view: RegistrationView) -> model::Registration {
    let group = &gateway.conf().groups[usize::from(view.server.group.0)];
    model::Registration {
        aor: view.aor,
        contact: view.contact,
        source: view.source.to_string(),
        expires_s: view.expires.as_secs(),
        server: group.health.servers[usize::from(view.server.index)]
            .uri
            .clone(),
        state: match view.upstream {
            true => model::RegistrationState::Upstream,
            false => model::RegistrationState::Local,
        },
    }
}

/// A call.
#[must_use]
pub(super) fn call(gateway: &Gateway, view: CallView) -> model::Call {
    let via = view.path.map_or_else(
        || "local".to_owned(),
        |path| {
            let group = &gateway.conf().groups[usize::from(path.server.group.0)];
            group.health.servers[usize::from(path.server.index)]
                .uri
                .clone()
        },
    );
    model::Call {
        id: view.id.to_string(),
        legs: legs(gateway, &view),
        anchored: !(view.media.as_ref()).is_some_and(|media| media.passed),
        call_id: view.call_id,
        state: view.state.to_owned(),
        from: view.from,
        to: view.to,
        via,
        started: timestamp(view.since.wall),
        quality: model::Quality::default(),
    }
}

/// Media addresses of the first stream, LAN first; signalling addresses before there is one.
fn legs(gateway: &Gateway, view: &CallView) -> Vec<model::Leg> {
    let stream = view.media.as_ref().and_then(|media| media.streams.first());
    let Some(stream) = stream else {
        let side = |leg: &keepline_engine::gateway::LegView| model::Leg {
            interface: String::new(),
            local: leg.local.to_string(),
            remote: leg.remote.to_string(),
        };
        return view.legs.iter().map(side).collect();
    };
    let mut legs: Vec<model::Leg> = stream
        .legs
        .iter()
        .map(|leg| model::Leg {
            interface: link_name(gateway, leg.link),
            local: leg.local.map(|at| at.to_string()).unwrap_or_default(),
            remote: leg.remote.map(|at| at.to_string()).unwrap_or_default(),
        })
        .collect();
    if view.caller == Side::Wan {
        legs.reverse();
    }
    legs
}

fn link_name(gateway: &Gateway, link: LinkId) -> String {
    gateway
        .conf()
        .links
        .get(usize::from(link.0))
        .map(|link| link.name.clone())
        .unwrap_or_default()
}

/// All flows, each with the call it belongs to.
#[must_use]
pub(super) fn flows(
    gateway: &Gateway,
    rows: Vec<FlowRow>,
    name: impl Fn(u32) -> String,
) -> Vec<model::Flow> {
    let calls: HashMap<SessionId, String> = gateway
        .calls()
        .filter_map(|call| Some((call.session?, call.id.to_string())))
        .collect();
    let of_flow: HashMap<_, _> = gateway
        .media()
        .flows()
        .map(|(session, flow)| (flow.id, session))
        .collect();
    let call = |row: &FlowRow| {
        let session = row.id.and_then(|id| of_flow.get(&id));
        session
            .and_then(|session| calls.get(session))
            .cloned()
            .unwrap_or_default()
    };
    rows.into_iter()
        .map(|row| model::Flow {
            interface: name(row.ifindex),
            src: row.source.to_string(),
            dst: row.to.to_string(),
            group: row.group,
            hop: row.hop,
            packets: row.packets,
            bytes: row.bytes,
            last_seen_s: row.idle.map(|idle| Duration::as_secs(&idle)),
            call: call(&row),
        })
        .collect()
}

/// All hops.
#[must_use]
pub(super) fn hops(rows: Vec<HopRow>, name: impl Fn(u32) -> String) -> Vec<model::Hop> {
    rows.into_iter()
        .map(|row| model::Hop {
            id: row.id,
            interface: name(row.ifindex),
            next_hop: row.next_hop.to_string(),
            mac: row.mac.map(mac).unwrap_or_default(),
            state: if row.mac.is_some() {
                "resolved"
            } else {
                "unresolved"
            }
            .to_owned(),
            groups: row.groups,
        })
        .collect()
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// What the engine counted, by name.
#[must_use]
pub(super) fn signalling(counted: Counters) -> BTreeMap<String, u64> {
    let all = [
        ("malformed", counted.malformed),
        ("not_a_peer", counted.not_a_peer),
        ("stray", counted.stray),
        ("table_full", counted.table_full),
        ("hunts", counted.hunts),
        ("keepalives", counted.keepalives),
        ("large_over_udp", counted.large_over_udp),
    ];
    all.map(|(name, count)| (name.to_owned(), count)).into()
}

/// The programs and their counters, summed over interfaces.
#[must_use]
pub(super) fn fastpath(
    attached: &[Attached],
    severed: &[String],
    counters: &[InterfaceCounters],
    flows: u64,
) -> model::Fastpath {
    let mut verdicts = model::Verdicts::default();
    let mut reasons = BTreeMap::new();
    for (index, reason) in Reason::ALL.iter().enumerate() {
        let count: u64 = counters.iter().filter_map(|of| of.packets.get(index)).sum();
        *match reason.verdict() {
            Verdict::Tx => &mut verdicts.tx,
            Verdict::Redirect => &mut verdicts.redirect,
            Verdict::Pass => &mut verdicts.pass,
            Verdict::Drop => &mut verdicts.drop,
        } += count;
        reasons.insert(reason.name().to_owned(), count);
    }
    let interfaces = attached
        .iter()
        .map(|on| model::FastpathInterface {
            name: on.name.clone(),
            mode: on.mode.name().to_owned(),
            attached: !severed.contains(&on.name),
            degraded: on.degraded.clone(),
        })
        .collect();
    model::Fastpath {
        interfaces,
        flows,
        verdicts,
        reasons,
    }
}
