//! `keepline probe dhcp` against real servers (MX9, MX10).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline::tunnel::machine;
use keepline_engine::tunnel::identity::Identity;
use keepline_tests::lab::dhcp::{Server, Serving};
use keepline_tests::lab::gateway::built;
use keepline_tests::lab::{Cell, Launch, Node};
use serde_json::Value;

const NET: &str = "10.9.0";

/// A machine that asks by `t0` (a client without a lease) and by `t1` (one that holds .105), and
/// one that serves both.
struct Lab {
    asking: Node,
    serving: Node,
}

impl Lab {
    fn raise() -> Result<Self> {
        let cell = Arc::new(Cell::new()?);
        let mut asking = Node::new("asking", &cell)?;
        let mut serving = Node::new("serving", &cell)?;
        serving.ip("link add br0 type bridge")?;
        for port in ["t0", "t1"] {
            let far = format!("p{port}");
            Node::cable((&mut asking, port), (&mut serving, &far))?;
            asking.ip(&format!("link set {port} up"))?;
            serving.ip(&format!("link set {far} master br0 up"))?;
        }
        serving.ip(&format!("addr add {NET}.1/24 dev br0"))?;
        serving.ip("link set br0 up")?;
        Ok(Self { asking, serving })
    }

    /// One probe; silence fails with its own code.
    fn probe(&self, interface: &str, ip: &str) -> Result<Value> {
        let launch = Launch::new(built("keepline")?).args([
            "--config",
            "/nonexistent",
            "--json",
            "probe",
            "dhcp",
            "--interface",
            interface,
            "--request",
            ip,
            "--timeout",
            "1s",
        ]);
        let mut process = self.asking.start(&launch)?;
        let status = process.wait(Duration::from_secs(20))?;
        let text = process.all_text();
        let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(
            status.success() == answer.get("error").is_none(),
            "{status}, but it said {text}"
        );
        Ok(answer)
    }

    fn outcome(&self, interface: &str, ip: &str) -> Result<String> {
        let answer = self.probe(interface, ip)?;
        let word = answer["outcome"]
            .as_str()
            .or(answer["error"]["code"].as_str());
        Ok(word.context("no outcome")?.to_owned())
    }
}

/// The table of crates.md, section 3, for these rows.
const EXPECTED: [(Server, [&str; 4]); 4] = [
    (
        Server::Dnsmasq {
            authoritative: false,
        },
        ["silence", "silence", "ack", "silence"],
    ),
    (
        Server::Dnsmasq {
            authoritative: true,
        },
        ["ack", "nak", "ack", "nak"],
    ),
    (
        Server::Kea {
            authoritative: false,
        },
        ["silence", "silence", "ack", "silence"],
    ),
    (
        Server::Kea {
            authoritative: true,
        },
        ["nak", "nak", "ack", "nak"],
    ),
];

#[test]
fn mx9_mx10_real_servers_answer_as_the_documents_say() -> Result<()> {
    let lab = Lab::raise()?;
    let owner = machine::identity("t1");
    let other = Identity::new(b"another machine", "b");
    let mut wrong = Vec::new();
    println!("server | in pool, free | in pool, taken | own lease | off subnet");
    for (server, expected) in EXPECTED {
        let leases = [(105, owner.clone()), (102, other.clone())];
        let serving = Serving {
            net: NET,
            interface: "br0",
            leases: &leases,
        };
        let running = server.start(&lab.serving, &serving)?;
        // What draws no lease comes first: an ACK makes a client one that has a lease.
        let off = lab.outcome("t0", "192.0.2.77")?;
        let taken = lab.outcome("t0", &format!("{NET}.102"))?;
        let free = lab.outcome("t0", &format!("{NET}.104"))?;
        let own = lab.outcome("t1", &format!("{NET}.105"))?;
        let seen = [free, taken, own, off];
        println!("{} | {}", server.name(), seen.join(" | "));
        if seen != expected {
            wrong.push(format!(
                "{}: {seen:?}, not {expected:?}\n{}",
                server.name(),
                running.tail()
            ));
        }
        drop(running);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn mx10_the_answer_names_server_time_and_remedy() -> Result<()> {
    let lab = Lab::raise()?;
    let silent = lab.probe("t0", "192.0.2.77")?;
    ensure!(silent["error"]["code"] == "silence", "{silent}");
    let hint = silent["error"]["hint"].as_str().unwrap_or_default();
    ensure!(
        hint.contains("dhcp-authoritative") && hint.contains("kea"),
        "{hint}"
    );
    let none = lab.probe("t9", "192.0.2.77")?;
    ensure!(none["error"]["code"] == "interface", "{none}");
    let serving = Serving {
        net: NET,
        interface: "br0",
        leases: &[],
    };
    let server = Server::Dnsmasq {
        authoritative: true,
    };
    let _running = server.start(&lab.serving, &serving)?;
    let before = lab.asking.ip("-4 -o addr")?;
    let answer = lab.probe("t0", "192.0.2.77")?;
    let heard = &answer["probes"][0]["answers"][0];
    ensure!(
        heard["outcome"] == "nak" && heard["server"] == format!("{NET}.1"),
        "{answer}"
    );
    ensure!(
        heard["rtt_ms"]
            .as_f64()
            .is_some_and(|ms| ms > 0.0 && ms < 1000.0),
        "{answer}"
    );
    // An ACK takes the lease, once, and configures nothing.
    for _ in 0..2 {
        ensure!(lab.outcome("t0", &format!("{NET}.104"))? == "ack");
    }
    ensure!(
        lab.asking.ip("-4 -o addr")? == before,
        "an interface was configured"
    );
    let leases = std::fs::read_to_string(lab.serving.cell().outside("/run/dnsmasq-br0.leases"))?;
    ensure!(leases.lines().count() == 1, "more than one lease: {leases}");
    Ok(())
}
