//! Kernel routes that leave through a tunnel move with it, and come back (MX8).
//!
//! Every route of a tunnel's device that the kernel did not make by itself is replaced by the
//! same one through the device that carries it; one that was moved is marked by its protocol
//! number, so that the next run of the daemon finds it. A link that goes down takes its routes
//! along: they are remembered from the last look while all was well.

use std::{collections::HashMap, net::IpAddr};

use rtnetlink::{
    Handle,
    packet_route::route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol,
        RouteType,
    },
};
use tokio::sync::mpsc;

use super::egress::{self, Egress};
use crate::netlink::{Netlink, gateway, ip};

/// The protocol number of routes that were moved here (rtnetlink(7): above `RTPROT_STATIC`, for
/// the administrator to know whose they are).
pub(super) const MOVED: RouteProtocol = RouteProtocol::Other(75);

/// What to do, in order.
#[derive(Debug)]
enum Task {
    /// Look at the routes of these devices, all of which are up.
    Look(Vec<String>),
    /// The routes of `home` go from one device to the other.
    Turn {
        home: String,
        from: String,
        to: String,
    },
    /// The routes of these devices, which are up, may be others.
    Follow(Vec<String>),
    /// Routes that an earlier run moved to another of these devices go to the first.
    Home(Vec<String>),
}

/// Moves routes, in a task of its own.
#[derive(Debug)]
pub struct Routes {
    tasks: mpsc::UnboundedSender<Task>,
    /// Connections can be led by their mark.
    marks: bool,
}

impl Routes {
    /// Starts. These interfaces of tunnels are the gateway's own too: its connections follow their
    /// routes. Needs a tokio runtime.
    ///
    /// # Errors
    /// When there is no netlink.
    pub async fn start(netlink: Netlink, homes: Vec<String>) -> std::io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        let egress = Egress::begin(handle.clone(), netlink.clone(), homes).await;
        if let Err(error) = &egress {
            tracing::warn!(
                %error,
                "no routing rules: connections over tunnels are bound to one, and end where a \
                 neighbour sends by another"
            );
        }
        let (tasks, todo) = mpsc::unbounded_channel();
        let mover = Mover {
            handle,
            netlink,
            seen: HashMap::new(),
            away: HashMap::new(),
            egress: egress.ok(),
        };
        let marks = mover.egress.is_some();
        tokio::spawn(mover.run(todo));
        Ok(Self { tasks, marks })
    }

    /// The mark that leads connections by the interface with this number, whatever carries it;
    /// `None` where the kernel cannot.
    #[must_use]
    pub fn mark(&self, home: u16) -> Option<u32> {
        self.marks.then(|| egress::mark(home))
    }

    /// Has connections over these tunnels follow the routes; call it when routes changed, with
    /// those that are up.
    pub(super) fn follow(&self, devices: Vec<String>) {
        let _ = self.tasks.send(Task::Follow(devices));
    }

    /// Remembers the routes of these devices; call it when routes changed and all are up.
    pub(super) fn look(&self, devices: Vec<String>) {
        let _ = self.tasks.send(Task::Look(devices));
    }

    /// Moves the routes of `home` from the device that carried them to another.
    pub(super) fn turn(&self, home: &str, from: &str, to: &str) {
        let _ = self.tasks.send(Task::Turn {
            home: home.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
        });
    }

    /// Brings home what an earlier run left on other devices than the first.
    pub(super) fn home(&self, devices: Vec<String>) {
        let _ = self.tasks.send(Task::Home(devices));
    }
}

struct Mover {
    handle: Handle,
    netlink: Netlink,
    /// The routes of a device when it was looked at last.
    seen: HashMap<String, Vec<RouteMessage>>,
    /// The routes of a device that others carry now, as they were at home.
    away: HashMap<String, Vec<RouteMessage>>,
    egress: Option<Egress>,
}

