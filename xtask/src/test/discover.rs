//! Which test binaries there are, and to which suite each belongs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::Suite;
use crate::sh;

/// A test binary that cargo built.
pub(super) struct TestBinary {
    /// `package` for unit tests, `package/target` for others.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Folder of the package, where `cargo test` would run it.
    pub(super) directory: PathBuf,
    pub(super) suite: Suite,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all test binaries of the workspace and lists them, fast suites first. The binaries that
/// end-to-end tests execute come with them: building those by themselves would build the libraries
/// twice, since test dependencies ask for more of their features.
pub(super) fn build() -> Result<Vec<TestBinary>> {
    let mut cargo = sh::cargo();
    cargo.args([
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let output = cargo
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests do not build: see above");
    }
    let text = String::from_utf8(output.stdout).context("cargo printed something odd")?;
    let mut binaries: Vec<_> = text.lines().filter_map(parse).collect();
    binaries.sort_by_key(|binary| (binary.suite as u8, binary.name.clone()));
    Ok(binaries)
}

fn parse(line: &str) -> Option<TestBinary> {
    let message: Message = serde_json::from_str(line).ok()?;
    if message.reason != "compiler-artifact" || !message.profile?.test {
        return None;
    }
    let directory = message.manifest_path?.parent()?.to_path_buf();
    let package = directory.file_name()?.to_string_lossy().into_owned();
    let target = message.target?;
    let integration = target.kind.iter().any(|kind| kind == "test");
    let binary = target.kind.iter().any(|kind| kind == "bin");
    Some(TestBinary {
        suite: suite_of(&directory, &target.name, integration),
        name: if integration || binary {
            format!("{package}/{}", target.name)
        } else {
            package
        },
        path: message.executable?,
        directory,
    })
}

/// Only `tests/tests` needs root. There the binary's name says which suite it is.
fn suite_of(directory: &Path, target: &str, integration: bool) -> Suite {
    if !integration || !directory.ends_with("tests") {
        Suite::Unit
    } else if target.starts_with("soak") {
        Suite::Soak
    } else if target.starts_with("e2e") {
        Suite::E2e
    } else {
        Suite::Ebpf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides_the_suite() {
        let tests = Path::new("/checkout/tests");
        assert_eq!(suite_of(tests, "e2e", true), Suite::E2e);
        assert_eq!(suite_of(tests, "soak", true), Suite::Soak);
        assert_eq!(suite_of(tests, "ebpf", true), Suite::Ebpf);
        assert_eq!(suite_of(tests, "keepline_tests", false), Suite::Unit);
        assert_eq!(
            suite_of(Path::new("/checkout/engine"), "e2e", true),
            Suite::Unit
        );
    }

    #[test]
    fn a_library_artifact_is_no_test() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/c/engine/Cargo.toml",
            "target":{"name":"keepline_engine","kind":["lib"]},"profile":{"test":false},
            "executable":null}"#;
        assert!(parse(line).is_none());
    }
}
