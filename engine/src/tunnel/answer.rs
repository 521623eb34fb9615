//! What counts: an ACK or NAK to one of our own requests, through that tunnel (MX5).
//!
//! Everything here comes from a network that may be hostile. Options are picked from the bytes
//! by a bounded reader, from all three places where they may stand, before dhcproto sees any:
//! it trusts lengths that it should not (`chaddr()` panics past 16, debug builds assert on
//! option lengths).

use std::{collections::VecDeque, fmt, net::Ipv4Addr, time::Duration};

use dhcproto::{
    Decodable, Decoder,
    v4::{DhcpOption, Message, MessageType, Opcode, OptionCode},
};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::{identity::Identity, request};
use crate::time::Mono;

/// Requests of one series whose answers still count.
const OUTSTANDING: usize = 8;
/// Fixed part of a message with the magic cookie (RFC 2131 section 2, RFC 2132 section 2).
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Of option 56, what is kept for people.
const MAX_TEXT: usize = 120;

/// Asks through one tunnel, and tells answers from everything else.
#[derive(Debug)]
pub struct Prober {
    identity: Identity,
    health_check_ip: Ipv4Addr,
    expected_server: Option<Ipv4Addr>,
    outstanding: VecDeque<(u32, Mono)>,
}

/// ACK or NAK: both say that a server is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The address may be used. It is not.
    Ack,
    /// It may not.
    Nak,
}

/// An answer that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// ACK or NAK.
    pub kind: Kind,
    /// The server, by option 54, else by the source address.
    pub server: Ipv4Addr,
    /// Since the request that it answers.
    pub after: Duration,
    /// What the server says about it (option 56); printable, bounded.
    pub text: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Ack => "DHCPACK",
            Kind::Nak => "DHCPNAK",
        };
        let after = self.after.as_secs_f64() * 1000.0;
        write!(out, "{kind} from {} after {after:.1} ms", self.server)?;
        match &self.text {
            Some(text) => write!(out, " ({text})"),
            None => Ok(()),
        }
    }
}

/// Why a frame is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Ignored {
    /// Not a whole UDP datagram to the client port.
    #[error("not for a DHCP client")]
    NotDhcp,
    /// A hardware address that is not Ethernet's, or bytes that are no message.
    #[error("not a DHCP message")]
    Malformed,
    /// A request, or an answer that is neither ACK nor NAK: an OFFER.
    #[error("neither ACK nor NAK")]
    NotFinal,
    /// For another client.
    #[error("for another client")]
    OtherClient,
    /// Not to a request of ours that still counts.
    #[error("not to our request")]
    OtherRequest,
    /// Not the expected server (D4).
    #[error("from {0}, which is not the expected server")]
    OtherServer(Ipv4Addr),
}

impl Prober {
    /// Asks as `identity` for `health_check_ip`. Where a server is expected, no other counts.
    #[must_use]
    pub fn new(
        identity: Identity,
        health_check_ip: Ipv4Addr,
        expected_server: Option<Ipv4Addr>,
    ) -> Self {
        Self {
            identity,
            health_check_ip,
            expected_server,
            outstanding: VecDeque::new(),
        }
    }

    /// The client that asks.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The frame to send. `xid` is random (D1). With a `fresh` series, answers to earlier
    /// requests no longer count.
    #[must_use]
    pub fn ask(&mut self, now: Mono, xid: u32, secs: u16, fresh: bool) -> Vec<u8> {
        if fresh {
            self.outstanding.clear();
        } else if self.outstanding.len() == OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back((xid, now));
        request::frame(&self.identity, xid, secs, self.health_check_ip)
    }

