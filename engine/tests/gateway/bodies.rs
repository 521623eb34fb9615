//! Bodies through the gateway: session descriptions inside of others, and what bodies of events
//! and references show of one side to the other (EM18).

use crate::world::{
    self, ALICE, BOB, GW_WAN, LAN, SS1, Sent, WAN, World, follow, invite, response, sdp,
};

fn message(extra: &str, kind: &str, body: &str) -> String {
    format!(
        "NOTIFY sip:202@example.test SIP/2.0
Via: SIP/2.0/UDP {ALICE};branch=z9hG4bKm1;rport
Max-Forwards: 70
From: <sip:201@example.test>;tag=m1
To: <sip:202@example.test>
Call-ID: m-1
CSeq: 1 NOTIFY
{extra}Content-Type: {kind}
Content-Length: {}

{body}",
        body.len()
    )
}

fn body_of(sent: &Sent) -> String {
    String::from_utf8_lossy(sent.msg.body()).into_owned()
}

#[test]
fn em18_bodies_of_events_show_no_address_of_the_other_side() {
    let mut world = World::new();
    world.register("201", ALICE);
    for (kind, body, expected) in [
        (
            "application/dialog-info+xml",
            "<dialog id=\"1\" call-id=\"plain\"><target uri=\"sip:201@10.99.1.11:5060;x\"/><n>10</n></dialog>",
            "<dialog id=\"1\" call-id=\"plain\"><target uri=\"sip:201@example.test;x\"/><n>10</n></dialog>",
        ),
        (
            "application/reginfo+xml;charset=utf-8",
            "<uri>sip:a@10.99.1.11</uri><uri>sip:b@[fd00::7]:5070</uri><uri>sip:c@203.0.113.9</uri>",
            "<uri>sip:a@example.test</uri><uri>sip:b@example.test</uri><uri>sip:c@203.0.113.9</uri>",
        ),
        (
            "message/sipfrag",
            "SIP/2.0 200 OK from 10.99.1.12.",
            "SIP/2.0 200 OK from example.test.",
        ),
        (
            "application/simple-message-summary",
            "Message-Account: sip:201@10.99.1.1",
            "Message-Account: sip:201@example.test",
        ),
        // What people write to each other is theirs.
        (
            "text/plain",
            "call me at 10.99.1.11",
            "call me at 10.99.1.11",
        ),
    ] {
        let text = message("", kind, body).replace("z9hG4bKm1", &format!("z9hG4bKm{}", body.len()));
        world.hear(LAN, ALICE, &text);
        let up = world.one(SS1, "NOTIFY");
        assert_eq!(body_of(&up), expected);
        let length = format!("Content-Length: {}\r\n", expected.len());
        assert!(up.text().contains(&length), "{}", up.text());
    }
}

#[test]
fn a_call_id_in_a_dialog_event_is_the_one_that_its_reader_can_replace() {
    let mut world = World::new();
    world.register("201", ALICE);
    let info = "<dialog id=\"1\" call-id=\"call-1@10.99.1.11\"/>";
    world.hear(
        LAN,
        ALICE,
        &message("", "application/dialog-info+xml", info),
    );
    let told = body_of(&world.one(SS1, "NOTIFY"));
    world.hear(LAN, ALICE, &invite("201", ALICE, "300", 1, ""));
    let up = world.one(SS1, "INVITE");
    let call_id = String::from_utf8_lossy(up.msg.call_id().unwrap()).into_owned();
    assert!(call_id.starts_with("kl1-"), "{call_id}");
    assert!(told.contains(&format!("call-id=\"{call_id}\"")), "{told}");
}

#[test]
fn a_session_description_is_anchored_inside_a_multipart_body() {
    let mut world = World::new();
    world.register("201", ALICE);
    let sdp = sdp(ALICE, 4000);
    let location = "<gml:pos>1 2</gml:pos>";
    let whole = format!(
        "--b\r\nContent-Type: application/pidf+xml\r\n\r\n{location}\r\n--b\r\nContent-Type: application/sdp\r\n\r\n{sdp}\r\n--b--\r\n"
    );
    let head = invite("201", ALICE, "911", 1, "");
    let head = head.split("Content-Type").next().unwrap();
    let text = format!(
        "{head}Content-Type: multipart/mixed;boundary=b\nContent-Length: {}\n\n{whole}",
        whole.len()
    );
    world.hear(LAN, ALICE, &text);
    let up = world.one(SS1, "INVITE");
    let sent = body_of(&up);
    assert!(
        sent.contains(location) && sent.ends_with("\r\n--b--\r\n"),
        "{sent}"
    );
    assert!(
        sent.contains("c=IN IP4 198.51.100.1\r\n") && !sent.contains("10.99."),
        "{sent}"
    );
    assert!(
        up.text()
            .contains(&format!("Content-Length: {}\r\n", sent.len()))
    );
    let answer = format!(
        "Contact: <sip:911@{SS1}>\n{}",
        world::body(&world::sdp(SS1, 6000))
    );
    world.answer(&up, "200 OK", &answer);
    let ok = world.to(ALICE).pop().unwrap();
    assert!(
        body_of(&ok).contains("c=IN IP4 10.99.1.1\r\n"),
        "{}",
        ok.text()
    );
    assert_eq!(
        world
            .gateway
            .calls()
            .filter(|call| call.media.is_some())
            .count(),
        1
    );
}

