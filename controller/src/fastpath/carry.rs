//! Flows carried from maps that were set aside into the new ones, before any link runs on them.
//!
//! Every step may be repeated: a start that is killed leaves the old maps where the next one
//! finds them, and no steering has written to the new ones while old ones are left.

use std::{io, path::Path};

use keepline_common::{
    limits::{GROUPS, SEGMENTS},
    record::{HOP_FORWARD, PlanWord},
};

use super::{Error, Stage, layout, maps::Maps, object::Sizes};
use crate::steer::tables::Tables as _;

/// Why maps of the right shapes are not the ones that are wanted all the same: their media
/// range is as long, and begins elsewhere, so that every word stands for another port. Any word
/// tells; without one it makes no difference.
///
/// # Errors
/// When the kernel refuses a read.
pub(super) fn shifted(directory: &Path, sizes: &Sizes) -> Result<Option<String>, Error> {
    if layout::pinned_sizes(directory).is_none() {
        return Ok(None);
    }
    let failed = |error: io::Error| Error::map("PLANS", error);
    let pinned = Maps::pinned(directory, *sizes)?;
    let (first, ports) = (u32::from(sizes.media_first), sizes.media_ports);
    for (_, slot) in pinned.addresses().map_err(failed)? {
        for offset in 0..ports {
            let Some(word) = PlanWord::unpack(pinned.media(slot * ports + offset)) else {
                continue;
            };
            let plan = pinned.plan(word.slot).map_err(failed)?;
            let port = u32::from(u16::from_be_bytes(plan.key.destination_port));
            let here = first + offset;
            return Ok((port != here)
                .then(|| format!("the media range was another: port {port} stands for {here}")));
        }
    }
    Ok(None)
}

/// Carries the flows of the maps in `old` over. `None`: their records are another version's,
/// which this one does not read.
///
/// # Errors
/// When the kernel refuses a read or a write.
pub(super) fn flows(
    old: &Path,
    new: &mut Maps,
    at: &mut dyn FnMut(Stage<'_>) -> Result<(), Error>,
) -> Result<Option<usize>, Error> {
    let Some(sizes) = layout::pinned_sizes(old) else {
        return Ok(None);
    };
    let old = Maps::pinned(old, sizes)?;
    let failed = |error: io::Error| Error::map("PLANS", error);
    groups(&old, new).map_err(failed)?;
    at(Stage::Filling)?;
    media(&old, new).map(Some).map_err(failed)
}

/// Groups and hops keep their numbers: plans name them.
fn groups(old: &Maps, new: &mut Maps) -> io::Result<()> {
    for group in 0..GROUPS + SEGMENTS {
        let index = old.group(group);
        if index == 0 {
            continue;
        }
        let hop = old.hop(index)?;
        // A device that is gone takes no packets, and its hop none; reconciling resolves anew.
        if hop.kind == HOP_FORWARD && new.set_device(hop.ifindex).is_err() {
            continue;
        }
        new.set_hop(index, &hop)?;
        new.set_group(group, index);
    }
    new.take_segments(old)
}

/// Plans keep their slots and generations; words move to where their port now stands. A port
/// that left the range, or a slot beyond a smaller table, is not carried.
fn media(old: &Maps, new: &mut Maps) -> io::Result<usize> {
    let mut carried = 0;
    let (first, ports) = new.media_range();
    let (_, old_ports) = old.media_range();
    for (address, slot) in old.addresses()? {
        new.set_address(address, slot)?;
        for index in slot * old_ports..(slot + 1) * old_ports {
            let word = old.media(index);
            let Some(PlanWord { slot: record, .. }) = PlanWord::unpack(word) else {
                continue;
            };
            let plan = old.plan(record)?;
            let port = u16::from_be_bytes(plan.key.destination_port);
            let offset = port.checked_sub(first).map(u32::from);
            let Some(offset) = offset.filter(|offset| *offset < ports) else {
                continue;
            };
            if record >= new.plan_slots() {
                continue;
            }
            new.set_plan(record, &plan)?;
            new.set_state(record, &old.state(record)?)?;
            new.set_media(slot * ports + offset, word);
            carried += 1;
        }
    }
    Ok(carried)
}
