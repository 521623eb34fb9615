//! Parallel forks: several phones of one address of record ring together (RFC 3261 section
//! 16.7). The first 2xx wins; of refusals the best is relayed, once all have refused.

use std::rc::Rc;

use super::{
    Gateway,
    context::{Context, Progress},
};
use crate::{sip::Message, time::Now};

impl Gateway {
    /// Whether branches other than this one may still be answered.
    pub(super) fn others_ring(&self, id: u64, index: usize) -> bool {
        self.contexts
            .get(&id)
            .is_some_and(|ctx| others(ctx, index).next().is_some())
    }

    /// Keeps a refusal until the other branches have spoken. A 6xx speaks for all of them.
    pub(super) fn keep_best(&mut self, now: Now, id: u64, index: usize, msg: &Message, code: u16) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        if ctx
            .best
            .as_ref()
            .is_none_or(|(_, best, _)| rank(code) < rank(*best))
        {
            ctx.best = Some((index, code, Rc::new(msg.clone())));
        }
        if code >= 600 {
            self.end_other_forks(now, id, index);
            self.settle(now, id);
        }
    }

    /// Relays the best refusal when no branch is left that could do better.
    pub(super) fn settle(&mut self, now: Now, id: u64) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        if ctx.progress == Progress::Answered || ctx.has_live_branch() {
            return;
        }
        match ctx.best.take() {
            Some((index, code, msg)) => {
                let from = ctx.branches[index].to;
                self.relay(now, id, index, from, &msg, code);
            }
            None => self.answer(now, id, 480),
        }
        self.end_attempt(now, id);
    }

    /// One branch answered: the others stop ringing.
    pub(super) fn end_other_forks(&mut self, now: Now, id: u64, index: usize) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let ringing: Vec<usize> = others(ctx, index).collect();
        for other in ringing {
            self.abandon(now, id, other);
        }
    }

    /// Phones that have not said a word to an INVITE are not waited for any longer.
    pub(super) fn phone_silent(&mut self, now: Now, id: u64) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        let silent = |index: &usize| {
            let branch = &ctx.branches[*index];
            branch.path.is_none() && !branch.provisional
        };
        let silent: Vec<usize> = live(ctx).filter(silent).collect();
        for index in silent {
            self.abandon(now, id, index);
        }
        self.settle(now, id);
    }
}

fn live(ctx: &Context) -> impl Iterator<Item = usize> {
    let branches = ctx.branches.iter().enumerate();
    branches
        .filter(|(_, branch)| !branch.abandoned && !branch.finished)
        .map(|(index, _)| index)
}

fn others(ctx: &Context, index: usize) -> impl Iterator<Item = usize> {
    live(ctx).filter(move |other| *other != index)
}

/// Lower is better: RFC 3261 section 16.7, step 6, with 6xx first and challenges before other
/// refusals of the same class, since they can be answered.
fn rank(code: u16) -> (u16, u16) {
    match code {
        600.. => (0, code),
        401 | 407 | 415 | 420 | 484 => (code / 100, 0),
        _ => (code / 100, code),
    }
}
