//! Segments: a client-side interface joined at layer 2 to one tunnel of several (fastpath.md
//! section 5). In TC, where frames carry their offloads and pass whole: jumbo, GSO, tagged.

use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap, LruHashMap},
};
use keepline_common::{
    limits::{CLIENT_MACS as CLIENT_MACS_MAX, PORTS as PORTS_MAX, TUNNELS as TUNNELS_MAX},
    reason::Reason,
    record::{ClientMac, ClientSeen, HOP_SEGMENT, PORT_CLIENT, Port},
};

use crate::{
    frame::Frame as _,
    parse::{self, ETHERNET, IPV6, TYPE_IPV6},
    plans,
    tc::SkbFrame,
};

/// The interfaces of segments, by their index: client sides and tunnels.
#[map]
static PORTS: HashMap<u32, Port> = HashMap::with_max_entries(PORTS_MAX, 0);

/// Words: when each tunnel last brought a frame, by the kernel's clock in nanoseconds.
#[map]
static INBOUND: Array<u64> = Array::with_max_entries(TUNNELS_MAX, plans::MMAPABLE);

/// Who lives behind the client side of each segment, and when it was last heard. The oldest are
/// forgotten: who invents addresses pushes out others, whose next frame brings them back.
#[map]
static CLIENT_MACS: LruHashMap<ClientMac, ClientSeen> =
    LruHashMap::with_max_entries(CLIENT_MACS_MAX, 0);

/// The port of DHCP clients.
const DHCP_CLIENT: [u8; 2] = [0, 68];
/// Where a DHCP message names its client.
const DHCP_CHADDR: u32 = 28;
/// Where an Ethernet header says who sent it.
const SOURCE: u32 = 6;
/// EtherType of ARP.
const ARP: [u8; 2] = [0x08, 0x06];
/// Where an ARP packet says what address its sender has.
const ARP_SENDER: u32 = 14;
/// ICMPv6, and the hop limit that no router lets pass.
const ICMPV6: u8 = 58;
const NEVER_ROUTED: u8 = 255;
/// Types of ICMPv6 (RFC 4861 section 4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Joins the frame on.
#[inline(always)]
pub fn run(frame: &mut SkbFrame) -> Reason {
    match cross(frame) {
        Ok(()) => Reason::SegmentForwarded,
        Err(reason) => reason,
    }
}

/// The rule of segments. `Ok`: the frame is on its way out. `Err`: why it stays.
#[inline(always)]
fn cross(frame: &mut SkbFrame) -> Result<(), Reason> {
    let ifindex = frame.ingress();
    // SAFETY: entries are replaced whole, and this is a copy.
    let port = unsafe { PORTS.get(&ifindex) }
        .copied()
        .ok_or(Reason::SegmentUnknown)?;
    let from_client = port.role == PORT_CLIENT;
    // SAFETY: no argument, no state: it reads a clock. The only time this frame takes.
    let now = unsafe { bpf_ktime_get_ns() };
    if !from_client {
        if answers_probe(frame, &port.probe) {
            return Err(Reason::SegmentLocal);
        }
        stamp(port.tunnel, now);
    }
    if frame.is_to_us() {
        return Err(Reason::SegmentLocal);
    }
    let (index, hop) = plans::hop(port.group).map_err(|_| Reason::SegmentUnjoined)?;
    if hop.kind != HOP_SEGMENT {
        return Err(Reason::SegmentUnjoined);
    }
    if !from_client {
        // Only the tunnel that the segment is joined to may speak into it: so no frame returns
        // by another one, and none goes round.
        if hop.ifindex != ifindex {
            return Err(Reason::SegmentInactive);
        }
        frame.leave_by(port.client);
        return Ok(());
    }
    if hop.ifindex == ifindex {
        return Err(Reason::SegmentLoop);
    }
    learn(frame, port.group, now);
    plans::count_sent(index);
    frame.leave_by(hop.ifindex);
    Ok(())
}

/// Whether the frame is a DHCP server's answer to the gateway's own probe: no traffic of clients
/// (signalling.md section 15), and none of their business.
#[inline(always)]
fn answers_probe(frame: &SkbFrame, probe: &[u8; 6]) -> bool {
    if frame.is_aggregate() {
        return false;
    }
    let Ok(datagram) = parse::parse_groups_too(frame) else {
        return false;
    };
    !datagram.v6
        && datagram.key.destination_port == DHCP_CLIENT
        && frame.read(datagram.payload() + DHCP_CHADDR) == Some(*probe)
}

