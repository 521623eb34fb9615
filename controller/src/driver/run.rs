//! The daemon's threads, from its start to its end.
//!
//! The loop has a thread of its own, and reads its datagrams there: a datagram then costs no
//! wake-up of another thread and no way through a queue between threads. Connections with their
//! TLS, the API and netlink have other threads, so that no handshake and no long answer delays a
//! call.

use tokio::runtime::{Builder, Runtime};

use super::{
    Driver, Queues,
    start::{self, Options, StartError},
};
use crate::{api::Server, intercept::Interception};

/// Everything that is up.
pub(super) struct Running {
    pub(super) driver: Driver,
    pub(super) queues: Queues,
    pub(super) interception: Interception,
    pub(super) server: Server,
}

/// Runs the gateway until SIGTERM or SIGINT.
///
/// # Errors
/// When something it needs is missing on this machine; nothing is attached then.
pub fn run(options: Options) -> Result<(), StartError> {
    let beside = Runtime::new().map_err(|error| no_threads(&error))?;
    let own = Builder::new_current_thread().enable_all().build();
    let own = own.map_err(|error| no_threads(&error))?;
    let running = beside.block_on(start::start(options, own.handle()))?;
    own.block_on(running.until_stopped());
    Ok(())
}

fn no_threads(error: &std::io::Error) -> StartError {
    let hint = "`ulimit -u` and `ulimit -n` show what this process may have";
    StartError::new(
        "threads",
        format!("no thread can be started: {error}"),
        hint,
    )
}

impl Running {
    async fn until_stopped(self) {
        // Without systemd nobody is there to be told.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        tracing::info!("ready");
        self.driver.run(self.queues).await;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        self.interception.end().await;
        drop(self.server);
    }
}
