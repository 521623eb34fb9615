//! The frame as TC shows it. The outer VLAN tag is in the skb, bytes may be shared with others, and
//! the checksum may be somebody else's to complete: so what changes goes through the helpers.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM},
    helpers::generated::{
        bpf_check_mtu, bpf_l4_csum_replace, bpf_skb_change_proto, bpf_skb_change_tail,
        bpf_skb_load_bytes, bpf_skb_pull_data, bpf_skb_store_bytes, bpf_skb_vlan_pop,
        bpf_skb_vlan_push,
    },
    programs::TcContext,
};
use keepline_common::{checksum::Sum, reason::Reason, record::Address};

use crate::{
    bytes,
    frame::{Ethernet, Frame, Readdressed, Tags, stored_tags},
    parse::{Datagram, ETHERNET, TYPE_IPV4, TYPE_IPV6},
};

/// What is looked at of a frame: the headers, and STUN as far as it is understood.
const HEAD: u32 = 640;
/// The furthest byte that is looked at: see xdp.rs.
const OFFSET_MAX: u32 = 0x3fff;
/// Bytes of a VLAN tag.
const TAG: u32 = 4;
/// Where tags stand.
const TAGS: u32 = 12;
/// `PACKET_HOST` of linux/if_packet.h: sent to the interface's own MAC address.
const TO_US: u32 = 0;
/// Bytes that one call stores.
const CHUNK: usize = 16;
/// Stores that keep a sum of the whole packet right (`CHECKSUM_COMPLETE`).
const SUMMED: u32 = 1 << 8;
/// Others.
const PLAIN: u32 = 0;
/// Of UDP: zero stays zero, and becomes all ones where it is computed.
const UDP_ZERO: u64 = BPF_F_MARK_MANGLED_0 as u64;

/// A frame in a TC program.
pub struct SkbFrame {
    skb: *mut __sk_buff,
    /// Bytes of the tag that the skb holds apart: none or four.
    apart: u32,
    /// The device it is to leave by.
    out: u32,
    /// It was changed, and could not be finished.
    torn: bool,
}

impl SkbFrame {
    /// The frame of this run, the part that is looked at in one piece.
    #[inline(always)]
    pub fn new(ctx: &TcContext) -> Self {
        let skb = ctx.skb.skb;
        // SAFETY: the context is this run's, as in every access to it below.
        let present = unsafe { (*skb).vlan_present };
        let frame = Self {
            skb,
            // Without a branch, which would double what the verifier has to look at.
            apart: (present & 1) * TAG,
            out: 0,
            torn: false,
        };
        let wanted = frame.stored_len().min(HEAD);
        if !frame.is_aggregate() && ((ctx.data_end() - ctx.data()) as u32) < wanted {
            // SAFETY: the context is this run's; what cannot be read afterwards is not there.
            let _ = unsafe { bpf_skb_pull_data(frame.skb, wanted) };
        }
        frame
    }

    /// Whether it holds several datagrams, or a stream's segments, that the kernel made one of.
    #[inline(always)]
    pub fn is_aggregate(&self) -> bool {
        // SAFETY: see `new`.
        unsafe { (*self.skb).gso_size != 0 }
    }

    /// Whether it was sent to the interface's own MAC address.
    #[inline(always)]
    pub fn is_to_us(&self) -> bool {
        // SAFETY: see `new`.
        unsafe { (*self.skb).pkt_type == TO_US }
    }

    /// Has it leave by a device as it is.
    #[inline(always)]
    pub fn leave_by(&mut self, ifindex: u32) {
        self.out = ifindex;
    }

    /// The device it is to leave by.
    #[inline(always)]
    pub fn out(&self) -> u32 {
        self.out
    }

    /// Whether it is neither as it came nor as it shall leave: nobody's any more.
    #[inline(always)]
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    #[inline(always)]
    fn stored_len(&self) -> u32 {
        // SAFETY: see `new`.
        unsafe { (*self.skb).len }
    }

    /// Where in memory the byte at `at` lies.
    #[inline(always)]
    fn place(&self, at: u32) -> u32 {
        if at < TAGS { at } else { at - self.apart }
    }

    /// Puts `bytes`, sixteen at most, at `at` of what lies in memory.
    #[inline(always)]
    fn store<const N: usize>(&mut self, at: u32, bytes: &[u8; N], how: u32) -> Option<()> {
        const { assert!(N <= CHUNK) };
        let (low, high) = (word(bytes, 0), word(bytes, 8));
        (put(self.skb, at, how | N as u32, low, high) == 0).then_some(())
    }

    /// Puts up to four of `words`, from the one of this number on, where it belongs behind `at`.
    #[inline(always)]
    fn store_four<const N: usize>(&mut self, at: u32, words: &[u32; N], from: usize) -> Option<()> {
        let word = |n: usize| if n < N { u64::from(words[n]) } else { 0 };
        let count = if N - from > 4 { 4 } else { N - from } as u32;
        let low = word(from) | word(from + 1) << 32;
        let high = word(from + 2) | word(from + 3) << 32;
        let at = at + from as u32 * 4;
        (put(self.skb, at, SUMMED | count * 4, low, high) == 0).then_some(())
    }

