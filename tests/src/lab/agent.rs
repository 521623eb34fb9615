//! A phone of our own: one thread that listens and answers, requests that are repeated as
//! RFC 3261 says and timed. SIPp plays a scenario; this one does what a test tells it, when it
//! tells it, and goes on where a gateway died in between.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::Node;
use super::dialog::{self, Dialog};
use super::kamailio::DOMAIN;
use super::sip::Message;

/// RFC 3261 section 17: T1, T2, and how long a request is tried.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const LIFE: Duration = Duration::from_secs(32);
/// The reader looks at its timers this often.
const GRAIN: Duration = Duration::from_millis(50);

/// A final answer, and what it took.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The response.
    pub message: Message,
    /// Since the first byte of the request.
    pub took: Duration,
    /// How often the request was sent.
    pub sent: u32,
}

impl Answer {
    /// Its status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.message.status().unwrap_or(0)
    }

    /// Asks for a status.
    ///
    /// # Errors
    /// When it is another; the message quotes the response.
    pub fn is(self, status: u16) -> Result<Self> {
        ensure!(self.status() == status, "{}", self.message.text);
        Ok(self)
    }
}

/// The phone. It answers every call at once, and every other request with 200.
pub struct Agent {
    core: Arc<Core>,
    reader: Option<JoinHandle<()>>,
}

struct Core {
    user: String,
    domain: String,
    at: SocketAddr,
    proxy: SocketAddr,
    socket: UdpSocket,
    state: Mutex<State>,
    news: Condvar,
    stop: AtomicBool,
    number: AtomicU32,
}

#[derive(Default)]
struct State {
    answers: Vec<Message>,
    /// Calls that others made, by Call-ID.
    taken: HashMap<String, Dialog>,
    /// 200s to INVITEs that wait for their ACK.
    unacked: Vec<Unacked>,
    /// ACKs that were sent: repeated when their 200 is.
    acks: HashMap<(String, u32), String>,
    /// Call-IDs that the peer hung up.
    ended: Vec<String>,
    /// Answered calls that never saw their ACK.
    given_up: Vec<String>,
}

struct Unacked {
    call_id: String,
    text: String,
    since: Instant,
    next: Instant,
    pause: Duration,
}

