//! `keepline`, the command line: reads the arguments, runs one command, sets the exit code
//! (0 fine, 1 failed, 2 wrong usage or configuration, 3 unhealthy).

mod args;
mod ask;
mod clock;
mod config;
mod doctor;
mod fastpath;
mod interface;
mod machine;
mod output;
mod probe;
mod render;
mod run;
mod transparent;
mod tunnels;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};

use self::{
    args::{Cli, Command},
    output::{Failure, Output},
};
use crate::api::model::ApiError;

/// Runs the command that the arguments name, to its end.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, arguments.iter().any(|a| a == "--json")),
    };
    let out = Output {
        json: cli.global.json,
    };
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => out.fail(&failure),
    }
}

/// The whole grammar, for man pages and completions.
#[must_use]
pub fn grammar() -> clap::Command {
    Cli::command()
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.command {
        Command::Run { log_format } => run::run(&global, log_format),
        Command::Config(command) => config::config(&command, &global),
        Command::Fastpath(command) => fastpath::fastpath(&command, &global),
        Command::Stats { prometheus } => wait(fastpath::stats(&global, prometheus)),
        Command::Doctor => doctor::doctor(&global),
        Command::Probe(command) => wait(probe::probe(&command, &global)),
        command => wait(ask::ask(command, &global)),
    }
}

/// Runs a short exchange with another process.
fn wait(exchange: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(exchange)
}

/// Help and version are no faults; anything else is wrong usage.
fn refuse(error: &clap::Error, json: bool) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if json && !asked {
        let text = error.to_string();
        let message = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let error = ApiError::new("usage", message, "see keepline --help");
        return Output { json }.fail(&Failure::Usage(error));
    }
    // A closed pipe is nobody's fault.
    let _ = error.print();
    ExitCode::from(if asked { 0 } else { 2 })
}
