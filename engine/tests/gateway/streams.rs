//! SIP over connections: TCP and TLS differ from UDP by what is said about them, by what is not
//! repeated, and by what the loss of a connection means.

use std::time::Duration;

use crate::world::{
    ALICE, GW_LAN, GW_WAN, LAN, SS1, SS2, Sent, WAN, World, addr, body, conf, follow, invite,
    register, sdp,
};
use keepline_engine::{
    conf::{Conf, Policy},
    net::Transport,
    sip::{
        Message, Name,
        stream::{Broken, Frame},
    },
    steer::Delta,
};

const FAR: &str = "Contact: <sip:202@192.0.2.10:5060;transport=tcp>\n";

/// Phones and softswitches speak over this.
fn over(lan: Transport, wan: Transport) -> Conf {
    let mut conf = conf();
    conf.listeners[0].transport = lan;
    conf.listeners[1].transport = wan;
    for server in &mut conf.groups[0].health.servers {
        server.transport = wan;
    }
    conf
}

fn tcp() -> World {
    World::with(over(Transport::Tcp, Transport::Tcp))
}

fn header(msg: &Message, name: Name) -> String {
    msg.header(name)
        .map(|span| String::from_utf8_lossy(msg.slice(span)).into_owned())
        .unwrap_or_default()
}

fn contact(sent: &Sent) -> String {
    header(&sent.msg, Name::Contact)
}

/// Alice's call as the primary got it.
fn dialled(world: &mut World) -> Sent {
    world.register("201", ALICE);
    // What the server said at the very instant of a request would count as a sign of life.
    world.pass_ms(10);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.one(ALICE, "100");
    world.one(SS1, "INVITE")
}

/// The same, answered. The Call-ID as the WAN writes it.
fn in_a_call(world: &mut World) -> String {
    let up = dialled(world);
    let answer = body(&sdp("203.0.113.9:6000", 6000));
    world.answer(&up, "200 OK", &format!("{FAR}{answer}"));
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.one(SS1, "ACK");
    header(&up.msg, Name::CallId)
}

#[test]
fn em3_each_leg_names_its_own_transport() {
    for (lan, wan) in [
        (Transport::Tcp, Transport::Tcp),
        (Transport::Tls, Transport::Tls),
        (Transport::Tls, Transport::Udp),
        (Transport::Udp, Transport::Tcp),
    ] {
        let mut world = World::with(over(lan, wan));
        let up = dialled(&mut world);
        let via = format!("SIP/2.0/{} {GW_WAN}", wan.via());
        assert!(
            header(&up.msg, Name::Via).starts_with(&via),
            "{}",
            up.text()
        );
        let at = format!("@{GW_WAN}{}>", wan.uri_param());
        assert!(contact(&up).ends_with(&at), "{}", up.text());
        world.answer(&up, "180 Ringing", FAR);
        let back = world.one(ALICE, "180");
        let at = format!("@{GW_LAN}{}>", lan.uri_param());
        assert!(contact(&back).ends_with(&at), "{}", back.text());
    }
}

#[test]
fn em3_nothing_is_repeated_over_a_stream() {
    let mut world = tcp();
    let up = dialled(&mut world);
    world.answer(&up, "100 Trying", "");
    world.pass_ms(3_000);
    assert!(world.to(SS1).is_empty(), "the INVITE went again");
    world.answer(&up, "486 Busy Here", "");
    world.one(SS1, "ACK");
    world.one(ALICE, "486");
    world.pass_ms(3_000);
    assert!(world.to(ALICE).is_empty(), "the 486 went again");
}

#[test]
fn em24_phones_on_streams_are_told_a_longer_expiry() {
    let mut world = tcp();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    let told = contact(&world.one(ALICE, "200"));
    let expires: u64 = told
        .rsplit('=')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap();
    assert!((270..=330).contains(&expires), "{told}");
}

