//! Runs a program many times on one frame, which each run changes: a program of our own puts the
//! frame back as it was, then calls the one that is timed. What the loop, the putting back and
//! the call cost is timed the same way around a program that does nothing, and taken away.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use crate::bpf::{
    EXIT, Insn, Kind, Ran, Table, call, call_on, copy, insn, load, program, run, set, subtract,
};

const ADJUST_TAIL: i32 = 65;

/// Everything a run changes lies before this byte: no header we write ends beyond it.
const RESTORED: usize = 96;

/// A program that puts one frame back and calls whatever stands in its table.
pub(super) struct Harness {
    program: OwnedFd,
    table: Table,
    idle: OwnedFd,
    frame: Vec<u8>,
}

impl Harness {
    /// A harness for `frame`.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn new(frame: &[u8]) -> io::Result<Self> {
        let table = Table::new()?;
        Ok(Self {
            program: program(Kind::Xdp, &restorer(frame, &table))?,
            table,
            idle: program(Kind::Xdp, &[set(0, 2), EXIT])?,
            frame: frame.to_vec(),
        })
    }

    /// What `runs` runs of `timed` take, loop and putting back included.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn time(&self, timed: BorrowedFd<'_>, runs: u32) -> io::Result<Ran> {
        self.table.lead_to(timed)?;
        run(self.program.as_fd(), &self.frame, runs)
    }

    /// What `runs` runs take without any program to time.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn idle(&self, runs: u32) -> io::Result<f64> {
        Ok(self.time(self.idle.as_fd(), runs)?.ns)
    }
}

/// Writes the bytes, sets the length, always by the same call, and calls on. In this order and by
/// eight bytes at once, so that the stores are done when the next program loads what they wrote:
/// a load that overlaps one in flight waits for it, which no packet from a device ever costs.
fn restorer(frame: &[u8], table: &Table) -> Vec<Insn> {
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
    ]);
    code.extend(call_on(table));
    code[check].offset = (code.len() - 2 - check - 1) as i16;
    code
}
