//! Transparent mode without hiding (signalling.md section 12): SIP over UDP between a phone and
//! the softswitch that it addresses goes through as it is, byte for byte and in the phone's own
//! name, while that softswitch serves.
//!
//! Phone and softswitch are a *talk*. A talk that has proven itself is routed by the data path
//! both ways; copies of what it routes come here and are judged as the gateway's own requests
//! are, though nothing is sent. Before that, and while it is *up*, what the phone sends comes to
//! our socket: it is sent on unaltered, or dealt with as with hiding when the softswitch does not
//! serve. So the softswitch sees one address and one Contact of a phone, on either way.
//!
//! | file | concern |
//! |---|---|
//! | `passing` | what a phone sends to our socket: on its way, or taken |
//! | `observed` | requests and responses that went through, and what they teach |
//! | `turning` | which talks the data path routes: suspicion, death, return |
//! | `calls` | calls that went through and outlive their softswitch |
//! | `farewells` | BYEs of such calls, which it is told of |

mod calls;
mod farewells;
mod observed;
mod passing;
mod turning;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use super::{Gateway, Output, bindings::Binding, deadlines::Deadline};
use crate::{
    health::RequestId,
    net::{ListenerId, PathKey},
    sip::{Message, Method},
    steer::{self, Delta, MAX_TALKS, TalkId},
    time::{Mono, Now},
};

/// Talks whose softswitch has not accepted a REGISTER.
const MAX_STRANGERS: usize = 1024;
/// Requests of one talk that are watched.
const MAX_ASKED: usize = 64;
/// A talk that nobody vouches for is forgotten after this: no transaction lives as long.
const UNUSED: Duration = Duration::from_secs(64);

/// Whose datagram the data path routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The phone's.
    Phone,
    /// Its softswitch's.
    Server,
}

/// What a transaction that goes through is recognised by: branch and method.
type Asking = (Vec<u8>, Method);

/// All talks.
#[derive(Debug, Default)]
pub(super) struct Talks {
    by_id: BTreeMap<TalkId, Talk>,
    by_parties: HashMap<(SocketAddr, SocketAddr), TalkId>,
    by_request: HashMap<RequestId, (TalkId, Asking)>,
    suspected: BTreeSet<TalkId>,
    calls: calls::Calls,
    farewells: farewells::Farewells,
    strangers: usize,
    last: u32,
    /// The path that the phone tried of the request which is being taken over.
    pub(super) taken_from: Option<PathKey>,
}

/// Who forwards what a phone sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// The data path.
    Routed,
    /// We do: it is not proven, or its softswitch does not serve, or the phone speaks with us.
    Taken,
    /// We do, until a burst has shown whether its softswitch lives.
    Suspected,
}

/// A phone and its softswitch.
#[derive(Debug)]
struct Talk {
    phone: SocketAddr,
    server: SocketAddr,
    /// The listener that stands for the softswitch.
    place: ListenerId,
    path: PathKey,
    stand: Stand,
    /// Its softswitch accepted a REGISTER, ever.
    bound: bool,
    /// The same, and has not failed since.
    returned: bool,
    /// When it is forgotten.
    until: Mono,
    asked: HashMap<Asking, Asked>,
}

/// A request that went through and has no final answer.
#[derive(Debug)]
struct Asked {
    req: RequestId,
    at: Mono,
    /// The data path routed it, and stamped it.
    carried: bool,
    answered: bool,
    /// It was found overdue.
    overdue: bool,
    /// An INVITE or REGISTER.
    message: Option<Rc<Message>>,
}

impl Gateway {
    /// The talks in force, for reconciling the data path.
    pub fn talks(&self) -> impl Iterator<Item = steer::Talk> {
        let all = self.talks.by_id.iter();
        all.map(|(id, talk)| self.steered(*id, talk))
    }

