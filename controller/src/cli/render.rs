//! The daemon's answers, for people.

use std::fmt::Write;

use comfy_table::Cell;
use serde::Serialize;

use super::output::{state, table};
use crate::api::model::{
    Calls, Event, Events, Explanation, Flows, GroupState, Hops, Quality, Registrations,
    ServerState, Softswitches, Status,
};

/// The word an enum is serialised as.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".to_owned(),
    }
}

fn cells<const N: usize>(texts: [&dyn std::fmt::Display; N]) -> Vec<Cell> {
    texts
        .iter()
        .map(|text| Cell::new(text.to_string()))
        .collect()
}

pub(super) fn status(status: &Status) -> String {
    let gateway = &status.gateway;
    let uptime = humantime::format_duration(std::time::Duration::from_secs(gateway.uptime_s));
    let draining = if gateway.draining { ", draining" } else { "" };
    let mut out = format!(
        "{} ({}, {}), up {uptime}{draining}\n{} registrations, {} calls, {} flows\n\n",
        gateway.name,
        gateway.role,
        gateway.mode,
        status.registrations.active,
        status.calls.active,
        status.fastpath.flows,
    );
    out += &softswitches(&Softswitches {
        softswitches: status.groups.clone(),
    });
    out.push('\n');
    out += &super::tunnels::section(status);
    let rows = status.fastpath.interfaces.iter().map(|interface| {
        let mode = if interface.attached {
            interface.mode.as_str()
        } else {
            "down"
        };
        vec![Cell::new(&interface.name), state(mode)]
    });
    out += &table(&["interface", "fast path"], rows.collect());
    let verdicts = status.fastpath.verdicts;
    let _ = writeln!(
        out,
        "\npackets: {} answered, {} forwarded, {} passed, {} dropped",
        verdicts.tx, verdicts.redirect, verdicts.pass, verdicts.drop
    );
    out
}

/// What `status --check` finds wrong, one sentence each.
pub(super) fn unhealthy(status: &Status) -> Vec<String> {
    let mut wrong = Vec::new();
    for group in &status.groups {
        if group.state != GroupState::Serving {
            wrong.push(format!(
                "softswitch {} is {}",
                group.name,
                word(&group.state)
            ));
        }
        for server in group
            .servers
            .iter()
            .filter(|server| server.state == ServerState::Down)
        {
            wrong.push(format!(
                "{} over {} is down: {}",
                server.uri, server.link, server.reason
            ));
        }
    }
    wrong.extend(super::tunnels::unhealthy(status));
    for interface in &status.fastpath.interfaces {
        if !interface.attached {
            wrong.push(format!("no fast path on {}", interface.name));
        }
        let name = &interface.name;
        wrong.extend(
            interface
                .degraded
                .iter()
                .map(|why| format!("the fast path on {name} is degraded: {why}")),
        );
    }
    if let Some(why) = &status.store.failing {
        wrong.push(format!("the store takes no changes: {why}"));
    }
    if status.gateway.draining {
        wrong.push("the gateway is draining".to_owned());
    }
    wrong
}

pub(super) fn softswitches(answer: &Softswitches) -> String {
    let mut rows = Vec::new();
    for group in &answer.softswitches {
        for server in &group.servers {
            let active = group.active.as_deref() == Some(server.uri.as_str());
            rows.push(vec![
                Cell::new(&group.name),
                state(&word(&group.state)),
                Cell::new(if active { "*" } else { "" }),
                Cell::new(&server.uri),
                Cell::new(&server.link),
                Cell::new(server.priority),
                state(&word(&server.state)),
                Cell::new(&server.since),
                Cell::new(&server.reason),
            ]);
        }
    }
    let header = [
        "softswitch",
        "state",
        "",
        "server",
        "link",
        "prio",
        "state",
        "since",
        "because",
    ];
    table(&header, rows)
}

pub(super) fn registrations(answer: &Registrations) -> String {
    let rows = answer.registrations.iter().map(|r| {
        let mut row = cells([
            &r.aor,
            &r.contact,
            &r.source,
            &format!("{} s", r.expires_s),
            &r.server,
        ]);
        row.push(state(&word(&r.state)));
        row
    });
    table(
        &[
            "address of record",
            "contact",
            "source",
            "expires",
            "server",
            "by",
        ],
        rows.collect(),
    )
}

fn quality(quality: &Quality) -> String {
    let known = [
        quality.lost.map(|lost| format!("{lost} lost")),
        quality.jitter_ms.map(|jitter| format!("{jitter:.1} ms")),
        quality.mos.map(|mos| format!("MOS {mos:.1}")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    match known.as_slice() {
        [] => "-".to_owned(),
        known => known.join(", "),
    }
}

pub(super) fn calls(answer: &Calls) -> String {
    let rows = answer.calls.iter().map(|call| {
        let legs: Vec<String> = call
            .legs
            .iter()
            .filter(|_| call.anchored)
            .map(|leg| format!("{} {} ↔ {}", leg.interface, leg.local, leg.remote))
            .collect();
        let media = match call.anchored {
            true => legs.join("\n"),
            false => "not anchored".to_owned(),
        };
        let quality = quality(&call.quality);
        let mut row = cells([&call.id, &call.from, &call.to, &call.via]);
        row.push(state(&call.state));
        row.extend(cells([&call.started, &media, &quality]));
        row
    });
    table(
        &[
            "id", "from", "to", "via", "state", "started", "media", "quality",
        ],
        rows.collect(),
    )
}

pub(super) fn flows(answer: &Flows) -> String {
    let rows = answer.flows.iter().map(|flow| {
        let hop = flow.hop.map_or("-".to_owned(), |hop| hop.to_string());
        let seen = flow
            .last_seen_s
            .map_or("never".to_owned(), |s| format!("{s} s ago"));
        cells([
            &flow.interface,
            &flow.src,
            &flow.dst,
            &flow.group,
            &hop,
            &flow.packets,
            &flow.bytes,
            &seen,
            &flow.call,
        ])
    });
    let header = [
        "interface",
        "from",
        "to",
        "group",
        "hop",
        "packets",
        "bytes",
        "last packet",
        "call",
    ];
    table(&header, rows.collect())
}

pub(super) fn hops(answer: &Hops) -> String {
    let rows = answer.hops.iter().map(|hop| {
        let groups: Vec<String> = hop.groups.iter().map(u32::to_string).collect();
        let mut row = cells([&hop.id, &hop.interface, &hop.next_hop, &hop.mac]);
        row.push(state(&hop.state));
        row.push(Cell::new(groups.join(" ")));
        row
    });
    table(
        &["hop", "interface", "next hop", "MAC", "state", "groups"],
        rows.collect(),
    )
}

pub(super) fn events(answer: &Events) -> String {
    answer.events.iter().map(event).collect()
}

/// One change with its evidence, indented below it.
pub(super) fn event(event: &Event) -> String {
    let mut out = format!(
        "{} {} {}: {} → {} ({})\n",
        event.at, event.kind, event.object, event.from, event.to, event.rule
    );
    for evidence in &event.evidence {
        let _ = writeln!(out, "    {} {}", evidence.at, evidence.what);
    }
    out
}

pub(super) fn explanation(answer: &Explanation) -> String {
    let history: String = answer.events.iter().map(event).collect();
    let history = if history.is_empty() {
        "no change so far\n".to_owned()
    } else {
        history
    };
    format!("{} is {}\n{history}", answer.object, answer.state)
}
