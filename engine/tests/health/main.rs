//! Health and selection in simulated time.

mod cases;
mod deaths;
mod failback;
mod loss;
mod props;
mod sim;
mod stall;
