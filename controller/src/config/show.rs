//! The values in force, as a configuration file that says where each came from.

use std::fmt::Write;

use super::report::Table;

/// Column of the comments, so that short lines align.
const COMMENT: usize = 44;

/// A complete configuration file with the same meaning; each line's comment names its origin.
#[must_use]
pub fn show(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "{}", table.header);
        for entry in &table.entries {
            let line = format!("{} = {}", entry.key, entry.value);
            let origin = entry
                .line
                .map_or("default".to_owned(), |line| format!("line {line}"));
            let _ = writeln!(out, "{line:COMMENT$} # {origin}");
        }
    }
    out
}
