//! Registration and calls through the gateway, with its softswitch alive.

use crate::world::{
    self, ALICE, BOB, GW_LAN, GW_WAN, LAN, SS1, WAN, World, addr, body, follow, invite, register,
    sdp,
};
use keepline_engine::{media::Seen, sip::Name, steer::Delta};

fn header(msg: &keepline_engine::sip::Message, name: Name) -> String {
    msg.header(name)
        .map(|span| String::from_utf8_lossy(msg.slice(span)).into_owned())
        .unwrap_or_default()
}

#[test]
fn em18_a_register_leaves_with_a_token_and_returns_byte_for_byte() {
    let mut world = World::new();
    world.hear(LAN, ALICE, &register("201", ALICE, 1, 3600));
    let up = world.one(SS1, "REGISTER");
    assert!(
        !up.text().contains("10.99."),
        "a LAN address on the WAN:\n{}",
        up.text()
    );
    let contact = up.msg.contacts().next().unwrap();
    let contact = String::from_utf8_lossy(up.msg.slice(contact.uri)).into_owned();
    assert!(contact.ends_with(&format!("@{GW_WAN}")), "{contact}");
    world.answer(
        &up,
        "200 OK",
        &format!("Contact: <{contact}>;expires=3600\nService-Route: <sip:192.0.2.10;lr>\n"),
    );
    let ok = world.one(ALICE, "200");
    assert!(
        !ok.text().contains("192.0.2."),
        "a WAN address on the LAN:\n{}",
        ok.text()
    );
    assert!(header(&ok.msg, Name::Contact).starts_with("<sip:201@10.99.1.11:5060>;expires="));
    assert_eq!(world.gateway.registration_count(world.now), 1);
}

#[test]
fn em24_refreshes_are_answered_here_until_half_the_upstream_expiry() {
    let mut world = World::new();
    world.register("201", ALICE);
    for cseq in 2..=40 {
        world.pass_ms(50_000);
        world.hear(LAN, ALICE, &register("201", ALICE, cseq, 3600));
        let asked = world.to(SS1).iter().any(|sent| sent.what() == "REGISTER");
        let elapsed = u64::from(cseq - 1) * 50;
        assert_eq!(asked, elapsed >= 1800, "refresh after {elapsed} s");
        if asked {
            return;
        }
        world.one(ALICE, "200");
    }
    panic!("never refreshed upstream");
}

#[test]
fn case_f4_anything_new_in_a_refresh_goes_upstream() {
    let mut world = World::new();
    world.register("201", ALICE);
    let refresh = register("201", ALICE, 2, 3600);
    let changes = [
        refresh.replace("Contact: <sip:201@", "Contact: <sip:other@"),
        refresh.replace("Call-ID: reg-201", "Call-ID: reg-other"),
        refresh.replace("Expires: 3600", "Expires: 0"),
        refresh.replace("Max-", "Authorization: Digest username=\"x\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"0\"\nMax-"),
        register("201", ALICE, 1, 3600).replace("branch=z9hG4bK", "branch=z9hG4bKreplayed"),
    ];
    for (index, changed) in changes.into_iter().enumerate() {
        let branch = format!("branch=z9hG4bK{index}");
        world.hear(LAN, ALICE, &changed.replace("branch=z9hG4bK", &branch));
        assert_eq!(
            world
                .to(SS1)
                .iter()
                .filter(|sent| sent.what() == "REGISTER")
                .count(),
            1,
            "{changed}"
        );
        assert!(world.to(ALICE).is_empty(), "answered here:\n{changed}");
    }
}

#[test]
fn case_f1_one_phone_leaves_and_the_other_stays() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.register("201", BOB);
    assert_eq!(world.gateway.registration_count(world.now), 2);
    let wildcard =
        register("201", ALICE, 2, 0).replace("Contact: <sip:201@10.99.1.11:5060>", "Contact: *");
    world.hear(LAN, ALICE, &wildcard);
    let up = world.one(SS1, "REGISTER");
    let contacts: Vec<String> = up
        .msg
        .contacts()
        .map(|addr| String::from_utf8_lossy(up.msg.slice(addr.value)).into_owned())
        .collect();
    assert_eq!(contacts.len(), 1, "only Alice's own: {contacts:?}");
    assert!(contacts[0].ends_with(";expires=0"));
    world.answer(&up, "200 OK", "");
    world.one(ALICE, "200");
    let left: Vec<String> = world
        .gateway
        .registrations(world.now)
        .map(|view| view.source.to_string())
        .collect();
    assert_eq!(left, [BOB]);
}

