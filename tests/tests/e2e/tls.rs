//! SIP over TLS: certificates of an authority of the lab's own, a softswitch over OpenSSL.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport::{Tcp, Tls};
use keepline_tests::lab::baresip::Baresip;
use keepline_tests::lab::branch::{GATEWAY_LAN, GATEWAY_WAN};
use keepline_tests::lab::call::{Call, whole};
use keepline_tests::lab::death::{Death, call_without_digest_in, within};
use keepline_tests::lab::gateway::list;
use keepline_tests::lab::kamailio::DOMAIN;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::tls::{SOFTSWITCHES, certified};
use keepline_tests::lab::{Capture, flows, gateway, wait};

const TALK: Duration = Duration::from_secs(1);
/// The callers hang up after this: talk, and time to read counters.
const HOLD: Duration = Duration::from_secs(4);

fn opening() -> Opening {
    Opening {
        lan: 2,
        far: 2,
        ..Opening::over(Tcp, Tls)
    }
}

/// The events about certificates: of whom, and what became of it.
fn told(office: &Office) -> Result<Vec<(String, String, String)>> {
    let events = office.events()?.into_iter();
    let tls = events.filter(|event| event["kind"] == "tls");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows = tls.map(|event| {
        let what = text(&event["evidence"][0]["what"]);
        (text(&event["object"]), text(&event["to"]), what)
    });
    Ok(rows.collect())
}

#[test]
fn em3_calls_to_a_softswitch_over_tls_have_their_media_in_xdp_and_no_sip_is_readable() -> Result<()>
{
    let (branch, _) = certified()?;
    let office = Office::open_on(branch, &opening())?;
    let wan = Capture::start(&office.branch.carrier, "a-gw", "port 5060 or port 5061")?;
    office.register()?;
    office.registered_upstream()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    for (from, to) in [
        ((phones, &office.lan[0]), (far, &office.far[0])),
        ((far, &office.far[1]), (phones, &office.lan[1])),
    ] {
        let before = flows::unplanned(&office)?;
        let mut call = Call::dial(from, to, HOLD)?;
        call.talk()?;
        call.heard_for(TALK)?;
        flows::counted_since(&office, before, whole(call.silence())?, 1)?;
        call.done()?;
    }
    let frames = wan.stop()?;
    // A connection, REGISTERs and two calls: fewer would be another capture.
    ensure!(frames.len() > 20, "only {} frames", frames.len());
    for frame in &frames {
        let text = String::from_utf8_lossy(&frame.bytes);
        ensure!(!text.contains("SIP/2.0"), "readable: {text}");
    }
    Ok(())
}

#[test]
fn em3_em4_that_very_call_connects_over_tls_when_the_primary_is_killed() -> Result<()> {
    that_very_call_connects(Death::Killed)
}

#[test]
fn em3_em4_that_very_call_connects_over_tls_when_the_primary_hangs() -> Result<()> {
    that_very_call_connects(Death::Stopped)
}

#[test]
fn em3_em4_that_very_call_connects_over_tls_when_the_network_goes_silent() -> Result<()> {
    that_very_call_connects(Death::Blackhole)
}

fn that_very_call_connects(death: Death) -> Result<()> {
    let (branch, _) = certified()?;
    within(
        Duration::from_secs(2),
        call_without_digest_in(branch, death, opening())?,
    )
}

#[test]
fn em3_a_wrong_name_and_an_expired_certificate_are_refused_with_one_event_each() -> Result<()> {
    let (branch, authority) = certified()?;
    authority.issue(branch.cell(), SOFTSWITCHES[0], &["other.test"])?;
    authority.issue_expired(branch.cell(), SOFTSWITCHES[1], &[DOMAIN])?;
    let mut office = Office::open_on(branch, &opening())?;
    wait::until("both are refused", LIMIT, || {
        (told(&office).ok()?.len() >= 2).then_some(())
    })?;
    office.wait_group("survivability")?;
    let mut events = told(&office)?;
    events.sort();
    ensure!(events.len() == 2, "{events:?}");
    for ((object, to, what), (server, why)) in events.iter().zip([
        ("10.99.10.1:5061", "it names other.test"),
        ("10.99.10.2:5061", "expired"),
    ]) {
        let clear = object == server && to == "refused" && what.to_lowercase().contains(why);
        ensure!(clear, "{object} {to} {what}");
    }
    // A right certificate, and it is trusted again.
    authority.issue(office.branch.cell(), SOFTSWITCHES[0], &[DOMAIN])?;
    office.primary.restart(&office.branch)?;
    office.wait_group("serving")?;
    let last = told(&office)?.pop().context("no event")?;
    ensure!(
        (last.0.as_str(), last.1.as_str()) == ("10.99.10.1:5061", "trusted"),
        "{last:?}"
    );
    Ok(())
}

#[test]
fn em3_two_phones_over_tls_talk_and_a_certificate_is_renewed_under_their_call() -> Result<()> {
    let (branch, authority) = certified()?;
    let office = Office::open_on(
        branch,
        &Opening {
            lan: 3,
            ..Opening::over(Tls, Tls)
        },
    )?;
    let node = &office.branch.phones;
    let mut callee = Baresip::start(node, &office.lan[1], 20_000, &[])?;
    let dial = format!("/dial sip:{}@{DOMAIN}", office.lan[1].user);
    let mut caller = Baresip::start(node, &office.lan[0], 21_000, &[&dial])?;
    caller.says("Call established", LIMIT)?;
    wait::until("the tone flows both ways", LIMIT, || {
        let answer = office.ask(&["flows"]).ok()?;
        let counts = list(&answer, "flows").iter();
        let loud = counts.filter(|flow| flow["packets"].as_u64().unwrap_or(0) >= 100);
        (loud.count() >= 2).then_some(())
    })?;
    authority.issue(
        office.branch.cell(),
        "/run/gw",
        &[DOMAIN, GATEWAY_LAN, GATEWAY_WAN],
    )?;
    let said = gateway::run(&office.branch, &["reload"])?;
    ensure!(said.contains("certificates were read again"), "{said}");
    // Who comes later is shown the new one; who talks, talks on.
    let mut third = Baresip::start(node, &office.lan[2], 22_000, &[])?;
    let calls = office.ask(&["calls"])?;
    ensure!(!list(&calls, "calls").is_empty(), "{calls}");
    office.branch.cell().write("/run/gw/key.pem", "none")?;
    ensure!(gateway::run(&office.branch, &["reload"]).is_err(), "taken?");
    let kept = told(&office)?.pop().context("no event")?;
    ensure!(
        kept.1 == "kept" && kept.2.contains("no private key"),
        "{kept:?}"
    );
    caller.quit()?;
    callee.quit()?;
    third.quit()
}
