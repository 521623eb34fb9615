//! Where things are pinned: `<pin>/vN/MAP` and `<pin>/vN/link-INTERFACE`, mode 0700.

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use keepline_common::ABI;
use rustix::fs::statfs;

use super::Error;

/// `BPF_FS_MAGIC`.
const BPF_FS: i64 = 0xcafe_4a11;
const LINK: &str = "link-";
/// Links of the program that only passes, on the other ends of veths.
const STUB: &str = "stub-";
/// Links at TC.
const TC: &str = "tc-";
/// Marks pins that were set aside.
const ASIDE: &str = "-old";

/// The directory of this version's pins.
pub(super) fn directory(pin: &Path) -> PathBuf {
    pin.join(format!("v{ABI}"))
}

/// Makes the directory of this version's pins.
pub(super) fn create(pin: &Path) -> Result<PathBuf, Error> {
    let directory = directory(pin);
    let exists = |path: &&Path| path.exists();
    let ground = directory.ancestors().find(exists).unwrap_or(Path::new("/"));
    let system = statfs(ground).map_err(|error| Error::io(ground)(error.into()))?;
    if system.f_type as i64 != BPF_FS {
        return Err(Error::NoBpffs(ground.to_owned()));
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(Error::io(&directory))?;
    Ok(directory)
}

/// The pin of an interface's link.
pub(super) fn link(directory: &Path, interface: &str) -> PathBuf {
    pin(directory, LINK, interface)
}

/// The pin of the link that makes a device pass everything.
pub(super) fn stub(directory: &Path, device: &str) -> PathBuf {
    pin(directory, STUB, device)
}

/// Names of the interfaces whose links are pinned in `directory`.
pub(super) fn interfaces(directory: &Path) -> Vec<String> {
    names(directory, LINK)
}

/// Names of the devices that pass everything by a link pinned in `directory`.
pub(super) fn stubs(directory: &Path) -> Vec<String> {
    names(directory, STUB)
}

/// The pin of an interface's link at TC.
pub(super) fn tc(directory: &Path, interface: &str) -> PathBuf {
    pin(directory, TC, interface)
}

/// Names of the interfaces whose links at TC are pinned in `directory`.
pub(super) fn joined(directory: &Path) -> Vec<String> {
    names(directory, TC)
}

/// bpffs takes no dots in names, interfaces do.
fn pin(directory: &Path, prefix: &str, interface: &str) -> PathBuf {
    directory.join(format!("{prefix}{}", interface.replace('.', "%")))
}

fn names(directory: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_prefix(prefix)?.replace('%', ".")))
        .collect();
    names.sort_unstable();
    names
}

/// Moves this version's pins aside: their maps are not the ones that are wanted. Links and maps
/// stay at work there until their successors are ready.
pub(super) fn set_aside(pin: &Path) -> Result<(), Error> {
    let ours = directory(pin);
    // The number only keeps apart what several killed starts left.
    let mut number = 1;
    let aside = loop {
        let aside = pin.join(format!("v{ABI}{ASIDE}{number}"));
        if !aside.exists() {
            break aside;
        }
        number += 1;
    };
    fs::rename(&ours, aside).map_err(Error::io(&ours))
}

/// Directories of other versions' pins, and of those that were set aside.
pub(super) fn other_versions(pin: &Path) -> Vec<PathBuf> {
    let ours = directory(pin);
    let Ok(entries) = fs::read_dir(pin) else {
        return Vec::new();
    };
    let version = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let number = name.split_once(ASIDE).map_or(name, |(version, _)| version);
        number
            .strip_prefix('v')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(version)
        .filter(|path| *path != ours)
        .collect()
}

/// Removes a version's pins: links first, so that no program runs on maps that are gone.
pub(super) fn remove(directory: &Path) -> Result<(), Error> {
    let links = interfaces(directory)
        .into_iter()
        .map(|name| link(directory, &name))
        .chain(
            joined(directory)
                .into_iter()
                .map(|name| tc(directory, &name)),
        );
    for path in links {
        fs::remove_file(&path).map_err(Error::io(&path))?;
    }
    for entry in fs::read_dir(directory).map_err(Error::io(directory))? {
        let path = entry.map_err(Error::io(directory))?.path();
        fs::remove_file(&path).map_err(Error::io(&path))?;
    }
    fs::remove_dir(directory).map_err(Error::io(directory))
}
