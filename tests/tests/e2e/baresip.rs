//! Phones that people use register through the gateway, and talk, the tone counted in XDP.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::baresip::Baresip;
use keepline_tests::lab::gateway::list;
use keepline_tests::lab::kamailio::DOMAIN;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::wait;
use serde_json::Value;

/// Two seconds of G.711.
const ENOUGH: u64 = 100;

/// Packets that each flow of the gateway's one call has carried.
fn carried(office: &Office) -> Result<Vec<u64>> {
    let answer = office.ask(&["flows"])?;
    let flows = list(&answer, "flows").iter();
    flows
        .map(|flow| flow["packets"].as_u64().context("no count"))
        .collect()
}

#[test]
fn two_baresips_register_and_talk_through_xdp_and_hang_up() -> Result<()> {
    let office = Office::open(&Opening::default())?;
    let node = &office.branch.phones;
    let (a, b) = (&office.lan[0], &office.lan[1]);
    let mut callee = Baresip::start(node, b, 20_000, &[])?;
    let dial = format!("/dial sip:{}@{DOMAIN}", b.user);
    let mut caller = Baresip::start(node, a, 21_000, &[&dial])?;
    caller.says("Call established", LIMIT)?;
    callee.says("Call established", LIMIT)?;
    wait::until("the tone flows both ways", Duration::from_secs(20), || {
        let counts = carried(&office).ok()?;
        let loud = counts.iter().filter(|count| **count >= ENOUGH).count();
        (loud >= 2).then_some(())
    })?;
    let registered = office.ask(&["registrations"])?;
    let upstream = list(&registered, "registrations")
        .iter()
        .filter(|entry| entry["state"] == "upstream");
    ensure!(upstream.count() == 2, "{registered}");
    caller.quit()?;
    callee.says("terminated", LIMIT)?;
    wait::until("the call is over", LIMIT, || {
        let answer = office.ask(&["calls"]).ok()?;
        answer["calls"].as_array()?.is_empty().then_some(())
    })?;
    callee.quit()?;
    // Both took their registrations back, and the softswitch heard of it.
    wait::until("nobody is registered", LIMIT, || {
        let answer = office.ask(&["registrations"]).ok()?;
        answer["registrations"].as_array()?.is_empty().then_some(())
    })?;
    let dump = office.backup.rpc(
        &office.branch,
        &["ul.lookup", "location", &format!("s:{}", a.user)],
    );
    ensure!(
        dump.as_ref()
            .map_or(true, |text| !text.contains("Address:")),
        "{dump:?}"
    );
    let unplanned = office
        .ask(&["stats"])?
        .pointer("/reasons/media_foreign_source")
        .and_then(Value::as_u64);
    ensure!(unplanned.unwrap_or(0) == 0, "a packet from elsewhere");
    Ok(())
}
