//! The fast path's life: programs loaded, attached, pinned, checked, replaced and taken off.
//!
//! Everything is pinned below one directory, so that the data path outlives the controller
//! (KL5); `stats` and `fastpath status` read the pins with no daemon running.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use aya::Ebpf;

mod again;
mod attach;
pub mod batch;
mod carry;
pub mod copies;
mod device;
mod error;
mod ethtool;
pub mod events;
mod features;
mod inspect;
pub mod layout;
pub mod maps;
pub mod object;
mod peer;
mod pins;
mod rebuilt;
pub mod redirects;
mod rtnl;
pub mod segments;
mod tc;
pub mod words;

pub use error::Error;
pub use features::Features;
pub use inspect::{Inspection, inspect};

use self::{
    device::Device, layout::Shape, maps::Maps, object::Sizes, rebuilt::Rebuilt, segments::Segment,
};

/// How a program shall be put on an interface (`xdp = ...` of the configuration).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum XdpChoice {
    /// Native where the driver allows, else generic, shown as degraded.
    #[default]
    Auto,
    /// Native or an error.
    Native,
    /// Generic, shown as degraded.
    Generic,
    /// Not at all.
    Off,
}

/// How a program sits on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the network stack: half as fast, no segments.
    Generic,
    /// At TC ingress: segments.
    Tc,
}

impl Mode {
    /// Its name in JSON and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Tc => "tc",
        }
    }
}

/// One interface that shall carry the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The mode asked for.
    pub xdp: XdpChoice,
}

/// What to load, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The gateway's directory on bpffs; the pins live in `vN` below it.
    pub pin: PathBuf,
    /// Interfaces that shall carry the program.
    pub interfaces: Vec<Interface>,
    /// The media ports.
    pub media: RangeInclusive<u16>,
    /// Directions of media streams at once.
    pub max_plans: u32,
    /// Entries of the transparent mode's flow table.
    pub max_flows: u32,
    /// Client-side interfaces that are joined to tunnels.
    pub segments: Vec<Segment>,
    /// Transparent mode: flows that are not addressed to us are looked up.
    pub transparent: bool,
}

/// An interface that carries the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// The mode in force.
    pub mode: Mode,
    /// Why it works less well than it could.
    pub degraded: Vec<String>,
    /// What its operator should know.
    pub notes: Vec<String>,
}

/// Packets of one interface by reason, summed over CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// The interface's name; `ifN` when it is gone.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// One count per `keepline_common::reason::Reason`, in its order.
    pub packets: Vec<u64>,
}

/// How far a start has come. One that is killed at any of them is finished by the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage<'a> {
    /// Pins that are not what is wanted stand aside; their program runs on.
    Aside,
    /// The program and new maps stand beside; nothing was carried yet.
    Loaded,
    /// Groups and hops were carried, no flow yet.
    Filling,
    /// This interface's link has the new program.
    Attached(&'a str),
    /// Every link has; what was set aside is still pinned.
    Unpinning,
}

/// A loaded fast path. Dropping it leaves everything that is pinned at work.
pub struct Fastpath {
    ebpf: Ebpf,
    options: Options,
    directory: PathBuf,
    attached: Vec<Attached>,
    joined: Vec<Attached>,
    /// Names of those that lost it and do not have it back.
    severed: Vec<String>,
    rebuilt: Option<Rebuilt>,
}

impl Fastpath {
    /// Loads the program over the pinned maps, or fresh ones, and puts it on the interfaces: a
    /// link that is pinned has its program replaced and loses no packet. The maps are for
    /// [`crate::steer::Steer`].
    ///
    /// Pinned maps that are not what is wanted now are never loaded over: they are set aside,
    /// their flows carried into new ones while the old program runs on, and removed when every
    /// link has the new program. [`Self::rebuilt`] tells of it.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::remedy`] says what to do. Interfaces that were attached before the
    /// one that failed stay attached.
    pub fn start(options: &Options) -> Result<(Self, Maps), Error> {
        Self::start_by_stages(options, &mut |_| Ok(()))
    }

