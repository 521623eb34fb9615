//! Builds the eBPF object with our own flags (fastpath.md section 8), so that a plain
//! `cargo build` does it. A compiler error of the object fails the build and is shown.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Crates that use unstable features: aya-ebpf, and our own for atomic additions.
const UNSTABLE: &str = "aya_ebpf,keepline";

/// CPU v3 for 32-bit arithmetic and jumps; line numbers; BTF. Not the target feature
/// `allows-misaligned-mem-access`: it would also merge stores to the stack, where the verifier
/// insists on alignment.
const FLAGS: [&str; 3] = ["-Ctarget-cpu=v3", "-Cdebuginfo=2", "-Clink-arg=--btf"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for path in [
        "ebpf/src",
        "ebpf/Cargo.toml",
        "ebpf/Cargo.lock",
        "common/src",
        "common/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed=../{path}");
    }
    println!("cargo::rerun-if-changed=build.rs");

    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb-unknown-none",
        _ => "bpfel-unknown-none",
    };
    let mut cargo = toolchain()?;
    cargo
        .current_dir(root.join("ebpf"))
        .args([
            "build",
            "--release",
            "--locked",
            "--bin",
            "keepline",
            "--target",
            target,
        ])
        .arg("--target-dir")
        .arg(out.join("ebpf"))
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        .env("RUSTC_BOOTSTRAP", UNSTABLE);
    // Set by the cargo (or clippy) that runs this script; they are not meant for the object.
    for name in [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo
        .status()
        .map_err(|error| format!("{cargo:?}: {error}"))?;
    if !status.success() {
        return Err("the eBPF object does not build; its compiler's messages stand above".into());
    }
    let object = out.join("ebpf").join(target).join("release/keepline");
    fs::copy(&object, out.join("keepline.o"))
        .map(drop)
        .map_err(|error| format!("{}: {error}", object.display()))
}

/// A cargo command that compiles for the eBPF target: the linked toolchain `bpf` with its
/// prebuilt `core`, or a nightly that has the library's source.
fn toolchain() -> Result<Command, String> {
    let missing = |what: &str| {
        format!("{what} is missing, so the eBPF object cannot be built: run `cargo xtask setup`")
    };
    if output(Command::new("bpf-linker").arg("--version")).is_none() {
        return Err(missing("bpf-linker"));
    }
    let rustc = |toolchain: &str| {
        output(Command::new("rustup").args(["which", "rustc", "--toolchain", toolchain]))
    };
    if let Some(rustc) = rustc("bpf") {
        // A linked toolchain may have no cargo of its own: the running one serves.
        let mut cargo = Command::new(env::var_os("CARGO").ok_or("CARGO is not set")?);
        cargo.env("RUSTC", rustc).env_remove("RUSTUP_TOOLCHAIN");
        return Ok(cargo);
    }
    let source = rustc("nightly")
        .and_then(|rustc| output(Command::new(rustc).args(["--print", "sysroot"])))
        .map(|sysroot| Path::new(&sysroot).join("lib/rustlib/src/rust/library/core"));
    if !source.is_some_and(|core| core.is_dir()) {
        return Err(missing("a Rust toolchain for the eBPF target"));
    }
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo", "-Zbuild-std=core"]);
    cargo.env_remove("RUSTC").env_remove("CARGO");
    Ok(cargo)
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
