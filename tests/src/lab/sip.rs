//! Reading SIP from a capture: enough to tell what a phone saw and when.

use std::net::Ipv4Addr;
use std::time::Duration;

use keepline_engine::sip::stream::{self, Framer};

use super::Frame;

/// One SIP message as a phone sent or received it.
#[derive(Clone, Debug)]
pub struct Message {
    /// Kernel timestamp, since the epoch.
    pub at: Duration,
    /// Whether the phone sent it.
    pub sent: bool,
    /// The whole datagram; SIP of the lab's programs is ASCII.
    pub text: String,
}

impl Message {
    /// What a phone of our own just read from its socket.
    #[must_use]
    pub fn received(text: String) -> Self {
        Self {
            at: Duration::ZERO,
            sent: false,
            text,
        }
    }

    /// The messages that `phone` sent or received in `frames`, on its port 5060, or over a
    /// connection with somebody's: those that begin and end in one segment.
    #[must_use]
    pub fn of(frames: &[Frame], phone: &str) -> Vec<Self> {
        let Ok(phone) = phone.parse::<Ipv4Addr>() else {
            return Vec::new();
        };
        frames
            .iter()
            .flat_map(|frame| Self::read(frame, phone.octets()))
            .collect()
    }

    fn read(frame: &Frame, phone: [u8; 4]) -> Vec<Self> {
        let Some((source, target)) = frame.ipv4() else {
            return Vec::new();
        };
        let (sent, received, texts) = if let Some((from_port, to_port, payload)) = frame.udp() {
            (from_port == 5060, to_port == 5060, vec![payload.to_vec()])
        } else if let Some((from_port, to_port, payload)) = frame.tcp() {
            let sip = from_port == 5060 || to_port == 5060;
            (sip, sip, in_stream(payload))
        } else {
            return Vec::new();
        };
        let (sent, received) = (sent && source == phone, received && target == phone);
        let texts = texts
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned());
        texts
            // Keepalives and probes of other kinds are not SIP.
            .filter(|text| {
                text.lines()
                    .next()
                    .is_some_and(|first| first.contains("SIP/2.0"))
            })
            .filter(|_| sent || received)
            .map(|text| Self {
                at: frame.at,
                sent,
                text,
            })
            .collect()
    }

    /// First line.
    #[must_use]
    pub fn start(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Status code of a response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.start()
            .strip_prefix("SIP/2.0 ")?
            .get(..3)?
            .parse()
            .ok()
    }

    /// Method of a request.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        if self.status().is_some() {
            return None;
        }
        self.start().split(' ').next()
    }

    /// Value of the first header of that name, long form.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.text
            .lines()
            .skip(1)
            .take_while(|line| !line.is_empty())
            .find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
            })
    }

    /// Number and method of CSeq.
    #[must_use]
    pub fn cseq(&self) -> Option<(u32, &str)> {
        let (number, method) = self.header("CSeq")?.split_once(' ')?;
        Some((number.parse().ok()?, method.trim()))
    }
}

/// The whole messages of a segment.
fn in_stream(segment: &[u8]) -> Vec<Vec<u8>> {
    let mut framer = Framer::default();
    framer.push(segment);
    let frames = std::iter::from_fn(|| framer.next_frame().ok().flatten());
    frames
        .filter_map(|frame| match frame {
            stream::Frame::Message(bytes) => Some(bytes),
            _ => None,
        })
        .collect()
}

/// How a caller's INVITE transactions went, from a capture at the phone.
#[derive(Clone, Debug, Default)]
pub struct SetUp {
    /// CSeq numbers of the INVITEs it sent: one per transaction.
    pub transactions: Vec<u32>,
    /// Final answers to INVITEs, in order: CSeq and status, without retransmissions.
    pub finals: Vec<(u32, u16)>,
    /// Challenges that said `stale=true`.
    pub stale: usize,
    /// When the first byte of each transaction was sent.
    pub sent: Vec<Duration>,
    /// When the 200 came.
    pub answered: Option<Duration>,
    /// First byte of the first INVITE transaction to its 100.
    pub to_trying: Option<Duration>,
}

impl SetUp {
    /// Reads the call that `phone` set up.
    #[must_use]
    pub fn of(frames: &[Frame], phone: &str) -> Self {
        let mut setup = Self::default();
        for message in Message::of(frames, phone) {
            let Some((number, "INVITE")) = message.cseq() else {
                continue;
            };
            match (message.sent, message.status()) {
                (true, None) if !setup.transactions.contains(&number) => {
                    setup.transactions.push(number);
                    setup.sent.push(message.at);
                }
                (false, Some(100)) if setup.to_trying.is_none() => {
                    setup.to_trying = setup.sent.first().map(|sent| message.at - *sent);
                }
                (false, Some(status @ 200..)) => setup.take_final(number, status, &message),
                _ => {}
            }
        }
        setup
    }

    /// First byte of the transaction with this index to the 200.
    #[must_use]
    pub fn answered_after(&self, transaction: usize) -> Option<Duration> {
        self.answered?.checked_sub(*self.sent.get(transaction)?)
    }

    fn take_final(&mut self, number: u32, status: u16, message: &Message) {
        if self.finals.contains(&(number, status)) {
            return;
        }
        self.finals.push((number, status));
        let challenge = message
            .header("Proxy-Authenticate")
            .or_else(|| message.header("WWW-Authenticate"));
        if challenge.is_some_and(|value| value.to_ascii_lowercase().contains("stale=true")) {
            self.stale += 1;
        }
        if (200..300).contains(&status) {
            self.answered = Some(message.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sent: bool, at: u64, text: &str) -> Frame {
        let (phone, gateway) = ([10, 99, 1, 11], [10, 99, 1, 1]);
        let (source, target) = if sent {
            (phone, gateway)
        } else {
            (gateway, phone)
        };
        let mut bytes = vec![0; 12];
        bytes.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
        bytes.extend(source.into_iter().chain(target));
        bytes.extend(
            5060_u16
                .to_be_bytes()
                .into_iter()
                .chain(5060_u16.to_be_bytes()),
        );
        bytes.extend(u16::try_from(text.len() + 8).unwrap_or(8).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(text.as_bytes());
        Frame {
            at: Duration::from_millis(at),
            bytes,
        }
    }

    #[test]
    fn one_further_challenge_is_seen_as_such() {
        let frames = [
            message(true, 0, "INVITE sip:b SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n"),
            message(false, 10, "SIP/2.0 100 Trying\r\nCSeq: 1 INVITE\r\n\r\n"),
            message(true, 500, "INVITE sip:b SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n"),
            message(
                false,
                900,
                "SIP/2.0 407 P\r\nCSeq: 1 INVITE\r\nProxy-Authenticate: Digest stale=TRUE\r\n\r\n",
            ),
            message(true, 910, "INVITE sip:b SIP/2.0\r\nCSeq: 2 INVITE\r\n\r\n"),
            message(false, 1000, "SIP/2.0 200 OK\r\nCSeq: 2 INVITE\r\n\r\n"),
            message(false, 1500, "SIP/2.0 200 OK\r\nCSeq: 2 INVITE\r\n\r\n"),
        ];
        let setup = SetUp::of(&frames, "10.99.1.11");
        assert_eq!(setup.transactions, [1, 2]);
        assert_eq!(setup.finals, [(1, 407), (2, 200)]);
        assert_eq!(setup.stale, 1);
        assert_eq!(setup.answered_after(0), Some(Duration::from_millis(1000)));
        assert_eq!(setup.answered_after(1), Some(Duration::from_millis(90)));
        assert_eq!(setup.to_trying, Some(Duration::from_millis(10)));
    }
}
