//! The sections that stand alone: who the gateway is, what it tells phones, and its data path.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

use super::{
    super::{
        fault::Fault,
        model::{
            Api, Fastpath, Gateway, Guard, Ice, Keepalive, Learn, Media, Mode, OnPathDown,
            Registration, Role, Store, Stun, Survivability, SurvivabilityPolicy,
        },
        section::Section,
        text::{Ports, Rate},
        value::At,
    },
    Machine,
};
use crate::tls::{ClientCertificates, Files};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn gateway(mut section: Section<'_>, machine: &Machine) -> Gateway {
    let mut gateway = Gateway {
        name: section.get("name", machine.hostname.clone()),
        role: section.get("role", Role::Standalone),
        mode: section.get("mode", Mode::Normal),
        domain: section.optional("domain"),
        drain_grace: section.ranged("drain_grace", s(60), s(0)..=s(86_400)),
        hide_topology: true,
    };
    let hide = section.get_at("hide_topology", true);
    gateway.hide_topology = hide.value;
    if !gateway.hide_topology && gateway.mode != Mode::Transparent {
        section.fault(Fault::error(
            hide.span,
            "`hide_topology = false` belongs to transparent mode",
            "write `true`, or leave it out",
        ));
    }
    section.finish();
    gateway
}

pub(super) fn registration(mut section: Section<'_>) -> Registration {
    let mut expires = section.table("phone_expires");
    let phone_expires_udp = expires.ranged("udp", s(60), s(20)..=s(86_400));
    let phone_expires_stream = expires.ranged("stream", s(300), s(20)..=s(86_400));
    expires.finish();
    let known_for = section.ranged("known_for", s(14 * 86_400), s(3600)..=s(366 * 86_400));
    section.finish();
    Registration {
        phone_expires_udp,
        phone_expires_stream,
        known_for,
    }
}

pub(super) fn survivability(mut section: Section<'_>) -> Survivability {
    section.not_yet(
        "user",
        "remove it: who has registered upstream before is served",
    );
    let expires = section.ranged("expires", s(60), s(20)..=s(3600));
    let policy = section.get("policy", SurvivabilityPolicy::Known);
    let recovery_register_rate = section.ranged("recovery_register_rate", 50, 1..=10_000);
    let mut aliases = section.table("aliases");
    let digits: Vec<At<u8>> = aliases.get("last_digits", Vec::new());
    for digit in digits.iter().filter(|at| !(1..=15).contains(&at.value)) {
        aliases.fault(Fault::error(
            digit.span.clone(),
            format!("no number has {} last digits", digit.value),
            "write 1 to 15 (ITU-T E.164)",
        ));
    }
    aliases.finish();
    section.finish();
    let last_digits = digits.into_iter().map(|at| at.value).collect();
    Survivability {
        expires,
        policy,
        recovery_register_rate,
        last_digits,
    }
}

pub(super) fn keepalive(mut section: Section<'_>) -> Keepalive {
    let interval = section.ranged("interval", s(30), s(1)..=s(3600));
    let limit = interval.min(s(32));
    let keepalive = Keepalive {
        stun: section.get("stun", Stun::Auto),
        interval,
        timeout: section.ranged(
            "timeout",
            limit.min(s(3)),
            Duration::from_millis(100)..=limit,
        ),
        on_path_down: section.get("on_path_down", OnPathDown::Silent),
        gate_spread: section.ranged("gate_spread", s(5), s(0)..=s(60)),
    };
    section.finish();
    keepalive
}

pub(super) fn media(mut section: Section<'_>, listeners: &[At<u16>], machine: &Machine) -> Media {
    let ports = section.get_at("ports", Ports(10_000..=32_767));
    check_ports(&section, &ports, listeners, machine);
    let media = Media {
        ports: ports.value.0,
        learn: section.get("learn", Learn::Once),
        ice: section.get("ice", Ice::Strip),
        timeout: section.ranged("timeout", s(300), s(10)..=s(86_400)),
    };
    section.finish();
    media
}

/// Media ports must be nobody else's: not the kernel's to hand out, and no listener's.
fn check_ports(section: &Section<'_>, ports: &At<Ports>, listeners: &[At<u16>], machine: &Machine) {
    let (first, last) = (*ports.value.0.start(), *ports.value.0.end());
    let fault = |message: String, hint: String| {
        section.fault(Fault::error(ports.span.clone(), message, hint))
    };
    if first < 1024 {
        fault(
            format!("media ports begin at {first}, among the system's own"),
            "begin at 1024 or above (RFC 6335 section 6)".to_owned(),
        );
    }
    if last - first < 3 {
        fault(
            "a call needs four media ports".to_owned(),
            "widen the range: RTP and RTCP on each side of each call".to_owned(),
        );
    }
    let (low, high) = (*machine.ephemeral.start(), *machine.ephemeral.end());
    if first <= high && low <= last {
        fault(
            format!("media ports {first}-{last} overlap the kernel's ephemeral ports {low}-{high}"),
            format!("end below {low}, or move net.ipv4.ip_local_port_range"),
        );
    }
    for listener in listeners
        .iter()
        .filter(|at| ports.value.0.contains(&at.value))
    {
        fault(
            format!(
                "media ports {first}-{last} contain the listener's port {}",
                listener.value
            ),
            "move one of them".to_owned(),
        );
    }
}

pub(super) fn fastpath(mut section: Section<'_>) -> Fastpath {
    section.not_yet(
        "max_flows",
        "remove it: only `hide_topology = false` has flows of their own",
    );
    let pin = section.get("pin", PathBuf::from("/sys/fs/bpf/keepline"));
    section.not_enforced("guard");
    let mut guard = section.table("guard");
    let mut rate = |key, default| {
        guard
            .ranged(key, Rate(default), Rate(1)..=Rate(10_000_000))
            .0
    };
    let (bound, unknown) = (rate("bound", 50), rate("unknown", 10));
    let (unknown_total, stun) = (rate("unknown_total", 2000), rate("stun", 100));
    let allow = guard.get("allow", Vec::<IpNet>::new());
    guard.finish();
    section.finish();
    Fastpath {
        pin,
        guard: Guard {
            bound,
            unknown,
            unknown_total,
            stun,
            allow,
        },
    }
}

pub(super) fn tls(mut section: Section<'_>) -> Option<Files> {
    let cert = section.required::<PathBuf>("cert", "\"/etc/keepline/tls/cert.pem\"");
    let key = section.required::<PathBuf>("key", "\"/etc/keepline/tls/key.pem\"");
    let ca = section.get("ca", PathBuf::from("/etc/ssl/certs/ca-certificates.crt"));
    let clients = section.get("client_certificates", ClientCertificates::Off);
    section.finish();
    Some(Files {
        cert: cert?,
        key: key?,
        ca,
        clients,
    })
}

pub(super) fn store(mut section: Section<'_>) -> Store {
    let path = section.get("path", PathBuf::from("/var/lib/keepline/state"));
    section.finish();
    Store { path }
}

pub(super) fn api(mut section: Section<'_>) -> Option<Api> {
    let listen = section.required::<SocketAddr>("listen", "\"127.0.0.1:9060\"");
    section.finish();
    listen.map(|listen| Api { listen })
}