/// Alice calls; the far party answers with early media and a Record-Route.
fn call(world: &mut World) {
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let trying = world.one(ALICE, "100");
    assert!(trying.msg.to_tag().is_none());
    let up = world.one(SS1, "INVITE");
    assert!(
        !up.text().contains("10.99."),
        "a LAN address on the WAN:\n{}",
        up.text()
    );
    let answer = body(&sdp("203.0.113.9:1", 6000));
    let routes = "Record-Route: <sip:192.0.2.10;lr>\nContact: <sip:202@203.0.113.9:5080>\n";
    world.answer(&up, "183 Session Progress", &format!("{routes}{answer}"));
    let early = world.one(ALICE, "183");
    assert!(
        !early.text().contains("192.0.2."),
        "a WAN address on the LAN:\n{}",
        early.text()
    );
    assert!(
        !early.text().contains("203.0.113."),
        "a WAN address on the LAN:\n{}",
        early.text()
    );
    world.answer(&up, "200 OK", &format!("{routes}{answer}"));
    let ok = world.one(ALICE, "200");
    assert_eq!(header(&ok.msg, Name::CallId), "call-1@10.99.1.11");
    assert!(String::from_utf8_lossy(ok.msg.body()).contains("c=IN IP4 10.99.1.1"));
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    let ack = world.one(SS1, "ACK");
    assert!(
        ack.text()
            .starts_with("ACK sip:202@203.0.113.9:5080 SIP/2.0")
    );
    assert_eq!(header(&ack.msg, Name::Route), "<sip:192.0.2.10;lr>");
}

/// The fast path forgets nothing by itself, and nobody tells it to for silence alone.
#[test]
fn case_x24_silence_of_two_minutes_keeps_every_flow_until_the_bye() {
    let mut world = World::new();
    world.register("201", ALICE);
    call(&mut world);
    let kept: Vec<_> = world.gateway.media().flows().map(|(id, _)| id).collect();
    assert!(!kept.is_empty(), "no flow to begin with");
    world.deltas.clear();
    world.pass_ms(120_000);
    let gone = |delta: &&Delta| matches!(delta, Delta::FlowClear(_) | Delta::PortClose { .. });
    assert_eq!(world.deltas.iter().filter(gone).count(), 0);
    let left: Vec<_> = world.gateway.media().flows().map(|(id, _)| id).collect();
    assert_eq!(left, kept);
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "202", 2, ""));
    let bye = world.one(SS1, "BYE");
    world.answer(&bye, "200 OK", "");
    assert_eq!(world.gateway.media().flows().count(), 0, "ended by the BYE");
}

