//! `cargo xtask bench`: runs the `bench` binary of `tests`, which knows the bars.

use std::path::PathBuf;

use anyhow::Result;

use crate::{build, setup, sh};

/// Which bench.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the bench; all of them when left out
    name: Option<String>,
    /// Write the rows to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds with optimisations, then runs; false when a bar is missed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    setup::run_quietly()?;
    build::workspace(true)?;
    let mut bench = sh::as_root(sh::target_dir().join("release/bench"))?;
    bench.args(&args.name);
    if let Some(file) = &args.json {
        bench.arg("--json").arg(std::path::absolute(file)?);
    }
    sh::succeeds(&mut bench)
}
