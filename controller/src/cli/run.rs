//! `keepline run`: everything that can be wrong is found before anything is touched.

use super::{args::Global, config, doctor, output::Failure};
use crate::{
    api::model::ApiError,
    logging::{self, Format},
};

pub(super) fn run(global: &Global, format: Format) -> Result<(), Failure> {
    let loaded = config::load(global)?;
    logging::init(format);
    doctor::preflight(&loaded.config, global)?;
    let hint = "build it with the driver";
    Err(ApiError::new(
        "driver",
        "this build checks everything but has no driver",
        hint,
    )
    .into())
}
