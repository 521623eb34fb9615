//! Tunnels: what the monitor of the engine (`keepline_engine::tunnel`) needs of this machine.
//!
//! [`Tunnels`] is the monitor's driver: it turns links, frames and stamps into its inputs, and
//! carries out what it says. It decides nothing.

pub mod announce;
pub mod machine;
pub mod packet;
pub mod traffic;

use std::{collections::HashMap, sync::Arc};

use keepline_engine::{
    event::{Event, Evidence},
    time::{Mono, Now},
    tunnel::{
        Carrier, Monitor, Output, SegmentConf, TunnelConf, TunnelId, TunnelView,
        answer::{Ignored, Prober},
    },
};
use tokio::{sync::mpsc, task::JoinHandle};

use self::{packet::PacketSocket, traffic::Traffic};
use crate::{
    api::model,
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

    /// Reads the data path's stamps, then does what is due. Call it every 100 ms, and no later
    /// than [`Self::poll_timeout`] says.
    pub fn due(&mut self, now: Now, traffic: &mut dyn Traffic) {
        for (id, tunnel) in ids(&self.tunnels) {
            let answers = self.heard[usize::from(id.0)];
            if let Some(at) = traffic.last_inbound(now.mono, &tunnel.interface, answers) {
                self.monitor.inbound(now, id, at);
            }
        }
        self.monitor.handle_timeout(now);
    }

    /// Carries out what the monitor wants; what happened is returned.
    pub fn drain(&mut self, now: Now, traffic: &mut dyn Traffic) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(output) = self.monitor.poll_output() {
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
            for client in traffic.clients(interface) {
                if let Err(error) = listening.socket.send(&announce::frame(&client)) {
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

    /// Segments, for `status`.
    #[must_use]
    pub fn segments(&self) -> Vec<model::Segment> {
        let views = self.monitor.segments().into_iter();
        views
            .zip(self.segments.iter().zip(&self.switches))
            .map(|(view, (segment, &switches))| model::Segment {
                interface: segment.interface.clone().unwrap_or_default(),
                active: view.active.map(|id| self.name(id)),
                switches,
            })
            .collect()
    }

    /// Tunnels, for `status` and `tunnels`.
    #[must_use]
    pub fn views(&self, now: Now) -> Vec<model::Tunnel> {
        let views = self.monitor.tunnels(now).into_iter();
        views.map(|view| self.shown(now, &view)).collect()
    }

    fn shown(&self, now: Now, view: &TunnelView) -> model::Tunnel {
        let tunnel = &self.tunnels[usize::from(view.id.0)];
        let segment = self.segments.get(usize::from(view.segment.0));
        // Never heard: since the daemon watches it.
        let silent = view
            .silent
            .unwrap_or_else(|| now.mono.since(view.since.mono));
        model::Tunnel {
            name: tunnel.name.clone(),
            interface: tunnel.interface.clone(),
            state: view.state.name().to_owned(),
            last_inbound_s: silent.as_secs(),
            reason: view.reason.to_owned(),
            segment: segment
                .map(|segment| segment.name(&self.tunnels).to_owned())
                .unwrap_or_default(),
            active: view.active,
            proven: view.proven,
            since: timestamp(view.since),
            next_probe_s: view.next_probe.map(|left| left.as_secs()),
            returns_in_s: view.returns_in.map(|left| left.as_secs()),
            flaps: view.flaps,
        }
    }

    /// Why a tunnel or segment of this name is in its state: name, state, present evidence.
    #[must_use]
    pub fn explain(&self, now: Now, object: &str) -> Option<(String, String, Event)> {
        let views = self.monitor.tunnels(now);
        let named = |view: &&TunnelView| {
            view.name == object || self.tunnels[usize::from(view.id.0)].interface == object
        };
        let segment = || {
            let of = self.monitor.segments();
            let view = of.iter().find(|segment| segment.name == object)?.active?;
            views.iter().find(|tunnel| tunnel.id == view)
        };
        let view = views.iter().find(named).or_else(segment)?;
        let state = view.state.name().to_owned();
        let present = Event {
            at: now,
            kind: "tunnel",
            object: view.name.clone(),
            from: state.clone(),
            to: state.clone(),
            rule: view.reason,
            evidence: view.evidence.clone(),
        };
        Some((view.name.clone(), state, present))
    }

    fn name(&self, id: TunnelId) -> String {
        self.tunnels[usize::from(id.0)].name.clone()
    }
}

fn ids(tunnels: &[Tunnel]) -> impl Iterator<Item = (TunnelId, &Tunnel)> {
    (0_u16..).map(TunnelId).zip(tunnels)
}

fn timestamp(at: Now) -> String {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + at.wall.0).to_string()
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
