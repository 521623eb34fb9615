//! Media ports.

use keepline_common::reason::Reason;
use keepline_tests::fixture::packet::{Udp, stun};

use crate::table::{
    CTAG, Otherwise, RTP, Row, STAG, becomes, forwarded, local6, phone, phone6, row,
};

/// What needs room before its first byte, in TC.
fn grown(out: Vec<u8>) -> Option<Otherwise> {
    Some(Otherwise {
        because: "an skb gets a larger head where a frame in XDP has what the driver left",
        reason: Reason::FlowForwarded,
        out,
    })
}

/// Rows of media.
pub(crate) fn rows() -> Vec<Row> {
    let wan = "198.51.100.1:10500";
    let far = |last: u8| format!("192.0.2.{last}:5004");
    let wan6 = "[2001:db8:1::1]:10500";
    let far6 = "[2001:db8:2::10]:5004";
    let crafted = |len: usize| {
        // A payload whose last word makes the checksum of the frame that leaves zero (X8).
        let udp = forwarded(wan, &far(10), &[RTP, &[0; 2]].concat()[..len]);
        let frame = udp.frame();
        let check = [frame[udp.l3() + 26], frame[udp.l3() + 27]];
        [RTP, &check].concat()
    };
    let zero = crafted(18);
    let other_vlan = phone(10_008, RTP).tagged(&[[CTAG, 101]]);
    vec![
        becomes(
            "case_x9_v4_ttl_63",
            phone(10_000, RTP).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(10), RTP).frame(),
        ),
        becomes(
            "case_x9_v6_hop_limit_63",
            phone6(10_001, RTP).frame(),
            Reason::FlowForwarded,
            forwarded(wan6, far6, RTP).frame(),
        ),
        becomes(
            "case_x8_a_computed_zero",
            phone(10_000, &zero).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(10), &zero).frame(),
        ),
        becomes(
            "no checksum stays none",
            Udp {
                unchecked: true,
                ..phone(10_000, RTP)
            }
            .frame(),
            Reason::FlowForwarded,
            Udp {
                unchecked: true,
                ..forwarded(wan, &far(10), RTP)
            }
            .frame(),
        ),
        becomes(
            "case_m8_rtp_last",
            phone(10_000, &[191; 12]).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(10), &[191; 12]).frame(),
        ),
        becomes(
            "case_m8_dtls_first",
            phone(10_000, &[20; 13]).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(10), &[20; 13]).frame(),
        ),
        becomes(
            "case_m8_dtls_last_ipv6",
            phone6(10_001, &[63; 13]).frame(),
            Reason::FlowForwarded,
            forwarded(wan6, far6, &[63; 13]).frame(),
        ),
        becomes(
            "case_x1_a_tag_is_added",
            phone(10_006, RTP).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(16), RTP).tagged(&[[CTAG, 7]]).frame(),
        ),
        becomes(
            "case_x1_two_tags_are_added",
            phone(10_007, RTP).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(17), RTP)
                .tagged(&[[STAG, 7], [CTAG, 8]])
                .frame(),
        ),
        becomes(
            "case_x1_a_tag_is_taken_away",
            phone(10_008, RTP).tagged(&[[CTAG, 0xe064]]).frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(10), RTP).frame(),
        ),
        becomes(
            "case_x1_two_tags_are_replaced",
            phone(10_009, RTP)
                .tagged(&[[STAG, 100], [CTAG, 200]])
                .frame(),
            Reason::FlowForwarded,
            forwarded(wan, &far(17), RTP)
                .tagged(&[[STAG, 7], [CTAG, 8]])
                .frame(),
        ),
        becomes(
            "IPv4 becomes IPv6",
            Udp {
                tos: 0xb8,
                ..phone(10_010, RTP)
            }
            .frame(),
            Reason::FlowForwarded,
            Udp {
                tos: 0xb8,
                ..forwarded(wan6, far6, RTP)
            }
            .frame(),
        ),
        becomes(
            "IPv6 becomes IPv4",
            Udp {
                tos: 0xb8,
                ..phone6(10_011, RTP)
            }
            .frame(),
            Reason::FlowForwarded,
            Udp {
                tos: 0xb8,
                id: [0, 0x4000],
                ..forwarded(wan, &far(10), RTP)
            }
            .frame(),
        ),
        row(
            "case_x9_ttl_1",
            phone(10_000, RTP).ttl(1).frame(),
            Reason::TtlExpired,
        ),
        row(
            "case_x9_hop_limit_1_ipv6",
            phone6(10_001, RTP).ttl(1).frame(),
            Reason::TtlExpired,
        ),
        row(
            "larger than the hop's MTU",
            phone(10_002, &[0x80; 73]).frame(),
            Reason::TooBig,
        ),
        row(
            "case_x10_no_neighbour",
            phone(10_003, RTP).frame(),
            Reason::HopUnresolved,
        ),
        row(
            "case_x12_destination_is_local",
            phone(10_004, RTP).frame(),
            Reason::HopLocal,
        ),
        row(
            "a hop of the other family",
            phone(10_005, RTP).frame(),
            Reason::HopFamily,
        ),
        row(
            "no checksum over IPv6",
            Udp {
                unchecked: true,
                ..phone6(10_001, RTP)
            }
            .frame(),
            Reason::UdpUnchecked,
        ),
        row(
            "no checksum into IPv6",
            Udp {
                unchecked: true,
                ..phone(10_010, RTP)
            }
            .frame(),
            Reason::UdpUnchecked,
        ),
        Row {
            reserved: 212,
            in_tc: grown(
                forwarded(wan, &far(17), RTP)
                    .tagged(&[[STAG, 7], [CTAG, 8]])
                    .frame(),
            ),
            ..row(
                "no headroom for two tags",
                phone(10_007, RTP).frame(),
                Reason::NoRoom,
            )
        },
        Row {
            reserved: 200,
            in_tc: grown(forwarded(wan6, far6, RTP).frame()),
            ..row(
                "no headroom for IPv6",
                phone(10_010, RTP).frame(),
                Reason::NoRoom,
            )
        },
        row(
            "case_m8_stun_is_not_answered",
            phone(10_000, &stun(&[])).frame(),
            Reason::MediaStun,
        ),
        row(
            "case_m8_stun_last",
            phone6(10_001, &[3; 20]).frame(),
            Reason::MediaStun,
        ),
        row(
            "case_m8_19",
            phone(10_000, &[19; 12]).frame(),
            Reason::MediaOther,
        ),
        row(
            "case_m8_64",
            phone(10_000, &[64; 12]).frame(),
            Reason::MediaOther,
        ),
        row(
            "case_m8_127_ipv6",
            phone6(10_001, &[127; 12]).frame(),
            Reason::MediaOther,
        ),
        row(
            "case_m8_192",
            phone(10_000, &[192; 12]).frame(),
            Reason::MediaOther,
        ),
        row(
            "another source",
            Udp {
                from: "10.99.0.20:4001".parse().unwrap(),
                ..phone(10_000, RTP)
            }
            .frame(),
            Reason::MediaForeignSource,
        ),
        row(
            "another VLAN",
            other_vlan.frame(),
            Reason::MediaWrongIngress,
        ),
        row(
            "case_x1_a_stripped_tag",
            phone(10_008, RTP).frame(),
            Reason::MediaWrongIngress,
        ),
        row(
            "a slot of another generation",
            phone(10_012, RTP).frame(),
            Reason::PlanStale,
        ),
        row(
            "a plan of another port",
            phone(10_013, RTP).frame(),
            Reason::PlanStale,
        ),
        row(
            "case_x22_bound_without_a_plan",
            Udp {
                to: local6(10_000).parse().unwrap(),
                ..phone6(10_000, RTP)
            }
            .frame(),
            Reason::MediaUnplanned,
        ),
        row(
            "case_x22_nobody_bound",
            phone(10_900, RTP).frame(),
            Reason::MediaUnbound,
        ),
        row(
            "case_x22_nobody_bound_ipv6",
            phone6(10_900, RTP).frame(),
            Reason::MediaUnbound,
        ),
    ]
}
