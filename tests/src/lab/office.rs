//! A branch at work: the lab, two softswitches, the gateway between them and the phones.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use keepline_engine::net::Transport;
use serde_json::Value;

use super::branch::{GATEWAY_LAN, SOFTSWITCHES};
use super::gateway::{self, Gateway};
use super::kamailio::Softswitch;
use super::phone::Phone;
use super::sip::Message;
use super::{Branch, Capture, Process, wait};

/// How long a REGISTER, a call set-up or a call's end may take before it has failed.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Seconds that phones ask to be registered for.
const EXPIRES: u32 = 3600;
/// How long the gateway may take to call a server up again: its longest back-off and more.
const RECOVERY: Duration = Duration::from_secs(60);

/// How to open an office.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Whether the softswitches challenge.
    pub digest: bool,
    /// Phones of the branch.
    pub lan: u8,
    /// Phones of other offices.
    pub far: u8,
    /// The gateway's configuration.
    pub config: String,
    /// What the phones of the branch speak over.
    pub over: Transport,
    /// Whom they speak to; whoever is not the gateway is reached through it.
    pub target: &'static str,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            digest: true,
            lan: 4,
            far: 4,
            config: gateway::config(),
            over: Transport::Udp,
            target: GATEWAY_LAN,
        }
    }
}

impl Opening {
    /// Phones of the branch that speak over `lan`, and softswitches spoken to over `wan`.
    #[must_use]
    pub fn over(lan: Transport, wan: Transport) -> Self {
        Self {
            config: gateway::config_over(lan, wan),
            over: lan,
            ..Self::default()
        }
    }

    /// Phones that speak to the primary itself, which the gateway takes on the way.
    #[must_use]
    pub fn transparent(lan: Transport, wan: Transport) -> Self {
        let over = Self::over(lan, wan);
        Self {
            config: over.config.replace("\"normal\"", "\"transparent\""),
            target: SOFTSWITCHES[0],
            ..over
        }
    }

    /// The same over UDP without hiding: what phones say goes through as it is.
    #[must_use]
    pub fn through() -> Self {
        let hiding = Self::transparent(Transport::Udp, Transport::Udp);
        let mode = "mode = \"transparent\"\nhide_topology = false";
        Self {
            config: hiding.config.replace("mode = \"transparent\"", mode),
            ..hiding
        }
    }

    /// Softswitches that challenge nobody, and no SIPp phone: the test brings its own.
    #[must_use]
    pub fn without_phones() -> Self {
        Self {
            digest: false,
            lan: 0,
            far: 0,
            ..Self::default()
        }
    }
}

/// Everything that is up.
pub struct Office {
    /// The softswitch of the highest priority.
    pub primary: Softswitch,
    /// The other.
    pub backup: Softswitch,
    /// The gateway under test.
    pub gateway: Gateway,
    /// Phones of the branch, speaking to the gateway.
    pub lan: Vec<Phone>,
    /// Phones of other offices, speaking to the backup: it is never struck.
    pub far: Vec<Phone>,
    /// The SIP that all phones of the branch send and receive.
    pub wire: Capture,
    /// The network. Last, since fields are dropped in order: its PID namespace cannot end while
    /// a process in it has not been waited for.
    pub branch: Branch,
}

impl Office {
    /// Raises it. Phones are there, and not registered.
    ///
    /// # Errors
    /// When one of the programs does not start; the message quotes it.
    pub fn open(opening: &Opening) -> Result<Self> {
        let branch = Branch::raise().context("the lab cannot be raised")?;
        Self::open_on(branch, opening)
    }

    /// The same with two phones on either side, which are registered upstream.
    ///
    /// # Errors
    /// As [`Self::open`], and when a phone does not get its 200.
    pub fn registered(opening: Opening) -> Result<Self> {
        let office = Self::open(&Opening {
            lan: 2,
            far: 2,
            ..opening
        })?;
        office.register()?;
        office.registered_upstream()?;
        Ok(office)
    }

