//! Fail-over, fail-back and what damps it; unproven tunnels; links.

use keepline_engine::tunnel::{Carrier, State, TunnelConf, TunnelId};

use crate::sim::{A, B, World, ms, secs};

const C: TunnelId = TunnelId(2);

fn two() -> Vec<TunnelConf> {
    vec![TunnelConf::new("hq-a"), TunnelConf::new("hq-b")]
}

/// The primary has died and the segment went over.
fn on_the_secondary() -> World {
    let mut world = World::proven();
    world.silence(A);
    world.run(secs(61));
    assert_eq!(world.active, Some(B));
    world
}

#[test]
fn mx7_a_healthy_primary_is_the_only_one_probed_and_only_when_idle() {
    let mut world = World::proven();
    let from = world.ms();
    world.behave(A, true, Some(ms(500)));
    world.run(secs(2 * 86_400));
    assert_eq!(world.probed(A, from), []);
    assert_eq!(world.probed(B, from), [], "proven, and not in use");
}

#[test]
fn mx7_on_the_secondary_it_is_watched_and_the_primary_is_probed() {
    let mut world = on_the_secondary();
    let from = world.ms();
    world.behave(B, true, Some(ms(500)));
    world.run(secs(100));
    assert_eq!(world.probed(A, from).len(), 10, "every heartbeat");
    assert_eq!(world.probed(B, from), [], "it carries traffic");
    world.behave(B, true, None);
    world.run(secs(31));
    assert_eq!(world.probed(B, from).len(), 1, "idle: asked like a primary");
}

#[test]
fn mx7_with_none_healthy_all_are_probed_and_the_segment_stays() {
    let mut world = on_the_secondary();
    world.silence(B);
    world.run(secs(61));
    assert_eq!((world.state(A), world.state(B)), (State::Down, State::Down));
    assert_eq!(world.active, Some(B), "never disconnected");
    let from = world.ms();
    world.run(secs(100));
    assert_eq!(world.probed(A, from).len(), 10);
    assert_eq!(world.probed(B, from).len(), 10);
    // The first that answers is used: nothing worse can come of it.
    world.behave(A, true, None);
    world.run(secs(11));
    assert_eq!(world.active, Some(A));
    assert_eq!(world.switches.last().expect("one").3, "fail_over");
    assert_eq!(world.state(A), State::Idle);
}

#[test]
fn mx7_with_none_healthy_the_one_in_use_revives_by_traffic_alone() {
    let mut world = on_the_secondary();
    world.silence(B);
    world.run(secs(61));
    assert_eq!(world.state(B), State::Down);
    world.behave(B, false, Some(secs(1)));
    world.run(secs(2));
    assert_eq!((world.state(B), world.active), (State::Up, Some(B)));
}

#[test]
fn mx8_fail_back_needs_three_answers_and_thirty_seconds() {
    let mut world = on_the_secondary();
    world.behave(A, true, None);
    world.behave(B, true, Some(ms(500)));
    let from = world.ms();
    let first = world.monitor.poll_timeout().expect("a probe").0;
    world.run(secs(60));
    let (at, _, to, rule) = *world.switches.last().expect("one");
    let first = u64::try_from((first.0 - crate::sim::START).as_millis()).expect("short");
    // Answered 2 ms after the probe; the hold counts from that answer.
    assert_eq!((at, to, rule), (first + 30_002, A, "fail_back"));
    assert!(world.probed(A, from).len() >= 4);
    assert_eq!(world.state(A), State::Idle);
}

#[test]
fn mx8_a_missed_answer_begins_the_count_anew() {
    let mut world = on_the_secondary();
    world.behave(B, true, Some(ms(500)));
    for _ in 0..20 {
        // Two answers, one miss, for ten minutes.
        world.behave(A, true, None);
        world.run(secs(20));
        world.silence(A);
        world.run(secs(10));
    }
    assert_eq!(world.active, Some(B));
    assert!(world.view(A).answers < 3);
}

#[test]
fn mx8_each_flap_doubles_the_wait_up_to_ten_minutes() {
    let mut world = World::proven();
    let mut waits = Vec::new();
    for _ in 0..7 {
        world.behave(B, true, Some(ms(500)));
        world.silence(A);
        world.run(secs(70));
        assert_eq!(world.active, Some(B));
        let from = world.ms();
        world.behave(A, true, None);
        while world.active == Some(B) {
            world.run(secs(1));
        }
        waits.push((world.ms() - from) / 1_000);
        world.behave(A, true, None);
        world.run(secs(60));
    }
    for (wait, hold) in waits.iter().zip([30, 60, 120, 240, 480, 600, 600]) {
        // Up to a heartbeat until the first answer.
        assert!((hold..=hold + 11).contains(wait), "{waits:?}");
    }
    // Half an hour of peace, and all is forgotten.
    world.behave(A, true, None);
    world.run(secs(31 * 60));
    world.silence(A);
    world.run(secs(70));
    assert_eq!(world.view(A).flaps, 0);
}

#[test]
fn mx8_a_higher_tunnel_does_not_return_by_chatter() {
    let mut world = on_the_secondary();
    world.behave(B, true, Some(ms(500)));
    world.behave(A, false, Some(ms(100)));
    world.run(secs(600));
    assert_eq!((world.active, world.state(A)), (Some(B), State::Down));
}

