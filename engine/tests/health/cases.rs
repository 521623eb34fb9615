//! Cases P and F of the field, in simulated time.

use crate::sim::{Answer, World, group, ms, path, secs};
use keepline_engine::{
    health::{Class, GroupConf, GroupState, Output, PathState, ProbeMode},
    net::LinkId,
};

/// The state of a server after it answered every OPTIONS this way for a while.
fn judged(answer: Answer) -> PathState {
    let mut world = World::new(group(2), 1, 1);
    world.set(0, answer);
    world.run(secs(40));
    world.state(path(0, 0))
}

#[test]
fn em6_case_p1_any_answer_but_a_down_code_means_reachable() {
    for code in [200, 401, 403, 404, 405, 481, 486, 500, 501] {
        assert_eq!(judged(Answer::Options(code, None)), PathState::Up, "{code}");
    }
}

#[test]
fn em6_case_p2_down_codes_and_silence_mean_down() {
    for code in [408, 502, 503, 504] {
        assert_eq!(
            judged(Answer::Options(code, None)),
            PathState::Down,
            "{code}"
        );
    }
    assert_eq!(judged(Answer::Silence), PathState::Down);

    let mut world = World::new(
        GroupConf {
            down_codes: vec![404],
            ..group(2)
        },
        1,
        1,
    );
    world.set(0, Answer::Options(404, None));
    world.set(1, Answer::Options(503, None));
    world.run(secs(40));
    assert_eq!(
        world.state(path(0, 0)),
        PathState::Down,
        "the group's own list decides"
    );
    assert_eq!(world.state(path(1, 0)), PathState::Up);
}

#[test]
fn em6_case_p3_retry_after_holds_at_once_and_a_200_does_not_end_it() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(5));
    world.set(0, Answer::Options(503, Some(120)));
    let held_from = loop {
        world.run(ms(10));
        if world.state(path(0, 0)) == PathState::Held {
            break world.now.mono;
        }
        assert!(world.now.mono.0 < secs(1_030), "held by the next probe");
    };
    world.set(0, Answer::Well);
    assert_eq!(
        world.choose(Class::Invite, Some(0)),
        Some(path(1, 0)),
        "at once"
    );
    world.run(secs(30));
    assert_eq!(
        world.state(path(0, 0)),
        PathState::Held,
        "a 200 does not end it"
    );
    world.run(secs(89));
    assert_eq!(world.choose(Class::Invite, Some(0)), Some(path(1, 0)));
    world.run(secs(1));
    assert!(world.now.mono.since(held_from) >= secs(120));
    assert_eq!(
        world.choose(Class::Invite, Some(0)),
        Some(path(0, 0)),
        "used again"
    );
    assert!(world.downs.is_empty());
}

#[test]
fn case_p3_retry_after_is_capped_and_of_held_servers_the_earliest_is_used() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(5));
    world.set(0, Answer::Always(503, Some(86_400)));
    world.set(1, Answer::Always(503, Some(60)));
    world.request(Class::Invite);
    world.run(secs(2));
    assert_eq!(world.view(path(0, 0)).held_for, Some(secs(300) - ms(1_980)));
    assert_eq!(
        world.choose(Class::Invite, None),
        Some(path(1, 0)),
        "the earliest, not none"
    );
    assert!(matches!(world.group_state(), GroupState::Serving { .. }));
}

#[test]
fn em12_case_p7_each_link_has_its_own_state() {
    let mut world = World::new(group(1), 2, 1);
    world.run(secs(5));
    world.answers.insert(path(0, 1), Answer::Silence);
    world.run(secs(20));
    assert_eq!(world.state(path(0, 0)), PathState::Up);
    assert_eq!(world.state(path(0, 1)), PathState::Down);
    assert!(
        world
            .events
            .iter()
            .any(|e| e.kind == "link" && e.object == "wan1" && e.to == "down")
    );
}

