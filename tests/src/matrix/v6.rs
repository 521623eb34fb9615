//! A branch that speaks IPv6 only: with softswitches that speak IPv4 only, or, in transparent mode,
//! IPv6 too, which the phones address themselves.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport;

use crate::lab::branch::{GATEWAY_LAN, GATEWAY_WAN, SOFTSWITCHES, SOFTSWITCHES_V6};
use crate::lab::kamailio::{DOMAIN, Softswitch};
use crate::lab::office::{Office, Opening};
use crate::lab::peer::{Ear, Seat};
use crate::lab::{Branch, Capture};

use super::stage::{PAIRS, cast, far_seat, user};
use super::{Mode, Scenario, Stage, kinds};

/// The gateway on the LAN.
const GATEWAY: &str = "2001:db8:1::1";
const SCENARIOS: [Scenario; 6] = [
    ("audio, RTCP elsewhere, video with mux", kinds::video),
    ("video refused, then taken", kinds::refused_video),
    ("a fax by T.38 and back", kinds::fax),
    ("SRTP", kinds::srtp),
    ("offer in the 200, answer in the ACK", kinds::late_offer),
    ("reliable 183, PRACK, UPDATE", kinds::early),
];

/// Plays kinds of media between the two, and looks for addresses of one side on the other.
///
/// # Errors
/// When one does not go as it should.
pub fn play(over: Transport) -> Result<()> {
    let stage = open(over)?;
    scenes(&stage, [&["10.99."], &["2001:db8"]])
}

/// Plays the same in transparent mode, with IPv6 everywhere.
///
/// # Errors
/// As [`play`].
pub fn play_transparent(over: Transport) -> Result<()> {
    let stage = open_transparent(over)?;
    let wan = stage.wires[1].frames()?.len();
    scenes(
        &stage,
        [&["2001:db8:2:", "2001:db8:10::f:"], &["2001:db8:1:"]],
    )?;
    // Nor does a packet bear an address of the LAN.
    let lan = [0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0];
    let frames = stage.wires[1].frames()?;
    ensure!(frames.len() > wan + 100, "nothing was on the WAN");
    let leak = frames.iter().find(|frame| {
        let addresses = frame.bytes.get(22..54).unwrap_or_default();
        [0, 16].iter().any(|at| addresses[*at..].starts_with(&lan))
    });
    ensure!(leak.is_none(), "{leak:?}");
    Ok(())
}

/// Plays kinds of media; what phones of each side heard names none of these.
fn scenes(stage: &Stage, foreign: [&[&str]; 2]) -> Result<()> {
    for (name, scenario) in SCENARIOS {
        scenario(stage).context(name)?;
    }
    for (side, foreign) in foreign.into_iter().enumerate() {
        let heard = stage.heard(side);
        ensure!(heard.len() > 10, "only {} messages", heard.len());
        let leak = |text: &&String| foreign.iter().any(|word| text.contains(word));
        let leak = heard.iter().find(leak);
        ensure!(leak.is_none(), "{foreign:?} in {leak:?}");
    }
    stage.is_idle()
}

fn phone(index: u8) -> String {
    format!("2001:db8:1::{:x}", 16 + index)
}

fn open(over: Transport) -> Result<Stage> {
    let branch = Branch::raise()?;
    branch
        .gw
        .ip(&format!("address del {GATEWAY_LAN}/24 dev lan0"))?;
    branch
        .gw
        .ip(&format!("address add {GATEWAY}/64 dev lan0 nodad"))?;
    for index in PAIRS {
        let add = format!("address add {}/64 dev eth0 nodad", phone(index));
        branch.phones.ip(&add)?;
    }
    let opening = Opening {
        lan: 0,
        far: 0,
        ..Opening::over(over, Transport::Udp)
    };
    let office = Office::open_on(branch, &opening)?;
    let branch = &office.branch;
    let ears = [Ear::default(), Ear::default()];
    let lan = cast(
        &branch.phones,
        PAIRS.map(|index| seat(index, over, GATEWAY, &ears[0])),
    )?;
    let far = cast(&branch.far, PAIRS.map(|index| far_seat(index, &ears[1])))?;
    let stage = Stage {
        over,
        mode: Mode::Normal,
        lan: Vec::new(),
        far: Vec::new(),
        pairs: lan.into_iter().zip(far).collect(),
        wires: [
            Capture::start(&branch.phones, "eth0", "ip6")?,
            Capture::start(&branch.carrier, "a-gw", "ip")?,
        ],
        ears,
        office,
    };
    stage.all_are_known()?;
    Ok(stage)
}

