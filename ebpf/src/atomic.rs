//! Atomic addition: the only unstable feature of this crate, in one file. This target's `core`
//! has no `fetch_add`; the intrinsic becomes one instruction.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Adds `by` to what `counter` points to.
///
/// # Safety
/// `counter` must point into a map value, eight bytes aligned.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, by: u64) {
    // SAFETY: the caller's pointer is valid and aligned; map values live as long as the run.
    let _before = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, by) };
}
