//! Which tunnel the gateway's own connections leave by, while any of them may bring the answer
//! (MX8).
//!
//! A socket that is bound to a device hears by that device alone. What comes by another one, since
//! some neighbour still thinks that our address is there, the kernel answers with a reset, and
//! the peer's end of the connection is gone. So connections over a tunnel's interface bear a mark
//! instead. A routing rule leads the mark to a table that holds the interface's own routes, those
//! of the kernel included, by the device that carries it (ip-rule(8)); what has none of them goes
//! nowhere. A switch replaces the table, and no socket is touched.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt as _;
use rtnetlink::{
    Error, Handle, IpVersion, RouteMessageBuilder,
    packet_route::{
        route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType},
        rule::{RuleAction, RuleAttribute, RuleMessage},
    },
};

use super::routes::{MOVED, destination, through};
use crate::netlink::{Netlink, gateway};

/// Marks our rules and the routes behind them (rtnetlink(7): above `RTPROT_STATIC`).
const OURS: RouteProtocol = RouteProtocol::Other(77);
/// The mark of the first interface's connections; the others' follow. It says "ke".
const MARK: u32 = 0x6b65_0000;
/// The table of the first interface's ways; the others' follow.
const TABLE: u32 = 27_600;
/// Before the main table (32766), behind what an administrator puts first.
const PRIORITY: u32 = 5_061;

/// The mark of connections over the interface with this number.
#[must_use]
pub(super) fn mark(home: u16) -> u32 {
    MARK + u32::from(home)
}

/// The rules and tables of all interfaces that are tunnels.
pub(super) struct Egress {
    handle: Handle,
    netlink: Netlink,
    /// The interfaces, by number.
    homes: Vec<String>,
    /// The routes of an interface when they were looked at last.
    ways: HashMap<String, Vec<RouteMessage>>,
}

impl Egress {
    /// Rules and tables as of now.
    ///
    /// # Errors
    /// When the kernel has no such rules.
    pub(super) async fn begin(
        handle: Handle,
        netlink: Netlink,
        homes: Vec<String>,
    ) -> Result<Self, Error> {
        let mut egress = Self {
            handle,
            netlink,
            homes: homes.clone(),
            ways: HashMap::new(),
        };
        for home in &homes {
            egress.follow(home).await;
        }
        egress.rules().await?;
        Ok(egress)
    }

