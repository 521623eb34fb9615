//! Building, and finding what was built.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh;

/// Builds every crate and binary; controller's build script brings the eBPF object.
pub(crate) fn workspace(release: bool) -> Result<()> {
    let mut cargo = sh::cargo();
    cargo.args(["build", "--workspace"]);
    if release {
        cargo.arg("--release");
    }
    sh::run(&mut cargo)
}

/// Builds what benches of the daemon run, as it is released.
pub(crate) fn for_benches() -> Result<()> {
    let mut cargo = sh::cargo();
    cargo.args(["build", "--workspace", "--release"]);
    sh::run(cargo.args(["--bin", "keepline", "--bin", "bench"]))
}

/// A binary of the dev profile, which tests, lab and demo share.
pub(crate) fn binary(name: &str) -> PathBuf {
    sh::target_dir().join("debug").join(name)
}

/// A binary as it runs on a real gateway.
pub(crate) fn released(name: &str) -> PathBuf {
    sh::target_dir().join("release").join(name)
}
