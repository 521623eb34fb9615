//! The lab and the demo that is played in it: both are the `story` binary of `tests`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{build, setup, sh};

/// What to do with the standing lab.
#[derive(Subcommand)]
pub(crate) enum Action {
    /// Raise it and leave it standing
    Up,
    /// Take it away
    Down,
    /// A shell inside, in the gateway's namespace unless told otherwise
    Shell {
        /// phones, gw, wan, ss1, ss2 or far
        #[arg(default_value = "gw")]
        node: String,
    },
}

/// How to play the demo.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Write the steps to FILE: [{"step","ok","ms","detail"}]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Which story
    #[arg(long, default_value = "main")]
    story: String,
}

/// Builds, then hands over to `story lab`.
pub(crate) fn run(action: &Action) -> Result<bool> {
    if let Action::Shell { node } = action {
        // Interactive: keeps the terminal, and needs no build while a lab stands.
        let mut shell = sh::as_root(build::binary("story"))?;
        return Ok(shell.args(["lab", "shell", node]).status()?.success());
    }
    prepare()?;
    let word = if matches!(action, Action::Up) {
        "up"
    } else {
        "down"
    };
    sh::succeeds(sh::as_root(build::binary("story"))?.args(["lab", word]))
}

/// Builds, then plays the story.
pub(crate) fn demo(args: &DemoArgs) -> Result<bool> {
    prepare()?;
    let mut story = sh::as_root(build::binary("story"))?;
    story.args(["play", "--story", &args.story]);
    if let Some(file) = &args.json {
        story.arg("--json").arg(std::path::absolute(file)?);
    }
    sh::succeeds(&mut story)
}

fn prepare() -> Result<()> {
    setup::run_quietly()?;
    sh::step("building", "the demo runs the real binaries");
    build::workspace(false)
}
