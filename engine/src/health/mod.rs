//! Which servers are alive, and which one a request goes to (signalling.md sections 1 to 3).
//!
//! Evidence is what the gateway's own transactions, its probes and the network say of a
//! (server, link). Two decisions rest on it and are kept apart: to *hunt* one request, and to
//! call a server *down*.

mod conf;
mod types;

use std::{collections::VecDeque, time::Duration};

pub use conf::{
    Backoff, FLAPS_FORGOTTEN, Failback, GroupConf, MAX_FAILBACK_HOLD, MAX_RETRY_AFTER, Prefer,
    ProbeMode, ServerConf,
};
pub use types::{
    Class, GroupState, GroupView, Judgement, Output, PathState, PathView, ProbeId, Reason,
    RequestId, Want,
};

use crate::{
    net::{GroupId, LinkId, PathKey, ServerId},
    time::{Mono, Now},
};

/// The health of every (server, link), and the choice among them.
///
/// A pure machine. The driver feeds one input, drains [`Health::poll_output`] until `None`,
/// asks [`Health::poll_timeout`] and calls [`Health::handle_timeout`] no later than then.
#[derive(Debug)]
pub struct Health {
    outputs: VecDeque<Output>,
}

impl Health {
    /// Watches `groups` over the WAN `links`, given in their order of preference. `seed` feeds
    /// the jitter of the back-off.
    #[must_use]
    pub fn new(now: Now, groups: Vec<GroupConf>, links: Vec<(LinkId, String)>, seed: u64) -> Self {
        let _ = (now, groups, links, seed);
        Self {
            outputs: VecDeque::new(),
        }
    }

    /// A request's first transmission. `what` names it in evidence: `"INVITE sip:201@a.test"`.
    pub fn sent(&mut self, now: Now, req: RequestId, path: PathKey, class: Class, what: &str) {
        let _ = (now, req, path, class, what);
    }

    /// The request was sent again: its response time no longer counts (Karn).
    pub fn retransmitted(&mut self, now: Now, req: RequestId) {
        let _ = (now, req);
    }

    /// A response arrived for a request. `after_18x` is true when a provisional other than 100
    /// came before it, and for requests within a dialog: then every final is passed on.
    ///
    /// Responses to requests that were hunted or closed change nothing.
    pub fn received(
        &mut self,
        now: Now,
        req: RequestId,
        code: u16,
        retry_after: Option<Duration>,
        after_18x: bool,
    ) -> Judgement {
        let _ = (now, req, code, retry_after, after_18x);
        Judgement::Relay
    }

    /// The request ended for another reason: it is judged no more.
    pub fn closed(&mut self, now: Now, req: RequestId) {
        let _ = (now, req);
    }

    /// A request arrived from the server over this link.
    pub fn inbound(&mut self, now: Now, path: PathKey) {
        let _ = (now, path);
    }

    /// An ICMP error arrived whose quoted header matched this live request.
    pub fn icmp(&mut self, now: Now, req: RequestId) {
        let _ = (now, req);
    }

    /// A link's carrier or address came or went.
    pub fn link_changed(&mut self, now: Now, link: LinkId, up: bool) {
        let _ = (now, link, up);
    }

    /// A probe's final answer.
    pub fn probe_received(
        &mut self,
        now: Now,
        id: ProbeId,
        code: u16,
        retry_after: Option<Duration>,
    ) {
        let _ = (now, id, code, retry_after);
    }

    /// The operator's choice: this server first while it is not down, and no hold for it now;
    /// `None` returns to the configured order and ends every hold.
    pub fn switch(&mut self, now: Now, group: GroupId, to: Option<ServerId>) {
        let _ = (now, group, to);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        let _ = now;
    }

    /// When to call [`Health::handle_timeout`], and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Mono, Reason)> {
        None
    }

    /// The next thing to do or to know.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The path for a request; `None` when every untried path is down.
    #[must_use]
    pub fn choose(&self, now: Now, want: &Want<'_>) -> Option<PathKey> {
        let _ = (now, want);
        None
    }

    /// Everything there is to show.
    #[must_use]
    pub fn snapshot(&self, now: Now) -> Vec<GroupView> {
        let _ = now;
        Vec::new()
    }
}
