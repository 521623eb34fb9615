//! The data path below segments and tunnels, behind one trait.

use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use keepline_engine::time::Mono;

use super::machine;
use crate::{
    config::Config,
    fastpath::{
        self,
        segments::{Segment, Segments, Tunnel},
        words,
    },
};

/// A client of a segment, as the data path learned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its address, where one was seen.
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address, where one was seen.
    pub v6: Option<Ipv6Addr>,
    /// It said that it is a router, which its neighbours must not forget.
    pub router: bool,
}

/// What carries frames between client sides and tunnels.
pub trait Traffic {
    /// Joins a client-side interface to this tunnel's.
    ///
    /// # Errors
    /// Why it is not.
    fn join(&mut self, segment: &str, tunnel: &str) -> Result<(), String>;

    /// When the last frame that is traffic came out of the tunnel's interface; `None` before the
    /// first. `answers` counts frames so far that were for DHCP clients here.
    fn last_inbound(&mut self, now: Mono, tunnel: &str, answers: u64) -> Option<Mono>;

    /// The clients learned on a client-side interface.
    fn clients(&self, segment: &str) -> Vec<Client>;

    /// A device of a segment was made anew.
    ///
    /// # Errors
    /// Why the segment is not joined there.
    fn renew(&mut self) -> Result<(), String>;
}

/// Segments that are joined at layer 2, as the fast path wants them.
#[must_use]
pub fn joined(config: &Config) -> Vec<Segment> {
    let tunnel = |tunnel: &crate::config::model::Tunnel| Tunnel {
        interface: tunnel.interface.clone(),
        probe: machine::identity(&tunnel.name).mac,
    };
    let segment = |segment: &crate::config::model::Segment| {
        let of = segment.tunnels.iter();
        Some(Segment {
            interface: segment.interface.clone()?,
            tunnels: of
                .filter_map(|id| config.tunnels.get(usize::from(id.0)))
                .map(tunnel)
                .collect(),
        })
    };
    config.segments.iter().filter_map(segment).collect()
}

/// The data path of this configuration; its programs are attached already.
///
/// # Errors
/// When the maps of segments cannot be opened.
pub fn open(config: &Config) -> Result<Box<dyn Traffic>, fastpath::Error> {
    let list = joined(config);
    if list.is_empty() {
        return Ok(Box::new(Counters::default()));
    }
    Ok(Box::new(Joined {
        segments: Segments::open(&config.fastpath.pin, &list)?,
        routed: Counters::default(),
        epoch: None,
    }))
}

/// Segments in TC, stamped there; the rest of the tunnels by counters.
struct Joined {
    segments: Segments,
    routed: Counters,
    /// A moment by both clocks, which run alike.
    epoch: Option<(Mono, u64)>,
}

impl Traffic for Joined {
    fn join(&mut self, segment: &str, tunnel: &str) -> Result<(), String> {
        let joined = self.segments.activate(segment, Some(tunnel));
        joined.map_err(|error| error.to_string())
    }

    fn last_inbound(&mut self, now: Mono, tunnel: &str, answers: u64) -> Option<Mono> {
        match self.segments.last_inbound(tunnel) {
            Some(at) => {
                // One offset for good: a stamp read twice must be the same moment.
                let (mono, kernel) = *self.epoch.get_or_insert((now, words::kernel_now()));
                let ahead = Duration::from_nanos(at.saturating_sub(kernel));
                Some(mono + ahead - Duration::from_nanos(kernel.saturating_sub(at)))
            }
            None if self.segments.knows(tunnel) => None,
            None => self.routed.last_inbound(now, tunnel, answers),
        }
    }

    fn clients(&self, segment: &str) -> Vec<Client> {
        let clients = self.segments.clients(segment).unwrap_or_else(|error| {
            tracing::warn!(%error, "clients cannot be announced");
            Vec::new()
        });
        clients
            .into_iter()
            .map(|client| Client {
                mac: client.mac,
                v4: client.v4,
                v6: client.v6,
                router: client.router,
            })
            .collect()
    }

    fn renew(&mut self) -> Result<(), String> {
        self.segments.renew().map_err(|error| error.to_string())
    }
}

/// The kernel's own counters: for tunnels that carry only what is routed. A stamp is as exact as
/// the calls are frequent.
#[derive(Debug, Default)]
pub struct Counters {
    seen: HashMap<String, (u64, Option<Mono>)>,
}

impl Traffic for Counters {
    fn join(&mut self, segment: &str, _: &str) -> Result<(), String> {
        Err(format!("no program of segments is on {segment}"))
    }

    fn last_inbound(&mut self, now: Mono, tunnel: &str, answers: u64) -> Option<Mono> {
        let path = format!("/sys/class/net/{tunnel}/statistics/rx_packets");
        let received = fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()?;
        self.count(now, tunnel, received.saturating_sub(answers))
    }

    fn clients(&self, _: &str) -> Vec<Client> {
        Vec::new()
    }

    fn renew(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Counters {
    /// What came before the first look was not seen to come.
    fn count(&mut self, now: Mono, tunnel: &str, traffic: u64) -> Option<Mono> {
        let Some((most, at)) = self.seen.get_mut(tunnel) else {
            self.seen.insert(tunnel.to_owned(), (traffic, None));
            return None;
        };
        // A device made anew begins to count anew; an answer that is counted before it is heard
        // here must not count twice.
        if traffic > *most {
            *at = Some(now);
        }
        if traffic > *most || traffic + 16 < *most {
            *most = traffic;
        }
        *at
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn mx2_counters_that_move_are_traffic() {
        let mut counters = Counters::default();
        let at = |s| Mono(Duration::from_secs(s));
        assert_eq!(counters.count(at(1), "t", 500), None, "what came before");
        assert_eq!(counters.count(at(2), "t", 500), None);
        assert_eq!(counters.count(at(3), "t", 501), Some(at(3)));
        assert_eq!(
            counters.count(at(4), "t", 500),
            Some(at(3)),
            "an answer heard late"
        );
        assert_eq!(counters.count(at(5), "t", 501), Some(at(3)));
        assert_eq!(counters.count(at(6), "t", 3), Some(at(3)), "made anew");
        assert_eq!(counters.count(at(7), "t", 4), Some(at(7)));
    }
}
