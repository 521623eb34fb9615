//! Health and selection in simulated time.

mod cases;
mod deaths;
mod loss;
mod props;
mod sim;
