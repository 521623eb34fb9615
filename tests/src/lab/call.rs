//! A call between two phones, with media counted at both ends.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::office::LIMIT;
use super::phone::{Leg, Phone};
use super::rtp::{Count, Rtp};
use super::{Node, wait};

/// Nothing is under way longer than this after the last packet was sent.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a phone rings until it is answered.
const RING: Duration = Duration::from_millis(200);

/// A phone and the machine it lives on.
pub type Seat<'a> = (&'a Node, &'a Phone);

/// A call that has been dialled.
pub struct Call {
    /// Who dialled.
    pub caller: Leg,
    /// Who was called.
    pub callee: Leg,
    near: Rtp,
    away: Rtp,
    /// How long the caller stays after the answer.
    talk: Duration,
}

impl Call {
    /// Dials. The caller hangs up after `talk`, counted from the answer.
    ///
    /// # Errors
    /// When a phone does not start.
    pub fn dial(from: Seat<'_>, to: Seat<'_>, talk: Duration) -> Result<Self> {
        Self::dial_ringing(from, to, RING, talk)
    }

    /// The same, with a callee that rings for `ring` before it answers.
    ///
    /// # Errors
    /// When a phone does not start.
    pub fn dial_ringing(
        from: Seat<'_>,
        to: Seat<'_>,
        ring: Duration,
        talk: Duration,
    ) -> Result<Self> {
        Self::between(from, to, talk, || {
            let callee = to.1.answer(to.0, ring)?;
            Ok((from.1.call(from.0, &to.1.user, talk)?, callee))
        })
    }

    /// Dials a call in which either side renews the session, the caller after `talk`, and the
    /// callee hangs up.
    ///
    /// # Errors
    /// When a phone does not start.
    pub fn dial_renewing(from: Seat<'_>, to: Seat<'_>, talk: Duration) -> Result<Self> {
        Self::between(from, to, talk, || {
            let callee = to.1.answer_renewing(to.0, RING)?;
            Ok((from.1.call_renewing(from.0, &to.1.user, talk)?, callee))
        })
    }

    /// Media first: SIPp takes ports of that range for itself, and makes way.
    fn between(
        from: Seat<'_>,
        to: Seat<'_>,
        talk: Duration,
        legs: impl FnOnce() -> Result<(Leg, Leg)>,
    ) -> Result<Self> {
        let near = Rtp::listen(from.0, &from.1.media())?;
        let away = Rtp::listen(to.0, &to.1.media())?;
        let (caller, callee) = legs()?;
        Ok(Self {
            caller,
            callee,
            near,
            away,
            talk,
        })
    }

    /// Waits until it is answered, and starts media both ways, to where the other's SDP says.
    ///
    /// # Errors
    /// When it is not answered.
    pub fn talk(&mut self) -> Result<()> {
        self.near.send_to(self.caller.media(LIMIT)?)?;
        self.away.send_to(self.callee.media(LIMIT)?)
    }

    /// Waits until media has flowed for `time` in all, both ways.
    ///
    /// # Errors
    /// When it has not, long after.
    pub fn heard_for(&self, time: Duration) -> Result<()> {
        let packets = u64::try_from(time.as_millis() / 20)?;
        let limit = time + LIMIT;
        self.near.wait_received(packets, limit)?;
        self.away.wait_received(packets, limit)
    }

    /// Waits until media has flowed for `time` more, both ways.
    ///
    /// # Errors
    /// As [`Self::heard_for`].
    pub fn heard_again(&self, time: Duration) -> Result<()> {
        let packets = u64::try_from(time.as_millis() / 20)?;
        let limit = time + LIMIT;
        let (near, away) = self.count();
        self.near.wait_received(near.received + packets, limit)?;
        self.away.wait_received(away.received + packets, limit)
    }

    /// Ends sending at both ends, and waits for what is under way. What the caller's end and
    /// the callee's end counted.
    pub fn silence(&mut self) -> (Count, Count) {
        self.near.stop_sending();
        self.away.stop_sending();
        let _ = wait::until("all has come", SETTLE, || {
            let (near, away) = self.count();
            (near.received >= away.sent && away.received >= near.sent).then_some(())
        });
        self.count()
    }

    /// Counts so far: at the caller's end, at the callee's.
    #[must_use]
    pub fn count(&self) -> (Count, Count) {
        (self.near.count(), self.away.count())
    }

    /// Waits until both phones have ended the call in order.
    ///
    /// # Errors
    /// When one has not.
    pub fn done(&mut self) -> Result<()> {
        self.caller.done(self.talk + LIMIT)?;
        self.callee.done(LIMIT).map(drop)
    }
}

/// Each end received exactly what the other sent, in order; the sum of both.
///
/// # Errors
/// When packets were lost, doubled or reordered.
pub fn whole((near, away): (Count, Count)) -> Result<u64> {
    let all = near.received == away.sent && away.received == near.sent;
    ensure!(all, "media was lost or doubled: {near:?} {away:?}");
    ensure!(
        near.strange + away.strange == 0,
        "media out of order: {near:?} {away:?}"
    );
    Ok(near.received + away.received)
}
