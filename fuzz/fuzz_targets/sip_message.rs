//! The body is shared with `engine/tests/sip_corpus.rs`, which replays the corpus.
#![no_main]

#[path = "../../engine/tests/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::sip_message(data));
