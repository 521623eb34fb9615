//! The maps, open for steering: [`Tables`] over the kernel's.

use std::{io, path::Path};

use aya::{
    Ebpf,
    maps::{Array, DevMapHash, HashMap, Map, MapData, PerCpuArray, PerCpuHashMap, PerCpuValues},
};
use bytemuck::Pod;
use keepline_common::{
    limits,
    reason::Reason,
    record::{
        Address, ClientKey, FlowKey, FlowState, Hop, Listener, ListenerKey, Plan, Port, TalkState,
        address_bit,
    },
};

use super::{
    Error,
    object::Sizes,
    words::{self, Raw, Words},
};
use crate::steer::tables::Tables;

/// An array of records.
type Records<T> = Array<MapData, Raw<T>>;
/// Counters of one interface on one CPU.
type Counts = [u64; Reason::COUNT];

/// The maps of one loaded fast path.
pub struct Maps {
    sizes: Sizes,
    media: Words,
    ours: Words,
    groups: Words,
    paths: Words,
    plans: Records<Plan>,
    state: Records<FlowState>,
    hops: Records<Hop>,
    sent: PerCpuArray<MapData, u64>,
    addresses: HashMap<MapData, Raw<Address>, u32>,
    listeners: HashMap<MapData, Raw<ListenerKey>, Raw<Listener>>,
    clients: HashMap<MapData, Raw<ClientKey>, u32>,
    flows: HashMap<MapData, Raw<FlowKey>, u64>,
    talks: Records<TalkState>,
    lost: Words,
    devices: DevMapHash<MapData>,
    counters: PerCpuHashMap<MapData, u32, Counts>,
    ports: HashMap<MapData, u32, Raw<Port>>,
    inbound: Words,
}

impl Maps {
    /// Takes the maps out of a loaded object.
    ///
    /// # Errors
    /// [`Error::Map`] names the one that cannot be opened.
    pub fn of(ebpf: &mut Ebpf, sizes: Sizes) -> Result<Self, Error> {
        let maps = Self::with(sizes, |name| {
            ebpf.take_map(name)
                .ok_or_else(|| Error::map(name, "absent"))
        })?;
        maps.filter_anew()
            .map_err(|error| Error::map("OURS", error))?;
        Ok(maps)
    }

    /// Opens the maps pinned in `directory`, which were compared before.
    ///
    /// # Errors
    /// [`Error::Map`] names the one that cannot be opened.
    pub fn pinned(directory: &Path, sizes: Sizes) -> Result<Self, Error> {
        Self::with(sizes, |name| {
            let data = MapData::from_pin(directory.join(name));
            Map::from_map_data(data.map_err(|error| Error::map(name, error))?)
                .map_err(|error| Error::map(name, error))
        })
    }

    fn with(
        sizes: Sizes,
        mut open: impl FnMut(&'static str) -> Result<Map, Error>,
    ) -> Result<Self, Error> {
        Ok(Self {
            sizes,
            media: words_of("MEDIA", open("MEDIA")?, sizes.media_words())?,
            ours: words_of("OURS", open("OURS")?, 1)?,
            groups: words_of("GROUPS", open("GROUPS")?, limits::GROUPS + limits::SEGMENTS)?,
            paths: words_of("PATHS", open("PATHS")?, limits::PATHS)?,
            plans: typed("PLANS", open("PLANS")?)?,
            state: typed("STATE", open("STATE")?)?,
            hops: typed("HOPS", open("HOPS")?)?,
            sent: typed("SENT", open("SENT")?)?,
            addresses: typed("ADDRS", open("ADDRS")?)?,
            listeners: typed("LISTENERS", open("LISTENERS")?)?,
            clients: typed("CLIENTS", open("CLIENTS")?)?,
            flows: typed("FLOWS", open("FLOWS")?)?,
            talks: typed("TALKS", open("TALKS")?)?,
            lost: words_of("LOST", open("LOST")?, 2)?,
            devices: typed("DEVICES", open("DEVICES")?)?,
            ports: typed("PORTS", open("PORTS")?)?,
            inbound: words_of("INBOUND", open("INBOUND")?, limits::TUNNELS)?,
            counters: typed("COUNTERS", open("COUNTERS")?)?,
        })
    }

    /// Begins to count on an interface; what was counted before stays.
    ///
    /// # Errors
    /// [`Error::Map`] when the table is full.
    pub fn count_on(&mut self, ifindex: u32) -> Result<(), Error> {
        if self.counters.get(&ifindex, 0).is_ok() {
            return Ok(());
        }
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| Error::map("COUNTERS", error))?;
        let zero = PerCpuValues::try_from(vec![[0; Reason::COUNT]; cpus])
            .map_err(|error| Error::map("COUNTERS", error))?;
        self.counters
            .insert(ifindex, zero, 0)
            .map_err(|error| Error::map("COUNTERS", error))
    }

