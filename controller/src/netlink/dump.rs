//! The whole of what the kernel has, read at once, and how its records are understood.

use std::{collections::HashMap, net::IpAddr};

use futures::{Stream, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::{
    Handle, RouteMessageBuilder,
    packet_route::{
        AddressFamily,
        address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
        link::{LinkAttribute, LinkFlags, LinkMessage},
        neighbour::{
            NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourMessage,
            NeighbourState,
        },
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia},
    },
};

use super::table::{LinkState, Mac, Route, Table};

/// Routes that are looked at; a gateway with more of them is a core router, and its voice
/// routes are among the first.
const MAX_ROUTES: usize = 65_536;

/// Reads links, addresses, routes and neighbours.
///
/// # Errors
/// When the kernel refuses a dump, or the connection ended.
pub(super) async fn dump(handle: &Handle) -> Result<(Table, Vec<Neighbour>), rtnetlink::Error> {
    let mut table = Table::default();
    for message in all(handle.link().get().execute()).await? {
        let index = message.header.index;
        table.links.insert(index, link(&message));
    }
    for message in all(handle.address().get().execute()).await? {
        if let (Some(link), Some(address)) = (
            table.links.get_mut(&message.header.index),
            address(&message),
        ) {
            link.addresses.push(address);
        }
    }
    let v4 = RouteMessageBuilder::<std::net::Ipv4Addr>::new().build();
    let v6 = RouteMessageBuilder::<std::net::Ipv6Addr>::new().build();
    for request in [v4, v6] {
        for message in all(handle.route().get(request).execute()).await? {
            routes(&message, &mut table.routes);
        }
    }
    if table.routes.len() > MAX_ROUTES {
        tracing::warn!(
            routes = table.routes.len(),
            kept = MAX_ROUTES,
            "too many routes to watch"
        );
        table.routes.truncate(MAX_ROUTES);
    }
    let mut neighbours = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let request = handle.neighbours().get().set_address_family(family);
        neighbours.extend(all(request.execute()).await?.iter().filter_map(neighbour));
    }
    Ok((table, neighbours))
}

async fn all<T>(
    stream: impl Stream<Item = Result<T, rtnetlink::Error>>,
) -> Result<Vec<T>, rtnetlink::Error> {
    stream.try_collect().await
}

fn link(message: &LinkMessage) -> LinkState {
    let flags = message.header.flags;
    let mut link = LinkState {
        name: String::new(),
        up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        mac: [0; 6],
        mtu: 0,
        addresses: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(bytes) => link.mac = mac(bytes).unwrap_or_default(),
            _ => {}
        }
    }
    link
}

/// An address that may be spoken from, with its prefix length. The kernel lists the primary
/// one first.
fn address(message: &AddressMessage) -> Option<(IpAddr, u8)> {
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    if message.header.flags.intersects(unusable) {
        return None;
    }
    // On point-to-point links ADDRESS is the peer's; LOCAL is ours where it is given.
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
        message.attributes.iter().find_map(wanted)
    };
    let own = find(|a| match a {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    let own = own.or_else(|| {
        find(|a| match a {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })?;
    Some((own, message.header.prefix_len))
}

fn routes(message: &RouteMessage, into: &mut Vec<Route>) {
    if message.header.kind != RouteType::Unicast {
        return;
    }
    let v4 = message.header.address_family == AddressFamily::Inet;
    let any = if v4 {
        IpAddr::from([0; 4])
    } else {
        IpAddr::from([0; 16])
    };
    let mut destination = any;
    let mut route = Route {
        destination: IpNet::from(any),
        ifindex: 0,
        gateway: None,
        source: None,
        metric: 0,
        mtu: None,
    };
    let mut paths = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => destination = ip(to).unwrap_or(any),
            RouteAttribute::Oif(ifindex) => route.ifindex = *ifindex,
            RouteAttribute::PrefSource(from) => route.source = ip(from),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Metrics(metrics) => route.mtu = mtu(metrics),
            RouteAttribute::MultiPath(hops) => {
                paths = hops
                    .iter()
                    .map(|h| (h.interface_index, gateway(&h.attributes)))
                    .collect();
            }
            _ => {}
        }
    }
    let Ok(net) = IpNet::new(destination, message.header.destination_prefix_length) else {
        return;
    };
    route.destination = net;
    if paths.is_empty() {
        paths.push((route.ifindex, gateway(&message.attributes)));
    }
    into.extend(paths.into_iter().map(|(ifindex, gateway)| Route {
        ifindex,
        gateway,
        ..route.clone()
    }));
}

/// The router of a route; RTA_VIA names one of the other family (RFC 5549).
pub(crate) fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(router) => ip(router),
        RouteAttribute::Via(RouteVia::Inet6(v6)) => Some((*v6).into()),
        RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
        _ => None,
    })
}

fn mtu(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

/// The address of a route, of either family.
pub(crate) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

/// What the kernel says about a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) ifindex: u32,
    pub(super) ip: IpAddr,
    pub(super) state: Resolution,
    /// The kernel keeps it resolved by itself.
    pub(super) managed: bool,
}

/// The kernel's neighbour states, reduced to what a hop does about them (fastpath.md section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    /// Usable, fresh or stale.
    At(Mac),
    /// Asked for; says nothing about the MAC used so far.
    Pending,
    /// It does not answer.
    Failed,
}

pub(super) fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let (mut address, mut lladdr, mut managed) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some((*v4).into())
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some((*v6).into())
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => lladdr = mac(bytes),
            NeighbourAttribute::ExtFlags(flags) => {
                managed = flags.contains(NeighbourExtFlags::Managed)
            }
            _ => {}
        }
    }
    let state = match (message.header.state, lladdr) {
        (NeighbourState::Failed, _) => Resolution::Failed,
        (NeighbourState::Incomplete | NeighbourState::None, _) | (_, None) => Resolution::Pending,
        (_, Some(mac)) => Resolution::At(mac),
    };
    Some(Neighbour {
        ifindex: message.header.ifindex,
        ip: address?,
        state,
        managed,
    })
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok()
}

/// Neighbours of a dump by key.
pub(super) fn by_key(neighbours: &[Neighbour]) -> HashMap<(u32, IpAddr), Neighbour> {
    neighbours.iter().map(|n| ((n.ifindex, n.ip), *n)).collect()
}