#[test]
fn mx7_an_unproven_tunnel_is_probed_at_start_and_daily_and_reported() {
    let mut world = World::new(two());
    world.silence(B);
    world.behave(A, true, Some(ms(500)));
    world.run(secs(90));
    assert_eq!(world.probed(A, 0), [0]);
    assert_eq!(world.probed(B, 0), [0, 10_000, 20_000]);
    assert_eq!(world.state(B), State::Unproven);
    let reported = |(at, e): &&(u64, _)| *at == 30_000 && rule(e) == "never_answered";
    assert!(world.events.iter().any(|event| reported(&event)));
    world.run(secs(86_400));
    assert_eq!(
        world
            .probed(B, 86_000_000)
            .iter()
            .map(|at| at + 86_000_000)
            .collect::<Vec<_>>(),
        [86_400_000, 86_410_000, 86_420_000]
    );
    // Once it answers, it is no longer asked.
    world.behave(B, true, None);
    world.run(secs(86_400));
    assert_eq!(world.state(B), State::Idle);
}

fn rule(event: &keepline_engine::event::Event) -> &'static str {
    event.rule
}

#[test]
fn mx7_an_unproven_primary_is_not_left_on_probes_alone() {
    let mut world = World::new(two());
    world.silence(A);
    world.run(secs(3_600));
    assert_eq!((world.active, world.state(A)), (Some(A), State::Unproven));
    // Its link is another matter.
    world.carrier(A, Carrier::Lost);
    assert_eq!(world.active, Some(B));
}

#[test]
fn mx7_an_unproven_tunnel_is_no_refuge_while_a_proven_one_exists() {
    let mut confs = two();
    confs.push(TunnelConf::new("hq-c"));
    let mut world = World::new(confs);
    world.silence(B);
    world.run(secs(40));
    assert_eq!(world.state(B), State::Unproven);
    world.carrier(A, Carrier::Lost);
    assert_eq!(world.active, Some(C), "passes over the unproven one");
    // With nothing else left it will do.
    world.carrier(C, Carrier::Lost);
    assert_eq!(world.active, Some(B));
}

#[test]
fn mx8_carrier_loss_and_removal_are_immediate_evidence() {
    for how in [Carrier::Lost, Carrier::Gone] {
        let mut world = World::proven();
        world.behave(A, true, Some(ms(20)));
        world.behave(B, true, Some(ms(20)));
        world.run(secs(5));
        let at = world.ms();
        world.carrier(A, how);
        assert_eq!(world.switches.last(), Some(&(at, Some(A), B, "fail_over")));
        assert_eq!(world.state(A), State::Down);
        let expected = if how == Carrier::Lost {
            "carrier_lost"
        } else {
            "interface_gone"
        };
        assert_eq!(world.view(A).reason, expected);
        world.run(secs(60));
        assert_eq!(world.probed(A, at), [], "nothing can be sent");
        // It returns, and earns its place like any.
        world.carrier(A, Carrier::Up);
        world.run(secs(29));
        assert_eq!(world.active, Some(B));
        world.run(secs(3));
        assert_eq!(world.active, Some(A));
    }
}

#[test]
fn mx8_a_segment_begins_with_the_first_tunnel_that_has_carrier() {
    let world = World::with(two(), vec![Carrier::Gone, Carrier::Up]);
    assert_eq!(world.switches, [(0, None, B, "start")]);
    assert_eq!(
        (world.state(A), world.view(A).reason),
        (State::Down, "interface_gone")
    );
    let dark = World::with(two(), vec![Carrier::Gone, Carrier::Lost]);
    assert_eq!(dark.switches, [(0, None, A, "start")]);
}

#[test]
fn mx8_with_all_down_a_tunnel_with_carrier_is_taken_over_one_without() {
    let mut world = on_the_secondary();
    world.silence(B);
    world.run(secs(61));
    assert_eq!((world.state(A), world.state(B)), (State::Down, State::Down));
    world.carrier(B, Carrier::Lost);
    assert_eq!(world.active, Some(A), "down, but a frame could pass");
}

#[test]
fn mx6_a_silent_server_behind_client_traffic_is_never_called_down() {
    let mut world = World::proven();
    world.behave(A, false, Some(secs(20)));
    world.run(secs(86_400));
    assert_eq!((world.active, world.state(A)), (Some(A), State::Up));
    assert!(world.events.iter().all(|(_, event)| event.to != "down"));
}

#[test]
fn mx8_every_change_says_why() {
    let world = on_the_secondary();
    let (_, down) = world
        .events
        .iter()
        .find(|(_, e)| e.to == "down")
        .expect("told");
    assert_eq!(
        (down.kind, down.object.as_str(), down.rule),
        ("tunnel", "hq-a", "probes_unanswered")
    );
    let what: Vec<_> = down
        .evidence
        .iter()
        .map(|seen| seen.what.as_str())
        .collect();
    assert!(what.contains(&"silent for 30.0 s"), "{what:?}");
    assert!(
        what.contains(&"3 probes unanswered within 30.0 s"),
        "{what:?}"
    );
    let (_, switch) = world
        .events
        .iter()
        .find(|(_, e)| e.kind == "segment")
        .expect("told");
    assert_eq!(
        (
            switch.object.as_str(),
            switch.from.as_str(),
            switch.to.as_str(),
            switch.rule
        ),
        ("voice0", "hq-a", "hq-b", "fail_over")
    );
    assert!(!switch.evidence.is_empty());
}
