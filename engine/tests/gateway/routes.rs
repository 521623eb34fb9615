//! The way of a registration: Path upstream (RFC 3327), Service-Route for later requests (RFC
//! 3608), flows that a phone opened (RFC 5626, RFC 6223), and what a dead server leaves behind.

use std::time::Duration;

use crate::world::{
    ALICE, BOB, GW_WAN, LAN, SS1, SS2, Sent, WAN, World, addr, conf, follow, invite, register,
};
use keepline_engine::{
    conf::{PathUse, Policy},
    net::Transport,
    sip::{Message, Name},
};

fn routes(sent: &Sent) -> Vec<String> {
    let values = sent.msg.values(Name::Route);
    let text = |value| String::from_utf8_lossy(sent.msg.slice(value)).into_owned();
    values.map(text).collect()
}

/// The first of what may have been repeated.
fn first(world: &mut World, to: &str, what: &str) -> Sent {
    let mut sent = world.to(to).into_iter();
    let found = sent.find(|sent| sent.what() == what);
    found.unwrap_or_else(|| panic!("no {what} to {to}: {:?}", world.left()))
}

fn contact(msg: &Message) -> String {
    let contact = msg.contacts().next().expect("a contact");
    String::from_utf8_lossy(msg.slice(contact.uri)).into_owned()
}

/// A phone whose registrar said where later requests shall go.
fn registered(world: &mut World, service_route: &str) {
    world.hear(LAN, ALICE, &register("201", ALICE, 1, 3600));
    let up = world.one(SS1, "REGISTER");
    let granted = format!(
        "Contact: <{}>;expires=3600\nService-Route: {service_route}\n",
        contact(&up.msg)
    );
    world.answer(&up, "200 OK", &granted);
    let told = world.one(ALICE, "200");
    assert!(!told.text().contains("Service-Route"), "{}", told.text());
}

#[test]
fn ex2_later_requests_take_the_service_route() {
    let mut world = World::new();
    registered(
        &mut world,
        "<sip:orig@192.0.2.10;lr>, <sip:app.example.test;lr>",
    );
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.one(ALICE, "100");
    assert_eq!(
        routes(&world.one(SS1, "INVITE")),
        ["<sip:orig@192.0.2.10;lr>", "<sip:app.example.test;lr>"]
    );
}

#[test]
fn ex2_a_service_route_to_the_dead_server_does_not_go_along_to_the_backup() {
    let mut world = World::new();
    registered(
        &mut world,
        "<sip:orig@192.0.2.10;lr>, <sip:app.example.test;lr>",
    );
    world.alive = vec![SS2];
    world.pass_ms(10);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.one(ALICE, "100");
    world.pass_ms(2_000);
    let backup = first(&mut world, SS2, "INVITE");
    assert_eq!(routes(&backup), ["<sip:app.example.test;lr>"]);
}

/// After an 18x the call is hunted as a second early dialog; the first one is dead
/// (signalling.md section 2).
#[test]
fn prack_and_update_of_a_dead_early_dialog_get_481() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.pass_ms(10);
    let reliable = "Supported: 100rel\n";
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, reliable));
    world.one(ALICE, "100");
    let up = world.one(SS1, "INVITE");
    let extra = "Contact: <sip:202@192.0.2.10>\nRequire: 100rel\nRSeq: 1\n";
    world.answer(&up, "183 Session Progress", extra);
    world.one(ALICE, "183");
    // It lives: its requests reach the server, which dies with one of them outstanding.
    let prack = |cseq: u32| follow("PRACK", "201", ALICE, "202", cseq, "RAck: 1 1 INVITE\n");
    world.alive = vec![SS2];
    world.pass_ms(10);
    world.hear(LAN, ALICE, &prack(2));
    world.one(SS1, "PRACK");
    world.pass_ms(3_000);
    let backup = first(&mut world, SS2, "INVITE");
    let told: Vec<String> = world.to(ALICE).iter().map(Sent::what).collect();
    assert!(told.iter().all(|what| what == "481"), "{told:?}");
    assert!(!told.is_empty(), "the outstanding PRACK waits");
    for (method, cseq, extra) in [("PRACK", 3, "RAck: 1 1 INVITE\n"), ("UPDATE", 4, "")] {
        let request = follow(method, "201", ALICE, "202", cseq, extra);
        world.hear(LAN, ALICE, &request);
        world.one(ALICE, "481");
    }
    world.answer_tagged(&backup, "200 OK", "b2", "Contact: <sip:202@192.0.2.11>\n");
    world.one(ALICE, "200");
}

