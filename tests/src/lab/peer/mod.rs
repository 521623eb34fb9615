//! A phone that a test plays by hand, line by line, over UDP, TCP or TLS: what it sends, what it
//! waits for, what it answers. Retransmissions, challenges and ACKs of refusals it does itself.

mod ask;
mod auth;
mod core;
mod follow;
mod sdp;
mod state;
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use keepline_engine::net::Transport;

use core::Core;

pub use ask::Ask;
pub use follow::{Invitation, referred};
pub use sdp::{Direction, direction_of};
pub use wire::{Tls, trusting};

use super::Node;
use super::dialog::{self, Dialog};
use super::rtp::Rtp;
use super::sip::Message;
use wire::Wire;

/// Every message that the phones of one side received.
pub type Ear = Arc<Mutex<Vec<String>>>;

/// Who a phone is, and how it speaks.
#[derive(Clone)]
pub struct Seat {
    /// User part of its address of record.
    pub user: String,
    /// Host part, as it writes it in requests: its softswitch's domain, or its proxy's address.
    pub home: String,
    /// Where it lives; over UDP that is its socket.
    pub at: SocketAddr,
    /// Where it sends and takes RTP. No two phones have the same port: it names the speaker.
    pub media: u16,
    /// Where it sends everything.
    pub proxy: SocketAddr,
    /// What over.
    pub over: Transport,
    /// Whom it trusts; needed for TLS.
    pub tls: Option<Tls>,
    /// Where all that it receives is written down.
    pub ear: Ear,
}

/// The phone. Dropping it closes its socket.
pub struct Peer {
    core: Arc<Core>,
    reader: Option<JoinHandle<()>>,
}

