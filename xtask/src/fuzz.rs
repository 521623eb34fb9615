//! `cargo xtask fuzz`: cargo-fuzz on one target, for a bounded time.

use anyhow::{Result, bail};

use crate::sh;

/// What to fuzz, and for how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A target of fuzz/fuzz_targets
    target: String,
    /// How long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Runs the target; false when it found a fault.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let targets = sh::root().join("fuzz/fuzz_targets");
    if !targets.join(format!("{}.rs", args.target)).is_file() {
        bail!(
            "no such target: {} (see {})",
            args.target,
            targets.display()
        );
    }
    if sh::find("cargo-fuzz").is_none() {
        sh::step("installing cargo-fuzz", "it drives libFuzzer");
        sh::run(sh::cargo().args(["install", "--locked", "cargo-fuzz"]))?;
    }
    let limit = format!("-max_total_time={}", args.seconds);
    let mut fuzz = std::process::Command::new("cargo");
    fuzz.current_dir(sh::root());
    sh::succeeds(fuzz.args(["+nightly", "fuzz", "run", &args.target, "--", &limit]))
}
