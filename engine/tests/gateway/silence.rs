//! Media that is silent both ways ends its call (signalling.md section 7).

use std::time::Duration;

use crate::world::{
    self, ALICE, GW_WAN, LAN, SS1, SS2, Sent, World, addr, body, follow, invite, sdp,
};
use keepline_engine::{
    media::Seen,
    net::LinkId,
    sip::{Method, Name},
};

const FAR: &str = "203.0.113.9:6000";
const TIMEOUT: Duration = Duration::from_secs(300);
const WAN0: LinkId = LinkId(1);

fn s(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn header(sent: &Sent, name: Name) -> String {
    let value = sent.msg.header(name).map(|span| sent.msg.slice(span));
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

fn answer(sdp: &str) -> String {
    format!(
        "Contact: <sip:202@203.0.113.9:5080>\nRecord-Route: <sip:192.0.2.10;lr>\n{}",
        body(sdp)
    )
}

/// Alice in a call; nothing passed yet.
fn call() -> World {
    let mut world = World::new();
    world.register("201", ALICE);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    world.answer(&up, "200 OK", &answer(&sdp(FAR, 6000)));
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 1, ""));
    world.sent.clear();
    world
}

/// The next look at the call is due within this long; what it was asked.
fn asked(world: &mut World, within: Duration) -> Option<u64> {
    let end = world.now.mono + within;
    while world.asked.is_empty() && world.now.mono < end {
        world.pass(s(1));
    }
    world.asked.pop().map(|(dialog, _)| dialog)
}

fn tell(world: &mut World, dialog: u64, silent: Option<Duration>) {
    world.gateway.silent_for(world.now, dialog, silent);
    world.pass_ms(0);
}

fn reinvite(world: &mut World, cseq: u32, line: &str) {
    let offer = body(&format!("{}{line}", sdp(ALICE, 4000)));
    world.hear(
        LAN,
        ALICE,
        &follow("INVITE", "201", ALICE, "202", cseq, &offer),
    );
    let up = world
        .to(SS1)
        .into_iter()
        .find(|sent| sent.what() == "INVITE");
    world.answer(
        &up.expect("a re-INVITE"),
        "200 OK",
        &answer(&sdp(FAR, 6000)),
    );
    world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", cseq, ""));
    world.sent.clear();
}

fn is_over(world: &World) -> bool {
    world.gateway.call_count() == 0 && world.gateway.media().flows().next().is_none()
}