impl Peer {
    /// A phone that is there, and not registered.
    ///
    /// # Errors
    /// When its address is taken, or nobody takes its connection.
    pub fn new(node: &Node, seat: Seat) -> Result<Self> {
        let core = Arc::new(Core {
            wire: Wire::open(node, &seat)
                .with_context(|| format!("{} cannot speak {:?}", seat.user, seat.over))?,
            seat,
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
        &self.core.seat.user
    }

    /// URI of a user, as this phone dials it.
    #[must_use]
    pub fn uri_of(&self, user: &str) -> String {
        format!("sip:{user}@{}", self.core.seat.home)
    }

    /// Its Contact URI, whose user part is no address of record.
    #[must_use]
    pub fn contact(&self) -> String {
        self.core.contact()
    }

    /// Where it sends and takes RTP.
    #[must_use]
    pub fn media(&self) -> SocketAddr {
        SocketAddr::new(self.core.seat.at.ip(), self.core.seat.media)
    }

    /// Opens its ear and mouth for RTP.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn voice(&self, node: &Node) -> Result<Rtp> {
        Rtp::listen(node, &self.media().to_string())
    }

    /// A session description of this phone.
    #[must_use]
    pub fn sdp(&self, direction: Direction) -> String {
        let version = self.core.number.fetch_add(1, Ordering::Relaxed);
        sdp::body(self.media(), direction, version)
    }

    /// The same that names no address to send to: hold as of old (RFC 3264 section 8.4).
    #[must_use]
    pub fn sdp_without_address(&self) -> String {
        let ip = self.core.seat.at.ip().to_string();
        self.sdp(Direction::SendRecv)
            .replace(&format!("c=IN IP4 {ip}"), "c=IN IP4 0.0.0.0")
    }

    /// Registers a Contact for a time; 0 takes it back.
    ///
    /// # Errors
    /// When the answer is not 200.
    pub fn register_as(&self, contact: &str, expires: u32) -> Result<Message> {
        self.register_with(&format!("<{contact}>"), expires, "")
    }

    /// Registers a flow of the phone with this instance (RFC 5626 section 4.2).
    ///
    /// # Errors
    /// As [`Self::register_as`].
    pub fn register_flow(&self, instance: &str, flow: u32) -> Result<Message> {
        let contact = format!(
            "<{};ob>;reg-id={flow};+sip.instance=\"<{instance}>\"",
            self.contact()
        );
        self.register_with(&contact, 3600, "Supported: path, outbound\r\n")
    }

    fn register_with(&self, contact: &str, expires: u32, extra: &str) -> Result<Message> {
        let core = &self.core;
        let (user, home) = (&core.seat.user, &core.seat.home);
        let head = format!(
            "From: <sip:{user}@{home}>;tag=r{user}\r\nTo: <sip:{user}@{home}>\r\n\
             Call-ID: reg-{user}@{}\r\nCSeq: {} REGISTER\r\nContact: {contact}\r\n\
             Expires: {expires}\r\n{extra}",
            core.seat.at.ip(),
            core.count(),
        );
        let ask = self.ask("REGISTER", &format!("sip:{home}"), &head, "");
        ask.sees(200, LIMIT)
    }

    /// Registers its own Contact for an hour.
    ///
    /// # Errors
    /// As [`Self::register_as`].
    pub fn register(&self) -> Result<Message> {
        self.register_as(&self.contact(), 3600)
    }

    /// Sends a request outside of any dialog to `uri`, with a Contact. `body` is its type and
    /// text; `extra` are whole lines.
    #[must_use]
    pub fn begin(&self, method: &str, uri: &str, extra: &str, body: Option<(&str, &str)>) -> Ask {
        let core = &self.core;
        let (user, home, number) = (&core.seat.user, &core.seat.home, core.count());
        // The Call-ID names an address, as many phones' do.
        let head = format!(
            "From: \"{user}\" <sip:{user}@{home}>;tag=t{number}{user}\r\nTo: <{uri}>\r\n\
             Call-ID: c{number}-{user}@{}\r\nCSeq: {} {method}\r\nContact: <{}>\r\n{extra}",
            core.seat.at.ip(),
            core.count(),
            core.contact(),
        );
        self.ask(method, uri, &head, &with_body(body))
    }

    /// Sends an INVITE with an offer.
    #[must_use]
    pub fn invite(&self, uri: &str, extra: &str) -> Ask {
        let offer = self.sdp(Direction::SendRecv);
        self.begin("INVITE", uri, extra, Some((SDP, &offer)))
    }

    /// Sends a request inside a dialog.
    #[must_use]
    pub fn within(
        &self,
        dialog: &mut Dialog,
        method: &str,
        extra: &str,
        body: Option<(&str, &str)>,
    ) -> Ask {
        dialog.cseq = dialog.cseq.max(self.core.count()) + 1;
        let tail = format!(
            "Contact: <{}>\r\n{extra}{}",
            self.contact(),
            with_body(body)
        );
        let branch = self.core.branch();
        let text = dialog.request(method, dialog.cseq, &self.core.via(&branch), &tail);
        Ask::send(&self.core, text, branch)
    }

    /// Acknowledges a 200 to an INVITE of this dialog.
    pub fn ack(&self, dialog: &Dialog) {
        self.ack_with(dialog, None);
    }

    /// The same with the answer to an offer that came in the 200.
    pub fn ack_with(&self, dialog: &Dialog, body: Option<(&str, &str)>) {
        let branch = self.core.branch();
        let via = self.core.via(&branch);
        let text = dialog.request("ACK", dialog.cseq, &via, &with_body(body));
        self.core.wire.send(&text);
        let key = (dialog.call_id.clone(), dialog.cseq);
        self.core.lock().acks.insert(key, text);
    }

    /// Waits for a request of this method, of this call where one is named.
    ///
    /// # Errors
    /// When none comes; the message says what came instead.
    pub fn expect(&self, method: &str, call_id: Option<&str>) -> Result<Message> {
        let deadline = Instant::now() + LIMIT;
        let mut state = self.core.lock();
        loop {
            if let Some(found) = state.take(method, call_id) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("{} got no {method}, but {:?}", self.user(), state.starts());
            }
            let woken = self.core.news.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a request of this method came that nobody has looked at.
    #[must_use]
    pub fn has(&self, method: &str) -> bool {
        self.core.lock().has(method)
    }

    /// Answers a request; `extra` are whole lines.
    pub fn reply(&self, to: &Message, status: &str, extra: &str, body: Option<(&str, &str)>) {
        let tail = format!(
            "Contact: <{}>\r\n{extra}{}",
            self.contact(),
            with_body(body)
        );
        let text = dialog::reply(to, status, &self.core.name(), &tail);
        self.core.lock().answered(to, &text);
        self.core.wire.send_back(&text, state::sent_by(to));
    }

    /// Refuses an INVITE, and waits for the ACK.
    ///
    /// # Errors
    /// When none comes.
    pub fn refuse(&self, invite: &Message, status: &str, extra: &str) -> Result<()> {
        let tail = format!("{extra}{NO_BODY}");
        let text = dialog::reply(invite, status, &self.core.name(), &tail);
        self.core.lock().answered(invite, &text);
        self.core.wire.send_back(&text, state::sent_by(invite));
        self.expect("ACK", invite.header("Call-ID")).map(drop)
    }

    /// The callee's side of the dialog that an INVITE or SUBSCRIBE to this phone began.
    ///
    /// # Errors
    /// When it lacks something.
    pub fn side_of(&self, request: &Message) -> Result<Dialog> {
        Dialog::of_offer(request, &self.core.name())
    }

    fn ask(&self, method: &str, uri: &str, head: &str, tail: &str) -> Ask {
        let branch = self.core.branch();
        let via = self.core.via(&branch);
        let tail = if tail.is_empty() { NO_BODY } else { tail };
        let text = format!("{method} {uri} SIP/2.0\r\n{via}Max-Forwards: 70\r\n{head}{tail}");
        Ask::send(&self.core, text, branch)
    }
}

/// How long anything may take before it has failed.
pub const LIMIT: Duration = Duration::from_secs(15);
/// Content-Type of a session description.
pub const SDP: &str = "application/sdp";
const NO_BODY: &str = "Content-Length: 0\r\n\r\n";

fn with_body(body: Option<(&str, &str)>) -> String {
    match body {
        Some((kind, text)) => {
            let length = text.len();
            format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{text}")
        }
        None => NO_BODY.to_owned(),
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.core.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
