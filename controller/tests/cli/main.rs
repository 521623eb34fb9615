//! The command line as a user types it.

mod binary;
mod config_examples;
mod config_faults;
