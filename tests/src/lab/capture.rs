//! What a wire carried, with the kernel's timestamps: tcpdump's output, read as it comes.

use std::io::{self, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{Launch, Node, Process};

/// In the line, the last one of each report, that ends tcpdump's statistics.
const DROPPED: &str = "dropped by kernel";
/// tcpdump reports and writes at once when it has a processor.
const STATISTICS_LIMIT: Duration = Duration::from_secs(10);

/// A captured frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Since the epoch.
    pub at: Duration,
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The payload, when the frame is an IPv4 UDP datagram without options or fragments;
    /// with source and destination port.
    #[must_use]
    pub fn udp(&self) -> Option<(u16, u16, &[u8])> {
        let ip = self.bytes.get(14..)?;
        let is_udp = ip.first()? == &0x45 && ip.get(9)? == &17;
        let whole = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff == 0;
        if self.bytes.get(12..14)? != [0x08, 0x00] || !is_udp || !whole {
            return None;
        }
        let port = |at: usize| Some(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?]));
        let length = usize::from(port(24)?);
        Some((port(20)?, port(22)?, ip.get(28..20 + length)?))
    }

    /// The same of a TCP segment that carries something.
    #[must_use]
    pub fn tcp(&self) -> Option<(u16, u16, &[u8])> {
        let ip = self.bytes.get(14..)?;
        if self.bytes.get(12..14)? != [0x08, 0x00] || ip.first()? != &0x45 || ip.get(9)? != &6 {
            return None;
        }
        let word = |at: usize| Some(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?]));
        let header = usize::from(ip.get(32)? >> 4) * 4;
        let payload = ip.get(20 + header..usize::from(word(2)?))?;
        (!payload.is_empty()).then_some((word(20)?, word(22)?, payload))
    }

    /// Source and destination address, when it is IPv4.
    #[must_use]
    pub fn ipv4(&self) -> Option<([u8; 4], [u8; 4])> {
        if self.bytes.get(12..14)? != [0x08, 0x00] {
            return None;
        }
        let address = |at: usize| self.bytes.get(at..at + 4)?.try_into().ok();
        Some((address(26)?, address(30)?))
    }
}

#[derive(Default)]
struct Seen {
    frames: Mutex<Vec<Frame>>,
    more: Condvar,
}

/// Each slot of the kernel's ring is as large as the largest frame there can be, so that these
/// are a thousand frames: as many come while a busy machine leaves tcpdump waiting.
const RING_KIB: &str = "65536";

/// A running capture.
pub struct Capture {
    tcpdump: Process,
    seen: Arc<Seen>,
    reader: Option<JoinHandle<()>>,
    /// Frames that the kernel counted before the filter stood: nobody will see them.
    /// The fewest that tcpdump was ever behind is the best that is known of it.
    uncounted: AtomicUsize,
}

impl Capture {
    /// Starts to capture on an interface (`any` is not Ethernet: name one), and returns when
    /// the capture is on.
    ///
    /// # Errors
    /// When tcpdump does not start.
    pub fn start(node: &Node, interface: &str, filter: &str) -> Result<Self> {
        let launch = Launch::new("tcpdump")
            .args([
                "-i",
                interface,
                "-n",
                "-U",
                "-s",
                "0",
                "--immediate-mode",
                "-B",
                RING_KIB,
            ])
            .args(["-w", "-", filter]);
        let mut child = node
            .cell()
            .start(launch.command(), node.net().descriptor())?;
        let stdout = child.stdout.take().context("no pipe")?;
        let tcpdump = Process::adopt(format!("tcpdump on {}", node.name()), child);
        tcpdump.wait_line("listening on", Duration::from_secs(10))?;
        let seen = Arc::new(Seen::default());
        let sink = Arc::clone(&seen);
        let reader = thread::spawn(move || {
            // Ends at tcpdump's end, with an error in the middle of a record at worst.
            let _ = read_pcap(BufReader::new(stdout), &sink);
        });
        let capture = Self {
            tcpdump,
            seen,
            reader: Some(reader),
            uncounted: AtomicUsize::new(usize::MAX),
        };
        for _ in 0..3 {
            let ahead = capture.statistics()?.ahead();
            capture.uncounted.fetch_min(ahead, Ordering::Relaxed);
        }
        Ok(capture)
    }

