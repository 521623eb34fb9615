//! Calls that outlive their softswitch: of a session interval of 90 s the half after which it is
//! refreshed, and nobody is there to refresh with.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::wait;

/// The shortest interval that RFC 4028 allows; whoever asked for it refreshes after half of it.
const INTERVAL: &str = "Supported: timer\r\nSession-Expires: 90;refresher=uac\r\nMin-SE: 90\r\n";
const HALF: Duration = Duration::from_secs(45);
/// INVITE or BYE to its answer, when no softswitch is asked.
const AT_ONCE: Duration = Duration::from_millis(200);
const PACE: Duration = Duration::from_millis(20);

#[test]
fn em26_a_session_is_refreshed_without_its_server_and_nothing_ends_it() -> Result<()> {
    let office = Office::open(&Opening::without_phones())?;
    let branch = &office.branch;
    let lan = |user, at| Agent::new(&branch.phones, user, &Branch::phone(at), GATEWAY_LAN);
    let far = |user, at| Agent::new(&branch.far, user, &Branch::far_phone(at), SOFTSWITCHES[1]);
    let (a, b) = (lan("250", 10)?, lan("251", 11)?);
    let (x, y) = (far("750", 10)?, far("751", 11)?);
    for agent in [&a, &b, &x, &y] {
        agent.register(3600)?.is(200)?;
    }
    let mut long = Talk::begin((&branch.phones, &a), (&branch.far, &x), PACE, INTERVAL)?;
    let mut other = Talk::begin((&branch.phones, &b), (&branch.far, &y), PACE, "")?;
    let begun = Instant::now();
    long.hear(20)?;
    branch.softswitches[0].blackhole("eth0")?;
    wait::until(
        "the primary is called down",
        Duration::from_secs(30),
        || (office.state(0).ok()? == "down").then_some(()),
    )?;

    // Beside the wait: another call of the dead server is changed, kept, and ended at once.
    let later = b.reinvite(&mut other.dialog, 6100, "")?.is(500)?;
    let retry = later.message.header("Retry-After");
    ensure!(retry == Some("5"), "{}", later.message.text);
    other.hear(20)?;
    ensure!(
        other.silence().0.lost == 0,
        "media of the other call was lost"
    );
    let ended = b.bye(&mut other.dialog)?.is(200)?;
    println!("BYE without its server: {} ms", ended.took.as_millis());
    ensure!(
        ended.took <= AT_ONCE,
        "BYE took {} ms",
        ended.took.as_millis()
    );

    while begun.elapsed() < HALF {
        long.hear(25)?;
    }
    let refreshed = a.reinvite(&mut long.dialog, 6000, INTERVAL)?.is(200)?;
    let interval = refreshed.message.header("Session-Expires");
    ensure!(
        interval == Some("90;refresher=uac"),
        "{}",
        refreshed.message.text
    );
    println!(
        "refresh without its server: {} ms",
        refreshed.took.as_millis()
    );
    ensure!(
        refreshed.took <= AT_ONCE,
        "{} ms",
        refreshed.took.as_millis()
    );
    long.hear(50)?;
    let active = office.ask(&["status"])?["calls"]["active"].as_u64();
    ensure!(active.context("no calls")? == 1, "{active:?} calls");
    let (packets, bye) = long.end(&a)?;
    println!(
        "{packets} RTP packets over {} s, 0 lost; BYE {} ms",
        begun.elapsed().as_secs(),
        bye.took.as_millis()
    );
    ensure!(bye.took <= AT_ONCE, "BYE took {} ms", bye.took.as_millis());
    Ok(())
}
