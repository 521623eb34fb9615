//! Twenty kills in one run.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use keepline_tests::scenario::kills;

#[test]
fn kl5_twenty_kills_under_a_thousand_packets_a_second_lose_nothing() -> Result<()> {
    // Another seed each time; one that failed is told, and can be set.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let seed = match std::env::var("KEEPLINE_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => u64::try_from(now & u128::from(u64::MAX))?,
    };
    let outcome = kills::play(seed, 20)?;
    println!("{outcome:?}");
    Ok(())
}
