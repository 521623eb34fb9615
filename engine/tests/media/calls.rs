//! Calls, as phones and softswitches make them.

use keepline_engine::{
    media::{DropReason, Learn, Leg, Refused, Seen, SessionId},
    steer::FlowKind,
};

use crate::gateway::{
    Gateway, LAN, LAN_IP, WAN, WAN_IP, WAN2, at, audio, behind_nat, direct, ip, origin, wanted,
};

const PHONE: &str = "10.99.1.20:4000";
const FAR: &str = "192.0.2.30:6000";

#[test]
fn a_call_is_anchored_on_both_legs_and_shows_neither_side_the_other() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let offer = gw
        .offer(
            1,
            Leg::Caller,
            direct("10.99.1.20"),
            &audio(PHONE, "a=rtcp:4001\r\n"),
        )
        .unwrap();
    assert!(gw.flows.is_empty(), "nothing before the answer");
    let answer = gw
        .answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    assert!(!String::from_utf8_lossy(&offer).contains("10.99."));
    assert!(!String::from_utf8_lossy(&answer).contains("192.0.2."));
    let (far_told, phone_told) = (wanted(&offer), wanted(&answer));
    assert_eq!((far_told.ip(), phone_told.ip()), (ip(WAN_IP), ip(LAN_IP)));
    assert_eq!((far_told.port() % 2, phone_told.port() % 2), (0, 0));
    assert!(
        String::from_utf8_lossy(&offer).contains(&format!("a=rtcp:{}\r\n", far_told.port() + 1))
    );

    // The phone's source is certain: its flows stand at once, no packet goes up.
    let up = gw.flow(phone_told).expect("installed at the answer");
    assert_eq!(
        (up.source, up.to, up.from_port),
        (at(PHONE), at(FAR), far_told.port())
    );
    assert_eq!((up.ingress, up.egress, up.kind), (LAN, WAN, FlowKind::Rtp));
    // The far end's is learned from its first packet.
    assert_eq!(gw.flow(far_told), None);
    let relay = Seen::Relay {
        from: phone_told,
        to: at(PHONE),
    };
    assert_eq!(gw.seen(far_told, "192.0.2.30:6000"), relay);
    let down = gw.flow(far_told).expect("learned");
    assert_eq!(
        (down.source, down.to, down.from_port),
        (at(FAR), at(PHONE), phone_told.port())
    );
    assert_eq!(gw.flows.len(), 3, "two of RTP, one of RTCP so far");
    gw.close(1);
    assert!(gw.flows.is_empty() && gw.ports.is_empty());
}

#[test]
fn rtcp_goes_beside_rtp() {
    let mut gw = Gateway::new();
    let (phone_told, far_told) = gw.call(1, PHONE, FAR);
    let rtcp = |rtp: std::net::SocketAddr| std::net::SocketAddr::new(rtp.ip(), rtp.port() + 1);
    let up = gw.flow(rtcp(phone_told)).unwrap();
    assert_eq!(
        (up.source, up.to, up.kind),
        (at("10.99.1.20:4001"), at("192.0.2.30:6001"), FlowKind::Rtcp)
    );
    assert_eq!(up.from_port, far_told.port() + 1);
    assert_eq!(
        gw.seen(rtcp(far_told), "192.0.2.30:6001"),
        Seen::Relay {
            from: rtcp(phone_told),
            to: at("10.99.1.20:4001")
        }
    );
}

#[test]
fn case_m6_rtcp_follows_the_answer() {
    // Offered with mux and a fallback port; the answer decides.
    for (answer, flows) in [("a=rtcp-mux\r\n", 2), ("a=rtcp:6009\r\n", 4), ("", 4)] {
        let mut gw = Gateway::new();
        gw.media.open(SessionId(1), LAN, WAN);
        let offer = gw
            .offer(
                1,
                Leg::Caller,
                direct("10.99.1.20"),
                &audio(PHONE, "a=rtcp:4007\r\na=rtcp-mux\r\n"),
            )
            .unwrap();
        let text = String::from_utf8_lossy(&offer).into_owned();
        let far_told = wanted(&offer);
        assert!(
            text.contains("a=rtcp-mux")
                && text.contains(&format!("a=rtcp:{}", far_told.port() + 1))
        );
        let phone_told = wanted(
            &gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, answer))
                .unwrap(),
        );
        let mut far_rtcp = far_told;
        far_rtcp.set_port(far_told.port() + 1);
        let _ = gw.seen(far_told, FAR);
        let _ = gw.seen(far_rtcp, "192.0.2.30:6077");
        assert_eq!(gw.flows.len(), flows, "{answer}");
        let mut phone_rtcp = phone_told;
        phone_rtcp.set_port(phone_told.port() + 1);
        match answer {
            "a=rtcp-mux\r\n" => assert_eq!(gw.flow(phone_rtcp), None),
            _ => assert_eq!(gw.flow(phone_rtcp).unwrap().source, at("10.99.1.20:4007")),
        }
    }
}

