//! What this machine lacks is said in one sentence with its remedy, before anything is touched.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::GATEWAY_LAN;
use keepline_tests::lab::{Branch, Launch, gateway};
use serde_json::Value;

const CONFIG: &str = "/run/gw/keepline.toml";
/// A copy that every user may execute, wherever the checkout lies.
const PROGRAM: &str = "/run/gw/keepline";

/// Runs the gateway by way of `wrapper`, in text and in JSON: exit 1, `sentence` and `remedy`
/// in both, and nothing attached or pinned.
fn refused(branch: &Branch, wrapper: &[&str], sentence: &str, remedy: &str) -> Result<()> {
    branch.cell().write(CONFIG, gateway::config())?;
    std::fs::copy(gateway::built("keepline")?, branch.cell().outside(PROGRAM))?;
    for json in [false, true] {
        let words: Vec<&str> = wrapper
            .iter()
            .copied()
            .chain([PROGRAM, "--config", CONFIG, "run"])
            .chain(json.then_some("--json"))
            .collect();
        let mut process = branch.gw.start(&Launch::new(words[0]).args(&words[1..]))?;
        let status = process.wait(Duration::from_secs(10))?;
        let printed = process.all_text();
        ensure!(status.code() == Some(1), "{status}: {printed}");
        ensure!(printed.contains(sentence), "no {sentence:?}: {printed}");
        ensure!(printed.contains(remedy), "no {remedy:?}: {printed}");
        if json {
            let answer: Value = serde_json::from_str(&printed).context(printed)?;
            let told = answer.pointer("/error/message").and_then(Value::as_str);
            ensure!(told.is_some_and(|told| told.contains(sentence)), "{answer}");
        } else {
            ensure!(
                printed.lines().count() <= 2,
                "more than a sentence and its remedy: {printed}"
            );
        }
    }
    let links = branch.gw.ip("-d link show")?;
    ensure!(!links.contains("xdp"), "{links}");
    ensure!(!branch.cell().outside("/sys/fs/bpf/keepline").exists());
    Ok(())
}

#[test]
fn a_port_that_is_taken_is_named() -> Result<()> {
    let branch = Branch::raise()?;
    let _holder = branch.gw.udp(&format!("{GATEWAY_LAN}:5060"))?;
    refused(&branch, &["env"], "lan0:5060", "ss -ulpn")
}

#[test]
fn a_missing_interface_is_named_with_those_there_are() -> Result<()> {
    let branch = Branch::raise()?;
    branch.gw.ip("link set wan0 name eth7")?;
    refused(&branch, &["env"], "wan0", "eth7")
}

#[test]
fn without_root_the_remedy_is_sudo() -> Result<()> {
    let branch = Branch::raise()?;
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534"];
    let wrapper = [&nobody[..], &["--clear-groups"]].concat();
    refused(&branch, &wrapper, "not running as root", "sudo")
}

#[test]
fn without_a_bpf_file_system_the_remedy_mounts_it() -> Result<()> {
    let branch = Branch::raise()?;
    let hide = "mount -t tmpfs tmpfs /sys/fs/bpf && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "sh", "-c", hide, "sh"];
    refused(
        &branch,
        &wrapper,
        "not on a bpf file system",
        "mount -t bpf bpf /sys/fs/bpf",
    )
}

#[test]
fn kl9_a_kernel_that_is_too_old_is_named() -> Result<()> {
    let branch = Branch::raise()?;
    // uname says 2.6, as it does to programs that cannot read 3.0.
    refused(
        &branch,
        &["setarch", "--uname-2.6"],
        "the kernel is 2.6",
        "5.18 or newer",
    )
}
