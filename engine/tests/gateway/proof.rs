//! Who is the same phone (signalling.md section 4, "same source"): by Ethernet address or
//! certificate where there is one, else by address.

use crate::world::{ALICE, BOB, LAN, SS1, World, addr, conf, invite, register};
use keepline_engine::{conf::Policy, net::LinkId};

/// Alice's phone after its address was given anew.
const MOVED: &str = "10.99.1.77:5060";
const HER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 11];
const ANOTHER: [u8; 6] = [2, 0, 0, 0, 0, 66];

fn at(world: &mut World, phone: &str, mac: Option<[u8; 6]>) {
    world.gateway.neighbour(LinkId(0), addr(phone).ip(), mac);
}

/// Alice and Bob are registered, Alice with a MAC that was seen.
fn known() -> World {
    known_by(|_| ())
}

fn known_by(proof: impl FnOnce(&mut World)) -> World {
    let mut conf = conf();
    conf.survivability.policy = Policy::Known;
    let mut world = World::with(conf);
    at(&mut world, ALICE, Some(HER_MAC));
    proof(&mut world);
    world.register("201", ALICE);
    world.register("202", BOB);
    world.pass_ms(1000);
    world
}

fn alone(world: &mut World) {
    world.alive.clear();
    world.pass_ms(60_000);
    world.sent.clear();
}

/// What a REGISTER of 201 from there is answered, as its phone writes its own address.
fn registers(world: &mut World, phone: &str, cseq: u32) -> String {
    world.sent.clear();
    world.hear(LAN, phone, &register("201", phone, cseq, 3600));
    let all = world.to(phone);
    all.first().map(|sent| sent.what()).unwrap_or_default()
}

#[test]
fn em22_a_phone_whose_address_changed_is_known_by_its_mac() {
    let mut world = known();
    alone(&mut world);
    at(&mut world, MOVED, Some(HER_MAC));
    assert_eq!(registers(&mut world, MOVED, 2), "200");
    // And calls like one that never moved.
    let text = invite("201", MOVED, "202", 1, "");
    world.hear(LAN, MOVED, &text);
    world.one(BOB, "INVITE");
}

#[test]
fn em22_whoever_took_its_address_is_a_stranger() {
    let mut world = known();
    alone(&mut world);
    at(&mut world, ALICE, Some(ANOTHER));
    assert_eq!(registers(&mut world, ALICE, 2), "403");
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    assert!(world.to(BOB).iter().all(|sent| sent.what() != "INVITE"));
    // Another's MAC at another address is none the better.
    at(&mut world, MOVED, Some(ANOTHER));
    assert_eq!(registers(&mut world, MOVED, 3), "403");
}

#[test]
fn em22_where_no_mac_is_seen_the_address_counts() {
    let mut world = known();
    alone(&mut world);
    at(&mut world, ALICE, None);
    assert_eq!(
        registers(&mut world, ALICE, 2),
        "200",
        "a router in between"
    );
    assert_eq!(registers(&mut world, MOVED, 3), "403");
}

#[test]
fn em22_a_mac_outlives_a_restart() {
    let mut world = known();
    alone(&mut world);
    let mut world = world.restarted(std::time::Duration::from_secs(1));
    alone(&mut world);
    at(&mut world, ALICE, Some(ANOTHER));
    assert_eq!(registers(&mut world, ALICE, 2), "403");
    at(&mut world, MOVED, Some(HER_MAC));
    assert_eq!(registers(&mut world, MOVED, 3), "200");
}

#[test]
fn em22_a_certificate_is_what_counts_where_one_was_shown() {
    let mut world = known_by(|world| world.gateway.certified(LAN, addr(ALICE), b"hers"));
    alone(&mut world);
    assert_eq!(registers(&mut world, ALICE, 10), "200");
    // Her phone from elsewhere, by its certificate alone.
    world.gateway.certified(LAN, addr(MOVED), b"hers");
    assert_eq!(registers(&mut world, MOVED, 11), "200");
    // Her address and her MAC do not make up for it.
    let now = world.now;
    world.gateway.connection_lost(now, LAN, addr(ALICE));
    assert_eq!(registers(&mut world, ALICE, 12), "403");
    world.gateway.certified(LAN, addr(ALICE), b"another's");
    assert_eq!(registers(&mut world, ALICE, 13), "403");
}

/// EM25: a phone with a new address would be rung twice, once where nobody is any more.
#[test]
fn em25_a_phone_that_moved_leaves_one_contact_upstream() {
    let mut world = known();
    at(&mut world, MOVED, Some(HER_MAC));
    // A phone keeps its Call-ID for all its REGISTERs (RFC 3261 section 10.2).
    let text = register("201", ALICE, 2, 3600);
    let moved = text.replace(addr(ALICE).to_string().as_str(), MOVED);
    world.sent.clear();
    world.hear(LAN, MOVED, &moved);
    let up = world.one(SS1, "REGISTER");
    let contacts: Vec<String> = up
        .msg
        .contacts()
        .map(|contact| String::from_utf8_lossy(up.msg.slice(contact.value)).into_owned())
        .collect();
    assert_eq!(contacts.len(), 2, "{contacts:?}");
    assert!(
        contacts.iter().any(|contact| contact.contains("expires=0")),
        "{contacts:?}"
    );
}
