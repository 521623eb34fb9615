//! Waiting for what has no event: state of the kernel, or of a foreign program, that can only
//! be asked for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until `question` has an answer.
///
/// # Errors
/// When there is none within `limit`; `what` says what was waited for.
pub fn until<T>(what: &str, limit: Duration, mut question: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = question() {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("not within {} ms: {what}", limit.as_millis());
        }
        thread::sleep(PAUSE);
    }
}
