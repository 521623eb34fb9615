//! The table of packets: description, frame in, reason (and with it verdict and counter), frame
//! out. Every reason has a row. Run on the very object that ships.

use std::{collections::BTreeSet, net::UdpSocket};

use keepline_common::reason::{Reason, Verdict};
use keepline_engine::{
    net::ListenerId,
    steer::{Delta, Gate, GateId},
    time::Mono,
};
use keepline_tests::fixture::{
    self, Fixture, MEDIA_FIRST, flow,
    packet::{OURS, THEIRS, Udp, stun, stun_message, with_fingerprint},
    route,
};

const LAN: &str = "10.99.0.1";
const LAN6: &str = "2001:db8::1";
const RTP: &[u8] = &[0x80, 0, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4, 9, 9, 9, 9];
const CTAG: u16 = 0x8100;
const STAG: u16 = 0x88a8;

struct Row {
    name: &'static str,
    frame: Vec<u8>,
    reason: Reason,
    /// `None`: as it came in.
    out: Option<Vec<u8>>,
    /// Headroom taken by metadata.
    reserved: u32,
}

fn row(name: &'static str, frame: Vec<u8>, reason: Reason) -> Row {
    Row {
        name,
        frame,
        reason,
        out: None,
        reserved: 0,
    }
}

fn becomes(name: &'static str, frame: Vec<u8>, reason: Reason, out: Vec<u8>) -> Row {
    Row {
        out: Some(out),
        ..row(name, frame, reason)
    }
}

/// A frame as the gateway forwards it.
fn forwarded(from: &str, to: &str, payload: &[u8]) -> Udp {
    let macs = [[2, 0, 0, 0, 0, 4], [2, 0, 0, 0, 0, 3]];
    Udp {
        macs,
        ttl: 63,
        ..Udp::new(from, to, payload)
    }
}

/// A frame as the gateway answers it.
fn answered(from: &str, to: &str, payload: &[u8]) -> Udp {
    Udp {
        macs: [THEIRS, OURS],
        id: [0, 0x4000],
        ..Udp::new(from, to, payload)
    }
}

fn edited(udp: &Udp, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = udp.frame();
    edit(&mut frame);
    frame
}

/// The answer to [`stun`], by RFC 8489 section 14.2 and by hand.
fn success(address: &[u8], port: u16) -> Vec<u8> {
    let mask = [&[0x21, 0x12, 0xa4, 0x42][..], b"fixture-txid"].concat();
    let family = if address.len() == 4 { 1 } else { 2 };
    let mut attribute = vec![0, 0x20, 0, address.len() as u8 + 4, 0, family];
    attribute.extend((port ^ 0x2112).to_be_bytes());
    attribute.extend(address.iter().zip(mask).map(|(a, m)| a ^ m));
    stun_message(0x0101, &attribute)
}

/// Listeners at port 5060 whose paths serve, 5061 silent, 5062 error, 5063 serving by client.
fn listeners(fixture: &mut Fixture) {
    for (number, gate) in [Gate::Serving, Gate::Silent, Gate::Error]
        .into_iter()
        .enumerate()
    {
        let id = number as u16;
        for (index, address) in [LAN, LAN6].into_iter().enumerate() {
            let address = std::net::SocketAddr::new(address.parse().unwrap(), 5060 + id);
            fixture
                .steer
                .listener_set(
                    ListenerId(id * 2 + index as u16),
                    address,
                    GateId(id),
                    Mono::default(),
                )
                .unwrap();
        }
        let delta = Delta::GateSet {
            gate: GateId(id),
            state: gate,
        };
        // From a word nobody wrote, the error form is spread: set it as if long ago.
        fixture.steer.apply(&delta, Mono::default()).unwrap();
    }
    // One client of the silent listener has a path of its own that serves.
    let client = Delta::ClientSet {
        client: "10.99.0.20:7000".parse().unwrap(),
        listener: ListenerId(2),
        gate: GateId(0),
    };
    fixture.steer.apply(&client, Mono::default()).unwrap();
}

fn local(port: u16) -> String {
    format!("{LAN}:{port}")
}

fn local6(port: u16) -> String {
    format!("[{LAN6}]:{port}")
}

