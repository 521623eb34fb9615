//! Topology hiding: which hosts one side must not see, and what stands there instead
//! (signalling.md section 6).

use std::net::IpAddr;

use crate::{
    conf::{Conf, Group, Prefix},
    net::{GroupId, Side},
    seal,
    sip::Uri,
};

/// Separates Call-ID tokens from every other use of the secret.
const CALL_ID: &str = "call-id";
/// What a sealed Call-ID begins with.
const CALL_ID_PREFIX: &[u8] = b"kl1-";

/// Who looks at a message: a side, and what is particular about the party there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    pub(crate) side: Side,
    /// The softswitch's address that a phone speaks to: it stands for all of the other side
    /// (transparent mode).
    pub(crate) knows: Option<IpAddr>,
    /// A server that is asked in the place of another one of its group, and that group: phones
    /// may name the one that they speak to.
    pub(crate) instead: Option<(GroupId, IpAddr)>,
}

impl Sight {
    /// Nothing particular.
    pub(crate) fn of(side: Side) -> Self {
        let (knows, instead) = (None, None);
        Self {
            side,
            knows,
            instead,
        }
    }
}

/// What must be known to decide whether a host may be seen on a side.
#[derive(Debug, Clone)]
pub(crate) struct Topology {
    domain: String,
    /// The domain of each group, with where it speaks from.
    domains: Vec<(String, Vec<Prefix>)>,
    /// The addresses of each group's servers.
    servers: Vec<Vec<IpAddr>>,
    secret: seal::Key,
    /// Per side, every network that belongs to it, the gateway's own address included.
    networks: Vec<(Side, Prefix)>,
}

impl Topology {
    pub(crate) fn new(conf: &Conf) -> Self {
        let mut networks = Vec::new();
        for link in &conf.links {
            if let Some(address) = link.address {
                let length = link.prefix;
                networks.push((link.side, Prefix { address, length }));
            }
        }
        for server in conf.groups.iter().flat_map(|group| &group.health.servers) {
            let address = server.address.ip();
            let length = if address.is_ipv4() { 32 } else { 128 };
            networks.push((Side::Wan, Prefix { address, length }));
        }
        // A single host says more than the network it lies in.
        networks.sort_by_key(|(_, prefix)| std::cmp::Reverse(prefix.length));
        Self {
            domain: conf.domain.clone(),
            domains: conf.groups.iter().map(sources).collect(),
            servers: conf.groups.iter().map(servers).collect(),
            secret: conf.secret.clone(),
            networks,
        }
    }

    /// The side an address belongs to, as far as the configuration says.
    fn side_of(&self, ip: IpAddr) -> Option<Side> {
        let found = self.networks.iter().find(|(_, prefix)| prefix.contains(ip));
        found.map(|(side, _)| *side)
    }

    /// Whether an address that a message from one side names may not be seen on the other. One of
    /// no configured network belongs to the WAN when it is public, else to where it was named:
    /// there are private networks on both sides.
    pub(crate) fn hides(&self, ip: IpAddr, from: Side, towards: Side) -> bool {
        let private = is_private(ip);
        let side = self.side_of(ip).or((!private).then_some(Side::Wan));
        side.unwrap_or(from) != towards
    }

    /// The URI as `towards` may see it, if it must change: the host of the other side gives way
    /// to the domain, or to the softswitch that a phone knows, the port with it.
    pub(crate) fn uri(&self, uri: &[u8], from: Side, towards: Sight) -> Option<Vec<u8>> {
        let parsed = Uri::parse(uri)?;
        let host = self.stand_in(parsed.host_ip()?, from, towards)?;
        Some(self.with_host(&parsed, host.as_bytes()))
    }

    /// What stands for an address where `towards` may not see it.
    pub(super) fn stand_in(&self, ip: IpAddr, from: Side, towards: Sight) -> Option<String> {
        if !self.hides(ip, from, towards.side) {
            let server = towards.instead.filter(|other| self.is_beside(ip, *other));
            return server.map(|(_, server)| host(server));
        }
        match towards.knows {
            Some(known) if known == ip => None,
            Some(known) => Some(host(known)),
            None => Some(self.domain_of(ip).to_owned()),
        }
    }

    /// Whether an address is another server of the same group.
    fn is_beside(&self, ip: IpAddr, (group, server): (GroupId, IpAddr)) -> bool {
        let servers = self.servers.get(usize::from(group.0));
        ip != server && servers.is_some_and(|servers| servers.contains(&ip))
    }

    /// The domain that stands for an address: that of the softswitch it belongs to, else the
    /// gateway's.
    pub(crate) fn domain_of(&self, ip: IpAddr) -> &str {
        let has = |of: &&(String, Vec<Prefix>)| of.1.iter().any(|p| p.contains(ip));
        let found = self.domains.iter().find(has);
        found.map_or(&self.domain, |(domain, _)| domain)
    }

    /// The URI with another `host[:port]`.
    pub(crate) fn with_host(&self, uri: &Uri<'_>, host: &[u8]) -> Vec<u8> {
        let mut out = uri.scheme.to_vec();
        out.push(b':');
        if let Some(user) = uri.user {
            out.extend_from_slice(user);
            out.push(b'@');
        }
        out.extend_from_slice(host);
        out.extend_from_slice(uri.params);
        out.extend_from_slice(uri.headers);
        out
    }

    /// A Call-ID as the other side writes it. Each direction undoes the other, so the function
    /// needs no memory and survives a restart.
    pub(crate) fn call_id(&self, call_id: &[u8]) -> Vec<u8> {
        if let Some(sealed) = call_id.strip_prefix(CALL_ID_PREFIX)
            && let Ok(sealed) = std::str::from_utf8(sealed)
            && let Some(open) = seal::open(&self.secret, CALL_ID, sealed)
        {
            return open;
        }
        if !names_an_address(call_id) {
            return call_id.to_vec();
        }
        let mut token = CALL_ID_PREFIX.to_vec();
        token.extend_from_slice(seal::seal(&self.secret, CALL_ID, call_id).as_bytes());
        token
    }
}

fn servers(group: &Group) -> Vec<IpAddr> {
    let servers = group.health.servers.iter();
    servers.map(|server| server.address.ip()).collect()
}

/// An address as the host of a URI (RFC 3261 section 25.1).
pub(super) fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn sources(group: &Group) -> (String, Vec<Prefix>) {
    let servers = group.health.servers.iter().map(|server| {
        let address = server.address.ip();
        let length = if address.is_ipv4() { 32 } else { 128 };
        Prefix { address, length }
    });
    let all = servers.chain(group.inbound.iter().copied()).collect();
    (group.domain.clone(), all)
}

/// Whether the host part of a Call-ID (or all of it) is an address.
fn names_an_address(call_id: &[u8]) -> bool {
    let host = call_id
        .iter()
        .rposition(|byte| *byte == b'@')
        .map_or(call_id, |at| &call_id[at + 1..]);
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let bare = host.trim_start_matches('[');
    let bare = bare.split_once(']').map_or(bare, |(inside, _)| inside);
    bare.parse::<IpAddr>().is_ok()
        || bare
            .rsplit_once(':')
            .is_some_and(|(ip, _)| ip.parse::<IpAddr>().is_ok())
}

fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64; // RFC 6598
            ip.is_private() || ip.is_link_local() || ip.is_loopback() || shared
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_loopback(),
    }
}
