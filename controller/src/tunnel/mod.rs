//! Tunnels: what the monitor of the engine (`keepline_engine::tunnel`) needs of this machine.
//!
//! [`Tunnels`] is the monitor's driver: it turns links, frames and stamps into its inputs, and
//! carries out what it says. It decides nothing.

pub mod announce;
mod carry;
mod egress;
pub mod machine;
pub mod packet;
pub mod routes;
pub mod traffic;
mod view;

use std::{collections::HashMap, sync::Arc, time::Duration};

use keepline_engine::{
    event::{Event, Evidence},
    time::{Mono, Now},
    tunnel::{
        Carrier, Monitor, Output, SegmentConf, TunnelConf, TunnelId,
        answer::{Ignored, Prober},
    },
};
use tokio::{sync::mpsc, task::JoinHandle};

pub use self::carry::Carried;
use self::{packet::PacketSocket, routes::Routes, traffic::Traffic};
use crate::{
    config::{
        Config,
        model::{Segment, Tunnel},
    },
    netlink::Table,
};

/// Frames for DHCP clients that wait for the driver: a flood loses its tail.
const QUEUE: usize = 256;

/// A frame that a prober's socket heard.
pub type Heard = (TunnelId, Vec<u8>);

/// The monitor and its hands.
pub struct Tunnels {
    monitor: Monitor,
    tunnels: Vec<Tunnel>,
    segments: Vec<Segment>,
    probers: Vec<Prober>,
    sockets: HashMap<TunnelId, Listening>,
    frames: mpsc::Sender<Heard>,
    /// Frames that the probers' sockets heard, per tunnel: no traffic.
    heard: Vec<u64>,
    /// Times a tunnel was left, per segment.
    switches: Vec<u64>,
    /// When each tunnel last brought a frame.
    inbound: Vec<Option<Mono>>,
    /// Which tunnel carries what is routed through each.
    carrier: Vec<TunnelId>,
    /// Something happened that may change that.
    shifted: bool,
    routes: Option<Routes>,
    /// `arp_ignore` of devices that carry what is another's, as it was.
    arp_ignore: HashMap<TunnelId, String>,
}

/// A prober's socket on the device with this index.
struct Listening {
    ifindex: u32,
    socket: Arc<PacketSocket>,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tunnels {
    /// Watches the configured tunnels; what their sockets hear comes by the receiver. Needs a
    /// tokio runtime.
    #[must_use]
    pub fn new(config: &Config, now: Now, table: &Table) -> (Self, mpsc::Receiver<Heard>) {
        let conf = |tunnel: &Tunnel| TunnelConf {
            heartbeat_interval: tunnel.heartbeat_interval,
            idle_timeout: tunnel.idle_timeout,
            probe_timeout: tunnel.probe_timeout,
            detect: tunnel.detect,
            ..TunnelConf::new(&tunnel.name)
        };
        let segment = |segment: &Segment| SegmentConf {
            name: segment.name(&config.tunnels).to_owned(),
            tunnels: segment.tunnels.clone(),
        };
        let prober = |tunnel: &Tunnel| {
            let identity = machine::identity(&tunnel.name);
            Prober::new(identity, tunnel.health_check_ip, tunnel.expected_server)
        };
        let carriers: Vec<Carrier> = config
            .tunnels
            .iter()
            .map(|tunnel| carrier(table, tunnel))
            .collect();
        let (frames, heard) = mpsc::channel(QUEUE);
        let mut tunnels = Self {
            monitor: Monitor::new(
                now,
                config.tunnels.iter().map(conf).collect(),
                config.segments.iter().map(segment).collect(),
                &carriers,
            ),
            tunnels: config.tunnels.clone(),
            segments: config.segments.clone(),
            probers: config.tunnels.iter().map(prober).collect(),
            sockets: HashMap::new(),
            frames,
            heard: vec![0; config.tunnels.len()],
            switches: vec![0; config.segments.len()],
            inbound: vec![None; config.tunnels.len()],
            carrier: ids(&config.tunnels).map(|(id, _)| id).collect(),
            shifted: false,
            routes: None,
            arp_ignore: HashMap::new(),
        };
        tunnels.listen(table);
        (tunnels, heard)
    }

    /// Whether there is anything to watch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tunnels.is_empty()
    }

