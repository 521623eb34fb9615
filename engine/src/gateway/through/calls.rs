//! Calls that went through. While their softswitch serves, they are its own; when it does not,
//! what a phone sends in one of them is answered here, so that the call outlives it (EM26,
//! signalling.md section 5). They are not stored: after a restart such a request gets 481.

use std::collections::HashMap;

use super::TalkId;
use crate::{
    gateway::{
        Gateway,
        bodies::sdp_of,
        refresh::{TRY_AGAIN, same_session},
    },
    net::Side,
    sip::{Message, Method, Name},
    time::Now,
};

/// How many are remembered; one beyond it is not.
const MAX_CALLS: usize = 65_536;

/// Call-ID, the phone's tag, the other's tag.
type Key = [Vec<u8>; 3];

/// All calls that went through.
#[derive(Debug, Default)]
pub(super) struct Calls(HashMap<Key, Call>);

#[derive(Debug)]
struct Call {
    talk: TalkId,
    /// The session descriptions in force: the phone's, and the one that it was told.
    said: Option<Vec<u8>>,
    told: Option<Vec<u8>>,
    /// The other party's Contact.
    target: Vec<u8>,
}

impl Calls {
    /// A phone's INVITE was answered 2xx.
    pub(super) fn answered(&mut self, talk: TalkId, request: &Message, msg: &Message) {
        let target = msg.contacts().next();
        let call = Call {
            talk,
            said: sdp_of(request).map(<[u8]>::to_vec),
            told: sdp_of(msg).map(<[u8]>::to_vec),
            target: target.map_or_else(Vec::new, |addr| msg.slice(addr.uri).to_vec()),
        };
        self.put(key(msg, msg.from_tag(), msg.to_tag()), call);
    }

    /// A phone answered an INVITE 2xx.
    pub(super) fn called(&mut self, talk: TalkId, msg: &Message) {
        let call = Call {
            talk,
            said: sdp_of(msg).map(<[u8]>::to_vec),
            told: None,
            target: Vec::new(),
        };
        self.put(key(msg, msg.to_tag(), msg.from_tag()), call);
    }

    /// A BYE was sent by either party.
    pub(super) fn end(&mut self, bye: &Message) {
        for (phone, other) in [
            (bye.from_tag(), bye.to_tag()),
            (bye.to_tag(), bye.from_tag()),
        ] {
            if let Some(key) = key(bye, phone, other) {
                self.0.remove(&key);
            }
        }
    }

    /// A talk is forgotten, and its calls with it.
    pub(super) fn end_all(&mut self, talk: TalkId) {
        self.0.retain(|_, call| call.talk != talk);
    }

    fn put(&mut self, key: Option<Key>, call: Call) {
        if let Some(key) = key.filter(|key| self.0.len() < MAX_CALLS || self.0.contains_key(key)) {
            self.0.insert(key, call);
        }
    }
}

fn key(msg: &Message, phone: Option<&[u8]>, other: Option<&[u8]>) -> Option<Key> {
    Some([msg.call_id()?, phone?, other?].map(<[u8]>::to_vec))
}

impl Gateway {
    /// A phone's request in a call that went through, which its softswitch does not serve now;
    /// `false` when there is no such call.
    pub(in crate::gateway) fn in_dialog_through(
        &mut self,
        now: Now,
        id: u64,
        request: &Message,
    ) -> bool {
        if self.contexts[&id].side != Side::Lan {
            return false;
        }
        let key = key(request, request.from_tag(), request.to_tag());
        let Some(call) = key.and_then(|key| self.talks.calls.0.get(&key)) else {
            return false;
        };
        let unchanged = match (sdp_of(request), &call.said, &call.told) {
            (None, ..) => request.method() == Some(Method::Update),
            (Some(offer), Some(said), Some(_)) => same_session(said, offer),
            _ => false,
        };
        let told = sdp_of(request).and_then(|_| call.told.clone());
        let (talk, target) = (call.talk, call.target.clone());
        match request.method() {
            Some(Method::Bye) => {
                self.talks.calls.end(request);
                self.answer(now, id, 200);
                self.tell_of_bye(now, talk, request);
            }
            Some(Method::Invite | Method::Update) if unchanged && !target.is_empty() => {
                self.refreshed(now, id, request, &target, told);
            }
            _ => self.answer_with(now, id, 500, &[(Name::RetryAfter, TRY_AGAIN.to_owned())]),
        }
        true
    }
}
