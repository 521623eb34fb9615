//! Two baresips: they register, talk, hold, and one sends the other to a far phone.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::lab::baresip::Baresip;
use crate::lab::kamailio::DOMAIN;
use crate::lab::peer::{Direction, LIMIT, SDP};
use crate::lab::{Branch, Capture, Phone, flows, wait};

use super::Stage;
use super::scene::party;

/// Two seconds of G.711.
const ENOUGH: u64 = 100;
/// First RTP port of each.
const RTP: [u16; 2] = [20_000, 21_000];

pub(super) fn talk(stage: &Stage) -> Result<()> {
    let node = &stage.office.branch.phones;
    let phone = |index: u8| {
        Phone::new(
            &format!("2{index}"),
            Branch::phone(index),
            stage.mode.target(),
        )
        .over(stage.over)
    };
    let (a, b) = (phone(18), phone(19));
    let mut callee = Baresip::start(node, &b, RTP[1], &[])?;
    let mut caller = Baresip::start(node, &a, RTP[0], &[])?;
    caller.tell(node, &format!("dial sip:{}@{DOMAIN}", b.user))?;
    caller.says("Call established", LIMIT)?;
    callee.says("Call established", LIMIT)?;
    let ends = [(&a, RTP[0]), (&b, RTP[1])];
    tones(stage, &ends)?;
    caller.tell(node, "hold")?;
    caller.tell(node, "resume")?;
    tones(stage, &ends)?;
    let far = &stage.far[18];
    caller.tell(node, &format!("transfer sip:{}@{DOMAIN}", far.user()))?;
    let invite = far.expect("INVITE", None)?;
    far.reply(&invite, "180 Ringing", "", None);
    let answer = far.sdp(Direction::SendRecv);
    far.reply(&invite, "200 OK", "", Some((SDP, &answer)));
    let theirs = far.side_of(&invite)?;
    far.expect("ACK", Some(&theirs.call_id))?;
    caller.says("terminated", LIMIT)?;
    let mut talking = party(stage, far, theirs)?;
    talking.rtp.send_to(talking.dialog.peer_media)?;
    talking.rtp.wait_received(ENOUGH, LIMIT)?;
    tones(stage, &[(&b, RTP[1])])?;
    talking.rtp.stop_sending();
    let bye = far.within(&mut talking.dialog, "BYE", "", None);
    bye.sees(200, LIMIT)?;
    caller.quit()?;
    callee.quit()?;
    for text in [caller.text(), callee.text()] {
        ensure!(!text.contains("10.99.2."), "{text}");
    }
    Ok(())
}

/// The same where the gateway leaves their media to them: both are on one machine. What passes its
/// loopback is counted as it is read: there the kernel counts every packet twice.
fn tones_past_us(stage: &Stage, ends: &[(&Phone, u16)]) -> Result<()> {
    let node = &stage.office.branch.phones;
    for (phone, port) in ends {
        let filter = format!("udp dst portrange {port}-{}", port + 97);
        let wires = [
            Capture::start(node, "lo", &filter)?,
            Capture::start(node, "eth0", &filter)?,
        ];
        let what = format!("the tone comes to {}", phone.user);
        wait::until(&what, LIMIT, || {
            let seen: usize = wires.iter().map(Capture::read).sum();
            (seen as u64 >= ENOUGH).then_some(())
        })?;
    }
    Ok(())
}

/// Waits until XDP has forwarded two seconds more to each of these.
fn tones(stage: &Stage, ends: &[(&Phone, u16)]) -> Result<()> {
    if stage.goes_through() {
        return tones_past_us(stage, ends);
    }
    // Whatever address it speaks SIP from, its media is at the first of its interface.
    let ip = Branch::phone(0).parse()?;
    for (phone, port) in ends {
        let ports = (*port..*port + 98).step_by(2);
        let any: Vec<SocketAddr> = ports.map(|port| SocketAddr::new(ip, port)).collect();
        let forwarded = || flows::forwarded_to(&stage.office, &any).ok();
        let before = forwarded().unwrap_or(0);
        let what = format!("XDP forwards the tone to {}", phone.user);
        wait::until(&what, LIMIT, || {
            (forwarded()? >= before + ENOUGH).then_some(())
        })?;
    }
    Ok(())
}
