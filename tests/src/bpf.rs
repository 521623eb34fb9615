//! Programs of a few instructions, written here: no object is built for them. They put a frame into
//! shape and call the program that is looked at.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;

const TYPE_PROG_ARRAY: u32 = 3;
const TAIL_CALL: i32 = 12;

/// What a program is: those that call each other must be meant for the same place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// For XDP.
    Xdp,
    /// For TC.
    Classifier,
}

impl Kind {
    /// `BPF_PROG_TYPE_*`, flags, and the place it attaches to.
    const fn attributes(self) -> (u32, u32, u32) {
        match self {
            // BPF_F_XDP_HAS_FRAGS, BPF_XDP.
            Self::Xdp => (6, 1 << 5, 37),
            Self::Classifier => (3, 0, 0),
        }
    }
}

/// One instruction: `struct bpf_insn`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Insn {
    code: u8,
    registers: u8,
    pub(crate) offset: i16,
    immediate: i32,
}

/// Any instruction.
pub(crate) const fn insn(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn {
        code,
        registers: dst | src << 4,
        offset,
        immediate,
    }
}

/// `dst = src`
pub(crate) const fn copy(dst: u8, src: u8) -> Insn {
    insn(0xbf, dst, src, 0, 0)
}

/// `dst = immediate`
pub(crate) const fn set(dst: u8, immediate: i32) -> Insn {
    insn(0xb7, dst, 0, 0, immediate)
}

/// `dst -= src`
pub(crate) const fn subtract(dst: u8, src: u8) -> Insn {
    insn(0x1f, dst, src, 0, 0)
}

/// `dst = *(u32 *)(src + offset)`
pub(crate) const fn load(dst: u8, src: u8, offset: i16) -> Insn {
    insn(0x61, dst, src, offset, 0)
}

/// Calls the helper of this number.
pub(crate) const fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}

/// Returns what the first register holds.
pub(crate) const EXIT: Insn = insn(0x95, 0, 0, 0, 0);

/// Calls what stands in `table`, with the context in register 6, and ends the program.
pub(crate) fn call_on(table: &Table) -> [Insn; 7] {
    [
        copy(1, 6),
        insn(0x18, 2, 1, 0, table.0.as_raw_fd()),
        insn(0, 0, 0, 0, 0),
        set(3, 0),
        call(TAIL_CALL),
        set(0, 0),
        EXIT,
    ]
}

/// A table of one program, for tail calls.
pub(crate) struct Table(OwnedFd);

impl Table {
    /// An empty one.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new() -> io::Result<Self> {
        let create = MapCreate {
            map_type: TYPE_PROG_ARRAY,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
        };
        owned(bpf(MAP_CREATE, &create)?).map(Self)
    }

    /// Has it lead to this program.
    ///
    /// # Errors
    /// When the program is for another place.
    pub(crate) fn lead_to(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let (key, value) = (0_u32, program.as_raw_fd());
        let update = MapUpdate {
            map: self.0.as_raw_fd().cast_unsigned(),
            zero: 0,
            key: &raw const key as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &update).map(drop)
    }
}

/// What a series of runs was.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    /// Nanoseconds per run.
    pub(crate) ns: f64,
    /// What the last one returned.
    pub(crate) action: u32,
    /// The frame afterwards.
    pub(crate) frame: Vec<u8>,
}

/// Runs a program on a frame.
///
/// # Errors
/// What the kernel says.
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<Ran> {
    let mut out = vec![0_u8; frame.len() + 128];
    let mut test = TestRun {
        program: program.as_raw_fd().cast_unsigned(),
        action: 0,
        size_in: frame.len() as u32,
        size_out: out.len() as u32,
        frame_in: frame.as_ptr() as u64,
        frame_out: out.as_mut_ptr() as u64,
        repeat,
        ns: 0,
    };
    bpf(PROG_TEST_RUN, &mut test)?;
    out.truncate(test.size_out as usize);
    Ok(Ran {
        ns: f64::from(test.ns),
        action: test.action,
        frame: out,
    })
}

/// Loads a program.
///
/// # Errors
/// What the kernel says.
pub(crate) fn program(kind: Kind, code: &[Insn]) -> io::Result<OwnedFd> {
    let (prog_type, prog_flags, expected_attach_type) = kind.attributes();
    let load = ProgLoad {
        prog_type,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        prog_flags,
        expected_attach_type,
        ..ProgLoad::default()
    };
    owned(bpf(PROG_LOAD, &load)?)
}

/// `union bpf_attr`, as far as each command needs it; the kernel takes the rest as zero.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
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
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct TestRun {
    program: u32,
    action: u32,
    size_in: u32,
    size_out: u32,
    frame_in: u64,
    frame_out: u64,
    repeat: u32,
    ns: u32,
}

#[expect(unsafe_code, reason = "the descriptor comes as a number")]
fn owned(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the result of a successful BPF_MAP_CREATE or BPF_PROG_LOAD is a descriptor of ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "no loader takes instructions without an object")]
fn bpf<T>(command: libc::c_long, attributes: impl Into<Attributes<T>>) -> io::Result<i32> {
    let Attributes(attributes) = attributes.into();
    // SAFETY: `attributes` is one of the repr(C) structs above, alive during the call as is what
    // its addresses lead to, and its size is passed beside it; only TEST_RUN writes to it, which
    // comes by a unique reference.
    let made = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(made) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where a command's attributes lie.
struct Attributes<T>(*mut T);

impl<T> From<&T> for Attributes<T> {
    fn from(attributes: &T) -> Self {
        Self(std::ptr::from_ref(attributes).cast_mut())
    }
}

impl<T> From<&mut T> for Attributes<T> {
    fn from(attributes: &mut T) -> Self {
        Self(attributes)
    }
}
