//! The fast path's life: programs loaded, attached, pinned, checked, replaced and taken off.
//!
//! Everything is pinned below one directory, so that the data path outlives the controller
//! (KL5); `stats` and `fastpath status` read the pins with no daemon running.

use std::{ops::RangeInclusive, path::PathBuf};

mod error;
pub mod layout;
pub mod maps;
pub mod object;
pub mod words;

pub use error::Error;

/// How a program shall be put on an interface (`xdp = ...` of the configuration).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum XdpChoice {
    /// Native where the driver allows, else generic, shown as degraded.
    #[default]
    Auto,
    /// Native or an error.
    Native,
    /// Generic, shown as degraded.
    Generic,
    /// Not at all.
    Off,
}

/// How a program sits on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the network stack: half as fast, no segments.
    Generic,
}

/// One interface that shall carry the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The mode asked for.
    pub xdp: XdpChoice,
}

/// What to load, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The gateway's directory on bpffs; the pins live in `vN` below it.
    pub pin: PathBuf,
    /// Interfaces that shall carry the program.
    pub interfaces: Vec<Interface>,
    /// The media ports.
    pub media: RangeInclusive<u16>,
    /// Directions of media streams at once.
    pub max_plans: u32,
    /// Entries of the transparent mode's flow table.
    pub max_flows: u32,
    /// Transparent mode: flows that are not addressed to us are looked up.
    pub transparent: bool,
}

/// An interface that carries the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// The mode in force.
    pub mode: Mode,
    /// Why it works less well than it could, each with its remedy; empty when it does not.
    pub degraded: Vec<String>,
}

/// Packets of one interface by reason, summed over CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// The interface's name; `ifN` when it is gone.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// One count per `keepline_common::reason::Reason`, in its order.
    pub packets: Vec<u64>,
}