/// One media port per kind of way out.
fn flows(fixture: &mut Fixture) {
    let mut install = |port: u16, links, source: &str, to: &str, way| {
        let address = if source.starts_with('[') {
            local6(port)
        } else {
            local(port)
        };
        let id = u64::from(port);
        fixture.install(flow(id, links, &address, source, 10_500, to), way);
    };
    let phone = "10.99.0.20:4000";
    let phone6 = "[2001:db8::20]:4000";
    let plain = || route("198.51.100.1", "198.51.100.254");
    let plain6 = || route("2001:db8:1::1", "2001:db8:1::fe");
    install(10_000, [0, 1], phone, "192.0.2.10:5004", Some(plain()));
    install(
        10_001,
        [0, 1],
        phone6,
        "[2001:db8:2::10]:5004",
        Some(plain6()),
    );
    let small = |way| keepline::steer::resolver::Route { mtu: 100, ..way };
    install(
        10_002,
        [0, 1],
        phone,
        "192.0.2.12:5004",
        Some(small(route("198.51.100.1", "198.51.100.3"))),
    );
    install(10_003, [0, 1], phone, "192.0.2.13:5004", None);
    let here = keepline::steer::resolver::Route {
        local: true,
        ..route("198.51.100.1", "192.0.2.14")
    };
    install(10_004, [0, 1], phone, "192.0.2.14:5004", Some(here));
    install(
        10_005,
        [0, 1],
        phone,
        "192.0.2.15:5004",
        Some(route("2001:db8:1::1", "192.0.2.15")),
    );
    let mut tagged = route("198.51.100.1", "198.51.100.4");
    tagged.vlan = [7, 0];
    install(
        10_006,
        [0, 1],
        phone,
        "192.0.2.16:5004",
        Some(tagged.clone()),
    );
    tagged.next_hop = "198.51.100.5".parse().unwrap();
    tagged.vlan = [7, 8];
    install(
        10_007,
        [0, 1],
        phone,
        "192.0.2.17:5004",
        Some(tagged.clone()),
    );
    install(10_008, [2, 1], phone, "192.0.2.10:5004", Some(plain()));
    install(10_009, [3, 1], phone, "192.0.2.17:5004", Some(tagged));
    install(
        10_010,
        [0, 1],
        phone,
        "[2001:db8:2::10]:5004",
        Some(plain6()),
    );
    install(10_011, [0, 1], phone6, "192.0.2.10:5004", Some(plain()));
    // A plan whose slot holds another generation than the word says.
    let slot = keepline_common::record::PlanWord {
        slot: 0,
        generation: 0x7777,
    };
    fixture
        .media
        .store(u32::from(10_012 - MEDIA_FIRST), slot.pack());
    fixture
        .media
        .store(u32::from(10_013 - MEDIA_FIRST), fixture.media.load(0));
}

/// Sockets as the controller holds them, one per media port in use.
fn sockets() -> Vec<UdpSocket> {
    (10_000..10_014)
        .flat_map(|port| [format!("0.0.0.0:{port}"), format!("[::]:{port}")])
        .map(|address| {
            let domain = if address.starts_with('[') {
                socket2::Domain::IPV6
            } else {
                socket2::Domain::IPV4
            };
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            if domain == socket2::Domain::IPV6 {
                socket.set_only_v6(true).unwrap();
            }
            socket
                .bind(&address.parse::<std::net::SocketAddr>().unwrap().into())
                .unwrap();
            socket.into()
        })
        .collect()
}

fn phone(port: u16, payload: &[u8]) -> Udp {
    Udp::new("10.99.0.20:4000", &local(port), payload)
}

fn phone6(port: u16, payload: &[u8]) -> Udp {
    Udp::new("[2001:db8::20]:4000", &local6(port), payload)
}

