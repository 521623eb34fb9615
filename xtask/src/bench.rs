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

/// Builds, then runs; false when a bar is missed. `testrun` measures what runs in the kernel and
/// takes the build that the tests share; the others measure the daemon as it is released.
pub(crate) fn run(args: &Args) -> Result<bool> {
    setup::run_quietly()?;
    let path = if args.name.as_deref() == Some("testrun") {
        build::workspace(false)?;
        build::binary("bench")
    } else {
        build::for_benches()?;
        build::released("bench")
    };
    let mut bench = sh::as_root(path)?;
    bench.args(&args.name);
    if let Some(file) = &args.json {
        bench.arg("--json").arg(std::path::absolute(file)?);
    }
    sh::succeeds(&mut bench)
}

/// Shows the rows of `testrun` among the tests; false when the program grew by more than is let
/// pass. Nanoseconds of a busy machine fail nothing here: that is the bench's business.
pub(crate) fn sizes() -> Result<bool> {
    let mut bench = sh::as_root(build::binary("bench"))?;
    sh::succeeds(bench.args(["testrun", "--sizes"]))
}
