//! Transparent mode with softswitches that nobody configured, and its rules in the kernel, which
//! outlive no daemon for long (EM20).

use std::time::Duration;

use anyhow::{Result, ensure};
use keepline_tests::lab::agent::Agent;
use keepline_tests::lab::branch::{Branch, SOFTSWITCHES};
use keepline_tests::lab::gateway::{self, Gateway};
use keepline_tests::lab::kamailio::{DOMAIN, Softswitch};
use keepline_tests::lab::office::LIMIT;
use keepline_tests::lab::talk::Talk;
use keepline_tests::lab::wait;
use rustix::process::Signal;
use serde_json::Value;

const OTHER: &str = "voice.example.net";
const PACE: Duration = Duration::from_millis(20);

/// Only the primary is configured.
fn config() -> String {
    let softswitches = format!(
        "[[softswitch]]\nname = \"core\"\ndomain = \"{DOMAIN}\"\n\
         servers = [{{ uri = \"sip:{}:5060\" }}]",
        SOFTSWITCHES[0]
    );
    gateway::config_for(&softswitches).replace("\"normal\"", "\"transparent\"")
}

/// Name and state of each group in `status`.
fn groups(status: &Value) -> Vec<(String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = gateway::list(status, "groups").iter();
    rows.map(|row| (text(row, "name"), text(row, "state")))
        .collect()
}

#[test]
fn em20_each_phone_survives_its_own_softswitch_which_nobody_need_configure() -> Result<()> {
    let branch = Branch::raise()?;
    branch.phones_route()?;
    let _core = Softswitch::start_for(DOMAIN, &branch, 0, false)?;
    let mut other = Softswitch::start_for(OTHER, &branch, 1, false)?;
    let _gateway = Gateway::start(&branch, &config())?;
    let phone = |domain, user, at, server: usize| {
        let address = Branch::phone(at);
        Agent::of_domain(domain, &branch.phones, user, &address, SOFTSWITCHES[server])
    };
    let (a, b) = (phone(DOMAIN, "250", 10, 0)?, phone(DOMAIN, "251", 11, 0)?);
    let (c, d) = (phone(OTHER, "350", 12, 1)?, phone(OTHER, "351", 13, 1)?);
    for phone in [&a, &b, &c, &d] {
        phone.register(3600)?.is(200)?;
    }
    let learned = format!("sip:{}:5060", SOFTSWITCHES[1]);
    let status = gateway::ask(&branch, &["status"])?;
    ensure!(status["gateway"]["mode"] == "transparent", "{status}");
    ensure!(
        groups(&status).contains(&(learned.clone(), "serving".to_owned())),
        "{status}"
    );

    let seat = |agent| (&branch.phones, agent);
    for (from, to, server) in [(&a, &b, 0), (&c, &d, 1)] {
        let talk = Talk::begin(seat(from), seat(to), PACE, "")?;
        talk.hear(25)?;
        let via = gateway::via(&branch, &talk.dialog.call_id)?;
        ensure!(via.contains(SOFTSWITCHES[server]), "through {via}");
        talk.end(from)?;
    }

    // One dies: its phones call each other here, the others through theirs.
    other.kill();
    let (mut here, answer) = c.call("351", "", LIMIT)?;
    ensure!(answer.took <= Duration::from_secs(4), "{:?}", answer.took);
    let carried = gateway::via(&branch, &here.call_id)?;
    ensure!(carried == "local", "through {carried}");
    wait::until("the other softswitch is found out", LIMIT, || {
        let status = gateway::ask(&branch, &["status"]).ok()?;
        let groups = groups(&status);
        let is = |name: &str, state: &str| groups.contains(&(name.to_owned(), state.to_owned()));
        (is(&learned, "survivability") && is("core", "serving")).then_some(())
    })?;
    c.register(3600)?.is(200)?;
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

/// Routing rules and routes of the gateway's that are in the kernel.
fn installed(branch: &Branch) -> Result<(usize, usize)> {
    let rules = branch.gw.ip("rule show")?;
    let rules = rules.lines().filter(|line| line.contains("lookup 27500"));
    let routes = branch.gw.ip("route show table all")?;
    let routes = routes.lines().filter(|line| line.contains("table 27500"));
    Ok((rules.count(), routes.count()))
}

#[test]
fn em20_kl5_rules_are_installed_put_back_and_removed_whatever_ends_the_daemon() -> Result<()> {
    let branch = Branch::raise()?;
    branch.phones_route()?;
    let _core = Softswitch::start_for(DOMAIN, &branch, 0, false)?;
    ensure!(installed(&branch)? == (0, 0), "{:?}", installed(&branch)?);
    let mut gateway = Gateway::start(&branch, &config())?;
    ensure!(installed(&branch)? == (1, 1), "{:?}", installed(&branch)?);
    // Somebody flushes what is not his.
    branch.gw.ip("rule del table 27500")?;
    wait::until("the rule is back", LIMIT, || {
        (installed(&branch).ok()? == (1, 1)).then_some(())
    })?;
    let phone = Agent::new(&branch.phones, "250", &Branch::phone(10), SOFTSWITCHES[0])?;
    phone.register(3600)?.is(200)?;
    let other = Agent::new(&branch.phones, "251", &Branch::phone(11), SOFTSWITCHES[0])?;
    other.register(3600)?.is(200)?;
    let talk = Talk::begin((&branch.phones, &phone), (&branch.phones, &other), PACE, "")?;
    // Killed, it leaves them; the next finds them, and uses them. No packet of the call is lost,
    // and it ends in order.
    gateway.restart(&branch)?;
    ensure!(installed(&branch)? == (1, 1), "{:?}", installed(&branch)?);
    phone.register(3600)?.is(200)?;
    talk.hear(25)?;
    let (packets, _) = talk.end(&phone)?;
    println!("{packets} RTP over the death of the daemon, none lost");
    let told = gateway::run(&branch, &["doctor"])?;
    ensure!(told.contains("survivability does not cover it"), "{told}");
    // Told to end, it takes them away; so does a next one that needs none.
    gateway.process().signal(Signal::TERM)?;
    gateway.process().wait(LIMIT)?;
    ensure!(installed(&branch)? == (0, 0), "{:?}", installed(&branch)?);
    let mut gateway = Gateway::start(&branch, &config())?;
    gateway.process().kill();
    ensure!(installed(&branch)? == (1, 1), "{:?}", installed(&branch)?);
    let normal = config().replace("\"transparent\"", "\"normal\"");
    let _gateway = Gateway::start(&branch, &normal)?;
    ensure!(installed(&branch)? == (0, 0), "{:?}", installed(&branch)?);
    Ok(())
}