/// Rows of frames that are not UDP datagrams of ours.
fn parsing() -> Vec<Row> {
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
        row(
            "IPv6 cut in its header",
            edited(&sip6, |f| f.truncate(40)),
            Reason::Truncated,
        ),
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

/// Rows of STUN on listeners.
fn stun_rows() -> Vec<Row> {
    let back = |payload: &[u8]| answered(&local(5060), "10.99.0.20:4000", payload);
    let back6 = |payload: &[u8]| answered(&local6(5060), "[2001:db8::20]:4000", payload);
    let v6: [u8; 16] = "2001:db8::20"
        .parse::<std::net::Ipv6Addr>()
        .unwrap()
        .octets();
    let ok = success(&[10, 99, 0, 20], 4000);
    let ok6 = success(&v6, 4000);
    let error = stun_message(0x0111, &[0, 9, 0, 4, 0, 0, 5, 0]);
    let software = |len: usize| [&[0x80, 0x22, 0, len as u8][..], &vec![b'x'; len]].concat();
    let sealed = with_fingerprint(stun(&[]));
    let trailing = |udp: Udp| edited(&udp, |f| f.extend([0xaa; 30]));
    let mut bad = sealed.clone();
    *bad.last_mut().unwrap() ^= 1;
    let mut classic = stun(&[]);
    classic[4] = 0;
    let mut long = stun(&[]);
    long[3] = 4;
    let own = Udp {
        from: local(9).parse().unwrap(),
        ..phone(5060, &stun(&[]))
    };
    let loopback = Udp::new("[::1]:9", &local6(5060), &stun(&[]));
    vec![
        becomes(
            "case_t1_answer_grows_by_12",
            phone(5060, &stun(&[])).frame(),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "case_t1_answer_ipv6",
            phone6(5060, &stun(&[])).frame(),
            Reason::StunAnswered,
            back6(&ok6).frame(),
        ),
        becomes(
            "an answer in a VLAN",
            phone(5060, &stun(&[])).tagged(&[[CTAG, 0x2005]]).frame(),
            Reason::StunAnswered,
            back(&ok).tagged(&[[CTAG, 0x2005]]).frame(),
        ),
        becomes(
            "an answer in QinQ over IPv6",
            phone6(5060, &stun(&[]))
                .tagged(&[[STAG, 5], [CTAG, 6]])
                .frame(),
            Reason::StunAnswered,
            back6(&ok6).tagged(&[[STAG, 5], [CTAG, 6]]).frame(),
        ),
        becomes(
            "case_t3_optional_attributes_ignored",
            phone(5060, &stun(&[0x80, 0x33, 0, 1, 7, 0, 0, 0])).frame(),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "an answer that is shorter than the request",
            phone(5060, &stun(&software(100))).frame(),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "case_t6_good_fingerprint",
            phone(5060, &sealed).frame(),
            Reason::StunAnswered,
            back(&with_fingerprint(ok.clone())).frame(),
        ),
        becomes(
            "case_t6_good_fingerprint_ipv6_vlan",
            phone6(5060, &sealed).tagged(&[[CTAG, 5]]).frame(),
            Reason::StunAnswered,
            back6(&with_fingerprint(ok6)).tagged(&[[CTAG, 5]]).frame(),
        ),
        becomes(
            "case_t6_bytes_beyond_the_ip_length",
            trailing(phone(5060, &sealed)),
            Reason::StunAnswered,
            back(&with_fingerprint(ok.clone())).frame(),
        ),
        becomes(
            "a FINGERPRINT over 256 bytes in all",
            phone(5060, &with_fingerprint(stun(&software(224)))).frame(),
            Reason::StunAnswered,
            back(&with_fingerprint(ok.clone())).frame(),
        ),
        becomes(
            "case_x6_a_partial_checksum",
            edited(&phone(5060, &stun(&[])), |f| f[40] ^= 0x55),
            Reason::StunAnswered,
            back(&ok).frame(),
        ),
        becomes(
            "a client whose own path serves",
            Udp::new("10.99.0.20:7000", &local(5061), &stun(&[])).frame(),
            Reason::StunAnswered,
            answered(
                &local(5061),
                "10.99.0.20:7000",
                &success(&[10, 99, 0, 20], 7000),
            )
            .frame(),
        ),
        becomes(
            "the error form",
            phone(5062, &stun(&[])).frame(),
            Reason::StunRefused,
            answered(&local(5062), "10.99.0.20:4000", &error).frame(),
        ),
        becomes(
            "the error form with FINGERPRINT",
            phone6(5062, &sealed).frame(),
            Reason::StunRefused,
            answered(
                &local6(5062),
                "[2001:db8::20]:4000",
                &with_fingerprint(error),
            )
            .frame(),
        ),
        row(
            "a path that is down",
            phone(5061, &stun(&[])).frame(),
            Reason::StunSilenced,
        ),
        row(
            "case_t6_bad_fingerprint",
            phone(5060, &bad).frame(),
            Reason::StunBadFingerprint,
        ),
        row(
            "case_t6_bad_fingerprint_ipv6",
            phone6(5060, &bad).frame(),
            Reason::StunBadFingerprint,
        ),
        row(
            "case_t4_length_contradicts",
            phone(5060, &long).frame(),
            Reason::StunMalformed,
        ),
        row(
            "case_t4_attribute_overrun",
            phone(5060, &stun(&[0x80, 0x22, 0, 9, 1, 2, 3, 4])).frame(),
            Reason::StunMalformed,
        ),
        row(
            "case_t4_not_times_four_ipv6",
            phone6(5060, &stun(&[0x80, 0x22])).frame(),
            Reason::StunMalformed,
        ),
        row(
            "case_t2_no_cookie",
            phone(5060, &classic).frame(),
            Reason::StunClassic,
        ),
        row("a response", phone(5060, &ok).frame(), Reason::StunOther),
        row(
            "an indication",
            phone(5060, &stun_message(0x0011, &[])).frame(),
            Reason::StunOther,
        ),
        row(
            "credentials",
            phone(5060, &stun(&[&[0, 8, 0, 20][..], &[0; 20]].concat())).frame(),
            Reason::StunAuthenticated,
        ),
        row(
            "case_t3_unknown_required",
            phone(5060, &stun(&[0, 0x33, 0, 0, 0, 0x34, 0, 0])).frame(),
            Reason::StunUnknownRequired,
        ),
        row(
            "a FINGERPRINT over 260 bytes",
            phone(5060, &with_fingerprint(stun(&software(228)))).frame(),
            Reason::StunLong,
        ),
        row(
            "seventeen attributes",
            phone(5060, &stun(&[0x80, 0x22, 0, 0].repeat(17))).frame(),
            Reason::StunLong,
        ),
        row("from our own address", own.frame(), Reason::StunBadSource),
        row(
            "from the IPv6 loopback",
            loopback.frame(),
            Reason::StunBadSource,
        ),
    ]
}

/// Rows of media.
fn media_rows() -> Vec<Row> {
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
            ..row(
                "no headroom for two tags",
                phone(10_007, RTP).frame(),
                Reason::NoRoom,
            )
        },
        Row {
            reserved: 200,
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

const fn action(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Drop => 1,
        Verdict::Pass => 2,
        Verdict::Tx => 3,
        Verdict::Redirect => 4,
    }
}

fn check(fixture: &mut Fixture, row: &Row) -> Result<(), String> {
    let outcome = fixture.run(&row.frame, row.reserved);
    let wanted = row.out.as_ref().unwrap_or(&row.frame);
    let hex = |frame: &[u8]| {
        frame
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    if outcome.reason != Some(row.reason) {
        return Err(format!(
            "{}: counted {:?}, not {:?}",
            row.name, outcome.reason, row.reason
        ));
    }
    if outcome.action != action(row.reason.verdict()) {
        return Err(format!("{}: action {}", row.name, outcome.action));
    }
    if outcome.frame != *wanted {
        return Err(format!(
            "{}:\n  out  {}\n  want {}",
            row.name,
            hex(&outcome.frame),
            hex(wanted)
        ));
    }
    Ok(())
}

#[test]
fn case_x3_x4_x8_x9_x10_x12_x16_x22_t1_t3_t4_t6_m8_every_reason_has_a_row() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let mut fixture = Fixture::load(1_024, false);
    listeners(&mut fixture);
    flows(&mut fixture);
    let _sockets = sockets();
    let rows: Vec<Row> = [parsing(), stun_rows(), media_rows()]
        .into_iter()
        .flatten()
        .collect();
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| check(&mut fixture, row).err())
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {} rows:\n{}",
        faults.len(),
        rows.len(),
        faults.join("\n")
    );

    let seen: BTreeSet<&str> = rows.iter().map(|row| row.reason.name()).collect();
    let missing: Vec<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.name())
        .filter(|name| !seen.contains(name) && *name != Reason::NoDevice.name())
        .collect();
    assert!(missing.is_empty(), "reasons without a row: {missing:?}");
    println!("{} rows, {} reasons", rows.len(), seen.len());
}

