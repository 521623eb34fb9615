//! Keepalives of the gateway's own towards softswitches (EX4), and phones on streams that are
//! brought when their registrations are due (signalling.md section 4).

use std::time::Duration;

use crate::world::{
    ALICE, BOB, LAN, SS1, SS2, WAN, World, addr, body, conf, follow, invite, register, sdp,
};
use keepline_engine::{
    conf::{Conf, Policy, Stun},
    net::{ListenerId, Transport},
    sip::{Message, Name, stream::Frame},
    steer::Gate,
    stun,
    time::Mono,
};

fn with(use_of: Stun) -> Conf {
    let mut conf = conf();
    conf.keepalive.stun = use_of;
    conf
}

fn over(use_of: Stun, wan: Transport) -> Conf {
    let mut conf = with(use_of);
    conf.listeners[0].transport = Transport::Tcp;
    conf.listeners[1].transport = wan;
    for server in &mut conf.groups[0].health.servers {
        server.transport = wan;
    }
    conf
}

/// When something went to the primary.
fn asked(world: &World) -> Vec<Mono> {
    let to_it = world.stuns.iter().filter(|(to, ..)| *to == addr(SS1));
    to_it.map(|(_, at, _)| *at).collect()
}

fn pinged(world: &World) -> Vec<Mono> {
    let to_it = world.pings.iter().filter(|(to, _)| *to == addr(SS1));
    to_it.map(|(_, at)| *at).collect()
}

/// The primary answers what it was asked last: this is where we seem to be.
fn answer(world: &mut World, listener: ListenerId, seen: &str) {
    let last = world.stuns.iter().rfind(|(to, ..)| *to == addr(SS1));
    let (_, _, request) = last.expect("a request").clone();
    let reply = stun::answer(&request, addr(seen), Gate::Serving).expect("an answer");
    let transport = world.gateway.conf().listeners[usize::from(listener.0)].transport;
    match transport.is_stream() {
        true => world
            .gateway
            .stream(world.now, listener, addr(SS1), Frame::Stun(reply)),
        false => world
            .gateway
            .datagram(world.now, listener, addr(SS1), reply),
    }
    world.pass_ms(0);
}

/// Time passes; the primary answers each request at once.
fn pass_answered(world: &mut World, listener: ListenerId, by: Duration, seen: &str) {
    let end = world.now.after(by);
    while world.now.mono < end.mono {
        let before = asked(world).len();
        world.pass_ms(100);
        if asked(world).len() > before {
            answer(world, listener, seen);
        }
    }
}

fn gaps(at: &[Mono]) -> Vec<u64> {
    let pairs = at.windows(2);
    let gap = |pair: &[Mono]| u64::try_from(pair[1].since(pair[0]).as_millis()).unwrap();
    pairs.map(gap).collect()
}

const HERE: &str = "198.51.100.1:5060";

#[test]
fn ex4_a_server_that_speaks_stun_is_asked_every_24_to_29_seconds() {
    let mut world = World::with(with(Stun::Auto));
    pass_answered(&mut world, WAN, Duration::from_secs(600), HERE);
    let asked = asked(&world);
    assert!((20..=26).contains(&asked.len()), "{asked:?}");
    let gaps = gaps(&asked);
    assert!(
        gaps.iter().all(|gap| (24_000..29_200).contains(gap)),
        "{gaps:?}"
    );
    assert!(pinged(&world).is_empty());
    assert!(world.events.iter().all(|event| event.kind != "flow"));
}

#[test]
fn ex4_three_sends_within_three_seconds_then_crlf_for_a_day() {
    let mut world = World::with(with(Stun::Auto));
    world.pass(Duration::from_secs(23 * 3600));
    let tried = asked(&world);
    assert_eq!(gaps(&tried), [500, 1000], "{tried:?}");
    let pinged = pinged(&world);
    assert_eq!(
        pinged[0].since(tried[0]),
        Duration::from_secs(3),
        "at the limit"
    );
    let gaps = gaps(&pinged);
    assert!(gaps.len() > 2_000);
    assert!(
        gaps.iter().all(|gap| (24_000..29_200).contains(gap)),
        "{gaps:?}"
    );
    // A server that does not speak it is as alive as any.
    let judged = |event: &&keepline_engine::event::Event| event.rule == "keepalive_unanswered";
    assert_eq!(world.events.iter().filter(judged).count(), 0);
    world.pass(Duration::from_secs(2 * 3600));
    assert_eq!(asked(&world).len(), 6, "one trial a day");
}

#[test]
fn ex4_one_setting_turns_it_off() {
    let mut world = World::with(with(Stun::Off));
    world.pass(Duration::from_secs(600));
    assert!(world.stuns.is_empty() && world.pings.is_empty());
}

