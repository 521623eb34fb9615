//! A consistent snapshot of the kernel's links, addresses, routes and neighbours.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use ipnet::IpNet;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// A link as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    /// The kernel's name.
    pub name: String,
    /// Administratively up with carrier.
    pub up: bool,
    /// Its own MAC; zero on links without one.
    pub mac: Mac,
    /// In bytes.
    pub mtu: u32,
    /// Its addresses with their prefix lengths, primary first.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// How a destination is reached: everything a hop record needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// The egress link.
    pub ifindex: u32,
    /// The neighbour frames are sent to: the gateway's, or the destination's own address.
    pub next_hop: IpAddr,
    /// The address imposed on what leaves.
    pub source: IpAddr,
    /// The egress link's MAC.
    pub source_mac: Mac,
    /// The neighbour's MAC; `None` while unresolved.
    pub dest_mac: Option<Mac>,
    /// The path's MTU in bytes: the route's where it has one, else the link's.
    pub mtu: u32,
}

/// A unicast route, reduced to what next hops need. Multipath routes become one per hop.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// What it leads to.
    pub destination: IpNet,
    /// The egress link.
    pub ifindex: u32,
    /// The gateway; `None` when the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The preferred source address, where the route names one.
    pub source: Option<IpAddr>,
    /// Lower is preferred among equal prefixes.
    pub metric: u32,
    /// Its own MTU in bytes, where it has one.
    pub mtu: Option<u32>,
}

/// The snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    pub(super) links: BTreeMap<u32, LinkState>,
    pub(super) routes: Vec<Route>,
    pub(super) neighbours: HashMap<(u32, IpAddr), Mac>,
}

impl Table {
    /// A link by its index.
    #[must_use]
    pub fn link(&self, ifindex: u32) -> Option<&LinkState> {
        self.links.get(&ifindex)
    }

    /// A link by its name, with its index.
    #[must_use]
    pub fn link_by_name(&self, name: &str) -> Option<(u32, &LinkState)> {
        self.links
            .iter()
            .find(|(_, link)| link.name == name)
            .map(|(&index, link)| (index, link))
    }

    /// The MAC of a neighbour that answered.
    #[must_use]
    pub fn mac_of(&self, ifindex: u32, neighbour: IpAddr) -> Option<Mac> {
        self.neighbours.get(&(ifindex, neighbour)).copied()
    }

    /// The link that owns a local address.
    #[must_use]
    pub fn link_of_address(&self, address: IpAddr) -> Option<(u32, &LinkState)> {
        self.links
            .iter()
            .find(|(_, link)| link.addresses.iter().any(|&(own, _)| own == address))
            .map(|(&index, link)| (index, link))
    }

    /// How `destination` is reached over `ifindex`; `None` when the link is down, has no route
    /// there or no address to send from, or when the destination is the gateway itself.
    ///
    /// Routes of every table count, as long as they leave by this link: a second WAN usually
    /// has its default route in a table of its own, behind a rule the link choice replaces.
    #[must_use]
    pub fn next_hop(&self, ifindex: u32, destination: IpAddr) -> Option<NextHop> {
        self.next_hop_by(ifindex, ifindex, destination)
    }

    /// The same where another device carries what belongs to the link `home`: by the routes of
    /// either, as neighbours of the device, from the addresses of `home`.
    #[must_use]
    pub fn next_hop_by(&self, home: u32, ifindex: u32, destination: IpAddr) -> Option<NextHop> {
        let link = self.links.get(&ifindex).filter(|link| link.up)?;
        let own = self.links.get(&home).unwrap_or(link);
        if self.link_of_address(destination).is_some() {
            return None;
        }
        let route = self
            .routes
            .iter()
            .filter(|r| {
                [home, ifindex].contains(&r.ifindex) && r.destination.contains(&destination)
            })
            .min_by_key(|r| (std::cmp::Reverse(r.destination.prefix_len()), r.metric))?;
        let next_hop = route.gateway.unwrap_or(destination);
        Some(NextHop {
            ifindex,
            next_hop,
            source: own
                .source_for(next_hop)
                .filter(|_| home != ifindex)
                .or(route.source)
                .or_else(|| own.source_for(next_hop))?,
            source_mac: link.mac,
            dest_mac: self.neighbours.get(&(ifindex, next_hop)).copied(),
            mtu: route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        })
    }
}

impl LinkState {
    /// Whether a neighbour with this address is one on the link itself.
    #[must_use]
    pub(crate) fn is_on_link(&self, ip: IpAddr) -> bool {
        let nets = self.addresses.iter();
        let mut nets = nets.filter_map(|&(address, prefix)| IpNet::new(address, prefix).ok());
        nets.any(|net| net.contains(&ip))
    }

