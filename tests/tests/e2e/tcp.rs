//! SIP over TCP: phones, softswitches, and either side alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport::{self, Tcp, Udp};
use keepline_engine::sip::stream::Frame;
use keepline_tests::lab::branch::{GATEWAY_LAN, GATEWAY_WAN};
use keepline_tests::lab::death::{Death, call_with_digest, call_without_digest, within};
use keepline_tests::lab::gateway::Gateway;
use keepline_tests::lab::line::Line;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::{Capture, flows, wait};

fn office(lan: Transport, wan: Transport) -> Result<Office> {
    Office::registered(Opening::over(lan, wan))
}

/// How many connections each listener has, and over what.
fn connections(office: &Office) -> Result<Vec<(String, u64)>> {
    let answer = office.ask(&["status"])?;
    let listeners = answer["listeners"].as_array().context("no listeners")?;
    let of = |on: &serde_json::Value| {
        let over = on["transport"].as_str().unwrap_or_default().to_owned();
        (over, on["connections"].as_u64().unwrap_or_default())
    };
    Ok(listeners.iter().map(of).collect())
}

#[test]
fn em3_calls_over_tcp_have_their_media_in_xdp_and_nothing_goes_over_udp() -> Result<()> {
    let office = office(Tcp, Tcp)?;
    let lan = Capture::start(&office.branch.phones, "eth0", "udp port 5060")?;
    let wan = Capture::start(&office.branch.carrier, "a-gw", "udp port 5060")?;
    flows::calls_both_ways(&office)?;
    let strays = (lan.stop()?.len(), wan.stop()?.len());
    ensure!(strays == (0, 0), "{strays:?} datagrams");
    let held = connections(&office)?;
    // To each softswitch one that is held open, at least.
    ensure!(
        held.len() == 2 && held.iter().all(|(over, _)| over == "tcp") && held[1].1 >= 2,
        "{held:?}"
    );
    Ok(())
}

#[test]
fn em3_phones_over_tcp_reach_a_softswitch_over_udp() -> Result<()> {
    flows::calls_both_ways(&office(Tcp, Udp)?)
}

#[test]
fn em3_phones_over_udp_reach_a_softswitch_over_tcp() -> Result<()> {
    flows::calls_both_ways(&office(Udp, Tcp)?)
}

/// The primary dies: one INVITE transaction at the phone, answered within 2 s of its first byte.
fn that_very_call_connects(death: Death) -> Result<()> {
    within(
        Duration::from_secs(2),
        call_without_digest(death, Opening::over(Tcp, Tcp))?,
    )
}

#[test]
fn em3_em4_that_very_call_connects_over_tcp_when_the_primary_is_killed() -> Result<()> {
    that_very_call_connects(Death::Killed)
}

#[test]
fn em3_em4_that_very_call_connects_over_tcp_when_the_primary_hangs() -> Result<()> {
    that_very_call_connects(Death::Stopped)
}

#[test]
fn em3_em4_that_very_call_connects_over_tcp_when_the_network_goes_silent() -> Result<()> {
    that_very_call_connects(Death::Blackhole)
}

#[test]
fn em3_em23_one_further_challenge_over_tcp_when_the_primary_is_killed() -> Result<()> {
    let took = call_with_digest(Death::Killed, Opening::over(Tcp, Tcp))?;
    within(Duration::from_millis(2500), took)
}

/// A request of the branch's first phone, by hand.
fn request(method: &str, uri: &str, cseq: u32, to_tag: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0
Via: SIP/2.0/TCP 10.99.1.11:5060;branch=z9hG4bK{method}{cseq};rport
Max-Forwards: 70
From: <sip:200@example.test>;tag=hand
To: <sip:{}@example.test>{to_tag}
Call-ID: {}@hand
CSeq: {cseq} {method}
Contact: <sip:200@10.99.1.11:5060;transport=tcp>",
        if method == "REGISTER" { "200" } else { "700" },
        if method == "REGISTER" {
            "registration"
        } else {
            "call"
        },
    )
}

