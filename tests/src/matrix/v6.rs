//! A branch that speaks IPv6 only, and softswitches that speak IPv4 only.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport;

use crate::lab::branch::GATEWAY_LAN;
use crate::lab::kamailio::DOMAIN;
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
    for (name, scenario) in SCENARIOS {
        scenario(&stage).context(name)?;
    }
    for (side, foreign) in ["10.99.", "2001:db8"].into_iter().enumerate() {
        let heard = stage.heard(side);
        ensure!(heard.len() > 10, "only {} messages", heard.len());
        let leak = heard.iter().find(|text| text.contains(foreign));
        ensure!(leak.is_none(), "{foreign} in {leak:?}");
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
        PAIRS.map(|index| seat(index, over, &ears[0])),
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

fn seat(index: u8, over: Transport, ear: &Ear) -> Result<Seat> {
    let ip: IpAddr = phone(index).parse()?;
    Ok(Seat {
        user: user('2', index),
        home: DOMAIN.to_owned(),
        at: SocketAddr::new(ip, 5060),
        media: 7000 + 2 * u16::from(index),
        proxy: SocketAddr::new(GATEWAY.parse()?, 5060),
        over,
        tls: None,
        ear: Arc::clone(ear),
    })
}
