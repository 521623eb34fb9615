//! The path for a request.

use std::time::Duration;

use super::{Class, Failback, Group, GroupState, Health, Path, Prefer, Want, path::Condition};
use crate::{
    net::{GroupId, PathKey, ServerId},
    rng::Rng,
    time::{Mono, Now},
};

/// A better server must have been well for this long before affinity yields to it.
const STEADY: Duration = Duration::from_secs(5);

/// How willingly a path is used, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// Up, or never heard.
    Ready,
    /// Up again, on its fail-back hold: used while nothing is ready.
    Returning,
    /// Suspect: better than a server that asked to be left alone.
    Suspect,
    /// Held until then: the earliest is used rather than none.
    Held(Mono),
}

/// The order among candidates: smaller is better.
#[derive(Debug, PartialEq, PartialOrd)]
struct Rank {
    tier: Tier,
    not_switched_to: bool,
    /// `Prefer::Server` looks at the link before the server.
    link_first: usize,
    not_affine: bool,
    priority: u16,
    draw: f64,
    server: u16,
    link: usize,
}

impl Health {
    /// The path for a request; `None` when every untried path is down.
    ///
    /// Order: ready paths before returning, suspect and held ones; then the operator's choice,
    /// the server with affinity where fail-back permits, priority, and a rendezvous hash of the
    /// AOR by weight. The same server over the next link comes before or after the next server
    /// as `prefer` says.
    #[must_use]
    pub fn choose(&self, now: Now, want: &Want<'_>) -> Option<PathKey> {
        let group = self.group(want.group)?;
        let candidates: Vec<_> = self
            .paths_of(want.group)
            .filter(|(key, path)| !path.is_down() && !want.tried.contains(key))
            .map(|(key, path)| (key, tier(now.mono, group, key.server, path, path.condition)))
            .collect();
        let affinity = want.affinity.filter(|&server| {
            group.switched_to.is_none() && !self.returns(now.mono, group, want, server, &candidates)
        });
        self.best(group, &candidates, affinity, want.aor)
    }

    /// The path that requests take to a server which is not chosen but addressed, as long as it
    /// serves; also while it is suspect, which may pass at once.
    #[must_use]
    pub fn serving(&self, now: Now, server: ServerId) -> Option<PathKey> {
        let group = self.group(server.group)?;
        if group.switched_to.is_some_and(|other| other != server) {
            return None;
        }
        let order = |key: &PathKey| self.links.iter().position(|link| link.id == key.link);
        self.paths_of(server.group)
            .filter(|(key, path)| key.server == server && !path.is_down())
            .map(|(key, path)| (tier(now.mono, group, server, path, path.condition), key))
            .filter(|(tier, _)| matches!(tier, Tier::Ready | Tier::Suspect))
            .min_by_key(|(tier, key)| (*tier, order(key)))
            .map(|(_, key)| key)
    }

    /// Whether a path is under suspicion.
    #[must_use]
    pub fn is_suspect(&self, path: PathKey) -> bool {
        let path = self.paths.get(&path);
        path.is_some_and(|path| path.condition == Condition::Suspect)
    }

    /// Whether the verdict on a path is down.
    #[must_use]
    pub fn is_down(&self, path: PathKey) -> bool {
        self.paths.get(&path).is_some_and(super::Path::is_down)
    }

    /// The path of requests without affinity, as if suspicion did not exist.
    pub(super) fn active(&self, now: Now, id: GroupId) -> Option<PathKey> {
        let group = self.group(id)?;
        let candidates: Vec<_> = self
            .paths_of(id)
            .filter(|(_, path)| !path.is_down())
            .map(|(key, path)| (key, tier(now.mono, group, key.server, path, Condition::Up)))
            .collect();
        // Among equals the active one stays: the choice by weight is per AOR.
        let stays = match group.state {
            GroupState::Serving { active } => Some(active.server),
            GroupState::Survivability => None,
        };
        let best = candidates
            .iter()
            .map(|(key, tier)| (*tier, priority(group, key.server)))
            .min();
        let stays = stays.filter(|&server| {
            let rank = |(key, tier): &(PathKey, Tier)| {
                (key.server == server).then_some((*tier, priority(group, server)))
            };
            candidates.iter().filter_map(rank).min() == best
        });
        self.best(group, &candidates, stays, b"")
    }

    /// Does this request leave the server it has affinity with for a better one? Only where
    /// the fail-back policy lets it, and not while the better one has just been suspect: the
    /// answer to a challenge belongs to whoever issued it.
    fn returns(
        &self,
        now: Mono,
        group: &Group,
        want: &Want<'_>,
        from: ServerId,
        candidates: &[(PathKey, Tier)],
    ) -> bool {
        let permitted = match group.conf.failback {
            Failback::Registration => want.class == Class::Register,
            Failback::Immediate => true,
            Failback::Manual => false,
        };
        let steady = |key: &PathKey| {
            self.paths
                .get(key)
                .is_some_and(|path| now.since(path.since.mono) >= STEADY)
        };
        permitted
            && candidates.iter().any(|(key, tier)| {
                *tier == Tier::Ready
                    && priority(group, key.server) < priority(group, from)
                    && steady(key)
            })
    }

    fn best(
        &self,
        group: &Group,
        candidates: &[(PathKey, Tier)],
        affinity: Option<ServerId>,
        aor: &[u8],
    ) -> Option<PathKey> {
        let rank = |key: PathKey, tier: Tier| {
            let link = self
                .links
                .iter()
                .position(|l| l.id == key.link)
                .unwrap_or(usize::MAX);
            Rank {
                tier,
                not_switched_to: group.switched_to.is_some_and(|server| server != key.server),
                link_first: if group.conf.prefer == Prefer::Server {
                    link
                } else {
                    0
                },
                not_affine: affinity.is_some_and(|server| server != key.server),
                priority: priority(group, key.server),
                draw: draw(group, key.server, aor),
                server: key.server.index,
                link,
            }
        };
        let ranked = candidates.iter().map(|&(key, tier)| (rank(key, tier), key));
        ranked
            .min_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
            .map(|(_, key)| key)
    }
}

fn tier(now: Mono, group: &Group, server: ServerId, path: &Path, condition: Condition) -> Tier {
    let held = group
        .held_until
        .get(usize::from(server.index))
        .copied()
        .flatten();
    if let Some(until) = held.filter(|&until| until > now) {
        return Tier::Held(until);
    }
    if condition == Condition::Suspect {
        return Tier::Suspect;
    }
    match path.returns_at {
        Some(at) if at > now => Tier::Returning,
        _ => Tier::Ready,
    }
}

fn priority(group: &Group, server: ServerId) -> u16 {
    group
        .conf
        .servers
        .get(usize::from(server.index))
        .map_or(u16::MAX, |server| server.priority)
}

/// Weighted rendezvous: each server draws for the AOR, the smallest draw wins, in the long run
/// in proportion to the weights; a server's coming or going moves only its own AORs.
fn draw(group: &Group, server: ServerId, aor: &[u8]) -> f64 {
    let Some(conf) = group.conf.servers.get(usize::from(server.index)) else {
        return f64::MAX;
    };
    let bytes = conf.uri.bytes().chain([0]).chain(aor.iter().copied());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // 53 bits make a uniform number in (0, 1]; its negative logarithm is exponential.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
    let uniform = ((Rng::new(hash).next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let weight = if conf.weight == 0 {
        0.01
    } else {
        f64::from(conf.weight)
    };
    -uniform.ln() / weight
}
