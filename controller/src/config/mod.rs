//! The configuration file: read, checked as a whole, resolved.
//!
//! A file is parsed into tables with places, read key by key ([`section`]), and resolved into
//! [`model`] types that cannot hold what the checks refuse. Every fault is found, each with
//! its place and a hint; one error refuses the whole file.

mod fault;
mod keywords;
pub mod limits;
pub mod model;
mod report;
mod resolve;
mod sample;
mod section;
mod show;
mod text;
mod value;

use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use fault::{Fault, Faults, Place, Severity, position};
pub use model::Config;
pub use report::{Entry, Table};
pub use resolve::Machine;
pub use sample::SAMPLE;
pub use show::show;

/// A configuration that may be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// Every value in force and where it came from.
    pub tables: Vec<Table>,
    /// What it says that is not done; never fatal.
    pub warnings: Faults,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file says something that cannot be done.
    #[error("{} in {}", count(&.0.faults), .0.file)]
    Faults(Faults),
}

/// Reads and resolves a file.
///
/// # Errors
/// When it cannot be read, or holds a fault.
pub fn load(path: &Path, machine: &Machine) -> Result<Loaded, LoadError> {
    let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text, machine).map_err(LoadError::Faults)
}

/// Resolves the text of a file; `path` is only named in faults.
///
/// # Errors
/// With every fault of the file, warnings included.
pub fn parse(path: &Path, text: &str, machine: &Machine) -> Result<Loaded, Faults> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let mut faults: Vec<Fault> = syntax
        .iter()
        .map(|error| syntax_fault(error, text))
        .collect();
    let file = section::File {
        text,
        report: report::Report::default(),
    };
    let config = resolve::resolve(&file, document.get_ref(), machine);
    let (found, tables) = file.report.into_parts();
    if !faults.iter().any(|fault| hides_others(fault, text)) {
        let lines: Vec<usize> = faults
            .iter()
            .map(|f| position(text, f.span.start).0)
            .collect();
        faults.extend(
            found
                .into_iter()
                .filter(|f| !lines.contains(&position(text, f.span.start).0)),
        );
    }
    let faults = Faults::new(path, text, faults);
    match config {
        Some(config) if !faults.fatal() => Ok(Loaded {
            config,
            tables,
            warnings: faults,
        }),
        _ => Err(faults),
    }
}

fn syntax_fault(error: &toml::de::Error, text: &str) -> Fault {
    let span = error.span().unwrap_or(text.len()..text.len());
    let hint = match error.message() {
        text if text.contains("quoted") => "put it into double quotes",
        text if text.contains("duplicate key") => "remove one of them",
        _ => "the format is described at https://toml.io",
    };
    Fault::error(span, format!("not TOML: {}", error.message()), hint)
}

/// A broken header moves the keys below it into another table: what is found there is not the
/// writer's mistake.
fn hides_others(syntax: &Fault, text: &str) -> bool {
    let before = text.get(..syntax.span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    text[line_start..].trim_start().starts_with('[')
}

fn count(faults: &[Fault]) -> String {
    match faults
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .count()
    {
        1 => "1 fault".to_owned(),
        n => format!("{n} faults"),
    }
}
