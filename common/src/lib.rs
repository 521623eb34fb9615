//! What the XDP program and the controller share: map records, verdict reasons, and the
//! arithmetic of checksums, STUN and path words. `no_std`, no allocation, no I/O; tested on the
//! host, compiled into the kernel.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod classify;
pub mod crc;
pub mod gate;
pub mod limits;
pub mod reason;
pub mod record;
pub mod stun;

/// Number of the map layout. Pins of different numbers live in different directories; change it
/// with any key, value, meaning or order of [`reason::Reason`].
pub const ABI: u32 = 4;
