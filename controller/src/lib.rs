//! The daemon and its command line: sockets, probes, netlink, maps, API. It decides nothing
//! except address resolution; decisions are [`keepline_engine`]'s.

pub mod api;
pub mod cli;
pub mod config;
pub mod driver;
pub mod fastpath;
pub mod intercept;
pub mod logging;
pub mod netlink;
pub mod probe;
pub mod steer;
pub mod store;
pub mod tls;
pub mod tunnel;
