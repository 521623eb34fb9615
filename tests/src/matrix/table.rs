//! The table: rows are scenarios, columns are cells of transport and mode.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use super::Outcome;

type Column = (String, Vec<(&'static str, Mark)>);

/// What stands in a cell.
#[derive(Clone, Copy, Debug)]
enum Mark {
    Ok,
    Failed,
    /// The row says nothing of it.
    Idle,
}

impl Mark {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Some(Ok(())) => Self::Ok,
            Some(Err(_)) => Self::Failed,
            None => Self::Idle,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
            Self::Idle => "-",
        }
    }
}

/// All cells that were played in this process.
static COLUMNS: Mutex<Vec<Column>> = Mutex::new(Vec::new());

/// Adds a column, and prints all. What was seen instead in those that failed.
pub(super) fn add(name: &str, outcomes: &[(&'static str, Outcome)]) -> String {
    let mut columns = COLUMNS.lock().unwrap_or_else(PoisonError::into_inner);
    let marks = outcomes
        .iter()
        .map(|(row, outcome)| (*row, Mark::of(outcome)));
    columns.push((name.to_owned(), marks.collect()));
    println!("{}", render(&columns));
    let mut failed = String::new();
    for (row, outcome) in outcomes {
        if let Some(Err(error)) = outcome {
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
            let mark = marks.get(at).map_or(Mark::Failed, |(_, mark)| *mark);
            let _ = write!(out, " {:<20}", mark.text());
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
                vec![("call", Mark::Ok), ("hold", Mark::Failed)],
            ),
            (
                "TCP normal".to_owned(),
                vec![("call", Mark::Idle), ("hold", Mark::Ok)],
            ),
        ];
        let text = render(&columns);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["UDP", "normal", "TCP", "normal"]);
        assert_eq!(lines[1], ["call", "ok", "-"]);
        assert_eq!(lines[2], ["hold", "FAILED", "ok"]);
    }
}
