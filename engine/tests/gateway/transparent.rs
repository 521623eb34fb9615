//! Transparent mode: phones address their softswitch itself and see nobody else; the softswitch
//! sees the WAN's address; each phone survives its own softswitch (EM20).

use std::time::Duration;

use crate::world::{
    self, ALICE, BOB, GW_WAN, SS1, SS2, Sent, WAN, World, addr, body, conf, follow, invite,
    register, sdp,
};
use keepline_engine::{
    conf::{Conf, Mode, Policy},
    net::{Listener, ListenerId, Transport},
    sip::{Name, stream::Frame},
};

const CAROL: &str = "10.99.1.13:5060";
const DAVE: &str = "10.99.1.14:5060";
/// A softswitch that no group names, and its phones' domain.
const OTHER: &str = "203.0.113.5:5060";

fn transparent(policy: Policy) -> Conf {
    let mut conf = conf();
    conf.mode = Mode::Transparent;
    conf.survivability.policy = policy;
    conf
}

fn at_other(text: &str) -> String {
    text.replace("example.test", "203.0.113.5")
}

fn header(sent: &Sent, name: Name) -> String {
    let value = sent.msg.header(name).map(|span| sent.msg.slice(span));
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

/// Registers a phone with the softswitch at `server`, which answers `status`.
fn register_at(world: &mut World, server: &str, phone: &str, text: &str, status: &str) -> Sent {
    world.hear_to(server, phone, text);
    let up = world.one(server, "REGISTER");
    let contact = header(&up, Name::Contact);
    world.answer(&up, status, &format!("Contact: {contact}\n"));
    world.one(phone, &status[..3])
}

/// Alice and Bob are registered with the configured softswitch, Carol and Dave with the other.
fn office(policy: Policy) -> World {
    let mut world = World::with(transparent(policy));
    world.alive.push(OTHER);
    for (user, phone) in [("201", ALICE), ("202", BOB)] {
        let text = register(user, phone, 1, 3600);
        register_at(&mut world, SS1, phone, &text, "200 OK");
    }
    for (user, phone) in [("301", CAROL), ("302", DAVE)] {
        let text = at_other(&register(user, phone, 1, 3600));
        register_at(&mut world, OTHER, phone, &text, "200 OK");
    }
    world.pass_ms(1000);
    world.sent.clear();
    world
}

/// Bytes of a message without its body: media is anchored at the gateway, and says so.
fn head(sent: &Sent) -> String {
    let text = sent.text();
    text.split("\r\n\r\n").next().unwrap_or_default().to_owned()
}

/// What a phone of SS1 gets comes from there and names nobody else.
fn only_ss1(world: &World, sent: &Sent) {
    assert_eq!(world.source(sent), SS1, "{}", sent.text());
    for stranger in ["198.51.100.1", "192.0.2.11", "203.0.113.", "10.99.1.1:"] {
        assert!(!head(sent).contains(stranger), "{}", sent.text());
    }
}

/// What leaves on the WAN is the WAN's.
fn only_wan(world: &World, sent: &Sent) {
    assert_eq!(world.source(sent), GW_WAN, "{}", sent.text());
    assert!(!sent.text().contains("10.99."), "{}", sent.text());
}

#[test]
fn em20_em18_phones_see_their_softswitch_and_the_softswitch_sees_the_wan() {
    let mut world = World::with(transparent(Policy::Known));
    world.hear_to(SS1, ALICE, &register("201", ALICE, 1, 3600));
    let up = world.one(SS1, "REGISTER");
    only_wan(&world, &up);
    let contact = header(&up, Name::Contact);
    world.answer(&up, "200 OK", &format!("Contact: {contact}\n"));
    let ok = world.one(ALICE, "200");
    only_ss1(&world, &ok);
    assert!(header(&ok, Name::Contact).contains(&format!("<sip:201@{ALICE}>")));

    world.hear_to(SS1, ALICE, &invite("201", ALICE, "900", 1, ""));
    let trying = world.one(ALICE, "100");
    only_ss1(&world, &trying);
    let up = world.one(SS1, "INVITE");
    only_wan(&world, &up);
    let far = format!(
        "Record-Route: <sip:192.0.2.10;lr>\nContact: <sip:900@203.0.113.9:5080>\n\
         P-Asserted-Identity: <sip:900@203.0.113.9>\n{}",
        body(&sdp("203.0.113.9:6000", 6000))
    );
    world.answer(&up, "200 OK", &far);
    let ok = world.one(ALICE, "200");
    only_ss1(&world, &ok);
    assert_eq!(header(&ok, Name::Contact), format!("<sip:900@{SS1}>"));
    assert!(header(&ok, Name::PAssertedIdentity).contains("sip:900@192.0.2.10"));
    // What the phone says in the dialog goes to its softswitch too, and is taken.
    world.hear_to(SS1, ALICE, &follow("ACK", "201", ALICE, "900", 1, ""));
    let ack = world.one(SS1, "ACK");
    only_wan(&world, &ack);
    world.hear_to(SS1, ALICE, &follow("BYE", "201", ALICE, "900", 2, ""));
    let bye = world.one(SS1, "BYE");
    assert!(bye.text().starts_with("BYE sip:900@203.0.113.9:5080"));
    world.answer(&bye, "200 OK", "");
    let ok = world.one(ALICE, "200");
    only_ss1(&world, &ok);
}

#[test]
fn em20_a_call_to_a_phone_comes_from_the_address_that_it_speaks_to() {
    let mut world = office(Policy::Known);
    let binding = world
        .store
        .bindings
        .iter()
        .find(|b| b.aor.starts_with("201"));
    let token = binding.expect("alice").token.clone();
    // From the backup, which Alice has never heard of.
    let text = format!(
        "INVITE sip:{token}@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.11;branch=z9hG4bKin\n\
         Max-Forwards: 70\nFrom: <sip:900@192.0.2.11>;tag=f1\nTo: <sip:201@example.test>\n\
         Call-ID: in-1\nCSeq: 5 INVITE\nContact: <sip:900@192.0.2.11>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.hear(WAN, SS2, &text);
    let down = world.one(ALICE, "INVITE");
    only_ss1(&world, &down);
    assert!(header(&down, Name::Via).contains(SS1), "{}", down.text());
    assert!(header(&down, Name::From).contains("sip:900@192.0.2.10>"));
    let ok = format!("Contact: <sip:201@{ALICE}>\n{}", body(&sdp(ALICE, 4000)));
    let text = world::response(&down.msg, "200 OK", "b1", &ok);
    // The phone answers its softswitch.
    world.hear_to(SS1, ALICE, &String::from_utf8(text).expect("text"));
    let up = world.one(SS2, "200");
    only_wan(&world, &up);
}

#[test]
fn em20_em4_that_very_call_hunts_and_the_phone_still_sees_its_own() {
    let mut world = office(Policy::Known);
    world.alive = vec![SS2, OTHER];
    // Alice names her softswitch by its address, as such phones do.
    let text = invite("201", ALICE, "900", 1, "").replace("example.test", "192.0.2.10");
    world.hear_to(SS1, ALICE, &text);
    world.one(SS1, "INVITE");
    let begun = world.now;
    let backup = loop {
        world.pass_ms(10);
        let found = world
            .to(SS2)
            .into_iter()
            .find(|sent| sent.what() == "INVITE");
        if let Some(found) = found {
            break found;
        }
        let after = world.now.mono.since(begun.mono);
        assert!(after <= Duration::from_millis(1500), "{after:?}");
    };
    only_wan(&world, &backup);
    // The backup is asked in its own name: it knows no other.
    assert!(backup.text().starts_with("INVITE sip:900@192.0.2.11 "));
    assert!(header(&backup, Name::From).contains("sip:201@192.0.2.11>"));
    world.to(ALICE);
    let far = format!(
        "Contact: <sip:900@192.0.2.11>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.answer(&backup, "200 OK", &far);
    let ok = world.one(ALICE, "200");
    only_ss1(&world, &ok);
    assert_eq!(header(&ok, Name::From), "<sip:201@192.0.2.10>;tag=a1");
}

#[test]
fn em20_each_phone_survives_its_own_softswitch() {
    let mut world = office(Policy::Known);
    world.alive = vec![SS1, SS2];
    world.pass(Duration::from_secs(60));
    world.sent.clear();
    for (user, phone) in [("301", CAROL), ("302", DAVE)] {
        world.hear_to(OTHER, phone, &at_other(&register(user, phone, 2, 3600)));
        let ok = world.one(phone, "200");
        assert_eq!(world.source(&ok), OTHER);
    }
    // An OPTIONS to the dead one is answered in its name; one to a living one is its own affair.
    let ping = |to: &str, user: &str| {
        format!(
            "OPTIONS sip:{to} SIP/2.0\nVia: SIP/2.0/UDP {CAROL};branch=z9hG4bKo{user}\n\
             Max-Forwards: 70\nFrom: <sip:{user}@{to}>;tag=o\nTo: <sip:{to}>\n\
             Call-ID: o-{user}\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n"
        )
    };
    world.hear_to(OTHER, CAROL, &ping("203.0.113.5", "301"));
    world.one(CAROL, "200");
    world.hear_to(SS1, CAROL, &ping("example.test", "9"));
    let pong = world.one(CAROL, "200");
    assert_eq!(pong.msg.to_tag(), Some(&b"p"[..]), "the server's own");
    world.sent.clear();

    world.hear_to(OTHER, CAROL, &at_other(&invite("301", CAROL, "302", 1, "")));
    let ring = world.one(DAVE, "INVITE");
    assert_eq!(world.source(&ring), OTHER);
    assert!(!head(&ring).contains("10.99.1.1:"), "{}", ring.text());
    let ok = format!("Contact: <sip:302@{DAVE}>\n{}", body(&sdp(DAVE, 4000)));
    world.answer(&ring, "200 OK", &ok);
    let ok = world.one(CAROL, "200");
    assert_eq!(header(&ok, Name::Contact), format!("<sip:302@{OTHER}>"));

    let text = invite("201", ALICE, "202", 1, "").replace("call-1", "call-2");
    world.hear_to(SS1, ALICE, &text);
    world.one(SS1, "INVITE");
    assert!(world.to(BOB).is_empty(), "its softswitch lives");
}

#[test]
fn em20_em22_a_softswitch_vouches_for_no_phone_of_another() {
    let mut world = office(Policy::Known);
    // The same address of record, domain and phone, but it addresses the dead one.
    world.alive = vec![SS1, SS2];
    world.pass(Duration::from_secs(60));
    world.sent.clear();
    world.hear_to(OTHER, ALICE, &register("201", ALICE, 2, 3600));
    world.one(ALICE, "403");
    let text = at_other(&invite("301", CAROL, "302", 1, ""));
    world.hear_to(
        OTHER,
        CAROL,
        &text.replace("sip:302@203.0.113.5", "sip:202@example.test"),
    );
    assert!(world.to(BOB).is_empty());
}

#[test]
fn em20_an_unknown_destination_is_a_group_of_one_after_its_2xx() {
    let mut world = World::with(transparent(Policy::Known));
    world.alive.push(OTHER);
    let text = at_other(&register("301", CAROL, 1, 3600));
    let refused = register_at(&mut world, OTHER, CAROL, &text, "403 Forbidden");
    assert_eq!(world.source(&refused), OTHER);
    let learned = |world: &World| {
        let mut events = world.events.iter().filter(|event| event.to == "learned");
        events.next().is_some()
    };
    assert!(!learned(&world));
    // Refused, it is nobody's softswitch: dead, it is not survived, and then it is forgotten.
    world.alive = vec![SS1, SS2];
    world.hear_to(OTHER, CAROL, &at_other(&register("301", CAROL, 2, 3600)));
    world.pass(Duration::from_secs(40));
    let answers: Vec<_> = world.to(CAROL).iter().map(Sent::what).collect();
    assert_eq!(answers, ["500"]);
    world.pass(Duration::from_secs(120));
    let groups = world.gateway.health().snapshot(world.now);
    assert_eq!(groups.len(), 1, "{groups:?}");
    world.to(OTHER);
    world.pass(Duration::from_secs(60));
    assert!(world.to(OTHER).is_empty(), "nor probed any more");

    world.alive.push(OTHER);
    let text = at_other(&register("301", CAROL, 3, 3600));
    register_at(&mut world, OTHER, CAROL, &text, "200 OK");
    assert!(learned(&world));
    world.pass(Duration::from_secs(300));
    assert_eq!(
        world.gateway.health().snapshot(world.now).len(),
        2,
        "in use"
    );
}

#[test]
fn em20_at_most_64_softswitches_are_learned_and_the_next_is_refused_in_its_name() {
    let mut world = World::with(transparent(Policy::Known));
    let server = |n: usize| format!("203.0.113.{n}:5060");
    for n in 1..=64 {
        let (server, phone) = (server(n), format!("10.99.1.{}:5060", n + 10));
        let text = register("301", &phone, 1, 3600);
        let text = text.replace("reg-301", &format!("reg-{n}"));
        let text = text.replace("z9hG4bKr", &format!("z9hG4bKr{n}"));
        register_at(&mut world, &server, &phone, &text, "200 OK");
    }
    let listeners = world.gateway.conf().listeners.len();
    for n in 65..=70 {
        let late = "10.99.1.200:5060";
        let text = register("399", late, 1, 3600).replace("z9hG4bKr", &format!("z9hG4bKr{n}"));
        world.hear_to(&server(n), late, &text);
        let refused = world.one(late, "503");
        assert_eq!(world.source(&refused), server(n));
        assert!(world.to(&server(n)).is_empty());
    }
    assert!(world.gateway.conf().listeners.len() <= listeners + 1);
    assert_eq!(world.gateway.counters().table_full, 6);
    // The old ones are kept.
    let text = register("201", ALICE, 1, 3600);
    register_at(&mut world, SS1, ALICE, &text, "200 OK");
    assert_eq!(world.gateway.health().snapshot(world.now).len(), 65);
}

#[test]
fn em20_what_leads_nowhere_or_begins_nothing_is_not_learned() {
    let mut world = World::with(transparent(Policy::OpenLan));
    let text = register("9", CAROL, 1, 3600);
    for nowhere in [
        "127.0.0.1:5060",
        "224.0.1.75:5060",
        "198.51.100.1:5060",
        "0.0.0.0:5060",
    ] {
        world.hear_to(nowhere, CAROL, &text);
        assert!(world.to(nowhere).is_empty(), "{nowhere}");
    }
    world.to(CAROL);
    for begins_nothing in [
        "",
        "\n\n",
        "\0\0\0\0",
        "SIP/2.0 200 OK\nVia: x\n\n",
        "nonsense",
    ] {
        world.hear_to(OTHER, CAROL, begins_nothing);
    }
    assert!(world.left().is_empty(), "{:?}", world.left());
    assert_eq!(world.gateway.health().snapshot(world.now).len(), 1);
}

#[test]
fn em20_kl5_phones_of_a_learned_softswitch_outlive_the_process() {
    let mut world = office(Policy::Known);
    world.hear_to(OTHER, CAROL, &at_other(&invite("301", CAROL, "900", 1, "")));
    let up = world.one(OTHER, "INVITE");
    let far = format!(
        "Contact: <sip:900@{OTHER}>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.answer(&up, "200 OK", &far);
    world.hear_to(
        OTHER,
        CAROL,
        &at_other(&follow("ACK", "301", CAROL, "900", 1, "")),
    );

    let mut world = world.restarted(Duration::from_secs(5));
    assert_eq!(world.gateway.registration_count(world.now), 4);
    world.sent.clear();
    world.hear_to(
        OTHER,
        CAROL,
        &at_other(&follow("BYE", "301", CAROL, "900", 2, "")),
    );
    let bye = world.one(OTHER, "BYE");
    only_wan(&world, &bye);
    world.answer(&bye, "200 OK", "");
    let ok = world.one(CAROL, "200");
    assert_eq!(world.source(&ok), OTHER);
    // Nor is it on trial again: its death is survived.
    world.alive = vec![SS1, SS2];
    world.pass(Duration::from_secs(60));
    world.sent.clear();
    world.hear_to(OTHER, CAROL, &at_other(&register("301", CAROL, 2, 3600)));
    world.one(CAROL, "200");
}

#[test]
fn em20_em3_connections_that_phones_open_to_their_softswitch_are_taken() {
    let mut conf = transparent(Policy::Known);
    conf.listeners.push(Listener {
        transport: Transport::Tcp,
        ..conf.listeners[0].clone()
    });
    let tcp = ListenerId(2);
    let mut world = World::with(conf);
    let phone = addr("10.99.1.13:40000");
    let (now, gateway) = (world.now, &mut world.gateway);
    let place = gateway.may_take(now, tcp, addr(SS1), phone).expect("taken");
    let again = gateway.may_take(now, tcp, addr(SS1), addr("10.99.1.14:40000"));
    assert_eq!(again, Some(place));
    assert_eq!(
        gateway.may_take(now, tcp, addr("224.0.1.75:5060"), phone),
        None
    );
    let text = register("301", CAROL, 1, 3600).replace("SIP/2.0/UDP", "SIP/2.0/TCP");
    let text = text.replace('\n', "\r\n").into_bytes();
    gateway.stream(now, place, phone, Frame::Message(text));
    world.pass_ms(0);
    let up = world.one(SS1, "REGISTER");
    only_wan(&world, &up);
    let contact = header(&up, Name::Contact);
    world.answer(&up, "200 OK", &format!("Contact: {contact}\n"));
    let ok = world.one(&phone.to_string(), "200");
    assert_eq!((ok.listener, world.source(&ok).as_str()), (place, SS1));
}

#[test]
fn em20_em18_a_transfer_names_the_phone_behind_a_contact_of_ours() {
    let mut world = office(Policy::Known);
    let mut bindings = world.store.bindings.iter();
    let token = bindings.find(|b| b.aor.starts_with("202")).expect("bob");
    let token = token.token.clone();
    world.hear_to(SS1, ALICE, &invite("201", ALICE, "900", 1, ""));
    let up = world.one(SS1, "INVITE");
    let far = body(&sdp("203.0.113.9:6000", 6000));
    let far = format!("Contact: <sip:900@203.0.113.9:5080>\n{far}");
    world.answer(&up, "200 OK", &far);
    world.hear_to(SS1, ALICE, &follow("ACK", "201", ALICE, "900", 1, ""));
    // Bob's Contact as Alice saw it in a call through their softswitch.
    let refer = format!("Refer-To: <sip:{token}@{SS1}>\n");
    world.hear_to(SS1, ALICE, &follow("REFER", "201", ALICE, "900", 2, &refer));
    let up = world.one("203.0.113.9:5080", "REFER");
    only_wan(&world, &up);
    assert_eq!(header(&up, Name::ReferTo), "<sip:202@example.test>");
}

#[test]
fn em20_em18_a_redirection_can_be_followed_by_way_of_the_softswitch() {
    let mut world = office(Policy::Known);
    world.hear_to(SS1, ALICE, &invite("201", ALICE, "900", 1, ""));
    let up = world.one(SS1, "INVITE");
    let there = "sip:x9@203.0.113.50:5070;transport=tcp";
    world.answer(&up, "302 Moved", &format!("Contact: <{there}>\n"));
    let moved = world.one(ALICE, "302");
    only_ss1(&world, &moved);
    let contact = header(&moved, Name::Contact);
    let uri = contact.trim_matches(['<', '>']);
    assert!(uri.starts_with("sip:kt1-"), "{contact}");

    let again = invite("201", ALICE, "x", 2, "").replace("call-1", "call-2");
    let again = again.replace("INVITE sip:x@example.test", &format!("INVITE {uri}"));
    world.hear_to(SS1, ALICE, &again);
    let up = world.one(SS1, "INVITE");
    only_wan(&world, &up);
    let first = up.text().lines().next().map(str::to_owned);
    assert_eq!(first.as_deref(), Some(&*format!("INVITE {there} SIP/2.0")));
}
