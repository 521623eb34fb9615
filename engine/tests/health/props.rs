//! What holds whatever happens.

use keepline_engine::{
    health::{Class, GroupConf, GroupState, PathState, Prefer, ProbeMode},
    net::{LinkId, PathKey},
};
use proptest::prelude::*;

use crate::sim::{Answer, GROUP, World, group, ms, path, secs};

/// One thing that happens to the world.
#[derive(Debug, Clone, Copy)]
enum Step {
    Run(u64),
    Answer(u16, u8, Answer),
    Request(Class),
    Inbound(u16, u8),
    Link(u8, bool),
    Switch(Option<u16>),
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        4 => Just(Answer::Well),
        3 => Just(Answer::Silence),
        1 => Just(Answer::Icmp),
        1 => Just(Answer::Options(503, None)),
        1 => (1..400_u64).prop_map(|s| Answer::Always(503, Some(s))),
        1 => Just(Answer::Always(408, None)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![
        Just(Class::Invite),
        Just(Class::Register),
        Just(Class::Other)
    ];
    prop_oneof![
        6 => (1..30_000_u64).prop_map(Step::Run),
        4 => (0..3_u16, 0..2_u8, answer()).prop_map(|(s, l, a)| Step::Answer(s, l, a)),
        6 => class.prop_map(Step::Request),
        2 => (0..3_u16, 0..2_u8).prop_map(|(s, l)| Step::Inbound(s, l)),
        1 => (0..2_u8, any::<bool>()).prop_map(|(l, up)| Step::Link(l, up)),
        1 => proptest::option::of(0..3_u16).prop_map(Step::Switch),
    ]
}

fn conf() -> impl Strategy<Value = GroupConf> {
    let probe = prop_oneof![
        Just(ProbeMode::Off),
        Just(ProbeMode::Inactive),
        Just(ProbeMode::Idle),
        Just(ProbeMode::All)
    ];
    let prefer = prop_oneof![Just(Prefer::Link), Just(Prefer::Server)];
    (probe, prefer).prop_map(|(probe, prefer)| GroupConf {
        probe,
        prefer,
        ..group(3)
    })
}

fn all_paths() -> impl Iterator<Item = PathKey> {
    (0..3).flat_map(|s| (0..2).map(move |l| path(s, l)))
}

fn play(world: &mut World, step: Step) {
    match step {
        Step::Run(millis) => world.run(ms(millis)),
        Step::Answer(server, link, answer) => {
            world.answers.insert(path(server, link), answer);
        }
        Step::Request(class) => {
            world.request(class);
        }
        Step::Inbound(server, link) => world.health.inbound(world.now, path(server, link)),
        Step::Link(link, up) => world.health.link_changed(world.now, LinkId(link), up),
        Step::Switch(to) => {
            world
                .health
                .switch(world.now, GROUP, to.map(|index| path(index, 0).server));
        }
    }
    world.drain();
}

/// The choice is never a down path, and never a worse one than there is.
fn check_choice(world: &World) {
    let states: Vec<_> = all_paths().map(|key| world.state(key)).collect();
    for class in [Class::Invite, Class::Register] {
        for affinity in [None, Some(0), Some(2)] {
            let Some(chosen) = world.choose(class, affinity) else {
                assert!(
                    states.iter().all(|s| *s == PathState::Down),
                    "none of {states:?}"
                );
                continue;
            };
            let state = world.state(chosen);
            assert_ne!(state, PathState::Down, "chose a down path of {states:?}");
            let ready = states
                .iter()
                .any(|s| matches!(s, PathState::Up | PathState::Unknown));
            let well = matches!(state, PathState::Up | PathState::Unknown);
            assert!(well || !ready, "chose {state:?} of {states:?}");
        }
    }
    let survivability = states.iter().all(|s| *s == PathState::Down);
    assert_eq!(
        world.group_state() == GroupState::Survivability,
        survivability,
        "{states:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// The world's own loop also asserts that every timer moves on.
    #[test]
    fn em11_never_a_down_path_while_a_better_one_exists(
        conf in conf(),
        seed in any::<u32>(),
        loss in prop_oneof![Just(0.0), Just(0.05), Just(0.3)],
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(conf, 2, u64::from(seed));
        world.loss = loss;
        for step in steps {
            play(&mut world, step);
            check_choice(&world);
        }
        // All is well again: every path is found up, whatever went before.
        world.loss = 0.0;
        (0..2).for_each(|l| world.health.link_changed(world.now, LinkId(l), true));
        all_paths().for_each(|key| { world.answers.insert(key, Answer::Well); });
        world.run(secs(700));
        for key in all_paths() {
            prop_assert!(matches!(world.state(key), PathState::Up | PathState::Unknown), "{:?}", world.view(key));
            prop_assert_eq!(world.view(key).live_requests, 0);
        }
    }

    /// Two fail-backs within half an hour are at least the doubled hold apart.
    #[test]
    fn case_f8_no_flap_above_the_damping_bound(
        seed in any::<u32>(),
        phases in proptest::collection::vec((1..90_u64, 1..240_u64), 1..40),
    ) {
        let mut world = World::new(group(2), 1, u64::from(seed));
        world.run(secs(2));
        for (dead, alive) in phases {
            world.set(0, Answer::Silence);
            world.request(Class::Invite);
            world.run(secs(dead));
            world.set(0, Answer::Well);
            world.run(secs(alive));
        }
        // The longest back-off and the longest hold.
        world.run(secs(1_000));
        let primary = GroupState::Serving { active: path(0, 0) };
        let returns: Vec<_> = world.groups.iter().filter(|(_, s)| *s == primary).map(|(at, _)| *at).collect();
        // The first is the start.
        for pair in returns[1..].windows(2) {
            prop_assert!(pair[1].since(pair[0]) >= secs(120), "{:?}", returns);
        }
        prop_assert_eq!(world.group_state(), primary, "and in the end it is back");
    }
}
