//! Running other programs: as the user, or as root where the kernel asks for it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Says what is about to happen and why.
pub(crate) fn step(what: &str, why: &str) {
    eprintln!("xtask: {what} ({why})");
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs us, so that a `+toolchain` choice carries on.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Whether we are root already.
pub(crate) fn is_root() -> bool {
    // The owner of /proc/self is the effective user; std has no geteuid, and a dependency for
    // one number is not worth it.
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// `program` as root: itself when we are root, else through sudo with the environment that
/// builds and tests read.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    if find("sudo").is_none() {
        bail!("this needs root, and there is no sudo: run it as root");
    }
    let mut command = Command::new("sudo");
    command.arg("env");
    for name in [
        "PATH",
        "CI",
        "RUST_BACKTRACE",
        "RUST_LIB_BACKTRACE",
        "RUST_LOG",
        "NO_COLOR",
    ] {
        if let Some(value) = env::var_os(name) {
            let mut pair = std::ffi::OsString::from(format!("{name}="));
            pair.push(value);
            command.arg(pair);
        }
    }
    command.arg(program);
    Ok(command)
}

/// Runs to the end, output going to ours; an error unless it exits 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    if !succeeds(command)? {
        bail!("failed: {}", shown(command));
    }
    Ok(())
}

/// Runs to the end, output going to ours; whether it exited 0.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run: {}", shown(command)))?;
    Ok(status.success())
}

/// What a program prints, or `None` when it is missing or fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// The place of a program on PATH. The sbin folders count: a user's PATH often lacks them.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
