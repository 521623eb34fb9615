//! Transfers and subscriptions through topology hiding: what is referred to can be called from
//! the other side, and dialogs live as long as their call or their subscription.

use crate::world::{
    ALICE, BOB, GW_WAN, LAN, SS1, Sent, WAN, World, body, follow, invite, register, sdp,
};
use keepline_engine::sip::{Message, Name};

const FAR: &str = "Record-Route: <sip:192.0.2.10;lr>\nContact: <sip:202@203.0.113.9:5080>\n";

fn header(msg: &Message, name: Name) -> String {
    let span = msg.header(name);
    span.map(|span| String::from_utf8_lossy(msg.slice(span)).into_owned())
        .unwrap_or_default()
}

/// Alice, who is 201, talks to 202 somewhere; the Call-ID of it on the WAN.
fn call(world: &mut World) -> String {
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    let answer = body(&sdp("203.0.113.9:1", 6000));
    world.answer(&up, "200 OK", &format!("{FAR}{answer}"));
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.one(SS1, "ACK");
    header(&up.msg, Name::CallId)
}

/// A request of the far party in that call.
fn far(method: &str, call_id: &str, cseq: u32, extra: &str) -> String {
    let end = if extra.contains("\n\n") {
        ""
    } else {
        "Content-Length: 0\n\n"
    };
    format!(
        "{method} sip:201@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bK{method}{cseq}\n\
         Max-Forwards: 70\nFrom: <sip:202@example.test>;tag=b1\n\
         To: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\nCSeq: {cseq} {method}\n\
         Contact: <sip:202@203.0.113.9:5080>\n{extra}{end}"
    )
}

fn referred_by_alice(world: &mut World, refer_to: &str) -> Sent {
    let extra = format!("Contact: <sip:201@{ALICE}>\nRefer-To: {refer_to}\n");
    world.hear(LAN, ALICE, &follow("REFER", "201", ALICE, "202", 2, &extra));
    let refer = world.one(SS1, "REFER");
    assert!(!refer.text().contains("10.99."), "{}", refer.text());
    refer
}

fn referred_by_far(world: &mut World, call_id: &str, refer_to: &str) -> Sent {
    let extra = format!("Refer-To: {refer_to}\n");
    world.hear(WAN, SS1, &far("REFER", call_id, 7, &extra));
    let refer = world.one(ALICE, "REFER");
    for hidden in ["192.0.2.", "203.0.113.", "198.51.100."] {
        assert!(!refer.text().contains(hidden), "{}", refer.text());
    }
    refer
}

#[test]
fn em18_an_attended_transfer_names_the_dialog_and_the_party_as_the_far_side_knows_them() {
    let mut world = World::new();
    let call_id = call(&mut world);
    let refer = referred_by_alice(
        &mut world,
        "<sip:202@10.99.1.1:5060?Replaces=call-1%4010.99.1.11%3Bto-tag%3Db1%3Bfrom-tag%3Da1>",
    );
    let refer_to = header(&refer.msg, Name::ReferTo);
    let (uri, replaces) = refer_to.split_once("?Replaces=").expect("Replaces");
    assert_eq!(uri, "<sip:202@203.0.113.9:5080", "the party's own Contact");
    let expected = format!("{call_id}%3Bto-tag%3Db1%3Bfrom-tag%3Da1>");
    assert_eq!(replaces, expected);
}

#[test]
fn em18_what_the_far_side_refers_to_can_be_called_from_the_lan() {
    let mut world = World::new();
    let call_id = call(&mut world);
    let there = "sip:x9@203.0.113.50:5070;transport=tcp";
    let refer_to = format!("\"Carol\" <{there}?Replaces=r%40h%3Bto-tag%3D1%3Bfrom-tag%3D2>");
    let refer = referred_by_far(&mut world, &call_id, &refer_to);
    let seen = header(&refer.msg, Name::ReferTo);
    assert!(seen.starts_with("\"Carol\" <sip:kt1-"), "{seen}");
    assert!(
        seen.ends_with("?Replaces=r%40h%3Bto-tag%3D1%3Bfrom-tag%3D2>"),
        "{seen}"
    );
    let (_, uri) = seen.split_once('<').expect("a URI");
    let (uri, _) = uri.split_once('?').expect("headers");
    let again = invite("201", ALICE, "x", 3, "Replaces: r@h;to-tag=1;from-tag=2\n")
        .replace("INVITE sip:x@example.test", &format!("INVITE {uri}"))
        .replace("call-1", "call-2");
    world.hear(LAN, ALICE, &again);
    let up = world.one(SS1, "INVITE");
    let first = up.text().lines().next().map(str::to_owned);
    assert_eq!(first.as_deref(), Some(&*format!("INVITE {there} SIP/2.0")));
    // Nobody else's token opens.
    world.to(ALICE);
    let forged = uri.replace("kt1-", "kt1-A");
    let again = again.replace(uri, &forged).replace("call-2", "call-3");
    world.hear(LAN, ALICE, &again.replace("z9hG4bK", "z9hG4bKf"));
    let up = world.one(SS1, "INVITE");
    assert!(up.text().starts_with("INVITE sip:kt1-A"), "{}", up.text());
}