#[test]
fn ex4_stun_silence_alone_calls_nobody_down() {
    let mut world = World::with(with(Stun::Auto));
    pass_answered(&mut world, WAN, Duration::from_secs(100), HERE);
    world.pass(Duration::from_secs(600));
    let rule = |name: &str| {
        let of_it = world.events.iter().filter(|event| event.rule == name);
        of_it.count()
    };
    assert_eq!(rule("keepalive_unanswered"), 3, "then it is deaf");
    assert!(world.events.iter().all(|event| event.to != "down"));
    assert!(!pinged(&world).is_empty(), "CRLF from then on");
}

#[test]
fn ex4_a_peer_that_fell_silent_is_found_without_traffic() {
    let mut conf = with(Stun::Auto);
    conf.groups[0].health.probe = keepline_engine::health::ProbeMode::Off;
    let mut world = World::with(conf);
    pass_answered(&mut world, WAN, Duration::from_secs(100), HERE);
    world.alive = vec![SS2];
    world.pass(Duration::from_secs(35));
    let down = world.events.iter().find(|event| event.to == "down");
    let down = down.expect("STUN found it, OPTIONS confirmed it");
    assert!(down.object.contains("192.0.2.10"), "{down:?}");
    let why: Vec<&str> = down.evidence.iter().map(|e| e.what.as_str()).collect();
    assert!(why.iter().any(|what| what.starts_with("STUN")), "{why:?}");
}

#[test]
fn ex4_a_changed_mapped_address_is_a_changed_flow() {
    let mut world = World::with(with(Stun::Auto));
    world.register("201", ALICE);
    pass_answered(&mut world, WAN, Duration::from_secs(60), HERE);
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    world.one(ALICE, "200");
    assert!(
        world.to(SS1).is_empty(),
        "answered here while nothing changed"
    );
    pass_answered(
        &mut world,
        WAN,
        Duration::from_secs(60),
        "203.0.113.7:61000",
    );
    let changed: Vec<_> = world.events.iter().filter(|e| e.kind == "flow").collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(
        (changed[0].from.as_str(), changed[0].to.as_str()),
        (HERE, "203.0.113.7:61000")
    );
    world.hear(LAN, ALICE, &register("201", ALICE, 3, 3600));
    world.one(SS1, "REGISTER");
}

#[test]
fn ex4_an_answer_from_elsewhere_or_to_nothing_changes_nothing() {
    let mut world = World::with(with(Stun::Auto));
    world.pass_ms(31_000);
    let (_, _, request) = world.stuns.last().expect("a request").clone();
    let reply = stun::answer(&request, addr(HERE), Gate::Serving).expect("an answer");
    world
        .gateway
        .datagram(world.now, WAN, addr("192.0.2.66:5060"), reply.clone());
    let mut other = reply;
    other[10] ^= 1;
    world.gateway.datagram(world.now, WAN, addr(SS1), other);
    world.pass(Duration::from_secs(60));
    assert!(!pinged(&world).is_empty(), "nobody answered");
}

/// The primary's 200 to a REGISTER of Alice, with these headers.
fn registered(world: &mut World, extra: &str) {
    world.hear(LAN, ALICE, &register("201", ALICE, 1, 3600));
    let up = world.one(SS1, "REGISTER");
    let via = header(&up.msg, Name::Via);
    assert!(via.split(';').any(|param| param == "keep"), "{via}");
    let contact = header(&up.msg, Name::Contact);
    let granted = format!("Contact: {contact};expires=3600\n{extra}");
    world.answer(&up, "200 OK", &granted);
    world.one(ALICE, "200");
}

fn header(msg: &Message, name: Name) -> String {
    let span = msg.header(name).expect("the header");
    String::from_utf8_lossy(msg.slice(span)).into_owned()
}

#[test]
fn ex4_in_streams_stun_is_for_those_that_showed_it_and_crlf_for_the_others() {
    for (extra, shown, every) in [
        ("", false, 30_000..30_200),
        ("Require: outbound\n", true, 30_000..30_200),
        ("Flow-Timer: 100\n", true, 80_000..97_000),
    ] {
        let mut world = World::with(over(Stun::Auto, Transport::Tcp));
        registered(&mut world, extra);
        pass_answered(&mut world, WAN, Duration::from_secs(31), HERE);
        let (asks, pings) = (asked(&world).len(), pinged(&world).len());
        pass_answered(&mut world, WAN, Duration::from_secs(600), HERE);
        let at = match shown {
            true => asked(&world)[asks..].to_vec(),
            false => pinged(&world)[pings..].to_vec(),
        };
        let others = match shown {
            true => pinged(&world).len() - pings,
            false => asked(&world).len(),
        };
        assert_eq!(others, 0, "{extra}");
        let gaps = gaps(&at);
        assert!(!gaps.is_empty(), "{extra}");
        assert!(gaps.iter().all(|gap| every.contains(gap)), "{gaps:?}");
    }
}

