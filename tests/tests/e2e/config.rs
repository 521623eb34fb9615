//! A bad configuration never starts half: every fault with its place, exit 2, nothing touched.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::{Branch, Launch, gateway};
use serde_json::Value;

const FILE: &str = "/run/gw/faulty.toml";

/// What `keepline --config FILE WORDS` prints, and its exit code.
fn keepline(branch: &Branch, words: &[&str]) -> Result<(String, i32)> {
    let launch = Launch::new(gateway::built("keepline")?)
        .args(["--config", FILE])
        .args(words);
    let mut process = branch.gw.start(&launch)?;
    let status = process.wait(Duration::from_secs(10))?;
    Ok((process.all_text(), status.code().context("killed")?))
}

/// A fault put into the lab's own configuration: text to replace, with what, and a word of the
/// line that is to blame.
const FAULTS: &[(&str, &str, &str)] = &[
    ("role = \"standalone\"", "rolle = \"standalone\"", "rolle"),
    ("role = \"lan\"", "role = \"lann\"", "lann"),
    ("mode = \"normal\"", "mode = normal", "normal"),
    ("\"lan0:5060\", ", "\"lan0:99999\", ", "99999"),
    ("\"lan0:5060\", ", "\"lan7:5060\", ", "lan7"),
    ("priority = 1", "priority = \"one\"", "\"one\""),
    ("sip:10.99.10.1:5060", "10.99.10.1:5060:7", "5060:7"),
    (
        "name = \"core\"",
        "name = \"core\"\ninterval = \"soon\"",
        "soon",
    ),
    (
        "name = \"core\"",
        "name = \"core\"\nprobe = \"sometimes\"",
        "sometimes",
    ),
    (
        "[store]",
        "[media]\nports = \"20000-10000\"\n[store]",
        "20000-10000",
    ),
];

#[test]
fn each_fault_has_file_line_column_and_hint() -> Result<()> {
    let branch = Branch::raise()?;
    for (from, to, blamed) in FAULTS {
        let text = gateway::config().replace(from, to);
        ensure!(
            text != gateway::config(),
            "{from} is not in the configuration"
        );
        let line = 1 + text
            .lines()
            .position(|line| line.contains(blamed))
            .context("no line")?;
        branch.cell().write(FILE, &text)?;
        let (printed, code) = keepline(&branch, &["config", "check"])?;
        ensure!(code == 2, "{to}: exit {code}: {printed}");
        ensure!(
            printed.contains(&format!("{FILE}:{line}:")),
            "{to}: line {line}: {printed}"
        );
        ensure!(printed.contains("help"), "{to}: no hint: {printed}");
        let (json, code) = keepline(&branch, &["config", "check", "--json"])?;
        ensure!(code == 2, "{to}: exit {code}: {json}");
        let answer: Value = serde_json::from_str(&json).with_context(|| json.clone())?;
        ensure!(answer.pointer("/error/message").is_some(), "{to}: {answer}");
    }
    Ok(())
}

#[test]
fn all_faults_are_told_at_once_and_nothing_is_attached() -> Result<()> {
    let branch = Branch::raise()?;
    let text = gateway::config()
        .replace("role = \"lan\"", "role = \"lann\"")
        .replace("priority = 2", "priority = \"two\"");
    branch.cell().write(FILE, &text)?;
    let (printed, code) = keepline(&branch, &["run"])?;
    ensure!(code == 2, "exit {code}: {printed}");
    ensure!(
        printed.contains("lann") && printed.contains("two"),
        "{printed}"
    );
    let links = branch.gw.ip("-d link show")?;
    ensure!(!links.contains("xdp"), "{links}");
    ensure!(!branch.cell().outside("/sys/fs/bpf/keepline").exists());
    Ok(())
}

#[test]
fn the_sample_and_the_labs_configuration_are_fine() -> Result<()> {
    let branch = Branch::raise()?;
    branch.cell().write(FILE, gateway::config())?;
    let (printed, code) = keepline(&branch, &["config", "check"])?;
    ensure!(code == 0, "exit {code}: {printed}");
    let (sample, code) = keepline(&branch, &["config", "init"])?;
    ensure!(code == 0 && sample.contains("[gateway]"), "{sample}");
    Ok(())
}

#[test]
fn a_missing_file_is_named() -> Result<()> {
    let branch = Branch::raise()?;
    let (printed, code) = keepline(&branch, &["config", "check"])?;
    ensure!(
        code == 2 && printed.contains(FILE),
        "exit {code}: {printed}"
    );
    Ok(())
}

#[test]
fn a_wrong_command_exits_2() -> Result<()> {
    let branch = Branch::raise()?;
    let (printed, code) = keepline(&branch, &["fastpaht", "load"])?;
    ensure!(code == 2, "exit {code}: {printed}");
    Ok(())
}
