//! Debian packages, without starting the daemons that some of them bring.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::sh;

/// Asked by Debian's maintainer scripts before they start a service; 101 means "don't".
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Packages whose service would start now or at the next boot. The lab runs these programs
/// itself, in namespaces of its own.
const SERVICES: &[&str] = &["coturn", "kamailio"];

/// Installs those of `wanted` that are missing.
pub(super) fn install(wanted: &[&str]) -> Result<()> {
    if sh::find("dpkg-query").is_none() {
        eprintln!(
            "xtask: not a Debian machine; make sure of the equivalents of: {}",
            wanted.join(" ")
        );
        return Ok(());
    }
    let missing = missing(wanted);
    if missing.is_empty() {
        return Ok(());
    }
    sh::step(
        &format!("installing {}", missing.join(" ")),
        "needed to build or test, and absent",
    );
    apt_get(&["update", "-q"])?;
    let _quiet = ServicesStayDown::new()?;
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(&missing);
    apt_get(&arguments)?;
    disable_services(&missing)
}

fn missing<'a>(wanted: &[&'a str]) -> Vec<&'a str> {
    // dpkg-query fails when one name is unknown to it, but still prints the others.
    let listing = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .output();
    let listing = listing.map(|output| output.stdout).unwrap_or_default();
    let listing = String::from_utf8_lossy(&listing).into_owned();
    let installed: BTreeSet<&str> = listing
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"))
        .collect();
    let mut missing: Vec<_> = wanted
        .iter()
        .copied()
        .filter(|name| !installed.contains(name))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut apt = sh::as_root("env")?;
    apt.args([
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=300",
    ]);
    apt.args(arguments);
    if !sh::succeeds(&mut apt)? {
        bail!("apt-get {} failed: see above", arguments.join(" "));
    }
    Ok(())
}

fn disable_services(installed_now: &[&str]) -> Result<()> {
    if !Path::new("/run/systemd/system").exists() {
        return Ok(());
    }
    for service in SERVICES.iter().filter(|name| installed_now.contains(name)) {
        sh::step(
            &format!("disabling the service {service}"),
            "only the lab runs it, in its own namespaces",
        );
        sh::run(sh::as_root("systemctl")?.args(["disable", "--now", service]))?;
    }
    Ok(())
}

/// Keeps services from starting while packages are installed; takes itself away.
struct ServicesStayDown {
    ours: bool,
}

impl ServicesStayDown {
    fn new() -> Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        let draft = std::env::temp_dir().join(format!("policy-rc.d.{}", std::process::id()));
        fs::write(&draft, "#!/bin/sh\nexit 101\n").context("cannot write a draft file")?;
        let placed = sh::as_root("install")
            .and_then(|mut install| sh::run(install.args(["-m", "755"]).arg(&draft).arg(POLICY)));
        fs::remove_file(&draft).context("cannot remove the draft file")?;
        placed.map(|()| Self { ours: true })
    }
}

impl Drop for ServicesStayDown {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        let removed = sh::as_root("rm").and_then(|mut rm| sh::run(rm.args(["-f", POLICY])));
        if let Err(error) = removed {
            eprintln!("xtask: remove {POLICY} by hand: {error:#}");
        }
    }
}
