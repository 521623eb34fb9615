//! The eBPF object that ships, and how it is loaded: sizes, constants, pins.

use std::path::Path;

use aya::{
    Ebpf, EbpfLoader,
    programs::{SchedClassifier, Xdp},
};
use keepline_common::limits::{ADDRESS_SLOTS, PLANS_MAX};

use super::{
    Error, Options,
    error::chain,
    layout::{self, Shape},
};

/// The object, as the build script made it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/keepline.o"));

/// The program's name in the object and in the kernel.
pub const PROGRAM: &str = "keepline";

/// The program that only passes.
const STUB: &str = "keepline_stub";

/// The program of segments.
const SEGMENT: &str = "keepline_segment";

/// The policy alone, in TC.
const TWIN: &str = "keepline_tc";

/// Sizes that follow from the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The first media port.
    pub media_first: u16,
    /// How many media ports there are.
    pub media_ports: u32,
    /// Entries of `PLANS` and `STATE`.
    pub plans: u32,
    /// Entries of `FLOWS`.
    pub flows: u32,
    /// `FLOWS` is looked into.
    pub transparent: bool,
}

impl Sizes {
    /// The sizes that `options` ask for.
    ///
    /// # Errors
    /// [`Error::Options`] when one is out of bounds.
    pub fn of(options: &Options) -> Result<Self, Error> {
        let (first, last) = (*options.media.start(), *options.media.end());
        let Some(span) = last.checked_sub(first).filter(|_| first != 0) else {
            return Err(Error::Options(format!(
                "media ports {first}-{last}: an empty range"
            )));
        };
        let bounded = |name: &str, value: u32| {
            if (1..=PLANS_MAX).contains(&value) {
                return Ok(value);
            }
            Err(Error::Options(format!(
                "{name} = {value}: must be 1 to {PLANS_MAX}"
            )))
        };
        Ok(Self {
            media_first: first,
            media_ports: u32::from(span) + 1,
            plans: bounded("max_plans", options.max_plans)?,
            flows: bounded("max_flows", options.max_flows)?,
            transparent: options.transparent,
        })
    }

    /// Words of `MEDIA`.
    #[must_use]
    pub const fn media_words(&self) -> u32 {
        self.media_ports * ADDRESS_SLOTS
    }
}

/// Loads the object. With `pins`, maps that are pinned there are taken up and the others are
/// pinned; their shapes were compared before, since the loader does not.
///
/// # Errors
/// [`Error::Load`] with what the kernel says; [`Error::NotPermitted`].
pub fn load(sizes: &Sizes, pins: Option<&Path>) -> Result<Ebpf, Error> {
    let first = u32::from(sizes.media_first);
    let transparent = u32::from(sizes.transparent);
    let mut loader = EbpfLoader::new();
    loader
        .override_global("MEDIA_FIRST", &first, true)
        .override_global("MEDIA_PORTS", &sizes.media_ports, true)
        .override_global("TRANSPARENT", &transparent, true);
    for Shape { name, entries, .. } in layout::shapes(sizes) {
        loader.map_max_entries(name, entries);
        if let Some(pins) = pins {
            loader.map_pin_path(name, pins.join(name));
        }
    }
    let mut ebpf = loader.load(OBJECT).map_err(|error| refused(&error))?;
    program(&mut ebpf)?
        .load()
        .map_err(|error| refused(&error))?;
    // Now: maps that are taken out of the object are beyond a later program's reach.
    segment(&mut ebpf)?
        .load()
        .map_err(|error| refused(&error))?;
    Ok(ebpf)
}

/// The program of a loaded object.
///
/// # Errors
/// [`Error::Load`] when the object holds another.
pub fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, Error> {
    named(ebpf, PROGRAM)
}

/// The program that only passes, loaded when it is first wanted.
pub(super) fn stub(ebpf: &mut Ebpf) -> Result<&mut Xdp, Error> {
    let stub = named(ebpf, STUB)?;
    if stub.fd().is_err() {
        stub.load().map_err(|error| refused(&error))?;
    }
    Ok(stub)
}

/// The program of segments.
pub(super) fn segment(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, Error> {
    classifier(ebpf, SEGMENT)
}

/// The policy in TC: the twin of the XDP program. Loaded when it is first wanted, which must be
/// before any map is taken out of the object.
///
/// # Errors
/// [`Error::Load`] with what the kernel says.
pub fn twin(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, Error> {
    let twin = classifier(ebpf, TWIN)?;
    if twin.fd().is_err() {
        twin.load().map_err(|error| refused(&error))?;
    }
    Ok(twin)
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier, Error> {
    let program = ebpf.program_mut(name);
    program
        .ok_or_else(|| Error::Load(format!("it holds no program {name}")))?
        .try_into()
        .map_err(|error| refused(&error))
}

fn named<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, Error> {
    let program = ebpf.program_mut(name);
    program
        .ok_or_else(|| Error::Load(format!("it holds no program {name}")))?
        .try_into()
        .map_err(|error| refused(&error))
}

fn refused(error: &(dyn std::error::Error + 'static)) -> Error {
    let text = chain(error);
    let denied = text.contains("Operation not permitted") || text.contains("os error 1)");
    if denied {
        Error::NotPermitted
    } else {
        Error::Load(text)
    }
}
