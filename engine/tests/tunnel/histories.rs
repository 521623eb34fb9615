//! Random histories from a seed, and what holds in all of them. A handful run here, a thousand
//! in the soak (`tests/tests/soak/tunnels.rs`).

use keepline_engine::{
    rng::Rng,
    tunnel::{Carrier, State, TunnelConf, TunnelId},
};

use super::sim::{World, ms, secs};

/// Tunnels of a history: fast, classic, and a second classic one.
const TUNNELS: u16 = 3;
const STEPS: usize = 150;
/// Holds of 30, 60, 120, 240, 480 and 600 s leave room for no more returns in half an hour.
const RETURNS: usize = 7;
const WINDOW: u64 = 30 * 60 * 1_000;

/// Returns that are closer than this belong together: the longest hold of ten minutes before the
/// first, and the half hour in which flaps are not forgotten.
const TOGETHER: u64 = 20 * 60 * 1_000;

/// When, what was in use, what is from then on, and by which rule.
type Switch = (u64, Option<TunnelId>, TunnelId, &'static str);

/// What a history is judged by, at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) active: TunnelId,
    pub(crate) carriers: Vec<Carrier>,
    pub(crate) states: Vec<State>,
    /// Client frames came out of it all the time for the last seconds.
    pub(crate) traffic: Vec<bool>,
}

/// Plays the history of this seed.
///
/// # Errors
/// Which invariant broke, and when.
pub(crate) fn play(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let confs = vec![
        TunnelConf::fast("fast"),
        TunnelConf::new("classic"),
        TunnelConf::new("third"),
    ];
    let mut world = World::new(confs);
    let mut since = [0_u64; TUNNELS as usize];
    for _ in 0..STEPS {
        step(&mut world, &mut rng, &mut since);
        moment(&moment_of(&world, &since))?;
    }
    switches(&world.switches)
}

fn step(world: &mut World, rng: &mut Rng, since: &mut [u64; TUNNELS as usize]) {
    let tunnel = TunnelId(u16::try_from(rng.next_u64() % u64::from(TUNNELS)).expect("small"));
    let index = usize::from(tunnel.0);
    match rng.next_u64() % 16 {
        0..5 => {
            let every = [
                None,
                Some(ms(20)),
                Some(ms(400)),
                Some(secs(3)),
                Some(secs(25)),
            ];
            let frames = every[usize::try_from(rng.next_u64() % 5).expect("small")];
            world.behave(tunnel, !rng.next_u64().is_multiple_of(3), frames);
            since[index] = world.ms();
        }
        5 | 6 => {
            let lost = [Carrier::Lost, Carrier::Gone];
            world.carrier(tunnel, lost[index % 2]);
            since[index] = world.ms();
        }
        7..10 => {
            world.carrier(tunnel, Carrier::Up);
            since[index] = world.ms();
        }
        10 => {
            let at = world.now.mono - ms(300);
            world.monitor.stalled(world.now, tunnel, 2, at);
            world.drain();
        }
        11 => {
            // The gateway itself stands still.
            world.now = world.now.after(ms(rng.next_u64() % 90_000));
            since.fill(world.ms());
        }
        _ => {}
    }
    let scale = [300, 5_000, 40_000, 200_000][usize::try_from(rng.next_u64() % 4).expect("small")];
    world.run(ms(rng.next_u64() % scale));
}

fn moment_of(world: &World, since: &[u64; TUNNELS as usize]) -> Moment {
    let at = world.ms();
    let busy = |(index, of): (usize, &super::sim::Behaviour)| {
        of.frames.is_some_and(|every| every <= ms(400))
            && world.carriers[index] == Carrier::Up
            && at.saturating_sub(since[index]) > 2_000
    };
    Moment {
        active: world.active.expect("a segment is never without a tunnel"),
        carriers: world.carriers.clone(),
        states: (0..TUNNELS).map(|t| world.state(TunnelId(t))).collect(),
        traffic: world.behaviour.iter().enumerate().map(busy).collect(),
    }
}

/// What holds at each moment.
///
/// # Errors
/// What does not.
pub(crate) fn moment(of: &Moment) -> Result<(), String> {
    let active = usize::from(of.active.0);
    let up = |index: usize| of.carriers[index] == Carrier::Up;
    if !up(active) && (0..of.carriers.len()).any(up) {
        return Err(format!(
            "disconnected although a tunnel has carrier: {of:?}"
        ));
    }
    if of.states[active] == State::Down && of.states.iter().any(|state| *state != State::Down) {
        return Err(format!("on a dead tunnel although another lives: {of:?}"));
    }
    if of.traffic[active] && of.states[active] == State::Down {
        return Err(format!("called down although it carries traffic: {of:?}"));
    }
    Ok(())
}

