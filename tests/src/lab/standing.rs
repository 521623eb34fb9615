//! A lab that outlives the command that raised it: `cargo xtask lab up|down|shell`.
//!
//! A process in the background holds it. Its facts stand in a file, so that a shell can find
//! its way in and `down` knows whom to end.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Branch;

const FACTS: &str = "/run/keepline-lab.json";

/// The shell sees the interfaces of its machine in /sys, and the lab's pins.
const OWN_SYSFS: &str = "mount -t sysfs sysfs /sys && mount --bind /run/bpf /sys/fs/bpf \
    && exec \"$SHELL\"";

/// What others need to find the lab.
#[derive(Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The process that holds it.
    pub holder: i32,
    /// First process of its cell.
    pub first: u32,
    /// Name and namespace path of each machine.
    pub nodes: Vec<(String, String)>,
}

impl Facts {
    /// Of a lab that this process holds.
    #[must_use]
    pub fn of(branch: &Branch) -> Self {
        Self {
            holder: std::process::id().cast_signed(),
            first: branch.cell().first_process(),
            nodes: branch
                .nodes()
                .into_iter()
                .map(|node| (node.name().to_owned(), node.net().path()))
                .collect(),
        }
    }
}

/// Raises a lab in the background.
///
/// # Errors
/// When one stands already, or cannot be raised.
pub fn up() -> Result<()> {
    if let Some(facts) = standing() {
        bail!(
            "a lab stands already (process {}): `lab down` takes it away",
            facts.holder
        );
    }
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["lab", "hold"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut holder = command.spawn().context("cannot start the holder")?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().context("no pipe")?).read_line(&mut line)?;
    if line.is_empty() {
        holder.wait()?;
        bail!("the lab could not be raised: see above");
    }
    fs::write(FACTS, &line).with_context(|| format!("cannot write {FACTS}"))?;
    let facts: Facts = serde_json::from_str(&line)?;
    let names: Vec<_> = facts.nodes.iter().map(|(name, _)| name.as_str()).collect();
    println!("the lab stands: {}", names.join(" "));
    println!("`cargo xtask lab shell NODE` enters it, `cargo xtask lab down` takes it away");
    Ok(())
}

/// Raises a lab, prints its facts as one line of JSON, and holds it until a signal comes.
///
/// # Errors
/// When it cannot be raised.
pub fn hold() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let branch = Branch::raise()?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(&Facts::of(&branch))?)?;
    stdout.flush()?;
    signals.forever().next();
    Ok(())
}

/// Takes the standing lab away, and waits until it is gone.
///
/// # Errors
/// When none stands, or it does not go.
pub fn down() -> Result<()> {
    let facts = standing().context("no lab stands")?;
    let holder = Pid::from_raw(facts.holder).context("no process id")?;
    let gone = pidfd_open(holder, PidfdFlags::empty())?;
    kill_process(holder, Signal::TERM)?;
    let limit = rustix::event::Timespec::try_from(Duration::from_secs(20))?;
    let mut ready = [rustix::event::PollFd::new(
        &gone,
        rustix::event::PollFlags::IN,
    )];
    if rustix::event::poll(&mut ready, Some(&limit))? == 0 {
        bail!("process {} does not end", facts.holder);
    }
    fs::remove_file(FACTS)?;
    println!("the lab is gone");
    Ok(())
}

/// A shell on one machine of the standing lab; returns only on failure.
///
/// # Errors
/// When no lab stands, or it has no such machine.
pub fn shell(node: &str) -> Result<()> {
    let facts = standing().context("no lab stands: `cargo xtask lab up` raises one")?;
    let found = facts.nodes.iter().find(|(name, _)| name == node);
    let Some((_, net)) = found else {
        let names: Vec<_> = facts.nodes.iter().map(|(name, _)| name.as_str()).collect();
        bail!("no machine {node}: there are {}", names.join(" "));
    };
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let error = Command::new("nsenter")
        .arg(format!("--net={net}"))
        .arg(format!("--mount=/proc/{}/ns/mnt", facts.first))
        .arg(format!("--pid=/proc/{}/ns/pid", facts.first))
        .args([
            "--",
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            OWN_SYSFS,
        ])
        .env("SHELL", shell)
        .env("PS1", format!("[{node}] # "))
        .exec();
    Err(error).context("cannot run nsenter")
}

/// The lab that stands, if its holder still lives and is a holder.
fn standing() -> Option<Facts> {
    let facts: Facts = serde_json::from_str(&fs::read_to_string(FACTS).ok()?).ok()?;
    let line = fs::read(
        Path::new("/proc")
            .join(facts.holder.to_string())
            .join("cmdline"),
    )
    .ok()?;
    line.ends_with(b"lab\0hold\0").then_some(facts)
}