#[test]
fn em12_a_dead_link_sends_requests_over_the_next_one() {
    let mut world = World::new(group(2), 2, 1);
    world.run(secs(5));
    let call = world.request(Class::Invite);
    world.answers.insert(path(0, 0), Answer::Silence);
    world.answers.insert(path(1, 0), Answer::Silence);
    world.run(secs(5));
    assert_eq!(
        world.took(call).unwrap().1,
        path(0, 1),
        "the same server over the next link"
    );

    world.health.link_changed(world.now, LinkId(1), false);
    world.drain();
    assert_eq!(world.state(path(0, 1)), PathState::Down);
    assert!(
        world
            .events
            .iter()
            .any(|e| e.kind == "server" && e.rule == "link_down")
    );
    world.run(secs(60));
    let over_dead_link = world
        .probes
        .iter()
        .filter(|(at, p)| p.link == LinkId(1) && at.0 > secs(1_010));
    assert_eq!(
        over_dead_link.count(),
        0,
        "nothing is sent over a link that is gone"
    );
    world.health.link_changed(world.now, LinkId(1), true);
    world.run(secs(3));
    assert_eq!(world.state(path(0, 1)), PathState::Up);
}

#[test]
fn case_p9_a_blackhole_is_down_within_interval_plus_timeouts() {
    for phase in 0..40 {
        let mut world = World::new(
            GroupConf {
                interval: secs(5),
                max_unanswered: 5,
                timeout: secs(5),
                ..group(1)
            },
            1,
            phase,
        );
        world.run(secs(6) + ms(phase * 250));
        world.set(0, Answer::Silence);
        let dead = world.now.mono;
        world.run(secs(31));
        let (at, _) = *world.downs.first().expect("down");
        assert!(at.since(dead) <= secs(30), "{:?}", at.since(dead));
    }
    let mut world = World::new(
        GroupConf {
            interval: secs(3),
            max_unanswered: 1,
            ..group(1)
        },
        1,
        1,
    );
    world.run(secs(10));
    world.set(0, Answer::Silence);
    let dead = world.now.mono;
    world.run(secs(10));
    assert!(world.downs[0].0.since(dead) <= secs(4));
}

#[test]
fn em8_case_p10_one_miss_changes_nothing_and_one_answer_does_not_either() {
    let conf = GroupConf {
        probe: ProbeMode::All,
        ..group(1)
    };
    let mut health = keepline_engine::health::Health::new(
        keepline_engine::time::Now::default(),
        vec![conf],
        vec![(LinkId(0), "wan0".to_owned())],
        1,
    );
    // Driven by hand: each probe is answered or not as the pattern says.
    let mut now = keepline_engine::time::Now::default();
    let mut changes = Vec::new();
    let mut play = |pattern: &mut dyn FnMut(usize) -> bool, probes: usize| {
        let mut seen = 0;
        while seen < probes {
            while let Some(output) = health.poll_output() {
                match output {
                    Output::Probe { id, .. } => {
                        if pattern(seen) {
                            health.probe_received(now, id, 200, None);
                        }
                        seen += 1;
                    }
                    Output::Event(event) if event.kind == "server" => {
                        changes.push((event.from, event.to))
                    }
                    _ => {}
                }
            }
            let (at, _) = health.poll_timeout().unwrap();
            now = now.after(at.since(now.mono));
            health.handle_timeout(now);
        }
        std::mem::take(&mut changes)
    };
    let owned = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
    assert_eq!(play(&mut |_| true, 1), owned("unknown", "up"));
    assert_eq!(
        play(&mut |i| i % 2 == 1, 60),
        [],
        "D U D U for five minutes"
    );
    assert_eq!(play(&mut |_| false, 4), owned("up", "down"), "D D D");
    assert_eq!(play(&mut |i| i % 2 == 1, 60), [], "U D U D: no recovery");
    assert_eq!(play(&mut |_| true, 4), owned("down", "up"), "U U U");
}

