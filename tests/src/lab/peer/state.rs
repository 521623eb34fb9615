//! What a phone remembers: what came, what it answered, and what it repeats over UDP.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::sip::Message;

/// RFC 3261 section 17: T1 and T2.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);

/// What a request is known by: its branch, CSeq and method.
type Key = (String, String);

#[derive(Default)]
pub(super) struct State {
    /// Responses that nobody has looked at.
    pub(super) answers: Vec<Message>,
    /// Requests that nobody has looked at.
    inbox: Vec<Message>,
    seen: HashSet<Key>,
    replies: HashMap<Key, Reply>,
    /// ACKs that were sent, by Call-ID and CSeq: repeated when their 200 is.
    pub(super) acks: HashMap<(String, u32), String>,
    repeats: Vec<Repeat>,
    /// Requests of ours by the branch that they were first sent with.
    asked: HashMap<String, Asked>,
}

/// A request of ours, as it was sent last.
struct Asked {
    branch: String,
    text: String,
    /// With credentials: a further challenge is a refusal, unless it says `stale=true`.
    authorized: bool,
}

/// What is sent, and where to unless to the proxy.
pub(super) type Reply = (String, Option<SocketAddr>);

/// What is sent again and again until it is answered.
struct Repeat {
    /// A branch for a request; Call-ID and CSeq for a 200 to an INVITE.
    until: String,
    reply: Reply,
    next: Instant,
    pause: Duration,
}

impl State {
    /// Remembers a request of ours until its answer comes.
    pub(super) fn asked(&mut self, branch: String, text: String) {
        self.repeat(branch.clone(), (text.clone(), None));
        let asked = Asked {
            branch: branch.clone(),
            text,
            authorized: false,
        };
        self.asked.insert(branch, asked);
    }

    /// The request that a response refuses, where it is a first challenge, or an INVITE at all.
    pub(super) fn refused(&self, response: &Message) -> Option<(String, bool)> {
        let status = response.status().filter(|status| *status >= 300)?;
        let branch = branch(response);
        let asked = self.asked.values().find(|asked| asked.branch == branch)?;
        let (_, method) = response.cseq()?;
        // The answer to a CANCEL has the INVITE's branch.
        asked.text.starts_with(method).then_some(())?;
        // A nonce that another server issued is no refusal (EM23).
        let stale = response.text.to_ascii_lowercase().contains("stale=true");
        let first = matches!(status, 401 | 407) && (!asked.authorized || stale);
        Some((asked.text.clone(), first))
    }

    /// It was sent again with credentials.
    pub(super) fn authorized(&mut self, old: &Message, branch: String, text: String) {
        let was = self::branch(old).to_owned();
        self.repeat(branch.clone(), (text.clone(), None));
        if let Some(asked) = self.asked.values_mut().find(|asked| asked.branch == was) {
            (asked.branch, asked.text, asked.authorized) = (branch, text, true);
        }
    }

    /// The request, as it was sent last.
    pub(super) fn text_of(&self, first: &str) -> String {
        let asked = self.asked.get(first);
        asked.map(|asked| asked.text.clone()).unwrap_or_default()
    }

    /// Remembers our answer to a request: it is given again when the request is.
    pub(super) fn answered(&mut self, request: &Message, text: &str) {
        let reply = (text.to_owned(), sent_by(request));
        let accepted = text.starts_with("SIP/2.0 2");
        if accepted && request.method() == Some("INVITE") {
            self.repeat(call(request), reply.clone());
        }
        self.replies.insert(key(request), reply);
    }

    fn repeat(&mut self, until: String, reply: Reply) {
        self.repeats.push(Repeat {
            until,
            reply,
            next: Instant::now() + T1,
            pause: T1,
        });
    }

    /// What is to be sent again now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Reply> {
        let due = self.repeats.iter_mut().filter(|repeat| repeat.next <= now);
        let again = due.map(|repeat| {
            repeat.pause = (repeat.pause * 2).min(T2);
            repeat.next = now + repeat.pause;
            repeat.reply.clone()
        });
        again.collect()
    }

    /// A message came; what is to be sent at once, if anything.
    pub(super) fn take_in(&mut self, message: Message) -> Option<Reply> {
        match message.status() {
            Some(status) => self.response(message, status),
            None => self.request(message),
        }
    }

    fn response(&mut self, message: Message, status: u16) -> Option<Reply> {
        let branch = branch(&message).to_owned();
        let invite = message.cseq().is_some_and(|(_, method)| method == "INVITE");
        if invite || status >= 200 {
            self.repeats.retain(|repeat| repeat.until != branch);
        }
        if let (200, Some((cseq, "INVITE"))) = (status, message.cseq()) {
            let call_id = message.header("Call-ID").unwrap_or_default().to_owned();
            if let Some(ack) = self.acks.get(&(call_id, cseq)) {
                return Some((ack.clone(), None));
            }
        }
        self.answers.push(message);
        None
    }

    fn request(&mut self, message: Message) -> Option<Reply> {
        message.method()?;
        let key = key(&message);
        if let Some(reply) = self.replies.get(&key) {
            return Some(reply.clone());
        }
        if message.method() == Some("ACK") {
            let call = call(&message);
            self.repeats.retain(|repeat| repeat.until != call);
        }
        if self.seen.insert(key) {
            self.inbox.push(message);
        }
        None
    }

    /// Takes the first request of this method, of this call where one is named.
    pub(super) fn take(&mut self, method: &str, call_id: Option<&str>) -> Option<Message> {
        let fits = |message: &Message| {
            let of_it = call_id.is_none() || message.header("Call-ID") == call_id;
            message.method() == Some(method) && of_it
        };
        let at = self.inbox.iter().position(fits)?;
        Some(self.inbox.remove(at))
    }

    /// Whether there is a request of this method.
    pub(super) fn has(&self, method: &str) -> bool {
        let fits = |message: &Message| message.method() == Some(method);
        self.inbox.iter().any(fits)
    }

    /// Takes the first response to the request that was first sent with this branch.
    pub(super) fn take_answer(&mut self, first: &str) -> Option<Message> {
        let of = &self.asked.get(first)?.branch;
        let at = self.answers.iter().position(|one| branch(one) == of)?;
        Some(self.answers.remove(at))
    }

    /// First lines of what nobody has looked at.
    pub(super) fn starts(&self) -> Vec<&str> {
        let all = self.inbox.iter().chain(&self.answers);
        all.map(Message::start).collect()
    }
}

/// Where a response goes: the sent-by of the topmost Via.
pub(super) fn sent_by(request: &Message) -> Option<SocketAddr> {
    let (_, after) = request.header("Via")?.split_once(' ')?;
    let host = after.split([';', ',']).next()?.trim();
    // Without a port an address of IPv6 stands in brackets all the same.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip = || bare.parse().ok().map(|ip| SocketAddr::new(ip, 5060));
    host.parse().ok().or_else(ip)
}

fn branch(message: &Message) -> &str {
    let via = message.header("Via").unwrap_or_default();
    let after = via.split_once("branch=").map_or("", |(_, rest)| rest);
    after.split([';', ',']).next().unwrap_or_default()
}

fn key(request: &Message) -> Key {
    let cseq = request.header("CSeq").unwrap_or_default();
    (branch(request).to_owned(), cseq.to_owned())
}

fn call(request: &Message) -> String {
    let number = request.cseq().map_or(0, |(number, _)| number);
    format!("{number} {}", request.header("Call-ID").unwrap_or_default())
}