    /// Looks at a frame that arrived through this tunnel. Several servers may answer one
    /// request: each of them is told (D5).
    ///
    /// # Errors
    /// Why it does not count.
    pub fn answer(&self, now: Mono, frame: &[u8]) -> Result<Answer, Ignored> {
        let (source, payload) = datagram(frame).ok_or(Ignored::NotDhcp)?;
        let reply = Reply::read(payload).ok_or(Ignored::Malformed)?;
        let message = &reply.message;
        if message.opcode() != Opcode::BootReply {
            return Err(Ignored::NotFinal);
        }
        if message.chaddr() != self.identity.mac {
            return Err(Ignored::OtherClient);
        }
        let asked = self
            .outstanding
            .iter()
            .find(|(xid, _)| *xid == message.xid());
        let (_, asked) = asked.ok_or(Ignored::OtherRequest)?;
        let kind = match message.opts().msg_type() {
            Some(MessageType::Ack) => Kind::Ack,
            Some(MessageType::Nak) => Kind::Nak,
            _ => return Err(Ignored::NotFinal),
        };
        let server = match message.opts().get(OptionCode::ServerIdentifier) {
            Some(DhcpOption::ServerIdentifier(server)) => *server,
            _ => source,
        };
        if self
            .expected_server
            .is_some_and(|expected| expected != server)
        {
            return Err(Ignored::OtherServer(server));
        }
        Ok(Answer {
            kind,
            server,
            after: now.since(*asked),
            text: reply.text,
        })
    }
}

/// Source and payload of a UDP datagram to the client port. Its checksum is not looked at: on a
/// packet socket it may be the hardware's business.
fn datagram(frame: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(NetSlice::Ipv4(ip)) = &packet.net else {
        return None;
    };
    if ip.is_payload_fragmented() {
        return None;
    }
    let Some(TransportSlice::Udp(udp)) = &packet.transport else {
        return None;
    };
    let ports = (udp.source_port(), udp.destination_port());
    (ports == (request::SERVER_PORT, request::CLIENT_PORT))
        .then(|| (ip.header().source_addr(), udp.payload()))
}

/// A message with the options that matter.
struct Reply {
    message: Message,
    text: Option<String>,
}

impl Reply {
    fn read(payload: &[u8]) -> Option<Self> {
        let (fixed, options) = payload.split_at_checked(FIXED)?;
        // Ethernet, six bytes of it: anything else is for somebody else, and dangerous to read.
        if fixed[1..3] != [1, 6] || fixed[FIXED - 4..] != COOKIE {
            return None;
        }
        let mut found = Found::default();
        found.read(options);
        // Overload (RFC 2132 section 9.3): `file` first, then `sname` (RFC 2131 section 4.1).
        let overload = found.overload.unwrap_or(0);
        if overload & 1 != 0 {
            found.read(&fixed[108..236]);
        }
        if overload & 2 != 0 {
            found.read(&fixed[44..108]);
        }
        let mut bytes = fixed.to_vec();
        // Names may be options, or anything: dhcproto need not look at them.
        bytes[44..236].fill(0);
        bytes.extend([53, 1, found.kind?]);
        if let Some(server) = found.server {
            bytes.extend([54, 4]);
            bytes.extend(server);
        }
        bytes.push(255);
        let message = Message::decode(&mut Decoder::new(&bytes)).ok()?;
        Some(Self {
            message,
            text: found.text.map(|text| printable(&text)),
        })
    }
}

/// Options picked from the bytes; the first of each counts.
#[derive(Default)]
struct Found {
    kind: Option<u8>,
    server: Option<[u8; 4]>,
    overload: Option<u8>,
    text: Option<Vec<u8>>,
}

impl Found {
    /// Walks one place. A missing end is the end of the place; an option that reaches past it
    /// ends the walk, what came before it counts.
    fn read(&mut self, mut rest: &[u8]) {
        while let [code, after @ ..] = rest {
            match code {
                0 => rest = after,
                255 => return,
                _ => {
                    let Some((length, after)) = after.split_first() else {
                        return;
                    };
                    let Some((value, after)) = after.split_at_checked(usize::from(*length)) else {
                        return;
                    };
                    self.option(*code, value);
                    rest = after;
                }
            }
        }
    }

    fn option(&mut self, code: u8, value: &[u8]) {
        match (code, value) {
            (52, [overload @ 1..=3]) => _ = self.overload.get_or_insert(*overload),
            (53, [kind]) => _ = self.kind.get_or_insert(*kind),
            (54, &[a, b, c, d]) => _ = self.server.get_or_insert([a, b, c, d]),
            (56, text) => _ = self.text.get_or_insert_with(|| text.to_vec()),
            _ => {}
        }
    }
}

/// For logs and events: no control characters, no length to flood with.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .filter(|char| !char.is_control())
        .take(MAX_TEXT)
        .collect()
}