/// The row that needs a device which is gone.
#[test]
fn a_hop_whose_device_is_gone_passes_the_original() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let ip = |arguments: &[&str]| {
        let status = std::process::Command::new("ip")
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "ip {arguments:?}");
    };
    ip(&[
        "link", "add", "gone0", "type", "veth", "peer", "name", "gone1",
    ]);
    // sysfs shows the namespace it was mounted in, so the socket is asked.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let index = rustix::net::netdevice::name_to_index(socket, "gone0").unwrap();
    let mut fixture = Fixture::load(1_024, false);
    let mut way = route("198.51.100.1", "198.51.100.254");
    way.ifindex = index;
    fixture.install(
        flow(
            1,
            [0, 1],
            &local(10_000),
            "10.99.0.20:4000",
            10_500,
            "192.0.2.10:5004",
        ),
        Some(way),
    );
    let frame = phone(10_000, RTP).frame();
    let before = fixture.run(&frame, 0);
    assert_eq!(before.reason, Some(Reason::FlowForwarded));
    ip(&["link", "del", "gone0"]);
    check(&mut fixture, &row("a dead device", frame, Reason::NoDevice)).unwrap();
}

#[test]
fn another_source_is_counted_at_its_flow_and_forwarding_is_too() {
    if fixture::cannot_run().is_some() {
        return;
    }
    fixture::enter_namespace();
    let mut fixture = Fixture::load(1_024, false);
    flows(&mut fixture);
    let _sockets = sockets();
    for _ in 0..3 {
        let _ = fixture.run(&phone(10_000, RTP).frame(), 0);
    }
    let foreign = Udp {
        from: "10.99.0.66:4000".parse().unwrap(),
        ..phone(10_000, RTP)
    };
    let _ = fixture.run(&foreign.frame(), 0);
    let rows = fixture.steer.flows().unwrap();
    let row = rows.iter().find(|row| row.local.port() == 10_000).unwrap();
    assert_eq!(
        (row.packets, row.bytes, row.foreign),
        (3, 3 * RTP.len() as u64, 1)
    );
    assert!(row.idle.is_some_and(|idle| idle.as_secs() < 60));
}
