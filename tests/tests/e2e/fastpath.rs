//! `keepline fastpath` and `keepline stats`: the programs without the daemon.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::GATEWAY_LAN;
use keepline_tests::lab::{Branch, gateway};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(10);
const PIN: &str = "/sys/fs/bpf/keepline";

fn load(branch: &Branch, words: &[&str]) -> Result<Value> {
    gateway::ask(branch, &[&["fastpath", "load"], words].concat())
}

/// Name and mode of each interface in an answer of `load` or `status`.
fn modes(answer: &Value) -> Vec<(&str, &str)> {
    gateway::list(answer, "interfaces")
        .iter()
        .filter_map(|entry| Some((entry["name"].as_str()?, entry["mode"].as_str()?)))
        .collect()
}

/// A datagram from the LAN to the gateway's own socket, and whether it arrived as sent.
fn passes(branch: &Branch, socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(LIMIT))?;
    let phone = branch.phones.udp("10.99.1.11:0")?;
    phone.send_to(b"not for the fast path", socket.local_addr()?)?;
    let mut datagram = [0; 64];
    let (length, from) = socket.recv_from(&mut datagram)?;
    ensure!(&datagram[..length] == b"not for the fast path" && from == phone.local_addr()?);
    Ok(())
}

/// Packets that the programs have passed up, by `keepline stats`.
fn passed(branch: &Branch) -> Result<u64> {
    let answer = gateway::ask(branch, &["stats"])?;
    answer
        .pointer("/verdicts/pass")
        .and_then(Value::as_u64)
        .with_context(|| answer.to_string())
}

/// The program on an interface, as the kernel shows it.
fn attached(branch: &Branch, interface: &str) -> Result<bool> {
    Ok(branch
        .gw
        .ip(&format!("-d link show dev {interface}"))?
        .contains("prog/xdp"))
}

#[test]
fn kl9_load_counts_passes_and_unload_leaves_nothing() -> Result<()> {
    let branch = Branch::raise()?;
    let answer = load(
        &branch,
        &["--iface", "lan0", "--iface", "wan0", "--mode", "native"],
    )?;
    ensure!(
        modes(&answer) == [("lan0", "native"), ("wan0", "native")],
        "{answer}"
    );
    // The loader is gone; its work stays.
    let answer = gateway::ask(&branch, &["fastpath", "status"])?;
    ensure!(
        modes(&answer) == [("lan0", "native"), ("wan0", "native")],
        "{answer}"
    );
    let socket = branch.gw.udp(&format!("{GATEWAY_LAN}:7000"))?;
    let before = passed(&branch)?;
    passes(&branch, &socket)?;
    ensure!(passed(&branch)? > before, "the datagram was not counted");
    ensure!(attached(&branch, "lan0")? && attached(&branch, "wan0")?);

    gateway::run(&branch, &["fastpath", "unload"])?;
    ensure!(!attached(&branch, "lan0")? && !attached(&branch, "wan0")?);
    ensure!(!branch.cell().outside(PIN).exists(), "pins are left");
    passes(&branch, &socket)
}

#[test]
fn a_second_load_replaces_the_programs_and_keeps_the_counters() -> Result<()> {
    let branch = Branch::raise()?;
    load(&branch, &["--iface", "lan0"])?;
    let socket = branch.gw.udp(&format!("{GATEWAY_LAN}:7000"))?;
    for _ in 0..20 {
        passes(&branch, &socket)?;
    }
    let before = passed(&branch)?;
    ensure!(before >= 20, "{before} counted");
    load(&branch, &["--iface", "lan0"])?;
    ensure!(passed(&branch)? >= before, "the counters started anew");
    passes(&branch, &socket)
}

#[test]
fn generic_mode_is_shown_as_such() -> Result<()> {
    let branch = Branch::raise()?;
    let answer = load(&branch, &["--iface", "lan0", "--mode", "generic"])?;
    ensure!(modes(&answer) == [("lan0", "generic")], "{answer}");
    Ok(())
}

#[test]
fn a_foreign_program_is_refused_by_name_and_left_alone() -> Result<()> {
    let mut branch = Branch::raise()?;
    branch.gw.as_test_host("lan0")?;
    let error = load(&branch, &["--iface", "lan0"])
        .expect_err("must be refused")
        .to_string();
    ensure!(
        error.contains("lan0") && error.contains("exit status: 1"),
        "{error}"
    );
    ensure!(attached(&branch, "lan0")?, "the foreign program is gone");
    ensure!(!attached(&branch, "wan0")?);
    Ok(())
}

#[test]
fn a_missing_interface_costs_one_sentence_and_touches_nothing() -> Result<()> {
    let branch = Branch::raise()?;
    let error = load(&branch, &["--iface", "lan0", "--iface", "lan7"]).expect_err("must fail");
    let error = error.to_string();
    ensure!(
        error.contains("lan7") && error.contains("exit status: 1"),
        "{error}"
    );
    ensure!(error.contains("hint"), "no remedy: {error}");
    ensure!(!attached(&branch, "lan0")?, "half of it was loaded");
    Ok(())
}

#[test]
fn status_and_stats_without_a_fast_path_say_so() -> Result<()> {
    let branch = Branch::raise()?;
    for words in [
        &["fastpath", "status"][..],
        &["stats"],
        &["fastpath", "unload"],
    ] {
        let error = gateway::ask(&branch, words)
            .expect_err("nothing is loaded")
            .to_string();
        ensure!(
            error.contains("exit status: 1") && error.contains("no fast path"),
            "{error}"
        );
    }
    Ok(())
}
