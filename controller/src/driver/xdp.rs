//! The real data path: the pinned programs, and the steering of their maps.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use keepline_common::{
    limits::{FLOWS_DEFAULT, PLANS_DEFAULT, TALKS},
    reason::Reason,
};
use keepline_engine::{
    net::{LinkId, ListenerId},
    steer::{Delta, Flow, FlowId, GateId, Stamps, Talk, TalkId},
    time::Mono,
};

use super::{DataPath, StartError};
use crate::{
    config::{Config, model::XdpMode},
    fastpath::{
        self, Attached, Fastpath, Interface, InterfaceCounters, Options, XdpChoice,
        copies::Copies,
        events::Events,
        maps::Maps,
        redirects::{Counter, Handed, Watch},
    },
    netlink::LinkResolver,
    steer::{Error, FlowRow, HopRow, LinkPlace, Steer},
};

/// Loads, attaches and takes up what an earlier run pinned.
///
/// # Errors
/// When the programs cannot be loaded or attached.
pub(super) fn start(
    config: &Config,
    resolver: LinkResolver,
) -> Result<Box<dyn DataPath>, StartError> {
    let failed = |error: fastpath::Error| {
        StartError::new(
            "fastpath",
            error.to_string(),
            error.remedy().unwrap_or_default(),
        )
    };
    let mut told = |stage: fastpath::Stage<'_>| {
        tracing::debug!(?stage, "fast path");
        Ok(())
    };
    let started = Fastpath::start_by_stages(&options(config), &mut told);
    let (programs, maps) = started.map_err(failed)?;
    if let Some(sentence) = programs.rebuilt() {
        tracing::warn!("{sentence}");
    }
    for on in programs.attached() {
        for why in on.degraded.iter().chain(&on.notes) {
            tracing::warn!(interface = on.name, "{why}");
        }
    }
    let spread = config.keepalive.gate_spread;
    let steer = Steer::new(maps, resolver, spread).map_err(|error| {
        StartError::new(
            "fastpath",
            error.to_string(),
            "keepline fastpath unload, then start again",
        )
    })?;
    Ok(Box::new(Xdp {
        programs,
        steer,
        watch: Watch::default(),
    }))
}

/// What the configuration asks of the fast path.
fn options(config: &Config) -> Options {
    let interface = |interface: &crate::config::model::Interface| Interface {
        name: interface.name.clone(),
        xdp: match interface.xdp {
            XdpMode::Auto => XdpChoice::Auto,
            XdpMode::Native => XdpChoice::Native,
            XdpMode::Generic => XdpChoice::Generic,
            XdpMode::Off => XdpChoice::Off,
        },
    };
    Options {
        pin: config.fastpath.pin.clone(),
        interfaces: config.interfaces.iter().map(interface).collect(),
        media: config.media.ports.clone(),
        max_plans: match config.gateway.goes_through() {
            true => PLANS_DEFAULT + 2 * TALKS,
            false => PLANS_DEFAULT,
        },
        max_flows: FLOWS_DEFAULT,
        segments: crate::tunnel::traffic::joined(config),
        transparent: config.gateway.goes_through(),
    }
}

struct Xdp {
    programs: Fastpath,
    steer: Steer<Maps, LinkResolver>,
    watch: Watch,
}

impl Xdp {
    /// Compares what was handed to devices with what left them (case X13).
    fn watch(&mut self) -> Result<(), Error> {
        let mut handed = Vec::new();
        for hop in self.steer.hops()? {
            // A hop that cannot be read is not judged.
            if let Ok(frames) = self.steer.tables().sent(hop.id) {
                handed.push(Handed {
                    by: Counter::Hop(hop.id),
                    device: hop.ifindex,
                    frames,
                });
            }
        }
        for interface in self.counters() {
            let answers = [Reason::StunAnswered, Reason::StunRefused];
            let of = |reason: Reason| interface.packets.get(reason as usize).copied();
            handed.push(Handed {
                by: Counter::Answers(interface.ifindex),
                device: interface.ifindex,
                frames: answers.into_iter().filter_map(of).sum(),
            });
        }
        self.watch.look(&handed, fastpath::sent);
        Ok(())
    }
}

impl DataPath for Xdp {
    fn link_set(&mut self, link: LinkId, place: LinkPlace, now: Mono) -> Result<(), Error> {
        self.steer.link_set(link, place, now)
    }

    fn address_set(&mut self, address: IpAddr, now: Mono) -> Result<(), Error> {
        self.steer.address_set(address, now)
    }

    fn listener_set(
        &mut self,
        listener: ListenerId,
        address: SocketAddr,
        gate: GateId,
        now: Mono,
    ) -> Result<(), Error> {
        self.steer.listener_set(listener, address, gate, now)
    }

    fn apply(&mut self, delta: &Delta, now: Mono) -> Result<(), Error> {
        self.steer.apply(delta, now)
    }

    fn reconcile(&mut self, desired: (&[Flow], &[Talk]), now: Mono) -> Result<(), Error> {
        self.steer.reconcile(desired, now)
    }

    fn route_changed(&mut self, egress: LinkId, now: Mono) -> Result<(), Error> {
        self.steer.route_changed(egress, now)
    }

    fn repair(&mut self) -> Result<Vec<Attached>, fastpath::Error> {
        self.programs.repair(self.steer.tables_mut())
    }

    fn gap(&self) -> Option<Duration> {
        self.programs.gap()
    }

    fn tick(&mut self, orphan_idle: Duration, now: Mono) -> Result<(), Error> {
        let forgotten = self.steer.forget_orphans(orphan_idle, now)?;
        if forgotten > 0 {
            tracing::info!(
                forgotten,
                "orphaned flows ended: silent for the media timeout"
            );
        }
        self.watch()?;
        self.steer.tick(now)
    }

    fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        self.steer.flows()
    }

    fn silence(&self, flows: &[FlowId]) -> Result<Option<Duration>, Error> {
        self.steer.silence(flows)
    }

    fn flow_count(&self) -> usize {
        self.steer.flow_count()
    }

    fn hops(&self) -> Result<Vec<HopRow>, Error> {
        self.steer.hops()
    }

    fn attached(&self) -> Vec<Attached> {
        let mut all = [self.programs.attached(), self.programs.joined()].concat();
        for on in &mut all {
            let losing = self.watch.losing(on.ifindex);
            on.degraded.extend(losing.map(str::to_owned));
        }
        all
    }

    fn events(&mut self) -> Option<Events> {
        self.programs.events().unwrap_or_else(|error| {
            tracing::warn!(%error, "events of the fast path are not told");
            None
        })
    }

    fn copies(&mut self) -> Vec<Copies> {
        self.programs.copies().unwrap_or_else(|error| {
            tracing::warn!(%error, "what goes through is not seen");
            Vec::new()
        })
    }

    fn copies_lost(&self) -> u64 {
        self.steer.tables().copies_lost()
    }

    fn stamps(&self, talk: TalkId) -> Result<Stamps, Error> {
        self.steer.stamps(talk)
    }

    fn severed(&self) -> Vec<String> {
        self.programs.severed().to_vec()
    }

    fn counters(&self) -> Vec<InterfaceCounters> {
        self.programs.counters().unwrap_or_else(|error| {
            tracing::warn!(%error, "counters cannot be read");
            Vec::new()
        })
    }
}
