//! What a phone's mouth and its ear share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use keepline_engine::net::Transport;

use super::super::dialog;
use super::super::kamailio::password;
use super::super::sip::Message;
use super::state::State;
use super::wire::Wire;
use super::{Seat, auth};

pub(super) struct Core {
    pub(super) seat: Seat,
    pub(super) wire: Wire,
    pub(super) state: Mutex<State>,
    pub(super) news: Condvar,
    pub(super) stop: AtomicBool,
    pub(super) number: AtomicU32,
}

impl Core {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> u32 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Names this phone among those of its address of record.
    pub(super) fn name(&self) -> String {
        format!("{}p{}", self.seat.user, self.seat.media)
    }

    pub(super) fn contact(&self) -> String {
        let Seat { user, at, over, .. } = &self.seat;
        format!("sip:c-{user}@{at}{}", over.uri_param())
    }

    pub(super) fn branch(&self) -> String {
        // The last letter: no branch is the beginning of another.
        format!("z9hG4bK{}n{}e", self.name(), self.count())
    }

    pub(super) fn via(&self, branch: &str) -> String {
        let Seat { at, over, .. } = &self.seat;
        format!("Via: SIP/2.0/{} {at};branch={branch};rport\r\n", over.via())
    }

    /// Acknowledges what refuses an INVITE, and answers a first challenge: whether nobody else
    /// need see it.
    fn refused(&self, answer: &Message) -> bool {
        let Some((request, challenged)) = self.lock().refused(answer) else {
            return false;
        };
        if request.starts_with("INVITE") {
            self.wire.send(&dialog::ack_of_failure(&request, answer));
        }
        let user = &self.seat.user;
        let branch = self.branch();
        let again = auth::again(&request, answer, (user, &password(user)), &branch);
        let Some(again) = again.filter(|_| challenged) else {
            return false;
        };
        self.wire.send(&again);
        self.lock().authorized(answer, branch, again);
        true
    }

    pub(super) fn read(&self) {
        let mut wire = self.wire.reader();
        while !self.stop.load(Ordering::Relaxed) {
            for text in wire.read() {
                let mut ear = self.seat.ear.lock().unwrap_or_else(PoisonError::into_inner);
                ear.push(text.clone());
                drop(ear);
                let message = Message::received(text);
                if self.refused(&message) {
                    continue;
                }
                let again = self.lock().take_in(message);
                self.news.notify_all();
                if let Some((again, to)) = again {
                    self.wire.send_back(&again, to);
                }
            }
            if self.seat.over == Transport::Udp {
                let due = self.lock().due(Instant::now());
                due.iter()
                    .for_each(|(text, to)| self.wire.send_back(text, *to));
            }
        }
    }
}
