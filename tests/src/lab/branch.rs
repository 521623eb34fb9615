//! The branch office that demo and tests play in.
//!
//! ```text
//!  phones 10.99.1.11..   gw               carrier (two switches)            softswitches
//!  eth0 ───────────── lan0 wan0 ── access ══ r1 ══ core ── eth0 ss1 eth1 ─┐ location table
//!                    .1.1  .2.1            ══ r2 ══      ── eth0 ss2 eth1 ─┘ shared over
//!                                                        ── eth0 far         10.99.20.0/24
//! ```
//! access is 10.99.2.0/24 (routers .251 and .252), core is 10.99.10.0/24 (routers .251, .252,
//! softswitches .1 and .2, phones of other offices from .100). The gateway does not forward
//! in the kernel: what crosses it went through its XDP programs or its daemon.

use std::sync::Arc;

use anyhow::Result;

use super::{Cell, Node};

/// LAN address of the gateway.
pub const GATEWAY_LAN: &str = "10.99.1.1";
/// WAN address of the gateway.
pub const GATEWAY_WAN: &str = "10.99.2.1";
/// The two softswitches, in priority order.
pub const SOFTSWITCHES: [&str; 2] = ["10.99.10.1", "10.99.10.2"];
/// Their addresses of IPv6, where a test gives them some.
pub const SOFTSWITCHES_V6: [&str; 2] = ["2001:db8:10::1", "2001:db8:10::2"];
/// The WAN routers, as the gateway sees them.
pub const ROUTERS: [&str; 2] = ["10.99.2.251", "10.99.2.252"];
/// Phones on the LAN: that many addresses are there.
pub const PHONES: u8 = 30;
/// Phones of other offices, on the far side of the WAN.
pub const FAR_PHONES: u8 = 30;

/// The machines.
pub struct Branch {
    /// All phones of the branch, one address each.
    pub phones: Node,
    /// The gateway: `lan0`, `wan0`.
    pub gw: Node,
    /// The carrier's two switches, `access` and `core`.
    pub carrier: Node,
    /// Two routers between them.
    pub routers: [Node; 2],
    /// The softswitches' machines.
    pub softswitches: [Node; 2],
    /// Phones of other offices.
    pub far: Node,
    cell: Arc<Cell>,
}

impl Branch {
    /// Raises it: everything cabled, addressed and up, nothing running.
    ///
    /// # Errors
    /// When not root, or when a tool is missing.
    pub fn raise() -> Result<Self> {
        let cell = Arc::new(Cell::new()?);
        let node = |name: &str| Node::new(name, &cell);
        let mut branch = Self {
            phones: node("phones")?,
            gw: node("gw")?,
            carrier: node("carrier")?,
            routers: [node("r1")?, node("r2")?],
            softswitches: [node("ss1")?, node("ss2")?],
            far: node("far")?,
            cell: Arc::clone(&cell),
        };
        branch.cable()?;
        branch.address()?;
        Ok(branch)
    }

    /// Address of the LAN phone with this index.
    ///
    /// # Panics
    /// When there are fewer phones.
    #[must_use]
    pub fn phone(index: u8) -> String {
        assert!(index < PHONES, "no phone {index}");
        format!("10.99.1.{}", 11 + index)
    }

    /// Address of the far phone with this index.
    ///
    /// # Panics
    /// When there are fewer phones.
    #[must_use]
    pub fn far_phone(index: u8) -> String {
        assert!(index < FAR_PHONES, "no far phone {index}");
        format!("10.99.10.{}", 100 + index)
    }

    /// The cell that everything lives in.
    #[must_use]
    pub fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// Every machine, by name.
    #[must_use]
    pub fn nodes(&self) -> Vec<&Node> {
        let mut nodes = vec![&self.phones, &self.gw, &self.carrier, &self.far];
        nodes.extend(self.routers.iter().chain(&self.softswitches));
        nodes
    }

