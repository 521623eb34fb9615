//! Ten thousand random and mutated datagrams on the SIP port: the gateway still serves, has not
//! grown, and has not filled its log.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use keepline_tests::lab::branch::GATEWAY_LAN;
use keepline_tests::lab::office::{LIMIT, Office, Opening};

const DATAGRAMS: usize = 10_000;
/// Bytes of resident memory that the daemon may have grown by.
const GROWTH: u64 = 8 << 20;
const LOG_LINES: usize = 20;

const SEEDS: [&str; 4] = [
    "INVITE sip:700@example.test SIP/2.0\r\nVia: SIP/2.0/UDP 10.99.1.11:5060;branch=z9hG4bKx;rport\r\n\
     Max-Forwards: 70\r\nFrom: <sip:200@example.test>;tag=a\r\nTo: <sip:700@example.test>\r\n\
     Call-ID: x@10.99.1.11\r\nCSeq: 1 INVITE\r\nContact: <sip:200@10.99.1.11>\r\n\
     Content-Type: application/sdp\r\nContent-Length: 90\r\n\r\nv=0\r\no=- 1 1 IN IP4 10.99.1.11\r\n\
     s=-\r\nc=IN IP4 10.99.1.11\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\n",
    "REGISTER sip:example.test SIP/2.0\r\nVia: SIP/2.0/UDP 10.99.1.11:5060;branch=z9hG4bKy\r\n\
     From: <sip:200@example.test>;tag=b\r\nTo: <sip:200@example.test>\r\nCall-ID: y\r\n\
     CSeq: 7 REGISTER\r\nContact: <sip:200@10.99.1.11>;expires=60\r\nContent-Length: 0\r\n\r\n",
    "SIP/2.0 200 OK\r\nv: SIP/2.0/UDP 10.99.1.1;branch=z9hG4bKz\r\nf: <sip:a@b>;tag=1\r\n\
     t: <sip:c@d>;tag=2\r\ni: z\r\nCSeq: 1 OPTIONS\r\nl: 0\r\n\r\n",
    "\x00\x01\x00\x08\x21\x12\x5a5a5a5a5a5a5a5a5a5a",
];

/// A small generator with a fixed seed: a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % below.max(1)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).unwrap_or(0)
    }

    fn datagram(&mut self) -> Vec<u8> {
        if self.roll(4) == 0 {
            let length = self.roll(1400);
            return (0..length).map(|_| self.byte()).collect();
        }
        let mut bytes = SEEDS[self.roll(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..=self.roll(8) {
            let at = self.roll(bytes.len());
            match self.roll(4) {
                0 if !bytes.is_empty() => bytes[at] = self.byte(),
                1 => bytes.truncate(at),
                2 => bytes.insert(at.min(bytes.len()), self.byte()),
                _ => {
                    let piece = bytes[at.min(bytes.len())..].to_vec();
                    bytes.extend_from_slice(&piece[..piece.len().min(200)]);
                }
            }
        }
        bytes
    }
}

fn resident(office: &mut Office) -> Result<u64> {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", office.gateway.process().id()))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

fn spray(socket: &UdpSocket) -> Result<()> {
    let mut dice = Dice(0x4b65_6570_6c69_6e65);
    for number in 0..DATAGRAMS {
        // An ICMP error of an earlier datagram is no failure of this one.
        let _ = socket.send_to(&dice.datagram(), format!("{GATEWAY_LAN}:5060"));
        if number % 50 == 0 {
            // Let the daemon read: what a full socket drops proves nothing.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

#[test]
fn ten_thousand_random_and_mutated_datagrams_cost_nothing() -> Result<()> {
    let mut office = Office::open(&Opening::default())?;
    office.register()?;
    let (memory, lines) = (
        resident(&mut office)?,
        office.gateway.process().lines().len(),
    );
    let socket = office.branch.phones.udp("10.99.1.25:5060")?;
    spray(&socket)?;
    // It still serves: everyone registers, and a call connects.
    office.register()?;
    let (from, to) = (office.lan[0].clone(), office.far[0].clone());
    let mut callee = to.answer(&office.branch.far, Duration::from_millis(50))?;
    let mut caller = from.call(&office.branch.phones, &to.user, Duration::from_millis(500))?;
    caller.done(LIMIT)?;
    callee.done(LIMIT)?;
    ensure!(office.gateway.process().runs(), "the gateway ended");
    let grown = resident(&mut office)?.saturating_sub(memory);
    ensure!(grown <= GROWTH, "grown by {} KiB", grown >> 10);
    let logged = office.gateway.process().lines().len() - lines;
    ensure!(
        logged <= LOG_LINES,
        "{logged} log lines:\n{}",
        office.gateway.process().tail()
    );
    Ok(())
}
