//! From the resolved configuration and the kernel's addresses to what the engine needs.

use std::net::SocketAddr;

use keepline_engine::{
    conf::{self, Conf, Prefix},
    health::{self, GroupConf, ServerConf},
    media::{Learn, MediaConf},
    net::{Link, Listener, Side, Transport},
    sdp::Ice,
    seal::Key,
};

use crate::{
    config::model::{self, Config, ListenAddress},
    netlink::Table,
};

/// Why the configuration does not fit this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// An interface does not exist.
    #[error("interface {0} does not exist")]
    NoInterface(String),
    /// An interface that a listener names has no address.
    #[error("interface {0} has no address to listen on")]
    NoAddress(String),
    /// A listener's address is on no configured interface.
    #[error("{0} is no address of a configured interface")]
    ForeignAddress(SocketAddr),
}

impl Unfit {
    /// What to do about it.
    #[must_use]
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::NoInterface(_) => "`ip link` lists the interfaces; correct [[interface]] name",
            Self::NoAddress(_) => "give it an address, or remove its listener",
            Self::ForeignAddress(_) => "add the interface that has it, or listen on INTERFACE:PORT",
        }
    }
}

/// Builds the engine's configuration.
///
/// # Errors
/// When an interface or an address is missing on this machine.
pub(super) fn engine(
    config: &Config,
    table: &Table,
    secret: Key,
    seed: u64,
) -> Result<Conf, Unfit> {
    let links = links(config, table)?;
    Ok(Conf {
        name: config.gateway.name.clone(),
        mode: match config.gateway.mode {
            model::Mode::Normal => conf::Mode::Normal,
            model::Mode::OutboundProxy => conf::Mode::OutboundProxy,
            model::Mode::Transparent => conf::Mode::Transparent,
        },
        hide_topology: config.gateway.hide_topology,
        domain: domain(config),
        listeners: listeners(config, table, &links)?,
        groups: config.softswitches.iter().map(group).collect(),
        accept: match config.listen.accept {
            model::Accept::Peers => conf::Accept::Peers,
            model::Accept::Clients => conf::Accept::Clients,
        },
        registration: conf::Registration {
            phone_expires: config.registration.phone_expires_udp,
            phone_expires_stream: config.registration.phone_expires_stream,
            known_for: config.registration.known_for,
        },
        survivability: conf::Survivability {
            policy: match config.survivability.policy {
                model::SurvivabilityPolicy::Off => conf::Policy::Off,
                model::SurvivabilityPolicy::Known => conf::Policy::Known,
                model::SurvivabilityPolicy::OpenLan => conf::Policy::OpenLan,
            },
            expires: config.survivability.expires,
            last_digits: config.survivability.last_digits.clone(),
            recovery_register_rate: config.survivability.recovery_register_rate,
        },
        keepalive: conf::Keepalive {
            stun: match config.keepalive.stun {
                model::Stun::Auto => conf::Stun::Auto,
                model::Stun::On => conf::Stun::On,
                model::Stun::Off => conf::Stun::Off,
            },
            interval: config.keepalive.interval,
            timeout: config.keepalive.timeout,
        },
        keepalive_error: config.keepalive.on_path_down == model::OnPathDown::Error,
        drain_grace: config.gateway.drain_grace,
        media: MediaConf {
            ports: config.media.ports.clone(),
            learn: match config.media.learn {
                model::Learn::Once => Learn::Once,
                model::Learn::Never => Learn::Never,
            },
            ice: match config.media.ice {
                model::Ice::Strip => Ice::Strip,
                model::Ice::Relay => Ice::Relay,
                model::Ice::Pass => Ice::Pass,
            },
            timeout: config.media.timeout,
            seed,
        },
        links,
        secret,
    })
}

/// `gateway.domain`, else that of the first softswitch.
fn domain(config: &Config) -> String {
    let first = || {
        config
            .softswitches
            .first()
            .map(|group| group.domain.clone())
    };
    config
        .gateway
        .domain
        .clone()
        .or_else(first)
        .unwrap_or_default()
}

fn links(config: &Config, table: &Table) -> Result<Vec<Link>, Unfit> {
    let link = |interface: &model::Interface| {
        let (_, state) = table
            .link_by_name(&interface.name)
            .ok_or_else(|| Unfit::NoInterface(interface.name.clone()))?;
        let primary = state.addresses.first();
        Ok(Link {
            name: interface.name.clone(),
            side: interface.side,
            address: primary.map(|(address, _)| *address),
            prefix: primary.map_or(0, |(_, prefix)| *prefix),
            up: state.up,
        })
    };
    config.interfaces.iter().map(link).collect()
}

