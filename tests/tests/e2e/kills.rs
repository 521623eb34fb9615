//! Kills at random moments, and what reaches phones while nobody runs. Twenty kills in one run
//! are `soak/kills.rs`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::gateway;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::{Capture, Frame, wait};
use keepline_tests::scenario::kills;

const PACE: Duration = Duration::from_millis(20);

#[test]
fn kl5_kills_at_random_moments_lose_no_packet_and_no_request() -> Result<()> {
    let outcome = kills::play(7, 4)?;
    println!("{outcome:?}");
    Ok(())
}

/// Packets of this reason, read from the pinned maps: no daemon is needed.
fn counted(office: &Office, reason: &str) -> Result<u64> {
    let text = gateway::run(&office.branch, &["stats", "--prometheus"])?;
    let label = format!("reason=\"{reason}\"");
    let lines = text.lines().filter(|line| line.contains(&label));
    lines
        .map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?))
        .sum()
}

#[test]
fn kl5_no_icmp_reaches_a_phone_while_nobody_holds_the_media_ports() -> Result<()> {
    let mut office = Office::open(&Opening::without_phones())?;
    let branch = &office.branch;
    let phone = Agent::new(&branch.phones, "250", &Branch::phone(10), GATEWAY_LAN)?;
    let far = Agent::new(&branch.far, "750", &Branch::far_phone(10), SOFTSWITCHES[1])?;
    phone.register(3600)?.is(200)?;
    far.register(3600)?.is(200)?;
    let talk = Talk::begin((&branch.phones, &phone), (&branch.far, &far), PACE, "")?;
    talk.hear(20)?;
    let stranger = branch.phones.udp(&format!("{}:4444", Branch::phone(15)))?;
    // The capture sees ICMP: a port outside of the media range is refused by it.
    let icmp = Capture::start(&branch.phones, "eth0", "icmp")?;
    let closed = format!("{GATEWAY_LAN}:9");
    stranger.send_to(b"anybody?", &closed)?;
    icmp.wait_frame(0, LIMIT, |_| true)
        .context("the capture sees no ICMP at all")?;
    let known = icmp.frames()?.len();

    office.gateway.process().kill();
    let before = counted(&office, "media_unbound")?;
    // A stranger sprays the call's port, its neighbours, and ports of no call.
    let ports = [
        talk.dialog.peer_media.port(),
        talk.dialog.peer_media.port() + 1,
        talk.dialog.peer_media.port() + 2,
        20_000,
        32_767,
    ];
    for port in ports {
        for _ in 0..10 {
            stranger.send_to(&[0x80; 172], format!("{GATEWAY_LAN}:{port}"))?;
        }
    }
    let sprayed = 10 * u64::try_from(ports.len())?;
    let after = wait::until("every packet is counted", LIMIT, || {
        let now = counted(&office, "media_unbound").ok()? - before;
        (now >= sprayed).then_some(now)
    })?;
    ensure!(after == sprayed, "{after} counted, {sprayed} sent");
    talk.hear(20)?;
    let seen: Vec<Frame> = icmp.stop()?.split_off(known);
    ensure!(seen.is_empty(), "ICMP for media ports: {seen:?}");

    office.gateway.restart(&office.branch)?;
    talk.hear(20)?;
    talk.end(&phone)?;
    Ok(())
}
