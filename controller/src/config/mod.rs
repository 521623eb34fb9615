//! The configuration file: read, checked as a whole, resolved.

pub mod model;

pub use model::Config;
