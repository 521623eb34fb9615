//! A world of tunnels in simulated time: what they carry, whether their servers answer, and
//! everything the monitor said.

use std::{collections::BTreeMap, time::Duration};

use keepline_engine::{
    event::Event,
    time::{Mono, Now, Wall},
    tunnel::{
        Carrier, Monitor, Output, SegmentConf, SegmentId, State, TunnelConf, TunnelId, TunnelView,
    },
};

pub(crate) const A: TunnelId = TunnelId(0);
pub(crate) const B: TunnelId = TunnelId(1);

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// When the world begins: not zero, so that nothing works by accident.
pub(crate) const START: Duration = Duration::from_secs(1_000);
/// How long a server takes.
const RTT: Duration = Duration::from_millis(2);

/// How a tunnel behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behaviour {
    /// Its DHCP server answers.
    pub(crate) answers: bool,
    /// Client frames come out of it this often.
    pub(crate) frames: Option<Duration>,
}

pub(crate) struct World {
    pub(crate) monitor: Monitor,
    pub(crate) now: Now,
    pub(crate) behaviour: Vec<Behaviour>,
    pub(crate) carriers: Vec<Carrier>,
    /// Stamps of the data path; the driver reads them before each timeout.
    stamps: Vec<Option<Mono>>,
    next_frame: Vec<Mono>,
    answers: BTreeMap<(Mono, u64), TunnelId>,
    serial: u64,
    /// Since the start, in milliseconds.
    pub(crate) probes: Vec<(u64, TunnelId, u16)>,
    pub(crate) switches: Vec<(u64, Option<TunnelId>, TunnelId, &'static str)>,
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) active: Option<TunnelId>,
}

impl World {
    pub(crate) fn new(confs: Vec<TunnelConf>) -> Self {
        let carriers = vec![Carrier::Up; confs.len()];
        Self::with(confs, carriers)
    }

    pub(crate) fn with(confs: Vec<TunnelConf>, carriers: Vec<Carrier>) -> Self {
        let now = Now {
            mono: Mono(START),
            wall: Wall(secs(1_800_000_000)),
        };
        let count = confs.len();
        let segment = SegmentConf {
            name: "voice0".into(),
            tunnels: (0..count)
                .map(|index| TunnelId(u16::try_from(index).expect("few")))
                .collect(),
        };
        let monitor = Monitor::new(now, confs, vec![segment], &carriers);
        let silent = Behaviour {
            answers: true,
            frames: None,
        };
        let mut world = Self {
            monitor,
            now,
            behaviour: vec![silent; count],
            carriers,
            stamps: vec![None; count],
            next_frame: vec![now.mono; count],
            answers: BTreeMap::new(),
            serial: 0,
            probes: Vec::new(),
            switches: Vec::new(),
            events: Vec::new(),
            active: None,
        };
        world.drain();
        world
    }

    /// Two tunnels with the shipped timers, whose servers have just answered.
    pub(crate) fn proven() -> Self {
        let mut world = Self::new(vec![TunnelConf::new("hq-a"), TunnelConf::new("hq-b")]);
        world.run(secs(1));
        world
    }

    pub(crate) fn ms(&self) -> u64 {
        u64::try_from(self.now.mono.0.saturating_sub(START).as_millis()).expect("short")
    }

    pub(crate) fn silence(&mut self, tunnel: TunnelId) {
        self.behave(tunnel, false, None);
    }

    pub(crate) fn behave(&mut self, tunnel: TunnelId, answers: bool, frames: Option<Duration>) {
        let index = usize::from(tunnel.0);
        self.behaviour[index] = Behaviour { answers, frames };
        self.next_frame[index] = self.now.mono;
    }

    pub(crate) fn carrier(&mut self, tunnel: TunnelId, carrier: Carrier) {
        self.carriers[usize::from(tunnel.0)] = carrier;
        self.monitor.carrier(self.now, tunnel, carrier);
        self.drain();
    }

