//! An outbound proxy for two softswitches of two domains: one dies, and only its phones are on
//! their own (EM19).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, GATEWAY_LAN, SOFTSWITCHES};
use keepline_tests::lab::gateway::{self, Gateway};
use keepline_tests::lab::kamailio::{DOMAIN, Softswitch};
use keepline_tests::lab::office::LIMIT;
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::wait;
use serde_json::Value;

const HOSTED: &str = "voice.example.net";
const PACE: Duration = Duration::from_millis(20);

fn config() -> String {
    let [core, hosted] = SOFTSWITCHES;
    let softswitches = format!(
        r#"[[softswitch]]
name = "core"
domain = "{DOMAIN}"
servers = [{{ uri = "sip:{core}:5060" }}]

[[softswitch]]
name = "hosted"
domain = "{HOSTED}"
servers = [{{ uri = "sip:{hosted}:5060" }}]"#
    );
    gateway::config_for(&softswitches).replace("\"normal\"", "\"outbound-proxy\"")
}

/// State of the group in `status`.
fn state(status: &Value, group: &str) -> Option<String> {
    let rows = gateway::list(status, "groups").iter();
    let mut found = rows.filter(|row| row["name"] == group);
    Some(found.next()?["state"].as_str()?.to_owned())
}

#[test]
fn em19_two_softswitches_behind_one_gateway_live_and_die_apart() -> Result<()> {
    let branch = Branch::raise()?;
    let _core = Softswitch::start_for(DOMAIN, &branch, 0, false)?;
    let mut hosted = Softswitch::start_for(HOSTED, &branch, 1, false)?;
    let _gateway = Gateway::start(&branch, &config())?;
    let phone = |domain, user, at| {
        Agent::of_domain(
            domain,
            &branch.phones,
            user,
            &Branch::phone(at),
            GATEWAY_LAN,
        )
    };
    let (a, b) = (phone(DOMAIN, "250", 10)?, phone(DOMAIN, "251", 11)?);
    let (c, d) = (phone(HOSTED, "350", 12)?, phone(HOSTED, "351", 13)?);
    for phone in [&a, &b, &c, &d] {
        phone.register(3600)?.is(200)?;
    }
    let nobody = phone("elsewhere.example", "9", 14)?;
    nobody.register(3600)?.is(403)?;
    let registered = gateway::ask(&branch, &["registrations"])?;
    let rows = gateway::list(&registered, "registrations");
    for (user, domain, server) in [("250", DOMAIN, 0), ("350", HOSTED, 1)] {
        let aor = format!("{user}@{domain}");
        let row = rows.iter().find(|row| row["aor"] == aor.as_str());
        let row = row.with_context(|| format!("no {aor} in {registered}"))?;
        let at = row["server"].as_str().unwrap_or_default();
        ensure!(at.contains(SOFTSWITCHES[server]), "{row}");
        let told = gateway::ask(&branch, &["explain", &aor])?;
        ensure!(told["state"] == "upstream", "{told}");
    }

    // A call in each domain, through its own softswitch.
    let seat = |agent| (&branch.phones, agent);
    let through_core = Talk::begin(seat(&a), seat(&b), PACE, "")?;
    let through_hosted = Talk::begin(seat(&c), seat(&d), PACE, "")?;
    for (talk, server) in [(&through_core, 0), (&through_hosted, 1)] {
        talk.hear(25)?;
        let via = gateway::via(&branch, &talk.dialog.call_id)?;
        ensure!(via.contains(SOFTSWITCHES[server]), "through {via}");
        let told = gateway::ask(&branch, &["explain", &talk.dialog.call_id])?;
        ensure!(told["state"] == "confirmed", "{told}");
    }
    through_core.end(&a)?;
    through_hosted.end(&c)?;

    // One dies: its phones call each other here, the others through theirs.
    hosted.kill();
    let (mut here, answer) = c.call("351", "", LIMIT)?;
    ensure!(answer.took <= Duration::from_secs(4), "{:?}", answer.took);
    let carried = gateway::via(&branch, &here.call_id)?;
    ensure!(carried == "local", "through {carried}");
    let status = wait::until("the hosted softswitch is found out", LIMIT, || {
        let status = gateway::ask(&branch, &["status"]).ok()?;
        (state(&status, "hosted")? == "survivability").then_some(status)
    })?;
    ensure!(
        state(&status, "core").as_deref() == Some("serving"),
        "{status}"
    );
    ensure!(status["gateway"]["mode"] == "outbound-proxy", "{status}");
    let through = Talk::begin(seat(&a), seat(&b), PACE, "")?;
    through.hear(25)?;
    let core = gateway::via(&branch, &through.dialog.call_id)?;
    ensure!(core.contains(SOFTSWITCHES[0]), "through {core}");
    let (packets, _) = through.end(&a)?;
    c.bye(&mut here)?.is(200)?;
    println!(
        "first local call {} ms, {packets} RTP through core",
        answer.took.as_millis()
    );
    Ok(())
}
