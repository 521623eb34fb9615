//! Calls, as phones and softswitches make them.

use keepline_engine::{
    media::{DropReason, Leg, Refused, Seen, SessionId},
    steer::FlowKind,
};

use crate::gateway::{Gateway, LAN, LAN_IP, WAN, WAN_IP, at, audio, direct, ip, origin, wanted};

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

#[test]
fn a_call_that_turns_out_to_be_a_fax_is_one_until_it_is_none() {
    let mut gw = Gateway::new();
    let (phone_told, _) = gw.call(1, PHONE, FAR);
    let rtcp = at(&format!("{}:{}", phone_told.ip(), phone_told.port() + 1));
    assert!(gw.flow(rtcp).is_some());
    let image = |at: &str| {
        let text = String::from_utf8(audio(at, "")).unwrap();
        text.replace("m=audio", "m=image")
            .replace("RTP/AVP 8\r\na=rtpmap:8 PCMA/8000", "udptl t38")
            .into_bytes()
    };
    let mut agree = |offer: Vec<u8>, answer: Vec<u8>| {
        gw.offer(1, Leg::Callee, direct("192.0.2.10"), &offer)
            .unwrap();
        gw.answer(1, Leg::Caller, direct("10.99.1.20"), &answer)
            .unwrap();
        let kind = gw.flow(phone_told).map(|flow| flow.kind);
        (
            kind,
            gw.flow(rtcp).is_some(),
            gw.media.may_be_silent(SessionId(1)),
        )
    };
    let fax = agree(image(FAR), image(PHONE));
    assert_eq!(fax, (Some(FlowKind::Udptl), false, true));
    let voice = agree(audio(FAR, ""), audio(PHONE, ""));
    assert_eq!(voice, (Some(FlowKind::Rtp), true, false));
}
