//! Keys and values of the maps (fastpath.md section 1): plain integers in the machine's order,
//! or byte arrays in network order; no padding, so that keys compare and hash as bytes.
//!
//! ```text
//! MEDIA[address slot × ports + port − first] ─┐ word (slot, generation)
//!                                             ├─► PLANS[slot] ─► GROUPS[group] ─► HOPS[index]
//! FLOWS{key} ─────────────────────────────────┘ record             word             record
//! TALKS[talk] stamps of SIP between a phone and its softswitch, two flows of FLOWS
//! STATE[slot]        ADDRS{address} ─► address slot    OURS word: a filter before ADDRS
//! LISTENERS{address, port} ─► listener, path    CLIENTS{address, port, listener} ─► path
//! PATHS[path] word (see `gate`)
//! ```
//! A record is immutable while a word leads to it.

/// An IPv6 address, or an IPv4 address mapped into one (`::ffff:a.b.c.d`), in network order.
pub type Address = [u8; 16];

/// The first bytes of a mapped IPv4 address.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// `address` mapped into an IPv6 address.
#[inline(always)]
#[must_use]
pub const fn mapped(address: [u8; 4]) -> Address {
    let mut out = [0; 16];
    let mut at = 0;
    while at < 12 {
        out[at] = MAPPED[at];
        at += 1;
    }
    while at < 16 {
        out[at] = address[at - 12];
        at += 1;
    }
    out
}

/// The IPv4 address that `address` is a mapping of, if it is one.
#[inline(always)]
#[must_use]
pub fn unmapped(address: &Address) -> Option<[u8; 4]> {
    let [a @ .., b, c, d, e] = *address;
    (a == MAPPED).then_some([b, c, d, e])
}

/// The bit of `OURS` that stands for `address`: none of our addresses has it = not ours. Saves
/// looking up nearly every stranger.
#[inline(always)]
#[must_use]
pub const fn address_bit(address: &Address) -> u64 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *address;
    let words = u32::from_ne_bytes([a, b, c, d])
        ^ u32::from_ne_bytes([e, f, g, h])
        ^ u32::from_ne_bytes([i, j, k, l])
        ^ u32::from_ne_bytes([m, n, o, p]);
    // Fibonacci hashing: the six highest bits of the product.
    1 << (words.wrapping_mul(0x9e37_79b9) >> 26)
}

/// Declares a record of the kernel boundary with its size, zero-copy on the controller's side.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident, $size:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "user", derive(bytemuck::Pod, bytemuck::Zeroable))]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)+
        }

        const _: () = assert!(size_of::<$name>() == $size, "the layout is part of the ABI");
        // No padding: the fields fill the record.
        const _: () = assert!(0 $(+ size_of::<$type>())+ == $size, "a record has a hole");
    };
}

record! {
    /// Key of `FLOWS`, and what a plan accepts.
    FlowKey, 40 {
        /// Where the datagram comes from.
        source: Address,
        /// Where it is sent to; for anchored media the address *slot*, never an address
        /// ([`FlowKey::anchored`]), so that a change of address changes no plan.
        destination: Address,
        /// Port it comes from.
        source_port: [u8; 2],
        /// Port it is sent to.
        destination_port: [u8; 2],
        /// Index of the interface it arrives at.
        ifindex: u32,
    }
}

impl FlowKey {
    /// The key of media that is addressed to us: `slot` stands for our address.
    #[inline(always)]
    #[must_use]
    pub const fn anchored(
        source: Address,
        source_port: [u8; 2],
        slot: u32,
        port: [u8; 2],
        ifindex: u32,
    ) -> Self {
        let [a, b, c, d] = slot.to_be_bytes();
        let destination = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d];
        Self {
            source,
            destination,
            source_port,
            destination_port: port,
            ifindex,
        }
    }
}

record! {
    /// Value of `PLANS`: one direction of one flow.
    Plan, 84 {
        /// What it accepts; compared after the fetch, as `generation` is.
        key: FlowKey,
        /// The generation of the word that leads here.
        generation: u32,
        /// Index into `GROUPS`.
        group: u32,
        /// Where its datagrams go.
        to: Address,
        /// Port they go to.
        to_port: [u8; 2],
        /// Port they leave from.
        from_port: [u8; 2],
        /// VLAN identifiers they arrive with, from the outside in; 0 = none.
        vlan: [[u8; 2]; 2],
        /// Which payloads are forwarded: a set of [`crate::classify::Class`]. Of a flow of
        /// `FLOWS` all are.
        classes: u32,
        /// Index into `TALKS` of what it is a direction of; 0 for media.
        talk: u32,
        /// Whose datagrams they are: [`PARTY_PHONE`] or [`PARTY_SERVER`]; 0 for media.
        party: u32,
    }
}

