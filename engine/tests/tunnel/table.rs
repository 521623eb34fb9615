//! The decision table: every pair of states of primary and secondary that can stand together,
//! times every event; which tunnel is used then, and who is probed in the next 29 seconds.
//!
//! What is expected is written down once more here, as MX7 says it, without the machine's means.

use keepline_engine::tunnel::{Carrier, State, TunnelConf, TunnelId};

use crate::sim::{A, B, World, ms, secs};

/// What a tunnel is when the event comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// Frames come out of it.
    Up,
    /// Answered six seconds ago, or long ago where it stands by.
    Idle,
    /// Asked half a second ago.
    Probing,
    Unproven,
    /// By verdict: it has carrier.
    Down,
    NoCarrier,
}
use Is::{Down, Idle, NoCarrier, Probing, Unproven, Up};

impl Is {
    fn healthy(self) -> bool {
        !matches!(self, Down | NoCarrier)
    }
}

/// The tunnel in use: dead or not, one that a frame could pass is better than none.
fn in_use(a: Is, b: Is) -> TunnelId {
    if a.healthy() || (a == Down && b == NoCarrier) {
        A
    } else {
        B
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    Frame(TunnelId),
    Answer(TunnelId),
    Lost(TunnelId),
    Returned(TunnelId),
}

const EVENTS: [Event; 9] = [
    Event::Nothing,
    Event::Frame(A),
    Event::Frame(B),
    Event::Answer(A),
    Event::Answer(B),
    Event::Lost(A),
    Event::Lost(B),
    Event::Returned(A),
    Event::Returned(B),
];

/// All pairs with the tunnel in use. A secondary that stands by is not asked: never probing.
fn pairs() -> Vec<(Is, Is)> {
    let mut pairs = Vec::new();
    for a in [Up, Idle, Probing, Unproven] {
        pairs.extend([Up, Idle, Unproven, Down, NoCarrier].map(|b| (a, b)));
    }
    for a in [Down, NoCarrier] {
        pairs.extend([Up, Idle, Probing, Unproven, Down, NoCarrier].map(|b| (a, b)));
    }
    pairs
}

/// Brings a world into these states; the segment uses A where A is healthy.
fn arrange(a: Is, b: Is) -> World {
    let mut world = World::new(vec![TunnelConf::new("hq-a"), TunnelConf::new("hq-b")]);
    for (tunnel, is) in [(A, a), (B, b)] {
        if is == Unproven {
            world.silence(tunnel);
        }
    }
    world.run(ms(500));
    let on_b = !a.healthy();
    if b == Down && !on_b {
        // It was in use, died, and the primary came back.
        world.silence(B);
        world.carrier(A, Carrier::Lost);
        world.run(secs(91));
        world.carrier(A, Carrier::Up);
        if a == Unproven {
            world.run(secs(1));
        }
    }
    world.run(ms(35_500));
    match a {
        Down => {
            world.behave(B, true, Some(ms(500)));
            world.silence(A);
            world.run(secs(61));
        }
        NoCarrier => world.carrier(A, Carrier::Lost),
        _ => {}
    }
    let active = if on_b { B } else { A };
    if b == Down && on_b {
        world.silence(B);
        world.run(secs(92));
    } else if b == Idle && on_b {
        world.behave(B, true, None);
        world.run(secs(36)); // asked and answered
    } else if b == NoCarrier {
        world.carrier(B, Carrier::Lost);
    } else if b == Unproven && on_b {
        world.silence(B);
        world.run(secs(65));
    }
    for (tunnel, is) in [(A, a), (B, b)] {
        let frames = (is == Up).then_some(ms(500));
        let probing = is == Probing && tunnel == active;
        world.behave(tunnel, !probing && is == Idle, frames);
    }
    if a == Probing || b == Probing {
        let since = world.view(active);
        let wait = since.next_probe.expect("it is watched") + ms(500);
        world.run(wait);
    } else {
        world.run(ms(600));
    }
    world.silence_answers();
    world
}

/// States and tunnel in use right after the event.
fn after(a: Is, b: Is, event: Event) -> (Is, Is, TunnelId, bool) {
    let mut is = [a, b];
    let used = in_use(a, b);
    // The primary, down, answered although another is in use.
    let mut answering = false;
    match event {
        Event::Nothing => {}
        Event::Frame(t) | Event::Answer(t) => {
            let index = usize::from(t.0);
            let revived = if matches!(event, Event::Frame(_)) {
                Up
            } else {
                Idle
            };
            is[index] = match is[index] {
                NoCarrier => NoCarrier,
                Down if t == A && used == B => {
                    answering = matches!(event, Event::Answer(_));
                    Down
                }
                Unproven if revived == Up => Unproven,
                Up => Up,
                _ => revived,
            };
        }
        Event::Lost(t) => is[usize::from(t.0)] = NoCarrier,
        Event::Returned(t) => {
            let index = usize::from(t.0);
            if is[index] == NoCarrier {
                is[index] = Down; // these were proven before
            }
        }
    }
    let [a, b] = is;
    let used = match (used, a.healthy(), b.healthy()) {
        (A, true, _) | (B, _, true) if used == A || b.healthy() => used,
        (A, false, true) => B,
        (B, true, false) => A,
        (B, _, false) if answering => A,
        // None healthy: it stays, unless only the other has carrier.
        (A, ..) if a == NoCarrier && b == Down => B,
        (B, ..) if b == NoCarrier && a == Down => A,
        _ => used,
    };
    let a = if answering && used == A { Idle } else { a };
    (a, b, used, answering)
}

/// Who is probed in the 29 s after the event (MX7).
fn probed(before: (Is, Is), a: Is, b: Is, used: TunnelId, event: Event) -> Vec<TunnelId> {
    let [used_is, _] = if used == A { [a, b] } else { [b, a] };
    let carrier = |is: Is| is != NoCarrier;
    if !used_is.healthy() {
        // None healthy: all.
        let all = [(A, a), (B, b)].into_iter().filter(|(_, is)| carrier(*is));
        return all.map(|(tunnel, _)| tunnel).collect();
    }
    let mut who = Vec::new();
    let fresh = event == Event::Frame(used) || event == Event::Answer(used);
    // In use: only when idle.
    if used_is != Up && !fresh {
        who.push(used);
    }
    // Above it: for recovery. Below: an unproven or fallen one where it has just come back.
    if used == B && carrier(a) {
        who.insert(0, A);
    }
    if used == A && event == Event::Returned(B) && before.1 == NoCarrier {
        who.push(B);
    }
    who
}

#[test]
fn mx7_mx8_decision_table() {
    let mut rows = Vec::new();
    let mut wrong = 0;
    for (a, b) in pairs() {
        for event in EVENTS {
            let mut world = arrange(a, b);
            let start = in_use(a, b);
            assert_eq!(world.active, Some(start), "{a:?} {b:?}");
            assert_eq!(shown(&world), [a, b].map(state), "{a:?} {b:?}");
            let mark = world.ms();
            happen(&mut world, event);
            let used = world.active.expect("one");
            world.run(secs(29));
            let mut who: Vec<_> = [A, B]
                .into_iter()
                .filter(|tunnel| !world.probed(*tunnel, mark).is_empty())
                .collect();
            who.sort();
            let (now_a, now_b, expected, _) = after(a, b, event);
            let mut asked = probed((a, b), now_a, now_b, expected, event);
            asked.sort();
            let fits = used == expected && who == asked;
            wrong += usize::from(!fits);
            let mark = if fits { "" } else { "   <-- expected " };
            let told = if fits {
                String::new()
            } else {
                format!("{expected:?} {asked:?}")
            };
            rows.push(format!(
                "{a:?} {b:?} {event:?}: uses {used:?}, probes {who:?}{mark}{told}"
            ));
        }
    }
    println!("{}", rows.join("\n"));
    assert_eq!(rows.len(), 32 * 9);
    assert_eq!(wrong, 0, "rows differ from MX7 and MX8: see above");
}

fn state(is: Is) -> State {
    match is {
        Up => State::Up,
        Idle => State::Idle,
        Probing => State::Probing,
        Unproven => State::Unproven,
        Down | NoCarrier => State::Down,
    }
}

fn shown(world: &World) -> [State; 2] {
    [world.state(A), world.state(B)]
}

fn happen(world: &mut World, event: Event) {
    match event {
        Event::Nothing => {}
        Event::Frame(tunnel) => {
            let at = world.now.mono;
            world.monitor.inbound(world.now, tunnel, at);
        }
        Event::Answer(tunnel) => world.monitor.answered(world.now, tunnel, "DHCPACK"),
        Event::Lost(tunnel) => world.carrier(tunnel, Carrier::Lost),
        Event::Returned(tunnel) => world.carrier(tunnel, Carrier::Up),
    }
    world.drain();
}
