//! SIP listeners, and what the clients behind each path are told.

use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap},
};
use keepline_common::{
    gate::{Answer, PathWord, client_hash},
    limits::{CLIENTS as CLIENTS_MAX, LISTENERS as LISTENERS_MAX, PATHS as PATHS_MAX},
    record::{ClientKey, Listener, ListenerKey},
};

use crate::{parse::Datagram, plans::MMAPABLE};

/// Where SIP is spoken.
#[map]
static LISTENERS: HashMap<ListenerKey, Listener> = HashMap::with_max_entries(LISTENERS_MAX, 0);

/// Clients whose keepalives follow another path than their listener's.
#[map]
static CLIENTS: HashMap<ClientKey, u32> = HashMap::with_max_entries(CLIENTS_MAX, 0);

/// Words: see [`PathWord`].
#[map]
static PATHS: Array<u64> = Array::with_max_entries(PATHS_MAX, MMAPABLE);

/// The listener a datagram is for.
#[inline(always)]
pub fn find(datagram: &Datagram) -> Option<Listener> {
    let key = ListenerKey {
        address: datagram.key.destination,
        port: datagram.key.destination_port,
        zero: [0; 2],
    };
    // SAFETY: copied at once; an entry is replaced whole and both its fields stand alone.
    unsafe { LISTENERS.get(&key) }.copied()
}

/// What its sender is told. The clock is read only where it matters: 46 ns, a tenth of all.
#[inline(always)]
pub fn gate(datagram: &Datagram, listener: &Listener) -> Answer {
    let [.., a, b] = listener.listener.to_be_bytes();
    let key = ClientKey {
        address: datagram.key.source,
        port: datagram.key.source_port,
        listener: [a, b],
    };
    // SAFETY: the value is one aligned word that is replaced whole.
    let path = unsafe { CLIENTS.get(&key) }
        .copied()
        .unwrap_or(listener.path);
    let Some(word) = PATHS.get_ptr(path) else {
        return Answer::Silent;
    };
    // SAFETY: a value of the map, aligned; read once, since the controller may store meanwhile.
    let word = PathWord::from_bits(unsafe { word.read_volatile() });
    word.for_all().unwrap_or_else(|| {
        // SAFETY: no argument, no state: it reads a clock. The only time this packet takes.
        let now = unsafe { bpf_ktime_get_ns() };
        word.answer(now, client_hash(&key.address, key.port))
    })
}
