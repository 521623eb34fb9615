//! The loop that joins sense, judge and steer.
//!
//! One task owns the engine. Everything that can happen reaches it through a queue; inputs that
//! wait together are taken together, their outputs are carried out in order, then it sleeps until
//! the next input or timeout.

mod asks;
mod carry;
mod clock;
mod conf;
mod connections;
mod copied;
mod data_path;
mod errqueue;
mod explain;
mod journal;
mod neighbours;
mod outbox;
mod render;
mod repair;
mod run;
mod secret;
mod sockets;
mod start;
mod streams;
mod taking;
mod told;
mod xdp;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

pub use clock::{Clock, SystemClock};
pub use data_path::{DataPath, NoDataPath};
pub use journal::Journal;
pub use run::run;
pub use start::{Options, StartError};

use keepline_common::record::EventRecord;
use keepline_engine::{
    gateway::{Gateway, Output},
    media::Seen,
    net::LinkId,
    steer::{Delta, Flow, Talk},
    time::{Mono, Now},
};
use outbox::Outbox;
use sockets::{Heard, Sockets};
use streams::Streams;
use tokio::sync::mpsc;

use crate::{
    api::{Ask, model, model::ApiError},
    config::Config,
    fastpath::copies::Copied,
    netlink::{Neighbours, NetChange, Netlink},
    store::{Health, Store},
    tunnel::{self, Tunnels, traffic::Traffic},
};

/// The maps are compared with the desired state as a whole this often.
const RECONCILE: Duration = Duration::from_secs(30);
/// Slots rest and old addresses end at this grain.
const TICK: Duration = Duration::from_secs(1);
/// The stamps of tunnels are read this often: a fraction of the silence that `fast` looks into.
const STAMPS: Duration = Duration::from_millis(100);
/// Inputs taken in one go before timers get their turn.
const BATCH: usize = 64;

/// Everything the loop owns.
struct Driver {
    config: Config,
    config_path: PathBuf,
    clock: SystemClock,
    gateway: Gateway,
    sockets: Sockets,
    streams: Streams,
    data_path: Box<dyn DataPath>,
    netlink: Netlink,
    neighbours: Neighbours,
    store: Box<dyn Store>,
    outbox: Outbox,
    /// How the store was when it was asked last.
    store_health: Health,
    journal: Journal,
    /// Which rare events of the fast path were shown.
    told: told::Told,
    /// Why interfaces work less well than they could, as it was told.
    degraded: BTreeMap<String, Vec<String>>,
    /// Why the programs are not all where they belong, or not pinned.
    fast_path_failing: Option<String>,
    /// Something could not be put into the maps: all of it is compared at the next tick.
    overrun: bool,
    tunnels: Tunnels,
    traffic: Box<dyn Traffic>,
    /// What talks say, as copies tell it.
    copied: copied::Tally,
    /// When the slow path last heard a media port; kept where tunnels are watched.
    media_heard: HashMap<SocketAddr, Mono>,
}

/// The queues the loop listens to.
struct Queues {
    /// What sockets heard.
    heard: mpsc::Receiver<Heard>,
    /// What the sockets of tunnel probers heard.
    frames: mpsc::Receiver<tunnel::Heard>,
    /// What the API asks.
    asks: mpsc::Receiver<Ask>,
    /// What changed in the kernel's network.
    changes: mpsc::Receiver<NetChange>,
    /// Copies of what the fast path routed.
    copied: mpsc::Receiver<Copied>,
    /// What the fast path tells.
    told: mpsc::Receiver<EventRecord>,
    /// Closed or sent to when the daemon shall end.
    stop: mpsc::Receiver<()>,
    /// Sent to when the configuration shall be read again.
    reload: mpsc::Receiver<()>,
}

