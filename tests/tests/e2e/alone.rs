//! No softswitch is left: phones of the branch register at the gateway and call each other.
//! When one returns, it serves the next call, and the call in progress lives on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::call::{Call, whole};
use keepline_tests::lab::flows;
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::sip::SetUp;

const RING: Duration = Duration::from_millis(50);
const TALK: Duration = Duration::from_secs(1);
/// INVITE to 200 while the deaths are only found out, and when they are known.
const FIRST: Duration = Duration::from_secs(4);
const LATER: Duration = Duration::from_millis(300);

/// Registered phones, and both servers cut off.
fn alone() -> Result<Office> {
    let office = Office::open(&Opening::default())?;
    office.register()?;
    for softswitch in &office.branch.softswitches {
        softswitch.blackhole("eth0")?;
    }
    Ok(office)
}

/// A call between two phones of the branch, talking.
fn dial(office: &Office, pair: (usize, usize), hold: Duration) -> Result<Call> {
    let phones = &office.branch.phones;
    let (from, to) = (&office.lan[pair.0], &office.lan[pair.1]);
    let mut call = Call::dial_ringing((phones, from), (phones, to), RING, hold)?;
    call.talk()?;
    call.heard_for(TALK)?;
    Ok(call)
}

/// Answered in time, without a challenge: what the caller with this index saw since.
fn answered_within(office: &Office, caller: usize, earlier: usize, bound: Duration) -> Result<()> {
    let setup = SetUp::of(
        &office.wire.frames()?[earlier..],
        &office.lan[caller].address,
    );
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(statuses == [200], "the phone saw {statuses:?}");
    let took = setup.answered_after(0).context("no answer captured")?;
    ensure!(took <= bound, "answered after {} ms", took.as_millis());
    Ok(())
}

#[test]
fn em13_em21_a_local_call_connects_in_the_moment_both_die_and_later_ones_at_once() -> Result<()> {
    let office = alone()?;
    let earlier = office.wire.frames()?.len();
    let mut call = dial(&office, (0, 1), Duration::from_secs(3))?;
    let first = whole(call.silence())?;
    flows::counted(&office, first, 0)?;
    call.done()?;
    answered_within(&office, 0, earlier, FIRST)?;
    office.wait_group("survivability")?;
    let earlier = office.wire.frames()?.len();
    let mut call = dial(&office, (2, 3), Duration::from_secs(3))?;
    let later = whole(call.silence())?;
    flows::counted(&office, later, 0)?;
    call.done()?;
    answered_within(&office, 2, earlier, LATER)
}

#[test]
fn em13_known_phones_are_registered_here_and_strangers_are_not() -> Result<()> {
    let office = alone()?;
    office.wait_group("survivability")?;
    let phone = &office.lan[0];
    let seen = office.register_one(phone)?;
    ensure!(seen == [200], "the phone saw {seen:?}");
    let mut stranger = phone.clone();
    "299".clone_into(&mut stranger.user);
    let mut refused = stranger.register(&office.branch.phones, 60)?;
    ensure!(
        refused.succeed(Duration::from_secs(10)).is_err(),
        "a stranger was let in"
    );
    let text = refused.all_text();
    ensure!(text.contains("SIP/2.0 403"), "{text}");
    Ok(())
}

#[test]
fn em13_a_local_call_outlives_the_return_and_the_next_goes_up() -> Result<()> {
    let office = alone()?;
    office.wait_group("survivability")?;
    let mut call = dial(&office, (0, 1), Duration::from_secs(20))?;
    for softswitch in &office.branch.softswitches {
        softswitch.end_blackhole()?;
    }
    office.wait_group("serving")?;
    let earlier = office.wire.frames()?.len();
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut next = Call::dial((phones, &office.lan[2]), (far, &office.far[0]), TALK)?;
    next.talk()?;
    next.done()?;
    let setup = SetUp::of(&office.wire.frames()?[earlier..], &office.lan[2].address);
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(statuses == [407, 200], "the phone saw {statuses:?}");
    whole(call.silence())?;
    // Its BYE arrives.
    call.done()
}
