//! Putting the program on an interface, or taking up a link that is pinned.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aya::programs::{
    Xdp, XdpMode,
    links::{FdLink, PinnedLink},
    loaded_programs,
    xdp::XdpLink,
};

use super::{
    Attached, Error, Interface, Mode, XdpChoice,
    device::{Carried, Device},
    error::chain,
    pins,
};

/// Makes `interface` carry `program`, pinned in `directory`. A pinned link, of this version or
/// one in `older`, has its program replaced without a gap; a severed one is made anew.
/// `None`: the interface shall carry nothing.
pub(super) fn attach(
    program: &mut Xdp,
    interface: &Interface,
    directory: &Path,
    older: &[PathBuf],
) -> Result<Option<Attached>, Error> {
    let pin = pins::link(directory, &interface.name);
    if interface.xdp == XdpChoice::Off {
        let _ = fs::remove_file(pin); // absent is as good as removed
        return Ok(None);
    }
    let device = Device::find(&interface.name)?;
    let mut degraded = Vec::new();
    degraded.extend(device.keep_tags().err());
    let mut mode = None;
    for place in [directory]
        .into_iter()
        .chain(older.iter().map(PathBuf::as_path))
    {
        if mode.is_none() {
            mode = take_up(
                program,
                &device,
                &pins::link(place, &device.name),
                &pin,
                interface.xdp,
            )?;
        }
    }
    let mode = match mode {
        Some(mode) => mode,
        None => fresh(program, &device, &pin, interface.xdp, &mut degraded)?,
    };
    if mode == Mode::Generic {
        degraded.push("generic XDP: half as fast as native".into());
    }
    Ok(Some(Attached {
        name: device.name,
        ifindex: device.index,
        mode,
        degraded,
        notes: Vec::new(),
    }))
}

/// Whether the link pinned at `pin` still holds `device`, and how: a device that was made anew
/// leaves the link severed without a sign (fastpath.md section 4).
pub(super) fn holds(pin: &Path, device: &Device) -> Option<(FdLink, Mode)> {
    let link = FdLink::from(PinnedLink::from_pin(pin).ok()?);
    let ours = link.info().ok()?.program_id();
    let Carried { program, mode } = device.carried?;
    (program == ours).then_some((link, mode))
}

/// Replaces the program of the link pinned at `old`, which is then pinned at `pin`.
fn take_up(
    program: &mut Xdp,
    device: &Device,
    old: &Path,
    pin: &Path,
    wanted: XdpChoice,
) -> Result<Option<Mode>, Error> {
    if !old.exists() {
        return Ok(None);
    }
    let link = holds(old, device).filter(|(_, mode)| match wanted {
        XdpChoice::Native => *mode == Mode::Native,
        XdpChoice::Generic => *mode == Mode::Generic,
        XdpChoice::Auto | XdpChoice::Off => true,
    });
    let Some((link, mode)) = link else {
        fs::remove_file(old).map_err(Error::io(old))?;
        return Ok(None);
    };
    let failed = |error: &dyn std::error::Error| refusal(device, mode, chain(error));
    let link = XdpLink::try_from(link).map_err(|error| failed(&error))?;
    let id = program
        .attach_to_link(link)
        .map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    if old != pin {
        let link = FdLink::try_from(link).map_err(|error| failed(&error))?;
        link.pin(pin).map_err(|error| failed(&error))?;
        fs::remove_file(old).map_err(Error::io(old))?;
    }
    Ok(Some(mode))
}

/// Attaches to a device that does not carry us: native where wanted and possible, else generic.
fn fresh(
    program: &mut Xdp,
    device: &Device,
    pin: &Path,
    wanted: XdpChoice,
    degraded: &mut Vec<String>,
) -> Result<Mode, Error> {
    // Seen before a severed or unwanted link of ours was taken away: look again.
    if let Some(Carried { program, .. }) = Device::find(&device.name)?.carried {
        return Err(foreign(device, program));
    }
    if wanted == XdpChoice::Generic {
        return one_mode(program, device, pin, Mode::Generic);
    }
    match one_mode(program, device, pin, Mode::Native) {
        Err(Error::Attach { reason, .. }) if wanted == XdpChoice::Auto => {
            degraded.push(format!("the driver refuses native XDP: {reason}"));
            one_mode(program, device, pin, Mode::Generic)
        }
        other => other,
    }
}

/// Attaches in one mode and pins.
pub(super) fn one_mode(
    program: &mut Xdp,
    device: &Device,
    pin: &Path,
    mode: Mode,
) -> Result<Mode, Error> {
    let flags = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic | Mode::Tc => XdpMode::Skb,
    };
    let failed = |error: &dyn std::error::Error| refusal(device, mode, chain(error));
    let id = program
        .attach_to_if_index(device.index, flags)
        .map_err(|error| failed(&error))?;
    // On EINVAL aya falls back to an attachment by netlink, which cannot be pinned and would not
    // outlive us: as good as none. Only its id tells; turned into a link it would stay behind.
    if format!("{id:?}").contains("NlLinkId") {
        let detached = program.detach(id);
        let reason = "the kernel offers no link for it".to_owned();
        return Err(
            detached.map_or_else(|error| failed(&error), |()| refusal(device, mode, reason))
        );
    }
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    let link = FdLink::try_from(link).map_err(|error| failed(&error))?;
    link.pin(pin).map_err(|error| failed(&error))?;
    Ok(mode)
}

fn refusal(device: &Device, mode: Mode, reason: String) -> Error {
    Error::Attach {
        interface: device.name.clone(),
        mtu: device.mtu,
        mode: mode.name(),
        reason,
    }
}

/// The refusal to sit beside another program.
fn foreign(device: &Device, id: u32) -> Error {
    let name = loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)
        .and_then(|program| program.name_as_str().map(str::to_owned))
        .unwrap_or_else(|| "without a name".to_owned());
    Error::Foreign {
        interface: device.name.clone(),
        name,
        id,
    }
}
