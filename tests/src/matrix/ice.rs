//! ICE (RFC 8445): taken out, relayed by way of one candidate of the gateway, or passed.

use anyhow::{Result, ensure};
use keepline_engine::net::Transport::Udp;

use crate::lab::gateway::list;
use crate::lab::peer::Peer;
use crate::lab::wait;

use super::connected::{Connected, connect, says};
use super::streams::{Described, description};
use super::{Mode, Stage};
use crate::lab::peer::LIMIT;

const PORTS: [u16; 2] = [12100, 12100];
const RTP: &[u8] = &[0x80, 0, 0, 9, 0, 0, 0, 160, 0x4b, 0x4c, 0, 1, 0xd5];
/// The header of a connectivity check, whose rest is between the parties.
const CHECK: &[u8] = b"\x00\x01\x00\x08\x21\x12\xa4\x42checkcheck12\x00\x06\x00\x04a:bc";
const PASSWORD: &str = "a=ice-pwd:YH75Fviy6338Vbrhrlp8Yh";

fn body(peer: &Peer) -> String {
    let ip = peer.media().ip();
    let stream = format!(
        "m=audio 12100 RTP/AVP 0\r\na=ice-ufrag:9uB6\r\n{PASSWORD}\r\n\
         a=candidate:1 1 UDP 2130706431 {ip} 12100 typ host\r\n\
         a=candidate:2 1 UDP 1694498815 192.0.2.3 45664 typ srflx raddr {ip} rport 12100\r\n"
    );
    description(ip, 1, &[&stream])
}

fn call(stage: &Stage) -> Result<Connected<'_>> {
    let (phone, far) = stage.pair(5);
    connect(far, phone, [&body(far), &body(phone)])
}

/// Candidates go no further; the call is an ordinary one.
pub(super) fn stripped(stage: &Stage) -> Result<()> {
    let call = call(stage)?;
    for told in &call.told {
        let text = &told[0].text;
        let left = ["candidate", "ice-", "192.0.2.3"].map(|word| text.contains(word));
        ensure!(left == [false; 3], "{text}");
    }
    call.line(stage, PORTS, 0)?.carries(RTP)?;
    call.end()
}

/// The one candidate that both see is the gateway's, and their checks go by way of it.
///
/// # Errors
/// When it is not so.
pub fn relayed() -> Result<()> {
    let stage = Stage::open_with(Udp, Mode::Normal, "[media]\nice = \"relay\"\n")?;
    let call = call(&stage)?;
    for told in &call.told {
        let Described { rtp, text, .. } = &told[0];
        says(&told[0], PASSWORD)?;
        let (ip, port) = (rtp.ip(), rtp.port());
        says(
            &told[0],
            &format!("a=candidate:1 1 UDP 2130706431 {ip} {port} typ host"),
        )?;
        ensure!(!text.contains("192.0.2.3"), "{text}");
    }
    let mut line = call.line(&stage, PORTS, 0)?;
    line.carries(CHECK)?;
    line.carries(RTP)?;
    call.end()?;
    stage.is_idle()
}

/// Both see all candidates of the other and nothing of the gateway; the call is shown so.
///
/// # Errors
/// When it is not so.
pub fn passed() -> Result<()> {
    let stage = Stage::open_with(Udp, Mode::Normal, "[media]\nice = \"pass\"\n")?;
    let call = call(&stage)?;
    for (told, other) in call.told.iter().zip([1, 0]) {
        let said = body(call.peers[other]);
        ensure!(said.ends_with(&told[0].text), "{}", told[0].text);
    }
    let anchored = wait::until("the call is listed", LIMIT, || {
        let calls = stage.office.ask(&["calls"]).ok()?;
        Some(list(&calls, "calls").first()?["anchored"].clone())
    })?;
    ensure!(anchored == false, "{anchored}");
    let flows = stage.office.ask(&["flows"])?;
    ensure!(list(&flows, "flows").is_empty(), "{flows}");
    call.end()?;
    stage.is_idle()
}