/// An attended transfer by the far party names a phone of ours by the Contact it knows, and the
/// dialog by the Call-ID it knows (RFC 5589 section 7).
#[test]
fn a_reference_is_written_as_its_reader_knows_phone_and_dialog() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.register("202", BOB);
    let token = |world: &mut World, user: &str, phone: &str, cseq| {
        world.hear(
            LAN,
            phone,
            &invite(user, phone, "300", cseq, "").replace("call-1@", &format!("call-{user}@")),
        );
        let up = world.one(SS1, "INVITE");
        let contact = up.msg.contacts().next().unwrap();
        let contact = String::from_utf8_lossy(up.msg.slice(contact.uri)).into_owned();
        let call_id = String::from_utf8_lossy(up.msg.call_id().unwrap()).into_owned();
        (contact, call_id, up)
    };
    let (alice, alices, up) = token(&mut world, "201", ALICE, 1);
    let answer = format!(
        "Contact: <sip:300@{SS1}>\n{}",
        world::body(&world::sdp(SS1, 6000))
    );
    world.answer(&up, "200 OK", &answer);
    let (bob, bobs, _) = token(&mut world, "202", BOB, 1);
    assert!(bob.contains(GW_WAN));
    let refer = format!(
        "REFER {alice} SIP/2.0\nVia: SIP/2.0/UDP {SS1};branch=z9hG4bKref\nMax-Forwards: 70\n\
         From: <sip:300@example.test>;tag=b1\nTo: <sip:201@example.test>;tag=a1\nCall-ID: {alices}\nCSeq: 1 REFER\n\
         Contact: <sip:300@{SS1}>\nRefer-To: \"x\" <{bob}?Replaces={bobs}%3Bto-tag%3Db2%3Bfrom-tag%3Da1&X=%20>\n\
         Referred-By: <sip:300@{SS1}>\nContent-Length: 0\n\n"
    );
    world.to(ALICE);
    world.hear(WAN, SS1, &refer);
    let told = world.one(ALICE, "REFER");
    let expected = "Refer-To: \"x\" <sip:202@example.test?Replaces=call-202%4010.99.1.12%3Bto-tag%3Db2%3Bfrom-tag%3Da1&X=%20>\r\n";
    assert!(told.text().contains(expected), "{}", told.text());
    assert!(!told.text().contains("192.0.2."), "{}", told.text());
    // What the phone then says goes back into what the far side wrote.
    let back = response(&told.msg, "202 Accepted", "x", "");
    world.hear_bytes(LAN, ALICE, back);
    world.one(SS1, "202");
    let replaces = "Replaces: call-202@10.99.1.12;to-tag=b2;from-tag=a1\n";
    world.hear(
        LAN,
        ALICE,
        &invite("201", ALICE, "202", 9, replaces).replace("call-1@", "call-9@"),
    );
    let up = world.one(SS1, "INVITE");
    assert!(
        up.text().contains(&format!("Replaces: {bobs};to-tag=b2")),
        "{}",
        up.text()
    );
}

/// Whose ACK was lost repeats its 200 after the call is over too: its addresses stay hidden, and it
/// is told to stop.
#[test]
fn em18_a_200_that_is_repeated_after_its_call_is_acknowledged_and_shown_to_nobody() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.one(ALICE, "100");
    let up = world.one(SS1, "INVITE");
    let far = world::body(&sdp("203.0.113.9:6000", 6000));
    let route = "Record-Route: <sip:192.0.2.10;lr>\n";
    let accepts = format!("Contact: <sip:202@203.0.113.9:5080>\n{route}{far}");
    world.answer(&up, "200 OK", &accepts);
    assert!(!world.one(ALICE, "200").text().contains("203.0.113."));
    for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
        world.hear(LAN, ALICE, &follow(method, "201", ALICE, "202", cseq, ""));
    }
    let bye = world.to(SS1).into_iter().find(|sent| sent.what() == "BYE");
    world.answer(&bye.expect("a BYE"), "200 OK", "");
    world.one(ALICE, "200");
    for repetition in 0..3 {
        world.pass_ms(500);
        world.to(SS1);
        world.answer(&up, "200 OK", &accepts);
        assert!(world.to(ALICE).is_empty(), "the phone hung up");
        let told = world.to(SS1);
        assert!(
            told.iter().any(|sent| sent.what() == "ACK"),
            "repetition {repetition}: {:?}",
            told.iter().map(Sent::what).collect::<Vec<_>>()
        );
    }
}
