//! What phones do, in every mode over every transport: a table of scenarios by cells, each cell
//! an office of its own with a cast of phones that are played line by line ([`crate::lab::peer`])
//! and two baresips.

mod baresip;
mod calls;
mod connected;
mod events;
pub mod ice;
mod kinds;
mod leaks;
mod refusals;
mod scene;
mod stage;
mod streams;
mod table;
mod through;
mod transfers;
pub mod v6;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use keepline_engine::net::Transport;

pub use stage::{Mode, Stage};

/// What is played; its phones are its own, or it shares them with one that uses none of their
/// media.
type Scenario = (&'static str, fn(&Stage) -> Result<()>);

/// Rows about what the gateway does to descriptions and media: nothing, where SIP goes through.
const OF_ANCHORED_MEDIA: [&str; 3] = [DTLS, ICE, ANOTHER_SOURCE];
const DTLS: &str = "DTLS, and a stranger's hello";
const ICE: &str = "ICE taken out";
const ANOTHER_SOURCE: &str = "another SSRC in mid-stream";

const SCENARIOS: [Scenario; 27] = [
    ("register, one contact after a change", events::register),
    (
        "call from a phone, the far side ends it",
        calls::from_a_phone,
    ),
    ("call to a phone", calls::to_a_phone),
    ("hold and resume by the phone", calls::hold),
    (
        "re-INVITE, hold and resume by the far side",
        calls::hold_by_far,
    ),
    ("blind transfer by the phone", transfers::blind),
    ("blind transfer by the far side", transfers::blind_by_far),
    ("attended transfer by the phone", transfers::attended),
    (
        "attended transfer by the far side",
        transfers::attended_by_far,
    ),
    ("cancel, both ways", refusals::cancel),
    ("busy, both ways", refusals::busy),
    ("no answer, both ways", refusals::no_answer),
    ("302, both ways", refusals::moved),
    ("forked 180s of two phones of one user", calls::forked_in),
    (
        "forked 183s with media of two far phones",
        calls::forked_out,
    ),
    ("audio, RTCP elsewhere, video with mux", kinds::video),
    ("video refused, then taken", kinds::refused_video),
    ("a fax by T.38 and back", kinds::fax),
    ("SRTP", kinds::srtp),
    (DTLS, kinds::dtls),
    (ICE, ice::stripped),
    ("offer in the 200, answer in the ACK", kinds::late_offer),
    ("reliable 183, PRACK, UPDATE", kinds::early),
    (ANOTHER_SOURCE, kinds::another_source),
    ("MESSAGE, both ways", events::message),
    ("SUBSCRIBE and NOTIFY, both ways", events::subscribe),
    ("baresips register, talk, hold, transfer", baresip::talk),
];

/// How a row ended; `None`: it says nothing of this cell.
type Outcome = Option<Result<()>>;

/// `MATRIX_ROW=hold` plays only the rows that say so: for who looks for one fault.
fn is_wanted(name: &str) -> bool {
    std::env::var("MATRIX_ROW").map_or(true, |word| name.contains(&word))
}

/// Plays all scenarios of a cell at once, and looks for what leaked meanwhile. Prints the table
/// of all cells so far.
///
/// # Errors
/// When the office does not open, or a scenario did not go as it should.
pub fn play(over: Transport, mode: Mode) -> Result<()> {
    let start = Instant::now();
    let stage = Stage::open(over, mode)?;
    let opened = start.elapsed();
    let through = stage.goes_through();
    let mut outcomes: Vec<(&str, Outcome)> = thread::scope(|scope| {
        let stage = &stage;
        let wanted = SCENARIOS.iter().filter(|(name, _)| is_wanted(name));
        let playing: Vec<_> = wanted
            .map(|(name, scenario)| {
                let whole = move || catch_unwind(AssertUnwindSafe(|| scenario(stage)));
                let plays = !(through && OF_ANCHORED_MEDIA.contains(name));
                (*name, plays.then(|| scope.spawn(whole)))
            })
            .collect();
        let ended = playing.into_iter().map(|(name, thread)| {
            let ended = thread.map(|thread| thread.join().and_then(|inner| inner));
            let ended = ended.map(|all| all.unwrap_or_else(|_| Err(anyhow!("panicked"))));
            (name, ended)
        });
        ended.collect()
    });
    outcomes.push(("no call is left", Some(stage.is_idle())));
    let hidden = (!through).then(|| stage.leaks());
    outcomes.push(("no address of one side on the other", hidden));
    let untouched = through.then(|| stage.untouched());
    outcomes.push(("byte for byte, and copied", untouched));
    let failed = table::add(&stage.name(), &outcomes);
    println!(
        "{}: opened in {} ms, played in {} ms",
        stage.name(),
        opened.as_millis(),
        (start.elapsed() - opened).as_millis()
    );
    ensure!(failed.is_empty(), "{}:\n{failed}", stage.name());
    Ok(())
}
