//! `[[softswitch]]`.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;
use keepline_engine::net::Transport;

use super::super::{
    fault::Fault,
    model::{Backoff, Failback, PathUse, Prefer, ProbePolicy, Server, Softswitch},
    section::Section,
    text::ServerUri,
    value::At,
};
use super::duplicates;

/// Each server costs probes, a health record per link, and a group in the data path.
const MAX_GROUPS: usize = 64;
const MAX_SERVERS: usize = 32;

/// What is compared across softswitches, with its place.
#[derive(Default)]
struct Seen {
    names: Vec<At<String>>,
    domains: Vec<At<String>>,
    spoken: Vec<At<Transport>>,
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn softswitches(
    root: &mut Section<'_>,
    domain: Option<&str>,
    spoken: &mut Vec<At<Transport>>,
) -> Option<Vec<Softswitch>> {
    let sections = root.tables("softswitch");
    if sections.is_empty() {
        root.fault(Fault::error(
            root.span(),
            "no [[softswitch]]",
            "add one with a name and `servers = [{ uri = \"sip:192.0.2.10:5060\" }]`",
        ));
    }
    if let Some(beyond) = sections.get(MAX_GROUPS) {
        let message = format!("more than {MAX_GROUPS} softswitches");
        root.fault(Fault::error(
            beyond.span(),
            message,
            "put servers of one domain into one",
        ));
    }
    let mut seen = Seen::default();
    let read: Vec<_> = sections
        .into_iter()
        .map(|section| softswitch(section, domain, &mut seen))
        .collect();
    duplicates(root, String::clone, "softswitch", &seen.names);
    // Requests are told apart by it.
    duplicates(root, String::clone, "domain", &seen.domains);
    spoken.extend(seen.spoken);
    read.into_iter().collect()
}

fn softswitch(
    mut section: Section<'_>,
    domain: Option<&str>,
    seen: &mut Seen,
) -> Option<Softswitch> {
    let name: Option<At<String>> = section.required("name", "\"core\"");
    let domain: Option<At<String>> = match domain {
        Some(domain) => Some(section.get_at("domain", domain.to_owned())),
        None => section.required("domain", "\"example.test\""),
    };
    let servers = servers(&mut section, &mut seen.spoken);
    section.not_yet(
        "upstream_key",
        "remove it: upstream marks are neither read nor sent",
    );
    let health = health(&mut section);
    let group = Softswitch {
        name: name.as_ref().map(|at| at.value.clone()).unwrap_or_default(),
        domain: domain
            .as_ref()
            .map(|at| at.value.clone())
            .unwrap_or_default(),
        servers: servers.clone().unwrap_or_default(),
        inbound: section.get("inbound", Vec::<IpNet>::new()),
        ..health
    };
    seen.names.extend(name.clone());
    seen.domains.extend(domain.clone());
    section.finish();
    (name.is_some() && domain.is_some() && servers.is_some()).then_some(group)
}

/// `spoken` gathers what its servers are spoken to over, each with its place.
fn servers(section: &mut Section<'_>, spoken: &mut Vec<At<Transport>>) -> Option<Vec<Server>> {
    section.not_yet(
        "srv",
        "names are not looked up in this version: type the servers' addresses",
    );
    let tables = section.tables("servers");
    if tables.is_empty() || tables.len() > MAX_SERVERS {
        section.fault(Fault::error(
            section.span(),
            format!("a softswitch needs 1 to {MAX_SERVERS} servers"),
            "add `servers = [{ uri = \"sip:192.0.2.10:5060\" }]`",
        ));
    }
    let read: Vec<Option<At<Server>>> = tables.into_iter().map(server).collect();
    let addresses: Vec<At<SocketAddr>> = read
        .iter()
        .flatten()
        .map(|at| At {
            span: at.span.clone(),
            value: at.value.address,
        })
        .collect();
    duplicates(section, ToString::to_string, "server", &addresses);
    spoken.extend(read.iter().flatten().map(|at| At {
        span: at.span.clone(),
        value: at.value.transport,
    }));
    read.into_iter()
        .map(|server| server.map(|at| at.value))
        .collect()
}

/// Read, and not obeyed yet: requests in a dialog go to its own server.
/// Neither many nor none.
fn one_machine(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || broadcast)
}