fn listeners(config: &Config, table: &Table, links: &[Link]) -> Result<Vec<Listener>, Unfit> {
    let listener = |(transport, at): (Transport, ListenAddress)| match at {
        ListenAddress::Interface { link, port } => {
            let on = &links[usize::from(link.0)];
            let address = on
                .address
                .ok_or_else(|| Unfit::NoAddress(on.name.clone()))?;
            Ok(Listener {
                link,
                transport,
                address: SocketAddr::new(address, port),
                taken_by: None,
            })
        }
        ListenAddress::Address(address) => {
            let owner = table
                .link_of_address(address.ip())
                .map(|(_, state)| state.name.as_str());
            let link = owner.and_then(|name| config.link_by_name(name));
            Ok(Listener {
                link: link.ok_or(Unfit::ForeignAddress(address))?,
                transport,
                address,
                taken_by: None,
            })
        }
    };
    let mut all: Vec<Listener> = config
        .listen
        .all()
        .map(listener)
        .collect::<Result<_, _>>()?;
    if config.gateway.mode == model::Mode::Transparent {
        let more = elsewhere(config, links, &all);
        all.extend(more);
    }
    Ok(all)
}

/// Phones speak to the port of their softswitch: where that is another than what is listened to
/// on the LAN, it is taken too.
fn elsewhere(config: &Config, links: &[Link], listeners: &[Listener]) -> Vec<Listener> {
    let lan = |on: &&Listener| links[usize::from(on.link.0)].side == Side::Lan;
    let plain = |on: &&Listener| on.transport != Transport::Tls;
    let mut more: Vec<Listener> = Vec::new();
    let servers = config.softswitches.iter().flat_map(|group| &group.servers);
    let servers = servers.filter(|server| server.transport != Transport::Tls);
    for port in servers.map(|server| server.address.port()) {
        for on in listeners.iter().filter(lan).filter(plain) {
            let address = SocketAddr::new(on.address.ip(), port);
            let same = |at: &Listener| {
                (at.link, at.transport, at.address) == (on.link, on.transport, address)
            };
            if !listeners.iter().chain(&more).any(same) {
                more.push(Listener {
                    address,
                    ..on.clone()
                });
            }
        }
    }
    more
}

fn group(group: &model::Softswitch) -> conf::Group {
    conf::Group {
        domain: group.domain.clone(),
        hunt_budget: group.hunt_budget,
        shared_dialogs: group.shared_dialogs,
        path: match group.path {
            model::PathUse::Auto => conf::PathUse::Auto,
            model::PathUse::On => conf::PathUse::On,
            model::PathUse::Off => conf::PathUse::Off,
        },
        inbound: group
            .inbound
            .iter()
            .map(|net| Prefix {
                address: net.addr(),
                length: net.prefix_len(),
            })
            .collect(),
        health: GroupConf {
            name: group.name.clone(),
            servers: group.servers.iter().map(server).collect(),
            probe: match group.probe {
                model::ProbePolicy::Off => health::ProbeMode::Off,
                model::ProbePolicy::Inactive => health::ProbeMode::Inactive,
                model::ProbePolicy::Idle => health::ProbeMode::Idle,
                model::ProbePolicy::All => health::ProbeMode::All,
            },
            interval: group.interval,
            timeout: group.timeout,
            max_unanswered: group.max_unanswered,
            passive_timeout: group.passive_timeout,
            passive_timeout_other: group.passive_timeout_other,
            slow_timeout: group.slow_timeout,
            after_100_timeout: group.after_100_timeout,
            prefer: match group.prefer {
                model::Prefer::Link => health::Prefer::Link,
                model::Prefer::Server => health::Prefer::Server,
            },
            recover_answers: group.recover_answers,
            down_codes: group.down_codes.clone(),
            backoff: health::Backoff {
                initial: group.backoff.initial,
                max: group.backoff.max,
                max_alone: group.backoff.max_alone,
            },
            failback: match group.failback {
                model::Failback::Registration => health::Failback::Registration,
                model::Failback::Immediate => health::Failback::Immediate,
                model::Failback::Manual => health::Failback::Manual,
            },
            failback_hold: group.failback_hold,
        },
    }
}

fn server(server: &model::Server) -> ServerConf {
    ServerConf {
        uri: server.uri.clone(),
        address: server.address,
        transport: server.transport,
        priority: server.priority,
        weight: server.weight,
    }
}
