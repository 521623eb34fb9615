//! The lab to play in, and the story that the demo plays there. `cargo xtask demo` and
//! `cargo xtask lab` build it and run it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use keepline_tests::lab::standing;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// A lab that stands until it is taken down
    Lab {
        #[command(subcommand)]
        action: Lab,
    },
}

#[derive(Subcommand)]
enum Lab {
    /// Raise it, in the background
    Up,
    /// Raise it and hold it until a signal comes
    Hold,
    /// Take it down
    Down,
    /// A shell on one of its machines
    Shell {
        /// Which
        #[arg(default_value = "gw")]
        node: String,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Lab { action: Lab::Up } => standing::up(),
        Task::Lab { action: Lab::Hold } => standing::hold(),
        Task::Lab { action: Lab::Down } => standing::down(),
        Task::Lab {
            action: Lab::Shell { node },
        } => standing::shell(&node),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
