//! A network of namespaces on this machine, with real programs in it.
//!
//! Nothing in a lab has a name outside of it: its network namespaces live by file
//! descriptors, its processes in a PID namespace, its pins, sockets and files in mounts of a
//! mount namespace. When the process that raised a lab is gone, for whatever reason, the
//! kernel takes all of it away ([`cell`] is the guard). So any number of labs can stand side
//! by side, and none has to clean up after another.

pub mod agent;
pub mod baresip;
pub mod branch;
pub mod call;
pub mod capture;
pub mod cell;
pub mod crowd;
pub mod death;
pub mod dhcp;
pub mod dialog;
pub mod flows;
pub mod gateway;
pub mod headquarters;
pub mod kamailio;
pub mod line;
pub mod netns;
pub mod node;
pub mod office;
pub mod peer;
pub mod phone;
pub mod process;
pub mod rtp;
pub mod session;
pub mod sip;
pub mod spray;
pub mod standing;
mod stub;
pub mod talk;
pub mod tls;
pub mod tunnels;
pub mod wait;
pub mod ways;

pub use branch::Branch;
pub use capture::{Capture, Frame};
pub use cell::Cell;
pub use netns::Netns;
pub use node::Node;
pub use phone::Phone;
pub use process::{Launch, Process};
