//! Words that the program reads and the controller stores: `BPF_F_MMAPABLE` arrays, whose
//! elements lie eight bytes apart. The only unsafe code of the maps, with [`grace`] and [`Raw`].

#![expect(
    unsafe_code,
    reason = "shared memory, one system call, and aya's marker trait"
)]

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};
use rustix::time::{ClockId, clock_gettime};

/// Distance of two elements.
const STRIDE: usize = 8;

/// A value of the kernel boundary, as aya wants it marked.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Raw<T>(pub(super) T);

// SAFETY: transparent over a type that bytemuck checked to be plain old data without padding.
unsafe impl<T: bytemuck::Pod> aya::Pod for Raw<T> {}

/// The elements of one mmapable array.
#[derive(Debug)]
pub struct Words {
    map: MmapRaw,
    len: u32,
}

impl Words {
    /// Maps the `len` elements of the array behind `fd`.
    ///
    /// # Errors
    /// When the kernel refuses: not an mmapable array, or shorter.
    pub fn new(fd: impl AsFd, len: u32) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let raw = fd.as_fd().as_raw_fd();
        let map = MmapOptions::new().len(len as usize * STRIDE).map_raw(raw)?;
        Ok(Self { map, len })
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `index`; 0 past the end.
    #[must_use]
    pub fn load(&self, index: u32) -> u64 {
        self.word(index)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores the element at `index` in one piece: what was written to maps before is seen by
    /// whoever sees this.
    pub fn store(&self, index: u32, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Release);
        }
    }

    /// As [`Self::load`], of an array of 32-bit values.
    #[must_use]
    pub fn load_u32(&self, index: u32) -> u32 {
        self.half(index)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// As [`Self::store`], of an array of 32-bit values.
    pub fn store_u32(&self, index: u32, value: u32) {
        if let Some(word) = self.half(index) {
            word.store(value, Ordering::Release);
        }
    }

    fn word(&self, index: u32) -> Option<&AtomicU64> {
        let place = self.place(index)?;
        // SAFETY: `place` lies within the mapping, which is page-aligned and lives as long as
        // `self`; elements are eight bytes, and everyone accesses them in one piece.
        Some(unsafe { AtomicU64::from_ptr(place.cast()) })
    }

    fn half(&self, index: u32) -> Option<&AtomicU32> {
        let place = self.place(index)?;
        // SAFETY: as in `word`; the value is the first four bytes of its element.
        Some(unsafe { AtomicU32::from_ptr(place.cast()) })
    }

    fn place(&self, index: u32) -> Option<*mut u8> {
        let inside = index < self.len;
        inside.then(|| self.map.as_mut_ptr().wrapping_add(index as usize * STRIDE))
    }
}

/// Waits until no program still runs that began before the call. `false` where the kernel does
/// not offer to.
pub(super) fn grace() -> bool {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: the call takes no pointer; it waits for a grace period of the kernel's.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0 }
}

/// The clock of `bpf_ktime_get_ns`, in nanoseconds.
#[must_use]
pub fn kernel_now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
