//! Forwarding: everything is checked, then the redirect is armed, then the headers are written.

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use keepline_common::{
    checksum::{Sum, edit},
    reason::Reason,
    record::{Address, HOP_FORWARD, HOP_LOCAL, Hop, Plan, unmapped},
};

use crate::{
    events,
    frame::{Ethernet, Frame, Readdressed},
    parse::{Datagram, ETHERNET, IPV4, IPV6, PROTOCOL_UDP, TYPE_IPV4, TYPE_IPV6},
    plans::{self, Found},
};

/// IPv4's don't-fragment flag, for headers that are made anew.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];

/// Sends a datagram on by its plan; any reason not to leaves it as it came.
#[inline(always)]
pub fn forward<F: Frame>(
    frame: &mut F,
    datagram: &Datagram,
    found: &Found,
) -> Result<Reason, Reason> {
    let plan = found.plan;
    let (index, hop) = plans::hop(plan.group).inspect_err(|reason| {
        events::tell(datagram, *reason, plan.group);
    })?;
    let out = Out::new(datagram, plan, hop)?;
    if !frame.redirect_to(hop.ifindex) {
        events::tell(datagram, Reason::NoDevice, hop.ifindex);
        return Err(Reason::NoDevice);
    }
    // Of an IPv4 header that stays, identification and flags stay too, and with them the rest of
    // the checksum.
    let old_check = frame.read(datagram.l3() + 10).ok_or(Reason::Truncated)?;
    let growth = out.l4 as i32 - datagram.l4() as i32;
    if !frame.dress(datagram, &out.ethernet(hop), growth) {
        return Err(Reason::NoRoom);
    }
    // Cannot fail: the frame holds at least what was read before, moved by `growth`.
    out.write(frame, datagram, plan, hop, old_check)
        .ok_or(Reason::NoRoom)?;
    // SAFETY: no argument, no state: it reads a clock. The only time this packet takes.
    let now = unsafe { bpf_ktime_get_ns() };
    plans::count_forwarded(found.slot, datagram.payload_len(), now);
    plans::count_sent(index);
    Ok(Reason::FlowForwarded)
}

/// Where the headers of the frame that leaves will stand.
struct Out {
    /// Length of the VLAN tags.
    tag_bytes: u32,
    /// IPv4 addresses it leaves with; `None` when it leaves as IPv6.
    v4: Option<([u8; 4], [u8; 4])>,
    /// Where its IP header begins.
    l3: u32,
    /// Where its UDP header begins.
    l4: u32,
}

impl Out {
    /// Checks everything that can be checked without a write.
    #[inline(always)]
    fn new(datagram: &Datagram, plan: &Plan, hop: &Hop) -> Result<Self, Reason> {
        match hop.kind {
            HOP_FORWARD => {}
            HOP_LOCAL => return Err(Reason::HopLocal),
            _ => return Err(Reason::HopUnresolved),
        }
        let (v4, header) = match (unmapped(&hop.source), unmapped(&plan.to)) {
            (Some(from), Some(to)) => (Some((from, to)), IPV4),
            (None, None) => (None, IPV6),
            _ => return Err(Reason::HopFamily),
        };
        if header + datagram.udp_len > hop.mtu {
            return Err(Reason::TooBig);
        }
        if datagram.ttl <= 1 {
            return Err(Reason::TtlExpired);
        }
        if datagram.check == [0; 2] && (datagram.v6 || v4.is_none()) {
            return Err(Reason::UdpUnchecked);
        }
        let tag_bytes = match hop.tag_bytes {
            0 => 0,
            4 => 4,
            _ => 8,
        };
        let l3 = ETHERNET + tag_bytes;
        Ok(Self {
            tag_bytes,
            v4,
            l3,
            l4: l3 + header,
        })
    }

