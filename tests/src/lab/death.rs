//! Three ways for the primary softswitch to die, and the call that is set up in that moment.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::branch::SOFTSWITCHES;
use super::office::{LIMIT, Office, Opening};
use super::phone::Phone;
use super::sip::{Message, SetUp};
use super::{Branch, Frame};

/// The call lasts this long once it is answered.
const TALK: Duration = Duration::from_millis(500);
/// The callee rings for this long.
const RING: Duration = Duration::from_millis(100);
/// How long a phone with digest thinks between challenge and answer: time to die in.
pub const THINK: Duration = Duration::from_millis(400);

/// A way to die, and the cure.
#[derive(Clone, Copy, Debug)]
pub enum Death {
    /// `kill -9`: its ports answer with ICMP.
    Killed,
    /// SIGSTOP: packets go in, nothing comes out.
    Stopped,
    /// The network eats everything, both ways.
    Blackhole,
}

impl Death {
    /// Strikes the primary.
    ///
    /// # Errors
    /// When it is dead already.
    pub fn strike(self, office: &mut Office) -> Result<()> {
        match self {
            Self::Killed => {
                office.primary.kill();
                Ok(())
            }
            Self::Stopped => office.primary.pause(),
            Self::Blackhole => office.branch.softswitches[0].blackhole("eth0"),
        }
    }

    /// Brings the primary back to life.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn cure(self, office: &mut Office) -> Result<()> {
        match self {
            Self::Killed => office.primary.restart(&office.branch),
            Self::Stopped => office.primary.resume(),
            Self::Blackhole => office.branch.softswitches[0].end_blackhole(),
        }
    }

    /// What happened, for a timeline.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Killed => "the primary is killed",
            Self::Stopped => "the primary is stopped",
            Self::Blackhole => "the primary is cut off without a trace",
        }
    }
}

/// The answer came within a bound.
///
/// # Errors
/// When it came later.
pub fn within(bound: Duration, took: Duration) -> Result<()> {
    println!("answered after {} ms", took.as_millis());
    ensure!(took <= bound, "answered after {} ms", took.as_millis());
    Ok(())
}

/// No digest: the primary is dead before the first INVITE, and that one transaction is answered
/// by the backup's phone. First byte to the 200.
///
/// # Errors
/// When the phone saw anything but its 100 within 200 ms and one final answer, the 200, or was
/// told the name of a softswitch.
pub fn call_without_digest(death: Death, opening: Opening) -> Result<Duration> {
    let branch = Branch::raise().context("the lab cannot be raised")?;
    call_without_digest_in(branch, death, opening)
}

/// The same, in a network that was raised before.
///
/// # Errors
/// As [`call_without_digest`].
pub fn call_without_digest_in(branch: Branch, death: Death, opening: Opening) -> Result<Duration> {
    let opening = Opening {
        digest: false,
        ..opening
    };
    let mut office = Office::open_on(branch, &opening)?;
    office.register()?;
    let earlier = office.wire.frames()?.len();
    death.strike(&mut office)?;
    let (from, to) = (office.lan[0].clone(), office.far[0].clone());
    let mut callee = to.answer(&office.branch.far, RING)?;
    let mut caller = from.call(&office.branch.phones, &to.user, TALK)?;
    caller.media(LIMIT)?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let frames = office.wire.frames()?;
    let setup = SetUp::of(&frames[earlier..], &from.address);
    ensure!(
        setup.finals.len() == 1 && setup.finals[0].1 == 200,
        "one final answer: {setup:?}"
    );
    ensure!(setup.transactions.len() == 1, "one transaction: {setup:?}");
    let trying = setup.to_trying.context("no 100 captured")?;
    ensure!(
        trying <= Duration::from_millis(200),
        "100 after {} ms",
        trying.as_millis()
    );
    no_trace_of_the_dead(&frames, &from)?;
    setup.answered_after(0).context("no answer captured")
}

/// Digest: the phone has a challenge of the primary in hand when that dies. Exactly one further
/// challenge, marked stale, so that no user is asked. First byte of the answered challenge to
/// the 200.
///
/// # Errors
/// When the phone saw anything else, or was told the name of a softswitch.
pub fn call_with_digest(death: Death, opening: Opening) -> Result<Duration> {
    let mut office = Office::open(&opening)?;
    office.register()?;
    let earlier = office.wire.frames()?.len();
    let (from, to) = (office.lan[0].clone(), office.far[0].clone());
    let mut callee = to.answer(&office.branch.far, RING)?;
    let mut caller = from.call_thinking(&office.branch.phones, &to.user, TALK, THINK)?;
    challenged(&office, earlier, &from.address)?;
    death.strike(&mut office)?;
    caller.media(LIMIT)?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    let frames = office.wire.frames()?;
    let setup = SetUp::of(&frames[earlier..], &from.address);
    let statuses: Vec<_> = setup.finals.iter().map(|(_, status)| *status).collect();
    ensure!(statuses == [407, 407, 200], "{setup:?}");
    ensure!(
        setup.stale == 1,
        "the further challenge is not stale: {setup:?}"
    );
    no_trace_of_the_dead(&frames, &from)?;
    setup.answered_after(1).context("no answer captured")
}

/// Waits until `phone` was challenged, in what was captured after the first `earlier` frames.
///
/// # Errors
/// When it was not.
pub fn challenged(office: &Office, earlier: usize, phone: &str) -> Result<()> {
    let seen = office.wire.wait_frame(earlier, LIMIT, |frame| {
        let messages = Message::of(std::slice::from_ref(frame), phone);
        messages.iter().any(|message| message.status() == Some(407))
    });
    seen.map(drop)
}

/// Nothing that the phone received names a softswitch, but the one that it speaks to.
fn no_trace_of_the_dead(frames: &[Frame], phone: &Phone) -> Result<()> {
    let messages = Message::of(frames, &phone.address);
    for message in messages.iter().filter(|message| !message.sent) {
        let named = SOFTSWITCHES
            .iter()
            .filter(|address| **address != phone.proxy)
            .any(|address| message.text.contains(address));
        ensure!(!named, "{}", message.text);
    }
    Ok(())
}