#[test]
fn case_m1_a_move_by_re_invite_is_not_undone_by_a_late_packet() {
    let mut gw = Gateway::new();
    let (phone_told, far_told) = gw.call(1, PHONE, "192.0.2.30:34150");
    let _ = gw.seen(far_told, "192.0.2.30:34150");
    gw.wait(5_000);
    gw.offer(
        1,
        Leg::Callee,
        direct("192.0.2.10"),
        &audio("192.0.2.30:30840", ""),
    )
    .unwrap();
    assert_eq!(
        gw.flow(phone_told).unwrap().to,
        at("192.0.2.30:34150"),
        "until the answer"
    );
    gw.answer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    assert_eq!(gw.flow(phone_told).unwrap().to, at("192.0.2.30:30840"));
    assert_eq!(
        gw.flow(far_told),
        None,
        "the old source is no longer forwarded"
    );

    assert_eq!(
        gw.seen(far_told, "192.0.2.30:34150"),
        Seen::Drop(DropReason::ForeignSource)
    );
    assert_eq!(
        gw.flow(phone_told).unwrap().to,
        at("192.0.2.30:30840"),
        "it stays"
    );
    assert_eq!(
        gw.seen(far_told, "192.0.2.30:30840"),
        Seen::Relay {
            from: phone_told,
            to: at(PHONE)
        }
    );
    assert_eq!(
        gw.seen(far_told, "192.0.2.30:34150"),
        Seen::Drop(DropReason::ForeignSource)
    );
    assert_eq!(gw.flow(far_told).unwrap().source, at("192.0.2.30:30840"));
}

#[test]
fn a_lan_phones_move_takes_effect_at_the_answer() {
    let mut gw = Gateway::new();
    let (phone_told, far_told) = gw.call(1, PHONE, FAR);
    let _ = gw.seen(far_told, FAR);
    gw.offer(
        1,
        Leg::Caller,
        direct("10.99.1.20"),
        &audio("10.99.1.20:4444", ""),
    )
    .unwrap();
    gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    assert_eq!(gw.flow(phone_told).unwrap().source, at("10.99.1.20:4444"));
    assert_eq!(gw.flow(far_told).unwrap().to, at("10.99.1.20:4444"));
}

#[test]
fn a_refused_re_offer_leaves_everything_as_it_was() {
    let mut gw = Gateway::new();
    gw.call(1, PHONE, FAR);
    let before = (gw.flows.clone(), gw.ports.clone());
    let two = [
        audio("10.99.1.20:5000", ""),
        b"m=video 5002 RTP/AVP 97\r\n".to_vec(),
    ]
    .concat();
    gw.offer(1, Leg::Caller, direct("10.99.1.20"), &two)
        .unwrap();
    assert_eq!(gw.ports.len(), 8, "ports for the video are ready");
    gw.media.offer_refused(gw.now, SessionId(1));
    gw.drain();
    assert_eq!((gw.flows.clone(), gw.ports.clone()), before);
    assert_eq!(
        gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, "")),
        Err(Refused::Mismatch),
        "there is no offer to answer"
    );
}

#[test]
fn of_forked_answers_the_last_wins_and_the_same_again_changes_nothing() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    gw.offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    let first = gw
        .answer(
            1,
            Leg::Callee,
            direct("192.0.2.10"),
            &audio("192.0.2.31:6000", ""),
        )
        .unwrap();
    let again = gw
        .answer(
            1,
            Leg::Callee,
            direct("192.0.2.10"),
            &audio("192.0.2.31:6000", ""),
        )
        .unwrap();
    assert_eq!(first, again);
    let second = gw
        .answer(
            1,
            Leg::Callee,
            direct("192.0.2.10"),
            &audio("192.0.2.32:6000", ""),
        )
        .unwrap();
    assert_eq!(
        wanted(&second),
        wanted(&first),
        "one port towards the phone"
    );
    assert_eq!(gw.flow(wanted(&second)).unwrap().to, at("192.0.2.32:6000"));
}

