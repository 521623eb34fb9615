//! One door for every task of the project: `cargo xtask help`.
//!
//! xtask depends on no crate of the workspace. It prepares the machine on which they can be
//! built, builds them, and executes what it built.

mod bench;
mod build;
mod fastpath;
mod fuzz;
mod lab;
mod rows;
mod setup;
mod sh;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Keepline repository.
#[derive(Parser)]
#[command(name = "cargo xtask", version, about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what building and testing need (Debian packages, eBPF toolchain); idempotent
    Setup,
    /// Build everything, the eBPF object included
    Build {
        /// Build with optimisations for a real gateway
        #[arg(long)]
        release: bool,
    },
    /// Run the tests; sets up what is missing
    Test {
        /// Which tests; `all` leaves the soak tests out
        #[arg(default_value = "all")]
        suite: test::Suite,
        /// Run only tests whose name contains this
        #[arg(long)]
        only: Option<String>,
    },
    /// The conformance table: each row of docs/features.md and the tests that prove it
    Rows {
        /// Print JSON, or write it to FILE
        #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Run a bench and compare its figures with their bars
    Bench(bench::Args),
    /// Build, then put the XDP programs on interfaces
    Load(fastpath::LoadArgs),
    /// Build, then take the XDP programs off again
    Unload(fastpath::PinArgs),
    /// Build, then show what the pinned programs count
    Status(fastpath::PinArgs),
    /// The demo's lab, left standing to play with
    Lab {
        #[command(subcommand)]
        action: lab::Action,
    },
    /// Raise the lab and play the story; exits 0 only if every step held
    Demo(lab::DemoArgs),
    /// Fuzz one target for a while
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup => setup::run().map(|()| true),
        Task::Build { release } => setup::run_quietly()
            .and_then(|()| build::workspace(release))
            .map(|()| true),
        Task::Test { suite, only } => test::run(suite, only.as_deref()),
        Task::Rows { json } => rows::run(json.as_deref()),
        Task::Bench(args) => bench::run(&args),
        Task::Load(args) => fastpath::load(&args),
        Task::Unload(args) => fastpath::pinned("unload", &args),
        Task::Status(args) => fastpath::pinned("status", &args),
        Task::Lab { action } => lab::run(&action),
        Task::Demo(args) => lab::demo(&args),
        Task::Fuzz(args) => fuzz::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
