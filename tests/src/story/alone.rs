//! Both softswitches are gone: phones of the branch call each other through the gateway alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::deaths::evidence;
use super::timeline::{Held, Timeline};
use crate::lab::call::{Call, whole};
use crate::lab::office::{Office, uri};
use crate::lab::sip::SetUp;

/// INVITE to 200 of a call in which the death is only found out.
const FIRST: Duration = Duration::from_secs(4);
/// The same when the death is known.
const LATER: Duration = Duration::from_millis(300);
/// How long the called phone rings.
const RING: Duration = Duration::from_millis(50);
const TALK: Duration = Duration::from_secs(1);
/// The caller keeps the call for talk and for what is under way after it.
const HOLD: Duration = Duration::from_secs(4);

/// The backup dies while the primary is dead. A phone that dials in that moment, and knows
/// nothing of it, reaches its colleague.
pub(super) fn backup_dies(office: &Office, timeline: &Timeline) -> Result<Held> {
    ensure!(
        office.active()? == uri(1),
        "the backup is not in use to begin with"
    );
    let known = office.events()?.len();
    office.branch.softswitches[1].blackhole("eth0")?;
    timeline.say("the backup is cut off too; 200 calls 201 at once");
    let (took, packets) = connects(office, (0, 1), FIRST)?;
    office.wait_group("survivability")?;
    evidence(office, timeline, known)?;
    let detail = format!(
        "nobody is left: the call in that moment was answered locally after {} ms, \
         {packets} RTP packets, 0 lost",
        took.as_millis()
    );
    Ok(Held { took, detail })
}

/// Once the death is known, phones register here, and a call is as quick as ever.
pub(super) fn local_call(office: &Office, timeline: &Timeline) -> Result<Held> {
    for phone in &office.lan[2..4] {
        let seen = office.register_one(phone)?;
        ensure!(seen == [200], "{} saw {seen:?}", phone.user);
    }
    timeline.say("202 and 203 register: answered by the gateway");
    let (took, packets) = connects(office, (2, 3), LATER)?;
    let detail = format!(
        "two phones registered here, a call between them was answered after {} ms, \
         {packets} RTP packets, 0 lost",
        took.as_millis()
    );
    Ok(Held { took, detail })
}

/// A call between two phones of the branch that no softswitch takes part in, with media both
/// ways: the time from INVITE to 200, and how many packets were received.
fn connects(office: &Office, pair: (usize, usize), bound: Duration) -> Result<(Duration, u64)> {
    let earlier = office.wire.frames()?.len();
    let (from, to) = (&office.lan[pair.0], &office.lan[pair.1]);
    let phones = &office.branch.phones;
    let mut call = Call::dial_ringing((phones, from), (phones, to), RING, HOLD)?;
    call.talk()?;
    call.heard_for(TALK)?;
    let received = whole(call.silence())?;
    call.done()?;
    let setup = SetUp::of(&office.wire.frames()?[earlier..], &from.address);
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(statuses == [200], "the phone saw {statuses:?}");
    let took = setup.answered_after(0).context("no answer captured")?;
    ensure!(took <= bound, "answered after {} ms", took.as_millis());
    Ok((took, received))
}