    /// How many talks are routed by the data path, and how many are not.
    #[must_use]
    pub fn talk_count(&self) -> (usize, usize) {
        let routed = |talk: &&Talk| talk.stand == Stand::Routed;
        let routed = self.talks.by_id.values().filter(routed).count();
        (routed, self.talks.by_id.len() - routed)
    }

    /// The talk of a stored binding goes on as it was.
    pub(super) fn talk_back(&mut self, now: Now, binding: &Binding) {
        let place = binding.listener;
        let to = self.address(place);
        let own = binding.upstream_contact == binding.contact;
        let path = self.goes_through(now, place, to).filter(|_| own);
        let until = binding.phone_until + super::bindings::OVERDUE;
        if let Some(path) = path.filter(|_| until > now.mono) {
            let found = self.new_talk(now, (place, to), binding.source, path);
            if let Some(talk) = found.and_then(|id| self.talks.by_id.get_mut(&id)) {
                talk.until = until;
            }
            if let Some(id) = found {
                self.vouch(id);
                self.route_talk(now, id);
            }
        }
    }

    /// A new talk, taken at first; `None` when there are too many.
    fn new_talk(
        &mut self,
        now: Now,
        (place, server): (ListenerId, SocketAddr),
        phone: SocketAddr,
        path: PathKey,
    ) -> Option<TalkId> {
        let talks = &mut self.talks;
        if talks.by_id.len() >= MAX_TALKS as usize || talks.strangers >= MAX_STRANGERS {
            self.counters.table_full += 1;
            return None;
        }
        // In turns, so that what is still on its way of an old one is not taken for the new one's.
        let id = loop {
            talks.last = talks.last % MAX_TALKS + 1;
            if !talks.by_id.contains_key(&TalkId(talks.last)) {
                break TalkId(talks.last);
            }
        };
        let talk = Talk {
            phone,
            server,
            place,
            path,
            stand: Stand::Taken,
            bound: false,
            returned: false,
            until: now.mono + UNUSED,
            asked: HashMap::new(),
        };
        talks.strangers += 1;
        talks.by_parties.insert((phone, server), id);
        talks.by_id.insert(id, talk);
        self.deadlines.set(Deadline::Talk(id.0), now.mono + UNUSED);
        Some(id)
    }

    /// A softswitch accepted a REGISTER of the talk's phone.
    fn vouch(&mut self, id: TalkId) {
        if let Some(talk) = self.talks.by_id.get_mut(&id) {
            self.talks.strangers -= usize::from(!talk.bound);
            (talk.bound, talk.returned) = (true, true);
        }
    }

    fn end_talk(&mut self, now: Now, id: TalkId) {
        let Some(talk) = self.talks.by_id.remove(&id) else {
            return;
        };
        self.talks.strangers -= usize::from(!talk.bound);
        self.talks.by_parties.remove(&(talk.phone, talk.server));
        self.talks.suspected.remove(&id);
        self.talks.calls.end_all(id);
        self.talks.farewells.end(id, None);
        for asked in talk.asked.into_values() {
            self.talks.by_request.remove(&asked.req);
            self.health.closed(now, asked.req);
        }
        for deadline in [Deadline::Talk, Deadline::Unanswered] {
            self.deadlines.clear(deadline(id.0));
        }
        self.out.push_back(Output::Steer(Delta::TalkClear(id)));
    }

    /// Tells the data path how a talk stands.
    fn steer_talk(&mut self, id: TalkId) {
        if let Some(talk) = self.talks.by_id.get(&id) {
            let talk = self.steered(id, talk);
            self.out.push_back(Output::Steer(Delta::TalkSet(talk)));
        }
    }

    fn steered(&self, id: TalkId, talk: &Talk) -> steer::Talk {
        steer::Talk {
            id,
            lan: self.link(talk.place),
            phone: talk.phone,
            wan: talk.path.link,
            server: talk.server,
            up: talk.stand != Stand::Routed,
            bound: talk.bound,
        }
    }
}
