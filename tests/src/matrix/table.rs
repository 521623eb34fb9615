//! The table: rows are scenarios, columns are cells of transport and mode.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

type Column = (String, Vec<(&'static str, bool)>);

/// All cells that were played in this process.
static COLUMNS: Mutex<Vec<Column>> = Mutex::new(Vec::new());

/// Adds a column, and prints all. What was seen instead in those that failed.
pub(super) fn add(name: &str, outcomes: &[(&'static str, Result<()>)]) -> String {
    let mut columns = COLUMNS.lock().unwrap_or_else(PoisonError::into_inner);
    let marks = outcomes
        .iter()
        .map(|(row, outcome)| (*row, outcome.is_ok()));
    columns.push((name.to_owned(), marks.collect()));
    println!("{}", render(&columns));
    let mut failed = String::new();
    for (row, outcome) in outcomes {
        if let Err(error) = outcome {
            let _ = writeln!(failed, "{row}: {error:#}");
        }
    }
    failed
}

fn render(columns: &[Column]) -> String {
    let mut out = format!("{:<44}", "");
    for (name, _) in columns {
        let _ = write!(out, " {name:<20}");
    }
    let rows = columns
        .first()
        .map_or(&[][..], |(_, marks)| marks.as_slice());
    for (at, (row, _)) in rows.iter().enumerate() {
        let _ = write!(out, "\n{row:<44}");
        for (_, marks) in columns {
            let ok = marks.get(at).is_some_and(|(_, ok)| *ok);
            let _ = write!(out, " {:<20}", if ok { "ok" } else { "FAILED" });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_marked_in_its_cell() {
        let columns = [
            (
                "UDP normal".to_owned(),
                vec![("call", true), ("hold", false)],
            ),
            (
                "TCP normal".to_owned(),
                vec![("call", true), ("hold", true)],
            ),
        ];
        let text = render(&columns);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["UDP", "normal", "TCP", "normal"]);
        assert_eq!(lines[1], ["call", "ok", "ok"]);
        assert_eq!(lines[2], ["hold", "FAILED", "ok"]);
    }
}