impl Agent {
    /// A phone of `user` at `address`, port 5060, which sends everything to `proxy`.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn new(node: &Node, user: &str, address: &str, proxy: &str) -> Result<Self> {
        Self::of_domain(DOMAIN, node, user, address, proxy)
    }

    /// The same in a domain of its own.
    ///
    /// # Errors
    /// As [`Agent::new`].
    pub fn of_domain(
        domain: &str,
        node: &Node,
        user: &str,
        address: &str,
        proxy: &str,
    ) -> Result<Self> {
        let socket = node.udp(&format!("{address}:5060"))?;
        socket.set_read_timeout(Some(GRAIN))?;
        let core = Arc::new(Core {
            user: user.to_owned(),
            domain: domain.to_owned(),
            at: socket.local_addr()?,
            proxy: format!("{proxy}:5060").parse()?,
            socket,
            state: Mutex::default(),
            news: Condvar::new(),
            stop: AtomicBool::new(false),
            number: AtomicU32::new(1),
        });
        let reader = thread::spawn({
            let core = Arc::clone(&core);
            move || core.read()
        });
        Ok(Self {
            core,
            reader: Some(reader),
        })
    }

    /// User part of its address of record.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.core.user
    }

    /// Where it sends and takes RTP.
    #[must_use]
    pub fn media(&self) -> String {
        format!("{}:{}", self.core.at.ip(), dialog::MEDIA)
    }

    /// Registers, or refreshes.
    ///
    /// # Errors
    /// When there is no final answer.
    pub fn register(&self, expires: u32) -> Result<Answer> {
        let contact = format!("<sip:{}@{}>", self.core.user, self.core.at);
        self.register_as(
            &self.core.user,
            &contact,
            &format!("Expires: {expires}\r\n"),
        )
    }

    /// A REGISTER for any user, with any Contact and headers.
    ///
    /// # Errors
    /// When there is no final answer.
    pub fn register_as(&self, user: &str, contact: &str, extra: &str) -> Result<Answer> {
        let core = &self.core;
        let domain = &core.domain;
        let (number, branch) = core.branch();
        let text = format!(
            "REGISTER sip:{domain} SIP/2.0\r\n{}Max-Forwards: 70\r\n\
             From: <sip:{user}@{domain}>;tag=r{number}\r\nTo: <sip:{user}@{domain}>\r\n\
             Call-ID: reg-{}\r\nCSeq: {number} REGISTER\r\nContact: {contact}\r\n{extra}\
             Content-Length: 0\r\n\r\n",
            core.via(&branch),
            core.at,
        );
        core.transact(&text, &branch, LIFE)
    }

    /// Calls, and acknowledges the 200.
    ///
    /// # Errors
    /// When the call is refused, or there is no final answer within `limit`.
    pub fn call(&self, to: &str, extra: &str, limit: Duration) -> Result<(Dialog, Answer)> {
        let core = &self.core;
        let domain = &core.domain;
        let (number, branch) = core.branch();
        // No address in it: the gateway writes the same on both sides, and tests find it again.
        let call_id = format!("c{number}-{}@lab.test", core.user);
        let text = format!(
            "INVITE sip:{to}@{domain} SIP/2.0\r\n{}Max-Forwards: 70\r\n\
             From: <sip:{}@{domain}>;tag=t{number}\r\nTo: <sip:{to}@{domain}>\r\n\
             Call-ID: {call_id}\r\nCSeq: 1 INVITE\r\nContact: <sip:{}@{}>\r\n{extra}{}",
            core.via(&branch),
            core.user,
            core.user,
            core.at,
            dialog::body(core.at, dialog::MEDIA),
        );
        let answer = core.transact(&text, &branch, limit)?.is(200)?;
        let dialog = Dialog::of_answer(&answer.message)?;
        core.ack(&dialog, 1)?;
        Ok((dialog, answer))
    }

    /// A re-INVITE with media at `port`, acknowledged when it is accepted.
    ///
    /// # Errors
    /// When there is no final answer.
    pub fn reinvite(&self, dialog: &mut Dialog, port: u16, extra: &str) -> Result<Answer> {
        let core = &self.core;
        let head = format!("Contact: <sip:{}@{}>\r\n{extra}", core.user, core.at);
        let tail = format!("{head}{}", dialog::body(core.at, port));
        let answer = core.follow(dialog, "INVITE", &tail)?;
        if answer.status() == 200 {
            core.ack(dialog, dialog.cseq)?;
        }
        Ok(answer)
    }

    /// Hangs up.
    ///
    /// # Errors
    /// When there is no final answer.
    pub fn bye(&self, dialog: &mut Dialog) -> Result<Answer> {
        self.core.follow(dialog, "BYE", "Content-Length: 0\r\n\r\n")
    }

    /// The call that somebody made to this phone.
    ///
    /// # Errors
    /// When there is none of that Call-ID.
    pub fn taken(&self, call_id: &str) -> Result<Dialog> {
        let found = self.core.lock().taken.get(call_id).cloned();
        found.with_context(|| format!("{} took no call {call_id}", self.core.user))
    }

    /// Calls that the peer hung up, and those that this phone answered and that saw no ACK in
    /// time.
    #[must_use]
    pub fn ended(&self) -> (Vec<String>, Vec<String>) {
        let state = self.core.lock();
        (state.ended.clone(), state.given_up.clone())
    }

    /// How many answers of this phone wait for their ACK.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.core.lock().unacked.len()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.core.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn branch(&self) -> (u32, String) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        // The last letter: no branch is the beginning of another.
        (number, format!("z9hG4bK{}n{number}e", self.user))
    }

    fn via(&self, branch: &str) -> String {
        format!("Via: SIP/2.0/UDP {};branch={branch};rport\r\n", self.at)
    }

    fn send(&self, text: &str) {
        // An ICMP error of an earlier datagram is no failure of this one.
        if self.socket.send_to(text.as_bytes(), self.proxy).is_err() {
            let _ = self.socket.send_to(text.as_bytes(), self.proxy);
        }
    }

    /// Sends a request of a dialog; `tail` is what follows CSeq.
    fn follow(&self, dialog: &mut Dialog, method: &str, tail: &str) -> Result<Answer> {
        dialog.cseq += 1;
        let (_, branch) = self.branch();
        let text = dialog.request(method, dialog.cseq, &self.via(&branch), tail);
        self.transact(&text, &branch, LIFE)
    }

    fn ack(&self, dialog: &Dialog, cseq: u32) -> Result<()> {
        let (_, branch) = self.branch();
        let text = dialog.request("ACK", cseq, &self.via(&branch), "Content-Length: 0\r\n\r\n");
        self.send(&text);
        let key = (dialog.call_id.clone(), cseq);
        self.lock().acks.insert(key, text);
        Ok(())
    }

    /// Repeats a request until its final answer (RFC 3261 section 17.1).
    fn transact(&self, text: &str, branch: &str, limit: Duration) -> Result<Answer> {
        let invite = text.starts_with("INVITE");
        let start = Instant::now();
        let (mut next, mut pause, mut sent) = (start, T1, 0);
        let mut state = self.lock();
        loop {
            let mine = |message: &&Message| message.text.contains(branch);
            let provisional = state.answers.iter().filter(mine).count() > 0;
            let done = |message: &&Message| mine(message) && message.status() >= Some(200);
            if let Some(found) = state.answers.iter().find(done).cloned() {
                state.answers.retain(|message| !mine(&message));
                drop(state);
                if invite && found.status() >= Some(300) {
                    self.send(&dialog::ack_of_failure(text, &found));
                }
                let took = start.elapsed();
                return Ok(Answer {
                    message: found,
                    took,
                    sent,
                });
            }
            let now = Instant::now();
            if now >= start + limit {
                bail!("{} got no final answer to\n{text}", self.user);
            }
            if now >= next && !(invite && provisional) {
                self.send(text);
                sent += 1;
                next = now + pause;
                pause = if invite {
                    pause * 2
                } else {
                    (pause * 2).min(T2)
                };
            }
            let left = next.min(start + limit).saturating_duration_since(now);
            let left = left.clamp(Duration::from_millis(1), GRAIN);
            let woken = self.news.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn read(&self) {
        let mut datagram = [0; 4096];
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = self.socket.recv_from(&mut datagram) {
                let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
                let message = Message::received(text);
                if message.status().is_some() {
                    self.response(message);
                } else if message.method().is_some() {
                    self.request(&message, from);
                }
            }
            self.repeat();
        }
    }

    fn response(&self, message: Message) {
        let mut state = self.lock();
        if let (Some(200), Some((cseq, "INVITE"))) = (message.status(), message.cseq()) {
            let call_id = message.header("Call-ID").unwrap_or_default().to_owned();
            if let Some(ack) = state.acks.get(&(call_id, cseq)) {
                self.send(ack);
                return;
            }
        }
        state.answers.push(message);
        self.news.notify_all();
    }

    fn request(&self, message: &Message, from: SocketAddr) {
        let call_id = message.header("Call-ID").unwrap_or_default().to_owned();
        let mut state = self.lock();
        match message.method() {
            Some("ACK") => state.unacked.retain(|waiting| waiting.call_id != call_id),
            Some("INVITE") => {
                let contact = format!("<sip:{}@{}>", self.user, self.at);
                let text = dialog::accept(message, &self.user, &contact, self.at);
                let _ = self.socket.send_to(text.as_bytes(), from);
                if let Ok(dialog) = Dialog::of_offer(message, &self.user) {
                    state.taken.entry(call_id.clone()).or_insert(dialog);
                }
                let now = Instant::now();
                state.unacked.retain(|waiting| waiting.call_id != call_id);
                state.unacked.push(Unacked {
                    call_id,
                    text,
                    since: now,
                    next: now + T1,
                    pause: T1,
                });
            }
            method => {
                if method == Some("BYE") {
                    // Over: an answer that still waits for its ACK is repeated no more.
                    state.unacked.retain(|waiting| waiting.call_id != call_id);
                    state.ended.push(call_id);
                }
                let text = dialog::agree(message, &self.user);
                let _ = self.socket.send_to(text.as_bytes(), from);
            }
        }
    }

    /// A 200 to an INVITE is repeated until its ACK comes (RFC 3261 section 13.3.1.4).
    fn repeat(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        for waiting in &mut state.unacked {
            if now >= waiting.next {
                self.send(&waiting.text);
                waiting.pause = (waiting.pause * 2).min(T2);
                waiting.next = now + waiting.pause;
            }
        }
        let late = |waiting: &Unacked| now.duration_since(waiting.since) >= LIFE;
        let given_up: Vec<_> = state.unacked.iter().filter(|w| late(w)).collect();
        let given_up: Vec<_> = given_up.iter().map(|w| w.call_id.clone()).collect();
        state.unacked.retain(|waiting| !late(waiting));
        state.given_up.extend(given_up);
    }
}
