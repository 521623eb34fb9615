//! A re-INVITE had its 100, and the process died: nobody repeats it, and yet it is answered.

use std::time::Duration;

use super::{
    ALICE, FAR, LAN, SS1, Sent, WAN, World, answer_of_far, body, call, follow, from_far, sdp,
    world::response,
};

/// Alice holds: her re-INVITE as it leaves for the softswitch.
fn hold(world: &mut World) -> Sent {
    let offer = format!(
        "Contact: <sip:201@{ALICE}>\n{}",
        body(&format!("{}a=sendonly\r\n", sdp(ALICE, 4000)))
    );
    world.hear(
        LAN,
        ALICE,
        &follow("INVITE", "201", ALICE, "202", 2, &offer),
    );
    world.one(ALICE, "100");
    world.one(SS1, "INVITE")
}

fn in_call() -> (World, String) {
    let mut world = World::new();
    world.register("201", ALICE);
    let call_id = call(&mut world);
    (world, call_id)
}

#[test]
fn kl5_a_reinvite_that_had_its_100_is_sent_again_with_its_branch_and_answered() {
    let (mut before, _) = in_call();
    let sent = hold(&mut before);
    let mut world = before.restarted(Duration::from_millis(700));
    let again = world.one(SS1, "INVITE");
    assert_eq!(again.msg.branch(), sent.msg.branch(), "a retransmission");
    assert_eq!(again.msg.body(), sent.msg.body());
    world.answer(&again, "200 OK", &answer_of_far());
    let ok = world.one(ALICE, "200");
    assert!(ok.text().contains("CSeq: 2 INVITE"), "{}", ok.text());
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 2, ""));
    world.one(SS1, "ACK");
    let mut world = world.restarted(Duration::from_millis(700));
    assert!(world.to(SS1).is_empty(), "it is settled");
}

#[test]
fn kl5_a_2xx_whose_ack_met_nobody_is_acknowledged_after_the_restart() {
    let (mut before, _) = in_call();
    let sent = hold(&mut before);
    before.answer(&sent, "200 OK", &answer_of_far());
    before.one(ALICE, "200");
    // Alice's ACK is lost with the process. The far party repeats its 200 until it has one.
    let mut world = before.restarted(Duration::from_secs(1));
    let again = world.one(SS1, "INVITE");
    world.answer(&again, "200 OK", &answer_of_far());
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 2, ""));
    world.one(SS1, "ACK");
}

#[test]
fn kl5_a_refusal_after_the_restart_is_relayed_and_settles_it() {
    let (mut before, _) = in_call();
    hold(&mut before);
    let mut world = before.restarted(Duration::from_secs(2));
    let again = world.one(SS1, "INVITE");
    world.answer(&again, "488 Not Acceptable Here", "");
    world.one(ALICE, "488");
    let mut world = world.restarted(Duration::from_millis(700));
    assert!(world.to(SS1).is_empty());
    assert_eq!(world.gateway.call_count(), 1, "the call goes on as it was");
}

#[test]
fn kl5_each_party_may_have_asked() {
    let (mut before, call_id) = in_call();
    hold(&mut before);
    let offer = format!(
        "Contact: <sip:202@203.0.113.9:5080>\n{}",
        body(&sdp(FAR, 6000))
    );
    before.hear(WAN, SS1, &from_far("INVITE", 7, &call_id, &offer));
    before.one(ALICE, "INVITE");
    let mut world = before.restarted(Duration::from_secs(1));
    let up = world
        .to(SS1)
        .into_iter()
        .find(|sent| sent.what() == "INVITE");
    let (up, down) = (up.expect("hers"), world.one(ALICE, "INVITE"));
    // Glare: both refuse (RFC 3261 section 14.2).
    world.answer(&up, "491 Request Pending", "");
    world.one(ALICE, "491");
    let refusal = response(&down.msg, "491 Request Pending", "a1", "");
    world.hear_bytes(LAN, ALICE, refusal);
    world.one(SS1, "491");
    assert!(world.store.dialogs[0].caller.asked.is_none());
    assert!(world.store.dialogs[0].callee.asked.is_none());
}

#[test]
fn kl5_a_reinvite_older_than_a_transaction_is_not_sent_again() {
    for dead in [Duration::from_secs(32), Duration::from_secs(86_400)] {
        let (mut before, _) = in_call();
        hold(&mut before);
        let mut world = before.restarted(dead);
        assert!(world.to(SS1).is_empty(), "{dead:?}");
    }
    // Nor when the clock says that it is yet to come.
    let (mut before, _) = in_call();
    hold(&mut before);
    let mut world = before.restarted_at(|wall| wall - Duration::from_secs(60));
    assert!(world.to(SS1).is_empty());
}

#[test]
fn kl5_a_second_restart_does_not_prolong_it() {
    let (mut before, _) = in_call();
    hold(&mut before);
    let mut world = before.restarted(Duration::from_secs(20));
    world.one(SS1, "INVITE");
    let mut world = world.restarted(Duration::from_secs(20));
    assert!(world.to(SS1).is_empty());
}

#[test]
fn kl5_a_huge_reinvite_is_relayed_but_not_kept() {
    let (mut before, _) = in_call();
    let filler = format!("X-Filler: {}\n", "x".repeat(17_000));
    let offer = format!(
        "Contact: <sip:201@{ALICE}>\n{filler}{}",
        body(&sdp(ALICE, 4000))
    );
    before.hear(
        LAN,
        ALICE,
        &follow("INVITE", "201", ALICE, "202", 2, &offer),
    );
    before.one(SS1, "INVITE");
    assert!(before.store.dialogs[0].caller.asked.is_none());
}
