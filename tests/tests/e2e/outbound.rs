//! Flows that phones open (RFC 5626) with Kamailio as registrar: granted, called along, and given
//! up for the phone's other flow when the gateway says that one has failed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use keepline_engine::net::Transport::{self, Tcp, Udp};
use keepline_tests::lab::branch::{GATEWAY_LAN, GATEWAY_WAN, SOFTSWITCHES};
use keepline_tests::lab::kamailio::{DOMAIN, Softswitch};
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::peer::{Direction, Ear, LIMIT, Peer, SDP, Seat};
use keepline_tests::lab::sip::Message;
use keepline_tests::lab::{Branch, Capture, gateway, wait};

const USER: &str = "216";
const INSTANCE: &str = "urn:uuid:00000000-0000-1000-8000-000a95a0e128";

/// One phone with two flows through the gateway, and one of another office.
struct Cast {
    flows: Vec<Peer>,
    far: Peer,
    office: Office,
}

fn seat(user: &str, at: &str, proxy: &str, over: Transport) -> Result<Seat> {
    Ok(Seat {
        user: user.to_owned(),
        home: DOMAIN.to_owned(),
        at: format!("{at}:5060").parse()?,
        media: 7000,
        proxy: SocketAddr::new(proxy.parse()?, 5060),
        over,
        tls: None,
        ear: Ear::default(),
    })
}

/// The office, whose phones speak over this. Both flows are registered, and granted.
fn open(over: Transport) -> Result<Cast> {
    let branch = Branch::raise()?;
    Softswitch::grants_outbound(&branch, 0)?;
    let expires = "\n[registration]\nphone_expires = { udp = \"20s\" }\n";
    let config = gateway::config_over(over, Udp) + expires;
    let office = Office::open_on(
        branch,
        &Opening {
            config,
            ..Opening::without_phones()
        },
    )?;
    let far = seat("716", &Branch::far_phone(0), SOFTSWITCHES[0], Udp)?;
    let far = Peer::new(&office.branch.far, far)?;
    far.register()?;
    let mut flows = Vec::new();
    for flow in 1..=2 {
        let at = Branch::phone(flow);
        let peer = Peer::new(&office.branch.phones, seat(USER, &at, GATEWAY_LAN, over)?)?;
        let told = peer.register_flow(INSTANCE, u32::from(flow))?;
        let header = |name| told.header(name).unwrap_or_default();
        ensure!(header("Require").contains("outbound"), "{}", told.text);
        let timer = if over.is_stream() { "120" } else { "" };
        ensure!(header("Flow-Timer") == timer, "{}", told.text);
        ensure!(!told.text.contains(GATEWAY_WAN), "{}", told.text);
        flows.push(peer);
    }
    // Both are there at once, each with the way that leads to it.
    let kept = office.primary.rpc(&office.branch, &["ul.dump"])?;
    let paths = kept
        .lines()
        .filter(|line| line.contains("Path:") && line.contains(GATEWAY_WAN));
    let opens = paths.filter(|path| path.contains(";lr;ob")).count();
    ensure!(opens == 2, "{opens} of 2 flows in {kept}");
    Ok(Cast { flows, far, office })
}

/// Calls the phone; which of its flows rings and takes the call.
fn called(cast: &Cast) -> Result<usize> {
    let far = &cast.far;
    let ask = far.invite(&far.uri_of(USER), "");
    let rings = |peer: &Peer| peer.has("INVITE");
    let (index, peer) = wait::until("a flow rings", LIMIT, || {
        let mut flows = cast.flows.iter().enumerate();
        flows.find(|(_, peer)| rings(peer))
    })?;
    let invite = peer.expect("INVITE", None)?;
    peer.reply(
        &invite,
        "200 OK",
        "",
        Some((SDP, &peer.sdp(Direction::SendRecv))),
    );
    let mut dialog = ask.dialog(LIMIT)?;
    far.ack(&dialog);
    peer.expect("ACK", Some(&peer.side_of(&invite)?.call_id))?;
    let bye = far.within(&mut dialog, "BYE", "", None);
    let asked = peer.expect("BYE", None)?;
    peer.reply(&asked, "200 OK", "", None);
    bye.sees(200, LIMIT)?;
    Ok(index)
}

/// Whether the gateway told the softswitch that a flow has failed.
fn failed(wire: &Capture) -> Result<bool> {
    let said = Message::of(&wire.frames()?, GATEWAY_WAN);
    Ok(said.iter().any(|sip| sip.sent && sip.status() == Some(430)))
}

#[test]
fn ex2_kamailio_tries_the_next_flow_when_a_connection_is_gone() -> Result<()> {
    let mut cast = open(Tcp)?;
    let wire = Capture::start(&cast.office.branch.gw, "wan0", "udp port 5060")?;
    let first = called(&cast)?;
    ensure!(!failed(&wire)?, "a flow that stands was given up");
    // The one that was called goes.
    drop(cast.flows.remove(first));
    wait::until("its connection is gone", LIMIT, || {
        let status = cast.office.ask(&["status"]).ok()?;
        let listeners = gateway::list(&status, "listeners");
        let count = |row: &serde_json::Value| row["connections"].as_u64();
        (listeners.iter().filter_map(count).sum::<u64>() == 1).then_some(())
    })?;
    called(&cast)?;
    ensure!(failed(&wire)?, "no 430");
    Ok(())
}

#[test]
fn ex2_kamailio_tries_the_next_flow_when_a_phone_on_udp_no_longer_refreshes() -> Result<()> {
    let mut cast = open(Udp)?;
    let wire = Capture::start(&cast.office.branch.gw, "wan0", "udp port 5060")?;
    let first = called(&cast)?;
    drop(cast.flows.remove(first));
    let left = u32::try_from(2 - first)?;
    // It was told to refresh after 20 s, and is waited for as long as a request is: 54 s at most.
    let deadline = Instant::now() + Duration::from_secs(75);
    while !failed(&wire)? {
        ensure!(Instant::now() < deadline, "no 430");
        cast.flows[0].register_flow(INSTANCE, left)?;
        let text = Some(("text/plain", "hello"));
        let _asked = cast.far.begin("MESSAGE", &cast.far.uri_of(USER), "", text);
        let told = || failed(&wire).ok()?.then_some(());
        let _ = wait::until("the flow is given up", Duration::from_secs(2), told);
    }
    cast.flows[0].expect("MESSAGE", None)?;
    let other = called(&cast)?;
    ensure!(other == 0, "there is one flow");
    Ok(())
}
