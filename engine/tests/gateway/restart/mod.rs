//! The process dies at the worst moment and starts again: no answered call is lost, bindings
//! show what is left of their time, and a clock that jumped does no harm (signalling.md
//! section 5, cases.md F5).

mod histories;
mod unanswered;

use std::{collections::BTreeSet, time::Duration};

use crate::world::{
    self, ALICE, GW_LAN, GW_WAN, LAN, SS1, Sent, WAN, World, addr, body, follow, invite, register,
    sdp,
};
use keepline_engine::{
    conf::Policy,
    gateway::{CallView, Output, Records, RegistrationView},
    media::Seen,
    sip::Name,
    steer::{Delta, Flow},
    time::Mono,
};

const FAR: &str = "203.0.113.9:6000";

fn header(sent: &Sent, name: Name) -> String {
    let msg = &sent.msg;
    msg.header(name)
        .map(|span| String::from_utf8_lossy(msg.slice(span)).into_owned())
        .unwrap_or_default()
}

fn answer_of_far() -> String {
    let routes = "Record-Route: <sip:192.0.2.10;lr>\nContact: <sip:202@203.0.113.9:5080>\n";
    format!("{routes}{}", body(&sdp("203.0.113.9:1", 6000)))
}

/// Alice in a call with a far party, whose media was learned. Returns the Call-ID as the WAN
/// writes it.
fn call(world: &mut World) -> String {
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    world.one(ALICE, "100");
    let up = world.one(SS1, "INVITE");
    world.answer(&up, "200 OK", &answer_of_far());
    world.one(ALICE, "200");
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.one(SS1, "ACK");
    let port = wan_port(world);
    let seen = world.gateway.media_seen(world.now, port, addr(FAR));
    assert!(matches!(seen, Seen::Relay { .. }), "{seen:?}");
    world.pass_ms(0);
    header(&up, Name::CallId)
}

fn wan_port(world: &World) -> std::net::SocketAddr {
    let mut ports: Vec<_> = world.gateway.media().ports().map(|(_, at)| at).collect();
    ports.retain(|at| at.ip() == addr(GW_WAN).ip() && at.port() % 2 == 0);
    ports[0]
}

fn flows(world: &World) -> Vec<Flow> {
    world
        .gateway
        .media()
        .flows()
        .map(|(_, flow)| *flow)
        .collect()
}

fn ports(world: &World) -> BTreeSet<(u8, std::net::SocketAddr)> {
    let ports = world.gateway.media().ports();
    ports.map(|(link, at)| (link.0, at)).collect()
}

fn calls(world: &World) -> Vec<CallView> {
    let mut calls: Vec<_> = world.gateway.calls().collect();
    calls.sort_by_key(|call| call.id);
    for call in &mut calls {
        // Monotonic time begins anew with each process: what counts is how long ago it was.
        call.since.mono = Mono(world.now.mono.since(call.since.mono));
    }
    calls
}

fn registrations(world: &World) -> Vec<RegistrationView> {
    let mut all: Vec<_> = world.gateway.registrations(world.now).collect();
    all.sort_by(|a, b| (&a.aor, &a.contact).cmp(&(&b.aor, &b.contact)));
    all
}

/// A request of the far party in the dialog of [`call`].
fn from_far(method: &str, cseq: u32, call_id: &str, extra: &str) -> String {
    let end = if extra.contains("\n\n") {
        ""
    } else {
        "Content-Length: 0\n\n"
    };
    format!(
        "{method} sip:x@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKfar{method}{cseq}\nMax-Forwards: 70\nFrom: <sip:202@example.test>;tag=b1\nTo: <sip:201@example.test>;tag=a1\nCall-ID: {call_id}\nCSeq: {cseq} {method}\n{extra}{end}"
    )
}