    /// Every frame that passed the interface before this call, at least.
    ///
    /// What a peer has seen has passed its interface, but tcpdump may not have written it yet:
    /// it is asked what the kernel has for it until it has taken all, and that is waited for.
    ///
    /// # Errors
    /// When tcpdump does not answer, lost a frame, or does not keep up.
    pub fn frames(&self) -> Result<Vec<Frame>> {
        let deadline = Instant::now() + STATISTICS_LIMIT;
        loop {
            let now = self.statistics()?;
            let uncounted = self.uncounted.fetch_min(now.ahead(), Ordering::Relaxed);
            let frames = self.wait_written(now.captured, deadline)?;
            if now.ahead() <= uncounted {
                return Ok(frames);
            }
            if Instant::now() > deadline {
                bail!("tcpdump does not keep up: {now:?}");
            }
        }
    }

    /// The frames, once this many were read.
    fn wait_written(&self, count: usize, deadline: Instant) -> Result<Vec<Frame>> {
        let mut frames = self.lock();
        while frames.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("tcpdump took {count} frames and wrote {}", frames.len());
            }
            let woken = self.seen.more.wait_timeout(frames, left);
            frames = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(frames.clone())
    }

    fn statistics(&self) -> Result<Statistics> {
        let earlier = self.tcpdump.lines().len();
        self.tcpdump.signal(rustix::process::Signal::USR1)?;
        let told = self
            .tcpdump
            .wait_line_after(earlier, DROPPED, STATISTICS_LIMIT)?;
        Statistics::of(&told.text).with_context(|| format!("the capture lost frames: {told:?}"))
    }

    /// How many frames were read: a place to look from in [`Capture::wait_frame`].
    #[must_use]
    pub fn read(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.seen
            .frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the first frame, after the first `skip`, that `wanted` likes.
    ///
    /// # Errors
    /// When none came within `limit`.
    pub fn wait_frame(
        &self,
        skip: usize,
        limit: Duration,
        wanted: impl Fn(&Frame) -> bool,
    ) -> Result<Frame> {
        let deadline = Instant::now() + limit;
        let mut frames = self.lock();
        loop {
            if let Some(frame) = frames.iter().skip(skip).find(|frame| wanted(frame)) {
                return Ok(frame.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(
                    "no such frame within {} ms ({} seen)",
                    limit.as_millis(),
                    frames.len()
                );
            }
            let woken = self.seen.more.wait_timeout(frames, left);
            frames = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the capture and returns all of it.
    ///
    /// # Errors
    /// When tcpdump lost frames, or does not end.
    pub fn stop(mut self) -> Result<Vec<Frame>> {
        let earlier = self.tcpdump.lines().len();
        self.tcpdump.signal(rustix::process::Signal::INT)?;
        self.tcpdump.wait(Duration::from_secs(10))?;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let lost = self
            .tcpdump
            .wait_line_after(earlier, DROPPED, STATISTICS_LIMIT)?;
        if !lost.text.starts_with("0 packets") {
            bail!("the capture is not complete: {}", lost.text);
        }
        Ok(self.lock().clone())
    }
}

/// What tcpdump says when it is asked.
#[derive(Debug)]
struct Statistics {
    captured: usize,
    received: usize,
}

impl Statistics {
    /// Of its line; none when frames were lost.
    fn of(line: &str) -> Option<Self> {
        let count = |what: &str| -> Option<usize> {
            let before = line.split_once(what)?.0.trim_end();
            let before = before
                .trim_end_matches("packets")
                .trim_end_matches("packet");
            before.split_whitespace().last()?.parse().ok()
        };
        (count(DROPPED)? == 0).then_some(Self {
            captured: count("captured")?,
            received: count("received by filter")?,
        })
    }

    /// Frames that tcpdump did not take yet, and those that came before its filter stood.
    fn ahead(&self) -> usize {
        self.received.saturating_sub(self.captured)
    }
}

fn read_pcap(mut input: impl Read, sink: &Seen) -> io::Result<()> {
    let mut header = [0_u8; 24];
    input.read_exact(&mut header)?;
    loop {
        let mut record = [0_u8; 16];
        input.read_exact(&mut record)?;
        // tcpdump writes in the machine's own order, microseconds.
        let word = |at: usize| {
            u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
        };
        let mut bytes = vec![0_u8; word(8) as usize];
        input.read_exact(&mut bytes)?;
        let at = Duration::from_secs(word(0).into()) + Duration::from_micros(word(4).into());
        sink.frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Frame { at, bytes });
        sink.more.notify_all();
    }
}
