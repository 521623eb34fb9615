//! Media that several calls lost together: the way they share is asked about (KL6).

use super::{Health, path::Cause};
use crate::{
    net::{GroupId, LinkId, PathKey},
    time::{Mono, Now},
};

impl Health {
    /// The RTP of `calls` calls that arrives by this link ended together at `since`. The server
    /// that each group uses over it gets its burst at once, unless it spoke or was asked since
    /// then: one stall asks once.
    pub fn media_stalled(&mut self, now: Now, link: LinkId, calls: usize, since: Mono) {
        let groups = (0..self.groups.len()).filter_map(|index| u16::try_from(index).ok());
        let used = groups.filter_map(|index| self.active(now, GroupId(index)));
        let asked: Vec<PathKey> = used
            .filter(|key| key.link == link && self.silent_since(*key, since))
            .collect();
        for key in asked {
            self.note(
                now,
                key,
                format!("the RTP of {calls} calls stalled together"),
            );
            self.suspect(now, key, Cause::Silence, "rtp_stalled");
        }
    }

    /// Neither heard nor asked since then.
    fn silent_since(&self, key: PathKey, since: Mono) -> bool {
        let later = |at: Option<Mono>| at.is_some_and(|at| at > since);
        self.paths.get(&key).is_some_and(|path| {
            path.burst.is_none() && !later(path.last_inbound) && !later(path.last_probe)
        })
    }
}
