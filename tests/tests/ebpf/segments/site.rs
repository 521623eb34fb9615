//! A client behind the gateway, and two concentrators at the far ends of VXLAN tunnels, which
//! have the same address: the client sees who it is joined to by who answers.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use keepline::fastpath::{
    self, Fastpath, Options,
    maps::Maps,
    segments::{Segment, Segments, Tunnel},
};
use keepline_common::{ABI, reason::Reason};
use keepline_tests::lab::{Cell, Node, wait};

pub(crate) const LIMIT: Duration = Duration::from_secs(10);
pub(crate) const CLIENT: &str = "10.50.0.20";
/// Both concentrators.
pub(crate) const FAR: &str = "10.50.0.1";
pub(crate) const TUNNELS: [&str; 2] = ["vx0", "vx1"];
/// What a probe asks for; nobody has it.
pub(crate) const PROBE: [u8; 6] = [2, 0x4b, 0x50, 0, 0, 9];

pub(crate) struct Site {
    pub(crate) client: Node,
    pub(crate) gw: Node,
    pub(crate) far: [Node; 2],
    pub(crate) options: Options,
}

impl Site {
    pub(crate) fn raise() -> Result<Self> {
        let cell = Arc::new(Cell::new()?);
        let mut client = Node::new("client", &cell)?;
        let mut gw = Node::new("gateway", &cell)?;
        Node::cable((&mut client, "eth0"), (&mut gw, "voice0"))?;
        // Jumbo frames on the segment, and room for the tunnels' headers below them.
        client.ip("link set eth0 mtu 9000 up")?;
        gw.ip("link set voice0 mtu 9000 up")?;
        client.ip(&format!("address add {CLIENT}/24 dev eth0"))?;
        let far = [
            concentrator(&mut gw, &cell, 0)?,
            concentrator(&mut gw, &cell, 1)?,
        ];
        let tunnel = |name: &str| Tunnel {
            interface: name.into(),
            probe: PROBE,
        };
        let segment = Segment {
            interface: "voice0".into(),
            tunnels: TUNNELS.map(tunnel).into(),
        };
        let options = Options {
            pin: cell.outside("/sys/fs/bpf/keepline"),
            interfaces: Vec::new(),
            media: 10_000..=10_999,
            max_plans: 64,
            max_flows: 64,
            segments: vec![segment],
            transparent: false,
        };
        Ok(Self {
            client,
            gw,
            far,
            options,
        })
    }

    pub(crate) fn start(&self) -> Result<(Fastpath, Maps)> {
        let start = || Ok(Fastpath::start(&self.options));
        Ok(self.gw.net().enter(start)??)
    }

    pub(crate) fn segments(&self) -> Result<Segments> {
        let open = || Ok(Segments::open(&self.options.pin, &self.options.segments));
        Ok(self.gw.net().enter(open)??)
    }

    /// Does something with the segments on the gateway's network.
    pub(crate) fn with<T: Send>(
        &self,
        segments: &mut Segments,
        work: impl FnOnce(&mut Segments) -> Result<T, fastpath::Error> + Send,
    ) -> Result<T> {
        Ok(self.gw.net().enter(|| Ok(work(segments)))??)
    }

    pub(crate) fn join(&self, segments: &mut Segments, tunnel: usize) -> Result<()> {
        self.with(segments, |segments| {
            segments.activate("voice0", Some(TUNNELS[tunnel]))
        })
    }

    /// Whether the client reaches the far address and is answered.
    pub(crate) fn reaches(&self) -> Result<()> {
        reaches(&self.client, FAR)
    }

    /// Frames of a reason on an interface.
    pub(crate) fn counted(&self, interface: &str, reason: Reason) -> Result<u64> {
        let counters = self
            .gw
            .net()
            .enter(|| Ok(fastpath::counters(&self.options.pin)))??;
        let of = counters.iter().find(|of| of.interface == interface);
        Ok(of.context("no counters")?.packets[reason as usize])
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.options.pin.join(format!("v{ABI}"))
    }

    /// A datagram socket of the client that hears who is joined, and those of the concentrators.
    pub(crate) fn datagrams(&self) -> Result<(UdpSocket, [UdpSocket; 2])> {
        let client = self.client.udp(&format!("{CLIENT}:7000"))?;
        let far = |node: &Node| -> Result<UdpSocket> {
            let socket = node.udp(&format!("{FAR}:7000"))?;
            socket.set_read_timeout(Some(Duration::from_millis(300)))?;
            Ok(socket)
        };
        Ok((client, [far(&self.far[0])?, far(&self.far[1])?]))
    }