#[test]
fn em18_phones_of_ours_go_by_their_name() {
    let mut world = World::new();
    let call_id = call(&mut world);
    world.hear(
        LAN,
        BOB,
        &register("209", BOB, 1, 3600).replace("<sip:209@10", "<sip:box7@10"),
    );
    let up = world.one(SS1, "REGISTER");
    let token = up.msg.contacts().next().expect("a Contact");
    let token = String::from_utf8_lossy(up.msg.slice(token.uri)).into_owned();
    world.answer(&up, "200 OK", &format!("Contact: <{token}>;expires=3600\n"));
    world.one(BOB, "200");
    let refer = referred_by_alice(&mut world, &format!("<sip:box7@{BOB}>"));
    assert_eq!(header(&refer.msg, Name::ReferTo), "<sip:209@example.test>");
    let refer = referred_by_far(&mut world, &call_id, &format!("<{token}>"));
    assert_eq!(header(&refer.msg, Name::ReferTo), "<sip:209@example.test>");
}

#[test]
fn em18_a_redirection_leads_where_it_points_and_shows_nothing() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    let there = "sip:x9@203.0.113.50:5070";
    world.answer(
        &up,
        "302 Moved Temporarily",
        &format!("Contact: <{there}>;q=0.5\n"),
    );
    let moved = world.one(ALICE, "302");
    assert!(!moved.text().contains("203.0.113."), "{}", moved.text());
    let contact = header(&moved.msg, Name::Contact);
    let uri = contact.trim_start_matches('<').trim_end_matches(">;q=0.5");
    let again = invite("201", ALICE, "x", 2, "")
        .replace("INVITE sip:x@example.test", &format!("INVITE {uri}"));
    world.hear(LAN, ALICE, &again.replace("call-1", "call-2"));
    let up = world.one(SS1, "INVITE");
    assert!(
        up.text().starts_with(&format!("INVITE {there} SIP/2.0")),
        "{}",
        up.text()
    );
}

#[test]
fn em18_what_phones_say_of_calls_in_bodies_is_hidden_too() {
    let mut world = World::new();
    call(&mut world);
    for (kind, said) in [
        (
            "message/sipfrag;version=2.0",
            "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 10.99.1.11:5060;branch=z9hG4bK1\r\n\
             Contact: <sip:201@10.99.1.11:5060>\r\n\r\n",
        ),
        (
            "Application/Dialog-Info+XML",
            "<dialog-info entity=\"sip:201@example.test\"><dialog call-id=\"5@10.99.1.11\">\
             <target uri=\"sip:201@10.99.1.11:5060\"/>10.99.1.1</dialog></dialog-info>",
        ),
    ] {
        let length = said.len();
        let extra = format!(
            "Event: x\nSubscription-State: active\nContent-Type: {kind}\nContent-Length: {length}\n\n{said}"
        );
        world.hear(
            LAN,
            ALICE,
            &follow("NOTIFY", "201", ALICE, "202", length as u32, &extra),
        );
        let notify = world.one(SS1, "NOTIFY");
        let text = notify.text();
        assert!(!text.contains("10.99."), "{text}");
        assert!(text.contains("sip:201@example.test"), "{text}");
        let length = header(&notify.msg, Name::ContentLength);
        assert_eq!(length, notify.msg.body().len().to_string());
        world.answer(&notify, "200 OK", "");
        world.one(ALICE, "200");
    }
}

const TERMINATED: &str = "Event: refer\nSubscription-State: terminated;reason=noresource\n";

/// The far party referred Alice, who agreed, and hung up.
fn referred_and_hung_up() -> World {
    let mut world = World::new();
    let call_id = call(&mut world);
    let refer = referred_by_far(&mut world, &call_id, "<sip:203@example.test>");
    world.answer(
        &refer,
        "202 Accepted",
        &format!("Contact: <sip:201@{ALICE}>\n"),
    );
    world.one(SS1, "202");
    world.hear(WAN, SS1, &far("BYE", &call_id, 8, ""));
    let bye = world.one(ALICE, "BYE");
    world.answer(&bye, "200 OK", "");
    world
}

