//! The primary dies while a call is being set up, three ways. The caller has just been
//! challenged by it and is about to answer: that very call connects through the backup.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::timeline::{Held, Timeline};
use crate::lab::death::{Death, THINK, challenged};
use crate::lab::office::{LIMIT, Office, uri};
use crate::lab::sip::SetUp;

/// What the phone's user may wait at most, first byte of the answered challenge to the 200.
const BOUND: Duration = Duration::from_millis(2500);
const TALK: Duration = Duration::from_millis(500);

/// One death with one call in it.
pub(super) fn call_survives(
    office: &mut Office,
    timeline: &Timeline,
    death: Death,
    number: usize,
) -> Result<Held> {
    ensure!(
        office.active()? == uri(0),
        "the primary is not in use to begin with"
    );
    let known = office.events()?.len();
    let earlier = office.wire.frames()?.len();
    let (from, to) = (
        office.lan[7 + number].clone(),
        office.far[3 + number].clone(),
    );
    let mut callee = to.answer(&office.branch.far, Duration::from_millis(200))?;
    let mut caller = from.call_thinking(&office.branch.phones, &to.user, TALK, THINK)?;
    challenged(office, earlier, &from.address)?;
    let start = Instant::now();
    timeline.say(format!(
        "{} calls {}; the primary has challenged it",
        from.user, to.user
    ));
    death.strike(office)?;
    timeline.say(death.told());
    ensure!(
        start.elapsed() < THINK,
        "too slow to strike in time: the machine is overloaded"
    );
    caller.media(LIMIT)?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let frames = office.wire.frames()?;
    let setup = SetUp::of(&frames[earlier..], &from.address);
    evidence(office, timeline, known)?;
    judge(&setup)
}

fn judge(setup: &SetUp) -> Result<Held> {
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(
        statuses == [407, 407, 200],
        "the phone saw {statuses:?}, not one further challenge"
    );
    ensure!(
        setup.stale == 1,
        "the further challenge did not say stale=true: {setup:?}"
    );
    let took = setup.answered_after(1).unwrap_or(Duration::MAX);
    ensure!(took <= BOUND, "the answer took {} ms", took.as_millis());
    let detail = format!(
        "200 through the backup {} ms after the INVITE that met the dead primary; \
         one further challenge, stale=true",
        took.as_millis()
    );
    Ok(Held { took, detail })
}

/// What the gateway itself says about it: the events since, with their evidence.
pub(super) fn evidence(office: &Office, timeline: &Timeline, known: usize) -> Result<()> {
    let events = office.events()?;
    ensure!(
        events.len() > known,
        "the gateway explains nothing: no new event"
    );
    for event in events.iter().skip(known) {
        timeline.say(format!(
            "  {} {}: {} -> {} by {}",
            word(event, "kind"),
            word(event, "object"),
            word(event, "from"),
            word(event, "to"),
            word(event, "rule"),
        ));
        for item in event["evidence"].as_array().into_iter().flatten() {
            timeline.say(format!("    {} {}", word(item, "at"), word(item, "what")));
        }
    }
    Ok(())
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}
