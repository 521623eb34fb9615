//! Replays the committed corpus through the body of the fuzz target.

#[path = "../targets/dhcp.rs"]
mod dhcp;

#[test]
fn dhcp_answers() {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/dhcp_answer");
    let files = std::fs::read_dir(&folder).expect("the corpus is part of the repository");
    let mut count = 0;
    for file in files {
        let path = file.expect("a readable folder").path();
        let data = std::fs::read(&path).expect("a readable file");
        eprintln!("{}", path.display()); // shown when the target panics
        dhcp::dhcp_answer(&data);
        count += 1;
    }
    assert!(count >= 10, "only {count} files");
}
