//! Transparent mode: phones speak to the softswitch itself, the gateway is their router and
//! takes what they say on the way (EM20).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport::{self, Tcp, Udp};
use keepline_tests::lab::branch::{GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::death::{Death, call_with_digest, call_without_digest, within};
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::sip::Message;
use keepline_tests::lab::{Capture, Frame, flows};

const PRIMARY: [u8; 4] = [10, 99, 10, 1];

fn office(lan: Transport, wan: Transport) -> Result<Office> {
    Office::registered(Opening::transparent(lan, wan))
}

/// What phones got came from their softswitch, which is the only one that it names.
fn only_the_primary(frames: &[Frame], office: &Office) -> Result<usize> {
    let mut seen = 0;
    for frame in frames {
        let (source, _) = frame.ipv4().context("no IPv4")?;
        for phone in &office.lan {
            let messages = Message::of(std::slice::from_ref(frame), &phone.address);
            for message in messages.iter().filter(|message| !message.sent) {
                ensure!(source == PRIMARY, "from {source:?}: {}", message.text);
                // Media is anchored at the gateway, and its address stands in the body.
                let head = message.text.split("\r\n\r\n").next().unwrap_or_default();
                for stranger in ["10.99.2.", "10.99.1.1:", "10.99.10.2", "10.99.10.10"] {
                    ensure!(!head.contains(stranger), "{stranger} in {}", message.text);
                }
                ensure!(!message.text.contains("10.99.2."), "{}", message.text);
                seen += 1;
            }
        }
    }
    Ok(seen)
}

/// No byte names the LAN, nor does an address of it stand in a header.
fn no_lan(frames: &[Frame]) -> Result<()> {
    for frame in frames {
        if let Some((source, target)) = frame.ipv4() {
            let lan = [source, target]
                .iter()
                .any(|ip| ip.starts_with(&[10, 99, 1]));
            ensure!(!lan, "{source:?} -> {target:?}");
        }
        let text = String::from_utf8_lossy(&frame.bytes);
        ensure!(!text.contains("10.99.1."), "{text}");
    }
    Ok(())
}

/// Registrations and calls, and what either side saw of them.
fn hidden(lan: Transport, wan: Transport) -> Result<()> {
    let office = office(lan, wan)?;
    let phones = Capture::start(&office.branch.phones, "eth0", "port 5060")?;
    let outside = Capture::start(&office.branch.carrier, "a-gw", "ip")?;
    office.register()?;
    flows::calls_both_ways(&office)?;
    let (phones, outside) = (phones.stop()?, outside.stop()?);
    let seen = only_the_primary(&phones, &office)?;
    ensure!(seen >= 10, "only {seen} messages");
    no_lan(&outside)?;
    println!(
        "{seen} messages to phones, {} frames on the WAN",
        outside.len()
    );
    Ok(())
}

#[test]
fn em20_em18_phones_see_their_softswitch_and_the_wan_sees_no_phone() -> Result<()> {
    hidden(Udp, Udp)
}

#[test]
fn em20_em3_the_same_over_tcp() -> Result<()> {
    hidden(Tcp, Tcp)
}

#[test]
fn em20_em3_phones_over_tcp_reach_a_softswitch_over_udp() -> Result<()> {
    flows::calls_both_ways(&office(Tcp, Udp)?)
}

fn that_very_call_connects(over: Transport, death: Death) -> Result<()> {
    let took = call_without_digest(death, Opening::transparent(over, over))?;
    within(Duration::from_secs(2), took)
}

#[test]
fn em20_em4_that_very_call_connects_when_the_primary_is_killed() -> Result<()> {
    that_very_call_connects(Udp, Death::Killed)
}

#[test]
fn em20_em4_that_very_call_connects_when_the_primary_hangs() -> Result<()> {
    that_very_call_connects(Udp, Death::Stopped)
}

#[test]
fn em20_em4_that_very_call_connects_when_the_network_goes_silent() -> Result<()> {
    that_very_call_connects(Udp, Death::Blackhole)
}

#[test]
fn em20_em4_that_very_call_connects_over_tcp_when_the_network_goes_silent() -> Result<()> {
    that_very_call_connects(Tcp, Death::Blackhole)
}

#[test]
fn em20_em23_one_further_challenge_when_the_primary_hangs() -> Result<()> {
    let took = call_with_digest(Death::Stopped, Opening::transparent(Udp, Udp))?;
    within(Duration::from_millis(2500), took)
}

/// A request with so much in it that it comes in fragments.
fn large(method: &str, to: &str, branch: &str) -> String {
    let filler = "x".repeat(3000);
    format!(
        "{method} sip:{to} SIP/2.0\r\nVia: SIP/2.0/UDP 10.99.1.25:5060;branch=z9hG4bK{branch};rport\r\n\
         Max-Forwards: 70\r\nFrom: <sip:260@example.test>;tag=l\r\nTo: <sip:260@example.test>\r\n\
         Call-ID: large@10.99.1.25\r\nCSeq: 1 {method}\r\nContact: <sip:260@10.99.1.25:5060>\r\n\
         X-Fill: {filler}\r\nExpires: 600\r\nContent-Length: 0\r\n\r\n"
    )
}

#[test]
fn em20_em18_what_comes_in_fragments_is_taken_too_and_the_rest_is_routed() -> Result<()> {
    let office = Office::open(&Opening {
        digest: false,
        lan: 0,
        far: 0,
        ..Opening::transparent(Udp, Udp)
    })?;
    // A router forwards: whatever is not taken is seen on the WAN.
    office.branch.gw.sysctl("net.ipv4.ip_forward", "1")?;
    let outside = Capture::start(
        &office.branch.carrier,
        "a-gw",
        "udp and src net 10.99.1.0/24",
    )?;
    let phone = office.branch.phones.udp("10.99.1.25:5060")?;
    phone.set_read_timeout(Some(LIMIT))?;
    let to = format!("{}:5060", SOFTSWITCHES[0]);
    let register = large("REGISTER", "example.test", "large");
    phone.send_to(register.as_bytes(), &to)?;
    let mut answer = [0; 4096];
    let (length, from) = phone.recv_from(&mut answer)?;
    let text = String::from_utf8_lossy(&answer[..length]);
    ensure!(text.starts_with("SIP/2.0 200"), "{text}");
    ensure!(from.to_string() == to, "from {from}");
    // What is no SIP over UDP or TCP is the softswitch's own affair, as it was sent.
    let other = office.branch.softswitches[0].udp(&format!("{}:5061", SOFTSWITCHES[0]))?;
    other.set_read_timeout(Some(LIMIT))?;
    phone.send_to(b"untouched", format!("{}:5061", SOFTSWITCHES[0]))?;
    let (length, from) = other.recv_from(&mut answer)?;
    ensure!(&answer[..length] == b"untouched" && from.to_string() == "10.99.1.25:5060");
    let past = outside.wait_frame(0, LIMIT, |_| true)?;
    ensure!(
        past.udp().is_some_and(|(_, port, _)| port == 5061),
        "{past:?}"
    );
    let all = outside.stop()?;
    ensure!(all.len() == 1, "{} frames passed the gateway by", all.len());
    // The gateway's own address is one more way to it.
    let options = large("OPTIONS", GATEWAY_LAN, "own");
    phone.send_to(options.as_bytes(), format!("{GATEWAY_LAN}:5060"))?;
    let (length, from) = phone.recv_from(&mut answer)?;
    let text = String::from_utf8_lossy(&answer[..length]);
    ensure!(text.starts_with("SIP/2.0 200"), "{text}");
    ensure!(
        from.to_string() == format!("{GATEWAY_LAN}:5060"),
        "from {from}"
    );
    Ok(())
}