#[test]
fn a_call_is_anchored_and_ends_from_either_side() {
    for far_hangs_up in [false, true] {
        let mut world = World::new();
        world.register("201", ALICE);
        call(&mut world);
        assert_eq!(world.gateway.call_count(), 1);
        assert_eq!(
            world.gateway.media().flows().count(),
            2,
            "RTP and RTCP of the phone: its source is certain"
        );
        let far: Vec<_> = world
            .deltas
            .iter()
            .filter_map(|delta| match delta {
                Delta::PortOpen { local, .. } if local.ip() == addr(GW_WAN).ip() => Some(*local),
                _ => None,
            })
            .collect();
        let seen = world
            .gateway
            .media_seen(world.now, far[0], addr("203.0.113.9:6000"));
        assert!(matches!(seen, Seen::Relay { .. }), "{seen:?}");
        assert_eq!(
            world.gateway.media().flows().count(),
            3,
            "the far party's RTP, learned"
        );
        if far_hangs_up {
            let view = world.gateway.calls().next().unwrap();
            let call_id = {
                world.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "202", 7, ""));
                let info = world.one(SS1, "INFO");
                world.answer(&info, "200 OK", "");
                world.one(ALICE, "200");
                header(&info.msg, Name::CallId)
            };
            assert_ne!(call_id, view.call_id, "the LAN's Call-ID names an address");
            world.hear(WAN, SS1, &format!(
                "BYE sip:x@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKbye\nMax-Forwards: 70\nFrom: <sip:202@example.test>;tag=b1\nTo: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\nCSeq: 9 BYE\nContent-Length: 0\n\n"
            ));
            let bye = world.one(ALICE, "BYE");
            assert!(
                bye.text()
                    .starts_with("BYE sip:201@10.99.1.11:5060 SIP/2.0")
            );
            assert_eq!(header(&bye.msg, Name::CallId), "call-1@10.99.1.11");
            assert!(!bye.text().contains("192.0.2."), "{}", bye.text());
            world.answer(&bye, "200 OK", "");
            world.one(SS1, "200");
        } else {
            world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "202", 2, ""));
            let bye = world.one(SS1, "BYE");
            world.answer(&bye, "200 OK", "");
            world.one(ALICE, "200");
        }
        assert_eq!(world.gateway.call_count(), 0);
        assert_eq!(world.gateway.media().flows().count(), 0);
    }
}

#[test]
fn a_spiral_is_two_calls_and_one_rewrite_per_packet() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.register("202", BOB);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let out = world.one(SS1, "INVITE");
    let token = {
        let view = world
            .gateway
            .registrations(world.now)
            .find(|view| view.aor.starts_with("202"))
            .unwrap();
        assert_eq!(view.contact, format!("sip:202@{BOB}"));
        // What the softswitch knows Bob by: the Contact it was given.
        world.hear(
            LAN,
            BOB,
            &register("202", BOB, 2, 60).replace("reg-202", "reg-again"),
        );
        let up = world.one(SS1, "REGISTER");
        let uri = up.msg.contacts().next().unwrap().uri;
        String::from_utf8_lossy(up.msg.slice(uri)).into_owned()
    };
    // The softswitch proxies it back to us: its own Via and Record-Route on top.
    let text = out.text().replacen("Via:", "Via: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKproxy\r\nRecord-Route: <sip:192.0.2.10;lr>\r\nVia:", 1);
    let first = text.lines().next().unwrap().to_owned();
    let back = text.replacen(&first, &format!("INVITE {token} SIP/2.0"), 1);
    world.hear_bytes(WAN, SS1, back.into_bytes());
    world.to(SS1); // its 100
    let to_bob = world.one(BOB, "INVITE");
    assert!(
        to_bob.text().contains("Call-ID: call-1@10.99.1.11"),
        "{}",
        to_bob.text()
    );
    let answer = body(&sdp(BOB, 5000));
    world.answer(
        &to_bob,
        "200 OK",
        &format!("Contact: <sip:202@{BOB}>\n{answer}"),
    );
    // Our 200 to the softswitch comes back through it, one Via less.
    let ok = world.one(SS1, "200");
    let text = ok.text();
    let top = text
        .lines()
        .find(|line| line.starts_with("Via:"))
        .unwrap()
        .to_owned()
        + "\r\n";
    world.hear_bytes(WAN, SS1, text.replacen(&top, "", 1).into_bytes());
    world.one(ALICE, "200");
    assert_eq!(world.gateway.call_count(), 2);
    let direct: Vec<(String, String)> = world
        .gateway
        .media()
        .flows()
        .filter(|(_, flow)| flow.kind == keepline_engine::steer::FlowKind::Rtp)
        .map(|(_, flow)| (flow.source.to_string(), flow.to.to_string()))
        .collect();
    let expected = [
        ("10.99.1.11:4000", "10.99.1.12:5000"),
        ("10.99.1.12:5000", "10.99.1.11:4000"),
    ];
    let mut direct: Vec<_> = direct
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    direct.sort_unstable();
    assert_eq!(direct, expected, "one rewrite per packet: LAN to LAN");
    assert!(GW_LAN.starts_with("10.99.1.1"));
}

