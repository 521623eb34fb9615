//! The HTTP API over the Unix socket, and over TCP where `[api]` asks for it.
//!
//! The server knows nothing: it puts an [`Ask`] into the driver's queue and renders what comes
//! back. Every request has a bound on its time, its size and on how many run at once.

pub mod ask;
pub mod client;
pub mod model;
mod routes;
mod server;

pub use ask::{Ask, Reply, SwitchTo};
pub use client::Client;
pub(crate) use routes::{DrainBody, SwitchBody};
pub use server::Server;
