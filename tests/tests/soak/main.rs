//! What takes minutes: `cargo xtask test soak`.

mod deaths;
mod kills;
mod tunnels;
