//! Runs a program many times on one frame, which each run changes: a program of our own puts the
//! frame back as it was, then calls the one that is timed. What the loop, the putting back and
//! the call cost is timed the same way around a program that does nothing, and taken away.
//!
//! Both are a few instructions, written here: no object is built for them.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;

const TYPE_XDP: u32 = 6;
const TYPE_PROG_ARRAY: u32 = 3;
/// `BPF_XDP`: programs that call each other must be meant for the same place.
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`, for the same reason.
const HAS_FRAGS: u32 = 1 << 5;

const TAIL_CALL: i32 = 12;
const ADJUST_TAIL: i32 = 65;

/// Everything a run changes lies before this byte: no header we write ends beyond it.
const RESTORED: usize = 96;

/// One instruction: `struct bpf_insn`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn insn(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn {
        code,
        registers: dst | src << 4,
        offset,
        immediate,
    }
}

/// `dst = src`
const fn copy(dst: u8, src: u8) -> Insn {
    insn(0xbf, dst, src, 0, 0)
}

/// `dst = immediate`
const fn set(dst: u8, immediate: i32) -> Insn {
    insn(0xb7, dst, 0, 0, immediate)
}

/// `dst -= src`
const fn subtract(dst: u8, src: u8) -> Insn {
    insn(0x1f, dst, src, 0, 0)
}

/// `dst = *(u32 *)(src + offset)`
const fn load(dst: u8, src: u8, offset: i16) -> Insn {
    insn(0x61, dst, src, offset, 0)
}

const fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}

const EXIT: Insn = insn(0x95, 0, 0, 0, 0);

/// A program that puts one frame back and calls whatever stands in its table.
pub(super) struct Harness {
    program: OwnedFd,
    table: OwnedFd,
    idle: OwnedFd,
    frame: Vec<u8>,
}

/// What a series of runs was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    /// Nanoseconds per run, loop and putting back included.
    pub(super) ns: f64,
    /// What the last one returned.
    pub(super) action: u32,
}

impl Harness {
    /// A harness for `frame`.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn new(frame: &[u8]) -> io::Result<Self> {
        let table = table()?;
        Ok(Self {
            program: program(&restorer(frame, table.as_raw_fd()))?,
            table,
            idle: program(&[set(0, 2), EXIT])?,
            frame: frame.to_vec(),
        })
    }

    /// What `runs` runs of `timed` take.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn time(&self, timed: BorrowedFd<'_>, runs: u32) -> io::Result<Runs> {
        let (key, value) = (0_u32, timed.as_raw_fd());
        let update = MapUpdate {
            map: self.table.as_raw_fd().cast_unsigned(),
            zero: 0,
            key: &raw const key as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &update)?;
        let mut out = vec![0_u8; self.frame.len() + 128];
        let mut test = TestRun {
            program: self.program.as_raw_fd().cast_unsigned(),
            action: 0,
            size_in: self.frame.len() as u32,
            size_out: out.len() as u32,
            frame_in: self.frame.as_ptr() as u64,
            frame_out: out.as_mut_ptr() as u64,
            repeat: runs,
            ns: 0,
        };
        bpf(PROG_TEST_RUN, &mut test)?;
        Ok(Runs {
            ns: f64::from(test.ns),
            action: test.action,
        })
    }

    /// What `runs` runs take without any program to time.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn idle(&self, runs: u32) -> io::Result<f64> {
        use std::os::fd::AsFd as _;
        Ok(self.time(self.idle.as_fd(), runs)?.ns)
    }
}

/// Writes the bytes, sets the length, always by the same call, and calls on. In this order and by
/// eight bytes at once, so that the stores are done when the next program loads what they wrote:
/// a load that overlaps one in flight waits for it, which no packet from a device ever costs.
fn restorer(frame: &[u8], table: i32) -> Vec<Insn> {
    let changed = &frame[..frame.len().min(RESTORED)];
    let mut code = vec![
        copy(6, 1),
        load(7, 6, 4),
        load(2, 6, 0),
        copy(1, 2),
        insn(0x07, 1, 0, 0, changed.len() as i32),
        // To the end when the frame is shorter than it was made.
        insn(0x2d, 1, 7, 0, 0),
    ];
    let check = code.len() - 1;
    // The last eight bytes once more, where the length is no multiple.
    let last = changed.len() - 8;
    for at in (0..last).step_by(8).chain([last]) {
        let half =
            |half: usize| i32::from_ne_bytes(std::array::from_fn(|i| changed[at + half + i]));
        code.extend([
            insn(0x18, 1, 0, 0, half(0)),
            insn(0, 0, 0, 0, half(4)),
            insn(0x7b, 2, 1, at as i16, 0),
        ]);
    }
    code.extend([
        subtract(7, 2),
        set(2, frame.len() as i32),
        subtract(2, 7),
        copy(1, 6),
        call(ADJUST_TAIL),
        copy(1, 6),
        insn(0x18, 2, 1, 0, table),
        insn(0, 0, 0, 0, 0),
        set(3, 0),
        call(TAIL_CALL),
    ]);
    code[check].offset = (code.len() - check - 1) as i16;
    code.extend([set(0, 0), EXIT]);
    code
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

fn table() -> io::Result<OwnedFd> {
    let create = MapCreate {
        map_type: TYPE_PROG_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
    };
    owned(bpf(MAP_CREATE, &create)?)
}

fn program(code: &[Insn]) -> io::Result<OwnedFd> {
    let load = ProgLoad {
        prog_type: TYPE_XDP,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        prog_flags: HAS_FRAGS,
        expected_attach_type: ATTACH_XDP,
        ..ProgLoad::default()
    };
    owned(bpf(PROG_LOAD, &load)?)
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
