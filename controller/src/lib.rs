//! The daemon and its command line: sockets, probes, netlink, maps, API. It decides nothing
//! except address resolution; decisions are [`keepline_engine`]'s.

pub mod api;
pub mod config;
pub mod fastpath;
pub mod netlink;
pub mod steer;
