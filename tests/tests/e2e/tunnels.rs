//! The daemon on two real tunnels with real DHCP servers: what is found, and how soon.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::tunnels::{HQ, Lab, SOON, at, reaches};
use keepline_tests::lab::{Capture, Frame, wait};

/// Short timers with the arithmetic of the long ones: asked at 1 and 2 s, down at 3 s.
const QUICK: &str = "heartbeat_interval = \"1s\"\nidle_timeout = \"1s\"\nprobe_timeout = \"2s\"";
/// Between two connections of a client that works.
const PACE: Duration = Duration::from_millis(200);
/// What a busy machine may add.
const LATE: Duration = Duration::from_millis(700);

#[test]
fn mx3_mx4_mx6_a_one_way_tunnel_is_found_by_its_arithmetic() -> Result<()> {
    let lab = Lab::proven(QUICK)?;
    let client = lab.lease()?;
    let asked = Capture::start(&lab.net.gw, "hq0", "udp dst port 67")?;
    let other = Capture::start(&lab.net.gw, "hq1", "udp dst port 67")?;
    let heard = Capture::start(&lab.net.gw, "hq0", "src host 10.9.0.10")?;
    reaches(&lab.net.client, client.into(), HQ)?;
    // What the gateway sends arrives; nothing comes back.
    let rule = "table inet oneway { chain out { type filter hook output priority -300; \
                oifname eth0 drop; }; }";
    lab.net.concentrators[0].run("nft", &[rule])?;
    let verdict = lab.event("tunnel", "probes_unanswered", 0, SOON)?;
    ensure!(lab.active()? == "hq-b" && lab.state("hq-a")? == "down");
    ensure!(
        verdict
            .to_string()
            .contains("2 probes unanswered within 2.0 s"),
        "{verdict}"
    );
    let silent = heard.frames()?.last().context("no frame was heard")?.at;
    let down = at(&verdict)?;
    // Those before asked for the proof, those after the verdict ask for the return.
    let frames = asked.frames()?;
    let times = frames.iter().map(|frame| frame.at);
    let probes: Vec<Duration> = times.filter(|time| *time < down).collect();
    let [.., first, second] = probes[..] else {
        anyhow::bail!("{} probes were sent", probes.len())
    };
    println!(
        "silent since 0 ms, asked at {} and {} ms, down at {} ms",
        (first - silent).as_millis(),
        (second - silent).as_millis(),
        (down - silent).as_millis()
    );
    for (what, expected) in [(first, 1), (second, 2), (down, 3)] {
        let expected = Duration::from_secs(expected);
        ensure!(
            what - silent + Duration::from_millis(150) >= expected
                && what - silent <= expected + LATE,
            "not at {expected:?}"
        );
    }
    for frame in &frames {
        let bytes = &frame.bytes;
        ensure!(bytes[..6] == [0xff; 6], "not broadcast");
        ensure!(bytes[6..12] == bytes[70..76], "the source is not chaddr");
        ensure!(bytes[6] & 3 == 2, "not a local address");
        ensure!(bytes[54..58] == [0; 4], "ciaddr is set");
        ensure!(bytes[52] == 0x80, "no broadcast flag");
    }
    let others = other.frames()?;
    ensure!(
        others.iter().all(|frame| frame.at >= down),
        "the secondary was asked"
    );
    Ok(())
}

#[test]
fn mx2_a_silent_server_behind_client_traffic_is_never_called_down() -> Result<()> {
    let mut lab = Lab::proven(QUICK)?;
    let client = lab.lease()?;
    drop(lab.dhcp[0].take());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        reaches(&lab.net.client, client.into(), HQ)?;
        std::thread::sleep(PACE);
        ensure!(lab.state("hq-a")? != "down" && lab.active()? == "hq-a");
    }
    ensure!(lab.events("tunnel", "probes_unanswered")?.is_empty());
    // Without traffic its silence tells.
    lab.event("tunnel", "probes_unanswered", 0, SOON)?;
    ensure!(lab.active()? == "hq-b");
    reaches(&lab.net.client, client.into(), HQ)
}

