//! Counters of what happened, and a ring of what happened rarely.

use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, PerCpuHashMap, RingBuf},
};
use keepline_common::{
    limits::{EVENT_BYTES, EVENT_GAP_NS, INTERFACES},
    reason::Reason,
    record::EventRecord,
};

use crate::parse::Datagram;

/// Packets per interface and reason, per CPU. The controller makes the entries.
#[map]
static COUNTERS: PerCpuHashMap<u32, [u64; Reason::COUNT]> =
    PerCpuHashMap::with_max_entries(INTERFACES, 0);

/// Rare events, as [`EventRecord`].
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(EVENT_BYTES, 0);

/// When a reason last made an event, in nanoseconds.
#[map]
static EVENT_TIMES: Array<u64> = Array::with_max_entries(Reason::COUNT as u32, 0);

/// Counts a packet. On an interface the controller does not know, nothing is counted.
#[inline(always)]
pub fn count(ifindex: u32, reason: Reason) {
    if let Some(counters) = COUNTERS.get_ptr_mut(&ifindex) {
        // SAFETY: this CPU's own copy of the entry, and XDP does not preempt itself.
        if let Some(counter) = unsafe { (*counters).get_mut(reason as usize) } {
            *counter += 1;
        }
    }
}

/// Tells the controller of something rare, at most once in [`EVENT_GAP_NS`] per reason. A full
/// ring loses the event; the counter stays.
#[inline(always)]
pub fn tell(datagram: &Datagram, reason: Reason, detail: u32) {
    let Some(last) = EVENT_TIMES.get_ptr_mut(reason as u32) else {
        return;
    };
    // SAFETY: no argument, no state: it reads a clock.
    let at = unsafe { bpf_ktime_get_ns() };
    // SAFETY: a value of the map; two CPUs at once cost one event more.
    unsafe {
        if at.wrapping_sub(*last) < EVENT_GAP_NS {
            return;
        }
        *last = at;
    }
    if let Some(mut entry) = EVENTS.reserve::<EventRecord>(0) {
        entry.write(EventRecord {
            at,
            ifindex: datagram.key.ifindex,
            reason: reason as u32,
            source: datagram.key.source,
            detail,
            port: u32::from(u16::from_be_bytes(datagram.key.destination_port)),
        });
        entry.submit(0);
    }
}
