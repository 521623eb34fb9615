//! The gateway's own keepalives to Kamailio (EX4): one that speaks STUN, one that does not, a NAT
//! that changes in between, and a STUN answerer that dies alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport::{Tcp, Udp};
use keepline_tests::lab::branch::{Branch, GATEWAY_WAN, SOFTSWITCHES};
use keepline_tests::lab::gateway;
use keepline_tests::lab::kamailio::Softswitch;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::{Capture, Frame, wait};

const KEEPALIVE: &str = "\n[keepalive]\ninterval = \"2s\"\n";

fn opening() -> Opening {
    Opening {
        config: gateway::config() + KEEPALIVE,
        ..Opening::without_phones()
    }
}

/// The primary speaks STUN, the backup does not.
fn office() -> Result<Office> {
    let branch = Branch::raise()?;
    Softswitch::speaks_stun(&branch, 0)?;
    Office::open_on(branch, &opening())
}

/// The same once its STUN was answered, with the capture that saw it.
fn answered() -> Result<(Office, Capture)> {
    let office = office()?;
    let wire = Capture::start(&office.branch.gw, "wan0", "udp port 5060")?;
    wait::until("the first answer", LIMIT, || {
        let frames = wire.frames().ok()?;
        let answers = sent(&frames, GATEWAY_WAN, ANSWER).ok()?;
        (!answers.is_empty()).then_some(())
    })?;
    Ok((office, wire))
}

fn octets(address: &str) -> Result<[u8; 4]> {
    Ok(address.parse::<std::net::Ipv4Addr>()?.octets())
}

/// What went to `server` over UDP and begins so.
fn sent(frames: &[Frame], server: &str, begins: &[u8]) -> Result<Vec<Duration>> {
    let server = octets(server)?;
    let to_it = frames.iter().filter(|frame| {
        let to = frame.ipv4().is_some_and(|(_, to)| to == server);
        to && frame
            .udp()
            .is_some_and(|(_, _, bytes)| bytes.starts_with(begins))
    });
    Ok(to_it.map(|frame| frame.at).collect())
}

const BINDING: &[u8] = &[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
const ANSWER: &[u8] = &[1, 1];
const PING: &[u8] = b"\r\n\r\n";

#[test]
fn ex4_stun_to_who_speaks_it_and_crlf_to_who_does_not() -> Result<()> {
    let office = office()?;
    let wire = Capture::start(&office.branch.gw, "wan0", "udp port 5060")?;
    let [primary, backup] = SOFTSWITCHES;
    wait::until("both are kept alive", LIMIT, || {
        let frames = wire.frames().ok()?;
        let answers = sent(&frames, GATEWAY_WAN, ANSWER).ok()?;
        let pings = sent(&frames, backup, PING).ok()?;
        (answers.len() >= 3 && pings.len() >= 3).then_some(())
    })?;
    let frames = wire.stop()?;
    let (asked, answered) = (
        sent(&frames, primary, BINDING)?.len(),
        sent(&frames, GATEWAY_WAN, ANSWER)?.len(),
    );
    // The last one may still be under way.
    ensure!(asked <= answered + 1, "{asked} asked, {answered} answered");
    ensure!(sent(&frames, primary, PING)?.is_empty(), "CRLF and STUN");
    ensure!(sent(&frames, backup, BINDING)?.len() <= 3, "one trial");
    ensure!(office.state(0)? == "up", "{}", office.state(0)?);
    Ok(())
}

/// An event with this rule.
fn told(office: &Office, rule: &str) -> Result<serde_json::Value> {
    let mut found = None;
    wait::until(rule, Duration::from_secs(60), || {
        let events = office.events().ok()?;
        found = events.into_iter().find(|event| event["rule"] == rule);
        found.as_ref().map(|_| ())
    })?;
    found.context("no event")
}

#[test]
fn ex4_another_address_in_the_answers_is_a_changed_flow() -> Result<()> {
    let (office, _wire) = answered()?;
    let nat = format!(
        "table ip nat {{
           chain out {{
             type nat hook postrouting priority 100;
             ip saddr {GATEWAY_WAN} udp sport 5060 snat to 10.99.10.251:61000
           }}
         }}"
    );
    office.branch.routers[0].run("nft", &[&nat])?;
    let event = told(&office, "mapped_address_changed")?;
    ensure!(
        event["from"] == format!("{GATEWAY_WAN}:5060").as_str()
            && event["to"] == "10.99.10.251:61000",
        "{event}"
    );
    ensure!(office.state(0)? == "up", "{}", office.state(0)?);
    Ok(())
}

#[test]
fn ex4_who_falls_silent_in_stun_alone_stays_up() -> Result<()> {
    let (office, wire) = answered()?;
    // What begins with 0001 and the magic cookie.
    let wall = "table ip wall {
                  chain in {
                    type filter hook input priority 0;
                    udp dport 5060 @th,96,32 0x2112a442 drop
                  }
                }";
    office.branch.softswitches[0].run("nft", &[wall])?;
    told(&office, "keepalive_unanswered")?;
    wait::until("CRLF instead", Duration::from_secs(60), || {
        let frames = wire.frames().ok()?;
        let pings = sent(&frames, SOFTSWITCHES[0], PING).ok()?;
        (!pings.is_empty()).then_some(())
    })?;
    let events = office.events()?;
    let down = events.iter().find(|event| event["to"] == "down");
    ensure!(down.is_none(), "{down:?}");
    ensure!(office.state(0)? == "up", "{}", office.state(0)?);
    Ok(())
}

#[test]
fn ex4_connections_are_pinged_and_kamailio_answers() -> Result<()> {
    let config = gateway::config_over(Udp, Tcp) + KEEPALIVE;
    let office = Office::open(&Opening {
        config,
        ..Opening::without_phones()
    })?;
    let wire = Capture::start(&office.branch.gw, "wan0", "tcp port 5060")?;
    let primary = octets(SOFTSWITCHES[0])?;
    let seen = |frames: &[Frame], begins: &[u8], towards: bool| {
        let of_it = frames.iter().filter(|frame| {
            let (from, to) = frame.ipv4().unwrap_or_default();
            let way = if towards { to } else { from };
            way == primary && frame.tcp().is_some_and(|(_, _, bytes)| bytes == begins)
        });
        of_it.count()
    };
    wait::until("pings and pongs", LIMIT, || {
        let frames = wire.frames().ok()?;
        let (pings, pongs) = (seen(&frames, PING, true), seen(&frames, b"\r\n", false));
        (pings >= 2 && pongs >= 2).then_some(())
    })
}