impl Driver {
    /// Runs until told to stop. What is pinned stays as it is: media goes on.
    async fn run(mut self, mut queues: Queues) {
        let mut tick = tokio::time::interval(TICK);
        let mut reconcile = tokio::time::interval(RECONCILE);
        let mut stamps = tokio::time::interval(STAMPS);
        self.drain_outputs();
        loop {
            let due = self.gateway.poll_timeout().map(|(at, _)| at);
            let due = due.into_iter().chain(self.tunnels.poll_timeout()).min();
            let wake = due.map(|at| self.clock.instant(at));
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = queues.stop.recv() => return,
                Some(frame) = queues.frames.recv() => self.tunnels.frame(self.clock.now(), &frame),
                () = sleep => self.timeout(),
                _ = stamps.tick(), if !self.tunnels.is_empty() => self.timeout(),
                Some(first) = queues.copied.recv() => self.copied(first, &mut queues.copied),
                Some(heard) = queues.heard.recv() => {
                    if self.hear(heard, &mut queues.heard) == BATCH {
                        // Connections may fill the queue for long: datagrams are read now.
                        tokio::task::yield_now().await;
                    }
                }
                Some(change) = queues.changes.recv() => self.net_changed(&change),
                Some(record) = queues.told.recv() => self.fastpath_told(&record),
                Some(ask) = queues.asks.recv() => self.ask(self.clock.now(), ask),
                Some(()) = queues.reload.recv() => self.asked_to_reload(),
                _ = tick.tick() => self.tick(),
                _ = reconcile.tick() => self.reconcile(),
            }
            self.drain_outputs();
        }
    }

    /// Takes what was heard, and what else waits, up to a bound; how many it took.
    fn hear(&mut self, first: Heard, queue: &mut mpsc::Receiver<Heard>) -> usize {
        let mut taken = 0;
        for heard in batch(first, queue) {
            taken += 1;
            let now = self.clock.now();
            if let Heard::Sip { listener, from, .. } = &heard {
                self.introduce(*listener, *from);
            }
            match heard {
                Heard::Sip {
                    listener,
                    to: None,
                    from,
                    bytes,
                } => self.gateway.datagram(now, listener, from, bytes),
                Heard::Sip {
                    listener,
                    to: Some(to),
                    from,
                    bytes,
                } => self.gateway.intercepted(now, listener, to, from, bytes),
                Heard::Unreachable { error } => {
                    self.gateway.unreachable(now, error.to, error.quoted)
                }
                Heard::Stream(told) => self.connection_told(now, told),
                Heard::Media { local, from, bytes } => {
                    self.media_heard.insert(local, now.mono);
                    self.slow_path(now, local, from, &bytes);
                }
            }
            self.take_outputs();
        }
        self.post();
        taken
    }

    /// Relays one datagram that XDP left alone, by the same plan.
    fn slow_path(&mut self, now: Now, local: SocketAddr, from: SocketAddr, bytes: &[u8]) {
        if let Seen::Relay { from, to } = self.gateway.media_seen(now, local, from)
            && let Err(error) = self.sockets.send_media(from, to, bytes)
        {
            tracing::debug!(%error, %from, %to, "media datagram not relayed");
        }
    }

    /// Carries out what the engine wants, in its order.
    fn drain_outputs(&mut self) {
        self.take_outputs();
        self.post();
    }

    /// The same, but for what waits in the outbox until [`Self::post`]: data paths are steered
    /// before.
    fn take_outputs(&mut self) {
        if !self.tunnels.is_empty() {
            self.drain_tunnels();
        }
        while let Some(output) = self.gateway.poll_output() {
            match output {
                Output::Send {
                    listener,
                    to,
                    bytes,
                } => self.send((listener, to), bytes),
                Output::Close { listener, peer } => {
                    self.close(self.clock.now(), (listener, peer));
                }
                Output::Alias { listener, peer, of } => self.streams.alias(listener, peer, of),
                Output::Steer(delta) => self.steer(&delta),
                Output::Keep(change) => self.outbox.changes.push(change),
                Output::Event(event) => self.journal.record(&event),
                Output::Silence { dialog, flows } => {
                    // A map that cannot be read is no evidence of silence.
                    let silence = self.data_path.silence(&flows);
                    let silence = silence.unwrap_or(Some(Duration::ZERO));
                    self.gateway.silent_for(self.clock.now(), dialog, silence);
                }
                Output::Pass {
                    link,
                    from,
                    to,
                    bytes,
                } => self.pass(link, (from, to), &bytes),
                Output::Stamps(talk) => self.read_stamps(talk),
            }
        }
    }

    fn steer(&mut self, delta: &Delta) {
        match delta {
            Delta::PortOpen { link, local } => {
                let interface = self.gateway.conf().links[usize::from(link.0)].name.clone();
                if let Err(error) = self.sockets.open_media(&interface, *local) {
                    tracing::warn!(%error, %local, "media port not held: no slow path for its call");
                }
            }
            Delta::PortClose { local } => {
                self.media_heard.remove(local);
                self.sockets.close_media(*local);
            }
            _ => {
                let now = self.clock.now().mono;
                if let Err(error) = self.data_path.apply(delta, now) {
                    tracing::warn!(%error, "fast path not changed: its packets take the slow path");
                    self.overrun = true;
                }
            }
        }
    }

    fn timeout(&mut self) {
        let now = self.clock.now();
        self.look_for_lost_copies(now);
        self.gateway.handle_timeout(now);
        self.tunnels.see(now, &mut *self.traffic);
        self.watch_stalls(now);
        self.tunnels.due(now);
    }

    fn tick(&mut self) {
        self.repair();
        let now = self.clock.now();
        self.watch_links(now);
        if let Err(error) = self.data_path.tick(self.config.media.timeout, now.mono) {
            tracing::warn!(%error, "fast path not tidied");
        }
        self.tell_degraded();
        if std::mem::take(&mut self.overrun) {
            self.reconcile();
        }
        self.watch_store();
    }

    /// A rare event of the program becomes one that people see.
    fn fastpath_told(&mut self, record: &EventRecord) {
        let interface = self.interface_name(record.ifindex);
        let event = self.told.event(self.clock.now(), record, interface);
        if let Some(event) = event {
            self.journal.record(&event);
        }
    }

    /// Says of each interface when it begins to work less well than it could, and when it ends.
    fn tell_degraded(&mut self) {
        let attached = self.data_path.attached().into_iter();
        let now: BTreeMap<_, _> = attached.map(|on| (on.name, on.degraded)).collect();
        for (name, why) in &now {
            let before = self.degraded.get(name).map_or(&[][..], Vec::as_slice);
            // Figures in a sentence change: only the number of faults is a change of state.
            if before.len() != why.len() {
                let event = render::degraded_event(self.clock.now(), name, before, why);
                self.journal.record(&event);
            }
        }
        self.degraded = now;
    }

    /// A store that fails is said once, and once that it works again: then it is told
    /// everything anew, since nobody knows what it missed.
    fn watch_store(&mut self) {
        let health = self.store.health();
        if health.recovered {
            self.gateway.keep_all();
            self.drain_outputs();
        }
        let changed = health.failing.is_some() != self.store_health.failing.is_some();
        if changed {
            let path = self.config.store.path.display().to_string();
            let event = render::store_event(self.clock.now(), path, &health);
            self.journal.record(&event);
        }
        self.store_health = health;
    }

    fn reconcile(&mut self) {
        let desired: Vec<Flow> = self
            .gateway
            .media()
            .flows()
            .map(|(_, flow)| *flow)
            .collect();
        let talks: Vec<Talk> = self.gateway.talks().collect();
        let now = self.clock.now().mono;
        if let Err(error) = self.data_path.reconcile((&desired, &talks), now) {
            tracing::warn!(%error, "fast path differs from what is wanted");
        }
    }

    /// The kernel's network changed: hops follow; links that the gateway uses are evidence.
    fn net_changed(&mut self, change: &NetChange) {
        let now = self.clock.now();
        if matches!(change, NetChange::Link { .. }) {
            self.repair();
        }
        if matches!(change, NetChange::Link { .. } | NetChange::LinkGone { .. }) {
            self.tunnels.links(now, &self.netlink.table());
            // A tunnel's calls are elsewhere before its link is called down.
            self.drain_tunnels();
        }
        if let NetChange::Neighbour { ifindex, ip, mac } = change {
            self.neighbour_changed(*ifindex, *ip, *mac);
        } else {
            self.tunnels.routes_changed(&self.netlink.table());
        }
        let (name, up) = match change {
            NetChange::Link { name, up, .. } => (Some(name.clone()), Some(*up)),
            NetChange::LinkGone { name, .. } => (Some(name.clone()), Some(false)),
            NetChange::Neighbour { ifindex, .. } | NetChange::Address { ifindex, .. } => {
                (Some(self.interface_name(*ifindex)), None)
            }
            NetChange::Routes => (None, None),
        };
        for (index, interface) in self.config.interfaces.iter().enumerate() {
            let Ok(link) = u8::try_from(index).map(LinkId) else {
                continue;
            };
            let device = self.netlink.device_of(&interface.name);
            let concerns = |name: &String| [&interface.name, &device].contains(&name);
            if !name.as_ref().is_none_or(concerns) {
                continue;
            }
            if let Some(up) = up.filter(|_| name.as_ref() == Some(&device)) {
                self.gateway.link_changed(now, link, up);
            }
            if let Err(error) = self.data_path.route_changed(link, now.mono) {
                tracing::warn!(%error, interface = interface.name, "hops not renewed");
                self.overrun = true;
            }
        }
    }

    fn interface_name(&self, ifindex: u32) -> String {
        self.netlink
            .table()
            .link(ifindex)
            .map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }

    /// SIGHUP: what comes of it stands in the log, nobody waits for an answer.
    fn asked_to_reload(&mut self) {
        match self.reload() {
            Ok(done) => tracing::info!("reload: {}", done.done),
            Err(error) => tracing::warn!(hint = error.hint, "reload: {}", error.message),
        }
    }

    /// Reads the configuration again, and the certificates with it. What else is in force cannot change while calls run on it, so
    /// this version tells what would change and asks for a restart.
    fn reload(&mut self) -> Result<model::Done, ApiError> {
        match start::reread(&self.config_path, &self.config) {
            Ok(true) => match self.renew_certificates() {
                Ok(renewed) => Ok(model::Done {
                    done: match renewed {
                        true => "the configuration is unchanged, the certificates were read again",
                        false => "the configuration is unchanged",
                    }
                    .to_owned(),
                }),
                Err(error) => Err(ApiError::new(
                    "tls",
                    error.to_string(),
                    "the certificates in force stay; correct the file and reload again",
                )),
            },
            Ok(false) => Err(ApiError::new(
                "restart_needed",
                "the configuration is valid but differs from the one in force",
                "restart keepline to apply it: media in progress is forwarded meanwhile",
            )),
            Err(error) => Err(error),
        }
    }
}

/// The first and what waits behind it, [`BATCH`] at most; what is not yielded stays in the queue.
fn batch<T>(first: T, queue: &mut mpsc::Receiver<T>) -> impl Iterator<Item = T> {
    let waiting = std::iter::from_fn(|| queue.try_recv().ok());
    std::iter::once(first).chain(waiting).take(BATCH)
}

#[cfg(test)]
mod tests;
