//! A thousand random histories of the tunnel monitor, of which a handful run in the engine's own
//! tests; and the shipped timers end to end.

#[path = "../../../engine/tests/tunnel/histories.rs"]
#[allow(unused, reason = "shared with the engine's tests")]
mod histories;
#[path = "../../../engine/tests/tunnel/sim.rs"]
#[allow(unused, reason = "shared with the engine's tests")]
mod sim;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::Capture;
use keepline_tests::lab::tunnels::{HQ, Lab, at, reaches};

#[test]
fn mx8_a_thousand_histories_keep_what_holds() {
    histories::play_all(0..1_000);
}

/// The arithmetic of MX6 with the shipped timers, end to end: asked at 30, 40 and 50 s of silence,
/// down at 60 s; and home again after three answers and thirty seconds.
#[test]
fn mx3_mx6_mx8_classic_at_its_defaults_moves_the_segment_at_60_s() -> Result<()> {
    let lab = Lab::proven("")?;
    let client = lab.lease()?;
    let asked = Capture::start(&lab.net.gw, "hq0", "udp dst port 67")?;
    let heard = Capture::start(&lab.net.gw, "hq0", &format!("src host {HQ}"))?;
    reaches(&lab.net.client, client.into(), HQ)?;
    lab.net.concentrators[0].blackhole("eth0")?;
    let verdict = lab.event("segment", "fail_over", 0, Duration::from_secs(75))?;
    reaches(&lab.net.client, client.into(), HQ)?;
    let silent = heard.frames()?.last().context("no frame was heard")?.at;
    let down = at(&verdict)?;
    let probes = asked.frames()?.into_iter().map(|frame| frame.at);
    let times: Vec<f64> = probes
        .filter(|time| *time > silent && *time < down)
        .chain([down])
        .map(|time| (time - silent).as_secs_f64())
        .collect();
    println!("silent since 0 s, asked and down at {times:.2?} s");
    ensure!(times.len() == 4, "{times:?}");
    for (time, wanted) in times.iter().zip([30.0, 40.0, 50.0, 60.0]) {
        ensure!((wanted - 0.15..wanted + 1.0).contains(time), "{times:?}");
    }
    lab.net.concentrators[0].end_blackhole()?;
    let back = Instant::now();
    lab.event("segment", "fail_back", 0, Duration::from_secs(60))?;
    println!(
        "failed back {} ms after its return",
        back.elapsed().as_millis()
    );
    ensure!(back.elapsed() >= Duration::from_secs(29));
    reaches(&lab.net.client, client.into(), HQ)
}
