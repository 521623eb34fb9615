//! Listeners, clients and gates: who is answered what (signalling.md section 8).

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use keepline_common::{
    gate::{Answer, PathWord},
    limits::PATHS,
    record::{ClientKey, Listener, ListenerKey},
};
use keepline_engine::{
    net::ListenerId,
    steer::{Gate, GateId},
};

use super::{Error, Pen, bytes, tables::Tables};

/// What was written of listeners, and how falls are spread.
#[derive(Debug)]
pub(super) struct Keepalives {
    listeners: HashMap<ListenerId, ListenerKey>,
    spread: Duration,
}

/// The answer that a gate stands for.
const fn answer(gate: Gate) -> Answer {
    match gate {
        Gate::Serving => Answer::Serving,
        Gate::Silent => Answer::Silent,
        Gate::Error => Answer::Error,
    }
}

/// The gate a word stands for.
pub(super) const fn state(word: PathWord) -> Gate {
    match word.settled() {
        Answer::Serving => Gate::Serving,
        Answer::Silent => Gate::Silent,
        Answer::Error => Gate::Error,
    }
}

impl Keepalives {
    pub(super) fn new(spread: Duration) -> Self {
        Self {
            listeners: HashMap::new(),
            spread,
        }
    }

    /// Turns a path's word. A path that served and falls tells its clients one after the other;
    /// every other change is for all at once.
    pub(super) fn gate<T: Tables>(
        &self,
        pen: &mut Pen<'_, T>,
        gate: GateId,
        new: Gate,
    ) -> Result<(), Error> {
        let index = u32::from(gate.0);
        if index >= PATHS {
            return Err(Error::Full("PATHS"));
        }
        let before = PathWord::from_bits(pen.tables.path(index)).settled();
        let now = answer(new);
        if before == now {
            return Ok(());
        }
        let word = if before != Answer::Serving {
            PathWord::at_once(now)
        } else {
            let spread = u64::try_from(self.spread.as_nanos()).unwrap_or(u64::MAX);
            PathWord::changing(before, now, pen.tables.kernel_now(), spread)
        };
        pen.tables.set_path(index, word.to_bits());
        pen.writes.paths += 1;
        Ok(())
    }

    /// Says which path a client belongs to; `None`: its listener's.
    pub(super) fn client<T: Tables>(
        &self,
        pen: &mut Pen<'_, T>,
        client: SocketAddr,
        listener: ListenerId,
        gate: Option<GateId>,
    ) -> Result<(), Error> {
        let key = ClientKey {
            address: bytes::address(client.ip()),
            port: client.port().to_be_bytes(),
            listener: listener.0.to_be_bytes(),
        };
        pen.writes.clients += 1;
        match gate {
            Some(gate) => pen.tables.set_client(key, u32::from(gate.0)),
            None => pen.tables.clear_client(key),
        }
        .map_err(Error::of("CLIENTS"))
    }

    pub(super) fn listener_set<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        listener: ListenerId,
        address: SocketAddr,
        gate: GateId,
    ) -> Result<(), Error> {
        let key = ListenerKey {
            address: bytes::address(address.ip()),
            port: address.port().to_be_bytes(),
            zero: [0; 2],
        };
        let value = Listener {
            listener: u32::from(listener.0),
            path: u32::from(gate.0),
        };
        pen.tables
            .set_listener(key, value)
            .map_err(Error::of("LISTENERS"))?;
        pen.writes.listeners += 1;
        match self.listeners.insert(listener, key) {
            Some(before) if before != key => Self::forget(pen, before),
            _ => Ok(()),
        }
    }

    pub(super) fn listener_clear<T: Tables>(
        &mut self,
        pen: &mut Pen<'_, T>,
        listener: ListenerId,
    ) -> Result<(), Error> {
        self.listeners
            .remove(&listener)
            .map_or(Ok(()), |key| Self::forget(pen, key))
    }

    /// Takes listeners of an earlier run away that this one does not have.
    pub(super) fn drop_unknown_listeners<T: Tables>(
        &self,
        pen: &mut Pen<'_, T>,
    ) -> Result<(), Error> {
        let pinned = pen.tables.listeners().map_err(Error::of("LISTENERS"))?;
        let unknown = |key: &ListenerKey| self.listeners.values().all(|known| known != key);
        pinned
            .into_iter()
            .filter(unknown)
            .try_for_each(|key| Self::forget(pen, key))
    }

    fn forget<T: Tables>(pen: &mut Pen<'_, T>, key: ListenerKey) -> Result<(), Error> {
        pen.writes.listeners += 1;
        pen.tables
            .clear_listener(key)
            .map_err(Error::of("LISTENERS"))
    }
}
