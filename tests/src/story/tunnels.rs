//! The story of tunnels: a client with a lease, a TCP session and a call through a segment,
//! while the primary concentrator, its DHCP server and one direction of its tunnel die.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::timeline::{Held, Timeline};
use crate::lab::Capture;
use crate::lab::rtp::Rtp;
use crate::lab::session::Session;
use crate::lab::tunnels::{HQ, Lab, SOON, at, epoch};

/// `fast` where traffic is steady; else silence is asked about after two seconds.
const KEYS: &str = "detect = \"fast\"\nheartbeat_interval = \"1s\"\nidle_timeout = \"2s\"\n\
                    probe_timeout = \"3s\"";
/// From the death to audio through the other tunnel.
const BOUND: Duration = Duration::from_millis(2500);
/// From the verdict to the first answered frame of a client.
const ANSWERED: Duration = Duration::from_millis(50);
/// So long the DHCP server is dead: more than silence would be given.
const WITHOUT_DHCP: Duration = Duration::from_secs(8);
/// Traffic without a gap that `fast` calls steady, and some more.
const STEADY: Duration = Duration::from_secs(4);
/// Two fail-backs in a row: the second waits twice as long.
const RETURN: Duration = Duration::from_secs(75);

/// What goes on all the time.
struct Scene {
    session: Session,
    near: Rtp,
    _away: Rtp,
    wire: Capture,
    // Last: its machines outlive what runs on them.
    lab: Lab,
}

/// Plays all acts, whatever becomes of each.
pub(super) fn play(timeline: &mut Timeline) {
    timeline.say("raising the lab: two concentrators, dnsmasq behind one and Kea behind the other");
    let mut scene = match raise(timeline) {
        Ok(scene) => scene,
        Err(error) => {
            let step = "primary_dies_secondary_carries";
            timeline.step(step, "The lab", |_| Err(error));
            return;
        }
    };
    timeline.step(
        "primary_dies_secondary_carries",
        "The primary concentrator dies under a call",
        |timeline| {
            scene.lab.net.concentrators[0].blackhole("eth0")?;
            scene.left(timeline, 0)
        },
    );
    let cured = scene.lab.net.concentrators[0].end_blackhole();
    match cured.and_then(|()| scene.returns(0)) {
        Ok(took) => timeline.say(format!(
            "the primary is back, and has the segment again after {} ms",
            took.as_millis()
        )),
        Err(error) => timeline.say(format!("the primary does not come back: {error:#}")),
    }
    timeline.step(
        "primary_dhcp_dies",
        "Only the DHCP server behind the primary dies",
        |timeline| dhcp_dies(&mut scene, timeline),
    );
    timeline.step(
        "tunnel_one_way",
        "The primary's tunnel goes one way: out, and nothing back",
        |timeline| {
            let rule = "table inet oneway { chain out { type filter hook output priority -300; \
                        oifname eth0 drop; }; }";
            scene.lab.net.concentrators[0].run("nft", &[rule])?;
            scene.left(timeline, 1)
        },
    );
    timeline.step("primary_returns", "All of it returns", |timeline| {
        scene.lab.net.concentrators[0].run("nft", &["delete table inet oneway"])?;
        let took = scene.returns(1)?;
        timeline.say(scene.lab.say(&["tunnels"])?);
        scene.session.lives(SOON)?;
        let detail = format!(
            "the segment is back after 3 answers and a hold of 60 s, doubled by the second \
             fall; the TCP session echoed {} numbers in order over all of it",
            scene.session.echoed()
        );
        Ok(Held { took, detail })
    });
}

