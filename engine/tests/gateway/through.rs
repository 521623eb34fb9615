//! Transparent mode without hiding: SIP between a phone and its softswitch goes through as it
//! is. The gateway learns from copies, and takes over when the softswitch is silent (EM20, KL2).

use std::time::Duration;

use crate::world::{ALICE, BOB, SS1, SS2, World, addr, body, conf, follow, invite, register, sdp};
use keepline_engine::{
    conf::{Conf, Mode, Policy},
    gateway::Sender,
    sip::{Message, Name},
    steer::{Delta, Stamps, Talk, TalkId},
};

fn open() -> Conf {
    let mut conf = conf();
    conf.mode = Mode::Transparent;
    conf.hide_topology = false;
    conf.survivability.policy = Policy::Known;
    conf
}

fn crlf(text: &str) -> Vec<u8> {
    let text = text.replace("\r\n", "\n").replace('\n', "\r\n");
    text.into_bytes()
}

/// How the talk of a phone with SS1 stands, by the last word of it.
fn talk(world: &World, phone: &str) -> Option<Talk> {
    let of = |delta: &Delta| match delta {
        Delta::TalkSet(talk) if talk.phone == addr(phone) => Some(Some(*talk)),
        _ => None,
    };
    let last = world.deltas.iter().rev().find_map(of).flatten()?;
    let gone = world
        .deltas
        .iter()
        .rposition(|d| *d == Delta::TalkClear(last.id));
    let set = world
        .deltas
        .iter()
        .rposition(|d| *d == Delta::TalkSet(last));
    (gone < set).then_some(last)
}

fn id(world: &World, phone: &str) -> TalkId {
    talk(world, phone).expect("a talk").id
}

/// The data path routed this, and sent a copy.
fn copied(world: &mut World, phone: &str, sender: Sender, bytes: Vec<u8>) {
    let id = id(world, phone);
    let now = world.now;
    world.gateway.copied(now, id, sender, Duration::ZERO, bytes);
    world.pass_ms(0);
}

fn routed(world: &mut World, phone: &str, text: &str) -> Message {
    copied(world, phone, Sender::Phone, crlf(text));
    Message::parse(crlf(text)).expect("a message")
}

fn server_says(world: &mut World, phone: &str, request: &Message, status: &str, extra: &str) {
    let text = crate::world::response(request, status, "b1", extra);
    copied(world, phone, Sender::Server, text);
}

/// What the data path stamped, if no response came since the request `ago`.
fn silence(ago: u64) -> Stamps {
    let ago = Some(Duration::from_millis(ago));
    Stamps {
        request: ago,
        response: None,
        unanswered: ago,
    }
}

/// A REGISTER comes to us and goes on; its 200 passes by.
fn registers(world: &mut World, user: &str, phone: &str, cseq: u32) -> Message {
    let text = register(user, phone, cseq, 3600);
    world.hear_to(SS1, phone, &text);
    let (from, to, bytes) = world.passed.pop().expect("it went on");
    assert_eq!((from, to), (addr(phone), addr(SS1)));
    let request = Message::parse(bytes).expect("a message");
    let ok = format!("Contact: <sip:{user}@{phone}>;expires=3600\n");
    server_says(world, phone, &request, "200 OK", &ok);
    request
}

/// Alice and Bob are registered, and routed.
fn office() -> World {
    let mut world = World::with(open());
    registers(&mut world, "201", ALICE, 1);
    registers(&mut world, "202", BOB, 1);
    world.pass_ms(10_000);
    assert!(
        world.sent.is_empty() && world.stamps.is_empty(),
        "{:?}",
        world.left()
    );
    world
}

/// Time passes until the stamps of a talk are asked for; how long that took.
fn until_asked(world: &mut World) -> u64 {
    for ms in 1..=5_000 {
        world.pass_ms(1);
        if world.stamps.pop().is_some() {
            return ms;
        }
    }
    panic!("never asked");
}

fn stamp(world: &mut World, phone: &str, stamps: Stamps) {
    let (id, now) = (id(world, phone), world.now);
    world.gateway.stamped(now, id, stamps);
    world.pass_ms(0);
}