    /// Sends the gateway's WAN traffic, both ways, by the router with this index.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn route_by(&self, router: usize) -> Result<()> {
        self.gw
            .ip(&format!("route replace default via {}", ROUTERS[router]))?;
        for node in self.softswitches.iter().chain([&self.far]) {
            node.ip(&format!(
                "route replace default via 10.99.10.{}",
                251 + router
            ))?;
        }
        Ok(())
    }

    /// A machine more on the LAN: with an Ethernet address of its own, where `phones` has one for
    /// all its addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn guest(&self, address: &str) -> Result<Node> {
        let guest = Node::new("guest", &self.cell)?;
        let there = guest.net().path();
        self.phones.ip(&format!(
            "link add link eth0 name mv0 netns {there} type macvlan mode bridge"
        ))?;
        guest.ip("link set mv0 name eth0")?;
        guest.run("ethtool", &["-K", "eth0", "tx", "off"])?;
        up(&guest, "eth0", &format!("{address}/24"))?;
        Ok(guest)
    }

    /// The gateway is the phones' router, for whatever is not on the LAN.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn phones_route(&self) -> Result<()> {
        let route = format!("route replace default via {GATEWAY_LAN}");
        self.phones.ip(&route).map(drop)
    }

    /// The gateway forwards as a router does, and the far side knows the way back to phones:
    /// nothing hides their addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn routes_both_ways(&self) -> Result<()> {
        self.gw.sysctl("net.ipv4.ip_forward", "1")?;
        for router in &self.routers {
            router.ip(&format!("route replace 10.99.1.0/24 via {GATEWAY_WAN}"))?;
        }
        Ok(())
    }

    fn cable(&mut self) -> Result<()> {
        for bridge in ["access", "core"] {
            self.carrier
                .ip(&format!("link add {bridge} type bridge forward_delay 0"))?;
            self.carrier.ip(&format!("link set {bridge} up"))?;
        }
        Node::cable((&mut self.phones, "eth0"), (&mut self.gw, "lan0"))?;
        self.phones.as_test_host("eth0")?;
        plug(&mut self.gw, "wan0", &mut self.carrier, "access", "a-gw")?;
        for (router, port) in self.routers.iter_mut().zip(["1", "2"]) {
            plug(
                router,
                "eth0",
                &mut self.carrier,
                "access",
                &format!("a-r{port}"),
            )?;
            plug(
                router,
                "eth1",
                &mut self.carrier,
                "core",
                &format!("c-r{port}"),
            )?;
        }
        let [ss1, ss2] = &mut self.softswitches;
        for (softswitch, port) in [(&mut *ss1, "c-ss1"), (&mut *ss2, "c-ss2")] {
            plug(softswitch, "eth0", &mut self.carrier, "core", port)?;
            softswitch.as_test_host("eth0")?;
        }
        Node::cable((ss1, "eth1"), (ss2, "eth1"))?;
        plug(&mut self.far, "eth0", &mut self.carrier, "core", "c-far")?;
        self.far.as_test_host("eth0")
    }

    fn address(&self) -> Result<()> {
        for index in 0..PHONES {
            self.phones
                .ip(&format!("address add {}/24 dev eth0", Self::phone(index)))?;
        }
        for index in 0..FAR_PHONES {
            self.far.ip(&format!(
                "address add {}/24 dev eth0",
                Self::far_phone(index)
            ))?;
        }
        self.phones.ip("link set eth0 up")?;
        self.far.ip("link set eth0 up")?;
        up(&self.gw, "lan0", &format!("{GATEWAY_LAN}/24"))?;
        up(&self.gw, "wan0", &format!("{GATEWAY_WAN}/24"))?;
        self.gw.sysctl("net.ipv4.ip_forward", "0")?;
        for (index, router) in self.routers.iter().enumerate() {
            up(router, "eth0", &format!("{}/24", ROUTERS[index]))?;
            up(router, "eth1", &format!("10.99.10.{}/24", 251 + index))?;
            router.sysctl("net.ipv4.ip_forward", "1")?;
            // Redirects would teach hosts a way around the router under test.
            router.sysctl("net.ipv4.conf.all.send_redirects", "0")?;
        }
        for (index, softswitch) in self.softswitches.iter().enumerate() {
            up(softswitch, "eth0", &format!("{}/24", SOFTSWITCHES[index]))?;
            up(softswitch, "eth1", &format!("10.99.20.{}/24", index + 1))?;
        }
        self.route_by(0)
    }
}

/// A cable from a machine's interface to a switch port.
fn plug(
    node: &mut Node,
    interface: &str,
    carrier: &mut Node,
    bridge: &str,
    port: &str,
) -> Result<()> {
    Node::cable((node, interface), (carrier, port))?;
    carrier.as_test_host(port)?;
    carrier.ip(&format!("link set {port} master {bridge}"))?;
    carrier.ip(&format!("link set {port} up")).map(drop)
}

fn up(node: &Node, interface: &str, address: &str) -> Result<()> {
    node.ip(&format!("address add {address} dev {interface}"))?;
    node.ip(&format!("link set {interface} up")).map(drop)
}
