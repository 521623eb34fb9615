//! `load`, `unload`, `status`: from a checkout to programs on interfaces.

use anyhow::Result;
use clap::Args;

use crate::{build, setup, sh};

/// What to load, and where.
#[derive(Args)]
pub(crate) struct LoadArgs {
    /// Interfaces to attach to
    #[arg(long, required = true, num_args = 1.., value_name = "IF")]
    iface: Vec<String>,
    /// auto, native or generic
    #[arg(long)]
    mode: Option<String>,
    #[command(flatten)]
    pin: PinArgs,
}

/// Which gateway of this machine.
#[derive(Args)]
pub(crate) struct PinArgs {
    /// Pin directory, where it is not the default
    #[arg(long, value_name = "DIR")]
    pin: Option<String>,
}

/// Builds, then `keepline fastpath load`.
pub(crate) fn load(args: &LoadArgs) -> Result<bool> {
    let mut words = vec!["load".to_owned()];
    for interface in &args.iface {
        words.extend(["--iface".to_owned(), interface.clone()]);
    }
    if let Some(mode) = &args.mode {
        words.extend(["--mode".to_owned(), mode.clone()]);
    }
    keepline(words, &args.pin)
}

/// Builds, then `keepline fastpath unload` or `status`.
pub(crate) fn pinned(task: &str, pin: &PinArgs) -> Result<bool> {
    keepline(vec![task.to_owned()], pin)
}

fn keepline(mut words: Vec<String>, pin: &PinArgs) -> Result<bool> {
    setup::run_quietly()?;
    build::workspace(false)?;
    if let Some(pin) = &pin.pin {
        words.extend(["--pin".to_owned(), pin.clone()]);
    }
    sh::succeeds(
        sh::as_root(build::binary("keepline"))?
            .arg("fastpath")
            .args(words),
    )
}
