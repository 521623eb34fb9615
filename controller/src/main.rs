//! `keepline`: the voice edge gateway.

use std::process::ExitCode;

fn main() -> ExitCode {
    keepline::cli::main(std::env::args_os())
}
