//! What a command prints, and how it fails.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::{
    api::model::{ApiError, ErrorBody},
    config::{Faults, LoadError},
};

/// Standard output, as the user wants it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) json: bool,
}

/// Why a command ends early.
#[derive(Debug)]
pub(super) enum Failure {
    /// It did not work: exit 1.
    Failed(ApiError),
    /// The call makes no sense: exit 2.
    Usage(ApiError),
    /// The configuration does: exit 2.
    Config(Box<Faults>),
    /// The same, and all has been said.
    Told,
    /// What it was asked about is not well: exit 3. All has been said.
    Unhealthy,
    /// Nobody reads any more: no failure at all.
    Closed,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        if error.code == "usage" {
            Self::Usage(error)
        } else {
            Self::Failed(error)
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Faults(faults) => Self::Config(Box::new(faults)),
            LoadError::Read { .. } => Self::Usage(ApiError::new(
                "config",
                error.to_string(),
                "name it with --config, or write one: keepline config init -o FILE",
            )),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Failed(ApiError::new(
            "output",
            format!("cannot write: {error}"),
            "",
        ))
    }
}

impl Output {
    /// Prints an answer: as JSON, or through `human`.
    pub(super) fn answer<T: Serialize>(
        self,
        answer: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            self.json(answer)
        } else {
            self.text(&human(answer))
        }
    }

    pub(super) fn json(self, answer: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(answer).map_err(io::Error::other)?;
        self.text(&(json + "\n"))
    }

    pub(super) fn text(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Tells a failure and how the process ends with it.
    pub(super) fn fail(self, failure: &Failure) -> ExitCode {
        // Whoever cannot be told reads the exit code.
        let _ = match failure {
            Failure::Closed | Failure::Told | Failure::Unhealthy => Ok(()),
            Failure::Failed(error) | Failure::Usage(error) => self.error(error),
            Failure::Config(faults) => self.faults(faults),
        };
        ExitCode::from(match failure {
            Failure::Closed => 0,
            Failure::Failed(_) | Failure::Told => 1,
            Failure::Usage(_) | Failure::Config(_) => 2,
            Failure::Unhealthy => 3,
        })
    }

    fn error(self, error: &ApiError) -> Result<(), Failure> {
        if self.json {
            return self.json(&ErrorBody {
                error: error.clone(),
            });
        }
        let mut err = io::stderr().lock();
        writeln!(err, "keepline: {}", error.message)?;
        if !error.hint.is_empty() {
            writeln!(err, "  remedy: {}", error.hint)?;
        }
        Ok(())
    }

    fn faults(self, faults: &Faults) -> Result<(), Failure> {
        if self.json {
            let places: Vec<_> = faults.places().collect();
            let message = format!("{} cannot be used", faults.file);
            return self.json(&serde_json::json!({"error": {
                "code": "config", "message": message, "hint": "see `faults`", "faults": places,
            }}));
        }
        self.warn(faults)
    }

    /// Faults on standard error, with their snippets.
    pub(super) fn warn(self, faults: &Faults) -> Result<(), Failure> {
        let color = io::stderr().is_terminal();
        Ok(io::stderr()
            .lock()
            .write_all(faults.render(color).as_bytes())?)
    }
}

/// A table for people; coloured and fitted only on a terminal.
pub(super) fn table(header: &[&str], rows: Vec<Vec<Cell>>) -> String {
    if rows.is_empty() {
        return "none\n".to_owned();
    }
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_NO_BORDERS)
        .set_header(header.to_vec());
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.force_no_tty();
    }
    table.add_rows(rows);
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}

/// A cell with a state, coloured by how well it is.
pub(super) fn state(text: &str) -> Cell {
    let color = match text {
        "up" | "serving" | "resolved" | "native" | "confirmed" | "upstream" => Color::Green,
        "down" | "unresolved" => Color::Red,
        _ => Color::Yellow,
    };
    Cell::new(text).fg(color)
}

/// A label's value in the Prometheus text format.
pub(super) fn label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
