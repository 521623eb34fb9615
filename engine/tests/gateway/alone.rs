//! No softswitch left: phones keep registering and calling each other, and go back when it
//! returns (signalling.md sections 4 and 5).

use std::time::Duration;

use crate::outlives::{header, returned, with_policy};
use crate::world::{
    ALICE, BOB, LAN, SS1, SS2, Sent, World, addr, body, follow, invite, register, sdp,
};
use keepline_engine::{conf::Policy, sip::Name};

const CAROL: &str = "10.99.1.13:5060";

/// Both servers fall silent and are found out.
fn alone() -> World {
    let mut world = with_policy(Policy::Known);
    world.alive.clear();
    world.pass_ms(60_000);
    assert!(
        world
            .events
            .iter()
            .any(|event| event.kind == "group" && event.to.contains("survivability")),
        "{:#?}",
        world.events
    );
    world.sent.clear();
    world
}

/// Bob's phone answers what it was sent.
fn bob_answers(world: &mut World) {
    let ring = world.one(BOB, "INVITE");
    world.answer(
        &ring,
        "200 OK",
        &format!("Contact: <sip:202@{BOB}>\n{}", body(&sdp(BOB, 5000))),
    );
}

#[test]
fn em13_known_phones_register_here_and_others_do_not() {
    let mut world = alone();
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    let ok = world.one(ALICE, "200");
    let contact = header(&ok, Name::Contact);
    let expires: u64 = contact.rsplit('=').next().unwrap().parse().unwrap();
    assert!(
        contact.starts_with("<sip:201@10.99.1.11:5060>;expires="),
        "{contact}"
    );
    assert!((54..=66).contains(&expires), "{expires}");
    let local = world
        .gateway
        .registrations(world.now)
        .all(|view| !view.upstream);
    assert!(local, "the gateway itself vouches for its phones now");
    assert!(world.to(SS1).iter().all(|sent| sent.what() == "OPTIONS"));
    // The same user from elsewhere, somebody else's captured request, a wildcard: refused.
    let spoofed = register("201", CAROL, 3, 3600);
    let replayed =
        register("201", ALICE, 2, 3600).replace("branch=z9hG4bK", "branch=z9hG4bKcaptured");
    let wildcard = register("201", ALICE, 4, 0)
        .replace("<sip:201@10.99.1.11:5060>", "*")
        .replace("branch=z9hG4bK", "branch=z9hG4bKw");
    for (text, what) in [
        (spoofed, "spoofed"),
        (replayed, "replayed"),
        (wildcard, "wildcard"),
    ] {
        world.hear(LAN, CAROL, &text);
        assert_eq!(world.one(CAROL, "403").what(), "403", "{what}");
    }
    world.hear(LAN, CAROL, &register("299", CAROL, 1, 3600));
    world.one(CAROL, "403");
    assert!(
        world
            .events
            .iter()
            .any(|event| event.rule == "not_known_from_this_source")
    );
    assert_eq!(
        world
            .gateway
            .registrations(world.now)
            .filter(|view| view.source == addr(ALICE))
            .count(),
        1
    );
}

#[test]
fn em22_policies_off_and_open_lan() {
    let mut world = with_policy(Policy::Off);
    world.alive.clear();
    world.pass_ms(60_000);
    world.sent.clear();
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    world.one(ALICE, "500");
    let mut world = with_policy(Policy::OpenLan);
    world.alive.clear();
    world.pass_ms(60_000);
    world.sent.clear();
    world.hear(LAN, CAROL, &register("299", CAROL, 1, 3600));
    world.one(CAROL, "200");
}

#[test]
fn em21_two_phones_talk_at_once_when_down_is_known() {
    let mut world = alone();
    for (user, phone) in [("201", ALICE), ("202", BOB)] {
        world.hear(LAN, phone, &register(user, phone, 2, 3600));
        world.one(phone, "200");
    }
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    bob_answers(&mut world);
    let ok = world
        .to(ALICE)
        .into_iter()
        .find(|sent| sent.what() == "200")
        .expect("answered at once");
    assert!(
        String::from_utf8_lossy(ok.msg.body()).contains("c=IN IP4 10.99.1.1"),
        "anchored: {}",
        ok.text()
    );
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.one(BOB, "ACK");
    let rtp = world
        .gateway
        .media()
        .flows()
        .filter(|(_, flow)| flow.kind == keepline_engine::steer::FlowKind::Rtp)
        .count();
    assert_eq!(rtp, 2, "audio both ways through the data path");
    // Either party may hang up; here the callee, whose tags stand the other way round.
    let call_id = "call-1@10.99.1.11";
    world.hear(LAN, BOB, &format!("BYE sip:x@10.99.1.1 SIP/2.0\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKbye\nMax-Forwards: 70\nFrom: <sip:202@example.test>;tag=b1\nTo: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\nCSeq: 1 BYE\nContent-Length: 0\n\n"));
    let bye = world.one(ALICE, "BYE");
    assert!(
        bye.text()
            .starts_with("BYE sip:201@10.99.1.11:5060 SIP/2.0")
    );
    world.answer(&bye, "200 OK", "");
    world.one(BOB, "200");
    assert_eq!(world.gateway.call_count(), 0);
}

