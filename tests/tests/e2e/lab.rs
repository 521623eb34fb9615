//! The lab proves itself without the gateway: phones that speak to the softswitch directly.
//! What fails here is the lab's fault; what holds here and fails elsewhere is the gateway's.

use std::time::Duration;

use anyhow::Result;
use keepline_tests::lab::branch::SOFTSWITCHES;
use keepline_tests::lab::call::{Call, whole};
use keepline_tests::lab::kamailio::Softswitch;
use keepline_tests::lab::phone::Phone;
use keepline_tests::lab::{Branch, Capture};

const LIMIT: Duration = Duration::from_secs(15);

/// A call between two far phones through a softswitch, with media between them.
fn call(branch: &Branch, from: &Phone, to: &Phone) -> Result<()> {
    let mut call = Call::dial(
        (&branch.far, from),
        (&branch.far, to),
        Duration::from_secs(2),
    )?;
    call.talk()?;
    call.heard_for(Duration::from_secs(1))?;
    whole(call.silence())?;
    call.done()
}

#[test]
fn phones_call_through_either_softswitch_of_the_cluster() -> Result<()> {
    let branch = Branch::raise()?;
    let mut primary = Softswitch::start(&branch, 0, true)?;
    let _backup = Softswitch::start(&branch, 1, true)?;
    let capture = Capture::start(&branch.far, "eth0", "udp port 5060")?;
    let [by_primary, by_backup] =
        SOFTSWITCHES.map(|proxy| Phone::new("701", Branch::far_phone(1), proxy));
    let callee = Phone::new("702", Branch::far_phone(2), SOFTSWITCHES[0]);
    callee.register(&branch.far, 300)?.succeed(LIMIT)?;
    let held = primary.rpc(&branch, &["ul.lookup", "location", "s:702"])?;
    assert_eq!(held.matches("Address:").count(), 1, "{held}");
    call(&branch, &by_primary, &callee)?;
    // Registered at the primary, reached through the backup: one location table.
    call(&branch, &by_backup, &callee)?;
    // And after the primary has died and come back, it has learned the table again.
    primary.kill();
    call(&branch, &by_backup, &callee)?;
    primary.restart(&branch)?;
    call(&branch, &by_primary, &callee)?;
    let challenges = capture
        .stop()?
        .iter()
        .filter(|frame| challenged(frame))
        .count();
    assert_eq!(challenges, 5, "one for the REGISTER and one per call");
    Ok(())
}

fn challenged(frame: &keepline_tests::lab::Frame) -> bool {
    frame.udp().is_some_and(|(_, _, text)| {
        text.starts_with(b"SIP/2.0 401") || text.starts_with(b"SIP/2.0 407")
    })
}
