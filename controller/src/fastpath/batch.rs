//! Many entries of a map by one system call: 1.0–1.3 million a second, twice what single inserts
//! reach. The only place that does it.

#![expect(unsafe_code, reason = "one system call with a pointer to a struct")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

use bytemuck::Pod;

const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;

/// `union bpf_attr` for the batch commands; the kernel takes the rest as zero.
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Writes `values` under `keys`, which must be of the map's sizes.
///
/// # Errors
/// When the lists are not of one length, or the kernel refuses; entries before the refused one
/// are written.
pub fn update<K: Pod, V: Pod>(map: impl AsFd, keys: &[K], values: &[V]) -> io::Result<()> {
    let count = u32::try_from(keys.len())
        .ok()
        .filter(|_| keys.len() == values.len());
    let Some(count) = count else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if count == 0 {
        return Ok(());
    }
    let mut batch = Batch {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count,
        map: map.as_fd().as_raw_fd().cast_unsigned(),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: the struct is `union bpf_attr`'s for this command and lives through the call, as do
    // the `count` keys and values it leads to, which the kernel only reads. That they are of the
    // map's sizes is the caller's word; the maps' shapes were compared when they were opened.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_UPDATE_BATCH,
            &raw mut batch,
            size_of::<Batch>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
