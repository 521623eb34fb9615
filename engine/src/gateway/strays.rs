//! Responses that belong to no transaction. One kind matters: a 2xx to an INVITE whose ACK was
//! lost with an earlier run of this process.

use std::net::SocketAddr;

use super::{Gateway, dialogs::Phase};
use crate::{
    net::ListenerId,
    seal,
    sip::{Message, Method, originate::Draft},
};

impl Gateway {
    /// A response that nobody here waits for.
    pub(super) fn stray(&mut self, listener: ListenerId, from: SocketAddr, msg: &Message) {
        self.counters.stray += 1;
        if self.may_speak(listener, from) {
            let _ = self.acknowledge(listener, msg);
        }
    }

    /// Who answers a call repeats its 2xx until an ACK comes, and ends the call when none does
    /// (RFC 3261 section 13.3.1.4). The party that called had the 2xx, or it would still repeat
    /// its INVITE; its ACK came while nobody ran here, and it sends no other. So the ACK is
    /// ours. `None`: it is no such 2xx, or the ACK would have to bring an answer.
    fn acknowledge(&mut self, listener: ListenerId, msg: &Message) -> Option<()> {
        let answered = matches!(msg.status(), Some(200..=299));
        if !answered || msg.cseq()?.method != Method::Invite {
            return None;
        }
        let key = self.dialog_key(msg, self.side(listener))?;
        let (id, party) = self.dialogs.find(&key)?;
        let dialog = self.dialogs.get(id)?;
        if dialog.phase == Phase::Early || dialog.answer_in_ack {
            return None;
        }
        let target = self.dialog_target(id, party)?;
        let cseq = msg.cseq()?.number.to_be_bytes();
        let parts = [msg.call_id()?, msg.to_tag()?, &cseq];
        let hash = seal::keyed_hash(&self.conf.secret, "stray-ack", &parts);
        let at = self.sent_protocol_and_by(target.listener);
        let draft = Draft::ack_of_2xx(msg, msg, &at, &format!("z9hG4bK{hash}"))?;
        self.send(target.listener, target.to, draft.build());
        Some(())
    }
}
