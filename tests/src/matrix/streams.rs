//! Streams of a call as bytes: what descriptions say of them, and whether what is sent on one
//! arrives as it was.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::lab::peer::{LIMIT, Peer};
use crate::lab::sip::Message;
use crate::lab::{flows, wait};

use super::Stage;

/// Between two datagrams.
const PACE: Duration = Duration::from_millis(20);
/// So many are sent when the way is known: XDP forwards these.
const BURST: u64 = 5;

/// What a description says of one stream.
#[derive(Clone, Debug)]
pub(super) struct Described {
    /// Where its sender takes media; port 0: nowhere.
    pub(super) rtp: SocketAddr,
    /// Where its sender takes RTCP (RFC 3605, RFC 5761).
    pub(super) rtcp: SocketAddr,
    /// The m= line and what follows it.
    pub(super) text: String,
}

/// A description of these streams, each its m= line and what belongs to it.
pub(super) fn description(ip: IpAddr, version: u32, streams: &[&str]) -> String {
    format!(
        "v=0\r\no=- 7 {version} {}\r\ns=-\r\n{}t=0 0\r\n{}",
        net_address(ip),
        connection_of(ip),
        streams.concat()
    )
}

/// The c= line of an address.
pub(super) fn connection_of(ip: IpAddr) -> String {
    format!("c={}\r\n", net_address(ip))
}

fn net_address(ip: IpAddr) -> String {
    let family = if ip.is_ipv4() { "IP4" } else { "IP6" };
    format!("IN {family} {ip}")
}

/// The streams that a message describes.
pub(super) fn described(message: &Message) -> Result<Vec<Described>> {
    let (_, body) = message.text.split_once("\r\n\r\n").context("no body")?;
    let mut sections = body.split("\r\nm=");
    let session = sections.next().unwrap_or_default();
    let default = connection(session);
    sections
        .map(|text| {
            let ip = connection(text).or(default).context("no c= line")?;
            let port: u16 = text.split(' ').nth(1).context("no port")?.parse()?;
            let named = text.lines().find_map(|line| line.strip_prefix("a=rtcp:"));
            let named = named.map(|rest| rest.split(' ').next().unwrap_or_default());
            let rtcp = match named {
                _ if text.contains("\r\na=rtcp-mux") => port,
                Some(named) => named.parse()?,
                None => port.saturating_add(1),
            };
            Ok(Described {
                rtp: SocketAddr::new(ip, port),
                rtcp: SocketAddr::new(ip, rtcp),
                text: format!("m={text}"),
            })
        })
        .collect()
}

fn connection(section: &str) -> Option<IpAddr> {
    let line = section
        .lines()
        .find_map(|line| line.strip_prefix("c=IN "))?;
    line.split(' ').nth(1)?.trim().parse().ok()
}

/// A socket of a phone, and where the other's description says that its media goes.
struct End {
    socket: UdpSocket,
    told: SocketAddr,
}

/// One way of datagrams between two phones.
pub(super) struct Line<'a> {
    stage: &'a Stage,
    ends: [End; 2],
    /// What was sent before may still arrive.
    before: Vec<Vec<u8>>,
}

impl<'a> Line<'a> {
    /// Of each phone: the port that it described, and where it was told to send.
    pub(super) fn open(stage: &'a Stage, ends: [(&Peer, u16, SocketAddr); 2]) -> Result<Self> {
        let [one, other] = ends;
        let open = |(peer, port, told): (&Peer, u16, SocketAddr)| {
            let (node, _) = stage.home_of(peer);
            let at = SocketAddr::new(peer.media().ip(), port).to_string();
            // A program that another scenario starts may hold what was closed for a moment.
            let socket = wait::until("the port is free", LIMIT, || node.udp(&at).ok())?;
            socket.set_read_timeout(Some(PACE))?;
            anyhow::Ok(End { socket, told })
        };
        Ok(Self {
            stage,
            ends: [open(one)?, open(other)?],
            before: Vec::new(),
        })
    }

    /// These bytes arrive at either side as they are, from where it sends to itself, and XDP has
    /// forwarded them, or the kernel, where the gateway anchors no media.
    pub(super) fn carries(&mut self, bytes: &[u8]) -> Result<()> {
        for (from, to) in [(0, 1), (1, 0)] {
            let said = [bytes, &[u8::try_from(from)?]].concat();
            self.before.push(said.clone());
            self.one_way(&said, from, to)
                .with_context(|| format!("{} of {bytes:02x?}", ["there", "back"][from]))?;
        }
        Ok(())
    }

    fn one_way(&self, bytes: &[u8], from: usize, to: usize) -> Result<()> {
        let (from, to) = (&self.ends[from], &self.ends[to]);
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            from.socket.send_to(bytes, from.told)?;
            if self.arrives(bytes, to)? {
                return self.in_xdp(bytes, from, to);
            }
        }
        bail!("nothing arrived")
    }

    /// Whether it comes within the pace. What else may come was sent before.
    fn arrives(&self, bytes: &[u8], to: &End) -> Result<bool> {
        let mut buffer = [0; 2048];
        while let Ok((length, source)) = to.socket.recv_from(&mut buffer) {
            let seen = &buffer[..length];
            ensure!(source == to.told, "from {source}, not from {}", to.told);
            if seen == bytes {
                return Ok(true);
            }
            let known = self.before.iter().any(|one| one == seen);
            ensure!(known, "changed on the way: {seen:02x?}");
        }
        Ok(false)
    }

    fn in_xdp(&self, bytes: &[u8], from: &End, to: &End) -> Result<()> {
        if self.stage.goes_through() {
            return Ok(());
        }
        let at = [to.socket.local_addr()?];
        let forwarded = || flows::forwarded_to(&self.stage.office, &at).ok();
        let before = forwarded().context("no flows")?;
        for _ in 0..BURST {
            from.socket.send_to(bytes, from.told)?;
        }
        let what = format!("XDP forwards to {}", at[0]);
        wait::until(&what, LIMIT, || {
            (forwarded()? >= before + BURST).then_some(())
        })
    }

    /// Nothing comes to this side but what was sent by the other.
    pub(super) fn hears_no_other(&self, side: usize) -> Result<()> {
        self.arrives(b"nobody says this", &self.ends[side])
            .map(drop)
    }
}