impl Mover {
    async fn run(mut self, mut todo: mpsc::UnboundedReceiver<Task>) {
        while let Some(task) = todo.recv().await {
            match task {
                Task::Look(devices) => self.look(devices).await,
                Task::Turn { home, from, to } => {
                    if let Some(egress) = &self.egress {
                        egress.lead(&home, &to).await;
                    }
                    self.turn(home, &from, &to).await;
                }
                Task::Follow(devices) => self.follow(devices).await,
                Task::Home(devices) => self.bring_home(&devices).await,
            }
        }
    }

    async fn look(&mut self, devices: Vec<String>) {
        for device in devices {
            if !self.away.contains_key(&device)
                && let Some(routes) = self.of(&device).await
            {
                self.seen.insert(device, routes);
            }
        }
    }

    async fn follow(&mut self, mut devices: Vec<String>) {
        devices.retain(|device| !self.away.contains_key(device));
        let Some(egress) = &mut self.egress else {
            return;
        };
        if let Err(error) = egress.rules().await {
            tracing::warn!(%error, "routing rules cannot be looked at");
        }
        for device in devices {
            egress.follow(&device).await;
        }
    }

    async fn turn(&mut self, home: String, from: &str, to: &str) {
        let originals = match self.away.remove(&home) {
            Some(routes) => routes,
            None => {
                let now = self.of(from).await.unwrap_or_default();
                let before = self.seen.get(&home).cloned().unwrap_or_default();
                // A link that went down has lost them already.
                if now.is_empty() { before } else { now }
            }
        };
        for route in &originals {
            if to == home {
                self.put(route, to, route.header.protocol).await;
            } else {
                let route = self.speaking_from(route, &home);
                self.put(&route, to, MOVED).await;
            }
        }
        if to != home {
            self.away.insert(home, originals);
        }
    }

    async fn bring_home(&mut self, devices: &[String]) {
        let Some((first, others)) = devices.split_first() else {
            return;
        };
        for device in others {
            for route in self.on(device).await.unwrap_or_default() {
                if route.header.protocol == MOVED {
                    // What made it is not known any more.
                    self.put(&route, first, RouteProtocol::Static).await;
                }
            }
        }
    }

    /// The route with the source address that it has at home: elsewhere the kernel would choose
    /// another, and what is under way by TCP would end.
    fn speaking_from(&self, route: &RouteMessage, home: &str) -> RouteMessage {
        let mut route = route.clone();
        let named = |a: &RouteAttribute| matches!(a, RouteAttribute::PrefSource(_));
        let table = self.netlink.table();
        let source = table
            .link_by_name(home)
            .and_then(|(_, link)| link.source_for(neighbour(&route)?));
        if let Some(source) = source.filter(|_| !route.attributes.iter().any(named)) {
            let source = match source {
                IpAddr::V4(v4) => RouteAddress::Inet(v4),
                IpAddr::V6(v6) => RouteAddress::Inet6(v6),
            };
            route.attributes.push(RouteAttribute::PrefSource(source));
        }
        route
    }

    /// The device's own routes: no other tunnel's, and none that the kernel made.
    async fn of(&self, device: &str) -> Option<Vec<RouteMessage>> {
        let mut routes = self.on(device).await?;
        routes.retain(|route| route.header.protocol != MOVED);
        Some(routes)
    }

    /// All routes of a device that the kernel did not make by itself.
    async fn on(&self, device: &str) -> Option<Vec<RouteMessage>> {
        let index = self.index(device)?;
        let all = egress::all(&self.handle).await.into_iter();
        let movable = all.filter(|route| movable(route, index) && !egress::is_copy(route));
        Some(movable.collect())
    }

    async fn put(&self, route: &RouteMessage, device: &str, protocol: RouteProtocol) {
        let Some(index) = self.index(device) else {
            return tracing::warn!(device, "no such device: a route does not move there");
        };
        let moved = through(route, index, protocol);
        let request = self.handle.route().add(moved).replace();
        match request.execute().await {
            Ok(()) => tracing::info!(route = told(route), device, "route moved"),
            Err(error) => tracing::warn!(%error, route = told(route), device, "route not moved"),
        }
    }

