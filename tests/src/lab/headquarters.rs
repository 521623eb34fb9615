//! The machines of the tunnels' lab:
//!
//! ```text
//! client ── voice0 ┐            ┌ under0 ═══ hq-a (br0: tunnel, core; dnsmasq) ┐
//!                  ├── gateway ─┤                                              ├─ hq (br0)
//! speaker ─(L2)────┘            └ under1 ═══ hq-b (br0: tunnel, core; Kea)    ─┘
//! ```
//!
//! Behind both concentrators lies one network, whose switch learns where a client is. Each
//! concentrator keeps DHCP on its own side: a server answers through its own tunnel only.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::{Cell, Node, wait};

/// The network behind the tunnels.
pub const NET: &str = "10.9.0";
/// The machine at the headquarters.
pub const HQ: &str = "10.9.0.10";
/// One that listens, and never speaks of its own accord.
pub const SPEAKER: &str = "10.9.0.30";

/// Keeps DHCP from crossing between the concentrators.
const WALL: &str = "table bridge wall {
  chain forward { type filter hook forward priority 0; udp dport { 67, 68 } drop; }
  chain out { type filter hook output priority 0; oifname core udp dport { 67, 68 } drop; }
}";

/// All machines.
pub struct Headquarters {
    /// The gateway: `voice0` is the segment's client side, `hq0` and `hq1` are the tunnels,
    /// `under0` and `under1` the cables below them.
    pub gw: Node,
    /// A phone side: `eth0`, without an address until it has a lease.
    pub client: Node,
    /// The one that only listens, behind the client's cable: `eth0`.
    pub speaker: Node,
    /// Both concentrators, the primary first: `eth0` is the cable, `in0` or `in1` the tunnel.
    pub concentrators: [Node; 2],
    /// The headquarters: `br0`.
    pub hq: Node,
    /// The far ends of the gateway's LAN and WAN.
    _beyond: Vec<Node>,
}

impl Headquarters {
    /// Raises all of them.
    ///
    /// # Errors
    /// When not root.
    pub fn raise() -> Result<Self> {
        let cell = Arc::new(Cell::new()?);
        let node = |name: &str| -> Result<Node> {
            let node = Node::new(name, &cell)?;
            // Its router discovery would be traffic that nobody asked for.
            node.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
            Ok(node)
        };
        let mut gw = node("gw")?;
        let mut hq = node("hq")?;
        let mut client = node("client")?;
        let speaker = node("speaker")?;
        Node::cable((&mut client, "eth0"), (&mut gw, "voice0"))?;
        // Room for the tunnels' headers.
        client.ip("link set eth0 mtu 1400 up")?;
        gw.ip("link set voice0 mtu 1400 up")?;
        let there = speaker.net().path();
        client.ip(&format!(
            "link add link eth0 name mv0 netns {there} type macvlan mode bridge"
        ))?;
        speaker.ip("link set mv0 name eth0 up")?;
        speaker.ip(&format!("addr add {SPEAKER}/24 dev eth0"))?;
        hq.ip("link add br0 type bridge")?;
        hq.ip(&format!("addr add {HQ}/24 dev br0"))?;
        hq.ip("link set br0 up")?;
        let mut beyond = Vec::new();
        for (name, net) in [("lan0", "10.1.0"), ("wan0", "192.0.2")] {
            // Nobody is there: SIP is not what this lab is about.
            let mut far = node(name)?;
            Node::cable((&mut gw, name), (&mut far, "eth0"))?;
            gw.ip(&format!("link set {name} up"))?;
            gw.ip(&format!("addr add {net}.1/24 dev {name}"))?;
            beyond.push(far);
        }
        let mut concentrators = [node("hq-a")?, node("hq-b")?];
        for (n, far) in concentrators.iter_mut().enumerate() {
            concentrator(&mut gw, far, &mut hq, n)?;
        }
        for node in concentrators.iter().chain([&hq]) {
            // A bridge or port without carrier loses what it is given.
            wait::until("the bridges carry", Duration::from_secs(10), || {
                let links = node.ip("-o link show").ok()?;
                let works = |line: &str| line.contains("LOWER_UP") && !line.contains("DOWN ");
                links.lines().all(works).then_some(())
            })?;
        }
        Ok(Self {
            gw,
            client,
            speaker,
            concentrators,
            hq,
            _beyond: beyond,
        })
    }

    /// Makes the gateway's end of a tunnel, which was deleted, anew.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn tunnel_anew(&self, n: usize) -> Result<()> {
        vxlan(&self.gw, n, &format!("hq{n}"), (1, 2))
    }
}

/// One end of tunnel `n`; `ours` and `theirs` are the last numbers of the cable's addresses.
fn vxlan(node: &Node, n: usize, name: &str, (ours, theirs): (u8, u8)) -> Result<()> {
    let net = format!("172.16.{n}");
    node.ip(&format!(
        "link add {name} type vxlan id {} local {net}.{ours} remote {net}.{theirs} dstport 4789",
        10 + n
    ))?;
    node.ip(&format!("link set {name} up")).map(drop)
}

/// Cable, tunnel and bridge of one concentrator.
fn concentrator(gw: &mut Node, far: &mut Node, hq: &mut Node, n: usize) -> Result<()> {
    let (under, inside) = (format!("under{n}"), format!("in{n}"));
    Node::cable((gw, &under), (far, "eth0"))?;
    for (node, name, host) in [(&*gw, under.as_str(), 1), (&*far, "eth0", 2)] {
        node.ip(&format!("link set {name} up"))?;
        node.ip(&format!("addr add 172.16.{n}.{host}/24 dev {name}"))?;
    }
    vxlan(gw, n, &format!("hq{n}"), (1, 2))?;
    vxlan(far, n, &inside, (2, 1))?;
    let port = format!("port{n}");
    Node::cable((far, "core"), (hq, &port))?;
    far.ip("link add br0 type bridge")?;
    for member in [inside.as_str(), "core"] {
        far.ip(&format!("link set {member} master br0 up"))?;
    }
    far.ip(&format!("addr add {NET}.{}/24 dev br0", n + 1))?;
    far.ip("link set br0 up")?;
    far.run("nft", &[WALL])?;
    hq.ip(&format!("link set {port} master br0 up"))?;
    Ok(())
}
