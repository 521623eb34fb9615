//! `keepline probe dhcp`: one DHCPREQUEST in INIT-REBOOT form out of one interface (MX10).

use std::{io, net::Ipv4Addr, time::Duration};

use keepline_engine::{
    time::Mono,
    tunnel::answer::{Answer, Kind, Prober},
};
use tokio::time::{Instant, timeout_at};

use crate::tunnel::{machine, packet::PacketSocket};

/// After an answer, others are waited for so long: two servers are one too many (D5).
const OTHERS: Duration = Duration::from_millis(300);

/// What to ask.
#[derive(Debug, Clone)]
pub struct Question {
    /// Out of which interface.
    pub interface: String,
    /// Whose stable client asks: a tunnel's, or this interface's own.
    pub tunnel: String,
    /// The address in option 50.
    pub request: Ipv4Addr,
    /// How many requests.
    pub count: u32,
    /// How long each waits.
    pub limit: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Report {
    /// Out of which interface was asked.
    pub interface: String,
    /// For which address.
    pub request: Ipv4Addr,
    /// The client that asked: its MAC address.
    pub client: String,
    /// `ack`, `nak` or `silence`: the last request's.
    pub outcome: Outcome,
    /// One per request.
    pub probes: Vec<Probe>,
}

/// How a server spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The address may be used: it was given a lease.
    Ack,
    /// It may not.
    Nak,
    /// Nobody answered.
    Silence,
}

/// One request and its answers.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Probe {
    /// What it came to.
    pub outcome: Outcome,
    /// From each server that answered.
    pub answers: Vec<Heard>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Heard {
    /// ACK or NAK.
    pub outcome: Outcome,
    /// Which server.
    pub server: Ipv4Addr,
    /// How long it took.
    pub rtt_ms: f64,
    /// What it says about it.
    pub text: Option<String>,
}

impl From<Answer> for Heard {
    fn from(answer: Answer) -> Self {
        Self {
            outcome: match answer.kind {
                Kind::Ack => Outcome::Ack,
                Kind::Nak => Outcome::Nak,
            },
            server: answer.server,
            rtt_ms: answer.after.as_secs_f64() * 1000.0,
            text: answer.text,
        }
    }
}

/// Asks.
///
/// # Errors
/// When there is no such interface, it is down, or packets may not be sent.
pub async fn dhcp(question: &Question) -> io::Result<Report> {
    let socket = PacketSocket::open(&question.interface)?;
    let identity = machine::identity(&question.tunnel);
    let client = identity.mac.map(|byte| format!("{byte:02x}")).join(":");
    let mut prober = Prober::new(identity, question.request, None);
    let started = Instant::now();
    let mut probes = Vec::new();
    for _ in 0..question.count {
        probes.push(ask(&socket, &mut prober, started, question.limit).await?);
    }
    Ok(Report {
        interface: question.interface.clone(),
        request: question.request,
        client,
        outcome: probes.last().map_or(Outcome::Silence, |last| last.outcome),
        probes,
    })
}

async fn ask(
    socket: &PacketSocket,
    prober: &mut Prober,
    started: Instant,
    limit: Duration,
) -> io::Result<Probe> {
    let now = || Mono(started.elapsed());
    let secs = u16::try_from(started.elapsed().as_secs()).unwrap_or(u16::MAX);
    let xid = getrandom::u32().map_err(io::Error::other)?;
    socket.send(&prober.ask(now(), xid, secs, true))?;
    let mut end = Instant::now() + limit;
    let mut answers: Vec<Heard> = Vec::new();
    while let Ok(frame) = timeout_at(end, socket.receive()).await {
        let Ok(answer) = prober.answer(now(), &frame?) else {
            continue;
        };
        if answers.is_empty() {
            end = end.min(Instant::now() + OTHERS);
        }
        answers.push(answer.into());
    }
    let outcome = answers
        .first()
        .map_or(Outcome::Silence, |first| first.outcome);
    Ok(Probe { outcome, answers })
}