    /// As [`Self::start`], telling how far it is; an error from `at` ends it there.
    ///
    /// # Errors
    /// As [`Self::start`], and what `at` returns.
    pub fn start_by_stages(
        options: &Options,
        at: &mut dyn FnMut(Stage<'_>) -> Result<(), Error>,
    ) -> Result<(Self, Maps), Error> {
        let sizes = Sizes::of(options)?;
        // A wrong name is told before anything is touched.
        for interface in &options.interfaces {
            if interface.xdp != XdpChoice::Off {
                Device::find(&interface.name)?;
            }
        }
        for segment in &options.segments {
            segment
                .interfaces()
                .try_for_each(|name| Device::find(name).map(drop))?;
        }
        let mut directory = pins::create(&options.pin)?;
        let difference = match layout::check(&directory, &sizes) {
            Err(difference @ Error::Layout { .. }) => Some(difference.to_string()),
            checked => checked.and_then(|()| carry::shifted(&directory, &sizes))?,
        };
        if difference.is_some() {
            pins::set_aside(&options.pin)?;
            at(Stage::Aside)?;
            directory = pins::create(&options.pin)?;
        }
        let older = pins::other_versions(&options.pin);
        let mut ebpf = object::load(&sizes, Some(&directory))?;
        let mut maps = Maps::of(&mut ebpf, sizes)?;
        at(Stage::Loaded)?;
        let rebuilt = Rebuilt::from(&older, difference, &mut maps, at)?;
        let mut fastpath = Self {
            ebpf,
            options: options.clone(),
            directory,
            attached: Vec::new(),
            joined: Vec::new(),
            severed: Vec::new(),
            rebuilt,
        };
        fastpath.attach_all(&mut maps, &older, at)?;
        fastpath.attach_segments(&mut maps, &older)?;
        at(Stage::Unpinning)?;
        older.iter().try_for_each(|older| pins::remove(older))?;
        Ok((fastpath, maps))
    }

    /// The interfaces that carry the program.
    #[must_use]
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// The interfaces of segments, which carry the program at TC.
    #[must_use]
    pub fn joined(&self) -> &[Attached] {
        &self.joined
    }

    /// The ring of rare events, once: it has one reader.
    ///
    /// # Errors
    /// [`Error::Map`] when the kernel refuses it.
    pub fn events(&mut self) -> Result<Option<events::Events>, Error> {
        let ring = self.ebpf.take_map("EVENTS");
        ring.map(events::Events::of).transpose()
    }

    /// The rings of copies, once: those of talks that softswitches accepted, and the others.
    ///
    /// # Errors
    /// [`Error::Map`] when the kernel refuses one.
    pub fn copies(&mut self) -> Result<Vec<copies::Copies>, Error> {
        let names = ["COPIES", "STRANGERS"].into_iter();
        let rings = names.filter_map(|name| Some((name, self.ebpf.take_map(name)?)));
        rings
            .map(|(name, map)| copies::Copies::of(name, map))
            .collect()
    }

    /// Names of the interfaces that lost the program and do not have it back.
    #[must_use]
    pub fn severed(&self) -> &[String] {
        &self.severed
    }

    /// Why the maps were made anew, and what became of the flows in them; `None`: they were not.
    #[must_use]
    pub fn rebuilt(&self) -> Option<&str> {
        self.rebuilt.as_ref().map(|rebuilt| rebuilt.said.as_str())
    }

    /// How long ago links had their program replaced by one with nothing to forward by, since no
    /// flow could be carried into its maps; `None`: they were not. Steering ends that gap.
    #[must_use]
    pub fn gap(&self) -> Option<Duration> {
        self.rebuilt.as_ref()?.gap()
    }

    /// Looks whether every interface still carries the program, and puts it back where a device
    /// was made anew, and whether the devices still take frames; returns those that were put
    /// back. `count` is told of their new indexes. Pins that vanished are made anew, once there
    /// is a bpf file system again.
    ///
    /// # Errors
    /// As [`Self::start`]; what could be put back is.
    pub fn repair(&mut self, count: &mut Maps) -> Result<Vec<Attached>, Error> {
        let before = std::mem::take(&mut self.attached);
        let bare = |attached: &&Attached| {
            Device::find(&attached.name).is_ok_and(|device| {
                let pin = pins::link(&self.directory, &attached.name);
                device.index != attached.ifindex || attach::holds(&pin, &device).is_none()
            })
        };
        let lost: Vec<Attached> = before.iter().filter(bare).cloned().collect();
        self.attached = before;
        self.severed = lost.iter().map(|on| on.name.clone()).collect();
        if !again::pinned(&self.directory) {
            let sizes = Sizes::of(&self.options)?;
            again::pin(object::program(&mut self.ebpf)?, &self.options.pin, &sizes)?;
        }
        let mut repaired = Vec::new();
        for old in lost {
            let name = |interface: &&Interface| interface.name == old.name;
            let Some(interface) = self.options.interfaces.iter().find(name).cloned() else {
                continue;
            };
            let program = object::program(&mut self.ebpf)?;
            let Some(new) = attach::attach(program, &interface, &self.directory, &[])? else {
                continue;
            };
            // On the same device flows go on: its entries are still what hops need.
            if new.ifindex != old.ifindex {
                count.forget_interface(old.ifindex);
            }
            count.count_on(new.ifindex)?;
            self.severed.retain(|name| *name != new.name);
            self.attached.retain(|attached| attached.name != new.name);
            self.attached.push(new.clone());
            repaired.push(new);
        }
        self.face_peers(&[])?;
        repaired.extend(self.repair_segments(count)?);
        Ok(repaired)
    }

    /// Packets by interface and reason.
    ///
    /// # Errors
    /// As [`counters`].
    pub fn counters(&self) -> Result<Vec<InterfaceCounters>, Error> {
        counters(&self.options.pin)
    }

    fn attach_all(
        &mut self,
        maps: &mut Maps,
        older: &[PathBuf],
        at: &mut dyn FnMut(Stage<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(rebuilt) = &mut self.rebuilt {
            rebuilt.attaching();
        }
        for interface in &self.options.interfaces {
            if let (Ok(device), true) = (
                Device::find(&interface.name),
                interface.xdp != XdpChoice::Off,
            ) {
                maps.count_on(device.index)?;
            }
            let program = object::program(&mut self.ebpf)?;
            self.attached
                .extend(attach::attach(program, interface, &self.directory, older)?);
            at(Stage::Attached(&interface.name))?;
        }
        // Interfaces that left the configuration.
        for name in pins::interfaces(&self.directory) {
            if self
                .options
                .interfaces
                .iter()
                .all(|interface| interface.name != name)
            {
                let pin = pins::link(&self.directory, &name);
                fs::remove_file(&pin).map_err(Error::io(pin))?;
            }
        }
        self.face_peers(older)
    }
}

/// Takes everything off again: links, maps, pins, of every version. Returns the interfaces that
/// carried the program.
///
/// # Errors
/// [`Error::NotLoaded`], or what the file system says.
pub fn unload(pin: &Path) -> Result<Vec<String>, Error> {
    let mut versions = pins::other_versions(pin);
    versions.extend(Some(pins::directory(pin)).filter(|directory| directory.is_dir()));
    if versions.is_empty() {
        return Err(Error::NotLoaded(pin.to_owned()));
    }
    let on = |version: &PathBuf| [pins::interfaces(version), pins::joined(version)].concat();
    let mut names: Vec<String> = versions.iter().flat_map(on).collect();
    versions
        .iter()
        .try_for_each(|version| pins::remove(version))?;
    let _ = fs::remove_dir(pin); // something else in it: not ours to remove
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// What the device of this index says it sent, if it is there.
#[must_use]
pub fn sent(ifindex: u32) -> Option<redirects::Sent> {
    let device = Device::find(&device::name_of(ifindex)?).ok()?;
    Some(redirects::Sent {
        frames: device.sent,
        counts_xdp: device.is_veth,
    })
}

/// One interface as `fastpath status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// How it carries the program; `None`: the pinned link holds it no more, or the device is
    /// gone.
    pub mode: Option<Mode>,
}

/// What is loaded below `pin`, read without a daemon.
///
/// # Errors
/// [`Error::NotLoaded`].
pub fn status(pin: &Path) -> Result<Vec<InterfaceStatus>, Error> {
    let directory = loaded(pin)?;
    let xdp = |name: &str| {
        let device = Device::find(name).ok()?;
        attach::holds(&pins::link(&directory, name), &device).map(|(_, mode)| mode)
    };
    let tc = |name: &str| tc::holds(&pins::tc(&directory, name), name).map(|_| Mode::Tc);
    let interfaces = pins::interfaces(&directory).into_iter().map(|name| {
        let mode = xdp(&name);
        InterfaceStatus { name, mode }
    });
    let joined = pins::joined(&directory).into_iter().map(|name| {
        let mode = tc(&name);
        InterfaceStatus { name, mode }
    });
    Ok(interfaces.chain(joined).collect())
}

/// Packets by interface and reason, read from the pins without a daemon.
///
/// # Errors
/// [`Error::NotLoaded`], [`Error::Layout`], or what the kernel says.
pub fn counters(pin: &Path) -> Result<Vec<InterfaceCounters>, Error> {
    let directory = loaded(pin)?;
    // The sizes of other maps do not matter here.
    let sizes = Sizes {
        media_first: 1,
        media_ports: 1,
        plans: 1,
        flows: 1,
        transparent: false,
    };
    let ours = |shape: &&Shape| shape.name == "COUNTERS";
    layout::shapes(&sizes)
        .iter()
        .find(ours)
        .map_or(Ok(()), |shape| layout::check_one(&directory, shape))?;
    let named = |(ifindex, packets): (u32, Vec<u64>)| InterfaceCounters {
        interface: device::name_of(ifindex).unwrap_or_else(|| format!("if{ifindex}")),
        ifindex,
        packets,
    };
    Ok(maps::pinned_counters(&directory)?
        .into_iter()
        .map(named)
        .collect())
}

fn loaded(pin: &Path) -> Result<PathBuf, Error> {
    let directory = pins::directory(pin);
    if directory.join("COUNTERS").exists() {
        Ok(directory)
    } else {
        Err(Error::NotLoaded(pin.to_owned()))
    }
}
