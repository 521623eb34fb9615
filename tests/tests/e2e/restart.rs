//! The daemon dies in the middle of calls, and starts again: media never notices, calls end in
//! order, registrations show what is left of their time.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::{
    call::{Call, whole},
    gateway::{self, Gateway},
    office::{Office, Opening},
    wait,
};

/// The callers hang up after this: three restarts fit in.
const HOLD: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
/// Where the lab's gateway keeps its state.
const STATE: &str = "/run/gw/state";

fn office() -> Result<Office> {
    let office = Office::open(&Opening::default())?;
    office.register()?;
    Ok(office)
}

fn start(office: &mut Office) -> Result<()> {
    office.gateway = Gateway::start(&office.branch, &gateway::config())?;
    Ok(())
}

/// What is left of each registration, in seconds.
fn registrations(office: &Office) -> Result<BTreeMap<String, u64>> {
    let answer = office.ask(&["registrations"])?;
    let rows = gateway::list(&answer, "registrations").iter();
    rows.map(|row| {
        let aor = row["aor"].as_str().context("no aor")?.to_owned();
        Ok((aor, row["expires_s"].as_u64().context("no expiry")?))
    })
    .collect()
}

fn calls(office: &Office) -> Result<usize> {
    let answer = office.ask(&["calls"])?;
    Ok(gateway::list(&answer, "calls").len())
}

/// Waits until every call has heard this much more.
fn hear_more(calls: &[&Call], time: Duration) -> Result<()> {
    for call in calls {
        let (near, away) = call.count();
        let heard = u32::try_from(near.received.min(away.received))?;
        call.heard_for(Duration::from_millis(20) * heard + time)?;
    }
    Ok(())
}

#[test]
fn kl5_kill_9_in_the_middle_of_calls_loses_no_packet_and_they_end_in_order() -> Result<()> {
    let mut office = office()?;
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut out = Call::dial((phones, &office.lan[0]), (far, &office.far[0]), HOLD)?;
    let mut into = Call::dial((far, &office.far[1]), (phones, &office.lan[1]), HOLD)?;
    out.talk()?;
    into.talk()?;
    hear_more(&[&out, &into], SECOND)?;
    for round in 0..3_u32 {
        let before = registrations(&office)?;
        office.gateway.process().kill();
        hear_more(&[&out, &into], SECOND / 4 * (round + 1))?;
        start(&mut office)?;
        ensure!(
            calls(&office)? == 2,
            "not all calls are back in round {round}"
        );
        let after = registrations(&office)?;
        ensure!(
            after.len() == before.len(),
            "{before:?} before, {after:?} after"
        );
        for (aor, left) in &after {
            let grew = before.get(aor).is_none_or(|before| left > before);
            ensure!(
                !grew,
                "{aor} has more time than before: {before:?} {after:?}"
            );
        }
        hear_more(&[&out, &into], SECOND / 2)?;
    }
    whole(out.silence()).context("the call out of the branch")?;
    whole(into.silence()).context("the call into the branch")?;
    out.done()?;
    into.done()?;
    wait::until("no call is left", Duration::from_secs(2), || {
        (calls(&office).ok()? == 0).then_some(())
    })
}

#[test]
fn kl5_a_store_that_is_none_is_set_aside_and_the_gateway_starts() -> Result<()> {
    let mut office = office()?;
    office.gateway.process().kill();
    let state = office.branch.cell().outside(STATE);
    for entry in fs::read_dir(&state)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != "secret") {
            fs::write(path, "not a store")?;
        }
    }
    start(&mut office)?;
    ensure!(registrations(&office)?.is_empty(), "out of nothing?");
    ensure!(
        state.join("state.redb.damaged-1").exists(),
        "nothing was set aside"
    );
    let said = office.gateway.process().all_text();
    let times = said.matches("state.redb cannot be used").count();
    ensure!(times == 1, "said {times} times:\n{said}");
    office.register()?;
    ensure!(registrations(&office)?.len() == office.lan.len());
    Ok(())
}
