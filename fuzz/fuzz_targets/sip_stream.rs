//! The body is shared with `engine/tests/sip/corpus.rs`, which replays the corpus.
#![no_main]

#[path = "../../engine/tests/targets/stream.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::sip_stream(data));
