//! Calls of the gateway that are routed through a tunnel: their common silence has it asked at
//! once, and they move with it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::call::Call;
use keepline_tests::lab::dhcp::{Server, Serving};
use keepline_tests::lab::office::{Office, Opening};
use keepline_tests::lab::tunnels::{at, epoch};
use keepline_tests::lab::{Branch, Capture, Node, Process, gateway, wait};
use serde_json::Value;

/// Two Ethernet ways to the same network, watched as tunnels.
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
const SOON: Duration = Duration::from_secs(10);
const TALK: Duration = Duration::from_secs(2);
/// The callers keep the calls over all of it.
const HOLD: Duration = Duration::from_secs(14);

/// What stands. The server goes first: the office's cell waits for every process in it.
struct Scene {
    _dhcp: Process,
    office: Office,
}

/// A branch whose WAN has a second way, and a DHCP server at the router behind both.
fn branch() -> Result<Branch> {
    let mut branch = Branch::raise()?;
    Node::cable((&mut branch.gw, "wan1"), (&mut branch.carrier, "a-gw2"))?;
    branch.carrier.as_test_host("a-gw2")?;
    branch.carrier.ip("link set a-gw2 master access up")?;
    branch.gw.ip("link set wan1 up")?;
    for way in ["wan0", "wan1"] {
        // One network behind both: each answers for its own addresses only.
        branch
            .gw
            .sysctl(&format!("net.ipv4.conf.{way}.arp_ignore"), "1")?;
    }
    Ok(branch)
}

#[test]
fn kl6_mx8_calls_that_stall_together_have_the_tunnel_asked_and_move_with_it() -> Result<()> {
    let branch = branch()?;
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
        config: gateway::config() + TUNNELS,
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
    let (phones, far) = (&office.branch.phones, &office.branch.far);
    let mut calls = Vec::new();
    for n in 0..2 {
        calls.push(Call::dial(
            (phones, &office.lan[n]),
            (far, &office.far[n]),
            HOLD,
        )?);
    }
    calls.iter_mut().try_for_each(Call::talk)?;
    calls.iter().try_for_each(|call| call.heard_for(TALK))?;
    let heard = Capture::start(
        &office.branch.phones,
        "eth0",
        "udp and not port 5060 and inbound",
    )?;
    let far_heard = Capture::start(
        &office.branch.far,
        "eth0",
        "udp and not port 5060 and inbound",
    )?;

    // Whatever comes or goes by the first way is lost, and the link stays up.
    office
        .branch
        .carrier
        .run("bridge", &["link", "set", "dev", "a-gw", "state", "0"])?;
    let died = epoch();
    let event = wait::until("the second way is in use", SOON, || {
        let events = office.events().ok()?;
        let named = |event: &Value| event["rule"] == "fail_over";
        events.into_iter().find(named)
    });
    let event =
        event.with_context(|| format!("{:?} {:?}", office.ask(&["tunnels"]), office.events()))?;
    let verdict = at(&event)?;
    ensure!(
        event
            .to_string()
            .contains("the RTP of 2 calls stalled together"),
        "{event}"
    );
    let again = died + Duration::from_millis(400);
    let back = heard.wait_frame(0, SOON, |frame| frame.at > again)?;
    let there = far_heard.wait_frame(0, SOON, |frame| frame.at > again)?;
    let after = |later: Duration| (later - died).as_millis();
    println!(
        "death to verdict {} ms, to audio at the phones {} ms, at the far end {} ms",
        after(verdict),
        after(back.at),
        after(there.at)
    );
    // The bar is 2.5 s, and 1.3 s of it were the stall's; a shared machine that wakes late has
    // its probing begin anew.
    ensure!(after(back.at.max(there.at)) <= 6_000, "audio came late");
    let route = office.branch.gw.ip("route show default")?;
    ensure!(route.contains("dev wan1"), "{route}");
    calls.iter_mut().try_for_each(Call::done)
}
