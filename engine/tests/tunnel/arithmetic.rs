//! When a silent tunnel is asked, and when it is called down: to the heartbeat.

use keepline_engine::tunnel::{State, TunnelConf};

use crate::sim::{A, B, World, ms, secs};

/// Traffic every 20 ms for a while, then death; returns when it died.
fn die_after_traffic(world: &mut World) -> u64 {
    world.behave(A, true, Some(ms(20)));
    world.run(secs(20));
    world.silence(A);
    // The last frame came with the last tick of the loop.
    world.ms()
}

#[test]
fn mx2_traffic_proves_a_tunnel_and_no_probe_is_sent() {
    let mut world = World::proven();
    let from = world.ms();
    world.behave(A, false, Some(secs(29)));
    world.run(secs(3_600));
    assert_eq!(
        world.probed(A, from),
        [],
        "its server is silent all that time"
    );
    assert_eq!(world.state(A), State::Up);
    assert_eq!(world.active, Some(A));
}

#[test]
fn mx3_mx6_defaults_probe_at_30_40_50_and_call_down_at_60() {
    let mut world = World::proven();
    let died = die_after_traffic(&mut world);
    world.run(ms(29_999));
    assert_eq!(world.probed(A, died), []);
    assert_eq!(world.state(A), State::Up);
    world.run(ms(2));
    assert_eq!(world.state(A), State::Probing);
    world.run(ms(29_998));
    assert_eq!(world.state(A), State::Probing, "not before 60 s");
    world.run(ms(2));
    assert_eq!(world.probed(A, died)[..3], [30_000, 40_000, 50_000]);
    assert_eq!(world.state(A), State::Down);
    assert_eq!(
        world.switches.last(),
        Some(&(died + 60_000, Some(A), B, "fail_over"))
    );
}

#[test]
fn mx6_other_intervals_keep_the_same_arithmetic() {
    let conf = |name| TunnelConf {
        heartbeat_interval: secs(3),
        idle_timeout: secs(5),
        probe_timeout: secs(10),
        ..TunnelConf::new(name)
    };
    let mut world = World::new(vec![conf("hq-a"), conf("hq-b")]);
    world.run(secs(1));
    let died = die_after_traffic(&mut world);
    world.run(secs(16));
    assert_eq!(
        world.probed(A, died)[..4],
        [5_000, 8_000, 11_000, 14_000],
        "every heartbeat until the verdict"
    );
    assert_eq!(world.switches.last().expect("one").0, died + 15_000);
}

#[test]
fn mx6_any_answer_resets_the_count() {
    let mut world = World::proven();
    let died = die_after_traffic(&mut world);
    world.run(secs(45));
    // The third probe is answered: 50.002 s.
    world.behave(A, true, None);
    world.run(secs(6));
    assert_eq!(world.state(A), State::Idle);
    world.silence(A);
    world.run(secs(100));
    assert_eq!(
        world.probed(A, died)[..6],
        [30_000, 40_000, 50_000, 80_002, 90_002, 100_002],
        "the idle clock begins anew with the answer"
    );
    assert_eq!(world.switches.last().expect("one").0, died + 110_002);
}

#[test]
fn mx6_secs_rise_over_retries() {
    let mut world = World::proven();
    die_after_traffic(&mut world);
    let before = world.probes.len();
    world.run(secs(59));
    let retries = world.probes[before..].iter().map(|(.., secs)| *secs);
    assert_eq!(retries.collect::<Vec<_>>(), [0, 10, 20]);
}

#[test]
fn mx3_an_answer_is_not_traffic_but_a_frame_ends_probing() {
    let mut world = World::proven();
    let died = die_after_traffic(&mut world);
    world.run(ms(30_500));
    assert_eq!(world.state(A), State::Probing);
    let tunnel = world.now.mono;
    world.monitor.inbound(world.now, A, tunnel);
    world.drain();
    assert_eq!(world.state(A), State::Up);
    world.run(secs(25));
    assert_eq!(world.probed(A, died), [30_000], "asked once, and no more");

    let mut quiet = World::proven();
    quiet.run(secs(100));
    assert_eq!(quiet.state(A), State::Idle, "answers are no traffic");
    assert_eq!(quiet.probed(A, 0), [0, 30_002, 60_004, 90_006]);
}

#[test]
fn mx3_a_stamp_that_is_read_late_counts_from_when_it_was_made() {
    let mut world = World::proven();
    let died = die_after_traffic(&mut world);
    world.run(ms(10_000));
    // Nobody read the data path for a while: the frame is ten seconds old.
    let stamp = world.now.mono;
    world.run(ms(10_000));
    world.monitor.inbound(world.now, A, stamp);
    world.drain();
    world.run(secs(29));
    assert_eq!(world.probed(A, died), [40_000]);
}

