//! The XDP program of a test host's interface: passes everything.
//!
//! Two instructions, loaded and attached by hand, so that the lab needs no object file and
//! works before the gateway's own programs are built.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// `r0 = XDP_PASS; exit`
const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

/// The attached program; dropping it detaches.
pub(super) struct Attached {
    _link: OwnedFd,
}

/// `union bpf_attr` for BPF_PROG_LOAD, as far as needed; the kernel takes the rest as zero.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE, as far as needed.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches the program, natively, to an interface of the calling thread's namespace.
pub(super) fn attach_pass(interface: &str) -> Result<Attached> {
    let index = rustix::net::netdevice::name_to_index(
        rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?,
        interface,
    )
    .with_context(|| format!("no interface {interface}"))?;
    let load = ProgLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: 2,
        insns: PASS.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
    };
    let program = bpf(BPF_PROG_LOAD, &load).context("the kernel refused the program")?;
    let create = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: index,
        attach_type: BPF_XDP,
        flags: XDP_FLAGS_DRV_MODE,
    };
    let link =
        bpf(BPF_LINK_CREATE, &create).with_context(|| format!("no native XDP on {interface}"))?;
    Ok(Attached { _link: link })
}

#[expect(
    unsafe_code,
    reason = "bpf(2) has no safe wrapper for a program given as instructions"
)]
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attributes` is one of the two repr(C) structs above, alive during the call, and
    // its size is passed beside it; the pointers inside are to statics.
    let made = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(made) {
        // SAFETY: a non-negative result of these two commands is a descriptor that is ours.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
