//! Puts the programs on the lab's gateway and is killed by itself at one stage of it, by
//! SIGKILL: nothing is tidied up, as after a power cut of the daemon alone.
//!
//! Arguments: the pin directory, the last media port, the stage as `Debug` prints it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use keepline::fastpath::Fastpath;
use keepline_tests::fixture::site;
use rustix::process::{Signal, getpid, kill_process};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("three arguments");
    let (pin, last, stage) = (PathBuf::from(next()?), next()?.parse()?, next()?);
    let options = site::options(pin, 10_000..=last);
    Fastpath::start_by_stages(&options, &mut |met| {
        if format!("{met:?}") == stage {
            // It does not return from this.
            let _ = kill_process(getpid(), Signal::KILL);
        }
        Ok(())
    })?;
    bail!("{stage} was never met")
}
