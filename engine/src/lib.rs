//! Every decision of the gateway, and no I/O: no sockets, no clock, no maps.
//!
//! Machines that have timers share one shape: `handle_input(now, ..)`, `handle_timeout(now)`,
//! `poll_output()`, `poll_timeout()`. The rest is plain functions and data. Time and randomness
//! are arguments.

pub mod conf;
pub mod event;
pub mod gateway;
pub mod health;
pub mod media;
pub mod net;
pub mod rng;
pub mod sdp;
pub mod seal;
pub mod sip;
pub mod steer;
pub mod stun;
pub mod time;
pub mod transaction;
pub mod tunnel;