#[test]
fn the_origin_is_the_legs_own_and_its_version_rises_with_the_content() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let offer = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    let hunted = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    assert_eq!(offer, hunted, "a hunt sends the same bytes");
    gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    let (id, version) = origin(&offer);
    // A session refresh: the phone counts on, the content is the same.
    let refresh = audio(PHONE, "");
    let refresh = String::from_utf8(refresh)
        .unwrap()
        .replace("o=- 1 1", "o=- 1 2");
    let same = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), refresh.as_bytes())
        .unwrap();
    assert_eq!(origin(&same), (id, version));
    let hold = gw
        .offer(
            1,
            Leg::Caller,
            direct("10.99.1.20"),
            &audio(PHONE, "a=sendonly\r\n"),
        )
        .unwrap();
    assert_eq!(origin(&hold), (id, version + 1));
}

#[test]
fn hold_in_its_three_forms() {
    let mut gw = Gateway::new();
    let (phone_told, far_told) = gw.call(1, PHONE, FAR);
    let _ = gw.seen(far_told, FAR);
    let held = |gw: &Gateway| gw.media.session_view(SessionId(1)).unwrap().streams[0].held;
    assert!(!held(&gw));

    // a=inactive: flows may stay, silence is no death.
    gw.offer(
        1,
        Leg::Callee,
        direct("192.0.2.10"),
        &audio(FAR, "a=inactive\r\n"),
    )
    .unwrap();
    gw.answer(
        1,
        Leg::Caller,
        direct("10.99.1.20"),
        &audio(PHONE, "a=inactive\r\n"),
    )
    .unwrap();
    assert!(held(&gw));

    // c=0.0.0.0: nothing may be sent there, what comes from there is still its music.
    let zero = String::from_utf8(audio(FAR, ""))
        .unwrap()
        .replace("c=IN IP4 192.0.2.30", "c=IN IP4 0.0.0.0");
    let out = gw
        .offer(1, Leg::Callee, direct("192.0.2.10"), zero.as_bytes())
        .unwrap();
    assert!(
        String::from_utf8_lossy(&out).contains("c=IN IP4 0.0.0.0\r\n"),
        "hold is passed on"
    );
    gw.answer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    assert_eq!(gw.flow(phone_told), None);
    assert_eq!(gw.flow(far_told).unwrap().source, at(FAR));

    // Port 0, and back.
    let off = audio("192.0.2.30:0", "");
    gw.offer(1, Leg::Callee, direct("192.0.2.10"), &off)
        .unwrap();
    gw.answer(
        1,
        Leg::Caller,
        direct("10.99.1.20"),
        &audio("10.99.1.20:0", ""),
    )
    .unwrap();
    assert!(gw.flows.is_empty());
    gw.offer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    gw.answer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    assert!(gw.flow(phone_told).is_some() && !held(&gw));
}

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

#[test]
fn a_client_behind_nat_is_learned_from_where_its_signalling_came() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), WAN, LAN);
    let client = behind_nat("203.0.113.50");
    let out = gw
        .offer(1, Leg::Caller, client, &audio("192.168.1.5:4000", ""))
        .unwrap();
    let phone_told = wanted(&out);
    let client_told = wanted(
        &gw.answer(1, Leg::Callee, direct("10.99.1.20"), &audio(PHONE, ""))
            .unwrap(),
    );
    assert_eq!(
        gw.flow(phone_told),
        None,
        "nothing is sent to a private address over the WAN"
    );
    assert_eq!(
        gw.seen(phone_told, PHONE),
        Seen::Drop(DropReason::NoDestination)
    );
    assert_eq!(
        gw.seen(client_told, "192.168.1.5:4000"),
        Seen::Drop(DropReason::ForeignSource)
    );
    assert_eq!(
        gw.seen(client_told, "203.0.113.50:61000"),
        Seen::Relay {
            from: phone_told,
            to: at(PHONE)
        }
    );
    assert_eq!(gw.flow(phone_told).unwrap().to, at("203.0.113.50:61000"));
    assert_eq!(
        gw.seen(client_told, "203.0.113.50:61001"),
        Seen::Drop(DropReason::ForeignSource),
        "locked"
    );
}

