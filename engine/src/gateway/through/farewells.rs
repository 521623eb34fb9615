//! BYEs that were answered here since their softswitch did not serve: it is told all the same for
//! as long as a transaction lives, in the phone's name (signalling.md section 5). Its answer
//! reaches the phone too, which waits for none any more and drops it (RFC 3261 section 17.1.2).

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use super::{Asking, TalkId};
use crate::{
    gateway::{Gateway, deadlines::Deadline},
    net::LinkId,
    sip::{Message, Method},
    time::{Mono, Now},
};

/// How long it is told: 64 times T1.
const TELL: Duration = Duration::from_secs(32);
/// T1 and T2 of RFC 3261 section 17.1.2.2: the first pause between two, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(4)];
/// How many are told of at once; one beyond it is not.
const MAX_FAREWELLS: usize = 1024;

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct Farewells(HashMap<u64, Farewell>);

#[derive(Debug)]
struct Farewell {
    talk: TalkId,
    asking: Asking,
    link: LinkId,
    /// The phone, its softswitch.
    way: (SocketAddr, SocketAddr),
    bye: Vec<u8>,
    pause: Duration,
    until: Mono,
}

impl Farewells {
    /// Their softswitch answered, or the talk is forgotten.
    pub(super) fn end(&mut self, talk: TalkId, asking: Option<&Asking>) {
        self.0.retain(|_, farewell| {
            farewell.talk != talk || asking.is_some_and(|asking| farewell.asking != *asking)
        });
    }
}

impl Gateway {
    /// A phone's BYE was answered here.
    pub(super) fn tell_of_bye(&mut self, now: Now, id: TalkId, bye: &Message) {
        let Some(talk) = self.talks.by_id.get(&id) else {
            return;
        };
        if self.talks.farewells.0.len() >= MAX_FAREWELLS {
            return;
        }
        let farewell = Farewell {
            talk: id,
            asking: (bye.branch().unwrap_or_default().to_vec(), Method::Bye),
            link: talk.path.link,
            way: (talk.phone, talk.server),
            bye: bye.bytes().to_vec(),
            pause: PAUSES[0],
            until: now.mono + TELL,
        };
        let number = self.fresh_id();
        self.talks.farewells.0.insert(number, farewell);
        self.farewell_due(now, number);
    }

    /// Says it once more, and when again.
    pub(in crate::gateway) fn farewell_due(&mut self, now: Now, number: u64) {
        let farewells = &mut self.talks.farewells.0;
        let Some(farewell) = farewells.get_mut(&number) else {
            return;
        };
        if farewell.until <= now.mono {
            farewells.remove(&number);
            return;
        }
        let next = now.mono + farewell.pause;
        farewell.pause = (farewell.pause * 2).min(PAUSES[1]);
        let (link, way, bye) = (farewell.link, farewell.way, farewell.bye.clone());
        self.deadlines.set(Deadline::Farewell(number), next);
        self.pass(link, way, bye);
    }
}