fn server(mut section: Section<'_>) -> Option<At<Server>> {
    let uri: Option<At<ServerUri>> = section.required("uri", "\"sip:192.0.2.10:5060\"");
    let priority = section.get("priority", 1);
    let weight = section.ranged("weight", 10, 1..=65_535);
    if let Some(uri) = uri
        .as_ref()
        .filter(|uri| !one_machine(uri.value.address.ip()))
    {
        let message = format!(
            "no softswitch can have the address {}",
            uri.value.address.ip()
        );
        let hint = "write the address of one machine";
        section.fault(Fault::error(uri.span.clone(), message, hint));
    }
    section.finish();
    let At { span, value } = uri?;
    Some(At {
        span,
        value: Server {
            uri: value.text,
            transport: value.transport,
            address: value.address,
            priority,
            weight,
        },
    })
}

/// Everything about health, in a group that has no name and no servers yet.
fn health(section: &mut Section<'_>) -> Softswitch {
    let interval = section.ranged("interval", s(10), s(1)..=s(3600));
    let timeout = section.get_at("timeout", s(1));
    within(
        section,
        &timeout,
        "timeout",
        ms(100)..=interval,
        "`interval`",
    );
    let passive_timeout = section.get_at("passive_timeout", ms(1500));
    within(
        section,
        &passive_timeout,
        "passive_timeout",
        ms(500)..=s(32),
        "64 times T1",
    );
    let slow_timeout = section.get_at("slow_timeout", s(4));
    not_below(
        section,
        &slow_timeout,
        "slow_timeout",
        passive_timeout.value,
        "`passive_timeout`",
    );
    Softswitch {
        name: String::new(),
        domain: String::new(),
        servers: Vec::new(),
        inbound: Vec::new(),
        path: section.get("path", PathUse::Auto),
        probe: section.get("probe", ProbePolicy::Idle),
        interval,
        timeout: timeout.value,
        max_unanswered: section.ranged("max_unanswered", 3, 1..=100),
        passive_timeout: passive_timeout.value,
        passive_timeout_other: section.ranged("passive_timeout_other", s(5), ms(500)..=s(32)),
        slow_timeout: slow_timeout.value,
        hunt_budget: section.ranged("hunt_budget", s(4), ms(500)..=s(32)),
        after_100_timeout: section.ranged("after_100_timeout", s(12), s(1)..=s(180)),
        prefer: section.get("prefer", Prefer::Link),
        shared_dialogs: section.get("shared_dialogs", false),
        recover_answers: section.ranged("recover_answers", 3, 1..=100),
        down_codes: down_codes(section),
        failback: section.get("failback", Failback::Registration),
        failback_hold: section.ranged("failback_hold", s(60), s(0)..=s(3600)),
        backoff: backoff(section.table("backoff")),
    }
}

fn down_codes(section: &mut Section<'_>) -> Vec<u16> {
    let default = [408, 502, 503, 504].map(|value| At {
        span: section.span(),
        value,
    });
    let codes: Vec<At<u16>> = section.get("down_codes", default.to_vec());
    for code in &codes {
        let hint = match code.value {
            401 | 407 => "a challenge proves that the server is alive: remove it",
            300..=699 => continue,
            _ => "write final responses from 300 to 699",
        };
        let message = format!("{} cannot mean that a server is down", code.value);
        section.fault(Fault::error(code.span.clone(), message, hint));
    }
    codes.into_iter().map(|at| at.value).collect()
}

fn backoff(mut section: Section<'_>) -> Backoff {
    let initial = section.ranged("initial", s(2), ms(500)..=s(3600));
    let max = section.get_at("max", s(300));
    let max_alone = section.get_at("max_alone", s(30));
    not_below(&section, &max, "max", initial, "`initial`");
    if max.value >= initial {
        within(
            &section,
            &max_alone,
            "max_alone",
            initial..=max.value,
            "`max`",
        );
    }
    section.finish();
    Backoff {
        initial,
        max: max.value,
        max_alone: max_alone.value,
    }
}

fn not_below(section: &Section<'_>, at: &At<Duration>, key: &str, floor: Duration, what: &str) {
    if at.value < floor {
        section.fault(Fault::error(
            at.span.clone(),
            format!("`{key}` is shorter than {what}"),
            format!("write at least {}", humantime::format_duration(floor)),
        ));
    }
}

fn within(
    section: &Section<'_>,
    at: &At<Duration>,
    key: &str,
    range: std::ops::RangeInclusive<Duration>,
    what: &str,
) {
    if at.value > *range.end() {
        section.fault(Fault::error(
            at.span.clone(),
            format!("`{key}` is longer than {what}"),
            format!("write at most {}", humantime::format_duration(*range.end())),
        ));
    } else if at.value < *range.start() {
        section.fault(Fault::error(
            at.span.clone(),
            format!("`{key}` is too short"),
            format!(
                "write at least {}",
                humantime::format_duration(*range.start())
            ),
        ));
    }
}
