//! Segments, as the controller holds them: which interface is joined to which tunnel.
//!
//! The join is one word of `GROUPS` that leads to a hop of `HOPS`, as for media: one store turns
//! both directions at once. Groups and hops of segments lie behind those that steering uses.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use aya::maps::{Array, HashMap, Map, MapData};
use keepline_common::{
    limits::{GROUPS, HOPS, SEGMENT_HOPS, SEGMENTS, TUNNELS},
    record::{ClientMac, ClientSeen, HOP_SEGMENT, Hop, PORT_CLIENT, PORT_TUNNEL, Port},
};

use super::{
    Error,
    device::Device,
    pins,
    words::{self, Raw, Words},
};

/// A client-side interface and the tunnels it may be joined to, by their interfaces' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The client side.
    pub interface: String,
    /// Its tunnels; the order is of no matter here.
    pub tunnels: Vec<Tunnel>,
}

/// A tunnel of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Its interface.
    pub interface: String,
    /// The MAC address that the gateway's own probes ask DHCP for: answers to it are no traffic,
    /// and stay on this machine. All zero: there are no probes.
    pub probe: [u8; 6],
}

impl Segment {
    /// Every interface of it, the client side first.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let tunnels = self.tunnels.iter().map(|tunnel| tunnel.interface.as_str());
        std::iter::once(self.interface.as_str()).chain(tunnels)
    }
}

/// A client that was heard behind a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The IPv4 address it last claimed by ARP.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 address it last spoke from in neighbour discovery.
    pub v6: Option<Ipv6Addr>,
    /// It said there that it is a router.
    pub router: bool,
    /// When it was last heard, by the clock of [`words::kernel_now`], in nanoseconds.
    pub heard: u64,
}

/// Every segment, with its maps open.
pub struct Segments {
    ports: HashMap<MapData, u32, Raw<Port>>,
    inbound: Words,
    groups: Words,
    hops: Array<MapData, Raw<Hop>>,
    macs: HashMap<MapData, Raw<ClientMac>, Raw<ClientSeen>>,
    segments: Vec<Segment>,
    placed: Vec<Placed>,
}

/// One segment as it stands in the maps.
struct Placed {
    name: String,
    group: u32,
    /// Tunnel → its number.
    tunnels: BTreeMap<String, u32>,
    /// The tunnel it is joined to, which outlives the tunnel's device.
    joined: Option<String>,
}

impl Segments {
    /// Opens the maps pinned below `pin` and writes where every interface of `segments` belongs.
    /// A segment that an earlier run joined to one of its tunnels stays joined to it.
    ///
    /// # Errors
    /// [`Error::NotLoaded`], [`Error::NoInterface`], [`Error::Options`] when there are too many,
    /// [`Error::Map`].
    pub fn open(pin: &Path, segments: &[Segment]) -> Result<Self, Error> {
        let directory = pins::directory(pin);
        if !directory.join("PORTS").exists() {
            return Err(Error::NotLoaded(pin.to_owned()));
        }
        let groups = array(&directory, "GROUPS")?;
        let inbound = array(&directory, "INBOUND")?;
        let mut all = Self {
            ports: typed(&directory, "PORTS")?,
            inbound: words_of("INBOUND", &inbound, TUNNELS)?,
            groups: words_of("GROUPS", &groups, GROUPS + SEGMENTS)?,
            hops: typed(&directory, "HOPS")?,
            macs: typed(&directory, "CLIENT_MACS")?,
            segments: segments.to_vec(),
            placed: Vec::new(),
        };
        all.place()?;
        for index in 0..all.placed.len() {
            all.placed[index].joined = all.in_force(&all.placed[index]);
        }
        Ok(all)
    }