fn seat(index: u8, over: Transport, proxy: &str, ear: &Ear) -> Result<Seat> {
    let ip: IpAddr = phone(index).parse()?;
    Ok(Seat {
        user: user('2', index),
        home: DOMAIN.to_owned(),
        at: SocketAddr::new(ip, 5060),
        media: 7000 + 2 * u16::from(index),
        proxy: SocketAddr::new(proxy.parse()?, 5060),
        over,
        tls: None,
        ear: Arc::clone(ear),
    })
}

/// A phone of another office.
fn far_phone(index: u8) -> String {
    format!("2001:db8:10::f:{:x}", 16 + index)
}

fn far_seat_v6(index: u8, ear: &Ear) -> Result<Seat> {
    let seat = far_seat(index, ear)?;
    Ok(Seat {
        at: SocketAddr::new(far_phone(index).parse()?, 5060),
        proxy: SocketAddr::new(SOFTSWITCHES_V6[1].parse()?, 5060),
        ..seat
    })
}

/// The gateway with addresses of IPv6 alone, between a LAN and softswitches of IPv6.
fn all_v6() -> Result<Branch> {
    let branch = Branch::raise()?;
    let gw = &branch.gw;
    for (interface, old, new) in [
        ("lan0", GATEWAY_LAN, GATEWAY),
        ("wan0", GATEWAY_WAN, "2001:db8:2::1"),
    ] {
        gw.ip(&format!("address del {old}/24 dev {interface}"))?;
        gw.ip(&format!("address add {new}/64 dev {interface} nodad"))?;
    }
    gw.ip("route add default via 2001:db8:2::251 dev wan0")?;
    let router = &branch.routers[0];
    router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    router.ip("address add 2001:db8:2::251/64 dev eth0 nodad")?;
    router.ip("address add 2001:db8:10::251/64 dev eth1 nodad")?;
    for index in PAIRS {
        let at = phone(index);
        branch
            .phones
            .ip(&format!("address add {at}/64 dev eth0 nodad"))?;
        let at = far_phone(index);
        branch
            .far
            .ip(&format!("address add {at}/64 dev eth0 nodad"))?;
    }
    branch
        .phones
        .ip(&format!("route add default via {GATEWAY} dev eth0"))?;
    for (node, address) in branch.softswitches.iter().zip(SOFTSWITCHES_V6) {
        node.ip(&format!("address add {address}/64 dev eth0 nodad"))?;
    }
    for node in branch.softswitches.iter().chain([&branch.far]) {
        node.ip("route add default via 2001:db8:10::251 dev eth0")?;
    }
    for index in 0..2 {
        Softswitch::speaks_v6(&branch, index)?;
    }
    Ok(branch)
}

fn open_transparent(over: Transport) -> Result<Stage> {
    let branch = all_v6()?;
    let mut opening = Opening {
        lan: 0,
        far: 0,
        ..Opening::transparent(over, over)
    };
    for (v4, v6) in SOFTSWITCHES.into_iter().zip(SOFTSWITCHES_V6) {
        let (v4, v6) = (format!("sip:{v4}:"), format!("sip:[{v6}]:"));
        opening.config = opening.config.replace(&v4, &v6);
    }
    let office = Office::open_on(branch, &opening)?;
    let branch = &office.branch;
    let wires = [
        Capture::start(&branch.phones, "eth0", "ip6")?,
        Capture::start(&branch.carrier, "a-gw", "ip6")?,
    ];
    let ears = [Ear::default(), Ear::default()];
    let near = |index| seat(index, over, SOFTSWITCHES_V6[0], &ears[0]);
    let lan = cast(&branch.phones, PAIRS.map(near))?;
    let far = cast(&branch.far, PAIRS.map(|index| far_seat_v6(index, &ears[1])))?;
    let stage = Stage {
        over,
        mode: Mode::Transparent,
        lan: Vec::new(),
        far: Vec::new(),
        pairs: lan.into_iter().zip(far).collect(),
        wires,
        ears,
        office,
    };
    stage.all_are_known()?;
    Ok(stage)
}