    /// Puts back what is missing of our rules, and takes away an earlier run's.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) async fn rules(&self) -> Result<(), Error> {
        for v6 in [false, true] {
            let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
            let all = self.handle.rule().get(version).execute();
            let all: Vec<RuleMessage> = match all.try_collect().await {
                Ok(all) => all,
                // Without IPv6 in the kernel there is nothing of it to do.
                Err(_) if v6 => continue,
                Err(error) => return Err(error),
            };
            let mut missing: BTreeSet<u32> = (0..).take(self.homes.len()).collect();
            for rule in all.into_iter().filter(is_ours) {
                let wanted = number(&rule).is_some_and(|number| missing.remove(&number));
                if !wanted {
                    self.handle.rule().del(rule).execute().await?;
                }
            }
            for number in missing {
                self.add(number, v6).await?;
            }
        }
        Ok(())
    }

    async fn add(&self, number: u32, v6: bool) -> Result<(), Error> {
        let request = self.handle.rule().add().fw_mark(MARK + number);
        let request = request.priority(PRIORITY).table_id(TABLE + number);
        let request = request.action(RuleAction::ToTable);
        match v6 {
            false => {
                let mut request = request.v4();
                let attributes = &mut request.message_mut().attributes;
                attributes.push(RuleAttribute::Protocol(OURS));
                request.execute().await
            }
            true => {
                let mut request = request.v6();
                let attributes = &mut request.message_mut().attributes;
                attributes.push(RuleAttribute::Protocol(OURS));
                request.execute().await
            }
        }
    }

    /// Looks at the routes of an interface that is on its own device.
    pub(super) async fn follow(&mut self, home: &str) {
        let Some(index) = self.index(home).filter(|_| self.table(home).is_some()) else {
            return;
        };
        let all = all(&self.handle).await.into_iter();
        let mut ways: Vec<RouteMessage> = all.filter_map(|route| way(route, index)).collect();
        // One that two tables have is the main table's.
        ways.sort_by_key(|way| way.header.table != RouteHeader::RT_TABLE_MAIN);
        if !ways.is_empty() {
            self.ways.insert(home.to_owned(), ways);
            self.lead(home, home).await;
        }
    }

    /// What bears the mark of `home` leaves by this device from now on.
    pub(super) async fn lead(&self, home: &str, device: &str) {
        let (Some(table), Some(index), Some(ways)) =
            (self.table(home), self.index(device), self.ways.get(home))
        else {
            return;
        };
        let mut wanted: Vec<RouteMessage> = Vec::new();
        let moved = ways.iter().map(|way| through(way, index, OURS));
        for route in moved.chain(nowhere()) {
            if wanted.iter().all(|other| key(other) != key(&route)) {
                wanted.push(in_table(route, table));
            }
        }
        let present = all(&self.handle).await.into_iter();
        let present: Vec<RouteMessage> = present.filter(|route| id(route) == table).collect();
        for route in &wanted {
            if !present.iter().any(|there| same(there, route)) {
                let put = self.handle.route().add(route.clone()).replace();
                if let Err(error) = put.execute().await {
                    tracing::debug!(%error, home, device, "a way for connections is not there");
                }
            }
        }
        for route in present {
            if wanted.iter().all(|other| key(other) != key(&route))
                && let Err(error) = self.handle.route().del(route).execute().await
            {
                tracing::debug!(%error, home, device, "an old way for connections stays");
            }
        }
    }

    /// The table of what leaves by an interface of ours.
    fn table(&self, home: &str) -> Option<u32> {
        let place = self.homes.iter().position(|name| name == home)?;
        Some(TABLE + u32::try_from(place).ok()?)
    }

    fn index(&self, device: &str) -> Option<u32> {
        let table = self.netlink.table();
        table.link_by_name(device).map(|(index, _)| index)
    }
}

/// All routes of all tables.
pub(super) async fn all(handle: &Handle) -> Vec<RouteMessage> {
    let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
    let mut found = Vec::new();
    for request in [v4, v6] {
        let all = handle.route().get(request).execute();
        match all.try_collect::<Vec<_>>().await {
            Ok(all) => found.extend(all),
            Err(error) => tracing::warn!(%error, "routes cannot be read"),
        }
    }
    found
}

/// Whether it is one of those made here.
pub(super) fn is_copy(route: &RouteMessage) -> bool {
    route.header.protocol == OURS
}

/// The route by this device alone, if it leads there and beyond the link.
fn way(mut route: RouteMessage, index: u32) -> Option<RouteMessage> {
    let header = &route.header;
    let elsewhere = header.kind != RouteType::Unicast
        || header.flags.contains(RouteFlags::Cloned)
        || [MOVED, OURS].contains(&header.protocol);
    let local = |to: IpAddr| matches!(to, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if elsewhere || destination(&route).is_some_and(local) {
        return None;
    }
    if route.attributes.contains(&RouteAttribute::Oif(index)) {
        return Some(route);
    }
    let several = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::MultiPath(several) => Some(several),
            _ => None,
        });
    let hop = several?.iter().find(|hop| hop.interface_index == index)?;
    let hop = hop.attributes.clone();
    route.attributes.extend(hop);
    Some(route)
}

/// Where what has no other way goes: it would leave by somebody else's link.
fn nowhere() -> [RouteMessage; 2] {
    let v4 = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(Ipv4Addr::UNSPECIFIED, 0)
        .kind(RouteType::Unreachable)
        .protocol(OURS)
        .priority(u32::MAX);
    let v6 = RouteMessageBuilder::<Ipv6Addr>::new()
        .destination_prefix(Ipv6Addr::UNSPECIFIED, 0)
        .kind(RouteType::Unreachable)
        .protocol(OURS)
        .priority(u32::MAX);
    [v4.build(), v6.build()]
}

fn in_table(mut route: RouteMessage, table: u32) -> RouteMessage {
    let other = |attribute: &RouteAttribute| !matches!(attribute, RouteAttribute::Table(_));
    route.attributes.retain(other);
    route.attributes.push(RouteAttribute::Table(table));
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route
}

