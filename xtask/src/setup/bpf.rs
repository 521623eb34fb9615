//! The compiler and the linker of the eBPF object.
//!
//! Two routes lead there. The usual one is a rustup nightly with `rust-src`; where that is
//! present it is used. Otherwise Debian's `rustc-web` brings a compiler with a prebuilt
//! `core` for the target, linked into rustup as the toolchain `bpf`.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::sh;

/// Name of the linked toolchain; the build script of `controller` looks for it.
const TOOLCHAIN: &str = "bpf";
/// LLVM of Debian's `rustc-web`; bpf-linker must be built against the same.
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
const BPF_LINKER: &str = "0.13.0";

/// How this machine gets its eBPF compiler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// rustup nightly with `rust-src`, and a bpf-linker that is already there.
    Nightly,
    /// Debian's compiler, linked into rustup.
    Debian,
}

/// Nightly where it is complete, else Debian's packages.
pub(super) fn choose() -> Route {
    let components = sh::output(Command::new("rustup").args([
        "component",
        "list",
        "--installed",
        "--toolchain",
        "nightly",
    ]));
    let has_source = components.is_some_and(|list| list.lines().any(|line| line == "rust-src"));
    if has_source && sh::find("bpf-linker").is_some() && !linked() {
        Route::Nightly
    } else {
        Route::Debian
    }
}

impl Route {
    /// Debian packages of this route.
    pub(super) fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Nightly => &[],
            Self::Debian => &[
                "clang-22",
                "libpolly-22-dev",
                "libstd-rust-web-dev-bpf",
                "libzstd-dev",
                "llvm-22-dev",
                "rustc-web",
                "zlib1g-dev",
            ],
        }
    }

    /// Installs the linker and links the toolchain, where missing.
    pub(super) fn install(self) -> Result<()> {
        if self == Self::Nightly {
            return Ok(());
        }
        if !linker_works() {
            install_linker()?;
        }
        if !linked() {
            link_toolchain()?;
        }
        Ok(())
    }
}

fn linked() -> bool {
    let list = sh::output(Command::new("rustup").args(["toolchain", "list"]));
    list.is_some_and(|list| {
        list.lines()
            .any(|line| line.split(' ').next() == Some(TOOLCHAIN))
    })
}

fn linker_works() -> bool {
    // Run it: a binary built against an LLVM that has since gone is there and useless.
    sh::find("bpf-linker").is_some()
        && sh::output(Command::new("bpf-linker").arg("--version")).is_some()
}

fn install_linker() -> Result<()> {
    sh::step(
        &format!("building bpf-linker {BPF_LINKER}, a minute or two"),
        "it links the eBPF object",
    );
    sh::run(
        sh::cargo()
            // Not the workspace's: its lock and profile are none of the linker's business.
            .current_dir("/")
            .env("LLVM_PREFIX", LLVM_PREFIX)
            .env_remove("CARGO_TARGET_DIR")
            .args(["install", "--locked", "--force", "--no-default-features"])
            .args(["--features", "llvm-22", &format!("bpf-linker@{BPF_LINKER}")]),
    )
    .context("bpf-linker could not be built")
}

fn link_toolchain() -> Result<()> {
    sh::step(
        "linking Debian's compiler as the toolchain `bpf`",
        "it has `core` for eBPF",
    );
    if sh::find("rustup").is_none() {
        bail!("rustup is missing: see https://rustup.rs");
    }
    sh::run(Command::new("rustup").args(["toolchain", "link", TOOLCHAIN, "/usr"]))
}