#[test]
fn em21_the_first_call_after_both_died_is_connected_within_four_seconds() {
    let mut world = with_policy(Policy::Known);
    world.alive.clear();
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let begun = world.now;
    while !world
        .sent
        .iter()
        .any(|sent| sent.to == addr(BOB) && sent.what() == "INVITE")
    {
        world.pass_ms(10);
        assert!(
            world.now.mono.since(begun.mono) <= Duration::from_secs(4),
            "not connected within the hunt budget"
        );
    }
    bob_answers(&mut world);
    let finals: Vec<String> = world.to(ALICE).iter().map(Sent::what).collect();
    assert_eq!(finals, ["100", "200"]);
    // What a dead server says late is ended here.
    world.pass_ms(40_000);
    assert_eq!(world.gateway.call_count(), 1);
}

/// Alice calls a user with two phones, without a softswitch; what each of them was sent.
fn both_ring() -> (World, Sent, Sent) {
    let mut world = with_policy(Policy::Known);
    world.register("202", CAROL);
    world.alive.clear();
    world.pass_ms(60_000);
    for phone in [BOB, CAROL] {
        world.hear(LAN, phone, &register("202", phone, 2, 3600));
    }
    world.sent.clear();
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let (bob, carol) = (world.one(BOB, "INVITE"), world.one(CAROL, "INVITE"));
    (world, bob, carol)
}

#[test]
fn em16_several_phones_of_one_user_ring_together_and_one_wins() {
    let (mut world, bob, carol) = both_ring();
    world.answer_tagged(&bob, "180 Ringing", "bob", "");
    world.answer_tagged(&carol, "180 Ringing", "carol", "");
    world.answer_tagged(
        &carol,
        "200 OK",
        "carol",
        &format!("Contact: <sip:202@{CAROL}>\n{}", body(&sdp(CAROL, 5002))),
    );
    world.one(BOB, "CANCEL");
    world.answer_tagged(&bob, "487 Request Terminated", "bob", "");
    let finals: Vec<String> = world.to(ALICE).iter().map(Sent::what).collect();
    assert_eq!(finals, ["100", "180", "180", "200"]);
    assert_eq!(
        world.gateway.call_count(),
        1,
        "the early dialog of the other phone is gone"
    );
}

#[test]
fn em16_of_refusals_the_best_is_relayed_once_all_have_refused() {
    let (mut world, bob, carol) = both_ring();
    world.answer(&bob, "500 Broken", "");
    assert!(
        world.to(ALICE).iter().all(|sent| sent.what() == "100"),
        "too early"
    );
    world.answer(&carol, "486 Busy Here", "");
    world.one(ALICE, "486");
    assert_eq!(world.gateway.call_count(), 0);
}

#[test]
fn em21_a_phone_that_is_silent_or_unknown_is_not_waited_for() {
    let mut world = alone();
    for (user, phone) in [("201", ALICE), ("202", BOB)] {
        world.hear(LAN, phone, &register(user, phone, 2, 3600));
    }
    world.sent.clear();
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.pass_ms(4_100);
    world.one(ALICE, "480");
    world.hear(
        LAN,
        ALICE,
        &invite("201", ALICE, "777", 2, "").replace("call-1", "call-2"),
    );
    let answers: Vec<String> = world.to(ALICE).iter().map(Sent::what).collect();
    assert!(answers.contains(&"480".to_owned()), "{answers:?}");
    let subscribe = follow("SUBSCRIBE", "201", ALICE, "202", 3, "")
        .replace(";tag=b1", "")
        .replace("call-1", "sub-1");
    world.hear(LAN, ALICE, &subscribe);
    let later = world
        .to(ALICE)
        .into_iter()
        .find(|sent| sent.what() == "480" && sent.text().contains("Retry-After"));
    let seconds: u64 = header(&later.expect("480 with Retry-After"), Name::RetryAfter)
        .parse()
        .unwrap();
    assert!((60..=120).contains(&seconds));
}

#[test]
fn em17_after_the_return_new_calls_go_up_and_local_ones_live_on() {
    let mut world = alone();
    for (user, phone) in [("201", ALICE), ("202", BOB)] {
        world.hear(LAN, phone, &register(user, phone, 2, 3600));
        world.one(phone, "200");
    }
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    bob_answers(&mut world);
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    returned(&mut world);
    world.hear(
        LAN,
        BOB,
        &invite("202", BOB, "900", 1, "").replace("call-1", "call-9"),
    );
    world.one(SS1, "INVITE");
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "202", 2, ""));
    let bye = world.one(BOB, "BYE");
    world.answer(&bye, "200 OK", "");
    world.one(ALICE, "200");
}