#[test]
fn mx8_carrier_and_interface_are_immediate_evidence() -> Result<()> {
    let lab = Lab::proven("heartbeat_interval = \"1s\"")?;
    let client = lab.lease()?;
    lab.net.gw.ip("link set hq0 down")?;
    let lost = lab.event("tunnel", "carrier_lost", 0, SOON)?;
    ensure!(lost["object"] == "hq-a", "{lost}");
    ensure!(lab.active()? == "hq-b", "the secondary is not in use");
    reaches(&lab.net.client, client.into(), HQ)?;
    // The device is made anew while it is not in use; then the one in use vanishes.
    lab.net.gw.ip("link del hq0")?;
    lab.net.tunnel_anew(0)?;
    wait::until("it answers again", SOON, || {
        let left = &lab.tunnel("hq-a").ok()?["returns_in_s"];
        left.is_u64().then_some(())
    })?;
    lab.net.gw.ip("link del hq1")?;
    let gone = lab.event("tunnel", "interface_gone", 0, SOON)?;
    ensure!(gone["object"] == "hq-b", "{gone}");
    lab.event("segment", "fail_over", 1, SOON)?;
    ensure!(
        lab.active()? == "hq-a",
        "the one that is left is not in use"
    );
    reaches(&lab.net.client, client.into(), HQ)
}

#[test]
fn mx7_a_tunnel_that_never_answered_is_unproven_and_explained() -> Result<()> {
    let mut lab = Lab::raise()?;
    drop(lab.dhcp[1].take());
    lab.start(&Lab::config(QUICK))?;
    lab.event("tunnel", "never_answered", 0, SOON)?;
    ensure!(lab.state("hq-b")? == "unproven" && lab.active()? == "hq-a");
    let why = lab.ask(&["explain", "hq-b"])?;
    ensure!(why["state"] == "unproven", "{why}");
    ensure!(why.to_string().contains("2 probes unanswered"), "{why}");
    let status = lab.ask(&["status"])?;
    ensure!(status["segments"][0]["active"] == "hq-a", "{status}");
    ensure!(status["tunnels"][1]["state"] == "unproven", "{status}");
    Ok(())
}

#[test]
fn mx8_an_ipv6_client_is_announced_behind_the_new_tunnel() -> Result<()> {
    const OWN: &str = "fd00:9::20";
    let lab = Lab::proven("heartbeat_interval = \"1s\"")?;
    let client = &lab.net.client;
    client.sysctl("net.ipv6.conf.eth0.disable_ipv6", "0")?;
    client.ip(&format!("addr add {OWN}/64 dev eth0 nodad"))?;
    let asked = Capture::start(&lab.net.gw, "hq0", "icmp6 and ip6[40] = 135")?;
    let announced = Capture::start(&lab.net.gw, "hq1", "icmp6 and ip6[40] = 136")?;
    let own: std::net::Ipv6Addr = OWN.parse()?;
    let is_own = |frame: &Frame| frame.bytes[22..38] == own.octets();
    // It asks who has an address, which nobody has.
    let socket = client.udp(&format!("[{OWN}]:0"))?;
    let question = wait::until("it was heard", SOON, || {
        let _ = socket.send_to(b"anybody", "[fd00:9::99]:9");
        asked.frames().ok()?.into_iter().find(|frame| is_own(frame))
    })?;
    lab.net.gw.ip("link set hq0 down")?;
    let told = announced.wait_frame(0, SOON, is_own)?;
    ensure!(
        told.bytes[6..12] == question.bytes[6..12],
        "not from its MAC"
    );
    ensure!(told.bytes[62..78] == own.octets(), "not its address");
    // To all nodes, never routed, and what is known of it is replaced.
    ensure!(told.bytes[..6] == [0x33, 0x33, 0, 0, 0, 1] && told.bytes[21] == 255);
    ensure!(told.bytes[58] == 0x20, "flags {:02x}", told.bytes[58]);
    Ok(())
}
