//! Subscriptions through the gateway (RFC 6665): they are renewed in their dialog, end by their
//! expiry, by a last NOTIFY or with nobody listening, and leave nothing behind.

use std::time::Duration;

use crate::world::{
    self, ALICE, GW_LAN, LAN, SS1, SS2, Sent, WAN, World, addr, body, follow, invite, sdp,
};
use keepline_engine::sip::{Message, Name};

fn subscribe(cseq: u32, to_tag: &str, expires: u32) -> String {
    format!(
        "SUBSCRIBE sip:202@example.test SIP/2.0
Via: SIP/2.0/UDP {ALICE};branch=z9hG4bKs{cseq};rport
Max-Forwards: 70
From: <sip:201@example.test>;tag=s1
To: <sip:202@example.test>{to_tag}
Call-ID: sub-1@10.99.1.11
CSeq: {cseq} SUBSCRIBE
Contact: <sip:201@{ALICE}>
Event: dialog
Expires: {expires}
Content-Length: 0

"
    )
}

/// A NOTIFY of the softswitch in the dialog that this SUBSCRIBE, as it left, began.
fn notify(up: &Sent, cseq: u32, state: &str, tail: &str) -> String {
    let text = |name| {
        let value = up.msg.header(name).expect("a header");
        String::from_utf8_lossy(up.msg.slice(value)).into_owned()
    };
    let contact = up.msg.contacts().next().expect("a contact");
    let contact = String::from_utf8_lossy(up.msg.slice(contact.uri)).into_owned();
    format!(
        "NOTIFY {contact} SIP/2.0
Via: SIP/2.0/UDP {SS1};branch=z9hG4bKn{cseq}
Max-Forwards: 70
From: {to};tag=n1
To: {from}
Call-ID: {call_id}
CSeq: {cseq} NOTIFY
Contact: <sip:{SS1}>
Event: dialog
Subscription-State: {state}
{tail}",
        to = text(Name::To),
        from = text(Name::From),
        call_id = text(Name::CallId),
    )
}

/// A subscription granted for this many seconds; the SUBSCRIBE as it left.
fn subscribed(world: &mut World, granted: u32) -> Sent {
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &subscribe(1, "", granted));
    let up = world.one(SS1, "SUBSCRIBE");
    let extra = format!("Contact: <sip:{SS1}>\nExpires: {granted}\n");
    world.answer_tagged(&up, "200 OK", "n1", &extra);
    world.one(ALICE, "200");
    up
}

fn answer_notify(world: &mut World, notify: &Sent, status: &str) {
    let bytes = world::response(&notify.msg, status, "x", "");
    world.hear_bytes(LAN, ALICE, bytes);
}

fn dialogs(world: &World) -> usize {
    world.store.dialogs.len()
}

#[test]
fn a_subscription_is_renewed_in_its_dialog_and_notified() {
    let mut world = World::new();
    let up = subscribed(&mut world, 600);
    world.hear(
        WAN,
        SS1,
        &notify(&up, 1, "active;expires=600", "Content-Length: 0\n\n"),
    );
    let told = world.one(ALICE, "NOTIFY");
    assert!(!told.text().contains("192.0.2."), "{}", told.text());
    answer_notify(&mut world, &told, "200 OK");
    world.one(SS1, "200");
    for cseq in 2..20 {
        world.pass_ms(300_000);
        world.hear(LAN, ALICE, &subscribe(cseq, ";tag=n1", 600));
        let up = world.one(SS1, "SUBSCRIBE");
        assert!(!up.text().contains("10.99."), "{}", up.text());
        world.answer_tagged(&up, "200 OK", "n1", "Expires: 600\n");
        world.one(ALICE, "200");
        assert_eq!(dialogs(&world), 1);
    }
    assert_eq!(world.gateway.call_count(), 0, "it is no call");
}

#[test]
fn a_subscription_that_nobody_renews_is_forgotten() {
    let mut world = World::new();
    subscribed(&mut world, 600);
    world.pass(Duration::from_secs(631));
    assert_eq!(dialogs(&world), 1, "a last NOTIFY may still come");
    world.pass(Duration::from_secs(2));
    assert_eq!(dialogs(&world), 0);
}

#[test]
fn the_notifier_may_shorten_it_and_end_it() {
    let mut world = World::new();
    let up = subscribed(&mut world, 3600);
    world.hear(
        WAN,
        SS1,
        &notify(&up, 1, "active;expires=60", "Content-Length: 0\n\n"),
    );
    let told = world.one(ALICE, "NOTIFY");
    answer_notify(&mut world, &told, "200 OK");
    assert_eq!(dialogs(&world), 1);
    world.hear(
        WAN,
        SS1,
        &notify(&up, 2, "Terminated;reason=timeout", "Content-Length: 0\n\n"),
    );
    let told = world.one(ALICE, "NOTIFY");
    assert_eq!(dialogs(&world), 1, "not before it is answered");
    answer_notify(&mut world, &told, "200 OK");
    assert_eq!(dialogs(&world), 0);
    let up = subscribed_again(&mut world);
    world.hear(
        WAN,
        SS1,
        &notify(&up, 3, "active;expires=60", "Content-Length: 0\n\n"),
    );
    let told = world.one(ALICE, "NOTIFY");
    answer_notify(&mut world, &told, "200 OK");
    world.pass(Duration::from_secs(93));
    assert_eq!(dialogs(&world), 0, "the NOTIFY's expiry counts");
}

