//! The primary dies while a call is being set up: killed (ICMP comes back), stopped (silence),
//! cut off (silence from the network). That very call connects through the backup.

use std::time::Duration;

use anyhow::Result;
use keepline_tests::lab::death::{Death, call_with_digest, call_without_digest, within};
use keepline_tests::lab::office::Opening;

/// No digest: one INVITE transaction at the phone, answered within 2 s of its first byte.
fn that_very_call_connects(death: Death) -> Result<()> {
    within(
        Duration::from_secs(2),
        call_without_digest(death, Opening::default())?,
    )
}

/// Digest: exactly one further challenge, answered within 2.5 s.
fn one_further_challenge(death: Death) -> Result<()> {
    within(
        Duration::from_millis(2500),
        call_with_digest(death, Opening::default())?,
    )
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
