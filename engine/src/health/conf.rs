//! What a group's health and selection are configured with; the defaults are the shipped values.

use std::{net::SocketAddr, time::Duration};

use crate::net::Transport;

/// A softswitch domain: its servers and the timers that judge them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConf {
    /// The group's name, for people.
    pub name: String,
    /// Its servers; a [`ServerId`](crate::net::ServerId) is a position in this list.
    pub servers: Vec<ServerConf>,
    /// Who is probed without cause.
    pub probe: ProbeMode,
    /// Between probes of a path that is well.
    pub interval: Duration,
    /// How long a probe may stay unanswered; the next goes at once.
    pub timeout: Duration,
    /// Failed probes in a row that make a path down.
    pub max_unanswered: u32,
    /// An INVITE hunts then if nothing at all came from the server since it was sent.
    pub passive_timeout: Duration,
    /// Any other method hunts then.
    pub passive_timeout_other: Duration,
    /// An INVITE hunts then although the server spoke.
    pub slow_timeout: Duration,
    /// A 100 and nothing more for this long is soft evidence.
    pub after_100_timeout: Duration,
    /// What comes first when a path fails.
    pub prefer: Prefer,
    /// Good answers in a row that end a down state.
    pub recover_answers: u32,
    /// Final responses that speak against a server.
    pub down_codes: Vec<u16>,
    /// How a down path is probed.
    pub backoff: Backoff,
    /// How a returned server gets its work back.
    pub failback: Failback,
    /// How long a returned server waits, doubled by each flap up to [`MAX_FAILBACK_HOLD`].
    pub failback_hold: Duration,
}

/// The longest hold that flaps can earn.
pub const MAX_FAILBACK_HOLD: Duration = Duration::from_secs(600);
/// A path that stayed up for this long has its flaps forgotten.
pub const FLAPS_FORGOTTEN: Duration = Duration::from_secs(30 * 60);
/// The longest hold that a 503's Retry-After can ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// One server of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConf {
    /// As configured, for people.
    pub uri: String,
    /// Where its requests go.
    pub address: SocketAddr,
    /// What carries them.
    pub transport: Transport,
    /// Lower is preferred (RFC 2782).
    pub priority: u16,
    /// The share among servers of one priority; 0 takes part with the smallest share.
    pub weight: u16,
}

/// Which paths are probed at an interval. The confirming burst of a suspect path and the
/// probes of a down path run in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProbeMode {
    /// None.
    Off,
    /// Those not in use.
    Inactive,
    /// Those not in use, and the one in use when it was silent for `interval`.
    Idle,
    /// All of them, silent or not.
    All,
}

/// Where the next try goes when a path fails and several links exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Prefer {
    /// The same server over the next link.
    Link,
    /// The next server over the same link.
    Server,
}

/// How work returns to a preferred server that was down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failback {
    /// Each AOR at its next REGISTER, its calls after it.
    Registration,
    /// All new requests, once the hold is over.
    Immediate,
    /// Only when the operator says so ([`Health::switch`](super::Health::switch)).
    Manual,
}

/// The delays between probes of a down path: doubling from `initial`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the verdict.
    pub initial: Duration,
    /// The cap while another server of the group can serve.
    pub max: Duration,
    /// The cap while none can.
    pub max_alone: Duration,
}

impl Default for GroupConf {
    fn default() -> Self {
        Self {
            name: String::new(),
            servers: Vec::new(),
            probe: ProbeMode::Idle,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            max_unanswered: 3,
            passive_timeout: Duration::from_millis(1_500),
            passive_timeout_other: Duration::from_secs(5),
            slow_timeout: Duration::from_secs(4),
            after_100_timeout: Duration::from_secs(12),
            prefer: Prefer::Link,
            recover_answers: 3,
            down_codes: vec![408, 502, 503, 504],
            backoff: Backoff::default(),
            failback: Failback::Registration,
            failback_hold: Duration::from_secs(60),
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(2),
            max: Duration::from_secs(300),
            max_alone: Duration::from_secs(30),
        }
    }
}

/// Keeps a configuration from making the machine spin: no timer is shorter than this.
pub(super) fn bounded(mut conf: GroupConf) -> GroupConf {
    const SHORTEST: Duration = Duration::from_millis(20);
    for timer in [
        &mut conf.interval,
        &mut conf.timeout,
        &mut conf.passive_timeout,
        &mut conf.passive_timeout_other,
        &mut conf.slow_timeout,
        &mut conf.after_100_timeout,
        &mut conf.backoff.initial,
        &mut conf.backoff.max,
        &mut conf.backoff.max_alone,
    ] {
        *timer = (*timer).max(SHORTEST);
    }
    conf.max_unanswered = conf.max_unanswered.max(1);
    conf.recover_answers = conf.recover_answers.max(1);
    conf
}
