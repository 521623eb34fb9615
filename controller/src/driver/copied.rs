//! What phones and their softswitches say to one another past us (transparent mode without
//! hiding): copies from the fast path's rings, stamps when the engine asks for them, and the few
//! datagrams that are sent on in a phone's own name.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use keepline_engine::{net::LinkId, steer::TalkId, time::Now};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
};

use super::{Clock as _, Driver, batch};
use crate::fastpath::{
    copies::{Copied, Copies},
    words::kernel_now,
};

/// Copies that wait for the driver; those beyond are lost, and counted as the rings' are.
const QUEUE: usize = 4096;

/// How many copies were lost.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Before they could wait for the driver.
    dropped: Arc<AtomicU64>,
    /// As the engine was told, the rings' included.
    told: u64,
}

async fn read(ring: Copies, send: mpsc::Sender<Copied>, dropped: Arc<AtomicU64>) -> io::Result<()> {
    #[expect(unsafe_code, reason = "tokio trusts whoever names the descriptor")]
    // SAFETY: the descriptor is the ring's map's own, open and the same until the ring is dropped.
    let mut ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
    while !send.is_closed() {
        let mut ready = ring.readable_mut().await?;
        while let Some(copied) = ready.get_inner_mut().next_copy() {
            if send.try_send(copied).is_err() {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        ready.clear_ready();
    }
    Ok(())
}

impl Driver {
    /// Reads the rings from now on; what they hold already is thrown away.
    pub(super) fn listen_for_copies(&mut self) -> mpsc::Receiver<Copied> {
        let (send, copied) = mpsc::channel(QUEUE);
        for mut ring in self.data_path.copies() {
            while ring.next_copy().is_some() {}
            let (send, dropped) = (send.clone(), self.copied.dropped.clone());
            tokio::spawn(async move {
                if let Err(error) = read(ring, send, dropped).await {
                    tracing::warn!(%error, "what goes through is not seen any more");
                }
            });
        }
        self.copied.told = self.data_path.copies_lost();
        copied
    }

    /// Takes a copy, and what else waits, up to a bound.
    pub(super) fn copied(&mut self, first: Copied, queue: &mut mpsc::Receiver<Copied>) {
        for copied in batch(first, queue) {
            let now = self.clock.now();
            let ago = Duration::from_nanos(kernel_now().saturating_sub(copied.at));
            self.gateway
                .copied(now, copied.talk, copied.sender, ago, copied.bytes);
            self.drain_outputs();
        }
    }

    /// Tells the engine of copies that were lost, before it concludes anything from silence.
    pub(super) fn look_for_lost_copies(&mut self, now: Now) {
        let dropped = self.copied.dropped.load(Ordering::Relaxed);
        let lost = self.data_path.copies_lost() + dropped;
        let more = lost.saturating_sub(self.copied.told);
        if more > 0 {
            self.copied.told = lost;
            self.gateway.copies_lost(now, more);
        }
    }

    /// What cannot be read is no evidence: the engine is then told nothing.
    pub(super) fn read_stamps(&mut self, talk: TalkId) {
        let now = self.clock.now();
        self.look_for_lost_copies(now);
        match self.data_path.stamps(talk) {
            Ok(stamps) => self.gateway.stamped(now, talk, stamps),
            Err(error) => tracing::warn!(%error, "stamps cannot be read"),
        }
    }

    pub(super) fn pass(&self, link: LinkId, (from, to): (SocketAddr, SocketAddr), bytes: &[u8]) {
        let name = &self.gateway.conf().links[usize::from(link.0)].name;
        if let Err(error) = self.sockets.pass(name, from, to, bytes) {
            tracing::debug!(%error, %from, %to, "datagram not sent on");
        }
    }
}
