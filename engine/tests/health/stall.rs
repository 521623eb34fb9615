//! RTP of several calls over a WAN link that goes silent together (KL6).

use keepline_engine::{
    health::{Class, PathState},
    net::LinkId,
};

use crate::sim::{Answer, World, group, ms, path, secs};

const LINK: LinkId = LinkId(0);

/// A world at rest, whose two calls lost their media 300 ms ago.
fn stalled(answer: Answer) -> World {
    let mut world = World::new(group(2), 2, 1);
    world.run(secs(8));
    let since = world.now.mono;
    world.set(0, answer);
    world.run(ms(300));
    world.probes.clear();
    world.health.media_stalled(world.now, LINK, 2, since);
    world.drain();
    // Seen again and again, it asks once.
    world.run(ms(50));
    world.health.media_stalled(world.now, LINK, 2, since);
    world.drain();
    world
}

#[test]
fn kl6_calls_that_stall_together_have_the_server_in_use_asked_at_once() {
    let mut world = stalled(Answer::Silence);
    let start = world.now.mono - ms(50);
    world.run(secs(2));
    let asked: Vec<_> = world
        .probes
        .iter()
        .filter(|(at, key)| *key == path(0, 0) && at.since(start) <= ms(700))
        .map(|(at, _)| at.since(start))
        .collect();
    assert_eq!(asked, [ms(0), ms(200), ms(400)]);
    let (at, key) = world.downs[0];
    assert_eq!((key, at.since(start)), (path(0, 0), ms(700)));
    let view = world.view(path(0, 0));
    let seen = format!("{view:?}");
    assert!(
        seen.contains("the RTP of 2 calls stalled together"),
        "{seen}"
    );
    // What is dialled next goes elsewhere.
    let next = world.choose(Class::Invite, None).expect("a path");
    assert_ne!(next, path(0, 0));
}

#[test]
fn kl6_a_server_that_answers_is_cleared_and_asked_once() {
    let mut world = stalled(Answer::Well);
    world.run(secs(1));
    assert!(world.downs.is_empty());
    assert_eq!(world.state(path(0, 0)), PathState::Up);
    let asked = |world: &World| {
        let all = world.probes.iter();
        all.filter(|(_, key)| *key == path(0, 0)).count()
    };
    let before = asked(&world);
    // The calls are silent still, since the same moment: it was answered after that.
    let since = world.now.mono - secs(2);
    world.health.media_stalled(world.now, LINK, 2, since);
    world.drain();
    assert_eq!(asked(&world), before);
}

#[test]
fn kl6_a_stall_of_another_link_asks_nobody_here() {
    let mut world = World::new(group(2), 2, 1);
    world.run(secs(8));
    world.probes.clear();
    let since = world.now.mono - ms(300);
    world.health.media_stalled(world.now, LinkId(1), 2, since);
    world.drain();
    assert!(world.probes.is_empty(), "{:?}", world.probes);
    assert_eq!(world.state(path(0, 0)), PathState::Up);
}
