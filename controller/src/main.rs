//! `keepline`: the voice edge gateway.

fn main() {}
