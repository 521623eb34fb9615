//! Datagrams that came in fragments are put together before they are routed: only the first
//! fragment bears the port that the rules look at, and all of them must be taken, or a large
//! INVITE would pass us by with the phone's own address in it.
//!
//! The kernel does this where a netfilter hook asks for it. Ours is a program that accepts
//! everything (`BPF_PROG_TYPE_NETFILTER`, kernel 6.4, with defragmentation from 6.6 on); it ends
//! with the process. aya does not know this kind of program.
#![expect(
    unsafe_code,
    reason = "bpf(2) has no safe wrapper for this kind of program"
)]

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// Commands, types and flags of linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_NETFILTER: u32 = 32;
const BPF_NETFILTER: u32 = 45;
const BPF_F_NETFILTER_IP_DEFRAG: u32 = 1;
/// `NF_INET_PRE_ROUTING` of linux/netfilter.h.
const PRE_ROUTING: u32 = 0;
/// Behind the defragmentation itself (`NF_IP_PRI_CONNTRACK_DEFRAG`, -400), and no two programs
/// may share one.
const PRIORITIES: std::ops::Range<i32> = -399..-380;
/// `r0 = 1` (`NF_ACCEPT`), `exit`: opcode, registers, offset, immediate.
const ACCEPT: [u64; 2] = [
    u64::from_le_bytes([0xb7, 0, 0, 0, 1, 0, 0, 0]),
    u64::from_le_bytes([0x95, 0, 0, 0, 0, 0, 0, 0]),
];

/// `union bpf_attr` for `BPF_PROG_LOAD`, up to what is used.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u32; 4],
    version_and_flags: [u32; 2],
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// The same for `BPF_LINK_CREATE` on netfilter.
#[repr(C)]
struct Attach {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    family: u32,
    hook: u32,
    priority: i32,
    netfilter_flags: u32,
}

/// Fragments are put together as long as this is held.
#[derive(Debug)]
pub(super) struct Defrag {
    _links: Vec<OwnedFd>,
}

impl Defrag {
    /// Begins; where the kernel cannot, says so: large datagrams then pass untouched.
    pub(super) fn begin() -> Self {
        let mut links = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            match load().and_then(|program| attach(&program, family)) {
                Ok(link) => links.push(link),
                Err(error) => tracing::warn!(
                    %error, family,
                    "the kernel puts no fragments together: requests larger than the MTU pass to \
                     the softswitch untouched"
                ),
            }
        }
        Self { _links: links }
    }
}

fn load() -> io::Result<OwnedFd> {
    let load = Load {
        kind: BPF_PROG_TYPE_NETFILTER,
        instructions: 2,
        code: ACCEPT.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log: [0; 4],
        version_and_flags: [0; 2],
        name: *b"keepline_defrag\0",
        interface: 0,
        attach_type: BPF_NETFILTER,
    };
    bpf(BPF_PROG_LOAD, &load)
}

/// Attaches with the first priority that is free.
fn attach(program: &OwnedFd, family: libc::c_int) -> io::Result<OwnedFd> {
    let number = |value: libc::c_int| u32::try_from(value).map_err(io::Error::other);
    let mut attach = Attach {
        program: number(program.as_raw_fd())?,
        target: 0,
        attach_type: BPF_NETFILTER,
        flags: 0,
        family: number(family)?,
        hook: PRE_ROUTING,
        priority: 0,
        netfilter_flags: BPF_F_NETFILTER_IP_DEFRAG,
    };
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for priority in PRIORITIES {
        attach.priority = priority;
        match bpf(BPF_LINK_CREATE, &attach) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            other => return other,
        }
    }
    Err(last)
}

/// bpf(2) with attributes of a kind that makes a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let size = libc::c_uint::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: `attributes` is a live `repr(C)` value of exactly `size` bytes without padding,
    // laid out as `union bpf_attr` is for this command; the pointers in it lead to constants.
    // The kernel reads both, and writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size) };
    let fd = libc::c_int::try_from(result).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands return a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
