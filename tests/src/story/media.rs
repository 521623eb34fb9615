//! Calls with media: what each end received, against what the gateway's programs counted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::timeline::{Held, Timeline};
use crate::lab::call::{Call, whole};
use crate::lab::gateway::list;
use crate::lab::office::Office;
use crate::lab::wait;

/// How long media flows.
const TALK: Duration = Duration::from_secs(3);
/// How long the callers keep the call: set-up of all, talk, and reading the counters.
const HOLD: Duration = Duration::from_secs(12);
/// Far parties that send media: their source is learned, a phone's on the LAN is certain.
const FAR: u64 = 3;
/// The daemon shows a counter no later than this.
const SETTLE: Duration = Duration::from_secs(2);

/// Five calls at once: three across the WAN, two inside the branch (through the softswitch and
/// back), each with media both ways.
pub(super) fn calls_with_media(office: &Office, timeline: &Timeline) -> Result<Held> {
    let (lan, far) = (&office.branch.phones, &office.branch.far);
    let pairs = [
        (&office.lan[0], (far, &office.far[0])),
        (&office.lan[1], (far, &office.far[1])),
        (&office.lan[2], (far, &office.far[2])),
        (&office.lan[3], (lan, &office.lan[4])),
        (&office.lan[5], (lan, &office.lan[6])),
    ];
    let dialled = pairs
        .into_iter()
        .map(|(from, to)| Call::dial((lan, from), to, HOLD));
    let mut calls: Vec<Call> = dialled.collect::<Result<_>>()?;
    calls.iter_mut().try_for_each(Call::talk)?;
    timeline.say(format!(
        "{} calls are up, media flows both ways",
        calls.len()
    ));
    calls.iter().try_for_each(|call| call.heard_for(TALK))?;
    let mut received = 0;
    for call in &mut calls {
        received += whole(call.silence())?;
    }
    let counted = counted_by_flows(office, received)?;
    calls.iter_mut().try_for_each(Call::done)?;
    let detail = format!(
        "{} calls, {received} RTP packets received, {counted} counted by the flows in XDP, 0 lost",
        calls.len()
    );
    Ok(Held { took: TALK, detail })
}

/// The flows of the gateway counted exactly what the phones received: a call inside the branch
/// is one flow pair, rewritten once per packet, like any other. A far party's first packet goes
/// up to be learned from, and is relayed by the slow path: at most one per far party.
fn counted_by_flows(office: &Office, received: u64) -> Result<u64> {
    let counted = |answer: &Value| -> Option<u64> {
        list(answer, "flows")
            .iter()
            .map(|flow| flow["packets"].as_u64())
            .sum()
    };
    let learned = office.ask(&["status"])?["fastpath"]["reasons"]["media_unplanned"]
        .as_u64()
        .context("status counts no media_unplanned")?;
    ensure!(
        learned <= FAR,
        "{learned} packets were passed up to learn from"
    );
    let received = received - learned;
    let mut last = None;
    let read = wait::until("the flows have counted every packet", SETTLE, || {
        let answer = office.ask(&["flows"]).ok()?;
        let total = counted(&answer)?;
        last = Some((total, answer));
        (total == received).then_some(total)
    });
    read.with_context(|| match last {
        Some((total, answer)) => format!("{received} received, {total} counted: {answer}"),
        None => "the gateway lists no flows".to_owned(),
    })
}
