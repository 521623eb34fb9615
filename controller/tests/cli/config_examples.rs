//! Every configuration that the documentation ships is one that `config check` accepts.

use std::path::{Path, PathBuf};

use keepline::config::{self, Machine, limits::limits};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    let entries = std::fs::read_dir(folder).expect("docs/examples");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect()
}

#[test]
fn every_shipped_example_is_clean() {
    let examples = examples();
    assert!(examples.len() >= 2, "{examples:?}");
    for path in examples {
        match config::load(&path, &Machine::default()) {
            Ok(loaded) => {
                assert!(
                    loaded.warnings.faults.is_empty(),
                    "{}",
                    loaded.warnings.render(false)
                );
                assert!(limits(&loaded.config).calls > 0);
            }
            Err(config::LoadError::Faults(faults)) => panic!("{}", faults.render(false)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn calls_are_bounded_by_ports_and_plans() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/branch.toml");
    let text = std::fs::read_to_string(path).expect("the example");
    let calls = |text: &str| {
        let loaded = config::parse(Path::new("k.toml"), text, &Machine::default());
        limits(&loaded.expect("a clean example").config).calls
    };
    assert_eq!(calls(&text), 8192, "four plans a call");
    assert_eq!(
        calls(&(text + "[media]\nports = \"10000-10099\"\n")),
        50,
        "two ports a call"
    );
}