#[test]
fn em17_registrations_are_released_at_the_rate_and_none_is_refused() {
    let mut world = with_policy(Policy::Known);
    let phones: Vec<(String, String)> = (0..200)
        .map(|n| {
            (
                format!("3{n:03}"),
                format!("10.99.1.{}:{}", 20 + n % 100, 6000 + n),
            )
        })
        .collect();
    for (user, phone) in &phones {
        world.register(user, phone);
    }
    world.alive.clear();
    world.pass_ms(60_000);
    for (user, phone) in &phones {
        world.hear(LAN, phone, &register(user, phone, 2, 3600));
        world.one(phone, "200");
    }
    returned(&mut world);
    let mut upstream = 0;
    for (n, (user, phone)) in phones.iter().enumerate() {
        world.hear(LAN, phone, &register(user, phone, 3, 3600));
        let up: Vec<Sent> = [SS1, SS2]
            .into_iter()
            .flat_map(|server| world.to(server))
            .filter(|sent| sent.what() == "REGISTER")
            .collect();
        for sent in &up {
            let uri = sent.msg.contacts().next().unwrap().uri;
            let contact = String::from_utf8_lossy(sent.msg.slice(uri)).into_owned();
            world.answer(
                sent,
                "200 OK",
                &format!("Contact: <{contact}>;expires=3600\n"),
            );
        }
        upstream += up.len();
        world.one(phone, "200");
        if n % 100 == 99 {
            world.pass_ms(1000);
        }
    }
    assert!(
        (95..=105).contains(&upstream),
        "{upstream} of 200 within 1 s at 50/s, 50 at once"
    );
}

#[test]
fn em16_the_last_digits_dial_a_phone() {
    let mut world = with_policy(Policy::Known);
    world.register("5551789", CAROL);
    world.alive.clear();
    world.pass_ms(60_000);
    world.hear(LAN, CAROL, &register("5551789", CAROL, 2, 3600));
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    for (cseq, (dialled, rings)) in (1..).zip([("551", false), ("1789", false), ("789", true)]) {
        world.sent.clear();
        let text =
            invite("201", ALICE, dialled, cseq, "").replace("call-1", &format!("call-{dialled}"));
        world.hear(LAN, ALICE, &text);
        let rung = world.to(CAROL).iter().any(|sent| sent.what() == "INVITE");
        assert_eq!(rung, rings, "{dialled}: three digits are configured");
    }
}

#[test]
fn em13_a_phone_that_unregisters_is_called_no_more() {
    let mut world = alone();
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    world.hear(LAN, BOB, &register("202", BOB, 2, 3600));
    world.hear(LAN, BOB, &register("202", BOB, 3, 0));
    world.sent.clear();
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    assert!(world.to(BOB).is_empty(), "it rings no more");
    assert!(world.to(ALICE).iter().any(|sent| sent.what() == "480"));
    // It is known when it comes again.
    world.hear(LAN, BOB, &register("202", BOB, 4, 3600));
    world.one(BOB, "200");
}

#[test]
fn em22_a_flood_of_strangers_leaves_room_in_the_journal() {
    let mut world = alone();
    let before = world.events.len();
    for n in 0..2_000 {
        let user = format!("9{n}");
        world.hear(LAN, CAROL, &register(&user, CAROL, 1, 3600));
        world.one(CAROL, "403");
    }
    assert_eq!(world.events.len() - before, 20);
    world.pass_ms(10_000);
    world.hear(LAN, CAROL, &register("9", CAROL, 1, 3600));
    let last = world.events.last().expect("an event");
    assert!(last.evidence[0].what.contains("1980 more"), "{last:?}");
}

#[test]
fn em16_one_phone_cannot_make_a_call_to_it_ring_a_thousand_times() {
    let mut world = alone();
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    let mut taken = 0;
    for n in 0..50_u32 {
        let at = format!("10.99.1.12:{}", 6000 + n);
        let text = register("202", &at, 2, 3600).replace("z9hG4bK", &format!("z9hG4bK{n}x"));
        world.hear(LAN, &at, &text);
        taken += world
            .to(&at)
            .iter()
            .filter(|sent| sent.what() == "200")
            .count();
    }
    assert_eq!(taken, 9, "with the one it had");
    world.sent.clear();
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let rung = world.sent.iter().filter(|sent| sent.what() == "INVITE");
    assert!(rung.count() <= 10);
}

#[test]
fn em22_without_a_verdict_a_stranger_is_asked_to_come_again() {
    let mut world = with_policy(Policy::Known);
    world.sent.clear();
    world.hear(LAN, CAROL, &register("9", CAROL, 1, 3600));
    // Both servers answer their probes, and never this.
    world.pass_ms(40_000);
    let finals: Vec<_> = (world.to(CAROL).iter().map(Sent::what))
        .filter(|what| what != "100")
        .collect();
    assert_eq!(
        finals.first().map(String::as_str),
        Some("500"),
        "{finals:?}"
    );
}
