//! `keepline probe dhcp` against real servers (MX9, MX10).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline::tunnel::machine;
use keepline_engine::tunnel::identity::Identity;
use keepline_tests::lab::dhcp::{self, Server, Serving};
use keepline_tests::lab::gateway::{built, list};
use keepline_tests::lab::{Capture, Cell, Launch, Node};
use serde_json::Value;

const NET: &str = "10.9.0";
const LIMIT: Duration = Duration::from_secs(10);
const ACK: u8 = 5;

/// A machine that asks by `t0` (a client without a lease) and by `t1` (one that holds .105), one
/// that serves both by `br0`, and a second one on the same network, which may serve by `s0`.
struct Lab {
    asking: Node,
    serving: Node,
    second: Node,
}

impl Lab {
    fn raise() -> Result<Self> {
        let cell = Arc::new(Cell::new()?);
        let mut asking = Node::new("asking", &cell)?;
        let mut serving = Node::new("serving", &cell)?;
        let mut second = Node::new("second", &cell)?;
        serving.ip("link add br0 type bridge")?;
        for port in ["t0", "t1"] {
            let far = format!("p{port}");
            Node::cable((&mut asking, port), (&mut serving, &far))?;
            asking.ip(&format!("link set {port} up"))?;
            serving.ip(&format!("link set {far} master br0 up"))?;
        }
        serving.ip(&format!("addr add {NET}.1/24 dev br0"))?;
        serving.ip("link set br0 up")?;
        Node::cable((&mut second, "s0"), (&mut serving, "p2"))?;
        serving.ip("link set p2 master br0 up")?;
        second.ip(&format!("addr add {NET}.2/24 dev s0"))?;
        second.ip("link set s0 up")?;
        Ok(Self {
            asking,
            serving,
            second,
        })
    }

    /// One probe; silence fails with its own code.
    fn probe(&self, interface: &str, ip: &str) -> Result<Value> {
        self.probes(interface, ip, 1)
    }

    fn probes(&self, interface: &str, ip: &str, count: u8) -> Result<Value> {
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
            "--count",
            &count.to_string(),
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

/// What is asked for, in the README's words.
const ASKED: [&str; 4] = [
    "in the pool, free",
    "in the pool, taken",
    "this client's own lease",
    "off the served subnet",
];

/// The README's table, from what each server answered.
fn table(servers: &[(Server, [String; 4])]) -> String {
    let names: Vec<_> = servers.iter().map(|(server, _)| server.name()).collect();
    let mut table = format!("| `health_check_ip` is | {} |\n", names.join(" | "));
    table += &format!("|---|{}\n", "---|".repeat(servers.len()));
    for (number, asked) in ASKED.iter().enumerate() {
        table += &format!("| {asked} |");
        for (_, seen) in servers {
            let word = match seen[number].as_str() {
                "ack" => "ACK",
                "nak" => "NAK",
                other => other,
            };
            table += &format!(" {word} |");
        }
        table += "\n";
    }
    table
}

#[test]
fn mx9_mx10_real_servers_answer_as_the_documents_say() -> Result<()> {
    let lab = Lab::raise()?;
    let owner = machine::identity("t1");
    let other = Identity::new(b"another machine", "b");
    let (mut wrong, mut answered) = (Vec::new(), Vec::new());
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
        if seen != expected {
            wrong.push(format!(
                "{}: {seen:?}, not {expected:?}\n{}",
                server.name(),
                running.tail()
            ));
        }
        answered.push((server, seen));
        drop(running);
    }
    let table = table(&answered);
    println!("{table}");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(
        include_str!("../../../README.md").contains(&table),
        "the README shows another table"
    );
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
    // As often as it is told, each with an answer of its own.
    let wire = Capture::start(&lab.asking, "t0", "udp dst port 67")?;
    let thrice = lab.probes("t0", "192.0.2.77", 3)?;
    let probes = list(&thrice, "probes");
    let naks = probes.iter().filter(|probe| probe["outcome"] == "nak");
    ensure!(naks.count() == 3 && probes.len() == 3, "{thrice}");
    let asked = wire.frames()?;
    let xids: std::collections::BTreeSet<_> = asked.iter().map(|f| &f.bytes[46..50]).collect();
    ensure!(asked.len() == 3 && xids.len() == 3, "{xids:02x?}");
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

/// Not only the faster one.
#[test]
fn mx10_case_d5_two_servers_are_both_reported() -> Result<()> {
    let lab = Lab::raise()?;
    let serving = |interface| Serving {
        net: NET,
        interface,
        leases: &[],
    };
    let authoritative = true;
    let _one = Server::Dnsmasq { authoritative }.start(&lab.serving, &serving("br0"))?;
    let _two = Server::Kea { authoritative }.start(&lab.second, &serving("s0"))?;
    let answer = lab.probe("t0", "192.0.2.77")?;
    let answers = list(&answer["probes"][0], "answers");
    let word = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let mut told: Vec<_> = answers
        .iter()
        .map(|one| (word(one, "server"), word(one, "outcome")))
        .collect();
    told.sort();
    let nak = |last: u8| (format!("{NET}.{last}"), "nak".to_owned());
    ensure!(told == [nak(1), nak(2)], "{answer}");
    Ok(())
}

/// A server that answers by unicast, whatever flag the request had, is heard all the same.
#[test]
fn mx5_case_d2_an_answer_by_unicast_is_heard() -> Result<()> {
    let lab = Lab::raise()?;
    let mac = machine::identity("t0").mac;
    let neighbour = format!("neigh add {NET}.105 lladdr {} dev br0", dhcp::hex(&mac));
    lab.serving.ip(&neighbour)?;
    let wire = Capture::start(&lab.asking, "t0", "udp dst port 68")?;
    let server = lab.serving.udp("0.0.0.0:67")?;
    server.set_read_timeout(Some(LIMIT))?;
    let answering = thread::spawn(move || -> Result<[u8; 2]> {
        let mut request = [0; 1500];
        let length = server.recv(&mut request).context("no probe was heard")?;
        let answer = dhcp::answer(&request[..length], ACK, [10, 9, 0, 105], [10, 9, 0, 1]);
        server.send_to(&answer, format!("{NET}.105:68"))?;
        Ok([request[10], request[11]])
    });
    let answer = lab.probe("t0", &format!("{NET}.105"));
    let flags = answering.join().expect("it does not panic")?;
    ensure!(flags == [0x80, 0], "the flags are {flags:02x?}");
    let answer = answer?;
    ensure!(answer["outcome"] == "ack", "{answer}");
    let frame = wire.wait_frame(0, LIMIT, |_| true)?;
    ensure!(frame.bytes[..6] == mac, "it was no unicast");
    Ok(())
}