    /// When [`Self::due`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.monitor.poll_timeout().map(|(at, _)| at)
    }

    /// The links changed.
    pub fn links(&mut self, now: Now, table: &Table) {
        self.listen(table);
        for (id, tunnel) in ids(&self.tunnels) {
            self.monitor.carrier(now, id, carrier(table, tunnel));
        }
    }

    /// Takes a frame that a prober's socket heard.
    pub fn frame(&mut self, now: Now, (tunnel, frame): &Heard) {
        let index = usize::from(tunnel.0);
        self.heard[index] += 1;
        match self.probers[index].answer(now.mono, frame) {
            Ok(answer) => self.monitor.answered(now, *tunnel, &answer.to_string()),
            // Other clients' business, heard all day long.
            Err(Ignored::OtherClient | Ignored::NotDhcp) => {}
            Err(why) => {
                tracing::debug!(tunnel = self.tunnels[index].name, %why, "no answer to the probe");
            }
        }
    }

    /// Reads the data path's stamps. Call it every 100 ms, and before [`Self::due`].
    pub fn see(&mut self, now: Now, traffic: &mut dyn Traffic) {
        for (id, tunnel) in ids(&self.tunnels) {
            let answers = self.heard[usize::from(id.0)];
            if let Some(at) = traffic.last_inbound(now.mono, &tunnel.interface, answers) {
                self.monitor.inbound(now, id, at);
                self.inbound[usize::from(id.0)] = Some(at);
            }
        }
    }

    /// Does what is due, no later than [`Self::poll_timeout`] says.
    pub fn due(&mut self, now: Now) {
        self.monitor.handle_timeout(now);
    }

    /// Tunnels that carried frames and have been silent for so long, with their interfaces.
    #[must_use]
    pub fn silent(&self, now: Mono, limit: Duration) -> Vec<(TunnelId, String)> {
        let silent = |at: &Option<Mono>| at.is_some_and(|at| now.since(at) >= limit);
        let tunnels = ids(&self.tunnels).zip(&self.inbound);
        tunnels
            .filter(|(_, at)| silent(at))
            .map(|((id, tunnel), _)| (id, tunnel.interface.clone()))
            .collect()
    }

    /// The RTP of several calls through a tunnel went silent together at `at` (KL6). A frame that
    /// was only counted later is no sign of life: the tunnel has been silent since.
    pub fn stalled(&mut self, now: Now, tunnel: TunnelId, calls: usize, at: Mono) {
        let counted = self.inbound[usize::from(tunnel.0)].unwrap_or(at);
        self.monitor.stalled(now, tunnel, calls, at.max(counted));
    }

    /// Carries out what the monitor wants; what happened is returned.
    pub fn drain(&mut self, now: Now, traffic: &mut dyn Traffic) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(output) = self.monitor.poll_output() {
            self.shifted |= !matches!(output, Output::Probe { .. });
            match output {
                Output::Probe {
                    tunnel,
                    secs,
                    fresh,
                } => self.probe(now, tunnel, secs, fresh),
                Output::Activate {
                    segment, from, to, ..
                } => {
                    let segment = usize::from(segment.0);
                    self.switches[segment] += u64::from(from.is_some());
                    events.extend(self.activate(now, segment, to, traffic));
                }
                Output::Event(event) => events.push(event),
            }
        }
        events
    }

    /// Joins the segment to the tunnel, and has the network behind it learn where its clients
    /// are now. A failure is an event.
    fn activate(
        &self,
        now: Now,
        segment: usize,
        to: TunnelId,
        traffic: &mut dyn Traffic,
    ) -> Option<Event> {
        let interface = self.segments[segment].interface.as_deref()?;
        let tunnel = &self.tunnels[usize::from(to.0)];
        if let Err(error) = traffic.join(interface, &tunnel.interface) {
            tracing::error!(%error, segment = interface, tunnel = tunnel.name, "not joined");
            return Some(Event {
                at: now,
                kind: "segment",
                object: interface.to_owned(),
                from: tunnel.name.clone(),
                to: "unjoined".to_owned(),
                rule: "data_path",
                evidence: vec![Evidence {
                    at: now,
                    what: error,
                }],
            });
        }
        if let Some(listening) = self.sockets.get(&to) {
            let clients = traffic.clients(interface);
            for frame in clients.iter().flat_map(announce::frames) {
                if let Err(error) = listening.socket.send(&frame) {
                    tracing::debug!(%error, tunnel = tunnel.name, "a client was not announced");
                }
            }
        }
        None
    }

    fn probe(&mut self, now: Now, tunnel: TunnelId, secs: u16, fresh: bool) {
        let index = usize::from(tunnel.0);
        let sent = getrandom::u32().map_err(|e| e.to_string()).and_then(|xid| {
            let frame = self.probers[index].ask(now.mono, xid, secs, fresh);
            let listening = self.sockets.get(&tunnel);
            let listening = listening.ok_or("no packet socket on it")?;
            listening.socket.send(&frame).map_err(|e| e.to_string())
        });
        if let Err(error) = sent {
            tracing::warn!(tunnel = self.tunnels[index].name, %error, "probe not sent");
        }
    }

    /// Has a socket on every tunnel's present device.
    fn listen(&mut self, table: &Table) {
        for (id, tunnel) in ids(&self.tunnels) {
            let there = table
                .link_by_name(&tunnel.interface)
                .map(|(index, _)| index);
            let on = self.sockets.get(&id).map(|listening| listening.ifindex);
            if there == on {
                continue;
            }
            self.sockets.remove(&id);
            let Some(ifindex) = there else { continue };
            match PacketSocket::open(&tunnel.interface) {
                Ok(socket) => {
                    let socket = Arc::new(socket);
                    let task = tokio::spawn(hear(id, socket.clone(), self.frames.clone()));
                    let listening = Listening {
                        ifindex,
                        socket,
                        task,
                    };
                    self.sockets.insert(id, listening);
                }
                Err(error) => {
                    tracing::warn!(tunnel = tunnel.name, %error, "it cannot be probed");
                }
            }
        }
    }

    fn device(&self, id: TunnelId) -> &str {
        &self.tunnels[usize::from(id.0)].interface
    }

    fn name(&self, id: TunnelId) -> String {
        self.tunnels[usize::from(id.0)].name.clone()
    }
}

fn ids(tunnels: &[Tunnel]) -> impl Iterator<Item = (TunnelId, &Tunnel)> {
    (0_u16..).map(TunnelId).zip(tunnels)
}

fn carrier(table: &Table, tunnel: &Tunnel) -> Carrier {
    match table.link_by_name(&tunnel.interface) {
        Some((_, link)) if link.up => Carrier::Up,
        Some(_) => Carrier::Lost,
        None => Carrier::Gone,
    }
}

/// Reads a socket until its device is gone. A device that goes down tells so once.
async fn hear(id: TunnelId, socket: Arc<PacketSocket>, frames: mpsc::Sender<Heard>) {
    loop {
        match socket.receive().await {
            // A full queue loses the frame: the next probe has another answer.
            Ok(frame) => drop(frames.try_send((id, frame))),
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
            Err(error) => return tracing::debug!(%error, "a prober's socket ended"),
        }
    }
}
