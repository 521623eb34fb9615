//! `cargo xtask rows`: the conformance table. A row is proven by the tests that carry its id
//! in their name (`em4_that_very_call_connects`).

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::sh;
use crate::test::results::{Outcome, Results, Test};

#[derive(Serialize)]
struct Row {
    row: String,
    tests: Vec<String>,
    ok: bool,
    #[serde(skip)]
    behaviour: String,
}

/// Prints or writes the table. Missing proofs are no error: the table is for reading.
pub(crate) fn run(json: Option<&Path>) -> Result<bool> {
    let results = Results::load();
    if results.tests().next().is_none() {
        eprintln!("xtask: no results yet: run `cargo xtask test` first");
    }
    let list = sh::root().join("docs/features.md");
    let list =
        fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let rows: Vec<_> = features(&list)
        .map(|(id, text)| row(id, text, &results))
        .collect();
    match json {
        Some(path) if path == Path::new("-") => {
            println!("{}", serde_json::to_string_pretty(&rows)?)
        }
        Some(path) => fs::write(path, serde_json::to_string_pretty(&rows)?)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => rows.iter().for_each(print),
    }
    Ok(true)
}

/// The rows of the tables in docs/features.md: id and behaviour.
fn features(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (id, behaviour) = (cells.next()?, cells.next()?);
        is_row_id(&id.to_ascii_lowercase()).then_some((id, behaviour))
    })
}

fn row(id: &str, behaviour: &str, results: &Results) -> Row {
    let wanted = id.to_ascii_lowercase();
    let proofs: Vec<&Test> = results
        .tests()
        .filter(|test| names(&test.name, &wanted))
        .collect();
    Row {
        row: id.to_owned(),
        tests: proofs
            .iter()
            .map(|test| format!("{}::{}", test.binary, test.name))
            .collect(),
        ok: !proofs.is_empty() && proofs.iter().all(|test| test.outcome == Outcome::Passed),
        behaviour: behaviour.to_owned(),
    }
}

fn print(row: &Row) {
    let mark = match (row.ok, row.tests.is_empty()) {
        (true, _) => "ok     ",
        (false, true) => "no test",
        (false, false) => "FAILED ",
    };
    println!("{mark} {:<5} {}", row.row, row.behaviour);
    row.tests
        .iter()
        .for_each(|test| println!("              {test}"));
}

/// Whether a test's path carries the id as a word of its own.
fn names(test: &str, id: &str) -> bool {
    test.split("::")
        .flat_map(|part| part.split('_'))
        .any(|word| word == id)
}

fn is_row_id(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let prefix = &word[..word.len() - digits.len()];
    ["em", "ex", "mx", "kl"].contains(&prefix)
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_whole_word() {
        assert!(names("health::em4_that_very_call_connects", "em4"));
        assert!(names("case_f1_em22_one_leaves", "em22"));
        assert!(!names("em41_other", "em4"));
        assert!(!names("stem4_x", "em4"));
    }

    #[test]
    fn only_table_rows_count() {
        let text = "| row | behaviour |\n|---|---|\n| EM4 | hunts |\n| KL10 | shares |\ntext EM5";
        let rows: Vec<_> = features(text).collect();
        assert_eq!(rows, [("EM4", "hunts"), ("KL10", "shares")]);
    }

    #[test]
    fn a_row_without_a_test_is_not_ok() {
        assert!(!row("EM1", "", &Results::default()).ok);
    }
}
