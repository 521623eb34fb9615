//! RTP bleed and injection: third hosts on both sides spray every media port while a call is set
//! up, changed and talks (cases.md, threats; M3, M5).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, GATEWAY_WAN, SOFTSWITCHES};
use keepline_tests::lab::gateway;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::spray::Spray;
use keepline_tests::lab::talk::Talk;

const PACE: Duration = Duration::from_millis(20);
/// The default range.
const PORTS: std::ops::RangeInclusive<u16> = 10_000..=32_767;
/// What rtpengine's best settings let out while a call is set up (ES2025-01).
const AT_SET_UP: u64 = 5;

fn forwarded(office: &Office) -> Result<u64> {
    let answer = office.ask(&["flows"])?;
    let rows = gateway::list(&answer, "flows").iter();
    rows.map(|row| row["packets"].as_u64().context("no packets"))
        .sum()
}

#[test]
fn third_hosts_that_spray_every_port_hear_nothing_and_inject_nothing() -> Result<()> {
    let office = Office::open(&Opening::without_phones())?;
    let branch = &office.branch;
    let a = Agent::new(&branch.phones, "250", &Branch::phone(10), GATEWAY_LAN)?;
    let b = Agent::new(&branch.far, "750", &Branch::far_phone(10), SOFTSWITCHES[1])?;
    a.register(3600)?.is(200)?;
    b.register(3600)?.is(200)?;
    let from = |address: String| format!("{address}:4000");
    let lan = from(Branch::phone(15));
    let wan = from(Branch::far_phone(15));
    let sprays = [
        Spray::begin(&branch.phones, &lan, GATEWAY_LAN, PORTS)?,
        Spray::begin(&branch.far, &wan, GATEWAY_WAN, PORTS)?,
    ];
    let all_ports = || sprays.iter().try_for_each(|spray| spray.rounds(1, LIMIT));
    let leaked = || sprays.iter().map(Spray::heard).sum::<u64>();
    all_ports()?;

    let mut talk = Talk::begin((&branch.phones, &a), (&branch.far, &b), PACE, "")?;
    talk.hear(50)?;
    all_ports()?;
    let at_set_up = leaked();
    ensure!(
        at_set_up <= AT_SET_UP,
        "{at_set_up} packets leaked at set-up"
    );

    // Each side changes its media: a new exchange may learn, from the party alone.
    a.reinvite(&mut talk.dialog, 6000, "")?.is(200)?;
    let mut theirs = b.taken(&talk.dialog.call_id)?;
    b.reinvite(&mut theirs, 6000, "")?.is(200)?;
    all_ports()?;
    // The party's own host, from a port that is not its media's, once the 2 s are over in which
    // a new exchange may learn another.
    talk.hear(125)?;
    let guess = branch.far.udp(&format!("{}:7777", Branch::far_phone(10)))?;
    for kind in [
        &[0x80_u8; 172][..],
        &[22, 0xfe, 0xfd, 0, 0],
        b"\x00\x01\x00\x00",
    ] {
        for _ in 0..10 {
            guess.send_to(kind, theirs.peer_media)?;
        }
    }
    talk.hear(50)?;
    let steady = leaked() - at_set_up;
    ensure!(steady == 0, "{steady} packets leaked in steady state");

    // M3: a party changes its SSRC, and stays on the fast path.
    talk.change_ssrc(PACE)?;
    let before = forwarded(&office)?;
    talk.hear(100)?;
    let passed = forwarded(&office)? - before;
    ensure!(passed >= 190, "{passed} of 200 packets took the fast path");

    let sprayed: u64 = sprays.iter().map(Spray::sent).sum();
    drop(sprays);
    // Every packet that a party heard is one that the other sent: none was injected.
    let (packets, _) = talk.end(&a)?;
    println!("{sprayed} packets sprayed, {at_set_up} leaked at set-up, 0 later, {packets} heard");
    Ok(())
}
