//! Media that is addressed to us: an array by port (fastpath.md section 1).

use aya_ebpf::{
    Global,
    macros::map,
    maps::{Array, HashMap},
};
use keepline_common::{
    classify::Class,
    limits::{ADDRESS_SLOTS, ADDRESSES, MEDIA_PORTS_MAX},
    reason::Reason,
    record::{Address, FlowKey, PlanWord, address_bit},
};

use crate::{
    events,
    frame::Frame,
    parse::{self, Datagram},
    plans::{self, Found, MMAPABLE},
    sockets,
};

/// Our addresses: which slot of `MEDIA` each has.
#[map]
static ADDRS: HashMap<Address, u32> = HashMap::with_max_entries(ADDRESSES, 0);

/// One word: the [`address_bit`]s of everything in `ADDRS`.
#[map]
static OURS: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Words: address slot × ports + port − first.
#[map]
static MEDIA: Array<u64> = Array::with_max_entries(ADDRESS_SLOTS * MEDIA_PORTS_MAX, MMAPABLE);

/// The first media port.
#[unsafe(no_mangle)]
static MEDIA_FIRST: Global<u32> = Global::new(0);

/// How many media ports there are.
#[unsafe(no_mangle)]
static MEDIA_PORTS: Global<u32> = Global::new(0);

/// A place in `MEDIA`.
pub struct Index {
    slot: u32,
    word: u32,
}

/// Whether an address is one of ours.
#[inline(always)]
pub fn is_ours(address: &Address) -> bool {
    let Some(bits) = OURS.get_ptr(0) else {
        return false;
    };
    // SAFETY: a value of the map, aligned; the controller sets a bit before it makes the entry.
    if unsafe { bits.read_volatile() } & address_bit(address) == 0 {
        return false;
    }
    // SAFETY: only whether there is an entry counts.
    unsafe { ADDRS.get(address) }.is_some()
}

/// The place of a datagram that is for one of our media ports.
#[inline(always)]
pub fn index(datagram: &Datagram) -> Option<Index> {
    let port = u32::from(u16::from_be_bytes(datagram.key.destination_port));
    let ports = MEDIA_PORTS.load();
    let offset = port.wrapping_sub(MEDIA_FIRST.load());
    if offset >= ports {
        return None;
    }
    // SAFETY: the value is one aligned word that is replaced whole.
    let slot = *unsafe { ADDRS.get(&datagram.key.destination) }?;
    (slot < ADDRESS_SLOTS).then_some(Index {
        slot,
        word: slot * ports + offset,
    })
}

/// The plan for it; what has none goes to the socket of its port, or to nobody.
#[inline(always)]
pub fn plan<F: Frame>(frame: &F, datagram: &Datagram, index: Index) -> Result<Found, Reason> {
    match usable(frame, datagram, &index) {
        Ok(found) => Ok(found),
        Err(reason) if sockets::is_bound(frame, datagram) => Err(reason),
        Err(_) => {
            events::tell(datagram, Reason::MediaUnbound, index.word);
            Err(Reason::MediaUnbound)
        }
    }
}

#[inline(always)]
fn usable<F: Frame>(frame: &F, datagram: &Datagram, index: &Index) -> Result<Found, Reason> {
    let word = MEDIA.get_ptr(index.word).ok_or(Reason::MediaUnplanned)?;
    // SAFETY: a value of the map, aligned; read once, since the controller may store meanwhile.
    let word = unsafe { word.read_volatile() };
    let found = plans::follow(PlanWord::unpack(word).ok_or(Reason::MediaUnplanned)?)?;
    let FlowKey {
        source,
        source_port,
        ifindex,
        destination_port,
        ..
    } = datagram.key;
    let key = FlowKey::anchored(source, source_port, index.slot, destination_port, ifindex);
    if found.plan.key.destination != key.destination
        || found.plan.key.destination_port != key.destination_port
    {
        return Err(Reason::PlanStale);
    }
    if found.plan.key.source != source || found.plan.key.source_port != source_port {
        plans::count_foreign(found.slot);
        return Err(Reason::MediaForeignSource);
    }
    if found.plan.key.ifindex != ifindex || found.plan.vlan != datagram.tags.ids {
        return Err(Reason::MediaWrongIngress);
    }
    let [first, ..] = parse::head(frame, datagram);
    match Class::of(first) {
        class if class.is_in(found.plan.classes) => Ok(found),
        Class::Stun => Err(Reason::MediaStun),
        _ => Err(Reason::MediaOther),
    }
}
