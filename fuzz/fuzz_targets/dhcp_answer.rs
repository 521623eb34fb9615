//! The body is shared with `engine/tests/tunnel`, which replays the corpus.
#![no_main]

#[path = "../../engine/tests/targets/dhcp.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::dhcp_answer(data));
