//! Requests of more than 1,300 bytes towards softswitches that are spoken to over UDP (case S12):
//! Kamailio takes them over TCP, and a firewall that lets no TCP through costs half a second.

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::gateway;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::{Capture, Frame};
use serde_json::Value;

/// What makes an INVITE one of about 1,700 bytes.
fn fill() -> String {
    format!("X-Fill: {}\r\n", "x".repeat(1200))
}

fn office() -> Result<Office> {
    let tcp = "tcp = [\"lan0:5060\", \"wan0:5060\"]\n";
    Office::open(&Opening {
        config: gateway::config().replace("[[softswitch]]", &format!("{tcp}\n[[softswitch]]")),
        ..Opening::without_phones()
    })
}

/// A phone of the branch and one of another office, both registered.
fn phones(office: &Office) -> Result<(Agent, Agent)> {
    let near = Agent::new(&office.branch.phones, "210", &Branch::phone(0), GATEWAY_LAN)?;
    let far = Agent::new(
        &office.branch.far,
        "710",
        &Branch::far_phone(0),
        SOFTSWITCHES[0],
    )?;
    near.register(3600)?.is(200)?;
    far.register(3600)?.is(200)?;
    Ok((near, far))
}

/// Requests over UDP that were counted as too large for it, and warnings of them.
fn said(office: &Office) -> Result<(u64, usize)> {
    let status = office.ask(&["status"])?;
    let counted = status.pointer("/signalling/large_over_udp");
    let counted = counted.and_then(Value::as_u64).context("no counter")?;
    let events = office.events()?;
    let warned = events
        .iter()
        .filter(|event| event["rule"] == "request_over_1300_bytes");
    Ok((counted, warned.count()))
}

#[test]
fn case_s12_a_large_invite_goes_to_kamailio_over_tcp() -> Result<()> {
    let office = office()?;
    let (near, far) = phones(&office)?;
    // Fragments have no ports: they are caught by being some.
    let wire = Capture::start(
        &office.branch.gw,
        "wan0",
        "port 5060 or ip[6:2] & 0x3fff != 0",
    )?;
    let (call, _) = near.call("710", &fill(), LIMIT)?;
    far.taken(&call.call_id)?;
    let frames = wire.stop()?;
    let datagram = |frame: &&Frame| frame.bytes.get(23) == Some(&17);
    let largest = frames
        .iter()
        .filter(datagram)
        .map(|frame| frame.bytes.len());
    let largest = largest.max().unwrap_or(0);
    ensure!(largest < 1400, "a datagram of {largest} bytes");
    let over_tcp = frames.iter().any(|frame| {
        let to = frame.tcp().filter(|(_, to, _)| *to == 5060);
        to.is_some_and(|(_, _, sip)| sip.starts_with(b"INVITE "))
    });
    ensure!(over_tcp, "no INVITE over TCP");
    ensure!(said(&office)? == (0, 0), "{:?}", said(&office)?);
    Ok(())
}

#[test]
fn case_s12_without_tcp_at_the_next_hop_it_goes_over_udp_with_one_warning() -> Result<()> {
    for verdict in ["reject with tcp reset", "drop"] {
        let office = office()?;
        let (near, far) = phones(&office)?;
        let rules = format!(
            "table inet wall {{
               chain in {{ type filter hook input priority 0; meta l4proto tcp {verdict}; }}
             }}"
        );
        office.branch.softswitches[0].run("nft", &[&rules])?;
        for count in 1..3 {
            let (call, answer) = near.call("710", &fill(), LIMIT)?;
            far.taken(&call.call_id)?;
            ensure!(answer.sent <= 2, "the phone asked {} times", answer.sent);
            ensure!(said(&office)? == (count, 1), "{:?}", said(&office)?);
        }
        ensure!(office.state(0)? == "up", "size is no evidence of death");
    }
    Ok(())
}
