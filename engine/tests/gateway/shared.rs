//! Servers that share their dialogs (EM26, `shared_dialogs`, signalling.md section 5).

use crate::{
    outlives::{call, header, refresh},
    world::{ALICE, GW_WAN, LAN, SS1, SS2, Sent, WAN, World, body, conf, follow, sdp},
};
use keepline_engine::sip::Name;

/// Alice in a call through the primary, whose death is known.
fn orphan(shared: bool) -> World {
    let mut conf = conf();
    conf.groups[0].shared_dialogs = shared;
    let mut world = call(conf);
    world.alive = vec![SS2];
    world.pass_ms(60_000);
    world.sent.clear();
    world
}

fn of_the_call(world: &mut World, server: &str) -> Vec<Sent> {
    let all = world.to(server).into_iter();
    all.filter(|sent| sent.what() != "OPTIONS").collect()
}

fn take(world: &mut World, request: &Sent) {
    let answer = body(&sdp("203.0.113.9:1", 6002));
    world.answer(
        request,
        "200 OK",
        &format!("Contact: <sip:900@203.0.113.9>\n{answer}"),
    );
}

#[test]
fn em26_the_call_moves_to_the_server_that_takes_its_request() {
    let mut world = orphan(true);
    world.hear(LAN, ALICE, &refresh(2, 4444));
    let asked = world.one(SS2, "INVITE");
    assert_eq!(header(&asked, Name::Route), "<sip:192.0.2.11:5060;lr>");
    take(&mut world, &asked);
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "900", 2, ""));
    world.one(SS2, "ACK");
    world.sent.clear();
    world.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "900", 3, ""));
    let info = world.one(SS2, "INFO");
    world.answer(&info, "200 OK", "Content-Length: 0\n\n");
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "900", 4, ""));
    let bye = world.one(SS2, "BYE");
    world.answer(&bye, "200 OK", "Content-Length: 0\n\n");
    assert_eq!(world.gateway.call_count(), 0);
    assert!(of_the_call(&mut world, SS1).is_empty());
}

#[test]
fn em26_servers_that_share_nothing_are_not_asked() {
    let mut world = orphan(false);
    world.hear(LAN, ALICE, &refresh(2, 4444));
    assert!(of_the_call(&mut world, SS2).is_empty());
    world.one(ALICE, "500");
}

/// A 481 of a backup: answered as if no server were left.
#[test]
fn em26_a_481_of_a_backup_ends_nothing() {
    for (port, answered) in [(4000, "200"), (4444, "500")] {
        let mut world = orphan(true);
        world.hear(LAN, ALICE, &refresh(2, port));
        let asked = world.one(SS2, "INVITE");
        world.answer(&asked, "481 Call Does Not Exist", "Content-Length: 0\n\n");
        let heard: Vec<_> = world.to(ALICE).iter().map(Sent::what).collect();
        assert!(heard.contains(&answered.to_owned()), "{heard:?}");
        assert!(!heard.contains(&"481".to_owned()), "{heard:?}");
        world.pass_ms(40_000);
        assert_eq!(world.gateway.call_count(), 1);
        // It stays the call of the server that had it.
        world.alive = vec![SS1, SS2];
        world.pass_ms(60_000);
        world.sent.clear();
        world.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "900", 3, ""));
        world.one(SS1, "INFO");
    }
}

#[test]
fn em26_a_bye_is_answered_at_once_and_told_to_who_may_know_the_call() {
    let mut world = orphan(true);
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "900", 2, ""));
    world.one(ALICE, "200");
    let told = world.one(SS2, "BYE");
    assert_eq!(header(&told, Name::Route), "<sip:192.0.2.11:5060;lr>");
    world.answer(&told, "481 Call Does Not Exist", "Content-Length: 0\n\n");
    assert_eq!(world.gateway.call_count(), 0);
}

/// The server falls silent under the request itself.
#[test]
fn em26_a_request_that_meets_the_death_is_tried_at_the_next() {
    let mut conf = conf();
    conf.groups[0].shared_dialogs = true;
    let mut world = call(conf);
    world.alive = vec![SS2];
    world.hear(LAN, ALICE, &refresh(2, 4444));
    world.one(SS1, "INVITE");
    world.pass_ms(4000);
    let asked = of_the_call(&mut world, SS2);
    let asked = asked.first().expect("hunted").clone();
    take(&mut world, &asked);
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "900", 2, ""));
    world.one(SS2, "ACK");
    assert_eq!(world.gateway.call_count(), 1);
}

#[test]
fn em26_a_server_that_speaks_in_the_call_has_it() {
    let mut world = orphan(true);
    world.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "900", 2, ""));
    let call_id = header(&world.one(SS2, "INFO"), Name::CallId);
    world.sent.clear();
    let far = format!(
        "INFO sip:x@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.11;branch=z9hG4bKf1\n\
         Max-Forwards: 70\nFrom: <sip:900@example.test>;tag=b1\n\
         To: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\nCSeq: 2 INFO\n\
         Content-Length: 0\n\n"
    );
    world.hear(WAN, SS2, &far);
    world.one(ALICE, "INFO");
    world.alive = vec![SS1, SS2];
    world.pass_ms(60_000);
    world.sent.clear();
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "900", 3, ""));
    world.one(SS2, "BYE");
    assert!(of_the_call(&mut world, SS1).is_empty());
}

/// Answered here while the server was only slow: its answer is acknowledged, and no BYE ends a
/// call that goes on.
#[test]
fn em26_the_late_answer_of_a_slow_server_does_not_end_the_call() {
    let mut world = call(conf());
    world.alive = vec![SS2];
    world.hear(LAN, ALICE, &refresh(2, 4000));
    let slow = world.one(SS1, "INVITE");
    world.pass_ms(4000);
    let heard: Vec<_> = world.to(ALICE).iter().map(Sent::what).collect();
    assert!(heard.contains(&"200".to_owned()), "{heard:?}");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "900", 2, ""));
    world.sent.clear();
    take(&mut world, &slow);
    world.one(SS1, "ACK");
    world.pass_ms(40_000);
    assert!(world.to(SS1).iter().all(|sent| sent.what() != "BYE"));
    assert!(world.to(ALICE).is_empty(), "told nothing twice");
    assert_eq!(world.gateway.call_count(), 1);
}