    pub(crate) fn view(&self, tunnel: TunnelId) -> TunnelView {
        self.monitor
            .tunnels(self.now)
            .swap_remove(usize::from(tunnel.0))
    }

    pub(crate) fn state(&self, tunnel: TunnelId) -> State {
        self.view(tunnel).state
    }

    /// Probes out of this tunnel since `from`, in milliseconds since then.
    pub(crate) fn probed(&self, tunnel: TunnelId, from: u64) -> Vec<u64> {
        let of = self.probes.iter().filter(|(_, of, _)| *of == tunnel);
        of.filter_map(|(at, ..)| at.checked_sub(from)).collect()
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, by: Duration) {
        let end = self.now.mono + by;
        while let Some(at) = self.next(end) {
            let step = at.since(self.now.mono);
            self.now = self.now.after(step);
            self.happen();
        }
        let step = end.since(self.now.mono);
        self.now = self.now.after(step);
    }

    /// The next moment at which anything happens.
    fn next(&self, end: Mono) -> Option<Mono> {
        let frames = self.behaviour.iter().zip(&self.next_frame);
        let frame = frames
            .filter(|(of, _)| of.frames.is_some())
            .map(|(_, at)| *at)
            .min();
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        let timeout = self.monitor.poll_timeout().map(|(at, _)| at);
        [frame, answer, timeout]
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at <= end)
            .map(|at| at.max(self.now.mono))
    }

    fn happen(&mut self) {
        let now = self.now;
        for index in 0..self.behaviour.len() {
            let Some(every) = self.behaviour[index].frames else {
                continue;
            };
            while self.next_frame[index] <= now.mono {
                if self.carriers[index] == Carrier::Up {
                    self.stamps[index] = Some(self.next_frame[index]);
                }
                self.next_frame[index] += every;
            }
        }
        while let Some((&(at, serial), &tunnel)) = self.answers.first_key_value() {
            if at > now.mono {
                break;
            }
            self.answers.remove(&(at, serial));
            if self.carriers[usize::from(tunnel.0)] == Carrier::Up {
                self.monitor.answered(now, tunnel, "DHCPNAK from 192.0.2.1");
                self.drain();
            }
        }
        self.read_stamps();
        self.monitor.handle_timeout(now);
        self.drain();
    }

    /// What the driver does before a timeout, and every so often.
    fn read_stamps(&mut self) {
        for (index, stamp) in self.stamps.clone().into_iter().enumerate() {
            if let Some(stamp) = stamp {
                let tunnel = TunnelId(u16::try_from(index).expect("few"));
                self.monitor.inbound(self.now, tunnel, stamp);
            }
        }
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        let at = self.ms();
        while let Some(output) = self.monitor.poll_output() {
            match output {
                Output::Probe { tunnel, secs, .. } => self.probe(at, tunnel, secs),
                Output::Activate {
                    segment,
                    from,
                    to,
                    rule,
                    ..
                } => {
                    assert_eq!(segment, SegmentId(0));
                    assert_eq!(from, self.active, "one is left before another is taken");
                    self.active = Some(to);
                    self.switches.push((at, from, to, rule));
                }
                Output::Event(event) => {
                    assert!(!event.rule.is_empty());
                    self.events.push((at, event));
                }
            }
        }
        assert_eq!(self.monitor.segments()[0].active, self.active);
    }

    fn probe(&mut self, at: u64, tunnel: TunnelId, secs: u16) {
        self.probes.push((at, tunnel, secs));
        if self.behaviour[usize::from(tunnel.0)].answers {
            self.serial += 1;
            self.answers
                .insert((self.now.mono + RTT, self.serial), tunnel);
        }
    }
}

impl World {
    /// From now on no server answers.
    pub(crate) fn silence_answers(&mut self) {
        for of in &mut self.behaviour {
            of.answers = false;
        }
    }
}
