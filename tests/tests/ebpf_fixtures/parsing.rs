//! Frames that are not UDP datagrams of ours, and keepalives.

use keepline_common::reason::Reason;
use keepline_tests::fixture::packet::{Udp, stun};

use crate::table::{CTAG, RTP, Row, STAG, edited, phone, phone6, row};

/// Rows of frames that are not UDP datagrams of ours.
pub(crate) fn rows() -> Vec<Row> {
    let sip = phone(5060, b"OPTIONS sip:a SIP/2.0\r\n\r\n");
    let sip6 = phone6(5060, b"OPTIONS sip:a SIP/2.0\r\n\r\n");
    let request = phone(5060, &stun(&[]));
    let request6 = phone6(5060, &stun(&[]));
    let qinq = [[STAG, 5], [CTAG, 6]];
    let l3 = request.l3();
    vec![
        row(
            "a tag without what follows it",
            edited(&sip.clone().tagged(&[[CTAG, 5]]), |f| f.truncate(16)),
            Reason::Truncated,
        ),
        Row {
            only_xdp: Some("the kernel makes no skb for a test run of less than an IP header"),
            ..row(
                "IPv6 cut in its header",
                edited(&sip6, |f| f.truncate(40)),
                Reason::Truncated,
            )
        },
        row(
            "UDP cut in its payload",
            edited(&sip, |f| f.truncate(60)),
            Reason::Truncated,
        ),
        row(
            "three tags",
            sip.clone()
                .tagged(&[[STAG, 1], [CTAG, 2], [CTAG, 3]])
                .frame(),
            Reason::VlanDeep,
        ),
        row(
            "ARP",
            [
                &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06][..],
                &[0; 28],
            ]
            .concat(),
            Reason::NotIp,
        ),
        row(
            "case_x4_ihl_below_five",
            edited(&request, |f| f[l3] = 0x44),
            Reason::IpMalformed,
        ),
        row(
            "IPv6 EtherType, version 4",
            edited(&sip6, |f| f[14] = 0x45),
            Reason::IpMalformed,
        ),
        row(
            "case_x4_ihl_six",
            edited(&request, |f| f[l3] = 0x46),
            Reason::Ipv4Options,
        ),
        row(
            "case_x4_ihl_fifteen_vlan",
            edited(&request.clone().tagged(&[[CTAG, 5]]), |f| f[l3 + 4] = 0x4f),
            Reason::Ipv4Options,
        ),
        row(
            "hop-by-hop header",
            edited(&request6, |f| f[20] = 0),
            Reason::Ipv6Extension,
        ),
        row(
            "destination options in QinQ",
            edited(&request6.clone().tagged(&qinq), |f| f[28] = 60),
            Reason::Ipv6Extension,
        ),
        row(
            "case_x3_later_fragment_like_stun",
            Udp {
                id: [1, 0x00b9],
                ..request.clone()
            }
            .frame(),
            Reason::Fragment,
        ),
        row(
            "case_x3_first_fragment",
            Udp {
                id: [1, 0x2000],
                ..request.clone()
            }
            .frame(),
            Reason::Fragment,
        ),
        row(
            "case_x3_ipv6_fragment_vlan",
            edited(&request6.clone().tagged(&[[CTAG, 5]]), |f| f[24] = 44),
            Reason::Fragment,
        ),
        row("TCP", edited(&request, |f| f[l3 + 9] = 6), Reason::NotUdp),
        row("ICMPv6", edited(&request6, |f| f[20] = 58), Reason::NotUdp),
        row(
            "case_x16_udp_length_differs",
            edited(&request, |f| f[l3 + 25] += 1),
            Reason::UdpLength,
        ),
        row(
            "case_x16_udp_length_differs_ipv6",
            edited(&request6, |f| f[14 + 45] -= 1),
            Reason::UdpLength,
        ),
        row(
            "an Ethernet group address",
            edited(&request, |f| f[0] = 1),
            Reason::NotUnicast,
        ),
        row(
            "an IPv4 group address",
            Udp::new("10.99.0.20:1", "224.0.1.75:5060", &stun(&[])).frame(),
            Reason::NotUnicast,
        ),
        row(
            "an IPv6 group address",
            Udp::new("[2001:db8::20]:1", "[ff02::1]:5060", &stun(&[])).frame(),
            Reason::NotUnicast,
        ),
        row(
            "case_x22_unmatched_udp",
            phone(53, b"a DNS reply").frame(),
            Reason::NoMatch,
        ),
        row(
            "case_x22_unmatched_udp_ipv6",
            phone6(53, b"a DNS reply").frame(),
            Reason::NoMatch,
        ),
        row(
            "a media port of somebody else",
            Udp::new("10.99.0.20:4000", "10.99.0.77:10000", RTP).frame(),
            Reason::NoMatch,
        ),
        row("SIP", sip.frame(), Reason::ListenerPassed),
        row(
            "SIP in QinQ over IPv6",
            sip6.tagged(&qinq).frame(),
            Reason::ListenerPassed,
        ),
        row(
            "STUN without attributes cut to 19 bytes: case_t4",
            phone(5060, &stun(&[])[..19]).frame(),
            Reason::ListenerPassed,
        ),
        row(
            "case_s6_empty",
            phone(5060, b"").frame(),
            Reason::KeepaliveEmpty,
        ),
        row(
            "case_s6_crlf",
            phone(5060, b"\r\n").frame(),
            Reason::KeepaliveCrlf,
        ),
        row(
            "case_s6_double_crlf_vlan",
            phone(5060, b"\r\n\r\n").tagged(&[[CTAG, 9]]).frame(),
            Reason::KeepaliveDoubleCrlf,
        ),
        row(
            "case_s6_zeros_ipv6",
            phone6(5060, &[0; 4]).frame(),
            Reason::KeepaliveZeros,
        ),
    ]
}
