//! That very call, again and again: one office, one blackhole, one call each time. The largest
//! figure counts.

use std::time::Duration;

use anyhow::{Result, ensure};
use keepline_tests::lab::death::{Death, call_with_digest, call_without_digest};
use keepline_tests::lab::office::Opening;

const ROUNDS: usize = 20;

fn series(name: &str, bound: Duration, call: fn(Death) -> Result<Duration>) -> Result<()> {
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let one = call(Death::Blackhole)?;
        println!("{name}, round {round}: {} ms", one.as_millis());
        took.push(one);
    }
    took.sort_unstable();
    let (median, maximum) = (took[ROUNDS / 2], took[ROUNDS - 1]);
    println!(
        "{name}: n {ROUNDS}, minimum {} ms, median {} ms, maximum {} ms",
        took[0].as_millis(),
        median.as_millis(),
        maximum.as_millis()
    );
    ensure!(maximum <= bound, "maximum {} ms", maximum.as_millis());
    Ok(())
}

#[test]
fn em4_twenty_calls_into_a_blackhole() -> Result<()> {
    series("digest off", Duration::from_secs(2), |death| {
        call_without_digest(death, Opening::default())
    })
}

#[test]
fn em23_twenty_calls_with_digest_into_a_blackhole() -> Result<()> {
    series("digest on", Duration::from_millis(2500), |death| {
        call_with_digest(death, Opening::default())
    })
}
