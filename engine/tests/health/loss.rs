//! Loss is not death: a thousand calls over a network that loses 5 % each way.

use crate::sim::{World, group, ms};
use keepline_engine::health::Class;

struct Outcome {
    downs: usize,
    hunts: usize,
    failed: usize,
    suspicions: usize,
}

/// `calls` calls (each with a REGISTER and a BYE beside it), two servers alive all the time.
fn season(calls: usize, seed: u64) -> Outcome {
    let mut world = World::new(group(2), 1, seed);
    world.loss = 0.05;
    world.one_way = ms(15);
    for _ in 0..calls {
        let gap = (world.random() * 2_000.0) as u64;
        world.request(Class::Invite);
        world.run(ms(gap));
        world.request(Class::Register);
        world.run(ms(gap / 2));
        world.request(Class::Other);
        world.run(ms(200));
    }
    world.run(ms(40_000));
    Outcome {
        downs: world.downs.len(),
        hunts: world.calls.iter().map(|call| call.rules.len()).sum(),
        failed: world
            .calls
            .iter()
            .filter(|call| call.answered.is_none())
            .count(),
        suspicions: world.events.iter().filter(|e| e.to == "suspect").count(),
    }
}

#[test]
fn em4_a_thousand_calls_at_five_percent_loss_make_no_server_down() {
    let outcome = season(1_000, 2);
    assert_eq!(outcome.downs, 0);
    assert_eq!(outcome.failed, 0);
    assert!(outcome.hunts <= 1, "{} hunts in 1,000 calls", outcome.hunts);
    assert!(
        outcome.suspicions > 50,
        "the loss was real: {}",
        outcome.suspicions
    );
}

#[test]
#[ignore = "soak: 50 seasons"]
fn em4_soak_loss_over_many_seeds() {
    let outcomes: Vec<_> = (0..50).map(|seed| season(1_000, seed)).collect();
    let downs: usize = outcomes.iter().map(|o| o.downs).sum();
    let hunts: usize = outcomes.iter().map(|o| o.hunts).sum();
    assert!(hunts <= 50, "{hunts} hunts in 50,000 calls");
    // Three probes in a row are all lost once in 1,100 times: no rule tells that from death.
    assert!(downs <= 5, "{downs} verdicts in 50,000 calls");
}
