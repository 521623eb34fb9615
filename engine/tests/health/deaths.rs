//! A server dies three ways while a call is being set up: how soon that very call is with the
//! backup, and how soon the verdict stands (EM4, signalling.md section 1).

use crate::sim::{Answer, World, group, ms, path, secs};
use keepline_engine::health::{Class, GroupState, Judgement, PathState, RequestId};

/// A world whose first server has answered `calls` calls before it dies.
fn warmed_up(calls: usize, seed: u64) -> World {
    let mut world = World::new(group(2), 1, seed);
    world.run(secs(1));
    for _ in 0..calls {
        world.request(Class::Invite);
        world.run(ms(700));
    }
    world
}

/// Deaths at many phases of the probe clock: the call's hunt never exceeds the bound.
fn worst_call(answer: Answer, calls: usize) -> u128 {
    let one = |phase: u64| {
        let mut world = warmed_up(calls, phase);
        world.run(ms(phase * 97));
        world.set(0, answer);
        world.run(ms(phase * 13 % 400));
        let call = world.request(Class::Invite);
        world.run(secs(8));
        let (took, by) = world.took(call).expect("the call connects");
        assert_eq!(by, path(1, 0), "through the backup");
        assert_eq!(world.downs.len(), 1, "one verdict, on the dead server");
        assert_eq!(world.downs[0].1, path(0, 0));
        took.as_millis()
    };
    (0..120).map(one).max().unwrap()
}

#[test]
fn em4_a_killed_servers_call_is_with_the_backup_at_once() {
    assert!(worst_call(Answer::Icmp, 0) <= 400);
    assert!(worst_call(Answer::Icmp, 20) <= 400);
}

#[test]
fn em4_a_silent_servers_call_is_with_the_backup_within_two_seconds() {
    let unknown = worst_call(Answer::Silence, 0);
    let known = worst_call(Answer::Silence, 20);
    assert!(unknown <= 2_000, "{unknown} ms before 8 samples");
    assert!(known <= 1_500, "{known} ms with a known response time");
}

#[test]
fn em4_the_verdict_stands_700_ms_after_the_suspicion() {
    let mut world = warmed_up(20, 1);
    world.set(0, Answer::Silence);
    let start = world.now.mono;
    world.request(Class::Invite);
    world.run(secs(5));
    let (at, _) = world.downs[0];
    assert_eq!(at.since(start), ms(500 + 700));
    let verdict = world.events.iter().find(|e| e.to == "down").unwrap();
    assert_eq!((verdict.kind, verdict.rule), ("server", "burst_unanswered"));
    assert_eq!(verdict.object, "core sip:192.0.2.10:5060 wan0");
    let what: Vec<_> = verdict.evidence.iter().map(|e| e.what.as_str()).collect();
    assert!(
        what.iter().any(|w| w.contains("unanswered for 0.5 s")),
        "{what:?}"
    );
    assert!(
        what.iter()
            .any(|w| w.contains("3 OPTIONS in a burst unanswered")),
        "{what:?}"
    );
}

/// Karn: an answer to a request that was sent twice may belong to either, so it says nothing
/// about the server's response time (RFC 6298 section 3).
#[test]
fn em4_the_answer_to_a_request_sent_again_is_no_sample() {
    let mut world = warmed_up(20, 1);
    let known = world.view(path(0, 0)).srtt;
    assert_eq!(known[0], Some(ms(20)), "one way is 10 ms");
    let slow = |world: &mut World, again: bool, number: u64| {
        let req = RequestId(number);
        let invite = Class::Invite;
        world
            .health
            .sent(world.now, req, path(0, 0), invite, "INVITE by hand");
        world.run(ms(400));
        if again {
            world.health.retransmitted(world.now, req);
        }
        let answered = world.health.received(world.now, req, 200, None, false);
        assert_eq!(answered, Judgement::Relay);
        world.drain();
    };
    slow(&mut world, true, 1_000_001);
    assert_eq!(world.view(path(0, 0)).srtt, known, "sent twice");
    slow(&mut world, false, 1_000_002);
    assert!(world.view(path(0, 0)).srtt > known, "sent once");
}

