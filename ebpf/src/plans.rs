//! Words lead to plans, plans to groups, groups to hops (fastpath.md section 1).

use aya_ebpf::{
    macros::map,
    maps::{Array, PerCpuArray},
};
use keepline_common::{
    limits::{GROUPS as GROUPS_MAX, HOPS as HOPS_MAX, PLANS_DEFAULT, SEGMENT_HOPS, SEGMENTS},
    reason::Reason,
    record::{FlowState, Hop, Plan, PlanWord},
};

use crate::atomic;

/// `BPF_F_MMAPABLE`: the controller stores words without a system call.
pub const MMAPABLE: u32 = 1 << 10;

/// One direction of one flow each; immutable while a word leads there.
#[map]
static PLANS: Array<Plan> = Array::with_max_entries(PLANS_DEFAULT, 0);

/// What is counted of the plan of the same slot.
#[map]
static STATE: Array<FlowState> = Array::with_max_entries(PLANS_DEFAULT, 0);

/// Words: the hop of each group; zero = unresolved. One store switches every flow of a group.
#[map]
static GROUPS: Array<u32> = Array::with_max_entries(GROUPS_MAX + SEGMENTS, MMAPABLE);

/// How datagrams leave; immutable while a word leads there.
#[map]
static HOPS: Array<Hop> = Array::with_max_entries(HOPS_MAX + SEGMENT_HOPS, 0);

/// Frames handed to each hop's device, per CPU.
#[map]
static SENT: PerCpuArray<u64> = PerCpuArray::with_max_entries(HOPS_MAX + SEGMENT_HOPS, 0);

/// A plan as the word that led to it meant it.
pub struct Found {
    /// The record.
    pub plan: &'static Plan,
    /// Its slot.
    pub slot: u32,
}

/// The plan a word leads to, if the slot still holds that generation.
#[inline(always)]
pub fn follow(word: PlanWord) -> Result<Found, Reason> {
    let plan = PLANS.get(word.slot).ok_or(Reason::PlanStale)?;
    if plan.generation != word.generation {
        return Err(Reason::PlanStale);
    }
    // The reference lives as long as the run: slots are reused only after a grace period.
    Ok(Found {
        plan,
        slot: word.slot,
    })
}

/// The hop a group points to at this moment, and its index.
#[inline(always)]
pub fn hop(group: u32) -> Result<(u32, &'static Hop), Reason> {
    let word = GROUPS.get_ptr(group).ok_or(Reason::HopUnresolved)?;
    // SAFETY: a value of the map, aligned; read once, since the controller may store meanwhile.
    let index = unsafe { word.read_volatile() };
    if index == 0 {
        return Err(Reason::HopUnresolved);
    }
    let hop = HOPS.get(index).ok_or(Reason::HopUnresolved)?;
    Ok((index, hop))
}

/// Counts a frame that was handed to a hop's device.
#[inline(always)]
pub fn count_sent(hop: u32) {
    if let Some(sent) = SENT.get_ptr_mut(hop) {
        // SAFETY: this CPU's own copy, and XDP does not preempt itself.
        unsafe { *sent += 1 }
    }
}

/// Counts a forwarded datagram.
#[inline(always)]
pub fn count_forwarded(slot: u32, bytes: u32, now: u64) {
    if let Some(state) = STATE.get_ptr_mut(slot) {
        // SAFETY: fields of a map value, eight bytes aligned; `last_seen` is a plain word that
        // any CPU may write last.
        unsafe {
            atomic::add(&raw mut (*state).packets, 1);
            atomic::add(&raw mut (*state).bytes, u64::from(bytes));
            (*state).last_seen = now;
        }
    }
}

/// Counts a datagram of another source than the plan's.
#[inline(always)]
pub fn count_foreign(slot: u32) {
    if let Some(state) = STATE.get_ptr_mut(slot) {
        // SAFETY: a field of a map value, eight bytes aligned.
        unsafe { atomic::add(&raw mut (*state).foreign, 1) }
    }
}
