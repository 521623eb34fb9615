//! The program of segments on an interface: at TC ingress, by a link that is pinned (TCX, kernel
//! 6.6).

use std::{
    fs,
    path::{Path, PathBuf},
};

use aya::programs::{
    LinkOrder, SchedClassifier, TcAttachType,
    links::{FdLink, PinnedLink},
    tc::{SchedClassifierLink, TcAttachOptions},
};

use super::{
    Attached, Error, Fastpath, Mode, device::Device, error::chain, maps::Maps, object, pins,
};

impl Fastpath {
    /// Puts the program on every interface of the segments, and takes it off others. A link that
    /// is pinned, here or in `older`, has its program replaced without a gap.
    pub(super) fn attach_segments(
        &mut self,
        maps: &mut Maps,
        older: &[PathBuf],
    ) -> Result<(), Error> {
        let names = self.segment_interfaces();
        self.joined.clear();
        for name in &names {
            let device = Device::find(name)?;
            maps.count_on(device.index)?;
            let program = object::segment(&mut self.ebpf)?;
            attach(program, &device, &self.directory, older)?;
            self.joined.push(Attached {
                name: name.clone(),
                ifindex: device.index,
                mode: Mode::Tc,
                degraded: Vec::new(),
                notes: Vec::new(),
            });
        }
        for name in pins::joined(&self.directory) {
            if !names.contains(&name) {
                let pin = pins::tc(&self.directory, &name);
                fs::remove_file(&pin).map_err(Error::io(pin))?;
            }
        }
        Ok(())
    }

    /// Puts the program back where a device was made anew; those are returned.
    pub(super) fn repair_segments(&mut self, maps: &mut Maps) -> Result<Vec<Attached>, Error> {
        let mut repaired = Vec::new();
        for on in &mut self.joined {
            let Ok(device) = Device::find(&on.name) else {
                continue;
            };
            let pin = pins::tc(&self.directory, &on.name);
            if device.index == on.ifindex && holds(&pin, &on.name).is_some() {
                continue;
            }
            if on.ifindex != device.index {
                maps.forget_interface(on.ifindex);
            }
            maps.count_on(device.index)?;
            let program = object::segment(&mut self.ebpf)?;
            attach(program, &device, &self.directory, &[])?;
            on.ifindex = device.index;
            repaired.push(on.clone());
        }
        Ok(repaired)
    }

    fn segment_interfaces(&self) -> Vec<String> {
        let all = self
            .options
            .segments
            .iter()
            .flat_map(|segment| segment.interfaces());
        all.map(str::to_owned).collect()
    }
}

/// The link pinned at `pin`, if its program still sits on the interface.
pub(super) fn holds(pin: &Path, interface: &str) -> Option<FdLink> {
    let link = FdLink::from(PinnedLink::from_pin(pin).ok()?);
    let ours = link.info().ok()?.program_id();
    let (_, programs) = SchedClassifier::query_tcx(interface, TcAttachType::Ingress).ok()?;
    programs
        .iter()
        .any(|program| program.id() == ours)
        .then_some(link)
}

fn attach(
    program: &mut SchedClassifier,
    device: &Device,
    directory: &Path,
    older: &[PathBuf],
) -> Result<(), Error> {
    let pin = pins::tc(directory, &device.name);
    let places = [pin.clone()]
        .into_iter()
        .chain(older.iter().map(|older| pins::tc(older, &device.name)));
    for old in places.filter(|place| place.exists()) {
        if let Some(link) = holds(&old, &device.name) {
            return replace(program, device, link, &old, &pin);
        }
        // Severed: it held a device that is no more.
        fs::remove_file(&old).map_err(Error::io(&old))?;
    }
    let failed = |error: &dyn std::error::Error| refusal(device, chain(error));
    let id = program
        .attach_with_options(
            &device.name,
            TcAttachType::Ingress,
            TcAttachOptions::TcxOrder(LinkOrder::default()),
        )
        .map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    let link = FdLink::try_from(link).map_err(|error| failed(&error))?;
    link.pin(pin).map(drop).map_err(|error| failed(&error))
}

fn replace(
    program: &mut SchedClassifier,
    device: &Device,
    link: FdLink,
    old: &Path,
    pin: &Path,
) -> Result<(), Error> {
    let failed = |error: &dyn std::error::Error| refusal(device, chain(error));
    let link = SchedClassifierLink::try_from(link).map_err(|error| failed(&error))?;
    let id = program
        .attach_to_link(link)
        .map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    if old != pin {
        let link = FdLink::try_from(link).map_err(|error| failed(&error))?;
        link.pin(pin).map_err(|error| failed(&error))?;
        fs::remove_file(old).map_err(Error::io(old))?;
    }
    Ok(())
}

fn refusal(device: &Device, reason: String) -> Error {
    Error::Attach {
        interface: device.name.clone(),
        mtu: device.mtu,
        mode: Mode::Tc.name(),
        reason: format!("{reason} (segments need kernel 6.6 or newer)"),
    }
}
