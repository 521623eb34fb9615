//! `cargo xtask setup`: everything that building and testing need, on a machine that has
//! never seen the project. Each step looks first, so a second run does nothing.

mod apt;
mod bpf;

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::sh;

/// Programs that the lab and the tests run: the network, and the real SIP peers.
const LAB_PACKAGES: &[&str] = &[
    "baresip",
    "bpftool",
    "coturn",
    "dnsmasq-base",
    "ethtool",
    "iproute2",
    "kamailio",
    "kamailio-outbound-modules",
    "kamailio-tls-modules",
    "kea-dhcp4-server",
    "libfaketime",
    "nftables",
    "procps",
    "sip-tester",
    "tcpdump",
    "udhcpc",
    "util-linux",
];

/// What any build of the workspace needs besides Rust.
const BUILD_PACKAGES: &[&str] = &["ca-certificates", "g++", "gcc", "libc6-dev"];

/// Sets up what is missing and says at the end how long it took.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    run_quietly()?;
    eprintln!("xtask: set up in {} s", start.elapsed().as_secs());
    Ok(())
}

/// The same, silent when nothing is missing.
pub(crate) fn run_quietly() -> Result<()> {
    let route = bpf::choose();
    let mut wanted = [BUILD_PACKAGES, LAB_PACKAGES].concat();
    wanted.extend_from_slice(route.packages());
    apt::install(&wanted)?;
    components()?;
    route.install()?;
    mount_bpffs()
}

/// rustfmt and clippy belong to the checks of `cargo xtask test`.
fn components() -> Result<()> {
    for (tool, component) in [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        if sh::find(tool).is_some() && sh::output(Command::new(tool).arg("--version")).is_some() {
            continue;
        }
        sh::step(
            &format!("adding the component {component}"),
            "`test` runs it",
        );
        if sh::find("rustup").is_none() {
            bail!("{component} is missing and so is rustup: install {component} by hand");
        }
        sh::run(Command::new("rustup").args(["component", "add", component]))?;
    }
    Ok(())
}

fn mount_bpffs() -> Result<()> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if mounts
        .lines()
        .any(|line| line.split(' ').nth(2) == Some("bpf"))
    {
        return Ok(());
    }
    sh::step(
        "mounting /sys/fs/bpf",
        "the programs and maps are pinned there",
    );
    sh::run(sh::as_root("mount")?.args(["-t", "bpf", "bpf", "/sys/fs/bpf"]))
}