#[test]
fn case_f5_requests_of_either_side_are_delivered_after_a_restart_and_never_to_ourselves() {
    for far_hangs_up in [false, true] {
        let mut before = World::new();
        before.register("201", ALICE);
        let call_id = call(&mut before);
        let mut world = before.restarted(Duration::from_secs(3));

        // Each party changes its media, then one hangs up.
        let offer = format!("Contact: <sip:201@{ALICE}>\n{}", body(&sdp(ALICE, 4000)));
        world.hear(
            LAN,
            ALICE,
            &follow("INVITE", "201", ALICE, "202", 2, &offer),
        );
        world.one(ALICE, "100");
        let up = world.one(SS1, "INVITE");
        assert!(
            up.text()
                .starts_with("INVITE sip:202@203.0.113.9:5080 SIP/2.0")
        );
        assert_eq!(header(&up, Name::CallId), call_id);
        assert!(
            up.text()
                .contains(&format!("m=audio {} ", wan_port(&world).port()))
        );
        world.answer(&up, "200 OK", &answer_of_far());
        world.one(ALICE, "200");
        world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 2, ""));
        world.one(SS1, "ACK");

        let offer = format!(
            "Contact: <sip:202@203.0.113.9:5080>\n{}",
            body(&sdp(FAR, 6000))
        );
        world.hear(WAN, SS1, &from_far("INVITE", 7, &call_id, &offer));
        world.one(SS1, "100");
        let down = world.one(ALICE, "INVITE");
        assert!(
            down.text()
                .starts_with(&format!("INVITE sip:201@{ALICE} SIP/2.0"))
        );
        assert_eq!(header(&down, Name::CallId), "call-1@10.99.1.11");
        let answer = format!("Contact: <sip:201@{ALICE}>\n{}", body(&sdp(ALICE, 4000)));
        world.answer(&down, "200 OK", &answer);
        world.one(SS1, "200");
        world.hear(WAN, SS1, &from_far("ACK", 7, &call_id, ""));
        world.one(ALICE, "ACK");

        if far_hangs_up {
            world.hear(WAN, SS1, &from_far("BYE", 9, &call_id, ""));
            let bye = world.one(ALICE, "BYE");
            world.answer(&bye, "200 OK", "");
            world.one(SS1, "200");
        } else {
            world.hear(LAN, ALICE, &follow("BYE", "201", ALICE, "202", 3, ""));
            let bye = world.one(SS1, "BYE");
            world.answer(&bye, "200 OK", "");
            world.one(ALICE, "200");
        }
        let to_us = [addr(GW_LAN), addr(GW_WAN)];
        assert!(
            world.everything.iter().all(|to| !to_us.contains(to)),
            "a loop"
        );
        assert_eq!(world.gateway.call_count(), 0);
        assert!(flows(&world).is_empty());
        assert!(
            world.store.dialogs.is_empty(),
            "the store still holds the call"
        );
    }
}

#[test]
fn kl5_the_same_ports_and_flows_are_back_and_their_sockets_are_opened_first() {
    let mut before = World::new();
    before.register("201", ALICE);
    call(&mut before);
    assert_eq!(
        flows(&before).len(),
        3,
        "RTP and RTCP of the phone, RTP of the far party"
    );
    let world = before.restarted(Duration::from_secs(1));
    assert_eq!(flows(&world), flows(&before));
    assert_eq!(ports(&world), ports(&before));
    let opened: BTreeSet<_> = (world.deltas.iter())
        .take_while(|delta| !matches!(delta, Delta::FlowSet(_)))
        .filter_map(|delta| match delta {
            Delta::PortOpen { link, local } => Some((link.0, *local)),
            _ => None,
        })
        .collect();
    assert_eq!(
        opened,
        ports(&before),
        "every port is held before any flow is claimed"
    );
    assert!(world.deltas.contains(&Delta::ClientSet {
        client: addr(ALICE),
        listener: LAN,
        gate: keepline_engine::steer::GateId(0),
    }));
}

#[test]
fn kl5_a_new_call_gets_no_port_of_a_restored_one() {
    let mut before = World::new();
    before.register("201", ALICE);
    call(&mut before);
    let mut world = before.restarted(Duration::ZERO);
    let held = ports(&world);
    let second = invite("201", ALICE, "203", 1, "")
        .replace("call-1", "call-2")
        .replace("z9hG4bKi", "z9hG4bKj");
    world.hear(LAN, ALICE, &second);
    world.one(SS1, "INVITE");
    assert!(held.is_subset(&ports(&world)));
    assert_eq!(ports(&world).len(), held.len() + 4, "two pairs of its own");
    let sessions: BTreeSet<_> = world.gateway.media().flows().map(|(id, _)| id).collect();
    assert_eq!(sessions.len(), 1, "the restored call's alone: {sessions:?}");
}

#[test]
fn kl5_what_a_message_makes_visible_is_kept_before_it_leaves() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    let ok = world::response(&up.msg, "200 OK", "b1", &answer_of_far());
    world.gateway.datagram(world.now, WAN, addr(SS1), ok);
    let mut store = world.store.clone();
    while let Some(output) = world.gateway.poll_output() {
        match output {
            Output::Keep(change) => store.apply(change),
            Output::Send { to, .. } if to == addr(ALICE) => {
                assert_eq!(
                    store.dialogs.len(),
                    1,
                    "the 200 left before its call was kept"
                );
                return;
            }
            _ => {}
        }
    }
    panic!("no 200 for the phone");
}

#[test]
fn kl5_early_dialogs_are_not_kept() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    world.answer(&up, "183 Session Progress", &answer_of_far());
    assert_eq!(world.gateway.call_count(), 1);
    assert!(world.store.dialogs.is_empty());
    world.answer(&up, "486 Busy Here", "");
    assert!(world.store.dialogs.is_empty());
}