fn subscribed_again(world: &mut World) -> Sent {
    world.hear(
        LAN,
        ALICE,
        &subscribe(50, "", 3600).replace("sub-1", "sub-2"),
    );
    let up = world.one(SS1, "SUBSCRIBE");
    world.answer_tagged(&up, "200 OK", "n1", "Expires: 3600\n");
    world.one(ALICE, "200");
    up
}

#[test]
fn a_phone_that_knows_nothing_of_it_ends_it() {
    let mut world = World::new();
    let up = subscribed(&mut world, 3600);
    world.hear(
        WAN,
        SS1,
        &notify(&up, 1, "active;expires=3600", "Content-Length: 0\n\n"),
    );
    let told = world.one(ALICE, "NOTIFY");
    answer_notify(&mut world, &told, "481 Subscription does not exist");
    world.one(SS1, "481");
    assert_eq!(dialogs(&world), 0);
}

#[test]
fn its_expiry_outlives_a_restart() {
    let mut world = World::new();
    subscribed(&mut world, 600);
    let mut world = world.restarted(Duration::from_secs(500));
    assert_eq!(dialogs(&world), 1);
    world.hear(LAN, ALICE, &subscribe(2, ";tag=n1", 600));
    world.one(SS1, "SUBSCRIBE");
    world.pass(Duration::from_secs(140));
    assert_eq!(dialogs(&world), 0, "nobody answered, and its time is over");
}

#[test]
fn with_its_server_down_it_begins_anew_at_the_backup() {
    let mut world = World::new();
    subscribed(&mut world, 600);
    world.alive = vec![SS2];
    world.pass(Duration::from_secs(120));
    world.hear(LAN, ALICE, &subscribe(2, ";tag=n1", 600));
    world.one(ALICE, "481");
    world.hear(LAN, ALICE, &subscribe(3, "", 600).replace("sub-1", "sub-2"));
    world.one(SS2, "SUBSCRIBE");
    assert_eq!(dialogs(&world), 0);
}

#[test]
fn em22_with_no_server_left_it_may_come_back_later() {
    let mut conf = world::conf();
    conf.survivability.policy = keepline_engine::conf::Policy::Known;
    let mut world = World::with(conf);
    subscribed(&mut world, 600);
    world.alive = Vec::new();
    world.pass(Duration::from_secs(200));
    for text in [subscribe(2, ";tag=n1", 600), subscribe(3, "", 600)] {
        world.hear(LAN, ALICE, &text);
        let refused = world.one(ALICE, "480");
        assert!(
            refused.text().contains("Retry-After: "),
            "{}",
            refused.text()
        );
    }
}

/// A blind transfer by the far party: its call ends, the NOTIFY of the outcome still passes
/// (RFC 5589 section 7.2).
#[test]
fn the_outcome_of_a_transfer_is_told_after_the_call() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "300", 1, ""));
    let up = world.one(SS1, "INVITE");
    let answer = format!("Contact: <sip:300@{SS1}>\n{}", body(&sdp(SS1, 6000)));
    world.answer(&up, "200 OK", &answer);
    world.to(ALICE);
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "300", 1, ""));
    let call_id = up
        .msg
        .call_id()
        .map(|id| String::from_utf8_lossy(id).into_owned())
        .unwrap();
    let contact = up.msg.contacts().next().unwrap();
    let contact = String::from_utf8_lossy(up.msg.slice(contact.uri)).into_owned();
    let far = |method: &str, cseq: u32, extra: &str| {
        format!(
            "{method} {contact} SIP/2.0\nVia: SIP/2.0/UDP {SS1};branch=z9hG4bKf{cseq}\nMax-Forwards: 70\n\
             From: <sip:300@example.test>;tag=b1\nTo: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\n\
             CSeq: {cseq} {method}\n{extra}Content-Length: 0\n\n"
        )
    };
    let refer = format!("Contact: <sip:300@{SS1}>\nRefer-To: <sip:301@example.test>\n");
    world.hear(WAN, SS1, &far("REFER", 1, &refer));
    let told = world.one(ALICE, "REFER");
    answer_notify(&mut world, &told, "202 Accepted");
    world.one(SS1, "202");
    world.hear(WAN, SS1, &far("BYE", 2, ""));
    let told = world.one(ALICE, "BYE");
    answer_notify(&mut world, &told, "200 OK");
    assert_eq!(world.gateway.call_count(), 0, "the call is over");
    let fragment = format!(
        "Contact: <sip:201@{ALICE}>\nEvent: refer\nSubscription-State: terminated;reason=noresource\n\
         Content-Type: message/sipfrag\nContent-Length: 14\n\nSIP/2.0 200 OK"
    );
    world.hear(
        LAN,
        ALICE,
        &follow("NOTIFY", "201", ALICE, "300", 2, &fragment),
    );
    let up = world.one(SS1, "NOTIFY");
    assert!(up.text().ends_with("SIP/2.0 200 OK"), "{}", up.text());
    world.answer(&up, "200 OK", "");
    world.one(ALICE, "200");
    assert_eq!(dialogs(&world), 0, "and nothing is left");
    assert!(Message::parse(up.msg.bytes().to_vec()).is_ok() && addr(GW_LAN).port() == 5060);
}
