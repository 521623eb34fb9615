//! A request under way.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::super::dialog::Dialog;
use super::super::sip::Message;
use super::{Core, NO_BODY};

/// A request that was sent, and its answers as they come.
pub struct Ask {
    core: Arc<Core>,
    /// The branch that it was first sent with.
    first: String,
}

impl Ask {
    pub(super) fn send(core: &Arc<Core>, text: String, branch: String) -> Self {
        // First remembered: its answer may be here before this thread goes on.
        core.lock().asked(branch.clone(), text.clone());
        core.wire.send(&text);
        Self {
            core: Arc::clone(core),
            first: branch,
        }
    }

    /// Waits for a response with this status. Others that are provisional pass by; a first
    /// challenge is answered by the phone itself.
    ///
    /// # Errors
    /// When another final response comes, or none.
    pub fn sees(&self, status: u16, limit: Duration) -> Result<Message> {
        let deadline = Instant::now() + limit;
        loop {
            let answer = self.next(status, deadline)?;
            let found = answer.status().unwrap_or_default();
            if found == status {
                return Ok(answer);
            }
            ensure!(found < 200, "{}: not {status} but {}", self, answer.text);
        }
    }

    /// Waits for the 200 to an INVITE or SUBSCRIBE: the dialog it made.
    ///
    /// # Errors
    /// As [`Self::sees`].
    pub fn dialog(&self, limit: Duration) -> Result<Dialog> {
        Dialog::of_answer(&self.sees(200, limit)?)
    }

    /// The dialog that one of its answers made, an early one too.
    ///
    /// # Errors
    /// When the answer makes none.
    pub fn answered(&self, answer: &Message) -> Result<Dialog> {
        Dialog::of_answer(answer)
    }

    /// Cancels the INVITE, whose CANCEL is answered with 200, itself with 487.
    ///
    /// # Errors
    /// When they are not.
    pub fn cancel(&self, limit: Duration) -> Result<()> {
        let invite = self.text();
        let head = invite.split("\r\n\r\n").next().unwrap_or_default();
        let kept = ["Via:", "Max-Forwards:", "From:", "To:", "Call-ID:"];
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        let mut text = first.replacen("INVITE", "CANCEL", 1) + "\r\n";
        for line in lines {
            if kept.iter().any(|name| line.starts_with(name)) {
                text += &format!("{line}\r\n");
            } else if line.starts_with("CSeq:") {
                text += &(line.replace("INVITE", "CANCEL") + "\r\n");
            }
        }
        text += NO_BODY;
        self.core.wire.send(&text);
        // Both have the same branch: CSeq tells them apart.
        let deadline = Instant::now() + limit;
        let (mut cancelled, mut ended) = (false, false);
        while !(cancelled && ended) {
            let answer = self.next(487, deadline)?;
            match (answer.status(), answer.cseq()) {
                (Some(200), Some((_, "CANCEL"))) => cancelled = true,
                (Some(487), Some((_, "INVITE"))) => ended = true,
                (Some(100..=199), _) => {}
                _ => bail!("{self}: cancelled, but {}", answer.text),
            }
        }
        Ok(())
    }

    /// The request as it was sent last.
    fn text(&self) -> String {
        self.core.lock().text_of(&self.first)
    }

    fn next(&self, status: u16, deadline: Instant) -> Result<Message> {
        let mut state = self.core.lock();
        loop {
            if let Some(found) = state.take_answer(&self.first) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seen = format!("{:?}", state.starts());
                drop(state);
                bail!("{self}: no {status} within its time; {seen}");
            }
            let woken = self.core.news.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text();
        let first = text.lines().next().unwrap_or_default();
        write!(out, "{} of {}", first, self.core.seat.user)
    }
}
