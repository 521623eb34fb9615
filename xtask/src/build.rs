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

/// A binary of the dev profile, which tests, lab and demo share.
pub(crate) fn binary(name: &str) -> PathBuf {
    sh::target_dir().join("debug").join(name)
}
