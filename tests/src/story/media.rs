//! Calls with media: what each end received, against what the gateway's programs counted.

use std::time::Duration;

use anyhow::Result;

use super::timeline::{Held, Timeline};
use crate::lab::call::{Call, whole};
use crate::lab::flows;
use crate::lab::office::Office;

/// How long media flows.
const TALK: Duration = Duration::from_secs(3);
/// How long the callers keep the call: set-up of all, talk, and reading the counters.
const HOLD: Duration = Duration::from_secs(12);
/// Far parties that send media: their source is learned, a phone's on the LAN is certain.
const FAR: u64 = 3;

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
    let counted = flows::counted(office, received, FAR)?;
    calls.iter_mut().try_for_each(Call::done)?;
    let detail = format!(
        "{} calls, {received} RTP packets received, {counted} counted by the flows in XDP, 0 lost",
        calls.len()
    );
    Ok(Held { took: TALK, detail })
}
