//! The way to the next hop changes in mid call: another MAC, another router, no other traffic
//! than media. No packet is lost, none goes by the old hop, none goes up.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::call::{Call, whole};
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::{Capture, Frame};
use serde_json::Value;

const TALK: Duration = Duration::from_secs(2);
/// How long the gateway may take to hear of the change and store one word.
const SOON: Duration = Duration::from_secs(2);
const NEW_MAC: [u8; 6] = [0x02, 0x00, 0x00, 0x00, 0x99, 0x01];

struct Scene {
    office: Office,
    call: Call,
}

/// Why the programs pass a media packet up.
const UP: [&str; 14] = [
    "media_unplanned",
    "plan_stale",
    "media_foreign_source",
    "media_wrong_ingress",
    "media_stun",
    "media_other",
    "hop_unresolved",
    "hop_local",
    "hop_family",
    "too_big",
    "ttl_expired",
    "udp_unchecked",
    "no_device",
    "no_room",
];

/// Media packets that were passed up so far.
fn went_up(office: &Office) -> Result<u64> {
    let answer = office.ask(&["stats"])?;
    let reasons = answer
        .get("reasons")
        .and_then(Value::as_object)
        .context("no reasons")?;
    Ok(UP
        .iter()
        .filter_map(|name| reasons.get(*name)?.as_u64())
        .sum())
}

/// A call across the WAN with media flowing.
fn scene(hold: Duration) -> Result<Scene> {
    let office = Office::open(&Opening::default())?;
    office.register()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut call = Call::dial((phones, &office.lan[0]), (far, &office.far[0]), hold)?;
    call.talk()?;
    call.heard_for(TALK)?;
    Ok(Scene { office, call })
}

/// RTP from the gateway on the access switch, by destination MAC.
fn outbound(frames: &[Frame], mac: [u8; 6]) -> usize {
    let to_far = |frame: &&Frame| frame.udp().is_some_and(|(_, port, _)| port == 6000);
    frames
        .iter()
        .filter(to_far)
        .filter(|frame| frame.bytes[..6] == mac)
        .count()
}

fn mac(text: &str) -> Result<[u8; 6]> {
    let word = text
        .split("link/ether ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let bytes = word
        .context("no MAC")?
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>()?;
    bytes.try_into().ok().context("no MAC")
}

/// Waits until media goes to `new`; then no packet may go to `old` any more.
fn moves(scene: &mut Scene, capture: Capture, old: [u8; 6], new: [u8; 6]) -> Result<()> {
    capture.wait_frame(0, SOON, |frame| {
        outbound(std::slice::from_ref(frame), new) == 1
    })?;
    let (near, away) = scene.call.count();
    scene
        .call
        .heard_for(Duration::from_millis(20 * near.received.max(away.received)) + TALK)?;
    let frames = capture.stop()?;
    let first = frames
        .iter()
        .position(|frame| outbound(std::slice::from_ref(frame), new) == 1);
    let after = &frames[first.context("no packet by the new hop")?..];
    ensure!(outbound(after, new) > 50, "too little media by the new hop");
    ensure!(
        outbound(after, old) == 0,
        "packets by the old hop after the first by the new one"
    );
    Ok(())
}

#[test]
fn kl1_the_routers_mac_changes_in_mid_call() -> Result<()> {
    let mut scene = scene(Duration::from_secs(12))?;
    let router = &scene.office.branch.routers[0];
    let old = mac(&router.ip("link show eth0")?)?;
    let capture = Capture::start(&scene.office.branch.carrier, "a-gw", "udp port 6000")?;
    // As a router does that takes over an address: it announces itself.
    router.sysctl("net.ipv4.conf.eth0.arp_notify", "1")?;
    router.ip("link set eth0 address 02:00:00:00:99:01")?;
    moves(&mut scene, capture, old, NEW_MAC)?;
    scene.call.silence();
    scene.call.done()
}

#[test]
fn kl1_the_route_moves_to_a_second_router_in_mid_call() -> Result<()> {
    let mut scene = scene(Duration::from_secs(12))?;
    let [first, second] = &scene.office.branch.routers;
    let (old, new) = (
        mac(&first.ip("link show eth0")?)?,
        mac(&second.ip("link show eth0")?)?,
    );
    let capture = Capture::start(&scene.office.branch.carrier, "a-gw", "udp port 6000")?;
    scene.office.branch.route_by(1)?;
    moves(&mut scene, capture, old, new)?;
    // Both routers work all the time: nothing is lost on the way.
    whole(scene.call.silence())?;
    scene.call.done()
}

#[test]
fn kl1_a_minute_of_media_and_nothing_else_keeps_the_neighbours() -> Result<()> {
    let mut scene = scene(Duration::from_secs(70))?;
    for interface in ["lan0", "wan0"] {
        scene
            .office
            .branch
            .gw
            .sysctl(&format!("net.ipv4.neigh.{interface}.gc_stale_time"), "2")?;
    }
    let before = went_up(&scene.office)?;
    scene.call.heard_for(Duration::from_secs(62))?;
    ensure!(went_up(&scene.office)? == before, "media went up");
    whole(scene.call.silence())?;
    scene.call.done()
}