#[test]
fn ex4_a_stream_that_stun_finds_dead_is_replaced_and_its_server_stays_up() {
    let mut world = World::with(over(Stun::Auto, Transport::Tcp));
    registered(&mut world, "Require: outbound\n");
    pass_answered(&mut world, WAN, Duration::from_secs(100), HERE);
    let before = asked(&world).len();
    world.pass_ms(33_100);
    assert_eq!(
        asked(&world).len(),
        before + 1,
        "nothing is repeated in a stream"
    );
    assert_eq!(world.closed, [addr(SS1)]);
    assert!(world.events.iter().all(|event| event.to != "down"));
}

/// Phones on TCP whose softswitches are spoken to over UDP.
fn streams(rate: u32) -> World {
    let mut conf = over(Stun::Off, Transport::Udp);
    conf.survivability.recovery_register_rate = rate;
    conf.survivability.policy = Policy::Known;
    World::with(conf)
}

fn phone(number: usize) -> String {
    format!("10.99.1.{}:5060", 11 + number)
}

#[test]
fn ex3_phones_on_streams_are_brought_at_the_rate_after_a_failover() {
    let mut world = streams(5);
    let phones: Vec<String> = (0..20).map(phone).collect();
    for (number, at) in phones.iter().enumerate() {
        world.register(&format!("2{number:02}"), at);
    }
    world.alive = vec![SS2];
    world.hear(LAN, &phones[0], &register("200", &phones[0], 2, 7200));
    while !world.events.iter().any(|event| event.to == "down") {
        world.pass_ms(100);
    }
    world.pass_ms(150);
    // One second's worth at once, then the rate.
    assert!((4..=6).contains(&world.closed.len()), "{:?}", world.closed);
    world.pass_ms(1_000);
    assert!((9..=11).contains(&world.closed.len()), "{:?}", world.closed);
    // Who is back within the burst's time goes upstream, whatever the rate has left.
    let back = world.closed[0].to_string();
    let number = phones.iter().position(|at| *at == back).expect("a phone");
    let user = format!("2{number:02}");
    world.hear(LAN, "10.99.1.200:40000", &register(&user, &back, 3, 3600));
    let up = world.to(SS2);
    assert!(
        up.iter().any(|sent| sent.what() == "REGISTER"),
        "{:?}",
        world.left()
    );
    world.pass(Duration::from_secs(5));
    world.closed.sort_unstable();
    world.closed.dedup();
    assert_eq!(world.closed.len(), phones.len());
}

#[test]
fn ex3_nobody_is_brought_while_the_gateway_is_alone_and_all_at_the_return() {
    let mut world = streams(50);
    world.register("201", ALICE);
    world.alive = Vec::new();
    world.pass(Duration::from_secs(60));
    assert!(world.events.iter().any(|event| event.to == "survivability"));
    assert!(world.closed.is_empty(), "{:?}", world.closed);
    world.alive = vec![SS1, SS2];
    world.pass(Duration::from_secs(60));
    assert_eq!(world.closed, [addr(ALICE)]);
}

#[test]
fn ex3_a_phone_in_a_call_is_brought_when_the_call_is_over() {
    let mut world = streams(50);
    world.register("201", ALICE);
    world.register("202", BOB);
    world.pass_ms(10);
    world.hear(LAN, ALICE, &invite("201", ALICE, "777", 1, ""));
    world.one(ALICE, "100");
    let up = world.one(SS1, "INVITE");
    let sdp = body(&sdp("203.0.113.9:6000", 6000));
    let answer = format!("Contact: <sip:777@192.0.2.10:5060>\n{sdp}");
    world.answer(&up, "200 OK", &answer);
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "777", 1, ""));
    world
        .gateway
        .switch(world.now, "core", "192.0.2.11")
        .unwrap();
    world.pass(Duration::from_secs(40));
    assert_eq!(world.closed, [addr(BOB)]);
    world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "777", 2, ""));
    let bye = world.one(SS1, "BYE");
    world.answer(&bye, "200 OK", "");
    world.one(ALICE, "200");
    world.pass_ms(1_100);
    assert_eq!(world.closed, [addr(BOB), addr(ALICE)]);
}

#[test]
fn ex3_em11_who_registered_at_the_backup_is_brought_when_the_primary_is_back() {
    let mut world = streams(50);
    world.register("201", ALICE);
    world.alive = vec![SS2];
    world.pass(Duration::from_secs(40));
    assert_eq!(world.closed, [addr(ALICE)]);
    let anew = "10.99.1.11:40001";
    world.hear(LAN, anew, &register("201", ALICE, 2, 3600));
    let up = world.one(SS2, "REGISTER");
    let contact = header(&up.msg, Name::Contact);
    world.answer(&up, "200 OK", &format!("Contact: {contact};expires=3600\n"));
    world.one(anew, "200");
    world.alive = vec![SS1, SS2];
    // Probes find it, and then it proves itself for a minute.
    world.pass(Duration::from_secs(120));
    assert_eq!(world.closed, [addr(ALICE), addr(anew)]);
    world.to(SS1);
    world.hear(LAN, ALICE, &register("201", ALICE, 3, 3600));
    world.one(SS1, "REGISTER");
}