/// [`Plan::party`]: a phone's, to its softswitch.
pub const PARTY_PHONE: u32 = 1;
/// [`Plan::party`]: a softswitch's, to a phone.
pub const PARTY_SERVER: u32 = 2;

record! {
    /// Value of `TALKS`: when SIP of a talk was routed, by the kernel's monotonic clock, in
    /// nanoseconds; 0 = never. Each field is a word of its own.
    TalkState, 24 {
        /// The phone's last request but ACK.
        request: u64,
        /// The softswitch's last response.
        response: u64,
        /// The phone's oldest request but ACK that no response came after.
        unanswered: u64,
    }
}

record! {
    /// What a copy begins with, in either ring; [`crate::limits::COPY_PAYLOAD`] bytes follow, of
    /// which `len` count.
    CopyHead, 16 {
        /// When, by the kernel's monotonic clock, in nanoseconds.
        at: u64,
        /// [`Plan::talk`] of the flow.
        talk: u32,
        /// [`Plan::party`] of the flow.
        party: u16,
        /// Bytes of the payload.
        len: u16,
    }
}

record! {
    /// Value of `HOPS`: how datagrams leave. The address they leave from stands here, so that
    /// neither keys nor plans hold one.
    Hop, 64 {
        /// Device they leave by.
        ifindex: u32,
        /// Largest IP packet, in bytes.
        mtu: u32,
        /// The address imposed as their source.
        source: Address,
        /// The router or neighbour: for people and for the controller's restart.
        next_hop: Address,
        /// Destination and source MAC addresses, as they stand in the frame.
        macs: [u8; 12],
        /// VLAN tags, as they stand in the frame: two of TPID and TCI.
        tags: [u8; 8],
        /// Bytes of `tags` in use: 0, 4 or 8.
        tag_bytes: u16,
        /// What kind of hop it is: a [`HOP_FORWARD`] or [`HOP_LOCAL`].
        kind: u16,
    }
}

/// [`Hop::kind`]: datagrams can be sent.
pub const HOP_FORWARD: u16 = 1;
/// [`Hop::kind`]: the destination is this machine.
pub const HOP_LOCAL: u16 = 2;
/// [`Hop::kind`]: a segment's tunnel; only the device counts.
pub const HOP_SEGMENT: u16 = 3;

record! {
    /// Value of `PORTS`: an interface of a segment.
    Port, 24 {
        /// The segment's index into `GROUPS`.
        group: u32,
        /// [`PORT_CLIENT`] or [`PORT_TUNNEL`].
        role: u32,
        /// A tunnel's index into `INBOUND`.
        tunnel: u32,
        /// Index of the device of the client side.
        client: u32,
        /// The MAC address that probes of this tunnel ask for; zero = none.
        probe: [u8; 6],
        /// Zero; makes the record whole words.
        zero: [u8; 2],
    }
}

/// [`Port::role`]: where the clients are.
pub const PORT_CLIENT: u32 = 1;
/// [`Port::role`]: a tunnel.
pub const PORT_TUNNEL: u32 = 2;

record! {
    /// Key of `CLIENT_MACS`.
    ClientMac, 8 {
        /// The client's MAC address.
        mac: [u8; 6],
        /// The segment's group, in network order.
        group: [u8; 2],
    }
}

record! {
    /// Value of `CLIENT_MACS`; each field but the last is a word of its own, and with another
    /// IPv6 address the whole is replaced.
    ClientSeen, 32 {
        /// When it was last heard, by the kernel's monotonic clock, in nanoseconds.
        heard: u64,
        /// The IPv4 address it last claimed by ARP; zero = none yet.
        v4: [u8; 4],
        /// Not zero: it said by neighbour discovery that it is a router.
        router: [u8; 4],
        /// The IPv6 address it last spoke from in neighbour discovery; zero = none yet.
        v6: [u8; 16],
    }
}

record! {
    /// Value of `STATE`: what the program counts of a plan.
    FlowState, 32 {
        /// Datagrams forwarded.
        packets: u64,
        /// Their UDP payload, in bytes.
        bytes: u64,
        /// When the last one was, by the kernel's monotonic clock, in nanoseconds.
        last_seen: u64,
        /// Datagrams of another source.
        foreign: u64,
    }
}

