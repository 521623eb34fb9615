//! What the gateway says to softswitches through a tunnel goes on by the other one, and comes home:
//! connections end at neither, nor where a neighbour sends by another tunnel than we do.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_engine::net::Transport::{Tcp, Tls, Udp};
use keepline_tests::lab::Capture;
use keepline_tests::lab::call::Call;
use keepline_tests::lab::office::Office;
use keepline_tests::lab::tls::certified;
use keepline_tests::lab::tunnels::at;
use keepline_tests::lab::ways::{SOON, Scene, TALK, first_way, moved, raise, raise_on, talk};

/// Over what is done while the first way is left: less than it takes to come home.
const AWAY: Duration = Duration::from_secs(20);
/// Over the return of the first way: three answers and thirty seconds.
const HOME: Duration = Duration::from_secs(75);
const RETURN: Duration = Duration::from_secs(60);

/// Local ends, `ADDRESS:PORT`, of the gateway's connections to softswitches.
fn connections(office: &Office) -> Result<Vec<String>> {
    let words = "-Htn state established ( dport = :5060 or dport = :5061 )";
    let words: Vec<&str> = words.split(' ').collect();
    let all = office.branch.gw.run("ss", &words)?;
    let local = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    let mut local: Vec<String> = all.lines().filter_map(local).collect();
    local.sort();
    Ok(local)
}

/// The connections are those of before.
fn unmoved(office: &Office, before: &[String]) -> Result<()> {
    let now = connections(office)?;
    ensure!(now == before, "{before:?} became {now:?}");
    Ok(())
}

/// One more call, to its end; SIP of it is seen at an interface of the gateway.
fn one_more(office: &Office, wire: &Capture) -> Result<()> {
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let earlier = wire.frames()?.len();
    let mut call = Call::dial((phones, &office.lan[2]), (far, &office.far[2]), TALK)?;
    call.talk()?;
    call.done()?;
    wire.wait_frame(earlier, SOON, |_| true).map(drop)
}

#[test]
fn mx8_connections_to_the_softswitch_move_with_the_tunnel_and_calls_come_home() -> Result<()> {
    let scene = raise(Tcp)?;
    let office = &scene.office;
    let mut calls = talk(office, HOME)?;
    let before = connections(office)?;
    ensure!(before.len() == 2, "{before:?}");

    first_way(office, "0")?;
    moved(office, "fail_over", SOON)?;
    calls.iter().try_for_each(|call| call.heard_again(TALK))?;
    // Over the connections that stood before, a third one gets through.
    office.wait_group("serving")?;
    let anew = Capture::start(&office.branch.gw, "wan1", "tcp port 5060 and inbound")?;
    one_more(office, &anew)?;
    unmoved(office, &before)?;

    // A question from there would draw traffic to a way that is not believed in yet.
    let asked = Capture::start(
        &office.branch.gw,
        "wan0",
        "arp[6:2] = 1 and src host 10.99.2.1",
    )?;
    first_way(office, "3")?;
    let back = at(&moved(office, "fail_back", RETURN)?)?;
    let asked = asked.wait_frame(0, SOON, |_| true)?;
    ensure!(asked.at >= back, "the first way was used before: {asked:?}");
    // At the far end of the cable: what XDP redirects at our end is in no capture there.
    let home = Capture::start(&office.branch.carrier, "a-gw", "udp and not port 5060")?;
    let from = [true, false].map(|inbound| {
        home.wait_frame(0, SOON, |frame| {
            let ports = frame.udp();
            let media = ports.is_some_and(|(_, _, payload)| payload.first() == Some(&0x80));
            let to_us = frame.ipv4().is_some_and(|(_, to)| to == [10, 99, 2, 1]);
            media && to_us == inbound
        })
    });
    for (way, seen) in ["in", "out"].iter().zip(from) {
        seen.with_context(|| format!("no media {way} by the first way"))?;
    }
    let route = office.branch.gw.ip("route show default")?;
    ensure!(route.contains("dev wan0"), "{route}");
    // One more call passes there, and so do BYE and its answer, over the very same connections.
    let home = Capture::start(&office.branch.gw, "wan0", "tcp port 5060 and inbound")?;
    one_more(office, &home)?;
    calls.iter_mut().try_for_each(Call::done)?;
    unmoved(office, &before)
}

/// The router behind both ways takes this interface of the gateway for where its address is.
fn believes(office: &Office, interface: &str) -> Result<()> {
    let link = office.branch.gw.ip(&format!("-o link show {interface}"))?;
    let mac = link.split("link/ether ").nth(1).context("no MAC")?;
    let mac = mac.split(' ').next().unwrap_or_default();
    let entry = format!("neigh replace 10.99.2.1 lladdr {mac} nud permanent dev eth0");
    office.branch.routers[0].ip(&entry).map(drop)
}

/// The first way is left, works again, and is not yet returned to; the router sends there.
fn other_way(scene: &Scene, sip: &str) -> Result<Vec<String>> {
    let office = &scene.office;
    let before = connections(office)?;
    let refused = Capture::start(
        &office.branch.carrier,
        "access",
        "icmp[0] = 3 and icmp[30:2] = 5060 or tcp[tcpflags] & tcp-rst != 0",
    )?;
    let mut calls = talk(office, AWAY)?;
    first_way(office, "0")?;
    moved(office, "fail_over", SOON)?;
    office.wait_group("serving")?;
    first_way(office, "3")?;
    believes(office, "wan0")?;
    let left = Capture::start(&office.branch.gw, "wan0", &format!("{sip} and inbound"))?;
    one_more(office, &left)?;
    calls.iter().try_for_each(|call| call.heard_again(TALK))?;
    // One that is in no call: SIPp has the ports of those that are.
    office.register_one(&office.lan[3])?;
    unmoved(office, &before)?;
    let events = office.events()?;
    let back = events.iter().any(|event| event["rule"] == "fail_back");
    ensure!(!back, "too slow a machine: it has returned already");
    let refused = refused.stop()?;
    ensure!(refused.is_empty(), "refused: {refused:?}");
    calls.iter_mut().try_for_each(Call::done)?;
    Ok(before)
}

#[test]
fn mx8_a_router_that_sends_by_the_way_that_was_left_ends_no_connection() -> Result<()> {
    let scene = raise(Tcp)?;
    let before = other_way(&scene, "tcp port 5060")?;
    ensure!(before.len() == 2, "{before:?}");
    // The same the other way round, once the first way is returned to.
    let office = &scene.office;
    moved(office, "fail_back", RETURN)?;
    believes(office, "wan1")?;
    let left = Capture::start(&office.branch.gw, "wan1", "tcp port 5060 and inbound")?;
    one_more(office, &left)?;
    unmoved(office, &before)
}

#[test]
fn mx8_em3_the_same_over_tls() -> Result<()> {
    let (branch, _authority) = certified()?;
    let scene = raise_on(branch, Tls)?;
    let before = other_way(&scene, "tcp port 5061")?;
    ensure!(before.len() == 2, "{before:?}");
    Ok(())
}

#[test]
fn mx8_em3_the_same_over_udp() -> Result<()> {
    let scene = raise(Udp)?;
    let before = other_way(&scene, "udp port 5060")?;
    ensure!(before.is_empty(), "{before:?}");
    Ok(())
}
