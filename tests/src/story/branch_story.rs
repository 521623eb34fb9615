//! The main story, act by act. The last death is not cured before both servers are gone.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use super::alone;
use super::deaths::call_survives;
use super::media::calls_with_media;
use super::restart;
use super::timeline::{Held, Timeline};
use crate::lab::death::Death;
use crate::lab::office::{LIMIT, Office, Opening, uri};
use crate::lab::sip::SetUp;

const DEATHS: [(&str, &str, Death); 3] = [
    (
        "primary_killed_backup_answers",
        "The primary is killed while a phone dials",
        Death::Killed,
    ),
    (
        "primary_stopped_backup_answers",
        "The primary hangs while a phone dials",
        Death::Stopped,
    ),
    (
        "primary_blackhole_backup_answers",
        "The network to the primary goes silent while a phone dials",
        Death::Blackhole,
    ),
];

/// Plays all acts, whatever becomes of each.
pub(super) fn play(timeline: &mut Timeline) {
    timeline.say("raising the lab: phones, gateway, two routers, two softswitches with digest");
    let opening = Opening {
        lan: 12,
        far: 8,
        ..Opening::default()
    };
    let mut office = match Office::open(&opening) {
        Ok(office) => office,
        Err(error) => {
            timeline.step("phones_register", "The lab", |_| Err(error));
            return;
        }
    };
    timeline.step(
        "phones_register",
        "Phones register through the gateway",
        |_| {
            let took = office.register()?;
            let count = office.registered_upstream()?;
            Ok(Held {
                took,
                detail: format!("{count} phones, digest, all upstream"),
            })
        },
    );
    timeline.step(
        "calls_with_media",
        "Five calls, media through XDP",
        |timeline| calls_with_media(&office, timeline),
    );
    for (number, (step, title, death)) in DEATHS.into_iter().enumerate() {
        timeline.step(step, title, |timeline| {
            call_survives(&mut office, timeline, death, number)
        });
        if number + 1 == DEATHS.len() {
            break;
        }
        if let Err(error) = recover(&mut office, timeline, death) {
            timeline.say(format!("the primary does not come back: {error:#}"));
        }
    }
    timeline.step(
        "backup_dies_survivability",
        "The backup dies too while a phone dials",
        |timeline| alone::backup_dies(&office, timeline),
    );
    timeline.step(
        "survivability_local_call",
        "Phones register and call without any softswitch",
        |timeline| alone::local_call(&office, timeline),
    );
    timeline.step("primary_returns", "The primary returns", |timeline| {
        primary_returns(&office, timeline)
    });
    let mut call = None;
    timeline.step(
        "controller_killed",
        "The controller is killed in the middle of a call",
        |timeline| restart::killed(&mut office, timeline, &mut call),
    );
    timeline.step(
        "controller_restarted",
        "The controller starts again",
        |timeline| restart::restarted(&mut office, timeline, call),
    );
}

/// Between deaths: the primary comes back, the group is put back by hand, phones register anew.
fn recover(office: &mut Office, timeline: &Timeline, death: Death) -> Result<()> {
    death.cure(office)?;
    let took = office.wait_primary_up()?;
    timeline.say(format!(
        "the primary answers again: called up after {} ms",
        took.as_millis()
    ));
    office.back_to_primary()?;
    timeline.say("`keepline switch` put the group back, the phones have registered anew");
    Ok(())
}

/// The network to both comes back. What the phones do next goes up.
fn primary_returns(office: &Office, timeline: &Timeline) -> Result<Held> {
    for softswitch in &office.branch.softswitches {
        softswitch.end_blackhole()?;
    }
    let took = office.wait_primary_up()?;
    timeline.say(format!("called up after {} ms", took.as_millis()));
    office.wait_group("serving")?;
    office.back_to_primary()?;
    let earlier = office.wire.frames()?.len();
    let (from, to) = (&office.lan[10], &office.far[6]);
    let mut callee = to.answer(&office.branch.far, Duration::from_millis(200))?;
    let mut caller = from.call(&office.branch.phones, &to.user, Duration::from_millis(500))?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let setup = SetUp::of(&office.wire.frames()?[earlier..], &from.address);
    let answer = setup
        .answered_after(0)
        .ok_or_else(|| anyhow!("no answer in the capture"))?;
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(statuses == [407, 200], "the phone saw {statuses:?}");
    let detail = format!(
        "{} serves again, a call through it was answered after {} ms",
        uri(0),
        answer.as_millis()
    );
    Ok(Held { took, detail })
}
