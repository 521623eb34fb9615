//! As an outbound proxy for several softswitches: phones keep their domain, each softswitch has
//! its own availability (EM19).

use std::time::Duration;

use crate::world::{
    self, ALICE, BOB, GW_WAN, LAN, SS1, SS2, Sent, WAN, World, body, conf, invite, register, sdp,
};
use keepline_engine::{
    conf::{Conf, Mode, Policy},
    sip::Name,
};

const HOSTED: &str = "voice.example.net";
const CAROL: &str = "10.99.1.13:5060";
const DAVE: &str = "10.99.1.14:5060";

/// `core` with one server for example.test, `hosted` with the other for voice.example.net.
fn two_softswitches(policy: Policy) -> Conf {
    let mut conf = conf();
    conf.mode = Mode::OutboundProxy;
    conf.survivability.policy = policy;
    let mut hosted = conf.groups[0].clone();
    hosted.domain = HOSTED.to_owned();
    hosted.health.name = "hosted".to_owned();
    hosted.health.servers.remove(0);
    conf.groups[0].health.servers.truncate(1);
    conf.groups.push(hosted);
    conf
}

fn hosted(text: &str) -> String {
    text.replace("example.test", HOSTED)
}

fn header(sent: &Sent, name: Name) -> String {
    let value = sent.msg.header(name).map(|span| sent.msg.slice(span));
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

/// A phone of the hosted softswitch registers.
fn register_hosted(world: &mut World, user: &str, at: &str) {
    world.hear(LAN, at, &hosted(&register(user, at, 1, 3600)));
    let up = world.one(SS2, "REGISTER");
    let contact = header(&up, Name::Contact);
    world.answer(&up, "200 OK", &format!("Contact: {contact}\n"));
    world.one(at, "200");
}

fn office(policy: Policy) -> World {
    let mut world = World::with(two_softswitches(policy));
    world.register("201", ALICE);
    world.register("202", BOB);
    register_hosted(&mut world, "301", CAROL);
    register_hosted(&mut world, "302", DAVE);
    world.pass_ms(1000);
    world.sent.clear();
    world
}

fn without_hosted(policy: Policy) -> World {
    let mut world = office(policy);
    world.alive = vec![SS1];
    world.pass(Duration::from_secs(60));
    world.sent.clear();
    world
}

fn binding_request() -> Vec<u8> {
    let mut stun = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    stun.extend_from_slice(&[7; 12]);
    stun
}

#[test]
fn em19_each_phone_is_served_by_its_own_softswitch() {
    let mut world = office(Policy::Known);
    let mut groups: Vec<_> = world.gateway.registrations(world.now).collect();
    groups.sort_by(|a, b| a.aor.cmp(&b.aor));
    let aors: Vec<_> = groups.iter().map(|view| view.aor.as_str()).collect();
    let carol = format!("301@{HOSTED}");
    let dave = format!("302@{HOSTED}");
    assert_eq!(
        aors,
        ["201@example.test", "202@example.test", &carol, &dave]
    );

    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    assert_eq!(world.one(SS1, "INVITE").to.to_string(), SS1);
    let text = hosted(&invite("301", CAROL, "302", 1, "")).replace("call-1", "call-2");
    world.hear(LAN, CAROL, &text);
    let up = world.one(SS2, "INVITE");
    assert!(
        up.text()
            .starts_with(&format!("INVITE sip:302@{HOSTED} SIP/2.0")),
        "{}",
        up.text()
    );
    assert!(header(&up, Name::From).contains(&format!("sip:301@{HOSTED}")));
}

#[test]
fn em19_a_softswitch_may_be_named_by_its_address() {
    let mut world = office(Policy::Known);
    let text = register("303", "10.99.1.15:5060", 1, 3600).replace("example.test", "192.0.2.11");
    world.hear(LAN, "10.99.1.15:5060", &text);
    world.one(SS2, "REGISTER");
}

#[test]
fn em19_a_call_to_a_foreign_domain_is_the_senders_softswitchs_business() {
    let mut world = office(Policy::Known);
    for target in [
        "sip:9@elsewhere.example",
        "sip:201@example.test",
        "sip:9@203.0.113.77",
    ] {
        let text = hosted(&invite("301", CAROL, "9", 1, ""));
        let line = format!("INVITE sip:9@{HOSTED}");
        let call = format!("call-{}", target.len());
        let text = text
            .replace(&line, &format!("INVITE {target}"))
            .replace("call-1", &call);
        world.hear(
            LAN,
            CAROL,
            &text.replace("z9hG4bKi", &format!("z9hG4bK{call}")),
        );
        let up = world.one(SS2, "INVITE");
        assert!(
            up.text().starts_with(&format!("INVITE {target} SIP/2.0")),
            "{}",
            up.text()
        );
    }
}

#[test]
fn em19_a_domain_of_nobody_is_refused_and_relayed_nowhere() {
    let mut world = office(Policy::OpenLan);
    let stranger = "10.99.1.16:5060";
    let text = register("9", stranger, 1, 3600).replace("example.test", "elsewhere.example");
    world.hear(LAN, stranger, &text);
    world.one(stranger, "403");
    let text = invite("9", stranger, "8", 1, "").replace("example.test", "elsewhere.example");
    world.hear(LAN, stranger, &text);
    let answers: Vec<_> = world.to(stranger).iter().map(Sent::what).collect();
    assert_eq!(answers, ["100", "403"]);
    assert!(
        world.left().iter().all(|sent| sent.starts_with("OPTIONS")),
        "{:?}",
        world.left()
    );
}

#[test]
fn em19_one_softswitch_dies_and_only_its_phones_are_on_their_own() {
    let mut world = without_hosted(Policy::Known);
    // Carol's refresh is answered here, Alice's upstream goes on being asked.
    world.hear(LAN, CAROL, &hosted(&register("301", CAROL, 2, 3600)));
    world.one(CAROL, "200");
    world.hear(LAN, DAVE, &hosted(&register("302", DAVE, 2, 3600)));
    world.one(DAVE, "200");
    world.hear(LAN, CAROL, &hosted(&invite("301", CAROL, "302", 1, "")));
    let ring = world.one(DAVE, "INVITE");
    let ok = format!("Contact: <sip:302@{DAVE}>\n{}", body(&sdp(DAVE, 4000)));
    world.answer(&ring, "200 OK", &ok);
    world.one(CAROL, "200");

    let text = invite("201", ALICE, "202", 1, "").replace("call-1", "call-2");
    world.hear(LAN, ALICE, &text);
    world.one(SS1, "INVITE");
    assert!(
        world.to(BOB).is_empty(),
        "through the softswitch, which lives"
    );
}

#[test]
fn em19_keepalives_are_answered_by_the_state_of_ones_own_softswitch() {
    let mut world = without_hosted(Policy::Off);
    for (phone, served) in [(ALICE, true), (CAROL, false)] {
        world
            .gateway
            .datagram(world.now, LAN, world::addr(phone), binding_request());
        let mut answered = false;
        while let Some(output) = world.gateway.poll_output() {
            answered |= matches!(output, keepline_engine::gateway::Output::Send { .. });
        }
        assert_eq!(answered, served, "{phone}");
    }
}

#[test]
fn em19_the_last_digits_dial_within_ones_own_softswitch() {
    let mut conf = two_softswitches(Policy::Known);
    conf.survivability.last_digits = vec![3];
    let mut world = World::with(conf);
    world.register("5550777", ALICE);
    register_hosted(&mut world, "5551777", CAROL);
    register_hosted(&mut world, "302", DAVE);
    world.pass_ms(1000);
    world.alive = vec![SS1];
    world.pass(Duration::from_secs(60));
    for (user, at) in [("5551777", CAROL), ("302", DAVE)] {
        world.hear(LAN, at, &hosted(&register(user, at, 2, 3600)));
    }
    world.sent.clear();
    world.hear(LAN, DAVE, &hosted(&invite("302", DAVE, "777", 1, "")));
    world.one(CAROL, "INVITE");
    assert!(world.to(ALICE).is_empty());
}

#[test]
fn em18_a_softswitchs_address_becomes_its_own_domain_on_the_lan() {
    let mut world = office(Policy::Known);
    let token = world
        .store
        .bindings
        .iter()
        .find(|b| b.aor.starts_with("301"));
    let token = token.expect("carol").token.clone();
    let text = format!(
        "INVITE sip:{token}@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.11;branch=z9hG4bKin\n\
         Max-Forwards: 70\nFrom: <sip:900@192.0.2.11>;tag=f1\nTo: <sip:301@{HOSTED}>\n\
         Call-ID: in-1\nCSeq: 5 INVITE\nContact: <sip:900@192.0.2.11>\n{}",
        body(&sdp("203.0.113.9:1", 6000))
    );
    world.hear(WAN, SS2, &text);
    let down = world.one(CAROL, "INVITE");
    assert!(
        header(&down, Name::From).contains(&format!("sip:900@{HOSTED}")),
        "{}",
        down.text()
    );
}
