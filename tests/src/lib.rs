//! The lab: network namespaces of our own, real SIP programs as peers, and a guard that takes
//! everything away again; the story that the demo plays in it.

pub mod bench;
mod bpf;
pub mod fixture;
pub mod lab;
pub mod matrix;
pub mod scenario;
pub mod story;
