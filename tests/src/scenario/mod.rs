//! Scenarios that are played short in every run of the tests, and long in `test soak`.

pub mod kills;