fn raise(timeline: &Timeline) -> Result<Scene> {
    let lab = Lab::proven(KEYS)?;
    timeline.say("both tunnels answered a DHCP probe: proven");
    let client = lab.lease()?;
    timeline.say(format!("the client has {client} through the segment"));
    let far = |port: u16| -> Result<SocketAddr> { Ok(SocketAddr::new(HQ.parse()?, port)) };
    let session = Session::open(&lab.net.client, &lab.net.hq, far(9000)?)?;
    let phone = SocketAddr::from((client, 7000));
    let mut near = Rtp::listen(&lab.net.client, &phone.to_string())?;
    let mut away = Rtp::listen(&lab.net.hq, &far(7000)?.to_string())?;
    near.send_to(far(7000)?)?;
    away.send_to(phone)?;
    near.wait_received(50 * STEADY.as_secs(), STEADY + SOON)?;
    timeline.say("a TCP session and a call run through hq-a");
    let wire = Capture::start(
        &lab.net.gw,
        "voice0",
        "udp and dst port 7000 and src host 10.9.0.10",
    )?;
    Ok(Scene {
        session,
        near,
        _away: away,
        wire,
        lab,
    })
}

impl Scene {
    /// The primary has just been struck: the secondary is found, and carries call and session.
    fn left(&self, timeline: &Timeline, known: usize) -> Result<Held> {
        let died = epoch();
        let earlier = self.wire.frames()?.len();
        let event = self.lab.event("segment", "fail_over", known, SOON)?;
        tell(timeline, &event);
        let verdict = at(&event)?;
        let audio = self
            .wire
            .wait_frame(earlier, SOON, |frame| frame.at >= verdict)?;
        self.session.lives(SOON)?;
        ensure!(self.lab.active()? == "hq-b");
        let took = audio.at.saturating_sub(died);
        let answered = audio.at.saturating_sub(verdict);
        let millis = answered.as_secs_f64() * 1000.0;
        let detail = format!(
            "called down after {} ms, audio through the secondary {millis:.1} ms later; the TCP \
             session lives",
            verdict.saturating_sub(died).as_millis(),
        );
        ensure!(took <= BOUND, "audio after {} ms", took.as_millis());
        ensure!(
            answered <= ANSWERED,
            "answered {millis:.1} ms after the verdict"
        );
        Ok(Held { took, detail })
    }

    /// The primary has just been cured: it has the segment again.
    fn returns(&self, known: usize) -> Result<Duration> {
        let back = Instant::now();
        self.lab.event("segment", "fail_back", known, RETURN)?;
        ensure!(self.lab.active()? == "hq-a");
        let before = self.near.count().received;
        self.near
            .wait_received(before + 50 * STEADY.as_secs(), STEADY + SOON)?;
        Ok(back.elapsed())
    }
}

fn dhcp_dies(scene: &mut Scene, timeline: &Timeline) -> Result<Held> {
    drop(scene.lab.dhcp[0].take());
    timeline.say("dnsmasq is killed; the call goes on");
    let start = Instant::now();
    let falls = scene.lab.events("segment", "fail_over")?.len();
    let before = scene.near.count();
    let packets = u64::try_from(WITHOUT_DHCP.as_millis() / 20)?;
    scene
        .near
        .wait_received(before.received + packets, WITHOUT_DHCP + SOON)?;
    let took = start.elapsed();
    let tunnel = scene.lab.tunnel("hq-a")?;
    ensure!(
        tunnel["state"] == "up" && tunnel["active"] == true,
        "{tunnel}"
    );
    ensure!(
        scene.lab.events("segment", "fail_over")?.len() == falls,
        "it was left"
    );
    let lost = scene.near.count().lost - before.lost;
    ensure!(lost == 0, "{lost} packets were lost");
    scene.lab.serve(0)?;
    let detail = format!(
        "a silent server behind traffic is no dead tunnel: {packets} RTP packets, 0 lost, still up"
    );
    Ok(Held { took, detail })
}

/// An event with its evidence.
fn tell(timeline: &Timeline, event: &Value) {
    let word = |name: &str| event[name].as_str().unwrap_or("-");
    timeline.say(format!(
        "  {} {}: {} -> {} by {}",
        word("kind"),
        word("object"),
        word("from"),
        word("to"),
        word("rule")
    ));
    let evidence = event["evidence"].as_array().map_or(&[][..], Vec::as_slice);
    // The last words are those that decided.
    for item in &evidence[evidence.len().saturating_sub(5)..] {
        let of = |name: &str| item[name].as_str().unwrap_or("-");
        timeline.say(format!("    {} {}", of("at"), of("what")));
    }
}
