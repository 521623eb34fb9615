//! Recent state changes: kept for `events` and `explain`, and told to those who follow.

use std::collections::VecDeque;

use keepline_engine::event::Event;
use tokio::sync::broadcast;

use super::render;
use crate::api::model;

/// How many events are kept.
const KEPT: usize = 4096;
/// How far a follower may lag before it misses events, which it is told.
const FOLLOW: usize = 256;

/// The kept events, newest last.
#[derive(Debug)]
pub struct Journal {
    kept: VecDeque<model::Event>,
    follow: broadcast::Sender<model::Event>,
}

impl Journal {
    /// An empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self {
            kept: VecDeque::new(),
            follow: broadcast::channel(FOLLOW).0,
        }
    }

    /// Keeps an event, logs it in one line and tells followers.
    pub fn record(&mut self, event: &Event) {
        tracing::info!(
            kind = event.kind,
            object = %event.object,
            from = %event.from,
            to = %event.to,
            rule = event.rule,
            "state change"
        );
        let event = render::event(event);
        // No follower is no error.
        let _ = self.follow.send(event.clone());
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
    }

    /// Everything kept, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<model::Event> {
        self.kept.iter().cloned().collect()
    }

    /// What is kept of objects whose name is one that is `meant`.
    #[must_use]
    pub fn about(&self, meant: impl Fn(&str) -> bool) -> Vec<model::Event> {
        self.kept
            .iter()
            .filter(|event| meant(&event.object))
            .cloned()
            .collect()
    }

    /// Where new events are told.
    #[must_use]
    pub fn follow(&self) -> broadcast::Sender<model::Event> {
        self.follow.clone()
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}