record! {
    /// Key of `LISTENERS`.
    ListenerKey, 20 {
        /// The listener's address.
        address: Address,
        /// Its port.
        port: [u8; 2],
        /// Zero; makes the key whole words, which hash faster.
        zero: [u8; 2],
    }
}

record! {
    /// Value of `LISTENERS`.
    Listener, 8 {
        /// Its number, as in [`ClientKey::listener`].
        listener: u32,
        /// The path of clients that are not in `CLIENTS`.
        path: u32,
    }
}

record! {
    /// Key of `CLIENTS`.
    ClientKey, 20 {
        /// The client's address.
        address: Address,
        /// The client's port.
        port: [u8; 2],
        /// The listener's number, in network order.
        listener: [u8; 2],
    }
}

record! {
    /// What the ring of rare events carries.
    EventRecord, 40 {
        /// When, by the kernel's monotonic clock, in nanoseconds.
        at: u64,
        /// Interface the packet arrived at.
        ifindex: u32,
        /// The [`crate::reason::Reason`]'s number.
        reason: u32,
        /// The packet's source.
        source: Address,
        /// A number that goes with the reason: the group, the hop's ifindex, or zero.
        detail: u32,
        /// The packet's destination port, in the low half.
        port: u32,
    }
}

/// A word of `MEDIA` or `FLOWS`: where a plan lies, and which generation of it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanWord {
    /// Index into `PLANS`.
    pub slot: u32,
    /// Never zero.
    pub generation: u32,
}

impl PlanWord {
    /// The word as it stands in the map.
    #[inline(always)]
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The meaning of a word from a map; zero means nothing.
    #[inline(always)]
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Self> {
        let generation = (word >> 32) as u32;
        if generation == 0 {
            return None;
        }
        Some(Self {
            slot: word as u32,
            generation,
        })
    }
}

/// A word of `FLOWS`: a [`PlanWord`] whose slot leaves room for how its flow stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowWord {
    /// Where its plan lies; slots are below 2^30.
    pub plan: PlanWord,
    /// Its datagrams are left to the gateway's socket.
    pub up: bool,
    /// No softswitch has accepted it: its copies go to the strangers' ring.
    pub stranger: bool,
}

impl FlowWord {
    const UP: u64 = 1 << 31;
    const STRANGER: u64 = 1 << 30;

    /// The word as it stands in the map.
    #[must_use]
    pub const fn pack(self) -> u64 {
        let up = if self.up { Self::UP } else { 0 };
        let stranger = if self.stranger { Self::STRANGER } else { 0 };
        self.plan.pack() | up | stranger
    }

    /// The meaning of a word from the map; generation 0 means nothing.
    #[inline(always)]
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Self> {
        let Some(plan) = PlanWord::unpack(word & !(Self::UP | Self::STRANGER)) else {
            return None;
        };
        Some(Self {
            plan,
            up: word & Self::UP != 0,
            stranger: word & Self::STRANGER != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn mapping_an_address_and_back_loses_nothing(address: [u8; 4]) {
            prop_assert_eq!(unmapped(&mapped(address)), Some(address));
        }

        #[test]
        fn plan_words_survive_packing(slot: u32, generation in 1_u32..) {
            let word = PlanWord { slot, generation };
            prop_assert_eq!(PlanWord::unpack(word.pack()), Some(word));
        }

        #[test]
        fn flow_words_survive_packing(
            slot in 0_u32..1 << 30, generation in 1_u32.., up: bool, stranger: bool,
        ) {
            let plan = PlanWord { slot, generation };
            let word = FlowWord { plan, up, stranger };
            prop_assert_eq!(FlowWord::unpack(word.pack()), Some(word));
            prop_assert_eq!(FlowWord::unpack(plan.pack()).map(|word| word.plan), Some(plan));
        }

        #[test]
        fn generation_zero_is_no_plan(slot: u32) {
            prop_assert_eq!(PlanWord::unpack(u64::from(slot)), None);
        }
    }

    #[test]
    fn an_ipv6_address_is_not_unmapped() {
        assert_eq!(unmapped(&core::net::Ipv6Addr::LOCALHOST.octets()), None);
    }

    #[test]
    fn an_anchored_key_never_equals_a_transparent_one() {
        let key = FlowKey::anchored(mapped([192, 0, 2, 1]), [0, 1], 7, [0, 2], 3);
        assert_eq!(
            unmapped(&key.destination),
            None,
            "a slot is no IPv4 address"
        );
    }
}
