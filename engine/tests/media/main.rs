//! Media plans: calls through two legs, their flows, ports and sources.

mod calls;
mod gateway;
mod props;
