//! The other ends of veths (case X13), and what the daemon tells of packets it cannot serve.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline::fastpath;
use keepline_tests::{
    fixture::site::{LIMIT, Site, carries_a_program},
    lab::{Branch, gateway, wait},
};
use serde_json::Value;

#[test]
fn a_veth_is_told_to_need_a_program_at_its_other_end() -> Result<()> {
    let site = Site::raise()?;
    let (programs, _maps) = site.start()?;
    for on in programs.attached() {
        ensure!(
            on.notes.iter().any(|note| note.contains("other end")),
            "{on:?}"
        );
    }
    Ok(())
}

/// Both ends in the gateway's own namespace, as with a bridge or a container beside it.
#[test]
fn case_x13_a_bare_other_end_in_reach_gets_a_program_that_goes_with_ours() -> Result<()> {
    let mut site = Site::raise()?;
    let gw = &site.branch.gw;
    gw.ip("link add here0 type veth peer name there0")?;
    gw.ip("link set here0 up")?;
    gw.ip("link set there0 up")?;
    site.options.interfaces[0].name = "here0".into();
    ensure!(!carries_a_program(gw, "there0")?);
    for again in [false, true] {
        let (programs, _maps) = site.start()?;
        let here = programs.attached().first().context("nothing attached")?;
        ensure!(here.degraded.is_empty(), "again {again}: {here:?}");
        ensure!(carries_a_program(gw, "there0")?, "again {again}");
    }
    // Other maps: the links move to the next generation.
    site.options.media = 10_000..=20_999;
    drop(site.start()?);
    site.one_generation()?;
    ensure!(carries_a_program(gw, "there0")?, "lost with the old maps");
    gw.net()
        .enter(|| Ok(fastpath::unload(&site.options.pin)?))?;
    ensure!(!carries_a_program(gw, "there0")?, "left behind");
    Ok(())
}

#[test]
fn case_x13_a_bare_other_end_out_of_reach_is_told_with_its_remedy() -> Result<()> {
    let mut site = Site::raise()?;
    site.branch.phones.bare("eth0")?;
    let (programs, _maps) = site.start()?;
    let on = programs.attached().iter().find(|on| on.name == "lan0");
    let on = on.context("lan0 is not attached")?;
    let told = |why: &String| why.contains("takes no frames") && why.contains("PASS");
    ensure!(on.degraded.iter().any(told), "{on:?}");
    let wan = programs.attached().iter().find(|on| on.name == "wan0");
    ensure!(wan.is_some_and(|on| on.degraded.is_empty()), "{wan:?}");
    Ok(())
}

#[test]
fn case_x13_the_daemon_tells_of_a_bare_end_and_when_it_is_well() -> Result<()> {
    let mut branch = Branch::raise()?;
    let _gateway = gateway::Gateway::start(&branch, &gateway::config())?;
    ensure!(!unhealthy(&branch).contains("takes no frames"));
    branch.phones.bare("eth0")?;
    wait::until("it is told", LIMIT, || {
        unhealthy(&branch).contains("takes no frames").then_some(())
    })?;
    event(&branch, |event| {
        event["rule"] == "fastpath_degraded"
            && event["object"] == "lan0"
            && event["to"] == "degraded"
    })?;
    branch.phones.run("ethtool", &["-K", "eth0", "gro", "on"])?;
    wait::until("it is well", LIMIT, || {
        (!unhealthy(&branch).contains("takes no frames")).then_some(())
    })?;
    event(&branch, |event| {
        event["rule"] == "fastpath_degraded" && event["object"] == "lan0" && event["to"] == "well"
    })
}

#[test]
fn rare_events_of_the_program_are_shown() -> Result<()> {
    let branch = Branch::raise()?;
    let _gateway = gateway::Gateway::start(&branch, &gateway::config())?;
    // A media port that no call has: nobody is bound there.
    let phone = branch.phones.udp("10.99.1.11:4000")?;
    phone.send_to(&[0x80; 172], "10.99.1.1:10500")?;
    event(&branch, |event| {
        event["rule"] == "media_unbound"
            && event["object"] == "lan0"
            && event["to"] == "drop"
            && event["evidence"][0]["what"] == "a datagram from 10.99.1.11 for port 10500"
    })
}

/// Every sentence of `status` on the fast path.
fn unhealthy(branch: &Branch) -> String {
    let status = gateway::ask(branch, &["status"]).unwrap_or_default();
    status["fastpath"]["interfaces"].to_string()
}

fn event(branch: &Branch, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    wait::until("the event", Duration::from_secs(5), || {
        let answer = gateway::ask(branch, &["events"]).ok()?;
        gateway::list(&answer, "events")
            .iter()
            .any(&wanted)
            .then_some(())
    })
}
