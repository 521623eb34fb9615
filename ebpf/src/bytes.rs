//! Bytes of a packet, loaded and stored by words.
//!
//! A packet's fields lie at any address. The machine takes them as they lie, and so does the
//! verifier, but the compiler's only way to say "unaligned" on this target is a byte at a time:
//! three times the instructions. So the words are named in assembly, in this file alone.

use core::arch::asm;

use keepline_common::limits::COPY_PAYLOAD;

/// The `N` bytes at `from`.
///
/// # Safety
/// `from` must point to `N` readable bytes.
#[inline(always)]
pub unsafe fn load<const N: usize>(from: *const u8) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at + 4 <= N {
        let word: u64;
        // SAFETY: four bytes at `at`, which lie within the caller's `N`.
        unsafe {
            asm!("{0} = *(u32 *)({1} + 0)", out(reg) word, in(reg) from.add(at),
                options(pure, readonly, nostack, preserves_flags));
        }
        let [a, b, c, d] = (word as u32).to_ne_bytes();
        bytes[at] = a;
        bytes[at + 1] = b;
        bytes[at + 2] = c;
        bytes[at + 3] = d;
        at += 4;
    }
    if at + 2 <= N {
        let word: u64;
        // SAFETY: two bytes at `at`, which lie within the caller's `N`.
        unsafe {
            asm!("{0} = *(u16 *)({1} + 0)", out(reg) word, in(reg) from.add(at),
                options(pure, readonly, nostack, preserves_flags));
        }
        let [a, b] = (word as u16).to_ne_bytes();
        bytes[at] = a;
        bytes[at + 1] = b;
        at += 2;
    }
    if at < N {
        // SAFETY: the last of the caller's `N` bytes.
        bytes[at] = unsafe { *from.add(at) };
    }
    bytes
}

/// Puts `bytes` at `to`.
///
/// # Safety
/// `to` must point to `N` writable bytes that nothing else refers to.
#[inline(always)]
pub unsafe fn store<const N: usize>(to: *mut u8, bytes: [u8; N]) {
    let mut at = 0;
    while at + 4 <= N {
        let word = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        // SAFETY: four bytes at `at`, which lie within the caller's `N`.
        unsafe {
            asm!("*(u32 *)({0} + 0) = {1}", in(reg) to.add(at), in(reg) u64::from(word),
                options(nostack, preserves_flags));
        }
        at += 4;
    }
    if at + 2 <= N {
        let word = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        // SAFETY: two bytes at `at`, which lie within the caller's `N`.
        unsafe {
            asm!("*(u16 *)({0} + 0) = {1}", in(reg) to.add(at), in(reg) u64::from(word),
                options(nostack, preserves_flags));
        }
        at += 2;
    }
    if at < N {
        // SAFETY: the last of the caller's `N` bytes.
        unsafe { *to.add(at) = bytes[at] };
    }
}

/// Puts `words` at `to`, one after the other.
///
/// # Safety
/// `to` must point to `N` writable words that nothing else refers to; it need not be aligned.
#[inline(always)]
pub unsafe fn store_words<const N: usize>(to: *mut u8, words: [u32; N]) {
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: the four bytes at `index` of the caller's `N` words.
        unsafe {
            asm!("*(u32 *)({0} + 0) = {1}", in(reg) to.add(index * 4), in(reg) u64::from(word),
                options(nostack, preserves_flags));
        }
    }
}

/// A length between 1 and [`COPY_PAYLOAD`], so that the verifier knows it, too: the compiler, which
/// knows it already, would leave the mask out.
#[inline(always)]
pub fn bounded(len: u32) -> u32 {
    const { assert!(COPY_PAYLOAD == 0x7ff + 1) };
    let mut less = u64::from(len) - 1;
    // SAFETY: arithmetic on one register.
    unsafe {
        asm!("{0} &= 0x7ff", inout(reg) less, options(pure, nomem, nostack));
    }
    less as u32 + 1
}
