//! The story of the demo: what people see of Keepline in three minutes, with real programs,
//! measured times and the gateway's own evidence.

mod alone;
mod branch_story;
mod deaths;
mod media;
mod restart;
mod timeline;
mod tunnels;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use timeline::Timeline;

/// Plays the story `name`; true when every step held. `json` takes the steps:
/// `[{"step","ok","ms","detail"}]`.
///
/// # Errors
/// When there is no such story, or the file cannot be written. A step that fails is no error.
pub fn play(name: &str, json: Option<&Path>) -> Result<bool> {
    let mut timeline = Timeline::start();
    match name {
        "main" => branch_story::play(&mut timeline),
        "tunnels" => tunnels::play(&mut timeline),
        other => bail!("no story {other}: there are main and tunnels"),
    }
    timeline.table();
    if let Some(file) = json {
        std::fs::write(file, serde_json::to_string_pretty(timeline.steps())?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(timeline.all_held())
}