    /// The address to speak from to a neighbour: one of its subnet, else the first of its
    /// family; never a link-local one, since what leaves goes beyond the neighbour.
    #[must_use]
    pub(crate) fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let same_family = || {
            self.addresses
                .iter()
                .filter(|(a, _)| a.is_ipv4() == neighbour.is_ipv4() && !is_link_local(*a))
        };
        same_family()
            .find(|&&(address, prefix)| {
                IpNet::new(address, prefix).is_ok_and(|net| net.contains(&neighbour))
            })
            .or_else(|| same_family().next())
            .map(|&(address, _)| address)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn route(destination: &str, ifindex: u32, gateway: Option<&str>, metric: u32) -> Route {
        Route {
            destination: destination.parse().expect("a network"),
            ifindex,
            gateway: gateway.map(ip),
            source: None,
            metric,
            mtu: None,
        }
    }

    fn link(name: &str, addresses: &[(&str, u8)]) -> LinkState {
        LinkState {
            name: name.to_owned(),
            up: true,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            addresses: addresses.iter().map(|&(a, p)| (ip(a), p)).collect(),
        }
    }

    fn two_wans() -> Table {
        Table {
            links: BTreeMap::from([
                (2, link("wan0", &[("192.0.2.1", 24)])),
                (
                    3,
                    link(
                        "wan1",
                        &[("198.51.100.1", 24), ("fe80::1", 64), ("2001:db8::1", 64)],
                    ),
                ),
            ]),
            routes: vec![
                route("192.0.2.0/24", 2, None, 0),
                route("0.0.0.0/0", 2, Some("192.0.2.254"), 100),
                route("0.0.0.0/0", 2, Some("192.0.2.253"), 50),
                route("0.0.0.0/0", 3, Some("198.51.100.254"), 0),
                route("203.0.113.0/24", 3, Some("198.51.100.9"), 900),
                route("::/0", 3, Some("fe80::99"), 0),
            ],
            neighbours: HashMap::from([((2, ip("192.0.2.253")), [2, 0, 0, 0, 0, 9])]),
        }
    }

    #[test]
    fn mx8_what_another_device_carries_keeps_its_address_and_finds_neighbours_there() {
        let hop = two_wans()
            .next_hop_by(2, 3, ip("203.0.113.7"))
            .expect("a hop");
        assert_eq!((hop.ifindex, hop.next_hop), (3, ip("198.51.100.9")));
        assert_eq!(hop.source, ip("192.0.2.1"));
        let hop = two_wans()
            .next_hop_by(2, 3, ip("192.0.2.77"))
            .expect("a hop");
        assert_eq!((hop.ifindex, hop.next_hop), (3, ip("192.0.2.77")));
        assert_eq!(hop.source, ip("192.0.2.1"));
    }

    #[test]
    fn longest_prefix_then_metric_decides_per_link() {
        let table = two_wans();
        let hop = |link, to| table.next_hop(link, ip(to)).map(|h| h.next_hop);
        assert_eq!(hop(2, "192.0.2.7"), Some(ip("192.0.2.7")));
        assert_eq!(hop(2, "203.0.113.5"), Some(ip("192.0.2.253")));
        assert_eq!(hop(3, "203.0.113.5"), Some(ip("198.51.100.9")));
        assert_eq!(hop(3, "8.8.8.8"), Some(ip("198.51.100.254")));
    }

    #[test]
    fn source_is_of_the_neighbours_subnet_and_never_link_local() {
        let table = two_wans();
        let source = |to| table.next_hop(3, ip(to)).map(|h| h.source);
        assert_eq!(source("203.0.113.5"), Some(ip("198.51.100.1")));
        assert_eq!(
            source("2001:db8:9::1"),
            Some(ip("2001:db8::1")),
            "not the gateway's fe80"
        );
    }

    #[test]
    fn neighbour_mac_is_given_where_known() {
        let table = two_wans();
        let mac = |to| table.next_hop(2, ip(to)).and_then(|h| h.dest_mac);
        assert_eq!(mac("203.0.113.5"), Some([2, 0, 0, 0, 0, 9]));
        assert_eq!(mac("192.0.2.7"), None);
    }

    #[test]
    fn own_address_down_link_and_missing_route_have_no_hop() {
        let mut table = two_wans();
        assert_eq!(
            table.next_hop(2, ip("198.51.100.1")),
            None,
            "X12: our own address"
        );
        assert_eq!(table.next_hop(2, ip("2001:db8::5")), None, "no IPv6 there");
        table.links.get_mut(&2).expect("wan0").up = false;
        assert_eq!(table.next_hop(2, ip("203.0.113.5")), None);
    }

    #[test]
    fn routes_mtu_lowers_the_links() {
        let mut table = two_wans();
        table.routes[2].mtu = Some(1400);
        assert_eq!(
            table.next_hop(2, ip("203.0.113.5")).map(|h| h.mtu),
            Some(1400)
        );
    }
}