    /// Stops counting on an interface that is no more.
    pub fn forget_interface(&mut self, ifindex: u32) {
        // Absent is as good as removed.
        let _ = self.counters.remove(&ifindex);
        let _ = self.devices.remove(ifindex);
    }

    /// Makes the filter before `ADDRS` from what stands there.
    fn filter_anew(&self) -> io::Result<()> {
        let addresses = self.addresses()?;
        let bits = addresses.iter().map(|(address, _)| address_bit(address));
        self.ours.store(0, bits.fold(0, |all, bit| all | bit));
        Ok(())
    }

    /// Takes over where the interfaces of segments belong, and when their tunnels were heard.
    pub(super) fn take_segments(&mut self, old: &Self) -> io::Result<()> {
        for entry in old.ports.iter() {
            let (ifindex, port) = entry.map_err(kernel)?;
            self.ports.insert(ifindex, port, 0).map_err(kernel)?;
        }
        for tunnel in 0..limits::TUNNELS {
            self.inbound.store(tunnel, old.inbound.load(tunnel));
        }
        Ok(())
    }

    /// Gives a slot the counters it had in other maps.
    pub(super) fn set_state(&mut self, slot: u32, state: &FlowState) -> io::Result<()> {
        set(&mut self.state, slot, *state)
    }

    /// Frames handed to a hop's device so far.
    ///
    /// # Errors
    /// [`Error::Map`] when the kernel refuses.
    pub fn sent(&self, hop: u32) -> Result<u64, Error> {
        let cpus = self.sent.get(&hop, 0);
        let cpus = cpus.map_err(|error| Error::map("SENT", error))?;
        Ok(cpus.iter().sum())
    }

    /// Copies of talks that were lost so far, strangers' included.
    #[must_use]
    pub fn copies_lost(&self) -> u64 {
        self.lost.load(0) + self.lost.load(1)
    }

    /// Packets by interface index and reason.
    ///
    /// # Errors
    /// [`Error::Map`] when the kernel refuses.
    pub fn counters(&self) -> Result<Vec<(u32, Vec<u64>)>, Error> {
        sums(&self.counters)
    }
}

/// Reads the counters pinned in `directory`, which were compared before.
///
/// # Errors
/// [`Error::Map`] when the kernel refuses.
pub(super) fn pinned_counters(directory: &Path) -> Result<Vec<(u32, Vec<u64>)>, Error> {
    let failed = |error| Error::map("COUNTERS", error);
    let data = MapData::from_pin(directory.join("COUNTERS")).map_err(failed)?;
    sums(&typed(
        "COUNTERS",
        Map::from_map_data(data).map_err(failed)?,
    )?)
}

fn sums(map: &PerCpuHashMap<MapData, u32, Counts>) -> Result<Vec<(u32, Vec<u64>)>, Error> {
    map.iter()
        .map(|entry| {
            let (ifindex, cpus) = entry.map_err(|error| Error::map("COUNTERS", error))?;
            let total = |reason: usize| {
                cpus.iter()
                    .map(|cpu| cpu.get(reason).copied().unwrap_or(0))
                    .sum()
            };
            Ok((ifindex, (0..Reason::COUNT).map(total).collect()))
        })
        .collect()
}

fn words_of(name: &'static str, map: Map, len: u32) -> Result<Words, Error> {
    let Map::Array(data) = map else {
        return Err(Error::map(name, "not an array"));
    };
    Words::new(data.fd(), len).map_err(|error| Error::map(name, error))
}

fn typed<T: TryFrom<Map, Error = aya::maps::MapError>>(
    name: &'static str,
    map: Map,
) -> Result<T, Error> {
    T::try_from(map).map_err(|error| Error::map(name, error))
}