/// The number of a route's table.
fn id(route: &RouteMessage) -> u32 {
    let named = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    named.unwrap_or(u32::from(route.header.table))
}

/// What two routes of one table cannot have in common.
fn key(route: &RouteMessage) -> (bool, Option<IpAddr>, u8, u32) {
    let priority = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Priority(priority) => Some(*priority),
            _ => None,
        });
    let v6 = route.header.address_family == rtnetlink::packet_route::AddressFamily::Inet6;
    // The kernel writes an absent destination for the default.
    let to = destination(route).filter(|to| !to.is_unspecified());
    let length = route.header.destination_prefix_length;
    (v6, to, length, priority.unwrap_or(0))
}

/// Whether they lead the same way too.
fn same(there: &RouteMessage, wanted: &RouteMessage) -> bool {
    let device = |route: &RouteMessage| {
        let unicast = route.header.kind == RouteType::Unicast;
        route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) if unicast => Some(*index),
                _ => None,
            })
    };
    key(there) == key(wanted)
        && there.header.kind == wanted.header.kind
        && device(there) == device(wanted)
        && gateway(&there.attributes) == gateway(&wanted.attributes)
}

fn is_ours(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&RuleAttribute::Protocol(OURS))
}

/// The number of the interface that one of our rules is for.
fn number(rule: &RuleMessage) -> Option<u32> {
    let (mut mark, mut table) = (None, None);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::FwMark(set) => mark = set.checked_sub(MARK),
            RuleAttribute::Table(set) => table = set.checked_sub(TABLE),
            _ => {}
        }
    }
    mark.filter(|mark| Some(*mark) == table)
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::route::{RouteAddress, RouteNextHop};

    use super::*;

    fn route(protocol: RouteProtocol, by: u32) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.kind = RouteType::Unicast;
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        route.header.protocol = protocol;
        route.header.destination_prefix_length = 24;
        route.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet([10, 9, 0, 0].into())),
            RouteAttribute::Table(254),
            RouteAttribute::Oif(by),
        ];
        route
    }

    #[test]
    fn mx8_connections_take_every_route_of_their_link_and_no_other() {
        assert!(way(route(RouteProtocol::Static, 4), 4).is_some());
        assert!(way(route(RouteProtocol::Kernel, 4), 4).is_some());
        assert!(way(route(RouteProtocol::Ra, 4), 4).is_some());
        assert!(way(route(RouteProtocol::Static, 5), 4).is_none());
        for made_here in [MOVED, OURS] {
            assert!(way(route(made_here, 4), 4).is_none());
        }
        let mut broadcast = route(RouteProtocol::Kernel, 4);
        broadcast.header.kind = RouteType::Broadcast;
        assert!(way(broadcast, 4).is_none());
    }

    #[test]
    fn mx8_of_a_route_over_several_links_the_one_hop_counts() {
        let mut several = route(RouteProtocol::Static, 4);
        several.attributes.pop();
        let hops = [(4, 1), (5, 2)].map(|(index, last)| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            let router = RouteAddress::Inet([10, 9, 0, last].into());
            hop.attributes = vec![RouteAttribute::Gateway(router)];
            hop
        });
        several
            .attributes
            .push(RouteAttribute::MultiPath(hops.into()));
        assert!(way(several.clone(), 6).is_none());
        let moved = in_table(through(&way(several, 5).unwrap(), 9, OURS), TABLE);
        assert_eq!(gateway(&moved.attributes), Some([10, 9, 0, 2].into()));
        assert!(moved.attributes.contains(&RouteAttribute::Oif(9)));
        assert_eq!(id(&moved), TABLE);
        assert!(!same(&moved, &in_table(route(OURS, 9), TABLE)));
    }

    #[test]
    fn mx8_a_rule_is_known_by_its_mark_and_table() {
        let mut rule = RuleMessage::default();
        rule.attributes = vec![
            RuleAttribute::Protocol(OURS),
            RuleAttribute::FwMark(mark(3)),
            RuleAttribute::Table(TABLE + 3),
        ];
        assert!(is_ours(&rule));
        assert_eq!(number(&rule), Some(3));
        rule.attributes[2] = RuleAttribute::Table(TABLE);
        assert_eq!(number(&rule), None, "an earlier run's");
    }
}
