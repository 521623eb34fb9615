//! `cargo xtask test`: sets up, builds once, runs each test binary where it belongs (as the
//! user, or as root), and records every result for `rows`.

mod discover;
mod libtest;
pub(crate) mod results;

use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;

use crate::{bench, setup, sh};
use discover::TestBinary;
use results::{Outcome, Results};

/// A set of tests.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Suite {
    /// No root, no network: the crates' own tests, rustfmt and clippy
    Unit,
    /// The eBPF object under BPF_PROG_TEST_RUN
    Ebpf,
    /// The real binaries in namespaces, with real peers
    E2e,
    /// Unit, ebpf and e2e
    All,
    /// The long ones
    Soak,
}

impl Suite {
    fn includes(self, other: Self) -> bool {
        self == other || (self == Self::All && other != Self::Soak)
    }
}

/// Runs the suite; true when nothing failed. The last line says `N passed, N failed`.
pub(crate) fn run(suite: Suite, only: Option<&str>) -> Result<bool> {
    let start = Instant::now();
    setup::run_quietly()?;
    let mut results = Results::load();
    let mut now = Vec::new();
    if suite.includes(Suite::Unit) && only.is_none() {
        now.extend(checks()?);
    }
    sh::step(
        "building",
        "tests run the real binaries and the eBPF object that ships",
    );
    for binary in discover::build()? {
        if suite.includes(binary.suite) {
            now.extend(run_binary(&binary, only)?);
        }
    }
    if suite.includes(Suite::Ebpf) && only.is_none() {
        println!("\n== bench testrun");
        let outcome = Outcome::from_success(bench::sizes()?);
        now.push(results::Test::new("bench", "testrun_sizes", outcome));
    }
    for result in &now {
        results.record(result.clone());
    }
    results.save()?;
    Ok(summary(&now, start))
}

fn run_binary(binary: &TestBinary, only: Option<&str>) -> Result<Vec<results::Test>> {
    println!("\n== {} ({:?})", binary.name, binary.suite);
    let mut command = if binary.suite == Suite::Unit {
        std::process::Command::new(&binary.path)
    } else {
        sh::as_root(&binary.path)?
    };
    command.current_dir(&binary.directory);
    // Errors that tests return name their place; a backtrace of each buries it.
    command.env("RUST_LIB_BACKTRACE", "0");
    if binary.suite != Suite::Unit {
        // Labs share two cores and measure time: one after the other.
        command.arg("--test-threads=1");
        // And say what they measured.
        command.arg("--show-output");
    }
    command.args(only);
    libtest::run(&binary.name, &mut command)
}

/// Format and lints are tests like any other: they can fail.
fn checks() -> Result<Vec<results::Test>> {
    let mut done = Vec::new();
    let mut check = |name: &str, arguments: &[&str]| -> Result<()> {
        println!("\n== {name}");
        let ok = sh::succeeds(sh::cargo().args(arguments))?;
        done.push(results::Test::new("check", name, Outcome::from_success(ok)));
        Ok(())
    };
    check("rustfmt", &["fmt", "--all", "--check"])?;
    check(
        "clippy",
        &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    )?;
    Ok(done)
}

fn summary(now: &[results::Test], start: Instant) -> bool {
    let count = |outcome| now.iter().filter(|test| test.outcome == outcome).count();
    let (passed, failed) = (count(Outcome::Passed), count(Outcome::Failed));
    println!("\n== summary, {} s", start.elapsed().as_secs());
    for test in now.iter().filter(|test| test.outcome == Outcome::Failed) {
        println!("FAILED {}::{}", test.binary, test.name);
    }
    if count(Outcome::Ignored) > 0 {
        println!("{} ignored", count(Outcome::Ignored));
    }
    if passed == 0 {
        println!("no test ran");
    }
    println!("{passed} passed, {failed} failed");
    failed == 0 && passed > 0
}