    /// Adds `change`, a folded sum, to the checksum at `at`.
    #[inline(always)]
    fn edit(&mut self, at: u32, change: u64, flags: u64) -> Option<()> {
        // SAFETY: no pointer but the context, which is this run's.
        let done = unsafe { bpf_l4_csum_replace(self.skb, at, 0, change, flags) };
        (done == 0).then_some(())
    }

    /// Takes `tags` bytes of tags away, and puts on those of the way out behind the new family.
    #[inline(always)]
    fn change_tags(&mut self, datagram: &Datagram, to: &Ethernet<'_>) -> Option<()> {
        // SAFETY: no pointer but the context, which is this run's, in all four calls.
        let done = |result: i64| (result == 0).then_some(());
        if datagram.tags.bytes >= TAG {
            done(unsafe { bpf_skb_vlan_pop(self.skb) })?;
        }
        if datagram.tags.bytes == 2 * TAG {
            done(unsafe { bpf_skb_vlan_pop(self.skb) })?;
        }
        let family = if datagram.v6 { TYPE_IPV6 } else { TYPE_IPV4 };
        if family != to.ether_type {
            let family = u16::from_ne_bytes(to.ether_type);
            done(unsafe { bpf_skb_change_proto(self.skb, family, 0) })?;
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *to.macs;
        let [m, n] = to.ether_type;
        self.store(0, &[a, b, c, d, e, f, g, h, i, j, k, l, m, n], PLAIN)?;
        let [p0, p1, t0, t1, q0, q1, u0, u1] = *to.tags;
        if to.tag_bytes == 2 * TAG {
            self.push([q0, q1], [u0, u1])?;
        }
        if to.tag_bytes >= TAG {
            self.push([p0, p1], [t0, t1])?;
        }
        self.apart = if to.tag_bytes >= TAG { TAG } else { 0 };
        Some(())
    }

    #[inline(always)]
    fn push(&mut self, protocol: [u8; 2], control: [u8; 2]) -> Option<()> {
        let (protocol, control) = (u16::from_ne_bytes(protocol), u16::from_be_bytes(control));
        // SAFETY: no pointer but the context, which is this run's.
        let done = unsafe { bpf_skb_vlan_push(self.skb, protocol, control) };
        (done == 0).then_some(())
    }

    /// Whether the checksum at `at` is for others to complete (`CHECKSUM_PARTIAL`): no helper
    /// tells, but an edit outside of the pseudo-header is not made then. Spoils the field.
    #[inline(always)]
    fn is_partial(&mut self, at: u32) -> Option<bool> {
        self.store(at, &[0x12, 0x34], PLAIN)?;
        self.edit(at, 1, 0)?;
        Some(self.stored(at)? == [0x12, 0x34])
    }
}

impl Frame for SkbFrame {
    #[inline(always)]
    fn ingress(&self) -> u32 {
        // SAFETY: see `new`.
        unsafe { (*self.skb).ifindex }
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.stored_len() + self.apart
    }

    #[inline(always)]
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        self.stored(self.place(at))
    }

