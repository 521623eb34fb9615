//! The lab to play in, and the story that the demo plays there. `cargo xtask demo` and
//! `cargo xtask lab` build it and run it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use keepline_tests::lab::standing;
use keepline_tests::story;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Play a story
    Play {
        /// Which
        #[arg(long, default_value = "main")]
        story: String,
        /// Write the steps to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
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
        Task::Play { story, json } => story::play(&story, json.as_deref()),
        Task::Lab { action: Lab::Up } => standing::up().map(|()| true),
        Task::Lab { action: Lab::Hold } => standing::hold().map(|()| true),
        Task::Lab { action: Lab::Down } => standing::down().map(|()| true),
        Task::Lab {
            action: Lab::Shell { node },
        } => standing::shell(&node).map(|()| true),
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