#[test]
fn the_subscription_of_a_refer_outlives_the_bye_until_its_last_notify() {
    let mut world = referred_and_hung_up();
    world.one(SS1, "200");
    assert_eq!(world.gateway.call_count(), 0, "the call is over");
    assert_eq!(world.gateway.media().flows().count(), 0);
    for (cseq, state) in [
        (5, "Event: refer\nSubscription-State: active;expires=60\n"),
        (6, TERMINATED),
    ] {
        world.hear(
            LAN,
            ALICE,
            &follow("NOTIFY", "201", ALICE, "202", cseq, state),
        );
        let notify = world.one(SS1, "NOTIFY");
        assert!(
            notify
                .text()
                .starts_with("NOTIFY sip:202@203.0.113.9:5080 ")
        );
        world.answer(&notify, "200 OK", "");
        world.one(ALICE, "200");
    }
    assert!(world.store.dialogs.is_empty(), "the last word was said");
    world.hear(
        LAN,
        ALICE,
        &follow("NOTIFY", "201", ALICE, "202", 7, TERMINATED),
    );
    world.one(ALICE, "481");
}

#[test]
fn a_referred_phone_that_never_says_how_it_went_is_forgotten() {
    let mut world = referred_and_hung_up();
    assert_eq!(world.store.dialogs.len(), 1);
    world.pass_ms(333_000);
    assert!(world.store.dialogs.is_empty());
}

/// A request of Alice about 202's calls; `tag` is the notifier's.
fn subscribe(cseq: u32, tag: &str, expires: u32) -> String {
    format!(
        "SUBSCRIBE sip:202@example.test SIP/2.0\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKs{cseq};rport\n\
         Max-Forwards: 70\nFrom: <sip:201@example.test>;tag=s1\nTo: <sip:202@example.test>{tag}\n\
         Call-ID: watch@10.99.1.11\nCSeq: {cseq} SUBSCRIBE\nContact: <sip:201@{ALICE}>\n\
         Event: dialog\nExpires: {expires}\nContent-Length: 0\n\n"
    )
}

#[test]
fn em13_a_subscription_lives_as_long_as_it_is_renewed() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &subscribe(1, "", 60));
    for cseq in 2..6 {
        let up = world.one(SS1, "SUBSCRIBE");
        world.answer(&up, "200 OK", &format!("Expires: 60\n{FAR}"));
        world.one(ALICE, "200");
        world.pass_ms(50_000);
        assert_eq!(world.store.dialogs.len(), 1, "renewed before {cseq}");
        world.hear(LAN, ALICE, &subscribe(cseq, ";tag=b1", 60));
    }
    let up = world.one(SS1, "SUBSCRIBE");
    let call_id = header(&up.msg, Name::CallId);
    world.answer(&up, "200 OK", &format!("Expires: 60\n{FAR}"));
    world.pass_ms(80_000);
    assert_eq!(world.store.dialogs.len(), 1, "a last NOTIFY may come late");
    let restarted = world.restarted(std::time::Duration::from_secs(1));
    assert_eq!(restarted.store.dialogs.len(), 1);
    let mut restarted = restarted;
    restarted.pass_ms(3_700_000);
    assert!(
        restarted.store.dialogs.is_empty(),
        "bounded after a restart"
    );
    let notify = far("NOTIFY", &call_id, 3, TERMINATED).replace("tag=a1", "tag=s1");
    world.hear(WAN, SS1, &notify);
    let last = world.one(ALICE, "NOTIFY");
    world.answer(&last, "200 OK", "");
    assert!(world.store.dialogs.is_empty(), "it was terminated");
}

#[test]
fn em25_a_phone_with_another_contact_takes_its_old_one_away() {
    for again in [
        // After a restart, from the same socket; and with another port, in the same REGISTER run.
        register("201", ALICE, 2, 3600).replace("reg-201", "reg-anew"),
        register("201", "10.99.1.11:5072", 2, 3600),
    ] {
        let mut world = World::new();
        world.register("201", ALICE);
        world.register("201", BOB);
        let from = if again.contains(":5072") {
            "10.99.1.11:5072"
        } else {
            ALICE
        };
        let changed = again.replace("<sip:201@10.99.1.11", "<sip:other@10.99.1.11");
        world.hear(LAN, from, &changed);
        let up = world.one(SS1, "REGISTER");
        let contacts: Vec<String> = (up.msg.contacts())
            .map(|addr| String::from_utf8_lossy(up.msg.slice(addr.value)).into_owned())
            .collect();
        assert_eq!(contacts.len(), 2, "{contacts:?}");
        assert!(contacts[0].ends_with(";expires=3600"), "{contacts:?}");
        assert!(contacts[1].ends_with(">;expires=0"), "{contacts:?}");
        world.answer(&up, "200 OK", &format!("Contact: {}\n", contacts[0]));
        let ok = world.one(from, "200");
        assert!(ok.text().contains("sip:other@"), "{}", ok.text());
        assert_eq!(world.gateway.registration_count(world.now), 2, "and Bob's");
    }
}
