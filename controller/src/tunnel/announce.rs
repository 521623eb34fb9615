//! After a switch: what tells the network behind a tunnel that a client is reached through it.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::traffic::Client;

const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
/// The group of all nodes, and its MAC address (RFC 2464 section 7).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
/// The flags "router" and "override" of a neighbour advertisement.
const ROUTER: u8 = 0x80;
const OVERRIDE: u8 = 0x20;

/// What a client would say itself if it had moved there: by ARP, by neighbour discovery, or both.
#[must_use]
pub fn frames(client: &Client) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    if let Some(v6) = client.v6 {
        frames.push(advertisement(client.mac, v6, client.router));
    }
    if client.v4.is_some() || frames.is_empty() {
        frames.push(arp(client.mac, client.v4));
    }
    frames
}

/// A gratuitous ARP request (RFC 5227 section 3) from this MAC address; where no address is known
/// a reverse one (RFC 903), by which switches learn all the same.
#[must_use]
pub fn arp(mac: [u8; 6], v4: Option<Ipv4Addr>) -> Vec<u8> {
    let (kind, operation) = if v4.is_some() { (ARP, 1) } else { (RARP, 3) };
    let address = v4.map_or([0; 4], |v4| v4.octets());
    let target = if v4.is_some() { [0; 6] } else { mac };
    let parts: [&[u8]; 9] = [
        &[0xff; 6],
        &mac,
        &kind.to_be_bytes(),
        &[0, 1, 0x08, 0x00, 6, 4, 0, operation],
        &mac,
        &address,
        &target,
        &address,
        // To the least length of an Ethernet frame.
        &[0; 18],
    ];
    parts.concat()
}

/// An unsolicited neighbour advertisement (RFC 4861 section 7.2.6). Neighbours would drop a
/// router that no longer said it is one.
fn advertisement(mac: [u8; 6], v6: Ipv6Addr, router: bool) -> Vec<u8> {
    let flags = OVERRIDE | if router { ROUTER } else { 0 };
    let (from, to) = (v6.octets(), ALL_NODES.octets());
    let message = |check: [u8; 2]| -> Vec<u8> {
        let parts: [&[u8]; 5] = [
            &[136, 0, check[0], check[1]],
            &[flags, 0, 0, 0],
            &from,
            // The target's link-layer address.
            &[2, 1],
            &mac,
        ];
        parts.concat()
    };
    let length = message([0; 2]).len() as u16;
    let pseudo = [
        &from[..],
        &to,
        &[0, 0],
        &length.to_be_bytes(),
        &[0, 0, 0, ICMPV6],
    ]
    .concat();
    let check = checksum(&[pseudo, message([0; 2])].concat());
    let parts: [&[u8]; 8] = [
        &ALL_NODES_MAC,
        &mac,
        &IPV6.to_be_bytes(),
        &[0x60, 0, 0, 0],
        &length.to_be_bytes(),
        // Never routed.
        &[ICMPV6, 255],
        &from,
        &to,
    ];
    [parts.concat(), message(check)].concat()
}

/// RFC 1071, of whole words.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum = bytes
        .chunks_exact(4)
        .fold(keepline_common::checksum::Sum::new(), |sum, word| {
            sum.dword([word[0], word[1], word[2], word[3]])
        });
    sum.checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    fn client(v4: Option<[u8; 4]>, v6: Option<&str>) -> Client {
        Client {
            mac: MAC,
            v4: v4.map(Ipv4Addr::from),
            v6: v6.map(|text| text.parse().expect("an address")),
            router: false,
        }
    }

    #[test]
    fn mx8_a_client_is_announced_by_gratuitous_arp_or_reverse_arp() {
        let [known] = &frames(&client(Some([10, 9, 0, 7]), None))[..] else {
            panic!("one frame")
        };
        assert_eq!(known.len(), 60);
        assert_eq!(known[..6], [0xff; 6]);
        assert_eq!(known[6..12], MAC);
        assert_eq!(known[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(known[22..28], MAC);
        assert_eq!(known[28..32], [10, 9, 0, 7]);
        assert_eq!(
            known[38..42],
            [10, 9, 0, 7],
            "sender and target are the same"
        );
        let [unknown] = &frames(&client(None, None))[..] else {
            panic!("one frame")
        };
        assert_eq!(unknown[12..14], [0x80, 0x35]);
        assert_eq!((&unknown[6..12], unknown[21]), (&MAC[..], 3));
        assert_eq!(unknown[32..38], MAC);
    }

    #[test]
    fn mx8_an_ipv6_client_is_announced_by_an_unsolicited_advertisement() {
        let [frame] = &frames(&client(None, Some("fe80::7")))[..] else {
            panic!("one frame, and no reverse ARP")
        };
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(frame[6..12], MAC);
        assert_eq!(frame[12..14], [0x86, 0xdd]);
        assert_eq!(frame[18..22], [0, 32, 58, 255], "length, ICMPv6, hop limit");
        let from: Ipv6Addr = "fe80::7".parse().expect("an address");
        assert_eq!(frame[22..38], from.octets());
        assert_eq!(frame[38..54], ALL_NODES.octets());
        assert_eq!(frame[54..56], [136, 0]);
        assert_eq!(frame[58], 0x20, "override, not solicited, no router");
        assert_eq!(frame[62..78], from.octets(), "the target");
        assert_eq!(frame[78..80], [2, 1]);
        assert_eq!(frame[80..], MAC);
        // The sum over pseudo-header and message, checksum included, is all ones.
        let mut sum: u32 = 32 + 58;
        for pair in frame[22..].chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff);
        let both = frames(&client(Some([10, 9, 0, 7]), Some("fe80::7")));
        assert_eq!(both.len(), 2);
        let router = Client {
            router: true,
            ..client(None, Some("fe80::7"))
        };
        assert_eq!(frames(&router)[0][58], 0xa0, "still a router");
    }
}
