//! The whole engine as the daemon drives it, under a simulated clock.

mod alone;
mod bodies;
mod calls;
mod deaths;
mod domains;
mod gap;
mod outlives;
mod restart;
mod routes;
mod silence;
mod shared;
mod sizes;
mod streams;
mod subscriptions;
mod transfers;
mod transparent;
mod untouched;
mod upstream;
mod world;
