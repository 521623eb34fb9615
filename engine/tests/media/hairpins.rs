//! A leg whose body names a plan of this gateway: one flow pair, and never a loop.

use keepline_engine::media::{Leg, Refused, SessionId};

use crate::gateway::{Gateway, LAN, LAN_IP, WAN, at, audio, direct, ip, wanted};

const PHONE: &str = "10.99.1.20:4000";

/// A calls B through a softswitch that is only a proxy: its media passes the gateway twice.
fn spiral(gw: &mut Gateway) -> (std::net::SocketAddr, std::net::SocketAddr) {
    let (a, b, core) = (
        direct("10.99.1.20"),
        direct("10.99.1.30"),
        direct("192.0.2.10"),
    );
    gw.media.open(SessionId(1), LAN, WAN);
    gw.media.open(SessionId(2), WAN, LAN);
    let to_core = gw.offer(1, Leg::Caller, a, &audio(PHONE, "")).unwrap();
    let to_b = gw.offer(2, Leg::Caller, core, &to_core).unwrap();
    let from_b = gw
        .answer(2, Leg::Callee, b, &audio("10.99.1.30:5000", ""))
        .unwrap();
    let to_a = gw.answer(1, Leg::Callee, core, &from_b).unwrap();
    (wanted(&to_a), wanted(&to_b))
}

#[test]
fn a_hairpin_is_one_flow_pair_each_packet_rewritten_once() {
    let mut gw = Gateway::new();
    let (a_told, b_told) = spiral(&mut gw);
    assert_eq!((a_told.ip(), b_told.ip()), (ip(LAN_IP), ip(LAN_IP)));
    let (from_a, from_b) = (gw.flow(a_told).unwrap(), gw.flow(b_told).unwrap());
    assert_eq!(
        (from_a.source, from_a.to, from_a.from_port),
        (at(PHONE), at("10.99.1.30:5000"), b_told.port())
    );
    assert_eq!(
        (from_b.source, from_b.to, from_b.from_port),
        (at("10.99.1.30:5000"), at(PHONE), a_told.port())
    );
    assert_eq!((from_a.ingress, from_a.egress), (LAN, LAN));
    assert_eq!(gw.flows.len(), 4, "RTP and RTCP both ways, none on the WAN");
}

#[test]
fn a_hairpin_follows_a_re_invite_from_either_side_and_a_bye() {
    let mut gw = Gateway::new();
    let (a_told, b_told) = spiral(&mut gw);
    // B moves: its re-INVITE passes session 2 outwards, then session 1 inwards.
    let (a, b, core) = (
        direct("10.99.1.20"),
        direct("10.99.1.30"),
        direct("192.0.2.10"),
    );
    let to_core = gw
        .offer(2, Leg::Callee, b, &audio("10.99.1.30:5500", ""))
        .unwrap();
    let _ = gw.offer(1, Leg::Callee, core, &to_core).unwrap();
    let from_a = gw.answer(1, Leg::Caller, a, &audio(PHONE, "")).unwrap();
    let _ = gw.answer(2, Leg::Caller, core, &from_a).unwrap();
    assert_eq!(gw.flow(a_told).unwrap().to, at("10.99.1.30:5500"));
    assert_eq!(gw.flow(b_told).unwrap().source, at("10.99.1.30:5500"));
    assert_eq!(gw.flows.len(), 4);
    gw.close(1);
    assert!(gw.flows.is_empty(), "half a hairpin carries nothing");
    gw.close(2);
    assert!(gw.ports.is_empty());
}

#[test]
fn a_body_that_points_at_its_own_call_makes_no_flow_and_no_loop() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    let mirror = audio(&wanted(&out).to_string(), "");
    let answer = gw
        .answer(1, Leg::Callee, direct("192.0.2.10"), &mirror)
        .unwrap();
    let phone_told = wanted(&answer);
    // Its own WAN port stands for its own caller: an echo, resolved, not a loop.
    assert!(gw.flow(phone_told).is_none_or(|flow| flow.to == at(PHONE)));
    assert!(
        gw.flows
            .values()
            .all(|flow| flow.to.ip() == ip("10.99.1.20"))
    );
}

#[test]
fn media_never_goes_where_it_would_loop_or_leave_the_rules() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    for target in [
        "127.0.0.1:4000",
        "224.0.0.9:4000",
        "255.255.255.255:4000",
        "0.1.2.3:4000",
        "10.99.1.1:5060",
        "198.51.100.9:22",
        "203.0.113.9:10000",
    ] {
        let refused = gw
            .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(target, ""))
            .unwrap_err();
        assert_eq!(refused, Refused::Target(at(target).ip()), "{target}");
        assert_eq!(refused.status(), 488);
    }
    for (kind, target) in [
        ("IP6", "::1"),
        ("IP6", "ff02::1"),
        ("IP6", "::ffff:127.0.0.1"),
        ("IP6", "::ffff:198.51.100.9"),
    ] {
        let body = format!(
            "v=0\r\no=- 1 1 IN {kind} {target}\r\ns=-\r\nc=IN {kind} {target}\r\nm=audio 4000 RTP/AVP 0\r\n"
        );
        assert!(
            matches!(
                gw.offer(1, Leg::Caller, direct("10.99.1.20"), body.as_bytes()),
                Err(Refused::Target(_))
            ),
            "{target}"
        );
    }
    let rtcp = audio(PHONE, "a=rtcp:53 IN IP4 127.0.0.1\r\n");
    assert!(matches!(
        gw.offer(1, Leg::Caller, direct("10.99.1.20"), &rtcp),
        Err(Refused::Target(_))
    ));
    assert!(gw.ports.is_empty(), "a refusal takes no port");
}
