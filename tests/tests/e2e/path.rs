//! The way of a registration: Kamailio keeps the Path that the gateway sends, and calls come back
//! along it (RFC 3327).

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, GATEWAY_WAN, SOFTSWITCHES};
use keepline_tests::lab::kamailio::Softswitch;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::sip::Message;
use keepline_tests::lab::{Capture, wait};

#[test]
fn ex2_kamailio_calls_a_phone_along_the_path_of_its_registration() -> Result<()> {
    let branch = Branch::raise()?;
    Softswitch::keeps_paths(&branch, 0)?;
    let office = Office::open_on(branch, &Opening::without_phones())?;
    let near = Agent::new(&office.branch.phones, "215", &Branch::phone(0), GATEWAY_LAN)?;
    let far = Agent::new(
        &office.branch.far,
        "715",
        &Branch::far_phone(0),
        SOFTSWITCHES[0],
    )?;
    far.register(3600)?.is(200)?;
    let contact = format!("<sip:215@{}:5060>", Branch::phone(0));
    let extra = "Expires: 3600\r\nSupported: path\r\n";
    let told = near.register_as("215", &contact, extra)?.is(200)?;
    // The way beyond the gateway is not the phone's business.
    ensure!(
        !told.message.text.contains(GATEWAY_WAN),
        "{}",
        told.message.text
    );
    let kept = office.primary.rpc(&office.branch, &["ul.dump"])?;
    // The far phone came without one.
    let path = kept
        .lines()
        .find(|line| line.contains("Path:") && line.contains(GATEWAY_WAN));
    let path = path.with_context(|| format!("no Path in {kept}"))?;
    ensure!(path.contains(";lr"), "{path}");
    let wire = Capture::start(&office.branch.gw, "wan0", "udp port 5060")?;
    let (call, _) = far.call("215", "", LIMIT)?;
    near.taken(&call.call_id)?;
    wait::until("the INVITE came along it", LIMIT, || {
        let frames = wire.frames().ok()?;
        let came = Message::of(&frames, GATEWAY_WAN);
        let mut invites = came
            .iter()
            .filter(|sip| !sip.sent && sip.method() == Some("INVITE"));
        let route = invites.find_map(|sip| sip.header("Route"))?;
        route.contains(GATEWAY_WAN).then_some(())
    })
}