/// Alice calls, and no answer comes: her talk turns up and the softswitch is suspect.
fn unanswered_call(world: &mut World, to: &str) {
    routed(world, ALICE, &invite("201", ALICE, to, 1, ""));
    assert_eq!(until_asked(world), 500);
    stamp(world, ALICE, silence(500));
    assert!(talk(world, ALICE).is_some_and(|talk| talk.up));
}

#[test]
fn em20_a_register_goes_through_as_it_is_and_its_talk_is_routed_after_the_2xx() {
    let mut world = World::with(open());
    let text = register("201", ALICE, 1, 3600);
    world.hear_to(SS1, ALICE, &text);
    let (from, to, bytes) = world.passed.pop().expect("it went on");
    assert_eq!((from, to, &bytes), (addr(ALICE), addr(SS1), &crlf(&text)));
    let trial = talk(&world, ALICE).expect("its answer must be seen");
    assert!(trial.up && !trial.bound);
    let request = Message::parse(bytes).expect("a message");
    server_says(&mut world, ALICE, &request, "401 Unauthorized", "");
    assert!(talk(&world, ALICE).is_some_and(|talk| talk.up && !talk.bound));
    registers(&mut world, "201", ALICE, 2);
    let proven = talk(&world, ALICE).expect("a talk");
    assert!(!proven.up && proven.bound);
    let binding = &world.store.bindings[0];
    assert_eq!(
        binding.upstream_contact,
        format!("sip:201@{ALICE}").as_bytes()
    );
    assert_eq!(binding.granted, Duration::from_secs(3600));
    assert!(world.sent.is_empty(), "we said nothing: {:?}", world.left());
}

#[test]
fn em20_what_nobody_accepted_is_forgotten_and_what_was_lives_as_long_as_granted() {
    let mut world = World::with(open());
    world.hear_to(SS1, ALICE, &register("201", ALICE, 1, 3600));
    world.pass(Duration::from_secs(70));
    assert_eq!(talk(&world, ALICE), None);
    registers(&mut world, "201", ALICE, 2);
    world.pass(Duration::from_secs(3600));
    assert!(talk(&world, ALICE).is_some());
    world.pass(Duration::from_secs(33));
    assert_eq!(talk(&world, ALICE), None);
    assert_eq!(world.gateway.talks().count(), 0);
}

#[test]
fn kl2_em20_a_request_unanswered_for_500_ms_turns_the_talk_up_and_starts_the_burst() {
    let mut world = office();
    world.alive = vec![SS2];
    routed(&mut world, ALICE, &invite("201", ALICE, "900", 1, ""));
    world.pass_ms(499);
    assert!(world.stamps.is_empty());
    world.pass_ms(1);
    assert_eq!(world.stamps.pop(), Some(id(&world, ALICE)));
    assert!(world.to(SS1).is_empty(), "before the stamps say so");
    stamp(&mut world, ALICE, silence(500));
    assert!(talk(&world, ALICE).is_some_and(|talk| talk.up && talk.bound));
    assert!(
        talk(&world, BOB).is_some_and(|talk| !talk.up),
        "his are answered"
    );
    assert_eq!(world.to(SS1).len(), 1, "the burst begins");
    world.pass_ms(699);
    assert_eq!(world.to(SS1).len(), 2);
    assert!(talk(&world, BOB).is_some_and(|talk| !talk.up));
    world.pass_ms(1);
    // Down: everybody's talk is up, and the call is on its way to the other server.
    assert!(talk(&world, BOB).is_some_and(|talk| talk.up));
    let backup = world.one(SS2, "INVITE");
    assert!(!backup.text().contains("10.99."), "{}", backup.text());
}

