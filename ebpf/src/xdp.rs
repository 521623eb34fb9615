//! The frame as XDP shows it: the one bounded reader and writer.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext as _,
    bindings::xdp_action,
    helpers::generated::{bpf_xdp_adjust_head, bpf_xdp_adjust_tail, bpf_xdp_get_buff_len},
    macros::map,
    maps::DevMapHash,
    programs::XdpContext,
};
use keepline_common::{checksum::Sum, limits::INTERFACES, reason::Reason};

use crate::{
    bytes,
    frame::{Frame, Tags},
};

/// Devices that packets may be redirected to, by their index.
#[map]
static DEVICES: DevMapHash = DevMapHash::with_max_entries(INTERFACES, 0);

/// The furthest byte that is looked at; the verifier wants a bound below 64 KiB, and what lies
/// further is no business of ours.
const OFFSET_MAX: u32 = 0x3fff;
const ETHER_TYPE: u32 = 12;
const CTAG: [u8; 2] = [0x81, 0x00];
const STAG: [u8; 2] = [0x88, 0xa8];

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

    #[inline(always)]
    fn tag(&self, at: u32) -> Result<([u8; 2], [u8; 2]), Reason> {
        let [a, b, c, d] = self.read(at).ok_or(Reason::Truncated)?;
        Ok(([a & 0x0f, b], [c, d]))
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
    fn tags(&self) -> Result<Tags, Reason> {
        let outer = self.read(ETHER_TYPE).ok_or(Reason::Truncated)?;
        if outer != CTAG && outer != STAG {
            return Ok(Tags {
                bytes: 0,
                ids: [[0; 2]; 2],
                ether_type: outer,
            });
        }
        let (first, inner) = self.tag(ETHER_TYPE + 2)?;
        if inner != CTAG && inner != STAG {
            return Ok(Tags {
                bytes: 4,
                ids: [first, [0; 2]],
                ether_type: inner,
            });
        }
        let (second, ether_type) = self.tag(ETHER_TYPE + 6)?;
        if ether_type == CTAG || ether_type == STAG {
            return Err(Reason::VlanDeep);
        }
        Ok(Tags {
            bytes: 8,
            ids: [first, second],
            ether_type,
        })
    }

    #[inline(always)]
    fn set_udp_checksum(&mut self, at: u32, edited: Sum) -> Option<()> {
        self.write(at, edited.udp_checksum())
    }

    #[inline(always)]
    fn grow_head(&mut self, by: i32) -> bool {
        // SAFETY: the context is this run's; every later access compares with the new bounds.
        unsafe { bpf_xdp_adjust_head(self.ctx.ctx, -by) == 0 }
    }

    #[inline(always)]
    fn grow_tail(&mut self, by: i32) -> bool {
        // SAFETY: as in `grow_head`.
        unsafe { bpf_xdp_adjust_tail(self.ctx.ctx, by) == 0 }
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