#[test]
fn em4_icmp_alone_is_no_verdict() {
    let mut world = warmed_up(2, 1);
    world.set(0, Answer::Icmp);
    let call = world.request(Class::Invite);
    world.run(ms(30));
    world.set(0, Answer::Well);
    world.run(secs(5));
    assert_eq!(world.calls[call].rules, ["icmp"], "the request hunted");
    assert!(world.downs.is_empty(), "but the server answered its burst");
    assert_eq!(world.state(path(0, 0)), PathState::Up);
}

#[test]
fn em4_a_server_that_speaks_keeps_its_silent_invite_until_the_slow_timeout() {
    let mut world = warmed_up(20, 3);
    world.set(0, Answer::Silence);
    let call = world.request(Class::Invite);
    // Requests from the server keep arriving: it lives, though this INVITE fares badly.
    for _ in 0..50 {
        world.run(ms(100));
        world.health.inbound(world.now, path(0, 0));
        world.drain();
    }
    assert_eq!(world.calls[call].rules, ["slow_timeout"]);
    let (took, _) = world.took(call).unwrap();
    assert!(ms(4_000) <= took && took < ms(4_300), "{took:?}");
    assert!(world.downs.is_empty());
}

#[test]
fn em4_other_methods_hunt_at_the_verdict_or_at_five_seconds() {
    let mut world = warmed_up(20, 3);
    world.set(0, Answer::Silence);
    let call = world.request(Class::Other);
    world.run(secs(8));
    assert_eq!(world.calls[call].rules, ["server_down"]);

    let mut world = warmed_up(20, 3);
    world.set(0, Answer::Silence);
    let call = world.request(Class::Other);
    for _ in 0..60 {
        world.run(ms(100));
        world.health.inbound(world.now, path(0, 0));
        world.drain();
    }
    assert_eq!(world.calls[call].rules, ["passive_timeout_other"]);
    let (took, _) = world.took(call).unwrap();
    assert!(ms(5_000) <= took && took < ms(5_300), "{took:?}");
}

#[test]
fn em4_a_second_dead_server_costs_only_its_suspect_time() {
    let mut world = World::new(group(3), 1, 5);
    world.run(secs(1));
    world.set(0, Answer::Silence);
    world.set(1, Answer::Silence);
    let call = world.request(Class::Invite);
    world.run(secs(8));
    let (took, by) = world.took(call).expect("the third answers");
    assert_eq!(by, path(2, 0));
    // 1.5 s at the first, then only the suspect time at the second: its burst is over by then.
    assert!(took <= ms(2_700), "{took:?}");
}

#[test]
fn em13_no_server_left_is_survivability_and_one_is_enough_to_leave_it() {
    let mut world = warmed_up(1, 9);
    world.set(0, Answer::Silence);
    world.set(1, Answer::Silence);
    world.request(Class::Invite);
    world.run(secs(20));
    assert_eq!(world.group_state(), GroupState::Survivability);
    assert_eq!(world.choose(Class::Invite, None), None);

    world.set(1, Answer::Well);
    world.run(secs(33));
    assert_eq!(
        world.group_state(),
        GroupState::Serving { active: path(1, 0) }
    );
    assert_eq!(world.choose(Class::Register, Some(0)), Some(path(1, 0)));
}

#[test]
fn em4_after_a_100_silence_is_soft_evidence_and_three_of_them_start_a_burst() {
    let mut world = warmed_up(20, 4);
    let probes = world.probes.len();
    let mut requests = Vec::new();
    for i in 0..3_u64 {
        let req = keepline_engine::health::RequestId(1_000_000 + i);
        world.health.sent(
            world.now,
            req,
            path(0, 0),
            Class::Invite,
            "INVITE sip:1@a.test",
        );
        world.run(ms(20));
        let _ = world.health.received(world.now, req, 100, None, false);
        requests.push(req);
        world.run(ms(500));
    }
    // Traffic keeps the idle probes away.
    for _ in 0..150 {
        world.run(ms(100));
        world.health.inbound(world.now, path(0, 0));
        world.health.inbound(world.now, path(1, 0));
    }
    world.drain();
    let rules: Vec<_> = world.events.iter().map(|e| e.rule).collect();
    assert!(rules.contains(&"soft_evidence"), "{rules:?}");
    assert!(rules.contains(&"burst_answered"), "{rules:?}");
    assert!(world.probes.len() > probes, "a burst ran");
    assert!(world.downs.is_empty());
}