    /// The same on a branch that a test has added to.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(branch: Branch, opening: &Opening) -> Result<Self> {
        if opening.target != GATEWAY_LAN {
            branch.phones_route()?;
        }
        let primary = Softswitch::start(&branch, 0, opening.digest)?;
        let backup = Softswitch::start(&branch, 1, opening.digest)?;
        let gateway = Gateway::start(&branch, &opening.config)?;
        let wire = Capture::start(&branch.phones, "eth0", "port 5060")?;
        let lan = (0..opening.lan).map(|index| {
            let user = format!("2{index:02}");
            Phone::new(&user, Branch::phone(index), opening.target).over(opening.over)
        });
        let far = (0..opening.far).map(|index| {
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
            backup,
            gateway,
            lan,
            far,
            wire,
        })
    }

    /// Registers every phone; the time until the last one has its 200.
    ///
    /// # Errors
    /// When one fails.
    pub fn register(&self) -> Result<Duration> {
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

    /// Registers one phone of the branch. The statuses that it saw: a challenge and 200 where a
    /// softswitch serves it, 200 alone where the gateway does.
    ///
    /// # Errors
    /// When it fails.
    pub fn register_one(&self, phone: &Phone) -> Result<Vec<u16>> {
        let earlier = self.wire.frames()?.len();
        let mut registering = phone.register(&self.branch.phones, EXPIRES)?;
        registering.succeed(LIMIT)?;
        let seen = Message::of(&self.wire.frames()?[earlier..], &phone.address);
        Ok(seen
            .iter()
            .filter(|message| !message.sent)
            .filter_map(Message::status)
            .collect())
    }

    /// Asks the gateway.
    ///
    /// # Errors
    /// When it does not answer, or not with JSON.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        gateway::ask(&self.branch, words)
    }

    /// How many phones of the branch are registered, which must be all, and all upstream.
    ///
    /// # Errors
    /// When it is otherwise.
    pub fn registered_upstream(&self) -> Result<usize> {
        let answer = self.ask(&["registrations"])?;
        let registrations = gateway::list(&answer, "registrations");
        let count = registrations
            .iter()
            .filter(|entry| entry["state"] == "upstream")
            .count();
        ensure!(
            count == self.lan.len(),
            "{count} of {} are upstream: {answer}",
            self.lan.len()
        );
        Ok(count)
    }

    /// Waits until the group is in this state; how long it took.
    ///
    /// # Errors
    /// When it is not within a minute.
    pub fn wait_group(&self, state: &str) -> Result<Duration> {
        let start = Instant::now();
        let mut last = None;
        let reached = wait::until(&format!("the group is {state}"), RECOVERY, || {
            last = self.ask(&["status"]).ok();
            let group = last.as_ref()?.pointer("/groups/0/state")?;
            (group == state).then_some(())
        });
        reached.with_context(|| format!("{last:?}"))?;
        Ok(start.elapsed())
    }

    /// State of the server with this index, in the gateway's eyes.
    ///
    /// # Errors
    /// When the gateway does not know it.
    pub fn state(&self, server: usize) -> Result<String> {
        let answer = self.ask(&["status"])?;
        let servers = answer
            .pointer("/groups/0/servers")
            .and_then(Value::as_array);
        let uri = uri(server);
        let found = servers.into_iter().flatten().find(|entry| {
            entry["uri"]
                .as_str()
                .is_some_and(|found| found.starts_with(&uri))
        });
        let state = found.and_then(|entry| entry["state"].as_str());
        state
            .map(str::to_owned)
            .with_context(|| format!("no {uri} in {answer}"))
    }

    /// URI of the server in use.
    ///
    /// # Errors
    /// When there is none.
    pub fn active(&self) -> Result<String> {
        let answer = self.ask(&["status"])?;
        let active = answer.pointer("/groups/0/active").and_then(Value::as_str);
        active
            .map(str::to_owned)
            .with_context(|| format!("none is active: {answer}"))
    }

    /// Waits until the gateway calls the primary up.
    ///
    /// # Errors
    /// When it does not within a minute.
    pub fn wait_primary_up(&self) -> Result<Duration> {
        let start = Instant::now();
        let up = || self.state(0).is_ok_and(|state| state == "up").then_some(());
        wait::until("the gateway calls the primary up", RECOVERY, up)?;
        Ok(start.elapsed())
    }

    /// Puts the group back on the primary, and lets the phones register anew.
    ///
    /// # Errors
    /// When the gateway does not switch, or a phone fails.
    pub fn back_to_primary(&self) -> Result<()> {
        gateway::run(&self.branch, &["switch", "core", &uri(0)])?;
        let active = self.active()?;
        if active != uri(0) {
            bail!("switched to {}, but {active} is active", uri(0));
        }
        self.register()?;
        self.registered_upstream().map(drop)
    }

    /// The gateway's events, oldest first.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn events(&self) -> Result<Vec<Value>> {
        Ok(gateway::list(&self.ask(&["events"])?, "events").to_vec())
    }
}

/// URI of a server, as the configuration has it.
#[must_use]
pub fn uri(server: usize) -> String {
    format!("sip:{}:5060", SOFTSWITCHES[server])
}
