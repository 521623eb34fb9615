//! Segments: a client-side interface joined at layer 2 to one tunnel of several (fastpath.md
//! section 5). In TC, where frames carry their offloads and pass whole: jumbo, GSO, tagged.

use aya_ebpf::{
    cty::c_long,
    helpers::generated::{bpf_ktime_get_ns, bpf_redirect},
    macros::map,
    maps::{Array, HashMap, LruHashMap},
    programs::TcContext,
};
use keepline_common::{
    limits::{CLIENT_MACS as CLIENT_MACS_MAX, PORTS as PORTS_MAX, TUNNELS as TUNNELS_MAX},
    reason::{Reason, Verdict},
    record::{ClientMac, ClientSeen, HOP_SEGMENT, PORT_CLIENT, Port},
};

use crate::{events, plans};

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

/// `TCX_NEXT`, and `TC_ACT_UNSPEC` of clsact: whoever comes next decides.
const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
const SHOT: i32 = 2;
/// `PACKET_HOST` of linux/if_packet.h: sent to the interface's own MAC address.
const TO_US: u32 = 0;
/// The port of DHCP clients.
const DHCP_CLIENT: [u8; 2] = [0, 68];
const UDP: u8 = 17;
/// EtherType of IPv4, and the first byte of a header without options.
const IPV4: [u8; 3] = [0x08, 0x00, 0x45];
/// EtherType of ARP.
const ARP: [u8; 2] = [0x08, 0x06];
/// Where a DHCP message names its client: behind Ethernet, IPv4 and UDP.
const DHCP_CHADDR: usize = 14 + 20 + 8 + 28;

/// Joins the frame on, and returns what TC wants to know.
#[inline(always)]
pub fn run(ctx: &TcContext) -> i32 {
    // SAFETY: the context is this run's.
    let ifindex = unsafe { (*ctx.skb.skb).ifindex };
    let (reason, out) = match cross(ctx, ifindex) {
        Ok(out) => (Reason::SegmentForwarded, out),
        Err(reason) => (reason, 0),
    };
    events::count(ifindex, reason);
    match reason.verdict() {
        // SAFETY: no pointer; a device that is gone drops the frame, and its hop is turned away.
        Verdict::Redirect => unsafe { bpf_redirect(out, 0) as c_long as i32 },
        Verdict::Drop => SHOT,
        Verdict::Pass | Verdict::Tx => NEXT,
    }
}

/// The policy. `Ok`: the device the frame leaves by. `Err`: why it stays.
#[inline(always)]
fn cross(ctx: &TcContext, ifindex: u32) -> Result<u32, Reason> {
    // SAFETY: entries are replaced whole, and this is a copy.
    let port = unsafe { PORTS.get(&ifindex) }
        .copied()
        .ok_or(Reason::SegmentUnknown)?;
    let from_client = port.role == PORT_CLIENT;
    // SAFETY: no argument, no state: it reads a clock. The only time this frame takes.
    let now = unsafe { bpf_ktime_get_ns() };
    if !from_client {
        if answers_probe(ctx, &port.probe) {
            return Err(Reason::SegmentLocal);
        }
        stamp(port.tunnel, now);
    }
    // SAFETY: the context is this run's.
    if unsafe { (*ctx.skb.skb).pkt_type } == TO_US {
        return Err(Reason::SegmentLocal);
    }
    let (index, hop) = plans::hop(port.group).map_err(|_| Reason::SegmentUnjoined)?;
    if hop.kind != HOP_SEGMENT {
        return Err(Reason::SegmentUnjoined);
    }
    if !from_client {
        // Only the tunnel that the segment is joined to may speak into it: so no frame returns
        // by another one, and none goes round.
        return if hop.ifindex == ifindex {
            Ok(port.client)
        } else {
            Err(Reason::SegmentInactive)
        };
    }
    if hop.ifindex == ifindex {
        return Err(Reason::SegmentLoop);
    }
    learn(ctx, port.group, now);
    plans::count_sent(index);
    Ok(hop.ifindex)
}

/// Whether the frame is a DHCP server's answer to the gateway's own probe: no traffic of clients
/// (signalling.md section 15), and none of their business.
#[inline(always)]
fn answers_probe(ctx: &TcContext, probe: &[u8; 6]) -> bool {
    // Headers with options never carry DHCP.
    ctx.load(12) == Ok(IPV4)
        && ctx.load(23) == Ok(UDP)
        && ctx.load(36) == Ok(DHCP_CLIENT)
        && ctx.load(DHCP_CHADDR) == Ok(*probe)
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
fn learn(ctx: &TcContext, group: u32, now: u64) {
    let Ok(mac) = ctx.load::<[u8; 6]>(6) else {
        return;
    };
    if mac[0] & 1 == 1 {
        return;
    }
    let [a, b] = (group as u16).to_be_bytes();
    let key = ClientMac { mac, group: [a, b] };
    let claimed = claimed(ctx);
    if let Some(seen) = CLIENT_MACS.get_ptr_mut(&key) {
        // SAFETY: fields of a map value, aligned words, that any CPU may write last.
        unsafe {
            (&raw mut (*seen).heard).write_volatile(now);
            if let Some(v4) = claimed {
                (&raw mut (*seen).v4).cast::<u32>().write_volatile(v4);
            }
        }
        return;
    }
    let seen = ClientSeen {
        heard: now,
        v4: claimed.unwrap_or(0).to_ne_bytes(),
        zero: [0; 4],
    };
    // A table that is busy learns from the next frame.
    let _ = CLIENT_MACS.insert(&key, &seen, 0);
}

/// The address that an ARP packet says its sender has, as it stands; a probe for duplicates
/// (RFC 5227) claims none.
#[inline(always)]
fn claimed(ctx: &TcContext) -> Option<u32> {
    if ctx.load(12) != Ok(ARP) {
        return None;
    }
    ctx.load::<[u8; 4]>(28)
        .ok()
        .map(u32::from_ne_bytes)
        .filter(|v4| *v4 != 0)
}
