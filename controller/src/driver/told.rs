//! What the program tells by its ring of rare events, read and turned into state changes that
//! people see. The program tells at most ten a second of a reason; of those one in ten seconds is
//! shown, with the number of those that were not.

use std::{io, net::IpAddr, time::Duration};

use keepline_common::{
    reason::Reason,
    record::{EventRecord, unmapped},
};
use keepline_engine::{
    event::{Event, Evidence},
    time::{Mono, Now},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
};

use crate::fastpath::events::Events;

/// Events that wait for the driver; more are lost, their counters stay.
const QUEUE: usize = 64;
/// Time between two events of a reason that are shown.
const GAP: Duration = Duration::from_secs(10);

/// Reads the ring from now on. Without a ring nothing ever comes.
pub(super) fn listen(ring: Option<Events>) -> mpsc::Receiver<EventRecord> {
    let (send, told) = mpsc::channel(QUEUE);
    if let Some(ring) = ring {
        tokio::spawn(async move {
            if let Err(error) = read(ring, send).await {
                tracing::warn!(%error, "events of the fast path are not told any more");
            }
        });
    }
    told
}

async fn read(ring: Events, send: mpsc::Sender<EventRecord>) -> io::Result<()> {
    #[expect(unsafe_code, reason = "tokio trusts whoever names the descriptor")]
    // SAFETY: the descriptor is the ring's map's own, open and the same until the ring is dropped.
    let mut ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
    while !send.is_closed() {
        let mut ready = ring.readable_mut().await?;
        while let Some(record) = ready.get_inner_mut().next_event() {
            // A driver that is behind has worse to do.
            let _ = send.try_send(record);
        }
        ready.clear_ready();
    }
    Ok(())
}

/// Lets one event a reason through in [`GAP`].
#[derive(Debug)]
pub(super) struct Told {
    last: [Option<Mono>; Reason::COUNT],
    left_out: [u64; Reason::COUNT],
}

impl Told {
    pub(super) fn new() -> Self {
        Self {
            last: [None; Reason::COUNT],
            left_out: [0; Reason::COUNT],
        }
    }

    /// The state change to show for `record`, which came by `interface`.
    pub(super) fn event(
        &mut self,
        now: Now,
        record: &EventRecord,
        interface: String,
    ) -> Option<Event> {
        let number = record.reason as usize;
        let reason = *Reason::ALL.get(number)?;
        if self.last[number].is_some_and(|last| now.mono.0.saturating_sub(last.0) < GAP) {
            self.left_out[number] += 1;
            return None;
        }
        self.last[number] = Some(now.mono);
        let mut evidence = vec![datagram(record, reason)];
        match std::mem::take(&mut self.left_out[number]) {
            0 => {}
            n => evidence.push(format!("{n} more were told since the last event like this")),
        }
        let evidence = evidence.into_iter().map(|what| Evidence { at: now, what });
        Some(Event {
            at: now,
            kind: "fastpath",
            object: interface,
            from: "arrived".to_owned(),
            to: reason.verdict().name().to_owned(),
            rule: reason.name(),
            evidence: evidence.collect(),
        })
    }
}

fn datagram(record: &EventRecord, reason: Reason) -> String {
    let source = unmapped(&record.source).map_or_else(
        || IpAddr::from(record.source),
        |v4: [u8; 4]| IpAddr::from(v4),
    );
    let detail = match reason {
        Reason::HopUnresolved => format!(", group {}", record.detail),
        Reason::NoDevice => format!(", device index {}", record.detail),
        _ => String::new(),
    };
    let port = record.port & 0xffff;
    format!("a datagram from {source} for port {port}{detail}")
}

#[cfg(test)]
mod tests {
    use keepline_common::record::mapped;
    use keepline_engine::time::Wall;

    use super::*;

    fn at(seconds: u64) -> Now {
        Now {
            mono: Mono(Duration::from_secs(seconds)),
            wall: Wall(Duration::from_secs(seconds)),
        }
    }

    fn record(reason: Reason) -> EventRecord {
        EventRecord {
            at: 0,
            ifindex: 3,
            reason: reason as u32,
            source: mapped([192, 0, 2, 7]),
            detail: 4,
            port: 10_000,
        }
    }

    #[test]
    fn a_reason_is_shown_once_in_ten_seconds_with_what_was_left_out() {
        let mut told = Told::new();
        let mut shown = |second, reason| {
            let event = told.event(at(second), &record(reason), "wan0".to_owned());
            event.map(|event| event.evidence.len())
        };
        assert_eq!(shown(1, Reason::MediaUnbound), Some(1));
        assert_eq!(shown(2, Reason::MediaUnbound), None);
        assert_eq!(shown(3, Reason::HopUnresolved), Some(1), "another reason");
        assert_eq!(shown(10, Reason::MediaUnbound), None);
        assert_eq!(shown(11, Reason::MediaUnbound), Some(2));
        assert_eq!(shown(30, Reason::MediaUnbound), Some(1), "none left out");
    }

    #[test]
    fn an_event_says_what_became_of_which_datagram() {
        let event = Told::new()
            .event(at(1), &record(Reason::HopUnresolved), "wan0".to_owned())
            .expect("the first is shown");
        assert_eq!((event.rule, event.to.as_str()), ("hop_unresolved", "pass"));
        let what = &event.evidence[0].what;
        assert_eq!(what, "a datagram from 192.0.2.7 for port 10000, group 4");
    }

    #[test]
    fn a_reason_of_another_version_is_left_out() {
        let mut unknown = record(Reason::NoDevice);
        unknown.reason = u32::MAX;
        assert_eq!(Told::new().event(at(1), &unknown, String::new()), None);
    }
}
