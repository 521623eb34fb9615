//! Runs one test binary, shows what it prints, and reads the result of each test from it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::results::{Outcome, Test};

/// Runs `command`. A binary that dies without a verdict on its tests counts as one failure.
pub(super) fn run(binary: &str, command: &mut Command) -> Result<Vec<Test>> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {binary}"))?;
    let stdout = child.stdout.take().context("no output to read")?;
    let mut tests = Vec::new();
    let mut running = None;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        match read(&line, &mut running) {
            Some((name, outcome)) => tests.push(Test::new(binary, &name, outcome)),
            None => continue,
        }
    }
    let status = child.wait()?;
    let blamed = tests.iter().any(|test| test.outcome == Outcome::Failed);
    if !status.success() && !blamed {
        let name = running.unwrap_or_else(|| format!("the binary itself ({status})"));
        println!("{binary}: {status}");
        tests.push(Test::new(binary, &name, Outcome::Failed));
    }
    Ok(tests)
}

/// `test NAME ... ok`. With one thread libtest prints the name first; what the test itself
/// prints (or its children) may then stand between the name and the verdict.
fn read(line: &str, running: &mut Option<String>) -> Option<(String, Outcome)> {
    let rest = match line
        .strip_prefix("test ")
        .and_then(|rest| rest.split_once(" ... "))
    {
        Some((name, rest)) => {
            *running = Some(name.trim_end_matches(" - should panic").to_owned());
            rest
        }
        None => line,
    };
    let verdict = [
        ("ok", Outcome::Passed),
        ("FAILED", Outcome::Failed),
        ("ignored", Outcome::Ignored),
    ];
    let outcome = verdict.into_iter().find_map(|(word, outcome)| {
        let hit = rest == word
            || rest.ends_with(&format!(" {word}"))
            || rest.starts_with(&format!("{word}, "));
        hit.then_some(outcome)
    })?;
    Some((running.take()?, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &[&str]) -> Vec<(String, Outcome)> {
        let mut running = None;
        lines
            .iter()
            .filter_map(|line| read(line, &mut running))
            .collect()
    }

    #[test]
    fn each_verdict_is_read() {
        let got = all(&[
            "running 3 tests",
            "test a::em4_x ... ok",
            "test b ... FAILED",
            "test c ... ignored, too long",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored",
        ]);
        let want = [
            ("a::em4_x".to_owned(), Outcome::Passed),
            ("b".to_owned(), Outcome::Failed),
            ("c".to_owned(), Outcome::Ignored),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn a_verdict_after_foreign_output_is_read() {
        let got = all(&["test a ... something a child printed", "ok"]);
        assert_eq!(got, [("a".to_owned(), Outcome::Passed)]);
    }

    #[test]
    fn output_alone_is_no_verdict() {
        assert!(all(&["ok", "test result: ok. 1 passed"]).is_empty());
    }
}
