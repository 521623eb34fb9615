//! The network as the kernel has it, followed: MAC, route, address and neighbour changes.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use keepline::netlink::{LinkResolver, NetChange, Netlink};
use keepline::steer::resolver::Resolver as _;
use keepline_engine::net::LinkId;
use keepline_tests::lab::{Cell, Node};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::mpsc::Receiver;

const LIMIT: Duration = Duration::from_secs(10);
const FAR: &str = "10.99.9.9";

struct Net {
    netlink: Netlink,
    changes: Receiver<NetChange>,
    resolver: LinkResolver,
}

impl Net {
    async fn watch() -> Result<Self> {
        let (netlink, changes) = Netlink::start().await?;
        let resolver = LinkResolver::new(netlink.clone(), vec!["wan0".to_owned()]);
        Ok(Self {
            netlink,
            changes,
            resolver,
        })
    }

    async fn wait(&mut self, what: &str, wanted: impl Fn(&NetChange) -> bool) -> Result<NetChange> {
        let search = async {
            loop {
                let change = self.changes.recv().await.context("the watcher ended")?;
                if wanted(&change) {
                    return Ok(change);
                }
            }
        };
        tokio::time::timeout(LIMIT, search)
            .await
            .with_context(|| format!("no change: {what}"))?
    }

    /// Waits until routes changed so that FAR is reached over this router.
    async fn wait_next_hop(&mut self, router: &str) -> Result<()> {
        let (far, router): (IpAddr, IpAddr) = (FAR.parse()?, router.parse()?);
        loop {
            self.wait("routes", |c| *c == NetChange::Routes).await?;
            let route = self.resolver.resolve(LinkId(0), far);
            if route.is_some_and(|route| route.next_hop == router) {
                return Ok(());
            }
        }
    }

    async fn wait_mac(&mut self, of: &str, mac: Option<[u8; 6]>) -> Result<()> {
        let of: IpAddr = of.parse()?;
        let wanted = |change: &NetChange| matches!(change, NetChange::Neighbour { ip, mac: m, .. } if *ip == of && *m == mac);
        self.wait("a neighbour's MAC", wanted).await.map(drop)
    }
}

