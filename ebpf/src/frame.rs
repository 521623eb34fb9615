//! What the policy needs of a frame, whatever hook it came in by.

use keepline_common::{
    checksum::{Sum, edit},
    reason::Reason,
    record::{FlowKey, Hop, Plan},
};

use crate::parse::Datagram;

/// Where the EtherType, or the first tag, stands.
const ETHER_TYPE: u32 = 12;
const CTAG: [u8; 2] = [0x81, 0x00];
const STAG: [u8; 2] = [0x88, 0xa8];

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

/// The Ethernet header that a frame leaves with.
pub struct Ethernet<'a> {
    /// Destination and source MAC addresses.
    pub macs: &'a [u8; 12],
    /// Tags from the outside in, protocol and control information each.
    pub tags: &'a [u8; 8],
    /// Bytes of them that count: 0, 4 or 8.
    pub tag_bytes: u32,
    /// The EtherType behind them.
    pub ether_type: [u8; 2],
}

/// A datagram's new addresses and ports, and what its UDP checksum was before.
pub struct Readdressed<'a> {
    /// The checksum field as it was.
    pub check: [u8; 2],
    /// Addresses and ports as they were.
    pub was: &'a FlowKey,
    /// The address that it comes from now.
    pub hop: &'a Hop,
    /// The address that it goes to now, and its ports.
    pub plan: &'a Plan,
}

impl Readdressed<'_> {
    /// The sum of the changed datagram.
    #[inline(always)]
    pub fn edited(&self) -> Sum {
        // A mapped address sums up like the IPv4 address: its prefix is 0xffff, which is zero.
        edit(self.check)
            .without_address(&self.was.source)
            .without_address(&self.was.destination)
            .without_word(self.was.source_port)
            .without_word(self.was.destination_port)
            .address(&self.hop.source)
            .address(&self.plan.to)
            .word(self.plan.from_port)
            .word(self.plan.to_port)
    }
}

/// A frame that can be read, rewritten and sent on. Offsets count from its first byte, as it is
/// on the wire: a tag that the hook keeps elsewhere takes its bytes all the same.
pub trait Frame {
    /// Index of the interface it arrived at.
    fn ingress(&self) -> u32;

    /// Its length, in bytes.
    fn len(&self) -> u32;

    /// The `N` bytes at `at`; `None` past the end. Tags are read by [`Frame::tags`].
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]>;

    /// The `N` bytes at `at` of what lies in memory; `None` past the end.
    fn stored<const N: usize>(&self, at: u32) -> Option<[u8; N]>;

    /// Replaces the `N` bytes at `at` of its IP packet; `None` past the end.
    fn write<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Option<()>;

    /// Replaces the `N` words at `at` of its IP packet; `None` past the end.
    fn write_words<const N: usize>(&mut self, at: u32, words: [u32; N]) -> Option<()>;

    /// Its VLAN tags.
    fn tags(&self) -> Result<Tags, Reason>;

    /// Prepares to send it out of `ifindex`, with "pass" as the fallback. `false`: no such device.
    #[must_use]
    fn redirect_to(&mut self, ifindex: u32) -> bool;

    /// Gives it the Ethernet header of its way out, and `growth` bytes more before its UDP header.
    /// `false`: no room.
    #[must_use]
    fn dress(&mut self, datagram: &Datagram, to: &Ethernet<'_>, growth: i32) -> bool;

    /// Turns it round to where it came from, and makes it `growth` bytes longer.
    fn turn_round(&mut self, datagram: &Datagram, growth: i32) -> Result<(), Reason>;

    /// Replaces the ports of the UDP header at `at`, and its checksum if it has one.
    fn readdress_udp(
        &mut self,
        at: u32,
        ports: [u8; 4],
        change: Option<&Readdressed<'_>>,
    ) -> Option<()>;

    /// Writes a whole UDP header, last of all; `pseudo` is the sum of its pseudo-header.
    fn write_udp(&mut self, at: u32, header: [u8; 8], pseudo: Sum) -> Option<()>;

    /// All that changes was written, without a UDP header.
    fn done(&mut self);

    /// Copies `len` bytes, between 1 and [`COPY_PAYLOAD`], from `at` on. `false`: not so many.
    ///
    /// # Safety
    /// `to` must point to [`COPY_PAYLOAD`] writable bytes that nothing else refers to.
    ///
    /// [`COPY_PAYLOAD`]: keepline_common::limits::COPY_PAYLOAD
    #[must_use]
    unsafe fn copy_to(&self, at: u32, to: *mut u8, len: u32) -> bool;

    /// The hook's context, for helpers that want it.
    fn context(&self) -> *mut core::ffi::c_void;
}

/// The VLAN tags among the bytes in memory.
#[inline(always)]
pub fn stored_tags<F: Frame>(frame: &F) -> Result<Tags, Reason> {
    let outer = frame.stored(ETHER_TYPE).ok_or(Reason::Truncated)?;
    if outer != CTAG && outer != STAG {
        return Ok(Tags {
            bytes: 0,
            ids: [[0; 2]; 2],
            ether_type: outer,
        });
    }
    let (first, inner) = tag(frame, ETHER_TYPE + 2)?;
    if inner != CTAG && inner != STAG {
        return Ok(Tags {
            bytes: 4,
            ids: [first, [0; 2]],
            ether_type: inner,
        });
    }
    let (second, ether_type) = tag(frame, ETHER_TYPE + 6)?;
    if ether_type == CTAG || ether_type == STAG {
        return Err(Reason::VlanDeep);
    }
    Ok(Tags {
        bytes: 8,
        ids: [first, second],
        ether_type,
    })
}

/// A tag's identifier, and the type behind it.
#[inline(always)]
fn tag<F: Frame>(frame: &F, at: u32) -> Result<([u8; 2], [u8; 2]), Reason> {
    let [a, b, c, d] = frame.stored(at).ok_or(Reason::Truncated)?;
    Ok(([a & 0x0f, b], [c, d]))
}
