//! State changes, each with the evidence and the rule that led to it (KL7).

use crate::time::Now;

/// One observation that counted in a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// When it was made.
    pub at: Now,
    /// What was seen, in one clause: `"OPTIONS unanswered for 1.0 s"`.
    pub what: String,
}

/// A change of state that a person may ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Now,
    /// The kind of object: `"server"`, `"group"`, `"call"`, `"binding"`, `"fastpath"`, ...
    pub kind: &'static str,
    /// Which one: `"core sip:192.0.2.10:5060 wan0"`.
    pub object: String,
    /// The state before.
    pub from: String,
    /// The state after.
    pub to: String,
    /// The rule that decided, by name: `"burst_unanswered"`.
    pub rule: &'static str,
    /// What it rests on, oldest first, bounded.
    pub evidence: Vec<Evidence>,
}