/// A REGISTER of Alice's with these lines, the last of which end its Contact's parameters.
fn with(cseq: u32, params: &str, extra: &str) -> String {
    let text = register("201", ALICE, cseq, 3600);
    let contact = format!("Contact: <sip:201@{ALICE}>");
    text.replace(&contact, &format!("{contact}{params}\n{extra}"))
        .replace("\n\n", "\n")
        + "\n"
}

fn values(msg: &Message, name: Name) -> Vec<String> {
    let text = |value| String::from_utf8_lossy(msg.slice(value)).into_owned();
    msg.values(name).map(text).collect()
}

/// The REGISTER as the primary got it, and the 200 that it came back as.
fn granted(world: &mut World, from: &str, text: &str, extra: &str) -> (Sent, Sent) {
    world.hear(LAN, from, text);
    let up = world.one(SS1, "REGISTER");
    let contact = contact(&up.msg);
    let headers = format!("Contact: <{contact}>;expires=3600\n{extra}");
    world.answer(&up, "200 OK", &headers);
    let told = world.one(from, "200");
    (up, told)
}

/// A call for Alice arrives from the primary, along our Path if it was sent one.
fn called(world: &mut World, number: u32, path: &str) {
    let token = world.store.bindings[0].token.clone();
    let call = format!(
        "INVITE sip:{token}@198.51.100.1:5060 SIP/2.0
Via: SIP/2.0/UDP 192.0.2.10:5060;branch=z9hG4bKin{number}
Max-Forwards: 70
{path}From: <sip:202@example.test>;tag=f{number}
To: <sip:201@example.test>
Call-ID: in-{number}
CSeq: 1 INVITE
Contact: <sip:202@192.0.2.10:5060>
Content-Length: 0

"
    );
    world.hear(WAN, SS1, &call);
}

#[test]
fn ex2_a_path_leads_back_by_us_where_it_is_wanted() {
    let supports = "Supported: timer, path\n";
    for (path, extra, sent) in [
        (PathUse::Auto, "", false),
        (PathUse::Auto, supports, true),
        (PathUse::On, "", true),
        (PathUse::Off, supports, false),
    ] {
        let mut conf = conf();
        conf.groups[0].path = path;
        let mut world = World::with(conf);
        let (up, _) = granted(&mut world, ALICE, &with(1, "", extra), "");
        let paths = values(&up.msg, Name::Path);
        assert_eq!(paths.len(), usize::from(sent), "{path:?} {extra}");
        if sent {
            let token = &world.store.bindings[0].token;
            assert_eq!(paths[0], format!("<sip:{token}@{GW_WAN};lr>"));
            let tags = values(&up.msg, Name::Supported);
            let path = tags.iter().filter(|tag| *tag == "path");
            assert_eq!(path.count(), 1, "{tags:?}");
            called(&mut world, 1, &format!("Route: {}\n", paths[0]));
            let rings = world.one(ALICE, "INVITE");
            assert!(routes(&rings).is_empty(), "{}", rings.text());
        }
    }
}

