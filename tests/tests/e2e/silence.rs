//! A call whose phones fell silent is ended for both; one that talks is not.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::{gateway, wait};

const PACE: Duration = Duration::from_millis(20);
/// The shortest that may be configured.
const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn a_call_without_media_either_way_is_hung_up_on_at_both_ends() -> Result<()> {
    let mut opening = Opening::without_phones();
    opening.config += "[media]\ntimeout = \"10s\"\n";
    let office = Office::open(&opening)?;
    let branch = &office.branch;
    let lan = |user, at| Agent::new(&branch.phones, user, &Branch::phone(at), GATEWAY_LAN);
    let far = |user, at| Agent::new(&branch.far, user, &Branch::far_phone(at), SOFTSWITCHES[1]);
    let (a, b) = (lan("250", 10)?, far("750", 10)?);
    let (c, d) = (lan("251", 11)?, far("751", 11)?);
    for phone in [&a, &b, &c, &d] {
        phone.register(3600)?.is(200)?;
    }
    let talk = Talk::begin((&branch.phones, &a), (&branch.far, &b), PACE, "")?;
    // Somebody says one word, and then the power fails.
    let mut mute = Talk::begin((&branch.phones, &c), (&branch.far, &d), PACE, "")?;
    mute.hear(10)?;
    mute.silence();
    let silent = Instant::now();
    for phone in [&c, &d] {
        wait::until("both are hung up on", TIMEOUT + LIMIT, || {
            let (ended, _) = phone.ended();
            ended.contains(&mute.dialog.call_id).then_some(())
        })?;
    }
    let took = silent.elapsed();
    println!("hung up on {} ms after the last packet", took.as_millis());
    ensure!(took + Duration::from_secs(1) >= TIMEOUT, "after {took:?}");
    ensure!(took <= TIMEOUT + Duration::from_secs(3), "after {took:?}");

    let events = office.ask(&["events"])?;
    let rows = gateway::list(&events, "events");
    let ended = rows.iter().find(|row| row["rule"] == "media_timeout");
    ensure!(ended.is_some(), "{events}");
    // The other call has talked for longer than the timeout.
    talk.hear(50)?;
    let calls = office.ask(&["calls"])?;
    ensure!(gateway::list(&calls, "calls").len() == 1, "{calls}");
    talk.end(&a)?;
    Ok(())
}