#[inline(always)]
fn stamp(tunnel: u32, now: u64) {
    if let Some(stamp) = INBOUND.get_ptr_mut(tunnel) {
        // SAFETY: one aligned word of the map, that any CPU may write last.
        unsafe { stamp.write_volatile(now) }
    }
}

/// Remembers who sent the frame.
#[inline(always)]
fn learn(frame: &SkbFrame, group: u32, now: u64) {
    let Some(mac) = frame.read::<6>(SOURCE) else {
        return;
    };
    if mac[0] & 1 == 1 {
        return;
    }
    let [a, b] = (group as u16).to_be_bytes();
    let key = ClientMac { mac, group: [a, b] };
    let Some(known) = CLIENT_MACS.get_ptr_mut(&key) else {
        let mut seen = ClientSeen {
            heard: now,
            v4: [0; 4],
            router: [0; 4],
            v6: [0; 16],
        };
        match claimed(frame) {
            Claim::Nothing => {}
            Claim::V4(v4) => seen.v4 = v4.to_ne_bytes(),
            Claim::V6(v6, router) => {
                seen.v6 = v6;
                seen.router = router.unwrap_or(0).to_ne_bytes();
            }
        }
        // A table that is busy learns from the next frame.
        let _ = CLIENT_MACS.insert(&key, &seen, 0);
        return;
    };
    // SAFETY: fields of a map value, aligned words, that any CPU may write last; the IPv6 address
    // is never written in place.
    unsafe {
        (&raw mut (*known).heard).write_volatile(now);
        match claimed(frame) {
            Claim::Nothing => {}
            Claim::V4(v4) => (&raw mut (*known).v4).cast::<u32>().write_volatile(v4),
            Claim::V6(v6, router) => {
                if let Some(router) = router {
                    (&raw mut (*known).router)
                        .cast::<u32>()
                        .write_volatile(router);
                }
                if (*known).v6 != v6 {
                    let seen = ClientSeen { v6, ..*known };
                    let _ = CLIENT_MACS.insert(&key, &seen, 0);
                }
            }
        }
    }
}

/// What a frame says about its sender.
enum Claim {
    Nothing,
    /// The IPv4 address it has, as it stands.
    V4(u32),
    /// The IPv6 address it has, and whether it says that it is a router.
    V6([u8; 16], Option<u32>),
}

/// What the frame claims: by ARP, but for a probe for duplicates (RFC 5227), or by neighbour
/// discovery (RFC 4861), but from no address.
#[inline(always)]
fn claimed(frame: &SkbFrame) -> Claim {
    let Ok(tags) = frame.tags() else {
        return Claim::Nothing;
    };
    let at = ETHERNET + tags.bytes;
    match tags.ether_type {
        ARP => match frame.read::<4>(at + ARP_SENDER).map(u32::from_ne_bytes) {
            Some(v4) if v4 != 0 => Claim::V4(v4),
            _ => Claim::Nothing,
        },
        TYPE_IPV6 => discovery(frame, at),
        _ => Claim::Nothing,
    }
}

/// Neighbour discovery is never routed: who sends it lives here.
#[inline(always)]
fn discovery(frame: &SkbFrame, at: u32) -> Claim {
    if frame.read(at + 6) != Some([ICMPV6, NEVER_ROUTED]) {
        return Claim::Nothing;
    }
    let Some([kind, _, _, _, flags]) = frame.read(at + IPV6) else {
        return Claim::Nothing;
    };
    let router = match kind {
        ROUTER_SOLICITATION | NEIGHBOUR_SOLICITATION => None,
        ROUTER_ADVERTISEMENT => Some(1),
        NEIGHBOUR_ADVERTISEMENT => Some(u32::from(flags >> 7)),
        _ => return Claim::Nothing,
    };
    match frame.read::<16>(at + 8) {
        Some(from) if from[0] != 0 && from[0] != 0xff => Claim::V6(from, router),
        _ => Claim::Nothing,
    }
}
