//! The frame as XDP shows it: the one bounded reader and writer.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext as _,
    bindings::xdp_action,
    helpers::generated::{
        bpf_xdp_adjust_head, bpf_xdp_adjust_tail, bpf_xdp_get_buff_len, bpf_xdp_load_bytes,
    },
    macros::map,
    maps::DevMapHash,
    programs::XdpContext,
};
use keepline_common::{checksum::Sum, limits::INTERFACES, reason::Reason};

use crate::{
    bytes,
    frame::{Ethernet, Frame, Readdressed, Tags, stored_tags},
    parse::Datagram,
};

/// Devices that packets may be redirected to, by their index.
#[map]
static DEVICES: DevMapHash = DevMapHash::with_max_entries(INTERFACES, 0);

/// The furthest byte that is looked at; the verifier wants a bound below 64 KiB, and what lies
/// further is no business of ours.
const OFFSET_MAX: u32 = 0x3fff;

/// A frame in an XDP program.
pub struct XdpFrame {
    ctx: XdpContext,
}

impl XdpFrame {
    /// The frame of this run.
    #[inline(always)]
    pub fn new(ctx: XdpContext) -> Self {
        Self { ctx }
    }

    /// Where `N` of `T`, which is bytes, lie at `at`, if the frame holds them.
    ///
    /// This is the proof every access rests on: the pointer that is returned was compared with
    /// the end of the frame, with its length added, and the verifier checks the same.
    #[inline(always)]
    fn at<T, const N: usize>(&self, at: u32) -> Option<*mut [T; N]> {
        if at > OFFSET_MAX {
            return None;
        }
        let start = self.ctx.data() + at as usize;
        let end = start + size_of::<[T; N]>();
        (end <= self.ctx.data_end()).then_some(start as *mut [T; N])
    }

    /// Moves its beginning by `by` bytes, forwards when negative. `false`: no room, unchanged.
    #[inline(always)]
    fn grow_head(&mut self, by: i32) -> bool {
        // SAFETY: the context is this run's; every later access compares with the new bounds.
        unsafe { bpf_xdp_adjust_head(self.ctx.ctx, -by) == 0 }
    }

    /// Moves its end by `by` bytes. `false`: no room, unchanged.
    #[inline(always)]
    fn grow_tail(&mut self, by: i32) -> bool {
        // SAFETY: as in `grow_head`.
        unsafe { bpf_xdp_adjust_tail(self.ctx.ctx, by) == 0 }
    }

    #[inline(always)]
    fn write_ethernet(&mut self, to: &Ethernet<'_>) -> Option<()> {
        let [a, b, c, d, e, f, g, h] = *to.tags;
        self.write(0, *to.macs)?;
        if to.tag_bytes >= 4 {
            self.write(12, [a, b, c, d])?;
        }
        if to.tag_bytes == 8 {
            self.write(16, [e, f, g, h])?;
        }
        self.write(12 + to.tag_bytes, to.ether_type)
    }
}

impl Frame for XdpFrame {
    #[inline(always)]
    fn ingress(&self) -> u32 {
        self.ctx.ingress_ifindex() as u32
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        // SAFETY: the context is the one the kernel passed to this run.
        unsafe { bpf_xdp_get_buff_len(self.ctx.ctx) as u32 }
    }

    #[inline(always)]
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        // SAFETY: `at` compared the bytes with the end of the frame; any bytes are a `[u8; N]`.
        self.at::<u8, N>(at)
            .map(|from| unsafe { bytes::load(from.cast_const().cast()) })
    }

    #[inline(always)]
    fn write<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Option<()> {
        // SAFETY: `at` compared the bytes with the end of the frame; nothing else refers to it.
        self.at::<u8, N>(at)
            .map(|place| unsafe { bytes::store(place.cast(), bytes) })
    }

    #[inline(always)]
    fn write_words<const N: usize>(&mut self, at: u32, words: [u32; N]) -> Option<()> {
        // SAFETY: as in `write`; no two words are in one place.
        self.at::<[u8; 4], N>(at)
            .map(|place| unsafe { bytes::store_words(place.cast(), words) })
    }

    #[inline(always)]
    fn stored<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        self.read(at)
    }

    #[inline(always)]
    fn tags(&self) -> Result<Tags, Reason> {
        stored_tags(self)
    }

    #[inline(always)]
    fn dress(&mut self, _: &Datagram, to: &Ethernet<'_>, growth: i32) -> bool {
        if growth != 0 && !self.grow_head(growth) {
            return false;
        }
        self.write_ethernet(to).is_some()
    }

    /// Small frames of local sockets often cannot grow at the tail; then the head grows, and every
    /// header is written anew further forward.
    #[inline(always)]
    fn turn_round(&mut self, datagram: &Datagram, growth: i32) -> Result<(), Reason> {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] =
            self.read(0).ok_or(Reason::Truncated)?;
        let macs = [s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5];
        let tags: [u8; 8] = match datagram.tags.bytes {
            0 => [0; 8],
            4 => {
                let [a, b, c, d] = self.read(12).ok_or(Reason::Truncated)?;
                [a, b, c, d, 0, 0, 0, 0]
            }
            _ => self.read(12).ok_or(Reason::Truncated)?,
        };
        if growth != 0 && !self.grow_tail(growth) && !self.grow_head(growth) {
            return Err(Reason::NoRoom);
        }
        let back = Ethernet {
            macs: &macs,
            tags: &tags,
            tag_bytes: datagram.tags.bytes,
            ether_type: datagram.tags.ether_type,
        };
        // Cannot fail: the frame has exactly the length of what is written.
        self.write_ethernet(&back).ok_or(Reason::NoRoom)
    }

    #[inline(always)]
    fn readdress_udp(
        &mut self,
        at: u32,
        ports: [u8; 4],
        change: Option<&Readdressed<'_>>,
    ) -> Option<()> {
        self.write(at, ports)?;
        let Some(change) = change else {
            return Some(());
        };
        self.write(at + 6, change.edited().udp_checksum())
    }

    #[inline(always)]
    fn write_udp(&mut self, at: u32, header: [u8; 8], _: Sum) -> Option<()> {
        self.write(at, header)
    }

    #[inline(always)]
    fn done(&mut self) {}

    #[inline(always)]
    unsafe fn copy_to(&self, at: u32, to: *mut u8, len: u32) -> bool {
        let len = bytes::bounded(len);
        // SAFETY: the context is this run's; the caller's bytes are as many as `len` can be.
        unsafe { bpf_xdp_load_bytes(self.ctx.ctx, at, to.cast(), len) == 0 }
    }

    #[inline(always)]
    fn redirect_to(&mut self, ifindex: u32) -> bool {
        DEVICES.redirect(ifindex, u64::from(xdp_action::XDP_PASS)) == Ok(xdp_action::XDP_REDIRECT)
    }

    #[inline(always)]
    fn context(&self) -> *mut c_void {
        self.ctx.as_ptr()
    }
}