    /// Bytes a second of `bytes` over one TCP connection, from the client or to it.
    pub(crate) fn tcp(&self, upwards: bool, bytes: usize) -> Result<f64> {
        let listener = self.far[0]
            .net()
            .enter(|| Ok(TcpListener::bind((FAR, 0))?))?;
        let at = listener.local_addr()?;
        let near = self
            .client
            .net()
            .enter(|| Ok(TcpStream::connect_timeout(&at, LIMIT)?))?;
        let (distant, _) = listener.accept()?;
        for side in [&near, &distant] {
            side.set_read_timeout(Some(LIMIT))?;
            side.set_write_timeout(Some(LIMIT))?;
        }
        let (mut from, mut to) = if upwards {
            (near, distant)
        } else {
            (distant, near)
        };
        let since = Instant::now();
        let came = std::thread::scope(|scope| -> Result<usize> {
            let sender = scope.spawn(move || -> Result<()> {
                let block = vec![0x5a; 1 << 16];
                let mut left = bytes;
                while left > 0 {
                    let now = left.min(block.len());
                    from.write_all(&block[..now])?;
                    left -= now;
                }
                Ok(())
            });
            let mut buffer = vec![0; 1 << 17];
            let mut came = 0;
            while came < bytes {
                match to.read(&mut buffer)? {
                    0 => break,
                    n => came += n,
                }
            }
            sender
                .join()
                .map_err(|_| anyhow::anyhow!("the sender panicked"))??;
            Ok(came)
        })?;
        ensure!(came == bytes, "{came} of {bytes} bytes came");
        Ok(bytes as f64 / since.elapsed().as_secs_f64())
    }

    /// Makes a tunnel's device anew.
    pub(crate) fn anew(&self, number: usize) -> Result<()> {
        self.gw.ip(&format!("link del {}", TUNNELS[number]))?;
        tunnel(&self.gw, number, 1, 2)
    }
}

/// A concentrator behind a cable of its own, at the far end of tunnel `number`.
fn concentrator(gw: &mut Node, cell: &Arc<Cell>, number: usize) -> Result<Node> {
    let mut far = Node::new(&format!("far{number}"), cell)?;
    let cable = format!("w{number}");
    Node::cable((gw, &cable), (&mut far, "eth0"))?;
    for (node, name, host) in [(&*gw, cable.as_str(), 1), (&far, "eth0", 2)] {
        node.ip(&format!("link set {name} mtu 9100 up"))?;
        node.ip(&format!("address add 10.60.{number}.{host}/24 dev {name}"))?;
    }
    tunnel(gw, number, 1, 2)?;
    tunnel(&far, number, 2, 1)?;
    far.ip(&format!("address add {FAR}/24 dev {}", TUNNELS[number]))?;
    Ok(far)
}

fn tunnel(node: &Node, number: usize, ours: u8, theirs: u8) -> Result<()> {
    let name = TUNNELS[number];
    node.ip(&format!(
        "link add {name} type vxlan id 1{number} local 10.60.{number}.{ours} \
         remote 10.60.{number}.{theirs} dstport 4789"
    ))?;
    node.ip(&format!("link set {name} mtu 9000 up")).map(drop)
}

/// Whether `to` answers: it refuses a connection, which takes ARP and a packet each way.
pub(crate) fn reaches(from: &Node, to: &str) -> Result<()> {
    let to = SocketAddr::new(to.parse()?, 9);
    let refused = from.net().enter(|| {
        let tried = TcpStream::connect_timeout(&to, Duration::from_secs(2));
        Ok(tried.err().map(|error| error.kind()))
    })?;
    ensure!(
        refused == Some(io::ErrorKind::ConnectionRefused),
        "{refused:?}"
    );
    Ok(())
}

/// Waits until a datagram of the client arrives at `far`.
pub(crate) fn arrives(client: &UdpSocket, far: &UdpSocket) -> Result<()> {
    let mut buffer = [0; 64];
    wait::until("a datagram arrives", LIMIT, || {
        client.send_to(b"client", (FAR, 7000)).ok()?;
        far.recv(&mut buffer).ok()
    })
    .map(drop)
}
