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
    doctor::preflight(&loaded.config, global)?;
    let options = driver::Options {
        config: loaded.config,
        config_path: global.config.clone(),
        socket: global.socket.clone(),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime
        .block_on(driver::run(options))
        .map_err(|error| ApiError::from(error).into())
}
