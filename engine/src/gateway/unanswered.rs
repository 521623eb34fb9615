//! re-INVITEs that had their 100 when the process died. Whoever got a 100 repeats its INVITE no
//! more (RFC 3261 section 17.1.1.2), so the request is kept with its dialog until it is
//! settled, and heard once more after a restart. Its branch is derived, so that the far party,
//! if the request reached it, takes this for a retransmission and answers again.

use std::{net::SocketAddr, time::Duration};

use super::{Gateway, dialogs::Party, records::AskedRecord};
use crate::{
    net::ListenerId,
    sip::{Message, Method},
    time::Now,
};

/// 64 T1: the far party repeats its final answer for as long (RFC 3261 sections 13.3.1.4 and
/// 17.2.1), and has forgotten the request afterwards.
const LIFE: Duration = Duration::from_secs(32);
/// Longer requests are not kept: a dialog must not cost much memory.
const MAX_BYTES: usize = 16 << 10;

/// A re-INVITE of one party of a dialog, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) request: Vec<u8>,
    pub(crate) from: SocketAddr,
    pub(crate) listener: ListenerId,
    pub(crate) cseq: u32,
    pub(crate) since: Now,
}

impl Gateway {
    /// Keeps an INVITE inside a dialog before anything is answered.
    pub(super) fn note_asked(
        &mut self,
        now: Now,
        listener: ListenerId,
        from: SocketAddr,
        msg: &Message,
    ) {
        let Some((dialog, party, cseq)) = self.asking(listener, msg) else {
            return;
        };
        // A connection dies with the process, and with it the transaction of whoever asked.
        if msg.bytes().len() > MAX_BYTES || self.transport(listener).is_stream() {
            return;
        }
        let Some(dialog) = self.dialogs.get_mut(dialog) else {
            return;
        };
        let asked = &mut dialog.leg_mut(party).asked;
        // Heard again after a restart: its time goes on.
        let since = asked.as_ref().filter(|asked| asked.cseq == cseq);
        *asked = Some(Asked {
            request: msg.bytes().to_vec(),
            from,
            listener,
            cseq,
            since: since.map_or(now, |asked| asked.since),
        });
    }

    /// The INVITE was refused, or its 2xx acknowledged: `msg` is the INVITE or that ACK.
    pub(super) fn settle_asked(&mut self, listener: ListenerId, msg: &Message) {
        if let Some((dialog, party, cseq)) = self.asking(listener, msg)
            && let Some(dialog) = self.dialogs.get_mut(dialog)
        {
            let asked = &mut dialog.leg_mut(party).asked;
            *asked = asked.take().filter(|asked| asked.cseq != cseq);
        }
    }

    fn asking(&self, listener: ListenerId, msg: &Message) -> Option<(u64, Party, u32)> {
        let cseq = msg.cseq()?;
        if !matches!(cseq.method, Method::Invite | Method::Ack) {
            return None;
        }
        let key = self.dialog_key(msg, self.side(listener))?;
        let (dialog, party) = self.dialogs.find(&key)?;
        Some((dialog, party, cseq.number))
    }

    /// Hears again what the process had not settled when it died.
    pub(super) fn hear_asked_again(&mut self, now: Now) {
        let mut again: Vec<(u64, Asked)> = (self.dialogs.iter())
            .flat_map(|dialog| {
                let asked = [&dialog.caller.asked, &dialog.callee.asked];
                asked.map(|asked| Some((dialog.id, asked.clone()?)))
            })
            .flatten()
            .collect();
        again.sort_by_key(|(dialog, asked)| (*dialog, asked.cseq));
        for (_, asked) in again {
            self.datagram(now, asked.listener, asked.from, asked.request);
        }
    }

    pub(super) fn asked_record(&self, asked: &Asked) -> AskedRecord {
        AskedRecord {
            request: asked.request.clone(),
            from: asked.from,
            listener: self.listener_record(asked.listener),
            since: asked.since.wall,
        }
    }

    /// `None` when it is too old to matter, or from a clock that was ahead.
    pub(super) fn load_asked(&self, now: Now, record: &AskedRecord) -> Option<Asked> {
        let age = now.wall.0.checked_sub(record.since.0)?;
        let msg = Message::parse(record.request.clone()).ok()?;
        (age < LIFE).then_some(Asked {
            from: record.from,
            listener: self.listener_of(&record.listener)?,
            cseq: msg.cseq()?.number,
            since: Now {
                mono: now.mono_at(record.since),
                wall: record.since,
            },
            request: record.request.clone(),
        })
    }
}
