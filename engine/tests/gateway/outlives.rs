//! Calls that outlive their softswitch (EM26, signalling.md section 5).

use crate::world::{
    ALICE, BOB, GW_WAN, LAN, SS1, SS2, Sent, WAN, World, body, conf, follow, invite, sdp,
};
use keepline_engine::{
    conf::{Conf, Policy},
    sip::Name,
};

/// Alice and Bob are registered.
pub(crate) fn with_policy(policy: Policy) -> World {
    with(policy, conf())
}

fn with(policy: Policy, mut conf: Conf) -> World {
    conf.survivability.policy = policy;
    let mut world = World::with(conf);
    world.register("201", ALICE);
    world.register("202", BOB);
    world.pass_ms(1000);
    world
}

pub(crate) fn returned(world: &mut World) {
    world.alive = vec![SS1, SS2];
    world.pass_ms(40_000);
    world.sent.clear();
}

pub(crate) fn header(sent: &Sent, name: Name) -> String {
    sent.msg
        .header(name)
        .map(|span| String::from_utf8_lossy(sent.msg.slice(span)).into_owned())
        .unwrap_or_default()
}

/// Alice in a call through the primary, which then dies.
fn call_without_server() -> World {
    let mut world = call(conf());
    world.alive = vec![SS2];
    world.pass_ms(60_000);
    world.sent.clear();
    world
}

/// Alice in a call through the primary.
pub(crate) fn call(conf: Conf) -> World {
    let mut world = with(Policy::Known, conf);
    world.hear(
        LAN,
        ALICE,
        &invite(
            "201",
            ALICE,
            "900",
            1,
            "Session-Expires: 90;refresher=uac\nSupported: timer\n",
        ),
    );
    let up = world.one(SS1, "INVITE");
    let answer = body(&sdp("203.0.113.9:1", 6000));
    world.answer(
        &up,
        "200 OK",
        &format!("Record-Route: <sip:192.0.2.10;lr>\nContact: <sip:900@203.0.113.9>\n{answer}"),
    );
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "900", 1, ""));
    world.sent.clear();
    world
}

pub(crate) fn refresh(cseq: u32, port: u16) -> String {
    let extra = format!(
        "Contact: <sip:201@{ALICE}>\nSession-Expires: 90;refresher=uac\nSupported: timer\n{}",
        body(&sdp(ALICE, port))
    );
    follow("INVITE", "201", ALICE, "900", cseq, &extra)
}

#[test]
fn em26_a_call_outlives_its_server_for_twenty_minutes() {
    let mut world = call_without_server();
    let flows = world.gateway.media().flows().count();
    for cseq in 2..30 {
        world.pass_ms(45_000);
        world.sent.clear();
        world.hear(LAN, ALICE, &refresh(cseq, 4000));
        let heard = world.to(ALICE);
        let ok = heard
            .into_iter()
            .find(|sent| sent.what() == "200")
            .expect("refreshed here");
        assert!(
            ok.text().contains("Session-Expires: 90;refresher=uac"),
            "{}",
            ok.text()
        );
        assert!(String::from_utf8_lossy(ok.msg.body()).contains("c=IN IP4 10.99.1.1"));
        world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "900", cseq, ""));
        assert!(
            world.to(SS1).iter().all(|sent| sent.what() == "OPTIONS"),
            "the ACK goes no further"
        );
        assert_eq!(world.gateway.call_count(), 1);
        assert_eq!(world.gateway.media().flows().count(), flows);
    }
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "900", 40, ""));
    world.one(ALICE, "200");
    world.one(SS1, "BYE");
    assert_eq!(world.gateway.call_count(), 0);
}

#[test]
fn em26_a_change_is_put_off_and_ends_nothing() {
    let mut world = call_without_server();
    world.hear(LAN, ALICE, &refresh(2, 4444));
    let later = world
        .to(ALICE)
        .into_iter()
        .find(|sent| sent.what() == "500")
        .expect("500");
    assert_eq!(header(&later, Name::RetryAfter), "5");
    assert_eq!(world.gateway.call_count(), 1);
}

#[test]
fn em26_the_other_partys_ack_of_the_same_number_is_relayed() {
    let mut world = call_without_server();
    world.hear(LAN, ALICE, &refresh(2, 4000));
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "900", 2, ""));
    returned(&mut world);
    // The far party counts its own requests (RFC 3261 section 12.2.1.1).
    world.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "900", 3, ""));
    let call_id = header(&world.one(SS1, "INFO"), Name::CallId);
    let far = |method: &str, extra: &str| {
        format!(
            "{method} sip:x@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKf{method}\n\
             Max-Forwards: 70\nFrom: <sip:900@example.test>;tag=b1\n\
             To: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\nCSeq: 2 {method}\n{extra}"
        )
    };
    let offer = format!(
        "Contact: <sip:900@203.0.113.9>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.hear(WAN, SS1, &far("INVITE", &offer));
    let ring = world.one(ALICE, "INVITE");
    let answer = format!("Contact: <sip:201@{ALICE}>\n{}", body(&sdp(ALICE, 4000)));
    world.answer(&ring, "200 OK", &answer);
    world.one(SS1, "200");
    world.hear(WAN, SS1, &far("ACK", "Content-Length: 0\n\n"));
    world.one(ALICE, "ACK");
}

#[test]
fn em26_a_call_that_came_in_outlives_its_server_too() {
    let mut world = with_policy(Policy::Known);
    let alice = world
        .store
        .bindings
        .iter()
        .find(|b| b.aor.starts_with("201"));
    let contact = alice.expect("alice").upstream_contact.clone();
    let contact = String::from_utf8_lossy(&contact).into_owned();
    let call = format!(
        "INVITE {contact} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKin\n\
         Record-Route: <sip:192.0.2.10;lr>\nMax-Forwards: 70\n\
         From: <sip:900@example.test>;tag=b1\nTo: <sip:201@example.test>\nCall-ID: call-1\n\
         CSeq: 5 INVITE\nContact: <sip:900@203.0.113.9>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.hear(WAN, SS1, &call);
    let ring = world.one(ALICE, "INVITE");
    let answer = format!("Contact: <sip:201@{ALICE}>\n{}", body(&sdp(ALICE, 4000)));
    world.answer_tagged(&ring, "200 OK", "a1", &answer);
    world.one(SS1, "200");
    let via: Vec<_> = world.gateway.calls().map(|call| call.path).collect();
    assert!(via[0].is_some(), "it came through a softswitch");
    world.alive = vec![SS2];
    world.pass_ms(60_000);
    world.sent.clear();
    let refresh = refresh(2, 4000).replace("call-1@10.99.1.11", "call-1");
    world.hear(LAN, ALICE, &refresh);
    assert!(
        world.to(ALICE).iter().any(|sent| sent.what() == "200"),
        "refreshed here"
    );
    let bye = follow("BYE", "201", ALICE, "900", 3, "").replace("call-1@10.99.1.11", "call-1");
    world.hear(LAN, ALICE, &bye);
    world.one(ALICE, "200");
    assert_eq!(world.gateway.call_count(), 0);
}
