//! Calls with media: what each end received, against what the gateway's programs counted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::cast::{Cast, LIMIT};
use super::timeline::{Held, Timeline};
use crate::lab::gateway::list;
use crate::lab::phone::{Leg, Phone};
use crate::lab::rtp::{Count, Rtp};
use crate::lab::{Node, wait};

/// How long media flows.
const TALK: Duration = Duration::from_secs(3);
/// How long the callers keep the call: set-up of all, talk, and reading the counters.
const HOLD: Duration = Duration::from_secs(12);
/// The kernel updates nothing later than this after the last packet.
const SETTLE: Duration = Duration::from_secs(2);

struct Call {
    caller: Leg,
    callee: Leg,
    media: (Rtp, Rtp),
}

/// Five calls at once: three across the WAN, two inside the branch (through the softswitch and
/// back), each with media both ways.
pub(super) fn calls_with_media(cast: &Cast, timeline: &Timeline) -> Result<Held> {
    let (lan, far) = (&cast.branch.phones, &cast.branch.far);
    let pairs = [
        (&cast.lan[0], &cast.far[0], far),
        (&cast.lan[1], &cast.far[1], far),
        (&cast.lan[2], &cast.far[2], far),
        (&cast.lan[3], &cast.lan[4], lan),
        (&cast.lan[5], &cast.lan[6], lan),
    ];
    let started: Result<Vec<Call>> = pairs
        .iter()
        .map(|(from, to, node)| call((lan, from), (node, to)))
        .collect();
    let mut calls = started?;
    for call in &mut calls {
        call.media.0.send_to(call.caller.media(LIMIT)?)?;
        call.media.1.send_to(call.callee.media(LIMIT)?)?;
    }
    timeline.say(format!(
        "{} calls are up, media flows both ways",
        calls.len()
    ));
    for call in &calls {
        let packets = u64::try_from(TALK.as_millis() / 20)?;
        call.media.0.wait_received(packets, LIMIT)?;
        call.media.1.wait_received(packets, LIMIT)?;
    }
    let counts: Vec<(Count, Count)> = calls.iter_mut().map(Call::stop_media).collect();
    let received = check_ends(&counts)?;
    let counted = check_flows(cast, received)?;
    for call in &mut calls {
        call.caller.done(LIMIT)?;
        call.callee.done(LIMIT)?;
    }
    let detail = format!(
        "{} calls, {received} RTP packets received, {counted} counted by the flows in XDP, 0 lost",
        calls.len()
    );
    Ok(Held { took: TALK, detail })
}

fn call(from: (&Node, &Phone), to: (&Node, &Phone)) -> Result<Call> {
    let media = (
        Rtp::listen(from.0, &from.1.media())?,
        Rtp::listen(to.0, &to.1.media())?,
    );
    let callee = to.1.answer(to.0, Duration::from_millis(200))?;
    let caller = from.1.call(from.0, &to.1.user, HOLD)?;
    Ok(Call {
        caller,
        callee,
        media,
    })
}

impl Call {
    fn stop_media(&mut self) -> (Count, Count) {
        let (left, right) = (&mut self.media.0, &mut self.media.1);
        left.stop_sending();
        right.stop_sending();
        let _ = wait::until("all has come", SETTLE, || {
            let (left, right) = (left.count(), right.count());
            (left.received == right.sent && right.received == left.sent).then_some(())
        });
        (left.count(), right.count())
    }
}

/// Each end received what the other sent, in order; the sum of all that was received.
fn check_ends(counts: &[(Count, Count)]) -> Result<u64> {
    for (left, right) in counts {
        let whole = left.received == right.sent && right.received == left.sent;
        ensure!(whole, "media was lost or doubled: {left:?} {right:?}");
        ensure!(
            left.strange + right.strange == 0,
            "media out of order: {left:?} {right:?}"
        );
    }
    Ok(counts
        .iter()
        .map(|(left, right)| left.received + right.received)
        .sum())
}

/// The flows of the gateway counted exactly what the phones received: a call inside the branch
/// is one flow pair, rewritten once per packet, like any other.
fn check_flows(cast: &Cast, received: u64) -> Result<u64> {
    let counted = |answer: &Value| -> Option<u64> {
        list(answer, "flows")
            .iter()
            .map(|flow| flow["packets"].as_u64())
            .sum()
    };
    let mut last = None;
    let read = wait::until("the flows have counted every packet", SETTLE, || {
        let answer = cast.ask(&["flows"]).ok()?;
        let total = counted(&answer)?;
        last = Some((total, answer));
        (total == received).then_some(total)
    });
    read.with_context(|| match last {
        Some((total, answer)) => format!("{received} received, {total} counted: {answer}"),
        None => "the gateway lists no flows".to_owned(),
    })
}
