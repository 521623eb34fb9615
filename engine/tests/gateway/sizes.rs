//! Requests over 1,300 bytes towards a next hop on UDP (RFC 3261 section 18.1.1).

use std::time::Duration;

use crate::world::{ALICE, GW_LAN, GW_WAN, LAN, SS1, Sent, WAN, World, addr, conf, follow, invite};
use keepline_engine::{
    conf::Conf,
    net::{LinkId, Listener, ListenerId, Transport},
    sip::{Message, Name, stream::Frame},
};

/// The listeners over TCP beside those over UDP.
const LAN_TCP: ListenerId = ListenerId(2);
const WAN_TCP: ListenerId = ListenerId(3);

fn both() -> Conf {
    let mut conf = conf();
    for (link, address) in [(0, GW_LAN), (1, GW_WAN)] {
        conf.listeners.push(Listener {
            link: LinkId(link),
            transport: Transport::Tcp,
            address: addr(address),
            taken_by: None,
        });
    }
    conf
}

/// A registered phone's INVITE of about 1,700 bytes.
fn large(world: &mut World, cseq: u32) {
    let fill = format!("X-Fill: {}\n", "x".repeat(1200));
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", cseq, &fill));
    world.one(ALICE, "100");
}

fn header(msg: &Message, name: Name) -> String {
    let span = msg.header(name).expect("the header");
    String::from_utf8_lossy(msg.slice(span)).into_owned()
}

fn over(sent: &Sent, listener: ListenerId, transport: &str) {
    let via = header(&sent.msg, Name::Via);
    assert!(
        via.starts_with(&format!("SIP/2.0/{transport} {GW_WAN};")),
        "{via}"
    );
    assert_eq!(sent.listener, listener);
    // What is smaller than this goes the usual way, so the dialog's address is the usual one.
    let contact = header(&sent.msg, Name::Contact);
    assert!(contact.ends_with(&format!("@{GW_WAN}>")), "{contact}");
}

fn told(world: &World) -> usize {
    told_of(world, "request")
}

fn told_of(world: &World, what: &str) -> usize {
    let rule = format!("{what}_over_1300_bytes");
    let of_it = |event: &&keepline_engine::event::Event| event.rule == rule;
    world.events.iter().filter(of_it).count()
}

fn registered(conf: Conf) -> World {
    let mut world = World::with(conf);
    world.register("201", ALICE);
    world
}

#[test]
fn case_s12_an_offered_stream_carries_what_is_too_large() {
    let mut world = registered(both());
    large(&mut world, 1);
    let up = world.one(SS1, "INVITE");
    over(&up, WAN_TCP, "TCP");
    world
        .gateway
        .connection_opened(world.now, WAN_TCP, addr(SS1));
    world.pass_ms(1_000);
    assert!(world.to(SS1).is_empty(), "it went twice");
    world.answer(&up, "180 Ringing", "");
    world.one(ALICE, "180");
    world.hear(LAN, ALICE, &follow("CANCEL", "201", ALICE, "202", 1, ""));
    let cancel = world.one(SS1, "CANCEL");
    assert_eq!(
        cancel.listener, WAN_TCP,
        "a CANCEL goes where its INVITE went"
    );
    assert_eq!(header(&cancel.msg, Name::Via), header(&up.msg, Name::Via));
    assert_eq!(
        (told(&world), world.gateway.counters().large_over_udp),
        (0, 0)
    );
}

#[test]
fn case_s12_no_tcp_at_the_next_hop_one_warning_and_each_is_counted() {
    let mut world = registered(both());
    for cseq in 1..4 {
        large(&mut world, cseq);
        let mut up = world.one(SS1, "INVITE");
        if cseq == 1 {
            over(&up, WAN_TCP, "TCP");
            world
                .gateway
                .connection_failed(world.now, WAN_TCP, addr(SS1));
            world.pass_ms(0);
            up = world.one(SS1, "INVITE");
        }
        over(&up, WAN, "UDP");
        assert_eq!(told(&world), 1);
        assert_eq!(world.gateway.counters().large_over_udp, u64::from(cseq));
        world.answer(&up, "486 Busy Here", "");
        world.one(ALICE, "486");
        world.pass_ms(100);
        world.to(SS1);
    }
    world.pass(Duration::from_secs(600));
    large(&mut world, 9);
    over(&world.one(SS1, "INVITE"), WAN_TCP, "TCP");
}