#[test]
fn rtp_bleed_a_third_host_gets_and_injects_nothing_in_any_phase() {
    let mut gw = Gateway::new();
    let spray = |gw: &mut Gateway| {
        let before = gw.flows.clone();
        for local in gw.ports.clone() {
            for from in ["203.0.113.66:4000", "10.99.1.66:4000", "192.0.2.66:6000"] {
                assert_eq!(
                    gw.seen(local, from),
                    Seen::Drop(DropReason::ForeignSource),
                    "{local} {from}"
                );
            }
        }
        assert_eq!(gw.flows, before);
    };
    gw.media.open(SessionId(1), LAN, WAN);
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    spray(&mut gw);
    gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    spray(&mut gw);
    let _ = gw.seen(wanted(&out), FAR);
    spray(&mut gw);
    gw.offer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
        .unwrap();
    gw.answer(1, Leg::Caller, direct("10.99.1.20"), &audio(PHONE, ""))
        .unwrap();
    spray(&mut gw);
    assert_eq!(
        gw.media.session_view(SessionId(1)).unwrap().streams[0].legs[1].source,
        Some(at(FAR))
    );
}

#[test]
fn learn_never_accepts_the_declared_source_alone() {
    let mut gw = Gateway::with(10_000..=10_199, Learn::Never);
    let (_, far_told) = gw.call(1, PHONE, FAR);
    assert_eq!(
        gw.flow(far_told).unwrap().source,
        at(FAR),
        "installed at the answer"
    );
    assert_eq!(
        gw.seen(far_told, "192.0.2.30:6001"),
        Seen::Drop(DropReason::ForeignSource)
    );
}

#[test]
fn a_full_range_refuses_clearly_and_rested_ports_serve_again() {
    let mut gw = Gateway::with(10_000..=10_003, Learn::Once);
    gw.call(1, PHONE, FAR);
    gw.call(2, "10.99.1.21:4000", FAR);
    gw.media.open(SessionId(3), LAN, WAN);
    let body = audio("10.99.1.22:4000", "");
    let refused = gw
        .offer(3, Leg::Caller, direct("10.99.1.22"), &body)
        .unwrap_err();
    assert_eq!((refused.clone(), refused.status()), (Refused::NoPorts, 503));
    gw.close(1);
    assert_eq!(
        gw.offer(3, Leg::Caller, direct("10.99.1.22"), &body),
        Err(Refused::NoPorts),
        "they rest"
    );
    gw.wait(10_000);
    assert!(
        gw.offer(3, Leg::Caller, direct("10.99.1.22"), &body)
            .is_ok()
    );
}

#[test]
fn a_stream_that_cannot_be_anchored_is_turned_off() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let body = [
        audio(PHONE, ""),
        b"m=message 9 TCP/MSRP *\r\na=path:msrp://10.99.1.20:9/x;tcp\r\n".to_vec(),
    ]
    .concat();
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &body)
        .unwrap();
    let text = String::from_utf8_lossy(&out).into_owned();
    assert!(
        text.contains("m=message 0 TCP/MSRP *\r\n") && !text.contains("10.99."),
        "{text}"
    );
}

#[test]
fn a_wan_address_change_moves_ports_and_flows() {
    let mut gw = Gateway::new();
    let (phone_told, far_told) = gw.call(1, PHONE, FAR);
    let _ = gw.seen(far_told, FAR);
    gw.media
        .address_changed(gw.now, WAN, Some(ip("198.51.100.77")));
    gw.drain();
    let mut moved = far_told;
    moved.set_ip(ip("198.51.100.77"));
    assert!(gw.ports.contains(&moved) && !gw.ports.contains(&far_told));
    assert_eq!(gw.flow(moved).unwrap().to, at(PHONE));
    assert!(gw.flow(phone_told).is_some());
    gw.media.address_changed(gw.now, WAN, None);
    gw.drain();
    assert_eq!(gw.ports.len(), 2, "only the LAN's");
    gw.close(1);
    assert!(gw.ports.is_empty());
}

#[test]
fn a_hunt_over_another_link_moves_the_leg() {
    let mut gw = Gateway::new();
    gw.media.open(SessionId(1), LAN, WAN);
    let body = audio(PHONE, "");
    gw.offer(1, Leg::Caller, direct("10.99.1.20"), &body)
        .unwrap();
    gw.media.relink(gw.now, SessionId(1), Leg::Callee, WAN2);
    gw.drain();
    let out = gw
        .offer(1, Leg::Caller, direct("10.99.1.20"), &body)
        .unwrap();
    assert_eq!(wanted(&out).ip(), ip("203.0.113.9"));
    assert_eq!(gw.ports.len(), 4);
    let told = wanted(
        &gw.answer(1, Leg::Callee, direct("192.0.2.10"), &audio(FAR, ""))
            .unwrap(),
    );
    assert_eq!(gw.flow(told).unwrap().egress, WAN2);
}
