//! Media plans: calls through two legs, their flows, ports and sources.

mod calls;
mod gateway;
mod hairpins;
mod limits;
mod props;
mod sources;
