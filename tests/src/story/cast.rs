//! Who plays: the lab, two softswitches that require digest, the gateway, the phones.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::lab::branch::{GATEWAY_LAN, SOFTSWITCHES};
use crate::lab::gateway::{self, Gateway};
use crate::lab::kamailio::Softswitch;
use crate::lab::phone::Phone;
use crate::lab::{Branch, Capture, Process, wait};

/// Phones of the branch that register through the gateway.
const LAN_PHONES: u8 = 12;
/// Phones of other offices, registered at the softswitches directly.
const FAR_PHONES: u8 = 8;
/// How long a REGISTER or a call may take before the step has failed.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// Seconds that phones ask to be registered for.
const EXPIRES: u32 = 3600;

/// Everything that is up.
pub(super) struct Cast {
    pub(super) branch: Branch,
    pub(super) primary: Softswitch,
    pub(super) _backup: Softswitch,
    pub(super) _gateway: Gateway,
    /// Phones of the branch.
    pub(super) lan: Vec<Phone>,
    /// Phones of other offices.
    pub(super) far: Vec<Phone>,
    /// What the branch's phones send and receive, all of them.
    pub(super) wire: Capture,
}

impl Cast {
    pub(super) fn gather() -> Result<Self> {
        let branch = Branch::raise().context("the lab cannot be raised")?;
        let primary = Softswitch::start(&branch, 0, true)?;
        let backup = Softswitch::start(&branch, 1, true)?;
        let gateway = Gateway::start(&branch, &gateway::config())?;
        let wire = Capture::start(&branch.phones, "eth0", "udp port 5060")?;
        let lan = (0..LAN_PHONES)
            .map(|index| Phone::new(&format!("2{index:02}"), Branch::phone(index), GATEWAY_LAN));
        let far = (0..FAR_PHONES).map(|index| {
            Phone::new(
                &format!("7{index:02}"),
                Branch::far_phone(index),
                SOFTSWITCHES[1],
            )
        });
        let (lan, far) = (lan.collect(), far.collect());
        Ok(Self {
            branch,
            primary,
            _backup: backup,
            _gateway: gateway,
            lan,
            far,
            wire,
        })
    }

    /// Registers every phone; the time until the last one has its 200.
    pub(super) fn register(&self) -> Result<Duration> {
        let start = Instant::now();
        let lan = self
            .lan
            .iter()
            .map(|phone| phone.register(&self.branch.phones, EXPIRES));
        let far = self
            .far
            .iter()
            .map(|phone| phone.register(&self.branch.far, EXPIRES));
        let all: Vec<Process> = lan.chain(far).collect::<Result<_>>()?;
        for mut phone in all {
            phone.succeed(LIMIT)?;
        }
        Ok(start.elapsed())
    }

    /// Asks the gateway.
    pub(super) fn ask(&self, words: &[&str]) -> Result<Value> {
        gateway::ask(&self.branch, words)
    }

    /// Where each registration is, as the gateway sees it: all upstream, or an error.
    pub(super) fn registered_upstream(&self) -> Result<usize> {
        let answer = self.ask(&["registrations"])?;
        let registrations = gateway::list(&answer, "registrations");
        let upstream = |entry: &&Value| entry.get("state").is_some_and(|state| state == "upstream");
        let count = registrations.iter().filter(upstream).count();
        ensure!(
            count == self.lan.len(),
            "{count} of {} are upstream: {answer}",
            self.lan.len()
        );
        Ok(count)
    }

    /// State of the server with this index, in the gateway's eyes.
    pub(super) fn state(&self, server: usize) -> Result<String> {
        let answer = self.ask(&["status"])?;
        let servers = answer
            .pointer("/groups/0/servers")
            .and_then(Value::as_array);
        let uri = uri(server);
        let found = servers
            .into_iter()
            .flatten()
            .find(|entry| entry["uri"] == uri.as_str());
        let state = found.and_then(|entry| entry["state"].as_str());
        state
            .map(str::to_owned)
            .with_context(|| format!("no {uri} in {answer}"))
    }

    /// The server that is in use.
    pub(super) fn active(&self) -> Result<String> {
        let answer = self.ask(&["status"])?;
        let active = answer.pointer("/groups/0/active").and_then(Value::as_str);
        active
            .map(str::to_owned)
            .with_context(|| format!("none is active: {answer}"))
    }

    /// Waits until the gateway has seen enough answers of the primary.
    pub(super) fn wait_primary_up(&self) -> Result<Duration> {
        let start = Instant::now();
        let what = "the gateway calls the primary up";
        wait::until(what, Duration::from_secs(60), || {
            self.state(0).is_ok_and(|state| state == "up").then_some(())
        })?;
        Ok(start.elapsed())
    }

    /// Puts the group back on the primary and lets the phones register anew.
    pub(super) fn back_to_primary(&self) -> Result<()> {
        gateway::run(&self.branch, &["switch", "core", &uri(0)])?;
        let active = self.active()?;
        if active != uri(0) {
            bail!("switched to {}, but {active} is active", uri(0));
        }
        self.register()?;
        self.registered_upstream().map(drop)
    }

    /// The gateway's events since its start, oldest first.
    pub(super) fn events(&self) -> Result<Vec<Value>> {
        Ok(gateway::list(&self.ask(&["events"])?, "events").to_vec())
    }
}

/// URI of a server, as the configuration has it.
pub(super) fn uri(server: usize) -> String {
    format!("sip:{}:5060", SOFTSWITCHES[server])
}
