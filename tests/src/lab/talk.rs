//! A call between two phones of our own with media that is counted at both ends: it lasts until
//! a test ends it, whatever becomes of the gateway meanwhile.

use std::time::Duration;

use anyhow::Result;

use super::agent::{Agent, Answer};
use super::call::whole;
use super::dialog::Dialog;
use super::office::LIMIT;
use super::rtp::{Count, Rtp};
use super::{Node, wait};

/// Nothing is under way longer than this after the last packet was sent.
const SETTLE: Duration = Duration::from_secs(2);

/// A phone and the machine it lives on.
pub type Seat<'a> = (&'a Node, &'a Agent);

/// A call that is up, with media both ways.
pub struct Talk {
    /// The caller's side.
    pub dialog: Dialog,
    near: Rtp,
    away: Rtp,
}

impl Talk {
    /// Calls, and sends a packet every `pace` from both ends, to where the other's SDP says.
    ///
    /// # Errors
    /// When the call is not answered.
    pub fn begin(from: Seat<'_>, to: Seat<'_>, pace: Duration, extra: &str) -> Result<Self> {
        let mut near = Rtp::listen(from.0, &from.1.media())?;
        let mut away = Rtp::listen(to.0, &to.1.media())?;
        let (dialog, _) = from.1.call(to.1.user(), extra, LIMIT)?;
        let theirs = to.1.taken(&dialog.call_id)?;
        near.send_every(dialog.peer_media, pace)?;
        away.send_every(theirs.peer_media, pace)?;
        Ok(Self { dialog, near, away })
    }

    /// Counts so far: at the caller's end, at the callee's.
    #[must_use]
    pub fn count(&self) -> (Count, Count) {
        (self.near.count(), self.away.count())
    }

    /// Waits until each end has heard this many packets more.
    ///
    /// # Errors
    /// When they do not come.
    pub fn hear(&self, packets: u64) -> Result<()> {
        let (near, away) = self.count();
        // G.711 has 50 packets a second; slower talk does not exist here.
        let limit = LIMIT + Duration::from_millis(20) * u32::try_from(packets)?;
        self.near.wait_received(near.received + packets, limit)?;
        self.away.wait_received(away.received + packets, limit)
    }

    /// The caller goes on with another SSRC, to where it sent before.
    ///
    /// # Errors
    /// When its socket cannot be shared.
    pub fn change_ssrc(&mut self, pace: Duration) -> Result<()> {
        self.near.stop_sending();
        self.near.send_every(self.dialog.peer_media, pace)
    }

    /// Ends sending, and waits for what is under way.
    pub fn silence(&mut self) -> (Count, Count) {
        self.near.stop_sending();
        self.away.stop_sending();
        let _ = wait::until("all has come", SETTLE, || whole(self.count()).ok());
        self.count()
    }

    /// Ends sending and hangs up: how many packets came, when none was lost.
    ///
    /// # Errors
    /// When packets were lost, or the BYE fails.
    pub fn end(mut self, caller: &Agent) -> Result<(u64, Answer)> {
        let packets = whole(self.silence())?;
        let answer = caller.bye(&mut self.dialog)?.is(200)?;
        Ok((packets, answer))
    }
}
