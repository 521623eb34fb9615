//! The policy in TC on skbs as devices make them: tags in the skb, checksums left to be completed.
//! The other ends verify checksums.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use aya::{
    Ebpf,
    programs::{LinkOrder, TcAttachType, tc::TcAttachOptions},
};
use keepline::{
    fastpath::{
        Options,
        maps::Maps,
        object::{self, Sizes},
    },
    steer::{LinkPlace, Steer, resolver::Route},
    tunnel::packet::PacketSocket,
};
use keepline_common::reason::Reason;
use keepline_engine::{
    net::{LinkId, ListenerId},
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use keepline_tests::{
    fixture::{
        self, FakeResolver, flow,
        packet::{Udp, stun},
        site::{index, mac},
    },
    lab::{Capture, Cell, Node},
};

const LIMIT: Duration = Duration::from_secs(10);
const CLIENT: &str = "10.50.0.20";
const GATEWAY: &str = "10.50.0.254";
const RTP: &[u8] = &[0x80, 0, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4, 9, 9, 9, 9];

/// Where media goes: destination, our address there, and its tags.
const WAYS: [(&str, &str, [u16; 2]); 4] = [
    ("10.60.0.2", "10.60.0.1", [0, 0]),
    ("fd00:60::2", "fd00:60::1", [0, 0]),
    ("10.60.0.3", "10.60.0.1", [7, 0]),
    ("10.60.0.4", "10.60.0.1", [7, 8]),
];

/// A client, the gateway with the twin on its cable to the client, and a far end behind another.
struct Site {
    client: Node,
    gw: Node,
    far: Node,
}

/// The twin at work.
struct Twin {
    // The link lives as long as the object.
    _ebpf: Ebpf,
    steer: Steer<Maps, FakeResolver>,
    ifindex: u32,
}

impl Twin {
    fn counted(&self, reason: Reason) -> Result<u64> {
        let all = self.steer.tables().counters()?;
        let of = all.into_iter().find(|(index, _)| *index == self.ifindex);
        Ok(of.context("no counters")?.1[reason as usize])
    }
}

fn raise() -> Result<Site> {
    let cell = Arc::new(Cell::new()?);
    let node = |name: &str| Node::new(name, &cell);
    let (mut client, mut gw, mut far) = (node("client")?, node("gateway")?, node("far")?);
    Node::cable((&mut client, "eth0"), (&mut gw, "voice0"))?;
    Node::cable((&mut gw, "w0"), (&mut far, "eth0"))?;
    for (node, device, addresses) in [
        (&client, "eth0", &["10.50.0.20/24"][..]),
        (&gw, "voice0", &["10.50.0.254/24"]),
        (&gw, "w0", &["10.60.0.1/24", "fd00:60::1/64"]),
        (&far, "eth0", &["10.60.0.2/24", "fd00:60::2/64"]),
    ] {
        for address in addresses {
            node.ip(&format!("address add {address} dev {device} nodad"))?;
        }
        node.ip(&format!("link set {device} up"))?;
    }
    for device in ["voice0", "w0"] {
        // What leaves there has its checksum, and the other end looks at it.
        gw.run("ethtool", &["-K", device, "tx", "off"])?;
    }
    Ok(Site { client, gw, far })
}

/// Puts the twin where the client's frames arrive.
fn twin(site: &Site) -> Result<Twin> {
    let options = Options {
        pin: "/nowhere".into(),
        interfaces: Vec::new(),
        media: 10_000..=10_999,
        max_plans: 64,
        max_flows: 64,
        segments: Vec::new(),
        transparent: false,
    };
    let sizes = Sizes::of(&options)?;
    let mut ebpf = object::load(&sizes, None)?;
    let program = object::twin(&mut ebpf)?;
    program.attach_with_options(
        "voice0",
        TcAttachType::Ingress,
        TcAttachOptions::TcxOrder(LinkOrder::default()),
    )?;
    let mut maps = Maps::of(&mut ebpf, sizes)?;
    let ifindex = index(&site.gw, "voice0")?;
    maps.count_on(ifindex)?;
    Ok(Twin {
        _ebpf: ebpf,
        steer: steer(site, maps)?,
        ifindex,
    })
}

/// Listeners and flows: by port, from the client untagged and in VLAN 100, to each of the ways.
fn steer(site: &Site, maps: Maps) -> Result<Steer<Maps, FakeResolver>> {
    let (gw, now) = (&site.gw, Mono::default());
    let mut resolver = FakeResolver::default();
    for (to, source, vlan) in WAYS {
        let route = Route {
            next_hop: to.parse()?,
            ifindex: index(gw, "w0")?,
            source: source.parse()?,
            source_mac: mac(gw, "w0")?,
            next_hop_mac: Some(mac(&site.far, "eth0")?),
            mtu: 1_500,
            vlan,
            local: false,
        };
        resolver.routes.insert((LinkId(9), to.parse()?), route);
    }
    let mut steer = Steer::new(maps, resolver, std::time::Duration::ZERO)?;
    for (link, vlan) in [(0, 0), (1, 100)] {
        let place = LinkPlace {
            ifindex: index(gw, "voice0")?,
            vlan: [vlan, 0],
        };
        steer.link_set(LinkId(link), place, now)?;
    }
    let out = LinkPlace {
        ifindex: index(gw, "w0")?,
        vlan: [0; 2],
    };
    steer.link_set(LinkId(9), out, now)?;
    let listener = format!("{GATEWAY}:5060").parse()?;
    steer.listener_set(ListenerId(0), listener, GateId(0), now)?;
    let serving = Delta::GateSet {
        gate: GateId(0),
        state: Gate::Serving,
    };
    steer.apply(&serving, now)?;
    let mut flows = Vec::new();
    for link in [0_u8, 1] {
        for (way, (to, ..)) in (0_u16..).zip(WAYS) {
            let port = 10_000 + u16::from(link) * 10 + way;
            let to = SocketAddr::new(to.parse()?, 4_000).to_string();
            let (local, from) = (format!("{GATEWAY}:{port}"), format!("{CLIENT}:4000"));
            flows.push(flow(port.into(), [link, 9], &local, &from, 10_500, &to));
        }
    }
    steer.reconcile((&flows, &[]), now)?;
    Ok(steer)
}

fn listen(node: &Node, address: &str) -> Result<UdpSocket> {
    let socket = node.udp(address)?;
    socket.set_read_timeout(Some(LIMIT))?;
    Ok(socket)
}

#[test]
fn case_t1_x6_a_plain_sockets_keepalive_is_answered_in_tc() -> Result<()> {
    if fixture::cannot_run().is_some() {
        return Ok(());
    }
    let site = raise()?;
    let twin = site.gw.net().enter(|| twin(&site))?;
    // A plain socket: its checksum is left to a device that is not there.
    let client = listen(&site.client, &format!("{CLIENT}:4000"))?;
    client.send_to(&stun(&[]), (GATEWAY, 5060))?;
    let mut buffer = [0; 128];
    let length = client.recv(&mut buffer).context("no answer")?;
    let [a, b, c, d] = [10 ^ 0x21, 50 ^ 0x12, 0xa4, 20 ^ 0x42];
    let [p, q] = (4_000_u16 ^ 0x2112).to_be_bytes();
    ensure!(
        buffer[..2] == [1, 1] && buffer[20..length] == [0, 0x20, 0, 8, 0, 1, p, q, a, b, c, d],
        "{:?}",
        &buffer[..length]
    );
    ensure!(twin.counted(Reason::StunAnswered)? == 1);
    // What is not dealt with passes as it came.
    let gateway = listen(&site.gw, &format!("{GATEWAY}:5060"))?;
    client.send_to(b"OPTIONS sip:a SIP/2.0\r\n\r\n", (GATEWAY, 5060))?;
    gateway.recv(&mut buffer).context("SIP did not pass")?;
    ensure!(twin.counted(Reason::ListenerPassed)? == 1);
    Ok(())
}

#[test]
fn case_x1_x6_media_of_a_plain_socket_is_forwarded_in_tc_in_and_out_of_vlans() -> Result<()> {
    if fixture::cannot_run().is_some() {
        return Ok(());
    }
    let site = raise()?;
    let twin = site.gw.net().enter(|| twin(&site))?;
    let client = listen(&site.client, &format!("{CLIENT}:4000"))?;
    let v4 = listen(&site.far, "10.60.0.2:4000")?;
    let v6 = listen(&site.far, "[fd00:60::2]:4000")?;
    for (port, there, from) in [
        (10_000, &v4, "10.60.0.1:10500"),
        (10_001, &v6, "[fd00:60::1]:10500"),
    ] {
        client.send_to(RTP, (GATEWAY, port))?;
        let mut buffer = [0; 64];
        let came = there.recv_from(&mut buffer);
        let (length, source) = came.with_context(|| format!("nothing came from {from}"))?;
        ensure!(&buffer[..length] == RTP && source == from.parse()?);
    }
    ensure!(twin.counted(Reason::FlowForwarded)? == 2);
    tags(&site)
}

/// Tags that come, go and change, as they are on the wire.
fn tags(site: &Site) -> Result<()> {
    const CTAG: u16 = 0x8100;
    const STAG: u16 = 0x88a8;
    let wire = Capture::start(&site.far, "eth0", "src host 10.60.0.1 or vlan")?;
    let send = |frame: &[u8]| {
        site.client.net().enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()?;
            runtime.block_on(async { PacketSocket::open("eth0")?.send(frame) })?;
            Ok(())
        })
    };
    let macs = [mac(&site.gw, "voice0")?, mac(&site.client, "eth0")?];
    let after = [mac(&site.far, "eth0")?, mac(&site.gw, "w0")?];
    let in_vlan: &[[u16; 2]] = &[[CTAG, 0xe064]];
    for (port, before, to, tags) in [
        (10_002, &[][..], "10.60.0.3:4000", &[[CTAG, 7]][..]),
        (10_003, &[], "10.60.0.4:4000", &[[STAG, 7], [CTAG, 8]]),
        (10_010, in_vlan, "10.60.0.2:4000", &[]),
        (10_012, in_vlan, "10.60.0.3:4000", &[[CTAG, 7]]),
        (10_013, in_vlan, "10.60.0.4:4000", &[[STAG, 7], [CTAG, 8]]),
    ] {
        let came = Udp {
            macs,
            ..Udp::new(&format!("{CLIENT}:4000"), &format!("{GATEWAY}:{port}"), RTP)
        };
        let wanted = Udp {
            macs: after,
            ttl: 63,
            ..Udp::new("10.60.0.1:10500", to, RTP)
        };
        send(&came.tagged(before).frame())?;
        let wanted = wanted.tagged(tags).frame();
        let seen = wire.wait_frame(0, LIMIT, |frame| frame.bytes == wanted);
        seen.with_context(|| {
            let all = wire.frames().unwrap_or_default().into_iter();
            let all: Vec<_> = all.map(|frame| frame.bytes).collect();
            format!("port {port}: {wanted:02x?}, but {all:02x?}")
        })?;
    }
    Ok(())
}
