//! What connections of phones end for: a failover that makes their registrations due, and a
//! gateway that cannot serve them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use keepline_engine::net::Transport::{Tcp, Udp};
use keepline_engine::sip::stream::Frame;
use keepline_tests::lab::branch::{GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::gateway;
use keepline_tests::lab::line::Line;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::wait;

/// How long a verdict may take on a machine that does other things.
const VERDICT: Duration = Duration::from_secs(60);

/// Phones over TCP, by hand; softswitches over UDP that are probed often.
fn office(more: &str) -> Result<Office> {
    let config = gateway::config_over(Tcp, Udp);
    let probed = "name = \"core\"\nprobe = \"all\"\ninterval = \"2s\"";
    Office::open(&Opening {
        config: config.replacen("name = \"core\"", probed, 1) + more,
        ..Opening::without_phones()
    })
}

fn connect(office: &Office) -> Result<Line> {
    Line::connect(&office.branch.phones, &format!("{GATEWAY_LAN}:5060"))
}

fn register(line: &mut Line, user: &str, cseq: u32) -> Result<()> {
    line.send(&format!(
        "REGISTER sip:example.test SIP/2.0
Via: SIP/2.0/TCP 10.99.1.11:5060;branch=z9hG4bK{user}{cseq};rport
Max-Forwards: 70
From: <sip:{user}@example.test>;tag=hand
To: <sip:{user}@example.test>
Call-ID: {user}@hand
CSeq: {cseq} REGISTER
Contact: <sip:{user}@10.99.1.11:5060;transport=tcp>
Expires: 3600"
    ))?;
    line.answer(200, LIMIT).map(drop)
}

/// The server that holds a registration.
fn server(office: &Office, user: &str) -> Result<String> {
    let answer = office.ask(&["registrations"])?;
    let rows = gateway::list(&answer, "registrations");
    let aor = format!("{user}@example.test");
    let row = rows.iter().find(|row| row["aor"] == aor.as_str());
    let server = row.and_then(|row| row["server"].as_str());
    Ok(server.unwrap_or_default().to_owned())
}

#[test]
fn ex3_after_a_failover_phones_on_streams_are_brought_to_the_backup() -> Result<()> {
    let mut office = office("")?;
    let users = ["220", "221", "222"];
    let mut lines = Vec::new();
    for user in users {
        let mut line = connect(&office)?;
        register(&mut line, user, 1)?;
        ensure!(server(&office, user)?.contains(SOFTSWITCHES[0]));
        lines.push((user, line));
    }
    office.primary.kill();
    for (user, line) in &mut lines {
        // Five minutes before it would have refreshed.
        while line.next(VERDICT)?.is_some() {}
        *line = connect(&office)?;
        register(line, user, 2)?;
    }
    for user in users {
        let at = server(&office, user)?;
        ensure!(at.contains(SOFTSWITCHES[1]), "{user} at {at:?}");
    }
    Ok(())
}

#[test]
fn ex3_no_pong_and_then_no_connection_while_nobody_can_serve() -> Result<()> {
    let office = office("\n[survivability]\npolicy = \"off\"\n")?;
    let mut line = connect(&office)?;
    let ping = |line: &mut Line, limit| {
        line.write(b"\r\n\r\n")?;
        line.next(limit)
    };
    ensure!(ping(&mut line, LIMIT)? == Some(Frame::Pong), "no pong");
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    wait::until("the group is down", VERDICT, || {
        let status = office.ask(&["status"]).ok()?;
        (status.pointer("/groups/0/state")? == "down").then_some(())
    })?;
    let asked = Instant::now();
    ensure!(ping(&mut line, LIMIT)?.is_none(), "a pong");
    let took = asked.elapsed();
    ensure!(took >= Duration::from_millis(2900), "{took:?}");
    // Who comes back then is served no better, and as soon as somebody can, he is.
    let mut line = connect(&office)?;
    ensure!(ping(&mut line, LIMIT)?.is_none(), "a pong");
    for softswitch in &office.branch.softswitches {
        softswitch.end_blackhole()?;
    }
    office.wait_group("serving")?;
    let mut line = connect(&office)?;
    ensure!(ping(&mut line, LIMIT)? == Some(Frame::Pong), "no pong");
    Ok(())
}
