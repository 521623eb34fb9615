//! Answers the gateway gives itself.

use super::{Gateway, context::Progress};
use crate::{
    seal,
    sip::{self, Message, Name},
    time::Now,
};

impl Gateway {
    /// Answers a request here. A final answer ends what its context may still relay.
    pub(super) fn answer(&mut self, now: Now, id: u64, code: u16) {
        self.answer_with(now, id, code, &[]);
    }

    /// The same with header lines of our own.
    pub(super) fn answer_with(&mut self, now: Now, id: u64, code: u16, headers: &[(Name, String)]) {
        let Some(ctx) = self.contexts.get(&id) else {
            return;
        };
        if ctx.progress == Progress::Answered {
            return;
        }
        let tag = (code > 100).then(|| self.own_tag(&ctx.request));
        let phrase = sip::reason_phrase(code);
        let keep = self.keep_promised(ctx.listener, &ctx.request, code);
        let vias = sip::reply_vias(&ctx.request, ctx.from, keep);
        let status = (code, phrase);
        let bytes = sip::respond_with(&ctx.request, status, tag.as_deref(), &vias, headers);
        self.respond(now, id, code, bytes);
    }

    /// Hands a response to the server transaction and remembers that the sender has its final
    /// answer.
    pub(super) fn respond(&mut self, now: Now, id: u64, code: u16, bytes: Vec<u8>) {
        let Some(ctx) = self.contexts.get_mut(&id) else {
            return;
        };
        let server = ctx.server;
        if code >= 200 {
            ctx.progress = Progress::Answered;
        }
        let (listener, request, from) = (ctx.listener, ctx.request.clone(), ctx.from);
        if self.transactions.respond(now, server, code, bytes.clone()) {
            self.follows(now, (listener, from), &bytes);
        }
        // A 2xx is settled by its ACK: until then whoever asked may not have it.
        if code >= 300 {
            self.settle_asked(listener, &request);
        }
    }

    /// The To tag of answers we give: the same for every answer to one request.
    pub(super) fn own_tag(&self, request: &Message) -> String {
        let branch = request.branch().unwrap_or_default();
        let parts = [request.call_id().unwrap_or_default(), branch];
        seal::keyed_hash(&self.conf.secret, "tag", &parts)
    }

    /// A tag for an answer to something that is no message.
    pub(super) fn fresh_tag(&mut self) -> String {
        format!("{:016x}", self.rng.next_u64())
    }
}
