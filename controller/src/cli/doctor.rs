//! `keepline doctor`: what this machine lacks.

use comfy_table::{Cell, Color};

use super::{
    args::Global,
    machine::{Check, checks},
    output::{Failure, Output, table},
};
use crate::{
    api::model::ApiError,
    config::{self, Config, LoadError, Machine},
};

pub(super) fn doctor(global: &Global) -> Result<(), Failure> {
    let out = Output { json: global.json };
    let config = match config::load(&global.config, &Machine::here()) {
        Ok(loaded) => Ok(loaded.config),
        Err(error) => Err(unusable(&error)),
    };
    let mut all = checks(config.as_ref().ok(), &global.socket);
    all.extend(config.err());
    let unfit = all.iter().any(|check| check.needed && !check.ok);
    let error = ApiError::new(
        "machine",
        "the gateway cannot run on this machine as it is",
        "follow the remedies above, then run `keepline doctor` again",
    );
    match (unfit, global.json) {
        (false, _) => out.answer(&serde_json::json!({ "checks": all }), |_| human(&all)),
        // One document, whatever was found.
        (true, true) => {
            out.json(&serde_json::json!({ "checks": all, "error": error }))?;
            Err(Failure::Told)
        }
        (true, false) => {
            out.text(&human(&all))?;
            Err(Failure::Failed(error))
        }
    }
}

/// What must be right before `run` touches anything.
///
/// # Errors
/// The first thing that is not, with its remedy.
pub(super) fn preflight(config: &Config, global: &Global) -> Result<(), Failure> {
    let all = checks(Some(config), &global.socket);
    match all.into_iter().find(|check| check.needed && !check.ok) {
        Some(check) => Err(ApiError::new(check.check, check.found, check.remedy).into()),
        None => Ok(()),
    }
}

fn unusable(error: &LoadError) -> Check {
    Check {
        check: "config",
        ok: false,
        needed: true,
        found: error.to_string(),
        remedy: "see `keepline config check`".to_owned(),
    }
}

fn human(checks: &[Check]) -> String {
    let rows = checks.iter().map(|check| {
        let verdict = match (check.ok, check.needed) {
            (true, _) => Cell::new("ok").fg(Color::Green),
            (false, true) => Cell::new("FAIL").fg(Color::Red),
            (false, false) => Cell::new("warn").fg(Color::Yellow),
        };
        vec![verdict, Cell::new(&check.found), Cell::new(&check.remedy)]
    });
    table(&["", "found", "remedy"], rows.collect())
}
