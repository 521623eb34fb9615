//! What the policy needs of a frame, whatever hook it came in by.

use keepline_common::{checksum::Sum, reason::Reason};

/// The VLAN tags of a frame.
#[derive(Clone, Copy)]
pub struct Tags {
    /// Bytes they take between the MAC addresses and the EtherType: 0, 4 or 8.
    pub bytes: u32,
    /// Their identifiers, from the outside in; 0 = none.
    pub ids: [[u8; 2]; 2],
    /// The EtherType behind them.
    pub ether_type: [u8; 2],
}

/// A frame that can be read, rewritten and sent on. Offsets count from its first byte.
pub trait Frame {
    /// Index of the interface it arrived at.
    fn ingress(&self) -> u32;

    /// Its length, in bytes.
    fn len(&self) -> u32;

    /// The `N` bytes at `at`; `None` past the end.
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]>;

    /// Replaces the `N` bytes at `at`; `None` past the end.
    fn write<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Option<()>;

    /// Replaces the `N` words at `at`; `None` past the end.
    fn write_words<const N: usize>(&mut self, at: u32, words: [u32; N]) -> Option<()>;

    /// Its VLAN tags.
    fn tags(&self) -> Result<Tags, Reason>;

    /// Replaces the UDP checksum at `at` by what `edited` sums up to.
    fn set_udp_checksum(&mut self, at: u32, edited: Sum) -> Option<()>;

    /// Moves its beginning by `by` bytes, forwards when negative. `false`: no room, unchanged.
    #[must_use]
    fn grow_head(&mut self, by: i32) -> bool;

    /// Moves its end by `by` bytes. `false`: no room, unchanged.
    #[must_use]
    fn grow_tail(&mut self, by: i32) -> bool;

    /// Prepares to send it out of `ifindex`, with "pass" as the fallback. `false`: no such device.
    #[must_use]
    fn redirect_to(&mut self, ifindex: u32) -> bool;

    /// The hook's context, for helpers that want it.
    fn context(&self) -> *mut core::ffi::c_void;
}
