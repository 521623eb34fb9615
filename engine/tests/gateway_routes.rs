//! What a registration says of the way of later requests (RFC 3608), and what a dead server
//! leaves behind.

mod world;

use keepline_engine::sip::{Message, Name};
use world::{ALICE, LAN, SS1, SS2, Sent, World, follow, invite, register};

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
