//! What the engine wants written and sent while a batch of inputs is taken: changes go to the
//! store in one write, then the datagrams that make them visible leave, in their order.

use std::net::{IpAddr, SocketAddr};

use keepline_engine::{gateway::Change, net::ListenerId};

use super::Driver;

/// A datagram that waits for the store.
#[derive(Debug)]
pub(super) struct Datagram {
    /// Whose socket takes it.
    pub(super) socket: ListenerId,
    /// The address it leaves from.
    pub(super) source: IpAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// What waits. Empty between batches.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) changes: Vec<Change>,
    pub(super) datagrams: Vec<Datagram>,
}

impl Driver {
    /// Writes and sends what waits.
    pub(super) fn post(&mut self) {
        self.write_changes();
        for datagram in self.outbox.datagrams.drain(..) {
            let Datagram {
                socket,
                source,
                to,
                bytes,
            } = datagram;
            if let Err(error) = self.sockets.send(socket, source, to, &bytes) {
                tracing::debug!(%error, %to, "datagram not sent");
            }
        }
    }

    /// From here on the death of the process undoes nothing that waited to be written.
    pub(super) fn write_changes(&mut self) {
        if !self.outbox.changes.is_empty() {
            self.store.append(&self.outbox.changes);
            self.outbox.changes.clear();
        }
    }
}
