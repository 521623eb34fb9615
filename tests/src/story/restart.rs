//! The controller dies in the middle of a call and comes back: media does not notice.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::timeline::{Held, Timeline};
use crate::lab::call::{Call, whole};
use crate::lab::office::{LIMIT, Office};

/// Media flows that long before the death, without a controller, and after its return.
const TALK: Duration = Duration::from_secs(1);
const DEAD: Duration = Duration::from_secs(2);
/// The caller hangs up after this: all of the above, the start, and time to read.
const HOLD: Duration = Duration::from_secs(12);

/// `kill -9` of the controller. The call that is up goes on in XDP.
pub(super) fn killed(
    office: &mut Office,
    timeline: &Timeline,
    kept: &mut Option<Call>,
) -> Result<Held> {
    let (lan, far) = (&office.branch.phones, &office.branch.far);
    let mut call = Call::dial((lan, &office.lan[4]), (far, &office.far[7]), HOLD)?;
    call.talk()?;
    call.heard_for(TALK)?;
    timeline.say("204 talks to 707");
    office.gateway.process().kill();
    timeline.say("the controller is killed");
    let start = Instant::now();
    let (near, away) = call.count();
    let before = Duration::from_millis(20 * near.received.max(away.received));
    call.heard_for(before + DEAD)?;
    let took = start.elapsed();
    let (near_now, away_now) = call.count();
    ensure!(
        near_now.lost + away_now.lost == 0,
        "media was lost: {near_now:?} {away_now:?}"
    );
    let forwarded = near_now.received + away_now.received - near.received - away.received;
    *kept = Some(call);
    let detail = format!("{forwarded} RTP packets forwarded without a controller, 0 lost");
    Ok(Held { took, detail })
}

/// It starts again, knows the call and the phones, and the call ends in order.
pub(super) fn restarted(
    office: &mut Office,
    timeline: &Timeline,
    kept: Option<Call>,
) -> Result<Held> {
    let mut call = kept.context("no call is left to look after")?;
    let start = Instant::now();
    office.gateway.restart(&office.branch)?;
    let took = start.elapsed();
    timeline.say(format!("it answers after {} ms", took.as_millis()));
    let phones = office.registered_upstream()?;
    let known = office.ask(&["calls"])?["calls"]
        .as_array()
        .map_or(0, Vec::len);
    ensure!(
        known == 1,
        "{known} calls are known, not the one that is up"
    );
    let (near, away) = call.count();
    let before = Duration::from_millis(20 * near.received.max(away.received));
    call.heard_for(before + TALK)?;
    let received = whole(call.silence())?;
    call.done()?;
    timeline.say("the call ended in order: its BYE was answered");
    let (from, to) = (&office.lan[10], &office.far[6]);
    let mut callee = to.answer(&office.branch.far, Duration::from_millis(50))?;
    let mut caller = from.call(&office.branch.phones, &to.user, Duration::from_millis(200))?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let detail = format!(
        "{phones} phones and the call are known again; over kill and start {received} RTP \
         packets, 0 lost; the next call connects"
    );
    Ok(Held { took, detail })
}
