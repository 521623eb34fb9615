//! One server transaction (RFC 3261 section 17.2 with RFC 6026).

use std::{net::SocketAddr, time::Duration};

use super::timers::{Backoff, Clock, Timers};
use crate::{net::ListenerId, time::Now};

/// Where it stands; before the first response `Proceeding` is called Trying for anything but
/// an INVITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Proceeding,
    /// A 2xx to an INVITE went out: further ones pass until timer L.
    Accepted,
    Completed,
    /// The ACK of a non-2xx came: more of them are absorbed until timer I.
    Confirmed,
}

/// A request we received, until it is over.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) invite: bool,
    pub(super) state: State,
    /// Where responses go.
    pub(super) to: SocketAddr,
    pub(super) listener: ListenerId,
    pub(super) clock: Clock,
    /// The last response, to be sent again.
    pub(super) last: Vec<u8>,
    /// It came over a stream: nothing is repeated, and no repetition is waited for.
    stream: bool,
    timers: Timers,
}

impl Server {
    pub(super) fn new(
        now: Now,
        timers: Timers,
        invite: bool,
        to: SocketAddr,
        listener: ListenerId,
        stream: bool,
    ) -> Self {
        let mut clock = Clock::default();
        if !invite {
            // After 64·T1 nobody listens for the answer any more (RFC 4320 section 4.2).
            clock.end_in(now, timers.life(), 'F');
        }
        let (state, last) = (State::Proceeding, Vec::new());
        Self {
            invite,
            state,
            to,
            listener,
            clock,
            last,
            stream,
            timers,
        }
    }

    /// Takes a response of the TU; true when it may go out.
    pub(super) fn respond(&mut self, now: Now, code: u16, bytes: Vec<u8>) -> bool {
        match self.state {
            State::Proceeding if code < 200 => self.last = bytes,
            State::Proceeding if self.invite && code < 300 => {
                // Retransmissions of a 2xx are the far end's and pass through (RFC 6026).
                self.last = Vec::new();
                self.state = State::Accepted;
                self.clock.end_in(now, self.timers.life(), 'L');
            }
            State::Proceeding => self.complete(now, bytes),
            State::Accepted => return (200..300).contains(&code),
            State::Completed | State::Confirmed => return false,
        }
        true
    }

    /// The request came again; true when the last response is due again.
    pub(super) fn is_answered_again(&self) -> bool {
        !self.last.is_empty() && matches!(self.state, State::Proceeding | State::Completed)
    }

    /// The ACK came; true when it belongs to this transaction rather than to a 2xx.
    pub(super) fn ack(&mut self, now: Now) -> bool {
        if self.state == State::Completed {
            self.state = State::Confirmed;
            self.last = Vec::new();
            self.clock.hush();
            self.clock.end_in(now, self.late(self.timers.t4), 'I');
        }
        self.state != State::Accepted
    }

    fn complete(&mut self, now: Now, bytes: Vec<u8>) {
        self.state = State::Completed;
        self.last = bytes;
        let life = self.timers.life();
        if !self.invite {
            self.clock.end_in(now, self.late(life), 'J');
            return;
        }
        if !self.stream {
            self.clock
                .repeat(Backoff::new(now, self.timers.t1, self.timers.t2, 'G'));
        }
        self.clock.end_in(now, life, 'H');
    }

    /// How long what comes late is waited for.
    fn late(&self, datagrams: Duration) -> Duration {
        if self.stream {
            Duration::ZERO
        } else {
            datagrams
        }
    }
}
