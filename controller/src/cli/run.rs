//! `keepline run`: everything that can be wrong is found before anything is touched.

use super::{args::Global, config, doctor, output::Failure};
use crate::{
    api::model::ApiError,
    driver,
    logging::{self, Format},
};

pub(super) fn run(global: &Global, format: Format) -> Result<(), Failure> {
    let loaded = config::load(global)?;
    logging::init(format);
    end_on_panic();
    doctor::preflight(&loaded.config, global)?;
    let options = driver::Options {
        config: loaded.config,
        config_path: global.config.clone(),
        socket: global.socket.clone(),
    };
    driver::run(options).map_err(|error| ApiError::from(error).into())
}

/// A panic anywhere ends the process at once, as `kill -9` would: without one of its workers the
/// gateway would look alive and be deaf in part. Media goes on in XDP, what was answered is in
/// the store, and whoever supervises the daemon starts it again.
fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        tracing::error!("a bug, please report it: the daemon ends, media goes on");
        std::process::abort();
    }));
}
