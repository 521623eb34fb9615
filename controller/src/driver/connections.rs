//! What happens to connections, told to the engine, and the other way round.

use keepline_engine::{
    event::{Event, Evidence},
    net::ListenerId,
    time::Now,
};
use tokio::net::TcpStream;

use super::{
    Clock as _, Driver,
    outbox::Datagram,
    streams::{Key, Refused, Told},
};
use crate::tls::{Tls, TlsError};

impl Driver {
    /// Something happened to a connection. What is told of one that lost its name to a later one
    /// comes too late.
    pub(super) fn connection_told(&mut self, now: Now, told: Told) {
        match told {
            Told::Accepted { key, socket } => self.accepted(now, key, socket),
            Told::Frame { key, id, frame } if self.streams.is_current(key, id) => {
                self.gateway.stream(now, key.0, key.1, frame);
            }
            Told::Certified {
                key,
                id,
                certificate,
            } if self.streams.is_current(key, id) => {
                self.gateway.certified(key.0, key.1, &certificate);
            }
            Told::Broken {
                key,
                id,
                begun,
                why,
            } if self.streams.is_current(key, id) => {
                tracing::debug!(peer = %key.1, %why, "connection closed");
                self.gateway.stream_broken(now, key.0, key.1, begun, why);
            }
            Told::Opened { key, id } if self.streams.is_current(key, id) => {
                self.streams.opened(key);
                self.trust(now, key, None);
                self.gateway.connection_opened(now, key.0, key.1);
            }
            Told::Failed {
                key,
                id,
                why,
                distrusted,
            } if self.streams.is_current(key, id) => {
                tracing::debug!(peer = %key.1, why, "no connection");
                self.streams.close(key);
                if distrusted {
                    self.trust(now, key, Some(why));
                }
                self.gateway.connection_failed(now, key.0, key.1);
            }
            Told::Ended { key, id } if self.streams.is_current(key, id) => self.close(now, key),
            _ => {}
        }
    }

    fn accepted(&mut self, now: Now, key: Key, socket: TcpStream) {
        let Some(key) = self.let_in(now, key, &socket) else {
            return;
        };
        self.introduce(key.0, key.1);
        // Whoever used that port before is gone, although nobody said so.
        self.close(now, key);
        if !self.streams.adopt(key, socket) {
            tracing::debug!(peer = %key.1, "too many connections");
        }
    }

    /// Whether whoever connected may, and what the connection is called: by the listener, or by
    /// what stands for the softswitch that a phone connected to.
    fn let_in(&mut self, now: Now, key: Key, socket: &TcpStream) -> Option<Key> {
        if !self.gateway.conf().takes(key.0) {
            return self.gateway.may_connect(key.0, key.1).then_some(key);
        }
        let to = socket.local_addr().ok()?;
        let place = self.gateway.may_take(now, key.0, to, key.1)?;
        let key = (place, key.1);
        self.stand_in(key.0);
        Some(key)
    }

    /// A listener that stands for a softswitch's address uses the socket of another one.
    fn stand_in(&mut self, listener: ListenerId) {
        let on = &self.gateway.conf().listeners[usize::from(listener.0)];
        if let Some(taker) = on.taken_by {
            self.streams.stand_in(listener, taker, on.address);
        }
    }

    /// Ends a connection, once what waits was written, and says so to the engine.
    pub(super) fn close(&mut self, now: Now, key: Key) {
        if self.streams.close(key) {
            self.gateway.connection_lost(now, key.0, key.1);
        }
    }

    /// Sends a message the way its listener speaks; a datagram once the outbox is posted.
    pub(super) fn send(&mut self, key: Key, bytes: Vec<u8>) {
        let on = &self.gateway.conf().listeners[usize::from(key.0.0)];
        if !on.transport.is_stream() {
            let (socket, source) = (on.taken_by.unwrap_or(key.0), on.address.ip());
            let to = key.1;
            self.outbox.datagrams.push(Datagram {
                socket,
                source,
                to,
                bytes,
            });
            return;
        }
        self.stand_in(key.0);
        self.write_changes();
        let now = self.clock.now();
        match self.streams.send(key, bytes) {
            Ok(()) => {}
            Err(Refused::NoRoom) => self.gateway.connection_failed(now, key.0, key.1),
            Err(Refused::NotRead) => {
                tracing::debug!(peer = %key.1, "a peer that does not read is cut off");
                self.gateway.connection_lost(now, key.0, key.1);
            }
        }
    }

    /// A device was made anew: its sockets move, and its connections are gone.
    pub(super) fn rebind(&mut self, interface: &str) {
        self.sockets.rebind(interface);
        let now = self.clock.now();
        for (listener, peer) in self.streams.rebind(interface) {
            self.gateway.connection_lost(now, listener, peer);
        }
    }

    /// Another device carries an interface: its connections go on there, from the same addresses.
    pub(super) fn carry_connections(&mut self, interface: &str, device: &str) {
        let now = self.clock.now();
        for (listener, peer) in self.streams.carry(interface, device) {
            self.gateway.connection_lost(now, listener, peer);
        }
    }

    /// A server that is not who it must be is said once, and once that it is again.
    fn trust(&mut self, now: Now, key: Key, wrong: Option<String>) {
        if !self.streams.trust(key.1, wrong.is_none()) {
            return;
        }
        let name = |trusted| if trusted { "trusted" } else { "refused" }.to_owned();
        let trusted = wrong.is_none();
        let what = wrong.unwrap_or_else(|| "its certificate is right".to_owned());
        self.journal.record(&Event {
            at: now,
            kind: "tls",
            object: key.1.to_string(),
            from: name(!trusted),
            to: name(trusted),
            rule: "peer_certificate",
            evidence: vec![Evidence { at: now, what }],
        });
    }

    /// Reads the certificates again; later connections use them, present ones keep theirs.
    /// `false` when there are none.
    ///
    /// # Errors
    /// When they cannot be used: those in force stay.
    pub(super) fn renew_certificates(&mut self) -> Result<bool, TlsError> {
        let Some(files) = &self.config.tls else {
            return Ok(false);
        };
        let (now, object) = (self.clock.now(), files.cert.display().to_string());
        let read = Tls::load(files);
        let (to, what) = match &read {
            Ok(_) => ("renewed", "later connections use what was read".to_owned()),
            Err(error) => ("kept", format!("{error}; what is in force stays")),
        };
        self.journal.record(&Event {
            at: now,
            kind: "tls",
            object,
            from: "in_force".to_owned(),
            to: to.to_owned(),
            rule: "reload",
            evidence: vec![Evidence { at: now, what }],
        });
        self.streams.set_tls(read?);
        Ok(true)
    }

    /// How many connections a listener has; none, if it is not over connections.
    pub(super) fn connections(&self, listener: ListenerId) -> u64 {
        self.streams.count(listener) as u64
    }
}
