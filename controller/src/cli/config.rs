//! `keepline config init|check|show`.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Write},
    path::Path,
};

use super::{
    args::{ConfigCommand, Global},
    output::{Failure, Output},
};
use crate::{
    api::model::ApiError,
    config::{self, Loaded, Machine, SAMPLE, limits::limits},
};

pub(super) fn config(command: &ConfigCommand, global: &Global) -> Result<(), Failure> {
    let out = Output { json: global.json };
    match command {
        ConfigCommand::Init { output: None } => out.text(SAMPLE),
        ConfigCommand::Init { output: Some(path) } => init(path, out),
        ConfigCommand::Check => check(&load(global)?, global, out),
        ConfigCommand::Show => {
            let tables = load(global)?.tables;
            out.answer(&serde_json::json!({ "tables": tables }), |_| {
                config::show(&tables)
            })
        }
    }
}

pub(super) fn load(global: &Global) -> Result<Loaded, Failure> {
    let loaded = config::load(&global.config, &Machine::here())?;
    if !global.json && !loaded.warnings.faults.is_empty() {
        Output { json: false }.warn(&loaded.warnings)?;
    }
    Ok(loaded)
}

/// Never overwrites: an hour of somebody's work may be in that file.
fn init(path: &Path, out: Output) -> Result<(), Failure> {
    let write = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(SAMPLE.as_bytes())
    };
    write().map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AlreadyExists => "move it away first, or name another file",
            ErrorKind::PermissionDenied => "run it as root",
            _ => "",
        };
        ApiError::new(
            "output",
            format!("cannot write {}: {error}", path.display()),
            hint,
        )
    })?;
    let path = path.display();
    let next = format!("wrote {path}; edit it, then: keepline config check --config {path}");
    out.answer(&serde_json::json!({ "done": next }), |_| {
        format!("{next}\n")
    })
}

fn check(loaded: &Loaded, global: &Global, out: Output) -> Result<(), Failure> {
    let limits = limits(&loaded.config);
    let path = global.config.display().to_string();
    let warnings: Vec<_> = loaded.warnings.places().collect();
    let answer = serde_json::json!({ "file": path, "limits": limits, "warnings": warnings });
    out.answer(&answer, |_| {
        let mebibytes = limits.map_bytes.div_ceil(1024 * 1024);
        format!(
            "{path} is fine\nup to {} calls at a time; the maps take {mebibytes} MiB ({} bytes) of kernel memory\n",
            limits.calls, limits.map_bytes
        )
    })
}