    /// Joins a segment to one of its tunnels, or to none. One word; the first time after a
    /// device was made anew, one record before it.
    ///
    /// # Errors
    /// [`Error::NoInterface`] of a segment or tunnel that is not known or not there,
    /// [`Error::Map`].
    pub fn activate(&mut self, segment: &str, tunnel: Option<&str>) -> Result<(), Error> {
        let index = self.index(segment)?;
        let hop = match tunnel {
            None => 0,
            Some(tunnel) if self.placed[index].tunnels.contains_key(tunnel) => {
                self.hop_to(Device::find(tunnel)?.index)?
            }
            Some(tunnel) => return Err(Error::NoInterface(tunnel.to_owned())),
        };
        let placed = &mut self.placed[index];
        self.groups.store_u32(placed.group, hop);
        placed.joined = tunnel.map(str::to_owned);
        Ok(())
    }

    /// The tunnel that a segment is joined to.
    #[must_use]
    pub fn active(&self, segment: &str) -> Option<&str> {
        let index = self.index(segment).ok()?;
        self.placed[index].joined.as_deref()
    }

    /// The tunnel that a segment is joined to, by the maps.
    fn in_force(&self, placed: &Placed) -> Option<String> {
        let hop = self.hop(self.groups.load_u32(placed.group))?;
        let leads = |name: &&String| Device::find(name).is_ok_and(|on| on.index == hop.ifindex);
        placed.tunnels.keys().find(leads).cloned()
    }

    /// When a tunnel last brought a frame that was no DHCP answer, by the clock of
    /// [`words::kernel_now`], in nanoseconds; `None`: never.
    #[must_use]
    pub fn last_inbound(&self, tunnel: &str) -> Option<u64> {
        let number = |placed: &Placed| placed.tunnels.get(tunnel).copied();
        let number = self.placed.iter().find_map(number)?;
        Some(self.inbound.load(number)).filter(|at| *at != 0)
    }

    /// Whether a tunnel belongs to one of the segments: only then it is stamped.
    #[must_use]
    pub fn knows(&self, tunnel: &str) -> bool {
        self.placed
            .iter()
            .any(|placed| placed.tunnels.contains_key(tunnel))
    }

    /// Who was heard behind the client side, most recent first.
    ///
    /// # Errors
    /// [`Error::NoInterface`] of a segment that is not known, [`Error::Map`].
    pub fn clients(&self, segment: &str) -> Result<Vec<Client>, Error> {
        let group = (self.placed[self.index(segment)?].group as u16).to_be_bytes();
        let mut clients = Vec::new();
        for entry in self.macs.iter() {
            let (key, seen) = entry.map_err(|error| Error::map("CLIENT_MACS", error))?;
            if key.0.group == group {
                clients.push(Client {
                    mac: key.0.mac,
                    v4: Some(Ipv4Addr::from(seen.0.v4)).filter(|v4| !v4.is_unspecified()),
                    v6: Some(Ipv6Addr::from(seen.0.v6)).filter(|v6| !v6.is_unspecified()),
                    router: seen.0.router != [0; 4],
                    heard: seen.0.heard,
                });
            }
        }
        clients.sort_by_key(|client| std::cmp::Reverse(client.heard));
        Ok(clients)
    }