/// What holds for the switches of a whole history.
///
/// # Errors
/// What does not.
pub(crate) fn switches(all: &[Switch]) -> Result<(), String> {
    let mut active = None;
    for (at, from, to, rule) in all {
        if *from != active || Some(*to) == active {
            return Err(format!(
                "two active at {at}: {from:?} left, {active:?} was in use"
            ));
        }
        active = Some(*to);
        if *rule != "fail_back" {
            continue;
        }
        damped(all, *at, *to)?;
        let returns = all
            .iter()
            .filter(|(then, _, t, rule)| {
                *rule == "fail_back" && t == to && then <= at && at - then < WINDOW
            })
            .count();
        if returns > RETURNS {
            return Err(format!(
                "{returns} returns of {to:?} within half an hour at {at}"
            ));
        }
    }
    Ok(())
}

/// A return waits for 30 s from when the tunnel was left, and twice as long for each return
/// before it that did not last, up to ten minutes (signalling.md section 15).
fn damped(all: &[Switch], at: u64, to: TunnelId) -> Result<(), String> {
    let mut hold = 30_000;
    let mut later = None;
    let mut back = all.iter().rev().filter(|(then, ..)| *then < at);
    // Backwards: when it was left, and the return before that.
    while let Some((left, .., rule)) = back.find(|(_, from, ..)| *from == Some(to)) {
        if later.is_none() {
            later = Some(*left);
        }
        let lost = *rule != "fail_back";
        let came = back.clone().find(|(_, _, t, _)| *t == to);
        let flapped = came
            .is_some_and(|(came, _, _, rule)| *rule == "fail_back" && lost && at - came < TOGETHER);
        if !flapped {
            break;
        }
        hold = (hold * 2).min(600_000);
    }
    match later {
        Some(left) if at - left < hold => Err(format!(
            "{to:?} back at {at}, less than {hold} ms after it was left at {left}"
        )),
        _ => Ok(()),
    }
}

/// Plays the histories of these seeds.
pub(crate) fn play_all(seeds: std::ops::Range<u64>) {
    let begun = seeds.clone();
    for seed in seeds {
        if let Err(what) = play(seed) {
            panic!("seed {seed}: {what}");
        }
    }
    println!(
        "{} histories of {STEPS} steps, all well",
        begun.end - begun.start
    );
}

/// A moment with a fault in it.
fn planted(state: State, carrier: Carrier) -> Moment {
    Moment {
        active: TunnelId(0),
        carriers: vec![carrier, Carrier::Up],
        states: vec![state, State::Idle],
        traffic: vec![false, false],
    }
}

#[test]
fn mx8_the_judges_of_histories_see_planted_faults() {
    assert_eq!(moment(&planted(State::Up, Carrier::Up)), Ok(()));
    moment(&planted(State::Down, Carrier::Lost)).expect_err("disconnected");
    moment(&planted(State::Down, Carrier::Up)).expect_err("on a dead tunnel");
    let mut busy = planted(State::Down, Carrier::Up);
    busy.states[1] = State::Down;
    assert_eq!(moment(&busy), Ok(()));
    busy.traffic[0] = true;
    moment(&busy).expect_err("traffic, and called down");

    let (a, b) = (TunnelId(0), TunnelId(1));
    let start = (0, None, a, "start");
    let over = |at| (at, Some(a), b, "fail_over");
    let back = |at| (at, Some(b), a, "fail_back");
    assert_eq!(switches(&[start, over(10), back(30_010)]), Ok(()));
    switches(&[start, over(10), back(30_009)]).expect_err("too soon");
    switches(&[start, over(10), over(20)]).expect_err("two active");
    switches(&[start, (10, None, b, "fail_over")]).expect_err("two active");
    let twice = [start, over(10), back(30_010), over(40_000), back(100_000)];
    assert_eq!(switches(&twice), Ok(()));
    let undamped = [start, over(10), back(30_010), over(40_000), back(99_999)];
    switches(&undamped).expect_err("the second return waits a minute");
    let apart = [over(2_000_000), back(2_030_000)];
    assert_eq!(switches(&[&twice[..], &apart].concat()), Ok(()));
    let mut flaps = vec![start];
    for n in 0..8 {
        flaps.extend([over(n * 40_000), back(n * 40_000 + 35_000)]);
    }
    switches(&flaps).expect_err("eight returns in half an hour");
}
