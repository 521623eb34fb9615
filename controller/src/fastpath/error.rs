//! What can go wrong with the fast path, each with its remedy.

use std::{io, path::PathBuf};

/// Why the fast path cannot be loaded, read or taken off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No bpffs where the pins shall be.
    #[error("{0} is not on a bpf file system")]
    NoBpffs(PathBuf),
    /// The kernel refused for lack of privilege.
    #[error("loading eBPF programs needs root, or CAP_BPF and CAP_NET_ADMIN")]
    NotPermitted,
    /// An interface does not exist.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// Another program sits on the interface.
    #[error("{interface} already carries another XDP program: {name} (id {id})")]
    Foreign {
        /// The interface.
        interface: String,
        /// The program's name.
        name: String,
        /// The program's id.
        id: u32,
    },
    /// A pinned map is not the one this version makes.
    #[error("the pinned map {path} differs from this version's: {difference}")]
    Layout {
        /// Its pin.
        path: PathBuf,
        /// What differs.
        difference: String,
    },
    /// The program could not be put on an interface.
    #[error("{interface} (MTU {mtu}) refuses the program in {mode} mode: {reason}")]
    Attach {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The mode tried last.
        mode: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// Nothing is pinned there.
    #[error("no fast path is loaded at {0}")]
    NotLoaded(PathBuf),
    /// A limit of the options is out of its bounds.
    #[error("{0}")]
    Options(String),
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused the object.
    #[error("the kernel refuses the eBPF object: {0}")]
    Load(String),
    /// A map could not be read or written.
    #[error("map {name}: {reason}")]
    Map {
        /// Its name.
        name: &'static str,
        /// What went wrong.
        reason: String,
    },
}

impl Error {
    /// What to do about it, in one sentence.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoBpffs(_) => "mount one: mount -t bpf bpf /sys/fs/bpf".into(),
            Self::NotPermitted => "run it as root".into(),
            Self::NoInterface(_) => "list the interfaces with: ip link".into(),
            Self::Foreign { interface, .. } => format!(
                "take it off with `ip link set dev {interface} xdp off`, or set xdp = \"off\" \
                 for this interface"
            ),
            Self::Layout { .. } => "take the old one off first: keepline fastpath unload".into(),
            Self::Attach { .. } => {
                "try xdp = \"generic\", or a smaller MTU; `keepline doctor` says more".into()
            }
            Self::NotLoaded(_) => "load it: keepline fastpath load, or keepline run".into(),
            Self::Options(_) | Self::Io { .. } | Self::Load(_) | Self::Map { .. } => return None,
        })
    }

    pub(super) fn map(name: &'static str, error: impl std::fmt::Display) -> Self {
        Self::Map {
            name,
            reason: error.to_string(),
        }
    }

    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Io { path, source },
        }
    }
}

/// An error with everything that led to it, on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
