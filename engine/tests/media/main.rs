//! Media plans: calls through two legs, their flows, ports and sources.

mod calls;
mod gateway;
mod hairpins;
mod ice;
mod limits;
mod props;
mod sources;
