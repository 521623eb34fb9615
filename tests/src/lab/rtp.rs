//! An RTP endpoint of our own: numbered packets at the pace of a phone, exact counts.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::net::sockopt;

use super::{Node, wait};

/// Between two packets, as phones do.
const PACE: Duration = Duration::from_millis(20);
/// What a sender that was held up may send at once to catch up.
const BURST: u32 = 8;
/// Bytes that wait for the receiver on a busy machine: a full buffer would count as loss.
const BUFFER: usize = 4 << 20;
/// G.711: 20 ms of audio.
const PAYLOAD: usize = 160;
const HEADER: usize = 12;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets sent.
    pub sent: u64,
    /// Packets received, of any kind.
    pub received: u64,
    /// Of those, the ones that are not the peer's next or later packets: repeated or reordered.
    pub strange: u64,
    /// Numbers that never came, up to the highest that did.
    pub lost: u64,
}

/// One end of a media stream.
pub struct Rtp {
    socket: UdpSocket,
    sent: Arc<AtomicU64>,
    /// Ends the sender.
    stop: Arc<AtomicBool>,
    /// Ends the receiver.
    gone: Arc<AtomicBool>,
    heard: Arc<Mutex<Heard>>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    received: u64,
    strange: u64,
    lost: u64,
    highest: Option<u16>,
    sources: Vec<SocketAddr>,
    /// Packets by the port that their SSRC names.
    voices: HashMap<u16, u64>,
}

impl Rtp {
    /// Listens at `address`, and counts.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn listen(node: &Node, address: &str) -> Result<Self> {
        let socket = node.udp(address)?;
        // A receiver that hears nothing looks this often whether it shall end.
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
        let (heard, gone) = (Arc::<Mutex<Heard>>::default(), Arc::<AtomicBool>::default());
        let receiver = thread::spawn({
            let (socket, heard, gone) =
                (socket.try_clone()?, Arc::clone(&heard), Arc::clone(&gone));
            move || receive(&socket, &heard, &gone)
        });
        Ok(Self {
            socket,
            sent: Arc::default(),
            stop: Arc::default(),
            gone,
            heard,
            sender: None,
            receiver: Some(receiver),
        })
    }

    /// Sends 50 packets a second to `peer` until stopped.
    ///
    /// # Errors
    /// When the socket cannot be shared with the sending thread.
    pub fn send_to(&mut self, peer: SocketAddr) -> Result<()> {
        self.send_every(peer, PACE)
    }

    /// Sends a packet every `pace` to `peer` until stopped. Begun once more, the numbers go on
    /// and the SSRC is another.
    ///
    /// # Errors
    /// When the socket cannot be shared with the sending thread.
    pub fn send_every(&mut self, peer: SocketAddr, pace: Duration) -> Result<()> {
        let socket = self.socket.try_clone()?;
        let (sent, stop) = (Arc::clone(&self.sent), Arc::clone(&self.stop));
        let first = sent.load(Ordering::Relaxed) as u32;
        self.sender = Some(thread::spawn(move || {
            send(&socket, (peer, pace), first, &sent, &stop);
        }));
        Ok(())
    }

    /// Counts so far.
    #[must_use]
    pub fn count(&self) -> Count {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        Count {
            sent: self.sent.load(Ordering::Relaxed),
            received: heard.received,
            strange: heard.strange,
            lost: heard.lost,
        }
    }

    /// Addresses that packets came from.
    #[must_use]
    pub fn sources(&self) -> Vec<SocketAddr> {
        self.heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sources
            .clone()
    }

    /// How many packets came from whoever sends from this port.
    #[must_use]
    pub fn heard_from(&self, port: u16) -> u64 {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.voices.get(&port).copied().unwrap_or(0)
    }

    /// Waits until that many packets were received.
    ///
    /// # Errors
    /// When there are fewer after `limit`.
    pub fn wait_received(&self, packets: u64, limit: Duration) -> Result<()> {
        wait::until(&format!("{packets} RTP packets"), limit, || {
            (self.count().received >= packets).then_some(())
        })
    }

    /// Ends sending; receiving goes on.
    pub fn stop_sending(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        self.stop.store(false, Ordering::Relaxed);
    }
}

