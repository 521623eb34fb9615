//! What the last runs said of each test: `target/xtask/results.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::sh;

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Ignored,
}

impl Outcome {
    pub(super) fn from_success(ok: bool) -> Self {
        if ok { Self::Passed } else { Self::Failed }
    }
}

/// One test and how it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Test {
    /// The binary it lives in.
    pub(crate) binary: String,
    /// Its path inside.
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
}

impl Test {
    pub(super) fn new(binary: &str, name: &str, outcome: Outcome) -> Self {
        Self {
            binary: binary.to_owned(),
            name: name.to_owned(),
            outcome,
        }
    }
}

/// The last known outcome of every test.
#[derive(Default)]
pub(crate) struct Results {
    tests: BTreeMap<(String, String), Test>,
}

impl Results {
    /// What earlier runs left; empty when there were none.
    pub(crate) fn load() -> Self {
        let text = fs::read_to_string(file()).unwrap_or_default();
        let tests: Vec<Test> = serde_json::from_str(&text).unwrap_or_default();
        let mut results = Self::default();
        tests.into_iter().for_each(|test| results.record(test));
        results
    }

    /// A newer outcome replaces the older one.
    pub(super) fn record(&mut self, test: Test) {
        self.tests
            .insert((test.binary.clone(), test.name.clone()), test);
    }

    /// Every test.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &Test> {
        self.tests.values()
    }

    pub(super) fn save(&self) -> Result<()> {
        let file = file();
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let tests: Vec<_> = self.tests().collect();
        fs::write(&file, serde_json::to_string_pretty(&tests)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn file() -> PathBuf {
    sh::target_dir().join("xtask/results.json")
}