    fn index(&self, device: &str) -> Option<u32> {
        self.netlink
            .table()
            .link_by_name(device)
            .map(|(index, _)| index)
    }
}

/// A unicast route through this device alone that somebody set: an administrator or a daemon.
fn movable(route: &RouteMessage, index: u32) -> bool {
    let made_by_the_kernel = matches!(
        route.header.protocol,
        RouteProtocol::Kernel | RouteProtocol::IcmpRedirect | RouteProtocol::Ra
    );
    route.header.kind == RouteType::Unicast
        && !made_by_the_kernel
        && !route.header.flags.contains(RouteFlags::Cloned)
        && route.attributes.contains(&RouteAttribute::Oif(index))
}

/// The same route through another device. Its gateway is a neighbour there too, whether or not
/// that device has an address of its network.
pub(super) fn through(route: &RouteMessage, index: u32, protocol: RouteProtocol) -> RouteMessage {
    let mut moved = RouteMessage::default();
    let routed =
        |a: &RouteAttribute| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_));
    moved.header = RouteHeader {
        protocol,
        flags: if route.attributes.iter().any(routed) {
            RouteFlags::Onlink
        } else {
            RouteFlags::empty()
        },
        ..route.header.clone()
    };
    let kept = |attribute: &&RouteAttribute| {
        matches!(
            attribute,
            RouteAttribute::Destination(_)
                | RouteAttribute::Gateway(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::Priority(_)
                | RouteAttribute::PrefSource(_)
                | RouteAttribute::Metrics(_)
                | RouteAttribute::Table(_)
        )
    };
    moved.attributes = route.attributes.iter().filter(kept).cloned().collect();
    moved.attributes.push(RouteAttribute::Oif(index));
    moved
}

/// Who is next on the way: the gateway, else an address of the destination.
fn neighbour(route: &RouteMessage) -> Option<IpAddr> {
    gateway(&route.attributes).or_else(|| destination(route))
}

pub(super) fn destination(route: &RouteMessage) -> Option<IpAddr> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(to) => ip(to),
            _ => None,
        })
}

fn told(route: &RouteMessage) -> String {
    let to = destination(route).map_or("default".to_owned(), |to| to.to_string());
    format!("{to}/{}", route.header.destination_prefix_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(protocol: RouteProtocol) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.kind = RouteType::Unicast;
        route.header.protocol = protocol;
        route.header.destination_prefix_length = 16;
        route.header.flags = RouteFlags::Linkdown;
        route.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet([10, 77, 0, 0].into())),
            RouteAttribute::Gateway(RouteAddress::Inet([10, 9, 0, 10].into())),
            RouteAttribute::Priority(7),
            RouteAttribute::Oif(4),
            RouteAttribute::Uid(0),
        ];
        route
    }

    #[test]
    fn mx8_only_routes_that_somebody_set_through_that_device_move() {
        assert!(movable(&route(RouteProtocol::Static), 4));
        assert!(movable(&route(RouteProtocol::Bird), 4));
        assert!(!movable(&route(RouteProtocol::Static), 5), "another device");
        assert!(!movable(&route(RouteProtocol::Kernel), 4));
        assert!(!movable(&route(RouteProtocol::Ra), 4));
    }

    #[test]
    fn mx8_a_moved_route_differs_in_device_and_mark_alone() {
        let before = route(RouteProtocol::Static);
        let moved = through(&before, 9, MOVED);
        assert_eq!(moved.header.protocol, MOVED);
        assert_eq!(moved.header.flags, RouteFlags::Onlink);
        assert!(moved.attributes.contains(&RouteAttribute::Oif(9)));
        assert!(moved.attributes.contains(&RouteAttribute::Priority(7)));
        assert!(!moved.attributes.contains(&RouteAttribute::Oif(4)));
        assert!(!moved.attributes.contains(&RouteAttribute::Uid(0)));
        let home = through(&before, 4, before.header.protocol);
        assert_eq!(home.header.protocol, RouteProtocol::Static);
        assert_eq!(told(&before), "10.77.0.0/16");
    }
}
