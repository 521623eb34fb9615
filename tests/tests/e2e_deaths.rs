//! The primary dies while a call is being set up: killed (ICMP comes back), stopped (silence),
//! cut off (silence from the network). That very call connects through the backup.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::SOFTSWITCHES;
use keepline_tests::lab::office::{LIMIT, Office, Opening};
use keepline_tests::lab::sip::{Message, SetUp};

const TALK: Duration = Duration::from_millis(500);
const THINK: Duration = Duration::from_millis(400);

#[derive(Clone, Copy)]
enum Death {
    Killed,
    Stopped,
    Blackhole,
}

fn strike(office: &mut Office, death: Death) -> Result<()> {
    match death {
        Death::Killed => {
            office.primary.kill();
            Ok(())
        }
        Death::Stopped => office.primary.pause(),
        Death::Blackhole => office.branch.softswitches[0].blackhole("eth0"),
    }
}

/// No digest: one INVITE transaction at the phone, answered within 2 s of its first byte.
fn that_very_call_connects(death: Death) -> Result<()> {
    let mut office = Office::open(&Opening {
        digest: false,
        ..Opening::default()
    })?;
    office.register()?;
    let earlier = office.wire.frames().len();
    strike(&mut office, death)?;
    let (from, to) = (office.lan[0].clone(), office.far[0].clone());
    let mut callee = to.answer(&office.branch.far, Duration::from_millis(100))?;
    let mut caller = from.call(&office.branch.phones, &to.user, TALK)?;
    caller.media(LIMIT)?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let frames = office.wire.frames();
    let setup = SetUp::of(&frames[earlier..], &from.address);
    ensure!(
        setup.finals.len() == 1 && setup.finals[0].1 == 200,
        "one final answer: {setup:?}"
    );
    ensure!(setup.transactions.len() == 1, "one transaction: {setup:?}");
    let took = setup.answered_after(0).context("no answer captured")?;
    ensure!(
        took <= Duration::from_secs(2),
        "answered after {} ms",
        took.as_millis()
    );
    let trying = setup.to_trying.context("no 100 captured")?;
    ensure!(
        trying <= Duration::from_millis(200),
        "100 after {} ms",
        trying.as_millis()
    );
    no_trace_of_the_dead(&frames, &from.address)
}

/// Digest: the phone has a challenge of the primary in hand when that dies. Exactly one further
/// challenge, marked stale, so that no user is asked.
fn one_further_challenge(death: Death) -> Result<()> {
    let mut office = Office::open(&Opening::default())?;
    office.register()?;
    let earlier = office.wire.frames().len();
    let (from, to) = (office.lan[0].clone(), office.far[0].clone());
    let mut callee = to.answer(&office.branch.far, Duration::from_millis(100))?;
    let mut caller = from.call_thinking(&office.branch.phones, &to.user, TALK, THINK)?;
    office.wire.wait_frame(earlier, LIMIT, |frame| {
        let messages = Message::of(std::slice::from_ref(frame), &from.address);
        messages.iter().any(|message| message.status() == Some(407))
    })?;
    strike(&mut office, death)?;
    caller.media(LIMIT)?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let frames = office.wire.frames();
    let setup = SetUp::of(&frames[earlier..], &from.address);
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(statuses == [407, 407, 200], "{setup:?}");
    ensure!(
        setup.stale == 1,
        "the further challenge is not stale: {setup:?}"
    );
    let took = setup.answered_after(1).context("no answer captured")?;
    ensure!(
        took <= Duration::from_millis(2500),
        "answered after {} ms",
        took.as_millis()
    );
    no_trace_of_the_dead(&frames, &from.address)
}

/// Nothing that the phone received names a softswitch.
fn no_trace_of_the_dead(frames: &[keepline_tests::lab::Frame], phone: &str) -> Result<()> {
    for message in Message::of(frames, phone)
        .iter()
        .filter(|message| !message.sent)
    {
        let named = SOFTSWITCHES
            .iter()
            .any(|address| message.text.contains(address));
        ensure!(!named, "{}", message.text);
    }
    Ok(())
}

#[test]
fn em4_that_very_call_connects_when_the_primary_is_killed() -> Result<()> {
    that_very_call_connects(Death::Killed)
}

#[test]
fn em4_that_very_call_connects_when_the_primary_hangs() -> Result<()> {
    that_very_call_connects(Death::Stopped)
}

#[test]
fn em4_em11_that_very_call_connects_when_the_network_goes_silent() -> Result<()> {
    that_very_call_connects(Death::Blackhole)
}

#[test]
fn em23_one_further_challenge_when_the_primary_is_killed() -> Result<()> {
    one_further_challenge(Death::Killed)
}

#[test]
fn em23_one_further_challenge_when_the_primary_hangs() -> Result<()> {
    one_further_challenge(Death::Stopped)
}

#[test]
fn em23_one_further_challenge_when_the_network_goes_silent() -> Result<()> {
    one_further_challenge(Death::Blackhole)
}
