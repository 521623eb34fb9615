//! The daemon with one worker more: a thread that panics when SIGUSR1 comes. It shows what a
//! panic in any worker comes to; the daemon itself has no switch for that.

use std::process::ExitCode;
use std::thread;

use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let Ok(mut signals) = Signals::new([SIGUSR1]) else {
        return ExitCode::FAILURE;
    };
    thread::spawn(move || {
        let asked = signals.forever().next();
        assert!(asked.is_none(), "a worker's bug");
    });
    keepline::cli::main(std::env::args_os())
}
