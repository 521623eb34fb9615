//! Links, addresses, routes and neighbours, as the kernel has them.
//!
//! A watcher keeps a [`Table`] current and says what changed. Address resolution (the
//! one decision of this crate) is [`Table::next_hop`], on a consistent snapshot.

pub mod table;

pub use table::{LinkState, NextHop, Route, Table};

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
        mac: [u8; 6],
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
        /// All its addresses now, the primary first.
        addresses: Vec<IpAddr>,
    },
    /// A neighbour's MAC is another, or it stopped answering.
    Neighbour {
        /// The link.
        ifindex: u32,
        /// Its address.
        ip: IpAddr,
        /// Its MAC; `None` when resolution failed.
        mac: Option<[u8; 6]>,
    },
    /// Some route changed: look next hops up again.
    Routes,
}
