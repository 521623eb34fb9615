//! Which server is used, and when work goes back: cases F, weights, the operator's word.

use crate::sim::{Answer, World, group, ms, path, secs};
use keepline_engine::health::{Class, Failback, GroupConf, GroupState, PathState, Want};

#[test]
fn case_f7_a_fallback_that_returns_alone_is_used_within_max_alone() {
    for seed in 0..60 {
        let mut world = World::new(group(2), 1, seed);
        world.run(secs(2));
        world.set(0, Answer::Silence);
        world.set(1, Answer::Silence);
        // Long enough for every back-off to have reached its cap.
        world.run(secs(1_200) + ms(seed * 511));
        assert_eq!(world.group_state(), GroupState::Survivability);
        world.set(1, Answer::Well);
        let returned = world.now.mono;
        world.run(secs(40));
        let used = world.groups.last().unwrap();
        assert_eq!(used.1, GroupState::Serving { active: path(1, 0) });
        assert!(
            used.0.since(returned) <= secs(32),
            "{:?}",
            used.0.since(returned)
        );
    }
}

#[test]
fn case_f7_a_long_back_off_is_cut_when_the_last_server_dies() {
    for seed in 0..20 {
        let mut world = World::new(group(2), 1, seed);
        world.run(secs(2));
        world.set(0, Answer::Silence);
        world.run(secs(3_000));
        // Just after a probe: the next one is minutes away while the other server serves.
        let far = |world: &World| world.view(path(0, 0)).next_probe.unwrap() > secs(200);
        while !far(&world) {
            world.run(secs(1));
        }
        world.set(0, Answer::Well);
        world.set(1, Answer::Silence);
        world.run(secs(14));
        assert!(world.view(path(1, 0)).state == PathState::Down);
        world.run(secs(32));
        assert_eq!(
            world.group_state(),
            GroupState::Serving { active: path(0, 0) },
            "seed {seed}"
        );
    }
}

#[test]
fn em11_case_f8_a_flapping_server_gets_no_work_back_until_it_is_stable() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(2));
    for _ in 0..20 {
        world.set(0, Answer::Silence);
        world.request(Class::Invite);
        world.run(secs(10));
        world.set(0, Answer::Well);
        world.run(secs(20));
    }
    let flaps = world.downs.iter().filter(|(_, p)| *p == path(0, 0)).count();
    assert!(flaps > 1, "the primary did flap: {flaps}");
    let to_backup = |w: &World| {
        w.groups
            .iter()
            .filter(|(_, s)| *s == GroupState::Serving { active: path(1, 0) })
            .count()
    };
    let to_primary = |w: &World| {
        w.groups
            .iter()
            .filter(|(_, s)| *s == GroupState::Serving { active: path(0, 0) })
            .count()
    };
    assert_eq!(
        (to_backup(&world), to_primary(&world)),
        (1, 1),
        "one fail-over, no fail-back"
    );

    let stable = world.now.mono;
    world.run(secs(3_600));
    assert_eq!(to_primary(&world), 2, "exactly one fail-back");
    let (at, _) = world.groups.last().unwrap();
    assert!(at.since(stable) >= secs(60), "after the hold");
}

#[test]
fn case_f8_the_hold_doubles_per_flap_to_its_cap_and_is_forgotten() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(2));
    let mut holds = Vec::new();
    for _ in 0..6 {
        world.set(0, Answer::Silence);
        world.run(secs(15));
        assert_eq!(world.state(path(0, 0)), PathState::Down);
        world.set(0, Answer::Well);
        while world.state(path(0, 0)) == PathState::Down {
            world.run(secs(1));
        }
        holds.push(world.view(path(0, 0)).returns_in.unwrap().as_secs() + 1);
    }
    assert_eq!(holds, [60, 120, 240, 480, 600, 600]);
    world.run(secs(1_801));
    world.set(0, Answer::Silence);
    world.run(secs(15));
    world.set(0, Answer::Well);
    world.run(secs(15));
    assert!(
        world.view(path(0, 0)).returns_in.unwrap() <= secs(60),
        "forgotten after 30 min"
    );
}

fn after_a_return(failback: Failback) -> World {
    let mut world = World::new(
        GroupConf {
            failback,
            ..group(2)
        },
        1,
        1,
    );
    world.run(secs(2));
    world.set(0, Answer::Silence);
    world.run(secs(15));
    world.set(0, Answer::Well);
    world.run(secs(50));
    assert_eq!(world.state(path(0, 0)), PathState::Up);
    assert_eq!(
        world.choose(Class::Register, Some(1)),
        Some(path(1, 0)),
        "on hold"
    );
    world.run(secs(60));
    world
}

