//! What the gateway's programs counted, against what phones received.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::call::{Call, whole};
use super::gateway::list;
use super::office::Office;
use super::wait;

/// The daemon shows a counter no later than this.
const SETTLE: Duration = Duration::from_secs(2);
const TALK: Duration = Duration::from_secs(1);
/// Callers hang up after this: talk, and time to read counters.
const HOLD: Duration = Duration::from_secs(3);

/// A call out of the branch and one into it, in an office with two phones on either side: all
/// media in XDP.
///
/// # Errors
/// When a call fails, or its media took another way.
pub fn calls_both_ways(office: &Office) -> Result<()> {
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    for (from, to) in [
        ((phones, &office.lan[0]), (far, &office.far[0])),
        ((far, &office.far[1]), (phones, &office.lan[1])),
    ] {
        let before = unplanned(office)?;
        let mut call = Call::dial(from, to, HOLD)?;
        call.talk()?;
        call.heard_for(TALK)?;
        let counted = counted_since(office, before, whole(call.silence())?, 1)?;
        println!("{counted} packets in XDP");
        call.done()?;
    }
    Ok(())
}

/// The flows of the gateway counted exactly the `received` packets of the phones, each once. A
/// party that does not speak from where its SDP says is learned from its first packet, which
/// the slow path relays: at most one for each of `learned` parties. What the flows counted.
///
/// # Errors
/// When they did not, or more went up.
pub fn counted(office: &Office, received: u64, learned: u64) -> Result<u64> {
    counted_since(office, 0, received, learned)
}

/// Packets that were passed up to learn from, of all calls so far.
///
/// # Errors
/// When the gateway does not count them.
pub fn unplanned(office: &Office) -> Result<u64> {
    office.ask(&["status"])?["fastpath"]["reasons"]["media_unplanned"]
        .as_u64()
        .context("status counts no media_unplanned")
}

/// The same as [`counted`] for a call that is not the first: `before` is what [`unplanned`] was
/// when it was dialled.
///
/// # Errors
/// As [`counted`].
pub fn counted_since(office: &Office, before: u64, received: u64, learned: u64) -> Result<u64> {
    let unplanned = unplanned(office)? - before;
    ensure!(
        unplanned <= learned,
        "{unplanned} packets were passed up to learn from"
    );
    let received = received - unplanned;
    let mut last = None;
    let read = wait::until("the flows have counted every packet", SETTLE, || {
        let answer = office.ask(&["flows"]).ok()?;
        let total = total(&answer)?;
        last = Some((total, answer));
        (total == received).then_some(total)
    });
    read.with_context(|| match last {
        Some((total, answer)) => {
            let reasons = office
                .ask(&["status"])
                .map(|status| status["fastpath"]["reasons"].clone());
            format!("{received} received, {total} counted: {answer}, in all {reasons:?}")
        }
        None => "the gateway lists no flows".to_owned(),
    })
}

/// Packets that the gateway's programs forwarded to these addresses, in all flows there are.
///
/// # Errors
/// When the gateway does not answer.
pub fn forwarded_to(office: &Office, any: &[SocketAddr]) -> Result<u64> {
    let answer = office.ask(&["flows"])?;
    let any: Vec<String> = any.iter().map(SocketAddr::to_string).collect();
    let rows = list(&answer, "flows").iter();
    let to_it = rows.filter(|flow| any.iter().any(|at| flow["dst"] == at.as_str()));
    Ok(to_it.filter_map(|flow| flow["packets"].as_u64()).sum())
}

fn total(answer: &Value) -> Option<u64> {
    list(answer, "flows")
        .iter()
        .map(|flow| flow["packets"].as_u64())
        .sum()
}