#[test]
fn ex2_proxies_on_the_lan_are_used_and_not_shown() {
    let mut world = World::new();
    let lan = "<sip:p1@10.99.1.9;lr>";
    let text = with(1, "", &format!("Supported: path\nPath: {lan}\n"));
    let (up, told) = granted(&mut world, BOB, &text, "Path: <sip:x@198.51.100.1;lr>\n");
    assert!(!up.text().contains("10.99.1."), "{}", up.text());
    assert_eq!(values(&told.msg, Name::Path), [lan]);
    called(&mut world, 1, "");
    assert_eq!(routes(&world.one(BOB, "INVITE")), [lan]);
}

const FLOW: &str = ";+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000a95a0e128>\";reg-id=1";
const OPENS: &str = "Supported: path, outbound\n";

/// Alice on TCP, whose registrar grants outbound or not.
fn on_a_flow(grants: bool) -> World {
    let mut conf = conf();
    conf.listeners[0].transport = Transport::Tcp;
    conf.survivability.policy = Policy::Known;
    let mut world = World::with(conf);
    let extra = match grants {
        true => "Require: outbound\nFlow-Timer: 33\n",
        false => "",
    };
    let (up, told) = granted(&mut world, ALICE, &with(1, FLOW, OPENS), extra);
    let contact = &values(&up.msg, Name::Contact)[0];
    assert!(contact.contains(FLOW), "{contact}");
    assert!(values(&up.msg, Name::Path)[0].ends_with(";lr;ob>"));
    let timer = grants.then(|| "120".to_owned());
    assert_eq!(
        values(&told.msg, Name::FlowTimer),
        timer.into_iter().collect::<Vec<_>>()
    );
    world
}

#[test]
fn ex2_a_flow_that_is_gone_is_told_the_softswitch_and_nobody_else() {
    let mut world = on_a_flow(true);
    called(&mut world, 1, "");
    world.one(ALICE, "INVITE");
    world.gateway.connection_lost(world.now, LAN, addr(ALICE));
    world.pass_ms(0);
    world.to(ALICE);
    world.to(SS1);
    called(&mut world, 2, "");
    world.one(SS1, "430");
    assert!(world.to(ALICE).is_empty(), "it opens flows, not we");
    // A restart loses every connection, and forgets nothing.
    let mut again = world.restarted(Duration::from_secs(1));
    called(&mut again, 3, "");
    again.one(SS1, "430");
    // Another flow of the same phone is one.
    let anew = "10.99.1.11:40123";
    world.hear(LAN, anew, &with(2, FLOW, OPENS));
    let told = world.one(anew, "200");
    assert_eq!(values(&told.msg, Name::Require), ["outbound"]);
    assert_eq!(values(&told.msg, Name::FlowTimer), ["120"]);
    called(&mut world, 4, "");
    world.one(anew, "INVITE");
}

#[test]
fn ex2_without_outbound_a_phone_is_called_at_its_contact() {
    let mut world = on_a_flow(false);
    world.gateway.connection_lost(world.now, LAN, addr(ALICE));
    called(&mut world, 1, "");
    world.one(ALICE, "INVITE");
}

#[test]
fn ex2_a_phone_that_offers_keepalives_is_told_how_often() {
    let mut world = World::new();
    let keeps = |cseq| with(cseq, "", "").replace(";rport", ";rport;keep");
    let (up, told) = granted(&mut world, ALICE, &keeps(1), "");
    let via = |sent: &Sent| values(&sent.msg, Name::Via)[0].clone();
    assert!(
        via(&up).ends_with(";rport"),
        "keepalives are off: {}",
        via(&up)
    );
    assert!(via(&told).ends_with(";keep=30"), "{}", via(&told));
    world.hear(LAN, ALICE, &keeps(2));
    let here = world.one(ALICE, "200");
    assert!(via(&here).ends_with(";keep=30"), "{}", via(&here));
    world.hear(LAN, ALICE, &with(3, "", ""));
    let without = world.one(ALICE, "200");
    assert!(!via(&without).contains("keep"), "{}", via(&without));
}