#[test]
fn case_p5_draining_refuses_new_work_and_keeps_calls() {
    let mut world = World::new();
    world.register("201", ALICE);
    call(&mut world);
    world.gateway.drain(world.now, true);
    world.hear(WAN, SS1, &format!("OPTIONS sip:{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKo\nFrom: <sip:a@b>;tag=1\nTo: <sip:c@d>\nCall-ID: o\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n"));
    let unavailable = world.one(SS1, "503");
    assert_eq!(header(&unavailable.msg, Name::RetryAfter), "");
    world.hear(
        LAN,
        BOB,
        &invite("202", BOB, "203", 5, "").replace("call-1", "call-2"),
    );
    let seen: Vec<String> = world.to(BOB).iter().map(world::Sent::what).collect();
    assert_eq!(seen, ["100", "503"]);
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "202", 2, ""));
    world.one(SS1, "BYE");
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    world.one(ALICE, "200");
    world.pass_ms(61_000);
    world.to(ALICE);
    world.hear(LAN, ALICE, &register("201", ALICE, 3, 3600));
    world.one(ALICE, "503");
    world.hear(LAN, ALICE, &register("201", ALICE, 4, 0));
    world.one(SS1, "REGISTER");
}

#[test]
fn strangers_on_the_wan_are_dropped_and_counted() {
    let mut world = World::new();
    world.hear(WAN, "203.0.113.66:5060", &format!("OPTIONS sip:{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 203.0.113.66;branch=z9hG4bKo\nFrom: <sip:a@b>;tag=1\nTo: <sip:c@d>\nCall-ID: o\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n"));
    assert!(world.left().is_empty());
    assert_eq!(world.gateway.counters().not_a_peer, 1);
}

#[test]
fn case_s8_replies_go_to_the_real_source() {
    let mut world = World::new();
    world.hear(LAN, "10.99.1.77:40000", "OPTIONS sip:10.99.1.1 SIP/2.0\nVia: SIP/2.0/UDP 10.99.99.99:5078;rport;branch=z9hG4bKo\nFrom: <sip:a@b>;tag=1\nTo: <sip:c@d>\nCall-ID: o\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n");
    let ok = world.one("10.99.1.77:40000", "200");
    let via = header(&ok.msg, Name::Via);
    assert!(
        via.contains("received=10.99.1.77") && via.contains("rport=40000"),
        "{via}"
    );
}

/// RFC 3311 section 5.1: a refused UPDATE leaves the session as it was, and no offer open: the
/// other party's next offer would be answered 491 otherwise.
#[test]
fn a_refused_update_leaves_no_open_offer() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.one(ALICE, "100");
    let up = world.one(SS1, "INVITE");
    let answer = body(&sdp("203.0.113.9:6000", 6000));
    let far = "Contact: <sip:202@192.0.2.10:5060>\n";
    world.answer(&up, "200 OK", &format!("{far}{answer}"));
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.one(SS1, "ACK");
    let offer = body(&sdp(ALICE, 4002));
    world.hear(
        LAN,
        ALICE,
        &follow("UPDATE", "201", ALICE, "202", 2, &offer),
    );
    let update = world.one(SS1, "UPDATE");
    world.answer(&update, "488 Not Acceptable Here", "");
    world.one(ALICE, "488");
    let call_id = up.msg.call_id().expect("a Call-ID");
    let call_id = String::from_utf8_lossy(call_id);
    let offer = body(&sdp("203.0.113.9:6000", 6002));
    let theirs = format!(
        "UPDATE sip:201@198.51.100.1:5060 SIP/2.0
Via: SIP/2.0/UDP 192.0.2.10:5060;branch=z9hG4bKtheirs
Max-Forwards: 70
From: <sip:202@example.test>;tag=b1
To: <sip:201@example.test>;tag=a1
Call-ID: {call_id}
CSeq: 5 UPDATE
{far}{offer}"
    );
    world.hear(WAN, SS1, &theirs);
    let asked = world.one(ALICE, "UPDATE");
    let accepted = body(&sdp(ALICE, 4000));
    world.answer(&asked, "200 OK", &accepted);
    world.one(SS1, "200");
}