#[test]
fn em20_em4_that_very_call_is_taken_over_at_the_verdict() {
    let mut world = office();
    world.alive = vec![SS2];
    unanswered_call(&mut world, "900");
    // The phone's own retransmission comes to us by now, and goes on while nothing is decided.
    world.hear_to(SS1, ALICE, &invite("201", ALICE, "900", 1, ""));
    assert_eq!(world.passed.len(), 1);
    world.pass_ms(700);
    let backup = world.one(SS2, "INVITE");
    let far = format!(
        "Contact: <sip:900@192.0.2.11>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.answer(&backup, "200 OK", &far);
    let ok = world.one(ALICE, "200");
    assert_eq!(world.source(&ok), SS1);
    // The next retransmission finds the answer; what follows in the call is ours.
    world.hear_to(SS1, ALICE, &invite("201", ALICE, "900", 1, ""));
    assert_eq!(world.passed.len(), 1);
    world.hear_to(SS1, ALICE, &follow("ACK", "201", ALICE, "900", 1, ""));
    world.one(SS2, "ACK");
    world.hear_to(SS1, ALICE, &follow("BYE", "201", ALICE, "900", 2, ""));
    world.one(SS2, "BYE");
}

#[test]
fn em20_em13_phones_call_one_another_when_no_server_is_left() {
    let mut world = office();
    world.alive = Vec::new();
    unanswered_call(&mut world, "202");
    world.pass_ms(700);
    let ring = loop {
        world.pass_ms(10);
        if let Some(ring) = world
            .to(BOB)
            .into_iter()
            .find(|sent| sent.what() == "INVITE")
        {
            break ring;
        }
    };
    assert_eq!(world.source(&ring), SS1);
    assert!(
        talk(&world, BOB).is_some_and(|talk| talk.up),
        "his answer comes to us"
    );
}

#[test]
fn kl2_a_false_alarm_turns_the_talk_down_at_once() {
    let mut world = office();
    world.alive = vec![SS2];
    unanswered_call(&mut world, "900");
    world.pass_ms(100);
    assert!(talk(&world, ALICE).is_some_and(|talk| talk.up));
    world.alive = vec![SS1, SS2];
    world.pass_ms(100);
    assert!(
        talk(&world, ALICE).is_some_and(|talk| !talk.up),
        "the second OPTIONS was answered"
    );
}

fn nobody_suspected(world: &World) -> bool {
    world.stamps.is_empty() && world.events.iter().all(|event| event.to != "suspect")
}

#[test]
fn kl2_a_copy_that_is_lost_or_late_makes_nobody_suspect() {
    let mut world = office();
    routed(&mut world, ALICE, &invite("201", ALICE, "900", 1, ""));
    until_asked(&mut world);
    // The response was routed, its copy is not here.
    let answered = Stamps {
        response: Some(Duration::from_millis(490)),
        ..Stamps::default()
    };
    stamp(&mut world, ALICE, answered);
    world.pass(Duration::from_secs(5));
    assert!(nobody_suspected(&world));
    assert!(talk(&world, ALICE).is_some_and(|talk| !talk.up));
    // A full ring: whatever is waited for is no evidence.
    routed(&mut world, ALICE, &invite("201", ALICE, "901", 2, ""));
    world.pass_ms(100);
    world.gateway.copies_lost(world.now, 1);
    world.pass(Duration::from_secs(5));
    assert!(nobody_suspected(&world));
    assert_eq!(world.gateway.counters().copies_lost, 1);
}

#[test]
fn kl2_an_answered_request_is_no_evidence_and_an_answer_after_18x_is_awaited() {
    let mut world = office();
    let call = routed(&mut world, ALICE, &invite("201", ALICE, "900", 1, ""));
    world.pass_ms(300);
    server_says(&mut world, ALICE, &call, "180 Ringing", "");
    world.pass(Duration::from_secs(60));
    assert!(world.stamps.is_empty());
    assert!(talk(&world, ALICE).is_some_and(|talk| !talk.up));
}

#[test]
fn em20_em25_after_a_death_the_registration_returns_and_with_it_the_way_through() {
    let mut world = office();
    world.alive = vec![SS2];
    unanswered_call(&mut world, "900");
    world.pass_ms(700);
    world.to(SS2);
    world.hear_to(SS1, ALICE, &register("201", ALICE, 2, 3600));
    // The backup gets a Contact of ours, and the phone's own is taken away.
    let up = world.one(SS2, "REGISTER");
    assert!(
        up.text().contains(&format!("<sip:201@{ALICE}>;expires=0")),
        "{}",
        up.text()
    );
    let contact = up.msg.header(Name::Contact).map(|span| up.msg.slice(span));
    let contact = String::from_utf8_lossy(contact.expect("a contact")).into_owned();
    world.answer(&up, "200 OK", &format!("Contact: {contact}\n"));
    world.one(ALICE, "200");
    world.alive = vec![SS1, SS2];
    // Up again, and on hold: what the phone asks goes by the backup.
    world.pass(Duration::from_secs(30));
    world.sent.clear();
    assert!(talk(&world, ALICE).is_some_and(|talk| talk.up));
    world.pass(Duration::from_secs(60));
    assert!(
        talk(&world, ALICE).is_some_and(|talk| talk.up),
        "it has not registered"
    );
    let text = invite("201", ALICE, "901", 7, "").replace("call-1", "call-7");
    world.hear_to(SS1, ALICE, &text);
    world.one(SS2, "INVITE");
    let request = registers(&mut world, "201", ALICE, 3);
    let token = contact.split(';').next().unwrap_or_default();
    let text = String::from_utf8_lossy(request.bytes()).into_owned();
    assert!(text.contains(&format!("{token};expires=0")), "{text}");
    // It still has that call with us.
    assert!(talk(&world, ALICE).is_some_and(|talk| talk.up));
    world.pass(Duration::from_secs(300));
    assert!(talk(&world, ALICE).is_some_and(|talk| !talk.up));
    let again = registers_again(&mut world);
    assert!(!again.contains("expires=0"), "{again}");
}

/// What was answered keeps nobody here, though its transaction waits for retransmissions: a phone
/// that asks more often than that would never go home.
#[test]
fn em20_em17_a_phone_that_asks_often_goes_home() {
    let mut world = office();
    world.alive = vec![SS2];
    unanswered_call(&mut world, "900");
    world.pass_ms(700);
    world.to(SS2);
    world.hear_to(SS1, ALICE, &register("201", ALICE, 2, 3600));
    let up = world.one(SS2, "REGISTER");
    let contact = up.msg.header(Name::Contact).map(|span| up.msg.slice(span));
    let contact = String::from_utf8_lossy(contact.expect("a contact")).into_owned();
    world.answer(&up, "200 OK", &format!("Contact: {contact}\n"));
    world.alive = vec![SS1, SS2];
    world.pass(Duration::from_secs(120));
    world.sent.clear();
    let text = invite("201", ALICE, "901", 7, "").replace("INVITE", "OPTIONS");
    world.hear_to(SS1, ALICE, &text);
    world.one(ALICE, "200");
    registers(&mut world, "201", ALICE, 3);
    world.pass_ms(1500);
    assert!(talk(&world, ALICE).is_some_and(|talk| !talk.up));
}

/// A REGISTER that nothing must be added to.
fn registers_again(world: &mut World) -> String {
    world.hear_to(SS1, ALICE, &register("201", ALICE, 4, 3600));
    let (_, _, bytes) = world.passed.pop().expect("it went on");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn em20_em25_a_contact_that_the_phone_replaced_is_taken_away_upstream() {
    let mut world = office();
    let moved = |cseq| {
        let text = register("201", ALICE, cseq, 3600);
        text.replace(&format!("<sip:201@{ALICE}>"), "<sip:201@10.99.1.11:5070>")
    };
    let request = routed(&mut world, ALICE, &moved(2));
    let ok = "Contact: <sip:201@10.99.1.11:5070>;expires=3600\n";
    server_says(&mut world, ALICE, &request, "200 OK", ok);
    // The softswitch rings both: the next REGISTER comes by us.
    assert!(talk(&world, ALICE).is_some_and(|talk| talk.up));
    world.hear_to(SS1, ALICE, &moved(3));
    let (_, _, bytes) = world.passed.pop().expect("it went on");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(
        text.contains(&format!("<sip:201@{ALICE}>;expires=0")),
        "{text}"
    );
    let request = Message::parse(bytes).expect("a message");
    server_says(&mut world, ALICE, &request, "200 OK", ok);
    assert!(talk(&world, ALICE).is_some_and(|talk| !talk.up));
    assert_eq!(world.gateway.registration_count(world.now), 2);
}

/// Alice in a call that went through, whose softswitch then died.
fn call_without_server() -> World {
    let mut world = office();
    let call = routed(&mut world, ALICE, &invite("201", ALICE, "900", 1, ""));
    let far = format!(
        "Contact: <sip:900@203.0.113.9>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    server_says(&mut world, ALICE, &call, "200 OK", &far);
    world.alive = Vec::new();
    world.pass(Duration::from_secs(120));
    world
}

#[test]
fn em20_em26_a_call_that_went_through_outlives_its_softswitch() {
    let mut world = call_without_server();
    assert!(
        talk(&world, ALICE).is_some_and(|talk| talk.up),
        "idle probes found it out"
    );
    world.sent.clear();
    let offer = body(&sdp(ALICE, 4000));
    world.hear_to(
        SS1,
        ALICE,
        &follow("INVITE", "201", ALICE, "900", 2, &offer),
    );
    let ok = world.one(ALICE, "200");
    assert!(ok.text().contains("c=IN IP4 203.0.113.9"), "{}", ok.text());
    assert!(
        ok.text().contains("Contact: <sip:900@203.0.113.9>"),
        "{}",
        ok.text()
    );
    let held = body(&sdp(ALICE, 4000).replace("t=0 0", "t=0 0\r\na=sendonly"));
    world.hear_to(SS1, ALICE, &follow("INVITE", "201", ALICE, "900", 3, &held));
    world.one(ALICE, "500");
    let bye = follow("BYE", "201", ALICE, "900", 4, "");
    world.hear_to(SS1, ALICE, &bye);
    world.one(ALICE, "200");
    world.hear_to(SS1, ALICE, &follow("BYE", "201", ALICE, "900", 5, ""));
    world.one(ALICE, "481");
    // It is told for 32 s, in the phone's own words.
    world.pass(Duration::from_secs(60));
    let told = (addr(ALICE), addr(SS1), crlf(&bye));
    assert_eq!(world.passed, vec![told; 11]);
}

#[test]
fn em20_em26_a_softswitch_that_answers_a_late_bye_is_told_no_more() {
    let mut world = call_without_server();
    let bye = follow("BYE", "201", ALICE, "900", 2, "");
    world.hear_to(SS1, ALICE, &bye);
    world.pass_ms(400);
    assert_eq!(world.passed.len(), 1);
    world.pass_ms(200);
    assert_eq!(world.passed.len(), 2);
    let asked = Message::parse(crlf(&bye)).expect("a message");
    server_says(&mut world, ALICE, &asked, "200 OK", "");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.passed.len(), 2);
}

#[test]
fn em20_kl5_a_talk_outlives_the_process() {
    let world = office();
    let world = world.restarted(Duration::from_secs(5));
    for phone in [ALICE, BOB] {
        assert!(talk(&world, phone).is_some_and(|talk| !talk.up && talk.bound));
    }
    assert_eq!(world.gateway.talk_count(), (2, 0));
}

#[test]
fn em20_what_is_for_nobody_we_know_goes_on_and_nothing_is_learned_of_it() {
    let mut world = World::with(open());
    let answer = crlf("SIP/2.0 180 Ringing\nVia: SIP/2.0/UDP 203.0.113.5;branch=z9hG4bK1\n\n");
    let text = String::from_utf8(answer.clone()).expect("text");
    // A call came past us to a phone that nobody told us of.
    world.hear_to("203.0.113.5:5060", ALICE, &text);
    assert_eq!(
        world.passed,
        [(addr(ALICE), addr("203.0.113.5:5060"), answer)]
    );
    // What leads back here goes nowhere, nor does any of it with hiding.
    world.hear_to("198.51.100.1:5060", ALICE, &text);
    world.hear_to("224.0.1.75:5060", ALICE, &text);
    assert_eq!(world.passed.len(), 1);
    let mut hiding = open();
    hiding.hide_topology = true;
    let mut world = World::with(hiding);
    world.hear_to("203.0.113.5:5060", ALICE, &text);
    world.hear_to(SS1, ALICE, &register("201", ALICE, 1, 3600));
    assert!(world.passed.is_empty() && world.gateway.talks().next().is_none());
}

#[test]
fn em20_more_phones_than_can_be_routed_go_through_all_the_same() {
    let mut world = World::with(open());
    let phone = |n: usize| format!("10.{}.{}.9:5060", 100 + n / 250, n % 250);
    for n in 0..1_100 {
        let text = register("201", &phone(n), 1, 3600);
        world.hear_to(
            SS1,
            &phone(n),
            &text.replace("z9hG4bK", &format!("z9hG4bK{n}-")),
        );
    }
    assert_eq!(world.passed.len(), 1_100);
    // Nobody vouches for them: the others' places are not theirs.
    assert_eq!(world.gateway.talks().count(), 1_024);
    assert_eq!(world.gateway.counters().table_full, 76);
    world.pass(Duration::from_secs(70));
    assert_eq!(world.gateway.talks().count(), 0);
}
