//! The shape of every map, and the comparison of pinned maps with it. The loader takes up a
//! pinned map of another shape without an error, and the kernel then writes past its buffers:
//! so nothing is opened that was not compared (fastpath.md section 6).

use std::path::Path;

use aya::maps::{MapInfo, MapType};
use keepline_common::{
    limits::{
        ADDRESS_SLOTS, ADDRESSES, CLIENT_MACS, CLIENTS, COPIES_BYTES, EVENT_BYTES, GROUPS, HOPS,
        INTERFACES, LISTENERS, NO_COPIES_BYTES, PATHS, PORTS, SEGMENT_HOPS, SEGMENTS,
        STRANGERS_BYTES, TALKS, TUNNELS,
    },
    reason::Reason,
    record::{
        Address, ClientKey, ClientMac, ClientSeen, FlowKey, FlowState, Hop, Listener, ListenerKey,
        Plan, Port, TalkState,
    },
};

use super::{Error, error::chain, object::Sizes};

/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// What a map must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Its name, in the object and as a pin.
    pub name: &'static str,
    /// Its type.
    pub kind: MapType,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Entries.
    pub entries: u32,
    /// Creation flags.
    pub flags: u32,
}

/// Every map of the object.
#[must_use]
pub fn shapes(sizes: &Sizes) -> [Shape; 23] {
    use MapType::{Array, DevMapHash, Hash, LruHash, PerCpuArray, PerCpuHash, RingBuf};
    let index = size_of::<u32>();
    let word = size_of::<u64>();
    let counters = size_of::<[u64; Reason::COUNT]>();
    let (talks, copies, strangers) = match sizes.transparent {
        true => (TALKS, COPIES_BYTES, STRANGERS_BYTES),
        false => (1, NO_COPIES_BYTES, NO_COPIES_BYTES),
    };
    [
        shape("ADDRS", Hash, size_of::<Address>(), index, ADDRESSES, 0),
        shape("OURS", Array, index, word, 1, MMAPABLE),
        shape("MEDIA", Array, index, word, sizes.media_words(), MMAPABLE),
        shape("PLANS", Array, index, size_of::<Plan>(), sizes.plans, 0),
        shape(
            "STATE",
            Array,
            index,
            size_of::<FlowState>(),
            sizes.plans,
            0,
        ),
        shape("GROUPS", Array, index, index, GROUPS + SEGMENTS, MMAPABLE),
        shape(
            "HOPS",
            Array,
            index,
            size_of::<Hop>(),
            HOPS + SEGMENT_HOPS,
            0,
        ),
        shape("SENT", PerCpuArray, index, word, HOPS + SEGMENT_HOPS, 0),
        shape("FLOWS", Hash, size_of::<FlowKey>(), word, sizes.flows, 0),
        shape("TALKS", Array, index, size_of::<TalkState>(), talks, 0),
        shape("COPIES", RingBuf, 0, 0, copies, 0),
        shape("STRANGERS", RingBuf, 0, 0, strangers, 0),
        shape("LOST", Array, index, word, 2, MMAPABLE),
        shape(
            "LISTENERS",
            Hash,
            size_of::<ListenerKey>(),
            size_of::<Listener>(),
            LISTENERS,
            0,
        ),
        shape("CLIENTS", Hash, size_of::<ClientKey>(), index, CLIENTS, 0),
        shape("PATHS", Array, index, word, PATHS, MMAPABLE),
        shape("DEVICES", DevMapHash, index, word, INTERFACES, 0),
        shape("COUNTERS", PerCpuHash, index, counters, INTERFACES, 0),
        shape("PORTS", Hash, index, size_of::<Port>(), PORTS, 0),
        shape("INBOUND", Array, index, word, TUNNELS, MMAPABLE),
        shape(
            "CLIENT_MACS",
            LruHash,
            size_of::<ClientMac>(),
            size_of::<ClientSeen>(),
            CLIENT_MACS,
            0,
        ),
        shape("EVENTS", RingBuf, 0, 0, EVENT_BYTES, 0),
        shape("EVENT_TIMES", Array, index, word, Reason::COUNT as u32, 0),
    ]
}

const fn shape(
    name: &'static str,
    kind: MapType,
    key: usize,
    value: usize,
    entries: u32,
    flags: u32,
) -> Shape {
    Shape {
        name,
        kind,
        key: key as u32,
        value: value as u32,
        entries,
        flags,
    }
}

/// Compares what is pinned in `directory` with what this version makes. A pin that is absent is
/// no fault: the loader makes it.
///
/// # Errors
/// [`Error::Layout`] names the first map that differs, and how.
pub fn check(directory: &Path, sizes: &Sizes) -> Result<(), Error> {
    shapes(sizes)
        .iter()
        .try_for_each(|shape| check_one(directory, shape))
}

/// The sizes that the maps in `directory` were made with, when all of them are there and could
/// be this version's with other options; the first media port is not to be read from them.
pub(super) fn pinned_sizes(directory: &Path) -> Option<Sizes> {
    let entries = |name: &str| {
        let info = MapInfo::from_pin(directory.join(name)).ok()?;
        Some(info.max_entries())
    };
    let sizes = Sizes {
        media_first: 1,
        media_ports: entries("MEDIA")? / ADDRESS_SLOTS,
        plans: entries("PLANS")?,
        flows: entries("FLOWS")?,
        transparent: entries("TALKS")? != 1,
    };
    let here = |shape: &Shape| directory.join(shape.name).exists();
    let whole = shapes(&sizes).iter().all(here) && check(directory, &sizes).is_ok();
    whole.then_some(sizes)
}

/// Compares one pin.
///
/// # Errors
/// As [`check`].
pub fn check_one(directory: &Path, shape: &Shape) -> Result<(), Error> {
    let path = directory.join(shape.name);
    if !path.exists() {
        return Ok(());
    }
    let unreadable = |error: &dyn std::error::Error| Error::Layout {
        path: path.clone(),
        difference: format!("it cannot be read as a map: {}", chain(error)),
    };
    let info = MapInfo::from_pin(&path).map_err(|error| unreadable(&error))?;
    let kind = info.map_type().map_err(|error| unreadable(&error))?;
    let differs = |what: &str, theirs: &dyn std::fmt::Debug, ours: &dyn std::fmt::Debug| {
        let difference = format!("{what} {theirs:?}, not {ours:?}");
        Err(Error::Layout {
            path: path.clone(),
            difference,
        })
    };
    if kind != shape.kind {
        return differs("type", &kind, &shape.kind);
    }
    for (what, theirs, ours) in [
        ("key size", info.key_size(), shape.key),
        ("value size", info.value_size(), shape.value),
        ("entries", info.max_entries(), shape.entries),
        // The kernel adds flags of its own to a devmap (read-only for programs).
        ("flags", info.map_flags() & MMAPABLE, shape.flags),
    ] {
        if theirs != ours {
            return differs(what, &theirs, &ours);
        }
    }
    Ok(())
}