#[test]
fn em6_a_down_code_hunts_a_call_and_three_calls_start_a_burst() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(2));
    world.set(0, Answer::Always(503, None));
    let call = world.request(Class::Invite);
    world.run(secs(1));
    assert_eq!(world.calls[call].rules, ["down_code"]);
    assert_eq!(world.took(call).unwrap().1, path(1, 0));
    assert!(world.downs.is_empty(), "one call is only soft evidence");
    world.request(Class::Invite);
    world.request(Class::Invite);
    world.run(secs(1));
    assert_eq!(world.downs.len(), 1);
    assert_eq!(world.view(path(0, 0)).reason, "burst_refused");
}

#[test]
fn em6_after_an_18x_every_final_is_passed_on() {
    let mut world = World::new(group(2), 1, 1);
    let req = keepline_engine::health::RequestId(77);
    world
        .health
        .sent(world.now, req, path(0, 0), Class::Invite, "INVITE");
    let relay = keepline_engine::health::Judgement::Relay;
    assert_eq!(
        world.health.received(world.now, req, 180, None, false),
        relay
    );
    assert_eq!(
        world.health.received(world.now, req, 503, None, true),
        relay
    );
}

#[test]
fn em5_probe_modes_decide_who_is_probed() {
    let probed = |probe: ProbeMode| {
        let mut world = World::new(GroupConf { probe, ..group(2) }, 1, 1);
        world.run(secs(1));
        world.probes.clear();
        for _ in 0..60 {
            world.run(secs(1));
            world.health.inbound(world.now, path(0, 0));
        }
        let count = |s: u16| {
            world
                .probes
                .iter()
                .filter(|(_, p)| p.server.index == s)
                .count()
        };
        (count(0) > 0, count(1) > 0)
    };
    assert_eq!(probed(ProbeMode::Off), (false, false));
    assert_eq!(probed(ProbeMode::Inactive), (false, true));
    assert_eq!(
        probed(ProbeMode::Idle),
        (false, true),
        "the one in use is not silent"
    );
    assert_eq!(probed(ProbeMode::All), (true, true));
}

#[test]
fn em7_a_down_server_is_probed_ever_less_often_up_to_the_cap() {
    let mut world = World::new(group(2), 1, 8);
    world.run(secs(2));
    world.set(0, Answer::Silence);
    world.run(secs(15));
    world.probes.clear();
    world.run(secs(3_000));
    let times: Vec<_> = world
        .probes
        .iter()
        .filter(|(_, p)| *p == path(0, 0))
        .map(|(at, _)| *at)
        .collect();
    let gaps: Vec<_> = times
        .windows(2)
        .map(|w| w[1].since(w[0]).as_secs())
        .collect();
    assert!(
        gaps.windows(2).take(5).all(|w| w[1] > w[0]),
        "doubling: {gaps:?}"
    );
    assert!(gaps.iter().all(|&gap| gap <= 300), "{gaps:?}");
    assert!(*gaps.last().unwrap() >= 200, "{gaps:?}");
}

#[test]
fn case_late_answers_change_nothing() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(2));
    world.set(0, Answer::Silence);
    let req = keepline_engine::health::RequestId(9_000_000);
    world
        .health
        .sent(world.now, req, path(0, 0), Class::Invite, "INVITE");
    let mut late = Vec::new();
    let end = world.now.mono + secs(20);
    while world.now.mono < end && world.state(path(0, 0)) != PathState::Down {
        let (at, _) = world.health.poll_timeout().unwrap();
        world.now = world.now.after(at.since(world.now.mono));
        world.health.handle_timeout(world.now);
        while let Some(output) = world.health.poll_output() {
            if let Output::Probe { id, path: p } = output
                && p == path(0, 0)
            {
                late.push(id);
            }
        }
    }
    let before = world.view(path(0, 0));
    assert_eq!(before.state, PathState::Down);
    for id in late {
        world.health.probe_received(world.now, id, 200, None);
    }
    let _ = world.health.received(world.now, req, 200, None, false);
    assert_eq!(world.view(path(0, 0)), before);
}
