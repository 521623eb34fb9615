//! `[[segment]]` and `[[tunnel]]`.

use std::{net::Ipv4Addr, time::Duration};

use keepline_engine::tunnel::{Detect, TunnelId};

use super::super::{
    fault::Fault,
    model::{Segment, Tunnel},
    section::Section,
    value::At,
};
use super::{duplicates, links::kernel_accepts};

/// Each costs a socket and a record in the data path.
const MAX_TUNNELS: usize = 64;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Tunnels with the place of their names.
pub(super) fn tunnels(root: &mut Section<'_>) -> Option<Vec<At<Tunnel>>> {
    let sections = root.tables("tunnel");
    if let Some(beyond) = sections.get(MAX_TUNNELS) {
        let message = format!("more than {MAX_TUNNELS} tunnels");
        root.fault(Fault::error(beyond.span(), message, "remove some"));
    }
    let read: Vec<Option<At<Tunnel>>> = sections.into_iter().map(tunnel).collect();
    for (what, text) in [
        (
            "tunnel",
            (|tunnel| tunnel.name.clone()) as fn(&Tunnel) -> String,
        ),
        ("a tunnel's interface", |tunnel| tunnel.interface.clone()),
    ] {
        let names: Vec<At<String>> = read
            .iter()
            .flatten()
            .map(|at| At {
                span: at.span.clone(),
                value: text(&at.value),
            })
            .collect();
        duplicates(root, String::clone, what, &names);
    }
    let all: Option<Vec<_>> = read.into_iter().collect();
    all.filter(|all| all.len() <= MAX_TUNNELS)
}

fn tunnel(mut section: Section<'_>) -> Option<At<Tunnel>> {
    let name: Option<At<String>> = section.required("name", "\"hq-a\"");
    let interface: Option<At<String>> = section.required("interface", "\"vxlan10\"");
    let health_check_ip: Option<At<Ipv4Addr>> =
        section.required("health_check_ip", "\"203.0.113.1\"");
    let heartbeat_interval = section.ranged("heartbeat_interval", s(10), s(1)..=s(3600));
    let idle_timeout = section.ranged("idle_timeout", s(30), s(1)..=s(86_400));
    let probe_timeout = section.get_at("probe_timeout", s(30));
    let detect = section.get("detect", Detect::Classic);
    let expected_server = section.optional("expected_server");
    if probe_timeout.value < heartbeat_interval || probe_timeout.value > s(86_400) {
        section.fault(Fault::error(
            probe_timeout.span,
            "`probe_timeout` is shorter than `heartbeat_interval`, or longer than a day",
            "a tunnel must have time to answer: write a multiple of `heartbeat_interval`",
        ));
    }
    let odd = |at: &&At<Ipv4Addr>| {
        let ip = at.value;
        ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() || ip.is_loopback()
    };
    if let Some(at) = health_check_ip.as_ref().filter(odd) {
        section.fault(Fault::error(
            at.span.clone(),
            format!("no client can have the address {}", at.value),
            "write one outside of the network that is served there: it draws a NAK and no lease",
        ));
    }
    check_name(&section, interface.as_ref());
    section.finish();
    let name = name?;
    let value = Tunnel {
        name: name.value,
        interface: interface?.value,
        health_check_ip: health_check_ip?.value,
        heartbeat_interval,
        idle_timeout,
        probe_timeout: probe_timeout.value,
        detect,
        expected_server,
    };
    Some(At {
        span: name.span,
        value,
    })
}

fn check_name(section: &Section<'_>, name: Option<&At<String>>) {
    if let Some(name) = name.filter(|name| !kernel_accepts(&name.value)) {
        section.fault(Fault::error(
            name.span.clone(),
            format!("`{}` cannot be an interface's name", name.value),
            "1 to 15 characters without `/`, `:` and blanks: see `ip link`",
        ));
    }
}

pub(super) fn segments(
    root: &mut Section<'_>,
    tunnels: Option<&[At<Tunnel>]>,
) -> Option<Vec<Segment>> {
    let mut taken = Vec::new();
    let read: Vec<Option<Segment>> = root
        .tables("segment")
        .into_iter()
        .map(|section| segment(section, tunnels, &mut taken))
        .collect();
    duplicates(root, String::clone, "a segment's tunnel", &taken);
    for tunnel in tunnels.unwrap_or_default() {
        if !taken.iter().any(|name| name.value == tunnel.value.name) {
            root.fault(Fault::error(
                tunnel.span.clone(),
                format!("no [[segment]] uses the tunnel `{}`", tunnel.value.name),
                "name it in the `tunnels` of a [[segment]], or remove it",
            ));
        }
    }
    read.into_iter().collect()
}

fn segment(
    mut section: Section<'_>,
    tunnels: Option<&[At<Tunnel>]>,
    taken: &mut Vec<At<String>>,
) -> Option<Segment> {
    let interface: Option<At<String>> = section.optional("interface");
    let names: Option<Vec<At<String>>> = section.required("tunnels", "[\"hq-a\", \"hq-b\"]");
    check_name(&section, interface.as_ref());
    let names = names.unwrap_or_default();
    let known = tunnels.unwrap_or_default();
    let mut ids = Vec::new();
    for name in &names {
        let at = known.iter().position(|of| of.value.name == name.value);
        match at.and_then(|index| u16::try_from(index).ok()) {
            Some(index) => ids.push(TunnelId(index)),
            // Where tunnels have faults of their own, theirs are told.
            None if tunnels.is_none() => {}
            None => section.fault(Fault::error(
                name.span.clone(),
                format!("there is no tunnel `{}`", name.value),
                "name one of the [[tunnel]] tables",
            )),
        }
    }
    if names.is_empty() {
        section.fault(Fault::error(
            section.span(),
            "a segment without tunnels",
            "write `tunnels = [\"hq-a\", \"hq-b\"]`, the preferred one first",
        ));
    }
    section.finish();
    let complete = ids.len() == names.len();
    taken.extend(names);
    complete.then_some(Segment {
        interface: interface.map(|at| at.value),
        tunnels: ids,
    })
}