/// A gateway and a router on one cable; `test` runs in the gateway's network.
fn with_router(test: impl AsyncFnOnce(Net, Cable) -> Result<()> + Send) -> Result<()> {
    let cell = Arc::new(Cell::new()?);
    let (mut gateway, mut router) = (Node::new("gateway", &cell)?, Node::new("router", &cell)?);
    Node::cable((&mut gateway, "wan0"), (&mut router, "lan0"))?;
    router.ip("link set lan0 address 02:00:00:00:00:01")?;
    router.ip("addr add 10.99.1.1/24 dev lan0")?;
    router.ip("addr add 10.99.1.2/24 dev lan0")?;
    router.ip("link set lan0 up")?;
    gateway.ip("addr add 10.99.1.10/24 dev wan0")?;
    gateway.ip("link set wan0 up")?;
    gateway.ip("route add default via 10.99.1.1")?;
    let file = File::open(gateway.net().path())?;
    let cable = Cable { gateway, router };
    let inside = std::thread::scope(|scope| {
        let work = scope.spawn(move || -> Result<()> {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            // One thread: a namespace belongs to a thread.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async { test(Net::watch().await?, cable).await })
        });
        work.join()
    });
    inside.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Cable {
    gateway: Node,
    router: Node,
}

#[test]
fn a_neighbour_is_managed_and_its_new_mac_is_told() -> Result<()> {
    with_router(async |mut net: Net, cable: Cable| {
        let far = FAR.parse()?;
        let route = net.resolver.resolve(LinkId(0), far).context("a route")?;
        assert_eq!(route.next_hop, "10.99.1.1".parse::<IpAddr>()?);
        assert_eq!(route.source, "10.99.1.10".parse::<IpAddr>()?);
        net.wait_mac("10.99.1.1", Some([2, 0, 0, 0, 0, 1])).await?;
        let neighbours = cable.gateway.ip("neigh show 10.99.1.1 dev wan0")?;
        assert!(neighbours.contains("managed"), "{neighbours}");

        cable.router.ip("link set lan0 address 02:00:00:00:00:02")?;
        // The router asks for the gateway, and so shows its new MAC.
        cable
            .router
            .udp("10.99.1.1:0")?
            .send_to(b"hello", "10.99.1.10:9")?;
        net.wait_mac("10.99.1.1", Some([2, 0, 0, 0, 0, 2])).await?;
        let route = net.resolver.resolve(LinkId(0), far).context("a route")?;
        assert_eq!(route.next_hop_mac, Some([2, 0, 0, 0, 0, 2]));
        Ok(())
    })
}

#[test]
fn a_flushed_neighbour_is_managed_again() -> Result<()> {
    with_router(async |mut net: Net, cable: Cable| {
        net.resolver
            .resolve(LinkId(0), FAR.parse()?)
            .context("a route")?;
        net.wait_mac("10.99.1.1", Some([2, 0, 0, 0, 0, 1])).await?;
        // The kernel calls a flushed entry failed before it drops it.
        cable.gateway.ip("neigh flush dev wan0")?;
        net.wait_mac("10.99.1.1", None).await?;
        net.wait_mac("10.99.1.1", Some([2, 0, 0, 0, 0, 1])).await?;
        let neighbours = cable.gateway.ip("neigh show 10.99.1.1 dev wan0")?;
        assert!(neighbours.contains("managed"), "{neighbours}");
        Ok(())
    })
}

#[test]
fn a_silent_neighbour_fails() -> Result<()> {
    with_router(async |mut net: Net, cable: Cable| {
        net.resolver
            .resolve(LinkId(0), FAR.parse()?)
            .context("a route")?;
        net.wait_mac("10.99.1.1", Some([2, 0, 0, 0, 0, 1])).await?;
        cable
            .gateway
            .sysctl("net.ipv4.neigh.wan0.base_reachable_time_ms", "1000")?;
        cable.router.ip("addr del 10.99.1.1/24 dev lan0")?;
        // Makes the kernel ask now rather than when the entry has become stale.
        cable
            .gateway
            .ip("neigh change 10.99.1.1 dev wan0 nud probe")?;
        net.wait_mac("10.99.1.1", None).await
    })
}

#[test]
fn a_route_to_a_second_router_is_told() -> Result<()> {
    with_router(async |mut net: Net, cable: Cable| {
        cable.gateway.ip("route replace default via 10.99.1.2")?;
        net.wait_next_hop("10.99.1.2").await
    })
}

#[test]
fn a_new_address_replaces_the_old_as_source() -> Result<()> {
    with_router(async |mut net: Net, cable: Cable| {
        cable.gateway.ip("addr add 10.99.2.10/24 dev wan0")?;
        cable.gateway.ip("addr del 10.99.1.10/24 dev wan0")?;
        let new: IpAddr = "10.99.2.10".parse()?;
        net.wait("only the new address", |c| {
            matches!(c, NetChange::Address { addresses, .. }
                if addresses.iter().any(|a| a.0 == new) && addresses.iter().all(|a| a.0.is_ipv6() || a.0 == new))
        })
        .await?;
        // The kernel keeps the default route: what leaves has the new address at once.
        let route = net
            .resolver
            .resolve(LinkId(0), FAR.parse()?)
            .context("a route")?;
        assert_eq!(route.source, new);
        cable.gateway.ip("route replace default via 10.99.2.1")?;
        net.wait_next_hop("10.99.2.1").await?;
        let route = net
            .resolver
            .resolve(LinkId(0), FAR.parse()?)
            .context("a route")?;
        assert_eq!((route.source, route.next_hop), (new, "10.99.2.1".parse()?));
        Ok(())
    })
}

#[test]
fn a_link_that_goes_down_takes_its_routes_along() -> Result<()> {
    with_router(async |mut net: Net, cable: Cable| {
        cable.router.ip("link set lan0 down")?;
        net.wait(
            "the link",
            |c| matches!(c, NetChange::Link { name, up: false, .. } if name == "wan0"),
        )
        .await?;
        assert_eq!(net.resolver.resolve(LinkId(0), FAR.parse()?), None);
        let own = net
            .netlink
            .table()
            .link_of_address("10.99.1.10".parse()?)
            .map(|(i, _)| i);
        assert!(own.is_some(), "its address stays");
        assert!(
            net.resolver
                .resolve(LinkId(0), "10.99.1.10".parse()?)
                .context("ours")?
                .local
        );
        Ok(())
    })
}