#[test]
fn both_parties_are_hung_up_on_as_if_by_each_other() {
    let mut world = call();
    let before = world.now.mono;
    let dialog = asked(&mut world, s(400)).expect("a look");
    assert_eq!(world.now.mono.since(before), TIMEOUT);
    tell(&mut world, dialog, Some(TIMEOUT));

    let up = world.one(SS1, "BYE");
    assert!(
        up.text()
            .starts_with("BYE sip:202@203.0.113.9:5080 SIP/2.0"),
        "{}",
        up.text()
    );
    assert_eq!(header(&up, Name::Route), "<sip:192.0.2.10;lr>");
    assert_eq!(header(&up, Name::From), "<sip:201@example.test>;tag=a1");
    assert_eq!(header(&up, Name::To), "<sip:202@example.test>;tag=b1");
    assert_eq!(
        up.msg.cseq().map(|cseq| (cseq.number, cseq.method)),
        Some((2, Method::Bye))
    );
    assert!(
        !header(&up, Name::CallId).contains("10.99."),
        "{}",
        up.text()
    );
    let down = world.one(ALICE, "BYE");
    assert!(
        down.text()
            .starts_with(&format!("BYE sip:201@{ALICE} SIP/2.0"))
    );
    assert_eq!(header(&down, Name::CallId), "call-1@10.99.1.11");
    assert_eq!(header(&down, Name::From), "<sip:202@example.test>;tag=b1");
    assert_eq!(header(&down, Name::To), "<sip:201@example.test>;tag=a1");
    assert_eq!(down.msg.cseq().map(|cseq| cseq.number), Some(1));

    assert!(is_over(&world));
    assert!(world.store.dialogs.is_empty());
    let event = world
        .events
        .iter()
        .find(|event| event.kind == "call")
        .expect("an event");
    assert_eq!((event.rule, event.to.as_str()), ("media_timeout", "ended"));
    assert_eq!(event.evidence[0].what, "no packet either way for 300 s");
    // Their answers are nobody's business.
    world.answer(&up, "200 OK", "");
    world.answer(&down, "481 Call/Transaction Does Not Exist", "");
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn a_packet_prolongs_it_and_the_next_look_is_when_it_could_be_over() {
    let mut world = call();
    let dialog = asked(&mut world, s(400)).expect("a look");
    tell(&mut world, dialog, Some(s(40)));
    assert_eq!(asked(&mut world, s(259)), None);
    let dialog = asked(&mut world, s(1)).expect("260 s later");
    tell(&mut world, dialog, Some(s(0)));
    assert_eq!(asked(&mut world, s(299)), None);
    assert!(!is_over(&world));
}

#[test]
fn a_call_in_which_nothing_ever_passed_ends_too() {
    let mut world = call();
    let dialog = asked(&mut world, s(400)).expect("a look");
    tell(&mut world, dialog, None);
    assert!(is_over(&world));
    let event = world.events.iter().find(|event| event.kind == "call");
    assert_eq!(
        event.expect("an event").evidence[0].what,
        "no packet ever passed"
    );
}

#[test]
fn packets_of_the_slow_path_count() {
    let mut world = call();
    world.pass(s(100));
    let mut ports = world.gateway.media().ports().map(|(_, at)| at);
    let port = ports.find(|at| at.ip() == addr(GW_WAN).ip() && at.port() % 2 == 0);
    drop(ports);
    let seen = world
        .gateway
        .media_seen(world.now, port.expect("a port"), addr(FAR));
    assert!(matches!(seen, Seen::Relay { .. }));
    let dialog = asked(&mut world, s(200)).expect("a look");
    tell(&mut world, dialog, None);
    assert!(!is_over(&world));
    assert_eq!(asked(&mut world, s(99)), None);
    let dialog = asked(&mut world, s(1)).expect("100 s later");
    tell(&mut world, dialog, None);
    assert!(is_over(&world));
}

#[test]
fn a_call_on_hold_inactive_or_with_a_fax_may_be_silent() {
    for line in [
        "a=sendonly\r\n",
        "a=inactive\r\n",
        "m=image 4100 udptl t38\r\n",
    ] {
        let mut world = call();
        let offer = format!("{}{line}", sdp(ALICE, 4000));
        let back = if line.starts_with('m') {
            format!("{}m=image 6100 udptl t38\r\n", sdp(FAR, 6000))
        } else {
            sdp(FAR, 6000)
        };
        world.hear(
            LAN,
            ALICE,
            &follow("INVITE", "201", ALICE, "202", 2, &body(&offer)),
        );
        let up = world
            .to(SS1)
            .into_iter()
            .find(|sent| sent.what() == "INVITE");
        world.answer(&up.expect("a re-INVITE"), "200 OK", &answer(&back));
        world.hear(LAN, ALICE, &follow("ACK", "201", ALICE, "202", 2, ""));
        assert_eq!(asked(&mut world, s(7200)), None, "{line}");
    }
}

#[test]
fn silence_counts_anew_after_a_hold() {
    let mut world = call();
    reinvite(&mut world, 2, "a=sendonly\r\n");
    world.pass(s(1000));
    reinvite(&mut world, 3, "a=sendrecv\r\n");
    assert_eq!(asked(&mut world, s(299)), None);
    let dialog = asked(&mut world, s(1)).expect("a look");
    // The flows were silent all through the hold.
    tell(&mut world, dialog, Some(s(1300)));
    assert!(is_over(&world));
}

#[test]
fn a_link_that_is_down_excuses_silence_and_a_minute_more() {
    let mut world = call();
    world.pass(s(10));
    world.gateway.link_changed(world.now, WAN0, false);
    assert_eq!(asked(&mut world, s(1000)), None);
    world.gateway.link_changed(world.now, WAN0, true);
    world.alive = vec![SS1, SS2];
    let up = world.now.mono;
    let dialog = asked(&mut world, s(500)).expect("a look");
    assert!(
        world.now.mono.since(up) >= s(360),
        "{:?}",
        world.now.mono.since(up)
    );
    tell(&mut world, dialog, Some(s(1400)));
    assert!(is_over(&world));
}

#[test]
fn a_short_trouble_that_is_over_at_the_look_excuses_it_too() {
    let mut world = call();
    world.pass(s(100));
    world.gateway.link_changed(world.now, WAN0, false);
    world.pass(s(190));
    world.gateway.link_changed(world.now, WAN0, true);
    assert_eq!(
        asked(&mut world, s(359)),
        None,
        "60 s to settle, and 300 s of silence"
    );
    // The server is found to be back some probes later.
    assert!(asked(&mut world, s(120)).is_some());
}

#[test]
fn a_server_that_is_down_may_be_the_whole_wan() {
    let mut world = call();
    world.alive.clear();
    world.pass(s(1200));
    assert_eq!(asked(&mut world, s(10)), None);
    assert_eq!(world.gateway.call_count(), 1);
}

#[test]
fn after_a_restart_it_counts_from_there_and_cseq_numbers_go_up() {
    let mut before = call();
    before.hear(LAN, ALICE, &follow("INFO", "201", ALICE, "202", 70, ""));
    before.pass(s(200));
    let mut world = before.restarted(s(50));
    assert_eq!(asked(&mut world, s(299)), None);
    let dialog = asked(&mut world, s(1)).expect("a look");
    tell(&mut world, dialog, Some(s(500)));
    let up = world.one(SS1, "BYE");
    assert!(
        up.msg.cseq().is_some_and(|cseq| cseq.number > 70),
        "{}",
        up.text()
    );
    assert!(is_over(&world));
}

#[test]
fn a_hairpin_is_asked_for_all_its_flows() {
    let mut world = World::new();
    world.register("201", ALICE);
    world.register("202", world::BOB);
    world.hear(LAN, ALICE, &invite("201", ALICE, "202", 1, ""));
    let up = world.one(SS1, "INVITE");
    // The softswitch sends the call back: its INVITE carries the body it was sent.
    let token = world
        .store
        .bindings
        .iter()
        .find(|b| b.aor.starts_with("202"));
    let token = token.expect("bob").token.clone();
    let sdp_up = String::from_utf8_lossy(up.msg.body()).into_owned();
    let call_id = header(&up, Name::CallId);
    let back = format!(
        "INVITE sip:{token}@{GW_WAN} SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.10;branch=z9hG4bKspiral\nMax-Forwards: 68\nFrom: <sip:201@example.test>;tag=a1\nTo: <sip:202@example.test>\nCall-ID: {call_id}\nCSeq: 1 INVITE\nContact: <sip:201@192.0.2.10>\n{}",
        body(&sdp_up)
    );
    world.hear(world::WAN, SS1, &back);
    let ring = world.one(world::BOB, "INVITE");
    let ok = format!(
        "Contact: <sip:202@{}>\n{}",
        world::BOB,
        body(&sdp(world::BOB, 4000))
    );
    world.answer(&ring, "200 OK", &ok);
    let relayed = world.to(SS1).into_iter().find(|sent| sent.what() == "200");
    let relayed = relayed.expect("Bob's 200");
    let sdp_back = String::from_utf8_lossy(relayed.msg.body()).into_owned();
    world.answer(&up, "200 OK", &answer(&sdp_back));
    world.pass(TIMEOUT);
    let all: Vec<_> = world
        .gateway
        .media()
        .flows()
        .map(|(_, flow)| flow.id)
        .collect();
    assert_eq!(world.asked.len(), 2, "two dialogs");
    for (_, flows) in &world.asked {
        assert!(
            all.iter().all(|id| flows.contains(id)),
            "{flows:?} of {all:?}"
        );
    }
}
