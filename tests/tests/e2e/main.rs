//! The real binary in network namespaces, with real peers: a module for each concern.
//!
//! One binary, not one for each file: each would link the whole controller again.

mod alone;
mod baresip;
mod bleed;
mod call;
mod config;
mod deaths;
mod dialogs;
mod domains;
mod failures;
mod fastpath;
mod guard;
mod hostile;
mod ice;
mod ipv6;
mod kills;
mod lab;
mod matrix;
mod netlink;
mod outbound;
mod path;
mod paths;
mod refresh;
mod refusals;
mod restart;
mod returning;
mod silence;
mod sizes;
mod streams;
mod stun;
mod tcp;
mod through;
mod tls;
mod transparent;
mod transparent_groups;
mod trust;
mod tunnels;
mod tunnels_call;
mod tunnels_connections;
mod tunnels_dhcp;
mod tunnels_rogue;
mod tunnels_voice;
mod upstream;
