//! Copies of SIP that is routed, for the controller: it learns from them and sends nothing. Two
//! rings, so that strangers cannot crowd out whom a softswitch knows (fastpath.md section 7).

use aya_ebpf::{
    macros::map,
    maps::{Array, RingBuf},
};
use keepline_common::{
    limits::{COPY_PAYLOAD, NO_COPIES_BYTES},
    record::{CopyHead, Plan},
};

use crate::{atomic, frame::Frame, plans::MMAPABLE};

/// Copies of talks that softswitches accepted: [`CopyHead`] and payload. The loader gives both
/// rings their size.
#[map]
static COPIES: RingBuf = RingBuf::with_byte_size(NO_COPIES_BYTES, 0);

/// Copies of all others.
#[map]
static STRANGERS: RingBuf = RingBuf::with_byte_size(NO_COPIES_BYTES, 0);

/// Words: how many copies were lost, since a ring was full or a payload too long.
#[map]
static LOST: Array<u64> = Array::with_max_entries(2, MMAPABLE);

const HEAD: usize = size_of::<CopyHead>();
const BYTES: usize = HEAD + COPY_PAYLOAD as usize;

/// Sends a copy of the payload that begins at `payload` and has `len` bytes.
#[inline(always)]
pub fn send<F: Frame>(frame: &F, plan: &Plan, stranger: bool, (payload, len): (u32, u32), at: u64) {
    let (ring, lost) = if stranger {
        (&STRANGERS, 1)
    } else {
        (&COPIES, 0)
    };
    if len == 0 || len > COPY_PAYLOAD {
        return lose(lost);
    }
    let Some(mut entry) = ring.reserve_bytes(BYTES, 0) else {
        return lose(lost);
    };
    let head = CopyHead {
        at,
        talk: plan.talk,
        party: plan.party as u16,
        len: len as u16,
    };
    let start = entry.as_mut_ptr();
    // SAFETY: the entry has room for both, begins at a multiple of eight, and is this run's.
    let whole = unsafe {
        start.cast::<CopyHead>().write(head);
        frame.copy_to(payload, start.add(HEAD), len)
    };
    if whole {
        entry.submit(0);
    } else {
        entry.discard(0);
        lose(lost);
    }
}

#[inline(always)]
fn lose(index: u32) {
    if let Some(lost) = LOST.get_ptr_mut(index) {
        // SAFETY: a value of the map, eight bytes aligned.
        unsafe { atomic::add(lost, 1) }
    }
}