#[test]
fn em4_a_connection_that_cannot_be_opened_hunts_that_very_call_at_once() {
    let mut world = tcp();
    let up = dialled(&mut world);
    world.alive = vec![SS2];
    world
        .gateway
        .connection_failed(world.now, up.listener, addr(SS1));
    world.pass_ms(0);
    let backup = world.one(SS2, "INVITE");
    world.answer_tagged(&backup, "200 OK", "backup", FAR);
    world.one(ALICE, "200");
    world.pass_ms(2_000);
    let down = world.events.iter().find(|event| event.to == "down");
    assert!(down.is_some(), "the burst confirms it: {:?}", world.events);
}

#[test]
fn a_lost_connection_is_no_evidence_and_its_request_goes_anew_once() {
    let mut world = tcp();
    let up = dialled(&mut world);
    for again in [1, 0] {
        world
            .gateway
            .connection_lost(world.now, up.listener, addr(SS1));
        world.pass_ms(0);
        let sent = world.to(SS1);
        assert_eq!(sent.len(), again, "{:?}", world.left());
        assert!(sent.iter().all(|sent| sent.text() == up.text()));
    }
    assert!(world.to(SS2).is_empty(), "no hunt");
    world.answer(&up, "200 OK", FAR);
    world.one(ALICE, "200");
    assert!(world.events.iter().all(|event| event.to != "down"));
}