impl Drop for Rtp {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.gone.store(true, Ordering::Relaxed);
        for thread in [self.sender.take(), self.receiver.take()]
            .into_iter()
            .flatten()
        {
            let _ = thread.join();
        }
    }
}

fn send(
    socket: &UdpSocket,
    (peer, pace): (SocketAddr, Duration),
    first: u32,
    sent: &AtomicU64,
    stop: &AtomicBool,
) {
    let ssrc = socket
        .local_addr()
        .map_or(0, |address| u32::from(address.port()) << 16 | 0x4b4c)
        .wrapping_add(first);
    let mut packet = [0xff_u8; HEADER + PAYLOAD];
    let mut next = Instant::now();
    for number in first.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        packet[0] = 0x80;
        packet[1] = 0;
        packet[2..4].copy_from_slice(&(number as u16).to_be_bytes());
        packet[4..8].copy_from_slice(&number.wrapping_mul(PAYLOAD as u32).to_be_bytes());
        packet[8..12].copy_from_slice(&ssrc.to_be_bytes());
        if socket.send_to(&packet, peer).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        let now = Instant::now();
        next = (next + pace).max(now.checked_sub(pace * BURST).unwrap_or(now));
        thread::sleep(next.saturating_duration_since(now));
    }
}

fn receive(socket: &UdpSocket, heard: &Mutex<Heard>, gone: &AtomicBool) {
    let mut packet = [0; 2048];
    while !gone.load(Ordering::Relaxed) {
        // A timeout, or an ICMP error of what we sent: neither is news about the peer.
        if let Ok((length, source)) = socket.recv_from(&mut packet) {
            heard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(&packet[..length], source);
        }
    }
}

impl Heard {
    fn take(&mut self, packet: &[u8], source: SocketAddr) {
        self.received += 1;
        if !self.sources.contains(&source) {
            self.sources.push(source);
        }
        if let Some([high, low]) = packet.get(8..10) {
            let port = u16::from_be_bytes([*high, *low]);
            *self.voices.entry(port).or_default() += 1;
        }
        let number = match packet {
            [0x80, _, high, low, ..] if packet.len() == HEADER + PAYLOAD => {
                u16::from_be_bytes([*high, *low])
            }
            _ => {
                self.strange += 1;
                return;
            }
        };
        match self.highest.map(|highest| number.wrapping_sub(highest)) {
            // The stream starts at 0: what is missing before the first is lost too.
            None => self.lost += u64::from(number),
            Some(step @ 1..0x8000) => self.lost += u64::from(step - 1),
            Some(0) => self.strange += 1,
            Some(_) => {
                self.strange += 1;
                self.lost = self.lost.saturating_sub(1);
                return;
            }
        }
        self.highest = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(numbers: &[u16]) -> (u64, u64, u64) {
        let mut heard = Heard::default();
        let source = SocketAddr::from(([10, 99, 1, 1], 10000));
        for number in numbers {
            let mut packet = [0; HEADER + PAYLOAD];
            packet[0] = 0x80;
            packet[2..4].copy_from_slice(&number.to_be_bytes());
            heard.take(&packet, source);
        }
        (heard.received, heard.lost, heard.strange)
    }

    #[test]
    fn gaps_repeats_and_late_packets_are_told_apart() {
        assert_eq!(heard(&[0, 1, 2]), (3, 0, 0));
        assert_eq!(heard(&[0, 3]), (2, 2, 0));
        assert_eq!(heard(&[0, 2, 1, 3]), (4, 0, 1));
        assert_eq!(heard(&[0, 1, 1]), (3, 0, 1));
        assert_eq!(heard(&[2]), (1, 2, 0));
    }
}
