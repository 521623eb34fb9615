//! Kamailio at the gateway's place: registrar, and proxy with dialogs and topology hiding, one
//! worker.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::lab::branch::{GATEWAY_LAN, GATEWAY_WAN, SOFTSWITCHES};
use crate::lab::{Branch, Launch, Process, wait};

/// Keepline has 5060.
pub(super) const PORT: u16 = 5070;
const CONFIG: &str = include_str!("kamailio.cfg");
const FILE: &str = "/run/edge/kamailio.cfg";

pub(super) fn start(branch: &Branch) -> Result<Process> {
    let port = PORT.to_string();
    let config = CONFIG
        .replace("@LAN@", GATEWAY_LAN)
        .replace("@WAN@", GATEWAY_WAN)
        .replace("@PORT@", &port)
        .replace("@SOFTSWITCH@", SOFTSWITCHES[0]);
    branch.cell().write(FILE, config)?;
    let launch = Launch::new("kamailio")
        .args(["-DD", "-E", "-n", "1", "-m", "256", "-M", "16"])
        .args(["-Y", "/run/edge", "-f", FILE]);
    let mut process = branch.gw.start(&launch)?;
    let probe = branch.phones.udp(&format!("{}:0", Branch::phone(0)))?;
    probe.set_read_timeout(Some(Duration::from_millis(200)))?;
    let me = probe.local_addr()?;
    let options = format!(
        "OPTIONS sip:{GATEWAY_LAN} SIP/2.0\r\nVia: SIP/2.0/UDP {me};branch=z9hG4bKready;rport\r\n\
         Max-Forwards: 70\r\nFrom: <sip:bench@{me}>;tag=1\r\nTo: <sip:{GATEWAY_LAN}>\r\n\
         Call-ID: ready\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    );
    let answered = wait::until("kamailio answers", Duration::from_secs(20), || {
        probe
            .send_to(options.as_bytes(), (GATEWAY_LAN, PORT))
            .ok()?;
        probe.recv(&mut [0; 2048]).ok()
    });
    answered.with_context(|| format!("kamailio printed:\n{}", process.tail()))?;
    anyhow::ensure!(process.runs(), "kamailio ended:\n{}", process.tail());
    Ok(process)
}