    #[inline(always)]
    fn write<F: Frame>(
        &self,
        frame: &mut F,
        datagram: &Datagram,
        plan: &Plan,
        hop: &Hop,
        old_check: [u8; 2],
    ) -> Option<()> {
        match (datagram.v6, self.v4) {
            (false, Some((from, to))) => {
                let (old_from, old_to) =
                    (tail(&datagram.key.source), tail(&datagram.key.destination));
                let check = edit(old_check)
                    .without_word([datagram.ttl, PROTOCOL_UDP])
                    .word([datagram.ttl - 1, PROTOCOL_UDP])
                    .without_dword(old_from)
                    .dword(from)
                    .without_dword(old_to)
                    .dword(to)
                    .checksum();
                write_ipv4_tail(frame, self.l3, datagram.ttl - 1, check, from, to)?;
            }
            // Traffic class and flow label stay: only the tail is written.
            (true, None) => {
                let ttl = datagram.ttl - 1;
                write_ipv6_tail(frame, self.l3, ttl, &hop.source, &plan.to)?;
            }
            (true, Some((from, to))) => {
                let (tos, ttl) = (datagram.tos, datagram.ttl - 1);
                write_ipv4(frame, self.l3, tos, ttl, datagram.udp_len, from, to)?;
            }
            (false, None) => {
                let (tos, ttl) = (datagram.tos, datagram.ttl - 1);
                let len = datagram.udp_len;
                write_ipv6(frame, self.l3, tos, ttl, len, &hop.source, &plan.to)?;
            }
        }
        self.write_udp(frame, datagram, plan, hop)
    }

    #[inline(always)]
    fn ethernet<'a>(&self, hop: &'a Hop) -> Ethernet<'a> {
        Ethernet {
            macs: &hop.macs,
            tags: &hop.tags,
            tag_bytes: self.tag_bytes,
            ether_type: if self.v4.is_some() {
                TYPE_IPV4
            } else {
                TYPE_IPV6
            },
        }
    }

    #[inline(always)]
    fn write_udp<F: Frame>(
        &self,
        frame: &mut F,
        datagram: &Datagram,
        plan: &Plan,
        hop: &Hop,
    ) -> Option<()> {
        let [a, b] = plan.from_port;
        let [c, d] = plan.to_port;
        let ports = [a, b, c, d];
        if datagram.check == [0; 2] {
            return frame.readdress_udp(self.l4, ports, None);
        }
        let change = Readdressed {
            check: datagram.check,
            was: &datagram.key,
            hop,
            plan,
        };
        frame.readdress_udp(self.l4, ports, Some(&change))
    }
}

/// The IPv4 address at the end of a mapped one.
#[inline(always)]
fn tail(address: &Address) -> [u8; 4] {
    let [.., a, b, c, d] = *address;
    [a, b, c, d]
}

/// Everything of an IPv4 header from the TTL on.
#[inline(always)]
fn write_ipv4_tail<F: Frame>(
    frame: &mut F,
    at: u32,
    ttl: u8,
    check: [u8; 2],
    [a, b, c, d]: [u8; 4],
    [e, f, g, h]: [u8; 4],
) -> Option<()> {
    let tail = [
        ttl,
        PROTOCOL_UDP,
        check[0],
        check[1],
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
    ];
    frame.write(at + 8, tail)
}

/// A whole IPv4 header (RFC 7915 section 5.1 for the fields IPv6 has no match for).
#[inline(always)]
pub fn write_ipv4<F: Frame>(
    frame: &mut F,
    at: u32,
    tos: u8,
    ttl: u8,
    payload: u32,
    from: [u8; 4],
    to: [u8; 4],
) -> Option<()> {
    let [l0, l1] = ((IPV4 + payload) as u16).to_be_bytes();
    let [f0, f1] = DONT_FRAGMENT;
    let check = Sum::new()
        .dword([0x45, tos, l0, l1])
        .dword([0, 0, f0, f1])
        .word([ttl, PROTOCOL_UDP])
        .dword(from)
        .dword(to)
        .checksum();
    frame.write(at, [0x45, tos, l0, l1, 0, 0, f0, f1])?;
    write_ipv4_tail(frame, at, ttl, check, from, to)
}

/// A whole IPv6 header.
#[inline(always)]
pub fn write_ipv6<F: Frame>(
    frame: &mut F,
    at: u32,
    class: u8,
    ttl: u8,
    payload: u32,
    from: &Address,
    to: &Address,
) -> Option<()> {
    let [l0, l1] = (payload as u16).to_be_bytes();
    let head = [0x60 | class >> 4, class << 4, 0, 0, l0, l1, PROTOCOL_UDP];
    frame.write(at, head)?;
    write_ipv6_tail(frame, at, ttl, from, to)
}

/// Everything of an IPv6 header from the hop limit on.
#[inline(always)]
fn write_ipv6_tail<F: Frame>(
    frame: &mut F,
    at: u32,
    ttl: u8,
    from: &Address,
    to: &Address,
) -> Option<()> {
    frame.write(at + 7, [ttl])?;
    frame.write(at + 8, *from)?;
    frame.write(at + 24, *to)
}
