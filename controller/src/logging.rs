//! Where the daemon's log goes: standard error, for journald or a terminal.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Sends the log to standard error, filtered by `KEEPLINE_LOG` (default `info`). Does nothing
/// when a logger is there already.
pub fn init(format: Format) {
    let filter = EnvFilter::try_from_env("KEEPLINE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr);
    let installed = match format {
        Format::Text => registry
            .with(layer.with_ansi(std::io::stderr().is_terminal()))
            .try_init(),
        Format::Json => registry.with(layer.json()).try_init(),
    };
    // Tests start several daemons in one process; the first one's logger serves all.
    drop(installed);
}