    /// Writes anew where the interfaces are, after devices were made anew; segments stay joined
    /// to the tunnels they were joined to, by name.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn renew(&mut self) -> Result<(), Error> {
        self.place()?;
        for index in 0..self.placed.len() {
            let placed = &self.placed[index];
            if let Some(tunnel) = placed.joined.clone() {
                let name = placed.name.clone();
                self.activate(&name, Some(&tunnel))?;
            }
        }
        Ok(())
    }

    fn place(&mut self) -> Result<(), Error> {
        let segments = &self.segments;
        let tunnels: usize = segments.iter().map(|segment| segment.tunnels.len()).sum();
        if segments.len() > SEGMENTS as usize || tunnels > TUNNELS as usize {
            return Err(Error::Options(format!(
                "{} segments with {tunnels} tunnels: at most {SEGMENTS} with {TUNNELS}",
                segments.len()
            )));
        }
        let failed = |error| Error::map("PORTS", error);
        let mut wanted = BTreeMap::new();
        let mut numbers = 0..;
        let mut placed = Vec::new();
        for (group, segment) in (GROUPS..).zip(segments) {
            let client = Device::find(&segment.interface)?.index;
            let port = |role, tunnel, probe| {
                Raw(Port {
                    group,
                    role,
                    tunnel,
                    client,
                    probe,
                    zero: [0; 2],
                })
            };
            wanted.insert(client, port(PORT_CLIENT, 0, [0; 6]));
            let mut tunnels = BTreeMap::new();
            for (tunnel, number) in segment.tunnels.iter().zip(&mut numbers) {
                let name = &tunnel.interface;
                let port = port(PORT_TUNNEL, number, tunnel.probe);
                wanted.insert(Device::find(name)?.index, port);
                tunnels.insert(name.clone(), number);
            }
            let before = self.placed.iter().find(|p| p.name == segment.interface);
            placed.push(Placed {
                name: segment.interface.clone(),
                group,
                tunnels,
                joined: before.and_then(|before| before.joined.clone()),
            });
        }
        let before: Vec<u32> = self
            .ports
            .keys()
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        for (ifindex, port) in &wanted {
            self.ports.insert(ifindex, *port, 0).map_err(failed)?;
        }
        for gone in before
            .iter()
            .filter(|ifindex| !wanted.contains_key(ifindex))
        {
            // Absent is as good as removed.
            let _ = self.ports.remove(gone);
        }
        self.placed = placed;
        // Hops of every candidate are installed ahead: a switch is then one word.
        for placed in 0..self.placed.len() {
            for name in self.placed[placed].tunnels.clone().keys() {
                self.hop_to(Device::find(name)?.index)?;
            }
        }
        Ok(())
    }

    /// The hop that leads to a device, written where nothing leads if there is none yet.
    fn hop_to(&mut self, ifindex: u32) -> Result<u32, Error> {
        let range = HOPS..HOPS + SEGMENT_HOPS;
        let leads = |index: &u32| self.hop(*index).is_some_and(|hop| hop.ifindex == ifindex);
        if let Some(index) = range.clone().find(leads) {
            return Ok(index);
        }
        let joined: Vec<u32> = (GROUPS..GROUPS + SEGMENTS)
            .map(|group| self.groups.load_u32(group))
            .collect();
        // First those never used, then those of devices that are gone.
        let free = |index: &u32| !joined.contains(index);
        let unused = range
            .clone()
            .filter(free)
            .find(|index| self.hop(*index).is_none());
        let gone = |index: &u32| {
            self.hop(*index)
                .is_none_or(|hop| super::device::name_of(hop.ifindex).is_none())
        };
        let index = unused
            .or_else(|| range.filter(free).find(gone))
            .ok_or_else(|| Error::map("HOPS", "no room for a segment's hop"))?;
        // A program that began before may still read the record.
        words::grace();
        let hop = Hop {
            ifindex,
            kind: HOP_SEGMENT,
            ..bytemuck::Zeroable::zeroed()
        };
        self.hops
            .set(index, Raw(hop), 0)
            .map_err(|error| Error::map("HOPS", error))?;
        Ok(index)
    }

    fn hop(&self, index: u32) -> Option<Hop> {
        let hop = self.hops.get(&index, 0).ok()?.0;
        (hop.kind == HOP_SEGMENT).then_some(hop)
    }

    fn index(&self, segment: &str) -> Result<usize, Error> {
        let named = |placed: &Placed| placed.name == segment;
        let index = self.placed.iter().position(named);
        index.ok_or_else(|| Error::NoInterface(segment.to_owned()))
    }
}

fn array(directory: &Path, name: &'static str) -> Result<MapData, Error> {
    let path: PathBuf = directory.join(name);
    MapData::from_pin(path).map_err(|error| Error::map(name, error))
}

fn typed<T: TryFrom<Map, Error = aya::maps::MapError>>(
    directory: &Path,
    name: &'static str,
) -> Result<T, Error> {
    let map = Map::from_map_data(array(directory, name)?);
    let map = map.map_err(|error| Error::map(name, error))?;
    T::try_from(map).map_err(|error| Error::map(name, error))
}

fn words_of(name: &'static str, map: &MapData, len: u32) -> Result<Words, Error> {
    Words::new(map.fd(), len).map_err(|error: io::Error| Error::map(name, error))
}
