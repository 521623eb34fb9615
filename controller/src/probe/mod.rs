//! One question to one server, without the daemon: what it answers, and how fast.

mod dhcp;
mod options;
mod stun;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::UdpSocket,
    time::{Instant, timeout_at},
};

pub use dhcp::{Outcome, Question as DhcpQuestion, Report, dhcp};
pub use options::options;
pub use stun::stun;

/// What came back.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Answer {
    /// Whom was asked.
    pub server: SocketAddr,
    /// The address asked from.
    pub from: SocketAddr,
    /// The answer in one line.
    pub answer: String,
    /// From the first transmission to the answer.
    pub rtt_ms: f64,
    /// How often the question was sent.
    pub transmissions: u32,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be made or used.
    #[error("cannot ask {server}: {source}")]
    Socket {
        /// Whom was asked.
        server: SocketAddr,
        /// The system's reason; "connection refused" is an ICMP port unreachable.
        source: io::Error,
    },
    /// The time is over.
    #[error("no answer from {server} within {limit:?} ({transmissions} transmissions)")]
    Silence {
        /// Whom was asked.
        server: SocketAddr,
        /// How long was waited.
        limit: Duration,
        /// How often the question was sent.
        transmissions: u32,
    },
    /// No randomness for identifiers.
    #[error("the system gives no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

/// A question over UDP with its retransmissions.
struct Question<'a> {
    server: SocketAddr,
    socket: &'a UdpSocket,
    bytes: &'a [u8],
    /// Time to the second transmission; it doubles up to `longest`.
    first: Duration,
    longest: Duration,
    limit: Duration,
}

impl Question<'_> {
    /// Asks until `read` recognises an answer.
    async fn ask(&self, read: impl Fn(&[u8]) -> Option<String>) -> Result<Answer, Error> {
        let fault = |source| Error::Socket {
            server: self.server,
            source,
        };
        let started = Instant::now();
        let end = started + self.limit;
        let (mut wait, mut again, mut transmissions) = (self.first, started, 0);
        let mut buffer = vec![0; 65_536];
        loop {
            let now = Instant::now();
            if now >= end {
                let (server, limit) = (self.server, self.limit);
                return Err(Error::Silence {
                    server,
                    limit,
                    transmissions,
                });
            }
            if now >= again {
                self.socket.send(self.bytes).await.map_err(fault)?;
                transmissions += 1;
                again = now + wait;
                wait = (wait * 2).min(self.longest);
            }
            let Ok(received) = timeout_at(again.min(end), self.socket.recv(&mut buffer)).await
            else {
                continue;
            };
            let length = received.map_err(fault)?;
            if let Some(answer) = buffer.get(..length).and_then(&read) {
                let from = self.socket.local_addr().map_err(fault)?;
                let rtt_ms = started.elapsed().as_secs_f64() * 1000.0;
                return Ok(Answer {
                    server: self.server,
                    from,
                    answer,
                    rtt_ms,
                    transmissions,
                });
            }
        }
    }
}

/// A socket that hears only the server, ICMP errors included.
async fn socket(server: SocketAddr, from: Option<SocketAddr>) -> Result<UdpSocket, Error> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let connected = async {
        let socket = UdpSocket::bind(from.unwrap_or(SocketAddr::new(any, 0))).await?;
        socket.connect(server).await?;
        Ok(socket)
    };
    connected
        .await
        .map_err(|source| Error::Socket { server, source })
}

/// `N` random bytes as hexadecimal digits.
fn random_hex<const N: usize>() -> Result<String, Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