fn kernel(error: aya::maps::MapError) -> io::Error {
    match error {
        aya::maps::MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

/// Absent is as good as removed.
fn removed(result: Result<(), aya::maps::MapError>) -> io::Result<()> {
    match result {
        Ok(()) | Err(aya::maps::MapError::KeyNotFound) => Ok(()),
        Err(error) => match kernel(error) {
            error if error.kind() == io::ErrorKind::NotFound => Ok(()),
            error => Err(error),
        },
    }
}

fn set<T: Pod>(records: &mut Records<T>, index: u32, value: T) -> io::Result<()> {
    records.set(index, Raw(value), 0).map_err(kernel)
}

fn get<T: Pod>(records: &Records<T>, index: u32) -> io::Result<T> {
    records.get(&index, 0).map(|raw| raw.0).map_err(kernel)
}

impl Tables for Maps {
    fn set_plan(&mut self, slot: u32, plan: &Plan) -> io::Result<()> {
        set(&mut self.plans, slot, *plan)
    }

    fn plan(&self, slot: u32) -> io::Result<Plan> {
        get(&self.plans, slot)
    }

    fn plan_slots(&self) -> u32 {
        self.sizes.plans
    }

    fn reset_state(&mut self, slot: u32) -> io::Result<()> {
        set(&mut self.state, slot, bytemuck::Zeroable::zeroed())
    }

    fn state(&self, slot: u32) -> io::Result<FlowState> {
        get(&self.state, slot)
    }

    fn media_range(&self) -> (u16, u32) {
        (self.sizes.media_first, self.sizes.media_ports)
    }

    fn media(&self, index: u32) -> u64 {
        self.media.load(index)
    }

    fn set_media(&mut self, index: u32, word: u64) {
        self.media.store(index, word);
    }

    fn group(&self, index: u32) -> u32 {
        self.groups.load_u32(index)
    }

    fn set_group(&mut self, index: u32, hop: u32) {
        self.groups.store_u32(index, hop);
    }

    fn path(&self, index: u32) -> u64 {
        self.paths.load(index)
    }

    fn set_path(&mut self, index: u32, word: u64) {
        self.paths.store(index, word);
    }

    fn set_hop(&mut self, index: u32, hop: &Hop) -> io::Result<()> {
        set(&mut self.hops, index, *hop)
    }

    fn hop(&self, index: u32) -> io::Result<Hop> {
        get(&self.hops, index)
    }

    fn set_address(&mut self, address: Address, slot: u32) -> io::Result<()> {
        // First the bit: whoever finds none takes the address for a stranger's.
        self.ours
            .store(0, self.ours.load(0) | address_bit(&address));
        self.addresses.insert(Raw(address), slot, 0).map_err(kernel)
    }

    fn clear_address(&mut self, address: Address) -> io::Result<()> {
        removed(self.addresses.remove(&Raw(address)))?;
        self.filter_anew()
    }

    fn addresses(&self) -> io::Result<Vec<(Address, u32)>> {
        self.addresses
            .iter()
            .map(|entry| entry.map(|(a, slot)| (a.0, slot)).map_err(kernel))
            .collect()
    }

    fn set_listener(&mut self, key: ListenerKey, value: Listener) -> io::Result<()> {
        self.listeners
            .insert(Raw(key), Raw(value), 0)
            .map_err(kernel)
    }

    fn clear_listener(&mut self, key: ListenerKey) -> io::Result<()> {
        removed(self.listeners.remove(&Raw(key)))
    }

    fn listeners(&self) -> io::Result<Vec<ListenerKey>> {
        self.listeners
            .keys()
            .map(|key| key.map(|key| key.0).map_err(kernel))
            .collect()
    }

    fn set_client(&mut self, key: ClientKey, path: u32) -> io::Result<()> {
        self.clients.insert(Raw(key), path, 0).map_err(kernel)
    }

    fn clear_client(&mut self, key: ClientKey) -> io::Result<()> {
        removed(self.clients.remove(&Raw(key)))
    }

    fn clear_clients(&mut self) -> io::Result<()> {
        let keys: Vec<_> = self
            .clients
            .keys()
            .collect::<Result<_, _>>()
            .map_err(kernel)?;
        keys.iter()
            .try_for_each(|key| removed(self.clients.remove(key)))
    }

    fn set_flow(&mut self, key: FlowKey, word: u64) -> io::Result<()> {
        self.flows.insert(Raw(key), word, 0).map_err(kernel)
    }

    fn clear_flow(&mut self, key: FlowKey) -> io::Result<()> {
        removed(self.flows.remove(&Raw(key)))
    }

    fn flow_words(&self) -> io::Result<Vec<(FlowKey, u64)>> {
        let entries = self.flows.iter();
        entries
            .map(|entry| entry.map(|(key, word)| (key.0, word)).map_err(kernel))
            .collect()
    }

    fn talk(&self, index: u32) -> io::Result<TalkState> {
        get(&self.talks, index)
    }

    fn reset_talk(&mut self, index: u32) -> io::Result<()> {
        set(&mut self.talks, index, bytemuck::Zeroable::zeroed())
    }

    fn set_device(&mut self, ifindex: u32) -> io::Result<()> {
        match self.devices.insert(ifindex, ifindex, None, 0) {
            Ok(()) => Ok(()),
            Err(aya::maps::xdp::XdpMapError::MapError(error)) => Err(kernel(error)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn kernel_now(&self) -> u64 {
        words::kernel_now()
    }

    fn grace(&mut self) -> bool {
        words::grace()
    }
}
