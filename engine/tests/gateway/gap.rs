//! What the network loses while no gateway runs, and what the next one makes of it
//! (signalling.md section 5: kill -9 loses no answered call).

use std::time::Duration;

use crate::world::{
    ALICE, GW_WAN, LAN, SS1, Sent, WAN, World, body, follow, invite, response, sdp,
};

const GAP: Duration = Duration::from_secs(1);

fn answer_of_far() -> String {
    let routes = "Record-Route: <sip:192.0.2.10;lr>\nContact: <sip:202@203.0.113.9:5080>\n";
    format!("{routes}{}", body(&sdp("203.0.113.9:1", 6000)))
}

fn answer_of_phone() -> String {
    format!("Contact: <sip:201@{ALICE}>\n{}", body(&sdp(ALICE, 4000)))
}

/// Alice's call is answered, and she has the 200: her ACK comes when nobody runs.
fn called_out() -> (World, Sent) {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    world.answer(&up, "200 OK", &answer_of_far());
    world.one(ALICE, "200");
    (world.restarted(GAP), up)
}

/// The same for a call that Alice's phone took.
fn called_in() -> (World, Sent) {
    let mut world = World::new();
    world.register("201", ALICE);
    let contact = String::from_utf8_lossy(&world.store.bindings[0].upstream_contact).into_owned();
    let offer = body(&sdp("203.0.113.9:1", 6000));
    let text = format!(
        "INVITE {contact} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKin\n\
         Record-Route: <sip:192.0.2.10;lr>\nMax-Forwards: 70\n\
         From: <sip:202@example.test>;tag=f1\nTo: <sip:201@example.test>\nCall-ID: in-1@far\n\
         CSeq: 5 INVITE\nContact: <sip:202@203.0.113.9:5080>\n{offer}"
    );
    world.hear(WAN, SS1, &text);
    let down = world.one(ALICE, "INVITE");
    world.answer(&down, "200 OK", &answer_of_phone());
    world.one(SS1, "200");
    (world.restarted(GAP), down)
}

#[test]
fn kl5_a_200_whose_ack_met_no_gateway_is_acknowledged_by_the_next() {
    let (mut world, up) = called_out();
    // The far party repeats its 200 until an ACK comes, and would end the call.
    world.answer(&up, "200 OK", &answer_of_far());
    let ack = world.one(SS1, "ACK");
    let text = ack.text();
    assert!(
        text.starts_with("ACK sip:202@203.0.113.9:5080 SIP/2.0"),
        "{text}"
    );
    assert!(text.contains("Route: <sip:192.0.2.10;lr>"), "{text}");
    assert!(text.contains("CSeq: 1 ACK"), "{text}");
    assert!(
        text.contains(";tag=b1"),
        "to the party that answered: {text}"
    );
    assert!(
        text.contains(GW_WAN) && !text.contains("10.99.1."),
        "{text}"
    );
    assert!(world.to(ALICE).is_empty(), "she has sent all she will send");
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "202", 2, ""));
    let bye = world.one(SS1, "BYE");
    world.answer(&bye, "200 OK", "");
    world.one(ALICE, "200");
}

#[test]
fn kl5_a_phones_200_whose_ack_met_no_gateway_is_acknowledged_by_the_next() {
    let (mut world, down) = called_in();
    world.answer(&down, "200 OK", &answer_of_phone());
    let ack = world.one(ALICE, "ACK");
    let text = ack.text();
    assert!(
        text.starts_with(&format!("ACK sip:201@{ALICE} SIP/2.0")),
        "{text}"
    );
    assert!(text.contains("CSeq: 5 ACK"), "{text}");
    assert!(!text.contains("192.0.2."), "no WAN address: {text}");
    assert!(world.to(SS1).iter().all(|sent| sent.what() == "OPTIONS"));
}

#[test]
fn kl5_a_caller_that_never_saw_the_200_gets_it_when_it_asks_again() {
    let (mut world, _) = called_out();
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    world.answer(&up, "200 OK", &answer_of_far());
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.one(SS1, "ACK");
}

#[test]
fn kl5_no_ack_for_a_200_of_another_call_or_from_a_stranger() {
    let (mut world, up) = called_out();
    let other = response(&up.msg, "200 OK", "zz", &answer_of_far());
    world.hear_bytes(WAN, SS1, other);
    let strange = response(&up.msg, "200 OK", "b1", &answer_of_far());
    world.hear_bytes(WAN, "203.0.113.200:5060", strange);
    let refused = response(&up.msg, "486 Busy Here", "b1", "");
    world.hear_bytes(WAN, SS1, refused);
    let acks = world.left();
    assert!(acks.iter().all(|what| !what.contains("ACK")), "{acks:?}");
}
