//! Registrations and calls through the real gateway, with real phones and softswitches.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::GATEWAY_WAN;
use keepline_tests::lab::call::{Call, whole};
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::{Capture, Frame, flows};

const TALK: Duration = Duration::from_secs(2);
/// The callers hang up after this: talk, and time to read counters.
const HOLD: Duration = Duration::from_secs(6);

fn office() -> Result<Office> {
    let office = Office::open(&Opening::default())?;
    office.register()?;
    Ok(office)
}

/// The contacts that a softswitch holds for a user.
fn contacts(office: &Office, user: &str) -> Result<Vec<String>> {
    let text = office.backup.rpc(
        &office.branch,
        &["ul.lookup", "location", &format!("s:{user}")],
    )?;
    let value = |line: &str| Some(line.trim().strip_prefix("Address:")?.trim().to_owned());
    Ok(text.lines().filter_map(value).collect())
}

#[test]
fn em25_the_registrar_holds_one_contact_per_phone() -> Result<()> {
    let office = office()?;
    assert_eq!(office.registered_upstream()?, office.lan.len());
    // Again, as phones do: the same binding, not another.
    office.register()?;
    for phone in &office.lan {
        let held = contacts(&office, &phone.user)?;
        ensure!(held.len() == 1, "{} has {held:?}", phone.user);
        ensure!(
            held[0].contains(GATEWAY_WAN),
            "not at the gateway: {held:?}"
        );
    }
    Ok(())
}

#[test]
fn kl1_a_call_across_the_wan_has_its_media_in_xdp() -> Result<()> {
    let office = office()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut call = Call::dial((phones, &office.lan[0]), (far, &office.far[0]), HOLD)?;
    call.talk()?;
    call.heard_for(TALK)?;
    let received = whole(call.silence())?;
    ensure!(
        received >= 200,
        "too little media to prove anything: {received}"
    );
    flows::counted(&office, received, 1)?;
    native(&office)?;
    call.done()
}

#[test]
fn a_call_that_spirals_through_the_softswitch_is_rewritten_once_per_packet() -> Result<()> {
    let office = office()?;
    let phones = &office.branch.phones;
    let mut call = Call::dial((phones, &office.lan[0]), (phones, &office.lan[1]), HOLD)?;
    call.talk()?;
    call.heard_for(TALK)?;
    let received = whole(call.silence())?;
    flows::counted(&office, received, 0)?;
    call.done()
}

#[test]
fn a_call_from_outside_reaches_a_phone_of_the_branch() -> Result<()> {
    let office = office()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut call = Call::dial((far, &office.far[0]), (phones, &office.lan[0]), HOLD)?;
    call.talk()?;
    call.heard_for(TALK)?;
    flows::counted(&office, whole(call.silence())?, 1)?;
    call.done()
}

#[test]
fn em18_no_address_of_one_side_leaves_on_the_other() -> Result<()> {
    let office = office()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let lan = Capture::start(phones, "eth0", "ip")?;
    let wan = Capture::start(&office.branch.carrier, "a-gw", "ip")?;
    office.register()?;
    for (from, to) in [
        ((phones, &office.lan[0]), (far, &office.far[0])),
        ((far, &office.far[1]), (phones, &office.lan[1])),
        ((phones, &office.lan[2]), (phones, &office.lan[3])),
    ] {
        let mut call = Call::dial(from, to, Duration::from_secs(1))?;
        call.talk()?;
        call.done()?;
    }
    let (lan, wan) = (lan.stop()?, wan.stop()?);
    ensure!(lan.len() > 20 && wan.len() > 20, "too little was captured");
    leaks(
        &lan,
        &["10.99.2.", "10.99.10."],
        &[[10, 99, 2], [10, 99, 10]],
    )?;
    leaks(&wan, &["10.99.1."], &[[10, 99, 1]])
}

/// Searches payloads for addresses as text, and IP headers for addresses as such.
fn leaks(frames: &[Frame], texts: &[&str], networks: &[[u8; 3]]) -> Result<()> {
    for frame in frames {
        let (source, target) = frame.ipv4().context("an IP frame without addresses")?;
        for network in networks {
            let inside = source.starts_with(network) || target.starts_with(network);
            ensure!(!inside, "{source:?} -> {target:?}");
        }
        let text = String::from_utf8_lossy(&frame.bytes);
        for needle in texts {
            ensure!(!text.contains(needle), "{needle} in: {text}");
        }
    }
    Ok(())
}

/// Every interface runs its program natively.
fn native(office: &Office) -> Result<()> {
    let answer = office.ask(&["status"])?;
    let interfaces = answer
        .pointer("/fastpath/interfaces")
        .context("no interfaces")?;
    let interfaces = interfaces.as_array().context("no list")?;
    ensure!(interfaces.len() == 2, "{answer}");
    for interface in interfaces {
        let native = interface["mode"] == "native" && interface["attached"] == true;
        ensure!(native, "{interface}");
    }
    Ok(())
}
