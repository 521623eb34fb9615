//! A client with a lease, a TCP session and calls through a segment, while tunnels die and
//! return.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::rtp::Rtp;
use keepline_tests::lab::session::Session;
use keepline_tests::lab::tunnels::{self, HQ, Lab, SOON, SPEAKER, at, epoch};
use keepline_tests::lab::{Capture, wait};

const FAST: &str = "detect = \"fast\"";
/// From the death to audio, and from the verdict to the first answered frame. The bars are 2.5 s
/// and 50 ms, and the story (`demo --story tunnels`) holds them; a shared machine that wakes late
/// has its probing begin anew, and fails nobody's change here.
const AUDIO: Duration = Duration::from_secs(6);
const ANSWERED: f64 = 1_000.0;
/// Steady traffic, as `fast` wants it, and some more.
const STEADY: Duration = Duration::from_secs(4);

#[test]
fn mx1_mx8_a_running_call_moves_within_the_fast_bound_and_back() -> Result<()> {
    let lab = Lab::proven(FAST)?;
    let client = lab.lease()?;
    routed(&lab)?;
    let far = |port: u16| SocketAddr::new(HQ.parse().expect("an address"), port);
    let session = Session::open(&lab.net.client, &lab.net.hq, far(9000))?;
    let phone = SocketAddr::from((client, 7000));
    let mut near = Rtp::listen(&lab.net.client, &phone.to_string())?;
    let mut away = Rtp::listen(&lab.net.hq, &far(7000).to_string())?;
    near.send_to(far(7000))?;
    away.send_to(phone)?;
    // One that only listens: nothing but the gateway's announcement says where it is now.
    let speaker = SocketAddr::new(SPEAKER.parse()?, 7002);
    let listening = Rtp::listen(&lab.net.speaker, &speaker.to_string())?;
    let mut calling = Rtp::listen(&lab.net.hq, &far(7002).to_string())?;
    calling.send_to(speaker)?;
    listening.wait_received(50 * STEADY.as_secs(), SOON * 2)?;
    let wire = Capture::start(&lab.net.gw, "voice0", &format!("src host {HQ} and udp"))?;
    let announced = Capture::start(&lab.net.gw, "hq1", "arp[6:2] = 1")?;

    lab.net.concentrators[0].blackhole("eth0")?;
    let died = epoch();
    let verdict = at(&lab.event("segment", "fail_over", 0, SOON)?)?;
    session.lives(SOON)?;
    // The first packet towards each client that a server behind the secondary sent.
    let first = |port: u16| {
        let frame = wire.wait_frame(0, SOON, |frame| {
            frame.at > died + Duration::from_millis(100)
                && frame.udp().is_some_and(|(_, to, _)| to == port)
        });
        frame.map(|frame| frame.at)
    };
    let (call, heard) = (first(7000)?, first(7002)?);
    println!(
        "death to verdict {} ms, death to audio {} ms, verdict to the first answered frame {:.1} \
         ms, verdict to the first packet for a client that only listens {:.1} ms",
        (verdict - died).as_millis(),
        (call.max(heard) - died).as_millis(),
        millis(call, verdict),
        millis(heard, verdict),
    );
    ensure!(call.max(heard) - died <= AUDIO, "audio came late");
    ensure!(millis(call, verdict) <= ANSWERED && millis(heard, verdict) <= ANSWERED);
    let macs: Vec<_> = announced
        .frames()?
        .iter()
        .map(|frame| frame.bytes[6..12].to_vec())
        .collect();
    ensure!(
        macs.len() >= 2 && macs.iter().any(|mac| *mac != macs[0]),
        "{macs:?}"
    );

    // What the gateway itself sends by that tunnel moved too.
    let moved = route(&lab, "dev hq1")?;
    ensure!(moved.contains("proto 75"), "{moved}");
    reaches(&lab)?;

    // The primary returns: three answers and thirty seconds later it has the segment again.
    lab.net.concentrators[0].end_blackhole()?;
    let back = Instant::now();
    lab.event("segment", "fail_back", 0, Duration::from_secs(60))?;
    let took = back.elapsed();
    println!("failed back {} ms after its return", took.as_millis());
    ensure!(took >= Duration::from_secs(29), "too soon: {took:?}");
    ensure!(lab.active()? == "hq-a");
    session.lives(SOON)?;
    let home = route(&lab, "dev hq0")?;
    ensure!(!home.contains("proto 75"), "{home}");
    reaches(&lab)?;
    let (before, lost) = (near.count().received, near.count().lost);
    near.wait_received(before + 50, SOON)?;
    ensure!(
        near.count().lost == lost,
        "packets are lost after the return"
    );
    ensure!(
        lab.events("segment", "fail_over")?.len() == 1
            && lab.events("segment", "fail_back")?.len() == 1
    );
    near.stop_sending();
    away.stop_sending();
    let count = away.count();
    println!(
        "{count:?} at the far end, {:?} here, {} TCP numbers echoed in order",
        near.count(),
        session.echoed()
    );
    count
        .received
        .checked_sub(1)
        .context("nothing was received")?;
    Ok(())
}

/// A network behind the headquarters that the gateway has a route to, through the primary.
fn routed(lab: &Lab) -> Result<()> {
    let gw = &lab.net.gw;
    for tunnel in ["hq0", "hq1"] {
        // One network behind both: each answers for its own addresses only.
        gw.sysctl(&format!("net.ipv4.conf.{tunnel}.arp_ignore"), "1")?;
    }
    gw.ip("addr add 10.9.0.20/24 dev hq0")?;
    gw.ip(&format!("route add 10.77.0.0/16 via {HQ} dev hq0"))?;
    lab.net.hq.ip("addr add 10.77.0.1/32 dev br0")?;
    reaches(lab)
}

/// Waits until the route is as wanted.
fn route(lab: &Lab, wanted: &str) -> Result<String> {
    wait::until(wanted, SOON, || {
        let route = lab.net.gw.ip("route show 10.77.0.0/16").ok()?;
        route.contains(wanted).then_some(route)
    })
}

fn reaches(lab: &Lab) -> Result<()> {
    tunnels::reaches(&lab.net.gw, "10.9.0.20".parse()?, "10.77.0.1")
}

fn millis(later: Duration, earlier: Duration) -> f64 {
    (later.as_secs_f64() - earlier.as_secs_f64()) * 1000.0
}
