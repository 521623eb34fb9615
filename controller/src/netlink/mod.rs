//! Links, addresses, routes and neighbours, as the kernel has them.
//!
//! [`Netlink::start`] keeps a [`Table`] current and says what changed. Address resolution (the
//! one decision of this crate) is [`Table::next_hop`], on a consistent snapshot.

mod ask;
mod diff;
mod dump;
mod resolver;
pub mod table;
mod watch;

pub(crate) use ask::Neighbours;
pub(crate) use dump::{gateway, ip};
pub use resolver::LinkResolver;
pub use table::{LinkState, Mac, NextHop, Route, Table};
pub use watch::Netlink;

use std::net::IpAddr;

/// What changed; the table already has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetChange {
    /// A link appeared, changed or was re-created (then its `ifindex` is another).
    Link {
        /// The kernel's name.
        name: String,
        /// The kernel's index.
        ifindex: u32,
        /// Administratively up with carrier.
        up: bool,
        /// Its own MAC.
        mac: Mac,
        /// In bytes.
        mtu: u32,
    },
    /// A link vanished.
    LinkGone {
        /// The kernel's name.
        name: String,
        /// The index it had.
        ifindex: u32,
    },
    /// The set of addresses of a link changed.
    Address {
        /// The link.
        ifindex: u32,
        /// All its addresses now with their prefix lengths, the primary first.
        addresses: Vec<(IpAddr, u8)>,
    },
    /// A neighbour's MAC is another, or it stopped answering.
    Neighbour {
        /// The link.
        ifindex: u32,
        /// Its address.
        ip: IpAddr,
        /// Its MAC; `None` when resolution failed.
        mac: Option<Mac>,
    },
    /// Some route changed: look next hops up again.
    Routes,
}
