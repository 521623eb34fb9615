//! One client transaction (RFC 3261 section 17.1 with RFC 6026).

use std::{net::SocketAddr, time::Duration};

use super::{
    Received,
    timers::{Backoff, Clock, Timers},
};
use crate::{
    net::ListenerId,
    sip::{Message, Method, ack_for},
    time::Now,
};

/// Where it stands; `Trying` is called Calling for an INVITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Trying,
    Proceeding,
    /// A 2xx to an INVITE came: further ones pass until timer M.
    Accepted,
    Completed,
}

/// A request we sent, until it is over.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) method: Method,
    pub(super) state: State,
    pub(super) to: SocketAddr,
    pub(super) listener: ListenerId,
    pub(super) clock: Clock,
    /// What is sent again: the request, then the ACK of an INVITE's final response.
    pub(super) bytes: Vec<u8>,
    /// It went over a stream: nothing is repeated, and nothing late is waited for.
    stream: bool,
    /// It was sent over a second connection already.
    sent_anew: bool,
    /// Nobody waits for it any more: bounded even while Proceeding.
    abandoned: bool,
    timers: Timers,
}

impl Client {
    pub(super) fn new(
        now: Now,
        timers: Timers,
        method: Method,
        bytes: Vec<u8>,
        to: SocketAddr,
        listener: ListenerId,
        stream: bool,
    ) -> Self {
        let mut clock = Clock::default();
        let (again, cap, end) = match method {
            Method::Invite => ('A', Duration::MAX, 'B'),
            _ => ('E', timers.t2, 'F'),
        };
        if !stream {
            clock.repeat(Backoff::new(now, timers.t1, cap, again));
        }
        clock.end_in(now, timers.life(), end);
        let state = State::Trying;
        Self {
            method,
            state,
            to,
            listener,
            clock,
            bytes,
            stream,
            sent_anew: false,
            abandoned: false,
            timers,
        }
    }

    /// Its connection is gone: whether it is to be sent over a new one, which is tried once.
    pub(super) fn lost_connection(&mut self) -> bool {
        let again = self.is_unanswered() && !self.abandoned && !self.sent_anew;
        self.sent_anew |= again;
        again
    }

    /// No answer came in time: timers B and F, not those that merely end a finished one.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.state, State::Trying | State::Proceeding)
    }

    /// Sends no more; what is still open ends after 64·T1.
    pub(super) fn abandon(&mut self, now: Now) {
        self.abandoned = true;
        if self.is_unanswered() {
            self.clock.hush();
        }
        if !self.clock.ends() {
            self.clock.end_in(now, self.timers.life(), 'B');
        }
    }

    /// Takes a response; true when [`bytes`](Self::bytes), then an ACK, must go out.
    pub(super) fn response(&mut self, now: Now, msg: &Message) -> (Received, bool) {
        let code = msg.status().unwrap_or_default();
        match (self.method, self.state, code) {
            (_, State::Trying | State::Proceeding, 0..200) => {
                self.provisional(now);
                (Received::Provisional, false)
            }
            (Method::Invite, State::Trying | State::Proceeding, 200..300) => {
                self.accept(now);
                (Received::Final, false)
            }
            // Each 2xx needs its ACK, which is the TU's; one behind another final response is a
            // fork's, or a server's whose mind changed.
            (Method::Invite, _, 200..300) => (Received::Final, false),
            (Method::Invite, State::Trying | State::Proceeding, _) => {
                let acked = self.refused(now, msg);
                (Received::Final, acked)
            }
            (Method::Invite, State::Completed, 300..) => (Received::Retransmitted, self.has_ack()),
            (_, State::Trying | State::Proceeding, _) => {
                self.complete(now);
                (Received::Final, false)
            }
            _ => (Received::Retransmitted, false),
        }
    }

    fn provisional(&mut self, now: Now) {
        let first = self.state == State::Trying;
        self.state = State::Proceeding;
        if self.method != Method::Invite {
            self.clock.slow_down(self.timers.t2);
            return;
        }
        self.clock.hush();
        if !self.abandoned {
            // Ringing takes as long as it takes: timer C is the TU's.
            self.clock.endless();
        } else if first {
            self.clock.end_in(now, self.timers.life(), 'B');
        }
    }

    /// From here only time passes: the request is not needed any more.
    fn accept(&mut self, now: Now) {
        self.state = State::Accepted;
        self.bytes = Vec::new();
        self.clock.hush();
        self.clock.end_in(now, self.timers.life(), 'M');
    }

    /// Turns the INVITE's bytes into those of its ACK.
    fn refused(&mut self, now: Now, msg: &Message) -> bool {
        self.state = State::Completed;
        self.clock.hush();
        // At least 32 s over UDP, whatever T1 is.
        let wait = self.timers.life().max(Duration::from_secs(32));
        self.clock.end_in(now, self.late(wait), 'D');
        let invite = Message::parse(std::mem::take(&mut self.bytes)).ok();
        self.bytes = invite
            .map(|invite| ack_for(&invite, msg))
            .unwrap_or_default();
        self.has_ack()
    }

    fn complete(&mut self, now: Now) {
        self.state = State::Completed;
        self.bytes = Vec::new();
        self.clock.hush();
        self.clock.end_in(now, self.late(self.timers.t4), 'K');
    }

    /// How long what comes late is waited for.
    fn late(&self, datagrams: Duration) -> Duration {
        if self.stream {
            Duration::ZERO
        } else {
            datagrams
        }
    }

    fn has_ack(&self) -> bool {
        !self.bytes.is_empty()
    }
}
