//! Requests inside a call, from either side: the caller renews the session, the callee does, the
//! callee hangs up. Media flows through all of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use keepline_tests::lab::call::{Call, Seat, whole};
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::wait;

/// The caller renews after this.
const TALK: Duration = Duration::from_secs(1);
/// From the answer to the callee's BYE: the renewals are a second apart.
const WHOLE: Duration = Duration::from_secs(2);

fn renewed_by_both(office: &Office, from: Seat<'_>, to: Seat<'_>) -> Result<()> {
    let mut call = Call::dial_renewing(from, to, TALK)?;
    call.talk()?;
    call.heard_for(WHOLE)?;
    for leg in [&mut call.caller, &mut call.callee] {
        leg.process().wait_line("renewed", LIMIT)?;
    }
    // Silence before the call ends: packets to a port that is closed already are no loss.
    let received = whole(call.silence())?;
    ensure!(received >= 200, "too little media: {received}");
    call.done()?;
    wait::until("the gateway forgets the call", LIMIT, || {
        let answer = office.ask(&["calls"]).ok()?;
        answer["calls"].as_array()?.is_empty().then_some(())
    })
}

fn office() -> Result<Office> {
    let office = Office::open(&Opening::default())?;
    office.register()?;
    Ok(office)
}

#[test]
fn em26_either_side_renews_a_call_across_the_wan_and_the_callee_hangs_up() -> Result<()> {
    let office = office()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    renewed_by_both(&office, (phones, &office.lan[0]), (far, &office.far[0]))?;
    renewed_by_both(&office, (far, &office.far[1]), (phones, &office.lan[1]))
}

#[test]
fn em26_either_side_renews_a_call_that_spirals_and_the_callee_hangs_up() -> Result<()> {
    let office = office()?;
    let phones = &office.branch.phones;
    renewed_by_both(&office, (phones, &office.lan[0]), (phones, &office.lan[1]))
}