#[test]
fn case_p15_a_server_that_closes_after_its_answer_stays_up() {
    let mut world = tcp();
    for _ in 0..60 {
        world.gateway.connection_lost(world.now, WAN, addr(SS1));
        world.pass_ms(10_000);
    }
    let told: Vec<_> = world
        .events
        .iter()
        .filter(|event| ["down", "suspect"].contains(&event.to.as_str()))
        .collect();
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_phone_that_connected_anew_hears_the_end_of_its_call() {
    let mut world = tcp();
    let call_id = in_a_call(&mut world);
    let anew = "10.99.1.11:40123";
    world.gateway.connection_lost(world.now, LAN, addr(ALICE));
    let refresh = register("201", ALICE, 2, 3600);
    world.hear(LAN, anew, &refresh);
    world.one(anew, "200");
    let bye = "BYE sip:201@198.51.100.1:5060;transport=tcp SIP/2.0
Via: SIP/2.0/TCP 192.0.2.10:5060;branch=z9hG4bKfarbye
Max-Forwards: 70
From: <sip:202@example.test>;tag=b1
To: <sip:201@example.test>;tag=a1
Call-ID: @CALL@
CSeq: 9 BYE
Content-Length: 0

";
    world.hear(WAN, SS1, &bye.replace("@CALL@", &call_id));
    let heard = world.one(anew, "BYE");
    world.answer(&heard, "200 OK", "");
    world.one(SS1, "200");
}

#[test]
fn a_phone_whose_connection_is_gone_is_called_at_its_contact() {
    let mut world = tcp();
    // It registered from a port of its choice, and listens at its Contact.
    let from = "10.99.1.11:40123";
    world.hear(LAN, from, &register("201", ALICE, 1, 3600));
    let up = world.one(SS1, "REGISTER");
    let granted = format!("Contact: {};expires=3600\n", contact(&up));
    world.answer(&up, "200 OK", &granted);
    world.one(from, "200");
    called(&mut world, 1);
    world.one(from, "INVITE");
    world.gateway.connection_lost(world.now, LAN, addr(from));
    world.pass_ms(0);
    world.to(from);
    called(&mut world, 2);
    world.one(ALICE, "INVITE");
}

#[test]
fn a_server_may_be_sent_requests_over_the_connection_it_opened() {
    let mut world = tcp();
    let from = "192.0.2.10:40000";
    for (via, aliased) in [
        ("192.0.2.10:5060;alias", true),
        ("192.0.2.10:5060", false),
        ("192.0.2.66:5060;alias", false),
    ] {
        let options = format!(
            "OPTIONS sip:198.51.100.1 SIP/2.0
Via: SIP/2.0/TCP {via};branch=z9hG4bK{}
Max-Forwards: 70
From: <sip:x@example.test>;tag=f
To: <sip:198.51.100.1>
Call-ID: alias-{aliased}
CSeq: 1 OPTIONS
Content-Length: 0

",
            via.len()
        );
        world.hear(WAN, from, &options);
        let want = aliased.then_some((addr(from), addr(SS1)));
        let told = std::mem::take(&mut world.aliases);
        assert_eq!(told.first(), want.as_ref(), "{via}");
    }
}

#[test]
fn who_sends_what_cannot_be_read_on_is_answered_and_closed() {
    let begun = b"INVITE sip:b@example.test SIP/2.0\r\n\
        Via: SIP/2.0/TCP 10.99.1.11;branch=z9hG4bKx\r\nFrom: <sip:a@b>;tag=1\r\n\
        To: <sip:b@example.test>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nMax-Forwards: 70\r\n\r\n";
    let alice = addr(ALICE);
    for (begun, why, code) in [
        (begun.as_slice(), Broken::Head, Some(513)),
        (begun, Broken::Slow, Some(408)),
        (&begun[begun.len() - 2..], Broken::Foreign, None),
    ] {
        let mut world = tcp();
        world
            .gateway
            .stream_broken(world.now, LAN, alice, begun.to_vec(), why);
        world.pass_ms(0);
        let told: Vec<_> = world.to(ALICE).iter().map(|s| s.msg.status()).collect();
        assert_eq!(told, code.map(Some).into_iter().collect::<Vec<_>>());
        assert_eq!(world.closed, [alice]);
    }
}

/// A call to 201 arrives from the primary.
fn called(world: &mut World, number: u32) {
    let token = &world.store.bindings[0].token;
    let call = format!(
        "INVITE sip:{token}@198.51.100.1:5060;transport=tcp SIP/2.0
Via: SIP/2.0/TCP 192.0.2.10:5060;branch=z9hG4bKin{number}
Max-Forwards: 70
From: <sip:202@example.test>;tag=f{number}
To: <sip:201@example.test>
Call-ID: in-{number}
CSeq: 1 INVITE
Contact: <sip:202@192.0.2.10:5060;transport=tcp>
Content-Length: 0

"
    );
    world.hear(WAN, SS1, &call);
}

#[test]
fn a_phone_that_cannot_be_reached_is_not_waited_for() {
    let mut world = tcp();
    world.register("201", ALICE);
    called(&mut world, 1);
    world.one(ALICE, "INVITE");
    world.gateway.connection_failed(world.now, LAN, addr(ALICE));
    world.pass_ms(0);
    let finals: Vec<u16> = world
        .to(SS1)
        .iter()
        .filter_map(|sent| sent.msg.status())
        .filter(|code| *code >= 200)
        .collect();
    assert_eq!(finals, [408]);
}

#[test]
fn ex3_pings_are_answered_while_the_client_can_be_served() {
    let mut world = tcp();
    world
        .gateway
        .stream(world.now, LAN, addr(ALICE), Frame::Ping);
    world.pass_ms(0);
    assert_eq!(world.pongs, [addr(ALICE)]);
    world.alive = Vec::new();
    world.pass(Duration::from_secs(60));
    let mut world = World {
        pongs: Vec::new(),
        ..world
    };
    world
        .gateway
        .stream(world.now, LAN, addr(ALICE), Frame::Ping);
    world.pass_ms(2_900);
    assert!(world.pongs.is_empty() && world.closed.is_empty());
    world.pass_ms(200);
    assert_eq!(world.closed, [addr(ALICE)], "after three seconds");
}

#[test]
fn ex3_a_client_that_survivability_serves_keeps_its_connection() {
    let mut conf = over(Transport::Tcp, Transport::Tcp);
    conf.survivability.policy = Policy::Known;
    let mut world = World::with(conf);
    world.alive = Vec::new();
    world.pass(Duration::from_secs(60));
    world
        .gateway
        .stream(world.now, LAN, addr(ALICE), Frame::Ping);
    world.pass_ms(5_000);
    assert_eq!(world.pongs, [addr(ALICE)]);
    assert!(world.closed.is_empty());
}

#[test]
fn keepalives_in_streams_are_no_business_of_the_data_path() {
    let mut world = tcp();
    world.register("201", ALICE);
    let told = world
        .deltas
        .iter()
        .filter(|delta| matches!(delta, Delta::ClientSet { .. }));
    assert_eq!(told.count(), 0);
}
