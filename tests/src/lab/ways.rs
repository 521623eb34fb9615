//! A branch whose WAN has two ways to the same network, watched as tunnels of one segment; the
//! gateway's own calls and signalling are routed by the first.

use std::time::Duration;

use anyhow::{Context as _, Result};
use keepline_engine::net::Transport;
use serde_json::Value;

use super::call::Call;
use super::dhcp::{Server, Serving};
use super::office::{Office, Opening};
use super::{Branch, Node, Process, gateway, wait};

/// How long an event may take that no timer holds back.
pub const SOON: Duration = Duration::from_secs(10);
/// How long a call is listened to.
pub const TALK: Duration = Duration::from_secs(2);
const TUNNELS: &str = r#"
[[segment]]
tunnels = ["hq-a", "hq-b"]
[[tunnel]]
name = "hq-a"
interface = "wan0"
health_check_ip = "203.0.113.1"
detect = "fast"
[[tunnel]]
name = "hq-b"
interface = "wan1"
health_check_ip = "203.0.113.1"
detect = "fast"
"#;

/// What stands. The server goes first: the office's cell waits for every process in it.
pub struct Scene {
    _dhcp: Process,
    /// The office at work.
    pub office: Office,
}

/// The branch with its second way, `wan1`.
///
/// # Errors
/// When the lab cannot be raised.
pub fn branch() -> Result<Branch> {
    let mut branch = Branch::raise()?;
    second_way(&mut branch)?;
    Ok(branch)
}

fn second_way(branch: &mut Branch) -> Result<()> {
    Node::cable((&mut branch.gw, "wan1"), (&mut branch.carrier, "a-gw2"))?;
    branch.carrier.as_test_host("a-gw2")?;
    branch.carrier.ip("link set a-gw2 master access up")?;
    branch.gw.ip("link set wan1 up")?;
    for port in ["a-gw", "a-gw2"] {
        // What the carrier's own machine says there, its router discovery, would be a sign of life.
        let silent = format!("net.ipv6.conf.{port}.disable_ipv6");
        branch.carrier.sysctl(&silent, "1")?;
    }
    for way in ["wan0", "wan1"] {
        // One network behind both: each answers for its own addresses only.
        branch
            .gw
            .sysctl(&format!("net.ipv4.conf.{way}.arp_ignore"), "1")?;
    }
    Ok(())
}

/// The office at work, with both ways proven, and its softswitches spoken to over this.
///
/// # Errors
/// When something does not start, or a way is not proven.
pub fn raise(over: Transport) -> Result<Scene> {
    raise_on(Branch::raise()?, over)
}

/// The same on a branch that a test has added to.
///
/// # Errors
/// As [`raise`].
pub fn raise_on(mut branch: Branch, over: Transport) -> Result<Scene> {
    second_way(&mut branch)?;
    let serving = Serving {
        net: "10.99.2",
        interface: "eth0",
        leases: &[],
    };
    let server = Server::Dnsmasq {
        authoritative: true,
    };
    let dhcp = server.start(&branch.routers[0], &serving)?;
    let opening = Opening {
        config: gateway::config_over(Transport::Udp, over) + TUNNELS,
        ..Opening::default()
    };
    let scene = Scene {
        _dhcp: dhcp,
        office: Office::open_on(branch, &opening)?,
    };
    let office = &scene.office;
    wait::until("both ways are proven", SOON, || {
        let answer = office.ask(&["tunnels"]).ok()?;
        let all = gateway::list(&answer, "tunnels");
        all.iter()
            .all(|tunnel| tunnel["proven"] == true)
            .then_some(())
    })?;
    office.register()?;
    Ok(scene)
}

/// Two calls out of the branch, with media both ways, kept for so long.
///
/// # Errors
/// When one does not stand, or is silent.
pub fn talk(office: &Office, hold: Duration) -> Result<Vec<Call>> {
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut calls = Vec::new();
    for n in 0..2 {
        calls.push(Call::dial(
            (phones, &office.lan[n]),
            (far, &office.far[n]),
            hold,
        )?);
    }
    calls.iter_mut().try_for_each(Call::talk)?;
    calls.iter().try_for_each(|call| call.heard_for(TALK))?;
    Ok(calls)
}

/// Whatever comes or goes by the first way is lost (`0`), or no longer (`3`: it forwards); the
/// link stays up.
///
/// # Errors
/// When the kernel refuses.
pub fn first_way(office: &Office, state: &str) -> Result<()> {
    let words = ["link", "set", "dev", "a-gw", "state", state];
    office.branch.carrier.run("bridge", &words).map(drop)
}

/// Waits for the event of a segment.
///
/// # Errors
/// When it does not come in time; the message tells what did.
pub fn moved(office: &Office, rule: &str, limit: Duration) -> Result<Value> {
    let event = wait::until(rule, limit, || {
        let events = office.events().ok()?;
        events.into_iter().find(|event| event["rule"] == rule)
    });
    event.with_context(|| format!("{:?} {:?}", office.ask(&["tunnels"]), office.events()))
}
