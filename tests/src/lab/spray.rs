//! A third host that sends to every media port, as fast as the lab bears, and listens whether
//! somebody's media comes back.

use std::net::{SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use super::{Node, wait};

/// Packets between two pauses: 50,000 a second at most.
const BURST: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// What a guesser tries: RTP, RTCP, the head of a DTLS ClientHello (RFC 7983), and text.
const KINDS: [&[u8]; 4] = [
    &[0x80, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 0xff],
    &[0x80, 200, 0, 6, 1, 2, 3, 4, 0, 0, 0, 0],
    &[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0],
    b"nobody asked for this",
];

/// The sprayer at work.
pub struct Spray {
    sent: Arc<AtomicU64>,
    /// Rounds over all ports that are complete.
    rounds: Arc<AtomicU64>,
    heard: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spray {
    /// Sprays `ports` of `to` from `address`, over and over.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn begin(node: &Node, address: &str, to: &str, ports: RangeInclusive<u16>) -> Result<Self> {
        let socket = node.udp(address)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let listening = socket.try_clone()?;
        let to: SocketAddr = format!("{to}:0").parse()?;
        let mut spray = Self {
            sent: Arc::default(),
            rounds: Arc::default(),
            heard: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let (sent, rounds) = (Arc::clone(&spray.sent), Arc::clone(&spray.rounds));
        let (heard, stop) = (Arc::clone(&spray.heard), Arc::clone(&spray.stop));
        let ended = Arc::clone(&stop);
        spray.threads.push(thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                round(&socket, to, ports.clone(), &sent, &ended);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        }));
        spray.threads.push(thread::spawn(move || {
            let mut bytes = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                // An ICMP error is read as an error: it is no media.
                if listening.recv_from(&mut bytes).is_ok() {
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        Ok(spray)
    }

    /// Waits until every port was sprayed this many times more.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn rounds(&self, more: u64, limit: Duration) -> Result<()> {
        // The round that is under way began before.
        let wanted = self.rounds.load(Ordering::Relaxed) + more + 1;
        wait::until("every port is sprayed", limit, || {
            (self.rounds.load(Ordering::Relaxed) >= wanted).then_some(())
        })
    }

    /// Packets sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Packets that came back so far: somebody's media.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

impl Drop for Spray {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn round(
    socket: &UdpSocket,
    mut to: SocketAddr,
    ports: RangeInclusive<u16>,
    sent: &AtomicU64,
    stop: &AtomicBool,
) {
    for (number, port) in ports.enumerate() {
        to.set_port(port);
        let kind = KINDS[number.wrapping_add(usize::from(port)) / 2 % KINDS.len()];
        if socket.send_to(kind, to).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        if number % BURST == 0 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}
