//! Replays the committed corpus through the bodies of the fuzz targets.

use std::{fs, path::Path};

fn replay(target: fn(&[u8]), name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(name);
    let files = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let mut count = 0;
    for file in files {
        let path = file.expect("a readable folder").path();
        let data = fs::read(&path).expect("a readable file");
        eprintln!("{}", path.display()); // shown when the target panics
        target(&data);
        count += 1;
    }
    assert!(count >= 10, "only {count} files in {}", folder.display());
}

#[test]
fn messages() {
    replay(crate::targets::sip_message, "sip_message");
}

#[test]
fn edits() {
    replay(crate::targets::sip_edit, "sip_edit");
}

#[test]
fn streams() {
    replay(crate::stream::sip_stream, "sip_stream");
}

#[test]
fn session_descriptions() {
    replay(crate::sdp::sdp, "sdp");
}