#[test]
fn mx6_a_gateway_that_slept_asks_anew_before_it_judges() {
    let mut world = World::proven();
    let died = die_after_traffic(&mut world);
    world.run(secs(31));
    // The whole process stands still for a minute.
    world.now = world.now.after(secs(60));
    world.monitor.handle_timeout(world.now);
    world.drain();
    assert_eq!(world.state(A), State::Probing, "nobody asked in that time");
    world.run(secs(29));
    assert_eq!(world.active, Some(A));
    world.run(secs(2));
    assert_eq!(world.active, Some(B));
    assert_eq!(
        world.probed(A, died)[..4],
        [30_000, 91_000, 101_000, 111_000]
    );
}

#[test]
fn mx6_fast_probes_at_1_0_and_1_5_and_calls_down_at_2_0() {
    let mut world = World::new(vec![TunnelConf::fast("hq-a"), TunnelConf::fast("hq-b")]);
    world.run(secs(1));
    let died = die_after_traffic(&mut world);
    world.run(ms(1_999));
    assert_eq!(world.probed(A, died), [1_000, 1_500]);
    assert_eq!(world.active, Some(A));
    world.run(ms(2));
    assert_eq!(world.switches.last().expect("one").0, died + 2_000);
    assert_eq!(world.active, Some(B));
}

#[test]
fn mx6_fast_judges_only_what_was_steady() {
    let conf = || vec![TunnelConf::fast("hq-a"), TunnelConf::fast("hq-b")];
    // A frame every two seconds is no steady traffic.
    let mut world = World::new(conf());
    world.run(secs(1));
    world.behave(A, true, Some(secs(2)));
    let from = world.ms();
    world.run(secs(60));
    assert_eq!(world.probed(A, from), []);
    // Nor is a burst of less than three seconds.
    world.behave(A, true, Some(ms(20)));
    world.run(ms(2_900));
    world.silence(A);
    let died = world.ms();
    world.run(secs(31));
    assert_eq!(world.probed(A, died)[0], 30_000, "then as classic");
    // A call that just ends: one question, one answer, and quiet.
    let mut world = World::new(conf());
    world.run(secs(1));
    world.behave(A, true, Some(ms(20)));
    world.run(secs(10));
    world.behave(A, true, None);
    let ended = world.ms();
    world.run(secs(30));
    assert_eq!(world.probed(A, ended), [1_000]);
    assert_eq!(world.state(A), State::Idle);
}

#[test]
fn kl6_calls_that_stall_together_start_the_heartbeats_at_once() {
    let mut world = World::new(vec![TunnelConf::fast("hq-a"), TunnelConf::fast("hq-b")]);
    world.run(secs(1));
    let died = die_after_traffic(&mut world);
    world.run(ms(300));
    let last = world.now.mono - ms(300);
    world.monitor.stalled(world.now, A, 3, last);
    // Told again while it is asked: nothing more.
    world.monitor.stalled(world.now, A, 3, last);
    world.drain();
    world.run(ms(1_001));
    assert_eq!(world.probed(A, died)[..2], [300, 800]);
    assert_eq!(
        world.switches.last(),
        Some(&(died + 1_300, Some(A), B, "fail_over"))
    );
    let stalled = "the RTP of 3 calls stalled together 300 ms ago";
    let (_, event) = world
        .events
        .iter()
        .rev()
        .find(|(_, e)| e.to == "down")
        .expect("told");
    assert!(event.evidence.iter().any(|seen| seen.what == stalled));
}

#[test]
fn kl6_a_classic_tunnel_is_asked_at_once_but_judged_as_ever() {
    let mut world = World::proven();
    let died = die_after_traffic(&mut world);
    world.run(ms(300));
    let last = world.now.mono - ms(300);
    world.monitor.stalled(world.now, A, 2, last);
    world.drain();
    world.run(secs(31));
    assert_eq!(world.probed(A, died)[..3], [300, 10_300, 20_300]);
    assert_eq!(world.switches.last().expect("one").0, died + 30_300);
}

#[test]
fn kl6_a_stall_that_traffic_has_overtaken_asks_nothing() {
    let mut world = World::proven();
    world.behave(A, true, Some(ms(20)));
    world.run(secs(5));
    let from = world.ms();
    let earlier = world.now.mono - ms(400);
    world.monitor.stalled(world.now, A, 2, earlier);
    world.drain();
    assert_eq!(world.probed(A, from), []);
}