#[test]
fn kl5_a_late_offer_whose_ack_comes_after_the_restart_still_has_its_answer_anchored() {
    let mut before = World::new();
    before.register("201", ALICE);
    let bare = invite("201", ALICE, "202", 1, "");
    let bare = &bare[..bare.find("Content-Type").expect("a body")];
    before.hear(LAN, ALICE, &format!("{bare}Content-Length: 0\n\n"));
    let up = before.one(SS1, "INVITE");
    before.answer(&up, "200 OK", &answer_of_far());
    before.one(ALICE, "200");

    let mut world = before.restarted(Duration::from_millis(300));
    let answer = body(&sdp(ALICE, 4000));
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, &answer));
    let ack = world.one(SS1, "ACK");
    assert!(
        ack.text().contains("c=IN IP4 198.51.100.1"),
        "{}",
        ack.text()
    );
    assert_eq!(flows(&world).len(), 2, "the phone's RTP and RTCP");
}

#[test]
fn kl5_registrations_show_what_is_left_of_their_time() {
    let mut before = World::new();
    before.register("201", ALICE);
    before.pass_ms(10_000);
    let left = registrations(&before)[0].expires;
    let world = before.restarted(Duration::from_secs(20));
    let after = registrations(&world);
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].expires, left - Duration::from_secs(20));
    assert!(after[0].upstream, "granted for an hour");
}

#[test]
fn kl5_pacing_goes_on_where_it_was() {
    let mut before = World::new();
    before.register("201", ALICE);
    before.pass_ms(30_000);
    let mut world = before.restarted(Duration::from_secs(10));
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    world.one(ALICE, "200");
    assert!(world.to(SS1).iter().all(|sent| sent.what() != "REGISTER"));
    // A replayed CSeq is asked upstream, as before the restart.
    let replayed = register("201", ALICE, 1, 3600).replace("z9hG4bK", "z9hG4bKreplay");
    world.hear(LAN, ALICE, &replayed);
    world.one(SS1, "REGISTER");
    // Half the upstream expiry counts from its grant, not from the restart.
    let mut world = world.restarted(Duration::from_secs(1_770));
    world.hear(LAN, ALICE, &register("201", ALICE, 3, 3600));
    world.one(SS1, "REGISTER");
}

#[test]
fn kl5_a_clock_that_went_back_prolongs_nothing() {
    let mut before = World::new();
    before.register("201", ALICE);
    let left = registrations(&before)[0].expires;
    let world = before.restarted_at(|wall| wall - Duration::from_secs(86_400));
    let after = &registrations(&world)[0];
    assert!(
        after.expires <= Duration::from_secs(66),
        "{:?}",
        after.expires
    );
    assert!(
        after.expires >= left,
        "the phone may still come in its own time"
    );
    // How long upstream holds it is not known: the next refresh asks.
    let mut world = world;
    world.hear(LAN, ALICE, &register("201", ALICE, 2, 3600));
    world.one(SS1, "REGISTER");
}

#[test]
fn kl5_a_clock_that_went_ahead_drops_what_is_no_longer_known_and_keeps_calls() {
    let mut before = World::new();
    before.register("201", ALICE);
    let call_id = call(&mut before);
    let day = Duration::from_secs(86_400);

    let mut known = world::conf();
    known.survivability.policy = Policy::Known;
    let mut world = before.restarted_with(known, |wall| wall + 13 * day);
    world.pass_ms(1_000);
    assert!(
        registrations(&world).is_empty(),
        "its phone is long overdue"
    );
    assert_eq!(world.store.bindings.len(), 1, "but known");

    let mut world = before.restarted_at(|wall| wall + 15 * day);
    assert!(registrations(&world).is_empty());
    assert!(world.store.bindings.is_empty(), "the store forgets it too");
    world.hear(WAN, SS1, &from_far("BYE", 9, &call_id, ""));
    world.one(ALICE, "BYE");
}

#[test]
fn kl5_records_of_a_link_or_group_that_is_gone_are_dropped_and_counted() {
    let mut before = World::new();
    before.register("201", ALICE);
    call(&mut before);
    let mut conf = world::conf();
    conf.links[1].name = "wan9".to_owned();
    conf.groups[0].health.name = "other".to_owned();
    let world = before.restarted_with(conf, |wall| wall);
    assert_eq!(world.gateway.call_count(), 0);
    assert!(registrations(&world).is_empty());
    assert_eq!(world.store, Records::default());
    let event = world.events.iter().find(|event| event.to == "restored");
    let what = &event.expect("an event").evidence[0].what;
    assert_eq!(what, "0 bindings and 0 dialogs are back, 2 records dropped");
}

#[test]
fn kl5_nothing_is_written_for_what_says_the_same() {
    let mut world = World::new();
    world.register("201", ALICE);
    call(&mut world);
    let written = world.written;
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "202", 2, ""));
    let info = world.one(SS1, "INFO");
    world.answer(&info, "200 OK", "");
    world.pass_ms(1_000);
    assert_eq!(world.written, written);
}

#[test]
fn kl5_a_store_that_lost_something_is_told_all_anew() {
    let mut world = World::new();
    world.register("201", ALICE);
    call(&mut world);
    let whole = world.store.clone();
    world.store.dialogs.clear();
    world.store.bindings[0].aor = "stale".to_owned();
    world.gateway.keep_all();
    world.pass_ms(0);
    assert_eq!(world.store, whole);
}
