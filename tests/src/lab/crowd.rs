//! Very many phones that do nothing but register: one thread, one socket each.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::Branch;
use super::kamailio::DOMAIN;

/// RFC 3261 section 17.1.2: T1, T2 and the end of a transaction.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const LIFE: Duration = Duration::from_secs(32);
/// Between two looks at the sockets.
const GRAIN: Duration = Duration::from_millis(1);

/// What came of one round of REGISTERs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Final answers by status.
    pub finals: BTreeMap<u16, usize>,
    /// Requests that had to be sent again.
    pub repeated: usize,
    /// Requests without any final answer.
    pub unanswered: usize,
    /// The longest time from a first byte to the final answer.
    pub slowest: Duration,
}

/// The phones, spread over the LAN's addresses.
pub struct Crowd {
    phones: Vec<One>,
    proxy: String,
}

struct One {
    user: String,
    socket: UdpSocket,
    cseq: u32,
    waiting: Option<Waiting>,
}

struct Waiting {
    text: String,
    since: Instant,
    next: Instant,
    pause: Duration,
}

impl Crowd {
    /// `count` phones of users 3000 and up, which speak to `proxy`.
    ///
    /// # Errors
    /// When an address is taken.
    pub fn new(branch: &Branch, count: u16, proxy: &str) -> Result<Self> {
        let phone = |number: u16| {
            let address = Branch::phone(u8::try_from(number % 20)?);
            let socket = branch
                .phones
                .udp(&format!("{address}:{}", 20_000 + number))?;
            socket.set_nonblocking(true)?;
            Ok(One {
                user: (3000 + number).to_string(),
                socket,
                cseq: 0,
                waiting: None,
            })
        };
        Ok(Self {
            phones: (0..count).map(phone).collect::<Result<_>>()?,
            proxy: format!("{proxy}:5060"),
        })
    }

    /// Every phone registers or refreshes once, `rate` of them a second.
    ///
    /// # Errors
    /// When a socket fails.
    pub fn register(&mut self, rate: u32) -> Result<Tally> {
        let mut tally = Tally::default();
        let (start, pause) = (Instant::now(), Duration::from_secs(1) / rate);
        let (mut begun, mut open) = (0, 0);
        while begun < self.phones.len() || open > 0 {
            let due = start + pause * u32::try_from(begun)?;
            if begun < self.phones.len() && Instant::now() >= due {
                self.phones[begun].begin(&self.proxy)?;
                (begun, open) = (begun + 1, open + 1);
                continue;
            }
            let waiting = self.phones.iter_mut().filter(|one| one.waiting.is_some());
            for one in waiting {
                open -= usize::from(one.attend(&self.proxy, &mut tally));
            }
            thread::sleep(GRAIN);
        }
        Ok(tally)
    }
}

impl One {
    fn begin(&mut self, proxy: &str) -> Result<()> {
        self.cseq += 1;
        let (user, cseq, at) = (&self.user, self.cseq, self.socket.local_addr()?);
        let text = format!(
            "REGISTER sip:{DOMAIN} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {at};branch=z9hG4bKcrowd{user}n{cseq}e;rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{user}@{DOMAIN}>;tag=c{cseq}\r\n\
             To: <sip:{user}@{DOMAIN}>\r\nCall-ID: crowd-{user}\r\nCSeq: {cseq} REGISTER\r\n\
             Contact: <sip:{user}@{at}>\r\nExpires: 3600\r\nContent-Length: 0\r\n\r\n"
        );
        let now = Instant::now();
        self.socket
            .send_to(text.as_bytes(), proxy)
            .context("REGISTER not sent")?;
        self.waiting = Some(Waiting {
            text,
            since: now,
            next: now + T1,
            pause: T1,
        });
        Ok(())
    }

    /// Reads what came, and repeats what is due; whether its transaction is over.
    fn attend(&mut self, proxy: &str, tally: &mut Tally) -> bool {
        let Some(waiting) = &mut self.waiting else {
            return false;
        };
        let now = Instant::now();
        let took = now.duration_since(waiting.since);
        let mut datagram = [0; 2048];
        while let Ok(length) = self.socket.recv(&mut datagram) {
            let text = String::from_utf8_lossy(&datagram[..length]);
            let number = format!("n{}e", self.cseq);
            let status = text.get(8..11).and_then(|code| code.parse::<u16>().ok());
            if let Some(status) = status.filter(|code| *code >= 200 && text.contains(&number)) {
                *tally.finals.entry(status).or_default() += 1;
                tally.slowest = tally.slowest.max(took);
                self.waiting = None;
                return true;
            }
        }
        if took >= LIFE {
            tally.unanswered += 1;
            self.waiting = None;
            return true;
        }
        if now >= waiting.next {
            let _ = self.socket.send_to(waiting.text.as_bytes(), proxy);
            tally.repeated += 1;
            waiting.pause = (waiting.pause * 2).min(T2);
            waiting.next = now + waiting.pause;
        }
        false
    }
}