    #[inline(always)]
    fn stored<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        if at > OFFSET_MAX {
            return None;
        }
        // SAFETY: see `new`.
        let (data, end) = unsafe { ((*self.skb).data as usize, (*self.skb).data_end as usize) };
        let start = data + at as usize;
        if start + N > end {
            return None;
        }
        // SAFETY: the bytes were compared with the end of the frame just now.
        Some(unsafe { bytes::load(start as *const u8) })
    }

    #[inline(always)]
    fn write<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Option<()> {
        let at = self.place(at);
        self.store(at, &bytes, SUMMED)
    }

    #[inline(always)]
    fn write_words<const N: usize>(&mut self, at: u32, words: [u32; N]) -> Option<()> {
        let at = self.place(at);
        self.store_four(at, &words, 0)?;
        if N > 4 {
            self.store_four(at, &words, 4)?;
        }
        if N > 8 {
            self.store_four(at, &words, 8)?;
        }
        const { assert!(N <= 12) };
        Some(())
    }

    #[inline(always)]
    fn tags(&self) -> Result<Tags, Reason> {
        let inside = stored_tags(self)?;
        if self.apart == 0 {
            return Ok(inside);
        }
        if inside.bytes == 2 * TAG {
            return Err(Reason::VlanDeep);
        }
        // SAFETY: see `new`.
        let control = unsafe { (*self.skb).vlan_tci };
        Ok(Tags {
            bytes: inside.bytes + TAG,
            ids: [(control as u16 & 0x0fff).to_be_bytes(), inside.ids[0]],
            ether_type: inside.ether_type,
        })
    }

    /// No map of devices can be asked here; who is asked for the MTU says whether there is one.
    #[inline(always)]
    fn redirect_to(&mut self, ifindex: u32) -> bool {
        let mut mtu = 0;
        // SAFETY: the context is this run's, and `mtu` is a number of ours.
        let there = unsafe { bpf_check_mtu(self.context(), ifindex, &raw mut mtu, 0, 0) };
        self.out = ifindex;
        there >= 0
    }

    #[inline(always)]
    fn dress(&mut self, datagram: &Datagram, to: &Ethernet<'_>, _: i32) -> bool {
        self.torn = true;
        self.change_tags(datagram, to).is_some()
    }

    #[inline(always)]
    fn turn_round(&mut self, _: &Datagram, growth: i32) -> Result<(), Reason> {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] =
            self.read(0).ok_or(Reason::Truncated)?;
        let length = self.stored_len() as i32 + growth;
        // SAFETY: the context is this run's.
        if growth != 0 && unsafe { bpf_skb_change_tail(self.skb, length as u32, 0) } != 0 {
            return Err(Reason::NoRoom);
        }
        self.torn = true;
        self.store(0, &[s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5], PLAIN)
            .ok_or(Reason::NoRoom)?;
        self.out = self.ingress();
        Ok(())
    }

    #[inline(always)]
    fn readdress_udp(
        &mut self,
        at: u32,
        ports: [u8; 4],
        change: Option<&Readdressed<'_>>,
    ) -> Option<()> {
        let at = self.place(at);
        // Ports and checksum change by the same: a sum of the whole packet stays as it is.
        self.store(at, &ports, PLAIN)?;
        if let Some(change) = change {
            let (was, plan) = (change.was, change.plan);
            let ports = Sum::new()
                .without_word(was.source_port)
                .without_word(was.destination_port)
                .word(plan.from_port)
                .word(plan.to_port);
            let addresses =
                moved(&was.source, &change.hop.source) + moved(&was.destination, &plan.to);
            let pseudo = UDP_ZERO | u64::from(BPF_F_PSEUDO_HDR);
            self.edit(
                at + 6,
                u64::from(u16::from_ne_bytes(ports.folded())),
                UDP_ZERO,
            )?;
            self.edit(at + 6, addresses, pseudo)?;
        }
        self.torn = false;
        Some(())
    }

    #[inline(always)]
    fn write_udp(&mut self, at: u32, header: [u8; 8], pseudo: Sum) -> Option<()> {
        let at = self.place(at);
        self.store(at, &header, SUMMED)?;
        let [.., a, b] = header;
        let check = if self.is_partial(at + 6)? {
            pseudo.folded()
        } else {
            [a, b]
        };
        // Back to what the sum of the whole packet was told.
        self.store(at + 6, &check, PLAIN)?;
        self.torn = false;
        Some(())
    }

    #[inline(always)]
    fn done(&mut self) {
        self.torn = false;
    }

    #[inline(always)]
    unsafe fn copy_to(&self, at: u32, to: *mut u8, len: u32) -> bool {
        let (at, len) = (self.place(at), bytes::bounded(len));
        // SAFETY: the context is this run's; the caller's bytes are as many as `len` can be.
        unsafe { bpf_skb_load_bytes(self.skb.cast(), at, to.cast(), len) == 0 }
    }

    #[inline(always)]
    fn context(&self) -> *mut c_void {
        self.skb.cast()
    }
}

/// The eight bytes from `at` on; zero past the end.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let byte = |n: usize| if at + n < N { bytes[at + n] } else { 0 };
    u64::from_le_bytes([
        byte(0),
        byte(1),
        byte(2),
        byte(3),
        byte(4),
        byte(5),
        byte(6),
        byte(7),
    ])
}

/// Puts the first bytes of `low` and `high`, which is what a little-endian word begins with, at
/// `at`; `how`: their number, and [`SUMMED`]. A function of its own, for the sake of the stack:
/// what a helper reads must lie there, and every place that writes would have room of its own.
#[inline(never)]
fn put(skb: *mut __sk_buff, at: u32, how: u32, low: u64, high: u64) -> i64 {
    let bytes = [low.to_le(), high.to_le()];
    let flags = if how & SUMMED != 0 {
        u64::from(BPF_F_RECOMPUTE_CSUM)
    } else {
        0
    };
    let length = how & 0x1f;
    if length > CHUNK as u32 {
        return -1;
    }
    // SAFETY: the context is the caller's run's; the helper reads `length` bytes of sixteen, and
    // compares `at` with the frame.
    unsafe { bpf_skb_store_bytes(skb, at, bytes.as_ptr().cast(), length, flags) }
}

/// What another address changes in a sum, folded. A function of its own: its many terms would crowd
/// the stack of its caller.
#[inline(never)]
fn moved(was: &Address, is: &Address) -> u64 {
    let change = Sum::new().without_address(was).address(is);
    u64::from(u16::from_ne_bytes(change.folded()))
}

const _: () = assert!(ETHERNET == TAGS + 2);
