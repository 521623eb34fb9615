//! Pins that vanished under a running daemon: their file system was unmounted, or somebody
//! removed them. The maps live on in the loaded object, so they can be pinned anew.

use std::path::Path;

use aya::{
    maps::{MapData, MapInfo},
    programs::Xdp,
};

use super::{
    Error,
    layout::{self, Shape},
    object::Sizes,
    pins,
};

/// Pinned last: while it is absent, not everything is pinned.
const LAST: &str = "COUNTERS";

/// Whether the pins in `directory` are there.
pub(super) fn pinned(directory: &Path) -> bool {
    directory.join(LAST).exists()
}

/// Pins the maps of `program` below `pin`.
///
/// # Errors
/// [`Error::NoBpffs`], or what the kernel says.
pub(super) fn pin(program: &Xdp, pin: &Path, sizes: &Sizes) -> Result<(), Error> {
    let directory = pins::create(pin)?;
    let unknown = |error: &dyn std::fmt::Display| Error::map("of the program", error);
    let info = program.info().map_err(|error| unknown(&error))?;
    let ids = info.map_ids().map_err(|error| unknown(&error))?;
    let shapes = layout::shapes(sizes);
    let mut last = None;
    for id in ids.unwrap_or_default() {
        let info = MapInfo::from_id(id).map_err(|error| unknown(&error))?;
        let ours = |shape: &&Shape| Some(shape.name) == info.name_as_str();
        match shapes.iter().find(ours).map(|shape| shape.name) {
            Some(LAST) => last = Some(id),
            Some(name) => pin_one(id, name, &directory)?,
            None => {}
        }
    }
    last.map_or(Ok(()), |id| pin_one(id, LAST, &directory))
}

fn pin_one(id: u32, name: &'static str, directory: &Path) -> Result<(), Error> {
    let path = directory.join(name);
    if path.exists() {
        return Ok(());
    }
    let map = MapData::from_id(id).map_err(|error| Error::map(name, error))?;
    map.pin(path).map_err(|error| Error::map(name, error))
}
