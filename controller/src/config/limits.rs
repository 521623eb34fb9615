//! What a configuration allows: how many calls, and what the tables for them cost.

use keepline_common::{
    limits::{ADDRESS_SLOTS, CLIENTS, GROUPS, HOPS, PATHS, PLANS_DEFAULT},
    record::{ClientKey, FlowState, Hop, Plan},
};

use super::model::Config;

/// RTP and RTCP of one leg.
const PORTS_PER_LEG: u32 = 2;
/// RTP and RTCP, each way.
const PLANS_PER_CALL: u32 = 4;
/// What the kernel adds to each element of a hash map (`struct htab_elem`, 48 bytes, and its
/// share of the buckets, 16).
const HASH_OVERHEAD: u64 = 64;

/// What a configuration allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Limits {
    /// Calls between a phone and a softswitch at a time.
    pub calls: u32,
    /// Bytes of kernel memory that the maps take, whether calls are up or not.
    pub map_bytes: u64,
}

/// The limits of a configuration.
#[must_use]
pub fn limits(config: &Config) -> Limits {
    let ports = u32::from(*config.media.ports.end() - *config.media.ports.start()) + 1;
    let by_media = (ports / PORTS_PER_LEG).min(PLANS_DEFAULT / PLANS_PER_CALL);
    Limits {
        // `max_calls` of a link is not enforced yet, so it bounds nothing.
        calls: by_media,
        map_bytes: map_bytes(ports),
    }
}

fn map_bytes(ports: u32) -> u64 {
    let words = u64::from(ADDRESS_SLOTS * ports + GROUPS + PATHS) * 8;
    let plans = u64::from(PLANS_DEFAULT) * (element::<Plan>() + element::<FlowState>());
    let hops = u64::from(HOPS) * element::<Hop>();
    let clients = u64::from(CLIENTS) * (element::<ClientKey>() + 8 + HASH_OVERHEAD);
    words + plans + hops + clients
}

/// Bytes of an array's element: the kernel rounds up to words.
const fn element<T>() -> u64 {
    (size_of::<T>() as u64).next_multiple_of(8)
}
