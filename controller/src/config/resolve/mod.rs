//! From the tables of a file to the resolved configuration, section by section.
//!
//! Each function reads a whole section before it decides, so that every fault is told; `None`
//! means that one was.

mod groups;
mod links;
mod service;
mod tunnels;

use std::ops::RangeInclusive;

use toml::de::DeTable;

use super::{
    fault::Fault,
    model::Config,
    section::{File, Section},
};

/// What a configuration is checked against besides itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Ports the kernel hands out to sockets that ask for none.
    pub ephemeral: RangeInclusive<u16>,
    /// The machine's name: default of `gateway.name`.
    pub hostname: String,
}

impl Default for Machine {
    /// A stock Linux.
    fn default() -> Self {
        Self {
            ephemeral: 32_768..=60_999,
            hostname: "keepline".to_owned(),
        }
    }
}

impl Machine {
    /// This machine; what cannot be read is taken as on a stock Linux.
    #[must_use]
    pub fn here() -> Self {
        let stock = Self::default();
        let hostname = rustix::system::uname()
            .nodename()
            .to_str()
            .ok()
            .map(str::to_owned);
        Self {
            ephemeral: ephemeral_ports().unwrap_or(stock.ephemeral),
            hostname: hostname
                .filter(|name| !name.is_empty())
                .unwrap_or(stock.hostname),
        }
    }
}

/// Resolves the tables of a file. Whatever is wrong is in the file's report.
pub(super) fn resolve<'d>(
    file: &'d File<'d>,
    document: &'d DeTable<'d>,
    machine: &Machine,
) -> Option<Config> {
    let mut root = Section::root(file, document);
    let gateway = service::gateway(root.table("gateway"), machine);
    let interfaces = links::interfaces(&mut root);
    let listen = links::listen(root.table("listen"), &interfaces);
    let mut spoken = Vec::new();
    let softswitches = groups::softswitches(&mut root, gateway.domain.as_deref(), &mut spoken);
    let tunnels = tunnels::tunnels(&mut root);
    let segments = tunnels::segments(&mut root, tunnels.as_deref());
    let registration = service::registration(root.table("registration"));
    let survivability = service::survivability(root.table("survivability"));
    let keepalive = service::keepalive(root.table("keepalive"));
    let media = service::media(root.table("media"), &listen.ports, machine);
    let fastpath = service::fastpath(root.table("fastpath"));
    let store = service::store(root.table("store"));
    let api = root.optional_table("api").map(service::api);
    for (section, purpose) in LATER {
        root.not_yet(section, purpose);
    }
    let tls = root.optional_table("tls").map(service::tls);
    links::certificates(&root, &listen, tls.is_some());
    links::sides(&root, &interfaces, &listen, &softswitches);
    links::untouched(&root, gateway.mode, &interfaces, &listen);
    links::seen(&root, &gateway, &interfaces);
    links::transports(&root, &interfaces, &listen, &spoken);
    root.finish();
    Some(Config {
        gateway,
        interfaces: interfaces?.into_iter().map(|at| at.value).collect(),
        listen: listen.resolved?,
        tls: match tls {
            Some(None) => return None,
            Some(some) => some,
            None => None,
        },
        softswitches: softswitches?,
        segments: segments?,
        tunnels: tunnels?.into_iter().map(|at| at.value).collect(),
        registration,
        survivability,
        keepalive,
        media,
        fastpath,
        store,
        api: match api {
            Some(None) => return None,
            Some(some) => some,
            None => None,
        },
    })
}

/// Sections of the interface that this version knows of, but cannot serve.
const LATER: [(&str, &str); 3] = [
    ("pstn", "remove it: calls to numbers go to the softswitch"),
    ("mesh", "remove it: this gateway stands alone"),
    ("cluster", "remove it: the embedded store is used"),
];

fn ephemeral_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ports = text.split_whitespace().map(str::parse::<u16>);
    Some(ports.next()?.ok()?..=ports.next()?.ok()?)
}

/// Names each value that occurs a second time. `what` is in the singular.
fn duplicates<T: PartialEq>(
    section: &Section<'_>,
    text: impl Fn(&T) -> String,
    what: &str,
    items: &[super::value::At<T>],
) {
    for (i, item) in items.iter().enumerate() {
        if items[..i].iter().any(|earlier| earlier.value == item.value) {
            section.fault(Fault::error(
                item.span.clone(),
                format!("{what} `{}` occurs twice", text(&item.value)),
                "give each its own, or remove one",
            ));
        }
    }
}
