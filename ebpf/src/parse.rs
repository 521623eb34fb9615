//! From the first byte to the UDP payload: Ethernet, 802.1Q and 802.1ad, IPv4, IPv6, UDP.

use keepline_common::{
    reason::Reason,
    record::{FlowKey, mapped},
};

use crate::frame::{Frame, Tags};

/// Ethernet header without tags.
pub const ETHERNET: u32 = 14;
/// IPv4 header without options.
pub const IPV4: u32 = 20;
/// IPv6 header.
pub const IPV6: u32 = 40;
/// UDP header.
pub const UDP: u32 = 8;

/// EtherType of IPv4.
pub const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// EtherType of IPv6.
pub const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Everything the policy decides on.
pub struct Datagram {
    /// The 5-tuple and the ingress interface.
    pub key: FlowKey,
    /// VLAN tags it came with.
    pub tags: Tags,
    /// It is IPv6.
    pub v6: bool,
    /// TTL or hop limit.
    pub ttl: u8,
    /// The type of service or traffic class.
    pub tos: u8,
    /// UDP length, header included.
    pub udp_len: u32,
    /// The UDP checksum; zero = none.
    pub check: [u8; 2],
}

impl Datagram {
    /// Where the IP header begins.
    #[inline(always)]
    pub fn l3(&self) -> u32 {
        ETHERNET + self.tags.bytes
    }

    /// Where the UDP header begins.
    #[inline(always)]
    pub fn l4(&self) -> u32 {
        self.l3() + if self.v6 { IPV6 } else { IPV4 }
    }

    /// Where the payload begins.
    #[inline(always)]
    pub fn payload(&self) -> u32 {
        self.l4() + UDP
    }

    /// How long the payload is.
    #[inline(always)]
    pub fn payload_len(&self) -> u32 {
        self.udp_len - UDP
    }
}

/// What an IP header says.
struct Ip {
    source: [u8; 16],
    destination: [u8; 16],
    ttl: u8,
    tos: u8,
    payload_len: u32,
}

/// Reads the whole way to UDP; anything unusual is a reason to pass.
#[inline(always)]
pub fn parse<F: Frame>(frame: &F) -> Result<Datagram, Reason> {
    read::<F, false>(frame)
}

/// The same, of frames to groups as well.
#[inline(always)]
pub fn parse_groups_too<F: Frame>(frame: &F) -> Result<Datagram, Reason> {
    read::<F, true>(frame)
}

#[inline(always)]
fn read<F: Frame, const GROUPS: bool>(frame: &F) -> Result<Datagram, Reason> {
    let [first, ..] = frame.read::<MACS>(0).ok_or(Reason::Truncated)?;
    let tags = frame.tags()?;
    if first & 1 != 0 && !GROUPS {
        return Err(Reason::NotUnicast);
    }
    let l3 = ETHERNET + tags.bytes;
    let (v6, ip, l4) = match tags.ether_type {
        TYPE_IPV4 => (false, ipv4::<F, GROUPS>(frame, l3)?, l3 + IPV4),
        TYPE_IPV6 => (true, ipv6::<F, GROUPS>(frame, l3)?, l3 + IPV6),
        _ => return Err(Reason::NotIp),
    };
    let [s0, s1, d0, d1, l0, l1, c0, c1] = frame.read(l4).ok_or(Reason::Truncated)?;
    let udp_len = u32::from(u16::from_be_bytes([l0, l1]));
    if udp_len != ip.payload_len || udp_len < UDP {
        return Err(Reason::UdpLength);
    }
    // Bytes beyond the IP length are padding; fewer than announced are a torn frame.
    if frame.len() < l4 + udp_len {
        return Err(Reason::Truncated);
    }
    let key = FlowKey {
        source: ip.source,
        destination: ip.destination,
        source_port: [s0, s1],
        destination_port: [d0, d1],
        ifindex: frame.ingress(),
    };
    Ok(Datagram {
        key,
        tags,
        v6,
        ttl: ip.ttl,
        tos: ip.tos,
        udp_len,
        check: [c0, c1],
    })
}

/// Bytes of both MAC addresses.
const MACS: usize = 12;

#[inline(always)]
fn ipv4<F: Frame, const GROUPS: bool>(frame: &F, at: u32) -> Result<Ip, Reason> {
    let [version, tos, t0, t1, _, _, f0, f1, ttl, protocol, _, _] =
        frame.read(at).ok_or(Reason::Truncated)?;
    match version {
        0x45 => {}
        0x46..=0x4f => return Err(Reason::Ipv4Options),
        _ => return Err(Reason::IpMalformed),
    }
    // More-fragments or an offset; don't-fragment alone is fine.
    if f0 & 0x3f != 0 || f1 != 0 {
        return Err(Reason::Fragment);
    }
    if protocol != PROTOCOL_UDP {
        return Err(Reason::NotUdp);
    }
    let total = u32::from(u16::from_be_bytes([t0, t1]));
    let payload_len = total.checked_sub(IPV4).ok_or(Reason::IpMalformed)?;
    let [a, b, c, d, e, f, g, h] = frame.read(at + 12).ok_or(Reason::Truncated)?;
    if e >= 224 && !GROUPS {
        return Err(Reason::NotUnicast);
    }
    Ok(Ip {
        source: mapped([a, b, c, d]),
        destination: mapped([e, f, g, h]),
        ttl,
        tos,
        payload_len,
    })
}

#[inline(always)]
fn ipv6<F: Frame, const GROUPS: bool>(frame: &F, at: u32) -> Result<Ip, Reason> {
    let [version, class, _, _, l0, l1, next, ttl] = frame.read(at).ok_or(Reason::Truncated)?;
    if version >> 4 != 6 {
        return Err(Reason::IpMalformed);
    }
    match next {
        PROTOCOL_UDP => {}
        44 => return Err(Reason::Fragment),
        // Hop-by-hop, routing, authentication, destination options.
        0 | 43 | 51 | 60 => return Err(Reason::Ipv6Extension),
        _ => return Err(Reason::NotUdp),
    }
    let source = frame.read(at + 8).ok_or(Reason::Truncated)?;
    let destination: [u8; 16] = frame.read(at + 24).ok_or(Reason::Truncated)?;
    if destination[0] == 0xff && !GROUPS {
        return Err(Reason::NotUnicast);
    }
    Ok(Ip {
        source,
        destination,
        ttl,
        tos: version << 4 | class >> 4,
        payload_len: u32::from(u16::from_be_bytes([l0, l1])),
    })
}

/// The first four bytes of the payload; zero where it is shorter.
#[inline(always)]
pub fn head<F: Frame>(frame: &F, datagram: &Datagram) -> [u8; 4] {
    let at = datagram.payload();
    match datagram.payload_len() {
        0 | 1 => [0; 4],
        2 | 3 => match frame.read(at) {
            Some([a, b]) => [a, b, 0, 0],
            None => [0; 4],
        },
        _ => frame.read(at).unwrap_or([0; 4]),
    }
}
