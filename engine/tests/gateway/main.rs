//! The whole engine as the daemon drives it, under a simulated clock.

mod alone;
mod bodies;
mod calls;
mod deaths;
mod domains;
mod gap;
mod outlives;
mod proof;
mod restart;
mod routes;
mod shared;
mod silence;
mod sizes;
mod streams;
mod subscriptions;
mod through;
mod transfers;
mod transparent;
mod untouched;
mod upstream;
mod world;