#[test]
fn case_s12_a_connection_is_waited_for_half_a_second() {
    let mut world = registered(both());
    large(&mut world, 1);
    let first = world.one(SS1, "INVITE");
    world.pass_ms(499);
    assert!(world.to(SS1).is_empty() && world.closed.is_empty());
    world.pass_ms(1);
    let second = world.one(SS1, "INVITE");
    over(&second, WAN, "UDP");
    assert_eq!(
        first.msg.branch(),
        second.msg.branch(),
        "one request, one branch"
    );
    assert_eq!(
        world.closed,
        [addr(SS1)],
        "what waits there must not come late"
    );
    assert_eq!(told(&world), 1);
    // From here on it is a request over UDP as any other.
    world.pass_ms(500);
    world.one(SS1, "INVITE");
    world.answer(&second, "200 OK", "Contact: <sip:202@192.0.2.10>\n");
    world.one(ALICE, "200");
    assert!(world.events.iter().all(|event| event.to != "down"));
}

#[test]
fn case_s12_a_typed_transport_is_final() {
    let mut conf = both();
    conf.groups[0].health.servers[0].uri += ";transport=udp";
    let mut world = registered(conf);
    large(&mut world, 1);
    over(&world.one(SS1, "INVITE"), WAN, "UDP");
    assert_eq!(
        (told(&world), world.gateway.counters().large_over_udp),
        (1, 1)
    );
}

#[test]
fn case_s12_without_a_listener_over_tcp_nothing_is_tried() {
    let mut world = registered(conf());
    large(&mut world, 1);
    over(&world.one(SS1, "INVITE"), WAN, "UDP");
    assert_eq!(
        (told(&world), world.gateway.counters().large_over_udp),
        (1, 1)
    );
}

#[test]
fn case_s12_a_next_hop_that_closes_what_it_accepts_takes_datagrams() {
    let mut world = registered(both());
    large(&mut world, 1);
    world.one(SS1, "INVITE");
    world
        .gateway
        .connection_opened(world.now, WAN_TCP, addr(SS1));
    for listener in [WAN_TCP, WAN] {
        world.gateway.connection_lost(world.now, WAN_TCP, addr(SS1));
        world.pass_ms(0);
        assert_eq!(world.one(SS1, "INVITE").listener, listener);
    }
    assert_eq!(told(&world), 1);
}

#[test]
fn case_s12_a_phone_is_sent_it_over_a_connection_that_stands() {
    for connected in [false, true] {
        let mut world = registered(both());
        if connected {
            world
                .gateway
                .stream(world.now, LAN_TCP, addr(ALICE), Frame::Ping);
        }
        let token = &world.store.bindings[0].token;
        let fill = "x".repeat(1200);
        let call = format!(
            "INVITE sip:{token}@198.51.100.1:5060 SIP/2.0
Via: SIP/2.0/UDP 192.0.2.10:5060;branch=z9hG4bKin
Max-Forwards: 70
From: <sip:202@example.test>;tag=f
To: <sip:201@example.test>
Call-ID: in
CSeq: 1 INVITE
X-Fill: {fill}
Contact: <sip:202@192.0.2.10:5060>
Content-Length: 0

"
        );
        world.hear(WAN, SS1, &call);
        let rings = world.one(ALICE, "INVITE");
        let (listener, count) = match connected {
            true => (LAN_TCP, 0),
            false => (LAN, 1),
        };
        assert_eq!(rings.listener, listener);
        assert_eq!(world.gateway.counters().large_over_udp, count);
        assert_eq!(told(&world) as u64, count);
        world.answer(&rings, "200 OK", &format!("Contact: <sip:201@{ALICE}>\n"));
        world.one(SS1, "200");
    }
}

/// A 200 and an ACK take the way of their INVITE, whatever their size.
#[test]
fn case_s12_responses_and_acks_are_counted_too_and_said_once_per_hop() {
    let fill = format!("X-Fill: {}\n", "x".repeat(1200));
    let mut world = registered(conf());
    for cseq in 1..3 {
        world.hear(LAN, ALICE, &invite("201", ALICE, "202", cseq, ""));
        world.one(ALICE, "100");
        let up = world.one(SS1, "INVITE");
        let before = world.gateway.counters().large_over_udp;
        let contact = "Contact: <sip:202@192.0.2.10>\n";
        world.answer(&up, "200 OK", &format!("{contact}{fill}"));
        world.one(ALICE, "200");
        let counted = world.gateway.counters().large_over_udp;
        assert_eq!(counted, before + 1);
        world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", cseq, &fill));
        world.one(SS1, "ACK");
        assert_eq!(world.gateway.counters().large_over_udp, counted + 1);
        // One of the phone's link, one of the server.
        assert_eq!((told(&world), told_of(&world, "response")), (0, 2));
        world.pass_ms(100);
    }
}