#[test]
fn em11_fail_back_by_registration_moves_each_aor_at_its_register() {
    let world = after_a_return(Failback::Registration);
    assert_eq!(
        world.choose(Class::Invite, Some(1)),
        Some(path(1, 0)),
        "calls stay"
    );
    assert_eq!(
        world.choose(Class::Register, Some(1)),
        Some(path(0, 0)),
        "a REGISTER returns"
    );
    assert_eq!(
        world.choose(Class::Invite, Some(0)),
        Some(path(0, 0)),
        "its calls follow"
    );
}

#[test]
fn em23_a_challenge_is_answered_where_it_came_from() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(20));
    // The primary is suspect for a moment; the REGISTER goes to the backup and is challenged.
    world.set(0, Answer::Silence);
    world.request(Class::Other);
    world.run(ms(1_100));
    assert_eq!(world.state(path(0, 0)), PathState::Suspect);
    assert_eq!(world.choose(Class::Register, Some(0)), Some(path(1, 0)));
    world.set(0, Answer::Well);
    world.run(ms(600));
    assert_eq!(world.state(path(0, 0)), PathState::Up);
    assert_eq!(
        world.choose(Class::Register, Some(1)),
        Some(path(1, 0)),
        "with its credentials"
    );
    world.run(secs(10));
    assert_eq!(
        world.choose(Class::Register, Some(1)),
        Some(path(0, 0)),
        "a later refresh"
    );
}

#[test]
fn em11_weights_share_out_first_registrations() {
    let mut conf = group(3);
    for (server, weight) in conf.servers.iter_mut().zip([10, 30, 0]) {
        (server.priority, server.weight) = (1, weight);
    }
    let mut world = World::new(conf, 1, 1);
    world.run(secs(1));
    let pick = |world: &World, i: u32| {
        let aor = format!("sip:{i}@example.test");
        let want = Want {
            group: crate::sim::GROUP,
            class: Class::Register,
            aor: aor.as_bytes(),
            affinity: None,
            tried: &[],
        };
        world.health.choose(world.now, &want).unwrap().server.index
    };
    let before: Vec<_> = (0..4_000).map(|i| pick(&world, i)).collect();
    let share = |s: u16| before.iter().filter(|&&p| p == s).count();
    assert!((850..1_150).contains(&share(0)), "{}", share(0));
    assert!(share(2) < 20, "{}", share(2));
    // A server that dies moves its own AORs only.
    world.set(0, Answer::Silence);
    world.run(secs(20));
    let after: Vec<_> = (0..4_000).map(|i| pick(&world, i)).collect();
    assert!(before.iter().zip(&after).all(|(b, a)| *b == 0 || b == a));
    assert!(after.iter().all(|&server| server != 0));
}

#[test]
fn em11_fail_back_at_once_moves_everything_after_the_hold() {
    let world = after_a_return(Failback::Immediate);
    assert_eq!(world.choose(Class::Invite, Some(1)), Some(path(0, 0)));
}

#[test]
fn em11_fail_back_by_hand_waits_for_the_operator() {
    let mut world = after_a_return(Failback::Manual);
    world.run(secs(36_000));
    assert_eq!(world.choose(Class::Register, Some(1)), Some(path(1, 0)));
    assert_eq!(
        world.view(path(0, 0)).returns_in,
        Some(std::time::Duration::MAX)
    );
    world.health.switch(world.now, crate::sim::GROUP, None);
    assert_eq!(world.choose(Class::Register, None), Some(path(0, 0)));
}

#[test]
fn em11_the_operator_comes_before_priority_and_affinity_but_not_before_down() {
    let mut world = World::new(group(2), 1, 1);
    world.run(secs(2));
    let backup = path(1, 0).server;
    world
        .health
        .switch(world.now, crate::sim::GROUP, Some(backup));
    world.drain();
    assert_eq!(world.choose(Class::Invite, Some(0)), Some(path(1, 0)));
    assert_eq!(
        world.group_state(),
        GroupState::Serving { active: path(1, 0) }
    );
    world.set(1, Answer::Silence);
    world.run(secs(20));
    assert_eq!(world.choose(Class::Invite, Some(1)), Some(path(0, 0)));
    world.health.switch(world.now, crate::sim::GROUP, None);
    assert_eq!(world.health.snapshot(world.now)[0].switched_to, None);
}