#[test]
fn em3_kl5_a_phone_that_connects_anew_ends_its_call_at_the_next_daemon() -> Result<()> {
    let opening = Opening {
        digest: false,
        lan: 1,
        far: 1,
        ..Opening::over(Tcp, Tcp)
    };
    let mut office = Office::open(&opening)?;
    office.register()?;
    let gateway = format!("{GATEWAY_LAN}:5060");
    let mut line = Line::connect(&office.branch.phones, &gateway)?;
    line.send(&request("REGISTER", "sip:example.test", 1, ""))?;
    line.answer(200, LIMIT)?;
    let mut callee = office.far[0].answer(&office.branch.far, Duration::from_millis(100))?;
    let sdp =
        "v=0\no=- 1 1 IN IP4 10.99.1.11\ns=-\nc=IN IP4 10.99.1.11\nt=0 0\nm=audio 6000 RTP/AVP 0\n";
    let invite = request("INVITE", "sip:700@example.test", 1, "");
    line.send_with(&format!("{invite}\nContent-Type: application/sdp"), sdp)?;
    let answer = line.answer(200, LIMIT)?;
    let tag = answer.header("To").and_then(|to| to.split_once(";tag="));
    let tag = format!(";tag={}", tag.context("no tag")?.1);
    let target = answer.header("Contact").context("no Contact")?;
    let target = target
        .trim_start_matches('<')
        .trim_end_matches('>')
        .to_owned();
    line.send(&request("ACK", &target, 1, &tag))?;
    callee.media(LIMIT)?;
    // What comes in order is answered in order: the ACK has passed.
    line.send(&request("OPTIONS", "sip:10.99.1.1", 2, ""))?;
    line.answer(200, LIMIT)?;
    office.gateway.process().kill();
    ensure!(
        line.next(LIMIT)?.is_none(),
        "the connection outlives its daemon"
    );
    office.gateway = Gateway::start(&office.branch, &opening.config)?;
    let mut line = Line::connect(&office.branch.phones, &gateway)?;
    line.send(&request("BYE", &target, 2, &tag))?;
    line.answer(200, LIMIT)?;
    callee.done(LIMIT)?;
    wait::until("no call is left", LIMIT, || {
        let calls = office.ask(&["status"]).ok()?["calls"]["active"].as_u64()?;
        (calls == 0).then_some(())
    })
}

#[test]
fn em3_ex3_hostile_connections_are_closed_with_their_answer_and_hinder_nobody() -> Result<()> {
    let office = Office::open(&Opening {
        digest: false,
        lan: 1,
        far: 0,
        ..Opening::over(Tcp, Tcp)
    })?;
    let (phones, gateway) = (&office.branch.phones, format!("{GATEWAY_LAN}:5060"));
    let options = request("OPTIONS", "sip:10.99.1.1", 1, "");
    // Half a message on each of many connections, all of which stay.
    let mut half = Vec::new();
    for _ in 0..100 {
        let mut line = Line::connect(phones, &gateway)?;
        line.write(&options.as_bytes()[..200])?;
        half.push(line);
    }
    let mut huge = Line::connect(phones, &gateway)?;
    huge.write(options.replace('\n', "\r\n").as_bytes())?;
    let filler = format!("\r\nX-Fill: {}", "x".repeat(1000));
    for _ in 0..70 {
        huge.write(filler.as_bytes())?;
    }
    huge.answer(513, LIMIT)?;
    ensure!(huge.next(LIMIT)?.is_none(), "not closed");
    let mut wrong = Line::connect(phones, &gateway)?;
    wrong.write(
        format!(
            "{}\r\nContent-Length: -1\r\n\r\n",
            options.replace('\n', "\r\n")
        )
        .as_bytes(),
    )?;
    wrong.answer(400, LIMIT)?;
    ensure!(wrong.next(LIMIT)?.is_none(), "not closed");
    let mut garbage = Line::connect(phones, &gateway)?;
    garbage.write(&[0x16, 3, 1, 0, 200])?;
    ensure!(garbage.next(LIMIT)?.is_none(), "not closed");
    // A connection that is served: ping, STUN, SIP.
    let mut line = Line::connect(phones, &gateway)?;
    line.write(b"\r\n\r\n")?;
    ensure!(line.next(LIMIT)? == Some(Frame::Pong), "no pong");
    line.write(&[
        0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    ])?;
    let stun = line.next(LIMIT)?;
    let answered = matches!(&stun, Some(Frame::Stun(bytes)) if bytes.starts_with(&[1, 1]));
    ensure!(answered, "{stun:?}");
    line.send(&options)?;
    line.answer(200, LIMIT)?;
    office.register()?;
    // Nobody but the softswitches may connect on the WAN.
    let mut stranger = Line::connect(&office.branch.far, &format!("{GATEWAY_WAN}:5060"))?;
    ensure!(stranger.next(LIMIT)?.is_none(), "a stranger is let in");
    drop(half);
    Ok(())
}
