//! Bounds of every table of the fast path, in one place.

/// Entries of `ADDRS`: local addresses that media or listeners are reached at, those of the
/// last minute included.
pub const ADDRESSES: u32 = 64;

/// Address slots of `MEDIA`: two links of two families, and the same again while addresses
/// change. Every slot costs eight bytes a port.
pub const ADDRESS_SLOTS: u32 = 8;

/// Media ports a gateway may have: all of them.
pub const MEDIA_PORTS_MAX: u32 = 65_536;

/// Entries of `PLANS` and `STATE` by default: two directions of RTP and RTCP for 4,096 calls of
/// two legs. A plan and its state cost 128 bytes.
pub const PLANS_DEFAULT: u32 = 32_768;

/// Entries of `PLANS` and `STATE` at most.
pub const PLANS_MAX: u32 = 2_097_152;

/// Entries of `FLOWS` by default (transparent mode).
pub const FLOWS_DEFAULT: u32 = 65_536;

/// Entries of `TALKS`: one per phone, each of which takes a group. Where nothing goes through
/// there is one entry.
pub const TALKS: u32 = GROUPS;

/// Bytes of a copied payload at most; a longer one is not copied, and counted as lost.
pub const COPY_PAYLOAD: u32 = 2_048;

/// Bytes of the ring of copies of talks that softswitches accepted; a power of two and of whole
/// pages.
pub const COPIES_BYTES: u32 = 4 << 20;

/// Bytes of the ring of copies of all other talks: who invents phones fills this one only.
pub const STRANGERS_BYTES: u32 = 256 << 10;

/// Bytes of either ring where nothing is copied: one page.
pub const NO_COPIES_BYTES: u32 = 4_096;

/// Entries of `GROUPS`: one per (egress link, next hop).
pub const GROUPS: u32 = 4_096;

/// Entries of `HOPS`; twice the groups, so that every group can be turned to a fresh hop.
pub const HOPS: u32 = 8_192;

/// Segments, each with a group behind those of flows.
pub const SEGMENTS: u32 = 16;

/// Tunnels of all segments together.
pub const TUNNELS: u32 = 64;

/// Hops of segments, behind those of flows: one a tunnel, and as many again for devices that are
/// made anew.
pub const SEGMENT_HOPS: u32 = 128;

/// Entries of `PORTS`: client sides and tunnels.
pub const PORTS: u32 = 128;

/// Clients remembered behind all segments together.
pub const CLIENT_MACS: u32 = 4_096;

/// Entries of `PATHS`: gates of keepalive answers.
pub const PATHS: u32 = 1_024;

/// Entries of `CLIENTS`: clients whose keepalives follow another path than their listener's.
pub const CLIENTS: u32 = 131_072;

/// Entries of `LISTENERS`.
pub const LISTENERS: u32 = 256;

/// Interfaces that carry the program, and devices it may redirect to.
pub const INTERFACES: u32 = 64;

/// Bytes of the ring of rare events; a power of two and of whole pages.
pub const EVENT_BYTES: u32 = 65_536;

/// Nanoseconds between two events of one reason.
pub const EVENT_GAP_NS: u64 = 100_000_000;

/// Attributes of a STUN request that the program walks over; longer lists go up.
pub const STUN_ATTRIBUTES: u32 = 16;

/// Bytes of a STUN request whose FINGERPRINT the program checks (2.7 ns each); longer ones go up.
pub const STUN_FINGERPRINT_BYTES: u32 = 256;
